//! Student's t distribution: tail probabilities and critical values. Pure.

use statrs::function::beta::{beta_reg, inv_beta_reg};

/// `P(|T| >= t)` with `degrees` of freedom: the regularised incomplete beta function at `degrees / (degrees + t^2)`
/// (Abramowitz and Stegun 26.7.1), which keeps its digits where the probability is tiny.
pub(super) fn two_sided(t: f64, degrees: f64) -> f64 {
    let square = t * t;
    if square.is_finite() { beta_reg(degrees / 2.0, 0.5, degrees / (degrees + square)) } else { 0.0 }
}

/// `P(T >= t)` with `degrees` of freedom.
pub(super) fn upper_tail(t: f64, degrees: f64) -> f64 {
    let half = two_sided(t, degrees) / 2.0;
    if t >= 0.0 { half } else { 1.0 - half }
}

/// The `t` with `P(|T| >= t) = alpha`.
pub(super) fn critical(alpha: f64, degrees: f64) -> f64 {
    let x = inv_beta_reg(degrees / 2.0, 0.5, alpha);
    (degrees * (1.0 - x) / x).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Values as printed in tables of the distribution.
    #[test]
    fn critical_values_are_those_of_the_tables() {
        for (alpha, degrees, printed) in
            [(0.05, 1.0, 12.706), (0.1, 7.0, 1.895), (0.05, 10.0, 2.228), (0.001, 7.0, 5.408), (0.001, 30.0, 3.646)]
        {
            let t = critical(alpha, degrees);
            assert!((t - printed).abs() < 5e-4, "t({alpha}, {degrees}) is {t}, printed as {printed}");
        }
    }

    #[test]
    fn the_ends_of_the_distribution() {
        assert_eq!(two_sided(0.0, 6.0), 1.0);
        assert_eq!(two_sided(f64::INFINITY, 6.0), 0.0);
        assert_eq!(two_sided(f64::MAX, 6.0), 0.0);
        // With two degrees of freedom there is a closed form: 1 - t / sqrt(2 + t^2), here about 1 / t^2.
        assert!((two_sided(1e6, 2.0) / 1e-12 - 1.0).abs() < 1e-6);
        assert_eq!(upper_tail(0.0, 3.0), 0.5);
        assert_eq!(upper_tail(f64::NEG_INFINITY, 3.0), 1.0);
    }

    proptest! {
        #[test]
        fn a_critical_value_has_its_probability(alpha in 1e-12..0.999_f64, degrees in 1_u32..200) {
            let degrees = f64::from(degrees);
            let back = two_sided(critical(alpha, degrees), degrees);
            prop_assert!((back / alpha - 1.0).abs() < 1e-6, "{alpha} came back as {back}");
        }
    }
}
