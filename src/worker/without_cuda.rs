//! Stands in for the GPU where this program was built without it: every request for one is refused with the reason.

use std::path::Path;

use super::answer::Answer;
use super::measurement::Measurement;
use crate::model::protocol::{
    Candidate, Check, CompileRequest, Failure, FailureKind, GpuRequest, Launchable, NcuProtocol, Profiled,
    TimelineProtocol, TuneProtocol,
};

fn refused() -> Result<(), Failure> {
    let message = "this mlarun was built without support for GPUs; build it with the cargo feature `cuda`".to_owned();
    Err(Failure { kind: FailureKind::Unsupported, stage: None, message })
}

/// Refuses.
pub fn probe(_: &mut Answer) -> Result<(), Failure> {
    refused()
}

/// Refuses.
pub fn hold(_: &GpuRequest) -> Result<(), Failure> {
    refused()
}

/// Refuses.
pub fn toolkit(_: &mut Answer) -> Result<(), Failure> {
    refused()
}

/// Refuses.
pub fn compile(_: &mut Answer, _: &CompileRequest) -> Result<(), Failure> {
    refused()
}

/// Refuses.
pub fn measure(_: &mut Answer, _: &GpuRequest, _: &Launchable, _: &Check, _: Measurement<'_>) -> Result<(), Failure> {
    refused()
}

/// Refuses.
pub fn load(_: &mut Answer, _: &GpuRequest, _: u64) -> Result<(), Failure> {
    refused()
}

/// Refuses.
pub fn tune(_: &mut Answer, _: &GpuRequest, _: &[Candidate], _: &TuneProtocol) -> Result<(), Failure> {
    refused()
}

/// Refuses.
pub fn profile(_: &mut Answer, _: &GpuRequest, _: &[Profiled], _: &NcuProtocol) -> Result<(), Failure> {
    refused()
}

/// Refuses.
pub fn timeline(
    _: &mut Answer,
    _: &GpuRequest,
    _: &Launchable,
    _: &TimelineProtocol,
    _: &Check,
    _: Option<&Path>,
) -> Result<(), Failure> {
    refused()
}

/// Refuses.
pub fn cupti(_: &mut Answer, _: &Path) -> Result<(), Failure> {
    refused()
}
