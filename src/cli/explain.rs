//! `mlarun explain`: why a run is fresh or stale, its tiling, and where its records are.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::args::{ExplainArgs, Global};
use super::context::{self, Opened};
use super::exit::{CliError, Exit};
use super::output;
use super::run::bench_error;
use crate::app::{Since, reasons, since};
use crate::model::record::{Record, RecordKind};
use crate::model::{Key, Tiling};
use crate::plan::{Change, RunState, SubjectState, Wanted};
use crate::report::numbers::counted;

/// A manifest explains every run of its plan; a key, what was measured under it.
pub fn run(global: &Global, args: &ExplainArgs) -> Result<Exit, CliError> {
    let path = Path::new(&args.run);
    if path.extension().is_some() || path.exists() { manifest(global, args, path) } else { key(global, &args.run) }
}

fn manifest(global: &Global, args: &ExplainArgs, path: &Path) -> Result<Exit, CliError> {
    let project = context::project(global, path)?;
    let experiment = context::experiment(global, path, &args.selection.sets, &project)?;
    let opened = Opened::of(global, project, experiment.device)?;
    let only = context::only(&args.selection)?;
    let wanted =
        Wanted { only: only.as_ref(), remeasure: args.selection.remeasure, dev_logs: true, ..Wanted::default() };
    let bench = opened.workspace().plan(experiment, wanted).map_err(bench_error)?;
    context::warn_of_nothing(global, &args.selection, &bench);
    if global.json {
        return super::plan::print(global, &opened, &[bench]);
    }
    for (index, subject) in bench.plan.subjects.iter().enumerate() {
        let tiling = match &subject.state {
            SubjectState::Ready(ready) => Some(&ready.tiling),
            SubjectState::AfterTune { .. } | SubjectState::Refused { .. } => None,
        };
        for run in &subject.runs {
            let changes = reasons(&opened.workspace(), &bench, index, run).map_err(CliError::internal)?;
            let (state, reason) = super::plan::state(&run.state, &subject.state, &changes);
            let files = match (RecordKind::of_mode(run.mode), run.key) {
                (Some(kind), Some(key)) => files(&opened, kind, &key)?,
                _ => Vec::new(),
            };
            let why = match (&run.state, reason) {
                (RunState::Fresh, _) => "fresh: everything that it depends on is as it was measured".to_owned(),
                (_, Some(reason)) if changes.is_empty() => format!("{state}: {reason}"),
                _ => format!("{state}, as something that it depends on has changed:"),
            };
            let title = format!("{} {}, {}", subject.id, subject.label, run.mode);
            output::text(&text(&title, run.key.as_ref(), &why, &changes, tiling, &files))?;
        }
    }
    Ok(Exit::Success)
}

fn key(global: &Global, prefix: &str) -> Result<Exit, CliError> {
    let opened = Opened::of(global, context::project_here(global)?, context::host_kind(global))?;
    let mut seen = BTreeSet::new();
    let mut records = super::show::records(&opened.project, prefix)?;
    // The newest of each key, in the order in which they are recorded.
    records.reverse();
    records.retain(|record| seen.insert(record.key));
    records.reverse();
    let mut documents = Vec::new();
    for record in &records {
        let since = since(&opened.workspace(), record);
        let files = files(&opened, record.kind, &record.key)?;
        if global.json {
            documents.push(document(record, &since, &files));
        } else {
            output::text(&recorded(record, &since, &files))?;
        }
    }
    if global.json {
        output::json(&documents)?;
    }
    Ok(Exit::Success)
}

/// What a key is the hash of, for programs.
fn document(record: &Record, since: &Since, files: &[PathBuf]) -> serde_json::Value {
    let (state, reason, changes): (_, _, &[Change]) = match since {
        Since::Unchanged => ("fresh", None, &[]),
        Since::Changed { changes, .. } => ("stale", None, changes),
        Since::Gone { reason } => ("stale", Some(reason), &[]),
    };
    serde_json::json!({
        "kind": record.kind,
        "key": record.key,
        "subject": record.subject,
        "labels": record.labels,
        "tiling": record.tiling,
        "state": state,
        "reason": reason,
        "changes": changes,
        "files": files,
        "depends_on": record.material,
    })
}

fn recorded(record: &Record, since: &Since, files: &[PathBuf]) -> String {
    let what = record.labels.mode.map_or_else(|| record.kind.name().to_owned(), |mode| mode.to_string());
    let title = format!("{} {}, {what}", record.labels.id, record.labels.shape);
    let (why, changes): (_, &[Change]) = match since {
        Since::Unchanged => ("fresh: everything that it depends on is as it was measured".to_owned(), &[]),
        Since::Changed { changes, in_protocol_alone: false } => {
            ("stale, as something that it depends on has changed:".to_owned(), changes)
        }
        Since::Changed { changes, in_protocol_alone: true } => (
            "fresh in an experiment with its [protocol]; with that of conf/ alone stale, as it differs:".to_owned(),
            changes,
        ),
        Since::Gone { reason } => (format!("stale: {reason}"), &[]),
    };
    text(&title, Some(&record.key), &why, changes, Some(&record.tiling), files)
}

fn text(
    title: &str,
    key: Option<&Key>,
    why: &str,
    changes: &[Change],
    tiling: Option<&Tiling>,
    files: &[PathBuf],
) -> String {
    let mut text = format!("{title}\n  {why}\n");
    changes.iter().for_each(|change| text.push_str(&format!("    {change}\n")));
    if let Some(key) = key {
        text.push_str(&format!("  key: {key}\n"));
    }
    text.push_str(&match tiling {
        None => "  tiling: not tuned yet\n".to_owned(),
        Some(tiling) if tiling.is_empty() => "  tiling: there is nothing to tune\n".to_owned(),
        Some(tiling) => format!("  tiling: {tiling}\n"),
    });
    if files.is_empty() {
        text.push_str("  nothing is recorded\n");
    } else {
        text.push_str(&format!("  {}:\n", counted(files.len(), "record")));
        files.iter().for_each(|file| text.push_str(&format!("    {}\n", file.display())));
    }
    text.push('\n');
    text
}

/// Files of the records of `key`, oldest first, below the project's folder relative to it.
fn files(opened: &Opened, kind: RecordKind, key: &Key) -> Result<Vec<PathBuf>, CliError> {
    let files = opened.ledger.store().files_of(kind, key).map_err(CliError::internal)?;
    let relative = |file: PathBuf| file.strip_prefix(&opened.project.root).map(Path::to_owned).unwrap_or(file);
    Ok(files.into_iter().map(relative).collect())
}
