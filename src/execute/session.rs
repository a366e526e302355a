//! The order of things: tune what has to be tuned, plan again, compile, verify, measure in rounds. Verifying and tuning
//! stand in files of their own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use super::sanitize::Sanitizer;
use super::{Builder, Clock, Event, ExecuteError, Executor, Gauge, Journal, JournalError, Name, Observer};
use crate::catalog::{Catalog, Package};
use crate::conf::Metrics;
use crate::manifest::Experiment;
use crate::model::build::{Module, StageBuild};
use crate::model::clocks::{Reading, Telemetry};
use crate::model::protocol::{Failure, FailureKind, GpuRequest, Launchable, PROTOCOL, Request, Task, Verification};
use crate::model::record::{Body, Environment, Labels, Looks, Position, Record, RecordKind, StageCode};
use crate::model::{KernelId, Key, Mode, Timing};
use crate::plan::{
    self, BuildKeys, Facts, InstantiateError, Plan, PlanError, Prepared, RunState, Setting, Stale, Subject,
    SubjectState, Wanted,
};
use crate::stats::verdict;
use crate::{failpoint, pairs, profiler, stats};

/// Everything outside that a session uses.
pub struct Tools<'a> {
    pub catalog: &'a Catalog,
    pub setting: Setting<'a>,
    pub builder: &'a dyn Builder,
    pub executor: &'a dyn Executor,
    /// The GPU as workers are told of it; `None` on a CPU.
    pub gpu: Option<GpuRequest>,
    pub journal: &'a mut dyn Journal,
    pub observer: &'a mut dyn Observer,
    pub clock: &'a dyn Clock,
    /// The host, as every record of the session states it.
    pub environment: Environment,
    /// What Nsight Compute calls mlarun's counters.
    pub metrics: &'a Metrics,
    /// The GPU's clocks and board, to which a measurement adds what was read around it; `None` on a CPU.
    pub telemetry: Option<Telemetry>,
    pub gauge: &'a dyn Gauge,
    /// Name of this session, in records.
    pub session: String,
    /// Folder for float64 reference rows.
    pub reference_cache: Option<PathBuf>,
    /// Set when the user asks to stop.
    pub interrupted: Arc<AtomicBool>,
    /// End the session at the first failure.
    pub fail_fast: bool,
}

/// One execution of one plan.
pub struct Session<'a> {
    pub(super) tools: Tools<'a>,
    modules: HashMap<Key, Result<Module, Failure>>,
    failures: Vec<RunFailure>,
    failed_subjects: BTreeSet<usize>,
    /// What verifications are repeated under.
    pub(super) sanitizer: Option<Sanitizer>,
    pub(super) verified: BTreeSet<Key>,
    /// Comparisons on reduced shapes, by what was launched: subjects of one kernel mostly share them.
    pub(super) reduced: HashMap<Key, Verification>,
    /// What sanitizers found nothing in, by tool and what was launched.
    pub(super) sanitized: BTreeSet<Key>,
    /// The device before and after the last measurement.
    pub(super) seen: Option<(Reading, Reading)>,
    /// How the comparisons are judged that are being measured.
    pub(super) looks: Option<Looks>,
    pub(super) build_keys: BuildKeys,
}

/// What a session left behind.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    pub failures: Vec<RunFailure>,
    /// The user stopped it, or it stopped at the first failure as asked.
    pub stopped: bool,
}

/// A run, or all runs of a subject, without a result.
#[derive(Debug, Clone, PartialEq)]
pub struct RunFailure {
    pub name: Name,
    /// `None`: the subject as a whole.
    pub mode: Option<Mode>,
    pub failure: Failure,
}

/// The session as a whole could not go on; what it had measured is kept.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("{0}; everything finished is kept, and the same command goes on from there")]
    Lost(String),
}

/// Why something ended early.
pub(super) enum Stop {
    /// This subject has no result; the others go on.
    Subject(Failure),
    Interrupted,
    Session(SessionError),
}

