//! One function a mode: profile one kernel at one shape, and write its artifacts.
//!
//! Each takes a [`ProfilePlan`], an output folder (`None`: a new one below out/profiles), a version that replaces the
//! plan's own (`None`: the plan's), and a number of bench runs, i.e. sample sets, each a fresh process (`None`: as
//! configured; one where the mode knows no rounds). What is recorded already is not measured again, unless the plan asks
//! for it; the folder is written anew. Each waits until no other program measures on this host, if it has to measure.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::experiment::{Bench, BenchError, Control, Workspace};
use super::publish::{PublishError, PublishedProfile, publish_profile};
use super::{Choice, ClockRule, Ledger, Machine, MachineError, Project, ProjectError, default_kind};
use crate::catalog::LookupError;
use crate::device::clocks;
use crate::device::lease::{self, LeaseError, UnknownScope, Waiting};
use crate::execute::RunFailure;
use crate::manifest::{ClockPolicy, Clocks, Devlog, Experiment, ProtocolOverrides, Selection};
use crate::model::protocol::Failure;
use crate::model::timeline::TracerKind;
use crate::model::{DeviceKind, KernelId, Language, Mode, Shape, Version};
use crate::plan::{RunState, SubjectState, Wanted};
use crate::store::StoreError;

/// A kernel at one shape, to be profiled on this host.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfilePlan {
    pub id: KernelId,
    /// Parameters that are given; the others take the kernel's defaults or are tuned.
    pub shape: Shape,
    /// Measure again what is already recorded.
    pub remeasure: bool,
    /// The stage that alone is profiled in ncu mode.
    pub stage: Option<String>,
}

impl ProfilePlan {
    /// Plans `kernel` in its base version.
    pub fn new(kernel: impl Into<String>, language: Language, shape: Shape) -> ProfilePlan {
        ProfilePlan::of_version(kernel, language, Version::BASE, shape)
    }

    /// Plans one version of `kernel`.
    pub fn of_version(kernel: impl Into<String>, language: Language, version: Version, shape: Shape) -> ProfilePlan {
        ProfilePlan { id: KernelId { kernel: kernel.into(), version, language }, shape, remeasure: false, stage: None }
    }
}

/// Where profiling happens: an opened project on this host.
#[derive(Debug)]
pub struct Profiler {
    pub project: Project,
    pub machine: Machine,
    pub ledger: Ledger,
    /// The program that serves as worker: the `mlarun` binary.
    pub worker: PathBuf,
}

/// Result of a profile.
#[derive(Debug)]
pub struct Profile {
    /// Folder with report.md, params.json, tiling/ and compiled/.
    pub folder: PathBuf,
    /// Contents of report.md.
    pub report: String,
    /// Median duration in nanoseconds: end to end and cold in event mode, the sum of the stages in annotation mode.
    pub duration_ns: f64,
}

