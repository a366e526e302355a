//! What a host's verdicts are worth, in short: what tables quote of a calibration.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::DeviceId;
use super::clocks::ClockState;

/// The outcome of `mlarun calibrate` on one device with one driver at one state of its clocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostCalibration {
    /// When its last process ran.
    pub taken_at: Timestamp,
    pub device: DeviceId,
    /// Of a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    pub clocks: ClockState,
    /// Processes of identical code that it was judged by, of all kernels.
    pub processes: u64,
    /// Comparisons of identical code that used every process once.
    pub disjoint: FalseVerdicts,
    /// Those that were put together from blocks of these processes.
    pub resampled: FalseVerdicts,
    /// The smallest change of speed, as a fraction, that is found 95 times in 100 with the kernel that hides it best; `None` where
    /// not even twice the speed is.
    pub smallest_change: Option<f64>,
    /// The same with the kernel that shows most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smallest_change_at_best: Option<f64>,
    /// The smallest change, as a fraction, that verdicts of this host may call faster or slower.
    pub threshold: f64,
}

impl HostCalibration {
    /// At least one comparison could be made of what was gathered.
    pub fn says_something(&self) -> bool {
        self.resampled.comparisons > 0
    }
}

/// How often identical code was called faster or slower.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FalseVerdicts {
    pub events: u64,
    pub comparisons: u64,
    /// Exact upper limit of their share, at 95%, one-sided (Clopper and Pearson 1934); `None` without a comparison.
    pub at_most: Option<f64>,
}
