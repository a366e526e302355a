//! Profilers around workers: the programs that read what they left, and their files.

use std::fs;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::{ExecuteError, ProcessExecutor};
use crate::model::Key;
use crate::model::ncu::ReportFile;
use crate::model::protocol::{Failure, FailureKind};

/// Waits for the end of `child`, a run of `program` in a process group of its own, which is to do `what`.
///
/// # Errors
/// The user asks to stop, or it takes longer than a worker may be silent: then it is killed, with everything that it started.
pub(super) fn finish(
    workers: &ProcessExecutor,
    program: &Path,
    child: &mut Child,
    what: &str,
) -> Result<ExitStatus, ExecuteError> {
    let ended = wait(workers, program, child, what);
    if ended.is_err() {
        // It may have ended in the meantime; either way it must not stay a zombie.
        let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
        let _ = child.wait();
    }
    ended
}

fn wait(workers: &ProcessExecutor, program: &Path, child: &mut Child, what: &str) -> Result<ExitStatus, ExecuteError> {
    let started = Instant::now();
    loop {
        if workers.is_interrupted() {
            return Err(ExecuteError::Interrupted);
        }
        if let Some(status) = child.try_wait().map_err(|error| internal(program, &error))? {
            return Ok(status);
        }
        if started.elapsed() > workers.silence_limit {
            let limit = workers.silence_limit.as_secs();
            let message = format!("{} did not {what} within {limit} s", program.display());
            return Err(Failure { kind: FailureKind::TimedOut, stage: None, message }.into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The system refuses something about `path`.
pub(super) fn internal(path: &Path, error: &std::io::Error) -> Failure {
    Failure { kind: FailureKind::Internal, stage: None, message: format!("{}: {error}", path.display()) }
}

/// Removes `file`, if it is there: what an earlier run left must not be taken for this one's.
pub(super) fn remove(file: &Path) -> Result<(), Failure> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(internal(file, &error)),
        _ => Ok(()),
    }
}

/// A file that a profiler left, as a record names it.
pub(super) fn described(report: &Path) -> Result<ReportFile, Failure> {
    let bytes = fs::read(report).map_err(|error| internal(report, &error))?;
    Ok(ReportFile {
        name: report.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        sha256: Key::of_bytes(&bytes),
        bytes: bytes.len() as u64,
    })
}
