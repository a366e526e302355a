//! results.json and results.csv: an experiment's numbers for programs, in SI units and nanoseconds. Pure: bytes out.
//!
//! What was not measured is `null` or an empty cell.

use std::collections::BTreeMap;

use serde::Serialize;

use super::analysis::{Analysis, Part};
use super::bottleneck::Diagnosis;
use super::input::{Baseline, Comparison, Input, Outcome, Run};
use super::verdict;
use super::view::{as_judged, comparable};
use crate::model::protocol::{Counters, FailureKind, Verification};
use crate::model::record::Format;
use crate::model::{DeviceId, KernelId, Key, Mode, Peaks, Shape, Tiling, Timing};
use crate::pairs::{Judged, Standing, Unjudged};
use crate::roofline::Cost;
use crate::stats::Summary;

/// Version of results.json and results.csv.
pub const RESULTS_FORMAT: Format = Format { major: 1, minor: 0 };

#[derive(Serialize)]
struct Results<'a> {
    format: Format,
    experiment: &'a str,
    runs: Vec<RunResult<'a>>,
    comparisons: Vec<ComparisonResult<'a>>,
    /// What baselines from files hold and the experiment does not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gone: Vec<GoneResult<'a>>,
}

#[derive(Serialize)]
struct GoneResult<'a> {
    baseline: &'a str,
    run: &'a str,
    reason: &'a str,
}

#[derive(Serialize)]
struct RunResult<'a> {
    #[serde(flatten)]
    id: &'a KernelId,
    shape: &'a Shape,
    mode: Mode,
    tiling: &'a Tiling,
    device: &'a DeviceId,
    peaks: Option<&'a Peaks>,
    status: &'static str,
    failure: Option<FailureKind>,
    reason: Option<&'a str>,
    records: Vec<RecordResult<'a>>,
    timings: BTreeMap<&'static str, TimeResult>,
    whole: Option<PartResult<'a>>,
    stages: Vec<PartResult<'a>>,
}

#[derive(Serialize)]
struct RecordResult<'a> {
    key: Key,
    subject: Key,
    taken_at: jiff::Timestamp,
    session: &'a str,
    round: u32,
    position: u32,
    clocks_locked: bool,
    verification: &'a Verification,
}

/// A summary with the unit in its names.
#[derive(Serialize)]
struct TimeResult {
    median_ns: f64,
    q1_ns: f64,
    q3_ns: f64,
    low_ns: Option<f64>,
    high_ns: Option<f64>,
    level: Option<f64>,
    basis: &'static str,
    samples: u64,
    processes: u64,
}

impl TimeResult {
    fn of(summary: &Summary) -> TimeResult {
        TimeResult {
            median_ns: summary.median,
            q1_ns: summary.q1,
            q3_ns: summary.q3,
            low_ns: summary.interval.map(|interval| interval.low),
            high_ns: summary.interval.map(|interval| interval.high),
            level: summary.interval.map(|interval| interval.level),
            basis: summary.basis.name(),
            samples: summary.samples,
            processes: summary.processes,
        }
    }
}

#[derive(Serialize)]
struct PartResult<'a> {
    name: &'a str,
    ns: f64,
    time: Option<TimeResult>,
    cost: Option<Cost>,
    flops_per_s: Option<f64>,
    bytes_per_s: Option<f64>,
    intensity_flop_per_byte: Option<f64>,
    floor_ns: Option<f64>,
    roofline_fraction: Option<f64>,
    counters: Option<&'a Counters>,
    bottleneck: Option<&'a Diagnosis>,
}

impl PartResult<'_> {
    fn of(part: &Part) -> PartResult<'_> {
        PartResult {
            name: &part.name,
            ns: part.ns,
            time: part.summary.as_ref().map(TimeResult::of),
            cost: part.cost,
            flops_per_s: part.flops_per_s(),
            bytes_per_s: part.bytes_per_s(),
            intensity_flop_per_byte: part.cost.and_then(|cost| cost.intensity()),
            floor_ns: part.floor_ns(),
            roofline_fraction: part.fraction(),
            counters: part.counters.as_ref(),
            bottleneck: part.diagnosis.as_ref(),
        }
    }
}

#[derive(Serialize)]
struct ComparisonResult<'a> {
    /// Index into `runs`.
    run: usize,
    name: &'a str,
    /// Index into `runs`; `null` where there is no baseline.
    baseline: Option<usize>,
    /// Why there is nothing to compare.
    reason: Option<String>,
    /// Baseline's time over the run's: above 1 the run is faster.
    speed_ratio: Option<f64>,
    /// `FASTER`, `SLOWER`, `SAME`, `INCONCLUSIVE`, `INVALID`, `same code`, or `none` where there is a ratio alone.
    verdict: &'static str,
    /// Why there is a ratio alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    unjudged: Option<Unjudged>,
    /// Change of speed that the rounds agree with at the level of the verdict, as fractions.
    #[serde(skip_serializing_if = "Option::is_none")]
    interval: Option<Bounds>,
    /// The verdict with all that it was made from; times in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    judged: Option<&'a Judged>,
}

