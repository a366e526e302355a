//! Tuning: a median time for each candidate, or why it has none, told as soon as it is known.
//!
//! Times are warm and isolated, as in event mode, after one launch that is not timed. A candidate of the whole
//! pipeline must leave finite outputs; it need not be compared with the reference, as the winner is. A candidate that
//! ends the process is the first one without an answer; after one that took the device with it the answer ends, and the
//! rest is for another process.

use std::time::Instant;

use super::answer::Answer;
use super::median::Series;
use super::rig::{Part, Rig};
use crate::model::protocol::{Candidate, CandidateOutcome, Failure, Line, Phase, TuneProtocol};

/// What one candidate comes to.
pub struct Tried {
    pub outcome: CandidateOutcome,
    /// The device answers no more in this process.
    pub lost: bool,
}

impl Tried {
    /// A candidate that failed before it could be launched.
    pub fn failed(failure: Failure) -> Tried {
        Tried { outcome: CandidateOutcome::Failed(failure), lost: false }
    }

    /// It did nothing wrong, so that its buffers can serve the next one.
    pub fn left_in_order(&self) -> bool {
        !matches!(self.outcome, CandidateOutcome::Failed(_))
    }
}

/// Times every candidate in order; `time` is given the best time so far.
///
/// # Errors
/// The answer cannot be written. A candidate that fails is an answer.
pub fn run(
    answer: &mut Answer,
    candidates: &[Candidate],
    mut time: impl FnMut(&mut Answer, &Candidate, f64) -> Tried,
) -> Result<(), Failure> {
    let mut best_ns = f64::INFINITY;
    for candidate in candidates {
        let Tried { outcome, lost } = time(answer, candidate, best_ns);
        if let CandidateOutcome::Timed { median_ns, .. } = outcome {
            best_ns = best_ns.min(median_ns);
        }
        answer.line(&Line::Candidate { number: candidate.number, outcome })?;
        if lost {
            break;
        }
    }
    Ok(())
}

/// Times the candidate that `rig` was made for.
pub fn time(
    answer: &mut Answer,
    rig: &mut impl Rig,
    candidate: &Candidate,
    protocol: &TuneProtocol,
    best_ns: f64,
) -> Tried {
    let outcome = outcome(answer, rig, candidate, protocol, best_ns).unwrap_or_else(CandidateOutcome::Failed);
    Tried { outcome, lost: rig.is_lost() }
}

fn outcome(
    answer: &mut Answer,
    rig: &mut impl Rig,
    candidate: &Candidate,
    protocol: &TuneProtocol,
    best_ns: f64,
) -> Result<CandidateOutcome, Failure> {
    rig.select(candidate.stage.map_or(Part::Whole, Part::Stage))?;
    let stage = candidate.stage.and_then(|index| rig.pipeline().stages.get(index)).map(|stage| stage.name.clone());
    answer.phase(Phase::Run, stage.as_deref())?;
    rig.launch()?;
    if candidate.stage.is_none() {
        rig.check_finite()?;
    }
    rig.check_bands()?;
    answer.phase(Phase::Sampling, None)?;
    let start = Instant::now();
    let spent_ns = || start.elapsed().as_nanos() as u64;
    let outcome = sample(protocol, best_ns, spent_ns, || rig.isolated())?;
    rig.check_bands()?;
    Ok(outcome)
}

/// Samples until there are enough or the budget is spent; one is enough for a candidate far above the best.
fn sample(
    protocol: &TuneProtocol,
    best_ns: f64,
    spent_ns: impl Fn() -> u64,
    mut launch: impl FnMut() -> Result<f64, Failure>,
) -> Result<CandidateOutcome, Failure> {
    let (min, max) = (protocol.min_samples.max(1), protocol.max_samples.max(protocol.min_samples).max(1));
    let mut series = Series::with_capacity(max as usize);
    for taken in 1..=max {
        let ns = launch()?;
        if taken == 1 && ns > best_ns * (1.0 + f64::from(protocol.abandon_percent) / 100.0) {
            return Ok(CandidateOutcome::Abandoned { ns });
        }
        series.push(ns);
        if taken >= min && spent_ns() >= protocol.budget_ns {
            break;
        }
    }
    Ok(CandidateOutcome::Timed { median_ns: series.median(), samples: series.len() as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOCOL: TuneProtocol =
        TuneProtocol { min_samples: 3, max_samples: 9, budget_ns: 1000, abandon_percent: 50 };

    #[test]
    fn a_candidate_far_above_the_best_is_given_up_after_one_launch() {
        let mut launches = 0;
        let outcome = sample(
            &PROTOCOL,
            100.0,
            || 0,
            || {
                launches += 1;
                Ok(151.0)
            },
        );
        assert_eq!((outcome, launches), (Ok(CandidateOutcome::Abandoned { ns: 151.0 }), 1));
        let outcome = sample(&PROTOCOL, 100.0, || 0, || Ok(149.0));
        assert_eq!(outcome, Ok(CandidateOutcome::Timed { median_ns: 149.0, samples: 9 }));
    }

    #[test]
    fn a_slow_sample_after_the_first_gives_nothing_up() {
        let mut times = [100.0, 900.0, 110.0].into_iter().cycle();
        let outcome = sample(&PROTOCOL, 100.0, || 2000, || Ok(times.next().unwrap_or(0.0)));
        assert_eq!(outcome, Ok(CandidateOutcome::Timed { median_ns: 110.0, samples: 3 }));
    }
}
