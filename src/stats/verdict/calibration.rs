//! Recorded processes of identical code, judged as if they had been compared: what the rule is worth on the host that they
//! come from. Pure.
//!
//! A sitting is a list of processes in the order in which they ran, nothing else in between. Comparisons are made of it in two
//! ways: disjoint ones use every process once, and are independent but few; resampled ones are as many as are asked for, put
//! together from blocks of consecutive processes (the moving block bootstrap, Künsch 1989), which keeps what neighbours have in
//! common. They repeat the same processes: an exact limit of their share is one for this record, not for the host.

use fastrand::Rng;

use super::tally::Tally;
use super::{Process, Round, Rule, VerdictError, judge, orders};

/// Consecutive processes that resampling keeps together.
const BLOCK: usize = 8;

/// Halvings that find the smallest change that is seen, to about 0.05%.
const HALVINGS: u32 = 10;

/// Confidence of the limits by which a threshold is chosen, one-sided.
const LEVEL: f64 = 0.95;

/// Resampled comparisons of recorded processes.
#[derive(Debug, Clone)]
pub struct Resampling<'a> {
    /// Each at least one block long; shorter ones are left out.
    pub sittings: &'a [Vec<Process>],
    pub comparisons: u32,
    pub seed: u64,
}

/// Comparisons one after another, each from the processes behind the one before, until a sitting has no more; one that a
/// sitting is too short for is not counted. The candidate's speed is made higher by `change` (a fraction), by scaling its times.
///
/// # Errors
/// A rule that is none.
pub fn disjoint(sittings: &[Vec<Process>], rule: &Rule, change: f64, seed: u64) -> Result<Tally, VerdictError> {
    let mut tally = Tally::default();
    for (sitting, seed) in sittings.iter().zip(seed..) {
        let mut rest = rounds(sitting, change, seed);
        while let Some((judgement, used)) = first_judgement(&rest, rule)? {
            tally.count(&judgement.verdict, judgement.rounds);
            rest.drain(..used);
        }
    }
    Ok(tally)
}

/// The first final judgement of these rounds, and how many it took.
fn first_judgement(rounds: &[Round], rule: &Rule) -> Result<Option<(super::Judgement, usize)>, VerdictError> {
    for used in 1..=rounds.len() {
        let judgement = judge(&rounds[..used], rule)?;
        if judgement.next_look.is_none() {
            return Ok(Some((judgement, used)));
        }
    }
    Ok(None)
}

impl Resampling<'_> {
    /// The comparisons with the candidate's speed made higher by `change` (a fraction), by scaling its times. The same seed draws
    /// the same processes whatever the change.
    ///
    /// # Errors
    /// A rule that is none, or no sitting as long as a block.
    pub fn tally(&self, rule: &Rule, change: f64) -> Result<Tally, VerdictError> {
        let blocks: Vec<&[Process]> = self.sittings.iter().flat_map(|sitting| sitting.windows(BLOCK)).collect();
        if blocks.is_empty() {
            return Err(VerdictError::NoOverlap);
        }
        rule.check()?;
        // Enough for the last look with as many rounds dropped as may be.
        let most_rounds = rule.looks.last().copied().unwrap_or_default() as usize * 4 / 3 + 1;
        let mut tally = Tally::default();
        for comparison in 0..u64::from(self.comparisons) {
            let mut random = Rng::with_seed(self.seed ^ comparison.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let mut processes: Vec<Process> = Vec::with_capacity(2 * most_rounds + BLOCK);
            while processes.len() < 2 * most_rounds {
                processes.extend_from_slice(blocks[random.usize(..blocks.len())]);
            }
            let judgement = judge(&rounds(&processes, change, random.u64(..)), rule)?;
            tally.count(&judgement.verdict, judgement.rounds);
        }
        Ok(tally)
    }

    /// The smallest change of speed, as a fraction, that is found in at least `power` (0.95, say) of the comparisons; `None`
    /// where not even twice the speed is.
    ///
    /// # Errors
    /// As [`Resampling::tally`].
    pub fn smallest_found(&self, rule: &Rule, power: f64) -> Result<Option<f64>, VerdictError> {
        let is_found = |change: f64| -> Result<bool, VerdictError> {
            Ok(self.tally(rule, change)?.found(change)?.share() >= power)
        };
        let (mut low, mut high) = (rule.threshold, 1.0);
        if !is_found(high)? {
            return Ok(None);
        }
        // Halved on a logarithmic scale, as changes lie between half a percent and a hundred.
        for _ in 0..HALVINGS {
            let middle = (low * high).sqrt();
            *if is_found(middle)? { &mut high } else { &mut low } = middle;
        }
        Ok(Some(high))
    }

    /// The smallest of these thresholds that the host can bear: false verdicts on identical code are at most the rule's error,
    /// by the upper limit of their share, and twice the threshold is found in `power` of the comparisons, by the lower limit.
    /// `None` where it bears none of them.
    ///
    /// # Errors
    /// As [`Resampling::tally`].
    pub fn lowest_threshold(&self, rule: &Rule, thresholds: &[f64], power: f64) -> Result<Option<f64>, VerdictError> {
        let mut ascending = thresholds.to_vec();
        ascending.sort_unstable_by(f64::total_cmp);
        for threshold in ascending {
            let rule = rule.clone().with_threshold(threshold);
            let (same, faster) = (self.tally(&rule, 0.0)?, self.tally(&rule, 2.0 * threshold)?);
            let is_true = same.different()?.at_most(LEVEL)? <= rule.error();
            if is_true && faster.found(threshold)?.at_least(LEVEL)? >= power {
                return Ok(Some(threshold));
            }
        }
        Ok(None)
    }
}

