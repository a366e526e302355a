//! mlarun: declarative experiments over kernels, with numbers that can be believed.
//!
//! A manifest names kernels, versions, shapes, modes and baselines. [`manifest`] reads it, [`plan`] says what is to be
//! done and why, [`execute`] does it in worker processes, [`store`] keeps every sample, [`report`] makes text of it, and
//! [`app`] composes them. docs/ARCHITECTURE.md is the map. The program `mlarun` is [`cli::main`] and nothing else.
//!
//! As a library there is one function a mode: [`event_profile_plan`], [`annotation_profile_plan`], [`ncu_profile_plan`]
//! and [`nsys_profile_plan`], each for one kernel at one shape. Kernels never run in the calling process: the `mlarun`
//! binary serves as worker.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use mlarun::app::modes::{ProfilePlan, Profiler, event_profile_plan};
//! use mlarun::model::{Language, Shape, Value};
//!
//! let profiler = Profiler::open(Path::new("."), "target/release/mlarun".into())?;
//! let shape = Shape([("s".to_owned(), Value::Int(4)), ("t".to_owned(), Value::Int(256))].into());
//! let plan = ProfilePlan::new("flash_attention", Language::C, shape);
//! let profile = event_profile_plan(&profiler, &plan, None, None, None)?;
//! println!("{} ns, see {}", profile.duration_ns, profile.folder.display());
//! # Ok::<(), mlarun::app::modes::ProfileError>(())
//! ```
//!
//! [`event_profile_plan`]: app::modes::event_profile_plan
//! [`annotation_profile_plan`]: app::modes::annotation_profile_plan
//! [`ncu_profile_plan`]: app::modes::ncu_profile_plan
//! [`nsys_profile_plan`]: app::modes::nsys_profile_plan

pub mod answers;
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
mod failpoint;
#[doc(hidden)]
pub mod fuzz;
pub mod history;
pub mod manifest;
pub mod model;
pub mod nightly;
pub mod pairs;
pub mod plan;
pub mod profiler;
pub mod recording;
pub mod report;
pub mod roofline;
pub mod spanned;
pub mod stats;
pub mod store;
pub mod timeline;
pub mod worker;
