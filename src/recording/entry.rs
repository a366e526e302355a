//! The lines of a recording, as they stand in the file.

use std::path::{Component, Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::RecordingError;
use crate::backend::BuildInfo;
use crate::device::Host;
use crate::model::build::{BuildMaterial, Toolchain};
use crate::model::clocks::{Reading, Telemetry};
use crate::model::protocol::{Failure, GpuRequest, Line, Request};
use crate::model::record::{Environment, Format};
use crate::model::{Language, Peaks};

/// First line of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub recording: Format,
    /// Version of the requests and answers in it.
    pub protocol: u32,
    /// Version of the program that wrote it.
    pub mlarun: String,
    pub recorded_at: Timestamp,
}

/// Any other line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum Entry {
    Call(Call),
    File(StoredFile),
    Host(Box<HostEntry>),
    Session(Box<SessionEntry>),
    Build(Box<Build>),
    Answer(Box<Answered>),
    Reading(Box<Read>),
}

/// What mlarun was called for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Relative to the project's root.
    pub manifest: PathBuf,
    /// Overrides of manifest keys, each `key=value`.
    pub sets: Vec<String>,
    pub only: Option<String>,
    pub remeasure: bool,
    pub devlog_add: bool,
    pub fail_fast: bool,
}

impl Call {
    /// The manifest's place below `root`.
    ///
    /// # Errors
    /// The path is absolute, empty, or leaves the folder.
    pub fn manifest_below(&self, root: &Path) -> Result<PathBuf, RecordingError> {
        below(root, &self.manifest)
    }
}

/// A file that the call read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFile {
    pub area: Area,
    /// Relative to the folder of its area.
    pub path: PathBuf,
    pub text: String,
}

impl StoredFile {
    /// Its place below the folder of its area.
    ///
    /// # Errors
    /// The path is absolute, empty, or leaves the folder.
    pub fn below(&self, folder: &Path) -> Result<PathBuf, RecordingError> {
        below(folder, &self.path)
    }
}

/// `path` below `folder`.
///
/// # Errors
/// The path is absolute, empty, or leaves the folder.
fn below(folder: &Path, path: &Path) -> Result<PathBuf, RecordingError> {
    let is_name = |component: Component<'_>| matches!(component, Component::Normal(_));
    if path.as_os_str().is_empty() || !path.components().all(is_name) {
        return Err(RecordingError::Outside { file: path.to_owned() });
    }
    Ok(folder.join(path))
}

/// Where a file belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Area {
    /// The project's root: manifest, kernels, configuration, templates, dev logs, tunings.
    Project,
    /// The folder of results: what had been recorded before.
    Results,
}

/// The host as the call found it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostEntry {
    pub host: Host,
    pub language: Language,
    pub toolchain: Toolchain,
    pub peaks: Option<Peaks>,
    pub gpu: Option<GpuRequest>,
}

/// What every record of the session states.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionEntry {
    pub name: String,
    pub environment: Environment,
    /// The GPU's clocks and board; absent on a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<Telemetry>,
}

/// What a compiler made of one translation unit. Requests call its module `module/<number>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    pub number: usize,
    pub material: BuildMaterial,
    /// What is known of the module, and the compiler's messages.
    pub outcome: Result<(BuildInfo, String), Failure>,
}

/// What the GPU did when it was looked at, or why it was lost. Readings are told apart by their order alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Read {
    pub outcome: Result<Option<Reading>, String>,
}

/// A request with what a worker answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    pub request: Request,
    pub at: Timestamp,
    /// Since the recording began.
    pub elapsed_ns: u64,
    /// Without the last line.
    pub lines: Vec<Line>,
    /// Why the task has no result, where it has none.
    pub failure: Option<Failure>,
}
