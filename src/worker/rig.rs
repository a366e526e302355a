//! A kernel that is loaded, fed and can be launched, timed and checked: what the tasks need, whatever the device. The
//! order of a task is written once over this; [`super::cpu`] and `super::cuda` are what it stands on.

use super::answer::Answer;
use crate::model::pipeline::Pipeline;
use crate::model::protocol::{Counters, Failure, FailureKind, Line, Phase, Verification};

/// What a launch is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Whole,
    /// One stage by itself, by its index.
    Stage(usize),
}

/// A pipeline on a device, with everything loaded and allocated. Times are in nanoseconds.
pub trait Rig {
    /// What is launched.
    fn pipeline(&self) -> &Pipeline;

    /// Chooses what is launched from now on; at first the whole pipeline.
    ///
    /// # Errors
    /// There is no such stage.
    fn select(&mut self, part: Part) -> Result<(), Failure>;

    /// Overwrites outputs and scratch with NaN.
    ///
    /// # Errors
    /// The device refuses.
    fn poison(&mut self) -> Result<(), Failure>;

    /// One launch, to its end.
    ///
    /// # Errors
    /// The kernel ends in a fault that the device reports.
    fn launch(&mut self) -> Result<(), Failure>;

    /// Checks guard bands, outputs and, where there is a reference, their values as they are now.
    ///
    /// # Errors
    /// Something is wrong with them.
    fn check(&mut self) -> Result<Option<Verification>, Failure>;

    /// Checks that nothing was written beside any buffer.
    ///
    /// # Errors
    /// Something was.
    fn check_bands(&mut self) -> Result<(), Failure>;

    /// Checks that every element of every output is a finite number.
    ///
    /// # Errors
    /// One is not.
    fn check_finite(&mut self) -> Result<(), Failure>;

    /// Makes the memory that is written to evict the caches.
    ///
    /// # Errors
    /// There is not enough.
    fn provide_flush(&mut self, bytes: u64) -> Result<(), Failure>;

    /// Time of one launch, the device ready for it and the caches as they are.
    ///
    /// # Errors
    /// As [`Rig::launch`].
    fn isolated(&mut self) -> Result<f64, Failure>;

    /// As [`Rig::isolated`], with the caches evicted before.
    ///
    /// # Errors
    /// As [`Rig::launch`].
    fn cold(&mut self) -> Result<f64, Failure>;

    /// Time of `launches` launches together, one directly after the other.
    ///
    /// # Errors
    /// As [`Rig::launch`].
    fn batch(&mut self, launches: u64) -> Result<f64, Failure>;

    /// Time of a launch in which every stage is empty: what a launch costs beside its work.
    ///
    /// # Errors
    /// As [`Rig::launch`].
    fn without_work(&mut self) -> Result<f64, Failure>;

    /// Hardware counters of one launch with evicted caches.
    ///
    /// # Errors
    /// As [`Rig::launch`]; a device that counts nothing is no error.
    fn counters(&mut self) -> Result<Counters, Failure>;

    /// Median clock of a GPU's multiprocessors, in MHz, as read between samples since the last call.
    ///
    /// # Errors
    /// The readings cannot be fetched.
    fn sm_mhz(&mut self) -> Result<Option<f64>, Failure> {
        Ok(None)
    }

    /// The device answers no more in this process, as after a wild write of a kernel.
    fn is_lost(&self) -> bool {
        false
    }
}

/// Poisons outputs and scratch, launches the whole once and checks what came out. The answer gets the agreement, if
/// there is a reference; with `before`, that of an earlier launch, it says whether both left the same bits.
///
/// # Errors
/// The output is wrong, or memory beside a buffer was written to.
pub fn verify(
    answer: &mut Answer,
    rig: &mut impl Rig,
    before: Option<&Verification>,
) -> Result<Option<Verification>, Failure> {
    answer.phase(Phase::Run, None)?;
    rig.select(Part::Whole)?;
    rig.poison()?;
    rig.launch()?;
    answer.phase(Phase::Compare, None)?;
    let Some(mut verification) = rig.check()? else { return Ok(None) };
    verification.same_bits = before.map(|before| before.output_sha256 == verification.output_sha256);
    answer.line(&Line::Verified(verification.clone()))?;
    Ok(Some(verification))
}

/// A request names a stage that its pipeline does not have.
pub fn no_such_stage(index: usize, pipeline: &Pipeline) -> Failure {
    let message = format!("the request is about stage {index} of {}", pipeline.stages.len());
    Failure { kind: FailureKind::Internal, stage: None, message }
}
