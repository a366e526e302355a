//! A project on disk: where its kernels, configuration, templates and results are.

use std::fs;
use std::path::{Path, PathBuf};

use crate::atomic;
use crate::catalog::Catalog;
use crate::conf::{Conf, ConfError};

/// An opened project.
#[derive(Debug)]
pub struct Project {
    /// Folder that holds kernels/.
    pub root: PathBuf,
    /// Folder for results.
    pub out: PathBuf,
    pub conf: Conf,
    pub catalog: Catalog,
}

/// There is no project, or it cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    #[error("no project at or above {}: no folder there holds kernels/; name one with --root", .0.display())]
    NotFound(PathBuf),
    #[error("{}: holds no folder kernels/", .0.display())]
    NoKernels(PathBuf),
    #[error("{}: {error}", path.display())]
    Unreachable { path: PathBuf, error: std::io::Error },
    #[error(transparent)]
    Conf(#[from] ConfError),
}

/// What can be made again cannot be kept.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}: compiled kernels and tunings cannot be kept there: {error}; make the folder writable, or work in a copy of the \
     project",
    folder.display()
)]
pub struct CacheError {
    pub folder: PathBuf,
    pub error: std::io::Error,
}

impl Project {
    /// The project at `root`, else the nearest one at or above `start`; results go to `out`, else to its out/.
    ///
    /// # Errors
    /// There is none, or its configuration is wrong. Broken kernel packages are no error here: only the experiments
    /// that use them fail.
    pub fn open(start: &Path, root: Option<&Path>, out: Option<&Path>) -> Result<Project, ProjectError> {
        let root = match root {
            Some(root) if root.join("kernels").is_dir() => absolute(root)?,
            Some(root) => return Err(ProjectError::NoKernels(root.to_owned())),
            None => nearest(&absolute(start)?).ok_or_else(|| ProjectError::NotFound(start.to_owned()))?,
        };
        let out = match out {
            Some(out) => {
                std::path::absolute(out).map_err(|error| ProjectError::Unreachable { path: out.to_owned(), error })?
            }
            None => root.join("out"),
        };
        let conf = Conf::load(&root.join("conf"))?;
        let catalog = Catalog::load(&root);
        Ok(Project { root, out, conf, catalog })
    }

    /// Compiles and tunings, which can be made again.
    pub fn cache(&self) -> PathBuf {
        self.root.join(".cache")
    }

    /// Makes the folders of compiles and tunings, and tries whether they can be written to: otherwise every kernel would
    /// fail by itself, each after another wait.
    ///
    /// # Errors
    /// One of them cannot be made or written to.
    pub fn check_cache(&self) -> Result<(), CacheError> {
        let cache = self.cache();
        for folder in [cache.clone(), cache.join("builds"), cache.join("kernel-autotune")] {
            let made = atomic::check_below(&cache, &folder)
                .and_then(|()| fs::create_dir_all(&folder))
                .and_then(|()| tempfile::tempfile_in(&folder));
            made.map_err(|error| CacheError { folder, error })?;
        }
        for name in ["reference", "devices", "support"] {
            let folder = cache.join(name);
            atomic::check_below(&cache, &folder).map_err(|error| CacheError { folder, error })?;
        }
        Ok(())
    }

    /// Removes what writers that were killed have left half written.
    pub fn sweep(&self) {
        [self.out.clone(), self.cache(), self.devlogs()].iter().for_each(|folder| atomic::sweep(folder));
    }

    /// Folder of report templates that replace the embedded ones.
    pub fn templates(&self) -> PathBuf {
        self.root.join("templates")
    }

    /// Folder of the dev logs.
    pub fn devlogs(&self) -> PathBuf {
        self.root.join("docs/kernels")
    }

    /// Results of the experiment `name`.
    pub fn experiment(&self, name: &str) -> PathBuf {
        self.out.join("experiments").join(name)
    }
}

fn absolute(path: &Path) -> Result<PathBuf, ProjectError> {
    path.canonicalize().map_err(|error| ProjectError::Unreachable { path: path.to_owned(), error })
}

fn nearest(start: &Path) -> Option<PathBuf> {
    start.ancestors().find(|folder| folder.join("kernels").is_dir()).map(Path::to_owned)
}
