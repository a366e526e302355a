//! Confidence intervals of a median, by order statistics. Pure.

use serde::{Deserialize, Serialize};
use statrs::distribution::{Binomial, DiscreteCDF as _};

use super::{StatsError, check_level, sorted};

/// A confidence interval, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
    /// Least probability that an interval made this way covers the true value, e.g. 0.95.
    pub level: f64,
}

/// Interval of the median by order statistics, without any assumption about the distribution: from the j-th smallest
/// to the j-th largest sample, with the largest j for which `P(Bin(n, 1/2) < j) <= (1 - level) / 2`.
///
/// `None` with too few samples for the level (fewer than 6 at 0.95).
///
/// # Errors
/// No sample, one that is not finite, or a level that is no probability.
pub fn median_interval(samples: &[f64], level: f64) -> Result<Option<Interval>, StatsError> {
    check_level(level)?;
    let sorted = sorted(samples)?;
    let tail = (1.0 - level) / 2.0;
    let heads = Binomial::new(0.5, sorted.len() as u64).expect("1/2 is a probability");
    let mut rank = heads.inverse_cdf(tail);
    if heads.cdf(rank) <= tail {
        rank += 1;
    }
    // `rank` is j: counted from 1, so that 0 names no sample.
    let Some(index) = (rank as usize).checked_sub(1) else { return Ok(None) };
    Ok(Some(Interval { low: sorted[index], high: sorted[sorted.len() - 1 - index], level }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{LEVEL, median};
    use proptest::prelude::*;

    fn ranks(count: u32) -> Option<(f64, f64)> {
        let samples: Vec<f64> = (1..=count).map(f64::from).collect();
        median_interval(&samples, LEVEL).unwrap().map(|interval| (interval.low, interval.high))
    }

    /// Ranks as printed in tables of the sign test.
    #[test]
    fn the_ranks_are_those_of_the_tables() {
        assert_eq!(ranks(5), None);
        assert_eq!(ranks(6), Some((1.0, 6.0)));
        assert_eq!(ranks(8), Some((1.0, 8.0)));
        assert_eq!(ranks(9), Some((2.0, 8.0)));
        assert_eq!(ranks(10), Some((2.0, 9.0)));
        assert_eq!(ranks(12), Some((3.0, 10.0)));
        assert_eq!(ranks(20), Some((6.0, 15.0)));
        assert_eq!(ranks(100), Some((40.0, 61.0)));
    }

    #[test]
    fn what_has_no_interval_is_refused() {
        assert_eq!(median_interval(&[], LEVEL), Err(StatsError::Empty));
        assert!(median_interval(&[1.0], 1.0).is_err());
        assert!(median_interval(&[1.0, 2.0], f64::NAN).is_err());
    }

    proptest! {
        #[test]
        fn the_interval_holds_the_median(samples in prop::collection::vec(-1e12..1e12_f64, 6..80)) {
            let interval = median_interval(&samples, LEVEL).unwrap().expect("six samples are enough");
            let median = median(&samples).unwrap();
            prop_assert!(interval.low <= median && median <= interval.high);
        }

        #[test]
        fn order_does_not_matter(samples in prop::collection::vec(-1e12..1e12_f64, 2..40)) {
            let mut reversed = samples.clone();
            reversed.reverse();
            prop_assert_eq!(median_interval(&samples, LEVEL), median_interval(&reversed, LEVEL));
        }

        #[test]
        fn a_higher_level_never_narrows(samples in prop::collection::vec(1.0..1e6_f64, 8..60)) {
            let (narrow, wide) = (median_interval(&samples, 0.9).unwrap().unwrap(), median_interval(&samples, 0.99).unwrap().unwrap());
            prop_assert!(wide.low <= narrow.low && narrow.high <= wide.high);
        }
    }
}
