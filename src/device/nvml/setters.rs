//! What changes clocks: all of it, and nothing else. Absent from a build without the feature `clock-control`.
#![expect(clippy::disallowed_methods, reason = "the one place that they belong into")]

use nvml_wrapper::enums::device::GpuLockedClocksSetting;

use super::{Gpu, NvmlError};
use crate::model::clocks::Frequencies;

const LOCK_SM: &str = "lock the SM clock";
const LOCK_MEMORY: &str = "lock the memory clock";
const RESET: &str = "reset its clocks";

impl Gpu {
    /// Locks the clocks, and tells which: a memory clock that cannot be locked at all is left alone. The lock outlives this
    /// process. What an error leaves behind may be half locked.
    ///
    /// # Errors
    /// They may not or cannot be locked.
    pub(in crate::device) fn lock(&self, asked: Frequencies) -> Result<Frequencies, NvmlError> {
        let mut device = self.device(LOCK_SM)?;
        let sm = GpuLockedClocksSetting::Numeric { min_clock_mhz: asked.sm_mhz, max_clock_mhz: asked.sm_mhz };
        device.set_gpu_locked_clocks(sm).map_err(|error| self.refused(LOCK_SM, error))?;
        let Some(mhz) = asked.mem_mhz else { return Ok(asked) };
        match device.set_mem_locked_clocks(mhz, mhz).map_err(|error| self.refused(LOCK_MEMORY, error)) {
            Ok(()) => Ok(asked),
            Err(NvmlError::Unsupported { .. }) => Ok(Frequencies { mem_mhz: None, ..asked }),
            Err(error) => Err(error),
        }
    }

    /// Gives the clocks back to the GPU.
    ///
    /// # Errors
    /// They may not or cannot be reset. A memory clock that cannot be locked needs no reset.
    pub(in crate::device) fn reset(&self) -> Result<(), NvmlError> {
        let mut device = self.device(RESET)?;
        let sm = device.reset_gpu_locked_clocks().map_err(|error| self.refused(RESET, error));
        let memory = match device.reset_mem_locked_clocks().map_err(|error| self.refused(RESET, error)) {
            Err(NvmlError::Unsupported { .. }) => Ok(()),
            other => other,
        };
        sm.and(memory)
    }
}
