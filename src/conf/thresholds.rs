//! `conf/thresholds.toml`: when a metric is healthy, and which levels of counters mean which bottleneck.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{ConfError, Invalid, check_schema};

pub(super) const FILE: &str = "thresholds.toml";
pub(super) const DEFAULT: &str = include_str!("../../conf/thresholds.toml");

/// How metrics are read and bottlenecks named.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thresholds {
    schema: u32,
    #[serde(rename = "metric")]
    pub metrics: BTreeMap<MetricName, MetricRule>,
    #[serde(rename = "decision")]
    pub decisions: Vec<Decision>,
    pub roofline: RooflineRule,
    pub focus: Focus,
    pub focus_cpu: Focus,
}

/// A metric that has a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricName {
    TensorCore,
    Dram,
    AchievedOccupancy,
    L2HitRate,
    LocalSpilling,
    WavesPerSm,
}

impl MetricName {
    const ALL: [MetricName; 6] = [
        MetricName::TensorCore,
        MetricName::Dram,
        MetricName::AchievedOccupancy,
        MetricName::L2HitRate,
        MetricName::LocalSpilling,
        MetricName::WavesPerSm,
    ];

    const fn key(self) -> &'static str {
        match self {
            MetricName::TensorCore => "tensor_core",
            MetricName::Dram => "dram",
            MetricName::AchievedOccupancy => "achieved_occupancy",
            MetricName::L2HitRate => "l2_hit_rate",
            MetricName::LocalSpilling => "local_spilling",
            MetricName::WavesPerSm => "waves_per_sm",
        }
    }
}

/// When one metric is healthy, and what it means otherwise.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "RawRule")]
pub struct MetricRule {
    pub label: String,
    pub unit: Unit,
    pub healthy: Healthy,
    /// The level is low below this value; only for the metrics that decide bottlenecks.
    pub low_below: Option<f64>,
    pub otherwise: String,
    pub hint: String,
}

impl MetricRule {
    /// Whether `value` is healthy.
    pub fn is_healthy(&self, value: f64) -> bool {
        match self.healthy {
            Healthy::Above(limit) => value > limit,
            Healthy::AtMost(limit) => value <= limit,
        }
    }

    /// Level of `value`: high is healthy, and without a low limit everything else is low.
    pub fn level(&self, value: f64) -> Level {
        if self.is_healthy(value) {
            Level::High
        } else if self.low_below.is_some_and(|low| value >= low) {
            Level::Middle
        } else {
            Level::Low
        }
    }
}

/// Unit of a metric's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    Percent,
    Bytes,
    Count,
}

/// The healthy side of a limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Healthy {
    Above(f64),
    AtMost(f64),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    label: String,
    unit: Unit,
    healthy_above: Option<f64>,
    healthy_at_most: Option<f64>,
    low_below: Option<f64>,
    otherwise: String,
    hint: String,
}

impl TryFrom<RawRule> for MetricRule {
    type Error = &'static str;

    fn try_from(raw: RawRule) -> Result<Self, Self::Error> {
        let healthy = match (raw.healthy_above, raw.healthy_at_most) {
            (Some(limit), None) => Healthy::Above(limit),
            (None, Some(limit)) => Healthy::AtMost(limit),
            _ => return Err("a metric needs exactly one of `healthy_above` and `healthy_at_most`"),
        };
        let RawRule { label, unit, low_below, otherwise, hint, .. } = raw;
        Ok(MetricRule { label, unit, healthy, low_below, otherwise, hint })
    }
}

/// Level of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Low,
    Middle,
    High,
}

/// One row of the decision table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    pub dram: Level,
    pub tensor_core: Level,
    pub verdict: Verdict,
    pub certainty: Certainty,
}

/// What a row of the table decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Memory,
    Compute,
    Latency,
    /// Memory or compute, whichever metric has the larger fraction of its own peak.
    Larger,
}

/// How sure a verdict is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    Clear,
    /// Marked "weakly".
    Weak,
    /// The other peak is a close second.
    Close,
}

/// How the roofline position decides where counters are missing.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RooflineRule {
    /// Below this fraction of the roofline, latency is the bottleneck.
    pub latency_below: f64,
    /// Below this fraction of the roofline, the verdict is weak.
    pub weak_below: f64,
}

/// What to look at, by verdict.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Focus {
    pub memory: String,
    pub compute: String,
    pub latency: String,
    /// Where the L2 hit rate is not healthy.
    pub locality: Option<String>,
}

impl Thresholds {
    /// The rule of `metric`.
    pub fn rule(&self, metric: MetricName) -> &MetricRule {
        self.metrics.get(&metric).expect("every metric was checked to have a rule")
    }

