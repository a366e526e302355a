//! The note on disk about a GPU's clocks, written and synced before they are changed: what a killed program leaves behind
//! is known from it. A file a GPU beside the lease, empty while nobody holds its clocks; whoever changes them has it locked.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::device::lease::{self, Holder, POLL};
use crate::model::clocks::Frequencies;

/// A lock of clocks, and who made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locked {
    pub frequencies: Frequencies,
    pub by: Holder,
}

/// What is noted of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Noted {
    pub uuid: String,
    /// The host's boot; a lock does not outlive it.
    pub boot: String,
    /// Made by `mlarun clocks lock`, to stay until someone resets it.
    pub kept: Option<Locked>,
    /// Made for measuring, to go when its maker ends.
    pub held: Option<Locked>,
}

/// The note cannot be read, written or had.
#[derive(Debug, thiserror::Error)]
pub enum NoteError {
    #[error("the clocks of {uuid} are in the hands of {}; wait for it, or end it", named(holder.as_ref()))]
    Taken { uuid: String, holder: Option<Holder> },
    #[error(
        "{}: the note about a GPU's clocks cannot be kept: {error}; set MLARUN_LEASE_DIR to a folder that all users of \
         this host can write to",
        path.display()
    )]
    Io { path: PathBuf, error: std::io::Error },
}

fn named(holder: Option<&Holder>) -> String {
    holder.map_or_else(|| "a process that gave no name".to_owned(), Holder::to_string)
}

/// Longest wait for a note whose owner has just died: its watcher gives the clocks back meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);

/// The note of one GPU, locked. The lock goes when every process that has been given the file is gone.
#[derive(Debug)]
pub struct Note {
    path: PathBuf,
    uuid: String,
    file: File,
}

impl Note {
    /// Takes the note of the GPU `uuid` in `folder`. Where its owner has died, waits for the watcher to end.
    ///
    /// # Errors
    /// A living process has it, or a dead one's watcher for too long, or the file cannot be made, opened or locked.
    pub fn take(folder: &Path, uuid: &str) -> Result<Note, NoteError> {
        let path = place(folder, uuid);
        let io = |error| NoteError::Io { path: path.clone(), error };
        let file = lease::open(folder, &path).map_err(io)?;
        let started = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Note { path, uuid: uuid.to_owned(), file }),
                Err(std::fs::TryLockError::WouldBlock) => {}
                Err(std::fs::TryLockError::Error(error)) => return Err(io(error)),
            }
            let noted = read(&file).map_err(io)?;
            let holder = noted.and_then(|noted| noted.held).map(|locked| locked.by);
            if started.elapsed() > PATIENCE || holder.as_ref().is_some_and(is_running) {
                return Err(NoteError::Taken { uuid: uuid.to_owned(), holder });
            }
            std::thread::sleep(POLL);
        }
    }

    /// The note that this process was given as `file`, locked by whoever gave it.
    pub fn given(file: File) -> Option<Note> {
        let noted = read(&file).ok()??;
        Some(Note { path: PathBuf::from("the note about a GPU's clocks"), uuid: noted.uuid, file })
    }

    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// The file, for a process that is to hold the note as well.
    ///
    /// # Errors
    /// The system is out of file descriptors.
    pub fn share(&self) -> Result<File, NoteError> {
        self.file.try_clone().map_err(self.io())
    }

    /// What it says; `None` where it says nothing.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&self) -> Result<Option<Noted>, NoteError> {
        read(&self.file).map_err(self.io())
    }

    /// Writes it so that it survives a crash of the host from here on.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, kept: Option<&Locked>, held: Option<&Locked>) -> Result<(), NoteError> {
        let text = match (kept, held) {
            (None, None) => Vec::new(),
            _ => {
                let boot = boot();
                let noted = Noted { uuid: self.uuid.clone(), boot, kept: kept.cloned(), held: held.cloned() };
                serde_json::to_vec(&noted).map_err(|error| self.io()(error.into()))?
            }
        };
        self.replace(&text).map_err(self.io())
    }

    /// A reader takes the first value, so that the rest of a longer text before it, left by a crash between the two steps,
    /// does no harm.
    fn replace(&self, text: &[u8]) -> std::io::Result<()> {
        let mut file = &self.file;
        file.rewind()?;
        file.write_all(text)?;
        file.set_len(text.len() as u64)?;
        file.sync_all()
    }

    fn io(&self) -> impl FnOnce(std::io::Error) -> NoteError {
        let path = self.path.clone();
        move |error| NoteError::Io { path, error }
    }
}

