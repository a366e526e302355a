//! Verdicts: whether a candidate is faster or slower than its baseline, with a known rate of error. Pure; docs/verdicts.md
//! explains the rule and shows its error rates.
//!
//! [`orders`] says in which order the processes of each round run, [`judge()`] what the rounds show and after how many to look
//! again, and [`correct`] which claims stand in a table of many.

pub mod calibration;
mod effect;
mod judge;
mod modes;
mod rounds;
mod rule;
mod table;
mod tally;
#[cfg(test)]
mod tests;

pub use effect::Effect;
pub use judge::judge;
pub use modes::Modes;
pub use rounds::{Process, Round, Taint, orders};
pub use rule::{Clocks, Rule};
pub use table::correct;
pub use tally::Tally;

use std::fmt;

use serde::{Deserialize, Serialize};

use super::StatsError;

/// What a comparison ends with.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// The candidate is faster by at least the threshold.
    Faster,
    /// The candidate is slower by at least the threshold.
    Slower,
    /// The two differ by less than the margin.
    Same,
    /// Nothing can be claimed.
    Inconclusive {
        doubt: Doubt,
        /// The smallest change of speed, as a fraction, that would have been called 95 times in 100; `None` where too few
        /// rounds ran to say.
        smallest: Option<f64>,
    },
    /// More than a quarter of the rounds were dropped, most of them for this cause.
    Invalid { cause: Taint },
}

impl Verdict {
    /// Whether it says something about the kernels: faster, slower or the same.
    pub const fn is_claim(&self) -> bool {
        matches!(self, Verdict::Faster | Verdict::Slower | Verdict::Same)
    }

    /// Its word in tables.
    pub const fn name(&self) -> &'static str {
        match self {
            Verdict::Faster => "FASTER",
            Verdict::Slower => "SLOWER",
            Verdict::Same => "SAME",
            Verdict::Inconclusive { .. } => "INCONCLUSIVE",
            Verdict::Invalid { .. } => "INVALID",
        }
    }
}

/// Why nothing can be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    /// The rounds ended before the first look.
    TooFewRounds,
    /// Fewer than two rounds of one of the two orders count: what running second costs cannot be told from the effect.
    OneOrder,
    /// The interval is too wide: it holds both a change that matters and none.
    Spread,
    /// The interval would do, were it not for the steps of the clock that took the times.
    Step,
    /// Time and cycles do not agree: the difference is one of clocks.
    Clocks,
    /// A side's times come in two groups, and which of them is met decides.
    Modes,
    /// The claim stands by itself, but not among all comparisons of its table.
    Table,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Doubt::TooFewRounds => "too few rounds",
            Doubt::OneOrder => "rounds of one order only",
            Doubt::Spread => "the spread is too large",
            Doubt::Step => "the clock's steps are too large",
            Doubt::Clocks => "time and cycles disagree",
            Doubt::Modes => "process times come in two groups",
            Doubt::Table => "not beyond doubt among all comparisons of the table",
        })
    }
}

/// Rounds that one cause spoilt. A round with several causes counts at each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    pub cause: Taint,
    pub rounds: u32,
}

/// A verdict with all that it was made from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The change of speed; `None` with fewer than two rounds of either order.
    pub effect: Option<Effect>,
    /// The change in cycles, where clocks are unlocked and every round tells them.
    pub cycles: Option<Effect>,
    /// Rounds that count, at the look that decided.
    pub rounds: u32,
    pub dropped: Vec<Dropped>,
    pub candidate_modes: Option<Modes>,
    pub baseline_modes: Option<Modes>,
    /// After how many rounds that count to judge again; `None` where the verdict is final.
    pub next_look: Option<u32>,
    pub rule: Rule,
}

impl Judgement {
    /// Lowest and highest change of speed that the rounds agree with, as fractions, at the level that the verdict was made
    /// at.
    pub fn interval(&self) -> Option<(f64, f64)> {
        self.effect.map(|effect| effect.interval(self.rule.alpha))
    }

    /// Probability of such rounds where the sides do not differ, over all looks (their number times that of the last one) and,
    /// with unlocked clocks, of time or cycles, whichever says less; 1 without an effect.
    pub fn p_difference(&self) -> f64 {
        self.over_all_looks(Effect::p_difference)
    }

    /// The same where the sides differ by just the margin.
    pub fn p_same(&self) -> f64 {
        self.over_all_looks(|effect| effect.p_same(self.rule.margin))
    }

    fn over_all_looks(&self, p: impl Fn(&Effect) -> f64) -> f64 {
        let Some(effect) = &self.effect else { return 1.0 };
        let largest = self.cycles.iter().map(&p).fold(p(effect), f64::max);
        (largest * self.rule.looks.len() as f64).min(1.0)
    }

    /// The candidate's clock over the baseline's, less 1, where clocks are unlocked and known.
    pub fn clock_difference(&self) -> Option<f64> {
        self.effect.zip(self.cycles).map(|(time, cycles)| (time.ln_speed - cycles.ln_speed).exp_m1())
    }
}

/// The rounds cannot be judged.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum VerdictError {
    #[error("candidate and baseline have no round in common: measure both in one session")]
    NoOverlap,
    #[error("the rule of the verdict: {0}")]
    Rule(#[from] StatsError),
}
