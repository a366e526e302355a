//! The plan: what an experiment means here and now. A pure function of (experiment, catalogue, setting, facts); it reads
//! no file, no clock and no environment, so that the same inputs give the same plan, and what depends on a tuning that
//! is not known yet is planned again once it is.

pub mod calibration;
mod estimate;
pub mod graph;
pub mod instantiate;
pub mod keys;
mod optimum;
mod prepare;
mod reasons;
pub mod space;

use std::collections::HashMap;
use std::time::Duration;

use rayon::prelude::*;
use serde::Serialize;

use crate::catalog::{Catalog, LookupError, Package};
use crate::diagnostic::suggestion;
use crate::expr::{EvalError, Expr, Scope};
use crate::manifest::{Baseline, Experiment};
use crate::model::build::Toolchain;
use crate::model::clocks::ClockState;
use crate::model::protocol::{AnnotationProtocol, EventProtocol, NcuProtocol, TimelineProtocol, TuneProtocol};
use crate::model::{Choices, Device, DeviceKind, KernelId, Key, Mode, Peaks, Shape, Tiling, Value};
use crate::stats::verdict::{self, Rule};

pub use estimate::Estimate;
use estimate::estimate_ns;
use instantiate::Draft;
pub use instantiate::{Instance, InstantiateError, root_scope};
pub use optimum::{Optimum, Placed, optima};
pub use prepare::{BuildKeys, Prepared, prepare_reduced, verification_key};
pub use reasons::{Change, changes};
use space::{SearchLimits, TuneTarget};

/// What a plan depends on beside the experiment: the host, its compiler, and how things are measured.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    pub device: &'a Device,
    pub toolchain: &'a Toolchain,
    pub peaks: Option<&'a Peaks>,
    pub protocols: &'a Protocols,
}

/// How things are measured: conf/ with the manifest's overrides.
#[derive(Debug, Clone, PartialEq)]
pub struct Protocols {
    pub event: EventProtocol,
    pub annotation: AnnotationProtocol,
    /// Nsight Compute for both modes that it serves; the reason where it does not.
    pub nsight_compute: Result<Nsight, String>,
    /// The timeline; the reason where nothing traces it.
    pub timeline: Result<Trace, String>,
    pub tuning: TuneProtocol,
    pub search: SearchLimits,
    /// Time after which a search tries no further candidate.
    pub tuning_budget: Duration,
    /// Sample sets, each a fresh process, that a measurement in event mode needs.
    pub rounds: u32,
    /// Rows compared at the run's own shape.
    pub verified_rows: u64,
    pub verification_seed: u64,
    /// What is true of the clocks while something is measured.
    pub clocks: ClockState,
    /// The smallest change of speed, as a fraction, that is called with unlocked clocks, where a calibration of this host found
    /// another one than the usual 2%.
    pub unlocked_threshold: Option<f64>,
}

/// What Nsight Compute is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nsight {
    /// In annotation mode: some counters and rules.
    pub annotation: NcuProtocol,
    /// In its own mode: everything.
    pub ncu: NcuProtocol,
}

/// How timelines are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    pub protocol: TimelineProtocol,
    /// Why the preferred tracer is not used, where it is not; enters no key.
    pub instead: Option<String>,
}

impl Setting<'_> {
    /// What expressions of kernel packages are evaluated in; see [`root_scope`].
    pub fn root(&self) -> Scope<'static> {
        root_scope(self.device)
    }
}

impl Protocols {
    /// The protocol of `mode` as it enters a key.
    fn material(&self, mode: Mode) -> serde_json::Value {
        let value = match (mode, &self.nsight_compute) {
            (Mode::Event, _) => serde_json::to_value(&self.event),
            (Mode::Annotation, Ok(nsight)) => serde_json::to_value(&nsight.annotation),
            (Mode::Annotation, Err(_)) => serde_json::to_value(&self.annotation),
            (Mode::Ncu, Ok(nsight)) => serde_json::to_value(&nsight.ncu),
            (Mode::Nsys, _) => self
                .timeline
                .as_ref()
                .map_or(Ok(serde_json::Value::Null), |trace| serde_json::to_value(&trace.protocol)),
            (Mode::Ncu, Err(_)) => Ok(serde_json::Value::Null),
        };
        value.expect("protocols serialise to JSON")
    }

