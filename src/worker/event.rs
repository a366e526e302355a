//! Event mode: end-to-end times of the whole pipeline, in a fresh process.
//!
//! Timed: from the release of the waiting threads until the last block of the last stage has returned, by the
//! monotonic clock. In it: handing the release to the threads and ordering the stages, which `LaunchOverhead` reports.
//! Not in it: loading, inputs, derived tensors, waking threads (they spin before an isolated sample), evicting caches,
//! poisoning and checking. Batched launches are not armed one by one; their threads are awake from the launch before.
//!
//! The output is checked before the first time is taken, again as the timed launches left it, and once more after
//! poison and a further launch. Samples are told only when all three have passed.

use std::time::Instant;

use super::answer::Answer;
use super::flush::Flush;
use super::host::Host;
use super::launch::Launcher;
use super::median::Series;
use super::memory;
use super::sampling::{self, Limits};
use super::subject::{self, Subject};
use super::team::Team;
use crate::model::Timing;
use crate::model::protocol::{Check, EventProtocol, Failure, Launchable, Line, Phase, Samples};

/// Launches without blocks whose median is the overhead.
const OVERHEAD_LAUNCHES: usize = 101;

/// Verifies, warms up, takes every timing, verifies again.
///
/// # Errors
/// Whatever prevents it; nothing is timed when the first check fails.
pub fn run(
    answer: &mut Answer,
    host: &mut Host,
    launchable: &Launchable,
    protocol: &EventProtocol,
    check: &Check,
) -> Result<(), Failure> {
    let modules = subject::load(answer, launchable)?;
    let mut subject = Subject::prepare(answer, host, &launchable.pipeline, check)?;
    let mut launcher = subject.launcher(&modules);
    subject.verify(answer, host, &mut launcher)?;
    memory::check_fit(u128::from(protocol.flush_bytes))?;
    let mut flush = Flush::new(protocol.flush_bytes);
    let team = host.team(launcher.seat_cores(&host.cores))?;
    answer.phase(Phase::Warmup, None)?;
    let warmed = sampling::warm_up(&protocol.warmup, || isolated(&mut launcher, team));
    answer.line(&Line::WarmedUp { launches: warmed.launches, ns: warmed.ns, steady: warmed.steady })?;
    answer.line(&Line::LaunchOverhead { ns: overhead(&mut launcher, team) })?;
    answer.phase(Phase::Sampling, None)?;
    let mut samples = |&timing: &Timing| Line::Samples(take(timing, protocol, &mut launcher, &mut flush, team));
    let samples: Vec<Line> = protocol.timings.iter().map(&mut samples).collect();
    subject.check()?;
    subject.verify(answer, host, &mut launcher)?;
    samples.iter().try_for_each(|line| answer.line(line))
}

fn take(
    timing: Timing,
    protocol: &EventProtocol,
    launcher: &mut Launcher<'_>,
    flush: &mut Flush,
    team: &mut Team,
) -> Samples {
    let limits = Limits {
        min_samples: protocol.min_samples,
        max_samples: protocol.max_samples,
        interval_permille: Some(protocol.interval_permille),
        budget_ns: protocol.budget_ns,
    };
    let start = Instant::now();
    let spent_ns = || start.elapsed().as_nanos() as u64;
    let (launches_per_sample, (ns, converged)) = match timing {
        Timing::ColdIsolated => (1, sampling::sample(limits, spent_ns, || cold(launcher, flush, team))),
        Timing::WarmIsolated => (1, sampling::sample(limits, spent_ns, || isolated(launcher, team))),
        Timing::WarmBatched => {
            let count = sampling::batch_size(protocol.batch_window_ns, |count| launcher.launch_batch(team, count));
            let batch = || launcher.launch_batch(team, count) / count as f64;
            (count, sampling::sample(limits, spent_ns, batch))
        }
    };
    Samples { timing, ns, launches_per_sample, converged }
}

/// One launch with all threads awake, caches as they are. Nanoseconds.
pub fn isolated(launcher: &mut Launcher<'_>, team: &mut Team) -> f64 {
    team.arm();
    launcher.launch(team)
}

/// One launch with all threads awake and the caches evicted. Nanoseconds.
pub fn cold(launcher: &mut Launcher<'_>, flush: &mut Flush, team: &mut Team) -> f64 {
    flush.evict(team);
    isolated(launcher, team)
}

fn overhead(launcher: &mut Launcher<'_>, team: &mut Team) -> f64 {
    let mut series = Series::with_capacity(OVERHEAD_LAUNCHES);
    for _ in 0..OVERHEAD_LAUNCHES {
        team.arm();
        series.push(launcher.launch_without_blocks(team));
    }
    series.median()
}