/// A profile has no result.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error(transparent)]
    Project(#[from] ProjectError),
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error(transparent)]
    Bench(#[from] BenchError),
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error(transparent)]
    Lease(#[from] LeaseError),
    #[error(transparent)]
    Scope(#[from] UnknownScope),
    /// The mode does not run here; that is no failure.
    #[error("skipped: {reason}")]
    Skipped { reason: String },
    #[error("refused: {reason}")]
    Refused { reason: String },
    #[error("{kernel} has no stage `{stage}`; its stages are {}", stages.join(", "))]
    NoStage { kernel: KernelId, stage: String, stages: Vec<String> },
    #[error("{0}")]
    Failed(Failure),
    #[error("interrupted")]
    Interrupted,
}

impl Profiler {
    /// Opens the project at or above `start`, for the first GPU of this host, or its CPU where there is none; `worker` is
    /// the `mlarun` binary.
    ///
    /// # Errors
    /// There is no project, the host lacks something, or out/ cannot be written to.
    pub fn open(start: &Path, worker: PathBuf) -> Result<Profiler, ProfileError> {
        let project = Project::open(start, None, None)?;
        let machine =
            Machine::probe(&project, Choice { kind: default_kind(), gpu: None, worker: &worker, clocks: None })?;
        let ledger = Ledger::open(&project)?;
        Ok(Profiler { project, machine, ledger, worker })
    }
}

/// End-to-end timings without a profiler.
///
/// # Errors
/// See [`ProfileError`].
pub fn event_profile_plan(
    profiler: &Profiler,
    plan: &ProfilePlan,
    out_dir: Option<&Path>,
    version: Option<Version>,
    bench_runs: Option<u32>,
) -> Result<Profile, ProfileError> {
    profile(profiler, plan, Mode::Event, out_dir, version, bench_runs)
}

/// Per-stage times, roofline position and counters: the default first pass.
///
/// # Errors
/// See [`ProfileError`].
pub fn annotation_profile_plan(
    profiler: &Profiler,
    plan: &ProfilePlan,
    out_dir: Option<&Path>,
    version: Option<Version>,
    bench_runs: Option<u32>,
) -> Result<Profile, ProfileError> {
    profile(profiler, plan, Mode::Annotation, out_dir, version, bench_runs)
}

/// Nsight Compute. On a CPU it is skipped, with the reason.
///
/// # Errors
/// See [`ProfileError`].
pub fn ncu_profile_plan(
    profiler: &Profiler,
    plan: &ProfilePlan,
    out_dir: Option<&Path>,
    version: Option<Version>,
    bench_runs: Option<u32>,
) -> Result<Profile, ProfileError> {
    profile(profiler, plan, Mode::Ncu, out_dir, version, bench_runs)
}

/// Nsight Systems. On a CPU it is skipped, with the reason.
///
/// # Errors
/// See [`ProfileError`].
pub fn nsys_profile_plan(
    profiler: &Profiler,
    plan: &ProfilePlan,
    out_dir: Option<&Path>,
    version: Option<Version>,
    bench_runs: Option<u32>,
) -> Result<Profile, ProfileError> {
    profile(profiler, plan, Mode::Nsys, out_dir, version, bench_runs)
}

/// Takes the host's lease where something is to be measured.
fn profile(
    profiler: &Profiler,
    plan: &ProfilePlan,
    mode: Mode,
    out_dir: Option<&Path>,
    version: Option<Version>,
    bench_runs: Option<u32>,
) -> Result<Profile, ProfileError> {
    let options = Options { out_dir, version, bench_runs, tool: None };
    let workspace = Workspace { project: &profiler.project, machine: &profiler.machine, ledger: &profiler.ledger };
    let _lease = match is_recorded(&workspace, plan, mode, options)? {
        true => None,
        false => {
            let scope = lease::scope(profiler.machine.gpu.as_ref().map(|gpu| gpu.uuid.as_str()))?;
            Some(lease::acquire(&lease::folder(), scope, Waiting::While(&mut |_| true))?)
        }
    };
    // What cannot be given back now is tried again by the next one; a run that needs the clocks says so.
    let may_change = !matches!(profiler.machine.clocks, ClockRule::Policy(ClockPolicy::Observe));
    clocks::recover_all(&lease::folder(), may_change);
    let mut control = Control {
        observer: &mut |_: &crate::execute::Event| {},
        interrupted: Arc::new(AtomicBool::new(false)),
        fail_fast: true,
        worker: profiler.worker.clone(),
        tape: None,
    };
    run(&workspace, plan, mode, options, &mut control)
}

/// How a single shot departs from its plan.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options<'a> {
    pub out_dir: Option<&'a Path>,
    pub version: Option<Version>,
    pub bench_runs: Option<u32>,
    /// What traces in nsys mode; by default what is there.
    pub tool: Option<TracerKind>,
}

