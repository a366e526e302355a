//! `mlarun plan`: what would be done, and why.

use std::path::Path;

use serde::Serialize;

use super::args::{Global, PlanArgs};
use super::context::{self, Opened};
use super::exit::{CliError, Exit};
use super::output;
use super::run::bench_error;
use crate::app::{Bench, reasons};
use crate::model::record::Format;
use crate::model::{DeviceKind, KernelId, Key, Mode, Shape, Tiling};
use crate::plan::{Change, Counts, Estimate, Optimum, Placed, RunState, Stale, Subject, SubjectState, Wanted, graph};
use crate::report::numbers::{counted, duration};

/// Version of the plan's JSON.
const FORMAT: Format = Format { major: 1, minor: 2 };

pub fn run(global: &Global, args: &PlanArgs) -> Result<Exit, CliError> {
    let first = args.manifests.first().map_or(Path::new("."), |path| path.as_path());
    let project = context::project(global, first)?;
    let mut experiments = Vec::new();
    for manifest in &args.manifests {
        experiments.push(context::experiment(global, manifest, &args.selection.sets, &project)?);
    }
    let kind = experiments.first().map_or(DeviceKind::Cpu, |experiment| experiment.device);
    if let Some(other) = experiments.iter().find(|experiment| experiment.device != kind) {
        let message = "the manifests run on devices of different kinds; plan one at a time";
        return Err(CliError::usage(format!("{}: {message}", other.name)));
    }
    let opened = Opened::of(global, project, kind)?;
    let only = context::only(&args.selection)?;
    let wanted =
        Wanted { only: only.as_ref(), remeasure: args.selection.remeasure, dev_logs: true, ..Wanted::default() };
    let mut benches = Vec::new();
    for experiment in experiments {
        let bench = opened.workspace().plan(experiment, wanted).map_err(bench_error)?;
        context::warn_of_nothing(global, &args.selection, &bench);
        benches.push(bench);
    }
    if args.dot {
        let graphs: String = benches.iter().map(|bench| graph::dot(&bench.experiment.name, &bench.plan)).collect();
        output::text(&graphs)?;
        return Ok(Exit::Success);
    }
    print(global, &opened, &benches)
}

/// Prints plans as text or JSON.
pub fn print(global: &Global, opened: &Opened, benches: &[Bench]) -> Result<Exit, CliError> {
    let documents = benches.iter().map(|bench| document(opened, bench)).collect::<Result<Vec<_>, _>>()?;
    if global.json {
        output::json(&documents)?;
    } else {
        for document in &documents {
            output::text(&document.text(global.verbose > 0))?;
        }
    }
    Ok(Exit::Success)
}

/// A plan for people and programs.
#[derive(Serialize)]
struct Document<'a> {
    format: Format,
    experiment: &'a str,
    device: &'a str,
    counts: Counts,
    /// Rough time that is left: all of it, and its parts.
    estimate_ns: f64,
    estimate: Estimate,
    runs: Vec<RunRow<'a>>,
    /// Where the roofline would have the parameters that are tuned.
    optima: Vec<OptimumRow<'a>>,
    comparisons: Vec<ComparisonRow<'a>>,
}

#[derive(Serialize)]
struct RunRow<'a> {
    id: &'a KernelId,
    shape: &'a Shape,
    #[serde(skip)]
    label: &'a Shape,
    mode: Mode,
    /// Named by the experiment, not only as a baseline.
    listed: bool,
    state: &'static str,
    reason: Option<String>,
    changes: Vec<Change>,
    subject: Option<Key>,
    key: Option<Key>,
    tiling: Option<&'a Tiling>,
    /// By the calibrated peaks.
    roofline_ns: Option<f64>,
    estimate_ns: f64,
}

#[derive(Serialize)]
struct OptimumRow<'a> {
    id: &'a KernelId,
    #[serde(skip)]
    label: &'a Shape,
    shape: &'a Shape,
    #[serde(flatten)]
    optimum: Optimum,
}

