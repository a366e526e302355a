//! mlarun: declarative experiments over kernels, with numbers that can be believed.

pub mod catalog;
pub mod expr;
pub mod model;
pub mod worker;