    /// The rule by which each of `comparisons` is judged.
    pub fn rule(&self, comparisons: u32) -> Rule {
        let clocks = if self.clocks.held().is_some() { verdict::Clocks::Locked } else { verdict::Clocks::Unlocked };
        let rule = Rule::new(clocks, comparisons);
        match self.unlocked_threshold.filter(|_| clocks == verdict::Clocks::Unlocked) {
            Some(threshold) => rule.with_threshold(threshold),
            None => rule,
        }
    }

    /// Sample sets that a measurement in `mode` needs.
    pub fn rounds(&self, mode: Mode) -> u32 {
        if mode == Mode::Event { self.rounds } else { 1 }
    }
}

/// What is known from earlier runs.
pub trait Facts: Sync {
    /// Sample sets recorded for a measurement in `mode`.
    fn sample_sets(&self, mode: Mode, measurement: &Key) -> u32;
    /// The verification succeeded before.
    fn is_verified(&self, verification: &Key) -> bool;
    /// Choices that a tuning made.
    ///
    /// # Errors
    /// There is a result and it cannot be read.
    fn tuning(&self, id: &KernelId, target: &TuneTarget, tuning: &Key) -> Result<Option<Choices>, FactsError>;
    /// Key of the newest measurement of the same kernel, shape and mode on the same device.
    fn latest(&self, slot: &Slot<'_>) -> Option<Key>;
}

/// Something is known and cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FactsError(pub String);

/// A run as people name it, whatever its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot<'a> {
    pub id: &'a KernelId,
    pub shape: &'a Shape,
    pub mode: Mode,
    pub device: &'a str,
}

/// Which of an experiment's runs are wanted, and whether recorded results count.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted<'a> {
    /// Condition over kernel, version, language, mode and the parameters.
    pub only: Option<&'a Expr>,
    /// Plan every run as stale.
    pub remeasure: bool,
    /// Plan the next lower version of every listed kernel too: its dev log compares with it.
    pub dev_logs: bool,
    /// Take the defaults of a tiling space that nothing was tuned in yet, instead of waiting for a tuning.
    pub untuned: bool,
    /// Choices of pipelines that hold whatever was tuned, in kernels whose space has them.
    pub tile: Option<&'a Choices>,
}

/// The ordered graph of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub subjects: Vec<Subject>,
    pub comparisons: Vec<Comparison>,
}

/// One kernel at one shape; its runs look at it in different modes.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    pub id: KernelId,
    /// Every parameter that is not left to tuning.
    pub shape: Shape,
    /// The parameters that name it for people.
    pub label: Shape,
    /// Named by the experiment, not only as a baseline.
    pub listed: bool,
    /// Number of the experiment's shape that it belongs to; subjects of one group are measured in turn.
    pub group: usize,
    /// The same kernel's next lower version at the same shape: what its dev log compares with.
    pub previous: Option<usize>,
    pub state: SubjectState,
    pub runs: Vec<Run>,
}

impl Subject {
    /// Its run in `mode`.
    pub fn run(&self, mode: Mode) -> Option<&Run> {
        self.runs.iter().find(|run| run.mode == mode)
    }

    /// Sample sets that are still to be taken in `mode`, of the `rounds` that a result needs.
    pub fn sets_to_take(&self, mode: Mode, rounds: u32) -> Option<u32> {
        match &self.run(mode)?.state {
            RunState::Stale(Stale::Incomplete { have, want }) => Some(want.saturating_sub(*have)),
            RunState::Stale(_) => Some(rounds),
            _ => None,
        }
    }

    /// Rough time of all sample sets of its run in `mode`, in nanoseconds.
    pub fn estimate_ns(&self, mode: Mode) -> f64 {
        self.run(mode).map_or(0.0, |run| run.estimate_ns)
    }
}

/// How far a subject is known.
#[derive(Debug, Clone, PartialEq)]
pub enum SubjectState {
    /// It cannot run here; nothing is tried.
    Refused {
        reason: String,
    },
    /// It runs once these tunings are known.
    AfterTune {
        tunings: Vec<Tuning>,
        floor_ns: Option<f64>,
    },
    Ready(Ready),
}

