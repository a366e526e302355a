//! Kernels on GPUs of NVIDIA, through the driver and NVRTC, both loaded when first needed.
//!
//! From the bottom up: [`library`] (is it there), [`error`] (what an error means), [`driver`] (context, streams, events,
//! graphs), [`limits`] (what can be launched), [`module`], [`memory`], [`launch`], [`support`] (mlarun's own kernels),
//! [`buffers`], [`reference`](mod@reference), [`meter`] (times), [`load`](mod@load), [`rig`]; and beside them
//! [`probe`](mod@probe), [`profile`](mod@profile), [`timeline`](mod@timeline) with [`cupti`](mod@cupti), [`nvrtc`] and [`tools`].
//!
//! Clocks, power and modes of a GPU are never touched here.

mod buffers;
mod cupti;
mod driver;
mod error;
mod launch;
mod library;
mod limits;
mod load;
mod memory;
mod meter;
mod module;
mod nvrtc;
mod probe;
mod profile;
mod reference;
mod rig;
mod support;
mod tensor_map;
mod timeline;
mod tools;

use std::path::Path;

use driver::Context;
use support::Support;

use super::answer::Answer;
use super::measurement::Measurement;
use super::tune::{self, Tried};
use crate::model::protocol::{
    Candidate, Check, CompileRequest, Failure, GpuRequest, Launchable, Line, NcuProtocol, Phase, Profiled,
    TimelineProtocol, TuneProtocol,
};

/// Tells which GPUs there are.
///
/// # Errors
/// There is no driver.
pub fn probe(answer: &mut Answer) -> Result<(), Failure> {
    probe::run(answer)
}

/// Opens the GPU for as long as the process lives.
///
/// # Errors
/// It cannot be used, or only one process may use it.
pub fn hold(gpu: &GpuRequest) -> Result<(), Failure> {
    driver::hold(&gpu.uuid)
}

/// Tells which compiler there is.
///
/// # Errors
/// There is none.
pub fn toolkit(answer: &mut Answer) -> Result<(), Failure> {
    nvrtc::describe(answer)
}

/// Compiles one translation unit.
///
/// # Errors
/// The compiler is missing or refuses.
pub fn compile(answer: &mut Answer, request: &CompileRequest) -> Result<(), Failure> {
    nvrtc::compile(answer, request)
}

/// Takes a measurement on a GPU.
///
/// # Errors
/// Whatever prevents it.
pub fn measure(
    answer: &mut Answer,
    gpu: &GpuRequest,
    launchable: &Launchable,
    check: &Check,
    measurement: Measurement<'_>,
) -> Result<(), Failure> {
    answer.phase(Phase::Load, None)?;
    let context = Context::open(&gpu.uuid)?;
    let support = Support::load(&gpu.support)?;
    let loaded = rig::load(&context, launchable)?;
    let mut rig = rig::Rig::prepare(answer, &context, &support, &launchable.pipeline, &loaded, check)?;
    measurement.take(answer, &mut rig)
}

/// Launches subjects for a profiler around this process.
///
/// # Errors
/// The GPU cannot be used. A subject that fails is an answer.
pub fn profile(
    answer: &mut Answer,
    gpu: &GpuRequest,
    subjects: &[Profiled],
    protocol: &NcuProtocol,
) -> Result<(), Failure> {
    profile::run(answer, gpu, subjects, protocol)
}

/// Launches a pipeline for a timeline; see [`timeline::run`].
///
/// # Errors
/// Whatever prevents it.
pub fn timeline(
    answer: &mut Answer,
    gpu: &GpuRequest,
    launchable: &Launchable,
    protocol: &TimelineProtocol,
    check: &Check,
    library: Option<&Path>,
) -> Result<(), Failure> {
    timeline::run(answer, gpu, launchable, protocol, check, library)
}

/// Tells which CUPTI the library is.
///
/// # Errors
/// It cannot be loaded, or is none.
pub fn cupti(answer: &mut Answer, library: &Path) -> Result<(), Failure> {
    answer.line(&Line::Cupti { version: cupti::version(library)? })
}

/// Keeps a GPU busy for `ns`, and tells the clock of the second half.
///
/// # Errors
/// The GPU cannot be used.
pub fn load(answer: &mut Answer, gpu: &GpuRequest, ns: u64) -> Result<(), Failure> {
    answer.phase(Phase::Load, None)?;
    let context = Context::open(&gpu.uuid)?;
    let support = Support::load(&gpu.support)?;
    load::run(answer, &context, &support, ns)
}

/// Times candidates on a GPU.
///
/// # Errors
/// The GPU cannot be used. A candidate that fails is an answer.
pub fn tune(
    answer: &mut Answer,
    gpu: &GpuRequest,
    candidates: &[Candidate],
    protocol: &TuneProtocol,
) -> Result<(), Failure> {
    answer.phase(Phase::Load, None)?;
    let context = Context::open(&gpu.uuid)?;
    let support = Support::load(&gpu.support)?;
    let mut kept = None;
    let mut time = |answer: &mut Answer, candidate: &Candidate, best_ns: f64| {
        answer.phase(Phase::Load, None)?;
        let loaded = rig::load(&context, &candidate.launchable)?;
        let mut rig = rig::Rig::for_candidate(answer, &context, &support, candidate, &loaded, kept.take())?;
        let tried = tune::time(answer, &mut rig, candidate, protocol, best_ns);
        kept = tried.left_in_order().then(|| rig.into_buffers());
        Ok(tried)
    };
    tune::run(answer, candidates, |answer, candidate, best_ns| {
        time(answer, candidate, best_ns).unwrap_or_else(Tried::failed)
    })
}
