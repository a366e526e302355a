//! Event mode: end-to-end times of the whole pipeline, in a fresh process.
//!
//! What the interval spans is the device's own: [`super::cpu`] and `super::cuda` say it. Never in it: loading, inputs,
//! derived tensors, evicting caches, poisoning and checking.
//!
//! The output is checked before the first time is taken, again as the timed launches left it, and once more after
//! poison and a further launch, whose bits are compared with the first's. Samples are told only when all three have passed.

use std::time::Instant;

use super::answer::Answer;
use super::median::Series;
use super::rig::{self, Rig};
use super::sampling::{self, Limits};
use crate::model::Timing;
use crate::model::protocol::{EventProtocol, Failure, Line, Phase, Samples};

/// Empty launches whose median is the overhead.
const OVERHEAD_LAUNCHES: usize = 101;

/// Verifies, warms up, takes every timing, verifies again.
///
/// # Errors
/// Whatever prevents it; nothing is timed when the first check fails.
pub fn run(answer: &mut Answer, rig: &mut impl Rig, protocol: &EventProtocol) -> Result<(), Failure> {
    let first = rig::verify(answer, rig, None)?;
    rig.provide_flush(protocol.flush_bytes)?;
    answer.phase(Phase::Warmup, None)?;
    let warmed = sampling::warm_up(&protocol.warmup, || rig.isolated())?;
    answer.line(&Line::WarmedUp { launches: warmed.launches, ns: warmed.ns, steady: warmed.steady })?;
    answer.line(&Line::LaunchOverhead { ns: overhead(rig)? })?;
    // Readings of the clock from here on are those of the samples.
    rig.sm_mhz()?;
    answer.phase(Phase::Sampling, None)?;
    let samples = protocol.timings.iter().map(|&timing| take(timing, protocol, rig));
    let samples: Vec<Samples> = samples.collect::<Result<_, Failure>>()?;
    let sm_mhz = rig.sm_mhz()?;
    answer.phase(Phase::Compare, None)?;
    rig.check()?;
    rig::verify(answer, rig, first.as_ref())?;
    sm_mhz.map_or(Ok(()), |mhz| answer.line(&Line::SmClock { mhz }))?;
    samples.into_iter().try_for_each(|samples| answer.line(&Line::Samples(samples)))
}

fn take(timing: Timing, protocol: &EventProtocol, rig: &mut impl Rig) -> Result<Samples, Failure> {
    let limits = Limits {
        min_samples: protocol.min_samples,
        max_samples: protocol.max_samples,
        interval_permille: Some(protocol.interval_permille),
        budget_ns: protocol.budget_ns,
    };
    let start = Instant::now();
    let spent_ns = || start.elapsed().as_nanos() as u64;
    let (launches_per_sample, (ns, converged)) = match timing {
        Timing::ColdIsolated => (1, sampling::sample(limits, spent_ns, || rig.cold())?),
        Timing::WarmIsolated => (1, sampling::sample(limits, spent_ns, || rig.isolated())?),
        Timing::WarmBatched => {
            let count = sampling::batch_size(protocol.batch_window_ns, |count| rig.batch(count))?;
            let batch = || rig.batch(count).map(|ns| ns / count as f64);
            (count, sampling::sample(limits, spent_ns, batch)?)
        }
    };
    Ok(Samples { timing, ns, launches_per_sample, converged })
}

fn overhead(rig: &mut impl Rig) -> Result<f64, Failure> {
    let mut series = Series::with_capacity(OVERHEAD_LAUNCHES);
    for _ in 0..OVERHEAD_LAUNCHES {
        series.push(rig.without_work()?);
    }
    Ok(series.median())
}