/// A tuning that a subject needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuning {
    pub target: TuneTarget,
    /// Unknown while it depends on another one.
    pub key: Option<Key>,
    /// Points of its space, before constraints.
    pub points: u128,
}

/// A subject whose key is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Ready {
    pub key: Key,
    pub tiling: Tiling,
    /// Time that no run can beat, by the calibrated peaks.
    pub floor_ns: Option<f64>,
}

/// One subject in one mode.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub mode: Mode,
    /// Key of the measurement, once the subject is ready.
    pub key: Option<Key>,
    pub state: RunState,
    /// Rough time of all its sample sets, those that are recorded included, in nanoseconds; 0 where none is missing.
    pub estimate_ns: f64,
}

/// Whether a run has to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum RunState {
    /// Its result is recorded.
    Fresh,
    Stale(Stale),
    AfterTune,
    /// It is not done here, for a stated reason; that is no failure.
    Skipped {
        reason: String,
    },
    Refused {
        reason: String,
    },
}

/// Why a run has to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Stale {
    NeverMeasured,
    /// An earlier session ended before all sample sets were taken.
    Incomplete {
        have: u32,
        want: u32,
    },
    /// The newest result under the same name has another key.
    Changed {
        previous: Key,
    },
    /// Asked for.
    Remeasure,
    /// It is recorded, and measured anew in one session with what it is compared with: otherwise there is no verdict.
    Beside {
        /// The other one, e.g. `flash_mla v2 (c)`.
        other: String,
    },
}

/// A candidate beside a baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Index into [`Plan::subjects`].
    pub candidate: usize,
    /// As the manifest names it, e.g. `previous` or `flash_mla`.
    pub name: String,
    pub baseline: BaselineSubject,
}

/// What a candidate is compared with.
#[derive(Debug, Clone, PartialEq)]
pub enum BaselineSubject {
    /// Index into [`Plan::subjects`].
    Subject(usize),
    /// Results of another experiment or host, in a file.
    Recorded(std::path::PathBuf),
    /// There is none, e.g. no version before the base version.
    None { reason: String },
}

/// The experiment has no plan.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    #[error("{0}")]
    Instantiate(#[from] InstantiateError),
    #[error("--only: {error}; {help}")]
    Only { error: EvalError, help: String },
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error(transparent)]
    Facts(#[from] FactsError),
}

/// Plans `experiment`.
///
/// # Errors
/// A package whose expressions do not evaluate at a shape, a filter that does not evaluate.
pub fn plan(
    experiment: &Experiment,
    catalog: &Catalog,
    setting: &Setting<'_>,
    facts: &dyn Facts,
    wanted: Wanted<'_>,
) -> Result<Plan, PlanError> {
    let mut planner = Planner::new(experiment, catalog, setting, facts, wanted);
    for (group, given) in experiment.shapes.iter().enumerate() {
        planner.add_shape(group, given)?;
    }
    planner.finish()
}

/// A filter that does not evaluate for `package`, with the nearest right name where one of its names is wrong.
fn wrong_filter(only: &Expr, package: &Package, error: EvalError) -> PlanError {
    const OF_EVERY_RUN: [&str; 4] = ["kernel", "version", "language", "mode"];
    let known = || OF_EVERY_RUN.into_iter().chain(package.parameters.iter().map(|parameter| parameter.name.as_str()));
    let unknown = only.variables().iter().find(|name| known().all(|known| known != name.as_str()));
    let near = unknown.and_then(|name| Some(format!("{} has no `{name}`; {}", package.id, suggestion(name, known())?)));
    let help =
        near.unwrap_or_else(|| "names are kernel, version, language, mode and the kernel's parameters".to_owned());
    PlanError::Only { error, help }
}

/// Collects the subjects first, each once, then decides them side by side.
struct Planner<'a> {
    experiment: &'a Experiment,
    catalog: &'a Catalog,
    setting: &'a Setting<'a>,
    facts: &'a dyn Facts,
    wanted: Wanted<'a>,
    root: Scope<'static>,
    wants: Vec<Want<'a>>,
    known: HashMap<(KernelId, Shape), usize>,
    comparisons: Vec<Comparison>,
}

