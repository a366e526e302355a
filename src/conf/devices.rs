//! `conf/devices.toml`: theoretical peaks by device name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use super::{ConfError, Invalid, check_positive, check_schema};
use crate::model::device::PeakSource;
use crate::model::{DType, Peaks};

pub(super) const FILE: &str = "devices.toml";
pub(super) const DEFAULT: &str = include_str!("../../conf/devices.toml");

/// Every device with known theoretical peaks.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Devices {
    schema: u32,
    /// In the file's order.
    #[serde(rename = "device")]
    pub devices: Vec<DevicePeaks>,
}

impl Devices {
    /// Theoretical peaks of the device that NVML or CUDA calls `name`; `None` for an unknown one.
    pub fn peaks(&self, name: &str) -> Option<Peaks> {
        Some(self.device(name)?.peaks())
    }

    /// What is known of the device that NVML or CUDA calls `name`.
    pub fn device(&self, name: &str) -> Option<&DevicePeaks> {
        self.devices.iter().find(|device| device.matches.iter().any(|known| known == name))
    }
}

/// Theoretical peaks of one device model.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DevicePeaks {
    /// Short name, that of its page under `docs/devices/`.
    pub name: String,
    /// Exact names that NVML and CUDA give the device.
    pub matches: Vec<String>,
    /// Title and year of the vendor's paper.
    pub source: String,
    /// GB/s, i.e. 10^9 byte/s.
    pub memory_gb_per_s: f64,
    pub bfloat16: Option<Rate>,
    pub float16: Option<Rate>,
    pub float32: Option<Rate>,
    /// Clocks in MHz that runs are locked to where their manifest names none: ones that the device holds under load.
    pub lock_sm_mhz: Option<u32>,
    pub lock_mem_mhz: Option<u32>,
}

/// Dense arithmetic rate of one element type.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// TFLOP/s, i.e. 10^12 FLOP/s.
    pub tflops: f64,
    /// SM clock that the rate holds for, where the vendor states one.
    pub sm_mhz: Option<u32>,
}

impl DevicePeaks {
    fn rates(&self) -> impl Iterator<Item = (DType, Rate)> {
        [(DType::Bfloat16, self.bfloat16), (DType::Float16, self.float16), (DType::Float32, self.float32)]
            .into_iter()
            .filter_map(|(dtype, rate)| Some((dtype, rate?)))
    }

    fn peaks(&self) -> Peaks {
        let flops_per_s: BTreeMap<_, _> = self.rates().map(|(dtype, rate)| (dtype, rate.tflops * 1e12)).collect();
        Peaks {
            flops_per_s,
            bytes_per_s: self.memory_gb_per_s * 1e9,
            at_sm_mhz: self.rates().filter_map(|(dtype, rate)| Some((dtype, rate.sm_mhz?))).collect(),
            source: PeakSource::Datasheet { source: self.source.clone() },
        }
    }

    fn check(&self) -> Result<(), Invalid> {
        let key = |field: &str| format!("device.{}.{field}", self.name);
        if self.matches.is_empty() {
            return Err(Invalid::new(key("matches"), "empty", "at least one name that NVML gives the device"));
        }
        if self.source.trim().is_empty() {
            return Err(Invalid::new(key("source"), "empty", "title and year of the vendor's paper"));
        }
        check_positive(&key("memory_gb_per_s"), self.memory_gb_per_s)?;
        for (dtype, rate) in self.rates() {
            check_positive(&key(&format!("{dtype}.tflops")), rate.tflops)?;
            if rate.sm_mhz == Some(0) {
                return Err(Invalid::new(key(&format!("{dtype}.sm_mhz")), 0, "a clock in MHz above 0"));
            }
        }
        for (name, mhz) in [("lock_sm_mhz", self.lock_sm_mhz), ("lock_mem_mhz", self.lock_mem_mhz)] {
            if mhz == Some(0) {
                return Err(Invalid::new(key(name), 0, "a clock in MHz above 0"));
            }
        }
        Ok(())
    }
}

