//! `mlarun MANIFEST…`: plan, execute, publish.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::args::{Global, RunArgs};
use super::context::{self, Opened};
use super::exit::{CliError, Exit};
use super::output;
use super::progress::Progress;
use crate::app::{self, Bench, BenchError, CalibrateError, Control, PublishError, Published};
use crate::device::lease::{self, Lease, LeaseError, Waiting};
use crate::execute::{Outcome, SessionError};
use crate::model::protocol::FailureKind;
use crate::model::{KernelId, Mode, Shape};
use crate::plan::{Plan, RunState, SubjectState, Wanted};
use crate::report::numbers::counted;

/// Runs every manifest; the worst end of all is the command's.
pub fn run(global: &Global, args: &RunArgs) -> Result<Exit, CliError> {
    if args.manifests.is_empty() {
        return Err(CliError::usage("name a manifest, e.g. `mlarun experiments/var6_sweep.toml`; see `mlarun --help`"));
    }
    if let Some(missing) = args.manifests.iter().find(|manifest| !manifest.exists()) {
        return Err(CliError::usage(format!("{}: there is no such manifest; nothing was run", missing.display())));
    }
    check_names(&args.manifests, &args.selection.sets)?;
    let interrupted = context::interruptible()?;
    super::clocks::recover(global)?;
    let mut exit = Exit::Success;
    for manifest in &args.manifests {
        if interrupted.load(Ordering::Relaxed) {
            return Ok(Exit::Interrupted);
        }
        exit = exit.and(one(global, args, manifest, &interrupted)?);
    }
    Ok(exit)
}

/// Two experiments of one name would write one report.
fn check_names(manifests: &[PathBuf], sets: &[String]) -> Result<(), CliError> {
    let mut seen: BTreeMap<String, &Path> = BTreeMap::new();
    for manifest in manifests.iter().filter(|_| manifests.len() > 1) {
        let document = context::document(manifest, sets)?;
        let Some(name) = document.name() else { continue };
        if let Some(other) = seen.insert(name.to_owned(), manifest) {
            let (one, other) = (manifest.display(), other.display());
            return Err(CliError::usage(format!(
                "{one} and {other} are both named `{name}`, and would write one report; rename one of them"
            )));
        }
    }
    Ok(())
}

fn one(global: &Global, args: &RunArgs, manifest: &Path, interrupted: &Arc<AtomicBool>) -> Result<Exit, CliError> {
    let started = Instant::now();
    let project = context::project(global, manifest)?;
    let experiment = context::experiment(global, manifest, &args.selection.sets, &project)?;
    let mut opened = Opened::of(global, project, experiment.device)?;
    let only = context::only(&args.selection)?;
    let wanted = Wanted { only: only.as_ref(), remeasure: args.selection.remeasure, dev_logs: true };
    let bench = opened.workspace().plan(experiment, wanted).map_err(bench_error)?;
    context::warn_of_nothing(global, &args.selection, &bench);
    if args.dry_run {
        return super::plan::print(global, &opened, &[bench]);
    }
    let counts = bench.plan.counts();
    let is_complete = counts.to_do() == 0 && counts.refused == 0;
    if is_complete && !args.devlog_add && app::is_published(&opened.workspace(), &bench) {
        say(
            global,
            &format!(
                "{}: nothing to do, {} recorded{} ({} ms)",
                bench.experiment.name,
                counted(counts.fresh, "run"),
                skipped(counts.skipped),
                started.elapsed().as_millis()
            ),
        );
        if global.json {
            print_results(&opened, &bench)?;
        }
        return Ok(Exit::Success);
    }
    // Writing reports alone measures nothing, and needs neither the host for itself nor its peaks.
    let lease = if counts.to_do() > 0 { Some(acquire(global, args.no_wait, interrupted)?) } else { None };
    if lease.is_some() {
        // Whoever held the lease before may have measured what this plan was to measure.
        warn(&opened);
        opened.ledger = context::ledger(&opened.project)?;
        calibrate_once(global, &mut opened, interrupted)?;
    }
    let workspace = opened.workspace();
    let bench = match lease {
        Some(_) => workspace.plan(bench.experiment, wanted).map_err(bench_error)?,
        None => bench,
    };
    announce(global, &opened, &bench)?;
    let stale = stale(&bench.plan);
    let mut progress = Progress::new(global, workspace.estimate(&bench).measuring_ns);
    let mut control = Control {
        observer: &mut progress,
        interrupted: Arc::clone(interrupted),
        fail_fast: args.fail_fast,
        worker: context::worker()?,
    };
    let finished = workspace.execute(bench, wanted, &mut control).map_err(bench_error)?;
    drop(progress);
    drop(lease);
    warn(&opened);
    let is_new = |subject: usize, mode: Mode| {
        let subject = &finished.bench.plan.subjects[subject];
        stale.iter().any(|(id, shape, of)| *id == subject.id && *shape == subject.shape && *of == mode)
    };
    let published =
        app::publish_experiment(&workspace, &finished.bench, &finished.outcome.failures, is_new, args.devlog_add)
            .map_err(publish_error)?;
    summarise(global, &opened, &finished.bench, &finished.outcome, &published)?;
    Ok(exit(&finished.bench.plan, &finished.outcome, interrupted))
}

