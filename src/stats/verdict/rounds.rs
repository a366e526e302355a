//! Rounds: the pairs of fresh processes that a comparison is made of, what spoils one, and the order in which they run.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One fresh process of either side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Median of its samples, in nanoseconds. `None` where it has none, or one that is no number.
    pub ns: Option<f64>,
    /// Clock of the multiprocessors while samples were taken, in MHz, where the device tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_mhz: Option<f64>,
    /// What was seen to disturb it, whatever its time came out as.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
}

impl Process {
    /// The natural logarithm of its time, where that is a time.
    pub(super) fn ln_ns(&self) -> Option<f64> {
        self.ns.filter(|ns| ns.is_normal() && *ns > 0.0).map(f64::ln)
    }

    /// The natural logarithm of its SM clock, where that is known.
    pub(super) fn ln_mhz(&self) -> Option<f64> {
        self.sm_mhz.filter(|mhz| mhz.is_normal() && *mhz > 0.0).map(f64::ln)
    }
}

/// Two fresh processes, one of each side, that ran directly after one another with the same inputs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Round {
    pub candidate: Process,
    pub baseline: Process,
    /// Which of the two ran first.
    pub candidate_first: bool,
}

impl Round {
    /// Why the round does not count, once a cause; empty where it does.
    pub fn taints(&self) -> Vec<Taint> {
        let sides = [&self.candidate, &self.baseline];
        let mut taints: Vec<Taint> = sides.iter().flat_map(|side| side.taints.iter().copied()).collect();
        if sides.iter().any(|side| side.ln_ns().is_none()) {
            taints.push(Taint::NoTime);
        }
        taints.sort_unstable();
        taints.dedup();
        taints
    }
}

/// A physical cause, named beforehand, for which a whole round is dropped. A time's own value is never one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Taint {
    /// The SM clock was more than 1% away from the locked one.
    ClockOff,
    /// The device throttled: power, heat or a brake from outside, under a lock.
    Throttled,
    /// Another process used the device.
    ForeignProcess,
    /// The driver reported an error of the device.
    Xid,
    /// A side has no time, or one that is not a positive number.
    NoTime,
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Taint::ClockOff => "the SM clock was off the locked one",
            Taint::Throttled => "the device throttled",
            Taint::ForeignProcess => "another process used the device",
            Taint::Xid => "the driver reported an Xid",
            Taint::NoTime => "a side gave no time",
        })
    }
}

/// Rounds by which one order may lead the other.
const MOST_AHEAD: i32 = 2;

/// The order of each round, without end: whether its processes run as they are listed, or the other way round.
///
/// Each is drawn, except that an order which leads by two rounds waits for the other (the big stick design, Soares and Wu
/// 1983): both come about equally often, and no disturbance of the host can keep step with the sides for long.
pub fn orders(seed: u64) -> impl Iterator<Item = bool> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut ahead = 0_i32;
    std::iter::repeat_with(move || {
        let as_listed = if ahead.abs() < MOST_AHEAD { random.bool() } else { ahead < 0 };
        ahead += if as_listed { 1 } else { -1 };
        as_listed
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(ns: Option<f64>, taints: &[Taint]) -> Process {
        Process { ns, sm_mhz: None, taints: taints.to_vec() }
    }

    #[test]
    fn orders_are_drawn_and_neither_leads_by_more_than_two_rounds() {
        let drawn: Vec<bool> = orders(1).take(1000).collect();
        let mut lead = 0_i32;
        for as_listed in &drawn {
            lead += if *as_listed { 1 } else { -1 };
            assert!(lead.abs() <= 2);
        }
        let repeats = drawn.windows(2).filter(|two| two[0] == two[1]).count();
        assert!((200..500).contains(&repeats), "{repeats} of 999 as the round before");
        assert_eq!(drawn, orders(1).take(1000).collect::<Vec<_>>());
        assert_ne!(drawn, orders(2).take(1000).collect::<Vec<_>>());
    }

    #[test]
    fn a_round_is_spoilt_by_either_side_and_by_a_time_that_is_none() {
        let round = |candidate, baseline| Round { candidate, baseline, candidate_first: true };
        assert_eq!(round(process(Some(1.0), &[]), process(Some(2.0), &[])).taints(), []);
        let both = round(process(Some(1.0), &[Taint::Xid]), process(Some(1.0), &[Taint::ClockOff, Taint::Xid]));
        assert_eq!(both.taints(), [Taint::ClockOff, Taint::Xid]);
        for no_time in [None, Some(0.0), Some(-1.0), Some(f64::NAN), Some(f64::INFINITY)] {
            assert_eq!(round(process(Some(1.0), &[]), process(no_time, &[])).taints(), [Taint::NoTime]);
        }
    }
}
