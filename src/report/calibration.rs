//! A calibration as numbers: processes that a host has gathered, judged as if they had been compared. Pure.
//!
//! Every number is of the rule by which comparisons of that host are judged from then on. Under unlocked clocks that is the rule
//! with the smallest of [`THRESHOLDS`] that the host bears, by [`lowest_threshold`], where at least [`ENOUGH`] processes of each
//! kernel were gathered; else the one of 2%.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rayon::prelude::*;
use serde::Serialize;

use super::numbers::{counted, three_digits};
use crate::model::calibration::{FalseVerdicts, HostCalibration};
use crate::model::clocks::ClockState;
use crate::model::{DeviceId, Timing};
use crate::stats::verdict::calibration::{
    Resampling, disjoint, disjoint_rounds, lowest_threshold, resampled_rounds, spread,
};
use crate::stats::verdict::{Clocks, Process, Round, Rule, Tally, VerdictError};
use crate::stats::{self, StatsError};
use crate::store::calibrations::{Sitting, Visit};

/// Thresholds that a host with unlocked clocks may be trusted with, in place of 2%.
const THRESHOLDS: [f64; 4] = [0.005, 0.0075, 0.01, 0.015];

/// Processes of each kernel without which no threshold is lowered: as many as twice the last look takes of one side.
const ENOUGH: usize = 64;

/// Rounds with a slower side without which its times are scaled instead.
const ENOUGH_ROUNDS: usize = 16;

/// Changes that are looked for, as parts by which a kernel's time is longer.
const PARTS: [f64; 3] = [0.005, 0.01, 0.02];

/// How often a change is to be found.
const POWER: f64 = 0.95;

/// Confidence of all limits, one-sided.
const LEVEL: f64 = 0.95;

/// Resampled comparisons by which the smallest change that is seen is searched: each of ten steps takes as many.
const SEARCHED: u32 = 200;

const SEED: u64 = 1;

/// What a host's processes show.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Calibration {
    pub device: DeviceId,
    pub driver: Option<String>,
    pub clocks: ClockState,
    pub first: Timestamp,
    pub last: Timestamp,
    pub sittings: usize,
    pub rule: Rule,
    /// The threshold that holds without a calibration.
    pub usual_threshold: f64,
    pub kernels: Vec<KernelCalibration>,
    /// Identical code, of all kernels together.
    pub disjoint: Identical,
    pub resampled: Identical,
}

/// One kernel's part.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KernelCalibration {
    pub name: String,
    pub timing: Timing,
    /// Of identical code, those that were disturbed included.
    pub processes: usize,
    pub disturbed: usize,
    pub median_ns: Option<f64>,
    /// Standard deviation between processes of one sitting, as a fraction.
    pub spread: Option<f64>,
    pub disjoint: Identical,
    /// `None` where no sitting is long enough.
    pub resampled: Option<Identical>,
    pub changes: Vec<Change>,
    /// The smallest change of speed that is found 95 times in 100, by scaled samples.
    pub smallest_change: Option<f64>,
}

/// Comparisons of identical code.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Identical {
    pub tally: Tally,
    #[serde(flatten)]
    pub false_verdicts: FalseVerdicts,
}

/// Comparisons with a side that is slower by a known part.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// Part of its time by which the slower side is longer.
    pub slower_by: f64,
    pub how: How,
    /// The part that was measured, where the slower side ran.
    pub seen: Option<f64>,
    /// Comparisons that used every round once; none where times are scaled.
    pub disjoint: Tally,
    /// Resampled.
    pub tally: Tally,
    /// Resampled ones that were called SLOWER, as a share, and its exact lower limit.
    pub found: f64,
    pub at_least: f64,
}

/// How a side was made slower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// It ran with a spin of that length in it.
    Spin,
    /// It ran as it is, and its times were made longer afterwards.
    ScaledSamples,
}

