//! Annotation mode: every stage by itself, in pipeline order, caches evicted before each launch, and the hardware
//! counters of further such launches where the device gives them.
//!
//! Timed as in event mode, one stage a launch. Counters come from launches of their own, so that reading them is in no
//! time. Measurements are told only when the output is still right after them. Scratch that a stage reads holds what
//! the verified launch of the whole pipeline left there.

use std::time::Instant;

use super::answer::Answer;
use super::rig::{self, Part, Rig};
use super::sampling::{self, Limits};
use crate::model::protocol::{AnnotationProtocol, Failure, Line, Phase};

/// Verifies, measures and counts every stage, verifies again.
///
/// # Errors
/// Whatever prevents it; nothing is timed when the first check fails.
pub fn run(answer: &mut Answer, rig: &mut impl Rig, protocol: &AnnotationProtocol) -> Result<(), Failure> {
    let first = rig::verify(answer, rig, None)?;
    rig.provide_flush(protocol.flush_bytes)?;
    let stages: Vec<String> = rig.pipeline().stages.iter().map(|stage| stage.name.clone()).collect();
    let mut measured = Vec::new();
    for (index, stage) in stages.into_iter().enumerate() {
        rig.select(Part::Stage(index))?;
        answer.phase(Phase::Warmup, Some(&stage))?;
        sampling::warm_up(&protocol.warmup, || rig.isolated())?;
        answer.phase(Phase::Sampling, Some(&stage))?;
        let ns = sample(protocol, rig)?;
        let counters = rig.counters()?;
        measured.push(Line::StageSamples { stage: stage.clone(), ns });
        measured.push(Line::Counters { stage, counters });
    }
    rig.check_bands()?;
    rig::verify(answer, rig, first.as_ref())?;
    measured.iter().try_for_each(|line| answer.line(line))
}

fn sample(protocol: &AnnotationProtocol, rig: &mut impl Rig) -> Result<Vec<f64>, Failure> {
    let limits = Limits {
        min_samples: protocol.min_samples,
        max_samples: protocol.max_samples,
        interval_permille: None,
        budget_ns: protocol.budget_ns,
    };
    let start = Instant::now();
    let spent_ns = || start.elapsed().as_nanos() as u64;
    Ok(sampling::sample(limits, spent_ns, || rig.cold())?.0)
}
