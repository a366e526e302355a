//! From source to artifact: what every compiler has in common. Knows neither plans nor runs.
//!
//! A [`Backend`] says which compiler it uses and compiles one stage into a folder. Keys, the cache folder and its
//! atomic writes are the same for all of them and live in [`BuildCache`].

mod cache;
mod code;
mod cpu;
mod depfile;
mod probe;
mod process;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::model::{DType, Key, Language};

pub use cache::{Artifact, BuildCache, BuildInfo, Origin};
pub use code::CodeError;
pub use cpu::Cpu;
pub use depfile::DepfileError;
pub use probe::ProbeError;
pub use process::ProcessError;

/// A compiler for the kernels of one language.
pub trait Backend: Sync {
    /// Language of the sources that it compiles.
    fn language(&self) -> Language;

    /// Identity of the compiler; enters every key.
    fn compiler(&self) -> &CompilerId;

    /// Flags and macros that it adds to those of every stage; they enter the key.
    fn standard_flags(&self) -> &[&str];

    /// Compiles `stage` into files of the existing, empty folder `into`.
    ///
    /// # Errors
    /// The compiler does not run, refuses the source, or reads a file that the stage does not declare.
    fn compile(
        &self,
        stage: &StageBuild,
        material: &BuildMaterial,
        into: &Destination<'_>,
    ) -> Result<Compiled, BuildError>;
}

/// What identifies a compiler: not where it lies, but what it makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompilerId {
    /// First line of its version text, without the name that it was called by.
    pub version: String,
    /// Target triple, e.g. `x86_64-linux-gnu`.
    pub target: String,
    /// Arguments that are part of the compiler's command (`CC="gcc -m32"`).
    pub arguments: Vec<String>,
    /// Hash of what "native" resolves to on this machine: instruction sets, tuning, caches and predefined macros.
    pub native: Key,
}

impl std::fmt::Display for CompilerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} for {}", self.version, self.target)
    }
}

/// Everything that compiling one stage needs.
#[derive(Debug, Clone, PartialEq)]
pub struct StageBuild {
    /// The project's root.
    pub root: PathBuf,
    /// Folder of the package, relative to the root.
    pub package: PathBuf,
    /// Source file, relative to the root.
    pub source: PathBuf,
    /// SHA-256 of the source and of every declared header, by path relative to the package's folder.
    pub hashes: BTreeMap<String, Key>,
    /// Function that the stage launches.
    pub entry: String,
    /// C text of its caller ([`crate::model::calling::caller_source`]), compiled behind the source.
    pub caller: String,
    /// Macros, by name.
    pub defines: BTreeMap<String, String>,
    /// The stage's own compiler flags; their order matters.
    pub flags: Vec<String>,
    /// Element type of the shape, if it has one; defines `DTYPE_<NAME>`.
    pub dtype: Option<DType>,
}

impl StageBuild {
    /// Material of the build's key, for the compiler of `backend`. Reads no file.
    ///
    /// # Errors
    /// The source is not among the hashed files.
    pub fn material(&self, backend: &dyn Backend) -> Result<BuildMaterial, BuildError> {
        let mut defines = self.defines.clone();
        if let Some(dtype) = self.dtype {
            defines.insert(format!("DTYPE_{}", dtype.name().to_uppercase()), "1".to_owned());
        }
        let standard = backend.standard_flags().iter().map(|&flag| flag.to_owned());
        Ok(BuildMaterial {
            compiler: backend.compiler().clone(),
            sources: self.hashes.clone(),
            entry: self.entry.clone(),
            unit: format!("#include \"{}\"\n{}", self.include()?, self.caller),
            defines,
            flags: standard.chain(self.flags.iter().cloned()).collect(),
        })
    }

    /// Path of the source relative to the package's folder, as it is hashed and included.
    fn include(&self) -> Result<&str, BuildError> {
        let found = self.hashes.keys().find(|path| normalised(&self.package.join(path)) == normalised(&self.source));
        found.map(String::as_str).ok_or_else(|| BuildError::SourceNotHashed { stage_source: self.source.clone() })
    }