/// GPUs of which a note in `folder` says something.
pub fn uuids(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let written = entries.filter(|entry| entry.metadata().is_ok_and(|meta| meta.is_file() && meta.len() > 0));
    let mut uuids: Vec<String> = written
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some(name.strip_prefix("clocks-")?.strip_suffix(".json")?.to_owned())
        })
        .collect();
    uuids.sort();
    uuids
}

/// What the note of a GPU says, and whether a process has it in its hands. Waits for nobody.
///
/// # Errors
/// It is there and cannot be read.
pub fn look(folder: &Path, uuid: &str) -> Result<(Option<Noted>, bool), NoteError> {
    let path = place(folder, uuid);
    let io = |error| NoteError::Io { path: path.clone(), error };
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((None, false)),
        Err(error) => return Err(io(error)),
    };
    let is_taken = matches!(file.try_lock_shared(), Err(std::fs::TryLockError::WouldBlock));
    Ok((read(&file).map_err(io)?, is_taken))
}

/// Whether the process is there and does something; one that only waits to be looked at does not.
fn is_running(holder: &Holder) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", holder.pid));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')))
}

fn place(folder: &Path, uuid: &str) -> PathBuf {
    folder.join(format!("clocks-{uuid}.json"))
}

fn read(mut file: &File) -> std::io::Result<Option<Noted>> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(serde_json::Deserializer::from_str(&text).into_iter().next().and_then(Result::ok))
}

/// Identity of the host's boot; the same in its containers.
pub fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "GPU-1";

    fn locked(sm_mhz: u32) -> Locked {
        Locked { frequencies: Frequencies { sm_mhz, mem_mhz: None }, by: Holder::of_process() }
    }

    #[test]
    fn a_note_says_what_was_written_until_it_is_cleared() {
        let folder = tempfile::tempdir().expect("a folder");
        let note = Note::take(folder.path(), UUID).expect("free");
        assert_eq!(note.read().expect("readable"), None);
        assert!(uuids(folder.path()).is_empty());
        note.write(Some(&locked(1400)), Some(&locked(1500))).expect("written");
        let shorter = locked(900);
        note.write(None, Some(&shorter)).expect("written");
        let noted = note.read().expect("readable").expect("a note");
        assert_eq!((noted.uuid.as_str(), noted.kept, noted.held), (UUID, None, Some(shorter)));
        assert_eq!(uuids(folder.path()), [UUID]);
        note.write(None, None).expect("written");
        assert!(uuids(folder.path()).is_empty());
    }

    #[test]
    fn a_note_is_in_the_hands_of_whoever_was_given_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let note = Note::take(folder.path(), UUID).expect("free");
        note.write(None, Some(&locked(1500))).expect("written");
        let shared = note.share().expect("a file");
        drop(note);
        assert!(look(folder.path(), UUID).expect("readable").1, "the file that was shared has it");
        let given = Note::given(shared).expect("a note");
        assert_eq!(given.uuid(), UUID);
        drop(given);
        // A process that another test is just starting shares the lock for a moment after it was given back.
        let started = Instant::now();
        let is_taken = || look(folder.path(), UUID).expect("readable").1;
        while is_taken() {
            assert!(started.elapsed().as_secs() < 60, "nobody has it any more");
            std::thread::yield_now();
        }
        let (noted, _) = look(folder.path(), UUID).expect("readable");
        assert!(noted.is_some_and(|noted| noted.held.is_some()), "left behind");
        assert!(Note::given(tempfile::tempfile().expect("a file")).is_none());
    }
}
