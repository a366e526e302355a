//! The tree `kernels/<language>/<layer>/<design>[_v<N>]/` walked.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use walkdir::{DirEntry, WalkDir};

use super::files::Files;
use super::names::Interner;
use super::read::{self, Location};
use super::{Catalog, Entry, Loaded, Package};
use crate::diagnostic::{Diagnostic, SourceFile, suggestion};
use crate::model::{KernelId, Language, Version};

/// Folder below the project's root.
pub const KERNELS: &str = "kernels";
/// File that makes a folder a package.
pub const PACKAGE: &str = "kernel.toml";
/// Folders of this name hold what packages share.
const SHARED: &str = "common";

impl Catalog {
    /// Every package under `root`/kernels. What is wrong is kept inside: with the package that it breaks, else under
    /// [`Catalog::diagnostics`]. A root without the folder has no packages.
    pub fn load(root: &Path) -> Catalog {
        let canonical = root.canonicalize();
        let files = Files::new(canonical.as_deref().unwrap_or(root).to_owned());
        let mut catalog = Catalog { kernels: BTreeMap::new(), stray: Vec::new(), files, interner: Interner::default() };
        let root = match canonical {
            Ok(root) => root,
            Err(error) => {
                catalog.stray(root, format!("the project's folder cannot be read: {error}"));
                return catalog;
            }
        };
        for language in catalog.folders(&root, Path::new(KERNELS)) {
            let Some(known) = catalog.language(&language) else { continue };
            for layer in catalog.folders(&root, &language) {
                for folder in catalog.folders(&root, &layer) {
                    catalog.add(&root, &folder, known);
                }
            }
        }
        catalog
    }

    /// Nothing but a package in `folder` (relative to `root`, where its sources lie), whose `kernel.toml` holds `bytes`.
    pub(crate) fn of_one(root: &Path, folder: &Path, language: Language, bytes: Vec<u8>) -> Catalog {
        let files = Files::new(root.canonicalize().unwrap_or_else(|_| root.to_owned()));
        let mut catalog = Catalog { kernels: BTreeMap::new(), stray: Vec::new(), files, interner: Interner::default() };
        catalog.insert(folder, language, bytes);
        catalog
    }

    /// The folders in `folder` (both relative to `root`), by name, without hidden and shared ones.
    fn folders(&mut self, root: &Path, folder: &Path) -> Vec<std::path::PathBuf> {
        let full = root.join(folder);
        if folder == Path::new(KERNELS) && !full.exists() {
            return Vec::new();
        }
        let wanted = |entry: &DirEntry| {
            let name = entry.file_name().to_string_lossy();
            entry.path().is_dir() && !name.starts_with('.') && name != SHARED
        };
        let mut folders = Vec::new();
        for entry in WalkDir::new(&full).min_depth(1).max_depth(1).sort_by_file_name() {
            match entry {
                Ok(entry) if wanted(&entry) => folders.push(folder.join(entry.file_name())),
                Ok(_) => {}
                Err(error) => self.stray(folder, format!("the folder cannot be read: {error}")),
            }
        }
        folders
    }

    fn language(&mut self, folder: &Path) -> Option<Language> {
        let name = folder.file_name()?.to_string_lossy();
        let language = name.parse().ok();
        if language.is_none() {
            let file = SourceFile::new(folder.display().to_string(), "");
            let help = suggestion(&name, Language::ALL.map(Language::name));
            self.stray.push(Diagnostic::of_file(&file, format!("`{name}` is no kernel language")).maybe_help(help));
        }
        language
    }

    fn stray(&mut self, path: &Path, message: String) {
        self.stray.push(Diagnostic::of_file(&SourceFile::new(path.display().to_string(), ""), message));
    }

