//! A new version of a kernel, cloned from an existing one.

use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use super::load::{KERNELS, PACKAGE};
use crate::model::{Language, Version};

/// Why no version was made. Nothing is left behind.
#[derive(Debug, thiserror::Error)]
pub enum NewVersionError {
    #[error(
        "there is no {PACKAGE} of {kernel} {from} under {KERNELS}/{language}/*/; `mlarun list` shows what there is"
    )]
    Missing { kernel: String, from: Version, language: Language },
    #[error("{} exists already; remove it or choose another version", .0.display())]
    Exists(PathBuf),
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{}: {reason}", path.display())]
    NotToml { path: PathBuf, reason: toml_edit::TomlError },
    #[error("{} is neither a file nor a folder; only those are cloned", .0.display())]
    NoPlainFile(PathBuf),
}

/// Clones the folder of `kernel`'s version `from` as version `to` under `root`, and gives the new folder. Paths in
/// `kernel.toml` that lead through the old folder lead through the new one.
///
/// The clone grows in a hidden folder beside its target and is renamed into place when it is complete.
///
/// # Errors
/// No such version, a version `to` that exists, or a file that cannot be read or written.
pub fn new_version(
    root: &Path,
    kernel: &str,
    language: Language,
    from: Version,
    to: Version,
) -> Result<PathBuf, NewVersionError> {
    let languages = root.join(KERNELS).join(language.name());
    let (old, new) = (folder_name(kernel, from), folder_name(kernel, to));
    let mut layers = WalkDir::new(&languages).min_depth(1).max_depth(1).into_iter().flatten();
    let layer = layers
        .find(|layer| layer.path().join(&old).join(PACKAGE).is_file())
        .ok_or_else(|| NewVersionError::Missing { kernel: kernel.to_owned(), from, language })?;
    let (source, target) = (layer.path().join(&old), layer.path().join(&new));
    if target.symlink_metadata().is_ok() {
        return Err(NewVersionError::Exists(target));
    }
    let io = |path: &Path| {
        let path = path.to_path_buf();
        move |source| NewVersionError::Io { path, source }
    };
    let growing =
        tempfile::Builder::new().prefix(".new-version-").tempdir_in(layer.path()).map_err(io(layer.path()))?;
    let folder = growing.path().join(&new);
    clone_folder(&source, &folder, &old, &new)?;
    std::fs::rename(&folder, &target).map_err(io(&target))?;
    Ok(target)
}

fn folder_name(kernel: &str, version: Version) -> String {
    if version == Version::BASE { kernel.to_owned() } else { format!("{kernel}_{version}") }
}

fn clone_folder(source: &Path, target: &Path, old: &str, new: &str) -> Result<(), NewVersionError> {
    for entry in WalkDir::new(source) {
        let entry = entry.map_err(|error| NewVersionError::Io {
            path: error.path().unwrap_or(source).to_path_buf(),
            source: error.into(),
        })?;
        let relative = entry.path().strip_prefix(source).unwrap_or(entry.path());
        clone_entry(&entry, &target.join(relative), old, new)?;
    }
    Ok(())
}

fn clone_entry(entry: &walkdir::DirEntry, target: &Path, old: &str, new: &str) -> Result<(), NewVersionError> {
    let io = |source| NewVersionError::Io { path: entry.path().to_path_buf(), source };
    let kind = entry.file_type();
    if kind.is_dir() {
        std::fs::create_dir(target).map_err(io)
    } else if !kind.is_file() {
        Err(NewVersionError::NoPlainFile(entry.path().to_path_buf()))
    } else if entry.depth() == 1 && entry.file_name() == PACKAGE {
        let text = std::fs::read_to_string(entry.path()).map_err(io)?;
        let not_toml = |reason| NewVersionError::NotToml { path: entry.path().to_path_buf(), reason };
        std::fs::write(target, readdress(&text, old, new).map_err(not_toml)?).map_err(io)
    } else {
        std::fs::copy(entry.path(), target).map_err(io).map(|_| ())
    }
}

/// The package `text` with every declared path through the folder `old` leading through `new`. Everything else stays
/// as it is written, as functions and stages may be called like their design.
fn readdress(text: &str, old: &str, new: &str) -> Result<String, toml_edit::TomlError> {
    let mut document: toml_edit::DocumentMut = text.parse()?;
    let stages = document.get_mut("stages").and_then(toml_edit::Item::as_array_of_tables_mut);
    for stage in stages.into_iter().flat_map(toml_edit::ArrayOfTables::iter_mut) {
        let source = stage.get_mut("source").and_then(toml_edit::Item::as_value_mut);
        source.into_iter().for_each(|path| readdress_path(path, old, new));
        let headers = stage.get_mut("headers").and_then(toml_edit::Item::as_array_mut);
        headers.into_iter().flat_map(toml_edit::Array::iter_mut).for_each(|path| readdress_path(path, old, new));
    }
    Ok(document.to_string())
}

fn readdress_path(value: &mut toml_edit::Value, old: &str, new: &str) {
    let Some(path) = value.as_str() else { return };
    let parts: Vec<&str> = path.split('/').collect();
    let Some((file, folders)) = parts.split_last() else { return };
    if !folders.contains(&old) {
        return;
    }
    let folders = folders.iter().map(|&part| if part == old { new } else { part });
    let path = folders.chain([*file]).collect::<Vec<_>>().join("/");
    let decor = value.decor().clone();
    *value = path.into();
    *value.decor_mut() = decor;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_through_the_old_folder_change() {
        let text = "# mla\n[[stages]]\nname = \"mla\" # mla\nsource = \"mla\"\nheaders = [\"../mla/mla.h\", \"../common/mla.h\"]\n";
        let expected = text.replace("../mla/", "../mla_v2/");
        assert_eq!(readdress(text, "mla", "mla_v2").expect("it is TOML"), expected);
    }
}