#[derive(Serialize)]
struct ComparisonRow<'a> {
    candidate: &'a KernelId,
    shape: &'a Shape,
    baseline: &'a str,
    against: Option<&'a KernelId>,
    reason: Option<&'a str>,
}

fn document<'a>(opened: &'a Opened, bench: &'a Bench) -> Result<Document<'a>, CliError> {
    let mut runs = Vec::new();
    for (index, subject) in bench.plan.subjects.iter().enumerate() {
        for run in &subject.runs {
            let changes = reasons(&opened.workspace(), bench, index, run).map_err(CliError::internal)?;
            runs.push(row(subject, run, changes));
        }
    }
    let comparisons = bench.plan.comparisons.iter().map(|comparison| {
        let candidate = &bench.plan.subjects[comparison.candidate];
        let (against, reason) = match &comparison.baseline {
            crate::plan::BaselineSubject::Subject(index) => (Some(&bench.plan.subjects[*index].id), None),
            crate::plan::BaselineSubject::Recorded(_) => (None, Some("recorded results")),
            crate::plan::BaselineSubject::None { reason } => (None, Some(reason.as_str())),
        };
        ComparisonRow { candidate: &candidate.id, shape: &candidate.shape, baseline: &comparison.name, against, reason }
    });
    let estimate = opened.workspace().estimate(bench);
    Ok(Document {
        format: FORMAT,
        experiment: &bench.experiment.name,
        device: &opened.machine.host.device.id.name,
        counts: bench.plan.counts(),
        estimate_ns: estimate.total_ns(),
        estimate,
        runs,
        optima: optima(opened, bench)?,
        comparisons: comparisons.collect(),
    })
}

fn optima<'a>(opened: &Opened, bench: &'a Bench) -> Result<Vec<OptimumRow<'a>>, CliError> {
    let workspace = opened.workspace();
    let setting = workspace.setting(&bench.protocols);
    let mut rows = Vec::new();
    for subject in &bench.plan.subjects {
        let package = opened.project.catalog.package(&subject.id).map_err(CliError::usage)?;
        let found = crate::plan::optima(&setting, package, subject).map_err(CliError::usage)?;
        let (id, label, shape) = (&subject.id, &subject.label, &subject.shape);
        rows.extend(found.into_iter().map(|optimum| OptimumRow { id, label, shape, optimum }));
    }
    Ok(rows)
}

fn row<'a>(subject: &'a Subject, run: &'a crate::plan::Run, changes: Vec<Change>) -> RunRow<'a> {
    let (state, reason) = state(&run.state, &subject.state, &changes);
    let (key, tiling, roofline_ns) = match &subject.state {
        SubjectState::Ready(ready) => (Some(ready.key), Some(&ready.tiling), ready.floor_ns),
        SubjectState::AfterTune { floor_ns, .. } => (None, None, *floor_ns),
        SubjectState::Refused { .. } => (None, None, None),
    };
    RunRow {
        id: &subject.id,
        shape: &subject.shape,
        label: &subject.label,
        mode: run.mode,
        listed: subject.listed,
        state,
        reason,
        changes,
        subject: key,
        key: run.key,
        tiling,
        roofline_ns,
        estimate_ns: run.left_ns(),
    }
}