    /// The package of `entry`, read now if it was not before.
    pub(super) fn loaded<'c>(&'c self, entry: &'c Entry) -> &'c Loaded {
        entry.loaded.get_or_init(|| {
            let Entry { id, layer, folder, bytes, .. } = entry;
            let location = Location { id: id.clone(), layer: layer.clone(), files: &self.files, folder };
            read(&folder.join(PACKAGE), bytes, &location, &self.interner)
        })
    }

    fn add(&mut self, root: &Path, folder: &Path, language: Language) {
        let path = folder.join(PACKAGE);
        match std::fs::read(root.join(&path)) {
            Ok(bytes) => self.insert(folder, language, bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.stray(folder, format!("the folder has no {PACKAGE}"));
            }
            Err(error) => self.stray(&path, format!("the file cannot be read: {error}")),
        }
    }

    /// Adds the package in `folder`, whose `kernel.toml` holds `bytes`.
    fn insert(&mut self, folder: &Path, language: Language, bytes: Vec<u8>) {
        let path = folder.join(PACKAGE);
        let design = folder.file_name().unwrap_or_default().to_string_lossy();
        let layer = folder.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        let (kernel, version) = match kernel_and_version(&design) {
            Ok(named) => named,
            Err(problem) => return self.stray(folder, problem),
        };
        let id = KernelId { kernel: kernel.to_owned(), version, language };
        let (layer, folder) = (layer.into_owned(), folder.to_owned());
        let entry = Entry { id: id.clone(), layer, folder, bytes, loaded: OnceLock::new() };
        let versions = self.kernels.entry((language, id.kernel.clone())).or_default();
        if let Some(known) = versions.get(&version) {
            let other = known.folder.display();
            let file = SourceFile::new(path.display().to_string(), "");
            let message = format!("{id} is declared twice");
            let diagnostic = Diagnostic::of_file(&file, message).help(format!("the other one is {other}"));
            versions.insert(version, Entry { loaded: Err(vec![diagnostic]).into(), ..entry });
            return;
        }
        versions.insert(version, entry);
    }
}

fn read(path: &Path, bytes: &[u8], location: &Location<'_>, interner: &Interner) -> Result<Package, Vec<Diagnostic>> {
    let name = path.display().to_string();
    match std::str::from_utf8(bytes) {
        Ok(text) => read::package(&SourceFile::new(name, text), location, interner),
        Err(error) => {
            let message = format!("the file is not UTF-8 from byte {} on", error.valid_up_to());
            Err(vec![Diagnostic::of_file(&SourceFile::new(name, ""), message)])
        }
    }
}

/// `design_v2` is version 2 of `design`; without a suffix it is the base version.
fn kernel_and_version(folder: &str) -> Result<(&str, Version), String> {
    let sound = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_lowercase())
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    if !sound(folder) {
        return Err(format!("`{folder}` is no kernel's name: lower-case letters, digits and `_`, a letter first"));
    }
    let suffix = folder
        .rsplit_once("_v")
        .filter(|(_, digits)| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()));
    match suffix {
        None => Ok((folder, Version::BASE)),
        Some((kernel, digits)) => match format!("v{digits}").parse() {
            Ok(version) if version != Version::BASE && !kernel.is_empty() => Ok((kernel, version)),
            _ => Err(format!("`{folder}` has no version: the base version is `{kernel}`, then come `{kernel}_v1`, …")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_name_kernel_and_version() {
        assert_eq!(kernel_and_version("flash_mla"), Ok(("flash_mla", Version::BASE)));
        assert_eq!(kernel_and_version("flash_mla_v12"), Ok(("flash_mla", Version(12))));
        assert_eq!(kernel_and_version("mla_var6_plus"), Ok(("mla_var6_plus", Version::BASE)));
        assert_eq!(kernel_and_version("mla_var6"), Ok(("mla_var6", Version::BASE)));
        for wrong in ["flash_mla_v0", "flash_mla_v01", "Flash", "flash-mla", "3d", "_v1", "x_v99999999999"] {
            assert!(kernel_and_version(wrong).is_err(), "{wrong}");
        }
    }
}
