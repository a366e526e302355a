//! Records: what the store keeps. Each is complete by itself: labels, key material, environment and samples.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::build::Resources;
use super::clocks::Telemetry;
use super::ncu::{Launch, ReportFile};
use super::protocol::{Counters, Samples, Verification};
use super::source_view::SourceView;
use super::timeline::{StageKernel, Timeline, Tracer};
use super::{Device, KernelId, Key, Mode, Peaks, Shape, Tiling};

/// Version of the on-disk format. A newer major version is refused, a newer minor one is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Format {
    pub major: u32,
    pub minor: u32,
}

/// The format that this program writes.
pub const FORMAT: Format = Format { major: 1, minor: 0 };

/// What a record is about, as people call it; none of it enters a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Labels {
    pub id: KernelId,
    pub shape: Shape,
    /// The mode, for measurements.
    pub mode: Option<Mode>,
    /// Where its sources are from, if not from the working tree: a commit, or a pinned build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
}

/// Kind of a record; the name of its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// One sample set of event mode.
    Event,
    /// One annotation pass.
    Annotation,
    /// One pass of Nsight Compute with everything that it collects.
    Ncu,
    /// One timeline.
    Timeline,
    /// A verification that succeeded.
    Verification,
}

impl RecordKind {
    /// Every kind.
    pub const ALL: [RecordKind; 5] =
        [RecordKind::Event, RecordKind::Annotation, RecordKind::Ncu, RecordKind::Timeline, RecordKind::Verification];

    /// Kind of the records of a mode.
    pub const fn of_mode(mode: Mode) -> Option<RecordKind> {
        match mode {
            Mode::Event => Some(RecordKind::Event),
            Mode::Annotation => Some(RecordKind::Annotation),
            Mode::Ncu => Some(RecordKind::Ncu),
            Mode::Nsys => Some(RecordKind::Timeline),
        }
    }

    /// Folder name.
    pub const fn name(self) -> &'static str {
        match self {
            RecordKind::Event => "event",
            RecordKind::Annotation => "annotation",
            RecordKind::Ncu => "ncu",
            RecordKind::Timeline => "timeline",
            RecordKind::Verification => "verification",
        }
    }
}

/// A stored fact with everything that identifies and explains it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub kind: RecordKind,
    /// The measurement's (or verification's) key.
    pub key: Key,
    /// Key of the subject: joins the modes.
    pub subject: Key,
    /// Everything that `key` depends on, nested keys expanded, for explaining why another key differs.
    pub material: serde_json::Value,
    pub labels: Labels,
    pub tiling: Tiling,
    /// The machine code of each stage, in launch order; none in what mlarun recorded before it said so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub code: Vec<StageCode>,
    pub position: Position,
    pub environment: Environment,
    pub body: Body,
}

/// What a compiler made of one stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageCode {
    pub stage: String,
    /// Hash over the code sections alone: equal for equal machine code.
    pub code_sha256: Key,
    /// Of the stage's function, where the compiler tells: on a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
}

/// When a record was taken, and where in its session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Position {
    pub taken_at: Timestamp,
    /// One invocation of the runner.
    pub session: String,
    /// Round within the session; arms of one round ran directly after one another.
    pub round: u32,
    /// Position within the round.
    pub position: u32,
    /// How the session's comparisons are judged, where it makes any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looks: Option<Looks>,
}

/// How the comparisons of a session are judged, fixed before its first round: [`Rule`](crate::stats::verdict::Rule) without what
/// the records themselves tell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Looks {
    /// Numbers of rounds that count after which a comparison is looked at.
    pub after: Vec<u32>,
    /// Level of one look.
    pub alpha: f64,
    /// Comparisons of the table.
    pub comparisons: u32,
    /// The smallest change of speed that is called, as a fraction.
    pub threshold: f64,
}

/// The host at the time of the record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    pub device: Device,
    pub peaks: Option<Peaks>,
    /// Clocks, by name, in Hz, where the host tells.
    pub clocks_hz: BTreeMap<String, f64>,
    pub clocks_locked: bool,
    /// Model of the CPU beside a device that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    pub host: String,
    pub os: String,
    pub compiler: String,
    pub mlarun: String,
    pub git_revision: Option<String>,
    pub git_dirty: Option<bool>,
    /// The GPU as NVML saw it around this record; absent on a CPU and in records of before it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<Telemetry>,
}

/// The measured part of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "body", rename_all = "snake_case")]
pub enum Body {
    Event(SampleSet),
    Annotation(AnnotationPass),
    Ncu(AnnotationPass),
    Timeline(TimelineRun),
    Verification { whole: Verification, own_shape: Verification },
}

impl Body {
    /// How the output agrees with the reference at the run's own shape.
    pub const fn verification(&self) -> &Verification {
        match self {
            Body::Event(set) => &set.verification,
            Body::Annotation(pass) | Body::Ncu(pass) => &pass.verification,
            Body::Timeline(run) => &run.verification,
            Body::Verification { own_shape, .. } => own_shape,
        }
    }
}

/// Samples of one fresh process: the atom of every measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampleSet {
    pub warmup_launches: u64,
    pub warmup_ns: u64,
    pub steady: bool,
    /// Median clock of a GPU's multiprocessors while samples were taken, read on the GPU itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_mhz: Option<f64>,
    pub samples: Vec<Samples>,
    /// The output of the timed launches, compared after timing.
    pub verification: Verification,
}

/// Per-stage measurements of one fresh process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AnnotationPass {
    /// What Nsight Compute left beside its launches, where that measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ncu: Option<NcuRun>,
    pub stages: Vec<StageMeasurement>,
    pub verification: Verification,
}

/// A run of Nsight Compute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NcuRun {
    /// Its version.
    pub version: String,
    /// Metrics that it was asked for by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<String>,
    /// The kernels' source with what was sampled on each line, where that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceView>,
    /// Its own report, where one was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<ReportFile>,
}

/// What ran when, in one fresh process. Its times are the tracer's, and no samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimelineRun {
    pub tracer: Tracer,
    /// Why the preferred tracer was not used, where it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
    /// Launches of the whole pipeline.
    pub launches: u32,
    /// In launch order.
    pub stages: Vec<StageKernel>,
    pub timeline: Timeline,
    /// What the tracer left beside it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<ReportFile>,
    pub verification: Verification,
}

/// One stage run by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageMeasurement {
    pub stage: String,
    /// Nanoseconds, one a launch, caches flushed.
    pub ns: Vec<f64>,
    pub counters: Counters,
    /// The launch as Nsight Compute saw it, where that measured: then the time is its own, and no clean one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<Launch>,
}
