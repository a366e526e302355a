//! Nsight Compute's output, read: the pages that `ncu --csv` prints, what it says while it profiles, and whether that is a
//! result at all. Starts nothing.
//!
//! Its exit code says little: it is 0 when no kernel matched, when a metric does not exist, and at times when reading counters
//! is not permitted. [`judge`] looks at what was said and at what the report holds.

mod counters;
mod details;
mod identity;
mod log;
mod number;
mod outcome;
mod raw;
pub mod run;
mod source;
mod table;

pub use counters::counters;
pub use details::{JoinError, join, read_details};
pub use log::{Log, Profiled, read_log};
pub use outcome::{Asked, NcuFailure, judge};
pub use raw::read_raw;
pub use source::read_source;

/// A page of `ncu --csv` cannot be read. Lines are counted from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("Nsight Compute printed no table (a line that starts with `\"ID\"`)")]
    NoTable,
    #[error(
        "line {line}: Nsight Compute's table has no column `{column}`; print the page with `--csv` and without options \
         that select columns"
    )]
    MissingColumn { line: usize, column: &'static str },
    #[error("line {line}: {what}")]
    Malformed { line: usize, what: String },
    #[error("line {line}: Nsight Compute's output ends in the middle of a row; profile again, with room on the disk")]
    Truncated { line: usize },
}
