//! Launches for a profiler around the worker: each subject is made, compared, warmed up, launched once between the marks,
//! and compared again.

use super::driver::{Context, profiler_start, profiler_stop};
use super::rig::{self, Rig};
use super::support::Support;
use crate::model::protocol::{Failure, FailureKind, GpuRequest, Line, NcuProtocol, Phase, Profiled};
use crate::worker::answer::Answer;
use crate::worker::rig::{Part, Rig as _, verify};

/// Launches every subject in turn. One that fails is dropped and the others go on, unless the device answers no more.
///
/// # Errors
/// The GPU cannot be used, or the answer cannot be written.
pub fn run(
    answer: &mut Answer,
    gpu: &GpuRequest,
    subjects: &[Profiled],
    protocol: &NcuProtocol,
) -> Result<(), Failure> {
    answer.phase(Phase::Load, None)?;
    let context = Context::open(&gpu.uuid)?;
    let support = Support::load(&gpu.support)?;
    for (subject, profiled) in subjects.iter().enumerate() {
        let mut lost = false;
        if let Err(failure) = launch(answer, &context, &support, subject, profiled, protocol, &mut lost) {
            lost |= failure.kind == FailureKind::Crashed;
            answer.line(&Line::Dropped { subject, failure })?;
        }
        if lost {
            break;
        }
    }
    Ok(())
}

fn launch(
    answer: &mut Answer,
    context: &Context,
    support: &Support,
    subject: usize,
    profiled: &Profiled,
    protocol: &NcuProtocol,
    lost: &mut bool,
) -> Result<(), Failure> {
    let loaded = rig::load(context, &profiled.launchable)?;
    let pipeline = &profiled.launchable.pipeline;
    let mut rig = Rig::prepare(answer, context, support, pipeline, &loaded, &profiled.check)?;
    let ended = between_marks(answer, &mut rig, subject, profiled, protocol);
    *lost = rig.is_lost();
    ended
}

fn between_marks(
    answer: &mut Answer,
    rig: &mut Rig<'_>,
    subject: usize,
    profiled: &Profiled,
    protocol: &NcuProtocol,
) -> Result<(), Failure> {
    let first = verify(answer, rig, None)?;
    rig.select(profiled.stage.map_or(Part::Whole, Part::Stage))?;
    answer.phase(Phase::Warmup, None)?;
    (0..protocol.warmup_launches).try_for_each(|_| rig.launch())?;
    answer.phase(Phase::Sampling, None)?;
    profiler_start()?;
    let launched = rig.launch();
    profiler_stop()?;
    launched?;
    answer.line(&Line::Launched { subject })?;
    answer.phase(Phase::Compare, None)?;
    let Some(mut verification) = rig.check()? else { return Ok(()) };
    verification.same_bits = first.map(|first| first.output_sha256 == verification.output_sha256);
    answer.line(&Line::Kept { subject, verification })
}
