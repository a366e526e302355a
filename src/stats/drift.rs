//! Shifts of a series: where its level changed for good, be it at once or slowly. Pure.
//!
//! For ratios of one measurement to a pinned reference, one a session (a night, say), in the order of time. The place of a
//! shift is found by E-divisive (Matteson and James 2014), and a t test decides whether it is one. As a series of measurements
//! is often autocorrelated, and has single sessions that went wrong, three things keep false alarms rare: values are winsorised
//! beforehand, the test counts as many values as are independent, and its level is divided by the places it could choose from.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::student::two_sided;
use super::{StatsError, median};

/// What counts as a shift.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DriftRule {
    /// Largest probability of a shift where there is none.
    pub p: f64,
    /// Smallest change of the level, as a fraction.
    pub change: f64,
    /// Fewest values on either side.
    pub values: usize,
}

impl Default for DriftRule {
    fn default() -> DriftRule {
        DriftRule { p: 1e-4, change: 0.01, values: 5 }
    }
}

/// A change of a series' level.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Shift {
    /// Index of the first value at the new level.
    pub at: usize,
    /// Geometric mean from the shift before (or the start) on.
    pub before: f64,
    /// Geometric mean up to the next shift (or the end).
    pub after: f64,
    /// Probability of such a shift, or a larger one, at any place of the series where there is none.
    pub p: f64,
}

impl Shift {
    /// Change of the level, as a fraction: 0.02 where the ratio grew by 2%.
    pub fn change(&self) -> f64 {
        self.after / self.before - 1.0
    }
}

impl DriftRule {
    fn check(&self) -> Result<(), StatsError> {
        let out = |what, value, allowed| Err(StatsError::OutOfRange { what, value, allowed });
        match () {
            () if !(self.p > 0.0 && self.p < 1.0) => out("the probability", self.p, "between 0 and 1, both excluded"),
            () if !(self.change >= 0.0 && self.change.is_finite()) => out("the change", self.change, "at 0 or above"),
            () if self.values < 2 => out("the number of values of a side", self.values as f64, "at 2 or above"),
            () => Ok(()),
        }
    }
}

/// The shifts of a series of ratios, in the order of time.
///
/// # Errors
/// No ratio, or one that is not a positive number. A rule that is none.
pub fn shifts(ratios: &[f64], rule: &DriftRule) -> Result<Vec<Shift>, StatsError> {
    rule.check()?;
    if ratios.is_empty() {
        return Err(StatsError::Empty);
    }
    if let Some((index, value)) = ratios.iter().enumerate().find(|(_, ratio)| !(ratio.is_normal() && **ratio > 0.0)) {
        return match value.is_finite() {
            true => Err(StatsError::OutOfRange { what: "a ratio", value: *value, allowed: "above 0" }),
            false => Err(StatsError::NotFinite { index, value: *value }),
        };
    }
    let series = winsorised(&ratios.iter().map(|ratio| ratio.ln()).collect::<Vec<_>>())?;
    let places = windows(series.len(), rule.values).map(|window| window.len() + 1 - 2 * rule.values).sum();
    let search = Search { series: &series, rule, places };
    let mut cuts = Vec::new();
    search.divide(0..series.len(), &mut cuts);
    Ok(search.confirmed(cuts))
}

/// Parts of a series of `count` values, at least `4 least` long: the whole, its halves, their halves and so on, each length
/// at every half of itself, so that a level that came and went has a part with just one of its two shifts (seeded binary
/// segmentation, Kovacs et al. 2023). The whole stands whatever its length.
fn windows(count: usize, least: usize) -> impl Iterator<Item = Range<usize>> {
    let halves = std::iter::successors(Some(count), |length| Some(length / 2));
    let lengths = halves.take_while(move |length| *length >= 2 * least && (*length == count || *length >= 4 * least));
    lengths.flat_map(move |length| {
        let step = (length / 2).max(1);
        let starts = (0..count - length).step_by(step).chain([count - length]);
        starts.map(move |start| start..start + length)
    })
}

/// One search for shifts.
struct Search<'a> {
    /// Logarithms of the ratios.
    series: &'a [f64],
    rule: &'a DriftRule,
    /// Places that a cut is chosen from.
    places: usize,
}

