//! Exact confidence limits of a proportion, by Clopper and Pearson. Pure.

use serde::{Deserialize, Serialize};
use statrs::function::beta::beta_reg;

use super::{Interval, StatsError, check_level};

/// Halvings of the interval from 0 to 1 that find a limit: to 10^-18, and so to three digits for 10^15 trials.
const HALVINGS: u32 = 60;

/// How often something happened in independent trials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proportion {
    pub events: u64,
    pub trials: u64,
}

impl Proportion {
    /// # Errors
    /// No trial, or more events than trials.
    pub fn new(events: u64, trials: u64) -> Result<Proportion, StatsError> {
        if trials == 0 {
            return Err(StatsError::Empty);
        }
        if events > trials {
            let allowed = "between 0 and the number of trials";
            return Err(StatsError::OutOfRange { what: "the number of events", value: events as f64, allowed });
        }
        Ok(Proportion { events, trials })
    }

    /// Events per trial.
    pub fn share(self) -> f64 {
        self.events as f64 / self.trials as f64
    }

    /// The share that the true one exceeds with a probability of at most `1 - level`, whatever it is (Clopper and
    /// Pearson 1934, upper side): the quantile `level` of `Beta(events + 1, trials - events)`.
    ///
    /// # Errors
    /// A level that is no probability.
    pub fn at_most(self, level: f64) -> Result<f64, StatsError> {
        check_level(level)?;
        if self.events == self.trials {
            return Ok(1.0);
        }
        let (a, b) = (self.events as f64 + 1.0, (self.trials - self.events) as f64);
        // By halving: the inverse that the crate has loses its digits where the limit is small.
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            if beta_reg(a, b, middle) < level { low = middle } else { high = middle }
        }
        Ok(high)
    }

    /// The share that the true one falls below with a probability of at most `1 - level` (the lower side): the quantile
    /// `1 - level` of `Beta(events, trials - events + 1)`.
    ///
    /// # Errors
    /// A level that is no probability.
    pub fn at_least(self, level: f64) -> Result<f64, StatsError> {
        let failures = Proportion { events: self.trials - self.events, trials: self.trials };
        Ok(1.0 - failures.at_most(level)?)
    }

    /// Both sides together: half of the remaining probability lies on each.
    ///
    /// # Errors
    /// A level that is no probability.
    pub fn interval(self, level: f64) -> Result<Interval, StatsError> {
        check_level(level)?;
        let side = f64::midpoint(1.0, level);
        Ok(Interval { low: self.at_least(side)?, high: self.at_most(side)?, level })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(value: f64, expected: f64) {
        assert!((value - expected).abs() < 5e-5, "{value} should be {expected}");
    }

    #[test]
    fn limits_are_those_of_the_tables() {
        let five = Proportion::new(5, 100).unwrap().interval(0.95).unwrap();
        close(five.low, 0.0164);
        close(five.high, 0.1128);
        // Without any event the limit has a closed form: 1 - 0.05^(1/n), "the rule of three".
        let none = Proportion::new(0, 3000).unwrap();
        close(none.at_most(0.95).unwrap(), 1.0 - 0.05_f64.powf(1.0 / 3000.0));
        assert_eq!(none.at_least(0.95).unwrap(), 0.0);
        assert_eq!(Proportion::new(7, 7).unwrap().at_most(0.95).unwrap(), 1.0);
    }

    #[test]
    fn what_is_no_proportion_is_refused() {
        assert_eq!(Proportion::new(0, 0), Err(StatsError::Empty));
        assert!(Proportion::new(2, 1).is_err());
        assert!(Proportion::new(1, 2).unwrap().at_most(1.0).is_err());
        assert!(Proportion::new(1, 2).unwrap().interval(f64::NAN).is_err());
    }

    proptest! {
        /// The definition: at the limit, so few events or fewer have just the remaining probability. Summed up term by
        /// term.
        #[test]
        fn the_limit_is_the_exact_one(trials in 1_u32..5_000, part in 0.0..0.99_f64, level in 0.5..0.999_f64) {
            let events = (f64::from(trials) * part * part) as u32;
            let limit = Proportion::new(events.into(), trials.into()).unwrap().at_most(level).unwrap();
            let odds = (limit / (1.0 - limit)).ln();
            let mut term = f64::from(trials) * (1.0 - limit).ln();
            let mut sum = term.exp();
            for k in 1..=events {
                term += odds + (f64::from(trials - k + 1) / f64::from(k)).ln();
                sum += term.exp();
            }
            prop_assert!((sum - (1.0 - level)).abs() < 1e-6, "{events} of {trials}: {limit} has {sum}");
        }
    }
}
