//! `mlarun calibrate`: gathers processes of identical code and of code that is slower by a known part, and says what verdicts
//! of this host are worth.

use std::path::Path;
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
use crate::report::numbers::counted;
use crate::store::calibrations::{self, Sitting};

/// Turns between two lines of progress.
const TURNS: u32 = 5;

pub fn run(global: &Global, args: &CalibrateArgs) -> Result<Exit, CliError> {
    if let Some(files) = args.judge.as_ref().filter(|files| !files.is_empty()) {
        let sittings: Result<Vec<Vec<Sitting>>, _> = files.iter().map(|file| calibrations::read(file)).collect();
        return judge(global, args, &sittings.map_err(CliError::usage)?.concat());
    }
    let opened = Opened::of(global, context::project_here(global)?, context::host_kind(global))?;
    let exit = if args.judge.is_some() { Exit::Success } else { gather(global, args, &opened)? };
    let workspace = opened.workspace();
    let clocks = workspace.calibration_clocks().map_err(sitting_error)?;
    let sittings = calibrations::sittings(&workspace.sittings_folder(&clocks)).map_err(CliError::host)?;
    Ok(exit.and(judge(global, args, &sittings)?))
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
fn budget(text: &str) -> Result<Duration, CliError> {
    let parsed = text.parse::<SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok());
    parsed.ok_or_else(|| CliError::usage(format!("--budget {text}: give a time such as 90s, 6m or 1h")))
}

fn judge(_global: &Global, args: &CalibrateArgs, sittings: &[Sitting]) -> Result<Exit, CliError> {
    if let Some(file) = &args.export {
        export(file, sittings)?;
    }
    if args.gather {
        return Ok(Exit::Success);
    }
    Ok(Exit::Success)
}

fn export(file: &Path, sittings: &[Sitting]) -> Result<(), CliError> {
    calibrations::export(file, sittings).map_err(CliError::host)
}

fn sitting_error(error: SittingError) -> CliError {
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