impl Search<'_> {
    /// Cuts the values in this range where it is surest that their level shifts, and each part again.
    fn divide(&self, range: Range<usize>, cuts: &mut Vec<usize>) {
        let in_window = |window: Range<usize>| {
            let (start, end) = (range.start + window.start, range.start + window.end);
            let cut = start + best_cut(&self.series[start..end], self.rule.values)?;
            self.is_shift(start, cut, end).then(|| (self.p(start, cut, end), cut))
        };
        let found = windows(range.len(), self.rule.values).filter_map(in_window);
        let Some((_, cut)) = found.min_by(|one, other| one.0.total_cmp(&other.0)) else { return };
        self.divide(range.start..cut, cuts);
        cuts.push(cut);
        self.divide(cut..range.end, cuts);
    }

    /// The cuts that are shifts also between their final neighbours. The weakest goes first, as its neighbours may grow
    /// surer without it.
    fn confirmed(&self, mut cuts: Vec<usize>) -> Vec<Shift> {
        loop {
            let bounds: Vec<usize> = [0].into_iter().chain(cuts.iter().copied()).chain([self.series.len()]).collect();
            let unsure = bounds.windows(3).map(|bound| match self.is_shift(bound[0], bound[1], bound[2]) {
                true => 0.0,
                false => self.p(bound[0], bound[1], bound[2]),
            });
            let weakest = unsure.enumerate().filter(|(_, p)| *p > 0.0).max_by(|one, other| one.1.total_cmp(&other.1));
            match weakest {
                Some((weakest, _)) => drop(cuts.remove(weakest)),
                None => return bounds.windows(3).map(|bound| self.shift(bound[0], bound[1], bound[2])).collect(),
            }
        }
    }

    fn shift(&self, start: usize, at: usize, end: usize) -> Shift {
        let [before, after] = [start..at, at..end].map(|range| mean(&self.series[range]).exp());
        Shift { at, before, after, p: self.p(start, at, end) }
    }

    fn is_shift(&self, start: usize, cut: usize, end: usize) -> bool {
        let change = mean(&self.series[cut..end]) - mean(&self.series[start..cut]);
        change.abs() >= self.rule.change.ln_1p() && self.p(start, cut, end) <= self.rule.p
    }

    /// Probability of two means this far apart, times the places that the cut was chosen from (Bonferroni).
    fn p(&self, start: usize, cut: usize, end: usize) -> f64 {
        (p(&self.series[start..cut], &self.series[cut..end]) * self.places as f64).min(1.0)
    }
}

/// The cut with the largest energy statistic, exponent 1: for m and n values, `m n / (m + n)` times twice the mean distance
/// between the sides, less the mean distances within each (Matteson and James 2014, section 2).
fn best_cut(values: &[f64], least: usize) -> Option<usize> {
    let count = values.len();
    if count < 2 * least {
        return None;
    }
    let distances = |value: f64, others: &[f64]| others.iter().map(|other| (value - other).abs()).sum::<f64>();
    let total: f64 = (0..count).map(|index| distances(values[index], &values[..index])).sum();
    let (mut left, mut right) = (0.0, total);
    let mut best = None;
    for cut in 1..=count - least {
        left += distances(values[cut - 1], &values[..cut - 1]);
        right -= distances(values[cut - 1], &values[cut..]);
        if cut < least {
            continue;
        }
        let (m, n) = (cut as f64, (count - cut) as f64);
        let between = (total - left - right) / (m * n);
        let within = |sum: f64, count: f64| if count > 1.0 { 2.0 * sum / (count * (count - 1.0)) } else { 0.0 };
        let energy = m * n / (m + n) * (2.0 * between - within(left, m) - within(right, n));
        if best.is_none_or(|(_, most)| energy > most) {
            best = Some((cut, energy));
        }
    }
    best.map(|(cut, _)| cut)
}

/// Probability of means this far apart by a two-sample t test with pooled variance. Of autocorrelated values
/// `(1 - r) / (1 + r)` are independent (Bartlett 1935; Zwiers and von Storch 1995).
fn p(before: &[f64], after: &[f64]) -> f64 {
    let squares = |side: &[f64], mean: f64| side.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>();
    let (mean_before, mean_after) = (mean(before), mean(after));
    let deviations = squares(before, mean_before) + squares(after, mean_after);
    let variance = deviations / (before.len() + after.len() - 2) as f64;
    let correlation = autocorrelation(before, after);
    let independent = (1.0 - correlation) / (1.0 + correlation);
    let (m, n) = (before.len() as f64 * independent, after.len() as f64 * independent);
    let degrees = m + n - 2.0;
    if degrees < 1.0 {
        return 1.0;
    }
    let t = (mean_after - mean_before) / (variance * (1.0 / m + 1.0 / n)).sqrt();
    if t.is_nan() { 1.0 } else { two_sided(t, degrees) }
}

