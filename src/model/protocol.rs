//! What the runner and a worker process say to one another: one JSON request, then JSON lines as the answer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::ncu::{NcuProfile, ReportFile};
use super::timeline::{Timeline, Tracer};
use super::{Pipeline, Timing};

/// Version of [`Request`] and [`Line`]; a worker refuses any other.
pub const PROTOCOL: u32 = 1;

/// Everything a worker needs for its one task; written to its standard input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub protocol: u32,
    pub task: Task,
    /// CPU cores, by number, that stages are pinned to in turn. Streams that run at the same time get disjoint
    /// cores as long as there are enough.
    pub cores: Vec<u32>,
    /// The GPU that stages run on; `None` runs them on the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuRequest>,
}

impl Request {
    /// The same request with every path of this host replaced by what `alias` gives for it.
    #[must_use]
    pub fn with_paths(mut self, alias: impl Fn(&Path) -> PathBuf) -> Request {
        let replace = |path: &mut PathBuf| *path = alias(path);
        let check = |check: &mut Check| check.reference_cache.iter_mut().for_each(replace);
        let modules = |launchable: &mut Launchable| launchable.modules.iter_mut().for_each(replace);
        match &mut self.task {
            Task::Verify { launchable, check: of }
            | Task::Event { launchable, check: of, .. }
            | Task::Annotation { launchable, check: of, .. } => {
                modules(launchable);
                check(of);
            }
            Task::Profile { subjects, .. } => {
                for Profiled { launchable, check: of, .. } in subjects {
                    modules(launchable);
                    check(of);
                }
            }
            Task::Timeline { launchable, check: of, library, .. } => {
                modules(launchable);
                check(of);
                library.iter_mut().for_each(replace);
            }
            Task::Tune { candidates, .. } => {
                candidates.iter_mut().for_each(|candidate| modules(&mut candidate.launchable));
            }
            Task::Cupti { library } => replace(library),
            Task::Compile(compile) => replace(&mut compile.into),
            Task::Hold | Task::Load { .. } | Task::Probe | Task::Toolkit => {}
        }
        self.gpu.iter_mut().for_each(|gpu| replace(&mut gpu.support));
        self
    }
}

/// Which GPU, and what the worker needs there besides the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuRequest {
    /// `GPU-…` or `MIG-…`, as [`GpuInfo::uuid`]; the only GPU that the process is to see.
    pub uuid: String,
    /// mlarun's own device code, [`SUPPORT_SOURCE`], compiled for this GPU: a cubin.
    pub support: PathBuf,
}

/// Source of the device code that every request for a GPU needs (inputs, reference, clocks): one translation unit
/// without any include, for whoever makes the request to compile.
pub const SUPPORT_SOURCE: &str = include_str!("../worker/cuda/support.cu");

/// A pipeline with the compiled module of each stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Launchable {
    pub pipeline: Pipeline,
    /// Shared library (CPU) or cubin (GPU) of each stage, in the order of [`Pipeline::stages`].
    pub modules: Vec<PathBuf>,
}

/// The one thing that a worker process does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "task", rename_all = "snake_case")]
pub enum Task {
    Verify {
        launchable: Launchable,
        check: Check,
    },
    Event {
        launchable: Launchable,
        protocol: EventProtocol,
        check: Check,
    },
    Annotation {
        launchable: Launchable,
        protocol: AnnotationProtocol,
        check: Check,
    },
    /// Launches subjects one after the other between the marks that a profiler around the worker waits for.
    Profile {
        subjects: Vec<Profiled>,
        protocol: NcuProtocol,
        /// Name, without folders and ending, of the report that Nsight Compute is to keep; `None` keeps none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        report: Option<String>,
    },
    /// Launches the pipeline some times between the marks that a tracer around the worker waits for, or tells itself what
    /// ran between them.
    Timeline {
        launchable: Launchable,
        protocol: TimelineProtocol,
        check: Check,
        /// Name, without folders and ending, of what the tracer is to keep; `None` keeps nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        report: Option<String>,
        /// CUPTI's library, for a worker that traces itself; whoever starts it fills this in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        library: Option<PathBuf>,
    },
    Tune {
        candidates: Vec<Candidate>,
        protocol: TuneProtocol,
    },
    /// Loads this library and tells which CUPTI it is ([`Line::Cupti`]).
    Cupti {
        library: PathBuf,
    },
    /// Keeps the GPU busy for this many nanoseconds, and tells the SM clock of their second half ([`Line::SmClock`]).
    Load {
        ns: u64,
    },
    /// Keeps the request's GPU open and does nothing, until the process is ended.
    Hold,
    /// Which GPUs there are.
    Probe,
    /// Which CUDA compiler there is.
    Toolkit,
    /// Compiles one translation unit with NVRTC. Needs no GPU.
    Compile(CompileRequest),
}