impl How {
    pub const fn name(self) -> &'static str {
        match self {
            How::Spin => "spin",
            How::ScaledSamples => "scaled samples",
        }
    }
}

/// Processes that are judged together must be of one host.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CalibrationError {
    #[error(
        "there is no process to judge, gathered here or in the files that are named; `mlarun calibrate` gathers and judges"
    )]
    Nothing,
    #[error("the sittings are of {one} and of {other}; judge them apart")]
    Mixed { one: String, other: String },
    #[error(transparent)]
    Verdict(#[from] VerdictError),
    #[error(transparent)]
    Stats(#[from] StatsError),
}

/// One kernel's processes, sitting by sitting.
#[derive(Default)]
struct Series {
    identical: Vec<Vec<Process>>,
    /// By part, in thousandths of a percent: rounds of the slower kernel against itself.
    slowed: BTreeMap<u64, Vec<Vec<Round>>>,
}

/// Judges what was gathered, with so many resampled comparisons for each kernel and number.
///
/// # Errors
/// See [`CalibrationError`].
pub fn judge(sittings: &[Sitting], comparisons: u32) -> Result<Calibration, CalibrationError> {
    let (first, last) = sittings.first().zip(sittings.last()).ok_or(CalibrationError::Nothing)?;
    let is_other = |sitting: &&Sitting| host(sitting) != host(first);
    if let Some(other) = sittings.iter().find(is_other) {
        return Err(CalibrationError::Mixed { one: host(first), other: host(other) });
    }
    let clocks = if first.about.clocks.held().is_some() { Clocks::Locked } else { Clocks::Unlocked };
    let usual = Rule::new(clocks, 1);
    let names: Vec<(&str, Timing)> =
        last.about.kernels.iter().map(|kernel| (kernel.name.as_str(), kernel.timing)).collect();
    let series: Vec<Series> = names.iter().map(|(name, _)| Series::of(sittings, name)).collect();
    let rule = match clocks {
        Clocks::Locked => usual.clone(),
        Clocks::Unlocked => lowered(&series, &usual, comparisons)?,
    };
    let kernels: Vec<KernelCalibration> = names
        .par_iter()
        .zip(&series)
        .map(|((name, timing), series)| series.judge(name, *timing, &rule, comparisons))
        .collect::<Result<_, _>>()?;
    let sum = |of: fn(&KernelCalibration) -> Option<Identical>| {
        let tallies = kernels.iter().filter_map(of).map(|identical| identical.tally);
        Identical::of(tallies.fold(Tally::default(), Tally::plus))
    };
    Ok(Calibration {
        device: first.about.device.clone(),
        driver: first.about.driver.clone(),
        clocks: first.about.clocks,
        first: sittings.iter().map(|sitting| sitting.about.taken_at).min().unwrap_or(first.about.taken_at),
        last: sittings.iter().map(|sitting| sitting.about.taken_at).max().unwrap_or(last.about.taken_at),
        sittings: sittings.len(),
        usual_threshold: usual.threshold,
        disjoint: sum(|kernel| Some(kernel.disjoint))?,
        resampled: sum(|kernel| kernel.resampled)?,
        kernels,
        rule,
    })
}

/// What sittings must have in common; GPUs of one model may come together.
fn host(sitting: &Sitting) -> String {
    let about = &sitting.about;
    let driver = about.driver.as_ref().map(|driver| format!(", driver {driver}")).unwrap_or_default();
    format!("{}{driver}, clocks {}", about.device.name, about.clocks)
}

/// The rule with the smallest threshold that the host bears.
fn lowered(series: &[Series], usual: &Rule, comparisons: u32) -> Result<Rule, CalibrationError> {
    if series.iter().any(|series| series.identical.iter().map(Vec::len).sum::<usize>() < ENOUGH) {
        return Ok(usual.clone());
    }
    let kernels: Vec<Resampling<'_>> = series.iter().map(|series| series.resampling(comparisons)).collect();
    let lowest = lowest_threshold(&kernels, usual, &THRESHOLDS, POWER)?;
    Ok(lowest.map_or_else(|| usual.clone(), |threshold| usual.clone().with_threshold(threshold)))
}

impl Series {
    fn of(sittings: &[Sitting], name: &str) -> Series {
        let mut series = Series::default();
        for sitting in sittings {
            let is_meant = |visit: &&Visit| sitting.about.kernels[visit.kernel].name == name;
            let visits: Vec<&Visit> = sitting.visits.iter().filter(is_meant).collect();
            let identical = visits.iter().filter(|visit| visit.slower_by == 0.0);
            series.identical.push(identical.map(|visit| visit.process.clone()).collect());
            for part in PARTS {
                // The two of one turn ran directly one after the other.
                let rounds = visits.windows(2).filter_map(|two| {
                    let [one, other] = two else { return None };
                    let (slow, plain) = if one.slower_by > 0.0 { (one, other) } else { (other, one) };
                    let is_round = one.turn == other.turn && key(slow.slower_by) == key(part) && plain.slower_by == 0.0;
                    is_round.then(|| Round {
                        candidate: slow.process.clone(),
                        baseline: plain.process.clone(),
                        candidate_first: one.slower_by > 0.0,
                    })
                });
                series.slowed.entry(key(part)).or_default().push(rounds.collect());
            }
        }
        series
    }

    fn resampling(&self, comparisons: u32) -> Resampling<'_> {
        Resampling { sittings: &self.identical, comparisons, seed: SEED }
    }

    fn judge(
        &self,
        name: &str,
        timing: Timing,
        rule: &Rule,
        comparisons: u32,
    ) -> Result<KernelCalibration, CalibrationError> {
        let resampling = self.resampling(comparisons);
        let resampled = found(resampling.tally(rule, 0.0))?.map(Identical::of).transpose()?;
        let changes: Vec<Option<Change>> =
            PARTS.iter().map(|part| self.change(*part, rule, comparisons)).collect::<Result<_, _>>()?;
        let smallest = found(self.resampling(SEARCHED).smallest_found(rule, POWER))?.flatten();
        let times: Vec<f64> = self.identical.iter().flatten().filter_map(time).collect();
        let processes = self.identical.iter().map(Vec::len).sum();
        Ok(KernelCalibration {
            name: name.to_owned(),
            timing,
            processes,
            disturbed: processes - times.len(),
            median_ns: stats::median(&times).ok(),
            spread: spread(&self.identical),
            disjoint: Identical::of(disjoint(&self.identical, rule, 0.0, SEED)?)?,
            resampled,
            changes: changes.into_iter().flatten().collect(),
            smallest_change: smallest,
        })
    }

    /// Comparisons with a side that is slower by `part`: one that ran so, where there is one, else one whose times are scaled.
    fn change(&self, part: f64, rule: &Rule, comparisons: u32) -> Result<Option<Change>, CalibrationError> {
        let rounds = self.slowed.get(&key(part)).map(Vec::as_slice).unwrap_or_default();
        let are_enough = rounds.iter().map(Vec::len).sum::<usize>() >= ENOUGH_ROUNDS;
        let spun = match are_enough {
            true => found(resampled_rounds(rounds, rule, comparisons, SEED))?,
            false => None,
        };
        let (how, tally) = match spun {
            Some(tally) => (How::Spin, Some(tally)),
            None => (How::ScaledSamples, found(self.resampling(comparisons).tally(rule, 1.0 / (1.0 + part) - 1.0))?),
        };
        let Some(tally) = tally else { return Ok(None) };
        let slower = tally.found(-part)?;
        let (found, at_least) = (slower.share(), slower.at_least(LEVEL)?);
        let (seen, disjoint) = match how {
            How::Spin => (seen(rounds), disjoint_rounds(rounds, rule)?),
            How::ScaledSamples => (None, Tally::default()),
        };
        Ok(Some(Change { slower_by: part, how, seen, disjoint, tally, found, at_least }))
    }
}

