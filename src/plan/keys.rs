//! The one definition of every key: a struct each, hashed by [`Key::of`]. Pure.
//!
//! | key | what enters it | what does not |
//! |---|---|---|
//! | build | source and header bytes, generated caller, macros, flags, compiler | paths, names of package and version |
//! | tuning | builds of what is timed with open macros, axes, constraints, shape, device, protocol, limits | labels, history |
//! | subject | builds, launches, buffers with their input generators, tiling, reference and tolerance, device | cost model, labels |
//! | verification | subject, reference, reduced pipeline | seed of anything timed |
//! | measurement | subject, mode, protocol, clocks | rounds, baselines, labels, templates |

use std::collections::BTreeMap;

use serde::Serialize;

use super::space::{Axes, SearchLimits};
use crate::model::pipeline::{Buffer, Reference, Stage};
use crate::model::protocol::TuneProtocol;
use crate::model::{Choices, DeviceId, Key, Mode, Tiling};

/// What is measured. The four modes join on its key.
#[derive(Debug, Clone, Serialize)]
pub struct SubjectMaterial<'a> {
    /// Keys of the stages' builds, by stage.
    pub builds: BTreeMap<&'a str, Key>,
    pub launches: &'a [Stage],
    pub buffers: &'a [Buffer],
    pub tiling: &'a Tiling,
    /// What the output must equal, and how closely: a number counts only beside the check that it passed.
    pub reference: Option<&'a Reference>,
    pub device: &'a DeviceId,
}

impl SubjectMaterial<'_> {
    pub fn key(&self) -> Key {
        Key::of("subject/1", self)
    }
}

/// That a subject's output is right.
#[derive(Debug, Clone, Serialize)]
pub struct VerificationMaterial<'a> {
    pub subject: Key,
    pub reference: &'a Reference,
    /// Launches and buffers of the reduced shape.
    pub reduced_launches: &'a [Stage],
    pub reduced_buffers: &'a [Buffer],
    pub max_rows: u64,
    pub seed: u64,
}

impl VerificationMaterial<'_> {
    pub fn key(&self) -> Key {
        Key::of("verification/1", self)
    }
}

/// How a subject is measured.
#[derive(Debug, Clone, Serialize)]
pub struct MeasurementMaterial<'a> {
    pub subject: Key,
    pub mode: Mode,
    /// The mode's sampling protocol.
    pub protocol: &'a serde_json::Value,
    /// What is true of the clocks, with their frequencies: `none` on a CPU.
    pub clock_policy: String,
}

impl MeasurementMaterial<'_> {
    pub fn key(&self) -> Key {
        Key::of("measurement/1", self)
    }
}

/// What one tuning decides, and how it looks.
#[derive(Debug, Clone, Serialize)]
pub struct TuningMaterial<'a> {
    /// By stage that is timed: key of the build with the defaults of every space.
    pub builds: BTreeMap<&'a str, Key>,
    /// By stage that is timed: macros as expressions, as they change from point to point.
    pub defines: BTreeMap<&'a str, BTreeMap<&'a str, &'a str>>,
    pub target: String,
    pub axes: &'a Axes,
    /// Of the stage, for a stage's tuning; of all of them, for the pipeline's.
    pub launches: Vec<&'a Stage>,
    pub buffers: &'a [Buffer],
    /// Tilings of the stages, for the pipeline's tuning.
    pub decided: &'a BTreeMap<String, Choices>,
    pub device: &'a DeviceId,
    pub protocol: &'a TuneProtocol,
    pub limits: SearchLimits,
}

impl TuningMaterial<'_> {
    pub fn key(&self) -> Key {
        Key::of("tuning/1", self)
    }
}