/// A subject before anything about it is decided.
struct Want<'a> {
    package: &'a Package,
    shape: Shape,
    label: Shape,
    modes: Vec<Mode>,
    listed: bool,
    group: usize,
    previous: Option<usize>,
}

impl<'a> Planner<'a> {
    fn new(
        experiment: &'a Experiment,
        catalog: &'a Catalog,
        setting: &'a Setting<'a>,
        facts: &'a dyn Facts,
        wanted: Wanted<'a>,
    ) -> Self {
        let (wants, comparisons) = (Vec::new(), Vec::new());
        Planner {
            experiment,
            catalog,
            setting,
            facts,
            wanted,
            root: setting.root(),
            wants,
            known: HashMap::new(),
            comparisons,
        }
    }

    fn package(&self, id: &KernelId) -> Result<&'a Package, PlanError> {
        Ok(self.catalog.package(id)?)
    }

    /// The next lower version of the same kernel, if there is one.
    fn predecessor(&self, id: &KernelId) -> Result<Option<&'a Package>, PlanError> {
        let Some(version) = self.catalog.previous(id) else { return Ok(None) };
        self.package(&KernelId { version, ..id.clone() }).map(Some)
    }

    fn add_shape(&mut self, group: usize, given: &Shape) -> Result<(), PlanError> {
        let experiment = self.experiment;
        let mut listed = Vec::new();
        for selection in &experiment.kernels {
            for &version in &selection.versions {
                let id = KernelId { kernel: selection.kernel.clone(), version, language: experiment.language };
                listed.extend(self.add_listed(&id, given, group)?);
            }
        }
        for candidate in listed {
            for baseline in &experiment.baselines {
                self.compare(candidate, baseline, given, group)?;
            }
        }
        Ok(())
    }

    /// The subject of a kernel that the experiment names, unless the filter leaves none of its runs.
    fn add_listed(&mut self, id: &KernelId, given: &Shape, group: usize) -> Result<Option<usize>, PlanError> {
        let package = self.package(id)?;
        let shape = instantiate::complete_shape(package, given, &self.root)?;
        let mut modes = Vec::new();
        for &mode in &self.experiment.modes {
            if self.is_wanted(package, &shape, mode)? {
                modes.push(mode);
            }
        }
        if modes.is_empty() {
            return Ok(None);
        }
        let index = self.add(package, shape, given, &modes, group);
        self.wants[index].listed = true;
        if self.wanted.dev_logs
            && modes.contains(&Mode::Event)
            && let Some(previous) = self.predecessor(id)?
        {
            let shape = instantiate::complete_shape(previous, given, &self.root)?;
            self.wants[index].previous = Some(self.add(previous, shape, given, &[Mode::Event], group));
        }
        Ok(Some(index))
    }

    fn is_wanted(&self, package: &Package, shape: &Shape, mode: Mode) -> Result<bool, PlanError> {
        let Some(only) = self.wanted.only else { return Ok(true) };
        let mut scope = self.root.inner();
        for (name, value) in &shape.0 {
            scope.set(name, value);
        }
        // A tuned parameter has no value yet; its default keeps a filter over it meaningful.
        for parameter in package.parameters.iter().filter(|parameter| shape.get(&parameter.name).is_none()) {
            if let Some(default) = &parameter.default {
                let value = default.eval(&scope).map_err(|error| wrong_filter(only, package, error))?;
                scope.set(&parameter.name, &value);
            }
        }
        scope.set("kernel", &Value::Text(package.id.kernel.clone()));
        scope.set("version", &Value::Text(package.id.version.to_string()));
        scope.set("language", &Value::Text(package.id.language.to_string()));
        scope.set("mode", &Value::Text(mode.to_string()));
        only.eval_bool(&scope).map_err(|error| wrong_filter(only, package, error))
    }

    /// The subject of `package` at `shape`, one however often it is asked for.
    fn add(&mut self, package: &'a Package, shape: Shape, given: &Shape, modes: &[Mode], group: usize) -> usize {
        let (wants, known) = (&mut self.wants, &mut self.known);
        let index = *known.entry((package.id.clone(), shape)).or_insert_with_key(|(_, shape)| {
            let label = shape.label(|name| given.get(name).is_some());
            let (shape, modes) = (shape.clone(), Vec::new());
            wants.push(Want { package, shape, label, modes, listed: false, group, previous: None });
            wants.len() - 1
        });
        let want = &mut self.wants[index];
        want.modes.extend(modes.iter().filter(|mode| !want.modes.contains(mode)).collect::<Vec<_>>());
        index
    }

    fn compare(&mut self, candidate: usize, baseline: &Baseline, given: &Shape, group: usize) -> Result<(), PlanError> {
        let id = &self.wants[candidate].package.id;
        let other = match baseline {
            Baseline::File(path) => Err(BaselineSubject::Recorded(path.clone())),
            Baseline::Previous => match self.predecessor(id)? {
                Some(package) => Ok(package),
                None => {
                    Err(BaselineSubject::None { reason: format!("{} {} is the first version", id.kernel, id.version) })
                }
            },
            Baseline::Kernel { kernel, version } => {
                let other = KernelId { kernel: kernel.clone(), version: *version, language: id.language };
                if other == *id {
                    Err(BaselineSubject::None { reason: "it is its own baseline".to_owned() })
                } else {
                    Ok(self.package(&other)?)
                }
            }
        };
        let baseline_subject = match other {
            Ok(package) => {
                let shape = instantiate::complete_shape(package, given, &self.root)?;
                let modes = self.wants[candidate].modes.clone();
                BaselineSubject::Subject(self.add(package, shape, given, &modes, group))
            }
            Err(found) => found,
        };
        self.comparisons.push(Comparison { candidate, name: baseline.to_string(), baseline: baseline_subject });
        Ok(())
    }

    fn finish(self) -> Result<Plan, PlanError> {
        let (setting, facts, wanted) = (self.setting, self.facts, self.wanted);
        let subjects = self
            .wants
            .into_par_iter()
            .map_init(|| Decider::new(setting, facts, wanted), |decider, want| decider.subject(want))
            .collect::<Result<_, _>>()?;
        let mut plan = Plan { subjects, comparisons: self.comparisons };
        plan.measure_pairs_together(setting.protocols);
        Ok(plan)
    }
}

