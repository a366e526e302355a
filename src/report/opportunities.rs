//! What NVIDIA's rules see to gain, ranked. Pure. Estimates of a kernel's run time are weighed by the stage's share of the pipeline;
//! those about one unit of the hardware are listed apart, and no two estimates are ever added.

use serde::Serialize;

use crate::model::ncu::{Launch, Rule, RuleKind, Scope};
use crate::model::quantity::{Reading, Unit};

/// A stage, its profiled launch and the time that this launch took under the profiler.
#[derive(Debug, Clone, Copy)]
pub struct ProfiledStage<'a> {
    pub stage: &'a str,
    pub launch: &'a Launch,
    pub duration_ns: f64,
}

/// What there is to gain, by how well it is estimated.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Opportunities {
    /// With an estimate of run time, the largest for the pipeline first.
    pub global: Vec<Opportunity>,
    /// With an estimate about one unit of the hardware, the largest first; they say nothing about run time.
    pub local: Vec<Opportunity>,
    /// Without an estimate, in the order of stages and rules.
    pub unestimated: Vec<Opportunity>,
}

/// Something to gain in one stage.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Opportunity {
    pub stage: String,
    pub rule: String,
    /// What the rule says in full.
    pub description: String,
    /// In percent: of the stage's run time where it is global, of one unit's efficiency where it is local.
    pub estimate_percent: Option<f64>,
    /// In percent of the run time of all stages one after another; for global estimates alone. Where stages overlap it is an
    /// upper bound.
    pub pipeline_percent: Option<f64>,
    pub trigger: Trigger,
}

/// What made a rule speak.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// A metric and its value.
    Metric { name: String, reading: Reading },
    /// The sentence in which the rule gives its numbers.
    Said { sentence: String },
}

impl std::fmt::Display for Trigger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trigger::Metric { name, reading } => write!(f, "{name}={reading}"),
            Trigger::Said { sentence } => f.write_str(sentence),
        }
    }
}

/// The metric that a rule looks at, as its section shows it. Rules that look at several say their numbers themselves.
const TRIGGERS: [(&str, &str, Unit); 6] = [
    ("AchievedOccupancy", "Achieved Occupancy", Unit::PERCENT),
    ("HighPipeUtilization", "SM Busy", Unit::PERCENT),
    ("IssueSlotUtilization", "No Eligible", Unit::PERCENT),
    ("LaunchConfiguration", "Grid Size", Unit::ONE),
    ("MemoryL2Compression", "L2 Compression Success Rate", Unit::PERCENT),
    ("TheoreticalOccupancy", "Theoretical Occupancy", Unit::PERCENT),
];

