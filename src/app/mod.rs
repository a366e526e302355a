//! Composition: the one place where manifest, plan, execution, store and reports meet. Prints nothing.

mod artifacts;
mod builder;
mod calibrate;
pub mod devlogs;
mod experiment;
mod gather;
mod ledger;
mod machine;
pub mod modes;
mod project;
mod publish;

pub use calibrate::{CalibrateError, calibrate};
pub use experiment::{Bench, BenchError, Control, Finished, Workspace, protocols};
pub use gather::Gathered;
pub use ledger::{Ledger, record_kind};
pub use machine::{Machine, MachineError};
pub use project::{Project, ProjectError};
pub use publish::{Published, publish_experiment, publish_profile};