/// A single shot that can run here: its experiment, its plan, and which of the plan's subjects it is.
fn planned(
    workspace: &Workspace<'_>,
    plan: &ProfilePlan,
    mode: Mode,
    options: Options<'_>,
) -> Result<(Bench, usize), ProfileError> {
    let id = KernelId { version: options.version.unwrap_or(plan.id.version), ..plan.id.clone() };
    let package = workspace.project.catalog.package(&id)?;
    if let Some(stage) = plan.stage.clone().filter(|stage| package.stages.iter().all(|known| known.name != *stage)) {
        let stages = package.stages.iter().map(|stage| stage.name.clone()).collect();
        return Err(ProfileError::NoStage { kernel: id, stage, stages });
    }
    let mut experiment = single(workspace, id, plan.shape.clone(), mode, options.bench_runs);
    experiment.protocol.ncu_stage.clone_from(&plan.stage);
    experiment.protocol.nsys.tool = options.tool;
    let bench = workspace.plan(experiment, wanted(plan))?;
    let subject = bench.plan.subjects.iter().position(|subject| subject.listed);
    let subject = subject.expect("a single shot lists one subject");
    if let Some(RunState::Skipped { reason }) = bench.plan.subjects[subject].run(mode).map(|run| &run.state) {
        return Err(ProfileError::Skipped { reason: reason.clone() });
    }
    if let SubjectState::Refused { reason } = &bench.plan.subjects[subject].state {
        return Err(ProfileError::Refused { reason: reason.clone() });
    }
    Ok((bench, subject))
}

fn wanted(plan: &ProfilePlan) -> Wanted<'static> {
    Wanted { remeasure: plan.remeasure, ..Wanted::default() }
}

/// Whether everything that the single shot shows is recorded, so that it needs neither the host for itself nor its peaks.
///
/// # Errors
/// The mode does not run here, or see [`ProfileError`].
pub fn is_recorded(
    workspace: &Workspace<'_>,
    plan: &ProfilePlan,
    mode: Mode,
    options: Options<'_>,
) -> Result<bool, ProfileError> {
    Ok(planned(workspace, plan, mode, options)?.0.plan.counts().to_do() == 0)
}

/// The single shot itself, for callers that follow it with an observer of their own and hold the host's lease unless
/// it [is recorded](is_recorded).
///
/// # Errors
/// See [`ProfileError`].
pub fn run(
    workspace: &Workspace<'_>,
    plan: &ProfilePlan,
    mode: Mode,
    options: Options<'_>,
    control: &mut Control<'_>,
) -> Result<Profile, ProfileError> {
    let (bench, subject) = planned(workspace, plan, mode, options)?;
    let finished = workspace.execute(bench, wanted(plan), control)?;
    let failures = finished.outcome.failures;
    let published = publish_profile(workspace, &finished.bench, &failures, subject, mode, options.out_dir)?;
    match (published, failures.into_iter().next()) {
        (Some(PublishedProfile { folder, report, duration_ns }), _) => Ok(Profile { folder, report, duration_ns }),
        (None, Some(RunFailure { failure, .. })) => Err(ProfileError::Failed(failure)),
        (None, None) => Err(ProfileError::Interrupted),
    }
}

/// The experiment of one kernel at one shape.
pub fn single(workspace: &Workspace<'_>, id: KernelId, shape: Shape, mode: Mode, rounds: Option<u32>) -> Experiment {
    /// Rounds of a single shot where the caller names none.
    const ROUNDS: u32 = 3;
    let limit = workspace.project.conf.protocol.limits.run().as_secs();
    Experiment {
        name: "profile".to_owned(),
        description: String::new(),
        language: id.language,
        device: DeviceKind::Cpu,
        kernels: vec![Selection { kernel: id.kernel, versions: vec![id.version] }],
        modes: vec![mode],
        baselines: Vec::new(),
        shapes: vec![shape],
        clocks: Clocks { policy: ClockPolicy::Prefer, sm_mhz: None, mem_mhz: None },
        rounds: rounds.unwrap_or(ROUNDS),
        protocol: ProtocolOverrides::default(),
        time_limit_s: u32::try_from(limit).unwrap_or(u32::MAX),
        devlog: Devlog::default(),
    }
}
