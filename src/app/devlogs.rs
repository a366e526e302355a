//! Dev logs on disk: `docs/kernels/<kernel>.md` with the records that their blocks come from.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::Project;
use super::experiment::{Bench, Workspace};
use super::gather::Gathered;
use crate::atomic::{self, Durability};
use crate::catalog::Catalog;
use crate::model::{KernelId, Mode};
use crate::report::devlog::{self, About, Adding, Block, CompactRecord, DevlogError, Links, RecordError, Stale};
use crate::report::{RenderError, Renderer, Report};

/// A dev log could not be brought up to date; its file is untouched.
#[derive(Debug, thiserror::Error)]
pub enum DevlogsError {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{}: {error}; the file is untouched", path.display())]
    Log { path: PathBuf, error: DevlogError },
    #[error("{}: {error}", path.display())]
    Record { path: PathBuf, error: RecordError },
    #[error(transparent)]
    Render(#[from] RenderError),
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> DevlogsError {
    let path = path.to_owned();
    move |error| DevlogsError::Io { path, error }
}

/// Brings the blocks of this device up to date with what `gathered` holds. Logs under docs/kernels get blocks of a
/// device that they do not know only when `add` is set or the manifest names the device; otherwise those go to
/// out/devlogs. Gives the files that changed.
///
/// # Errors
/// See [`DevlogsError`].
pub(super) fn write(
    workspace: &Workspace<'_>,
    bench: &Bench,
    gathered: &Gathered,
    report: &Report<'_>,
    renderer: &Renderer,
    add: bool,
) -> Result<Vec<PathBuf>, DevlogsError> {
    let device = &workspace.machine.host.device.id.name;
    let add = add || bench.experiment.devlog.devices.contains(device);
    let mut by_kernel: BTreeMap<&str, Vec<CompactRecord>> = BTreeMap::new();
    for (index, subject) in bench.plan.subjects.iter().enumerate().filter(|(_, subject)| subject.listed) {
        let Some(event) = gathered.run(index, Mode::Event) else { continue };
        let links = Links {
            annotation: gathered.run(index, Mode::Annotation),
            previous: subject.previous.and_then(|previous| gathered.run(previous, Mode::Event)),
            shown: shown(bench, gathered, index),
        };
        if let Some(record) = report.devlog_record(event, links) {
            by_kernel.entry(&subject.id.kernel).or_default().push(record);
        }
    }
    let project = workspace.project;
    let mut changed = Vec::new();
    for (kernel, records) in by_kernel {
        let docs = project.devlogs();
        let adding = if add { Adding::AnyDevice } else { Adding::KnownDevices };
        check_place(&project.root, &docs, kernel)?;
        let left_out = update(project, &docs, kernel, &records, renderer, adding, &mut changed)?;
        let out = project.out.join("devlogs");
        check_place(&project.out, &out, kernel)?;
        update(project, &out, kernel, &left_out, renderer, Adding::AnyDevice, &mut changed)?;
    }
    Ok(changed)
}

/// Parameters beside b, s, t and dtype that tell the experiment's shapes apart.
fn shown(bench: &Bench, gathered: &Gathered, subject: usize) -> Vec<String> {
    let id = &bench.plan.subjects[subject].id;
    let shapes: Vec<_> = bench.plan.subjects.iter().filter(|other| other.id == *id).map(|other| &other.shape).collect();
    let shape = gathered.run(subject, Mode::Event).map(|run| &gathered.input.runs[run].shape);
    let names = shape.into_iter().flat_map(|shape| shape.0.keys());
    names.filter(|name| shapes.iter().any(|other| other.get(name) != shapes[0].get(name))).cloned().collect()
}

/// Checks that the log of `kernel` in `folder`, and its records, do not lie outside `root` by a link.
fn check_place(root: &Path, folder: &Path, kernel: &str) -> Result<(), DevlogsError> {
    for path in [folder.to_owned(), folder.join("records").join(devlog::kebab(kernel))] {
        atomic::check_below(root, &path).map_err(io_error(&path))?;
    }
    Ok(())
}

/// Puts `records` into the log of `kernel` in `folder`; gives those whose device the log does not know.
fn update(
    project: &Project,
    folder: &Path,
    kernel: &str,
    records: &[CompactRecord],
    renderer: &Renderer,
    adding: Adding,
    changed: &mut Vec<PathBuf>,
) -> Result<Vec<CompactRecord>, DevlogsError> {
    if records.is_empty() {
        return Ok(Vec::new());
    }
    let path = folder.join(devlog::file_name(kernel));
    let before = read(&path)?;
    let text = before.clone().unwrap_or_else(|| devlog::new_log(kernel));
    let blocks = blocks(&project.catalog, records, renderer)?;
    let updated =
        devlog::update(&text, &blocks, adding).map_err(|error| DevlogsError::Log { path: path.clone(), error })?;
    let (left_out, kept): (Vec<_>, Vec<_>) =
        records.iter().cloned().partition(|record| updated.left_out.contains(&record.identity));
    if kept.is_empty() {
        return Ok(left_out);
    }
    for record in &kept {
        let path = folder.join(record.path());
        let text = record.to_json();
        if read(&path)?.as_ref() != Some(&text) {
            atomic::write(&path, text.as_bytes(), Durability::Cached).map_err(io_error(&path))?;
        }
    }
    if before.as_ref() != Some(&updated.text) {
        atomic::write(&path, updated.text.as_bytes(), Durability::Cached).map_err(io_error(&path))?;
        changed.push(path);
    }
    Ok(left_out)
}

fn blocks(catalog: &Catalog, records: &[CompactRecord], renderer: &Renderer) -> Result<Vec<Block>, RenderError> {
    let about = |record: &CompactRecord| {
        let id =
            KernelId { kernel: record.kernel.clone(), version: record.identity.version, language: record.language };
        match catalog.package(&id) {
            Ok(package) => {
                About { description: package.description.clone(), location: package.folder.display().to_string() }
            }
            // The version's folder was removed since; its results stay.
            Err(_) => About { description: String::new(), location: String::new() },
        }
    };
    records.iter().map(|record| Block::render(renderer, record, &about(record))).collect()
}

/// A log that is, or is not, what its committed records say.
#[derive(Debug)]
pub struct Checked {
    pub path: PathBuf,
    pub stale: Vec<Stale>,
}

/// Kernels that have committed records, by the name in the records.
///
/// # Errors
/// A record cannot be read.
pub fn recorded_kernels(project: &Project) -> Result<BTreeMap<String, Vec<CompactRecord>>, DevlogsError> {
    let mut kernels: BTreeMap<String, Vec<CompactRecord>> = BTreeMap::new();
    let folder = project.devlogs().join("records");
    for entry in walkdir::WalkDir::new(&folder).sort_by_file_name() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) if error.io_error().is_some_and(|error| error.kind() == ErrorKind::NotFound) => break,
            Err(error) => return Err(io_error(&folder)(error.into())),
        };
        if entry.path().extension().is_some_and(|extension| extension == "json") {
            let text = fs::read_to_string(entry.path()).map_err(io_error(entry.path()))?;
            let record = CompactRecord::from_json(&text)
                .map_err(|error| DevlogsError::Record { path: entry.path().to_owned(), error })?;
            kernels.entry(record.kernel.clone()).or_default().push(record);
        }
    }
    Ok(kernels)
}