/// Decides what is known of subjects, one after another.
struct Decider<'a> {
    setting: &'a Setting<'a>,
    facts: &'a dyn Facts,
    wanted: Wanted<'a>,
    root: Scope<'static>,
    builds: BuildKeys,
    /// By mode, as they enter keys.
    protocols: HashMap<Mode, serde_json::Value>,
}

impl<'a> Decider<'a> {
    fn new(setting: &'a Setting<'a>, facts: &'a dyn Facts, wanted: Wanted<'a>) -> Self {
        let protocols = Mode::ALL.into_iter().map(|mode| (mode, setting.protocols.material(mode))).collect();
        Decider { setting, facts, wanted, root: setting.root(), builds: BuildKeys::default(), protocols }
    }

    fn subject(&self, want: Want<'_>) -> Result<Subject, PlanError> {
        let (state, runs) = match self.state(&want) {
            // As what is merely too large for the memory: it is refused, and the others are planned.
            Err(PlanError::Instantiate(error @ InstantiateError::TooLarge { .. })) => refused(&want, error.to_string()),
            decided => decided?,
        };
        let Want { package, shape, label, listed, group, previous, .. } = want;
        Ok(Subject { id: package.id.clone(), shape, label, listed, group, previous, state, runs })
    }

    fn state(&self, want: &Want<'_>) -> Result<(SubjectState, Vec<Run>), PlanError> {
        let Want { package, shape, .. } = want;
        let (prepared, tunings) = self.decide(package, shape)?;
        if let Some(reason) = too_large(&prepared, self.setting.device) {
            return Ok(refused(want, reason));
        }
        if let Some(constraint) = space::ruled_out(package, shape, self.wanted.tile, &self.root)? {
            return Ok(refused(want, format!("its tiling space rules out what --tile gives: `{constraint}`")));
        }
        let floor_ns = prepared.floor_ns(self.setting);
        if !tunings.is_empty() && !self.wanted.untuned {
            let runs = want
                .modes
                .iter()
                .map(|&mode| self.skipped_or_estimated(Run::without_key(mode, RunState::AfterTune), floor_ns));
            return Ok((SubjectState::AfterTune { tunings, floor_ns }, runs.collect()));
        }
        let key = prepared.subject(self.setting).key();
        let runs = want.modes.iter().map(|&mode| self.run(want, key, mode, floor_ns)).collect();
        Ok((SubjectState::Ready(Ready { key, tiling: prepared.tiling, floor_ns }), runs))
    }