/// A part as something that can be compared: in millionths.
fn key(part: f64) -> u64 {
    (part * 1e6).round() as u64
}

/// Its time, where it has one and nothing disturbed it.
fn time(process: &Process) -> Option<f64> {
    process.ns.filter(|ns| *ns > 0.0 && process.taints.is_empty())
}

/// Nothing where too little was gathered for a comparison.
fn found<T>(result: Result<T, VerdictError>) -> Result<Option<T>, VerdictError> {
    match result {
        Err(VerdictError::NoOverlap) => Ok(None),
        result => result.map(Some),
    }
}

/// By which part the slower sides took longer, on average.
fn seen(sittings: &[Vec<Round>]) -> Option<f64> {
    let rounds = sittings.iter().flatten();
    let logarithms: Vec<f64> =
        rounds.filter_map(|round| Some((time(&round.candidate)? / time(&round.baseline)?).ln())).collect();
    let mean = logarithms.iter().sum::<f64>() / logarithms.len() as f64;
    (!logarithms.is_empty()).then(|| mean.exp_m1())
}

impl Identical {
    fn of(tally: Tally) -> Result<Identical, StatsError> {
        let at_most = match tally.comparisons {
            0 => None,
            _ => Some(tally.different()?.at_most(LEVEL)?),
        };
        let false_verdicts =
            FalseVerdicts { events: tally.faster + tally.slower, comparisons: tally.comparisons, at_most };
        Ok(Identical { tally, false_verdicts })
    }
}

