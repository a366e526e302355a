//! Planning and executing one experiment: opens nothing that is not needed for what is asked.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::builder::CachedBuilder;
use super::clocks::{Held, HoldError};
use super::tape::Tape;
use super::{Ledger, Machine, Project};
use crate::backend::{BuildCache, Patience};
use crate::conf::Conf;
use crate::device::Host;
use crate::device::clocks::ClocksError;
use crate::device::nsys::Nsys;
use crate::execute::{
    Builder, Clock, Event, Executor, Gauge, Holding, NsightCompute, NsightSystems, Observer, Outcome, ProcessExecutor,
    Session, SessionError, Tools, Tracers, Watching,
};
use crate::manifest::{Experiment, NsysOverrides, ProtocolOverrides};
use crate::model::Device;
use crate::model::clocks::ClockState;
use crate::model::protocol::{Collect, NcuProtocol, TimelineProtocol};
use crate::model::record::Environment;
use crate::model::timeline::{Tracer, TracerKind};
use crate::plan::space::SearchLimits;
use crate::plan::{self, Estimate, Nsight, Plan, PlanError, Protocols, Setting, Trace, Wanted};
use crate::store::calibrations::CalibrationsError;

/// Rows that a verification compares at the run's own shape, at most.
const VERIFIED_ROWS: u64 = 4096;
/// Seed of the sampling of rows.
const VERIFICATION_SEED: u64 = 1;

/// Project, host and records that everything works with.
#[derive(Debug, Clone, Copy)]
pub struct Workspace<'a> {
    pub project: &'a Project,
    pub machine: &'a Machine,
    pub ledger: &'a Ledger,
}

/// How the caller follows and stops a session.
pub struct Control<'a> {
    pub observer: &'a mut dyn Observer,
    /// Set to end the session within a second; everything finished is kept.
    pub interrupted: Arc<AtomicBool>,
    /// End at the first failed run.
    pub fail_fast: bool,
    /// The program that serves as worker and as guard of compilers: mlarun itself.
    pub worker: PathBuf,
    /// What the session is recorded to or replayed from.
    pub tape: Option<Tape<'a>>,
}

/// An experiment with its plan.
#[derive(Debug)]
pub struct Bench {
    pub experiment: Experiment,
    pub protocols: Protocols,
    pub plan: Plan,
}

/// An executed experiment, planned again with what is known now.
#[derive(Debug)]
pub struct Finished {
    pub bench: Bench,
    pub outcome: Outcome,
}

/// An experiment could not be planned or executed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Clocks(#[from] HoldError),
    #[error(transparent)]
    Calibration(#[from] CalibrationsError),
}

/// The host's clock; counts from when it was made.
struct SystemClock(Instant);

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// What a session meets outside itself.
struct Outside<'a> {
    builder: &'a dyn Builder,
    executor: &'a dyn Executor,
    clock: &'a dyn Clock,
    gauge: &'a dyn Gauge,
    environment: Environment,
    /// Name of the session.
    name: String,
}

impl<'a> Workspace<'a> {
    /// What plans depend on beside the experiment.
    pub fn setting(&self, protocols: &'a Protocols) -> Setting<'a> {
        Setting {
            device: &self.machine.host.device,
            toolchain: self.machine.backend.toolchain(),
            peaks: self.machine.peaks.as_ref(),
            protocols,
        }
    }

    /// Plans `experiment` with what is known now.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn plan(&self, experiment: Experiment, wanted: Wanted<'_>) -> Result<Bench, BenchError> {
        let clocks = self.planned_clocks(&experiment.clocks).map_err(HoldError::from)?;
        self.plan_at(experiment, clocks, &self.project.conf, wanted)
    }

    /// Plans `experiment` for these clocks, to be measured as `conf` says.
    pub(super) fn plan_at(
        &self,
        experiment: Experiment,
        clocks: ClockState,
        conf: &Conf,
        wanted: Wanted<'_>,
    ) -> Result<Bench, BenchError> {
        let mut protocols = protocols(conf, &experiment.protocol, &self.machine.host.device, experiment.rounds);
        self.at_clocks(&mut protocols, clocks)?;
        protocols.nsight_compute = nsight(conf, &self.machine.host, experiment.protocol.ncu_stage.as_deref());
        protocols.timeline = trace(conf, experiment.protocol.nsys, &self.machine.host);
        let plan = plan::plan(&experiment, &self.project.catalog, &self.setting(&protocols), self.ledger, wanted)?;
        Ok(Bench { experiment, protocols, plan })
    }

    /// Has `protocols` measure at these clocks, and judge as this host's calibration at them allows.
    fn at_clocks(&self, protocols: &mut Protocols, clocks: ClockState) -> Result<(), CalibrationsError> {
        protocols.clocks = clocks;
        protocols.unlocked_threshold = self.host_calibration(&clocks)?.map(|host| host.threshold);
        Ok(())
    }