#[derive(Serialize)]
struct Bounds {
    low: f64,
    high: f64,
    level: f64,
}

/// results.json of `input`, whose analyses are `analyses`, by index; ends with a line break.
pub(super) fn json(input: &Input, analyses: &[Option<Analysis<'_>>]) -> String {
    let results = Results {
        format: RESULTS_FORMAT,
        experiment: &input.experiment,
        runs: input.runs.iter().zip(analyses).map(|(run, analysis)| run_result(run, analysis.as_ref())).collect(),
        comparisons: comparisons(input, analyses),
        gone: input
            .gone
            .iter()
            .map(|gone| GoneResult { baseline: &gone.baseline, run: &gone.run, reason: &gone.reason })
            .collect(),
    };
    let mut text = serde_json::to_string_pretty(&results).expect("every map of the results has strings for keys");
    text.push('\n');
    text
}

fn run_result<'a>(run: &'a Run, analysis: Option<&'a Analysis<'_>>) -> RunResult<'a> {
    let (failure, reason) = problem(&run.outcome);
    let timings = analysis.map(|analysis| &analysis.timings).into_iter().flatten();
    RunResult {
        id: &run.id,
        shape: &run.shape,
        mode: run.mode,
        tiling: &run.tiling,
        device: &run.device,
        peaks: run.peaks.as_ref(),
        status: status(&run.outcome),
        failure,
        reason,
        records: records(&run.outcome),
        timings: timings.map(|(timing, summary)| (timing.name(), TimeResult::of(summary))).collect(),
        whole: analysis.map(|analysis| PartResult::of(&analysis.whole)),
        stages: analysis.map_or(Vec::new(), |analysis| analysis.stages.iter().map(PartResult::of).collect()),
    }
}

const fn status(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Measured(_) => "measured",
        Outcome::Skipped { .. } => "skipped",
        Outcome::Failed { .. } => "failed",
    }
}

fn problem(outcome: &Outcome) -> (Option<FailureKind>, Option<&str>) {
    match outcome {
        Outcome::Measured(_) => (None, None),
        Outcome::Skipped { reason } => (None, Some(reason)),
        Outcome::Failed { kind, reason } => (Some(*kind), Some(reason)),
    }
}

fn records(outcome: &Outcome) -> Vec<RecordResult<'_>> {
    let Outcome::Measured(records) = outcome else { return Vec::new() };
    records
        .iter()
        .map(|record| RecordResult {
            key: record.key,
            subject: record.subject,
            taken_at: record.position.taken_at,
            session: &record.position.session,
            round: record.position.round,
            position: record.position.position,
            clocks_locked: record.environment.clocks_locked,
            verification: record.body.verification(),
        })
        .collect()
}

fn comparisons<'a>(input: &'a Input, analyses: &[Option<Analysis<'_>>]) -> Vec<ComparisonResult<'a>> {
    let result = |comparison: &'a Comparison| {
        let current = analyses.get(comparison.run).and_then(Option::as_ref);
        let compared = match current {
            Some(current) => comparable(input, analyses, &comparison.baseline, current).map(|previous| {
                let (previous, current) = as_judged(previous, current, &comparison.standing);
                previous.whole.ns / current.whole.ns
            }),
            None => Err("the run itself has no numbers".to_owned()),
        };
        ComparisonResult {
            run: comparison.run,
            name: &comparison.name,
            baseline: match comparison.baseline {
                Baseline::Run(index) => Some(index),
                Baseline::Recorded(_) | Baseline::Missing { .. } => None,
            },
            speed_ratio: compared.as_ref().ok().copied().filter(|ratio| ratio.is_finite()),
            reason: compared.err(),
            verdict: verdict::word(&comparison.standing),
            unjudged: match &comparison.standing {
                Standing::Unjudged(why) => Some(*why),
                Standing::SameCode | Standing::Judged(_) => None,
            },
            interval: bounds(&comparison.standing),
            judged: comparison.standing.judged(),
        }
    };
    input.comparisons.iter().map(result).collect()
}

fn bounds(standing: &Standing) -> Option<Bounds> {
    let judgement = &standing.judged()?.judgement;
    let (low, high) = judgement.interval()?;
    Some(Bounds { low, high, level: 1.0 - judgement.rule.alpha })
}

/// One line of results.csv: one time of one run, or a run without any.
#[derive(Serialize)]
struct Line<'a> {
    kernel: &'a str,
    version: String,
    language: &'a str,
    shape: String,
    mode: &'a str,
    device: &'a str,
    tiling: String,
    status: &'a str,
    metric: &'a str,
    median_ns: Option<f64>,
    q1_ns: Option<f64>,
    q3_ns: Option<f64>,
    low_ns: Option<f64>,
    high_ns: Option<f64>,
    level: Option<f64>,
    basis: Option<&'a str>,
    samples: Option<u64>,
    processes: Option<u64>,
    flops: Option<f64>,
    bytes: Option<f64>,
    flops_per_s: Option<f64>,
    bytes_per_s: Option<f64>,
    roofline_fraction: Option<f64>,
    bottleneck: Option<&'a str>,
    reason: Option<&'a str>,
    /// Of a line that compares: its metric is `vs <baseline>`, and its time the one that the verdict was made from.
    verdict: Option<&'a str>,
    baseline_ns: Option<f64>,
    change: Option<f64>,
    change_low: Option<f64>,
    change_high: Option<f64>,
}