    /// The hashed files, as absolute paths with their hashes.
    fn files(&self) -> impl Iterator<Item = (PathBuf, &Key)> {
        self.hashes.iter().map(|(path, key)| (self.root.join(normalised(&self.package.join(path))), key))
    }
}

/// A path with `.` and `..` resolved by name alone.
fn normalised(path: &Path) -> PathBuf {
    use std::path::Component;
    path.components().fold(PathBuf::new(), |mut done, component| {
        match component {
            Component::CurDir => {}
            Component::ParentDir if done.file_name().is_some() => {
                done.pop();
            }
            other => done.push(other),
        }
        done
    })
}

/// The one definition of what a build depends on. Holds no absolute path, no time stamp and no label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildMaterial {
    pub compiler: CompilerId,
    /// SHA-256 of source and headers, by path relative to the package's folder.
    pub sources: BTreeMap<String, Key>,
    pub entry: String,
    /// Text of the translation unit: includes the source and calls its entry.
    pub unit: String,
    pub defines: BTreeMap<String, String>,
    /// All flags in order, the compiler's standard ones first.
    pub flags: Vec<String>,
}

impl BuildMaterial {
    /// Key of the build: names the artifact's folder and enters every subject's key.
    pub fn key(&self) -> Key {
        Key::of("build/1", self)
    }
}

/// Where a backend writes, and how its files will be named once the folder is in place.
#[derive(Debug, Clone, Copy)]
pub struct Destination<'a> {
    /// Folder to write to.
    pub folder: &'a Path,
    /// The same folder's final name, for commands that people repeat.
    pub published: &'a Path,
}

/// What a backend made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// File that the worker loads, by name in the destination folder.
    pub module: &'static str,
    /// Hash over the module's machine code.
    pub code_sha256: Key,
    pub listing: Listing,
    /// The compiler's messages; empty when it had nothing to say.
    pub log: String,
}

/// The assembly listing beside a module, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Listing {
    /// Written by the named tool.
    Written {
        tool: String,
    },
    Absent {
        reason: String,
    },
}

/// A stage could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("{path}: {error}; check that the folder exists and can be written to")]
    Io { path: PathBuf, error: std::io::Error },
    #[error("{}: the source is not among the stage's hashed files; declare it as `source` or in `headers`", stage_source.display())]
    SourceNotHashed { stage_source: PathBuf },
    #[error("{}: changed or was removed since the plan was made; start again", path.display())]
    SourceChanged { path: PathBuf },
    /// The compiler refused the source.
    #[error("{message}\n(compiling {} with {compiler})", stage_source.display())]
    Refused {
        stage_source: PathBuf,
        compiler: String,
        /// The first error, with file and line.
        message: String,
        /// Everything the compiler printed.
        log: String,
    },
    #[error(
        "{}: includes {}, which the stage does not declare; add \"{declare}\" to its `headers` in kernel.toml, so that a \
         change of it is noticed",
        stage_source.display(), file.display()
    )]
    Undeclared { stage_source: PathBuf, file: PathBuf, declare: String },
    #[error(
        "{}: includes {}, which lies outside the project and is no system header; copy it into the project and declare \
         it in `headers`, so that a change of it is noticed",
        stage_source.display(), file.display()
    )]
    Outside { stage_source: PathBuf, file: PathBuf },
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Depfile(#[from] DepfileError),
    #[error(transparent)]
    Code(#[from] CodeError),
    #[error("{}: does not serialise: {error}", path.display())]
    Json { path: PathBuf, error: serde_json::Error },
}

impl BuildError {
    /// Everything the compiler printed, where it was the compiler that refused.
    pub fn log(&self) -> Option<&str> {
        match self {
            BuildError::Refused { log, .. } => Some(log),
            _ => None,
        }
    }
}

/// Attaches a path to an I/O error.
fn io(path: &Path) -> impl FnOnce(std::io::Error) -> BuildError {
    let path = path.to_owned();
    move |error| BuildError::Io { path, error }
}
