//! What calibrations have gathered: processes of identical code, sitting by sitting, each in a file of its own that grows by a
//! line a process. They are measurements; nothing here removes one.
//!
//! ```text
//! out/store/calibrations/<device, driver and clocks>/<session>.jsonl
//! out/store/calibrations/<device, driver and clocks>/judged.json       what they show, in short; made again from them
//! ```
//!
//! A line is either what the sitting is, `{"format": …, "sitting": …}`, or a process, `[kernel, turn, slower by, ns, SM MHz]`
//! with what disturbed it behind that. Files laid one behind another are such a file again: so sittings of several hosts come
//! together. A last line that was cut off is passed over; any other that cannot be read is an error.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::envelope::{self, Fault};
use crate::atomic::{self, Durability};
use crate::model::calibration::HostCalibration;
use crate::model::clocks::ClockState;
use crate::model::record::{FORMAT, Format};
use crate::model::{DeviceId, KernelId, Key, Shape, Timing};
use crate::stats::verdict::{Process, Taint};

/// File of what a folder's sittings show, and its body's name there.
const JUDGED: &str = "judged.json";
const CALIBRATION: &str = "calibration";

/// Processes that are written before the file is synced: a loss of power takes fewer.
const SYNCED: usize = 16;

/// What cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum CalibrationsError {
    #[error("{}: {error}; check that it can be read, and its folder written to", path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error("{}:{line}: {reason}; move the line or the file away if it is none of `mlarun calibrate`'s", path.display())]
    Line { path: PathBuf, line: usize, reason: String },
    #[error("{}: {fault}; delete it, and `mlarun calibrate --judge` makes it again", path.display())]
    Judged { path: PathBuf, fault: Fault },
    #[error("{}: written in format {}.{} by a newer mlarun; use that one", path.display(), found.major, found.minor)]
    Newer { path: PathBuf, found: Format },
}

/// What all processes of a sitting have in common.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct About {
    pub taken_at: Timestamp,
    pub session: String,
    pub device: DeviceId,
    /// Of a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    pub clocks: ClockState,
    pub compiler: String,
    pub mlarun: String,
    /// Processes name them by their place here.
    pub kernels: Vec<Kernel>,
}

/// A kernel at the size at which it ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    pub name: String,
    pub id: KernelId,
    pub shape: Shape,
    /// What its processes' times are medians of.
    pub timing: Timing,
    /// By which part it was also made slower, and with how many spins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slowed: Vec<(f64, i64)>,
}

/// One fresh process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Visit {
    /// Place of its kernel in [`About::kernels`].
    pub kernel: usize,
    /// Every turn runs every kernel once, and some of them once more, slower.
    pub turn: u32,
    /// Part of its time by which it was made longer; 0 as it is.
    pub slower_by: f64,
    pub process: Process,
    /// Why it has no time.
    pub failure: Option<String>,
}

/// A process as its line has it.
#[derive(Serialize, Deserialize)]
struct Written(usize, u32, f64, Option<f64>, Option<f64>, Vec<Taint>, Option<String>);

impl From<Visit> for Written {
    fn from(visit: Visit) -> Written {
        let Visit { kernel, turn, slower_by, process: Process { ns, sm_mhz, taints }, failure } = visit;
        Written(kernel, turn, slower_by, ns, sm_mhz, taints, failure)
    }
}

impl From<Written> for Visit {
    fn from(Written(kernel, turn, slower_by, ns, sm_mhz, taints, failure): Written) -> Visit {
        Visit { kernel, turn, slower_by, process: Process { ns, sm_mhz, taints }, failure }
    }
}

/// Processes that ran one after another.
#[derive(Debug, Clone, PartialEq)]
pub struct Sitting {
    pub about: About,
    pub visits: Vec<Visit>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    format: Format,
    sitting: About,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Header(Box<Header>),
    Visit(Visit),
}

/// Folder below `out` for sittings on `device` with this driver at these clocks.
pub fn folder(out: &Path, device: &DeviceId, driver: Option<&str>, clocks: &ClockState) -> PathBuf {
    let key = Key::of("calibration/1", &(device, driver, clocks.to_string()));
    out.join("store/calibrations").join(key.to_string())
}

/// Every sitting of a folder, oldest first; none where there is no folder.
///
/// # Errors
/// See [`CalibrationsError`].
pub fn sittings(folder: &Path) -> Result<Vec<Sitting>, CalibrationsError> {
    let failed = |error| CalibrationsError::Io { path: folder.to_owned(), error };
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let of_sittings = paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    let mut sittings: Vec<Sitting> =
        of_sittings.map(|path| read(path)).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    sittings.sort_by(|a, b| (a.about.taken_at, &a.about.session).cmp(&(b.about.taken_at, &b.about.session)));
    Ok(sittings)
}

