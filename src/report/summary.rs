//! View of a whole experiment: the names and finished texts that the template `experiment.md.hbs` may use. No I/O.

use std::collections::BTreeSet;

use serde::Serialize;

use super::analysis::{Analysis, run_name};
use super::calibration::sentence;
use super::input::{Comparison, Input, Outcome, Run};
use super::numbers::{ABSENT, SAME_CODE, TimeUnit, cell, change_of_time, counted, gb_per_s, percent_of, three_digits};
use super::timeline;
use super::view::{
    Previous, basis, clocks, company, comparable, is_above_roofline, is_deterministic, mend_roofline, peak_source,
    taken,
};
use crate::model::Mode;
use crate::model::record::Record;

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
    pub baselines: Vec<ComparisonTable>,
    pub missing: Vec<MissingRow>,
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
        baselines: comparison_tables(input, analyses),
        missing: missing(input, analyses),
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
            Some((comparable(input, analyses, &comparison.baseline, current).ok()?, current))
        })
        .collect();
    let unit = TimeUnit::of_column(pairs.iter().flat_map(|(previous, current)| [previous.whole.ns, current.whole.ns]));
    let row = |(previous, current): &(Previous<'_>, &Analysis<'_>)| ComparisonRow {
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
    };
    let rows: Vec<_> = pairs.iter().map(row).collect();
    let differ = |(previous, current): &(Previous<'_>, &Analysis<'_>)| {
        let differences = previous.differences.join(", ");
        (!differences.is_empty())
            .then(|| format!("{} and its baseline differ in {differences}", cell(&run_name(current.run))))
    };
    let differences = pairs.iter().filter_map(differ).collect();
    let (baseline, mode) = (cell(name), mode.name());
    (!rows.is_empty()).then_some(ComparisonTable { baseline, mode, unit: unit.symbol(), rows, differences })
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