impl Task {
    /// Word for it, for messages.
    pub const fn name(&self) -> &'static str {
        match self {
            Task::Verify { .. } => "a verification",
            Task::Event { .. } => "a sample set of event mode",
            Task::Annotation { .. } => "an annotation",
            Task::Profile { .. } => "a profile of Nsight Compute",
            Task::Timeline { .. } => "a timeline",
            Task::Tune { .. } => "a tuning",
            Task::Cupti { .. } => "the version of CUPTI",
            Task::Load { .. } => "a load to see clocks under",
            Task::Hold => "a GPU kept open",
            Task::Probe => "the GPUs",
            Task::Toolkit => "the CUDA compiler",
            Task::Compile(_) => "a compile",
        }
    }
}

/// One translation unit of CUDA C++.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompileRequest {
    /// Name that the compiler's messages call it by.
    pub name: String,
    /// Text of the translation unit.
    pub source: String,
    /// In order, one argument each; `--gpu-architecture=sm_…` must be among them.
    pub options: Vec<String>,
    /// Existing folder that `module.cubin` and `module.ptx` are written to.
    pub into: PathBuf,
}

/// A GPU, as the driver describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuInfo {
    /// Number among those that the process sees; tells two GPUs apart within one answer and nothing else.
    pub index: u32,
    /// `GPU-…` or `MIG-…`.
    pub uuid: String,
    pub name: String,
    pub compute_capability: (u32, u32),
    pub multiprocessors: u32,
    /// All of it.
    pub memory_bytes: u64,
    /// What other processes leave.
    pub free_bytes: u64,
    pub l2_bytes: u64,
    /// Largest dynamic shared memory of a block, after it was asked for.
    pub shared_bytes_per_block_max: u64,
    /// Highest clocks, in kHz; 0 where the driver tells none.
    pub sm_clock_khz: u32,
    pub memory_clock_khz: u32,
    /// A part of a GPU.
    pub mig: bool,
}

/// How the output is compared with the reference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Compare at most this many rows; `None` compares all. Sampled rows always include the first and the last one
    /// and, for an output of three or more dimensions, at least one of every index of the second dimension (head).
    pub max_rows: Option<u64>,
    /// Seed of the sampling of rows.
    pub seed: u64,
    /// Folder in which float64 reference rows are kept between processes; `None` keeps none.
    pub reference_cache: Option<PathBuf>,
    /// On a GPU: buffers stand alone, without guard bands, so that a tool that watches memory sees every access beside
    /// one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_bands: bool,
}

/// One tiling to be timed; only the stage `stage` runs when it is given (with poisoned scratch replaced by inputs of
/// unit scale, as its producers do not run).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Number of the candidate in the tuning history; repeated in the answer.
    pub number: usize,
    pub launchable: Launchable,
    pub stage: Option<usize>,
}

/// Warm-up: by time, by count, and until the time of a launch is steady.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Warmup {
    pub min_launches: u32,
    pub min_ns: u64,
    /// Length of one block; the last `steady_blocks` blocks must agree.
    pub block_ns: u64,
    pub steady_blocks: u32,
    /// Largest difference between the blocks' medians, in thousandths of the smallest.
    pub steady_permille: u32,
    /// Warm-up ends here, steady or not (and says which).
    pub max_ns: u64,
}