/// results.csv: a line for each timing (event) or stage and their sum (annotation), for each run without numbers, and for each
/// comparison.
pub(super) fn csv(input: &Input, analyses: &[Option<Analysis<'_>>]) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for (run, analysis) in input.runs.iter().zip(analyses) {
        for line in lines(run, analysis.as_ref()) {
            writer.serialize(line)?;
        }
    }
    for comparison in &input.comparisons {
        let Some(current) = analyses.get(comparison.run).and_then(Option::as_ref) else { continue };
        let Ok(previous) = comparable(input, analyses, &comparison.baseline, current) else { continue };
        let (previous, current) = as_judged(previous, current, &comparison.standing);
        let metric = format!("vs {}", comparison.name);
        let (old, new) = (previous.whole.ns, current.whole.ns);
        let bounds = bounds(&comparison.standing);
        writer.serialize(Line {
            metric: &metric,
            median_ns: Some(new),
            verdict: (current.run.mode == Mode::Event).then(|| verdict::word(&comparison.standing)),
            baseline_ns: Some(old),
            change: Some(old / new - 1.0).filter(|change| change.is_finite()),
            change_low: bounds.as_ref().map(|bounds| bounds.low),
            change_high: bounds.as_ref().map(|bounds| bounds.high),
            ..empty_line(current.run)
        })?;
    }
    let bytes = writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8(bytes).expect("every cell was a string"))
}

fn lines<'a>(run: &'a Run, analysis: Option<&'a Analysis<'_>>) -> Vec<Line<'a>> {
    let Some(analysis) = analysis else { return vec![empty_line(run)] };
    let whole = &analysis.whole;
    let timing = |(timing, summary): (&'a Timing, &'a Summary)| {
        if *timing == Timing::ColdIsolated {
            return Line { bottleneck: label(whole), ..line(run, timing.name(), whole) };
        }
        // Warm data come from a cache, whose bandwidth is not the roofline's.
        let warm = Part { ns: summary.median, summary: Some(summary.clone()), roof: None, ..whole.clone() };
        line(run, timing.name(), &warm)
    };
    let stage = |part: &'a Part| Line { bottleneck: label(part), ..line(run, &part.name, part) };
    if analysis.stages.is_empty() {
        return analysis.timings.iter().map(timing).collect();
    }
    analysis.stages.iter().chain([whole]).map(stage).collect()
}

fn label(part: &Part) -> Option<&str> {
    part.diagnosis.as_ref().map(|diagnosis| diagnosis.bottleneck.label())
}

fn line<'a>(run: &'a Run, metric: &'a str, part: &Part) -> Line<'a> {
    let time = part.summary.as_ref().map(TimeResult::of);
    let of = |pick: fn(&TimeResult) -> Option<f64>| time.as_ref().and_then(pick);
    Line {
        metric,
        median_ns: Some(part.ns),
        q1_ns: of(|time| Some(time.q1_ns)),
        q3_ns: of(|time| Some(time.q3_ns)),
        low_ns: of(|time| time.low_ns),
        high_ns: of(|time| time.high_ns),
        level: of(|time| time.level),
        basis: time.as_ref().map(|time| time.basis),
        samples: time.as_ref().map(|time| time.samples),
        processes: time.as_ref().map(|time| time.processes),
        flops: part.cost.map(|cost| cost.flops),
        bytes: part.cost.map(|cost| cost.bytes),
        flops_per_s: part.flops_per_s(),
        bytes_per_s: part.bytes_per_s(),
        roofline_fraction: part.fraction(),
        ..empty_line(run)
    }
}

fn empty_line(run: &Run) -> Line<'_> {
    Line {
        kernel: &run.id.kernel,
        version: run.id.version.to_string(),
        language: run.id.language.name(),
        shape: run.shape.to_string(),
        mode: run.mode.name(),
        device: &run.device.name,
        tiling: run.tiling.to_string(),
        status: status(&run.outcome),
        metric: "",
        median_ns: None,
        q1_ns: None,
        q3_ns: None,
        low_ns: None,
        high_ns: None,
        level: None,
        basis: None,
        samples: None,
        processes: None,
        flops: None,
        bytes: None,
        flops_per_s: None,
        bytes_per_s: None,
        roofline_fraction: None,
        bottleneck: None,
        reason: problem(&run.outcome).1,
        verdict: None,
        baseline_ns: None,
        change: None,
        change_low: None,
        change_high: None,
    }
}
