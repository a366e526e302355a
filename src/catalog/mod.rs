//! Kernel packages found under `kernels/`: which there are, and what each declares. Runs and compiles nothing.

mod einsum;
mod files;
#[cfg(test)]
pub(crate) mod fixture;
mod flags;
mod load;
mod names;
mod new_version;
mod package;
mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use files::Files;
use names::Interner;

use crate::diagnostic::{Diagnostic, nearest};
use crate::model::{KernelId, Language, Version};

pub use load::PACKAGE;
pub use new_version::{NewVersionError, new_version};
pub use package::*;

/// Every package of a project, each read when it is first asked for: an experiment uses few of them. A broken one is kept
/// with what is wrong with it, so that only what uses it fails.
#[derive(Debug)]
pub struct Catalog {
    kernels: BTreeMap<(Language, String), BTreeMap<Version, Entry>>,
    /// What is wrong with the tree itself: folders that are no package.
    stray: Vec<Diagnostic>,
    /// What packages share.
    files: Files,
    interner: Interner,
}

/// A package's folder, and the package once it was read.
#[derive(Debug)]
struct Entry {
    id: KernelId,
    layer: String,
    /// Relative to the project's root.
    folder: PathBuf,
    /// Of its `kernel.toml`.
    bytes: Vec<u8>,
    loaded: OnceLock<Loaded>,
}

/// A package, or what is wrong with it.
type Loaded = Result<Package, Vec<Diagnostic>>;

/// Why a package cannot be had.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LookupError {
    #[error(
        "there is no kernel `{kernel}` in the language {language}{}",
        nearest.as_ref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
    )]
    UnknownKernel { kernel: String, language: Language, nearest: Option<String> },
    #[error("{kernel} ({language}) has no version {version}; it has {}", listed(known))]
    UnknownVersion { kernel: String, language: Language, version: Version, known: Vec<Version> },
    /// The package's own diagnostics say why.
    #[error("the package of {id} is broken ({} problem{})", diagnostics.len(), if diagnostics.len() == 1 { "" } else { "s" })]
    Broken { id: KernelId, diagnostics: Vec<Diagnostic> },
}

fn listed(versions: &[Version]) -> String {
    versions.iter().map(Version::to_string).collect::<Vec<_>>().join(", ")
}

impl Catalog {
    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.kernels.values().flat_map(BTreeMap::values)
    }

    fn versions_of(&self, language: Language, kernel: &str) -> impl DoubleEndedIterator<Item = Version> + '_ {
        self.kernels.get(&(language, kernel.to_owned())).into_iter().flat_map(|versions| versions.keys().copied())
    }

    /// The kernel whose package lies in `folder`, relative to the project's root.
    pub fn at(&self, folder: &Path) -> Option<&KernelId> {
        self.entries().find(|entry| entry.folder == folder).map(|entry| &entry.id)
    }

    /// The package of `id`.
    ///
    /// # Errors
    /// No such kernel, no such version, or a broken package.
    pub fn package(&self, id: &KernelId) -> Result<&Package, LookupError> {
        let KernelId { kernel, version, language } = id;
        let Some(versions) = self.kernels.get(&(*language, kernel.clone())) else {
            let nearest = nearest(kernel, self.kernels(*language)).map(str::to_owned);
            return Err(LookupError::UnknownKernel { kernel: kernel.clone(), language: *language, nearest });
        };
        match versions.get(version).map(|entry| self.loaded(entry)) {
            Some(Ok(package)) => Ok(package),
            Some(Err(diagnostics)) => Err(LookupError::Broken { id: id.clone(), diagnostics: diagnostics.clone() }),
            None => Err(LookupError::UnknownVersion {
                kernel: kernel.clone(),
                language: *language,
                version: *version,
                known: versions.keys().copied().collect(),
            }),
        }
    }

    /// Names of the kernels in `language`, sorted.
    pub fn kernels(&self, language: Language) -> impl Iterator<Item = &str> {
        self.kernels.keys().filter(move |(of, _)| *of == language).map(|(_, kernel)| kernel.as_str())
    }

    /// Versions of `kernel` in `language`, the base version first; empty for an unknown kernel. Broken ones count.
    pub fn versions(&self, language: Language, kernel: &str) -> Vec<Version> {
        self.versions_of(language, kernel).collect()
    }

    /// The newest version.
    pub fn latest(&self, language: Language, kernel: &str) -> Option<Version> {
        self.versions_of(language, kernel).next_back()
    }

    /// The next lower version that exists, which `previous` means.
    pub fn previous(&self, id: &KernelId) -> Option<Version> {
        self.versions_of(id.language, &id.kernel).take_while(|version| *version < id.version).last()
    }

    /// Every sound package, by language, kernel and version.
    pub fn packages(&self) -> impl Iterator<Item = &Package> {
        self.entries().filter_map(|entry| self.loaded(entry).as_ref().ok())
    }

    /// Everything that is wrong with the tree and with any package, whether used or not.
    pub fn diagnostics(&self) -> Vec<Diagnostic> {
        let broken = self.entries().filter_map(|entry| self.loaded(entry).as_ref().err());
        let mut diagnostics: Vec<Diagnostic> = self.stray.iter().chain(broken.flatten()).cloned().collect();
        crate::diagnostic::sort(&mut diagnostics);
        diagnostics
    }
}
