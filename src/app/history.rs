//! Which records a history is made of: found by the index, read from their files and checked.

use jiff::Timestamp;

use super::Ledger;
use crate::diagnostic::suggestion;
use crate::history::Metric;
use crate::model::record::Record;
use crate::model::{Language, Version};
use crate::store::{Entry, StoreError};

/// What is followed.
#[derive(Debug, Clone)]
pub struct Followed<'a> {
    pub kernel: &'a str,
    /// `None` for every version.
    pub version: Option<Version>,
    pub language: Option<Language>,
    /// Parameters that a shape has these values of, as texts.
    pub parameters: &'a [(String, String)],
    pub metric: &'a Metric,
    pub since: Option<Timestamp>,
}

/// There is no such history.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Nothing(String),
}

/// The records that `followed` means.
///
/// # Errors
/// The store fails, or nothing is recorded of what is asked for: which part of it leaves nothing is said.
pub fn history(ledger: &Ledger, followed: &Followed<'_>) -> Result<Vec<Record>, HistoryError> {
    let entries = select(ledger.store().ls()?, followed)?;
    let mut records = ledger.store().read(&entries)?;
    // What was measured of another commit or of a pinned build stands beside the working tree's in its session; it is no part of
    // what became of that.
    records.retain(|record| record.labels.origin.is_none());
    Ok(records)
}

/// The rows that `followed` means, narrowed step by step, so that an empty step can be named.
fn select(entries: Vec<Entry>, followed: &Followed<'_>) -> Result<Vec<Entry>, HistoryError> {
    let Followed { kernel, version, language, parameters, metric, since } = followed;
    let kernels: Vec<String> = entries.iter().map(|entry| entry.id.kernel.clone()).collect();
    let entries = keep(
        entries,
        |entry| entry.id.kernel == *kernel,
        || {
            let near = suggestion(kernel, distinct(kernels).iter().map(String::as_str));
            let near = near.map(|near| format!("; {near}")).unwrap_or_default();
            format!("nothing is recorded of a kernel `{kernel}`{near}")
        },
    )?;
    let known = distinct(entries.iter().map(|entry| format!("{} ({})", entry.id.version, entry.id.language)));
    let is_asked = |entry: &Entry| {
        version.is_none_or(|version| entry.id.version == version)
            && language.is_none_or(|language| entry.id.language == language)
    };
    let entries = keep(entries, is_asked, || {
        format!("of {kernel}, only {} is recorded; name one of these versions and languages", known.join(", "))
    })?;
    let mut entries = entries;
    for (name, value) in *parameters {
        let values = entries.iter().filter_map(|entry| Some(entry.shape.get(name)?.to_string()));
        let known = distinct(values);
        let is_asked = |entry: &Entry| entry.shape.get(name).is_some_and(|seen| seen.to_string() == *value);
        entries = keep(entries, is_asked, || match known.as_slice() {
            [] => format!("no recorded shape of {kernel} has a parameter `{name}`"),
            known => format!("no recorded shape of {kernel} has {name}={value}; there are {}", known.join(", ")),
        })?;
    }
    let entries = keep(
        entries,
        |entry| entry.kind == metric.kind(),
        || {
            let mode = metric.kind().name();
            format!("{metric} is a number of mode {mode}, in which nothing of {kernel} is recorded")
        },
    )?;
    let newest = entries.iter().map(|entry| entry.taken_at).max().unwrap_or_default();
    keep(
        entries,
        |entry| since.is_none_or(|since| entry.taken_at >= since),
        || format!("nothing of {kernel} is recorded since then; the newest was taken at {newest}"),
    )
}

fn keep(
    mut entries: Vec<Entry>,
    holds: impl Fn(&Entry) -> bool,
    otherwise: impl FnOnce() -> String,
) -> Result<Vec<Entry>, HistoryError> {
    entries.retain(|entry| holds(entry));
    if entries.is_empty() { Err(HistoryError::Nothing(otherwise())) } else { Ok(entries) }
}

fn distinct(texts: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut texts: Vec<String> = texts.into_iter().collect();
    texts.sort();
    texts.dedup();
    texts
}
