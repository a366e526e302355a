//! Recording one call, and setting up its replay.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::experiment::{Bench, Workspace};
use super::{ClockRule, Ledger, Machine, Project, ProjectError};
use crate::atomic::{self, Durability};
use crate::catalog::LookupError;
use crate::conf::{self, ConfError};
use crate::manifest::Baseline;
use crate::model::clocks::ClockState;
use crate::model::record::RecordKind;
use crate::model::{KernelId, Key, Tiling};
use crate::plan::space::targets;
use crate::plan::{self, BuildKeys, Facts as _, FactsError, InstantiateError, SubjectState};
use crate::recording::{
    Area, Call, HostEntry, RecordedBackend, Recorder, Recording, RecordingError, Replayer, SessionEntry,
};
use crate::report::{RenderError, devlog, template_texts};
use crate::store::calibrations;
use crate::store::{Entry, StoreError};

/// What a session is bound to instead of to the host alone.
#[derive(Debug, Clone, Copy)]
pub enum Tape<'a> {
    /// Host and workers, with all that they say noted.
    Record(&'a Recorder),
    /// What a recording says.
    Replay { session: &'a SessionEntry, replayer: &'a Replayer },
}

/// A call cannot be recorded, or its recording not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TapeError {
    #[error(transparent)]
    Recording(#[from] RecordingError),
    #[error("{}: lies outside the project; a call that reads it cannot be recorded", .0.display())]
    OutsideProject(PathBuf),
    #[error("{}: is not empty; name another folder with --out, or remove it", .0.display())]
    Occupied(PathBuf),
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error(transparent)]
    Conf(#[from] ConfError),
    #[error(transparent)]
    Template(#[from] RenderError),
    #[error(transparent)]
    Package(#[from] LookupError),
    #[error(transparent)]
    Instantiate(#[from] InstantiateError),
    #[error(transparent)]
    Facts(#[from] FactsError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Project(#[from] ProjectError),
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> TapeError {
    let path = path.to_owned();
    move |error| TapeError::Io { path, error }
}

/// Notes everything that `bench`, planned for `call`, has read: from here on only builds and workers are asked.
///
/// # Errors
/// A file cannot be read, or is none of the project's.
pub fn record(workspace: &Workspace<'_>, bench: &Bench, call: Call, recorder: &Recorder) -> Result<(), TapeError> {
    let project = workspace.project;
    recorder.file(Area::Project, &project.root, &inside(project, &call.manifest)?)?;
    recorder.call(call);
    let machine = workspace.machine;
    recorder.host(HostEntry {
        host: machine.host.clone(),
        language: machine.backend.language(),
        toolchain: machine.backend.toolchain().clone(),
        peaks: machine.peaks.clone(),
        gpu: machine.gpu.clone(),
    });
    for (name, text) in conf::texts(&project.root.join("conf"))? {
        recorder.text(Area::Project, &Path::new("conf").join(name), text);
    }
    for (name, text) in template_texts(&project.templates())? {
        recorder.text(Area::Project, &Path::new("templates").join(name), text);
    }
    for baseline in &bench.experiment.baselines {
        if let Baseline::File(path) = baseline {
            recorder.file(Area::Project, &project.root, &inside(project, path)?)?;
        }
    }
    // Clocks that are only preferred may turn out to be the GPU's own.
    let planned = bench.protocols.clocks;
    for clocks in [planned, ClockState::Observed].into_iter().skip(usize::from(planned == ClockState::Observed)) {
        let judged = calibrations::judged_file(&workspace.sittings_folder(&clocks));
        if judged.is_file() {
            recorder.file(Area::Results, &project.out, &relative(&judged, &project.out)?)?;
        }
    }
    record_kernels(project, bench, recorder)?;
    record_facts(workspace, bench, recorder)
}

/// `path` relative to the project's root.
fn inside(project: &Project, path: &Path) -> Result<PathBuf, TapeError> {
    let path = project.root.join(path).canonicalize().map_err(io(path))?;
    let relative = path.strip_prefix(&project.root).map(Path::to_owned);
    relative.map_err(|_| TapeError::OutsideProject(path))
}

/// Every version of the kernels that are planned (what "latest" and "previous" mean depends on them), and their dev logs.
fn record_kernels(project: &Project, bench: &Bench, recorder: &Recorder) -> Result<(), TapeError> {
    let language = bench.experiment.language;
    let mut kernels: Vec<&str> = bench.plan.subjects.iter().map(|subject| subject.id.kernel.as_str()).collect();
    kernels.sort_unstable();
    kernels.dedup();
    let mut files: Vec<PathBuf> = Vec::new();
    for kernel in kernels {
        for version in project.catalog.versions(language, kernel) {
            let package = project.catalog.package(&KernelId { kernel: kernel.to_owned(), version, language })?;
            files.push(package.folder.join("kernel.toml"));
            files.extend(package.stages.iter().flat_map(|stage| stage.headers.iter().chain([&stage.source])).cloned());
        }
        let docs = Path::new("docs/kernels");
        files.push(docs.join(devlog::file_name(kernel)));
        files.extend(below(project, &docs.join("records").join(devlog::kebab(kernel)))?);
    }
    files.sort();
    files.dedup();
    // A kernel may have no dev log.
    files.retain(|file| project.root.join(file).is_file());
    files.iter().try_for_each(|file| recorder.file(Area::Project, &project.root, file)).map_err(TapeError::from)
}

/// Files of a folder of the project; none where it does not exist.
fn below(project: &Project, folder: &Path) -> Result<Vec<PathBuf>, TapeError> {
    let absolute = project.root.join(folder);
    let entries = match fs::read_dir(&absolute) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io(&absolute)(error)),
    };
    entries.map(|entry| Ok(folder.join(entry.map_err(io(&absolute))?.file_name()))).collect()
}

/// Records and tunings that the plan has found.
fn record_facts(workspace: &Workspace<'_>, bench: &Bench, recorder: &Recorder) -> Result<(), TapeError> {
    let Workspace { project, ledger, .. } = *workspace;
    let entries = ledger.store().ls()?;
    for subject in &bench.plan.subjects {
        if let SubjectState::Ready(ready) = &subject.state {
            let of_run = |run: &plan::Run| Some((RecordKind::of_mode(run.mode)?, run.key?));
            let is_ours = |entry: &&Entry| entry.kind == RecordKind::Verification && entry.subject == ready.key;
            let verified = entries.iter().filter(is_ours).map(|entry| (entry.kind, entry.key));
            let keys: BTreeSet<(RecordKind, Key)> = subject.runs.iter().filter_map(of_run).chain(verified).collect();
            for (kind, key) in keys {
                for file in ledger.store().files_of(kind, &key)? {
                    recorder.file(Area::Results, &project.out, &relative(&file, &project.out)?)?;
                }
            }
        }
        for file in tunings(workspace, bench, subject)? {
            recorder.file(Area::Project, &project.root, &relative(&file, &project.root)?)?;
        }
    }
    Ok(())
}

fn relative(file: &Path, folder: &Path) -> Result<PathBuf, TapeError> {
    file.strip_prefix(folder).map(Path::to_owned).map_err(|_| TapeError::OutsideProject(file.to_owned()))
}

/// Files of the tunings of `subject`, as far as they are known.
fn tunings(workspace: &Workspace<'_>, bench: &Bench, subject: &plan::Subject) -> Result<Vec<PathBuf>, TapeError> {
    let package = workspace.project.catalog.package(&subject.id)?;
    let setting = workspace.setting(&bench.protocols);
    let (root, builds) = (setting.root(), BuildKeys::default());
    let mut tiling = Tiling::default();
    let mut files = Vec::new();
    for target in targets(package, &subject.shape, &root)? {
        let (key, _) = plan::tuning_key(&setting, package, &subject.shape, &tiling, &target, &root, &builds)?;
        let Some(chosen) = workspace.ledger.tuning(&subject.id, &target, &key)? else { break };
        files.push(workspace.ledger.tuning_path(&subject.id, &target, &key));
        plan::decide(&mut tiling, &target, chosen);
    }
    Ok(files)
}

/// A recording's project, host and records, set up in a folder of their own.
#[derive(Debug)]
pub struct Replayed {
    pub project: Project,
    /// Of the call, in the project.
    pub manifest: PathBuf,
    pub machine: Machine,
    pub ledger: Ledger,
    pub replayer: Replayer,
}

/// Writes the files of `recording` into the new or empty folder `out`, its project below project/.
///
/// # Errors
/// The folder holds something, cannot be written to, or a file of the recording would not stay in it.
pub fn set_up(recording: &Recording, out: &Path) -> Result<Replayed, TapeError> {
    fs::create_dir_all(out).map_err(io(out))?;
    let out = out.canonicalize().map_err(io(out))?;
    if fs::read_dir(&out).map_err(io(&out))?.next().is_some() {
        return Err(TapeError::Occupied(out));
    }
    let root = out.join("project");
    // Checked before the first is written.
    let place = |file: &crate::recording::StoredFile| {
        file.below(match file.area {
            Area::Project => &root,
            Area::Results => &out,
        })
    };
    let places = recording.files.iter().map(place).collect::<Result<Vec<_>, _>>()?;
    let manifest = recording.call.manifest_below(&root)?;
    fs::create_dir_all(root.join("kernels")).map_err(io(&root))?;
    for (file, path) in recording.files.iter().zip(places) {
        atomic::write(&path, file.text.as_bytes(), Durability::Cached).map_err(io(&path))?;
    }
    let project = Project::open(&root, Some(&root), Some(&out))?;
    let host = &recording.host;
    let machine = Machine {
        host: host.host.clone(),
        backend: Box::new(RecordedBackend::new(recording)),
        peaks: host.peaks.clone(),
        gpu: host.gpu.clone(),
        ncu: None,
        nsys: None,
        cupti: None,
        clocks: ClockRule::Recorded(
            recording.session.as_ref().and_then(|session| session.telemetry.clone()).map(Box::new),
        ),
    };
    let support = host.gpu.as_ref().map(|gpu| gpu.support.clone());
    let replayer = Replayer::new(recording, support, project.cache().join("reference"));
    let ledger = Ledger::open(&project)?;
    Ok(Replayed { project, manifest, machine, ledger, replayer })
}
