//! The folder of artifacts, `.cache/builds/<first two digits>/<key>/`: looks up, builds, publishes by rename.
//!
//! A folder is there whole or not at all, so that two programs may build the same stage at once; a failed build leaves
//! nothing behind and is tried again by the next caller. What a program that was killed has left is swept by the next one.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Backend, BuildError, BuildMaterial, Compiled, Destination, Listing, Patience, StageBuild, io};
use crate::atomic::Growing;
use crate::model::Key;
use crate::model::build::{Module, Resources};
use crate::{atomic, failpoint};

/// Contents of an artifact's `build.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildInfo {
    pub key: Key,
    /// What `key` is the hash of.
    pub material: BuildMaterial,
    /// File that the worker loads, by name in the artifact's folder.
    pub module: String,
    pub module_sha256: Key,
    pub module_bytes: u64,
    /// Hash over the code sections alone: equal for equal machine code.
    pub code_sha256: Key,
    pub listing: Listing,
    /// Of the stage's function, where the compiler tells: on a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
}

/// A built stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    pub folder: PathBuf,
    pub info: BuildInfo,
    pub origin: Origin,
}

impl Artifact {
    /// What a worker loads, and what is known of it.
    pub fn module(&self) -> Module {
        let BuildInfo { module, code_sha256, resources, .. } = &self.info;
        Module { path: self.folder.join(module), code_sha256: *code_sha256, resources: *resources }
    }

    /// The compiler's messages; empty where it had nothing to say.
    ///
    /// # Errors
    /// The file that holds them cannot be read.
    pub fn log(&self) -> Result<String, BuildError> {
        let path = self.folder.join(LOG);
        fs::read_to_string(&path).map_err(io(&path))
    }
}

/// Where an artifact comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// It was there, and checked out.
    Cached,
    Built,
    /// It was there but did not check out, for `reason`, and was built anew.
    Rebuilt {
        reason: String,
    },
}

/// All artifacts of a project.
#[derive(Debug, Clone)]
pub struct BuildCache {
    root: PathBuf,
    folder: PathBuf,
    patience: Patience,
}

const INFO: &str = "build.json";
const LOG: &str = "log.txt";
/// What stands in an artifact's folder.
enum Found {
    Nothing,
    Whole(Box<BuildInfo>),
    Damaged { reason: String },
}

impl BuildCache {
    /// The artifacts of the project at `root` below `cache`, its `.cache`; compilers may take as long as they like.
    pub fn new(root: &Path, cache: &Path) -> BuildCache {
        let patience = Patience { limit: Duration::MAX, interrupted: Arc::default(), guard: None };
        BuildCache { root: root.to_owned(), folder: cache.join("builds"), patience }
    }

    /// The same with an end to the patience with compilers.
    pub fn with_patience(self, patience: Patience) -> BuildCache {
        BuildCache { patience, ..self }
    }

    /// Folder of the artifact `key`, whether it exists or not.
    pub fn folder_of(&self, key: &Key) -> PathBuf {
        let name = key.to_string();
        self.folder.join(&name[..2]).join(name)
    }

    /// The artifact `key`, if it is there and checks out.
    ///
    /// # Errors
    /// A file of it cannot be read.
    pub fn get(&self, key: &Key) -> Result<Option<Artifact>, BuildError> {
        match self.find(key)? {
            Found::Whole(info) => {
                Ok(Some(Artifact { folder: self.folder_of(key), info: *info, origin: Origin::Cached }))
            }
            Found::Nothing | Found::Damaged { .. } => Ok(None),
        }
    }

    /// The artifact of `stage`: the one that is there, else built now by `backend`. Blocks until the compiler is done.
    ///
    /// # Errors
    /// See [`BuildError`]; nothing is remembered of a failed build.
    pub fn build(&self, backend: &dyn Backend, stage: &StageBuild) -> Result<Artifact, BuildError> {
        let material = stage.material(backend.toolchain());
        let key = material.key();
        let origin = match self.find(&key)? {
            Found::Whole(info) => {
                return Ok(Artifact { folder: self.folder_of(&key), info: *info, origin: Origin::Cached });
            }
            Found::Nothing => Origin::Built,
            Found::Damaged { reason } => {
                self.discard(&key)?;
                Origin::Rebuilt { reason }
            }
        };
        let info = self.build_and_publish(backend, stage, material)?;
        Ok(Artifact { folder: self.folder_of(&key), info, origin })
    }

