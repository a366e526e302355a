//! What many comparisons of one kind ended with, counted. Pure.

use serde::{Deserialize, Serialize};

use super::Verdict;
use crate::stats::{Proportion, StatsError};

/// Counts of verdicts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    pub comparisons: u64,
    pub faster: u64,
    pub slower: u64,
    pub same: u64,
    /// Inconclusive or invalid.
    pub none: u64,
    /// Rounds that counted, of all comparisons together.
    pub rounds: u64,
}

impl Tally {
    /// Adds a comparison that ended with this verdict after so many rounds.
    pub fn count(&mut self, verdict: &Verdict, rounds: u32) {
        self.comparisons += 1;
        self.rounds += u64::from(rounds);
        *match verdict {
            Verdict::Faster => &mut self.faster,
            Verdict::Slower => &mut self.slower,
            Verdict::Same => &mut self.same,
            Verdict::Inconclusive { .. } | Verdict::Invalid { .. } => &mut self.none,
        } += 1;
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Tally) -> Tally {
        Tally {
            comparisons: self.comparisons + other.comparisons,
            faster: self.faster + other.faster,
            slower: self.slower + other.slower,
            same: self.same + other.same,
            none: self.none + other.none,
            rounds: self.rounds + other.rounds,
        }
    }

    /// How often identical code was called different.
    ///
    /// # Errors
    /// No comparison.
    pub fn different(&self) -> Result<Proportion, StatsError> {
        Proportion::new(self.faster + self.slower, self.comparisons)
    }

    /// How often a change of this sign was called what it is.
    ///
    /// # Errors
    /// No comparison.
    pub fn found(&self, change: f64) -> Result<Proportion, StatsError> {
        Proportion::new(if change > 0.0 { self.faster } else { self.slower }, self.comparisons)
    }

    /// Rounds that a comparison took on average; `None` without any.
    pub fn mean_rounds(&self) -> Option<f64> {
        (self.comparisons > 0).then(|| self.rounds as f64 / self.comparisons as f64)
    }
}
