//! Composition: the one place where manifest, plan, execution, store and reports meet. Prints nothing.

mod artifacts;
mod builder;
mod calibrate;
mod clocks;
pub mod devlogs;
mod experiment;
mod explain;
mod gather;
mod history;
mod ledger;
mod machine;
pub mod modes;
pub mod pin;
mod project;
mod publish;
mod recorded;
mod single;
mod sitting;
mod stamp;
mod tape;
mod verify;

pub use calibrate::{CalibrateError, calibrate};
pub use clocks::HoldError;
pub use experiment::{Bench, BenchError, Control, Finished, Workspace, protocols};
pub use explain::{Since, reasons, since};
pub use history::{Followed, HistoryError, history};
pub use ledger::Ledger;
pub use machine::{Choice, ClockRule, Gpus, Machine, MachineError, default_kind, gpus};
pub use project::{CacheError, Project, ProjectError};
pub use publish::{PublishError, Published, publish_experiment, publish_profile};
pub use recorded::{RecordedError, check_baselines};
pub use single::{ShapeError, single_shot_shape, verify_only};
pub use sitting::{End, Gather, Sat, SittingError, Told};
pub use stamp::is_published;
pub use tape::{Replayed, Tape, TapeError, record, set_up};
pub use verify::{SanitizerError, Verified, VerifyError};