/// The opportunities that the rules of these stages see. A rule that speaks several times about one launch counts once, with its
/// largest estimate.
pub fn opportunities(stages: &[ProfiledStage<'_>]) -> Opportunities {
    let total_ns: f64 = stages.iter().map(|stage| stage.duration_ns).sum();
    let mut found = Opportunities::default();
    for stage in stages {
        let share = (total_ns > 0.0).then(|| stage.duration_ns / total_ns);
        for rule in strongest(&stage.launch.rules) {
            let scope = rule.estimate.map(|estimate| estimate.scope);
            let estimate_percent = rule.estimate.map(|estimate| estimate.percent);
            let global = estimate_percent.filter(|_| scope == Some(Scope::Global));
            let opportunity = Opportunity {
                stage: stage.stage.to_owned(),
                rule: rule.name.clone(),
                description: rule.description.clone(),
                estimate_percent,
                pipeline_percent: global.zip(share).map(|(percent, share)| percent * share),
                trigger: trigger(rule, stage.launch),
            };
            match scope {
                Some(Scope::Global) => found.global.push(opportunity),
                Some(Scope::Local) => found.local.push(opportunity),
                None => found.unestimated.push(opportunity),
            }
        }
    }
    let descending = |a: Option<f64>, b: Option<f64>| b.unwrap_or(0.0).total_cmp(&a.unwrap_or(0.0));
    found.global.sort_by(|a, b| descending(a.pipeline_percent, b.pipeline_percent));
    found.local.sort_by(|a, b| descending(a.estimate_percent, b.estimate_percent));
    found
}

/// The rules that see something to gain, each name and scope once, in the order in which they first speak.
fn strongest(rules: &[Rule]) -> Vec<&Rule> {
    let mut kept: Vec<&Rule> = Vec::new();
    let scope = |rule: &Rule| rule.estimate.map(|estimate| estimate.scope);
    let percent = |rule: &Rule| rule.estimate.map(|estimate| estimate.percent);
    for rule in rules.iter().filter(|rule| rule.kind == RuleKind::Optimization) {
        match kept.iter_mut().find(|known| known.name == rule.name && scope(known) == scope(rule)) {
            Some(known) if percent(rule) > percent(known) => *known = rule,
            Some(_) => {}
            None => kept.push(rule),
        }
    }
    kept
}

fn trigger(rule: &Rule, launch: &Launch) -> Trigger {
    let metric = TRIGGERS.iter().find(|(name, ..)| *name == rule.name).and_then(|&(_, metric, unit)| {
        let value = launch.shown(metric, unit)?;
        Some(Trigger::Metric { name: metric.to_owned(), reading: Reading::Number { value, unit } })
    });
    metric.unwrap_or_else(|| Trigger::Said { sentence: telling(&rule.description).to_owned() })
}

/// The first sentence that holds a number, or the first one. Decimal points end no sentence, and `L1TEX` is no number.
fn telling(description: &str) -> &str {
    let mut sentences = description.split_inclusive(". ").map(|sentence| sentence.trim().trim_end_matches('.'));
    let first = sentences.clone().next().unwrap_or_default();
    let numeric = |word: &str| word.trim_start_matches('(').starts_with(|character: char| character.is_ascii_digit());
    sentences.find(|sentence| sentence.split_whitespace().any(numeric)).unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::ncu::{Estimate, LaunchId, SectionReading};

    fn rule(name: &str, estimate: Option<(Scope, f64)>) -> Rule {
        Rule {
            section: "S".to_owned(),
            name: name.to_owned(),
            kind: RuleKind::Optimization,
            description: "Something about L1TEX is slow. Only 16.0 of 32 bytes are used. Look at it.".to_owned(),
            estimate: estimate.map(|(scope, percent)| Estimate { scope, percent }),
        }
    }

    fn launch(rules: Vec<Rule>) -> Launch {
        let reading = Reading::Number { value: 62.5, unit: Unit::PERCENT };
        Launch {
            id: LaunchId { process: None, number: 0 },
            kernel: "a".to_owned(),
            grid: None,
            block: None,
            device: None,
            context: None,
            stream: None,
            capability: None,
            metrics: Default::default(),
            sections: vec![SectionReading {
                section: "O".to_owned(),
                metric: "Theoretical Occupancy".to_owned(),
                reading,
            }],
            rules,
        }
    }

    fn stage<'a>(stage: &'a str, launch: &'a Launch, duration_ns: f64) -> ProfiledStage<'a> {
        ProfiledStage { stage, launch, duration_ns }
    }

    fn names(opportunities: &[Opportunity]) -> Vec<(&str, &str)> {
        opportunities.iter().map(|found| (found.stage.as_str(), found.rule.as_str())).collect()
    }

    #[test]
    fn a_small_gain_in_a_long_stage_stands_above_a_large_one_in_a_short_stage() {
        let (global, local) = (Scope::Global, Scope::Local);
        let short = launch(vec![rule("A", Some((global, 80.0))), rule("B", Some((local, 99.0)))]);
        let long = launch(vec![rule("A", Some((global, 30.0))), rule("C", None)]);
        let found = opportunities(&[stage("short", &short, 100.0), stage("long", &long, 900.0)]);
        assert_eq!(names(&found.global), [("long", "A"), ("short", "A")]);
        assert_eq!(found.global[0].pipeline_percent, Some(30.0 * 0.9));
        assert_eq!(names(&found.local), [("short", "B")]);
        assert_eq!(found.local[0].pipeline_percent, None);
        assert_eq!(names(&found.unestimated), [("long", "C")]);
    }

    #[test]
    fn a_rule_that_repeats_itself_counts_once() {
        let rules = [21.81, 21.84, 21.8].map(|percent| rule("A", Some((Scope::Global, percent)))).into();
        let found = opportunities(&[stage("x", &launch(rules), 1.0)]);
        let estimates: Vec<_> = found.global.iter().map(|found| found.estimate_percent).collect();
        assert_eq!(estimates, [Some(21.84)]);
    }

    #[test]
    fn what_is_only_worth_knowing_is_no_opportunity() {
        let known = Rule { kind: RuleKind::Information, ..rule("A", Some((Scope::Global, 9.0))) };
        assert_eq!(opportunities(&[stage("x", &launch(vec![known]), 1.0)]), Opportunities::default());
    }

    #[test]
    fn each_names_its_trigger() {
        let rules = vec![rule("TheoreticalOccupancy", None), rule("AchievedOccupancy", None)];
        let found = opportunities(&[stage("x", &launch(rules), 1.0)]);
        let triggers: Vec<_> = found.unestimated.iter().map(|found| found.trigger.to_string()).collect();
        assert_eq!(triggers, ["Theoretical Occupancy=62.5%", "Only 16.0 of 32 bytes are used"]);
        assert_eq!((telling(""), telling("No number. None.")), ("", "No number"));
    }

    proptest! {
        #[test]
        fn no_gain_exceeds_the_largest_estimate(percents in prop::collection::vec(0.0_f64..100.0, 1..6), ns in prop::collection::vec(0.0_f64..1e9, 1..4)) {
            let rules = percents.iter().enumerate().map(|(index, &percent)| rule(&format!("R{index}"), Some((Scope::Global, percent))));
            let launch = launch(rules.collect());
            let stages: Vec<_> = ns.iter().map(|&ns| stage("x", &launch, ns)).collect();
            let largest = percents.iter().copied().fold(0.0, f64::max);
            let found = opportunities(&stages);
            prop_assert_eq!(found.global.len(), percents.len() * ns.len());
            prop_assert!(found.global.iter().all(|found| found.pipeline_percent.unwrap_or(0.0) <= largest + 1e-9));
            prop_assert!(found.global.windows(2).all(|pair| pair[0].pipeline_percent >= pair[1].pipeline_percent));
        }
    }
}
