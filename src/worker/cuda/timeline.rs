//! Launches for a timeline: the pipeline is made, compared, warmed up, launched some times between the marks that a tracer
//! waits for, and compared again. Without a tracer around the process, it traces itself with CUPTI.

use std::path::Path;

use super::cupti::Cupti;
use super::driver::{Context, profiler_start, profiler_stop};
use super::error::internal;
use super::rig::{self, Rig};
use super::support::Support;
use crate::model::protocol::{Check, Failure, GpuRequest, Launchable, Line, Phase, TimelineProtocol};
use crate::model::timeline::Tracer;
use crate::worker::answer::Answer;
use crate::worker::rig::{Part, Rig as _, verify};

/// Launches, and tells what ran where this process traces itself.
///
/// # Errors
/// Whatever prevents it.
pub fn run(
    answer: &mut Answer,
    gpu: &GpuRequest,
    launchable: &Launchable,
    protocol: &TimelineProtocol,
    check: &Check,
    library: Option<&Path>,
) -> Result<(), Failure> {
    answer.phase(Phase::Load, None)?;
    let context = Context::open(&gpu.uuid)?;
    let support = Support::load(&gpu.support)?;
    let loaded = rig::load(&context, launchable)?;
    let mut rig = Rig::prepare(answer, &context, &support, &launchable.pipeline, &loaded, check)?;
    let first = verify(answer, &mut rig, None)?;
    rig.select(Part::Whole)?;
    let cupti = match (&protocol.tracer, library) {
        (Tracer::Nsys { .. }, _) => None,
        (Tracer::Cupti { version }, Some(library)) => Some(Cupti::start(library, *version)?),
        (Tracer::Cupti { .. }, None) => return Err(internal("the request names no library to trace with")),
    };
    answer.phase(Phase::Warmup, None)?;
    (0..protocol.warmup_launches).try_for_each(|_| rig.launch())?;
    answer.phase(Phase::Sampling, None)?;
    let mut launch = || (0..protocol.launches).try_for_each(|_| rig.launch());
    let timeline = match cupti {
        Some(cupti) => Some(cupti.trace(launch)?),
        None => {
            profiler_start()?;
            let launched = launch();
            profiler_stop()?;
            launched?;
            None
        }
    };
    answer.phase(Phase::Compare, None)?;
    if let Some(mut verification) = rig.check()? {
        verification.same_bits = first.map(|first| first.output_sha256 == verification.output_sha256);
        answer.line(&Line::Verified(verification))?;
    }
    timeline.map_or(Ok(()), |timeline| answer.line(&Line::Timeline(timeline)))
}
