//! Changes no clock: this build has no code that could.

use super::{Gpu, NvmlError};
use crate::model::clocks::Frequencies;

const NOT_BUILT: NvmlError = NvmlError::NotBuilt("clock-control");

impl Gpu {
    /// # Errors
    /// Always.
    pub(in crate::device) fn lock(&self, _: Frequencies) -> Result<Frequencies, NvmlError> {
        Err(NOT_BUILT)
    }

    /// # Errors
    /// Always.
    pub(in crate::device) fn reset(&self) -> Result<(), NvmlError> {
        Err(NOT_BUILT)
    }
}
