//! Writes files and folders so that a reader sees all of one or none of it. Knows nothing of what is written.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tempfile::{NamedTempFile, TempDir};
use walkdir::WalkDir;

use crate::failpoint;

/// How the names of files and folders begin that are being written: walks over a folder's `*.json` pass them over.
const WRITING: &str = ".writing-";

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
    failpoint::here("atomic.renamed");
    sync_folder(folder, durability)
}

/// As [`write()`], but never replaces a file.
///
/// # Errors
/// As [`write()`], and [`io::ErrorKind::AlreadyExists`] where there is a file.
pub fn create(path: &Path, bytes: &[u8], durability: Durability) -> io::Result<()> {
    let (folder, file) = written(path, bytes, durability)?;
    file.persist_noclobber(path)?;
    failpoint::here("atomic.renamed");
    sync_folder(folder, durability)
}

/// The bytes under a temporary name in the folder of `path`.
fn written<'a>(path: &'a Path, bytes: &[u8], durability: Durability) -> io::Result<(&'a Path, NamedTempFile)> {
    let folder = path.parent().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
    fs::create_dir_all(folder)?;
    let mut file = begun(folder)?;
    failpoint::here("atomic.begun");
    file.write_all(bytes)?;
    file.as_file().set_permissions(Permissions::from_mode(0o644))?;
    if durability == Durability::Synced {
        file.as_file().sync_all()?;
    }
    failpoint::here("atomic.written");
    Ok((folder, file))
}

/// A new file in `folder`. Its lock says that its writer lives.
fn begun(folder: &Path) -> io::Result<NamedTempFile> {
    loop {
        let file = tempfile::Builder::new().prefix(WRITING).tempfile_in(folder)?;
        // A file system without locks has nothing that could be swept either.
        let _ = file.as_file().lock();
        // Between its making and its locking, another program may have swept it.
        if file.path().exists() {
            return Ok(file);
        }
    }
}

/// A folder that grows under a temporary name; its lock says that its maker lives. Dropped unnamed, it goes.
#[derive(Debug)]
pub struct Growing {
    folder: TempDir,
    _lock: File,
}

impl Growing {
    /// A new folder in `parent`, which is made where it is missing.
    ///
    /// # Errors
    /// One of them cannot be made.
    pub fn begin(parent: &Path) -> io::Result<Growing> {
        fs::create_dir_all(parent)?;
        loop {
            let mut builder = tempfile::Builder::new();
            let folder = builder.prefix(WRITING).permissions(Permissions::from_mode(0o755)).tempdir_in(parent)?;
            let lock = File::open(folder.path()).and_then(|lock| lock.lock().map(|()| lock));
            // Between its making and its locking, another program may have swept it.
            match lock {
                Ok(_lock) if folder.path().exists() => return Ok(Growing { folder, _lock }),
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }

    /// Where it is now.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Gives it its name `path`, in a folder that exists.
    ///
    /// # Errors
    /// There is something already, or the folder cannot be renamed.
    pub fn name(&mut self, path: &Path) -> io::Result<()> {
        fs::rename(self.folder.path(), path)?;
        self.folder.disable_cleanup(true);
        Ok(())
    }
}

/// Removes what writers that were killed have left below `folder`. A living writer holds the lock of what it writes.
pub fn sweep(folder: &Path) {
    // What cannot be read or removed now is in nobody's way, and is tried again by the next program.
    let entries = WalkDir::new(folder).into_iter().filter_map(Result::ok);
    let is_left = |entry: &walkdir::DirEntry| entry.file_name().as_encoded_bytes().starts_with(WRITING.as_bytes());
    for entry in entries.filter(is_left) {
        let Ok(file) = File::open(entry.path()) else { continue };
        if file.try_lock().is_ok() {
            let _ = match entry.file_type().is_dir() {
                true => fs::remove_dir_all(entry.path()),
                false => fs::remove_file(entry.path()),
            };
        }
    }
}

/// Checks that `path`, whose folders need not exist, lies below `root` when links are followed: what a project's own files
/// say must not lead a write elsewhere.
///
/// # Errors
/// It lies outside, or a folder on the way cannot be looked at.
pub fn check_below(root: &Path, path: &Path) -> io::Result<()> {
    let Ok(root) = root.canonicalize() else { return Ok(()) };
    for part in path.ancestors() {
        match part.canonicalize() {
            Ok(real) if real.starts_with(&root) => return Ok(()),
            Ok(real) => {
                let message = format!("{} leads to {}, outside {}", part.display(), real.display(), root.display());
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
            }
            // What does not exist yet links to nothing; a link into nothing might, once that exists.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !part.is_symlink() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
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
    fn what_a_dead_writer_left_is_swept_and_what_a_living_one_writes_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let below = folder.path().join("a/b");
        fs::create_dir_all(&below).expect("folders");
        let dead = below.join(".writing-dead");
        fs::write(&dead, "half").expect("a file");
        fs::write(below.join("kept.json"), "{}").expect("a file");
        let dead_folder = folder.path().join(".writing-folder");
        fs::create_dir_all(dead_folder.join("within")).expect("folders");
        let living = begun(&below).expect("a file");
        let mut growing = Growing::begin(&below).expect("a folder");
        sweep(folder.path());
        assert!(!dead.exists() && !dead_folder.exists());
        assert!(living.path().exists() && growing.path().exists() && below.join("kept.json").exists());
        growing.name(&below.join("named")).expect("renamed");
        drop(growing);
        assert!(below.join("named").is_dir());
    }

    #[test]
    fn a_path_that_leaves_its_folder_by_a_link_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let (root, elsewhere) = (folder.path().join("out"), folder.path().join("elsewhere"));
        assert!(check_below(&root, &root.join("a/b")).is_ok(), "nothing is there yet");
        fs::create_dir_all(root.join("a")).expect("folders");
        fs::create_dir_all(&elsewhere).expect("a folder");
        std::os::unix::fs::symlink(&elsewhere, root.join("link")).expect("a link");
        std::os::unix::fs::symlink("nowhere", root.join("dangling")).expect("a link");
        std::os::unix::fs::symlink(root.join("a"), root.join("inside")).expect("a link");
        std::os::unix::fs::symlink(&root, folder.path().join("other")).expect("a link");
        for path in ["a", "a/new/file", "new", "inside/new"] {
            assert!(check_below(&root, &root.join(path)).is_ok(), "{path}");
            assert!(check_below(&folder.path().join("other"), &folder.path().join("other").join(path)).is_ok());
        }
        for path in ["link", "link/new", "dangling", "dangling/new", "a/../../elsewhere/new"] {
            assert!(check_below(&root, &root.join(path)).is_err(), "{path}");
        }
        assert!(check_below(&root, &elsewhere).is_err());
    }

    #[test]
    fn a_failed_write_leaves_no_file() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("file"), "").expect("a file");
        assert!(write(&folder.path().join("file/below"), b"1", Durability::Cached).is_err());
    }
}
