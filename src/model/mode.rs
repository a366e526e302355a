//! The four ways to look at a run.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Measuring or profiling mode of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Per-stage time, roofline position and counters: the default first pass.
    Annotation,
    /// End-to-end timing without a profiler.
    Event,
    /// Nsight Compute, every section and the annotated source.
    Ncu,
    /// Nsight Systems, the timeline of streams and stages.
    Nsys,
}

impl Mode {
    /// Every mode, the default first.
    pub const ALL: [Mode; 4] = [Mode::Annotation, Mode::Event, Mode::Ncu, Mode::Nsys];

    /// Manifest and folder name.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Annotation => "annotation",
            Mode::Event => "event",
            Mode::Ncu => "ncu",
            Mode::Nsys => "nsys",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text names no mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a mode (annotation, event, ncu, nsys)")]
pub struct UnknownMode(pub String);

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Mode::ALL.into_iter().find(|mode| mode.name() == text).ok_or_else(|| UnknownMode(text.to_owned()))
    }
}
