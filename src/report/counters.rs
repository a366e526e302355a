//! What Nsight Compute counted, a row a metric and a column a stage, beside what the cost model says. Arithmetic and texts of the
//! section that the template `profile.md.hbs` shows; no I/O.

use std::collections::BTreeMap;

use serde::Serialize;

use super::analysis::{Analysis, Part};
use super::numbers::{ABSENT, cell, fixed, gb_per_s, microseconds, percent, three_digits};
use crate::conf::{CounterName, Healthy, MetricName, MetricRule, Thresholds, Unit};
use crate::model::quantity::Reading;
use crate::model::record::{AnnotationPass, NcuRun};
use crate::model::{DType, Peaks};

/// Cost model and counters agree up to this part of the model's bytes.
const TOLERANCE: f64 = 0.20;

/// The section's finished texts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct CountersView {
    /// Names of the columns.
    pub stages: Vec<String>,
    pub rows: Vec<CounterRow>,
    /// What the durations are.
    pub note: String,
    /// Stages of which cost model and counters say different things.
    pub disagreements: Vec<String>,
    /// Metrics that were asked for and did not come.
    pub missing: Vec<String>,
}

/// One metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct CounterRow {
    pub metric: String,
    /// A stage each, marked where the metric has a threshold.
    pub cells: Vec<String>,
    pub healthy: String,
    /// What it means where it is not healthy, and what to look at; empty where all stages are.
    pub hint: String,
}

/// The section of a run that Nsight Compute measured; `None` for others.
pub(super) fn section(analysis: &Analysis<'_>, thresholds: &Thresholds) -> Option<CountersView> {
    let (pass, run) = analysis.nsight()?;
    let table = Table { parts: &analysis.stages, thresholds };
    Some(CountersView {
        stages: analysis.stages.iter().map(|part| cell(&part.name)).collect(),
        rows: table.rows(analysis),
        note: note(analysis, run),
        disagreements: analysis.stages.iter().filter_map(disagreement).collect(),
        missing: missing(pass, run),
    })
}

/// What Nsight Compute is called, with its version.
pub(super) fn tool(run: &NcuRun) -> String {
    cell(&format!("Nsight Compute {}", run.version))
}

/// SM clocks that the stages saw, as one number or a range, in MHz.
pub(super) fn clocks(parts: &[Part]) -> String {
    let hz = || parts.iter().filter_map(|part| part.counted(CounterName::SmClock)).filter(|hz| hz.is_finite());
    megahertz(hz().map(|hz| hz / 1e6))
}

/// One number or a range.
pub(super) fn megahertz(mhz: impl Iterator<Item = f64> + Clone) -> String {
    let (low, high) = mhz.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), mhz| (low.min(mhz), high.max(mhz)));
    match (fixed(Some(low), 0), fixed(Some(high), 0)) {
        (low, high) if low == high => low,
        (low, high) => format!("{low} to {high}"),
    }
}

fn note(analysis: &Analysis<'_>, run: &NcuRun) -> String {
    format!(
        "Duration under {}, kernels serialised, clocks {} MHz: profiled times are no event timings and are never compared \
         with them as if they were. Theoretical occupancy is computed, achieved occupancy measured.",
        tool(run),
        clocks(&analysis.stages)
    )
}

struct Table<'a> {
    parts: &'a [Part],
    thresholds: &'a Thresholds,
}

