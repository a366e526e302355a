//! Nsight Systems' output, read: its SQLite export, the tables of `nsys stats`, and what it says while it traces. Starts nothing.

mod export;
mod log;
pub mod run;
mod stats;
mod table;

use std::path::PathBuf;

use crate::model::timeline::{Note, Timeline};

pub use export::{check_age, read_export};
pub use log::{Log, read_log};
pub use stats::{StatsError, StatsTable, Summary, read_stats};

/// Why there is no timeline.
#[derive(Debug, thiserror::Error)]
pub enum NsysFailure {
    #[error(
        "Nsight Systems traced the program and could not import what it recorded ({qdstrm}): its importer needs libdw.so.1. \
         Install it (libdw1 on Debian and Ubuntu, elfutils-libs on Fedora and RHEL), or name the folder that holds it \
         in MLARUN_NSYS_LIBRARIES; then profile again, or with --tool=cupti"
    )]
    NoImporter { qdstrm: String },
    #[error(
        "Nsight Systems left no report; it said: {}. A range between cuProfilerStart and cuProfilerStop that never began \
         leaves none",
        if said.is_empty() { "nothing" } else { said }
    )]
    NoReport { said: String },
    #[error(
        "{} is older than {}: it is the export of an earlier trace; export again with `nsys export --force-overwrite=true \
         --type sqlite`",
        export.display(), report.display()
    )]
    Stale { export: PathBuf, report: PathBuf },
    #[error(
        "Nsight Systems could not export {}{}; run `nsys export --type sqlite` on it by hand to see why",
        report.display(),
        if said.is_empty() { String::new() } else { format!("; it said: {said}") }
    )]
    NoExport { report: PathBuf, said: String },
    #[error("cannot read {}: {source}", file.display())]
    Read { file: PathBuf, source: std::io::Error },
    #[error("{} is cut off, or no SQLite file: export the report again, with room on the disk", file.display())]
    Truncated { file: PathBuf },
    #[error("{}: {source}; export the report again", file.display())]
    Sqlite { file: PathBuf, source: rusqlite::Error },
    #[error(
        "{} has no {what}: mlarun does not know the exports of this version of Nsight Systems; use another version",
        file.display()
    )]
    Foreign { file: PathBuf, what: String },
    #[error("nothing ran on a GPU while Nsight Systems traced{}", listed(notes))]
    NoActivity { notes: Vec<Note> },
}

fn listed(notes: &[Note]) -> String {
    notes.iter().map(|note| format!("; {note}")).collect()
}

/// The timeline if it is a result.
///
/// # Errors
/// What was said explains why there is no report, or nothing ran on a GPU.
pub fn judge(log: &Log, read: Result<Timeline, NsysFailure>) -> Result<Timeline, NsysFailure> {
    if let Some(qdstrm) = log.unimported() {
        return Err(NsysFailure::NoImporter { qdstrm: qdstrm.to_owned() });
    }
    if log.report.is_none() {
        return Err(NsysFailure::NoReport { said: log.problems.join("; ") });
    }
    let timeline = read?;
    if timeline.on_gpu().next().is_none() {
        return Err(NsysFailure::NoActivity { notes: timeline.notes });
    }
    Ok(timeline)
}
