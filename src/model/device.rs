//! The device that a run is measured on, and its peaks.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::ncu::Capability;
use super::{DType, Value};

/// Kind of device; decides which of a manifest's `[target.*]` overrides applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    Cpu,
    Gpu,
}

/// The active device. The fields that enter a key are those of [`DeviceId`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Device {
    pub id: DeviceId,
    /// Bytes of memory that buffers may take.
    pub memory_bytes: u64,
    /// Bytes of the last-level cache (0 when unknown).
    pub last_level_cache_bytes: u64,
    /// CPU cores, by number, that this process may run on.
    pub cores: Vec<u32>,
    /// What a GPU has beside; a CPU has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuTraits>,
}

/// What kernels and the compiler need to know of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuTraits {
    /// Major and minor.
    pub compute_capability: (u32, u32),
    /// Largest dynamic shared memory of a block, in bytes.
    pub shared_bytes_max: u64,
    /// Version of the driver.
    pub driver: String,
}

impl GpuTraits {
    /// Its compute capability.
    pub fn capability(&self) -> Capability {
        let (major, minor) = self.compute_capability;
        Capability { major, minor }
    }

    /// Architecture whose machine code the GPU runs, with the instructions of that architecture alone: `sm_90a`.
    pub fn architecture(&self) -> String {
        let (major, minor) = self.compute_capability;
        // From 9.0 on, what the suffix adds runs on this very architecture only.
        format!("sm_{major}{minor}{}", if major >= 9 { "a" } else { "" })
    }
}

impl Device {
    /// Names that expressions of kernel packages may use for what the device has, those of
    /// [`Language::device_names`](super::Language::device_names).
    pub fn names(&self) -> Vec<(&'static str, Value)> {
        let int = |value: u64| Value::Int(i64::try_from(value).unwrap_or(i64::MAX));
        match &self.gpu {
            None => vec![("cores", int(self.cores.len() as u64))],
            Some(gpu) => vec![("sms", int(u64::from(self.id.units))), ("shared_max", int(gpu.shared_bytes_max))],
        }
    }
}

/// What identifies a device in keys, records and dev logs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceId {
    pub kind: DeviceKind,
    /// Model, e.g. `AMD EPYC 7763 64-Core Processor` or `NVIDIA H200`.
    pub name: String,
    /// UUID of a GPU; a CPU has none.
    pub uuid: Option<String>,
    /// Cores (CPU) or multiprocessors (GPU) that kernels can use.
    pub units: u32,
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Where a peak comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeakSource {
    /// Printed by the vendor, for the stated clock.
    Datasheet { source: String },
    /// Measured on this very host.
    Measured { taken_at: jiff::Timestamp },
}

/// Roofline peaks of a device, in SI units.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Peaks {
    /// FLOP/s, by element type of the operands. An absent type has no known peak.
    pub flops_per_s: BTreeMap<DType, f64>,
    pub bytes_per_s: f64,
    /// SM clock in MHz that each arithmetic peak holds for (vendors state one for tensor cores and another for the
    /// rest); absent where none is stated, as on a CPU.
    pub at_sm_mhz: BTreeMap<DType, u32>,
    pub source: PeakSource,
}

impl Peaks {
    /// Ridge point in FLOP/byte: the arithmetic intensity above which arithmetic limits.
    pub fn ridge_point(&self, dtype: DType) -> Option<f64> {
        self.flops_per_s.get(&dtype).map(|flops| flops / self.bytes_per_s)
    }
}
