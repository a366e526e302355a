//! Which bottleneck the counters, or else the roofline position, tell of. Pure; the rules are those of
//! `conf/thresholds.toml`.

use serde::{Deserialize, Serialize};

use super::numbers::{percent, percent_of, three_digits};
use crate::conf::{Certainty, Focus, Level, MetricName, Thresholds, Verdict};
use crate::model::DeviceKind;
use crate::roofline::{Cost, Limit, Roof};

/// What limits a kernel or a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bottleneck {
    Memory,
    Compute,
    Latency,
}

impl Bottleneck {
    /// `Memory-bound` and so on.
    pub const fn label(self) -> &'static str {
        match self {
            Bottleneck::Memory => "Memory-bound",
            Bottleneck::Compute => "Compute-bound",
            Bottleneck::Latency => "Latency-bound",
        }
    }
}

/// What is known about a piece of work and its time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evidence {
    pub kind: DeviceKind,
    /// DRAM throughput, in percent of its own peak.
    pub dram_percent: Option<f64>,
    /// Tensor-core utilisation, in percent of its own peak.
    pub tensor_core_percent: Option<f64>,
    pub l2_hit_percent: Option<f64>,
    pub cost: Option<Cost>,
    pub roof: Option<Roof>,
    /// Time taken.
    pub ns: f64,
}

/// A named bottleneck with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    pub bottleneck: Bottleneck,
    pub certainty: Certainty,
    /// One sentence without its full stop: what was seen and what decided.
    pub reason: String,
    /// What to look at.
    pub focus: String,
}

impl Diagnosis {
    /// `Memory-bound`, with `(weakly)` where the verdict is weak.
    pub fn label(&self) -> String {
        match self.certainty {
            Certainty::Weak => format!("{} (weakly)", self.bottleneck.label()),
            Certainty::Clear | Certainty::Close => self.bottleneck.label().to_owned(),
        }
    }
}

/// The bottleneck, or `None` where neither both counters nor a roofline position are known.
pub fn diagnose(evidence: &Evidence, thresholds: &Thresholds) -> Option<Diagnosis> {
    match (evidence.kind, evidence.dram_percent, evidence.tensor_core_percent) {
        (DeviceKind::Gpu, Some(dram), Some(tensor)) => Some(by_counters(evidence, dram, tensor, thresholds)),
        _ => by_roofline(evidence, thresholds),
    }
}

fn by_counters(evidence: &Evidence, dram: f64, tensor: f64, thresholds: &Thresholds) -> Diagnosis {
    let level = |metric, value| thresholds.rule(metric).level(value);
    let levels = (level(MetricName::Dram, dram), level(MetricName::TensorCore, tensor));
    let row = thresholds.decision(levels.0, levels.1);
    let bottleneck = match row.verdict {
        Verdict::Memory => Bottleneck::Memory,
        Verdict::Compute => Bottleneck::Compute,
        Verdict::Latency => Bottleneck::Latency,
        Verdict::Larger if dram >= tensor => Bottleneck::Memory,
        Verdict::Larger => Bottleneck::Compute,
    };
    let seen = format!(
        "DRAM at {} of its peak is {}, tensor cores at {} are {}",
        percent(Some(dram)),
        word(levels.0),
        percent(Some(tensor)),
        word(levels.1)
    );
    let aside = match (row.certainty, bottleneck) {
        (Certainty::Weak, _) => ", so the larger decides, weakly",
        (Certainty::Close, Bottleneck::Memory) => ", with compute a close second",
        (Certainty::Close, _) => ", with memory a close second",
        (Certainty::Clear, _) => "",
    };
    let focus = focus(&thresholds.focus, bottleneck);
    let hits = evidence.l2_hit_percent.filter(|hits| !thresholds.rule(MetricName::L2HitRate).is_healthy(*hits));
    let (locality, focus) = match (hits, &thresholds.focus.locality) {
        (Some(hits), Some(hint)) => {
            (format!(", and an L2 hit rate of {} is a locality issue", percent(Some(hits))), format!("{focus}; {hint}"))
        }
        _ => (String::new(), focus),
    };
    Diagnosis { bottleneck, certainty: row.certainty, reason: format!("{seen}{aside}{locality}"), focus }
}