/// Sampling protocol of event mode. All times in nanoseconds; integers, as they enter a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct EventProtocol {
    pub warmup: Warmup,
    /// Timings taken, in this order.
    pub timings: Vec<Timing>,
    pub min_samples: u32,
    pub max_samples: u32,
    /// Sampling of one timing ends when the half-width of the 95% interval of the median is at most this many
    /// thousandths of the median …
    pub interval_permille: u32,
    /// … or when this much time has gone into it (but never before `min_samples`).
    pub budget_ns: u64,
    /// A batched sample is a loop of launches at least this long.
    pub batch_window_ns: u64,
    /// Bytes written between cold samples to evict the caches.
    pub flush_bytes: u64,
}

/// Sampling protocol of annotation mode on the CPU: every stage by itself, caches flushed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AnnotationProtocol {
    pub warmup: Warmup,
    pub min_samples: u32,
    pub max_samples: u32,
    pub budget_ns: u64,
    pub flush_bytes: u64,
}

/// What Nsight Compute is asked for: every launch of a pipeline, one after the other, replayed as often as that takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NcuProtocol {
    /// Version of Nsight Compute.
    pub version: String,
    pub collect: Collect,
    /// Launches before the profiled one, not profiled.
    pub warmup_launches: u32,
    /// The stage that alone is profiled; `None` profiles all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
}

/// What is traced in nsys mode: launches of the whole pipeline, each begun when the one before has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TimelineProtocol {
    pub tracer: Tracer,
    /// Launches before the traced ones.
    pub warmup_launches: u32,
    pub launches: u32,
}

/// How much Nsight Compute collects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Collect {
    /// These metrics, by their exact names, and these sections with their rules.
    Metrics { metrics: Vec<String>, sections: Vec<String> },
    /// Every section, with the source, and these metrics, which no section may have; a report file is kept.
    Full { metrics: Vec<String> },
}

/// One subject to be profiled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profiled {
    pub launchable: Launchable,
    /// The stage that alone is profiled, by its index; `None` profiles all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<usize>,
    pub check: Check,
}

impl Profiled {
    /// Names of the stages whose launches are profiled, in launch order.
    pub fn stages(&self) -> impl Iterator<Item = &str> {
        let stages = self.launchable.pipeline.stages.iter().enumerate();
        stages
            .filter(|(index, _)| self.stage.is_none_or(|wanted| wanted == *index))
            .map(|(_, stage)| stage.name.as_str())
    }
}

/// Sampling protocol of one candidate while tuning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TuneProtocol {
    pub min_samples: u32,
    pub max_samples: u32,
    /// Time that goes into one candidate, its first launch not counted.
    pub budget_ns: u64,
    /// After its first timed launch, a candidate slower than the best by this many percent is not sampled further.
    pub abandon_percent: u32,
}

/// One line of a worker's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum Line {
    /// First line: the worker has understood the request.
    Hello { protocol: u32, pid: u32 },
    /// What the worker does from now on; the last one before a crash says where it happened.
    Phase { phase: Phase, stage: Option<String> },
    /// The output agrees with the reference. Event and annotation mode say so before they measure and once more after,
    /// the latter before any measurement is told.
    Verified(Verification),
    /// Warm-up is over.
    WarmedUp { launches: u64, ns: u64, steady: bool },
    /// Median time of a launch on the same threads in which no stage has a block. It is part of every isolated sample
    /// and is not subtracted from any.
    LaunchOverhead { ns: f64 },
    /// Median clock of the multiprocessors over the samples, read on the GPU itself around each of them.
    SmClock { mhz: f64 },
    /// Samples of one timing, in the order in which they were taken.
    Samples(Samples),
    /// Samples of one stage by itself.
    StageSamples { stage: String, ns: Vec<f64> },
    /// Hardware counters of one stage, for one launch.
    Counters { stage: String, counters: Counters },
    /// A candidate's median time, or why it has none.
    Candidate { number: usize, outcome: CandidateOutcome },
    /// The subject at this place of the request was launched between the profiler's marks.
    Launched { subject: usize },
    /// Its output is right after that.
    Kept { subject: usize, verification: Verification },
    /// It has no result; the others go on.
    Dropped { subject: usize, failure: Failure },
    /// What Nsight Compute says about the launches of the subject at this place.
    Profiled { subject: usize, profile: NcuProfile },
    /// What ran between the marks of [`Task::Timeline`].
    Timeline(Timeline),
    /// Files that the tracer left, in the folder of reports.
    Files { files: Vec<ReportFile> },
    /// The loaded CUPTI: the number by which it tells its version.
    Cupti { version: u32 },
    /// The GPU is open, and stays so.
    Held,
    /// The GPUs that this process sees.
    Gpus {
        /// Version of the driver, or of its API where the system does not tell.
        driver: String,
        /// Newest CUDA that the driver serves, as `cuDriverGetVersion` tells it: 13000 is 13.0.
        cuda: u32,
        gpus: Vec<GpuInfo>,
    },
    /// The CUDA compiler.
    Toolkit {
        /// Of NVRTC: major, minor.
        version: (u32, u32),
        /// The file that was loaded, links resolved.
        library: PathBuf,
        /// Compute capabilities that it compiles for: 90 is 9.0.
        architectures: Vec<u32>,
    },
    /// The module and its PTX are written; the compiler's messages.
    Compiled { log: String },
    /// The task ended without a result.
    Failed(Failure),
    /// Last line of a task that succeeded.
    Done,
}

