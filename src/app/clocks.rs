//! Clocks around a session: what a plan may count on, and what holds while the session measures.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::ClockRule;
use super::experiment::{Control, Workspace};
use crate::answers::{Answers, AnswersError};
use crate::device::clocks::{self, ClocksError, Guard, Load};
use crate::device::nvml::{Gpu, Nvml, NvmlError, Xids};
use crate::device::{lease, processes};
use crate::execute::{Event, ExecuteError, Executor as _, Gauge, ProcessExecutor};
use crate::manifest::{self, ClockPolicy};
use crate::model::clocks::{ClockState, Frequencies, Reading, Telemetry};
use crate::model::protocol::{GpuRequest, Line, PROTOCOL, Phase, Request, Task};

/// Time that the GPU is kept busy for one look at its clocks.
const LOAD: Duration = Duration::from_millis(400);
/// Time after which a load that says nothing is given up.
const LOAD_LIMIT: Duration = Duration::from_secs(60);

/// Clocks while a session measures. Dropping it gives them back.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub state: ClockState,
    guard: Option<Guard>,
    /// `None` on a CPU, and where NVML is not there.
    gpu: Option<Gpu>,
    /// `None` also where the driver does not tell of faults.
    xids: Option<Xids>,
    /// `None` on a CPU.
    pub telemetry: Option<Telemetry>,
}

impl Held {
    /// Gives the clocks back.
    ///
    /// # Errors
    /// They could not be reset.
    pub fn release(self) -> Result<(), ClocksError> {
        self.guard.map_or(Ok(()), Guard::release)
    }
}

impl Gauge for Held {
    fn read(&self) -> Result<Option<Reading>, String> {
        let Some(gpu) = &self.gpu else { return Ok(None) };
        match gpu.read() {
            Err(error @ NvmlError::Lost { .. }) => Err(error.to_string()),
            // It has told before; what it does not tell now is absent from the record.
            Err(_) => Ok(None),
            Ok(reading) => Ok(Some(Reading {
                processes: processes::others(&reading.processes),
                xids: self.xids.as_ref().map(Xids::take).unwrap_or_default(),
                ..reading
            })),
        }
    }
}

impl Workspace<'_> {
    /// The policy that holds for what asks for `asked`, and the clocks in question.
    fn clock_policy(&self, asked: &manifest::Clocks) -> (ClockPolicy, Option<Frequencies>) {
        let policy = match self.machine.clocks {
            ClockRule::Policy(policy) => policy,
            ClockRule::Manifest | ClockRule::Recorded(_) => asked.policy,
        };
        let known = self.project.conf.devices.device(&self.machine.host.device.id.name);
        let sm_mhz = asked.sm_mhz.or(known.and_then(|device| device.lock_sm_mhz));
        let mem_mhz = asked.mem_mhz.or(known.and_then(|device| device.lock_mem_mhz));
        (policy, sm_mhz.map(|sm_mhz| Frequencies { sm_mhz, mem_mhz }))
    }

    /// What a plan may count on: what is asked for, unless that was tried here and something else came of it.
    ///
    /// # Errors
    /// What was tried cannot be read.
    pub(super) fn planned_clocks(&self, asked: &manifest::Clocks) -> Result<ClockState, AnswersError> {
        let Some(gpu) = &self.machine.gpu else { return Ok(ClockState::None) };
        if let ClockRule::Recorded(seen) = &self.machine.clocks {
            return Ok(seen.as_ref().map(|seen| seen.clocks).unwrap_or_default());
        }
        let (policy, frequencies) = self.clock_policy(asked);
        let hoped = clocks::hoped_for(policy, frequencies);
        Ok(self.answers().recall(&question(gpu), &self.circumstances(hoped))?.unwrap_or(hoped))
    }

    /// Has the clocks of the session as `asked`, and remembers what came of it.
    ///
    /// # Errors
    /// They cannot be had, and the policy does without nothing less; or the user has interrupted it.
    pub(super) fn hold_clocks(&self, asked: &manifest::Clocks, control: &mut Control<'_>) -> Result<Held, HoldError> {
        let Some(request) = &self.machine.gpu else { return Ok(Held::default()) };
        if let ClockRule::Recorded(telemetry) = &self.machine.clocks {
            let state = telemetry.as_ref().map(|seen| seen.clocks).unwrap_or_default();
            return Ok(Held { state, telemetry: telemetry.as_deref().cloned(), ..Held::default() });
        }
        let (policy, frequencies) = self.clock_policy(asked);
        let gpu = Nvml::open().and_then(|nvml| nvml.gpu(&request.uuid));
        let had = match policy {
            ClockPolicy::Observe => Ok((ClockState::Observed, None)),
            _ => {
                let mut load = WorkerLoad::new(self, request, control);
                have(policy, frequencies, gpu.clone(), &control.worker, &mut load)
            }
        };
        let (state, guard, reason) = match had {
            Ok((state, guard)) => (state, guard, None),
            Err(ClocksError::Interrupted) => return Err(ClocksError::Interrupted.into()),
            Err(error) if policy == ClockPolicy::Prefer => (ClockState::Observed, None, Some(error.to_string())),
            Err(error) => return Err(error.into()),
        };
        let hoped = clocks::hoped_for(policy, frequencies);
        if self.planned_clocks(asked)? != state {
            self.answers().remember(&question(request), &self.circumstances(hoped), &state)?;
        }
        control.observer.observe(&Event::Clocks { state, reason });
        let gpu = gpu.ok();
        let board = gpu.as_ref().map(Gpu::board).transpose().map_err(ClocksError::from)?.unwrap_or_default();
        let telemetry = Telemetry { clocks: state, board, ..Telemetry::default() };
        let xids = gpu.as_ref().and_then(|gpu| Xids::watch(gpu.uuid()));
        Ok(Held { state, guard, gpu, xids, telemetry: Some(telemetry) })
    }

    fn answers(&self) -> Answers {
        Answers::new(&self.project.cache())
    }

    /// What an attempt at `hoped` holds for: until the driver is loaded anew, and for this user.
    fn circumstances(&self, hoped: ClockState) -> (String, String, u32) {
        (hoped.to_string(), clocks::boot(), rustix::process::geteuid().as_raw())
    }
}

