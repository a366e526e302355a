//! View of a whole experiment: the names and finished texts that the template `experiment.md.hbs` may use. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::analysis::{Analysis, run_name};
use super::calibration::sentence;
use super::input::{Baseline, Comparison, Gone, Input, Outcome, Run};
use super::numbers::{ABSENT, SAME_CODE, TimeUnit, cell, change_of_time, counted, gb_per_s, percent_of, three_digits};
use super::timeline;
use super::tools::{self, ToolRow};
use super::verdict;
use super::view::{
    Previous, as_judged, basis, clocks, company, comparable, is_above_roofline, is_deterministic, mend_roofline,
    peak_source, taken, verdict_remarks,
};
use crate::model::Mode;
use crate::model::record::Record;
use crate::stats::verdict::{Judgement, Verdict};

/// Everything that an experiment's template can name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ExperimentView {
    pub experiment: String,
    /// Their number, with its noun.
    pub runs: String,
    pub measured: usize,
    pub skipped: usize,
    pub failed: usize,
    pub warnings: Vec<String>,
    pub results: Vec<ResultTable>,
    pub tools: Vec<ToolRow>,
    pub baselines: Vec<ComparisonTable>,
    pub missing: Vec<MissingRow>,
    /// How many comparisons ended with which verdict; empty without any.
    pub verdicts: String,
    /// Number of runs that baselines hold and the experiment does not, with its noun; empty without any.
    pub gone_count: String,
    pub gone: Vec<GoneRow>,
    pub problems: Vec<ProblemRow>,
    pub contexts: Vec<String>,
    pub peaks: Vec<String>,
    pub taken: String,
}

/// Results of one mode.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ResultTable {
    pub mode: &'static str,
    /// What the time is the time of.
    pub time: &'static str,
    pub unit: &'static str,
    pub rows: Vec<ResultRow>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ResultRow {
    pub kernel: String,
    pub version: String,
    pub shape: String,
    pub time: String,
    pub interval: String,
    pub over: String,
    pub tflops: String,
    pub gb_per_s: String,
    pub roofline: String,
    pub bottleneck: String,
}