/// Part of a worker's task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Load,
    Inputs,
    Reference,
    Run,
    Compare,
    Warmup,
    Sampling,
}

/// Samples of one timing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    pub timing: Timing,
    /// Nanoseconds a launch of the whole pipeline.
    pub ns: Vec<f64>,
    /// Launches that one sample averages (1 when isolated).
    pub launches_per_sample: u64,
    /// The interval became narrow enough within the budget.
    pub converged: bool,
}

/// How closely an accepted output agrees with the reference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verification {
    pub relative_frobenius: f64,
    /// Largest relative error of a row, and which row it was.
    pub worst_row: f64,
    pub worst_row_index: u64,
    pub rows_compared: u64,
    pub rows_total: u64,
    /// SHA-256 of the whole output.
    pub output_sha256: String,
    /// An earlier launch of the same process, with poison between the two, left the same bits; `None` where nothing was
    /// compared. A kernel of which this is `false` is right and not deterministic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_bits: Option<bool>,
}

/// Hardware counters, or the reason for their absence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counters {
    /// Counts of one launch over all threads, by the name that perf gives the event (e.g. `cache-misses`).
    Counted(BTreeMap<String, f64>),
    Absent {
        reason: String,
    },
}

/// Result of one tuning candidate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CandidateOutcome {
    /// Median of `samples` launches.
    Timed {
        median_ns: f64,
        samples: u32,
    },
    /// Given up early, as `ns` was far above the best.
    Abandoned {
        ns: f64,
    },
    Failed(Failure),
}

/// Why a task has no result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub kind: FailureKind,
    /// The stage at fault, where one can be named.
    pub stage: Option<String>,
    /// What happened and, where there is something to do, what to do.
    pub message: String,
}

/// Class of a failure; decides the exit code and whether a second try makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The output differs from the reference, was left unwritten, or a guard band was written to.
    WrongOutput,
    /// The check cannot tell a right output from a trivial one (all zero, constant).
    CannotTell,
    /// A sanitizer found a fault, e.g. a read beside a buffer, whatever the output.
    Sanitizer,
    /// The module does not load or lacks the entry function.
    Load,
    /// The compiler refused the source.
    Build,
    /// The process died from a signal.
    Crashed,
    /// The time limit was reached.
    TimedOut,
    OutOfMemory,
    /// The host lacks a library, a driver or a GPU that the task needs, or this program was built without support for
    /// it.
    Unsupported,
    /// The GPU cannot launch the stage: its grid, block, cluster or shared memory exceeds a limit.
    Launch,
    /// This user may not read the GPU's performance counters.
    NotPermitted,
    /// A profiler does not know, or does not deliver, what it was asked for.
    UnknownMetric,
    /// A profiler saw no kernel, or not those that were launched.
    NoKernel,
    /// A profiler ended without data, or with data that cannot be read.
    NoData,
    /// Too many measurements were taken while clocks slipped that were to be held.
    Invalid,
    /// The worker broke the protocol, or the operating system refused something.
    Internal,
    /// A recording is replayed that does not hold the answer.
    Unrecorded,
}

impl FailureKind {
    /// A fresh process may succeed where this one failed.
    pub const fn may_pass(self) -> bool {
        matches!(self, FailureKind::Crashed | FailureKind::Load | FailureKind::Internal)
    }
}
