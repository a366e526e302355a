//! The effect: the mean log ratio of the rounds' times, its interval, and what it could have shown. Pure.

use serde::{Deserialize, Serialize};

use super::rounds::Round;
use super::rule::Rule;
use crate::stats::student::{critical, two_sided, upper_tail};

/// Times closer than this, relative to one another, are one reading of the clock.
const SAME_READING: f64 = 1e-9;

/// A step larger than this is none of a clock: no time is taken with one so coarse, as short kernels are timed in batches.
const LARGEST_STEP: f64 = 0.05;

/// How often an effect is found that [`Effect::smallest`] calls visible.
const POWER: f64 = 0.95;

/// The change of speed over some rounds: the mean of `d = ln(baseline's time / candidate's time)`, each order of the two
/// weighing half, so that what running second costs cancels even where the orders are not equally many.
///
/// Logarithms, so that the two sides exchanged give the same numbers with the other sign, exactly.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Mean of d; above 0 the candidate is faster.
    pub ln_speed: f64,
    /// Standard error of that mean: of the two orders' means, with their pooled variance.
    pub ln_error: f64,
    /// Degrees of freedom of the error: rounds less two.
    pub degrees: u32,
    /// The clock's step as the times show it: the smallest difference between two of them that differ, as a logarithm; 0
    /// where that is too large for a clock.
    pub ln_step: f64,
    /// Geometric mean of the candidate's times, in nanoseconds, weighed as the effect is: their ratio is the effect.
    pub candidate_ns: f64,
    /// The same of the baseline's times.
    pub baseline_ns: f64,
}

/// Logarithms of one round's two values, and their order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    pub candidate: f64,
    pub baseline: f64,
    candidate_first: bool,
}

impl Pair {
    /// The round's times, where both are some.
    pub(super) fn times(round: &Round) -> Option<Pair> {
        let (candidate, baseline) = (round.candidate.ln_ns()?, round.baseline.ln_ns()?);
        Some(Pair { candidate, baseline, candidate_first: round.candidate_first })
    }

    /// The round's cycles, `time x clock` up to a constant factor, where both clocks are known.
    pub(super) fn cycles(round: &Round) -> Option<Pair> {
        let Pair { candidate, baseline, candidate_first } = Pair::times(round)?;
        let (candidate, baseline) = (candidate + round.candidate.ln_mhz()?, baseline + round.baseline.ln_mhz()?);
        Some(Pair { candidate, baseline, candidate_first })
    }

    fn d(self) -> f64 {
        self.baseline - self.candidate
    }
}

impl Effect {
    /// `None` unless each order has at least two rounds.
    pub(super) fn of(pairs: &[Pair]) -> Option<Effect> {
        let order = |first| pairs.iter().copied().filter(move |pair| pair.candidate_first == first);
        let [one, other] = [Order::of(order(true))?, Order::of(order(false))?];
        let degrees = pairs.len() - 2;
        let variance = (one.squares + other.squares) / degrees as f64;
        Some(Effect {
            ln_speed: f64::midpoint(one.d, other.d),
            ln_error: (variance * (1.0 / one.count + 1.0 / other.count)).sqrt() / 2.0,
            degrees: degrees as u32,
            ln_step: step(&ascending(pairs)),
            candidate_ns: f64::midpoint(one.candidate, other.candidate).exp(),
            baseline_ns: f64::midpoint(one.baseline, other.baseline).exp(),
        })
    }

    /// Change of speed, `baseline's time / candidate's time - 1`: 0.02 is 2% faster.
    pub fn change(&self) -> f64 {
        change(self.ln_speed)
    }

    /// Lowest and highest change of speed that the rounds agree with at the level `1 - alpha`: the t interval of the mean,
    /// wider by one step of the clock, which no number of rounds averages out.
    pub fn interval(&self, alpha: f64) -> (f64, f64) {
        let half = self.half_width(alpha);
        (change(self.ln_speed - half), change(self.ln_speed + half))
    }

