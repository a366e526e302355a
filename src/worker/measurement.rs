//! What a request asks of a kernel that is ready, whatever it runs on.

use super::answer::Answer;
use super::rig::Rig;
use super::{annotation, event, verify};
use crate::model::protocol::{AnnotationProtocol, EventProtocol, Failure};

/// The part of a task that comes after everything is loaded.
#[derive(Debug, Clone, Copy)]
pub enum Measurement<'r> {
    Verify,
    Event(&'r EventProtocol),
    Annotation(&'r AnnotationProtocol),
}

impl Measurement<'_> {
    /// Takes it.
    ///
    /// # Errors
    /// Whatever prevents it.
    pub fn take(self, answer: &mut Answer, rig: &mut impl Rig) -> Result<(), Failure> {
        match self {
            Measurement::Verify => verify::run(answer, rig),
            Measurement::Event(protocol) => event::run(answer, rig, protocol),
            Measurement::Annotation(protocol) => annotation::run(answer, rig, protocol),
        }
    }
}
