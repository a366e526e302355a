//! Records under `out/store/`, the source of truth of everything measured. Holds no artifacts, renders nothing.
//!
//! ```text
//! out/store/format.json                                        version of the format
//! out/store/records/<kind>/<ab>/<key>-<taken at>-<session>-<round>.json
//! out/store/quarantine/                                        what did not check out, each with its reason beside it
//! out/index.sqlite                                             rebuilt from the files whenever they differ
//! ```
//!
//! Files are written once, under a temporary name, synced, renamed; none is changed or replaced afterwards. The index
//! only saves reading them: on opening, a walk compares every file's path, size and time of change with its row.
//! Several programs may use one store at the same time.

pub mod calibrations;
pub(crate) mod envelope;
mod facts;
mod files;
mod index;
mod retention;
#[cfg(test)]
mod tests;
pub mod tuning;

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::atomic::{self, Durability};
use crate::failpoint;
use crate::model::Key;
use crate::model::record::{FORMAT, Format, Record, RecordKind};

pub use envelope::Fault;
pub use facts::{Facts, Sets, Slot};
pub(crate) use files::{RECORD, file_name};
pub use index::Entry;
pub use retention::{Collected, Policy};

use files::{Files, Found};
use index::Index;

/// The store cannot be used, or a file of it cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{}: results cannot be written there: {error}; make the folder writable, or name another one with --out", path.display())]
    Unwritable { path: PathBuf, error: std::io::Error },
    #[error(
        "{}: written in format {}.{} by a newer mlarun, this one knows {}.{}; use the newer one, or another --out",
        path.display(), found.major, found.minor, FORMAT.major, FORMAT.minor
    )]
    Newer { path: PathBuf, found: Format },
    #[error(
        "{}: the result cannot be kept: {error}; make room, or name another folder with --out: what was finished before is \
         kept, and the same command goes on from there", path.display()
    )]
    Unkept { path: PathBuf, error: std::io::Error },
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error("{}: the index fails: {error}; it may be deleted, as it is rebuilt from the records", path.display())]
    Index { path: PathBuf, error: rusqlite::Error },
    #[error("{}: does not serialise: {error}", path.display())]
    Json { path: PathBuf, error: serde_json::Error },
}

/// A file that did not check out and was moved into the quarantine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SetAside {
    /// Where it was.
    pub from: PathBuf,
    /// Where it is now; its reason stands beside it, in a file of the same name with `.reason` added.
    pub to: PathBuf,
    pub reason: String,
}

/// Result of reading every record again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Records that check out.
    pub sound: usize,
    /// Files that did not.
    pub set_aside: Vec<SetAside>,
}

/// All records below one output folder.
#[derive(Debug)]
pub struct Store {
    files: Files,
    index: Index,
    facts: Facts,
    set_aside: Vec<SetAside>,
}

impl Store {
    /// The store below `out`, made if it is missing; the index is brought up to date.
    ///
    /// Files that do not check out are moved into the quarantine and listed by [`Store::set_aside`].
    ///
    /// # Errors
    /// `out` cannot be written to, or a newer mlarun wrote to it.
    pub fn open(out: &Path) -> Result<Store, StoreError> {
        let files = Files::open(out)?;
        let index = Index::open(&out.join("index.sqlite"))?;
        let mut store = Store { files, index, facts: Facts::default(), set_aside: Vec::new() };
        store.refresh()?;
        Ok(store)
    }

    /// What is known, by key and by slot.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Files moved into the quarantine since the store was opened.
    pub fn set_aside(&self) -> &[SetAside] {
        &self.set_aside
    }

    /// Records of `key`, oldest first, each read from its file and checked. One that does not check out is set aside.
    ///
    /// # Errors
    /// A file cannot be read or set aside, or a newer mlarun wrote it.
    pub fn get(&mut self, kind: RecordKind, key: &Key) -> Result<Vec<Record>, StoreError> {
        let mut records = Vec::new();
        let mut damaged = false;
        for path in self.files.of_key(kind, key)? {
            match self.files.read(&path)? {
                Found::Record(record) => records.push(*record),
                Found::Gone => {}
                Found::Faulty(fault) => {
                    damaged = true;
                    self.set_aside.push(self.files.set_aside(&path, &fault)?);
                }
            }
        }
        if damaged {
            self.refresh()?;
        }
        records.sort_by(|a, b| order(a).cmp(&order(b)));
        Ok(records)
    }

    /// The records of these rows, in their order, each read from its file and checked. One that does not check out is set
    /// aside, and one that has gone is left out.
    ///
    /// # Errors
    /// A file cannot be read or set aside, or a newer mlarun wrote it.
    pub fn read(&mut self, entries: &[Entry]) -> Result<Vec<Record>, StoreError> {
        let mut records = Vec::new();
        let aside = self.set_aside.len();
        for entry in entries {
            let path = self.files.absolute(&entry.path);
            match self.files.read(&path)? {
                Found::Record(record) => records.push(*record),
                Found::Gone => {}
                Found::Faulty(fault) => self.set_aside.push(self.files.set_aside(&path, &fault)?),
            }
        }
        if self.set_aside.len() > aside {
            self.refresh()?;
        }
        Ok(records)
    }

