//! `mlarun calibrate`: gathers processes of identical code and of code that is slower by a known part, and says what verdicts
//! of this host are worth.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::SignedDuration;

use super::args::{CalibrateArgs, Global};
use super::context::{self, Opened};
use super::exit::{CliError, Exit};
use super::output;
use super::progress::Progress;
use super::run::acquire;
use crate::app::{Control, End, Gather, SittingError, Told};
use crate::execute::TrialsError;
use crate::model::calibration::FalseVerdicts;
use crate::report::calibration::{self, Calibration, Identical, percent};
use crate::report::numbers::{ABSENT, counted, fixed, microseconds};
use crate::store::calibrations::{self, Sitting};

/// Turns between two lines of progress.
const TURNS: u32 = 5;

pub fn run(global: &Global, args: &CalibrateArgs) -> Result<Exit, CliError> {
    if let Some(files) = args.judge.as_ref().filter(|files| !files.is_empty()) {
        let sittings: Result<Vec<Vec<Sitting>>, _> = files.iter().map(|file| calibrations::read(file)).collect();
        let sittings = sittings.map_err(CliError::usage)?.concat();
        export(args, &sittings)?;
        print(global, &calibration::judge(&sittings, args.comparisons).map_err(CliError::usage)?)?;
        return Ok(Exit::Success);
    }
    let opened = Opened::of(global, context::project_here(global)?, context::host_kind(global))?;
    let exit = if args.judge.is_some() { Exit::Success } else { gather(global, args, &opened)? };
    let workspace = opened.workspace();
    let clocks = workspace.calibration_clocks().map_err(sitting_error)?;
    let folder = workspace.sittings_folder(&clocks);
    let sittings = calibrations::sittings(&folder).map_err(CliError::host)?;
    export(args, &sittings)?;
    if !args.gather && exit == Exit::Success {
        let judged = calibration::judge(&sittings, args.comparisons).map_err(CliError::usage)?;
        calibrations::save_judged(&folder, &judged.host()).map_err(CliError::host)?;
        print(global, &judged)?;
    }
    Ok(exit)
}

/// One sitting.
fn gather(global: &Global, args: &CalibrateArgs, opened: &Opened) -> Result<Exit, CliError> {
    let budget = args.budget.as_deref().map(budget).transpose()?;
    let interrupted = context::interruptible()?;
    let _lease = acquire(global, opened.machine.gpu.as_ref(), args.no_wait, &interrupted)?;
    let started = Instant::now();
    let mut progress = Progress::new(global, 0.0);
    let mut control = Control {
        observer: &mut progress,
        interrupted: Arc::clone(&interrupted),
        fail_fast: true,
        worker: context::worker()?,
        tape: None,
    };
    let gather = Gather { processes: args.processes, slowed: !args.identical, budget, started };
    let mut tell = |told| {
        if global.quiet == 0
            && let Some(line) = line(&told, started.elapsed())
        {
            output::note(&line);
        }
    };
    let sat = opened.workspace().gather(&gather, &mut control, &mut tell).map_err(sitting_error)?;
    if global.quiet < 2
        && let Some(file) = &sat.file
    {
        let end = match sat.end {
            End::Complete => "",
            End::OutOfTime => "; the time is spent, and the same command goes on from here",
            End::Interrupted => "; interrupted, and the same command goes on from here",
        };
        output::note(&format!("gathered {} in {}{end}", counted(sat.processes as usize, "process"), file.display()));
    }
    Ok(if sat.end == End::Interrupted { Exit::Interrupted } else { Exit::Success })
}

fn line(told: &Told, elapsed: Duration) -> Option<String> {
    let seconds = elapsed.as_secs_f64();
    match told {
        Told::Kernels(kernels) => {
            let list: Vec<String> =
                kernels.iter().map(|kernel| format!("{} ({})", kernel.name, kernel.shape)).collect();
            Some(format!("kernels, after {seconds:.1} s: {}", list.join("; ")))
        }
        Told::Turn { done, of, processes } if done % TURNS == 0 || done == of => {
            Some(format!("turn {done} of {of}: {} in {seconds:.0} s", counted(*processes as usize, "process")))
        }
        Told::Turn { .. } => None,
        Told::Failed { kernel, reason } => Some(format!("warning: {kernel}: a process gave no time: {reason}")),
    }
}

/// A time such as `6m` or `1h 30m`.
pub fn budget(text: &str) -> Result<Duration, CliError> {
    let parsed = text.parse::<SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok());
    parsed.ok_or_else(|| CliError::usage(format!("--budget {text}: give a time such as 90s, 6m or 1h")))
}

/// Writes all processes to one file, where that was asked for.
fn export(args: &CalibrateArgs, sittings: &[Sitting]) -> Result<(), CliError> {
    args.export.as_deref().map_or(Ok(()), |file| calibrations::export(file, sittings)).map_err(CliError::host)
}