    /// The files on disk are those that the key was made of.
    fn check_sources(&self, stage: &StageBuild) -> Result<(), BuildError> {
        for (path, key) in stage.files() {
            let path = self.root.join(path);
            if read(&path)?.is_none_or(|bytes| Key::of_bytes(&bytes) != *key) {
                return Err(BuildError::SourceChanged { path });
            }
        }
        Ok(())
    }

    fn build_and_publish(
        &self,
        backend: &dyn Backend,
        stage: &StageBuild,
        material: BuildMaterial,
    ) -> Result<BuildInfo, BuildError> {
        let key = material.key();
        let published = self.folder_of(&key);
        let mut temporary = self.growing()?;
        self.check_sources(stage)?;
        let into =
            Destination { root: &self.root, folder: temporary.path(), published: &published, patience: &self.patience };
        let compiled = backend.compile(stage, &material, &into)?;
        // Whatever was edited while the compiler read it is not what the key says.
        self.check_sources(stage)?;
        let info = describe(material, compiled, temporary.path())?;
        atomic::check_below(&self.folder, &published).map_err(io(&published))?;
        fs::create_dir_all(published.parent().unwrap_or(&self.folder)).map_err(io(&published))?;
        failpoint::here("builds.made");
        match temporary.name(&published) {
            Ok(()) => {
                failpoint::here("builds.published");
                Ok(info)
            }
            Err(error) => match self.find(&key)? {
                // Another program was faster; its artifact has the same key.
                Found::Whole(info) => Ok(*info),
                _ => Err(BuildError::Io { path: published, error }),
            },
        }
    }

    fn growing(&self) -> Result<Growing, BuildError> {
        Growing::begin(&self.folder).map_err(io(&self.folder))
    }

    /// Takes a damaged artifact out of the way.
    fn discard(&self, key: &Key) -> Result<(), BuildError> {
        let away = self.growing()?;
        match fs::rename(self.folder_of(key), away.path().join("damaged")) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(io(&self.folder_of(key))(error)),
            _ => Ok(()),
        }
    }

    fn find(&self, key: &Key) -> Result<Found, BuildError> {
        let folder = self.folder_of(key);
        let damaged = |reason: String| Ok(Found::Damaged { reason });
        let Some(text) = read(&folder.join(INFO))? else {
            return if folder.exists() { damaged(format!("{INFO} is missing")) } else { Ok(Found::Nothing) };
        };
        let info: BuildInfo = match serde_json::from_slice(&text) {
            Ok(info) => info,
            Err(error) => return damaged(format!("{INFO}: {error}")),
        };
        if info.material.key() != *key || info.key != *key {
            return damaged(format!("{INFO} is that of another build"));
        }
        match read(&folder.join(&info.module))? {
            Some(bytes) if Key::of_bytes(&bytes) == info.module_sha256 => Ok(Found::Whole(Box::new(info))),
            Some(_) => damaged(format!("{} differs from its checksum", info.module)),
            None => damaged(format!("{} is missing", info.module)),
        }
    }
}

/// Writes log and `build.json` beside what the backend made.
fn describe(material: BuildMaterial, compiled: Compiled, folder: &Path) -> Result<BuildInfo, BuildError> {
    let module = folder.join(&compiled.module);
    let bytes = fs::read(&module).map_err(io(&module))?;
    let log = folder.join(LOG);
    fs::write(&log, compiled.log).map_err(io(&log))?;
    let info = BuildInfo {
        key: material.key(),
        material,
        module: compiled.module,
        module_sha256: Key::of_bytes(&bytes),
        module_bytes: bytes.len() as u64,
        code_sha256: compiled.code_sha256,
        listing: compiled.listing,
        resources: compiled.resources,
    };
    let path = folder.join(INFO);
    let text = serde_json::to_vec_pretty(&info).map_err(|error| BuildError::Json { path: path.clone(), error })?;
    fs::write(&path, text).map_err(io(&path))?;
    Ok(info)
}

/// The file's bytes; `None` where there is no such file.
fn read(path: &Path) -> Result<Option<Vec<u8>>, BuildError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io(path)(error)),
    }
}