    /// Files of the records of `key`, oldest first, unread.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn files_of(&self, kind: RecordKind, key: &Key) -> Result<Vec<PathBuf>, StoreError> {
        self.files.of_key(kind, key)
    }

    /// Adds `record` in a new file, which is on disk when this returns, and gives its path.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append(&mut self, record: &Record) -> Result<PathBuf, StoreError> {
        let (path, stamp) = self.files.append(record)?;
        failpoint::here("store.kept");
        let entry = Entry::of(record, &self.files.relative(&path), stamp);
        self.facts.add(&entry);
        self.index.defer(entry);
        Ok(path)
    }

    /// Reads every record again; what was set aside when the store was opened is reported too.
    ///
    /// # Errors
    /// A file cannot be read or set aside, or a newer mlarun wrote it.
    pub fn verify(&mut self) -> Result<Report, StoreError> {
        let mut sound = 0;
        for path in self.files.walk()?.into_keys() {
            let path = self.files.absolute(&path);
            match self.files.read(&path)? {
                Found::Record(_) => sound += 1,
                Found::Gone => {}
                Found::Faulty(fault) => self.set_aside.push(self.files.set_aside(&path, &fault)?),
            }
        }
        self.refresh()?;
        Ok(Report { sound, set_aside: self.set_aside.clone() })
    }

    /// Every record's row, by kernel, version, shape, mode and time.
    ///
    /// # Errors
    /// The index fails.
    pub fn ls(&mut self) -> Result<Vec<Entry>, StoreError> {
        self.index.list()
    }

    /// What [`Store::gc`] would remove.
    ///
    /// # Errors
    /// The index fails.
    pub fn would_collect(&mut self, policy: &Policy) -> Result<Collected, StoreError> {
        let doomed = retention::doomed(self.index.list()?, policy);
        Ok(Collected {
            bytes: doomed.iter().map(|entry| entry.stamp.bytes).sum(),
            removed: doomed.iter().map(|entry| self.files.absolute(&entry.path)).collect(),
        })
    }

    /// Removes records by age and size, but none whose key is pinned.
    ///
    /// # Errors
    /// A file cannot be removed, or the index fails.
    pub fn gc(&mut self, policy: &Policy) -> Result<Collected, StoreError> {
        let doomed = retention::doomed(self.index.list()?, policy);
        let mut collected = Collected::default();
        for entry in doomed {
            let path = self.files.absolute(&entry.path);
            self.files.remove(&path)?;
            collected.bytes += entry.stamp.bytes;
            collected.removed.push(path);
        }
        self.refresh()?;
        Ok(collected)
    }

    /// Writes to the index what was appended since. Happens by itself when the store is dropped; without it the next
    /// opening reads the new files.
    ///
    /// # Errors
    /// The index fails.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        self.index.flush()
    }

    /// Brings index and facts in line with the files.
    fn refresh(&mut self) -> Result<(), StoreError> {
        self.index.flush()?;
        // A second time where the index was found damaged while it was written to, and has been emptied.
        while !self.compare()? {}
        Ok(())
    }

    /// Compares rows with files, mends the rows, and says whether they now hold every file.
    fn compare(&mut self) -> Result<bool, StoreError> {
        let (mut rows, facts) = self.index.load()?;
        let (mut fresh, mut stale, mut expected) = (Vec::new(), Vec::new(), rows.len());
        for (path, stamp) in self.files.walk()? {
            let row = rows.remove(&path);
            if row == Some(stamp) {
                continue;
            }
            fresh.extend(self.examine(&path)?);
            stale.extend(row.map(|_| path));
        }
        stale.extend(rows.into_keys());
        self.facts = facts;
        if fresh.is_empty() && stale.is_empty() {
            return Ok(true);
        }
        self.index.replace(&stale, &fresh)?;
        let (rows, facts) = self.index.load()?;
        self.facts = facts;
        expected = expected - stale.len() + fresh.len();
        Ok(rows.len() >= expected)
    }

    /// Reads a file that the index does not know; `None` where it vanished or was set aside.
    fn examine(&mut self, path: &str) -> Result<Option<Entry>, StoreError> {
        let absolute = self.files.absolute(path);
        // The stamp is taken first: a file that changes afterwards is examined again next time.
        let Some(stamp) = self.files.stamp(&absolute)? else { return Ok(None) };
        match self.files.read(&absolute)? {
            Found::Record(record) => Ok(Some(Entry::of(&record, path, stamp))),
            Found::Gone => Ok(None),
            Found::Faulty(fault) => {
                self.set_aside.push(self.files.set_aside(&absolute, &fault)?);
                Ok(None)
            }
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The records are safe on disk; what the index lacks, the next opening adds.
        let _ = self.index.flush();
    }
}

fn order(record: &Record) -> (jiff::Timestamp, &str, u32, u32) {
    let position = &record.position;
    (position.taken_at, &position.session, position.round, position.position)
}

fn unkept(path: &Path) -> impl FnOnce(std::io::Error) -> StoreError {
    let path = path.to_owned();
    move |error| StoreError::Unkept { path, error }
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> StoreError {
    let path = path.to_owned();
    move |error| StoreError::Io { path, error }
}
