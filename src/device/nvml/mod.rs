//! NVIDIA's management library: which GPUs there are, what they are and do, and their clocks. The only module that
//! knows it; loaded when it is first asked. GPUs are matched with CUDA's by UUID, never by number.
//!
//! What changes clocks stands in `setters`, which a build without the feature `clock-control` does not have.

#[cfg(feature = "cuda")]
mod library;
#[cfg(not(feature = "cuda"))]
#[path = "without_library.rs"]
mod library;
#[cfg(feature = "clock-control")]
mod setters;
#[cfg(not(feature = "clock-control"))]
#[path = "without_setters.rs"]
mod setters;

#[cfg(feature = "cuda")]
mod xids;

#[cfg(not(feature = "cuda"))]
pub use library::Xids;
pub use library::{Gpu, Nvml};
#[cfg(feature = "cuda")]
pub use xids::Xids;

/// Names a library other than the driver's own, e.g. one in an unusual folder.
pub const LIBRARY_VARIABLE: &str = "MLARUN_NVML";

/// NVML did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NvmlError {
    #[error(
        "{library}: NVIDIA's management library cannot be used: {reason}; install the driver (a container must be given \
         it), or name the library with {LIBRARY_VARIABLE}"
    )]
    Library { library: String, reason: String },
    #[error("NVML knows no GPU `{asked}`; there are: {known}")]
    NoGpu { asked: String, known: String },
    #[error(
        "{gpu}: this process may not {what}; root may, and who root lets (docs/operations.md), or leave clocks alone with \
         `--clocks observe`"
    )]
    NoPermission { gpu: String, what: &'static str },
    #[error("{gpu}: it or its driver cannot {what}: {reason}")]
    Unsupported { gpu: String, what: &'static str, reason: String },
    /// The GPU does not answer any more; nothing can be measured on it.
    #[error("{gpu}: the GPU is lost: {reason}; see `dmesg` for its Xid, and reset the GPU or restart the host")]
    Lost { gpu: String, reason: String },
    #[error("{gpu}: cannot {what}: {reason}")]
    Failed { gpu: String, what: &'static str, reason: String },
    #[error("this program was built without the cargo feature `{0}`")]
    NotBuilt(&'static str),
}