/// Deviations of logarithms below this are those of arithmetic.
const ROUNDING: f64 = 1e-12;

/// Correlation of neighbours around a line through each side, so that a slow drift does not pass for it; made larger by what
/// fitting two lines takes away (as Kendall 1954 for a mean), and never below 0.
fn autocorrelation(before: &[f64], after: &[f64]) -> f64 {
    let sides = [around_line(before), around_line(after)];
    let products: f64 = sides.iter().map(|side| side.windows(2).map(|two| two[0] * two[1]).sum::<f64>()).sum();
    let squares: f64 = sides.iter().flatten().map(|value| value * value).sum();
    let count = (before.len() + after.len()) as f64;
    if squares <= count * ROUNDING * ROUNDING {
        return 0.0;
    }
    let raw = products / squares;
    (raw + 4.0 * (1.0 + raw) / count).clamp(0.0, 0.95)
}

/// Deviations from the line of least squares.
fn around_line(values: &[f64]) -> Vec<f64> {
    let (middle, mean) = ((values.len() - 1) as f64 / 2.0, mean(values));
    let places = || (0..values.len()).map(|index| index as f64 - middle);
    let squares: f64 = places().map(|place| place * place).sum();
    let slope = places().zip(values).map(|(place, value)| place * (value - mean)).sum::<f64>() / squares;
    let slope = if squares > 0.0 { slope } else { 0.0 };
    places().zip(values).map(|(place, value)| value - mean - slope * place).collect()
}

/// Values on either side of one that say what is usual there.
const NEIGHBOURS: usize = 3;

/// A median absolute deviation times this is the standard deviation of normal values.
const MAD_TO_DEVIATION: f64 = 1.4826;

