//! mlarun: declarative experiments over kernels, with numbers that can be believed.

pub mod catalog;
pub mod conf;
pub mod expr;
pub mod model;
pub mod report;
pub mod roofline;
pub mod stats;
