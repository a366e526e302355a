//! The state of nights on disk: out/nightly/state.json, replaced at once or not at all.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::app::Project;
use crate::atomic::{self, Durability};
use crate::failpoint;
use crate::nightly::{State, VERSION};

/// The state cannot be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    #[error("{}: {error}; make the folder writable, or name another one with --out", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{}: {error}; move the file away to begin anew, without what earlier nights have suspected", path.display())]
    Damaged { path: PathBuf, error: serde_json::Error },
    #[error("{}: written by a newer mlarun (version {version}); use that one, or another --out", path.display())]
    Newer { path: PathBuf, version: u64 },
    #[error("{}: another `mlarun nightly` is at work on these results; wait for its end", .0.display())]
    Busy(PathBuf),
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> KeepError {
    let path = path.to_owned();
    move |error| KeepError::Io { path, error }
}

/// The state of a project's nights, which nobody else changes while it is held.
#[derive(Debug)]
pub struct Kept {
    path: PathBuf,
    _lock: File,
}

impl Kept {
    /// Takes it.
    ///
    /// # Errors
    /// Another process has it, or the folder cannot be written to.
    pub fn open(project: &Project) -> Result<Kept, KeepError> {
        let folder = project.out.join("nightly");
        atomic::check_below(&project.out, &folder).map_err(io_error(&folder))?;
        fs::create_dir_all(&folder).map_err(io_error(&folder))?;
        let path = folder.join("lock");
        let lock = File::options().create(true).truncate(false).write(true).open(&path).map_err(io_error(&path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Kept { path: folder.join("state.json"), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(KeepError::Busy(folder)),
            Err(TryLockError::Error(error)) => Err(io_error(&path)(error)),
        }
    }

    /// Folder of what nights leave.
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// The state as it was kept last; a new one where there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn load(&self) -> Result<State, KeepError> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(State::default()),
            Err(error) => return Err(io_error(&self.path)(error)),
        };
        let damaged = |error| KeepError::Damaged { path: self.path.clone(), error };
        let value: serde_json::Value = serde_json::from_str(&text).map_err(damaged)?;
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(version) if version > u64::from(VERSION) => Err(KeepError::Newer { path: self.path.clone(), version }),
            _ => serde_json::from_value(value).map_err(damaged),
        }
    }

    /// Keeps `state`; it is on the disk when this returns.
    ///
    /// # Errors
    /// It cannot be written: what was kept before still is.
    pub fn keep(&self, state: &State) -> Result<(), KeepError> {
        failpoint::here("nightly.keeping");
        let text = serde_json::to_vec(state).map_err(|error| io_error(&self.path)(error.into()))?;
        atomic::write(&self.path, &text, Durability::Synced).map_err(io_error(&self.path))?;
        failpoint::here("nightly.kept");
        Ok(())
    }
}