impl Stop {
    pub(super) fn planning(error: InstantiateError) -> Stop {
        Stop::Session(SessionError::Plan(error.into()))
    }
}

impl From<JournalError> for Stop {
    fn from(error: JournalError) -> Self {
        Stop::Session(error.into())
    }
}

impl From<PlanError> for Stop {
    fn from(error: PlanError) -> Self {
        Stop::Session(error.into())
    }
}

impl From<ExecuteError> for Stop {
    fn from(error: ExecuteError) -> Self {
        match error {
            ExecuteError::Failed(failure) => Stop::Subject(failure),
            ExecuteError::Interrupted => Stop::Interrupted,
        }
    }
}

impl Tools<'_> {
    /// The request for `task` on the session's device.
    pub(super) fn request(&self, task: Task) -> Request {
        Request { protocol: PROTOCOL, task, cores: self.setting.device.cores.clone(), gpu: self.gpu.clone() }
    }
}

/// A subject that is to be measured.
pub(super) struct Arm {
    pub subject: usize,
    pub name: Name,
    pub key: Key,
    pub prepared: Prepared,
}

impl<'a> Session<'a> {
    pub fn new(tools: Tools<'a>) -> Self {
        Session {
            tools,
            modules: HashMap::new(),
            failures: Vec::new(),
            failed_subjects: BTreeSet::new(),
            sanitizer: None,
            verified: BTreeSet::new(),
            reduced: HashMap::new(),
            sanitized: BTreeSet::new(),
            seen: None,
            looks: None,
            build_keys: BuildKeys::default(),
        }
    }

    /// The session with `sanitizer` watching its verifications, where there is one.
    #[must_use]
    pub fn watched_by(self, sanitizer: Option<Sanitizer>) -> Self {
        Session { sanitizer, ..self }
    }

    /// Does everything that `plan` has left to do. `facts` grow with what the journal is given.
    ///
    /// # Errors
    /// A result could not be kept, or the plan itself turned out to be impossible. Runs that fail are no error: they
    /// are in the outcome.
    pub fn execute(
        mut self,
        experiment: &Experiment,
        plan: Plan,
        wanted: Wanted<'_>,
        facts: &dyn Facts,
    ) -> Result<Outcome, SessionError> {
        let ended = self.run(experiment, plan, wanted, facts);
        self.outcome(ended)
    }

    /// What the session leaves behind that ended so.
    pub(super) fn outcome(self, ended: Result<(), Stop>) -> Result<Outcome, SessionError> {
        let stopped = match ended {
            Ok(()) => false,
            Err(Stop::Interrupted) => true,
            Err(Stop::Session(error)) => return Err(error),
            // A subject's failure is recorded where it happens; one that gets here ends the session, as asked.
            Err(Stop::Subject(_)) => true,
        };
        Ok(Outcome { failures: self.failures, stopped })
    }

    fn run(&mut self, experiment: &Experiment, plan: Plan, wanted: Wanted<'_>, facts: &dyn Facts) -> Result<(), Stop> {
        let plan = self.tune_all(experiment, plan, wanted, facts)?;
        let verified = self.verify_all(&plan, Some(facts))?;
        self.measure_all(&plan, &verified)
    }

    pub(super) fn tell(&mut self, event: Event) {
        self.tools.observer.observe(&event);
    }

