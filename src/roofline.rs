//! The roofline model: arithmetic intensity, ridge point, floor time and what limits. Pure; FLOP, bytes and nanoseconds
//! in, no text out.
//!
//! Source: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for multicore
//! architectures", Communications of the ACM 52(4), 2009.

use serde::{Deserialize, Serialize};

use crate::model::device::PeakSource;
use crate::model::{DType, Peaks};

const NS_PER_S: f64 = 1e9;

/// Work of one launch by the cost model: floating-point operations, and compulsory bytes (each tensor once).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    pub flops: f64,
    pub bytes: f64,
}

impl Cost {
    /// FLOP per byte; `None` where nothing is moved.
    pub fn intensity(&self) -> Option<f64> {
        finite(self.flops / self.bytes)
    }

    /// FLOP/s when it takes `ns` nanoseconds; `None` when that is not positive.
    pub fn flops_per_s(&self, ns: f64) -> Option<f64> {
        rate(self.flops, ns)
    }

    /// Byte/s when it takes `ns` nanoseconds; `None` when that is not positive.
    pub fn bytes_per_s(&self, ns: f64) -> Option<f64> {
        rate(self.bytes, ns)
    }
}

impl std::ops::Add for Cost {
    type Output = Cost;

    fn add(self, other: Cost) -> Cost {
        Cost { flops: self.flops + other.flops, bytes: self.bytes + other.bytes }
    }
}

impl std::iter::Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(costs: I) -> Cost {
        costs.fold(Cost { flops: 0.0, bytes: 0.0 }, |sum, cost| sum + cost)
    }
}

/// What limits a piece of work on an ideal device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    Memory,
    Compute,
}

/// The two peaks that bound one element type on one device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Roof {
    pub flops_per_s: f64,
    pub bytes_per_s: f64,
}

impl Roof {
    /// The roof of `peaks` for operands of `dtype`; `None` where the peak is unknown or not positive.
    pub fn of(peaks: &Peaks, dtype: DType) -> Option<Roof> {
        let roof = Roof { flops_per_s: *peaks.flops_per_s.get(&dtype)?, bytes_per_s: peaks.bytes_per_s };
        let positive = |peak: f64| peak.is_finite() && peak > 0.0;
        (positive(roof.flops_per_s) && positive(roof.bytes_per_s)).then_some(roof)
    }

    /// Ridge point in FLOP/byte.
    pub fn ridge_point(&self) -> f64 {
        self.flops_per_s / self.bytes_per_s
    }

    /// Shortest possible time in nanoseconds: the longer of FLOPs at their peak and bytes at theirs.
    pub fn floor_ns(&self, cost: Cost) -> f64 {
        self.compute_ns(cost).max(self.memory_ns(cost))
    }

    /// Which of the two is the longer; memory at the ridge point itself.
    pub fn limit(&self, cost: Cost) -> Limit {
        if self.compute_ns(cost) > self.memory_ns(cost) { Limit::Compute } else { Limit::Memory }
    }

    /// Attainable FLOP/s at the intensity of `cost`; `None` for work without FLOPs.
    pub fn attainable_flops_per_s(&self, cost: Cost) -> Option<f64> {
        finite(cost.flops / (self.floor_ns(cost) / NS_PER_S))
    }

    /// Floor time over the time taken: 1 is the roofline itself. `None` when `ns` is not positive.
    pub fn fraction(&self, cost: Cost, ns: f64) -> Option<f64> {
        (ns > 0.0).then(|| self.floor_ns(cost) / ns).and_then(finite)
    }

    fn compute_ns(&self, cost: Cost) -> f64 {
        cost.flops / self.flops_per_s * NS_PER_S
    }

    fn memory_ns(&self, cost: Cost) -> f64 {
        cost.bytes / self.bytes_per_s * NS_PER_S
    }
}

/// A time that no device of this model can reach.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error(
    "{ns} ns is faster than the datasheet's peaks allow ({floor_ns} ns): the cost model, the peaks or the measurement is \
     wrong"
)]
pub struct Impossible {
    pub ns: f64,
    pub floor_ns: f64,
}

/// Refuses a cold time below the floor of theoretical peaks. Measured peaks are no limit of nature and refuse nothing;
/// neither do unknown ones.
///
/// # Errors
/// The time is shorter than the floor.
pub fn check_possible(cost: Cost, ns: f64, peaks: &Peaks, dtype: DType) -> Result<(), Impossible> {
    let (PeakSource::Datasheet { .. }, Some(roof)) = (&peaks.source, Roof::of(peaks, dtype)) else { return Ok(()) };
    let floor_ns = roof.floor_ns(cost);
    if ns < floor_ns { Err(Impossible { ns, floor_ns }) } else { Ok(()) }
}