impl Calibration {
    /// In short, for tables.
    pub fn host(&self) -> HostCalibration {
        let smallest = self.kernels.iter().map(|kernel| kernel.smallest_change);
        HostCalibration {
            taken_at: self.last,
            device: self.device.clone(),
            driver: self.driver.clone(),
            clocks: self.clocks,
            processes: self.kernels.iter().map(|kernel| kernel.processes as u64).sum(),
            disjoint: self.disjoint.false_verdicts,
            resampled: self.resampled.false_verdicts,
            // One kernel in which nothing is seen leaves nothing to promise.
            smallest_change: smallest
                .clone()
                .reduce(|one, other| one.zip(other).map(|(one, other)| one.max(other)))
                .flatten(),
            smallest_change_at_best: smallest.flatten().reduce(f64::min),
            threshold: self.rule.threshold,
        }
    }
}

/// What a table says below its verdicts of the host that they come from.
pub fn sentence(host: &HostCalibration) -> String {
    let false_verdicts = |false_verdicts: &FalseVerdicts| {
        let at_most = false_verdicts.at_most.map_or_else(String::new, |limit| format!(" (at most {})", percent(limit)));
        format!("{} of {}{at_most}", false_verdicts.events, false_verdicts.comparisons)
    };
    if !host.says_something() {
        let processes = counted(host.processes, "process");
        return format!("This host: {processes} are too few for a single comparison; `mlarun calibrate` gathers more.");
    }
    let seen = match (host.smallest_change_at_best.map(percent), host.smallest_change.map(percent)) {
        (Some(best), Some(worst)) if best != worst => {
            format!("a change of {best} to {worst}, by the kernel, is found 95 times in 100")
        }
        (_, Some(change)) => format!("a change of {change} is found 95 times in 100"),
        (Some(best), None) => {
            format!("a change of {best} or more, and with some kernels none, is found 95 times in 100")
        }
        (None, None) => "no change up to twice the speed is found 95 times in 100".to_owned(),
    };
    format!(
        "This host: {seen}; of comparisons of identical code {} were called different, of resampled ones {} (mlarun calibrate, {}, {}).",
        false_verdicts(&host.disjoint),
        false_verdicts(&host.resampled),
        host.taken_at.strftime("%Y-%m-%d"),
        counted(host.processes, "process"),
    )
}

