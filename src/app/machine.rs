//! The host as one session sees it: device, compiler, peaks, and what every record states about them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CacheError, Project};
use crate::answers::{Answers, AnswersError};
use crate::backend::cuda::{self, Cuda, CudaError};
use crate::backend::{Backend, BuildError, Cpu, Patience, ProbeError};
use crate::device::clocks::{self, UnknownPolicy};
use crate::device::gpu::{self, GpuError};
use crate::device::nsight::{self, NcuError};
use crate::device::nsys::{self, Nsys, NsysError};
use crate::device::peaks::{self, PeaksError};
use crate::device::{Host, HostError, git, probe};
use crate::execute::{ExecuteError, Executor as _, ProcessExecutor};
use crate::manifest::ClockPolicy;
use crate::model::clocks::Telemetry;
use crate::model::ncu::NcuOffer;
use crate::model::protocol::{GpuInfo, GpuRequest, Line, PROTOCOL, Request, SUPPORT_SOURCE, Task};
use crate::model::record::Environment;
use crate::model::{Device, DeviceKind, Peaks};

/// Device, compiler and peaks of this host.
#[derive(Debug)]
pub struct Machine {
    pub host: Host,
    pub backend: Box<dyn Backend>,
    /// Theoretical peaks of a GPU, from conf/; those of a CPU, once `mlarun device calibrate` has measured them with this
    /// compiler.
    pub peaks: Option<Peaks>,
    /// The GPU as workers are told of it; `None` on a CPU.
    pub gpu: Option<GpuRequest>,
    /// Nsight Compute's program, where the host has it.
    pub ncu: Option<PathBuf>,
    /// Nsight Systems' program and CUPTI's library, where the host has them.
    pub nsys: Option<Nsys>,
    pub cupti: Option<PathBuf>,
    pub clocks: ClockRule,
}

/// What decides about the clocks of a GPU.
#[derive(Debug, Clone, Default)]
pub enum ClockRule {
    /// The manifest.
    #[default]
    Manifest,
    /// This policy, whatever a manifest says.
    Policy(ClockPolicy),
    /// They were what a recording says, and are not asked for again.
    Recorded(Option<Box<Telemetry>>),
}

/// Where workers and devices are found.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'a> {
    pub kind: DeviceKind,
    /// Number or UUID of a GPU; `None` takes the first one.
    pub gpu: Option<&'a str>,
    /// The program that serves `__worker`: mlarun itself.
    pub worker: &'a Path,
    /// Clock policy of the command line.
    pub clocks: Option<ClockPolicy>,
}

