//! Summary of a measurement's samples, labelled with what its interval ranges over. Pure.

use serde::{Deserialize, Serialize};

use super::quantile::quantile_of_sorted;
use super::{Interval, StatsError, median, median_interval, sorted};

/// What an interval ranges over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Launches of a single process: says how steady that process was, and nothing about the next one. Never the ground
    /// of a claim.
    Launches,
    /// Medians of several processes.
    Processes,
}

impl Basis {
    /// Name in tables and result files.
    pub const fn name(self) -> &'static str {
        match self {
            Basis::Launches => "launches",
            Basis::Processes => "processes",
        }
    }
}

/// A measurement in a few numbers, all in the samples' unit.
///
/// Of one process: its median and quartiles and the order-statistic interval of the median. Of several: the median of
/// each of these over the processes (so that a process with more samples weighs no more) and the t interval of the
/// process medians, widened where needed to hold their median.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub median: f64,
    pub q1: f64,
    pub q3: f64,
    /// `None` with too few samples for its level.
    pub interval: Option<Interval>,
    pub basis: Basis,
    /// Samples of all processes.
    pub samples: u64,
    pub processes: u64,
}

impl Summary {
    /// Interquartile range as a fraction of the median; `None` where that is no number.
    pub fn relative_spread(&self) -> Option<f64> {
        let spread = (self.q3 - self.q1) / self.median.abs();
        spread.is_finite().then_some(spread)
    }
}

/// Summary of the samples of each process.
///
/// # Errors
/// No process, a process without samples, or a sample that is not finite.
pub fn summarize<S: AsRef<[f64]>>(processes: &[S], level: f64) -> Result<Summary, StatsError> {
    let [single] = processes else { return over_processes(processes, level) };
    let samples = sorted(single.as_ref())?;
    Ok(Summary {
        median: quantile_of_sorted(&samples, 0.5),
        q1: quantile_of_sorted(&samples, 0.25),
        q3: quantile_of_sorted(&samples, 0.75),
        interval: median_interval(&samples, level)?,
        basis: Basis::Launches,
        samples: samples.len() as u64,
        processes: 1,
    })
}

fn over_processes<S: AsRef<[f64]>>(processes: &[S], level: f64) -> Result<Summary, StatsError> {
    let processes = processes.iter().map(|samples| sorted(samples.as_ref())).collect::<Result<Vec<_>, _>>()?;
    let each = |p: f64| processes.iter().map(|samples| quantile_of_sorted(samples, p)).collect::<Vec<_>>();
    let medians = each(0.5);
    let centre = median(&medians)?;
    Ok(Summary {
        median: centre,
        q1: median(&each(0.25))?,
        q3: median(&each(0.75))?,
        interval: median_interval(&sorted(&medians)?, level)?,
        basis: Basis::Processes,
        samples: processes.iter().map(|samples| samples.len() as u64).sum(),
        processes: processes.len() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::LEVEL;
    use proptest::prelude::*;

    #[test]
    fn one_process_is_summarized_over_its_launches() {
        let summary = summarize(&[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]], LEVEL).unwrap();
        assert_eq!((summary.q1, summary.median, summary.q3), (2.25, 3.5, 4.75));
        assert_eq!(summary.interval, Some(Interval { low: 1.0, high: 6.0, level: LEVEL }));
        assert_eq!((summary.basis, summary.samples, summary.processes), (Basis::Launches, 6, 1));
    }

    #[test]
    fn several_processes_are_summarized_over_their_medians() {
        let summary = summarize(&[vec![1.0, 1.0, 1.0], vec![2.0], vec![3.0, 3.0]], LEVEL).unwrap();
        assert_eq!((summary.q1, summary.median, summary.q3), (2.0, 2.0, 2.0));
        assert_eq!((summary.basis, summary.samples, summary.processes), (Basis::Processes, 6, 3));
        // Three processes are too few for an interval of their median at this level.
        assert_eq!(summary.interval, None);
    }

    #[test]
    fn too_few_launches_have_no_interval() {
        assert_eq!(summarize(&[[1.0, 2.0]], LEVEL).unwrap().interval, None);
    }

    #[test]
    fn missing_samples_are_an_error_and_never_a_zero() {
        assert_eq!(summarize::<Vec<f64>>(&[], LEVEL), Err(StatsError::Empty));
        assert_eq!(summarize(&[vec![1.0], vec![]], LEVEL), Err(StatsError::Empty));
        assert!(summarize(&[vec![1.0], vec![f64::NAN]], LEVEL).is_err());
    }

    proptest! {
        #[test]
        fn the_parts_of_a_summary_are_in_order(
            processes in prop::collection::vec(prop::collection::vec(1.0..1e9_f64, 1..20), 1..6),
        ) {
            let summary = summarize(&processes, LEVEL).unwrap();
            prop_assert!(summary.q1 <= summary.median && summary.median <= summary.q3);
            if let Some(interval) = summary.interval {
                prop_assert!(interval.low <= summary.median && summary.median <= interval.high);
            }
        }

        #[test]
        fn a_power_of_two_scales_exactly(
            processes in prop::collection::vec(prop::collection::vec(1.0..1e9_f64, 1..20), 1..6),
        ) {
            let scaled: Vec<Vec<f64>> = processes.iter().map(|one| one.iter().map(|ns| ns * 8.0).collect()).collect();
            let (summary, scaled) = (summarize(&processes, LEVEL).unwrap(), summarize(&scaled, LEVEL).unwrap());
            prop_assert_eq!(scaled.median, summary.median * 8.0);
            prop_assert_eq!(scaled.relative_spread(), summary.relative_spread());
            prop_assert_eq!(scaled.interval.map(|i| i.low), summary.interval.map(|i| i.low * 8.0));
        }
    }
}