/// Name of the question which clocks `gpu` can be had at.
fn question(gpu: &GpuRequest) -> String {
    format!("clocks of {}", gpu.uuid)
}

/// Locks and verifies, or verifies alone; `program` is mlarun.
fn have(
    policy: ClockPolicy,
    frequencies: Option<Frequencies>,
    gpu: Result<Gpu, NvmlError>,
    program: &Path,
    load: &mut dyn Load,
) -> Result<(ClockState, Option<Guard>), ClocksError> {
    let gpu = gpu?;
    let frequencies = frequencies.ok_or_else(|| ClocksError::NoFrequency { gpu: gpu.to_string() })?;
    if policy == ClockPolicy::External {
        clocks::verify(&gpu, frequencies, load)?;
        return Ok((ClockState::External(frequencies), None));
    }
    let guard = Guard::lock(gpu, frequencies, &lease::folder(), program)?;
    guard.verify(load)?;
    Ok((ClockState::Locked(guard.frequencies()), Some(guard)))
}

/// A session cannot have its clocks.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    #[error("{0}; nothing was measured (`--clocks observe` measures at whatever clock the GPU chooses)")]
    Clocks(#[from] ClocksError),
    #[error(transparent)]
    Answers(#[from] AnswersError),
}

/// A worker that keeps the GPU busy.
struct WorkerLoad {
    executor: ProcessExecutor,
    request: Request,
}

impl WorkerLoad {
    fn new(workspace: &Workspace<'_>, gpu: &GpuRequest, control: &Control<'_>) -> WorkerLoad {
        let executor = ProcessExecutor {
            program: control.worker.clone(),
            silence_limit: LOAD_LIMIT,
            interrupted: Arc::clone(&control.interrupted),
            wrapper: None,
        };
        let task = Task::Load { ns: LOAD.as_nanos() as u64 };
        let cores = workspace.machine.host.device.cores.clone();
        WorkerLoad { executor, request: Request { protocol: PROTOCOL, task, cores, gpu: Some(gpu.clone()) } }
    }
}

impl Load for WorkerLoad {
    fn run(&mut self, during: &mut dyn FnMut()) -> Result<f64, ClocksError> {
        let lines = self.executor.execute(&self.request, &mut |line| {
            if matches!(line, Line::Phase { phase: Phase::Sampling, .. }) {
                during();
            }
        });
        let lines = lines.map_err(|error| match error {
            ExecuteError::Interrupted => ClocksError::Interrupted,
            ExecuteError::Failed(failure) => ClocksError::Load(failure.message),
        })?;
        let clock = lines.iter().find_map(|line| match line {
            Line::SmClock { mhz } => Some(*mhz),
            _ => None,
        });
        clock.ok_or_else(|| ClocksError::Load("the worker told no clock".to_owned()))
    }
}
