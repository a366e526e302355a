//! `mlarun nightly`: one night, its report, and whoever is to be told of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use jiff::Timestamp;

use super::args::{Global, NightlyArgs};
use super::carry_out::{publish_error, say, warn};
use super::context::{self, Opened};
use super::exit::{CliError, Exit};
use super::output;
use super::pin::pin_error;
use super::progress::Progress;
use super::run::{acquire, bench_error};
use crate::app::nightly::{Call, Due, HOOK_LIMIT, KeepError, Kept, NightError, Nightly, call_hook, plan_all, tell};
use crate::app::{self, CompareError, Project, pin};
use crate::failpoint;
use crate::manifest::Experiment;
use crate::nightly::{Outcome, Report, State, finish};
use crate::plan::Wanted;

/// A night, with the operator's command for liveness told of its beginning and its end, whatever that is.
pub fn run(global: &Global, args: &NightlyArgs) -> Result<Exit, CliError> {
    let mut night = String::new();
    let ended = whole(global, args, &mut night);
    let exit = ended.as_ref().map_or_else(CliError::exit, |exit| *exit);
    let event = if ended.is_ok() { "ended" } else { "failed" };
    alive(args, event, &night, Some(exit));
    ended
}

/// Tells the operator's command that nights happen. Where it fails that is said: it must not end a measurement.
fn alive(args: &NightlyArgs, event: &str, night: &str, exit: Option<Exit>) {
    let Some(command) = &args.alive_hook else { return };
    let exit = exit.map(|exit| ("MLARUN_EXIT", exit.code().to_string()));
    let variables: Vec<(&str, String)> =
        [("MLARUN_EVENT", event.to_owned()), ("MLARUN_NIGHT", night.to_owned())].into_iter().chain(exit).collect();
    if let Err(error) = call_hook(command, &variables, b"", HOOK_LIMIT) {
        output::note(&format!("warning: {error}"));
    }
}

fn whole(global: &Global, args: &NightlyArgs, night: &mut String) -> Result<Exit, CliError> {
    let interrupted = context::interruptible()?;
    super::clocks::recover(global)?;
    let (project, experiments) = experiments(global, args)?;
    let pin = pin::pin(&project, &args.pin).map_err(pin_error)?;
    let pinned = pin.open(&project).map_err(pin_error)?;
    let opened = Opened::of(global, project, experiments[0].device)?;
    let kept = Kept::open(&opened.project).map_err(keep_error)?;
    let lease = acquire(global, opened.machine.gpu.as_ref(), args.no_wait, &interrupted)?;
    let only = context::filter(args.only.as_deref())?;
    let wanted = Wanted { only: only.as_ref(), ..Wanted::default() };
    let benches = plan_all(&opened.workspace(), experiments.clone(), wanted).map_err(bench_error)?;
    let nightly = Nightly { workspace: opened.workspace(), pin: &pin, pinned: &pinned, benches: &benches };
    let mut state = kept.load().map_err(keep_error)?;
    let due = nightly.due(&state);
    if due.offers.is_empty() {
        let notes = match (due.notes.is_empty(), &args.only) {
            (false, _) => due.notes.join("; "),
            (true, Some(only)) => format!("`--only {only}` holds for no run in event mode"),
            (true, None) => "no experiment lists a run in event mode".to_owned(),
        };
        return Err(CliError::usage(format!("there is nothing to measure against the pin `{}`: {notes}", pin.name)));
    }
    let begun = nightly.begin(&mut state, &due, args.budget, Timestamp::now());
    *night = state.tonight.as_ref().map(|tonight| tonight.id.clone()).unwrap_or_default();
    alive(args, "begun", night, None);
    let mut progress = Progress::new(global, 0.0);
    let (observer, worker) = (&mut progress, context::worker()?);
    let call = Call { kept: &kept, observer, interrupted: Arc::clone(&interrupted), worker };
    let ran = nightly.run(&mut state, &due, begun, call);
    drop(progress);
    drop(lease);
    warn(&opened);
    let is_interrupted = match ran {
        Ok(()) => interrupted.load(Ordering::Relaxed),
        Err(NightError::Compare(CompareError::Interrupted)) => true,
        Err(error) => return Err(night_error(error)),
    };
    let exit = close(global, args, (&nightly, &due, &kept), &mut state, is_interrupted)?;
    if args.devlog && !is_interrupted {
        publish(global, &opened, experiments)?;
    }
    Ok(exit)
}

