//! The SQLite export (`nsys export --type sqlite`): what tables and columns there are is looked up, never assumed.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::NsysFailure;
use super::table::{Cells, Table, TableError};
use crate::model::ncu::KernelNames;
use crate::model::timeline::{Activity, ActivityKind, Note, Rejected, Rejection, Timeline};

const STRINGS: &str = "StringIds";
const KERNELS: &str = "CUPTI_ACTIVITY_KIND_KERNEL";
const CALLS: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";

/// Event types of NVTX ranges: pushed and popped, started and ended.
const RANGES: [i64; 2] = [59, 60];
/// Event type that names a domain of NVTX.
const DOMAIN: i64 = 75;
/// Severities of diagnostics that are worth a note: warnings and errors.
const SEVERE: [i64; 2] = [2, 3];

/// An export is of the report that it lies beside if it is no older.
///
/// # Errors
/// It is older, or one of the files cannot be looked at.
pub fn check_age(export: &Path, report: &Path) -> Result<(), NsysFailure> {
    let changed = |file: &Path| {
        let time = std::fs::metadata(file).and_then(|metadata| metadata.modified());
        time.map_err(|source| NsysFailure::Read { file: file.to_owned(), source })
    };
    if changed(export)? < changed(report)? {
        return Err(NsysFailure::Stale { export: export.to_owned(), report: report.to_owned() });
    }
    Ok(())
}

/// Everything that the export holds, with kernels under names of this form.
///
/// # Errors
/// The file is cut off, is none of SQLite, or lacks a column that its rows mean nothing without.
pub fn read_export(file: &Path, names: KernelNames) -> Result<Timeline, NsysFailure> {
    check_length(file)?;
    let sqlite = |source| NsysFailure::Sqlite { file: file.to_owned(), source };
    let connection = open(file).map_err(sqlite)?;
    let mut reader = Reader { connection: &connection, strings: HashMap::new(), timeline: Timeline::default() };
    reader.read(names).map_err(|error| match error {
        TableError::Sqlite(source) => sqlite(source),
        TableError::NoColumn { table, column } => {
            NsysFailure::Foreign { file: file.to_owned(), what: format!("column `{column}` in {table}") }
        }
    })?;
    let mut timeline = reader.timeline;
    timeline.sort();
    Ok(timeline)
}

/// SQLite reads what is left of a file that was cut off; its header says how long it was.
fn check_length(file: &Path) -> Result<(), NsysFailure> {
    let failed = |source| NsysFailure::Read { file: file.to_owned(), source };
    let truncated = || NsysFailure::Truncated { file: file.to_owned() };
    let mut opened = std::fs::File::open(file).map_err(failed)?;
    let length = opened.metadata().map_err(failed)?.len();
    let mut header = [0; 100];
    match opened.read_exact(&mut header) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Err(truncated()),
        read => read.map_err(failed)?,
    }
    let page_bytes = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 1 << 16,
        bytes => u64::from(bytes),
    };
    let pages = u32::from_be_bytes([header[28], header[29], header[30], header[31]]);
    let whole = header.starts_with(b"SQLite format 3\0") && length >= page_bytes * u64::from(pages);
    if whole { Ok(()) } else { Err(truncated()) }
}

/// Opens for reading alone, and trusts no view, trigger or function that the file may hold.
fn open(file: &Path) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    Ok(connection)
}

struct Reader<'c> {
    connection: &'c Connection,
    strings: HashMap<i64, String>,
    timeline: Timeline,
}

/// A table of what ran on GPUs.
struct OnGpu {
    kind: ActivityKind,
    table: &'static str,
    /// The column that names are made of.
    named_by: &'static str,
    /// The column of how much was moved or written.
    bytes: Option<&'static str>,
}