fn print(global: &Global, judged: &Calibration) -> Result<(), CliError> {
    if global.json { output::json(judged) } else { output::text(&text(judged)) }
}

/// Tables for people.
fn text(judged: &Calibration) -> String {
    let device = &judged.device.name;
    let driver = judged.driver.as_ref().map(|driver| format!(", driver {driver}")).unwrap_or_default();
    let processes: usize = judged.kernels.iter().map(|kernel| kernel.processes).sum();
    let (threshold, usual) = (judged.rule.threshold, judged.usual_threshold);
    let rule = match threshold < usual {
        true => {
            format!("changes from {} on, lowered from {}, as this host bears it", percent(threshold), percent(usual))
        }
        false => format!("changes from {} on", percent(threshold)),
    };
    format!(
        "{device}{driver}, clocks {}: {} of identical code, {}\nrule: {rule}\n\n{}\n{}\n{}\n",
        judged.clocks,
        counted(processes, "process"),
        counted(judged.sittings, "sitting"),
        identical(judged),
        changes(judged),
        calibration::sentence(&judged.host()),
    )
}

/// Identical code, kernel by kernel.
fn identical(judged: &Calibration) -> String {
    let mut table = output::table(&[
        "identical code",
        "timing",
        "processes",
        "median us",
        "spread",
        "false, disjoint",
        "false, resampled",
        "at most",
        "same",
        "smallest change",
    ]);
    let share = |part: u64, of: u64| if of == 0 { ABSENT.to_owned() } else { percent(part as f64 / of as f64) };
    let events = |identical: &Identical| {
        let FalseVerdicts { events, comparisons, .. } = identical.false_verdicts;
        format!("{events} of {comparisons}")
    };
    let rest = |disjoint: &Identical, resampled: Option<&Identical>| {
        let tally = resampled.map(|resampled| resampled.tally).unwrap_or_default();
        let at_most = resampled.and_then(|resampled| resampled.false_verdicts.at_most);
        [
            events(disjoint),
            resampled.map_or_else(|| ABSENT.to_owned(), events),
            at_most.map_or_else(|| ABSENT.to_owned(), percent),
            share(tally.same, tally.comparisons),
        ]
    };
    for kernel in &judged.kernels {
        let disturbed =
            if kernel.disturbed == 0 { String::new() } else { format!(" ({} disturbed)", kernel.disturbed) };
        let first = [
            kernel.name.clone(),
            kernel.timing.to_string(),
            format!("{}{disturbed}", kernel.processes),
            microseconds(kernel.median_ns),
            optional(kernel.spread),
        ];
        let last = [optional(kernel.smallest_change)];
        table.add_row(first.into_iter().chain(rest(&kernel.disjoint, kernel.resampled.as_ref())).chain(last));
    }
    let first = ["all together", "", "", "", ""].map(str::to_owned);
    let last = [optional(judged.host().smallest_change)];
    table.add_row(first.into_iter().chain(rest(&judged.disjoint, Some(&judged.resampled))).chain(last));
    output::table_text(&table)
}

/// Code that is slower by a known part.
fn changes(judged: &Calibration) -> String {
    let mut table = output::table(&[
        "slower by",
        "kernel",
        "how",
        "seen",
        "called SLOWER",
        "at least",
        "FASTER",
        "SAME",
        "rounds",
        "disjoint",
    ]);
    for (kernel, change) in judged.kernels.iter().flat_map(|kernel| kernel.changes.iter().map(move |c| (kernel, c))) {
        let disjoint = match change.disjoint.comparisons {
            0 => ABSENT.to_owned(),
            comparisons => format!("{} of {comparisons}", change.disjoint.slower),
        };
        let share = |part: u64| percent(part as f64 / change.tally.comparisons as f64);
        table.add_row([
            percent(change.slower_by),
            kernel.name.clone(),
            change.how.name().to_owned(),
            optional(change.seen),
            percent(change.found),
            percent(change.at_least),
            share(change.tally.faster),
            share(change.tally.same),
            fixed(change.tally.mean_rounds(), 1),
            disjoint,
        ]);
    }
    output::table_text(&table)
}

fn optional(fraction: Option<f64>) -> String {
    fraction.map_or_else(|| ABSENT.to_owned(), percent)
}

/// Exit code of a calibration that failed.
pub fn sitting_error(error: SittingError) -> CliError {
    match error {
        SittingError::Interrupted => CliError::Message(Exit::Interrupted, "interrupted".to_owned()),
        SittingError::Package(_) | SittingError::Instantiate(_) => CliError::usage(error),
        SittingError::Trials { error: ref trials, .. } if !matches!(**trials, TrialsError::Failed(_)) => {
            CliError::host(error)
        }
        SittingError::Failing { .. } | SittingError::Untimed { .. } | SittingError::Trials { .. } => {
            CliError::Message(Exit::RunsFailed, error.to_string())
        }
        SittingError::Clocks(_) | SittingError::Calibrations(_) => CliError::host(error),
    }
}