    /// The subject with what tunings have decided, and the tunings that are still needed.
    fn decide(&self, package: &Package, shape: &Shape) -> Result<(Prepared, Vec<Tuning>), PlanError> {
        let pinned = space::pinned(package, self.wanted.tile);
        let (mut tiling, mut pending) = (Tiling { pipeline: pinned.clone(), ..Tiling::default() }, Vec::new());
        // Expressions are most of a plan's time; what only the stages' tilings differ in shares them.
        let draft = Draft::new(package, shape, &tiling.pipeline, &self.root)?;
        let prepare = |draft: &Draft<'_>, tiling: &Tiling| -> Result<Prepared, InstantiateError> {
            Ok(Prepared::of(self.setting, package, draft.instance(&tiling.stages)?, tiling, &self.builds))
        };
        // What all stages' tunings start from.
        let mut prepared = prepare(&draft, &tiling)?;
        for target in space::targets_of(package, shape, &draft) {
            if target == TuneTarget::Pipeline && !tiling.stages.is_empty() {
                prepared = prepare(&draft, &tiling)?;
            }
            let axes = space::axes_in(package, &target, shape, &draft.bound.scope)?;
            let points = axes.total();
            let key = tuning_material(self.setting, package, &target, &axes, &prepared).key();
            let is_known = pending.is_empty() || target != TuneTarget::Pipeline;
            let known = if is_known { self.facts.tuning(&package.id, &target, &key)? } else { None };
            match known {
                Some(choices) => decide(&mut tiling, &target, choices),
                None => pending.push(Tuning { target, key: is_known.then_some(key), points }),
            }
        }
        tiling.pipeline.extend(pinned);
        if prepared.tiling != tiling {
            prepared = if tiling.pipeline.is_empty() {
                prepare(&draft, &tiling)?
            } else {
                prepare(&Draft::new(package, shape, &tiling.pipeline, &self.root)?, &tiling)?
            };
        }
        Ok((prepared, pending))
    }

    fn run(&self, want: &Want<'_>, subject: Key, mode: Mode, floor_ns: Option<f64>) -> Run {
        let key = prepare::measurement(self.setting, subject, mode, &self.protocols[&mode]).key();
        let slot = Slot { id: &want.package.id, shape: &want.shape, mode, device: &self.setting.device.id.name };
        let run = Run { mode, key: Some(key), state: self.run_state(key, &slot), estimate_ns: 0.0 };
        self.skipped_or_estimated(run, floor_ns)
    }

    fn run_state(&self, measurement: Key, slot: &Slot<'_>) -> RunState {
        let (have, want) = (self.facts.sample_sets(slot.mode, &measurement), self.setting.protocols.rounds(slot.mode));
        if self.wanted.remeasure {
            return RunState::Stale(Stale::Remeasure);
        }
        if have >= want {
            return RunState::Fresh;
        }
        if have > 0 {
            return RunState::Stale(Stale::Incomplete { have, want });
        }
        RunState::Stale(match self.facts.latest(slot) {
            Some(previous) => Stale::Changed { previous },
            None => Stale::NeverMeasured,
        })
    }

    fn skipped_or_estimated(&self, mut run: Run, floor_ns: Option<f64>) -> Run {
        if let Some(reason) = skipped(run.mode, self.setting) {
            run.state = RunState::Skipped { reason };
        }
        if matches!(run.state, RunState::Stale(_) | RunState::AfterTune) {
            run.estimate_ns = estimate_ns(self.setting.protocols, run.mode, floor_ns);
        }
        run
    }
}

