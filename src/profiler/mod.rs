//! The modes: each turns a run into a worker's task, and what the worker or a tool says into what is recorded. None decides
//! anything.

pub mod annotation;
pub mod event;
pub mod ncu;
pub mod nsys;
pub mod sanitizer;

use crate::model::protocol::{Failure, FailureKind};

/// The worker's answer lacks `what`.
pub(crate) fn missing(what: &str) -> Failure {
    Failure {
        kind: FailureKind::Internal,
        stage: None,
        message: format!("the worker ended without {what}; this is a fault of mlarun, please report it"),
    }
}