/// All runs of one mode against one baseline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ComparisonTable {
    pub baseline: String,
    pub mode: &'static str,
    pub unit: &'static str,
    pub rows: Vec<ComparisonRow>,
    /// Rows whose two sides were measured in different circumstances, and which.
    pub differences: Vec<String>,
    /// What is said of verdicts.
    pub remarks: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ComparisonRow {
    pub kernel: String,
    pub version: String,
    pub shape: String,
    pub against: String,
    pub previous: String,
    pub current: String,
    pub change: String,
    /// Its word; absent in a mode that has no verdicts.
    pub verdict: String,
    pub interval: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct GoneRow {
    pub run: String,
    pub baseline: String,
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct MissingRow {
    pub run: String,
    pub baseline: String,
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ProblemRow {
    pub run: String,
    pub outcome: &'static str,
    pub reason: String,
}

/// View of `input`; `analyses` are those of its runs, by index.
pub(super) fn experiment(input: &Input, analyses: &[Option<Analysis<'_>>]) -> ExperimentView {
    let measured = || analyses.iter().flatten();
    let records = || measured().flat_map(|analysis| analysis.records);
    let count = |wanted: fn(&Outcome) -> bool| input.runs.iter().filter(|run| wanted(&run.outcome)).count();
    ExperimentView {
        experiment: cell(&input.experiment),
        runs: counted(input.runs.len(), "run"),
        measured: measured().count(),
        skipped: count(|outcome| matches!(outcome, Outcome::Skipped { .. })),
        failed: count(|outcome| matches!(outcome, Outcome::Failed { .. })),
        warnings: above_roofline(analyses)
            .into_iter()
            .chain(not_deterministic(analyses))
            .chain(measured().filter_map(marked))
            .collect(),
        results: Mode::ALL.into_iter().filter_map(|mode| result_table(mode, analyses)).collect(),
        tools: tools::all(analyses),
        baselines: comparison_tables(input, analyses),
        missing: missing(input, analyses),
        verdicts: verdicts(input),
        gone_count: if input.gone.is_empty() { String::new() } else { counted(input.gone.len(), "run") },
        gone: input.gone.iter().map(gone).collect(),
        problems: input.runs.iter().filter_map(problem).collect(),
        contexts: unique(records().map(context)).into_iter().chain(input.host.as_ref().map(sentence)).collect(),
        peaks: unique(input.runs.iter().filter_map(peaks)),
        taken: taken(records()),
    }
}

/// Runs that are faster than their roofline, in one sentence.
fn above_roofline(analyses: &[Option<Analysis<'_>>]) -> Option<String> {
    let measured = analyses.iter().flatten();
    let above: Vec<&Analysis<'_>> = measured.filter(|analysis| is_above_roofline(&analysis.whole)).collect();
    let highest =
        above.iter().max_by(|a, b| a.whole.fraction().unwrap_or(0.0).total_cmp(&b.whole.fraction().unwrap_or(0.0)))?;
    let mend = mend_roofline(&highest.run.peaks.as_ref()?.source);
    let fraction = percent_of(highest.whole.fraction());
    Some(format!("above the roofline: {}, up to {fraction}: {mend}", counted(above.len(), "run")))
}

/// What was not as it should be while a run was measured.
fn marked(analysis: &Analysis<'_>) -> Option<String> {
    let what = analysis.run.left_out.clone().or_else(|| company(analysis))?;
    Some(cell(&format!("{}: {what}", run_name(analysis.run))))
}

/// Runs whose launches left different bits, in one sentence.
fn not_deterministic(analyses: &[Option<Analysis<'_>>]) -> Option<String> {
    let runs: Vec<String> = analyses
        .iter()
        .flatten()
        .filter(|analysis| !is_deterministic(analysis))
        .map(|analysis| cell(&run_name(analysis.run)))
        .collect();
    let names = runs.join("; ");
    (!runs.is_empty()).then(|| format!("not deterministic, two launches left different bits, both right: {names}"))
}

fn result_table(mode: Mode, analyses: &[Option<Analysis<'_>>]) -> Option<ResultTable> {
    let of_mode: Vec<_> = analyses.iter().flatten().filter(|analysis| analysis.run.mode == mode).collect();
    let unit = TimeUnit::of_column(of_mode.iter().map(|analysis| analysis.whole.ns));
    let time = match mode {
        Mode::Annotation | Mode::Ncu => "Sum of stages",
        Mode::Event => "Duration",
        Mode::Nsys => "Span, traced",
    };
    let rows = of_mode.iter().map(|analysis| result_row(analysis, unit)).collect();
    (!of_mode.is_empty()).then_some(ResultTable { mode: mode.name(), time, unit: unit.symbol(), rows })
}

fn result_row(analysis: &Analysis<'_>, unit: TimeUnit) -> ResultRow {
    let whole = &analysis.whole;
    let interval = whole.summary.as_ref().and_then(|summary| summary.interval);
    ResultRow {
        kernel: kernel(analysis.run),
        version: analysis.run.id.version.to_string(),
        shape: cell(&analysis.run.label.to_string()),
        time: unit.text(Some(whole.ns)),
        interval: interval.map_or(ABSENT.to_owned(), |interval| {
            format!("{} to {}", unit.text(Some(interval.low)), unit.text(Some(interval.high)))
        }),
        over: match (&whole.summary, &analysis.traced) {
            (Some(summary), _) => basis(summary),
            (None, Some(traced)) => timeline::basis(traced),
            (None, None) if analysis.nsight().is_some() => tools::told_by(analysis),
            (None, None) => ABSENT.to_owned(),
        },
        tflops: three_digits(whole.flops_per_s().map(|rate| rate / 1e12)),
        gb_per_s: gb_per_s(whole.bytes_per_s()),
        roofline: percent_of(whole.fraction()),
        bottleneck: whole.diagnosis.as_ref().map_or(ABSENT.to_owned(), |diagnosis| diagnosis.label()),
    }
}

fn kernel(run: &Run) -> String {
    cell(&format!("{} ({})", run.id.kernel, run.id.language))
}

/// Tables in the order in which their baselines first appear, and within one in the order of modes.
fn comparison_tables(input: &Input, analyses: &[Option<Analysis<'_>>]) -> Vec<ComparisonTable> {
    let mut names: Vec<&str> = Vec::new();
    let mut seen = BTreeSet::new();
    names.extend(input.comparisons.iter().map(|comparison| comparison.name.as_str()).filter(|name| seen.insert(*name)));
    let tables = names.into_iter().flat_map(|name| Mode::ALL.into_iter().map(move |mode| (name, mode)));
    tables.filter_map(|(name, mode)| comparison_table(input, analyses, name, mode)).collect()
}

fn comparison_table(
    input: &Input,
    analyses: &[Option<Analysis<'_>>],
    name: &str,
    mode: Mode,
) -> Option<ComparisonTable> {
    let named = input.comparisons.iter().filter(|comparison| comparison.name == name);
    let pairs: Vec<_> = named
        .filter_map(|comparison| {
            let current = analyses.get(comparison.run)?.as_ref().filter(|current| current.run.mode == mode)?;
            let previous = comparable(input, analyses, &comparison.baseline, current).ok()?;
            let (previous, current) = as_judged(previous, current, &comparison.standing);
            Some((previous, current, comparison))
        })
        .collect();
    let unit =
        TimeUnit::of_column(pairs.iter().flat_map(|(previous, current, _)| [previous.whole.ns, current.whole.ns]));
    let row = |(previous, current, comparison): &(Previous<'_>, Analysis<'_>, &Comparison)| ComparisonRow {
        kernel: kernel(current.run),
        version: current.run.id.version.to_string(),
        shape: cell(&current.run.label.to_string()),
        against: cell(&previous.id.to_string()),
        previous: unit.text(Some(previous.whole.ns)),
        current: unit.text(Some(current.whole.ns)),
        change: match previous.same_code {
            true => SAME_CODE.to_owned(),
            false => change_of_time(Some(previous.whole.ns), Some(current.whole.ns)),
        },
        verdict: if mode == Mode::Event { verdict::word(&comparison.standing).to_owned() } else { ABSENT.to_owned() },
        interval: comparison.standing.judged().map_or(ABSENT.to_owned(), |judged| verdict::interval(&judged.judgement)),
    };
    let rows: Vec<_> = pairs.iter().map(row).collect();
    let differ = |(previous, current, _): &(Previous<'_>, Analysis<'_>, &Comparison)| {
        let differences = previous.differences.join(", ");
        (!differences.is_empty())
            .then(|| format!("{} and its baseline differ in {differences}", cell(&run_name(current.run))))
    };
    let differences = pairs.iter().filter_map(differ).collect();
    let remark = |(_, current, comparison): &(Previous<'_>, Analysis<'_>, &Comparison)| {
        // Where nothing is unusual the row says it all.
        let is_plain = matches!(comparison.standing.judged(), Some(judged) if is_plain(&judged.judgement));
        let remarks = if is_plain { Vec::new() } else { verdict_remarks(analyses, comparison, current) };
        (!remarks.is_empty()).then(|| format!("{}: {}", cell(&run_name(current.run)), remarks.join(". ")))
    };
    let remarks = pairs.iter().filter_map(remark).collect();
    let (baseline, mode) = (cell(name), mode.name());
    (!rows.is_empty()).then_some(ComparisonTable { baseline, mode, unit: unit.symbol(), rows, differences, remarks })
}

/// FASTER or SAME, and nothing was dropped or came in groups.
fn is_plain(judgement: &Judgement) -> bool {
    let has_modes = judgement.candidate_modes.is_some() || judgement.baseline_modes.is_some();
    matches!(judgement.verdict, Verdict::Faster | Verdict::Same) && judgement.dropped.is_empty() && !has_modes
}

/// The verdicts of all comparisons in event mode, counted, e.g. `2 FASTER, 1 none of 3 comparisons`.
fn verdicts(input: &Input) -> String {
    let is_judged = |comparison: &&Comparison| {
        let is_event = input.runs.get(comparison.run).is_some_and(|run| run.mode == Mode::Event);
        is_event && !matches!(comparison.baseline, Baseline::Missing { .. })
    };
    let words: Vec<&str> =
        input.comparisons.iter().filter(is_judged).map(|comparison| verdict::word(&comparison.standing)).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    words.iter().for_each(|word| *counts.entry(word).or_default() += 1);
    let list: Vec<String> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
    if words.is_empty() {
        String::new()
    } else {
        format!("{} of {}", list.join(", "), counted(words.len(), "comparison"))
    }
}

fn gone(gone: &Gone) -> GoneRow {
    GoneRow { run: cell(&gone.run), baseline: cell(&gone.baseline), reason: cell(&gone.reason) }
}

/// Measured runs without a row against a baseline that the experiment names.
fn missing(input: &Input, analyses: &[Option<Analysis<'_>>]) -> Vec<MissingRow> {
    let row = |comparison: &Comparison| {
        let current = analyses.get(comparison.run)?.as_ref()?;
        let reason = comparable(input, analyses, &comparison.baseline, current).err()?;
        Some(MissingRow { run: cell(&run_name(current.run)), baseline: cell(&comparison.name), reason: cell(&reason) })
    };
    input.comparisons.iter().filter_map(row).collect()
}

fn problem(run: &Run) -> Option<ProblemRow> {
    let (outcome, reason) = match &run.outcome {
        Outcome::Measured(_) => return None,
        Outcome::Skipped { reason } => ("skipped", reason),
        Outcome::Failed { reason, .. } => ("failed", reason),
    };
    Some(ProblemRow { run: cell(&run_name(run)), outcome, reason: cell(reason) })
}

fn context(record: &Record) -> String {
    let environment = &record.environment;
    format!(
        "{} ({}), {}; {}; {}; mlarun {}",
        cell(&environment.device.id.name),
        counted(environment.device.id.units, "unit"),
        clocks(environment.clocks_locked),
        cell(&environment.os),
        cell(&environment.compiler),
        cell(&environment.mlarun)
    )
}

fn peaks(run: &Run) -> Option<String> {
    let peaks = run.peaks.as_ref()?;
    let dtype = run.shape.dtype()?;
    let flops = three_digits(peaks.flops_per_s.get(&dtype).map(|rate| rate / 1e12));
    let source = peak_source(&peaks.source);
    let bytes = gb_per_s(Some(peaks.bytes_per_s));
    Some(format!("{}, {dtype}: {flops} TFLOP/s, {bytes} GB/s; {source}", cell(&run.device.name)))
}

fn unique(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    texts.filter(|text| seen.insert(text.clone())).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn unique_keeps_the_first_of_each() {
        let texts = ["b", "a", "b"].map(str::to_owned);
        assert_eq!(super::unique(texts.into_iter()), ["b", "a"]);
    }
}