/// A subject that cannot run here.
fn refused(want: &Want<'_>, reason: String) -> (SubjectState, Vec<Run>) {
    let run = |&mode| Run::without_key(mode, RunState::Refused { reason: reason.clone() });
    let runs = want.modes.iter().map(run).collect();
    (SubjectState::Refused { reason }, runs)
}

impl Run {
    fn without_key(mode: Mode, state: RunState) -> Run {
        Run { mode, key: None, state, estimate_ns: 0.0 }
    }
}

/// Enters what a tuning chose.
pub fn decide(tiling: &mut Tiling, target: &TuneTarget, choices: Choices) {
    match target {
        TuneTarget::Pipeline => tiling.pipeline = choices,
        TuneTarget::Stage(name) => {
            tiling.stages.insert(name.clone(), choices);
        }
    }
}

/// Key of the tuning of `target`, and the number of points in its space; `tiling` holds what was decided before.
///
/// # Errors
/// As [`instantiate::instantiate`].
pub fn tuning_key(
    setting: &Setting<'_>,
    package: &Package,
    shape: &Shape,
    tiling: &Tiling,
    target: &TuneTarget,
    root: &Scope<'_>,
    builds: &BuildKeys,
) -> Result<(Key, u128), InstantiateError> {
    let axes = space::axes(package, target, shape, root)?;
    let prepared = before_tuning(setting, package, shape, tiling, target, root, builds)?;
    Ok((tuning_material(setting, package, target, &axes, &prepared).key(), axes.total()))
}

/// Everything that the key of the tuning of `target` depends on.
///
/// # Errors
/// As [`instantiate::instantiate`].
pub fn tuning_explanation(
    setting: &Setting<'_>,
    package: &Package,
    shape: &Shape,
    tiling: &Tiling,
    target: &TuneTarget,
    root: &Scope<'_>,
    builds: &BuildKeys,
) -> Result<serde_json::Value, InstantiateError> {
    let axes = space::axes(package, target, shape, root)?;
    let prepared = before_tuning(setting, package, shape, tiling, target, root, builds)?;
    let material = tuning_material(setting, package, target, &axes, &prepared);
    Ok(serde_json::to_value(material).expect("key material serialises to JSON"))
}

/// The kernel as the tuning of `target` starts from it: stages are tuned one by one, independent of one another; the
/// pipeline with the stages' tilings.
fn before_tuning(
    setting: &Setting<'_>,
    package: &Package,
    shape: &Shape,
    tiling: &Tiling,
    target: &TuneTarget,
    root: &Scope<'_>,
    builds: &BuildKeys,
) -> Result<Prepared, InstantiateError> {
    let untuned = Tiling::default();
    let tiling = if *target == TuneTarget::Pipeline { tiling } else { &untuned };
    Prepared::new(setting, package, shape, tiling, root, builds)
}

/// `prepared` is the kernel as [`before_tuning`] gives it.
fn tuning_material<'a>(
    setting: &'a Setting<'_>,
    package: &'a Package,
    target: &TuneTarget,
    axes: &'a space::Axes,
    prepared: &'a Prepared,
) -> keys::TuningMaterial<'a> {
    let is_timed = |name: &str| match target {
        TuneTarget::Pipeline => true,
        TuneTarget::Stage(stage) => stage == name,
    };
    let defines = package.stages.iter().filter(|stage| is_timed(&stage.name)).map(|stage| {
        let macros = stage.defines.iter().map(|(name, expr)| (name.as_str(), expr.source())).collect();
        (stage.name.as_str(), macros)
    });
    keys::TuningMaterial {
        builds: prepared.builds_by_stage().into_iter().filter(|(name, _)| is_timed(name)).collect(),
        defines: defines.collect(),
        target: target.to_string(),
        axes,
        launches: prepared.pipeline().stages.iter().filter(|stage| is_timed(&stage.name)).collect(),
        buffers: &prepared.pipeline().buffers,
        decided: &prepared.tiling.stages,
        device: &setting.device.id,
        protocol: &setting.protocols.tuning,
        limits: setting.protocols.search,
    }
}

