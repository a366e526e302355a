//! Event mode: end-to-end timings of one fresh process, without a profiler.

use super::missing;
use crate::model::protocol::{Check, EventProtocol, Failure, Launchable, Line, Task};
use crate::model::record::SampleSet;

/// The worker's task.
pub fn task(launchable: Launchable, protocol: EventProtocol, check: Check) -> Task {
    Task::Event { launchable, protocol, check }
}

/// The sample set in a worker's answer. The last verification counts: it is the one of the timed launches.
///
/// # Errors
/// A part of the answer is missing.
pub fn collect(lines: &[Line]) -> Result<SampleSet, Failure> {
    let warmed_up = lines.iter().find_map(|line| match line {
        Line::WarmedUp { launches, ns, steady } => Some((*launches, *ns, *steady)),
        _ => None,
    });
    let (warmup_launches, warmup_ns, steady) = warmed_up.ok_or_else(|| missing("a warm-up"))?;
    let samples: Vec<_> = lines
        .iter()
        .filter_map(|line| match line {
            Line::Samples(samples) if !samples.ns.is_empty() => Some(samples.clone()),
            _ => None,
        })
        .collect();
    if samples.is_empty() {
        return Err(missing("samples"));
    }
    let verification = super::annotation::last_verification(lines)?;
    let sm_mhz = lines.iter().find_map(|line| match line {
        Line::SmClock { mhz } => Some(*mhz),
        _ => None,
    });
    Ok(SampleSet { warmup_launches, warmup_ns, steady, sm_mhz, samples, verification })
}