/// The sittings of one file, in its order.
///
/// # Errors
/// See [`CalibrationsError`].
pub fn read(path: &Path) -> Result<Vec<Sitting>, CalibrationsError> {
    let text = fs::read_to_string(path).map_err(|error| CalibrationsError::Io { path: path.to_owned(), error })?;
    let mut sittings: Vec<Sitting> = Vec::new();
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let fault = |reason: &str| CalibrationsError::Line {
            path: path.to_owned(),
            line: index + 1,
            reason: reason.to_owned(),
        };
        match (serde_json::from_str(line), sittings.last_mut()) {
            // Its writer was stopped within it.
            (Err(_), _) if !line.ends_with('\n') => {}
            (Err(error), _) => return Err(fault(&format!("no line of a calibration ({error})"))),
            (Ok(Line::Header(header)), _) if header.format.major > FORMAT.major => {
                return Err(CalibrationsError::Newer { path: path.to_owned(), found: header.format });
            }
            (Ok(Line::Header(header)), _) => sittings.push(Sitting { about: header.sitting, visits: Vec::new() }),
            (Ok(Line::Visit(visit)), Some(sitting)) if visit.kernel < sitting.about.kernels.len() => {
                sitting.visits.push(visit);
            }
            (Ok(Line::Visit(_)), Some(_)) => return Err(fault("a process of a kernel that the sitting does not name")),
            (Ok(Line::Visit(_)), None) => return Err(fault("a process before any sitting")),
        }
    }
    Ok(sittings)
}

/// The text of sittings, as [`read`] takes it.
fn text(sittings: &[Sitting]) -> String {
    sittings
        .iter()
        .map(|sitting| header(&sitting.about) + &sitting.visits.iter().map(line).collect::<String>())
        .collect()
}

/// Writes sittings to `path`, as [`read`] takes them, in place of what was there.
///
/// # Errors
/// It cannot be written.
pub fn export(path: &Path, sittings: &[Sitting]) -> Result<(), CalibrationsError> {
    let written =
        std::path::absolute(path).and_then(|path| atomic::write(&path, text(sittings).as_bytes(), Durability::Synced));
    written.map_err(|error| CalibrationsError::Io { path: path.to_owned(), error })
}

/// Where what the sittings of `folder` show is kept.
pub fn judged_file(folder: &Path) -> PathBuf {
    folder.join(JUDGED)
}

/// Keeps what the sittings of `folder` show, in place of what they showed before.
///
/// # Errors
/// It cannot be written.
pub fn save_judged(folder: &Path, host: &HostCalibration) -> Result<(), CalibrationsError> {
    let path = judged_file(folder);
    let written = envelope::encode(CALIBRATION, host)
        .map_err(std::io::Error::from)
        .and_then(|text| atomic::write(&path, &text, Durability::Synced));
    written.map_err(|error| CalibrationsError::Io { path, error })
}

/// What the sittings of `folder` showed when they were last judged; `None` where they never were.
///
/// # Errors
/// There is something, and it cannot be read.
pub fn judged(folder: &Path) -> Result<Option<HostCalibration>, CalibrationsError> {
    let path = judged_file(folder);
    match fs::read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CalibrationsError::Io { path, error }),
        Ok(text) => match envelope::decode(CALIBRATION, &text) {
            Ok(host) => Ok(Some(host)),
            Err(fault) => Err(CalibrationsError::Judged { path, fault }),
        },
    }
}

fn header(about: &About) -> String {
    line(&Header { format: FORMAT, sitting: about.clone() })
}

fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("it serialises to JSON") + "\n"
}

/// A sitting that is being written.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: File,
    unsynced: usize,
}