/// Says what was found damaged and set aside.
fn warn(opened: &Opened) {
    for warning in opened.ledger.take_warnings() {
        output::note(&format!("warning: {warning}"));
    }
}

/// Something that the user reads unless told otherwise.
fn say(global: &Global, text: &str) {
    if global.quiet < 2 {
        output::note(text);
    }
}

fn skipped(count: usize) -> String {
    if count == 0 { String::new() } else { format!(", {count} skipped") }
}

/// Waits for (or refuses without) the host's one lease.
pub fn acquire(global: &Global, no_wait: bool, interrupted: &AtomicBool) -> Result<Lease, CliError> {
    let mut told = false;
    let mut wait = |holder: Option<&lease::Holder>| {
        if !told {
            let holder = holder.map_or_else(|| "another mlarun".to_owned(), ToString::to_string);
            say(global, &format!("waiting: {holder} is measuring on this host (Ctrl-C to stop)"));
            told = true;
        }
        !interrupted.load(Ordering::Relaxed)
    };
    let waiting = if no_wait { Waiting::Refuse } else { Waiting::While(&mut wait) };
    let lease = lease::acquire(&lease::folder(), waiting).map_err(|error| match error {
        LeaseError::Held { .. } if interrupted.load(Ordering::Relaxed) => {
            CliError::Message(Exit::Interrupted, "interrupted while waiting".to_owned())
        }
        error => CliError::host(error),
    })?;
    super::clocks::recover(global)?;
    Ok(lease)
}

/// Measures the host's peaks where that has not been done with this compiler: without them there is no roofline.
pub fn calibrate_once(global: &Global, opened: &mut Opened, interrupted: &Arc<AtomicBool>) -> Result<(), CliError> {
    // A GPU has the peaks of conf/, or none.
    if opened.machine.peaks.is_some() || opened.machine.gpu.is_some() {
        return Ok(());
    }
    say(global, "measuring this host's peaks once (mlarun device calibrate)");
    super::device::warn_if_busy(global);
    match super::device::calibrate(global, opened, interrupted) {
        Ok(peaks) => opened.machine.peaks = Some(peaks),
        Err(CalibrateError::Package(error)) => {
            say(global, &format!("warning: no roofline: {error}"));
        }
        Err(error) => return Err(super::device::calibrate_error(error)),
    }
    Ok(())
}

/// results.json of an experiment that has been published.
fn print_results(opened: &Opened, bench: &Bench) -> Result<(), CliError> {
    let path = opened.project.experiment(&bench.experiment.name).join("results.json");
    let text =
        std::fs::read_to_string(&path).map_err(|error| CliError::internal(format!("{}: {error}", path.display())))?;
    output::text(&text)
}

/// A dev log that cannot be trusted is the user's to mend; everything else was written before it.
fn publish_error(error: PublishError) -> CliError {
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

/// Exit code of a failed run.
pub fn failure_exit(kind: FailureKind) -> Exit {
    match kind {
        FailureKind::WrongOutput | FailureKind::CannotTell => Exit::WrongOutput,
        FailureKind::Unsupported => Exit::HostLacks,
        _ => Exit::RunsFailed,
    }
}

/// Exit code of an experiment that could not be planned or executed.
pub fn bench_error(error: BenchError) -> CliError {
    match error {
        BenchError::Plan(error) => CliError::usage(error),
        BenchError::Session(SessionError::Plan(error)) => CliError::usage(error),
        BenchError::Session(error @ (SessionError::Journal(_) | SessionError::Lost(_))) => CliError::host(error),
        BenchError::Clocks(error) => CliError::host(error),
    }
}
