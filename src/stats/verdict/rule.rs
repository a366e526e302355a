//! The rule of a verdict: when it is looked, at which level, and which effects matter. Fixed before the first round.

use serde::{Deserialize, Serialize};

use crate::stats::StatsError;

/// Everything that a verdict depends on besides the rounds. It is stored with the verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// Numbers of rounds that count after which the comparison is judged, ascending. Between them nobody looks.
    pub looks: Vec<u32>,
    /// Level of one look, two-sided: its interval covers the true effect with a probability of `1 - alpha`.
    pub alpha: f64,
    /// Comparisons of the table, this one included. A claim ends the rounds early only where it would stand among as many.
    pub comparisons: u32,
    /// The smallest change of speed that is called faster or slower, as a fraction.
    pub threshold: f64,
    /// Two sides are the same where the whole interval lies within this, as a fraction.
    pub margin: f64,
    pub clocks: Clocks,
}

/// What is known about the clocks under which the rounds ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clocks {
    /// Locked, and seen to hold.
    Locked,
    /// Free to move: a claim must also hold in cycles, where the device tells its clock.
    Unlocked,
}

impl Rule {
    /// The looks of every rule made here.
    pub const LOOKS: [u32; 5] = [8, 12, 16, 24, 32];
    /// Level of one look: over five of them at most 1 false claim in 1,000.
    pub const ALPHA: f64 = 0.0002;
    /// Smallest change that is called under locked clocks.
    pub const LOCKED_THRESHOLD: f64 = 0.005;
    /// Smallest change that is called under unlocked clocks, until the host's own calibration shows a smaller one.
    pub const UNLOCKED_THRESHOLD: f64 = 0.02;

    /// For one of `comparisons` in a table, with the threshold that the clocks call for.
    pub fn new(clocks: Clocks, comparisons: u32) -> Rule {
        let threshold = match clocks {
            Clocks::Locked => Rule::LOCKED_THRESHOLD,
            Clocks::Unlocked => Rule::UNLOCKED_THRESHOLD,
        };
        Rule {
            looks: Rule::LOOKS.to_vec(),
            alpha: Rule::ALPHA,
            comparisons: comparisons.max(1),
            threshold,
            margin: 2.0 * threshold,
            clocks,
        }
    }

    /// The same with another threshold, as a calibration found it; the margin is twice that.
    #[must_use]
    pub fn with_threshold(self, threshold: f64) -> Rule {
        Rule { threshold, margin: 2.0 * threshold, ..self }
    }

    /// Probability of a false claim of one kind over all looks, at most: the sum of their levels (Bonferroni).
    pub fn error(&self) -> f64 {
        self.alpha * self.looks.len() as f64
    }

    /// Level of a look at which a claim stands whatever else the table holds.
    pub(super) fn alpha_in_table(&self) -> f64 {
        self.alpha / f64::from(self.comparisons)
    }

    /// # Errors
    /// No look, looks that do not ascend or are too few rounds for an interval, or a level, threshold or margin that is none.
    pub fn check(&self) -> Result<(), StatsError> {
        let out = |what, value, allowed| Err(StatsError::OutOfRange { what, value, allowed });
        let ascend = self.looks.windows(2).all(|pair| pair[0] < pair[1]);
        match self.looks.first() {
            None => return out("the number of looks", 0.0, "at 1 or above"),
            Some(first) if *first < 4 || !ascend => {
                return out("the first look", f64::from(*first), "at 4 rounds or more, and later looks after it");
            }
            Some(_) => {}
        }
        if !(self.alpha > 0.0 && self.error() < 1.0) {
            return out("the level of a look", self.alpha, "above 0, and below 1 over all looks");
        }
        if !(self.threshold > 0.0 && self.threshold < 1.0) {
            return out("the threshold", self.threshold, "between 0 and 1, both excluded");
        }
        if !(self.margin >= self.threshold && self.margin < 1.0) {
            return out("the margin", self.margin, "between the threshold and 1");
        }
        if self.comparisons == 0 {
            return out("the number of comparisons", 0.0, "at 1 or above");
        }
        Ok(())
    }
}