/// A share or a change, e.g. `0.0245%`.
pub fn percent(fraction: f64) -> String {
    format!("{}%", three_digits(Some(fraction * 100.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::clocks::Frequencies;
    use crate::model::{DeviceKind, KernelId, Language, Shape, Version};
    use crate::stats::verdict::Taint;
    use crate::store::calibrations::{About, Kernel};

    /// A sitting of one kernel, `ns` by turn and part; every third turn of a part as a calibration has them.
    fn sitting(name: &str, turns: u32, clocks: ClockState, ns: impl Fn(u32, f64) -> f64) -> Sitting {
        let id = KernelId { kernel: "spin_copy".into(), version: Version::BASE, language: Language::C };
        let kernel =
            Kernel { name: name.into(), id, shape: Shape::default(), timing: Timing::ColdIsolated, slowed: Vec::new() };
        let about = About {
            taken_at: Timestamp::UNIX_EPOCH,
            session: "a".into(),
            device: DeviceId { kind: DeviceKind::Cpu, name: "CPU".into(), uuid: None, units: 2 },
            driver: None,
            clocks,
            compiler: "cc".into(),
            mlarun: "0".into(),
            kernels: vec![kernel],
        };
        let visit = |turn: u32, slower_by: f64| Visit {
            kernel: 0,
            turn,
            slower_by,
            process: Process { ns: Some(ns(turn, slower_by)), sm_mhz: None, taints: Vec::new() },
            failure: None,
        };
        let visits = (0..turns).flat_map(|turn| {
            let two = [visit(turn, 0.0), visit(turn, PARTS[turn as usize % 3])];
            if turn / 3 % 2 == 0 { two } else { two.into_iter().rev().collect::<Vec<_>>().try_into().expect("two") }
        });
        Sitting { about, visits: visits.collect() }
    }

    /// Between -0.5 and 0.5, evenly, another one for each turn and part.
    fn noise(turn: u32, part: f64) -> f64 {
        fastrand::Rng::with_seed(u64::from(turn) * 1_000_003 + key(part)).f64() - 0.5
    }

    fn quiet(turn: u32, part: f64) -> f64 {
        200e3 * (1.0 + part) * (1.0 + 0.003 * noise(turn, part))
    }

    #[test]
    fn a_quiet_host_sees_little_changes_and_lowers_its_threshold() {
        let judged = judge(&[sitting("copy", 100, ClockState::None, quiet)], 3200).unwrap();
        assert_eq!((judged.rule.threshold, judged.usual_threshold), (0.005, 0.02));
        let [kernel] = &judged.kernels[..] else { panic!("{judged:?}") };
        assert_eq!((kernel.processes, kernel.disturbed, kernel.disjoint.tally.same), (100, 0, 6));
        assert!(kernel.spread.is_some_and(|spread| (0.0007..0.001).contains(&spread)), "{:?}", kernel.spread);
        assert_eq!(kernel.resampled.unwrap().false_verdicts.events, 0);
        assert!(kernel.resampled.unwrap().false_verdicts.at_most.unwrap() < 0.001);
        let [half, one, two] = &kernel.changes[..] else { panic!("{kernel:?}") };
        for (change, part) in [(half, 0.005), (one, 0.01), (two, 0.02)] {
            assert_eq!((change.slower_by, change.how), (part, How::Spin));
            assert!(change.seen.is_some_and(|seen| (seen - part).abs() < 5e-4), "{change:?}");
        }
        assert!(one.at_least > 0.95 && two.at_least > 0.95 && one.tally.faster == 0, "{one:?}");
        assert!(half.found < one.found, "half a percent is the threshold itself");
        assert!(one.disjoint.slower > 0 && one.disjoint.slower == one.disjoint.comparisons, "{one:?}");
        let host = judged.host();
        assert!(host.smallest_change.unwrap() < 0.007, "{host:?}");
        let said = sentence(&host);
        assert!(said.starts_with("This host: a change of 0.") && said.contains("0 of 6 (at most 39.30%)"), "{said}");
        assert!(said.ends_with("(mlarun calibrate, 1970-01-01, 100 processes)."), "{said}");
    }

    #[test]
    fn a_loud_host_and_one_with_few_processes_keep_the_usual_threshold() {
        let loud = |turn, part| 200e3 * (1.0 + 0.05 * noise(turn, part));
        let judged = judge(&[sitting("copy", 100, ClockState::None, loud)], 400).unwrap();
        assert_eq!(judged.rule.threshold, 0.02);
        let few = judge(&[sitting("copy", 60, ClockState::None, quiet)], 3200).unwrap();
        assert_eq!(few.rule.threshold, 0.02);
        // Under a lock there is nothing to lower.
        let held = ClockState::Locked(Frequencies { sm_mhz: 1500, mem_mhz: None });
        let locked = judge(&[sitting("copy", 60, held, quiet)], 100).unwrap();
        assert_eq!((locked.rule.threshold, locked.rule.clocks), (0.005, Clocks::Locked));
    }

    #[test]
    fn false_verdicts_are_counted() {
        // A wave of 2% with a period of four processes can deceive the rule, as docs/verdicts.md says.
        let wave = |turn: u32, part| quiet(turn, part) * if turn % 4 < 2 { 1.02 } else { 1.0 };
        let held = ClockState::Locked(Frequencies { sm_mhz: 1500, mem_mhz: None });
        let judged = judge(&[sitting("copy", 200, held, wave)], 2000).unwrap();
        let identical = judged.resampled.false_verdicts;
        assert!(identical.events > 0 && identical.at_most.unwrap() > 0.001, "{identical:?}");
    }

    #[test]
    fn without_a_slower_side_samples_are_scaled_and_called_so() {
        let mut sitting = sitting("copy", 100, ClockState::None, quiet);
        sitting.visits.retain(|visit| visit.slower_by == 0.0);
        let judged = judge(&[sitting], 3200).unwrap();
        for change in &judged.kernels[0].changes {
            assert_eq!((change.how, change.seen, change.disjoint.comparisons), (How::ScaledSamples, None, 0));
        }
        assert!(judged.kernels[0].changes[2].found > 0.99);
    }

    #[test]
    fn too_little_gives_no_number_and_nothing_at_all_an_error() {
        let judged = judge(&[sitting("copy", 3, ClockState::None, quiet)], 400).unwrap();
        let kernel = &judged.kernels[0];
        assert_eq!((kernel.resampled, kernel.smallest_change, kernel.changes.len()), (None, None, 0));
        assert_eq!(kernel.disjoint.false_verdicts.at_most, None);
        assert!(sentence(&judged.host()).contains("too few for a single comparison"));
        assert_eq!(judge(&[], 400), Err(CalibrationError::Nothing));
        let mut other = sitting("copy", 3, ClockState::None, quiet);
        other.about.device.name = "Another".into();
        let mixed = judge(&[sitting("copy", 3, ClockState::None, quiet), other], 400).unwrap_err();
        assert_eq!(
            mixed.to_string(),
            "the sittings are of CPU, clocks none and of Another, clocks none; judge them apart"
        );
    }

    #[test]
    fn disturbed_processes_count_as_such() {
        let mut sitting = sitting("copy", 100, ClockState::None, quiet);
        sitting.visits.iter_mut().step_by(2).for_each(|visit| visit.process.taints.push(Taint::Xid));
        let judged = judge(&[sitting], 400).unwrap();
        let kernel = &judged.kernels[0];
        assert!(kernel.disturbed > 40 && kernel.disturbed < 60, "{}", kernel.disturbed);
        assert_eq!(kernel.resampled.unwrap().tally.same, 0, "rounds with a disturbed side do not count");
    }
}
