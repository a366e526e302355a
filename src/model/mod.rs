//! The nouns of mlarun, shared by every other module. Pure data: no I/O, no clock, no environment.

pub mod build;
pub mod calibration;
pub mod calling;
pub mod clocks;
pub mod device;
mod dtype;
mod kernel;
mod key;
mod mode;
pub mod ncu;
pub mod pipeline;
pub mod protocol;
pub mod quantity;
pub mod record;
mod shape;
pub mod source_view;
mod tiling;
pub mod timeline;
mod timing;
mod value;

pub use device::{Device, DeviceId, DeviceKind, GpuTraits, Peaks};
pub use dtype::{DType, UnknownDType};
pub use kernel::{InvalidVersion, KernelId, Language, UnknownLanguage, Version};
pub use key::{InvalidKey, Key};
pub use mode::{Mode, UnknownMode};
pub use pipeline::Pipeline;
pub use shape::Shape;
pub use tiling::{Choices, Tiling};
pub use timing::Timing;
pub use value::Value;
