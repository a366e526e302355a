//! Writes a file so that a reader sees all of it or none of it. Knows nothing of what is written.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tempfile::NamedTempFile;

/// What must have happened when a write returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The file survives a loss of power.
    Synced,
    /// A loss of power may leave an older file or an empty one: for what can be made again and is checked when read.
    Cached,
}

/// Writes `bytes` to `path` under a temporary name and renames it; replaces what was there. Makes missing folders.
///
/// # Errors
/// The folder cannot be made, or the file cannot be written; what stood at `path` is then untouched.
pub fn write(path: &Path, bytes: &[u8], durability: Durability) -> io::Result<()> {
    let (folder, file) = written(path, bytes, durability)?;
    file.persist(path)?;
    sync_folder(folder, durability)
}

/// As [`write()`], but never replaces a file.
///
/// # Errors
/// As [`write()`], and [`io::ErrorKind::AlreadyExists`] where there is a file.
pub fn create(path: &Path, bytes: &[u8], durability: Durability) -> io::Result<()> {
    let (folder, file) = written(path, bytes, durability)?;
    file.persist_noclobber(path)?;
    sync_folder(folder, durability)
}

/// The bytes under a temporary name in the folder of `path`.
fn written<'a>(path: &'a Path, bytes: &[u8], durability: Durability) -> io::Result<(&'a Path, NamedTempFile)> {
    let folder = path.parent().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
    fs::create_dir_all(folder)?;
    // The prefix hides unfinished files from walks over a folder's `*.json`.
    let mut file = tempfile::Builder::new().prefix(".writing-").tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().set_permissions(Permissions::from_mode(0o644))?;
    if durability == Durability::Synced {
        file.as_file().sync_all()?;
    }
    Ok((folder, file))
}

fn sync_folder(folder: &Path, durability: Durability) -> io::Result<()> {
    if durability == Durability::Synced { File::open(folder)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_replaces_the_file_and_leaves_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("new/file.json");
        write(&path, b"1", Durability::Synced).expect("written");
        write(&path, b"2", Durability::Cached).expect("replaced");
        let error = create(&path, b"3", Durability::Cached).expect_err("it is there");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).expect("readable"), b"2");
        assert_eq!(fs::read_dir(folder.path().join("new")).expect("listable").count(), 1);
    }

    #[test]
    fn a_failed_write_leaves_no_file() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("file"), "").expect("a file");
        assert!(write(&folder.path().join("file/below"), b"1", Durability::Cached).is_err());
    }
}
