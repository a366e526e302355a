//! The store's files: names, checks, quarantine. Knows nothing of the index.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::envelope::{self, Fault};
use super::{Durability, FORMAT, Format, Record, RecordKind, SetAside, StoreError, atomic, io, unkept};
use crate::failpoint;
use crate::model::{DeviceId, Key};

/// Size and time of change of a file: equal for a file that was not touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Stamp {
    pub bytes: u64,
    /// Nanoseconds since 1970.
    pub changed_ns: i64,
}

impl Stamp {
    pub fn of(meta: &Metadata) -> Stamp {
        Stamp { bytes: meta.size(), changed_ns: meta.mtime() * 1_000_000_000 + meta.mtime_nsec() }
    }
}

/// What a file turned out to be.
pub enum Found {
    Record(Box<Record>),
    Faulty(Fault),
    /// Removed by another program.
    Gone,
}

/// Folders of a store.
#[derive(Debug)]
pub struct Files {
    records: PathBuf,
    quarantine: PathBuf,
}

/// Name of the body in a record's file.
pub(crate) const RECORD: &str = "record";

impl Files {
    /// Makes the folders below `out`, tries whether they can be written to, and checks the format.
    pub fn open(out: &Path) -> Result<Files, StoreError> {
        let store = out.join("store");
        let files = Files { records: store.join("records"), quarantine: store.join("quarantine") };
        let unwritable = |error| StoreError::Unwritable { path: out.to_owned(), error };
        for folder in [&files.records, &files.quarantine] {
            atomic::check_below(out, folder).map_err(unwritable)?;
        }
        fs::create_dir_all(&files.records).map_err(unwritable)?;
        for folder in [out, &files.records] {
            tempfile::tempfile_in(folder).map_err(unwritable)?;
        }
        check_format(&store.join("format.json"))?;
        Ok(files)
    }

    /// Every record file with its stamp, by path relative to the folder of records.
    pub fn walk(&self) -> Result<BTreeMap<String, Stamp>, StoreError> {
        let mut groups = Vec::new();
        for kind in RecordKind::ALL {
            groups.extend(folders(&self.records.join(kind.name()))?.into_iter().map(|group| (kind, group)));
        }
        let found: Vec<Vec<(String, Stamp)>> =
            groups.par_iter().map(|(kind, group)| walk_group(*kind, group)).collect::<Result<_, _>>()?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Files of one key, by name.
    pub fn of_key(&self, kind: RecordKind, key: &Key) -> Result<Vec<PathBuf>, StoreError> {
        let group = self.group(kind, key);
        let files = entries(&group)?.into_iter().filter(is_record).map(|entry| entry.path());
        let mut files: Vec<PathBuf> = files.filter(|path| is_of(path, key)).collect();
        files.sort();
        Ok(files)
    }

    /// Reads and checks one file.
    pub fn read(&self, path: &Path) -> Result<Found, StoreError> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Gone),
            Err(error) => return Err(io(path)(error)),
        };
        match envelope::decode::<Record>(RECORD, &text).and_then(|record| self.checked(record, path)) {
            Ok(record) => Ok(Found::Record(Box::new(record))),
            Err(Fault::Newer(found)) => Err(StoreError::Newer { path: path.to_owned(), found }),
            Err(fault) => Ok(Found::Faulty(fault)),
        }
    }

    /// The file lies where the record's key says.
    fn checked(&self, record: Record, path: &Path) -> Result<Record, Fault> {
        if path.parent() != Some(&self.group(record.kind, &record.key)) || !is_of(path, &record.key) {
            return Err(Fault::Misplaced { kind: record.kind.name().to_owned(), key: record.key });
        }
        let measured_on = &record.environment.device.id;
        if let Some(device) = record.material.pointer("/subject/device")
            && serde_json::from_value::<DeviceId>(device.clone()).ok().as_ref() != Some(measured_on)
        {
            return Err(Fault::Foreign { device: measured_on.to_string() });
        }
        Ok(record)
    }

    /// Writes `record` to a new file.
    pub fn append(&self, record: &Record) -> Result<(PathBuf, Stamp), StoreError> {
        let folder = self.group(record.kind, &record.key);
        let text =
            envelope::encode(RECORD, record).map_err(|error| StoreError::Json { path: folder.clone(), error })?;
        atomic::check_below(&self.records, &folder).map_err(unkept(&folder))?;
        for attempt in 0_u32.. {
            let path = folder.join(file_name(record, attempt));
            match atomic::create(&path, &text, Durability::Synced) {
                Ok(()) => {
                    let stamp = Stamp::of(&fs::metadata(&path).map_err(io(&path))?);
                    return Ok((path, stamp));
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(unkept(&path)(error)),
            }
        }
        unreachable!("the loop ends only by returning")
    }

    /// Moves a file into the quarantine, its reason beside it.
    pub fn set_aside(&self, path: &Path, fault: &Fault) -> Result<SetAside, StoreError> {
        fs::create_dir_all(&self.quarantine).map_err(io(&self.quarantine))?;
        let reason = fault.to_string();
        let relative = self.relative(path).replace('/', "-");
        let to = (0_u32..)
            .map(|number| {
                self.quarantine.join(if number == 0 { relative.clone() } else { format!("{relative}.{number}") })
            })
            .find(|to| !to.exists())
            .unwrap_or_else(|| self.quarantine.join(&relative));
        let beside = PathBuf::from(format!("{}.reason", to.display()));
        atomic::write(&beside, format!("{}: {reason}\n", path.display()).as_bytes(), Durability::Synced)
            .map_err(io(&beside))?;
        failpoint::here("quarantine.explained");
        fs::rename(path, &to).map_err(io(path))?;
        Ok(SetAside { from: path.to_owned(), to, reason })
    }

    /// Removes a record.
    pub fn remove(&self, path: &Path) -> Result<(), StoreError> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(io(path)(error)),
            _ => Ok(()),
        }
    }

    /// Stamp of one file; `None` where it is gone.
    pub fn stamp(&self, path: &Path) -> Result<Option<Stamp>, StoreError> {
        match fs::metadata(path) {
            Ok(meta) => Ok(Some(Stamp::of(&meta))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io(path)(error)),
        }
    }

    /// Path of a file relative to the folder of records.
    pub fn relative(&self, path: &Path) -> String {
        path.strip_prefix(&self.records).unwrap_or(path).to_string_lossy().into_owned()
    }

    /// The inverse of [`Files::relative`].
    pub fn absolute(&self, relative: &str) -> PathBuf {
        self.records.join(relative)
    }

    /// Folder of the records whose keys begin alike. One folder a key would double the time of a walk.
    fn group(&self, kind: RecordKind, key: &Key) -> PathBuf {
        self.records.join(kind.name()).join(&key.to_string()[..2])
    }
}