pub(super) fn parse(file: &Path, text: &str) -> Result<Devices, ConfError> {
    super::parse(file, text, check)
}

fn check(devices: &Devices) -> Result<(), Invalid> {
    check_schema(devices.schema)?;
    let mut seen = BTreeSet::new();
    for device in &devices.devices {
        device.check()?;
        for name in &device.matches {
            if !seen.insert(name) {
                let key = format!("device.{}.matches", device.name);
                return Err(Invalid::new(key, format!("`{name}`"), "a name that no other device has"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults() -> Devices {
        parse(Path::new(FILE), DEFAULT).expect("the default is valid")
    }

    #[test]
    fn the_devices_are_found_by_their_nvml_names() {
        let devices = defaults();
        for name in [
            "NVIDIA H200",
            "NVIDIA H100 80GB HBM3",
            "NVIDIA H100 PCIe",
            "NVIDIA A100-SXM4-40GB",
            "NVIDIA A100-PCIE-40GB",
            "NVIDIA A100-SXM4-80GB",
            "NVIDIA A100 80GB PCIe",
            "NVIDIA L40S",
            "NVIDIA GeForce RTX 4090",
            "NVIDIA GeForce RTX 5090",
            "NVIDIA B200",
        ] {
            let peaks = devices.peaks(name).unwrap_or_else(|| panic!("{name} is missing"));
            assert_eq!(peaks.flops_per_s.len(), DType::ALL.len(), "{name}");
        }
        assert_eq!(devices.peaks("NVIDIA H100 NVL"), None);
        assert_eq!(devices.peaks("H200"), None);
    }

    #[test]
    fn peaks_are_in_si_units() {
        let peaks = defaults().peaks("NVIDIA H200").expect("it is listed");
        assert_eq!(peaks.flops_per_s[&DType::Bfloat16], 989.5e12);
        assert_eq!(peaks.bytes_per_s, 4800e9);
        assert_eq!((peaks.at_sm_mhz[&DType::Bfloat16], peaks.at_sm_mhz[&DType::Float32]), (1830, 1980));
        assert_eq!(peaks.ridge_point(DType::Bfloat16).map(f64::round), Some(206.0));
    }

    /// Where clocks are stated, rate over clock is a whole number of FLOP a cycle and SM, to the printed digits.
    #[test]
    fn rates_agree_with_clocks_and_multiprocessors() {
        let devices = defaults();
        for (name, sms, tensor, plain) in [
            ("NVIDIA H200", 132.0, 4096.0, 256.0),
            ("NVIDIA H100 80GB HBM3", 132.0, 4096.0, 256.0),
            ("NVIDIA H100 PCIe", 114.0, 4096.0, 256.0),
            ("NVIDIA A100-SXM4-40GB", 108.0, 2048.0, 128.0),
            ("NVIDIA GeForce RTX 4090", 128.0, 512.0, 256.0),
            ("NVIDIA GeForce RTX 5090", 170.0, 512.0, 256.0),
        ] {
            let peaks = devices.peaks(name).expect("it is listed");
            for (dtype, flops_a_cycle) in [(DType::Bfloat16, tensor), (DType::Float32, plain)] {
                let computed = f64::from(peaks.at_sm_mhz[&dtype]) * 1e6 * sms * flops_a_cycle;
                let printed = peaks.flops_per_s[&dtype];
                assert!((computed / printed - 1.0).abs() < 2e-3, "{name} {dtype}: {computed} is not {printed}");
            }
        }
    }

    #[test]
    fn two_devices_of_one_name_are_refused() {
        let text = DEFAULT.replace("\"NVIDIA H100 PCIe\"", "\"NVIDIA H200\"");
        let error = parse(Path::new(FILE), &text).expect_err("a name stands twice").to_string();
        assert!(error.contains("device.H100 PCIe.matches") && error.contains("NVIDIA H200"), "{error}");
    }
}
