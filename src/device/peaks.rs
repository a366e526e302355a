//! Measured peaks of this host, kept under `.cache/devices/`. Those of data sheets are configuration, not this.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::atomic::{self, Durability};
use crate::model::record::{FORMAT, Format};
use crate::model::{DeviceId, Key, Peaks};

/// Measured peaks cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum PeaksError {
    #[error("{}: {error}; check that the folder can be read and written", path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error("{}: {reason}; delete it and run `mlarun device calibrate`", path.display())]
    Damaged { path: PathBuf, reason: String },
}

/// Contents of a file.
#[derive(Debug, Serialize, Deserialize)]
struct Calibration {
    format: Format,
    device: DeviceId,
    /// The compiler that made the measuring kernels.
    compiler: serde_json::Value,
    peaks: Peaks,
}

/// Peaks of `device` measured with kernels of `compiler`; `None` where it was not calibrated. `cache` is the project's
/// `.cache`.
///
/// # Errors
/// The file is there but cannot be read or is damaged.
pub fn load_measured(cache: &Path, device: &DeviceId, compiler: &impl Serialize) -> Result<Option<Peaks>, PeaksError> {
    let (path, compiler) = place(cache, device, compiler);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(PeaksError::Io { path, error }),
    };
    let damaged = |reason: String| PeaksError::Damaged { path: path.clone(), reason };
    let found: Calibration = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    if found.format.major != FORMAT.major {
        return Err(damaged(format!("format {}.{} is not known", found.format.major, found.format.minor)));
    }
    if found.device != *device || found.compiler != compiler {
        return Err(damaged("it holds the peaks of another device or compiler".into()));
    }
    Ok(Some(found.peaks))
}

/// Stores measured peaks, in place of earlier ones, and gives the file's path.
///
/// # Errors
/// The file cannot be written.
pub fn save_measured(
    cache: &Path,
    device: &DeviceId,
    compiler: &impl Serialize,
    peaks: &Peaks,
) -> Result<PathBuf, PeaksError> {
    let (path, compiler) = place(cache, device, compiler);
    let calibration = Calibration { format: FORMAT, device: device.clone(), compiler, peaks: peaks.clone() };
    let text = serde_json::to_vec_pretty(&calibration).map_err(std::io::Error::from);
    let written = text.and_then(|text| atomic::write(&path, &text, Durability::Synced));
    written.map_err(|error| PeaksError::Io { path: path.clone(), error })?;
    Ok(path)
}

/// The file of a device and a compiler, and the compiler as JSON.
fn place(cache: &Path, device: &DeviceId, compiler: &impl Serialize) -> (PathBuf, serde_json::Value) {
    let compiler = serde_json::to_value(compiler).expect("a compiler's identity serialises to JSON");
    let key = Key::of("peaks/1", &(device, &compiler));
    (cache.join("devices").join(format!("{key}.json")), compiler)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::device::PeakSource;
    use crate::model::{DType, DeviceKind};

    fn device(units: u32) -> DeviceId {
        DeviceId { kind: DeviceKind::Cpu, name: "CPU".into(), uuid: None, units }
    }

    fn peaks() -> Peaks {
        Peaks {
            flops_per_s: [(DType::Float32, 1.234_567_890_123e11)].into(),
            bytes_per_s: 2.0e10 / 3.0,
            at_sm_mhz: std::collections::BTreeMap::new(),
            source: PeakSource::Measured { taken_at: jiff::Timestamp::UNIX_EPOCH },
        }
    }

    #[test]
    fn peaks_belong_to_a_device_and_a_compiler() {
        let cache = tempfile::tempdir().expect("a folder");
        let load =
            |device: &DeviceId, compiler: &str| load_measured(cache.path(), device, &compiler).expect("readable");
        assert_eq!(load(&device(2), "cc 12"), None);
        save_measured(cache.path(), &device(2), &"cc 12", &peaks()).expect("saved");
        assert_eq!(load(&device(2), "cc 12"), Some(peaks()));
        assert_eq!(load(&device(4), "cc 12"), None);
        assert_eq!(load(&device(2), "cc 13"), None);
    }

    #[test]
    fn damaged_peaks_are_an_error_that_says_what_to_do() {
        let cache = tempfile::tempdir().expect("a folder");
        let path = save_measured(cache.path(), &device(2), &"cc", &peaks()).expect("saved");
        let text = fs::read_to_string(&path).expect("text");
        for spoilt in
            [text[..40].to_owned(), text.replace("\"CPU\"", "\"GPU\""), text.replace("\"major\": 1", "\"major\": 9")]
        {
            fs::write(&path, spoilt).expect("spoilt");
            let error = load_measured(cache.path(), &device(2), &"cc").expect_err("damaged");
            assert!(error.to_string().contains("mlarun device calibrate"), "{error}");
        }
    }
}
