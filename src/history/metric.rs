//! What can be followed over time: a number that one record has.

use std::fmt;
use std::str::FromStr;

use crate::model::Timing;
use crate::model::clocks::Reading;
use crate::model::protocol::Counters;
use crate::model::record::{AnnotationPass, Body, Record, RecordKind};
use crate::stats;

/// A number that a record has, one a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Metric {
    /// Median of the samples of one process.
    Time(Timing),
    /// Clock of the multiprocessors while samples were taken.
    SmClock,
    /// Power after the samples were taken.
    Power,
    /// Temperature after the samples were taken.
    Temperature,
    /// Relative error of the output.
    Error,
    /// Median time of one stage, run by itself.
    Stage(String),
    /// A hardware counter, all stages together.
    Counter(String),
}

/// The text names no metric.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no metric; there are cold_isolated (or duration), warm_isolated, warm_batched, sm_mhz, power_w, temperature_c, \
     error, stage.NAME and counter.NAME"
)]
pub struct UnknownMetric(pub String);

impl FromStr for Metric {
    type Err = UnknownMetric;

    fn from_str(text: &str) -> Result<Metric, UnknownMetric> {
        let timing = Timing::ALL.into_iter().find(|timing| timing.name() == text);
        let named = |prefix| text.strip_prefix(prefix).filter(|name: &&str| !name.is_empty()).map(str::to_owned);
        match text {
            "duration" => Ok(Metric::Time(Timing::ColdIsolated)),
            "sm_mhz" => Ok(Metric::SmClock),
            "power_w" => Ok(Metric::Power),
            "temperature_c" => Ok(Metric::Temperature),
            "error" => Ok(Metric::Error),
            _ => {
                let other = timing.map(Metric::Time).or_else(|| named("stage.").map(Metric::Stage));
                let other = other.or_else(|| named("counter.").map(Metric::Counter));
                other.ok_or_else(|| UnknownMetric(text.to_owned()))
            }
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Metric::Time(timing) => f.write_str(timing.name()),
            Metric::SmClock => f.write_str("sm_mhz"),
            Metric::Power => f.write_str("power_w"),
            Metric::Temperature => f.write_str("temperature_c"),
            Metric::Error => f.write_str("error"),
            Metric::Stage(name) => write!(f, "stage.{name}"),
            Metric::Counter(name) => write!(f, "counter.{name}"),
        }
    }
}

impl Metric {
    /// The records that have it.
    pub const fn kind(&self) -> RecordKind {
        match self {
            Metric::Stage(_) | Metric::Counter(_) => RecordKind::Annotation,
            _ => RecordKind::Event,
        }
    }

    /// Symbol of the unit of its numbers; nothing for what has none.
    pub const fn unit(&self) -> &'static str {
        match self {
            Metric::Time(_) | Metric::Stage(_) => "ns",
            Metric::SmClock => "MHz",
            Metric::Power => "W",
            Metric::Temperature => "°C",
            Metric::Error | Metric::Counter(_) => "",
        }
    }

    /// Whether its numbers are times in nanoseconds, which texts show in a unit that suits them.
    pub const fn is_time(&self) -> bool {
        matches!(self, Metric::Time(_) | Metric::Stage(_))
    }

    /// The number that `record` has; `None` where it has none.
    pub fn of(&self, record: &Record) -> Option<f64> {
        let after = |value: fn(&Reading) -> Option<f64>| {
            record.environment.telemetry.as_ref().and_then(|telemetry| value(&telemetry.after))
        };
        let value = match (self, &record.body) {
            (Metric::Time(timing), Body::Event(set)) => {
                let samples = set.samples.iter().find(|samples| samples.timing == *timing)?;
                stats::median(&samples.ns).ok()
            }
            (Metric::SmClock, Body::Event(set)) => set.sm_mhz.or_else(|| after(|seen| seen.sm_mhz.map(f64::from))),
            (Metric::Power, Body::Event(_)) => after(|seen| seen.power_w),
            (Metric::Temperature, Body::Event(_)) => after(|seen| seen.temperature_c.map(f64::from)),
            (Metric::Error, Body::Event(set)) => Some(set.verification.relative_frobenius),
            (Metric::Stage(name), Body::Annotation(pass)) => {
                let stage = pass.stages.iter().find(|stage| stage.stage == *name)?;
                stats::median(&stage.ns).ok()
            }
            (Metric::Counter(name), Body::Annotation(pass)) => counted(pass, name),
            _ => None,
        };
        value.filter(|value| value.is_finite())
    }
}

/// The counter `name` over all stages; `None` where one of them lacks it.
fn counted(pass: &AnnotationPass, name: &str) -> Option<f64> {
    let of_stage = |counters: &Counters| match counters {
        Counters::Counted(counts) => counts.get(name).copied(),
        _ => None,
    };
    let counts: Option<Vec<f64>> = pass.stages.iter().map(|stage| of_stage(&stage.counters)).collect();
    counts.filter(|counts| !counts.is_empty()).map(|counts| counts.iter().sum())
}
