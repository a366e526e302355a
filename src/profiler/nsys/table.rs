//! A table of a SQLite export, whose columns differ between versions and which is absent where it would be empty.

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OptionalExtension};

use crate::model::timeline::Note;

/// A table that the export has.
pub struct Table<'c> {
    connection: &'c Connection,
    name: &'static str,
    columns: Vec<String>,
}

/// Why a table cannot be read.
pub enum TableError {
    Sqlite(rusqlite::Error),
    /// The table lacks a column that its rows mean nothing without.
    NoColumn {
        table: &'static str,
        column: &'static str,
    },
}

impl From<rusqlite::Error> for TableError {
    fn from(error: rusqlite::Error) -> TableError {
        TableError::Sqlite(error)
    }
}

impl<'c> Table<'c> {
    /// The table of this name, where there is one.
    pub fn open(connection: &'c Connection, name: &'static str) -> Result<Option<Table<'c>>, TableError> {
        let mut find = connection.prepare_cached("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1")?;
        if find.query_row([name], |_| Ok(())).optional()?.is_none() {
            return Ok(None);
        }
        let mut info = connection.prepare_cached("SELECT name FROM pragma_table_info(?1)")?;
        let columns = info.query_map([name], |row| row.get(0))?.collect::<Result<_, _>>()?;
        Ok(Some(Table { connection, name, columns }))
    }

    /// Calls `take` with the cells of every row, those of `needed` first and then those of `wanted`; a column of the latter
    /// that does not exist has no values, and a note. Rows that `take` has no use for are counted in a note.
    pub fn each(
        &self,
        needed: &[&'static str],
        wanted: &[&'static str],
        notes: &mut Vec<Note>,
        mut take: impl FnMut(Cells<'_>) -> Option<()>,
    ) -> Result<(), TableError> {
        let has = |column: &str| self.columns.iter().any(|own| own == column);
        if let Some(&column) = needed.iter().find(|column| !has(column)) {
            return Err(TableError::NoColumn { table: self.name, column });
        }
        let missing = wanted.iter().filter(|column| !has(column));
        notes.extend(missing.map(|&column| Note::NoColumn { table: self.name.to_owned(), column: column.to_owned() }));
        let columns: Vec<String> = needed
            .iter()
            .chain(wanted)
            .map(|column| if has(column) { format!("\"{column}\"") } else { "NULL".to_owned() })
            .collect();
        let mut select = self.connection.prepare(&format!("SELECT {} FROM \"{}\"", columns.join(", "), self.name))?;
        let (mut rows, mut unreadable) = (select.query([])?, 0);
        let mut cells = Vec::with_capacity(columns.len());
        while let Some(row) = rows.next()? {
            cells.clear();
            for index in 0..columns.len() {
                cells.push(owned(row.get_ref(index)?));
            }
            unreadable += u64::from(take(Cells(&cells)).is_none());
        }
        if unreadable > 0 {
            notes.push(Note::UnreadableRows { table: self.name.to_owned(), rows: unreadable });
        }
        Ok(())
    }
}

/// Text that is not UTF-8 counts as bytes, which no cell should hold.
fn owned(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Value::Text(text.to_owned()),
            Err(_) => Value::Blob(Vec::new()),
        },
        ValueRef::Blob(_) => Value::Blob(Vec::new()),
    }
}

/// One row.
#[derive(Clone, Copy)]
pub struct Cells<'r>(&'r [Value]);

impl<'r> Cells<'r> {
    /// A whole number; `None` for anything else, and for nothing.
    pub fn number(self, index: usize) -> Option<i64> {
        match self.0[index] {
            Value::Integer(number) => Some(number),
            _ => None,
        }
    }

    /// A whole number from 0 up that may be absent; `None` where something else stands there.
    pub fn optional<N: TryFrom<i64>>(self, index: usize) -> Option<Option<N>> {
        match self.0[index] {
            Value::Null => Some(None),
            Value::Integer(number) => N::try_from(number).ok().map(Some),
            _ => None,
        }
    }

    pub fn text(self, index: usize) -> Option<&'r str> {
        match &self.0[index] {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}