    /// The row for a pair of levels.
    pub fn decision(&self, dram: Level, tensor_core: Level) -> Decision {
        let found = self.decisions.iter().find(|row| (row.dram, row.tensor_core) == (dram, tensor_core));
        *found.expect("every pair of levels was checked to have a row")
    }
}

pub(super) fn parse(file: &Path, text: &str) -> Result<Thresholds, ConfError> {
    super::parse(file, text, check)
}

fn check(thresholds: &Thresholds) -> Result<(), Invalid> {
    check_schema(thresholds.schema)?;
    for metric in MetricName::ALL {
        let key = format!("metric.{}", metric.key());
        let rule = thresholds.metrics.get(&metric);
        check_rule(&key, rule.ok_or_else(|| Invalid::new(&key, "missing", "a rule for every metric"))?)?;
    }
    check_table(&thresholds.decisions)?;
    let RooflineRule { latency_below, weak_below } = thresholds.roofline;
    if !(0.0..=1.0).contains(&latency_below) {
        return Err(Invalid::new("roofline.latency_below", latency_below, "0 to 1"));
    }
    if !(latency_below..=1.0).contains(&weak_below) {
        return Err(Invalid::new("roofline.weak_below", weak_below, format!("latency_below ({latency_below}) to 1")));
    }
    Ok(())
}

fn check_rule(key: &str, rule: &MetricRule) -> Result<(), Invalid> {
    let (name, limit) = match rule.healthy {
        Healthy::Above(limit) => ("healthy_above", limit),
        Healthy::AtMost(limit) => ("healthy_at_most", limit),
    };
    if !(limit.is_finite() && limit >= 0.0) {
        return Err(Invalid::new(format!("{key}.{name}"), limit, "a finite number that is not negative"));
    }
    match rule.low_below {
        Some(low) if !(0.0..=limit).contains(&low) => {
            Err(Invalid::new(format!("{key}.low_below"), low, format!("0 to the healthy limit ({limit})")))
        }
        _ => Ok(()),
    }
}

fn check_table(decisions: &[Decision]) -> Result<(), Invalid> {
    let pairs: BTreeSet<_> = decisions.iter().map(|row| (row.dram, row.tensor_core)).collect();
    let complete = pairs.len() == 9 && decisions.len() == 9;
    if complete {
        return Ok(());
    }
    let value = format!("a table of {} rows for {} pairs of levels", decisions.len(), pairs.len());
    Err(Invalid::new("decision", value, "exactly one row for each of the 9 pairs of low, middle and high"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults() -> Thresholds {
        parse(Path::new(FILE), DEFAULT).expect("the default is valid")
    }

    #[test]
    fn the_limits_are_those_of_the_protocol() {
        let thresholds = defaults();
        let healthy = |metric: MetricName| thresholds.rule(metric).healthy;
        assert_eq!(healthy(MetricName::TensorCore), Healthy::Above(60.0));
        assert_eq!(healthy(MetricName::Dram), Healthy::Above(70.0));
        assert_eq!(healthy(MetricName::AchievedOccupancy), Healthy::Above(25.0));
        assert_eq!(healthy(MetricName::L2HitRate), Healthy::Above(80.0));
        assert_eq!(healthy(MetricName::LocalSpilling), Healthy::AtMost(0.0));
        assert_eq!(healthy(MetricName::WavesPerSm), Healthy::Above(1.0));
    }

    #[test]
    fn levels_meet_at_their_limits() {
        let thresholds = defaults();
        let level = |value| thresholds.rule(MetricName::Dram).level(value);
        assert_eq!(
            [level(70.1), level(70.0), level(35.0), level(34.9)],
            [Level::High, Level::Middle, Level::Middle, Level::Low]
        );
        assert!(thresholds.rule(MetricName::LocalSpilling).is_healthy(0.0));
        assert!(!thresholds.rule(MetricName::LocalSpilling).is_healthy(4.0));
    }

    #[test]
    fn the_table_must_be_whole() {
        let cut =
            DEFAULT.replacen("dram = \"low\"\ntensor_core = \"middle\"", "dram = \"low\"\ntensor_core = \"low\"", 1);
        let error = parse(Path::new(FILE), &cut).expect_err("a pair is missing").to_string();
        assert!(error.contains("`decision`") && error.contains("9 rows for 8 pairs"), "{error}");
    }

    #[test]
    fn a_rule_needs_one_limit() {
        let both = DEFAULT.replace("healthy_above = 60.0", "healthy_above = 60.0\nhealthy_at_most = 1.0");
        let error = parse(Path::new(FILE), &both).expect_err("two limits").to_string();
        assert!(error.contains("exactly one of"), "{error}");
        let none = DEFAULT.replace("[metric.dram]", "[metric.dram_]");
        let error = parse(Path::new(FILE), &none).expect_err("no such metric").to_string();
        assert!(error.contains("dram_") && error.contains("l2_hit_rate"), "{error}");
    }
}
