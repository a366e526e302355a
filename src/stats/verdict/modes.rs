//! Process times that come in two groups: found, and said instead of averaged. Pure.

use serde::{Deserialize, Serialize};

use super::effect::step;

/// A gap between groups of n processes counts from this many standard deviations (within the groups) over n: 4 of them
/// with 32 processes, 16 with 8. By simulation: fewer than 1 in 500 samples of 8 to 32 values from a normal, uniform,
/// exponential or t distribution (2 degrees of freedom) have one.
const GAP_TIMES_PROCESSES: f64 = 128.0;

/// Two groups of process times with a gap between them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Modes {
    /// Geometric mean of the fast processes, in nanoseconds.
    pub fast_ns: f64,
    /// Geometric mean of the slow processes, in nanoseconds.
    pub slow_ns: f64,
    /// Fast processes.
    pub fast: u32,
    /// Slow processes.
    pub slow: u32,
}

impl Modes {
    /// The two groups into which the logarithms of times fall, if they do and lie at least `least` apart.
    ///
    /// The ascending values are cut at their widest gap that leaves at least two values and an eighth of all on either side (the
    /// criterion of single-linkage clustering; Hartigan 1975, ch. 11). A gap as wide as one step of the clock is none.
    pub(super) fn find(ln_ns: &[f64], least: f64) -> Option<Modes> {
        let mut ascending = ln_ns.to_vec();
        ascending.sort_unstable_by(f64::total_cmp);
        let count = ascending.len();
        let smallest_group = count.div_ceil(8).max(2);
        let gap = |cut: usize| ascending[cut] - ascending[cut - 1];
        let cuts = smallest_group..=count.checked_sub(smallest_group)?;
        let cut = cuts.max_by(|one, other| gap(*one).total_cmp(&gap(*other)))?;
        let (low, high) = ascending.split_at(cut);
        let (low, high) = (Group::of(low), Group::of(high));
        let deviation = ((low.squares + high.squares) / (count - 2) as f64).sqrt();
        let gap = gap(cut) - step(&ascending);
        let is_gap = gap > 0.0 && gap * count as f64 >= GAP_TIMES_PROCESSES * deviation;
        (is_gap && high.mean - low.mean >= least).then(|| Modes {
            fast_ns: low.mean.exp(),
            slow_ns: high.mean.exp(),
            fast: low.count,
            slow: high.count,
        })
    }

    /// Whether a time, as a logarithm, belongs to the slow group: it lies nearer to that.
    pub(super) fn is_slow(&self, ln_ns: f64) -> bool {
        ln_ns > f64::midpoint(self.fast_ns.ln(), self.slow_ns.ln())
    }
}

struct Group {
    count: u32,
    mean: f64,
    squares: f64,
}

impl Group {
    fn of(values: &[f64]) -> Group {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares = values.iter().map(|value| (value - mean) * (value - mean)).sum();
        Group { count: values.len() as u32, mean, squares }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(times: &[f64]) -> Option<Modes> {
        at_least(times, 0.005)
    }

    fn at_least(times: &[f64], least: f64) -> Option<Modes> {
        Modes::find(&times.iter().map(|ns| ns.ln()).collect::<Vec<_>>(), least)
    }

    /// `count` times around `ns` that step up by 0.1% from one to the next.
    fn around(ns: f64, count: u32) -> impl Iterator<Item = f64> {
        (0..count).map(move |k| ns * (1.0 + 0.001 * f64::from(k)))
    }

    #[test]
    fn two_groups_are_told_with_their_times_and_sizes() {
        let times: Vec<f64> = around(1000.0, 6).chain(around(1100.0, 4)).collect();
        let modes = find(&times).expect("two groups, 10% apart");
        assert_eq!((modes.fast, modes.slow), (6, 4));
        assert!((modes.fast_ns - 1002.5).abs() < 0.1 && (modes.slow_ns - 1101.6).abs() < 0.1, "{modes:?}");
    }

    #[test]
    fn one_group_one_outlier_and_one_step_of_the_clock_are_no_modes() {
        assert_eq!(find(&around(1000.0, 16).collect::<Vec<_>>()), None);
        let outlier: Vec<f64> = around(1000.0, 15).chain([2000.0]).collect();
        assert_eq!(find(&outlier), None);
        assert_eq!(find(&[20_000.0, 20_500.0].repeat(8)), None);
        assert_eq!(find(&[5.0; 16]), None);
        assert_eq!(find(&[]), None);
        assert_eq!(find(&[1.0, 2.0, 3.0]), None);
    }

    #[test]
    fn groups_closer_than_what_matters_are_one() {
        let times: Vec<f64> = (0..8)
            .map(|k| 1000.0 + 0.001 * f64::from(k))
            .chain((0..8).map(|k| 1002.0 + 0.001 * f64::from(k)))
            .collect();
        assert_eq!(find(&times), None);
        assert!(at_least(&times, 0.001).is_some());
    }
}
