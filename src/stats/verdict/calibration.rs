//! Recorded processes of identical code, judged as if they had been compared: what the rule is worth on the host that they
//! come from. Pure.
//!
//! A sitting is a list of processes in the order in which they ran. What ran between them is the same between all of them, so
//! that a drift of the host meets them as it meets the rounds of a comparison, or more so. Comparisons are made of it in two ways: disjoint ones use every process once, and are independent but few; resampled ones are as many as are asked for, put
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
    let sittings: Vec<Vec<Round>> =
        sittings.iter().zip(seed..).map(|(sitting, seed)| rounds(sitting, change, seed)).collect();
    disjoint_rounds(&sittings, rule)
}

/// The same of rounds that ran as such: one side code that is another's in truth, or is slower by a known part.
///
/// # Errors
/// A rule that is none.
pub fn disjoint_rounds(sittings: &[Vec<Round>], rule: &Rule) -> Result<Tally, VerdictError> {
    rule.check()?;
    let mut tally = Tally::default();
    for sitting in sittings {
        let mut rest = sitting.as_slice();
        while let Some((judgement, used)) = first_judgement(rest, rule)? {
            tally.count(&judgement.verdict, judgement.rounds);
            rest = &rest[used..];
        }
    }
    Ok(tally)
}

/// Comparisons resampled from rounds that ran as such, in blocks of half as many rounds as [`Resampling`] takes processes.
///
/// # Errors
/// A rule that is none, or no sitting as long as a block.
pub fn resampled_rounds(
    sittings: &[Vec<Round>],
    rule: &Rule,
    comparisons: u32,
    seed: u64,
) -> Result<Tally, VerdictError> {
    let blocks: Vec<&[Round]> = sittings.iter().flat_map(|sitting| sitting.windows(BLOCK / 2)).collect();
    resample(&blocks, most_rounds(rule), comparisons, seed, |rounds, _| judge(rounds, rule))
}

