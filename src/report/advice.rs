//! The opportunities of a run that Nsight Compute measured: NVIDIA's rules, mlarun's own table of metrics and the roofline in one
//! ranking. Only estimates of run time are ranked by their size: those of NVIDIA's rules, weighed by the stage's share of the
//! pipeline, and `(time - floor) / sum of the stages' times` for the stage where that is largest. Pure.

use super::analysis::{Analysis, Part};
use super::counters::in_unit;
use super::numbers::{cell, fixed, percent};
use super::opportunities::{self, Opportunities, Opportunity, ProfiledStage, Trigger};
use super::view;
use crate::conf::{CounterName, MetricName, Thresholds};

/// Gains below this many percent are not worth a line.
const LEAST: f64 = 0.5;

/// One line before it has its rank.
#[derive(Debug, Clone, PartialEq)]
struct Candidate {
    name: String,
    gain_percent: Option<f64>,
    trigger: String,
}

/// What NVIDIA's rules say about the launches of the newest record; `None` where Nsight Compute did not measure.
pub(super) fn rules(analysis: &Analysis<'_>) -> Option<Opportunities> {
    let (pass, _) = analysis.nsight()?;
    let profiled = |part: &Part| {
        let stage = pass.stages.iter().find(|stage| stage.stage == part.name)?;
        Some(ProfiledStage { stage: &stage.stage, launch: stage.launch.as_ref()?, duration_ns: part.ns })
    };
    let stages: Vec<ProfiledStage<'_>> = analysis.stages.iter().filter_map(profiled).collect();
    Some(opportunities::opportunities(&stages))
}

/// The three lines of the report; `None` where Nsight Compute did not measure.
pub(super) fn top(analysis: &Analysis<'_>, thresholds: &Thresholds) -> Option<Vec<view::Opportunity>> {
    let rules = rules(analysis)?;
    let candidates = ranked(&analysis.stages, analysis.whole.ns, &rules, thresholds);
    let line = |(index, candidate): (usize, Candidate)| view::Opportunity {
        rank: index + 1,
        name: cell(&candidate.name),
        gain: candidate
            .gain_percent
            .map_or("est. gain unknown".to_owned(), |gain| format!("est. {} gain", percent(Some(gain)))),
        trigger: cell(&candidate.trigger),
    };
    Some(candidates.into_iter().take(3).enumerate().map(line).collect())
}

/// Everything, best first: estimates of run time by their size; unhealthy metrics, those of the longest stage first; rules without an
/// estimate; estimates about one unit of the hardware.
fn ranked(stages: &[Part], total_ns: f64, rules: &Opportunities, thresholds: &Thresholds) -> Vec<Candidate> {
    let of_rule = |rule: &Opportunity, gain_percent| Candidate {
        name: format!("{}: NVIDIA's rule {}", rule.stage, rule.rule),
        gain_percent,
        trigger: told(&rule.trigger),
    };
    let mut estimated: Vec<Candidate> = rules
        .global
        .iter()
        .map(|rule| of_rule(rule, rule.pipeline_percent))
        .chain(roofline(stages, total_ns, thresholds))
        .collect();
    estimated.retain(|candidate| candidate.gain_percent.is_some_and(|gain| gain >= LEAST));
    estimated.sort_by(|a, b| b.gain_percent.unwrap_or(0.0).total_cmp(&a.gain_percent.unwrap_or(0.0)));
    let mut longest: Vec<&Part> = stages.iter().collect();
    longest.sort_by(|a, b| b.ns.total_cmp(&a.ns));
    let unhealthy = longest.into_iter().flat_map(|part| unhealthy(part, thresholds)).map(|sick| Candidate {
        name: format!("{}: {} ({})", sick.stage, sick.otherwise, sick.hint),
        gain_percent: None,
        trigger: format!("{}={}", sick.label, sick.value),
    });
    let local = rules.local.iter().map(|rule| Candidate {
        name: format!(
            "{}: NVIDIA's rule {} (local: {} of one unit)",
            rule.stage,
            rule.rule,
            percent(rule.estimate_percent)
        ),
        ..of_rule(rule, None)
    });
    let unestimated = rules.unestimated.iter().map(|rule| of_rule(rule, None));
    estimated.into_iter().chain(unhealthy).chain(unestimated).chain(local).collect()
}

/// A rule's trigger as `metric=value`.
fn told(trigger: &Trigger) -> String {
    match trigger {
        Trigger::Metric { .. } => trigger.to_string(),
        Trigger::Said { sentence } => format!("said={sentence}"),
    }
}

/// The stage that would gain most at its roofline, with the first of its metrics that is not healthy.
fn roofline(stages: &[Part], total_ns: f64, thresholds: &Thresholds) -> Option<Candidate> {
    let gain = |part: &Part| part.floor_ns().map(|floor| (part.ns - floor) / total_ns * 100.0);
    let (part, gain) = stages
        .iter()
        .filter_map(|part| Some((part, gain(part)?)))
        .filter(|(_, gain)| gain.is_finite())
        .max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let sick = unhealthy(part, thresholds).into_iter().next();
    let focus = match (sick, &part.diagnosis) {
        (Some(sick), _) => format!(" ({}={}: {})", sick.label, sick.value, sick.hint),
        (None, Some(diagnosis)) => format!(" ({})", diagnosis.focus),
        (None, None) => String::new(),
    };
    Some(Candidate {
        name: format!("bring stage {} to its roofline{focus}", part.name),
        gain_percent: Some(gain),
        trigger: format!("roofline fraction={}%", fixed(part.fraction().map(|fraction| fraction * 100.0), 1)),
    })
}

/// A metric of a stage that is not healthy.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Unhealthy {
    pub stage: String,
    pub label: String,
    pub value: String,
    pub otherwise: String,
    pub hint: String,
}

