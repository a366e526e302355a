//! Names that stand for paths of this host in recorded requests, so that the same request is found on another one.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::model::protocol::Request;

/// Names by path.
#[derive(Debug, Default)]
pub struct Names(Mutex<HashMap<PathBuf, PathBuf>>);

impl Names {
    /// Calls `path` by `name` from now on.
    pub fn insert(&self, path: PathBuf, name: impl Into<PathBuf>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(path, name.into());
    }

    /// Calls the module at `path` by its number.
    pub fn insert_module(&self, path: PathBuf, number: usize) {
        self.insert(path, format!("module/{number}"));
    }

    /// `request` with names for the paths that have one.
    pub fn put_into(&self, request: &Request) -> Request {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        request.clone().with_paths(|path: &Path| names.get(path).cloned().unwrap_or_else(|| path.to_owned()))
    }
}