/// Comparisons, each of `length` things or some more, put together from blocks that are drawn.
fn resample<T: Clone>(
    blocks: &[&[T]],
    length: usize,
    comparisons: u32,
    seed: u64,
    judge: impl Fn(&[T], u64) -> Result<super::Judgement, VerdictError>,
) -> Result<Tally, VerdictError> {
    if blocks.is_empty() {
        return Err(VerdictError::NoOverlap);
    }
    let mut tally = Tally::default();
    let mut drawn: Vec<T> = Vec::with_capacity(length + BLOCK);
    for comparison in 0..u64::from(comparisons) {
        let mut random = Rng::with_seed(seed ^ comparison.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        drawn.clear();
        while drawn.len() < length {
            drawn.extend_from_slice(blocks[random.usize(..blocks.len())]);
        }
        let judgement = judge(&drawn, random.u64(..))?;
        tally.count(&judgement.verdict, judgement.rounds);
    }
    Ok(tally)
}

/// Enough for the last look with as many rounds dropped as may be.
fn most_rounds(rule: &Rule) -> usize {
    rule.looks.last().copied().unwrap_or_default() as usize * 4 / 3 + 1
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
        resample(&blocks, 2 * most_rounds(rule), self.comparisons, self.seed, |processes, seed| {
            judge(&rounds(processes, change, seed), rule)
        })
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
}

/// The smallest of these thresholds that the host can bear, as its kernels show:
///
/// 1. False verdicts on identical code are at most the rule's error, of all kernels together by the upper limit of their share;
///    and of none are they more by the lower limit.
/// 2. Twice the threshold is found in `power` of the comparisons, by the lower limit, of every kernel whose processes spread
///    by the threshold at most; and half of the kernels or more are so quiet. The others only see less: their comparisons end
///    without a claim more often.
///
/// `None` where it bears none of them.
///
/// # Errors
/// As [`Resampling::tally`].
pub fn lowest_threshold(
    kernels: &[Resampling<'_>],
    rule: &Rule,
    thresholds: &[f64],
    power: f64,
) -> Result<Option<f64>, VerdictError> {
    let mut ascending = thresholds.to_vec();
    ascending.sort_unstable_by(f64::total_cmp);
    for threshold in ascending {
        if bears(kernels, &rule.clone().with_threshold(threshold), power)? {
            return Ok(Some(threshold));
        }
    }
    Ok(None)
}

fn bears(kernels: &[Resampling<'_>], rule: &Rule, power: f64) -> Result<bool, VerdictError> {
    let is_quiet = |kernel: &&Resampling<'_>| spread(kernel.sittings).is_some_and(|spread| spread <= rule.threshold);
    let quiet: Vec<&Resampling<'_>> = kernels.iter().filter(is_quiet).collect();
    if 2 * quiet.len() < kernels.len() {
        return Ok(false);
    }
    for kernel in quiet {
        if kernel.tally(rule, 2.0 * rule.threshold)?.found(rule.threshold)?.at_least(LEVEL)? < power {
            return Ok(false);
        }
    }
    let mut all = Tally::default();
    for kernel in kernels {
        let identical = kernel.tally(rule, 0.0)?;
        if identical.different()?.at_least(LEVEL)? > rule.error() {
            return Ok(false);
        }
        all = all.plus(identical);
    }
    Ok(all.comparisons > 0 && all.different()?.at_most(LEVEL)? <= rule.error())
}

/// Standard deviation between the processes of one sitting, as a fraction; those that were disturbed do not count. `None` where no
/// sitting has two.
pub fn spread(sittings: &[Vec<Process>]) -> Option<f64> {
    let (mut squares, mut degrees) = (0.0, 0.0);
    for sitting in sittings {
        let counting = sitting.iter().filter(|process| process.taints.is_empty());
        let logarithms: Vec<f64> = counting.filter_map(Process::ln_ns).collect();
        let mean = logarithms.iter().sum::<f64>() / logarithms.len() as f64;
        squares += logarithms.iter().map(|ln| (ln - mean).powi(2)).sum::<f64>();
        degrees += (logarithms.len() as f64 - 1.0).max(0.0);
    }
    (degrees > 0.0).then(|| (squares / degrees).sqrt().exp_m1())
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
            let lowest = lowest_threshold(std::slice::from_ref(&resampling), &rule, &[0.02, 0.005, 0.01], 0.9).unwrap();
            (Resampling { comparisons: 100, ..resampling }.smallest_found(&rule, 0.95).unwrap(), lowest)
        };
        let (quiet, quiet_threshold) = on_a_host_of(0.002);
        let (loud, loud_threshold) = on_a_host_of(0.03);
        assert!(quiet.unwrap() < 0.006 && loud.unwrap() > 0.01, "{quiet:?}, {loud:?}");
        assert_eq!((quiet_threshold, loud_threshold), (Some(0.005), Some(0.02)));
        assert_eq!(on_a_host_of(1.9), (None, None));
    }

    #[test]
    fn half_of_the_kernels_must_be_as_quiet_as_the_threshold() {
        let rule = Rule { alpha: 0.002, ..rule() };
        let (quiet, loud) = ([sitting(100, 0.002)], [sitting(100, 0.03)]);
        let of = |sittings| Resampling { sittings, comparisons: 400, seed: 1 };
        let lowest = |kernels: &[Resampling<'_>]| lowest_threshold(kernels, &rule, &[0.005, 0.02], 0.9).unwrap();
        assert_eq!(lowest(&[of(&quiet), of(&quiet), of(&loud)]), Some(0.005));
        assert_eq!(lowest(&[of(&quiet), of(&loud), of(&loud)]), Some(0.02));
        assert_eq!(lowest(&[]), None);
    }

    #[test]
    fn the_spread_is_that_within_sittings_of_processes_that_count() {
        let process = |ns: f64, taints: &[Taint]| Process { ns: Some(ns), sm_mhz: None, taints: taints.to_vec() };
        let two =
            |level: f64| vec![process(level, &[]), process(level * 1.01, &[]), process(level * 9.0, &[Taint::Xid])];
        let found = spread(&[two(1e3), two(7e3), Vec::new()]).unwrap();
        assert!((found - 0.00706).abs() < 1e-5, "{found}");
        assert_eq!(spread(&[vec![process(1.0, &[])]]), None);
    }

    #[test]
    fn rounds_that_ran_as_such_are_judged_as_they_ran() {
        let rounds = |slower_by: f64| -> Vec<Vec<Round>> {
            let processes = sitting(100, 0.002);
            let round = |(index, process): (usize, &Process)| {
                let candidate = Process { ns: process.ns.map(|ns| ns * (1.0 + slower_by)), ..process.clone() };
                Round { candidate, baseline: process.clone(), candidate_first: index % 2 == 0 }
            };
            vec![processes.iter().enumerate().map(round).collect(), Vec::new()]
        };
        let found = disjoint_rounds(&rounds(0.02), &rule()).unwrap();
        assert_eq!((found.comparisons, found.slower), (12, 12));
        assert_eq!(disjoint_rounds(&rounds(0.0), &rule()).unwrap().same, 12);
        let resampled = resampled_rounds(&rounds(0.02), &rule(), 300, 1).unwrap();
        assert_eq!((resampled.comparisons, resampled.slower), (300, 300));
        assert!(resampled_rounds(&[rounds(0.0)[0][..3].to_vec()], &rule(), 300, 1).is_err());
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
