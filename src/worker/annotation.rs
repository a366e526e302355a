//! Annotation mode on the CPU: every stage by itself, in pipeline order, caches evicted before each launch, and the
//! hardware counters of further such launches.
//!
//! Timed as in event mode, one stage a launch. Counters come from launches of their own, so that reading them is in no
//! time. Measurements are told only when the output is still right after them. Scratch that a stage reads holds what the verified launch of the whole pipeline left there.

use std::time::Instant;

use super::answer::Answer;
use super::counters;
use super::event;
use super::flush::Flush;
use super::host::Host;
use super::launch::Launcher;
use super::memory;
use super::sampling::{self, Limits};
use super::subject::{self, Subject};
use super::team::Team;
use crate::model::protocol::{AnnotationProtocol, Check, Counters, Failure, Launchable, Line, Phase};

/// Launches whose counts are averaged.
const COUNTED_LAUNCHES: u32 = 5;

/// Verifies, measures and counts every stage, verifies again.
///
/// # Errors
/// Whatever prevents it; nothing is timed when the first check fails.
pub fn run(
    answer: &mut Answer,
    host: &mut Host,
    launchable: &Launchable,
    protocol: &AnnotationProtocol,
    check: &Check,
) -> Result<(), Failure> {
    let modules = subject::load(answer, launchable)?;
    let mut subject = Subject::prepare(answer, host, &launchable.pipeline, check)?;
    let mut whole = subject.launcher(&modules);
    subject.verify(answer, host, &mut whole)?;
    memory::check_fit(u128::from(protocol.flush_bytes))?;
    let mut flush = Flush::new(protocol.flush_bytes);
    let mut measured = Vec::new();
    for (index, stage) in launchable.pipeline.stages.iter().enumerate() {
        let mut launcher = subject.stage_launcher(&modules, index);
        let team = host.team(launcher.seat_cores(&host.cores))?;
        answer.phase(Phase::Warmup, Some(&stage.name))?;
        sampling::warm_up(&protocol.warmup, || event::isolated(&mut launcher, team));
        answer.phase(Phase::Sampling, Some(&stage.name))?;
        let ns = sample(protocol, &mut launcher, &mut flush, team);
        measured.push(Line::StageSamples { stage: stage.name.clone(), ns });
        let counters = count(&mut launcher, &mut flush, team);
        measured.push(Line::Counters { stage: stage.name.clone(), counters });
    }
    subject.buffers.check_bands()?;
    subject.verify(answer, host, &mut whole)?;
    measured.iter().try_for_each(|line| answer.line(line))
}

fn sample(protocol: &AnnotationProtocol, launcher: &mut Launcher<'_>, flush: &mut Flush, team: &mut Team) -> Vec<f64> {
    let limits = Limits {
        min_samples: protocol.min_samples,
        max_samples: protocol.max_samples,
        interval_permille: None,
        budget_ns: protocol.budget_ns,
    };
    let start = Instant::now();
    let spent_ns = || start.elapsed().as_nanos() as u64;
    sampling::sample(limits, spent_ns, || event::cold(launcher, flush, team)).0
}

/// Counts of one launch with evicted caches, averaged over a few.
fn count(launcher: &mut Launcher<'_>, flush: &mut Flush, team: &mut Team) -> Counters {
    let counting = counters::Counting::open(team);
    for _ in 0..COUNTED_LAUNCHES {
        flush.evict(team);
        team.arm();
        launcher.launch_inside(team, &|seat, part| counting.around(seat, part));
    }
    counting.finish(COUNTED_LAUNCHES)
}
