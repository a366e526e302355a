//! mlarun: declarative experiments over kernels, with numbers that can be believed.

mod atomic;
pub mod backend;
pub mod catalog;
pub mod device;
pub mod expr;
pub mod model;
pub mod worker;
pub mod store;
pub mod conf;
pub mod expr;
pub mod model;
pub mod report;
pub mod roofline;
pub mod stats;
