//! The compact record that a Performance block comes from, committed beside the log. No text for people.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::kebab;
use crate::model::record::Format;
use crate::model::{Key, Language, Shape, Version};
use crate::report::analysis::{Analysis, OCCUPANCY, TENSOR_CORE};
use crate::report::bottleneck::Bottleneck;
use crate::roofline::Cost;

/// The format that this program writes.
const FORMAT: Format = Format { major: 1, minor: 0 };

/// What a block belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    pub version: Version,
    pub device: String,
    pub shape: Shape,
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {} on {}", self.version, self.shape, self.device)
    }
}

/// Everything that a Performance block shows. All of it is measured or follows from the cost model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompactRecord {
    pub format: Format,
    pub kernel: String,
    pub language: Language,
    #[serde(flatten)]
    pub identity: Identity,
    /// Parameters that the block's header names beside b, s and t, e.g. those that differ from the kernel's defaults.
    pub shown: Vec<String>,
    pub clocks_locked: bool,
    pub taken_at: Timestamp,
    /// Key of the event measurement.
    pub key: Key,
    /// Median of event mode, cold and isolated.
    pub duration_ns: f64,
    /// Work of the whole pipeline.
    pub cost: Option<Cost>,
    /// Annotation's, weighted by the stages' durations, in percent.
    pub achieved_occupancy_percent: Option<f64>,
    /// Annotation's, weighted by the stages' durations, in percent.
    pub tensor_core_percent: Option<f64>,
    pub bottleneck: Option<Bottleneck>,
    /// The next lower version, measured on the same device.
    pub previous: Option<Previous>,
}

/// What "vs Previous" compares with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Previous {
    pub version: Version,
    pub duration_ns: f64,
    pub cost: Option<Cost>,
    /// Both versions are one subject, and their samples the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub same_code: bool,
}

/// The runs that a record draws on beside its own, as indices into [`Input::runs`](crate::report::Input::runs).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Links {
    /// The annotation of the same subject.
    pub annotation: Option<usize>,
    /// The event run of the next lower version at the same shape.
    pub previous: Option<usize>,
    /// See [`CompactRecord::shown`].
    pub shown: Vec<String>,
}

impl CompactRecord {
    /// Its file, relative to the folder of logs, with `/`: `records/<kernel>/<version>-<hash of identity>.json`.
    pub fn path(&self) -> PathBuf {
        let hash = Key::of("devlog-identity/1", &self.identity).short();
        ["records", &kebab(&self.kernel), &format!("{}-{hash}.json", self.identity.version)].iter().collect()
    }

    /// Contents of its file.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("every map of a compact record has strings for keys");
        text.push('\n');
        text
    }

    /// Reads what [`CompactRecord::to_json`] wrote.
    ///
    /// # Errors
    /// No such JSON, or one of a newer major format.
    pub fn from_json(text: &str) -> Result<CompactRecord, RecordError> {
        let record: CompactRecord = serde_json::from_str(text)?;
        if record.format.major != FORMAT.major {
            return Err(RecordError::Format { major: record.format.major });
        }
        // The kernel names files.
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if record.kernel.is_empty() || !record.kernel.chars().all(is_name) {
            return Err(RecordError::Kernel { name: record.kernel });
        }
        Ok(record)
    }
}

/// A file is no compact record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("it is no dev log record: {0}; remove it and write the log again")]
    Json(#[from] serde_json::Error),
    #[error("its kernel {name:?} is no kernel's name; remove it and write the log again")]
    Kernel { name: String },
    #[error("its format is {major}, and this program reads {}; use a newer mlarun", FORMAT.major)]
    Format { major: u32 },
}

/// The record of an event run.
pub(in crate::report) fn record(
    event: &Analysis<'_>,
    annotation: Option<&Analysis<'_>>,
    previous: Option<&Analysis<'_>>,
    shown: Vec<String>,
) -> CompactRecord {
    let newest = event.newest();
    let environment = &newest.environment;
    let device = &environment.device.id;
    let same_device = |other: &&Analysis<'_>| other.newest().environment.device.id == *device;
    let annotation = annotation.filter(same_device);
    let weighted = |counter| annotation.and_then(|annotation| annotation.whole.counter(counter));
    let diagnosis = annotation.and_then(|annotation| annotation.whole.diagnosis.as_ref());
    CompactRecord {
        format: FORMAT,
        kernel: event.run.id.kernel.clone(),
        language: event.run.id.language,
        identity: Identity {
            version: event.run.id.version,
            device: device.name.clone(),
            shape: event.run.shape.clone(),
        },
        shown,
        clocks_locked: event.records.iter().all(|record| record.environment.clocks_locked),
        taken_at: newest.position.taken_at,
        key: newest.key,
        duration_ns: event.whole.ns,
        cost: event.whole.cost,
        achieved_occupancy_percent: weighted(OCCUPANCY),
        tensor_core_percent: weighted(TENSOR_CORE),
        bottleneck: diagnosis.or(event.whole.diagnosis.as_ref()).map(|diagnosis| diagnosis.bottleneck),
        previous: previous.filter(same_device).map(|previous| Previous {
            version: previous.run.id.version,
            duration_ns: previous.whole.ns,
            cost: previous.whole.cost,
            same_code: previous.newest().key == newest.key,
        }),
    }
}
