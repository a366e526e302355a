//! Pinned builds: kernels as they are now, with their tunings and what was compiled of them, kept so that they can be measured
//! beside later ones.
//!
//! ```text
//! out/pins/<name>.json     what is pinned under that name: replaced at once or not at all
//! out/pins/<key>/          a project of its own: kernels/, and .cache/ with builds and tunings
//! ```
//!
//! The folder's key is the hash of everything in it but the compiled modules, which follow from the rest and the compiler.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use walkdir::WalkDir;

use super::{Machine, Project, ProjectError};
use crate::atomic::{self, Durability, Growing};
use crate::backend::BuildInfo;
use crate::device::git;
use crate::diagnostic::suggestion;
use crate::failpoint;
use crate::model::build::{BuildMaterial, Toolchain};
use crate::model::{Key, Language};

/// Version of what a pin's file says. A newer one is refused.
const VERSION: u32 = 1;
/// Name of a pin that is given none.
pub const DEFAULT_PIN: &str = "reference";

/// A pinned build, as its file says it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pin {
    pub version: u32,
    pub name: String,
    pub key: Key,
    pub pinned_at: Timestamp,
    pub git_revision: Option<String>,
    pub git_dirty: Option<bool>,
    pub mlarun: String,
    /// Of the device that it was pinned for.
    pub language: Language,
    pub toolchain: Toolchain,
    /// Hashes of sources and packages, by path relative to the project.
    pub files: BTreeMap<String, Key>,
    /// Hashes of tunings, by path relative to the project.
    pub tunings: BTreeMap<String, Key>,
}

/// What a pin's key is the hash of.
#[derive(Serialize)]
struct Material<'a> {
    language: Language,
    toolchain: &'a Toolchain,
    files: &'a BTreeMap<String, Key>,
    tunings: &'a BTreeMap<String, Key>,
}

/// A pin cannot be made, found or used.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    #[error("`{0}` is no name of a pin: letters, digits, `-`, `_` and `.`, and a letter, a digit or `_` at the start")]
    Name(String),
    #[error("there is a pin `{0}` already; --replace puts this build in its place, another name keeps both")]
    Exists(String),
    #[error("there is no pin `{name}`{near}; `mlarun pin {name}` makes one of the kernels as they are now")]
    Unknown { name: String, near: String },
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{}: {reason}; remove the pin and make it again", path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error("the pin `{name}` was made by a newer mlarun (version {version} of its file); use that one")]
    Newer { name: String, version: u32 },
    #[error(
        "the pin `{name}` is of kernels in {pinned}, and the device runs kernels in {wanted}; pin again with --device"
    )]
    Language { name: String, pinned: Language, wanted: Language },
    #[error(transparent)]
    Project(#[from] ProjectError),
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> PinError {
    let path = path.to_owned();
    move |error| PinError::Io { path, error }
}

fn folder(project: &Project) -> PathBuf {
    project.out.join("pins")
}

fn file(project: &Project, name: &str) -> Result<PathBuf, PinError> {
    let is_name = !name.is_empty()
        && !name.starts_with(['.', '-'])
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if is_name { Ok(folder(project).join(format!("{name}.json"))) } else { Err(PinError::Name(name.to_owned())) }
}

/// Every pin, by name, and why those that cannot be read cannot.
///
/// # Errors
/// Their folder cannot be read.
pub fn pins(project: &Project) -> Result<(Vec<Pin>, Vec<PinError>), PinError> {
    let folder = folder(project);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((Vec::new(), Vec::new())),
        Err(error) => return Err(io_error(&folder)(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(io_error(&folder))?.file_name();
        names.extend(name.to_str().and_then(|name| name.strip_suffix(".json")).map(str::to_owned));
    }
    names.retain(|name| file(project, name).is_ok());
    names.sort();
    let (mut sound, mut broken) = (Vec::new(), Vec::new());
    for name in &names {
        match pin(project, name) {
            Ok(pin) => sound.push(pin),
            Err(error) => broken.push(error),
        }
    }
    Ok((sound, broken))
}

/// The pin `name`.
///
/// # Errors
/// There is none, or its file cannot be read.
pub fn pin(project: &Project, name: &str) -> Result<Pin, PinError> {
    let path = file(project, name)?;
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let known: Vec<String> =
                fs::read_dir(folder(project)).into_iter().flatten().flatten().filter_map(stem).collect();
            let near = suggestion(name, known.iter().map(String::as_str));
            let near = near.map(|near| format!("; {near}")).unwrap_or_default();
            return Err(PinError::Unknown { name: name.to_owned(), near });
        }
        Err(error) => return Err(io_error(&path)(error)),
    };
    let damaged = |error: serde_json::Error| PinError::Damaged { path: path.clone(), reason: error.to_string() };
    let value: serde_json::Value = serde_json::from_str(&text).map_err(damaged)?;
    match value.get("version").and_then(serde_json::Value::as_u64) {
        Some(version) if version > u64::from(VERSION) => {
            Err(PinError::Newer { name: name.to_owned(), version: version as u32 })
        }
        _ => serde_json::from_value(value).map_err(damaged),
    }
}

