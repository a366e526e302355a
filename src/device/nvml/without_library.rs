//! Knows no GPU: this build has no support for them.

use std::convert::Infallible;
use std::fmt;

use super::NvmlError;
use crate::model::clocks::{Board, Reading};

/// There is none.
#[derive(Debug, Clone)]
pub struct Nvml(Infallible);

/// There is none.
#[derive(Debug, Clone)]
pub struct Gpu(Infallible);

/// There are none.
#[derive(Debug)]
pub struct Xids(Infallible);

impl Xids {
    /// Watches nothing.
    pub fn watch(_: &str) -> Option<Xids> {
        None
    }

    pub fn take(&self) -> Vec<u64> {
        match self.0 {}
    }
}

impl Nvml {
    /// # Errors
    /// Always.
    pub fn open() -> Result<Nvml, NvmlError> {
        Err(NvmlError::NotBuilt("cuda"))
    }

    /// # Errors
    /// Never comes to it.
    pub fn gpus(&self) -> Result<Vec<Gpu>, NvmlError> {
        match self.0 {}
    }

    /// # Errors
    /// Never comes to it.
    pub fn gpu(&self, _: &str) -> Result<Gpu, NvmlError> {
        match self.0 {}
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}

impl Gpu {
    pub fn uuid(&self) -> &str {
        match self.0 {}
    }

    pub fn name(&self) -> &str {
        match self.0 {}
    }

    /// # Errors
    /// Never comes to it.
    pub fn read(&self) -> Result<Reading, NvmlError> {
        match self.0 {}
    }

    /// # Errors
    /// Never comes to it.
    pub fn board(&self) -> Result<Board, NvmlError> {
        match self.0 {}
    }
}
