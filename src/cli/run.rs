//! `mlarun MANIFEST…`: plan, execute, publish.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::args::{Global, RunArgs};
use super::carry_out::{How, Sources, carry_out, print_results, say, skipped, warn};
use super::context::{self, Opened};
use super::exit::{CliError, Exit};
use crate::app::{self, BenchError, CalibrateError, Project, Tape};
use crate::device::lease::{self, Lease, LeaseError, Waiting};
use crate::execute::SessionError;
use crate::model::protocol::{FailureKind, GpuRequest};
use crate::plan::Wanted;
use crate::recording::{Call, Recorder, Redactions};
use crate::report::numbers::counted;

/// Runs every manifest; the worst end of all is the command's.
pub fn run(global: &Global, args: &RunArgs) -> Result<Exit, CliError> {
    if let Some(file) = &args.replay {
        return super::replay::run(global, file);
    }
    if args.manifests.is_empty() {
        return Err(CliError::usage("name a manifest, e.g. `mlarun experiments/var6_sweep.toml`; see `mlarun --help`"));
    }
    if let Some(missing) = args.manifests.iter().find(|manifest| !manifest.exists()) {
        return Err(CliError::usage(format!("{}: there is no such manifest; nothing was run", missing.display())));
    }
    if args.record.is_some() && args.manifests.len() > 1 {
        return Err(CliError::usage("a recording holds one experiment; name one manifest with --record"));
    }
    check_names(&args.manifests, &args.selection.sets)?;
    let interrupted = context::interruptible()?;
    super::clocks::recover(global)?;
    context::each(&args.manifests, &interrupted, |manifest| one(global, args, manifest, &interrupted))
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
    let wanted =
        Wanted { only: only.as_ref(), remeasure: args.selection.remeasure, dev_logs: true, ..Wanted::default() };
    let bench = opened.workspace().plan(experiment, wanted).map_err(bench_error)?;
    context::warn_of_nothing(global, &args.selection, &bench);
    if args.dry_run {
        return super::plan::print(global, &opened, &[bench]);
    }
    let recorder = args.record.as_deref().map(|file| recorder(file, &opened.project)).transpose()?;
    let counts = bench.plan.counts();
    let is_complete = counts.to_do() == 0 && counts.refused == 0;
    if is_complete
        && recorder.is_none()
        && !args.devlog_add
        && !args.fail_on_regression
        && app::is_published(&opened.workspace(), &bench)
    {
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
    let lease = if counts.to_do() > 0 {
        Some(acquire(global, opened.machine.gpu.as_ref(), args.no_wait, interrupted)?)
    } else {
        None
    };
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
    if let Some(recorder) = &recorder {
        let call = call(args, manifest, &opened.project);
        app::record(&workspace, &bench, call, recorder).map_err(CliError::usage)?;
    }
    let sources = Sources { opened: &opened, lease, tape: recorder.as_ref().map(Tape::Record) };
    let exit = carry_out(global, sources, bench, wanted, How::of(args), interrupted)?;
    match recorder.map(Recorder::finish) {
        Some(Err(error)) => Err(CliError::host(format!("the recording is not complete: {error}; results are written"))),
        _ => Ok(exit),
    }
}

/// Starts the recording `file` of a call on `project`.
fn recorder(file: &Path, project: &Project) -> Result<Recorder, CliError> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    Recorder::create(file, Redactions::new(&project.root, home.as_deref())).map_err(CliError::usage)
}

/// What is called for, as a recording says it.
fn call(args: &RunArgs, manifest: &Path, project: &Project) -> Call {
    // A path that leaves the project is refused by whoever notes its file.
    let relative =
        manifest.canonicalize().ok().and_then(|path| Some(path.strip_prefix(&project.root).ok()?.to_owned()));
    Call {
        manifest: relative.unwrap_or_else(|| manifest.to_owned()),
        sets: args.selection.sets.clone(),
        only: args.selection.only.clone(),
        remeasure: args.selection.remeasure,
        devlog_add: args.devlog_add,
        fail_fast: args.fail_fast,
    }
}

/// Waits for (or refuses without) the lease that measuring on `gpu` needs, or on the CPU.
pub fn acquire(
    global: &Global,
    gpu: Option<&GpuRequest>,
    no_wait: bool,
    interrupted: &AtomicBool,
) -> Result<Lease, CliError> {
    let scope = lease::scope(gpu.map(|gpu| gpu.uuid.as_str())).map_err(CliError::usage)?;
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
    let lease = lease::acquire(&lease::folder(), scope, waiting).map_err(|error| match error {
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

/// Exit code of a failed run.
pub fn failure_exit(kind: FailureKind) -> Exit {
    match kind {
        FailureKind::WrongOutput | FailureKind::CannotTell | FailureKind::Sanitizer => Exit::WrongOutput,
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
        BenchError::Calibration(error) => CliError::host(error),
    }
}
