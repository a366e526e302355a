//! Tuning: a median time for each candidate, or why it has none, told as soon as it is known.
//!
//! Times are warm and isolated, as in event mode, after one launch that is not timed. A candidate of the whole
//! pipeline must leave finite outputs; it need not be compared with the reference, as the winner is. A candidate that
//! ends the process is the first one without an answer.

use std::time::Instant;

use super::answer::Answer;
use super::buffers::Buffers;
use super::event;
use super::host::Host;
use super::launch::Launcher;
use super::median::Series;
use super::subject;
use crate::model::pipeline::Stage;
use crate::model::protocol::{Candidate, CandidateOutcome, Failure, FailureKind, Line, Phase, TuneProtocol};

/// Times every candidate in order.
///
/// # Errors
/// The answer cannot be written. A candidate that fails is an answer.
pub fn run(
    answer: &mut Answer,
    host: &mut Host,
    candidates: &[Candidate],
    protocol: &TuneProtocol,
) -> Result<(), Failure> {
    let mut kept = None;
    let mut best_ns = f64::INFINITY;
    for candidate in candidates {
        let outcome = time(answer, host, candidate, protocol, best_ns, &mut kept);
        let outcome = outcome.unwrap_or_else(CandidateOutcome::Failed);
        if let CandidateOutcome::Timed { median_ns, .. } = outcome {
            best_ns = best_ns.min(median_ns);
        }
        answer.line(&Line::Candidate { number: candidate.number, outcome })?;
    }
    Ok(())
}

fn time(
    answer: &mut Answer,
    host: &mut Host,
    candidate: &Candidate,
    protocol: &TuneProtocol,
    best_ns: f64,
    kept: &mut Option<Buffers>,
) -> Result<CandidateOutcome, Failure> {
    let pipeline = &candidate.launchable.pipeline;
    let modules = subject::load(answer, &candidate.launchable)?;
    answer.phase(Phase::Inputs, None)?;
    let previous = kept.take();
    let mut buffers = host.compute(|| Buffers::make(pipeline, previous))?;
    let stages = stages(candidate)?;
    let modules = match candidate.stage {
        Some(index) => {
            host.compute(|| buffers.fill_scratch(pipeline));
            &modules[index..=index]
        }
        None => &modules[..],
    };
    let mut launcher = Launcher::new(&stages, modules, |index| buffers.get(index).pointer());
    answer.phase(Phase::Run, stages.first().filter(|_| candidate.stage.is_some()).map(|stage| stage.name.as_str()))?;
    let team = host.team(launcher.seat_cores(&host.cores))?;
    launcher.launch(team);
    if candidate.stage.is_none() {
        buffers.check_finite(pipeline)?;
    }
    buffers.check_bands()?;
    answer.phase(Phase::Sampling, None)?;
    let start = Instant::now();
    let spent_ns = || start.elapsed().as_nanos() as u64;
    let outcome = sample(protocol, best_ns, spent_ns, || event::isolated(&mut launcher, team));
    buffers.check_bands()?;
    *kept = Some(buffers);
    Ok(outcome)
}

/// The stages that run.
fn stages(candidate: &Candidate) -> Result<Vec<Stage>, Failure> {
    let all = &candidate.launchable.pipeline.stages;
    let Some(index) = candidate.stage else { return Ok(all.clone()) };
    let missing = || format!("candidate {} is about stage {index} of {}", candidate.number, all.len());
    let stage =
        all.get(index).ok_or_else(|| Failure { kind: FailureKind::Internal, stage: None, message: missing() })?;
    Ok(vec![Stage { after: Vec::new(), ..stage.clone() }])
}

/// Samples until there are enough or the budget is spent; one is enough for a candidate far above the best.
fn sample(
    protocol: &TuneProtocol,
    best_ns: f64,
    spent_ns: impl Fn() -> u64,
    mut launch: impl FnMut() -> f64,
) -> CandidateOutcome {
    let (min, max) = (protocol.min_samples.max(1), protocol.max_samples.max(protocol.min_samples).max(1));
    let mut series = Series::with_capacity(max as usize);
    for taken in 1..=max {
        let ns = launch();
        if taken == 1 && ns > best_ns * (1.0 + f64::from(protocol.abandon_percent) / 100.0) {
            return CandidateOutcome::Abandoned { ns };
        }
        series.push(ns);
        if taken >= min && spent_ns() >= protocol.budget_ns {
            break;
        }
    }
    CandidateOutcome::Timed { median_ns: series.median(), samples: series.len() as u32 }
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
                151.0
            },
        );
        assert_eq!((outcome, launches), (CandidateOutcome::Abandoned { ns: 151.0 }, 1));
        let outcome = sample(&PROTOCOL, 100.0, || 0, || 149.0);
        assert_eq!(outcome, CandidateOutcome::Timed { median_ns: 149.0, samples: 9 });
    }

    #[test]
    fn a_slow_sample_after_the_first_gives_nothing_up() {
        let mut times = [100.0, 900.0, 110.0].into_iter().cycle();
        let outcome = sample(&PROTOCOL, 100.0, || 2000, || times.next().unwrap_or(0.0));
        assert_eq!(outcome, CandidateOutcome::Timed { median_ns: 110.0, samples: 3 });
    }
}
