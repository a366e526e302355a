//! Dev logs, `docs/kernels/<kernel>.md`: Performance blocks rendered from compact records, put into text that belongs to
//! people. Pure functions on text; reading and writing files is the caller's.
//!
//! A block stands between two HTML comments, its borders, and belongs to exactly one version, shape and device name.
//! Everything outside the borders survives byte for byte. Issues and Insights are written once, below a new block, and
//! then belong to people.

mod block;
mod record;
mod scan;
mod update;

#[cfg(test)]
mod tests;

pub use block::{About, Block};
pub(super) use record::record;
pub use record::{CompactRecord, Identity, Links, Previous, RecordError};
pub use scan::DevlogError;
pub use update::{Adding, Stale, StaleReason, Updated, check, update};

/// File name of a kernel's log: its name in kebab case, e.g. `mla-var6-plus.md`.
pub fn file_name(kernel: &str) -> String {
    format!("{}.md", kebab(kernel))
}

/// A log without any section, for a kernel that has none.
pub fn new_log(kernel: &str) -> String {
    format!("# {}\n", super::numbers::cell(kernel))
}

/// Name of a kernel in kebab case, as files and folders are called.
pub fn kebab(kernel: &str) -> String {
    kernel.replace('_', "-")
}
