//! Writing what people read: profiles, the experiment's report and results, dev logs.

use std::io;
use std::path::{Path, PathBuf};

use super::artifacts::{self, write_text};
use super::devlogs::{self, DevlogsError};
use super::experiment::{Bench, Workspace};
use super::gather::{GatherError, Gathered, gather};
use super::stamp;
use crate::atomic;
use crate::backend::BuildCache;
use crate::execute::RunFailure;
use crate::model::Mode;
use crate::model::protocol::FailureKind;
use crate::model::record::{AnnotationPass, Body, NcuRun};
use crate::plan::PlanError;
use crate::report::{Outcome, RenderError, Renderer, Report, ReportError};

/// Files that were written.
#[derive(Debug, Default)]
pub struct Published {
    /// report.md of the experiment.
    pub report: PathBuf,
    /// Folders of profiles.
    pub profiles: Vec<PathBuf>,
    /// Dev logs that changed.
    pub devlogs: Vec<PathBuf>,
    /// Runs whose clocks slipped too often for a result.
    pub invalid: usize,
    /// Comparisons that ended with SLOWER, and runs of baselines that have no result now.
    pub regressions: usize,
}

/// Something could not be written; the records it would show are safe in the store.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    #[error("{0}")]
    Invalid(String),
    #[error("{}: {error}; what was measured is kept, `mlarun report` writes the reports again", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Gather(#[from] GatherError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error(transparent)]
    Render(#[from] RenderError),
    #[error(transparent)]
    Devlogs(#[from] DevlogsError),
}

impl PublishError {
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> PublishError {
        let path = path.to_owned();
        move |error| PublishError::Io { path, error }
    }
}

/// Writes report.md, results.json and results.csv of the experiment, the profiles of the runs for which `is_new` holds or
/// that have none, and the dev logs.
///
/// # Errors
/// A file cannot be written, a template does not render, a dev log cannot be trusted.
pub fn publish_experiment(
    workspace: &Workspace<'_>,
    bench: &Bench,
    failures: &[RunFailure],
    is_new: impl Fn(usize, Mode) -> bool,
    add_devlogs: bool,
) -> Result<Published, PublishError> {
    let gathered = gather(workspace, bench, failures)?;
    let report = Report::new(&gathered.input, &workspace.project.conf.thresholds)?;
    let renderer = Renderer::load(&workspace.project.templates())?;
    let folder = workspace.project.experiment(&bench.experiment.name);
    atomic::check_below(&workspace.project.out, &folder).map_err(PublishError::io(&folder))?;
    let mut published = Published { report: folder.join("report.md"), ..Published::default() };
    write_text(&folder.join("results.json"), &report.results_json())?;
    write_text(&folder.join("results.csv"), &report.results_csv()?)?;
    write_text(&published.report, &report.experiment(&renderer)?)?;
    for (index, run) in gathered.input.runs.iter().enumerate() {
        if is_new(gathered.subjects[index].0, run.mode) || lacks_profile(workspace, &gathered, index) {
            let folder = None;
            published.profiles.extend(profile(workspace, bench, &gathered, &report, &renderer, index, folder)?);
        }
    }
    published.devlogs = devlogs::write(workspace, bench, &gathered, &report, &renderer, add_devlogs)?;
    published.invalid = gathered.input.runs.iter().filter(|run| is_invalid(&run.outcome).is_some()).count();
    published.regressions = gathered.input.regressions();
    if failures.is_empty() && published.invalid == 0 {
        stamp::write(workspace, bench)?;
    } else {
        stamp::remove(workspace, bench);
    }
    Ok(published)
}

/// Why a run counts as invalid, if it does.
fn is_invalid(outcome: &Outcome) -> Option<&str> {
    match outcome {
        Outcome::Failed { kind: FailureKind::Invalid, reason } => Some(reason),
        _ => None,
    }
}

/// A profile's folder, its report's text, and its median duration in nanoseconds.
#[derive(Debug)]
pub struct PublishedProfile {
    pub folder: PathBuf,
    pub report: String,
    pub duration_ns: f64,
}

/// Writes the folder of the run of `subject` in `mode` alone: into `folder`, else a new timestamped one. `None` where
/// the run has no result.
///
/// # Errors
/// As [`publish_experiment`].
pub fn publish_profile(
    workspace: &Workspace<'_>,
    bench: &Bench,
    failures: &[RunFailure],
    subject: usize,
    mode: Mode,
    folder: Option<&Path>,
) -> Result<Option<PublishedProfile>, PublishError> {
    let gathered = gather(workspace, bench, failures)?;
    let Some(index) = gathered.run(subject, mode) else { return Ok(None) };
    if let Some(reason) = is_invalid(&gathered.input.runs[index].outcome) {
        return Err(PublishError::Invalid(reason.to_owned()));
    }
    let report = Report::new(&gathered.input, &workspace.project.conf.thresholds)?;
    let renderer = Renderer::load(&workspace.project.templates())?;
    let (Some(text), Some(duration_ns)) = (report.profile(&renderer, index)?, report.duration_ns(index)) else {
        return Ok(None);
    };
    let folder = profile(workspace, bench, &gathered, &report, &renderer, index, folder)?;
    Ok(folder.map(|folder| PublishedProfile { folder, report: text, duration_ns }))
}

/// The run at `index` has a result, and no folder that shows it: whoever measured it was ended before that was written. One
/// whose modules have gone is not shown, as they are part of it.
fn lacks_profile(workspace: &Workspace<'_>, gathered: &Gathered, index: usize) -> bool {
    let run = &gathered.input.runs[index];
    let (_, Some(prepared)) = &gathered.subjects[index] else { return false };
    let Outcome::Measured(records) = &run.outcome else { return false };
    let cache = BuildCache::new(&workspace.project.root, &workspace.project.cache());
    let is_compiled = prepared.build_keys.iter().all(|key| cache.folder_of(key).is_dir());
    records.last().filter(|_| is_compiled).is_some_and(|newest| {
        !artifacts::place(&workspace.project.out, &run.id, run.mode, prepared, newest.position.taken_at).exists()
    })
}

fn profile(
    workspace: &Workspace<'_>,
    bench: &Bench,
    gathered: &Gathered,
    report: &Report<'_>,
    renderer: &Renderer,
    index: usize,
    folder: Option<&Path>,
) -> Result<Option<PathBuf>, PublishError> {
    let run = &gathered.input.runs[index];
    let (subject, Some(prepared)) = &gathered.subjects[index] else { return Ok(None) };
    let Outcome::Measured(records) = &run.outcome else { return Ok(None) };
    let (Some(text), Some(newest)) = (report.profile(renderer, index)?, records.last()) else { return Ok(None) };
    let write = |folder: &Path| {
        artifacts::write(workspace, folder, &bench.plan.subjects[*subject], prepared, &bench.protocols)?;
        if let Body::Timeline(traced) = &newest.body {
            traced.files.iter().try_for_each(|kept| artifacts::copy_report(&workspace.project.out, folder, kept))?;
        }
        for (name, text) in report.files(index)? {
            write_text(&folder.join(name), &text)?;
        }
        if let Body::Ncu(AnnotationPass { ncu: Some(NcuRun { report: Some(kept), .. }), .. }) = &newest.body {
            artifacts::copy_report(&workspace.project.out, folder, kept)?;
        }
        write_text(&folder.join("report.md"), &text)
    };
    if let Some(folder) = folder {
        return write(folder).map(|()| Some(folder.to_owned()));
    }
    let out = &workspace.project.out;
    let place = artifacts::place(out, &run.id, run.mode, prepared, newest.position.taken_at);
    let growing = artifacts::begin(out, &place)?;
    write(growing.path())?;
    artifacts::finish(growing, &place).map(Some)
}
