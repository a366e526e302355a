//! What happens while a plan is executed. The terminal and the log consume these; nothing else prints.

use crate::model::clocks::ClockState;
use crate::model::{KernelId, Mode, Shape};
use crate::plan::space::TuneTarget;
use crate::profiler::sanitizer::SanitizerTool;
use crate::stats::verdict::Judgement;

/// Names of the subject that an event is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    pub id: KernelId,
    pub shape: Shape,
    /// The part of the shape that people are shown.
    pub label: Shape,
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.id, self.label)
    }
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// What is done about the clocks, and why it is not what was asked for.
    Clocks { state: ClockState, reason: Option<String> },
    /// So many modules have to be compiled.
    Compiling { modules: usize },
    /// One of them was compiled, or refused.
    Compiled,
    /// A tuning starts.
    Tuning { name: Name, target: TuneTarget, candidates: usize, rejected: usize },
    /// One candidate has been timed or has failed.
    CandidateTried,
    /// A tuning has chosen.
    Tuned { name: Name, target: TuneTarget, chosen: String, median_ns: f64, tried: usize },
    /// A subject's output is compared.
    Verifying { name: Name },
    /// It is right.
    Verified { name: Name, relative_frobenius: f64 },
    /// A sanitizer watches a subject's launches.
    Sanitizing { name: Name, tool: SanitizerTool },
    /// It has found nothing.
    Sanitized { name: Name, tool: SanitizerTool },
    /// A sample set or an annotation pass starts.
    Measuring { name: Name, mode: Mode, round: u32, rounds: u32, estimate_ns: f64 },
    /// It was recorded; the median of its primary timing, where it has one.
    Measured { name: Name, mode: Mode, round: u32, rounds: u32, median_ns: Option<f64>, estimate_ns: f64 },
    /// A comparison was looked at, and goes on unless it is decided.
    Looked { candidate: Name, baseline: Name, judgement: Box<Judgement> },
    /// Something failed and is tried once more.
    Retrying { name: Name, reason: String },
    /// A subject, or one mode of it, has no result.
    Failed { name: Name, mode: Option<Mode>, reason: String },
}

/// Consumes events.
pub trait Observer {
    fn observe(&mut self, event: &Event);
}

impl<F: FnMut(&Event)> Observer for F {
    fn observe(&mut self, event: &Event) {
        self(event);
    }
}
