//! What a manifest means on one host: every default filled in, every name found. Pure data.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::model::timeline::TracerKind;
use crate::model::{DeviceKind, Language, Mode, Shape, Timing, Version};

/// An experiment, ready to be planned.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Experiment {
    pub name: String,
    /// One line for people; may be empty.
    pub description: String,
    pub language: Language,
    /// Kind of device that the language runs on.
    pub device: DeviceKind,
    /// In the manifest's order.
    pub kernels: Vec<Selection>,
    /// In the manifest's order, each once.
    pub modes: Vec<Mode>,
    /// In the manifest's order, each once.
    pub baselines: Vec<Baseline>,
    /// Each once: the axes' product with the last axis varying fastest, then the points. A parameter that a shape does
    /// not name takes the kernel's default or, if tunable, is tuned; one that a kernel does not declare it ignores.
    pub shapes: Vec<Shape>,
    pub clocks: Clocks,
    /// Rounds of fresh processes that a comparison runs at least.
    pub rounds: u32,
    pub protocol: ProtocolOverrides,
    /// Seconds after which one run counts as hung.
    pub time_limit_s: u32,
    pub devlog: Devlog,
}

/// Versions of one kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Selection {
    pub kernel: String,
    /// In the manifest's order, each once; never empty.
    pub versions: Vec<Version>,
}

/// What a run is compared with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Baseline {
    /// The next lower version that exists; a base version has none.
    Previous,
    /// One version of a kernel, in the experiment's language.
    Kernel { kernel: String, version: Version },
    /// Recorded results.
    File(PathBuf),
}

/// As reports name it.
impl std::fmt::Display for Baseline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Baseline::Previous => f.write_str("previous"),
            Baseline::Kernel { kernel, version } => write!(f, "{kernel} {version}"),
            Baseline::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// What is done about the clocks of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClockPolicy {
    /// Locked before and reset after measuring; where that is impossible nothing is measured.
    Lock,
    /// Locked where possible.
    Prefer,
    /// Locked by someone else: verified and left alone.
    External,
    /// Left alone.
    Observe,
}

impl ClockPolicy {
    /// Every policy.
    pub const ALL: [ClockPolicy; 4] =
        [ClockPolicy::Lock, ClockPolicy::Prefer, ClockPolicy::External, ClockPolicy::Observe];

    /// Name in manifests.
    pub const fn name(self) -> &'static str {
        match self {
            ClockPolicy::Lock => "lock",
            ClockPolicy::Prefer => "prefer",
            ClockPolicy::External => "external",
            ClockPolicy::Observe => "observe",
        }
    }
}

/// Clock policy with the clocks that are asked for, in MHz.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Clocks {
    pub policy: ClockPolicy,
    pub sm_mhz: Option<u32>,
    pub mem_mhz: Option<u32>,
}

/// Departures from the usual protocols; `None` everywhere leaves them as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ProtocolOverrides {
    pub event: EventOverrides,
    pub annotation: AnnotationOverrides,
    /// The stage that alone is profiled in ncu mode.
    pub ncu_stage: Option<String>,
    pub tuning: TuningOverrides,
    pub nsys: NsysOverrides,
}

/// Of [`crate::model::protocol::TimelineProtocol`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct NsysOverrides {
    /// What traces; by default what is there, Nsight Systems before CUPTI.
    pub tool: Option<TracerKind>,
    pub launches: Option<u32>,
}

/// Of [`crate::model::protocol::EventProtocol`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct EventOverrides {
    pub timings: Option<Vec<Timing>>,
    pub budget_ns: Option<u64>,
    pub min_samples: Option<u32>,
    pub max_samples: Option<u32>,
    pub warmup_ns: Option<u64>,
}

/// Of [`crate::model::protocol::AnnotationProtocol`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AnnotationOverrides {
    pub budget_ns: Option<u64>,
    pub min_samples: Option<u32>,
    pub max_samples: Option<u32>,
}

/// Of the search for the best tiling.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TuningOverrides {
    /// Time that goes into one search at most.
    pub budget_ns: Option<u64>,
    /// Largest space that is searched whole, and number of random points in a larger one.
    pub limit: Option<u32>,
    pub seed: Option<u64>,
}

/// The dev logs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Devlog {
    /// Devices, by name, for which a log without a block gets one.
    pub devices: Vec<String>,
}
