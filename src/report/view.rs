//! Views of a profile: the names and finished texts that the template `profile.md.hbs` may use. Arithmetic comes from
//! `analysis`, rounding and units from `numbers`; no I/O.

use std::collections::BTreeMap;

use serde::Serialize;

use super::advice::{Unhealthy, top, unhealthy};
use super::analysis::{Analysis, DRAM, OCCUPANCY, Part, TENSOR_CORE, run_name};
use super::attribution::{attribution, moved};
use super::counters::{self, CountersView};
use super::differences::differences;
use super::input::{Baseline, Comparison, Input, Outcome, Recorded, Run};
use super::ncu::{self, NcuView};
use super::numbers::{
    ABSENT, SAME_CODE, TimeUnit, cell, change, change_of_rate, change_of_time, counted, fixed, gb_per_s, microseconds,
    percent, percent_of, signed_percent, three_digits,
};
use super::sift::causes;
use super::tools::{self, ToolRow};
use super::verdict;
use crate::conf::Thresholds;
use crate::model::device::PeakSource;
use crate::model::protocol::Counters;
use crate::model::record::Record;
use crate::model::{Choices, KernelId, Mode, Peaks, Shape, Timing};
use crate::pairs::Standing;
use crate::stats::verdict::Verdict;
use crate::stats::{Basis, Summary};

/// Everything that a profile's template can name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ProfileView {
    pub kernel: String,
    pub version: String,
    pub language: String,
    pub mode: &'static str,
    pub is_event: bool,
    pub is_annotation: bool,
    pub configuration: Configuration,
    pub parameters: String,
    pub stages: Vec<StageRow>,
    pub bottleneck: String,
    pub root_cause: String,
    pub opportunities: Vec<Opportunity>,
    pub baselines: Vec<BaselineTable>,
    pub ncu: Option<NcuView>,
    pub counters: Option<CountersView>,
    pub tools: Vec<ToolRow>,
    pub roofline: Option<Roofline>,
    pub timings: Vec<TimingRow>,
    pub details: Vec<DetailRow>,
    pub tilings: Vec<TilingRow>,
    pub context: Context,
    pub notes: Vec<String>,
}