impl Reader<'_> {
    fn read(&mut self, names: KernelNames) -> Result<(), TableError> {
        self.read_strings()?;
        let named_by = match names {
            KernelNames::Function => "shortName",
            KernelNames::Demangled => "demangledName",
            KernelNames::Mangled => "mangledName",
        };
        let bytes = Some("bytes");
        for table in [
            OnGpu { kind: ActivityKind::Kernel, table: KERNELS, named_by, bytes: None },
            OnGpu { kind: ActivityKind::Memcpy, table: "CUPTI_ACTIVITY_KIND_MEMCPY", named_by: "copyKind", bytes },
            OnGpu { kind: ActivityKind::Memset, table: "CUPTI_ACTIVITY_KIND_MEMSET", named_by: "start", bytes },
            OnGpu {
                kind: ActivityKind::Graph,
                table: "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
                named_by: "graphId",
                bytes: None,
            },
        ] {
            self.read_on_gpu(&table)?;
        }
        self.read_calls()?;
        self.read_ranges()?;
        self.read_diagnostics()?;
        self.note_graphs();
        Ok(())
    }

    fn read_strings(&mut self) -> Result<(), TableError> {
        let Some(table) = Table::open(self.connection, STRINGS)? else {
            self.timeline.notes.push(Note::NoTable { table: STRINGS.to_owned() });
            return Ok(());
        };
        let strings = &mut self.strings;
        table.each(&["id", "value"], &[], &mut self.timeline.notes, |cells| {
            strings.insert(cells.number(0)?, cells.text(1)?.to_owned());
            Some(())
        })
    }

    fn read_on_gpu(&mut self, what: &OnGpu) -> Result<(), TableError> {
        let Some(table) = Table::open(self.connection, what.table)? else {
            if what.kind == ActivityKind::Kernel {
                self.timeline.notes.push(Note::NoTable { table: what.table.to_owned() });
            }
            return Ok(());
        };
        let copies =
            if what.kind == ActivityKind::Memcpy { self.labels("ENUM_CUDA_MEMCPY_OPER")? } else { HashMap::new() };
        let (strings, timeline) = (&self.strings, &mut self.timeline);
        let mut wanted = vec!["globalPid", "deviceId", "contextId", "streamId", "correlationId"];
        wanted.extend(what.bytes);
        let mut notes = Vec::new();
        table.each(&["start", "end", what.named_by], &wanted, &mut notes, |cells| {
            let id = cells.number(2)?;
            let name = match what.kind {
                ActivityKind::Kernel => strings.get(&id)?.clone(),
                ActivityKind::Memcpy => match copies.get(&id) {
                    Some(label) => format!("copy {label}"),
                    None => format!("copy of kind {id}"),
                },
                ActivityKind::Memset => "fill".to_owned(),
                _ => format!("graph {id}"),
            };
            let activity = Activity {
                process: cells.optional(3)?.map(process),
                thread: None,
                device: cells.optional(4)?,
                context: cells.optional(5)?,
                stream: cells.optional(6)?,
                correlation: cells.optional(7)?,
                bytes: if what.bytes.is_some() { cells.optional(8)? } else { None },
                ..named(what.kind, name)
            };
            accept(timeline, activity, cells)
        })?;
        self.timeline.notes.append(&mut notes);
        Ok(())
    }

    /// The labels of an enumeration, where the export explains it.
    fn labels(&mut self, table: &'static str) -> Result<HashMap<i64, String>, TableError> {
        let mut labels = HashMap::new();
        if let Some(table) = Table::open(self.connection, table)? {
            table.each(&["id"], &["label"], &mut self.timeline.notes, |cells| {
                labels.insert(cells.number(0)?, cells.text(1)?.to_owned());
                Some(())
            })?;
        }
        Ok(labels)
    }

    fn read_calls(&mut self) -> Result<(), TableError> {
        let Some(table) = Table::open(self.connection, CALLS)? else {
            self.timeline.notes.push(Note::NoTable { table: CALLS.to_owned() });
            return Ok(());
        };
        let (strings, timeline) = (&self.strings, &mut self.timeline);
        let mut notes = Vec::new();
        table.each(&["start", "end", "nameId"], &["globalTid", "correlationId"], &mut notes, |cells| {
            let name = strings.get(&cells.number(2)?)?.clone();
            let thread = cells.optional(3)?;
            let activity = Activity {
                process: thread.map(process),
                thread: thread.map(in_process),
                correlation: cells.optional(4)?,
                ..named(ActivityKind::Api, name)
            };
            accept(timeline, activity, cells)
        })?;
        self.timeline.notes.append(&mut notes);
        Ok(())
    }

    /// Ranges of NVTX, named `domain:name` as in the tool's own tables.
    fn read_ranges(&mut self) -> Result<(), TableError> {
        let Some(table) = Table::open(self.connection, "NVTX_EVENTS")? else { return Ok(()) };
        let (strings, timeline) = (&self.strings, &mut self.timeline);
        let mut notes = Vec::new();
        let mut domains = HashMap::new();
        let columns = ["text", "textId", "globalTid", "domainId"];
        let text = |cells: Cells<'_>| {
            let own = cells.text(3).map(str::to_owned);
            own.or_else(|| strings.get(&cells.number(4)?).cloned())
        };
        // Domains may be named behind their first ranges.
        table.each(&["start", "end", "eventType"], &columns, &mut Vec::new(), |cells| {
            if cells.number(2)? == DOMAIN {
                domains.insert((cells.optional(5)?.map(process), cells.number(6)?), text(cells)?);
            }
            Some(())
        })?;
        table.each(&["start", "end", "eventType"], &columns, &mut notes, |cells| {
            if !RANGES.contains(&cells.number(2)?) {
                return Some(());
            }
            let thread = cells.optional(5)?;
            let process = thread.map(process);
            let domain = cells.number(6).and_then(|domain| domains.get(&(process, domain)));
            let name = text(cells)?;
            let name = domain.map_or(name.clone(), |domain| format!("{domain}:{name}"));
            accept(
                timeline,
                Activity { process, thread: thread.map(in_process), ..named(ActivityKind::Nvtx, name) },
                cells,
            )
        })?;
        self.timeline.notes.append(&mut notes);
        Ok(())
    }

    fn read_diagnostics(&mut self) -> Result<(), TableError> {
        let Some(table) = Table::open(self.connection, "DIAGNOSTIC_EVENT")? else { return Ok(()) };
        let mut said = Vec::new();
        table.each(&["severity", "text"], &[], &mut self.timeline.notes, |cells| {
            if SEVERE.contains(&cells.number(0)?) {
                said.push(Note::Tool { text: cells.text(1)?.to_owned() });
            }
            Some(())
        })?;
        self.timeline.notes.append(&mut said);
        Ok(())
    }

    /// A graph that was launched and of which nothing is seen inside takes no time in any sum: that is said.
    fn note_graphs(&mut self) {
        let inside: HashSet<_> = self
            .timeline
            .on_gpu()
            .filter(|activity| activity.kind != ActivityKind::Graph)
            .map(|activity| (activity.process, activity.correlation))
            .collect();
        let calls = self.timeline.activities.iter().filter(|activity| launches_graph(activity));
        let launches = calls.filter(|call| !inside.contains(&(call.process, call.correlation))).count();
        if launches > 0 {
            self.timeline.notes.push(Note::GraphsWithoutNodes { launches: launches as u64 });
        }
    }
}