/// The file's name begins with `key`.
fn is_of(path: &Path, key: &Key) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(format!("{key}-").as_bytes()))
}

/// `<key>-<taken at>-<session>-<round>.json`; names of one key sort by time. Further records of that name are numbered.
pub(crate) fn file_name(record: &Record, attempt: u32) -> String {
    let position = &record.position;
    let safe = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let session: String = position.session.chars().map(safe).collect();
    let taken_at = position.taken_at.strftime("%Y%m%dT%H%M%S.%9fZ");
    let number = if attempt == 0 { String::new() } else { format!("-{attempt}") };
    format!("{}-{taken_at}-{session}-{}{number}.json", record.key, position.round)
}

fn walk_group(kind: RecordKind, group: &Path) -> Result<Vec<(String, Stamp)>, StoreError> {
    let mut found = Vec::new();
    let prefix = format!("{}/{}", kind.name(), group.file_name().unwrap_or_default().to_string_lossy());
    for entry in entries(group)?.iter().filter(|entry| is_record(entry)) {
        match entry.metadata() {
            Ok(meta) => found.push((format!("{prefix}/{}", entry.file_name().to_string_lossy()), Stamp::of(&meta))),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(io(&entry.path())(error)),
        }
    }
    Ok(found)
}

/// A finished record, as far as its name says.
fn is_record(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    let name = name.as_encoded_bytes();
    name.ends_with(b".json") && !name.starts_with(b".")
}

fn folders(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let is_folder = |entry: &&DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    Ok(entries(folder)?.iter().filter(is_folder).map(DirEntry::path).collect())
}

/// Entries of a folder; none where it does not exist.
fn entries(folder: &Path) -> Result<Vec<DirEntry>, StoreError> {
    match fs::read_dir(folder) {
        Ok(list) => list.collect::<Result<_, _>>().map_err(io(folder)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(io(folder)(error)),
    }
}

/// Writes the store's format where there is none yet, and refuses a newer one.
fn check_format(path: &Path) -> Result<(), StoreError> {
    match fs::read(path) {
        Ok(text) => match serde_json::from_slice::<Format>(&text) {
            Ok(found) if found.major > FORMAT.major => Err(StoreError::Newer { path: path.to_owned(), found }),
            Ok(_) => Ok(()),
            // Every record carries its own format; a damaged note about all of them is written again.
            Err(_) => write_format(path),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => write_format(path),
        Err(error) => Err(io(path)(error)),
    }
}

fn write_format(path: &Path) -> Result<(), StoreError> {
    let text = serde_json::to_vec(&FORMAT).map_err(|error| StoreError::Json { path: path.to_owned(), error })?;
    atomic::write(path, &text, Durability::Synced).map_err(io(path))
}
