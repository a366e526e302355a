//! The index of the records, `out/index.sqlite`: one row a file. Derived from the files and rebuilt at will.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode, Row, params};

use super::files::Stamp;
use super::{Facts, Record, RecordKind, Slot, StoreError, fs};
use crate::failpoint;
use crate::model::{KernelId, Key, Mode, Shape};

/// Version of the table; an index of another one is rebuilt.
const SCHEMA: i64 = 1;

const TABLE: &str = "
    CREATE TABLE records (
        path TEXT PRIMARY KEY, kind TEXT NOT NULL, key BLOB NOT NULL, subject BLOB NOT NULL, slot BLOB NOT NULL,
        kernel TEXT NOT NULL, version TEXT NOT NULL, language TEXT NOT NULL, shape TEXT NOT NULL, mode TEXT,
        device TEXT NOT NULL, taken_at_ns INTEGER NOT NULL, session TEXT NOT NULL,
        bytes INTEGER NOT NULL, changed_ns INTEGER NOT NULL
    ) WITHOUT ROWID";

/// A row: what there is to say about a record without reading it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Entry {
    /// Relative to the folder of records.
    pub path: String,
    pub kind: RecordKind,
    pub key: Key,
    pub subject: Key,
    /// Hash of the [`Slot`].
    pub slot: Key,
    pub id: KernelId,
    pub shape: Shape,
    pub mode: Option<Mode>,
    pub device: String,
    pub taken_at: Timestamp,
    pub session: String,
    #[serde(flatten)]
    pub stamp: Stamp,
}

impl Entry {
    /// The row of `record`, stored at `path`.
    pub fn of(record: &Record, path: &str, stamp: Stamp) -> Entry {
        Entry {
            path: path.to_owned(),
            kind: record.kind,
            key: record.key,
            subject: record.subject,
            slot: Slot::of(record).key(),
            id: record.labels.id.clone(),
            shape: record.labels.shape.clone(),
            mode: record.labels.mode,
            device: record.environment.device.id.name.clone(),
            taken_at: record.position.taken_at,
            session: record.position.session.clone(),
            stamp,
        }
    }
}

/// The open index.
#[derive(Debug)]
pub struct Index {
    path: PathBuf,
    connection: Connection,
    /// Rows that are not written yet.
    deferred: Vec<Entry>,
}

impl Index {
    /// Opens the index, or makes it anew where it is missing, damaged or of another version.
    pub fn open(path: &Path) -> Result<Index, StoreError> {
        let fail = |error| StoreError::Index { path: path.to_owned(), error };
        let connection = match connect(path) {
            Err(error) if is_damage(&error) => {
                remove(path)?;
                connect(path).map_err(fail)?
            }
            other => other.map_err(fail)?,
        };
        Ok(Index { path: path.to_owned(), connection, deferred: Vec::new() })
    }

    /// Stamps of all files by path, and the facts that the rows amount to.
    pub fn load(&mut self) -> Result<(HashMap<String, Stamp>, Facts), StoreError> {
        self.attempt(|index| {
            let mut statement = index
                .connection
                .prepare("SELECT path, bytes, changed_ns, kind, key, slot, taken_at_ns FROM records")?;
            let mut rows = statement.query([])?;
            let (mut stamps, mut facts) = (HashMap::new(), Facts::default());
            while let Some(row) = rows.next()? {
                stamps.insert(row.get(0)?, stamp(row, 1)?);
                facts.add_row(kind(row, 3)?, key(row, 4)?, key(row, 5)?, time(row, 6)?);
            }
            Ok((stamps, facts))
        })
    }

    /// Every row, ordered for people.
    pub fn list(&mut self) -> Result<Vec<Entry>, StoreError> {
        self.flush()?;
        let mut entries = self.attempt(|index| {
            let mut statement = index.connection.prepare(
                "SELECT path, kind, key, subject, slot, kernel, version, language, shape, mode, device, taken_at_ns, \
                 session, bytes, changed_ns FROM records",
            )?;
            statement.query_map([], entry)?.collect::<rusqlite::Result<Vec<_>>>()
        })?;
        entries.sort_by(|a, b| {
            let by = |entry: &Entry| (entry.id.clone(), entry.shape.clone(), entry.mode, entry.taken_at);
            by(a).cmp(&by(b)).then_with(|| a.path.cmp(&b.path))
        });
        Ok(entries)
    }

    /// Remembers a row that [`Index::flush`] will write.
    pub fn defer(&mut self, entry: Entry) {
        self.deferred.push(entry);
    }