impl Writer {
    /// Begins a file for a sitting in `folder`, which is made where it is missing, below `out`.
    ///
    /// # Errors
    /// It cannot be written, or there is one of this session.
    pub fn begin(out: &Path, folder: &Path, about: &About) -> Result<Writer, CalibrationsError> {
        let path = folder.join(format!("{}.jsonl", about.session));
        let begun = atomic::check_below(out, folder)
            .and_then(|()| fs::create_dir_all(folder))
            .and_then(|()| File::options().append(true).create_new(true).open(&path))
            .and_then(|mut file| {
                file.write_all(header(about).as_bytes()).and_then(|()| file.sync_all()).map(|()| file)
            });
        match begun {
            Ok(file) => Ok(Writer { path, file, unsynced: 0 }),
            Err(error) => Err(CalibrationsError::Io { path, error }),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a process.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn append(&mut self, visit: &Visit) -> Result<(), CalibrationsError> {
        self.unsynced += 1;
        let written = self.file.write_all(line(visit).as_bytes());
        let written = written.and_then(|()| if self.unsynced < SYNCED { Ok(()) } else { self.file.sync_data() });
        self.unsynced %= SYNCED;
        written.map_err(|error| CalibrationsError::Io { path: self.path.clone(), error })
    }

    /// Ends the file.
    ///
    /// # Errors
    /// It cannot be synced.
    pub fn finish(self) -> Result<(), CalibrationsError> {
        self.file.sync_all().map_err(|error| CalibrationsError::Io { path: self.path, error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{DeviceKind, Language, Version};

    fn about(session: &str, second: i64) -> About {
        let id = KernelId { kernel: "spin_copy".into(), version: Version::BASE, language: Language::C };
        About {
            taken_at: Timestamp::from_second(second).expect("a time"),
            session: session.into(),
            device: DeviceId { kind: DeviceKind::Cpu, name: "CPU".into(), uuid: None, units: 2 },
            driver: None,
            clocks: ClockState::None,
            compiler: "cc".into(),
            mlarun: "0".into(),
            kernels: vec![Kernel {
                name: "copy".into(),
                id,
                shape: Shape::default(),
                timing: Timing::ColdIsolated,
                slowed: vec![(0.01, 70)],
            }],
        }
    }

    fn visit(turn: u32, ns: Option<f64>) -> Visit {
        let process =
            Process { ns, sm_mhz: Some(1980.0), taints: ns.is_none().then_some(Taint::Xid).into_iter().collect() };
        Visit { kernel: 0, turn, slower_by: 0.01, process, failure: ns.is_none().then(|| "gone".to_owned()) }
    }

    fn written(out: &Path, about: &About, visits: &[Visit]) -> PathBuf {
        let folder = folder(out, &about.device, None, &about.clocks);
        let mut writer = Writer::begin(out, &folder, about).expect("begun");
        visits.iter().for_each(|visit| writer.append(visit).expect("kept"));
        let path = writer.path().to_owned();
        writer.finish().expect("synced");
        path
    }

    #[test]
    fn sittings_come_back_as_they_were_oldest_first() {
        let out = tempfile::tempdir().expect("a folder");
        let visits: Vec<Visit> = (0..40).map(|turn| visit(turn, Some(f64::from(turn) + 0.1))).collect();
        let later = about("b", 9);
        let path = written(out.path(), &later, &visits);
        written(out.path(), &about("c", 5), &[visit(0, None)]);
        let folder = path.parent().expect("a folder");
        let found = sittings(folder).expect("readable");
        let expected =
            [Sitting { about: about("c", 5), visits: vec![visit(0, None)] }, Sitting { about: later.clone(), visits }];
        assert_eq!(found, expected);
        // Laid one behind another they are a file as well.
        let together = out.path().join("together.jsonl");
        fs::write(&together, text(&found)).expect("written");
        assert_eq!(read(&together).expect("readable"), expected);
        assert!(Writer::begin(out.path(), folder, &later).is_err(), "a session's file was replaced");
        assert_eq!(sittings(&out.path().join("none")).expect("empty"), []);
    }

    #[test]
    fn a_line_that_was_cut_off_loses_itself_alone_and_any_other_is_an_error() {
        let out = tempfile::tempdir().expect("a folder");
        let path = written(out.path(), &about("a", 1), &[visit(0, Some(5.0)), visit(1, Some(6.0))]);
        let whole = fs::read_to_string(&path).expect("text");
        for end in whole.find("\n[").expect("a process") + 2..whole.len() {
            fs::write(&path, &whole[..end]).expect("cut");
            let visits = read(&path).expect("readable").remove(0).visits;
            assert_eq!(
                visits.len(),
                whole[..end].matches("]\n").count() + usize::from(whole[..end].ends_with("null]")),
                "{end}"
            );
        }
        for (spoilt, says) in [
            (whole.replacen("[0,0", "[7,0", 1), ":2: a process of a kernel that the sitting does not name"),
            (whole.replacen("[0,0", "0,0", 1), ":2: no line of a calibration"),
            (whole.split_once('\n').expect("lines").1.to_owned(), ":1: a process before any sitting"),
            (whole.replacen("\"major\":1", "\"major\":9", 1), "format 9.0 by a newer mlarun"),
        ] {
            fs::write(&path, spoilt).expect("spoilt");
            let error = read(&path).expect_err("spoilt").to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
