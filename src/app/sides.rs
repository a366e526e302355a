//! What a comparison's sides are called on the command line: a version of a kernel, a package's folder, or either at a git
//! revision.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::compare::Side;
use super::project::{Project, ProjectError};
use crate::catalog::{LookupError, PACKAGE};
use crate::device::git::{self, Unanswered};
use crate::model::{KernelId, Language, Version};

/// Longest wait for git to write the kernels of one revision.
const EXPORT_LIMIT: Duration = Duration::from_secs(120);

/// A side that was found, with the tree that its sources are in where that is not the project's.
#[derive(Debug)]
pub struct FoundSide {
    pub id: KernelId,
    /// Commit of its sources, where it was asked for by a revision.
    pub revision: Option<String>,
    tree: Option<Project>,
    /// Removed with the side.
    _folder: Option<TempDir>,
}

/// A text names no side.
#[derive(Debug, thiserror::Error)]
pub enum SideError {
    #[error("{text}: {error}")]
    Lookup { text: String, error: LookupError },
    #[error("{text}: {error}")]
    Version { text: String, error: String },
    #[error(
        "{text} is no package: one lies in kernels/<language>/<layer>/<design>/ and holds a {PACKAGE}; name such a folder, or KERNEL:VERSION"
    )]
    NoPackage { text: String },
    #[error("{text}: {error}")]
    Project { text: String, error: ProjectError },
    #[error("{text}: git has no kernels at {revision}: {error}")]
    Revision { text: String, revision: String, error: Unanswered },
    #[error("{text}: {error}")]
    Io { text: String, error: std::io::Error },
}

impl FoundSide {
    /// Finds what `text` names: `KERNEL`, `KERNEL:VERSION` (a kernel alone means its latest version) or the folder of a package,
    /// each with `@REVISION` for the kernels as they were committed there. `language` is that of a kernel that is named.
    ///
    /// # Errors
    /// There is no such kernel, version, folder or revision.
    pub fn find(text: &str, project: &Project, language: Language) -> Result<FoundSide, SideError> {
        let is_folder = |name: &str| name.contains('/') || Path::new(name).join(PACKAGE).is_file();
        let (name, revision) = match text.rsplit_once('@') {
            Some((name, revision)) if !is_folder(text) || !Path::new(text).exists() => (name, Some(revision)),
            _ => (text, None),
        };
        match revision {
            None if is_folder(name) => FoundSide::in_folder(text, project),
            None => {
                let id = named(text, name, project, language)?;
                Ok(FoundSide { id, revision: None, tree: None, _folder: None })
            }
            Some(revision) => FoundSide::at_revision(text, (name, revision), is_folder(name), project, language),
        }
    }

    /// The side, in the workspace of `project`.
    pub fn side<'a>(&'a self, project: &'a Project) -> Side<'a> {
        Side { project: self.tree.as_ref().unwrap_or(project), id: self.id.clone(), revision: self.revision.clone() }
    }

    fn in_folder(text: &str, project: &Project) -> Result<FoundSide, SideError> {
        let none = || SideError::NoPackage { text: text.to_owned() };
        let folder = Path::new(text).canonicalize().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => SideError::NoPackage { text: text.to_owned() },
            _ => SideError::Io { text: text.to_owned(), error },
        })?;
        let root =
            folder.ancestors().nth(4).filter(|root| folder.starts_with(root.join("kernels"))).ok_or_else(none)?;
        let inside = folder.strip_prefix(root).map_err(|_| none())?;
        if root == project.root {
            let id = project.catalog.at(inside).ok_or_else(none)?.clone();
            return Ok(FoundSide { id, revision: None, tree: None, _folder: None });
        }
        let tree = Project::open(root, Some(root), Some(&project.out))
            .map_err(|error| SideError::Project { text: text.to_owned(), error })?;
        let id = tree.catalog.at(inside).ok_or_else(none)?.clone();
        Ok(FoundSide { id, revision: None, tree: Some(tree), _folder: None })
    }

    fn at_revision(
        text: &str,
        (name, revision): (&str, &str),
        is_folder: bool,
        project: &Project,
        language: Language,
    ) -> Result<FoundSide, SideError> {
        let io = |error| SideError::Io { text: text.to_owned(), error };
        let folder = tempfile::tempdir().map_err(io)?;
        let commit = git::export(&project.root, revision, "kernels", folder.path(), EXPORT_LIMIT)
            .map_err(|error| SideError::Revision { text: text.to_owned(), revision: revision.to_owned(), error })?;
        // What was compiled, and how things are measured, are the project's.
        std::fs::create_dir_all(project.cache()).map_err(io)?;
        symlink(project.cache(), folder.path().join(".cache")).map_err(io)?;
        let conf = project.root.join("conf");
        if conf.exists() {
            symlink(conf, folder.path().join("conf")).map_err(io)?;
        }
        let tree = Project::open(folder.path(), Some(folder.path()), Some(&project.out))
            .map_err(|error| SideError::Project { text: text.to_owned(), error })?;
        let id = match is_folder {
            true => {
                let inside = relative(Path::new(name), &project.root);
                let found = inside.and_then(|inside| tree.catalog.at(&inside).cloned());
                found.ok_or_else(|| SideError::NoPackage { text: text.to_owned() })?
            }
            false => named(text, name, &tree, language)?,
        };
        Ok(FoundSide { id, revision: Some(commit), tree: Some(tree), _folder: Some(folder) })
    }
}

/// `folder`, which may no longer exist, relative to `root`.
fn relative(folder: &Path, root: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(folder).ok()?;
    // The root is canonical; where the folder still exists, so is it made.
    let absolute = absolute.canonicalize().unwrap_or(absolute);
    absolute.strip_prefix(root).ok().map(Path::to_owned)
}

/// `KERNEL` or `KERNEL:VERSION` in the catalogue of `project`.
fn named(text: &str, name: &str, project: &Project, language: Language) -> Result<KernelId, SideError> {
    let (kernel, version) = name.split_once(':').map_or((name, "latest"), |(kernel, version)| (kernel, version));
    let version = match version {
        "latest" => project.catalog.latest(language, kernel).unwrap_or(Version::BASE),
        "base" => Version::BASE,
        version => {
            version.parse().map_err(|error| SideError::Version { text: text.to_owned(), error: format!("{error}") })?
        }
    };
    let id = KernelId { kernel: kernel.to_owned(), version, language };
    match project.catalog.package(&id) {
        Ok(_) => Ok(id),
        Err(error) => Err(SideError::Lookup { text: text.to_owned(), error }),
    }
}