/// Processes as rounds, two and two, sides and orders as they would have been drawn.
fn rounds(processes: &[Process], change: f64, seed: u64) -> Vec<Round> {
    let round = |(two, candidate_first): (&[Process], bool)| {
        let (candidate, baseline) = if candidate_first { (&two[0], &two[1]) } else { (&two[1], &two[0]) };
        let ns = candidate.ns.map(|ns| ns / (1.0 + change));
        Round { candidate: Process { ns, ..candidate.clone() }, baseline: baseline.clone(), candidate_first }
    };
    processes.chunks_exact(2).zip(orders(seed)).map(round).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::verdict::{Clocks, Taint};
    use crate::stats::{Proportion, StatsError};

    /// A sitting whose processes waver by up to `spread`, with a slow drift beneath.
    fn sitting(count: u32, spread: f64) -> Vec<Process> {
        let mut random = Rng::with_seed(u64::from(count));
        let process = |index| Process {
            ns: Some(100_000.0 * (1.0 + spread * (random.f64() - 0.5) + 1e-5 * f64::from(index))),
            sm_mhz: None,
            taints: Vec::new(),
        };
        (0..count).map(process).collect()
    }

    fn rule() -> Rule {
        Rule::new(Clocks::Locked, 1)
    }

    #[test]
    fn disjoint_comparisons_use_every_process_once_and_count_none_that_is_cut_short() {
        let sittings = [sitting(100, 0.002), sitting(15, 0.002)];
        let identical = disjoint(&sittings, &rule(), 0.0, 1).unwrap();
        assert_eq!((identical.comparisons, identical.same, identical.rounds), (6, 6, 48));
        let faster = disjoint(&sittings, &rule(), 0.02, 1).unwrap();
        assert_eq!((faster.comparisons, faster.faster), (6, 6));
        assert_eq!(faster.found(0.02).unwrap(), Proportion::new(6, 6).unwrap());
        assert_eq!(disjoint(&sittings, &rule(), -0.02, 1).unwrap().slower, 6);
        assert_eq!(disjoint(&[], &rule(), 0.0, 1).unwrap().different(), Err(StatsError::Empty));
    }

    #[test]
    fn resampled_comparisons_are_as_many_as_asked_for_and_repeat_by_their_seed() {
        let sittings = [sitting(100, 0.01), sitting(60, 0.01)];
        let resampling = Resampling { sittings: &sittings, comparisons: 200, seed: 1 };
        let identical = resampling.tally(&rule(), 0.0).unwrap();
        assert_eq!(identical.comparisons, 200);
        assert_eq!(identical.faster + identical.slower, 0, "{identical:?}");
        assert_eq!(identical, resampling.tally(&rule(), 0.0).unwrap());
        assert_ne!(identical, Resampling { seed: 2, ..resampling.clone() }.tally(&rule(), 0.0).unwrap());
        assert!(resampling.tally(&rule(), 0.02).unwrap().faster > 190);
        let short = [sitting(7, 0.01)];
        assert!(Resampling { sittings: &short, ..resampling }.tally(&rule(), 0.0).is_err());
    }

    #[test]
    fn a_louder_host_sees_less_and_bears_only_a_larger_threshold() {
        // At an error of 1 in 100, which 400 comparisons can show.
        let rule = Rule { alpha: 0.002, ..rule() };
        let on_a_host_of = |spread| {
            let sittings = [sitting(100, spread)];
            let resampling = Resampling { sittings: &sittings, comparisons: 400, seed: 1 };
            let lowest = resampling.lowest_threshold(&rule, &[0.02, 0.005, 0.01], 0.9).unwrap();
            (Resampling { comparisons: 100, ..resampling }.smallest_found(&rule, 0.95).unwrap(), lowest)
        };
        let (quiet, quiet_threshold) = on_a_host_of(0.002);
        let (loud, loud_threshold) = on_a_host_of(0.03);
        assert!(quiet.unwrap() < 0.006 && loud.unwrap() > 0.01, "{quiet:?}, {loud:?}");
        assert_eq!((quiet_threshold, loud_threshold), (Some(0.005), Some(0.02)));
        assert_eq!(on_a_host_of(1.9), (None, None));
    }

    #[test]
    fn disturbed_processes_are_dropped_here_too() {
        let mut disturbed = sitting(100, 0.002);
        disturbed.iter_mut().step_by(2).for_each(|process| process.taints.push(Taint::Throttled));
        let tally = disjoint(&[disturbed], &rule(), 0.0, 1).unwrap();
        assert_eq!((tally.none, tally.same), (tally.comparisons, 0));
        assert!(tally.comparisons > 0);
    }
}