impl Table<'_> {
    fn rows(&self, analysis: &Analysis<'_>) -> Vec<CounterRow> {
        use CounterName as C;
        let dtype = analysis.run.shape.dtype();
        let peaks = analysis.run.peaks.as_ref();
        let tensor = |part: &Part| peaks.zip(dtype).and_then(|(peaks, dtype)| tensor_flops_per_s(part, peaks, dtype));
        let whole = |value| fixed(value, 0);
        let mega = |value: Option<f64>| three_digits(value.map(|value| value / 1e6));
        let tera = |rate: Option<f64>| three_digits(rate.map(|rate| rate / 1e12));
        vec![
            self.row("Duration under Nsight Compute (us)", |part| microseconds(Some(part.ns))),
            self.judged("TC Util", MetricName::TensorCore, C::TensorCore, percent),
            self.judged("DRAM Throughput", MetricName::Dram, C::Dram, percent),
            self.row("DRAM traffic (MB)", |part| mega(part.counted(C::DramBytes))),
            self.judged("Achieved Occupancy", MetricName::AchievedOccupancy, C::AchievedOccupancy, percent),
            self.row("Theoretical Occupancy", |part| percent(part.counted(C::TheoreticalOccupancy))),
            self.row("Occupancy limited by", limiters),
            self.judged("L2 Hit Rate", MetricName::L2HitRate, C::L2HitRate, percent),
            self.row("L1 Hit Rate", |part| percent(part.counted(C::L1HitRate))),
            self.judged("Local memory traffic (MB)", MetricName::LocalSpilling, C::LocalBytes, mega),
            self.judged("Waves/SM", MetricName::WavesPerSm, C::WavesPerSm, three_digits),
            self.row("Registers a thread", |part| whole(part.counted(C::Registers))),
            self.row("Shared memory a block (bytes)", |part| whole(part.counted(C::SharedMemory))),
            self.row("SM speed of light", |part| percent(part.counted(C::SmThroughput))),
            self.row("Memory speed of light", |part| percent(part.counted(C::MemoryThroughput))),
            self.row("SM clock (MHz)", |part| whole(part.counted(C::SmClock).map(|hz| hz / 1e6))),
            self.row("TFLOP/s by the cost model", |part| tera(part.flops_per_s())),
            self.row("TFLOP/s by the counters (TC Util of the peak at this clock)", |part| tera(tensor(part))),
            self.row("GB/s by the cost model", |part| gb_per_s(part.bytes_per_s())),
            self.row("GB/s by the counters (DRAM traffic / duration)", |part| gb_per_s(counted_bytes_per_s(part))),
        ]
    }

    fn row(&self, metric: &str, text: impl Fn(&Part) -> String) -> CounterRow {
        let cells = self.parts.iter().map(text).collect();
        CounterRow { metric: metric.to_owned(), cells, healthy: String::new(), hint: String::new() }
    }

    /// A row whose metric has a threshold.
    fn judged(
        &self,
        metric: &str,
        name: MetricName,
        counter: CounterName,
        text: impl Fn(Option<f64>) -> String,
    ) -> CounterRow {
        let rule = self.thresholds.rule(name);
        let values = || self.parts.iter().map(|part| part.counted(counter));
        let marked = |value: Option<f64>| match value {
            Some(number) if rule.is_healthy(number) => format!("{} ✓", text(value)),
            Some(_) => format!("{} ✗", text(value)),
            None => ABSENT.to_owned(),
        };
        let all_well = values().flatten().all(|value| rule.is_healthy(value));
        CounterRow {
            metric: metric.to_owned(),
            cells: values().map(marked).collect(),
            healthy: healthy(rule),
            hint: if all_well { String::new() } else { cell(&format!("{}: {}", rule.otherwise, rule.hint)) },
        }
    }
}

fn healthy(rule: &MetricRule) -> String {
    match rule.healthy {
        Healthy::Above(limit) => format!("> {}", in_unit(rule, limit)),
        Healthy::AtMost(limit) => format!("at most {}", in_unit(rule, limit)),
    }
}

/// A value of the rule's metric with its unit.
pub(super) fn in_unit(rule: &MetricRule, value: f64) -> String {
    match rule.unit {
        Unit::Percent => percent(Some(value)),
        Unit::Bytes => format!("{} bytes", fixed(Some(value), 0)),
        Unit::Count => three_digits(Some(value)),
    }
}