/// The metrics of a stage that are not healthy, in the order in which they are worth a look. Throughput of DRAM and tensor cores counts
/// only where neither is: a stage that keeps one busy need not keep the other.
pub(super) fn unhealthy(part: &Part, thresholds: &Thresholds) -> Vec<Unhealthy> {
    let value = |counter| part.counted(counter);
    let well = |metric, counter| value(counter).is_some_and(|value| thresholds.rule(metric).is_healthy(value));
    let busy = well(MetricName::Dram, CounterName::Dram) || well(MetricName::TensorCore, CounterName::TensorCore);
    [
        (MetricName::LocalSpilling, CounterName::LocalBytes),
        (MetricName::AchievedOccupancy, CounterName::AchievedOccupancy),
        (MetricName::WavesPerSm, CounterName::WavesPerSm),
        (MetricName::L2HitRate, CounterName::L2HitRate),
        (MetricName::Dram, CounterName::Dram),
        (MetricName::TensorCore, CounterName::TensorCore),
    ]
    .into_iter()
    .filter(|(metric, _)| !(busy && matches!(metric, MetricName::Dram | MetricName::TensorCore)))
    .filter_map(|(metric, counter)| {
        let rule = thresholds.rule(metric);
        let value = value(counter).filter(|value| !rule.is_healthy(*value))?;
        Some(Unhealthy {
            stage: part.name.clone(),
            label: rule.label.clone(),
            value: in_unit(rule, value),
            otherwise: rule.otherwise.clone(),
            hint: rule.hint.clone(),
        })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::conf::Conf;
    use crate::model::protocol::Counters;
    use crate::roofline::{Cost, Roof};

    fn part(name: &str, ns: f64, counts: &[(CounterName, f64)]) -> Part {
        let counts = counts.iter().map(|(name, value)| (name.key().to_owned(), *value)).collect();
        Part {
            name: name.to_owned(),
            ns,
            summary: None,
            cost: None,
            roof: None,
            counters: Some(Counters::Counted(counts)),
            diagnosis: None,
        }
    }

    fn rule(stage: &str, estimate_percent: Option<f64>, pipeline_percent: Option<f64>) -> Opportunity {
        Opportunity {
            stage: stage.to_owned(),
            rule: "R".to_owned(),
            description: String::new(),
            estimate_percent,
            pipeline_percent,
            trigger: Trigger::Said { sentence: "only 4 of 32".to_owned() },
        }
    }

    #[test]
    fn estimates_of_run_time_stand_first_and_local_ones_last() {
        let rules = Opportunities {
            global: vec![rule("a", Some(40.0), Some(30.0)), rule("b", Some(1.0), Some(0.4))],
            local: vec![rule("a", Some(99.0), None)],
            unestimated: vec![rule("b", None, None)],
        };
        let mut slow = part("a", 900.0, &[(CounterName::LocalBytes, 64.0), (CounterName::Dram, 90.0)]);
        slow.roof = Some(Roof { flops_per_s: 1e12, bytes_per_s: 1e12 });
        slow.cost = Some(Cost { flops: 0.0, bytes: 500e3 });
        let quick = part("b", 100.0, &[(CounterName::WavesPerSm, 0.5)]);
        let found = ranked(&[quick, slow], 1000.0, &rules, &Conf::default().thresholds);
        let lines: Vec<_> = found
            .iter()
            .map(|found| format!("{} {:?} [{}]", found.name, found.gain_percent.map(f64::round), found.trigger))
            .collect();
        assert_eq!(
            lines,
            [
                "bring stage a to its roofline (Local Spilling=64 bytes: smaller tiles, fewer accumulators) Some(40.0) \
                 [roofline fraction=55.6%]",
                "a: NVIDIA's rule R Some(30.0) [said=only 4 of 32]",
                "a: registers overflow (smaller tiles, fewer accumulators) None [Local Spilling=64 bytes]",
                "b: GPU not filled (more blocks, fewer resources a block) None [Waves/SM=0.500]",
                "b: NVIDIA's rule R None [said=only 4 of 32]",
                "a: NVIDIA's rule R (local: 99% of one unit) None [said=only 4 of 32]",
            ]
        );
    }

    #[test]
    fn one_busy_unit_excuses_the_other() {
        let thresholds = Conf::default().thresholds;
        let labels = |dram: f64, tensor: f64| -> Vec<String> {
            let part = part("a", 1.0, &[(CounterName::Dram, dram), (CounterName::TensorCore, tensor)]);
            unhealthy(&part, &thresholds).into_iter().map(|sick| sick.label).collect()
        };
        assert!(labels(90.0, 0.0).is_empty() && labels(0.0, 90.0).is_empty());
        assert_eq!(labels(10.0, 10.0), ["DRAM Throughput", "TC Util"]);
    }

    proptest! {
        #[test]
        fn larger_estimates_stand_first_and_nothing_is_added(gains in prop::collection::vec(0.0_f64..100.0, 0..8)) {
            let global = gains.iter().map(|gain| rule("a", Some(*gain), Some(*gain))).collect();
            let rules = Opportunities { global, ..Opportunities::default() };
            let found = ranked(&[part("a", 1.0, &[])], 1.0, &rules, &Conf::default().thresholds);
            let ranked: Vec<f64> = found.iter().filter_map(|found| found.gain_percent).collect();
            prop_assert!(ranked.windows(2).all(|pair| pair[0] >= pair[1]));
            prop_assert!(ranked.iter().all(|gain| gains.contains(gain)));
            prop_assert_eq!(ranked.len(), gains.iter().filter(|gain| **gain >= LEAST).count());
        }
    }
}
