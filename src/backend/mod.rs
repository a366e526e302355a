//! From source to artifact: what every compiler has in common. Knows neither plans nor runs.
//!
//! A [`Backend`] says which compiler it uses and compiles one stage into a folder. Keys, the cache folder and its
//! atomic writes are the same for all of them and live in [`BuildCache`].

mod cache;
mod code;
mod cpu;
pub mod cuda;
mod depfile;
mod probe;
mod process;
mod ptxas;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::model::build::{BuildMaterial, Resources, StageBuild, Toolchain};
use crate::model::{Key, Language};

pub use cache::{Artifact, BuildCache, BuildInfo, Origin};
pub use code::CodeError;
pub use cpu::Cpu;
pub use depfile::DepfileError;
pub use probe::ProbeError;
pub use process::{GUARD, Patience, ProcessError, guard};

/// A compiler for the kernels of one language.
pub trait Backend: Sync + Debug {
    /// Language of the sources that it compiles.
    fn language(&self) -> Language;

    /// Identity of the compiler and the flags that it adds to those of every stage; they enter every key.
    fn toolchain(&self) -> &Toolchain;

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

/// Where a backend writes, how its files will be named once the folder is in place, and how long it may take.
#[derive(Debug, Clone, Copy)]
pub struct Destination<'a> {
    /// The project's root, which sources are relative to.
    pub root: &'a Path,
    /// Folder to write to.
    pub folder: &'a Path,
    /// The same folder's final name, for commands that people repeat.
    pub published: &'a Path,
    pub patience: &'a Patience,
}

/// What a backend made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// File that the worker loads, by name in the destination folder.
    pub module: String,
    /// Hash over the module's machine code.
    pub code_sha256: Key,
    pub listing: Listing,
    /// The compiler's messages; empty when it had nothing to say.
    pub log: String,
    /// Of the stage's function, where the compiler tells: on a GPU.
    pub resources: Option<Resources>,
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
    /// A recording is replayed in which the stage did not compile, or in which it does not stand.
    #[error("{message}")]
    Recorded { stage_source: PathBuf, message: String },
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
