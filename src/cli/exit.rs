//! Exit codes: the one place where errors are weighed.

use std::process::ExitCode;

use crate::diagnostic::Diagnostic;

/// How a command ended, from bad to worse in the order in which one hides the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    Success,
    /// A checked file is stale.
    Stale,
    /// A regression was found and the caller asked to fail on it.
    Regression,
    /// Some runs failed; the rest is kept and reported.
    RunsFailed,
    /// A kernel's output is wrong, or a sanitizer found a fault in it.
    WrongOutput,
    /// The host lacks something.
    HostLacks,
    /// Bad command line or manifest.
    Usage,
    Internal,
    Interrupted,
}

impl Exit {
    /// The process's exit code.
    pub const fn code(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::Internal => 1,
            Exit::Usage => 2,
            Exit::HostLacks => 3,
            Exit::RunsFailed => 4,
            Exit::WrongOutput => 5,
            Exit::Regression => 6,
            Exit::Stale => 7,
            Exit::Interrupted => 130,
        }
    }

    /// The worse of two.
    pub fn and(self, other: Exit) -> Exit {
        self.max(other)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

/// A command that could not do what it was asked for.
#[derive(Debug)]
pub enum CliError {
    /// Mistakes in files, with the places.
    Diagnostics(Exit, Vec<Diagnostic>),
    /// Anything else: one sentence, or a few.
    Message(Exit, String),
}

impl CliError {
    pub fn usage(message: impl std::fmt::Display) -> CliError {
        CliError::Message(Exit::Usage, message.to_string())
    }

    pub fn host(message: impl std::fmt::Display) -> CliError {
        CliError::Message(Exit::HostLacks, message.to_string())
    }

    pub fn internal(message: impl std::fmt::Display) -> CliError {
        CliError::Message(Exit::Internal, message.to_string())
    }

    /// How the command ends with it.
    pub const fn exit(&self) -> Exit {
        match self {
            CliError::Diagnostics(exit, _) | CliError::Message(exit, _) => *exit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_applies_wins() {
        let order = [
            Exit::Interrupted,
            Exit::Internal,
            Exit::Usage,
            Exit::HostLacks,
            Exit::WrongOutput,
            Exit::RunsFailed,
            Exit::Regression,
            Exit::Stale,
            Exit::Success,
        ];
        let codes: Vec<u8> = order.iter().map(|exit| exit.code()).collect();
        assert_eq!(codes, [130, 1, 2, 3, 5, 4, 6, 7, 0]);
        for pair in order.windows(2) {
            assert_eq!(pair[0].and(pair[1]), pair[0]);
            assert_eq!(pair[1].and(pair[0]), pair[0]);
        }
    }
}