    /// How long what the plan has left to do will take, roughly.
    pub fn estimate(&self, bench: &Bench) -> Estimate {
        bench.plan.estimate(&self.project.catalog, &self.setting(&bench.protocols))
    }

    /// Does what the plan has left to do, at the clocks that the experiment asks for, then plans again.
    ///
    /// # Errors
    /// A result could not be kept, or see [`PlanError`]. Failed runs are in the outcome.
    pub fn execute(&self, bench: Bench, wanted: Wanted<'_>, control: &mut Control<'_>) -> Result<Finished, BenchError> {
        let Bench { experiment, mut protocols, mut plan } = bench;
        let mut held = Held::default();
        if plan.counts().to_do() > 0 {
            held = match self.hold_clocks(&experiment.clocks, control) {
                Err(HoldError::Clocks(ClocksError::Interrupted)) => {
                    let outcome = Outcome { stopped: true, ..Outcome::default() };
                    return Ok(Finished { bench: Bench { experiment, protocols, plan }, outcome });
                }
                held => held?,
            };
            if held.state != protocols.clocks {
                // What was planned for other clocks is not what can be measured now.
                self.at_clocks(&mut protocols, held.state)?;
                plan = plan::plan(&experiment, &self.project.catalog, &self.setting(&protocols), self.ledger, wanted)?;
            }
        }
        let setting = self.setting(&protocols);
        let limit = Duration::from_secs(u64::from(experiment.time_limit_s));
        let outcome = self.with_session(setting, control, limit, &held, |session| {
            session.execute(&experiment, plan, wanted, self.ledger)
        })?;
        let state = held.state;
        if let Err(error) = held.release() {
            let reason = Some(format!("not given back: {error}; `mlarun clocks reset` tries again"));
            control.observer.observe(&Event::Clocks { state, reason });
        }
        // Reports show the whole experiment, whatever part of it was asked for now.
        let wanted = Wanted { remeasure: false, only: None, ..wanted };
        let plan = plan::plan(&experiment, &self.project.catalog, &setting, self.ledger, wanted)?;
        Ok(Finished { bench: Bench { experiment, protocols, plan }, outcome })
    }

    /// Gives `run` a session at the clocks `held`, whose workers may be silent for `limit`.
    pub(super) fn with_session<T>(
        &self,
        setting: Setting<'_>,
        control: &mut Control<'_>,
        limit: Duration,
        held: &Held,
        run: impl FnOnce(Session<'_>) -> T,
    ) -> T {
        let Workspace { project, machine, ledger } = *self;
        let workers = ProcessExecutor {
            program: control.worker.clone(),
            silence_limit: limit,
            interrupted: Arc::clone(&control.interrupted),
            wrapper: None,
        };
        let holding = Holding::new(&workers);
        let compute = machine.ncu.clone().map(|program| NsightCompute {
            program,
            reports: project.out.join(super::artifacts::REPORTS),
            sources: project.root.clone(),
        });
        let systems = machine.nsys.clone().map(|Nsys { program, library_path }| {
            let reports = project.out.join(super::artifacts::REPORTS);
            NsightSystems { program, library_path, reports }
        });
        let tracers = Tracers { systems, cupti: machine.cupti.clone() };
        let executor = Watching { inner: &holding, workers: &workers, compute, tracers };
        let interrupted = Arc::clone(&control.interrupted);
        let guard = Some(control.worker.clone());
        let patience = Patience { limit: project.conf.protocol.limits.compile(), interrupted, guard };
        let cache = BuildCache::new(&project.root, &project.cache()).with_patience(patience);
        project.sweep();
        let builder = CachedBuilder { backend: &*machine.backend, cache: &cache };
        let toolchain = machine.backend.toolchain();
        let reference = project.cache().join("reference");
        let tape = control.tape;
        let run = |outside: Outside<'_>| {
            run(Session::new(Tools {
                catalog: &project.catalog,
                setting,
                builder: outside.builder,
                gpu: machine.gpu.clone(),
                executor: outside.executor,
                journal: &mut &*ledger,
                observer: control.observer,
                clock: outside.clock,
                environment: outside.environment,
                metrics: &project.conf.metrics,
                telemetry: held.telemetry.clone(),
                gauge: outside.gauge,
                session: outside.name,
                reference_cache: Some(reference.clone()),
                interrupted: Arc::clone(&control.interrupted),
                fail_fast: control.fail_fast,
            }))
        };
        let environment = || machine.environment(project);
        match tape {
            None => run(Outside {
                builder: &builder,
                executor: &executor,
                clock: &SystemClock(Instant::now()),
                gauge: held,
                environment: environment(),
                name: session_name(Timestamp::now()),
            }),
            Some(Tape::Record(recorder)) => {
                let (name, environment) = (session_name(Timestamp::now()), environment());
                recorder.session(&name, &environment, held.telemetry.as_ref(), &reference);
                run(Outside {
                    builder: &recorder.builder(&builder, &cache, toolchain),
                    executor: &recorder.executor(&executor),
                    clock: recorder.clock(),
                    gauge: &recorder.gauge(held),
                    environment,
                    name,
                })
            }
            Some(Tape::Replay { session, replayer }) => run(Outside {
                builder: &replayer.builder(&builder, toolchain),
                executor: replayer,
                clock: replayer.clock(),
                gauge: replayer,
                environment: session.environment.clone(),
                name: session.name.clone(),
            }),
        }
    }
}

