//! Doing what a plan has left to do, and telling people of it: shared by runs and replays.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::args::{Global, RunArgs};
use super::context::{self, Opened};
use super::exit::{CliError, Exit};
use super::output;
use super::progress::Progress;
use super::run::{bench_error, failure_exit};
use crate::app::{self, Bench, Control, PublishError, Published, Tape};
use crate::device::lease::Lease;
use crate::execute::Outcome;
use crate::model::{KernelId, Mode, Shape};
use crate::plan::{Plan, RunState, SubjectState, Wanted};
use crate::report::numbers::counted;

/// What a plan is carried out with.
pub struct Sources<'a> {
    pub opened: &'a Opened,
    /// Held until everything is measured; `None` where nothing is.
    pub lease: Option<Lease>,
    pub tape: Option<Tape<'a>>,
}

/// What was asked for beside the plan.
#[derive(Debug, Clone, Copy)]
pub struct How {
    pub fail_fast: bool,
    pub devlog_add: bool,
    pub fail_on_regression: bool,
}

impl How {
    pub fn of(args: &RunArgs) -> How {
        How { fail_fast: args.fail_fast, devlog_add: args.devlog_add, fail_on_regression: args.fail_on_regression }
    }
}

/// Executes `bench` and writes its reports.
pub fn carry_out(
    global: &Global,
    Sources { opened, lease, tape }: Sources<'_>,
    bench: Bench,
    wanted: Wanted<'_>,
    how: How,
    interrupted: &Arc<AtomicBool>,
) -> Result<Exit, CliError> {
    let workspace = opened.workspace();
    announce(global, opened, &bench)?;
    let stale = stale(&bench.plan);
    let mut progress = Progress::new(global, workspace.estimate(&bench).measuring_ns);
    let mut control = Control {
        observer: &mut progress,
        interrupted: Arc::clone(interrupted),
        fail_fast: how.fail_fast,
        worker: context::worker()?,
        tape,
    };
    let finished = workspace.execute(bench, wanted, &mut control).map_err(bench_error)?;
    drop(progress);
    drop(lease);
    warn(opened);
    let is_new = |subject: usize, mode: Mode| {
        let subject = &finished.bench.plan.subjects[subject];
        stale.iter().any(|(id, shape, of)| *id == subject.id && *shape == subject.shape && *of == mode)
    };
    let published =
        app::publish_experiment(&workspace, &finished.bench, &finished.outcome.failures, is_new, how.devlog_add)
            .map_err(publish_error)?;
    summarise(global, opened, &finished.bench, &finished.outcome, &published)?;
    let invalid = if published.invalid > 0 { Exit::RunsFailed } else { Exit::Success };
    let is_worse = how.fail_on_regression && published.regressions > 0;
    let gate = if is_worse { Exit::Regression } else { Exit::Success };
    if is_worse {
        let count = counted(published.regressions, "comparison");
        say(global, &format!("regression: {count} SLOWER, or with a baseline that has no result now; see the report"));
    }
    Ok(exit(&finished.bench.plan, &finished.outcome, interrupted).and(invalid).and(gate))
}

/// Says what was found damaged and set aside.
pub fn warn(opened: &Opened) {
    for warning in opened.ledger.take_warnings() {
        output::note(&format!("warning: {warning}"));
    }
}

/// Something that the user reads unless told otherwise.
pub fn say(global: &Global, text: &str) {
    if global.quiet < 2 {
        output::note(text);
    }
}

pub fn skipped(count: usize) -> String {
    if count == 0 { String::new() } else { format!(", {count} skipped") }
}

/// results.json of an experiment that has been published.
pub fn print_results(opened: &Opened, bench: &Bench) -> Result<(), CliError> {
    let path = opened.project.experiment(&bench.experiment.name).join("results.json");
    let text =
        std::fs::read_to_string(&path).map_err(|error| CliError::internal(format!("{}: {error}", path.display())))?;
    output::json_text(&text)
}

/// A dev log that cannot be trusted is the user's to mend; everything else was written before it.
pub fn publish_error(error: PublishError) -> CliError {
    match error {
        PublishError::Devlogs(error) => CliError::usage(format!("{error}; results and reports are written")),
        error @ PublishError::Io { .. } => CliError::host(error),
        error => CliError::internal(error),
    }
}

fn announce(global: &Global, opened: &Opened, bench: &Bench) -> Result<(), CliError> {
    let counts = bench.plan.counts();
    if global.quiet == 0 {
        let about = match counts.to_do() {
            0 => String::new(),
            _ => format!(", {}", super::plan::about(&opened.workspace().estimate(bench))),
        };
        say(
            global,
            &format!(
                "{}: {}: {} recorded, {} to do{}{}{}",
                bench.experiment.name,
                counted(counts.total(), "run"),
                counts.fresh,
                counts.to_do(),
                skipped(counts.skipped),
                if counts.refused == 0 { String::new() } else { format!(", {} refused", counts.refused) },
                about,
            ),
        );
        say_why(global, opened, bench)?;
    }
    for subject in &bench.plan.subjects {
        if let SubjectState::Refused { reason } = &subject.state {
            output::note(&format!("REFUSED {} {}: {reason}", subject.id, subject.label));
        }
    }
    Ok(())
}

/// What has changed since runs were last measured, once for each kernel.
fn say_why(global: &Global, opened: &Opened, bench: &Bench) -> Result<(), CliError> {
    let mut said = BTreeSet::new();
    for (index, subject) in bench.plan.subjects.iter().enumerate() {
        for run in &subject.runs {
            let changes = app::reasons(&opened.workspace(), bench, index, run).map_err(CliError::internal)?;
            if !changes.is_empty() {
                let why = format!("{} again: {}", subject.id, super::plan::changed(&changes));
                if said.insert(why.clone()) {
                    say(global, &why);
                }
            }
        }
    }
    Ok(())
}

/// The runs that a session works on.
fn stale(plan: &Plan) -> Vec<(KernelId, Shape, Mode)> {
    let runs = plan.subjects.iter().flat_map(|subject| subject.runs.iter().map(move |run| (subject, run)));
    runs.filter(|(_, run)| matches!(run.state, RunState::Stale(_) | RunState::AfterTune))
        .map(|(subject, run)| (subject.id.clone(), subject.shape.clone(), run.mode))
        .collect()
}

fn summarise(
    global: &Global,
    opened: &Opened,
    bench: &Bench,
    outcome: &Outcome,
    published: &Published,
) -> Result<(), CliError> {
    if global.json {
        return print_results(opened, bench);
    }
    let counts = bench.plan.counts();
    let done = if outcome.stopped { "stopped" } else { "done" };
    let failed = match outcome.failures.len() {
        0 => String::new(),
        count => format!(", {count} failed"),
    };
    say(
        global,
        &format!(
            "{}: {done}, {} recorded{}{failed}",
            bench.experiment.name,
            counted(counts.fresh, "run"),
            skipped(counts.skipped)
        ),
    );
    say(global, &format!("report: {}", published.report.display()));
    for devlog in &published.devlogs {
        say(global, &format!("dev log: {}", devlog.display()));
    }
    if outcome.stopped {
        say(global, "everything finished is kept; the same command goes on from here");
    }
    Ok(())
}

fn exit(plan: &Plan, outcome: &Outcome, interrupted: &AtomicBool) -> Exit {
    if interrupted.load(Ordering::Relaxed) {
        return Exit::Interrupted;
    }
    let refused = if plan.counts().refused > 0 { Exit::RunsFailed } else { Exit::Success };
    outcome.failures.iter().map(|failed| failure_exit(failed.failure.kind)).fold(refused, Exit::and)
}
