//! Median and its distribution-free interval, on memory reserved beforehand: sampling loops decide with it whether to
//! go on, and must not allocate. What is published is calculated elsewhere, from the raw samples.

/// Samples with room for `capacity` of them and for sorting.
pub struct Series {
    taken: Vec<f64>,
    sorted: Vec<f64>,
}

impl Series {
    /// An empty series for at most `capacity` samples.
    pub fn with_capacity(capacity: usize) -> Series {
        Series { taken: Vec::with_capacity(capacity), sorted: Vec::with_capacity(capacity) }
    }

    /// Adds a sample.
    pub fn push(&mut self, ns: f64) {
        self.taken.push(ns);
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.taken.len()
    }

    /// Forgets all samples, keeping the memory.
    pub fn clear(&mut self) {
        self.taken.clear();
    }

    /// The samples in the order in which they were taken.
    pub fn into_samples(self) -> Vec<f64> {
        self.taken
    }

    /// Median of the samples; NaN without any.
    pub fn median(&mut self) -> f64 {
        self.sort();
        middle(&self.sorted)
    }

    /// Whether the half-width of the median's 95% interval is at most `permille` thousandths of the median.
    pub fn is_narrow(&mut self, permille: u32) -> bool {
        self.sort();
        let Some((low, high)) = interval_ranks(self.sorted.len()) else { return false };
        let half_width = (self.sorted[high] - self.sorted[low]) / 2.0;
        half_width <= middle(&self.sorted) * f64::from(permille) / 1000.0
    }

    fn sort(&mut self) {
        self.sorted.clear();
        self.sorted.extend_from_slice(&self.taken);
        self.sorted.sort_unstable_by(f64::total_cmp);
    }
}

fn middle(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => sorted[len / 2],
        len => f64::midpoint(sorted[len / 2 - 1], sorted[len / 2]),
    }
}

/// Positions, from 0, of the order statistics that enclose the median with at least 95% probability, by the normal
/// approximation of the binomial distribution with the half-unit of continuity: n/2 ± (1.96·√n/2 + 1/2), rounded
/// outwards. `None` where n is too small for any pair.
fn interval_ranks(n: usize) -> Option<(usize, usize)> {
    let low = (n as f64 / 2.0 - 1.96 * (n as f64).sqrt() / 2.0 - 0.5).floor();
    (low >= 0.0 && n >= 6).then_some((low as usize, n - 1 - low as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[f64]) -> Series {
        let mut series = Series::with_capacity(values.len());
        values.iter().for_each(|value| series.push(*value));
        series
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(series(&[3.0, 1.0, 2.0]).median(), 2.0);
        assert_eq!(series(&[4.0, 1.0, 2.0, 3.0]).median(), 2.5);
        assert!(series(&[]).median().is_nan());
    }

    #[test]
    fn ranks_enclose_the_median_with_the_stated_probability() {
        for n in 6..200usize {
            let Some((low, high)) = interval_ranks(n) else { continue };
            assert_eq!(low + high, n - 1);
            // P(X_(low) <= median <= X_(high)) = P(low < B <= high) for B binomial(n, 1/2), from the exact sum.
            let log_choose = |k: usize| (0..k).map(|i| ((n - i) as f64 / (i + 1) as f64).ln()).sum::<f64>();
            let probability: f64 = (low + 1..=high).map(|k| (log_choose(k) - n as f64 * 2f64.ln()).exp()).sum();
            assert!(probability >= 0.95, "{n}: {probability}");
        }
        assert_eq!(interval_ranks(5), None);
        assert!(interval_ranks(30).is_some());
    }

    #[test]
    fn the_interval_narrows_with_the_spread() {
        let values: Vec<f64> = (0..100).map(|i| 1000.0 + f64::from(i % 10)).collect();
        assert!(series(&values).is_narrow(5));
        assert!(!series(&values).is_narrow(0));
        let wide: Vec<f64> = (0..100).map(|i| 1000.0 + 100.0 * f64::from(i % 10)).collect();
        assert!(!series(&wide).is_narrow(5));
    }
}