/// The host lacks something.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Compiler(#[from] ProbeError),
    #[error(transparent)]
    Cuda(#[from] CudaError),
    #[error("mlarun's own device code: {0}")]
    Support(#[from] BuildError),
    #[error("the GPUs cannot be asked for: {0}; `--device cpu` runs on the CPU")]
    Driver(#[from] ExecuteError),
    #[error(transparent)]
    Answers(#[from] AnswersError),
    #[error(transparent)]
    Gpu(#[from] GpuError),
    #[error(transparent)]
    Peaks(#[from] PeaksError),
    #[error(transparent)]
    Clocks(#[from] UnknownPolicy),
}

/// What kernels run on where nothing is asked for: a GPU where there may be one that this program can use.
pub fn default_kind() -> DeviceKind {
    let may_have_gpu = cfg!(feature = "cuda") && gpu::may_be_present(Path::new("/"));
    if may_have_gpu { DeviceKind::Gpu } else { DeviceKind::Cpu }
}

/// Time after which a driver that does not answer is given up.
const DRIVER_LIMIT: Duration = Duration::from_secs(60);

/// The GPUs that the driver shows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Gpus {
    pub driver: String,
    pub gpus: Vec<GpuInfo>,
}

/// Asks the driver which GPUs there are, unless it has answered since it was loaded.
///
/// # Errors
/// There is no driver, or it does not answer.
pub fn gpus(project: &Project, worker: &Path) -> Result<Gpus, MachineError> {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let state = gpu::state(Path::new("/"), visible.as_deref());
    Answers::new(&project.cache()).get_or_ask("gpus", &state, || {
        let executor = ProcessExecutor {
            program: worker.to_owned(),
            silence_limit: DRIVER_LIMIT,
            interrupted: Arc::default(),
            wrapper: None,
        };
        let request = Request { protocol: PROTOCOL, task: Task::Probe, cores: Vec::new(), gpu: None };
        let lines = executor.execute(&request, &mut |_| {})?;
        let found = lines.into_iter().find_map(|line| match line {
            Line::Gpus { driver, gpus, .. } => Some(Gpus { driver, gpus }),
            _ => None,
        });
        found.ok_or(MachineError::Gpu(GpuError::None))
    })
}

/// Nsight Compute on this host, and what it offers for the device.
fn nsight_compute(project: &Project, device: &Device) -> Result<(PathBuf, NcuOffer), NcuError> {
    let named = std::env::var_os(nsight::VARIABLE);
    let program = nsight::find(named.as_deref(), &cuda::program_folders(), Path::new("/"))?;
    let metrics = device.gpu.as_ref().map(|gpu| project.conf.metrics.to_ask(gpu.capability())).unwrap_or_default();
    let offer = nsight::offer(&program, &metrics, &Answers::new(&project.cache()))?;
    Ok((program, offer))
}

/// Nsight Systems on this host, and its version.
fn nsight_systems(project: &Project) -> Result<(Nsys, String), NsysError> {
    let set = |name: &str| std::env::var_os(name);
    let (named, libraries, path) = (set(nsys::VARIABLE), set(nsys::LIBRARIES), set("LD_LIBRARY_PATH"));
    let folders = cuda::program_folders();
    let nsys = Nsys::find(named.as_deref(), &folders, Path::new("/"), libraries.as_deref(), path.as_deref())?;
    let version = nsys.offer(&Answers::new(&project.cache()))?;
    Ok((nsys, version))
}

/// The first CUPTI of this host whose records can be read, and its version. A worker loads it: nothing of NVIDIA's is loaded here.
fn cupti(project: &Project, worker: &Path) -> Result<(PathBuf, u32), String> {
    let mut reason =
        "CUPTI (libcupti.so) was not found; install the CUDA toolkit, or `pip install nvidia-cuda-cupti`".to_owned();
    for library in cuda::cupti_libraries() {
        match cupti_version(project, worker, &library) {
            Ok(version) => return Ok((library, version)),
            Err(error) => reason = error.to_string(),
        }
    }
    Err(reason)
}

fn cupti_version(project: &Project, worker: &Path, library: &Path) -> Result<u32, MachineError> {
    let state = (library, fs::metadata(library).ok().map(|file| (file.len(), file.mtime())));
    Answers::new(&project.cache()).get_or_ask("cupti", &state, || {
        let executor = ProcessExecutor {
            program: worker.to_owned(),
            silence_limit: DRIVER_LIMIT,
            interrupted: Arc::default(),
            wrapper: None,
        };
        let task = Task::Cupti { library: library.to_owned() };
        let request = Request { protocol: PROTOCOL, task, cores: Vec::new(), gpu: None };
        let lines = executor.execute(&request, &mut |_| {})?;
        let told = lines.into_iter().find_map(|line| match line {
            Line::Cupti { version } => Some(version),
            _ => None,
        });
        told.ok_or_else(|| MachineError::Driver(crate::profiler::missing("a version of CUPTI").into()))
    })
}

/// What is offered, or why it is not.
fn offered<P, T: Clone>(found: &Result<(P, T), impl ToString>) -> Result<T, String> {
    found.as_ref().map(|(_, offer)| offer.clone()).map_err(ToString::to_string)
}

impl Machine {
    /// Looks at the host and the device that `choice` names; what compilers and drivers say is remembered.
    ///
    /// # Errors
    /// .cache/ cannot be written to, a compiler, a driver or the device is missing, or the host does not say what it is.
    pub fn probe(project: &Project, choice: Choice<'_>) -> Result<Machine, MachineError> {
        project.check_cache()?;
        let clocks = clocks::overriding(choice.clocks)?.map_or(ClockRule::Manifest, ClockRule::Policy);
        let host = probe::host()?;
        let machine = match choice.kind {
            DeviceKind::Cpu => Machine::cpu(project, host),
            DeviceKind::Gpu => Machine::gpu(project, host, choice),
        };
        Ok(Machine { clocks, ..machine? })
    }

    fn cpu(project: &Project, host: Host) -> Result<Machine, MachineError> {
        let backend = Cpu::find(&project.cache())?;
        let peaks = peaks::load_measured(&project.cache(), &host.device.id, backend.toolchain())?;
        Ok(Machine {
            host,
            backend: Box::new(backend),
            peaks,
            gpu: None,
            ncu: None,
            nsys: None,
            cupti: None,
            clocks: ClockRule::default(),
        })
    }

    fn gpu(project: &Project, mut host: Host, choice: Choice<'_>) -> Result<Machine, MachineError> {
        let Gpus { driver, gpus } = gpus(project, choice.worker)?;
        let chosen = gpu::choose(&gpus, choice.gpu)?;
        host.cpu = Some(std::mem::take(&mut host.device.id.name));
        host.device = gpu::device(chosen, &driver, host.device.cores);
        let architecture = host.device.gpu.as_ref().map(|gpu| gpu.architecture()).unwrap_or_default();
        let limit = project.conf.protocol.limits.compile();
        let patience = Patience { limit, interrupted: Arc::default(), guard: None };
        let backend = Cuda::find(&architecture, &project.cache(), choice.worker, &patience)?;
        let support = backend.support(SUPPORT_SOURCE, &project.cache(), &patience)?;
        // A slice of a GPU has a name of its own, and not the peaks of the whole.
        let peaks = project.conf.devices.peaks(&host.device.id.name);
        let gpu = Some(GpuRequest { uuid: chosen.uuid.clone(), support });
        let found = nsight_compute(project, &host.device);
        host.nsight_compute = Some(match &found {
            Ok((_, offer)) => Ok(offer.clone()),
            Err(error) => Err(error.to_string()),
        });
        let ncu = found.ok().map(|(program, _)| program);
        let (nsys, cupti) = (nsight_systems(project), cupti(project, choice.worker));
        host.nsight_systems = Some(offered(&nsys));
        host.cupti = Some(offered(&cupti));
        let (nsys, cupti) = (nsys.ok().map(|(nsys, _)| nsys), cupti.ok().map(|(library, _)| library));
        Ok(Machine { host, backend: Box::new(backend), peaks, gpu, ncu, nsys, cupti, clocks: ClockRule::default() })
    }

    /// What every record of a session states. Asks git for the state of the project's folder.
    pub fn environment(&self, project: &Project) -> Environment {
        const GIT_LIMIT: Duration = Duration::from_secs(5);
        let tree = git::tree(&project.root, GIT_LIMIT).ok();
        Environment {
            device: self.host.device.clone(),
            peaks: self.peaks.clone(),
            clocks_hz: self.host.clocks_hz.clone(),
            clocks_locked: false,
            cpu: self.host.cpu.clone(),
            host: self.host.name.clone(),
            os: self.host.os.clone(),
            compiler: self.backend.toolchain().compiler.to_string(),
            mlarun: env!("CARGO_PKG_VERSION").to_owned(),
            git_revision: tree.as_ref().and_then(|tree| tree.revision.clone()),
            git_dirty: tree.map(|tree| tree.dirty),
            telemetry: None,
        }
    }
}