    pub(super) fn package(&self, id: &KernelId) -> &'a Package {
        self.tools.catalog.package(id).expect("a planned kernel is in the catalogue")
    }

    /// Records a subject's failure; `None` says that it has no result.
    pub(super) fn keep_going<T>(
        &mut self,
        name: &Name,
        subject: usize,
        mode: Option<Mode>,
        result: Result<T, Stop>,
    ) -> Result<Option<T>, Stop> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(Stop::Subject(failure)) => {
                self.tell(Event::Failed { name: name.clone(), mode, reason: failure.message.clone() });
                self.failures.push(RunFailure { name: name.clone(), mode, failure: failure.clone() });
                if mode.is_none() {
                    self.failed_subjects.insert(subject);
                }
                if self.tools.fail_fast { Err(Stop::Subject(failure)) } else { Ok(None) }
            }
            Err(stop) => Err(stop),
        }
    }

    /// Makes the tunings that are missing, and plans again with what they decided.
    pub(super) fn tune_all(
        &mut self,
        experiment: &Experiment,
        plan: Plan,
        wanted: Wanted<'_>,
        facts: &dyn Facts,
    ) -> Result<Plan, Stop> {
        let waiting = |subject: &Subject| {
            matches!(subject.state, SubjectState::AfterTune { .. })
                && subject.runs.iter().any(|run| run.state == RunState::AfterTune)
        };
        if !plan.subjects.iter().any(waiting) {
            return Ok(plan);
        }
        for (index, subject) in plan.subjects.iter().enumerate() {
            if waiting(subject) {
                let name = name(subject);
                let result = self.tune(subject, facts);
                self.keep_going(&name, index, None, result)?;
            }
        }
        let again = plan::plan(experiment, self.tools.catalog, &self.tools.setting, facts, wanted)?;
        Ok(again)
    }

    /// What has to be verified and measured, each with its reduced shape.
    pub(super) fn arms(&mut self, plan: &Plan) -> Result<Vec<(Arm, Prepared)>, Stop> {
        let root = self.tools.setting.root();
        let mut arms = Vec::new();
        for (index, subject) in plan.subjects.iter().enumerate() {
            let SubjectState::Ready(ready) = &subject.state else { continue };
            if self.failed_subjects.contains(&index)
                || !subject.runs.iter().any(|run| matches!(run.state, RunState::Stale(_)))
            {
                continue;
            }
            let package = self.package(&subject.id);
            let setting = &self.tools.setting;
            let prepared = Prepared::new(setting, package, &subject.shape, &ready.tiling, &root, &self.build_keys)
                .map_err(Stop::planning)?;
            let reduced =
                plan::prepare_reduced(setting, package, &prepared, &root, &self.build_keys).map_err(Stop::planning)?;
            let name = name(subject);
            arms.push((Arm { subject: index, name, key: ready.key, prepared }, reduced));
        }
        Ok(arms)
    }

    /// Finds or compiles every module once, in parallel. Failures wait in the table for whoever needs the module.
    pub(super) fn build_all(&mut self, builds: Vec<StageBuild>) -> Result<(), Stop> {
        let mut unknown = BTreeMap::new();
        for build in builds {
            let key = build.material(self.tools.setting.toolchain).key();
            if !self.modules.contains_key(&key) {
                unknown.insert(key, build);
            }
        }
        let builder = self.tools.builder;
        let found: Vec<_> = unknown.into_par_iter().map(|(key, build)| (key, builder.find(&build), build)).collect();
        let mut missing = Vec::new();
        for (key, found, build) in found {
            match found {
                Ok(Some(module)) => drop(self.modules.insert(key, Ok(module))),
                Ok(None) => missing.push((key, build)),
                Err(failure) => drop(self.modules.insert(key, Err(failure))),
            }
        }
        if missing.is_empty() { Ok(()) } else { self.compile(missing) }
    }

    fn compile(&mut self, missing: Vec<(Key, StageBuild)>) -> Result<(), Stop> {
        self.tell(Event::Compiling { modules: missing.len() });
        let (builder, interrupted) = (self.tools.builder, &*self.tools.interrupted);
        let (sender, receiver) = std::sync::mpsc::channel();
        let observer = &mut self.tools.observer;
        let modules = &mut self.modules;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                missing.into_par_iter().for_each_with(sender, |sender, (key, build)| {
                    if !interrupted.load(Ordering::Relaxed) {
                        // The receiver lives until every sender is gone.
                        drop(sender.send((key, builder.build(&build))));
                    }
                });
            });
            for (key, built) in receiver {
                observer.observe(&Event::Compiled);
                modules.insert(key, built);
            }
        });
        if self.tools.interrupted.load(Ordering::Relaxed) { Err(Stop::Interrupted) } else { Ok(()) }
    }

    /// The compiled module of `build`, which [`Session::build_all`] has been given.
    pub(super) fn module(&self, build: &StageBuild) -> Result<Module, Failure> {
        let key = build.material(self.tools.setting.toolchain).key();
        self.modules.get(&key).cloned().unwrap_or_else(|| {
            Err(Failure {
                kind: FailureKind::Internal,
                stage: None,
                message: format!("{}: was not compiled", build.source.display()),
            })
        })
    }

    pub(super) fn launchable(&self, prepared: &Prepared) -> Result<Launchable, Stop> {
        let path = |build| self.module(build).map(|module| module.path);
        let modules = prepared.builds.iter().map(path).collect::<Result<_, _>>();
        Ok(Launchable { pipeline: prepared.pipeline().clone(), modules: modules.map_err(Stop::Subject)? })
    }

    /// The machine code of each stage.
    pub(super) fn code(&self, prepared: &Prepared) -> Result<Vec<StageCode>, Stop> {
        let stages = prepared.pipeline().stages.iter().zip(&prepared.builds);
        let code = stages.map(|(stage, build)| {
            let Module { code_sha256, resources, .. } = self.module(build)?;
            Ok(StageCode { stage: stage.name.clone(), code_sha256, resources })
        });
        code.collect::<Result<_, _>>().map_err(Stop::Subject)
    }

    /// Measures group by group: subjects of one shape take turns, so that a drift of the host meets all of them.
    fn measure_all(&mut self, plan: &Plan, arms: &[Arm]) -> Result<(), Stop> {
        let mut groups: BTreeMap<usize, Vec<&Arm>> = BTreeMap::new();
        for arm in arms {
            groups.entry(plan.subjects[arm.subject].group).or_default().push(arm);
        }
        for group in groups.values() {
            self.looks = self.looks_of(plan);
            let measured = self.measure_event(plan, group);
            self.looks = None;
            measured?;
            self.measure_annotation(plan, group)?;
        }
        self.profile_all(plan, arms)?;
        self.trace_all(plan, arms)
    }

    /// How the comparisons of `plan` are judged, fixed here for all of them; `None` where there is none.
    fn looks_of(&self, plan: &Plan) -> Option<Looks> {
        let comparisons = u32::try_from(plan.pairs().count()).unwrap_or(u32::MAX);
        (comparisons > 0).then(|| pairs::looks(&self.tools.setting.protocols.rule(comparisons)))
    }

    /// A number of the session's own for the order of the rounds of `subjects`.
    pub(super) fn seed(&self, subjects: &[Key]) -> u64 {
        let key = Key::of("orders/1", &(&self.tools.session, subjects));
        key.as_bytes().iter().take(8).fold(0, |seed, byte| seed << 8 | u64::from(*byte))
    }

    fn measure_event(&mut self, plan: &Plan, group: &[&Arm]) -> Result<(), Stop> {
        let rounds = self.tools.setting.protocols.rounds(Mode::Event);
        let mut left: BTreeMap<usize, u32> = BTreeMap::new();
        for arm in group {
            if let Some(count) = plan.subjects[arm.subject].sets_to_take(Mode::Event, rounds) {
                left.insert(arm.subject, count);
            }
        }
        left = without_lonely(plan, left);
        // Whether a round runs as listed or the other way round is drawn: a drift then cancels, and no disturbance of the host
        // can keep step with the order.
        let orders = verdict::orders(self.seed(&group.iter().map(|arm| arm.key).collect::<Vec<_>>()));
        for (round, as_listed) in (0..rounds).zip(orders) {
            let mut order: Vec<&&Arm> =
                group.iter().filter(|arm| left.get(&arm.subject).is_some_and(|&count| round < count)).collect();
            if !as_listed {
                order.reverse();
            }
            for (position, arm) in order.into_iter().enumerate() {
                let result = self.sample_set(plan, arm, round, position as u32);
                if self.keep_going(&arm.name, arm.subject, Some(Mode::Event), result)?.is_none() {
                    left.remove(&arm.subject);
                }
            }
        }
        Ok(())
    }

    fn sample_set(&mut self, plan: &Plan, arm: &Arm, round: u32, position: u32) -> Result<(), Stop> {
        let rounds = self.tools.setting.protocols.rounds(Mode::Event);
        let check = self.check(Some(self.tools.setting.protocols.verified_rows));
        let protocol = self.tools.setting.protocols.event.clone();
        let task = profiler::event::task(self.launchable(&arm.prepared)?, protocol, check);
        let lines = self.measure(plan, arm, Mode::Event, (round, rounds), task)?;
        let set = profiler::event::collect(&lines).map_err(Stop::Subject)?;
        let primary = set.samples.iter().find(|samples| samples.timing == Timing::ColdIsolated);
        let median_ns = primary.map(|samples| median(&samples.ns)).transpose()?;
        self.keep(plan, arm, Mode::Event, (round, rounds), position, Body::Event(set), median_ns)
    }

    /// Without Nsight Compute, which sees more.
    fn measure_annotation(&mut self, plan: &Plan, group: &[&Arm]) -> Result<(), Stop> {
        if self.tools.setting.protocols.nsight_compute.is_ok() {
            return Ok(());
        }
        for arm in group {
            if plan.subjects[arm.subject].sets_to_take(Mode::Annotation, 1).is_some() {
                let result = self.annotation(plan, arm);
                self.keep_going(&arm.name, arm.subject, Some(Mode::Annotation), result)?;
            }
        }
        Ok(())
    }

    fn annotation(&mut self, plan: &Plan, arm: &Arm) -> Result<(), Stop> {
        let check = self.check(Some(self.tools.setting.protocols.verified_rows));
        let protocol = self.tools.setting.protocols.annotation.clone();
        let task = profiler::annotation::task(self.launchable(&arm.prepared)?, protocol, check);
        let lines = self.measure(plan, arm, Mode::Annotation, (0, 1), task)?;
        let pass = profiler::annotation::collect(&lines).map_err(Stop::Subject)?;
        self.keep(plan, arm, Mode::Annotation, (0, 1), 0, Body::Annotation(pass), None)
    }

    /// One process; a second one where the first ended in a way that a fresh process may not repeat.
    pub(super) fn measure(
        &mut self,
        plan: &Plan,
        arm: &Arm,
        mode: Mode,
        (round, rounds): (u32, u32),
        task: Task,
    ) -> Result<Vec<crate::model::protocol::Line>, Stop> {
        let estimate_ns = plan.subjects[arm.subject].estimate_ns(mode) / f64::from(rounds);
        self.tell(Event::Measuring { name: arm.name.clone(), mode, round, rounds, estimate_ns });
        self.answer(&arm.name, task)
    }

    /// What a fresh process, or a second one, answers to `task`.
    pub(super) fn answer(&mut self, name: &Name, task: Task) -> Result<Vec<crate::model::protocol::Line>, Stop> {
        let request = self.tools.request(task);
        let before = self.look()?;
        let mut answer = self.tools.executor.execute(&request, &mut |_| {});
        if let Err(ExecuteError::Failed(failure)) = &answer
            && failure.kind.may_pass()
        {
            self.tell(Event::Retrying { name: name.clone(), reason: failure.message.clone() });
            answer = self.tools.executor.execute(&request, &mut |_| {});
        }
        // A failure may be that of the GPU: then it is no kernel's fault.
        self.seen = before.zip(self.look()?);
        Ok(answer?)
    }

    fn look(&self) -> Result<Option<Reading>, Stop> {
        self.tools.gauge.read().map_err(|reason| Stop::Session(SessionError::Lost(reason)))
    }

    /// The host around the last measurement, which `body` is the result of.
    pub(super) fn environment(&self, body: &Body) -> Environment {
        let environment = self.tools.environment.clone();
        let Some(mut telemetry) = self.tools.telemetry.clone() else { return environment };
        (telemetry.before, telemetry.after) = self.seen.clone().unwrap_or_default();
        let slips = telemetry.slips(match body {
            Body::Event(set) => set.sm_mhz,
            Body::Annotation(_) | Body::Ncu(_) | Body::Timeline(_) | Body::Verification { .. } => None,
        });
        let clocks_locked = telemetry.clocks.held().is_some() && slips.is_empty();
        telemetry.taints = slips.into_iter().chain(telemetry.company()).chain(telemetry.faults()).collect();
        Environment { clocks_locked, telemetry: Some(telemetry), ..environment }
    }

    #[expect(clippy::too_many_arguments, reason = "what a record states beside its body")]
    pub(super) fn keep(
        &mut self,
        plan: &Plan,
        arm: &Arm,
        mode: Mode,
        (round, rounds): (u32, u32),
        position: u32,
        body: Body,
        median_ns: Option<f64>,
    ) -> Result<(), Stop> {
        let subject = &plan.subjects[arm.subject];
        let key = subject.run(mode).and_then(|run| run.key).expect("a ready subject's runs have keys");
        let kind = RecordKind::of_mode(mode).expect("what a mode measures is recorded");
        let record = Record {
            kind,
            key,
            subject: arm.key,
            material: arm.prepared.explanation(&self.tools.setting, mode),
            labels: labels(subject, Some(mode)),
            tiling: arm.prepared.tiling.clone(),
            code: self.code(&arm.prepared)?,
            position: self.position(round, position),
            environment: self.environment(&body),
            body,
        };
        self.tools.journal.append(&record)?;
        failpoint::here("session.kept");
        let estimate_ns = subject.estimate_ns(mode) / f64::from(rounds);
        self.tell(Event::Measured { name: arm.name.clone(), mode, round, rounds, median_ns, estimate_ns });
        Ok(())
    }

    pub(super) fn position(&self, round: u32, position: u32) -> Position {
        let (taken_at, session) = (self.tools.clock.now(), self.tools.session.clone());
        Position { taken_at, session, round, position, looks: self.looks.clone() }
    }
}