    /// Spread of a side from process to process: the standard deviation of d within an order, less its part of the other
    /// side (`1 / sqrt 2`), as a fraction of the time. Exact where both orders have equally many rounds.
    pub fn process_spread(&self) -> f64 {
        self.ln_error * (f64::from(self.degrees + 2) / 2.0).sqrt()
    }

    /// The smallest change of speed, as a fraction, that rounds like these call faster or slower at the level `1 - alpha`
    /// 95 times in 100. By the usual sum of two quantiles (of the level, and of the power) instead of the noncentral t.
    pub fn smallest(&self, alpha: f64, threshold: f64) -> f64 {
        let quantile = critical(2.0 * (1.0 - POWER), f64::from(self.degrees));
        change(self.half_width(alpha).max(threshold.ln_1p()) + quantile * self.ln_error)
    }

    /// Probability of a mean this far from 0, or farther, where there is no difference.
    pub fn p_difference(&self) -> f64 {
        self.tail(self.ln_speed.abs() - self.ln_step, |t, degrees| if t > 0.0 { two_sided(t, degrees) } else { 1.0 })
    }

    /// Twice the probability of a mean this far within `margin` (a fraction), or farther, where the difference is just that
    /// large: the larger of two one-sided tests (Schuirmann 1987), doubled so that it is below `alpha` just where the
    /// interval at `1 - alpha` lies within the margin.
    pub fn p_same(&self, margin: f64) -> f64 {
        let room = margin.ln_1p() - self.ln_step - self.ln_speed.abs();
        self.tail(room, |t, degrees| (2.0 * upper_tail(t, degrees)).min(1.0))
    }

    /// `probability` of a distance from what is to be refuted, in standard errors. Without any spread a distance is either
    /// beyond doubt or none.
    fn tail(&self, distance: f64, probability: impl Fn(f64, f64) -> f64) -> f64 {
        match () {
            () if self.ln_error > SAME_READING => probability(distance / self.ln_error, f64::from(self.degrees)),
            () if distance > SAME_READING => 0.0,
            () => 1.0,
        }
    }

    /// The same with a clock that has no steps.
    pub(super) fn without_steps(self) -> Effect {
        Effect { ln_step: 0.0, ..self }
    }

    fn half_width(&self, alpha: f64) -> f64 {
        critical(alpha, f64::from(self.degrees)) * self.ln_error + self.ln_step
    }

    /// Whether the change is large enough to be called.
    pub(super) fn is_called(&self, rule: &Rule) -> bool {
        self.ln_speed.abs() >= rule.threshold.ln_1p()
    }
}

/// A change of speed from its logarithm; as large as a float allows where it is larger.
fn change(ln_speed: f64) -> f64 {
    ln_speed.exp_m1().min(f64::MAX)
}

/// The rounds of one order.
struct Order {
    count: f64,
    d: f64,
    candidate: f64,
    baseline: f64,
    /// Sum of squared deviations of d from its mean.
    squares: f64,
}

impl Order {
    fn of(pairs: impl Iterator<Item = Pair> + Clone) -> Option<Order> {
        let number = pairs.clone().count();
        if number < 2 {
            return None;
        }
        let count = number as f64;
        let mean = |of: fn(Pair) -> f64| pairs.clone().map(of).sum::<f64>() / count;
        let d = mean(Pair::d);
        let squares = pairs.clone().map(|pair| (pair.d() - d) * (pair.d() - d)).sum();
        let (candidate, baseline) = (mean(|pair| pair.candidate), mean(|pair| pair.baseline));
        Some(Order { count, d, candidate, baseline, squares })
    }
}

fn ascending(pairs: &[Pair]) -> Vec<f64> {
    let mut values: Vec<f64> = pairs.iter().flat_map(|pair| [pair.candidate, pair.baseline]).collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// The clock's step: the smallest difference between two of the ascending values that differ; 0 where none do, or not as
/// little as a clock's readings.
pub(super) fn step(ascending: &[f64]) -> f64 {
    let steps = ascending.windows(2).map(|two| two[1] - two[0]).filter(|step| *step > SAME_READING);
    steps.min_by(f64::total_cmp).filter(|step| *step <= LARGEST_STEP).unwrap_or(0.0)
}
