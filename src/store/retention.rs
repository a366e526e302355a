//! Which records garbage collection removes. Pure.

use std::collections::BTreeSet;
use std::path::PathBuf;

use jiff::Timestamp;

use super::Entry;
use crate::model::Key;

/// What to keep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// Records taken before this are removed.
    pub taken_before: Option<Timestamp>,
    /// The oldest records are removed until all together have at most this many bytes.
    pub max_bytes: Option<u64>,
    /// Records of these keys are never removed.
    pub pinned: BTreeSet<Key>,
}

/// What was removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Collected {
    pub removed: Vec<PathBuf>,
    pub bytes: u64,
}

/// The entries that `policy` gives up, oldest first.
pub fn doomed(mut entries: Vec<Entry>, policy: &Policy) -> Vec<Entry> {
    entries.sort_by(|a, b| (a.taken_at, &a.path).cmp(&(b.taken_at, &b.path)));
    let mut bytes: u64 = entries.iter().map(|entry| entry.stamp.bytes).sum();
    entries.retain(|entry| {
        let aged = policy.taken_before.is_some_and(|limit| entry.taken_at < limit);
        let crowded = policy.max_bytes.is_some_and(|limit| bytes > limit);
        let gone = (aged || crowded) && !policy.pinned.contains(&entry.key);
        bytes -= if gone { entry.stamp.bytes } else { 0 };
        gone
    });
    entries
}
