//! Medians, quantiles, confidence intervals, and the verdicts that are made of them. Pure arithmetic; no I/O.
//!
//! Every function refuses NaN and infinities and returns none: a statistic that does not exist is a `None` or an error.

mod drift;
mod interval;
mod proportion;
mod quantile;
mod student;
mod summary;
pub mod verdict;

pub use drift::{DriftRule, Shift, shifts};
pub use interval::{Interval, median_interval};
pub use proportion::Proportion;
pub use quantile::{interquartile_range, median, quantile, relative_spread};
pub use summary::{Basis, Summary, summarize};

/// Confidence level of every interval that reports print.
pub const LEVEL: f64 = 0.95;

/// The numbers have no such statistic.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum StatsError {
    #[error("no samples: a statistic needs at least one")]
    Empty,
    #[error("sample {index} is {value}: samples must be finite numbers")]
    NotFinite { index: usize, value: f64 },
    #[error("{what} is {value}: it must lie {allowed}")]
    OutOfRange { what: &'static str, value: f64, allowed: &'static str },
    #[error("the samples are so large that their mean or spread exceeds the range of a 64-bit float")]
    Overflow,
}

/// The samples in ascending order.
fn sorted(samples: &[f64]) -> Result<Vec<f64>, StatsError> {
    if samples.is_empty() {
        return Err(StatsError::Empty);
    }
    if let Some((index, &value)) = samples.iter().enumerate().find(|(_, value)| !value.is_finite()) {
        return Err(StatsError::NotFinite { index, value });
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    Ok(sorted)
}

fn check_level(level: f64) -> Result<(), StatsError> {
    if level > 0.0 && level < 1.0 {
        return Ok(());
    }
    Err(StatsError::OutOfRange {
        what: "the confidence level",
        value: level,
        allowed: "between 0 and 1, both excluded",
    })
}
