//! mlarun: declarative experiments over kernels, with numbers that can be believed.

pub mod app;
mod atomic;
pub mod backend;
pub mod catalog;
pub mod cli;

pub mod conf;
pub mod device;
pub mod diagnostic;
pub mod execute;
pub mod expr;
pub mod manifest;
pub mod model;
pub mod plan;
pub mod profiler;
pub mod report;
pub mod roofline;
pub mod spanned;
pub mod stats;
pub mod store;
pub mod worker;