/// The resources that limit the theoretical occupancy, with the blocks that they allow.
fn limiters(part: &Part) -> String {
    let names: Vec<&str> =
        CounterName::limiters(|counter| part.counted(counter)).into_iter().filter_map(resource).collect();
    let fewest = CounterName::limiters(|counter| part.counted(counter)).first().and_then(|first| part.counted(*first));
    match fewest {
        Some(blocks) => format!("{} ({} a multiprocessor)", names.join(", "), super::numbers::counted(blocks, "block")),
        None => ABSENT.to_owned(),
    }
}

const fn resource(counter: CounterName) -> Option<&'static str> {
    match counter {
        CounterName::BlocksByRegisters => Some("registers"),
        CounterName::BlocksBySharedMemory => Some("shared memory"),
        CounterName::BlocksByWarps => Some("warps"),
        CounterName::BlocksBySlots => Some("block slots"),
        CounterName::BlocksByBarriers => Some("barriers"),
        _ => None,
    }
}

/// DRAM traffic over the duration, in byte/s.
fn counted_bytes_per_s(part: &Part) -> Option<f64> {
    let rate = part.counted(CounterName::DramBytes)? / part.ns * 1e9;
    rate.is_finite().then_some(rate)
}

/// FLOP/s if tensor cores did in each cycle in which they were active what they can: their utilisation of the peak of `dtype`, at
/// the clock seen. `None` where that peak is not the tensor cores', or its clock is not known.
fn tensor_flops_per_s(part: &Part, peaks: &Peaks, dtype: DType) -> Option<f64> {
    if dtype == DType::Float32 {
        return None;
    }
    let (peak, at) = (peaks.flops_per_s.get(&dtype)?, peaks.at_sm_mhz.get(&dtype)?);
    let seen = part.counted(CounterName::SmClock)? / (f64::from(*at) * 1e6);
    Some(part.counted(CounterName::TensorCore)? / 100.0 * peak * seen)
}

/// By how much counted DRAM traffic exceeds the model's bytes, as a fraction of these; `None` where one is unknown or nothing is
/// moved.
fn surplus(part: &Part) -> Option<f64> {
    let model = part.cost?.bytes;
    let surplus = part.counted(CounterName::DramBytes)? / model - 1.0;
    surplus.is_finite().then_some(surplus)
}

fn disagreement(part: &Part) -> Option<String> {
    let surplus = surplus(part).filter(|surplus| surplus.abs() > TOLERANCE)?;
    let mega = |bytes: f64| three_digits(Some(bytes / 1e6));
    let (model, counted) = (part.cost?.bytes, part.counted(CounterName::DramBytes)?);
    let meaning = if surplus < 0.0 {
        "data stayed in the L2 cache (what was written may not have left it yet), or the cost model counts bytes that are \
         not moved"
    } else {
        "data is read from DRAM more than once, registers spill, or the cost model misses bytes"
    };
    Some(format!(
        "Stage {}: the cost model moves {} MB, and {} MB of DRAM traffic were counted ({}{} of the model): {meaning}.",
        cell(&part.name),
        mega(model),
        mega(counted),
        if surplus > 0.0 { "+" } else { "" },
        percent(Some(surplus * 100.0)),
    ))
}