fn stem(entry: fs::DirEntry) -> Option<String> {
    Some(entry.file_name().to_str()?.strip_suffix(".json")?.to_owned())
}

/// Pins the kernels as they are now under `name`, with the tunings and the modules of the compiler of `machine`. A broken
/// package is not among them.
///
/// # Errors
/// There is such a pin and it is not to be replaced, or something cannot be read or written.
pub fn make(project: &Project, machine: &Machine, name: &str, replace: bool) -> Result<Pin, PinError> {
    let path = file(project, name)?;
    if path.exists() && !replace {
        return Err(PinError::Exists(name.to_owned()));
    }
    let pins = folder(project);
    atomic::check_below(&project.out, &pins).map_err(io_error(&pins))?;
    atomic::sweep(&pins);
    let growing = Growing::begin(&pins).map_err(io_error(&pins))?;
    let files = copy_all(&project.root, sources(project), growing.path())?;
    let tunings = copy_all(&project.root, tunings(project), growing.path())?;
    let (language, toolchain) = (machine.backend.language(), machine.backend.toolchain().clone());
    let material = Material { language, toolchain: &toolchain, files: &files, tunings: &tunings };
    let key = Key::of("pin/1", &material);
    let git = git::tree(&project.root, git::LIMIT).ok();
    let pin = Pin {
        version: VERSION,
        name: name.to_owned(),
        key,
        pinned_at: Timestamp::now(),
        git_revision: git.as_ref().and_then(|tree| tree.revision.clone()),
        git_dirty: git.map(|tree| tree.dirty),
        mlarun: env!("CARGO_PKG_VERSION").to_owned(),
        language,
        toolchain,
        files,
        tunings,
    };
    failpoint::here("pin.copied");
    publish(growing, &pins.join(key.to_string()))?;
    copy_builds(project, &pin, &pins.join(key.to_string()))?;
    failpoint::here("pin.published");
    let text = serde_json::to_string_pretty(&pin).map_err(|error| io_error(&path)(error.into()))? + "\n";
    atomic::write(&path, text.as_bytes(), Durability::Synced).map_err(io_error(&path))?;
    remove_unused(project)?;
    Ok(pin)
}

/// Gives the folder its place. One that is there has the same key, and so the same files.
fn publish(mut growing: Growing, place: &Path) -> Result<(), PinError> {
    match growing.name(place) {
        Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty) => Ok(()),
        named => named.map_err(io_error(place)),
    }
}

/// Removes the pin `name`, and gives it, unless it cannot be read any more.
///
/// # Errors
/// There is none, or it cannot be removed.
pub fn remove(project: &Project, name: &str) -> Result<Option<Pin>, PinError> {
    let removed = match pin(project, name) {
        Ok(pin) => Some(pin),
        Err(PinError::Damaged { .. }) => None,
        Err(error) => return Err(error),
    };
    let path = file(project, name)?;
    fs::remove_file(&path).map_err(io_error(&path))?;
    failpoint::here("pin.removed");
    remove_unused(project)?;
    Ok(removed)
}

/// Removes the folders that no pin names; none as long as a pin cannot be read that may name them.
fn remove_unused(project: &Project) -> Result<(), PinError> {
    let (sound, broken) = pins(project)?;
    if !broken.is_empty() {
        return Ok(());
    }
    let used: BTreeSet<String> = sound.iter().map(|pin| pin.key.to_string()).collect();
    let pins = folder(project);
    for entry in fs::read_dir(&pins).map_err(io_error(&pins))? {
        let entry = entry.map_err(io_error(&pins))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.parse::<Key>().is_ok() && !used.contains(&name) {
            fs::remove_dir_all(entry.path()).map_err(io_error(&entry.path()))?;
        }
    }
    Ok(())
}

/// What every sound package is made of, relative to the project.
fn sources(project: &Project) -> BTreeSet<PathBuf> {
    let of_package = |package: &crate::catalog::Package| {
        let stages = package.stages.iter().flat_map(|stage| stage.headers.iter().chain([&stage.source]));
        stages.cloned().chain([package.folder.join("kernel.toml")]).collect::<Vec<_>>()
    };
    project.catalog.packages().flat_map(of_package).map(|path| crate::model::build::normalised(&path)).collect()
}

