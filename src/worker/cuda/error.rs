//! What an error of CUDA means for a run: its kind, and a sentence that names the error, the stage and its launch.

use std::ffi::CStr;

use cudarc::driver::sys::{self, CUresult};

use crate::model::protocol::{Failure, FailureKind};

/// A call of the driver failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{doing}: {name}: {text}")]
pub struct CudaError {
    /// Number of the error.
    code: u32,
    /// Its name, e.g. `CUDA_ERROR_ILLEGAL_ADDRESS`.
    name: String,
    /// What the driver says about it.
    text: String,
    /// What was being done, e.g. "the module cannot be loaded".
    doing: String,
}

impl CudaError {
    /// Class of the failure.
    pub fn kind(&self) -> FailureKind {
        kind(self.code)
    }

    /// The context is of no more use: every later call fails.
    pub fn is_fatal(&self) -> bool {
        is_fatal(self.code)
    }

    /// Number of the error, for the few places that expect one.
    pub const fn code(&self) -> u32 {
        self.code
    }

    /// The failure of a stage, with its launch.
    pub fn of_stage(self, stage: &str, launch: &str) -> Failure {
        let Failure { kind, message, .. } = Failure::from(self);
        Failure { kind, stage: Some(stage.to_owned()), message: format!("stage `{stage}` ({launch}): {message}") }
    }
}

impl From<CudaError> for Failure {
    fn from(error: CudaError) -> Failure {
        let advice = advice(error.code).map(|advice| format!("; {advice}")).unwrap_or_default();
        Failure { kind: error.kind(), stage: None, message: format!("{error}{advice}") }
    }
}

/// `Err` with the error's name where the driver did not succeed.
///
/// # Errors
/// [`CudaError`].
pub fn check(result: CUresult, doing: &str) -> Result<(), CudaError> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut text = std::ptr::null();
    // SAFETY: `text` may be written to; the driver gives a string of its own that is never freed, or leaves it.
    let described = unsafe { sys::cuGetErrorString(result, &raw mut text) } == CUresult::CUDA_SUCCESS;
    let text = if described && !text.is_null() {
        // SAFETY: a string of the driver, ended by zero, as just said.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    } else {
        "no description".to_owned()
    };
    Err(CudaError { code: result as u32, name: format!("{result:?}"), text, doing: doing.to_owned() })
}

/// An error of the worker's own making about this device or request.
pub fn internal(message: impl Into<String>) -> Failure {
    Failure { kind: FailureKind::Internal, stage: None, message: message.into() }
}

/// The host lacks something.
pub fn unsupported(message: impl Into<String>) -> Failure {
    Failure { kind: FailureKind::Unsupported, stage: None, message: message.into() }
}

/// Class of an error by its number, which is the same in every version of CUDA.
const fn kind(code: u32) -> FailureKind {
    match code {
        // Out of memory.
        2 => FailureKind::OutOfMemory,
        // Stub library, device unavailable, no device, invalid device, not licensed, limit or operation not supported,
        // system not ready, driver mismatch, driver too old for this GPU.
        34 | 46 | 100 | 101 | 102 | 215 | 801 | 802 | 803 | 804 => FailureKind::Unsupported,
        // Invalid image, no image for this GPU, invalid PTX, unsupported PTX, invalid source, file not found, symbol not
        // found.
        200 | 209 | 218 | 222 | 300..=303 | 500 => FailureKind::Load,
        // Out of resources of a launch, too many cooperative blocks, invalid cluster.
        701 | 720 | 912 => FailureKind::Launch,
        // Illegal address, assertion, stack error, illegal instruction, misaligned address, invalid address space,
        // invalid program counter, unspecified launch failure.
        700 | 710 | 714..=719 => FailureKind::Crashed,
        // The driver ended a kernel that took too long (a GPU that also drives a display).
        702 => FailureKind::TimedOut,
        _ => FailureKind::Internal,
    }
}

/// After these, every call of the process fails.
const fn is_fatal(code: u32) -> bool {
    matches!(code, 214 | 220 | 700 | 702 | 709 | 710 | 714..=719 | 999)
}

const fn advice(code: u32) -> Option<&'static str> {
    match code {
        2 => Some("use a smaller shape, or end what else uses the GPU"),
        700 | 716 | 717 | 719 => {
            Some("the kernel reads or writes outside of its memory; compute-sanitizer names the line")
        }
        100 | 101 => Some("check CUDA_VISIBLE_DEVICES and `nvidia-smi -L`"),
        200 | 209 => Some("it was compiled for another GPU; build it again"),
        803 | 804 => Some("driver and libcuda are of different versions; install those of one release"),
        214 => Some("the GPU's memory is defective or was disturbed; look at `nvidia-smi -q -d ECC`"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(result: CUresult) -> CudaError {
        CudaError {
            code: result as u32,
            name: format!("{result:?}"),
            text: "said so".into(),
            doing: "the kernel runs".into(),
        }
    }

    #[test]
    fn every_error_has_the_kind_that_a_run_acts_on() {
        for (result, kind) in [
            (CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, FailureKind::Crashed),
            (CUresult::CUDA_ERROR_MISALIGNED_ADDRESS, FailureKind::Crashed),
            (CUresult::CUDA_ERROR_LAUNCH_FAILED, FailureKind::Crashed),
            (CUresult::CUDA_ERROR_ASSERT, FailureKind::Crashed),
            (CUresult::CUDA_ERROR_OUT_OF_MEMORY, FailureKind::OutOfMemory),
            (CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, FailureKind::Load),
            (CUresult::CUDA_ERROR_INVALID_IMAGE, FailureKind::Load),
            (CUresult::CUDA_ERROR_NOT_FOUND, FailureKind::Load),
            (CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, FailureKind::Launch),
            (CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, FailureKind::Launch),
            (CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE, FailureKind::Launch),
            (CUresult::CUDA_ERROR_NO_DEVICE, FailureKind::Unsupported),
            (CUresult::CUDA_ERROR_STUB_LIBRARY, FailureKind::Unsupported),
            (CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, FailureKind::Unsupported),
            (CUresult::CUDA_ERROR_LAUNCH_TIMEOUT, FailureKind::TimedOut),
            (CUresult::CUDA_ERROR_INVALID_VALUE, FailureKind::Internal),
        ] {
            assert_eq!(error(result).kind(), kind, "{result:?}");
        }
    }

    #[test]
    fn a_fault_ends_the_context_and_a_refusal_does_not() {
        assert!(error(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS).is_fatal());
        assert!(error(CUresult::CUDA_ERROR_UNKNOWN).is_fatal());
        assert!(!error(CUresult::CUDA_ERROR_OUT_OF_MEMORY).is_fatal());
        assert!(!error(CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES).is_fatal());
    }

    #[test]
    fn a_failure_names_error_stage_and_launch() {
        let failure = error(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS).of_stage("latent", "grid 8 x 1 x 1");
        assert_eq!((failure.kind, failure.stage.as_deref()), (FailureKind::Crashed, Some("latent")));
        for word in ["stage `latent` (grid 8 x 1 x 1)", "CUDA_ERROR_ILLEGAL_ADDRESS", "compute-sanitizer"] {
            assert!(failure.message.contains(word), "{failure}");
        }
    }
}
