//! Recordings: all that one call of mlarun met outside itself, in one file, so that the call can be repeated anywhere.
//!
//! A recording holds the project's files, the host, what compilers made of stages, and every request to a worker with its
//! answer; no rendered text. [`Recorder`] stands between a session and its outside and writes; [`Recording`] reads, and
//! is that outside afterwards. An answer is found by its request and not by its place: names of modules stand for paths,
//! and no key of ours stands in the file, so that a later mlarun with other keys finds it too. Names of host and user
//! are left out.
//!
//! The file is gzip over JSON lines, one [`Entry`] each; [`Header`] is the first. What is read may come from a stranger:
//! it is data, sizes are bounded, and a path that leaves its folder is refused.

mod clock;
mod entry;
mod names;
mod reader;
mod recorder;
mod redact;
mod replay;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use crate::model::protocol::PROTOCOL;
use crate::model::record::Format;

pub use entry::{Answered, Area, Build, Call, Entry, Header, HostEntry, Read, SessionEntry, StoredFile};
pub use reader::Recording;
pub(crate) use reader::read_text;
pub use recorder::Recorder;
pub use redact::Redactions;
pub use replay::{RecordedBackend, Replayer};

/// The format that this program writes; it reads every older one.
pub const RECORDING_FORMAT: Format = Format { major: 1, minor: 1 };

/// A recording cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error("{}: exists; name a new file, or remove this one", .0.display())]
    Exists(PathBuf),
    #[error("{}: is no recording of mlarun: {reason}", path.display())]
    Foreign { path: PathBuf, reason: String },
    #[error("{}: line {line} is damaged: {reason}", path.display())]
    Damaged { path: PathBuf, line: usize, reason: String },
    #[error(
        "{}: was written in format {}.{} and speaks version {protocol} of the workers' protocol, of which this program \
         reads {}.x and {PROTOCOL}; use a newer mlarun",
        path.display(), found.major, found.minor, RECORDING_FORMAT.major
    )]
    Newer { path: PathBuf, found: Format, protocol: u32 },
    #[error("{}: holds more than {limit} bytes of text, which no recording does", path.display())]
    TooLarge { path: PathBuf, limit: u64 },
    #[error("{}: lacks {what}; it was cut short before anything was measured", path.display())]
    Incomplete { path: PathBuf, what: &'static str },
    #[error("the file {file:?} of a recording does not stay inside its folder; the recording cannot be trusted")]
    Outside { file: PathBuf },
    #[error("{}: {error}; only files of text can be recorded", file.display())]
    NoText { file: PathBuf, error: std::string::FromUtf8Error },
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> RecordingError {
    let path = path.to_owned();
    move |error| RecordingError::Io { path, error }
}