fn too_large(prepared: &Prepared, device: &Device) -> Option<String> {
    let needed = prepared.pipeline().bytes();
    let gib = |bytes: u128| bytes as f64 / (1u64 << 30) as f64;
    (needed > u128::from(device.memory_bytes)).then(|| {
        format!(
            "its buffers need {:.1} GiB and {} offers {:.1} GiB; choose a smaller shape",
            gib(needed),
            device.id.name,
            gib(u128::from(device.memory_bytes))
        )
    })
}

fn skipped(mode: Mode, setting: &Setting<'_>) -> Option<String> {
    match (mode, setting.device.id.kind) {
        (Mode::Ncu, DeviceKind::Cpu) => {
            Some("Nsight Compute profiles NVIDIA GPUs, and this run is on a CPU".to_owned())
        }
        (Mode::Ncu, DeviceKind::Gpu) => setting.protocols.nsight_compute.as_ref().err().cloned(),
        (Mode::Nsys, DeviceKind::Cpu) => {
            Some("Nsight Systems' timeline shows streams of a GPU, and this run is on a CPU".to_owned())
        }
        (Mode::Nsys, DeviceKind::Gpu) => setting.protocols.timeline.as_ref().err().cloned(),
        _ => None,
    }
}

impl Plan {
    /// The pairs of subjects, candidate first, that are to have a verdict: both have a run in event mode.
    pub fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let has_run = |subject: usize| self.subjects[subject].run(Mode::Event).is_some();
        self.comparisons.iter().filter_map(move |comparison| match comparison.baseline {
            BaselineSubject::Subject(baseline) if has_run(comparison.candidate) && has_run(baseline) => {
                Some((comparison.candidate, baseline))
            }
            _ => None,
        })
    }

    /// Where one side of a comparison is to be measured, so is the other, for as many rounds: a verdict is made of rounds of
    /// one session. With fewer rounds than the first look there is no verdict to be had, and what is recorded stays fresh.
    /// What is measured again for this reason alone draws nothing else after it.
    fn measure_pairs_together(&mut self, protocols: &Protocols) {
        if protocols.rounds < Rule::LOOKS[0] {
            return;
        }
        let is_due = |state: &RunState| matches!(state, RunState::Stale(_) | RunState::AfterTune);
        let needs_all = |state: &RunState| matches!(state, RunState::Fresh | RunState::Stale(Stale::Incomplete { .. }));
        let event = |subject: usize| self.subjects[subject].run(Mode::Event).map(|run| &run.state);
        let mut beside: Vec<(usize, usize)> = Vec::new();
        for (candidate, baseline) in self.pairs() {
            for (one, other) in [(candidate, baseline), (baseline, candidate)] {
                if event(one).is_some_and(needs_all) && event(other).is_some_and(is_due) {
                    beside.push((one, other));
                }
            }
        }
        for (one, other) in beside {
            let other = self.subjects[other].id.to_string();
            let subject = &mut self.subjects[one];
            let floor_ns = match &subject.state {
                SubjectState::Ready(ready) => ready.floor_ns,
                SubjectState::AfterTune { floor_ns, .. } => *floor_ns,
                SubjectState::Refused { .. } => None,
            };
            if let Some(run) = subject.runs.iter_mut().find(|run| run.mode == Mode::Event && needs_all(&run.state)) {
                run.state = RunState::Stale(Stale::Beside { other });
                run.estimate_ns = estimate_ns(protocols, Mode::Event, floor_ns);
            }
        }
    }

    /// Runs in every state, counted.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for run in self.subjects.iter().flat_map(|subject| &subject.runs) {
            match run.state {
                RunState::Fresh => counts.fresh += 1,
                RunState::Stale(_) => counts.stale += 1,
                RunState::AfterTune => counts.after_tune += 1,
                RunState::Skipped { .. } => counts.skipped += 1,
                RunState::Refused { .. } => counts.refused += 1,
            }
        }
        counts
    }
}

/// Numbers of runs by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub fresh: usize,
    pub stale: usize,
    pub after_tune: usize,
    pub skipped: usize,
    pub refused: usize,
}

impl Counts {
    /// All of them.
    pub fn total(&self) -> usize {
        self.fresh + self.stale + self.after_tune + self.skipped + self.refused
    }

    /// Those that a session would work on.
    pub fn to_do(&self) -> usize {
        self.stale + self.after_tune
    }
}
