//! The host and its device: what it is, what it can reach, who may use it now. Decides nothing about runs.

mod ask;
pub mod clocks;
pub mod git;
pub mod gpu;
pub mod lease;
pub mod nsight;
pub mod nsys;
pub mod nvml;
pub mod peaks;
pub mod probe;
pub mod processes;

pub use lease::{Holder, Lease, LeaseError};
pub use probe::{Host, HostError};
