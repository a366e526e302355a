//! Executing a plan: compiles in parallel, then tuning, verification and measuring, strictly one at a time.
//!
//! Everything outside is behind a trait (compiler, worker, store, terminal), so that the order of things can be seen
//! without any of them. A failure ends what depends on it and nothing else.

mod calibrate;
mod compare;
pub mod event;
pub mod executor;
mod hold;
mod ncu;
mod nsys;
mod profile;
mod sanitize;
mod session;
mod tool;
mod tune;
mod verify;

use std::time::Duration;

use jiff::Timestamp;

use crate::model::build::{Module, StageBuild};
use crate::model::clocks::Reading;
use crate::model::protocol::{CandidateOutcome, Failure};
use crate::model::record::Record;
use crate::model::{Choices, KernelId, Key, Shape};
use crate::plan::space::TuneTarget;

pub use compare::{Contender, Met, Pace};
pub use event::{Event, Name, Observer};
pub use executor::{ExecuteError, Executor, ProcessExecutor, Wrapper};
pub use hold::Holding;
pub use ncu::{NsightCompute, Watching};
pub use nsys::{NsightSystems, Tracers};
pub use sanitize::Sanitizer;
pub use session::{Outcome, RunFailure, Session, SessionError, Tools, name as name_of};
pub use tune::{Trial, TrialsError};

/// Compiles stages.
pub trait Builder: Sync {
    /// The module of `stage` that was compiled before, if it is there and checks out.
    ///
    /// # Errors
    /// It is there and cannot be read.
    fn find(&self, stage: &StageBuild) -> Result<Option<Module>, Failure>;

    /// The compiled module of `stage`.
    ///
    /// # Errors
    /// The compiler refused it, with its message.
    fn build(&self, stage: &StageBuild) -> Result<Module, Failure>;
}

/// Keeps what was measured, at once: nothing finished is lost when the next thing fails.
pub trait Journal {
    /// # Errors
    /// The record could not be written; the session ends.
    fn append(&mut self, record: &Record) -> Result<(), JournalError>;

    /// # Errors
    /// The tuning could not be written; the session ends.
    fn append_tuning(&mut self, tuning: &TuningResult) -> Result<(), JournalError>;
}

/// A result could not be kept.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct JournalError(pub String);

/// What a tuning tried and chose.
#[derive(Debug, Clone, PartialEq)]
pub struct TuningResult {
    pub id: KernelId,
    pub shape: Shape,
    pub target: TuneTarget,
    pub key: Key,
    /// What `key` depends on.
    pub material: serde_json::Value,
    pub chosen: Choices,
    pub history: Vec<Tried>,
    /// Every valid point was tried.
    pub exhaustive: bool,
    /// The time budget ended the search before every point had been tried.
    pub out_of_time: bool,
    pub taken_at: Timestamp,
}

/// One point of a tuning's history.
#[derive(Debug, Clone, PartialEq)]
pub struct Tried {
    pub choices: Choices,
    pub outcome: TriedOutcome,
}

/// What became of a point.
#[derive(Debug, Clone, PartialEq)]
pub enum TriedOutcome {
    Rejected {
        constraint: String,
    },
    Tried(CandidateOutcome),
    /// The time budget was spent before its turn.
    NotReached,
}

/// Looks at the device between two measurements, when no worker is on it.
pub trait Gauge {
    /// What it does now; `None` where nobody tells, as of a CPU.
    ///
    /// # Errors
    /// It is gone, with the reason: nothing more can be measured on it.
    fn read(&self) -> Result<Option<Reading>, String>;
}

/// Where time comes from, so that a session can be repeated with recorded times.
pub trait Clock {
    fn now(&self) -> Timestamp;

    /// Since some fixed moment, whatever is done to the host's clock meanwhile.
    fn elapsed(&self) -> Duration;
}
