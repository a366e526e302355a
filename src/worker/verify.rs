//! Verification alone: one launch, and its output compared with the reference.

use super::answer::Answer;
use super::host::Host;
use super::subject::{self, Subject};
use crate::model::protocol::{Check, Failure, FailureKind, Launchable};

/// Launches once and compares.
///
/// # Errors
/// The output is wrong, or there is no reference to compare it with.
pub fn run(answer: &mut Answer, host: &mut Host, launchable: &Launchable, check: &Check) -> Result<(), Failure> {
    if launchable.pipeline.reference.is_none() {
        let message = "there is nothing to verify: the kernel declares no reference; add a [reference]".to_owned();
        return Err(Failure { kind: FailureKind::CannotTell, stage: None, message });
    }
    let modules = subject::load(answer, launchable)?;
    let mut subject = Subject::prepare(answer, host, &launchable.pipeline, check)?;
    let mut launcher = subject.launcher(&modules);
    subject.verify(answer, host, &mut launcher)
}