/// Without the subjects that were to be measured anew beside another one that now cannot be measured.
fn without_lonely(plan: &Plan, left: BTreeMap<usize, u32>) -> BTreeMap<usize, u32> {
    let is_beside = |subject: usize| {
        let run = plan.subjects[subject].run(Mode::Event);
        run.is_some_and(|run| matches!(run.state, RunState::Stale(Stale::Beside { .. })))
    };
    let has_company = |subject: usize| {
        let mut others = plan.pairs().filter_map(|(candidate, baseline)| match subject {
            _ if subject == candidate => Some(baseline),
            _ if subject == baseline => Some(candidate),
            _ => None,
        });
        others.any(|other| left.contains_key(&other))
    };
    let mut kept = left.clone();
    kept.retain(|subject, _| !is_beside(*subject) || has_company(*subject));
    kept
}

/// What people call `subject`.
pub fn name(subject: &Subject) -> Name {
    Name { id: subject.id.clone(), shape: subject.shape.clone(), label: subject.label.clone() }
}

pub(super) fn labels(subject: &Subject, mode: Option<Mode>) -> Labels {
    Labels { id: subject.id.clone(), shape: subject.shape.clone(), mode, origin: None }
}

pub(super) fn builds(prepared: &Prepared) -> Vec<StageBuild> {
    prepared.builds.clone()
}

fn median(ns: &[f64]) -> Result<f64, Stop> {
    stats::median(ns).map_err(|error| {
        let message = format!("the worker's samples: {error}");
        Stop::Subject(Failure { kind: FailureKind::Internal, stage: None, message })
    })
}