/// The exact table's cells.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Configuration {
    pub b: String,
    pub s: String,
    pub t: String,
    pub dtype: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct StageRow {
    pub stage: String,
    pub duration_us: String,
    pub tensor_core: String,
    pub dram: String,
    pub occupancy: String,
    pub bottleneck: String,
    pub key_issue: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Opportunity {
    pub rank: usize,
    pub name: String,
    pub gain: String,
    pub trigger: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct BaselineTable {
    pub heading: String,
    pub rows: Vec<ChangeRow>,
    pub against: String,
    /// What is said of the verdict, a sentence each without its full stop.
    pub remarks: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ChangeRow {
    pub metric: String,
    pub previous: String,
    pub current: String,
    pub change: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Roofline {
    /// What the time is the time of.
    pub of: String,
    pub duration_us: String,
    pub floor_us: String,
    pub fraction: String,
    pub tflops: String,
    pub gb_per_s: String,
    pub intensity: String,
    pub ridge_point: String,
    pub peak_tflops: String,
    pub peak_gb_per_s: String,
    pub peak_source: String,
    /// What to do where a time lies below the floor.
    pub warning: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct TimingRow {
    pub timing: String,
    pub median_us: String,
    pub quartiles_us: String,
    pub interval_us: String,
    pub basis: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct DetailRow {
    pub stage: String,
    pub share: String,
    pub intensity: String,
    pub tflops: String,
    pub gb_per_s: String,
    pub floor_us: String,
    pub fraction: String,
    pub interval_us: String,
    pub basis: String,
    pub counters: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct TilingRow {
    pub stage: String,
    pub choices: String,
}

/// Where and when it was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Context {
    pub device: String,
    pub clocks: &'static str,
    pub compiler: String,
    pub os: String,
    pub mlarun: String,
    pub taken: String,
    pub keys: String,
}

/// View of the run at `index`; `analyses` are those of all runs, by index.
pub(super) fn profile(
    input: &Input,
    analyses: &[Option<Analysis<'_>>],
    index: usize,
    analysis: &Analysis<'_>,
    thresholds: &Thresholds,
) -> ProfileView {
    let run = analysis.run;
    let (bottleneck, root_cause) = bottleneck(analysis);
    let (baselines, notes) = baselines(input, analyses, index, analysis);
    ProfileView {
        kernel: run.id.kernel.clone(),
        version: run.id.version.to_string(),
        language: run.id.language.to_string(),
        mode: run.mode.name(),
        is_event: run.mode == Mode::Event,
        is_annotation: run.mode == Mode::Annotation,
        configuration: configuration(&run.shape),
        parameters: cell(&run.shape.to_string()),
        stages: stage_rows(analysis, thresholds),
        bottleneck,
        root_cause,
        opportunities: top(analysis, thresholds).unwrap_or_else(|| opportunities(analysis)),
        baselines,
        ncu: ncu::view(analysis, thresholds),
        counters: counters::section(analysis, thresholds),
        tools: tools::beside(analyses, analysis),
        roofline: run.peaks.as_ref().and_then(|peaks| roofline(analysis, peaks)),
        timings: analysis.timings.iter().map(|(timing, summary)| timing_row(timing.name(), summary)).collect(),
        details: analysis.stages.iter().map(|stage| detail_row(stage, analysis)).collect(),
        tilings: tilings(&run.tiling.pipeline, &run.tiling.stages),
        context: context(analysis),
        notes,
    }
}

/// What stands under a report that is none of a profile's: where it was measured, and what is said of that.
pub(super) fn around(analysis: &Analysis<'_>) -> (Context, Vec<String>) {
    let mut notes = Vec::new();
    notes.extend(analysis.run.left_out.as_ref().map(|left_out| format!("{}.", cell(&capitalized(left_out)))));
    notes.extend(company(analysis).map(|causes| format!("Measured although {}.", cell(&causes))));
    if !is_deterministic(analysis) {
        notes.push("Not deterministic: two launches left different bits, and both outputs are right.".to_owned());
    }
    (context(analysis), notes)
}

pub(super) fn configuration(shape: &Shape) -> Configuration {
    let value = |name| shape.get(name).map_or(ABSENT.to_owned(), |value| cell(&value.to_string()));
    Configuration { b: value("b"), s: value("s"), t: value("t"), dtype: value("dtype") }
}

/// Stages, or the whole pipeline where the mode does not see stages.
fn parts<'a>(analysis: &'a Analysis<'_>) -> &'a [Part] {
    if analysis.stages.is_empty() { std::slice::from_ref(&analysis.whole) } else { &analysis.stages }
}

fn stage_rows(analysis: &Analysis<'_>, thresholds: &Thresholds) -> Vec<StageRow> {
    let sick = |part: &Part| match analysis.nsight() {
        Some(_) => unhealthy(part, thresholds).into_iter().next(),
        None => None,
    };
    let row = |part: &Part| StageRow {
        stage: cell(&part.name),
        duration_us: microseconds(Some(part.ns)),
        tensor_core: fixed(part.counter(TENSOR_CORE), 0),
        dram: fixed(part.counter(DRAM), 0),
        occupancy: fixed(part.counter(OCCUPANCY), 0),
        bottleneck: part.diagnosis.as_ref().map_or(ABSENT.to_owned(), |diagnosis| diagnosis.label()),
        key_issue: key_issue(part, sick(part)),
    };
    parts(analysis).iter().map(row).collect()
}

/// What to look at, and the first metric that is not healthy where Nsight Compute measured.
fn key_issue(part: &Part, sick: Option<Unhealthy>) -> String {
    let diagnosed = part.diagnosis.as_ref().map(|diagnosis| match part.fraction() {
        Some(fraction) => format!("{} of roofline: {}", percent_of(Some(fraction)), diagnosis.focus),
        None => diagnosis.focus.clone(),
    });
    let sick = sick.map(|sick| format!("{} {}: {}", sick.label, sick.value, sick.otherwise));
    let issues: Vec<String> = diagnosed.into_iter().chain(sick).collect();
    if issues.is_empty() { ABSENT.to_owned() } else { cell(&issues.join("; ")) }
}

/// Heading and root cause, the latter of at most two sentences.
fn bottleneck(analysis: &Analysis<'_>) -> (String, String) {
    let Some(diagnosis) = &analysis.whole.diagnosis else {
        let cause = "Neither hardware counters nor a roofline position are known; see the notes.";
        return (ABSENT.to_owned(), cause.to_owned());
    };
    let mut sentences = vec![format!("{}.", capitalized(&diagnosis.reason))];
    if analysis.stages.len() > 1
        && let Some(longest) = analysis.stages.iter().max_by(|a, b| a.ns.total_cmp(&b.ns))
    {
        let share = percent_of(Some(longest.ns / analysis.whole.ns));
        let reached =
            longest.fraction().map_or(String::new(), |f| format!(", at {} of its roofline", percent_of(Some(f))));
        sentences.push(format!("Stage {} takes {share} of the stages' time{reached}.", cell(&longest.name)));
    }
    (diagnosis.bottleneck.label().to_owned(), sentences.join(" "))
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or(String::new(), |first| first.to_uppercase().chain(characters).collect())
}

/// The three largest gains. A part's gain is the time above its roofline floor as a share of the whole,
/// `(time - floor) / sum of the stages' times`: what would be saved if it reached its roofline. A part without a
/// roofline has an unknown gain and stands behind, the longest first.
fn opportunities(analysis: &Analysis<'_>) -> Vec<Opportunity> {
    let gain = |part: &Part| part.floor_ns().map(|floor| (part.ns - floor) / analysis.whole.ns * 100.0);
    let mut ranked: Vec<(Option<f64>, &Part)> = parts(analysis).iter().map(|part| (gain(part), part)).collect();
    ranked.retain(|(gain, _)| gain.is_none_or(|gain| gain >= 0.5));
    ranked
        .sort_by(|(a, x), (b, y)| b.unwrap_or(-1.0).total_cmp(&a.unwrap_or(-1.0)).then_with(|| y.ns.total_cmp(&x.ns)));
    let row = |(index, (gain, part)): (usize, &(Option<f64>, &Part))| Opportunity {
        rank: index + 1,
        name: opportunity_name(part),
        gain: gain.map_or("est. gain unknown".to_owned(), |gain| format!("est. {} gain", percent(Some(gain)))),
        trigger: match part.fraction() {
            Some(fraction) => format!("roofline fraction={}", percent_of(Some(fraction))),
            None => format!("share of time={}", percent_of(Some(part.ns / analysis.whole.ns))),
        },
    };
    ranked.iter().take(3).enumerate().map(row).collect()
}

fn opportunity_name(part: &Part) -> String {
    let what = if part.summary.is_some() && part.name != "end to end" { "stage " } else { "" };
    let focus = part.diagnosis.as_ref().map_or(String::new(), |diagnosis| format!(" ({})", diagnosis.focus));
    match part.roof {
        Some(_) => cell(&format!("bring {what}{} to its roofline{focus}", part.name)),
        None => cell(&format!("shorten {what}{}{focus}", part.name)),
    }
}

fn baselines(
    input: &Input,
    analyses: &[Option<Analysis<'_>>],
    index: usize,
    current: &Analysis<'_>,
) -> (Vec<BaselineTable>, Vec<String>) {
    let (mut tables, mut notes) = (Vec::new(), Vec::new());
    for comparison in input.comparisons.iter().filter(|comparison| comparison.run == index) {
        let name = cell(&comparison.name);
        match comparable(input, analyses, &comparison.baseline, current) {
            Ok(previous) => {
                let (previous, current) = as_judged(previous, current, &comparison.standing);
                let current = &current;
                let first = tables.is_empty();
                let heading = if first { "vs Baseline".to_owned() } else { format!("vs Baseline: {name}") };
                let same = match (previous.shares_samples, previous.same_code) {
                    (true, _) => "; it is the same code, so that both share their samples",
                    (false, true) => "; it is the same machine code under another name",
                    (false, false) => "",
                };
                let mut against = format!("{name} is {}, {}{same}", cell(&previous.id.to_string()), previous.origin);
                if !previous.differences.is_empty() {
                    against.push_str(&format!("; the two differ in {}", previous.differences.join(", ")));
                }
                let mut rows = change_rows(&previous, current);
                rows.extend(verdict_row(current, &comparison.standing));
                let remarks = verdict_remarks(analyses, comparison, current);
                tables.push(BaselineTable { heading, rows, against, remarks });
            }
            Err(reason) => notes.push(format!("No table against {name}: {}.", cell(&reason))),
        }
    }
    notes.extend(current.run.left_out.as_ref().map(|left_out| format!("{}.", cell(&capitalized(left_out)))));
    notes.extend(company(current).map(|causes| format!("Measured although {}.", cell(&causes))));
    if !is_deterministic(current) {
        notes.push("Not deterministic: two launches left different bits, and both outputs are right.".to_owned());
    }
    if current.run.peaks.is_none() {
        notes.push("No peak is known for this device, so nothing is said about its roofline.".to_owned());
    } else if current.whole.roof.is_none() {
        notes.push("No peak is known for this element type, so nothing is said about its roofline.".to_owned());
    }
    (tables, notes)
}

/// The other side of a comparison, wherever it comes from.
pub(super) struct Previous<'a> {
    pub id: &'a KernelId,
    pub whole: Part,
    /// Medians, in nanoseconds.
    timings: BTreeMap<Timing, f64>,
    /// Nanoseconds, by name.
    stages: BTreeMap<&'a str, f64>,
    /// When and where it was measured.
    origin: String,
    /// Both sides are one subject, and their samples the same.
    shares_samples: bool,
    /// Both sides are the same machine code, launched alike on the same inputs.
    pub same_code: bool,
    /// Circumstances in which the two sides differ.
    pub differences: Vec<String>,
}

impl<'a> Previous<'a> {
    fn measured(previous: &'a Analysis<'_>, current: &Analysis<'_>) -> Previous<'a> {
        let shares_a_session = previous
            .records
            .iter()
            .any(|old| current.records.iter().any(|new| new.position.session == old.position.session));
        let session = if shares_a_session { "in the same session" } else { "in another session" };
        Previous {
            id: &previous.run.id,
            whole: previous.whole.clone(),
            timings: previous.timings.iter().map(|(timing, summary)| (*timing, summary.median)).collect(),
            stages: previous.stages.iter().map(|stage| (stage.name.as_str(), stage.ns)).collect(),
            origin: format!("taken {} {session}", taken(previous.records)),
            shares_samples: previous.newest().key == current.newest().key,
            same_code: previous.newest().key == current.newest().key,
            differences: differences(previous.newest(), current.newest()),
        }
    }

    fn recorded(recorded: &'a Recorded, current: &Analysis<'_>) -> Previous<'a> {
        Previous {
            id: &recorded.id,
            whole: Part {
                ns: recorded.ns,
                summary: None,
                cost: recorded.cost,
                roof: None,
                counters: None,
                diagnosis: None,
                name: current.whole.name.clone(),
            },
            timings: BTreeMap::new(),
            stages: BTreeMap::new(),
            origin: format!("recorded in {} on {}, in another session", cell(&recorded.file), cell(&recorded.device)),
            shares_samples: false,
            same_code: false,
            differences: Vec::new(),
        }
    }
}

/// The baseline's numbers, or why there is nothing to compare with.
pub(super) fn comparable<'a>(
    input: &'a Input,
    analyses: &'a [Option<Analysis<'_>>],
    baseline: &'a Baseline,
    current: &Analysis<'_>,
) -> Result<Previous<'a>, String> {
    let index = match baseline {
        Baseline::Missing { reason } => return Err(reason.clone()),
        Baseline::Recorded(recorded) => return Ok(Previous::recorded(recorded, current)),
        Baseline::Run(index) => *index,
    };
    let Some(run) = input.runs.get(index) else { return Err("the baseline is not part of the experiment".to_owned()) };
    if let Some(previous) = analyses.get(index).and_then(Option::as_ref) {
        return match previous.newest().environment.device.id == current.newest().environment.device.id {
            true => Ok(Previous::measured(previous, current)),
            false => Err(format!("{} was measured on another device", run_name(run))),
        };
    }
    Err(match &run.outcome {
        Outcome::Skipped { reason } => format!("{} was skipped: {reason}", run_name(run)),
        Outcome::Failed { reason, .. } => format!("{} failed: {reason}", run_name(run)),
        Outcome::Measured(_) => format!("{} has no numbers", run_name(run)),
    })
}

/// Both sides with the times that their verdict was made from, where there is one: a table never shows another ratio than that.
pub(super) fn as_judged<'a, 'b>(
    mut previous: Previous<'a>,
    current: &Analysis<'b>,
    standing: &Standing,
) -> (Previous<'a>, Analysis<'b>) {
    let Analysis { run, records, timings, whole, stages, .. } = current;
    let mut current = Analysis {
        run,
        records,
        timings: timings.clone(),
        whole: whole.clone(),
        stages: stages.clone(),
        // Tables of changes show no timeline.
        traced: None,
    };
    if let Some(effect) = standing.judged().and_then(|judged| judged.judgement.effect) {
        previous.whole.ns = effect.baseline_ns;
        current.whole.ns = effect.candidate_ns;
    }
    previous.same_code |= *standing == Standing::SameCode;
    (previous, current)
}

/// The verdict's own row: its word, and the interval of the change. Only event mode has verdicts.
fn verdict_row(current: &Analysis<'_>, standing: &Standing) -> Option<ChangeRow> {
    let judgement = standing.judged().map(|judged| &judged.judgement);
    let level = judgement.map(|judgement| format!(", {} interval", verdict::level(judgement))).unwrap_or_default();
    (current.run.mode == Mode::Event).then(|| ChangeRow {
        metric: format!("Verdict{level}"),
        previous: ABSENT.to_owned(),
        current: verdict::word(standing).to_owned(),
        change: judgement.map_or(ABSENT.to_owned(), verdict::interval),
    })
}

/// What is said of a verdict beside its row: why there is none, what was seen, and for a SLOWER one what may explain it.
pub(super) fn verdict_remarks(
    analyses: &[Option<Analysis<'_>>],
    comparison: &Comparison,
    current: &Analysis<'_>,
) -> Vec<String> {
    if current.run.mode != Mode::Event {
        return Vec::new();
    }
    let mut remarks: Vec<String> =
        verdict::remarks(&comparison.standing).iter().map(|remark| cell(&capitalized(remark))).collect();
    let Some(judged) = comparison.standing.judged() else { return remarks };
    remarks.push(cell(&format!("Judged from {}", verdict::origin(judged))));
    let baseline = match comparison.baseline {
        Baseline::Run(index) => analyses.get(index).and_then(Option::as_ref),
        Baseline::Recorded(_) | Baseline::Missing { .. } => None,
    };
    let Some(baseline) = baseline.filter(|_| judged.judgement.verdict == Verdict::Slower) else { return remarks };
    let differs = attribution(baseline.newest(), current.newest());
    remarks.push(match differs.is_empty() {
        true => "Slower, and nothing that the records tell differs".to_owned(),
        false => format!("Slower; what differs: {}", differs.join(", ")),
    });
    let annotation = |run: &Run| {
        let is_its = |other: &&Analysis<'_>| {
            other.run.mode == Mode::Annotation && other.run.id == run.id && other.run.shape == run.shape
        };
        analyses.iter().flatten().find(is_its)
    };
    if let Some((old, new)) = annotation(baseline.run).zip(annotation(current.run)) {
        let moved = moved(old.newest(), new.newest());
        remarks.push(match moved.is_empty() {
            true => "No metric of the annotations moved".to_owned(),
            false => format!("Metrics that moved: {}", moved.join(", ")),
        });
    }
    if let Some((old, new)) = baseline.whole.cost.zip(current.whole.cost)
        && old != new
    {
        let rates = [("FLOPs", old.flops, new.flops), ("bytes", old.bytes, new.bytes)];
        let counted = rates.iter().filter(|(_, old, new)| old != new);
        let counted: Vec<String> = counted
            .map(|(what, old, new)| format!("{what} {}", signed_percent(change(Some(*old), Some(*new)))))
            .collect();
        remarks.push(format!(
            "The cost model counts other work ({}): rates may rise while the time does",
            counted.join(", ")
        ));
    }
    remarks
}

fn change_rows(previous: &Previous<'_>, current: &Analysis<'_>) -> Vec<ChangeRow> {
    let duration = if current.stages.is_empty() { "Duration (us)" } else { "Sum of stages (us)" };
    let mut rows = vec![time_row(duration, previous.whole.ns, current.whole.ns)];
    let mut rate = |metric: &str, scale: f64, of: &dyn Fn(&Part) -> Option<f64>| {
        let scaled = |part| of(part).map(|value| value * scale);
        rows.extend(rate_row(metric, scaled(&previous.whole), scaled(&current.whole)));
    };
    rate("Achieved TFLOPs/s", 1e-12, &Part::flops_per_s);
    rate("Achieved GB/s", 1e-9, &Part::bytes_per_s);
    rate("Fraction of roofline (%)", 100.0, &Part::fraction);
    for (timing, new) in current.timings.iter().skip(1) {
        let old = previous.timings.get(timing);
        rows.extend(old.map(|old| time_row(&format!("{timing} (us)"), *old, new.median)));
    }
    for new in &current.stages {
        let old = previous.stages.get(new.name.as_str());
        rows.extend(old.map(|old| time_row(&format!("Stage {} (us)", cell(&new.name)), *old, new.ns)));
    }
    for (metric, counter) in [("Occupancy (%)", OCCUPANCY), ("TC Util (%)", TENSOR_CORE)] {
        rows.extend(rate_row(metric, previous.whole.counter(counter), current.whole.counter(counter)));
    }
    if previous.same_code {
        rows.iter_mut().for_each(|row| row.change = SAME_CODE.to_owned());
    }
    rows
}

fn time_row(metric: &str, previous: f64, current: f64) -> ChangeRow {
    ChangeRow {
        metric: metric.to_owned(),
        previous: microseconds(Some(previous)),
        current: microseconds(Some(current)),
        change: change_of_time(Some(previous), Some(current)),
    }
}

/// A row where both sides have the metric.
fn rate_row(metric: &str, previous: Option<f64>, current: Option<f64>) -> Option<ChangeRow> {
    previous.zip(current).map(|(previous, current)| ChangeRow {
        metric: metric.to_owned(),
        previous: three_digits(Some(previous)),
        current: three_digits(Some(current)),
        change: change_of_rate(Some(previous), Some(current)),
    })
}

fn roofline(analysis: &Analysis<'_>, peaks: &Peaks) -> Option<Roofline> {
    let whole = &analysis.whole;
    let roof = whole.roof?;
    Some(Roofline {
        of: whole.name.clone(),
        duration_us: microseconds(Some(whole.ns)),
        floor_us: microseconds(whole.floor_ns()),
        fraction: percent_of(whole.fraction()),
        tflops: three_digits(whole.flops_per_s().map(|rate| rate / 1e12)),
        gb_per_s: gb_per_s(whole.bytes_per_s()),
        intensity: three_digits(whole.cost.and_then(|cost| cost.intensity())),
        ridge_point: three_digits(Some(roof.ridge_point())),
        peak_tflops: three_digits(Some(roof.flops_per_s / 1e12)),
        peak_gb_per_s: gb_per_s(Some(roof.bytes_per_s)),
        peak_source: peak_source(&peaks.source),
        warning: above_roofline(analysis).map(|above| format!("{above}: {}", mend_roofline(&peaks.source))),
    })
}

/// The parts of a run that are faster than their roofline, which is never shown as less than it is.
fn above_roofline(analysis: &Analysis<'_>) -> Option<String> {
    let parts = std::iter::once(&analysis.whole).chain(&analysis.stages).filter(|part| is_above_roofline(part));
    let above: Vec<_> =
        parts.map(|part| format!("{} at {} of its roofline", cell(&part.name), percent_of(part.fraction()))).collect();
    (!above.is_empty()).then(|| above.join(", "))
}

/// Above 100% in whole percentages, as they are shown.
pub(super) fn is_above_roofline(part: &Part) -> bool {
    part.fraction().is_some_and(|fraction| fraction >= 1.005)
}

/// Why a time can lie below the floor, and what to do.
pub(super) fn mend_roofline(source: &PeakSource) -> &'static str {
    match source {
        PeakSource::Measured { .. } => {
            "this host's peaks were measured too low, or kernel.toml counts too much work; run `mlarun device calibrate` \
             when nothing else runs here, then `mlarun report` with the manifest"
        }
        PeakSource::Datasheet { .. } => {
            "no device of this model is that fast; the cost model in kernel.toml, the peaks in conf/devices.toml or the \
             measurement is wrong"
        }
    }
}

/// Which peaks they are, e.g. `theoretical, by …`.
pub(super) fn peak_source(source: &PeakSource) -> String {
    match source {
        PeakSource::Datasheet { source } => format!("theoretical, by {}", cell(source)),
        PeakSource::Measured { taken_at } => format!("measured on this host, {taken_at}"),
    }
}

fn timing_row(name: &str, summary: &Summary) -> TimingRow {
    let us = |ns: f64| TimeUnit::Us.text(Some(ns));
    TimingRow {
        timing: name.to_owned(),
        median_us: us(summary.median),
        quartiles_us: format!("{} to {}", us(summary.q1), us(summary.q3)),
        interval_us: interval_us(summary),
        basis: basis(summary),
    }
}

fn interval_us(summary: &Summary) -> String {
    let us = |ns: f64| TimeUnit::Us.text(Some(ns));
    summary.interval.map_or(ABSENT.to_owned(), |interval| format!("{} to {}", us(interval.low), us(interval.high)))
}

/// What the interval ranges over, in words.
pub(super) fn basis(summary: &Summary) -> String {
    match summary.basis {
        Basis::Launches => format!("{} of one process", counted(summary.samples, "launch")),
        Basis::Processes => {
            format!("{}, {}", counted(summary.processes, "process"), counted(summary.samples, "launch"))
        }
    }
}

fn detail_row(stage: &Part, analysis: &Analysis<'_>) -> DetailRow {
    DetailRow {
        stage: cell(&stage.name),
        share: percent_of(Some(stage.ns / analysis.whole.ns)),
        intensity: three_digits(stage.cost.and_then(|cost| cost.intensity())),
        tflops: three_digits(stage.flops_per_s().map(|rate| rate / 1e12)),
        gb_per_s: gb_per_s(stage.bytes_per_s()),
        floor_us: microseconds(stage.floor_ns()),
        fraction: percent_of(stage.fraction()),
        interval_us: stage.summary.as_ref().map_or(ABSENT.to_owned(), interval_us),
        basis: stage.summary.as_ref().map_or(ABSENT.to_owned(), basis),
        counters: match analysis.nsight() {
            Some(_) => "see Counters".to_owned(),
            None => counters(stage.counters.as_ref()),
        },
    }
}

fn counters(counters: Option<&Counters>) -> String {
    match counters {
        None => ABSENT.to_owned(),
        Some(Counters::Absent { reason }) => format!("none: {}", cell(reason)),
        Some(Counters::Counted(counts)) => {
            let count = |(name, value): (&String, &f64)| format!("{}={}", cell(name), fixed(Some(*value), 0));
            counts.iter().map(count).collect::<Vec<_>>().join(", ")
        }
    }
}

fn tilings(pipeline: &Choices, stages: &std::collections::BTreeMap<String, Choices>) -> Vec<TilingRow> {
    let row = |stage: &str, choices: &Choices| {
        let list = choices.iter().map(|(name, value)| cell(&format!("{name}={value}"))).collect::<Vec<_>>().join(", ");
        (!list.is_empty()).then(|| TilingRow { stage: cell(stage), choices: list })
    };
    row("(pipeline)", pipeline)
        .into_iter()
        .chain(stages.iter().filter_map(|(stage, choices)| row(stage, choices)))
        .collect()
}

fn context(analysis: &Analysis<'_>) -> Context {
    let environment = &analysis.newest().environment;
    let mut keys: Vec<String> = analysis.records.iter().map(|record| record.key.short()).collect();
    keys.dedup();
    Context {
        device: cell(&environment.device.id.name),
        clocks: clocks(analysis.records.iter().all(|record| record.environment.clocks_locked)),
        compiler: cell(&environment.compiler),
        os: cell(&environment.os),
        mlarun: cell(&environment.mlarun),
        taken: taken(analysis.records),
        keys: keys.join(", "),
    }
}

/// No two launches of the run were seen to leave different bits.
pub(super) fn is_deterministic(analysis: &Analysis<'_>) -> bool {
    analysis.records.iter().all(|record| record.body.verification().same_bits != Some(false))
}

/// What was not as it should be while a run was measured that counts all the same, as its clocks were free.
pub(super) fn company(analysis: &Analysis<'_>) -> Option<String> {
    Some(causes(analysis.records)).filter(|causes| !causes.is_empty())
}

/// `locked clocks` or `unlocked clocks`.
pub(super) const fn clocks(locked: bool) -> &'static str {
    if locked { "locked clocks" } else { "unlocked clocks" }
}

/// The time, or the span of times, at which records were taken.
pub(super) fn taken<'a>(records: impl IntoIterator<Item = &'a Record>) -> String {
    let span = records.into_iter().map(|record| record.position.taken_at).fold(None, |span, time| match span {
        None => Some((time, time)),
        Some((first, last)) => Some((time.min(first), time.max(last))),
    });
    match span {
        None => ABSENT.to_owned(),
        Some((first, last)) if first == last => first.to_string(),
        Some((first, last)) => format!("{first} to {last}"),
    }
}
