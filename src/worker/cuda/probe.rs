//! Which GPUs there are, as the driver tells.

use std::path::Path;

use cudarc::driver::sys::CUdevice_attribute as A;

use super::driver::{self, Device};
use super::error::CudaError;
use crate::model::protocol::{Failure, FailureKind, GpuInfo, Line};
use crate::worker::answer::Answer;

/// Where the driver's kernel module tells its version.
const VERSION_FILE: &str = "/proc/driver/nvidia/version";

/// Tells all GPUs that this process sees; none is an answer.
///
/// # Errors
/// There is no driver.
pub fn run(answer: &mut Answer) -> Result<(), Failure> {
    driver::start()?;
    let cuda = driver::version()?;
    let text = std::fs::read_to_string(Path::new(VERSION_FILE)).unwrap_or_default();
    let driver = module_version(&text).unwrap_or_else(|| format!("CUDA {}", driver::version_text(cuda)));
    let gpus = Device::all()?.into_iter().map(describe).collect::<Result<_, _>>()?;
    answer.line(&Line::Gpus { driver, cuda, gpus })
}

fn describe(device: Device) -> Result<GpuInfo, Failure> {
    Ok(GpuInfo {
        index: device.index,
        uuid: device.uuid()?,
        name: device.name()?,
        compute_capability: device.compute_capability()?,
        multiprocessors: device.attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        memory_bytes: device.memory_bytes()?,
        free_bytes: free_bytes(device)?,
        l2_bytes: u64::from(device.attribute(A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?),
        shared_bytes_per_block_max: device.limits()?.shared_bytes_per_block,
        sm_clock_khz: clock(device.attribute(A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE))?,
        memory_clock_khz: clock(device.attribute(A::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE))?,
        mig: device.is_mig()?,
    })
}

/// A clock that the driver does not tell is 0.
fn clock(told: Result<u32, CudaError>) -> Result<u32, CudaError> {
    told.or_else(|error| if error.kind() == FailureKind::Unsupported { Ok(0) } else { Err(error) })
}

/// Memory that other processes leave; that of a GPU that nobody may use now is 0.
fn free_bytes(device: Device) -> Result<u64, Failure> {
    if let Err(error) = driver::make_current(device) {
        eprintln!("the free memory of GPU {} is not known: {error}", device.index);
        return Ok(0);
    }
    let memory = driver::memory_bytes();
    driver::release(device);
    Ok(memory?.0)
}

/// `580.159.04` of the first line of the module's own description.
fn module_version(text: &str) -> Option<String> {
    let is_version = |word: &&str| {
        word.contains('.') && word.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    text.lines().next()?.split_ascii_whitespace().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modules_version_is_found_in_its_description() {
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (dvs-builder)\n\
                    GCC version:  gcc version 12.2.0\n";
        assert_eq!(module_version(open).as_deref(), Some("580.159.04"));
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104  Sat Aug 19 01:15:15 UTC 2023\n";
        assert_eq!(module_version(closed).as_deref(), Some("535.104"));
        assert_eq!(module_version(""), None);
        assert_eq!(module_version("NVRM version: none"), None);
    }
}