fn by_roofline(evidence: &Evidence, thresholds: &Thresholds) -> Option<Diagnosis> {
    let (cost, roof) = (evidence.cost?, evidence.roof?);
    let fraction = roof.fraction(cost, evidence.ns)?;
    let rule = thresholds.roofline;
    let limit = roof.limit(cost);
    let (bottleneck, certainty) = match limit {
        _ if fraction < rule.latency_below => (Bottleneck::Latency, Certainty::Clear),
        Limit::Memory => (Bottleneck::Memory, weak_below(fraction, rule.weak_below)),
        Limit::Compute => (Bottleneck::Compute, weak_below(fraction, rule.weak_below)),
    };
    let (focus_of, why) = match evidence.kind {
        DeviceKind::Cpu => (&thresholds.focus_cpu, "on a CPU the roofline position decides"),
        DeviceKind::Gpu => (&thresholds.focus, "counters are missing, so the roofline position decides"),
    };
    let side = match limit {
        Limit::Memory => "at or below",
        Limit::Compute => "above",
    };
    let position = match cost.intensity() {
        Some(intensity) => format!(
            "{} FLOP/byte is {side} the ridge point of {}",
            three_digits(Some(intensity)),
            three_digits(Some(roof.ridge_point()))
        ),
        None => "no byte is moved".to_owned(),
    };
    let reached = percent_of(Some(fraction));
    let reason = match (bottleneck, certainty) {
        (Bottleneck::Latency, _) => {
            format!("{why}: {position}, but {reached} of the roofline is too little for either peak to limit")
        }
        (_, Certainty::Weak) => format!("{why}: {position}, weakly at {reached} of the roofline"),
        _ => format!("{why}: {position}, at {reached} of the roofline"),
    };
    Some(Diagnosis { bottleneck, certainty, reason, focus: focus(focus_of, bottleneck) })
}

fn weak_below(fraction: f64, limit: f64) -> Certainty {
    if fraction < limit { Certainty::Weak } else { Certainty::Clear }
}

fn focus(focus: &Focus, bottleneck: Bottleneck) -> String {
    match bottleneck {
        Bottleneck::Memory => focus.memory.clone(),
        Bottleneck::Compute => focus.compute.clone(),
        Bottleneck::Latency => focus.latency.clone(),
    }
}

const fn word(level: Level) -> &'static str {
    match level {
        Level::High => "high",
        Level::Middle => "middling",
        Level::Low => "low",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conf::Conf;

    const ROOF: Roof = Roof { flops_per_s: 1e12, bytes_per_s: 1e11 };

    fn gpu(dram: f64, tensor: f64) -> Evidence {
        Evidence {
            kind: DeviceKind::Gpu,
            dram_percent: Some(dram),
            tensor_core_percent: Some(tensor),
            l2_hit_percent: None,
            cost: None,
            roof: None,
            ns: 1e6,
        }
    }

    fn position(kind: DeviceKind, intensity: f64, fraction: f64) -> Evidence {
        let cost = Cost { flops: 1e6 * intensity, bytes: 1e6 };
        let ns = ROOF.floor_ns(cost) / fraction;
        Evidence { kind, dram_percent: None, cost: Some(cost), roof: Some(ROOF), ns, ..gpu(0.0, 0.0) }
    }

    fn label(evidence: &Evidence) -> String {
        diagnose(evidence, &Conf::default().thresholds).expect("there is evidence").label()
    }

    fn reason(evidence: &Evidence) -> String {
        diagnose(evidence, &Conf::default().thresholds).expect("there is evidence").reason
    }

    #[test]
    fn the_whole_table_is_decided() {
        let cases = [
            (80.0, 10.0, "Memory-bound"),
            (80.0, 50.0, "Memory-bound"),
            (10.0, 80.0, "Compute-bound"),
            (50.0, 80.0, "Compute-bound"),
            (90.0, 80.0, "Memory-bound"),
            (80.0, 90.0, "Compute-bound"),
            (10.0, 10.0, "Latency-bound"),
            (50.0, 40.0, "Memory-bound (weakly)"),
            (40.0, 50.0, "Compute-bound (weakly)"),
            (50.0, 10.0, "Memory-bound (weakly)"),
            (10.0, 50.0, "Compute-bound (weakly)"),
        ];
        for (dram, tensor, expected) in cases {
            assert_eq!(label(&gpu(dram, tensor)), expected, "DRAM {dram}, tensor cores {tensor}");
        }
    }

    #[test]
    fn a_close_second_and_locality_are_named() {
        assert!(reason(&gpu(90.0, 80.0)).ends_with("with compute a close second"));
        assert!(reason(&gpu(80.0, 90.0)).ends_with("with memory a close second"));
        let misses = Evidence { l2_hit_percent: Some(40.0), ..gpu(80.0, 10.0) };
        assert!(reason(&misses).ends_with("an L2 hit rate of 40% is a locality issue"));
    }

    #[test]
    fn without_counters_the_position_decides_and_says_so() {
        let near = position(DeviceKind::Cpu, 5.0, 0.8);
        assert_eq!(label(&near), "Memory-bound");
        assert_eq!(
            reason(&near),
            "on a CPU the roofline position decides: 5.00 FLOP/byte is at or below the ridge point of 10.00, at 80% of the roofline"
        );
        assert_eq!(label(&position(DeviceKind::Cpu, 20.0, 0.8)), "Compute-bound");
        assert_eq!(label(&position(DeviceKind::Cpu, 20.0, 0.2)), "Compute-bound (weakly)");
        assert_eq!(label(&position(DeviceKind::Cpu, 20.0, 0.05)), "Latency-bound");
        assert!(reason(&position(DeviceKind::Gpu, 20.0, 0.8)).starts_with("counters are missing"));
    }

    #[test]
    fn without_any_evidence_nothing_is_claimed() {
        let nothing = Evidence { dram_percent: None, ..gpu(0.0, 50.0) };
        assert_eq!(diagnose(&nothing, &Conf::default().thresholds), None);
    }
}