/// Each value moved to within three standard deviations of the median of its neighbourhood (Hampel 1974), so that a single
/// session that went wrong is no shift, while the first values at a new level stay where they are.
fn winsorised(values: &[f64]) -> Result<Vec<f64>, StatsError> {
    let usual = |(index, value): (usize, &f64)| {
        let around = &values[index.saturating_sub(NEIGHBOURS)..(index + NEIGHBOURS + 1).min(values.len())];
        let centre = median(around)?;
        let deviations: Vec<f64> = around.iter().map(|value| (value - centre).abs()).collect();
        let reach = 3.0 * MAD_TO_DEVIATION * median(&deviations)?;
        Ok(value.clamp(centre - reach, centre + reach))
    };
    values.iter().enumerate().map(usual).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Values around `level` that waver by up to 0.2%.
    fn around(level: f64, count: usize) -> impl Iterator<Item = f64> {
        (0..count).map(move |index| level * (1.0 + 0.0005 * ((index * 7) % 9) as f64 - 0.002))
    }

    fn found(ratios: &[f64]) -> Vec<Shift> {
        shifts(ratios, &DriftRule::default()).unwrap()
    }

    #[test]
    fn a_step_is_found_with_its_place_and_size() {
        let ratios: Vec<f64> = around(1.0, 30).chain(around(1.03, 12)).collect();
        let [shift] = found(&ratios)[..] else { panic!("one shift") };
        assert_eq!(shift.at, 30);
        assert!((shift.change() - 0.03).abs() < 0.001 && shift.p < 1e-9, "{shift:?}");
    }

    #[test]
    fn each_of_several_levels_is_told() {
        let levels: Vec<f64> = around(1.0, 20).chain(around(1.03, 20)).chain(around(0.98, 20)).collect();
        let found = found(&levels);
        assert_eq!(found.iter().map(|shift| shift.at).collect::<Vec<_>>(), [20, 40]);
        assert!((found[0].after - found[1].before).abs() < 1e-12);
        assert!(found[1].change() < 0.0);
    }

    #[test]
    fn a_level_that_came_and_went_is_two_shifts() {
        let bump: Vec<f64> = around(1.0, 30).chain(around(1.02, 15)).chain(around(1.0, 30)).collect();
        assert_eq!(found(&bump).iter().map(|shift| shift.at).collect::<Vec<_>>(), [30, 45]);
    }

    #[test]
    fn single_nights_gone_wrong_do_not_hide_a_shift() {
        let mut ratios: Vec<f64> = around(1.0, 30).chain(around(1.02, 30)).collect();
        (ratios[10], ratios[40]) = (1.5, 0.7);
        let [shift] = found(&ratios)[..] else { panic!("one shift") };
        assert!(shift.at == 30 && (shift.change() - 0.02).abs() < 0.002, "{shift:?}");
    }

    #[test]
    fn what_is_too_small_too_short_or_single_is_no_shift() {
        assert_eq!(found(&around(1.0, 60).collect::<Vec<_>>()), []);
        assert_eq!(found(&around(1.0, 30).chain(around(1.008, 30)).collect::<Vec<_>>()), []);
        assert_eq!(found(&around(1.0, 30).chain(around(1.03, 2)).collect::<Vec<_>>()), []);
        assert_eq!(found(&around(1.0, 30).chain([2.0]).chain(around(1.0, 30)).collect::<Vec<_>>()), []);
        assert_eq!(found(&[1.0; 60]), []);
        assert_eq!(found(&[1.0]), []);
    }

    #[test]
    fn levels_without_any_spread_differ() {
        let [shift] = found(&[[1.0; 10], [1.02; 10]].concat())[..] else { panic!("one shift") };
        assert!(shift.at == 10 && shift.p < 1e-100, "{shift:?}");
    }

    #[test]
    fn what_is_no_ratio_is_refused() {
        let refused = |ratios: &[f64]| shifts(ratios, &DriftRule::default()).unwrap_err();
        assert_eq!(refused(&[]), StatsError::Empty);
        assert!(matches!(refused(&[1.0, f64::NAN]), StatsError::NotFinite { index: 1, .. }));
        assert!(matches!(refused(&[1.0, 0.0]), StatsError::OutOfRange { .. }));
        assert!(matches!(refused(&[-1.0]), StatsError::OutOfRange { .. }));
    }

    #[test]
    fn a_rule_that_is_none_is_refused() {
        let refused = |rule| matches!(shifts(&[1.0; 60], &rule), Err(StatsError::OutOfRange { .. }));
        assert!(refused(DriftRule { values: 1, ..DriftRule::default() }));
        assert!(refused(DriftRule { p: 0.0, ..DriftRule::default() }));
        assert!(refused(DriftRule { change: f64::NAN, ..DriftRule::default() }));
    }

    /// The statistic by its definition, pair by pair.
    fn energy(values: &[f64], cut: usize) -> f64 {
        let (before, after) = values.split_at(cut);
        let pairs =
            |one: &[f64], other: &[f64]| one.iter().flat_map(|a| other.iter().map(move |b| (a - b).abs())).sum::<f64>();
        let (m, n) = (before.len() as f64, after.len() as f64);
        let within = |side: &[f64], count: f64| pairs(side, side) / (count * (count - 1.0));
        m * n / (m + n) * (2.0 * pairs(before, after) / (m * n) - within(before, m) - within(after, n))
    }

    proptest! {
        #[test]
        fn the_best_cut_has_the_largest_statistic(values in prop::collection::vec(-1.0..1.0_f64, 10..40)) {
            let best = best_cut(&values, 5).unwrap();
            for cut in 5..=values.len() - 5 {
                prop_assert!(energy(&values, cut) <= energy(&values, best) + 1e-9, "{cut} is better than {best}");
            }
        }

        #[test]
        fn a_series_upside_down_has_the_same_shifts(values in prop::collection::vec(0.9..1.1_f64, 1..80), step in 0.9..1.1_f64) {
            let half = values.len() / 2;
            let ratios: Vec<f64> =
                values.iter().enumerate().map(|(index, value)| if index < half { *value } else { value * step }).collect();
            let inverse: Vec<f64> = ratios.iter().map(|ratio| 1.0 / ratio).collect();
            let places = |ratios: &[f64]| found(ratios).iter().map(|shift| shift.at).collect::<Vec<_>>();
            prop_assert_eq!(places(&ratios), places(&inverse));
        }

        #[test]
        fn windows_cover_the_series_and_lie_within_it(count in 1_usize..500, least in 2_usize..10) {
            let all: Vec<_> = windows(count, least).collect();
            prop_assert!(all.iter().all(|window| window.end <= count && window.len() >= 2 * least));
            prop_assert_eq!(all.first().cloned(), (count >= 2 * least).then_some(0..count));
        }
    }
}