/// Metrics that were asked for and are not there, by name, with the reason and the stages.
fn missing(pass: &AnnotationPass, run: &NcuRun) -> Vec<String> {
    let mut found: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for stage in &pass.stages {
        let Some(launch) = &stage.launch else { continue };
        for metric in &run.asked {
            let reason = match launch.metrics.get(metric) {
                None => "not in the report",
                Some(Reading::Absent { reason }) => reason,
                Some(Reading::Number { .. }) => continue,
                Some(Reading::UnknownUnit { .. } | Reading::Text { .. }) => "no number in a known unit",
            };
            found.entry((metric, reason)).or_default().push(cell(&stage.stage));
        }
    }
    let line = |((metric, reason), stages): ((&str, &str), Vec<String>)| {
        format!("{} ({}: {})", cell(metric), stages.join(", "), cell(reason))
    };
    found.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::device::PeakSource;
    use crate::model::protocol::Counters;
    use crate::roofline::Cost;

    fn part(ns: f64, bytes: f64, counts: &[(CounterName, f64)]) -> Part {
        let counts = counts.iter().map(|(name, value)| (name.key().to_owned(), *value)).collect();
        Part {
            name: "a|b".to_owned(),
            ns,
            summary: None,
            cost: Some(Cost { flops: 1.0, bytes }),
            roof: None,
            counters: Some(Counters::Counted(counts)),
            diagnosis: None,
        }
    }

    #[test]
    fn a_fifth_of_difference_is_let_pass_and_more_is_not() {
        let told = |counted: f64| disagreement(&part(1.0, 100e6, &[(CounterName::DramBytes, counted)]));
        assert_eq!((told(120e6), told(80e6)), (None, None));
        let more = told(130e6).expect("it is 30% more");
        assert!(
            more.starts_with(
                "Stage a\\|b: the cost model moves 100.00 MB, and 130.00 MB of DRAM traffic were counted (+30% of the model): data is read"
            ),
            "{more}"
        );
        assert!(told(0.0).is_some_and(|less| less.contains("(-100% of the model): data stayed in the L2")));
        assert_eq!(disagreement(&part(1.0, 100e6, &[])), None, "nothing counted is no zero");
        assert_eq!(disagreement(&part(1.0, 0.0, &[(CounterName::DramBytes, 5.0)])), None);
    }

    #[test]
    fn limiters_are_named_with_their_blocks() {
        let limits = [(CounterName::BlocksByRegisters, 2.0), (CounterName::BlocksByWarps, 2.0)];
        assert_eq!(limiters(&part(1.0, 1.0, &limits)), "registers, warps (2 blocks a multiprocessor)");
        assert_eq!(limiters(&part(1.0, 1.0, &[])), "--");
    }

    #[test]
    fn clocks_are_one_number_or_a_range() {
        assert_eq!(megahertz([1755.2, 1754.8].into_iter()), "1755");
        assert_eq!(megahertz([1755.0, 1980.0].into_iter()), "1755 to 1980");
        assert_eq!(megahertz(std::iter::empty()), "--");
    }

    proptest! {
        /// At the clock that the peak is stated for, all cycles active are the peak; elsewhere it goes with the clock.
        #[test]
        fn tensor_cores_that_are_always_active_reach_the_peak(percent in 0.0_f64..100.0, mhz in 100_u32..3000, at in 100_u32..3000) {
            let peaks = Peaks {
                flops_per_s: [(DType::Bfloat16, 1e15), (DType::Float32, 1e13)].into(),
                bytes_per_s: 1e12,
                at_sm_mhz: [(DType::Bfloat16, at), (DType::Float32, at)].into(),
                source: PeakSource::Datasheet { source: String::new() },
            };
            let counts = [(CounterName::TensorCore, percent), (CounterName::SmClock, f64::from(mhz) * 1e6)];
            let part = part(1.0, 1.0, &counts);
            let found = tensor_flops_per_s(&part, &peaks, DType::Bfloat16).expect("all is known");
            let wanted = 1e15 * percent / 100.0 * f64::from(mhz) / f64::from(at);
            prop_assert!((found - wanted).abs() <= 1e-9 * wanted.max(1.0));
            prop_assert_eq!(tensor_flops_per_s(&part, &peaks, DType::Float32), None);
        }

        #[test]
        fn counted_bytes_over_time_are_their_rate(bytes in 0.0_f64..1e12, ns in 1.0_f64..1e10) {
            let rate = counted_bytes_per_s(&part(ns, 1.0, &[(CounterName::DramBytes, bytes)])).expect("both are known");
            prop_assert!((rate * (ns / 1e9) - bytes).abs() <= 1e-6 * bytes.max(1.0));
        }
    }
}
