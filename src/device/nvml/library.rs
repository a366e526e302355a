//! Reading through the real library.

use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::error::NvmlError as Error;

use super::{LIBRARY_VARIABLE, NvmlError};
use crate::model::clocks::{Board, Reading};

/// Reasons for a clock below the highest one, with the names that `nvidia-smi -q` gives them.
const THROTTLE_REASONS: [(ThrottleReasons, &str); 9] = [
    (ThrottleReasons::GPU_IDLE, "Idle"),
    (ThrottleReasons::APPLICATIONS_CLOCKS_SETTING, "Applications Clocks Setting"),
    (ThrottleReasons::SW_POWER_CAP, "SW Power Cap"),
    (ThrottleReasons::HW_SLOWDOWN, "HW Slowdown"),
    (ThrottleReasons::HW_THERMAL_SLOWDOWN, "HW Thermal Slowdown"),
    (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "HW Power Brake Slowdown"),
    (ThrottleReasons::SYNC_BOOST, "Sync Boost"),
    (ThrottleReasons::SW_THERMAL_SLOWDOWN, "SW Thermal Slowdown"),
    (ThrottleReasons::DISPLAY_CLOCK_SETTING, "Display Clocks Setting"),
];

/// The library, loaded.
#[derive(Debug, Clone)]
pub struct Nvml(Arc<nvml_wrapper::Nvml>);

impl Nvml {
    /// Loads the library that MLARUN_NVML names, else the driver's.
    ///
    /// # Errors
    /// It is not there, or has no driver to talk to.
    pub fn open() -> Result<Nvml, NvmlError> {
        open_library().map(|nvml| Nvml(Arc::new(nvml)))
    }

    /// Every GPU that this process may see, in the order of `nvidia-smi`.
    ///
    /// # Errors
    /// The library does not tell.
    pub fn gpus(&self) -> Result<Vec<Gpu>, NvmlError> {
        let failed = |error| refused("the host", "list its GPUs", error);
        let count = self.0.device_count().map_err(failed)?;
        (0..count)
            .map(|index| {
                let device = self.0.device_by_index(index).map_err(failed)?;
                let uuid = device.uuid().map_err(failed)?;
                Ok(Gpu { nvml: Arc::clone(&self.0), uuid, name: device.name().map_err(failed)? })
            })
            .collect()
    }

    /// The GPU `uuid`.
    ///
    /// # Errors
    /// There is none.
    pub fn gpu(&self, uuid: &str) -> Result<Gpu, NvmlError> {
        let name = self.0.device_by_uuid(uuid).and_then(|device| device.name());
        match name {
            Ok(name) => Ok(Gpu { nvml: Arc::clone(&self.0), uuid: uuid.to_owned(), name }),
            Err(Error::NotFound | Error::InvalidArg) => {
                let known = self.gpus()?.iter().map(Gpu::to_string).collect::<Vec<_>>().join(", ");
                Err(NvmlError::NoGpu { asked: uuid.to_owned(), known })
            }
            Err(error) => Err(refused(uuid, "be found", error)),
        }
    }
}

/// Loads the library that MLARUN_NVML names, else the driver's.
pub(super) fn open_library() -> Result<nvml_wrapper::Nvml, NvmlError> {
    let named: Option<OsString> = std::env::var_os(LIBRARY_VARIABLE).filter(|name| !name.is_empty());
    let opened = match &named {
        Some(path) => nvml_wrapper::Nvml::builder().lib_path(path).init(),
        None => nvml_wrapper::Nvml::init(),
    };
    opened.map_err(|error| NvmlError::Library {
        library: named.map_or("libnvidia-ml.so.1".to_owned(), |name| name.to_string_lossy().into_owned()),
        reason: error.to_string(),
    })
}

/// One GPU.
#[derive(Debug, Clone)]
pub struct Gpu {
    nvml: Arc<nvml_wrapper::Nvml>,
    uuid: String,
    name: String,
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.uuid)
    }
}

impl Gpu {
    /// `GPU-…`.
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// Its model.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it does at this moment.
    ///
    /// # Errors
    /// It does not answer any more. What it does not tell is absent and no error.
    pub fn read(&self) -> Result<Reading, NvmlError> {
        let device = self.device("be read")?;
        let mhz = |clock| self.told(device.clock_info(clock));
        let reasons = self.told(device.current_throttle_reasons())?.unwrap_or(ThrottleReasons::NONE);
        let named = THROTTLE_REASONS.iter().filter(|(reason, _)| reasons.contains(*reason));
        let processes = self.told(device.running_compute_processes())?.unwrap_or_default();
        Ok(Reading {
            sm_mhz: mhz(Clock::SM)?,
            mem_mhz: mhz(Clock::Memory)?,
            power_w: self.told(device.power_usage())?.map(watts),
            temperature_c: self.told(device.temperature(TemperatureSensor::Gpu))?,
            throttle: named.map(|(_, name)| (*name).to_owned()).collect(),
            processes: processes.iter().map(|process| process.pid).collect(),
            xids: Vec::new(),
        })
    }

    /// What it is.
    ///
    /// # Errors
    /// It does not answer any more. What it does not tell is absent and no error.
    pub fn board(&self) -> Result<Board, NvmlError> {
        let device = self.device("be described")?;
        let generation = self.told(device.current_pcie_link_gen())?;
        let lanes = self.told(device.current_pcie_link_width())?;
        Ok(Board {
            driver: self.told(self.nvml.sys_driver_version())?,
            vbios: self.told(device.vbios_version())?,
            pcie: generation.zip(lanes),
            mig: self.told(device.mig_mode())?.map(|mode| mode.current != 0),
            ecc: self.told(device.is_ecc_enabled())?.map(|state| state.currently_enabled),
            persistence: self.told(device.is_in_persistent_mode())?,
            power_cap_w: self.told(device.enforced_power_limit())?.map(watts),
        })
    }

    pub(super) fn device(&self, what: &'static str) -> Result<nvml_wrapper::Device<'_>, NvmlError> {
        self.nvml.device_by_uuid(self.uuid.as_str()).map_err(|error| self.refused(what, error))
    }

    pub(super) fn refused(&self, what: &'static str, error: Error) -> NvmlError {
        refused(&self.to_string(), what, error)
    }

    /// What an answer tells, unless the GPU is gone.
    fn told<T>(&self, answer: Result<T, Error>) -> Result<Option<T>, NvmlError> {
        match answer {
            Ok(value) => Ok(Some(value)),
            Err(error @ (Error::GpuLost | Error::ResetRequired)) => Err(self.refused("be read", error)),
            Err(_) => Ok(None),
        }
    }
}

fn watts(milliwatts: u32) -> f64 {
    f64::from(milliwatts) / 1000.0
}

fn refused(gpu: &str, what: &'static str, error: Error) -> NvmlError {
    let (gpu, reason) = (gpu.to_owned(), error.to_string());
    match error {
        Error::NoPermission | Error::OperatingSystem => NvmlError::NoPermission { gpu, what },
        Error::NotSupported | Error::FunctionNotFound => NvmlError::Unsupported { gpu, what, reason },
        Error::FailedToLoadSymbol(_) => NvmlError::Unsupported { gpu, what, reason },
        Error::GpuLost | Error::ResetRequired => NvmlError::Lost { gpu, reason },
        _ => NvmlError::Failed { gpu, what, reason },
    }
}
