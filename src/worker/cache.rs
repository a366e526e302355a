//! Reference rows kept between processes, one file a key. A file that does not check out is not used; it is reported
//! on the standard error and written again. Files appear under their name only when complete.

use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::reference::ReferenceRows;
use crate::atomic::{self, Durability};
use crate::model::Key;

const MAGIC: &[u8; 16] = b"mlarun-ref-rows1";
const DIGEST_BYTES: usize = 32;
const NUMBER_BYTES: usize = 8;

/// A file of the cache cannot be used.
#[derive(Debug, thiserror::Error)]
enum CacheError {
    #[error("it is not a file of reference rows")]
    Format,
    #[error("its checksum differs: it was damaged")]
    Damaged,
    #[error("it holds rows of another selection")]
    Other,
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// The rows kept in `folder` under `key`, if they are there and check out.
pub fn read(folder: &Path, key: Key, rows: &[u64], columns: usize) -> Option<ReferenceRows> {
    let path = folder.join(file_name(key));
    match std::fs::read(&path).map_err(CacheError::from).and_then(|bytes| decode(&bytes, rows, columns)) {
        Ok(found) => Some(found),
        Err(CacheError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => {
            eprintln!("reference rows are computed again, as {} cannot be used: {error}", path.display());
            None
        }
    }
}

/// Keeps `reference` in `folder` under `key`. What the system refuses is reported on the standard error: the rows are
/// then computed again next time.
pub fn write(folder: &Path, key: Key, reference: &ReferenceRows) {
    let kept = atomic::write(&folder.join(file_name(key)), &encode(reference), Durability::Cached);
    if let Err(error) = kept {
        eprintln!("reference rows are not kept in {}: {error}", folder.display());
    }
}

fn file_name(key: Key) -> String {
    format!("{key}.rows")
}

/// Magic, number of rows, number of columns, row indices, values (little-endian), SHA-256 of all that.
fn encode(reference: &ReferenceRows) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend((reference.rows.len() as u64).to_le_bytes());
    bytes.extend((reference.columns as u64).to_le_bytes());
    bytes.extend(reference.rows.iter().flat_map(|row| row.to_le_bytes()));
    bytes.extend(reference.values.iter().flat_map(|value| value.to_le_bytes()));
    let digest = Sha256::digest(&bytes);
    bytes.extend(digest);
    bytes
}

fn decode(bytes: &[u8], rows: &[u64], columns: usize) -> Result<ReferenceRows, CacheError> {
    let body_bytes = bytes.len().checked_sub(DIGEST_BYTES).ok_or(CacheError::Format)?;
    let (body, digest) = bytes.split_at(body_bytes);
    if !body.starts_with(MAGIC) {
        return Err(CacheError::Format);
    }
    if Sha256::digest(body)[..] != *digest {
        return Err(CacheError::Damaged);
    }
    let numbers: Vec<[u8; NUMBER_BYTES]> =
        body[MAGIC.len()..].chunks_exact(NUMBER_BYTES).map(|chunk| chunk.try_into().unwrap_or_default()).collect();
    let expected = [rows.len() as u64, columns as u64].into_iter().chain(rows.iter().copied());
    let (head, values) = numbers.split_at_checked(rows.len() + 2).ok_or(CacheError::Other)?;
    let same = head.iter().map(|number| u64::from_le_bytes(*number)).eq(expected);
    if !same || values.len() != rows.len() * columns {
        return Err(CacheError::Other);
    }
    let values = values.iter().map(|number| f64::from_le_bytes(*number)).collect();
    Ok(ReferenceRows { rows: rows.to_vec(), columns, values })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> ReferenceRows {
        ReferenceRows { rows: vec![0, 3], columns: 2, values: vec![1.0, -2.5, 1e-300, 4.0] }
    }

    #[test]
    fn rows_survive_and_belong_to_their_key_and_selection() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let inner = folder.path().join("rows");
        let key = Key::of_bytes(b"one");
        write(&inner, key, &rows());
        assert_eq!(read(&inner, key, &[0, 3], 2), Some(rows()));
        assert_eq!(read(&inner, Key::of_bytes(b"other"), &[0, 3], 2), None);
        assert_eq!(read(&inner, key, &[0, 2], 2), None);
        assert_eq!(read(&inner, key, &[0, 3], 4), None);
        assert_eq!(std::fs::read_dir(&inner).expect("it is there").count(), 1);
    }

    #[test]
    fn a_damaged_file_is_never_used() {
        let bytes = encode(&rows());
        for position in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1;
            assert!(decode(&damaged, &[0, 3], 2).is_err(), "byte {position}");
            assert!(decode(&bytes[..position], &[0, 3], 2).is_err(), "cut at {position}");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_costs_nothing_but_time() {
        write(Path::new("/proc/nowhere"), Key::of_bytes(b"one"), &rows());
        assert_eq!(read(Path::new("/proc/nowhere"), Key::of_bytes(b"one"), &[0, 3], 2), None);
    }
}
