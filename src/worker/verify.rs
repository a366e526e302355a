//! Verification alone: two launches, the output of each compared with the reference and with the other's.

use super::answer::Answer;
use super::rig::{self, Rig};
use crate::model::pipeline::Pipeline;
use crate::model::protocol::{Failure, FailureKind};

/// Refuses a pipeline that there is nothing to compare with, before anything is made for it.
///
/// # Errors
/// It has no reference.
pub fn require_reference(pipeline: &Pipeline) -> Result<(), Failure> {
    if pipeline.reference.is_none() {
        let message = "there is nothing to verify: the kernel declares no reference; add a [reference]".to_owned();
        return Err(Failure { kind: FailureKind::CannotTell, stage: None, message });
    }
    Ok(())
}

/// Launches and compares, twice: the second answer says whether the first left the same bits.
///
/// # Errors
/// An output is wrong.
pub fn run(answer: &mut Answer, rig: &mut impl Rig) -> Result<(), Failure> {
    let first = rig::verify(answer, rig, None)?;
    rig::verify(answer, rig, first.as_ref()).map(drop)
}