/// Compares the log of `kernel` with its records.
///
/// # Errors
/// See [`DevlogsError`].
pub fn check(project: &Project, kernel: &str, records: &[CompactRecord]) -> Result<Checked, DevlogsError> {
    let path = project.devlogs().join(devlog::file_name(kernel));
    let renderer = Renderer::load(&project.templates())?;
    let blocks = blocks(&project.catalog, records, &renderer)?;
    let text = read(&path)?.unwrap_or_default();
    let stale = devlog::check(&text, &blocks).map_err(|error| DevlogsError::Log { path: path.clone(), error })?;
    Ok(Checked { path, stale })
}

/// Writes the log of `kernel` again from its committed records. Gives its path if it changed.
///
/// # Errors
/// See [`DevlogsError`].
pub fn regenerate(project: &Project, kernel: &str, records: &[CompactRecord]) -> Result<Option<PathBuf>, DevlogsError> {
    let renderer = Renderer::load(&project.templates())?;
    check_place(&project.root, &project.devlogs(), kernel)?;
    let mut changed = Vec::new();
    update(project, &project.devlogs(), kernel, records, &renderer, Adding::AnyDevice, &mut changed)?;
    Ok(changed.pop())
}

fn read(path: &Path) -> Result<Option<String>, DevlogsError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error(path)(error)),
    }
}