fn launches_graph(activity: &Activity) -> bool {
    activity.kind == ActivityKind::Api
        && (activity.name.starts_with("cuGraphLaunch") || activity.name.starts_with("cudaGraphLaunch"))
}

/// The process in a serialised identifier: host, machine, process and thread, from the highest bits down.
fn process(global: u64) -> u64 {
    (global >> 24) & 0xff_ffff
}

/// The thread in a serialised identifier.
fn in_process(global: u64) -> u64 {
    global & 0xff_ffff
}

fn named(kind: ActivityKind, name: String) -> Activity {
    Activity {
        kind,
        name,
        start_ns: 0,
        end_ns: 0,
        process: None,
        thread: None,
        device: None,
        context: None,
        stream: None,
        correlation: None,
        bytes: None,
    }
}

/// Takes `activity` in, from the first of the cells to the second, or rejects it with the reason. `None` where a time is missing.
fn accept(timeline: &mut Timeline, activity: Activity, cells: Cells<'_>) -> Option<()> {
    let (start_ns, end_ns) = (cells.number(0)?, cells.number(1)?);
    match Rejection::of(start_ns, end_ns) {
        Some(reason) => {
            timeline.rejected.push(Rejected { kind: activity.kind, name: activity.name, start_ns, end_ns, reason });
        }
        None => timeline.activities.push(Activity {
            start_ns: start_ns.unsigned_abs(),
            end_ns: end_ns.unsigned_abs(),
            ..activity
        }),
    }
    Some(())
}
