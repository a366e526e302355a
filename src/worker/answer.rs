//! The worker's answer: JSON lines on what was the standard output when the process started. Whatever kernels print
//! goes to the standard error from then on and cannot damage a line.

use std::fs::File;
use std::io::Write as _;

use crate::model::protocol::{Failure, FailureKind, Line, Phase};

/// Where lines go.
pub struct Answer {
    lines: File,
}

impl Answer {
    /// Takes the standard output for itself and puts the standard error in its place.
    ///
    /// # Errors
    /// The system refuses another descriptor.
    pub fn take_stdout() -> std::io::Result<Answer> {
        let lines = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
        rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
        Ok(Answer { lines: File::from(lines) })
    }

    /// Writes one line, at once and whole.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub fn line(&mut self, line: &Line) -> Result<(), Failure> {
        let failed = |message: String| Failure { kind: FailureKind::Internal, stage: None, message };
        let mut text = serde_json::to_string(line).map_err(|error| failed(format!("a line has no JSON: {error}")))?;
        text.push('\n');
        self.lines.write_all(text.as_bytes()).map_err(|error| failed(format!("nobody reads the answer: {error}")))
    }

    /// Says what comes next, for whom it may concern after a crash.
    ///
    /// # Errors
    /// As [`Answer::line`].
    pub fn phase(&mut self, phase: Phase, stage: Option<&str>) -> Result<(), Failure> {
        self.line(&Line::Phase { phase, stage: stage.map(str::to_owned) })
    }
}