/// What the manifests mean, all of one project and for one kind of device.
fn experiments(global: &Global, args: &NightlyArgs) -> Result<(Project, Vec<Experiment>), CliError> {
    let manifests = &args.manifests;
    if let Some(missing) = manifests.iter().find(|manifest| !manifest.exists()) {
        return Err(CliError::usage(format!("{}: there is no such manifest; nothing was run", missing.display())));
    }
    let project = context::project(global, &manifests[0])?;
    let mut experiments: Vec<Experiment> = Vec::new();
    for manifest in manifests {
        let apart = |what: &str| {
            let (one, other) = (manifest.display(), manifests[0].display());
            CliError::usage(format!("{one}: {what} than {other}; give each a night of its own"))
        };
        if context::project(global, manifest)?.root != project.root {
            return Err(apart("lies in another project"));
        }
        let experiment = context::experiment(global, manifest, &args.sets, &project)?;
        if experiments.first().is_some_and(|first| first.device != experiment.device) {
            return Err(apart("runs on another kind of device"));
        }
        experiments.push(experiment);
    }
    Ok((project, experiments))
}

/// Writes the report, tells the operator of new alarms, and ends the night unless it was interrupted.
fn close(
    global: &Global,
    args: &NightlyArgs,
    (nightly, due, kept): (&Nightly<'_>, &Due, &Kept),
    state: &mut State,
    is_interrupted: bool,
) -> Result<Exit, CliError> {
    let report = Report::of(state, &due.offers, &nightly.situation(), Timestamp::now());
    let report = report.ok_or_else(|| CliError::internal("the night ended before it began"))?;
    let folder = args.report.clone().unwrap_or_else(|| kept.folder().join(&report.night));
    nightly.write(&report, &folder).map_err(publish_error)?;
    failpoint::here("nightly.reported");
    let path = folder.join("report.md");
    let told = tell(state, kept, args.alarm_hook.as_deref(), &path).map_err(keep_error)?;
    if let Some(error) = &told {
        output::note(&format!("mlarun: {error}; the next night tries again"));
    }
    if !is_interrupted {
        finish(state);
        kept.keep(state).map_err(keep_error)?;
    }
    if global.json {
        output::json(&report)?;
    } else {
        say(global, &format!("night {}: {}", report.night, report.summary()));
        say(global, &format!("report: {}", path.display()));
        if is_interrupted {
            say(global, "everything finished is kept; the same command goes on from here");
        }
    }
    let hook = if told.is_some() { Exit::RunsFailed } else { Exit::Success };
    Ok(exit(args, &report, is_interrupted).and(hook))
}

fn exit(args: &NightlyArgs, report: &Report, is_interrupted: bool) -> Exit {
    let of_session = |outcome: &Outcome| match outcome {
        Outcome::Failed { is_wrong: true, .. } => Exit::WrongOutput,
        Outcome::Failed { is_wrong: false, .. } => Exit::RunsFailed,
        Outcome::Judged { .. } | Outcome::SameCode => Exit::Success,
    };
    let last = report.rows.iter().filter_map(|row| row.sessions.last());
    let failed = last.map(|session| of_session(&session.outcome)).fold(Exit::Success, Exit::and);
    let regression = args.fail_on_regression && report.regressions > 0;
    let stopped = if is_interrupted { Exit::Interrupted } else { Exit::Success };
    failed.and(if regression { Exit::Regression } else { Exit::Success }).and(stopped)
}

/// Brings reports and dev logs of the experiments up to date with what is recorded.
fn publish(global: &Global, opened: &Opened, experiments: Vec<Experiment>) -> Result<(), CliError> {
    let workspace = opened.workspace();
    for experiment in experiments {
        let bench = workspace.plan(experiment, Wanted { dev_logs: true, ..Wanted::default() }).map_err(bench_error)?;
        let published = app::publish_experiment(&workspace, &bench, &[], |_, _| false, false).map_err(publish_error)?;
        for devlog in &published.devlogs {
            say(global, &format!("dev log: {}", devlog.display()));
        }
    }
    Ok(())
}

fn keep_error(error: KeepError) -> CliError {
    CliError::host(error)
}

fn night_error(error: NightError) -> CliError {
    match error {
        NightError::Keep(error) => keep_error(error),
        NightError::Compare(CompareError::Bench(error)) => bench_error(error),
        NightError::Compare(error) => CliError::host(error),
    }
}
