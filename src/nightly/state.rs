//! What is known from earlier nights: one small file, which the host keeps after every step.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::alarm::{Alarm, Alert};
use super::drift::Drift;
use super::order::Why;
use crate::model::{KernelId, Key, Shape};
use crate::stats::verdict::Verdict;

/// Version of the file. A newer one is refused by whoever reads it.
pub const VERSION: u32 = 1;
/// Observations that a track keeps: more than a year of nights.
const KEPT: usize = 400;
/// Nights that are remembered.
const NIGHTS_KEPT: usize = 400;

/// A kernel at a shape: what is measured night after night.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Subject {
    #[serde(flatten)]
    pub id: KernelId,
    pub shape: Shape,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.id, self.shape)
    }
}

/// What a result holds for beside the two builds: where it differs, the result is no longer about the host as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Circumstances {
    /// Of the GPU; `None` on a CPU.
    pub driver: Option<String>,
    pub compiler: String,
    /// Which clocks are held.
    pub clocks: String,
}

/// The host tonight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Situation {
    /// Model, and UUID of a GPU.
    pub device: String,
    /// Name of the pinned build.
    pub pin_name: String,
    /// Hash of everything in it.
    pub pin: Key,
    /// Changes with every boot of the host.
    pub boot: String,
    pub circumstances: Circumstances,
}

/// What one session found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// Pairs of processes were judged.
    Judged {
        verdict: Verdict,
        /// Change of speed against the pinned build, as a fraction, with its interval; `None` where too few rounds counted.
        change: Option<f64>,
        low: Option<f64>,
        high: Option<f64>,
        rounds: u32,
    },
    /// Machine code and inputs are those of the pinned build; there is nothing to measure.
    SameCode,
    /// There is no result.
    Failed { reason: String, is_wrong: bool },
}

impl Outcome {
    /// Why it decides nothing, if it does not.
    pub fn doubt(&self) -> Option<String> {
        match self {
            Outcome::Judged { verdict: Verdict::Inconclusive { doubt, .. }, .. } => Some(doubt.to_string()),
            Outcome::Judged { verdict: Verdict::Invalid { cause }, .. } => Some(cause.to_string()),
            Outcome::Failed { reason, .. } => Some(reason.clone()),
            Outcome::Judged { .. } | Outcome::SameCode => None,
        }
    }

    /// The change of speed, where it is one that a series can take: all but what was spoilt.
    pub fn change(&self) -> Option<f64> {
        match self {
            Outcome::Judged { verdict: Verdict::Invalid { .. }, .. } => None,
            Outcome::Judged { change, .. } => change.filter(|change| change.is_finite() && *change > -1.0),
            Outcome::SameCode | Outcome::Failed { .. } => None,
        }
    }
}

/// One session of one subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// When it ended.
    pub at: Timestamp,
    /// Night that it belongs to.
    pub night: String,
    pub session: String,
    /// Why it was measured.
    pub why: Why,
    /// Key of what was measured against the pinned build.
    pub candidate: Key,
    pub circumstances: Circumstances,
    pub took_s: f64,
    #[serde(flatten)]
    pub outcome: Outcome,
    /// What came of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// All nights of one subject on one device against one pinned build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Track {
    pub subject: Subject,
    pub device: String,
    pub pin: Key,
    pub alarm: Alarm,
    pub drift: Drift,
    /// The oldest first.
    pub observations: Vec<Observation>,
}

impl Track {
    /// The newest observation.
    pub fn last(&self) -> Option<&Observation> {
        self.observations.last()
    }

    pub(super) fn add(&mut self, observation: Observation) {
        self.observations.push(observation);
        let surplus = self.observations.len().saturating_sub(KEPT);
        self.observations.drain(..surplus);
    }
}

/// A night that has begun and not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tonight {
    /// Its name: when it began, in UTC.
    pub id: String,
    pub began_at: Timestamp,
    pub boot: String,
    /// What is being measured.
    pub measuring: Option<Subject>,
    /// What was known of the night before it was over, e.g. that the host was rebooted in it.
    pub notes: Vec<String>,
}

/// A night that is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    pub id: String,
    pub began_at: Timestamp,
}

/// Everything that nights know of one another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub version: u32,
    pub tonight: Option<Tonight>,
    pub past: Vec<Past>,
    /// The host as the last night found it.
    pub situation: Option<Situation>,
    pub tracks: Vec<Track>,
    /// Alarms that the operator's command has not taken yet.
    pub untold: Vec<Alert>,
}

impl Default for State {
    fn default() -> State {
        State {
            version: VERSION,
            tonight: None,
            past: Vec::new(),
            situation: None,
            tracks: Vec::new(),
            untold: Vec::new(),
        }
    }
}

impl State {
    /// The track of `subject` in this situation.
    pub fn track(&self, subject: &Subject, situation: &Situation) -> Option<&Track> {
        self.tracks.iter().find(|track| track.is_of(subject, situation))
    }

    /// The same, made where it is missing.
    pub(super) fn track_mut(&mut self, subject: &Subject, situation: &Situation) -> &mut Track {
        let index = self.tracks.iter().position(|track| track.is_of(subject, situation)).unwrap_or_else(|| {
            self.tracks.push(Track {
                subject: subject.clone(),
                device: situation.device.clone(),
                pin: situation.pin,
                alarm: Alarm::Quiet,
                drift: Drift::Quiet,
                observations: Vec::new(),
            });
            self.tracks.len() - 1
        });
        &mut self.tracks[index]
    }

    /// Puts a night that is over behind the others.
    pub(super) fn remember(&mut self, night: Past) {
        self.past.push(night);
        let surplus = self.past.len().saturating_sub(NIGHTS_KEPT);
        self.past.drain(..surplus);
    }
}

impl Track {
    fn is_of(&self, subject: &Subject, situation: &Situation) -> bool {
        self.subject == *subject && self.device == situation.device && self.pin == situation.pin
    }
}