/// Name of a session: when it started and which process it is.
pub(super) fn session_name(started: Timestamp) -> String {
    format!("{}-{}", started.strftime("%Y%m%dT%H%M%S%.3fZ"), std::process::id())
}

/// What Nsight Compute is asked for on this host, or why it is not.
fn nsight(conf: &Conf, host: &Host, stage: Option<&str>) -> Result<Nsight, String> {
    /// The first launch after others finds caches and clocks as the following ones do.
    const WARMUP_LAUNCHES: u32 = 2;
    let nobody_looked = || "Nsight Compute was not looked for".to_owned();
    let offer = host.nsight_compute.clone().ok_or_else(nobody_looked)??;
    let gpu = host.device.gpu.as_ref().ok_or_else(nobody_looked)?;
    let mut metrics = conf.metrics.to_ask(gpu.capability());
    metrics.retain(|metric| !offer.lacks.contains(metric));
    let protocol = |collect, stage: Option<&str>| NcuProtocol {
        version: offer.version.clone(),
        collect,
        warmup_launches: WARMUP_LAUNCHES,
        stage: stage.map(str::to_owned),
    };
    let sections = conf.metrics.sections.clone();
    let ncu = protocol(Collect::Full { metrics: metrics.clone() }, stage);
    Ok(Nsight { annotation: protocol(Collect::Metrics { metrics, sections }, None), ncu })
}

/// What traces timelines on this host, Nsight Systems before CUPTI, or why nothing does.
fn trace(conf: &Conf, ours: NsysOverrides, host: &Host) -> Result<Trace, String> {
    let systems = host.nsight_systems.clone().unwrap_or_else(|| Err("Nsight Systems was not looked for".to_owned()));
    let cupti = host.cupti.clone().unwrap_or_else(|| Err("CUPTI was not looked for".to_owned()));
    let (tracer, instead) = match (ours.tool, systems, cupti) {
        (Some(TracerKind::Nsys), systems, _) => (Tracer::Nsys { version: systems? }, None),
        (Some(TracerKind::Cupti), _, cupti) => {
            (Tracer::Cupti { version: cupti? }, Some("CUPTI was asked for".to_owned()))
        }
        (None, Ok(version), _) => (Tracer::Nsys { version }, None),
        (None, Err(reason), Ok(version)) => (Tracer::Cupti { version }, Some(reason)),
        (None, Err(systems), Err(cupti)) => return Err(format!("{systems}; and without it: {cupti}")),
    };
    let launches = ours.launches.unwrap_or(conf.protocol.nsys.launches);
    let protocol = TimelineProtocol { tracer, warmup_launches: conf.protocol.nsys.warmup_launches, launches };
    Ok(Trace { protocol, instead })
}

/// How the experiment is measured: conf/, with the manifest's overrides.
pub fn protocols(conf: &Conf, overrides: &ProtocolOverrides, device: &Device, rounds: u32) -> Protocols {
    let mut event = conf.protocol.event(device);
    let ours = &overrides.event;
    override_with(&mut event.timings, ours.timings.clone());
    override_with(&mut event.budget_ns, ours.budget_ns);
    override_with(&mut event.min_samples, ours.min_samples);
    override_with(&mut event.max_samples, ours.max_samples);
    override_with(&mut event.warmup.min_ns, ours.warmup_ns);
    let mut annotation = conf.protocol.annotation(device);
    override_with(&mut annotation.budget_ns, overrides.annotation.budget_ns);
    override_with(&mut annotation.min_samples, overrides.annotation.min_samples);
    override_with(&mut annotation.max_samples, overrides.annotation.max_samples);
    let mut search = SearchLimits { points: conf.protocol.tune.max_candidates as usize, seed: conf.protocol.tune.seed };
    override_with(&mut search.points, overrides.tuning.limit.map(|limit| limit as usize));
    override_with(&mut search.seed, overrides.tuning.seed);
    Protocols {
        event,
        annotation,
        nsight_compute: Err("Nsight Compute was not looked for".to_owned()),
        timeline: Err("no tracer was looked for".to_owned()),
        tuning: conf.protocol.tune(),
        search,
        tuning_budget: overrides.tuning.budget_ns.map_or(conf.protocol.tune.limit(), Duration::from_nanos),
        rounds,
        verified_rows: VERIFIED_ROWS,
        verification_seed: VERIFICATION_SEED,
        clocks: ClockState::default(),
        unlocked_threshold: None,
    }
}

fn override_with<T>(value: &mut T, with: Option<T>) {
    if let Some(with) = with {
        *value = with;
    }
}
