//! Quantiles by linear interpolation between order statistics. Pure.

use super::{StatsError, sorted};

/// Median: the middle sample, or the mean of the two middle ones.
///
/// # Errors
/// No sample, or one that is not finite.
pub fn median(samples: &[f64]) -> Result<f64, StatsError> {
    quantile(samples, 0.5)
}

/// Quantile `p` (0 to 1) by definition 7 of Hyndman and Fan (1996), the default of NumPy and R: linear interpolation at
/// the position `(n - 1) p` of the samples in ascending order.
///
/// # Errors
/// No sample, one that is not finite, or `p` outside 0 to 1.
pub fn quantile(samples: &[f64], p: f64) -> Result<f64, StatsError> {
    if !(0.0..=1.0).contains(&p) {
        return Err(StatsError::OutOfRange { what: "the quantile", value: p, allowed: "between 0 and 1" });
    }
    Ok(quantile_of_sorted(&sorted(samples)?, p))
}

/// As [`quantile`], of samples that are finite, ascending and at least one.
pub(super) fn quantile_of_sorted(sorted: &[f64], p: f64) -> f64 {
    let position = (sorted.len() - 1) as f64 * p;
    let below = position.floor();
    let (low, high) = (sorted[below as usize], sorted[position.ceil() as usize]);
    let weight = position - below;
    // Both products are finite where `high - low` may not be; rounding must not leave the two samples' range.
    (low * (1.0 - weight) + high * weight).clamp(low, high)
}

/// Third quartile minus first, in the samples' unit.
///
/// # Errors
/// No sample, one that is not finite, or a range beyond that of a float.
pub fn interquartile_range(samples: &[f64]) -> Result<f64, StatsError> {
    let sorted = sorted(samples)?;
    let range = quantile_of_sorted(&sorted, 0.75) - quantile_of_sorted(&sorted, 0.25);
    if range.is_finite() { Ok(range) } else { Err(StatsError::Overflow) }
}

/// Interquartile range as a fraction of the median's magnitude; `None` where the median is 0.
///
/// # Errors
/// As [`interquartile_range`].
pub fn relative_spread(samples: &[f64]) -> Result<Option<f64>, StatsError> {
    let spread = interquartile_range(samples)? / median(samples)?.abs();
    Ok(spread.is_finite().then_some(spread))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_are_those_of_numpy() {
        let samples = [7.0, 1.0, 3.0, 10.0];
        assert_eq!(median(&samples), Ok(5.0));
        assert_eq!(quantile(&samples, 0.25), Ok(2.5));
        assert_eq!(quantile(&samples, 0.75), Ok(7.75));
        assert_eq!(quantile(&samples, 0.0), Ok(1.0));
        assert_eq!(quantile(&samples, 1.0), Ok(10.0));
        assert_eq!(interquartile_range(&samples), Ok(5.25));
        assert_eq!(relative_spread(&samples), Ok(Some(1.05)));
    }

    #[test]
    fn what_has_no_quantile_is_refused() {
        assert_eq!(median(&[]), Err(StatsError::Empty));
        assert!(matches!(median(&[1.0, f64::NAN]), Err(StatsError::NotFinite { index: 1, .. })));
        assert!(matches!(median(&[f64::INFINITY]), Err(StatsError::NotFinite { index: 0, .. })));
        assert!(quantile(&[1.0], 1.5).is_err());
        assert!(quantile(&[1.0], f64::NAN).is_err());
    }

    #[test]
    fn a_spread_relative_to_zero_does_not_exist() {
        assert_eq!(relative_spread(&[0.0, 0.0, 0.0]), Ok(None));
        assert_eq!(relative_spread(&[-1.0, 0.0, 1.0]), Ok(None));
    }

    #[test]
    fn the_largest_floats_do_not_overflow() {
        assert_eq!(median(&[f64::MAX, f64::MAX]), Ok(f64::MAX));
        assert_eq!(median(&[-f64::MAX, f64::MAX]), Ok(0.0));
        assert_eq!(interquartile_range(&[-f64::MAX, -f64::MAX, f64::MAX, f64::MAX]), Err(StatsError::Overflow));
    }

    fn samples() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(-1e12..1e12_f64, 1..60)
    }

    proptest! {
        #[test]
        fn order_does_not_matter(samples in samples(), p in 0.0..=1.0_f64) {
            let mut reversed = samples.clone();
            reversed.reverse();
            prop_assert_eq!(quantile(&samples, p), quantile(&reversed, p));
        }

        #[test]
        fn a_quantile_lies_between_the_extremes_and_grows(samples in samples(), p in 0.0..=1.0_f64, q in 0.0..=1.0_f64) {
            let (p, q) = (p.min(q), p.max(q));
            let (low, high) = (quantile(&samples, p).unwrap(), quantile(&samples, q).unwrap());
            prop_assert!(low <= high);
            prop_assert!(samples.iter().any(|&sample| sample <= low) && samples.iter().any(|&sample| sample >= high));
        }

        #[test]
        fn a_power_of_two_scales_exactly(samples in samples(), p in 0.0..=1.0_f64) {
            let scaled: Vec<f64> = samples.iter().map(|sample| sample * 4.0).collect();
            prop_assert_eq!(quantile(&scaled, p).unwrap(), quantile(&samples, p).unwrap() * 4.0);
        }
    }
}