/// Every tuning, relative to the project; what is derived from them is not among them.
fn tunings(project: &Project) -> BTreeSet<PathBuf> {
    let folder = project.cache().join("kernel-autotune");
    let files = WalkDir::new(folder).into_iter().filter_map(Result::ok).filter(|entry| entry.file_type().is_file());
    let paths = files.filter_map(|entry| Some(entry.path().strip_prefix(&project.root).ok()?.to_owned()));
    let is_tuning = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.strip_suffix(".json").is_some_and(|stem| stem.parse::<Key>().is_ok())
    };
    paths.filter(is_tuning).collect()
}

/// Copies files into `to`, and says what they hold.
fn copy_all(
    root: &Path,
    files: impl IntoIterator<Item = PathBuf>,
    to: &Path,
) -> Result<BTreeMap<String, Key>, PinError> {
    let copy = |path: PathBuf| {
        let from = root.join(&path);
        let bytes = fs::read(&from).map_err(io_error(&from))?;
        let to = to.join(&path);
        atomic::write(&to, &bytes, Durability::Synced).map_err(io_error(&to))?;
        Ok((path.to_string_lossy().into_owned(), Key::of_bytes(&bytes)))
    };
    files.into_iter().map(copy).collect()
}

/// Copies the modules that this compiler has made of the pinned sources. A link saves the room where the file system can: a
/// module is never written to, and checked before it is loaded.
fn copy_builds(project: &Project, pin: &Pin, to: &Path) -> Result<(), PinError> {
    let hashes: BTreeSet<Key> = pin.files.values().copied().collect();
    let builds = project.cache().join("builds");
    let infos = WalkDir::new(&builds).min_depth(3).max_depth(3).into_iter().filter_map(Result::ok);
    for info in infos.filter(|entry| entry.file_name() == "build.json") {
        let Some(from) = info.path().parent() else { continue };
        let is_pinned = fs::read(info.path())
            .ok()
            .and_then(|text| serde_json::from_slice::<BuildInfo>(&text).ok())
            .is_some_and(|info| info.material.compiler == pin.toolchain.compiler && is_of(&info.material, &hashes));
        let place = to.join(".cache/builds").join(from.strip_prefix(&builds).unwrap_or(from));
        if !is_pinned || place.exists() {
            continue;
        }
        let parent = place.parent().unwrap_or(to);
        let growing = Growing::begin(parent).map_err(io_error(parent))?;
        for entry in fs::read_dir(from).map_err(io_error(from))? {
            let entry = entry.map_err(io_error(from))?;
            let to = growing.path().join(entry.file_name());
            if fs::hard_link(entry.path(), &to).is_err() {
                fs::copy(entry.path(), &to).map_err(io_error(&to))?;
            }
        }
        publish(growing, &place)?;
    }
    Ok(())
}

fn is_of(material: &BuildMaterial, hashes: &BTreeSet<Key>) -> bool {
    material.sources.values().all(|source| hashes.contains(source))
}

impl Pin {
    /// What its sources are called where they were measured: their commit, or the pin where there is none that has just them.
    pub fn origin(&self) -> String {
        let commit = self.git_revision.clone().filter(|_| self.git_dirty == Some(false));
        commit.unwrap_or_else(|| format!("pin {} {}", self.name, self.key.short()))
    }

    /// The pinned kernels as a project, whose results go where those of `project` go. Every file of it is checked.
    ///
    /// # Errors
    /// A file is missing or is not what it was.
    pub fn open(&self, project: &Project) -> Result<Project, PinError> {
        let root = folder(project).join(self.key.to_string());
        let damaged = |reason: String| PinError::Damaged { path: root.clone(), reason };
        for (path, key) in self.files.iter().chain(&self.tunings) {
            match fs::read(root.join(path)) {
                Ok(bytes) if Key::of_bytes(&bytes) == *key => {}
                Ok(_) => return Err(damaged(format!("{path} is not what was pinned"))),
                Err(error) if error.kind() == ErrorKind::NotFound => return Err(damaged(format!("{path} is missing"))),
                Err(error) => return Err(io_error(&root.join(path))(error)),
            }
        }
        self.restore_tunings(project, &root)?;
        let conf = project.conf.clone();
        let catalog = crate::catalog::Catalog::load(&root);
        Ok(Project { root, out: project.out.clone(), conf, catalog })
    }

    /// Gives the project the tunings back that it has lost since: the pinned kernels would be tuned again otherwise, and
    /// perhaps otherwise.
    fn restore_tunings(&self, project: &Project, root: &Path) -> Result<(), PinError> {
        for path in self.tunings.keys() {
            let (from, to) = (root.join(path), project.root.join(path));
            if !to.exists() {
                let bytes = fs::read(&from).map_err(io_error(&from))?;
                atomic::write(&to, &bytes, Durability::Cached).map_err(io_error(&to))?;
            }
        }
        Ok(())
    }
}