fn rate(amount: f64, ns: f64) -> Option<f64> {
    (ns > 0.0).then(|| amount / (ns / NS_PER_S)).and_then(finite)
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const ROOF: Roof = Roof { flops_per_s: 1e12, bytes_per_s: 1e11 };

    fn peaks(source: PeakSource) -> Peaks {
        Peaks {
            flops_per_s: BTreeMap::from([(DType::Float32, 1e12)]),
            bytes_per_s: 1e11,
            at_sm_mhz: BTreeMap::new(),
            source,
        }
    }

    #[test]
    fn the_ridge_separates_memory_from_compute() {
        assert_eq!(ROOF.ridge_point(), 10.0);
        assert_eq!(ROOF.limit(Cost { flops: 9e6, bytes: 1e6 }), Limit::Memory);
        assert_eq!(ROOF.limit(Cost { flops: 10e6, bytes: 1e6 }), Limit::Memory);
        assert_eq!(ROOF.limit(Cost { flops: 11e6, bytes: 1e6 }), Limit::Compute);
    }

    #[test]
    fn the_floor_is_the_longer_of_both() {
        assert_eq!(ROOF.floor_ns(Cost { flops: 1e6, bytes: 1e6 }), 10_000.0);
        assert_eq!(ROOF.floor_ns(Cost { flops: 1e9, bytes: 1e6 }), 1e6);
        assert_eq!(ROOF.fraction(Cost { flops: 1e9, bytes: 1e6 }, 4e6), Some(0.25));
        let attainable = ROOF.attainable_flops_per_s(Cost { flops: 1e6, bytes: 1e6 }).expect("there is work");
        assert!((attainable / 1e11 - 1.0).abs() < 1e-12, "{attainable}");
    }

    #[test]
    fn rates_of_no_time_do_not_exist() {
        let cost = Cost { flops: 1e6, bytes: 0.0 };
        assert_eq!((cost.intensity(), cost.flops_per_s(0.0), ROOF.fraction(cost, 0.0)), (None, None, None));
        assert_eq!(cost.flops_per_s(1e3), Some(1e12));
        assert_eq!(Cost { flops: 0.0, bytes: 0.0 }.intensity(), None);
        assert_eq!(ROOF.attainable_flops_per_s(Cost { flops: 0.0, bytes: 0.0 }), None);
    }

    #[test]
    fn an_unknown_or_zero_peak_is_no_roof() {
        let mut peaks = peaks(PeakSource::Datasheet { source: "sheet".into() });
        assert_eq!(Roof::of(&peaks, DType::Float32), Some(ROOF));
        assert_eq!(Roof::of(&peaks, DType::Bfloat16), None);
        peaks.bytes_per_s = 0.0;
        assert_eq!(Roof::of(&peaks, DType::Float32), None);
    }

    #[test]
    fn only_theoretical_peaks_make_a_time_impossible() {
        let cost = Cost { flops: 1e6, bytes: 1e6 };
        let datasheet = peaks(PeakSource::Datasheet { source: "sheet".into() });
        let measured = peaks(PeakSource::Measured { taken_at: jiff::Timestamp::UNIX_EPOCH });
        assert!(check_possible(cost, 9_999.0, &datasheet, DType::Float32).is_err());
        assert_eq!(check_possible(cost, 10_000.0, &datasheet, DType::Float32), Ok(()));
        assert_eq!(check_possible(cost, 1.0, &measured, DType::Float32), Ok(()));
        assert_eq!(check_possible(cost, 1.0, &datasheet, DType::Bfloat16), Ok(()));
    }

    proptest! {
        #[test]
        fn no_rate_at_the_floor_exceeds_a_peak(flops in 1.0..1e15_f64, bytes in 1.0..1e15_f64) {
            let cost = Cost { flops, bytes };
            let floor = ROOF.floor_ns(cost);
            prop_assert!(cost.flops_per_s(floor).unwrap() <= ROOF.flops_per_s * (1.0 + 1e-12));
            prop_assert!(cost.bytes_per_s(floor).unwrap() <= ROOF.bytes_per_s * (1.0 + 1e-12));
        }
    }
}
