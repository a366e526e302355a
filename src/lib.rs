//! mlarun: declarative experiments over kernels, with numbers that can be believed.

pub mod catalog;
pub mod diagnostic;
pub mod expr;
pub mod manifest;
pub mod model;
pub mod spanned;