    /// Writes the remembered rows.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        if self.deferred.is_empty() {
            return Ok(());
        }
        let entries = std::mem::take(&mut self.deferred);
        self.replace(&[], &entries)
    }

    /// Drops the rows of the files `stale` and adds `fresh` ones, all or nothing.
    pub fn replace(&mut self, stale: &[String], fresh: &[Entry]) -> Result<(), StoreError> {
        self.attempt(|index| {
            let behaviour = rusqlite::TransactionBehavior::Immediate;
            let transaction = index.connection.transaction_with_behavior(behaviour)?;
            {
                let mut delete = transaction.prepare("DELETE FROM records WHERE path = ?1")?;
                for path in stale {
                    delete.execute([path])?;
                }
                let mut insert = transaction.prepare(
                    "INSERT OR REPLACE INTO records VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
                )?;
                for entry in fresh {
                    add(&mut insert, entry)?;
                }
            }
            failpoint::here("index.changed");
            transaction.commit()?;
            failpoint::here("index.committed");
            Ok(())
        })
    }

    /// Runs `action`; where it meets damage, the index is emptied and the action run once more: the walk that follows
    /// opening, or the next opening, finds every file new.
    fn attempt<T>(&mut self, mut action: impl FnMut(&mut Index) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let fail = |path: &Path, error| StoreError::Index { path: path.to_owned(), error };
        match action(self) {
            Err(error) if is_damage(&error) => {
                remove(&self.path)?;
                self.connection = connect(&self.path).map_err(|error| fail(&self.path, error))?;
                action(self).map_err(|error| fail(&self.path, error))
            }
            other => other.map_err(|error| fail(&self.path, error)),
        }
    }
}

/// Opens the database and makes the table. A rollback journal instead of a write-ahead log, as that one needs shared
/// memory, which network file systems lack; writes are few and batched.
fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(20))?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    let version = |connection: &Connection| connection.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0));
    if version(&connection)? != SCHEMA {
        let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        // Another program may have made the table while this one waited.
        if version(&transaction)? != SCHEMA {
            transaction.execute_batch("DROP TABLE IF EXISTS records")?;
            transaction.execute_batch(TABLE)?;
            transaction.pragma_update(None, "user_version", SCHEMA)?;
        }
        transaction.commit()?;
    }
    Ok(connection)
}

/// The file is no index, or one whose contents cannot be right.
fn is_damage(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(failure, _) => {
            matches!(failure.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
                || failure.code == ErrorCode::Unknown
        }
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..) => true,
        _ => false,
    }
}

fn remove(path: &Path) -> Result<(), StoreError> {
    for suffix in ["", "-journal"] {
        let file = PathBuf::from(format!("{}{suffix}", path.display()));
        match fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::Io { path: file, error });
            }
            _ => {}
        }
    }
    Ok(())
}

fn add(insert: &mut rusqlite::Statement<'_>, entry: &Entry) -> rusqlite::Result<usize> {
    let shape =
        serde_json::to_string(&entry.shape).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let taken_at_ns = integer(entry.taken_at.as_nanosecond())?;
    insert.execute(params![
        entry.path,
        entry.kind.name(),
        entry.key.as_bytes(),
        entry.subject.as_bytes(),
        entry.slot.as_bytes(),
        entry.id.kernel,
        entry.id.version.to_string(),
        entry.id.language.name(),
        shape,
        entry.mode.map(Mode::name),
        entry.device,
        taken_at_ns,
        entry.session,
        integer(entry.stamp.bytes)?,
        entry.stamp.changed_ns,
    ])
}

/// A number in the 64 bits that the database has for it.
fn integer<T: TryInto<i64, Error = std::num::TryFromIntError>>(number: T) -> rusqlite::Result<i64> {
    number.try_into().map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

/// The stamp in the column `first` and the one behind it.
fn stamp(row: &Row<'_>, first: usize) -> rusqlite::Result<Stamp> {
    let bytes = u64::try_from(row.get::<_, i64>(first)?).map_err(|error| conversion(first, error))?;
    Ok(Stamp { bytes, changed_ns: row.get(first + 1)? })
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry {
        path: row.get(0)?,
        kind: kind(row, 1)?,
        key: key(row, 2)?,
        subject: key(row, 3)?,
        slot: key(row, 4)?,
        id: KernelId { kernel: row.get(5)?, version: parsed(row, 6)?, language: parsed(row, 7)? },
        shape: serde_json::from_str(&row.get::<_, String>(8)?).map_err(|error| conversion(8, error))?,
        mode: row.get::<_, Option<String>>(9)?.map(|_| parsed(row, 9)).transpose()?,
        device: row.get(10)?,
        taken_at: time(row, 11)?,
        session: row.get(12)?,
        stamp: stamp(row, 13)?,
    })
}

fn kind(row: &Row<'_>, column: usize) -> rusqlite::Result<RecordKind> {
    let text = row.get_ref(column)?.as_str()?;
    let found = RecordKind::ALL.into_iter().find(|kind| kind.name() == text);
    found.ok_or_else(|| conversion(column, format!("`{text}` is no kind of record")))
}

fn key(row: &Row<'_>, column: usize) -> rusqlite::Result<Key> {
    row.get(column).map(Key::from_bytes)
}

fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    Timestamp::from_nanosecond(row.get::<_, i64>(column)?.into()).map_err(|error| conversion(column, error))
}

fn parsed<T: std::str::FromStr>(row: &Row<'_>, column: usize) -> rusqlite::Result<T>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    row.get_ref(column)?.as_str()?.parse().map_err(|error: T::Err| conversion(column, error))
}

fn conversion(column: usize, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, error.into())
}