/// Word for a run's state, and the reason where there is one.
pub fn state(state: &RunState, subject: &SubjectState, changes: &[Change]) -> (&'static str, Option<String>) {
    match state {
        RunState::Fresh => ("fresh", None),
        RunState::Stale(Stale::NeverMeasured) => ("stale", Some("never measured".to_owned())),
        RunState::Stale(Stale::Incomplete { have, want }) => {
            ("stale", Some(format!("{have} of {} recorded", counted(want, "sample set"))))
        }
        RunState::Stale(Stale::Beside { other }) => ("stale", Some(format!("measured anew beside {other}"))),
        RunState::Stale(Stale::Remeasure) => ("stale", Some("--remeasure".to_owned())),
        RunState::Stale(Stale::Changed { .. }) => ("stale", Some(changed(changes))),
        RunState::AfterTune if changes.is_empty() => ("after tune", Some(waits_for(subject))),
        RunState::AfterTune => ("after tune", Some(format!("{}; {}", changed(changes), waits_for(subject)))),
        RunState::Skipped { reason } => ("skipped", Some(reason.clone())),
        RunState::Refused { reason } => ("refused", Some(reason.clone())),
    }
}

/// An estimate in words. Tuning stands by itself, as it may take much less.
pub fn about(estimate: &Estimate) -> String {
    let rest = duration(estimate.compiling_ns + estimate.measuring_ns);
    if estimate.tuning_ns == 0.0 {
        return format!("about {rest}");
    }
    format!("about {rest}, and up to {} of tuning before", duration(estimate.tuning_ns))
}

/// The first differences; all of them are in the JSON and with `mlarun explain`.
pub fn changed(changes: &[Change]) -> String {
    const SHOWN: usize = 2;
    let mut texts: Vec<String> = changes.iter().take(SHOWN).map(Change::to_string).collect();
    if changes.len() > SHOWN {
        texts.push(format!("and {} more", changes.len() - SHOWN));
    }
    if texts.is_empty() { "its key has changed".to_owned() } else { texts.join("; ") }
}

fn waits_for(subject: &SubjectState) -> String {
    match subject {
        SubjectState::AfterTune { tunings, .. } => {
            let targets =
                tunings.iter().map(|tuning| format!("{} ({})", tuning.target, counted(tuning.points, "point")));
            format!("tunes {}", targets.collect::<Vec<_>>().join(", "))
        }
        _ => "waits for a tuning".to_owned(),
    }
}

impl Document<'_> {
    fn text(&self, verbose: bool) -> String {
        let mut table = output::table(&["RUN", "SHAPE", "MODE", "STATE", "ROOFLINE", "WHY"]);
        for run in &self.runs {
            table.add_row([
                format!("{}{}", run.id, if run.listed { "" } else { " [baseline]" }),
                run.label.to_string(),
                run.mode.to_string(),
                run.state.to_owned(),
                run.roofline_ns.map_or("--".to_owned(), duration),
                run.reason.clone().unwrap_or_default(),
            ]);
        }
        let Counts { fresh, stale, after_tune, skipped, refused } = self.counts;
        let mut text = format!("{} on {}\n\n{}", self.experiment, self.device, output::table_text(&table));
        for OptimumRow { id, label, optimum: Optimum { parameter, roofline, tuned }, .. } in &self.optima {
            let placed = |placed: &Placed| format!("{} ({})", placed.value, duration(placed.floor_ns));
            let tuned = tuned.as_ref().map_or("not tuned yet".to_owned(), |tuned| format!("tuned {}", placed(tuned)));
            let best = placed(roofline);
            text.push_str(&format!("\n{id} {label}: {parameter} by the roofline {best}, {tuned}"));
        }
        text.push_str(if self.optima.is_empty() { "" } else { "\n" });
        if verbose {
            for run in self.runs.iter().filter(|run| !run.changes.is_empty()) {
                text.push_str(&format!("\n{} {} {}\n", run.id, run.label, run.mode));
                run.changes.iter().for_each(|change| text.push_str(&format!("  {change}\n")));
            }
        }
        let estimate = if stale + after_tune == 0 { "nothing to do".to_owned() } else { about(&self.estimate) };
        text.push_str(&format!(
            "\n{}: {fresh} fresh, {stale} stale, {after_tune} after tune, {skipped} skipped, {refused} refused; \
             {estimate}\n",
            counted(self.counts.total(), "run"),
        ));
        text
    }
}
