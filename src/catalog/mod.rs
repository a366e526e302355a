//! Kernel packages found under `kernels/`.

mod package;

pub use package::*;
