//! Source files that a package declares: found, kept inside the project, hashed.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::model::Key;

/// A declared file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// Relative to the project's root, with `/`.
    pub path: PathBuf,
    /// SHA-256 of its bytes.
    pub hash: Key,
}

/// The files of a project, each read once however many packages share it.
#[derive(Debug)]
pub struct Files {
    /// The project's root, canonical.
    root: PathBuf,
    hashes: Mutex<HashMap<PathBuf, Key>>,
}

impl Files {
    /// The files under `root`, which is canonical.
    pub fn new(root: PathBuf) -> Files {
        Files { root, hashes: Mutex::default() }
    }

    /// Finds and hashes the file `declared` of the package in `folder` (relative to the root).
    ///
    /// # Errors
    /// Why it cannot be used: an absolute path, a path or a link that leaves the project, no such file, unreadable.
    pub fn declared(&self, folder: &Path, declared: &str) -> Result<Declared, String> {
        let path = inside(folder, declared)?;
        // Nothing is left half done in the table when a holder panics.
        let hashes = || self.hashes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&hash) = hashes().get(&path) {
            return Ok(Declared { path, hash });
        }
        let unusable = |error| format!("{}: {}", path.display(), reason(&error));
        let real = self.root.join(&path).canonicalize().map_err(unusable)?;
        if !real.starts_with(&self.root) {
            return Err(format!("{} links to {}, outside the project", path.display(), real.display()));
        }
        let hash = Key::of_bytes(&std::fs::read(&real).map_err(unusable)?);
        hashes().insert(path.clone(), hash);
        Ok(Declared { path, hash })
    }
}

/// `declared`, which is relative to `folder`, without `.` and `..`.
fn inside(folder: &Path, declared: &str) -> Result<PathBuf, String> {
    let mut path = folder.to_path_buf();
    for component in Path::new(declared).components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir if path.parent().is_some() => {
                path.pop();
            }
            Component::ParentDir => return Err("the path leaves the project".to_owned()),
            Component::RootDir | Component::Prefix(_) => {
                return Err("the path is absolute; paths start at the package's folder".to_owned());
            }
        }
    }
    Ok(path)
}

fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file".to_owned(),
        std::io::ErrorKind::IsADirectory => "this is a folder".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside() {
        let folder = Path::new("kernels/c/mla/x");
        assert_eq!(inside(folder, "x.c"), Ok("kernels/c/mla/x/x.c".into()));
        assert_eq!(inside(folder, "../../common/./a.h"), Ok("kernels/c/common/a.h".into()));
        assert!(inside(folder, "../../../../../a.h").expect_err("it leaves").contains("leaves"));
        assert!(inside(folder, "/etc/passwd").expect_err("it is absolute").contains("absolute"));
    }
}
