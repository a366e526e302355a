//! The plan: what an experiment means here and now. A pure function of (experiment, catalogue, setting, facts); it reads
//! no file, no clock and no environment, so that the same inputs give the same plan, and what depends on a tuning that
//! is not known yet is planned again once it is.

pub mod instantiate;
pub mod keys;
mod prepare;
mod reasons;
pub mod space;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::catalog::{Catalog, Package};
use crate::expr::{EvalError, Expr, Scope};
use crate::manifest::{Baseline, Experiment};
use crate::model::build::Toolchain;
use crate::model::protocol::{AnnotationProtocol, EventProtocol, TuneProtocol};
use crate::model::{Choices, Device, DeviceKind, KernelId, Key, Mode, Peaks, Shape, Tiling, Value};

pub use instantiate::{Instance, InstantiateError};
pub use prepare::{Prepared, prepare_reduced, verification_key};
pub use reasons::{Change, changes};
use space::{SearchLimits, TuneTarget};

/// What a plan depends on beside the experiment: the host, its compiler, and how things are measured.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    pub device: &'a Device,
    pub toolchain: &'a Toolchain,
    pub peaks: Option<&'a Peaks>,
    pub protocols: &'a Protocols,
    /// Clock policy as it enters a key; `none` on a CPU.
    pub clock_policy: &'a str,
}

/// How things are measured: conf/ with the manifest's overrides.
#[derive(Debug, Clone, PartialEq)]
pub struct Protocols {
    pub event: EventProtocol,
    pub annotation: AnnotationProtocol,
    pub tuning: TuneProtocol,
    pub search: SearchLimits,
    /// Sample sets, each a fresh process, that a measurement in event mode needs.
    pub rounds: u32,
    /// Rows compared at the run's own shape.
    pub verified_rows: u64,
    pub verification_seed: u64,
}

impl Protocols {
    /// The protocol of `mode` as it enters a key.
    fn material(&self, mode: Mode) -> serde_json::Value {
        let value = match mode {
            Mode::Event => serde_json::to_value(&self.event),
            Mode::Annotation => serde_json::to_value(&self.annotation),
            Mode::Ncu | Mode::Nsys => Ok(serde_json::Value::Null),
        };
        value.expect("protocols serialise to JSON")
    }

    /// Sample sets that a measurement in `mode` needs.
    pub fn rounds(&self, mode: Mode) -> u32 {
        if mode == Mode::Event { self.rounds } else { 1 }
    }
}

/// What is known from earlier runs.
pub trait Facts {
    /// Sample sets recorded for a measurement.
    fn sample_sets(&self, measurement: &Key) -> u32;
    /// The verification succeeded before.
    fn is_verified(&self, verification: &Key) -> bool;
    /// Choices that a tuning made.
    fn tuning(&self, tuning: &Key) -> Option<Choices>;
    /// Key of the newest measurement of the same kernel, shape and mode on the same device.
    fn latest(&self, slot: &Slot<'_>) -> Option<Key>;
}

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
    /// Named by the experiment, not only as a baseline.
    pub listed: bool,
    /// Number of the experiment's shape that it belongs to; subjects of one group are measured in turn.
    pub group: usize,
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

    /// Rough time that its run in `mode` takes, in nanoseconds.
    pub fn estimate_ns(&self, mode: Mode) -> f64 {
        self.run(mode).map_or(0.0, |run| run.estimate_ns)
    }
}

/// How far a subject is known.
#[derive(Debug, Clone, PartialEq)]
pub enum SubjectState {
    /// It cannot run here; nothing is tried.
    Refused { reason: String },
    /// It runs once these tunings are known.
    AfterTune { tunings: Vec<Tuning>, floor_ns: Option<f64> },
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
    /// `None`: the kernel declares no reference.
    pub verification: Option<Key>,
    pub is_verified: bool,
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
    /// Rough time that it takes from here on, in nanoseconds.
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
    Skipped { reason: String },
    Refused { reason: String },
}

/// Why a run has to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Stale {
    NeverMeasured,
    /// An earlier session ended before all sample sets were taken.
    Incomplete { have: u32, want: u32 },
    /// The newest result under the same name has another key.
    Changed { previous: Key },
    /// Asked for.
    Remeasure,
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
    #[error("--only: {0}; names are kernel, version, language, mode and the parameters of the kernel")]
    Only(EvalError),
    #[error("{0} is not in the catalogue")]
    NoPackage(KernelId),
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
    let root = Scope::new();
    let mut planner = Planner {
        catalog,
        setting,
        facts,
        wanted,
        root: &root,
        modes: &experiment.modes,
        plan: Plan { subjects: Vec::new(), comparisons: Vec::new() },
        known: BTreeMap::new(),
        group: 0,
    };
    for (group, given) in experiment.shapes.iter().enumerate() {
        planner.group = group;
        let mut listed = Vec::new();
        for selection in &experiment.kernels {
            for &version in &selection.versions {
                let id =
                    KernelId { kernel: selection.kernel.clone(), version, language: experiment.language };
                if let Some(index) = planner.listed(&id, given)? {
                    listed.push(index);
                }
            }
        }
        for candidate in listed {
            for baseline in &experiment.baselines {
                planner.compare(candidate, baseline, given)?;
            }
        }
    }
    Ok(planner.plan)
}

struct Planner<'a> {
    catalog: &'a Catalog,
    setting: &'a Setting<'a>,
    facts: &'a dyn Facts,
    wanted: Wanted<'a>,
    root: &'a Scope<'a>,
    modes: &'a [Mode],
    plan: Plan,
    known: BTreeMap<(KernelId, Shape), usize>,
    /// Number of the shape at hand.
    group: usize,
}

impl Planner<'_> {
    fn package(&self, id: &KernelId) -> Result<&Package, PlanError> {
        self.catalog.package(id).ok_or_else(|| PlanError::NoPackage(id.clone()))
    }

    /// The subject of a kernel that the experiment names, unless the filter leaves none of its runs.
    fn listed(&mut self, id: &KernelId, given: &Shape) -> Result<Option<usize>, PlanError> {
        let package = self.package(id)?;
        let shape = instantiate::complete_shape(package, given, self.root)?;
        let mut modes = Vec::new();
        for &mode in self.modes {
            if self.is_wanted(package, id, &shape, mode)? {
                modes.push(mode);
            }
        }
        if modes.is_empty() {
            return Ok(None);
        }
        let index = self.subject(id, shape, &modes)?;
        self.plan.subjects[index].listed = true;
        Ok(Some(index))
    }

    fn is_wanted(&self, package: &Package, id: &KernelId, shape: &Shape, mode: Mode) -> Result<bool, PlanError> {
        let Some(only) = self.wanted.only else { return Ok(true) };
        let mut scope = self.root.inner();
        for (name, value) in &shape.0 {
            scope.set(name, value);
        }
        // A tuned parameter has no value yet; its default keeps a filter over it meaningful.
        for parameter in package.parameters.iter().filter(|parameter| shape.get(&parameter.name).is_none()) {
            if let Some(default) = &parameter.default {
                let value = default.eval(&scope).map_err(PlanError::Only)?;
                scope.set(&parameter.name, &value);
            }
        }
        scope.set("kernel", &Value::Text(id.kernel.clone()));
        scope.set("version", &Value::Text(id.version.to_string()));
        scope.set("language", &Value::Text(id.language.to_string()));
        scope.set("mode", &Value::Text(mode.to_string()));
        only.eval_bool(&scope).map_err(PlanError::Only)
    }

    /// The subject of `id` at `shape`, planned once however often it is asked for.
    fn subject(&mut self, id: &KernelId, shape: Shape, modes: &[Mode]) -> Result<usize, PlanError> {
        let name = (id.clone(), shape);
        if let Some(&index) = self.known.get(&name) {
            let missing: Vec<Mode> = {
                let runs = &self.plan.subjects[index].runs;
                modes.iter().copied().filter(|mode| runs.iter().all(|run| run.mode != *mode)).collect()
            };
            if !missing.is_empty() {
                let (_, mut runs) = self.state(id, &name.1, &missing)?;
                self.plan.subjects[index].runs.append(&mut runs);
            }
            return Ok(index);
        }
        let (state, runs) = self.state(id, &name.1, modes)?;
        let index = self.plan.subjects.len();
        let subject =
            Subject { id: id.clone(), shape: name.1.clone(), listed: false, group: self.group, state, runs };
        self.plan.subjects.push(subject);
        self.known.insert(name, index);
        Ok(index)
    }

    fn state(&self, id: &KernelId, shape: &Shape, modes: &[Mode]) -> Result<(SubjectState, Vec<Run>), PlanError> {
        let package = self.package(id)?;
        let mut tiling = Tiling::default();
        let tunings = self.decide(package, shape, &mut tiling)?;
        let prepared = Prepared::new(self.setting, package, shape, &tiling, self.root)?;
        let all = |state: RunState| {
            modes.iter().map(|&mode| Run { mode, key: None, state: state.clone(), estimate_ns: 0.0 }).collect()
        };
        if let Some(reason) = too_large(&prepared, self.setting.device) {
            return Ok((SubjectState::Refused { reason: reason.clone() }, all(RunState::Refused { reason })));
        }
        let floor_ns = prepared.floor_ns(self.setting);
        if !tunings.is_empty() {
            let mut runs: Vec<Run> = all(RunState::AfterTune);
            for run in &mut runs {
                self.skip_or_estimate(run, floor_ns);
            }
            return Ok((SubjectState::AfterTune { tunings, floor_ns }, runs));
        }

        let subject = prepared.subject(self.setting);
        let key = subject.key();
        let reduced = prepare_reduced(self.setting, package, &prepared, self.root)?;
        let verification = verification_key(self.setting, key, &prepared, &reduced);
        let runs = modes
            .iter()
            .map(|&mode| {
                let (measurement, _) = prepared.measurement(self.setting, &subject, mode);
                let slot = Slot { id, shape, mode, device: &self.setting.device.id.name };
                let state = self.run_state(measurement, &slot);
                let mut run = Run { mode, key: Some(measurement), state, estimate_ns: 0.0 };
                self.skip_or_estimate(&mut run, floor_ns);
                run
            })
            .collect();
        let is_verified = verification.is_some_and(|key| self.facts.is_verified(&key));
        Ok((SubjectState::Ready(Ready { key, tiling, verification, is_verified, floor_ns }), runs))
    }

    /// Fills in what tunings have decided; gives those that are still needed.
    fn decide(&self, package: &Package, shape: &Shape, tiling: &mut Tiling) -> Result<Vec<Tuning>, PlanError> {
        let mut pending = Vec::new();
        for target in space::targets(package, shape, self.setting.device.cores.len(), self.root)? {
            let (key, points) = tuning_key(self.setting, package, shape, tiling, &target, self.root)?;
            let known_key = pending.is_empty() || target != TuneTarget::Pipeline;
            match known_key.then(|| self.facts.tuning(&key)).flatten() {
                Some(choices) => decide(tiling, &target, choices),
                None => pending.push(Tuning { target, key: known_key.then_some(key), points }),
            }
        }
        Ok(pending)
    }

    fn run_state(&self, measurement: Key, slot: &Slot<'_>) -> RunState {
        let (have, want) = (self.facts.sample_sets(&measurement), self.setting.protocols.rounds(slot.mode));
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

    fn skip_or_estimate(&self, run: &mut Run, floor_ns: Option<f64>) {
        if let Some(reason) = skipped(run.mode, self.setting.device.id.kind) {
            run.state = RunState::Skipped { reason };
        }
        if matches!(run.state, RunState::Stale(_) | RunState::AfterTune) {
            run.estimate_ns = estimate_ns(self.setting.protocols, run.mode, floor_ns);
        }
    }

    fn compare(&mut self, candidate: usize, baseline: &Baseline, given: &Shape) -> Result<(), PlanError> {
        let id = self.plan.subjects[candidate].id.clone();
        let modes: Vec<Mode> = self.plan.subjects[candidate].runs.iter().map(|run| run.mode).collect();
        let found = match baseline {
            Baseline::Recorded(path) => BaselineSubject::Recorded(path.clone()),
            Baseline::Previous => match self.catalog.previous(&id) {
                Some(package) => {
                    let previous = package.id.clone();
                    self.baseline_subject(&previous, given, &modes)?
                }
                None => BaselineSubject::None { reason: format!("no version stands before {}", id.version) },
            },
            Baseline::Kernel { kernel, version } => {
                let other = KernelId { kernel: kernel.clone(), version: *version, language: id.language };
                if other == id {
                    BaselineSubject::None { reason: "it is its own baseline".to_owned() }
                } else {
                    self.baseline_subject(&other, given, &modes)?
                }
            }
        };
        self.plan.comparisons.push(Comparison { candidate, name: baseline.to_string(), baseline: found });
        Ok(())
    }

    fn baseline_subject(&mut self, id: &KernelId, given: &Shape, modes: &[Mode]) -> Result<BaselineSubject, PlanError> {
        let shape = instantiate::complete_shape(self.package(id)?, given, self.root)?;
        self.subject(id, shape, modes).map(BaselineSubject::Subject)
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
) -> Result<(Key, u128), InstantiateError> {
    let axes = space::axes(package, target, shape, setting.device.cores.len(), root)?;
    // Stages are tuned one by one, independent of one another; the pipeline with the stages' tilings.
    let decided = if *target == TuneTarget::Pipeline { tiling.clone() } else { Tiling::default() };
    let prepared = Prepared::new(setting, package, shape, &decided, root)?;
    let defines = package.stages.iter().map(|stage| {
        let macros = stage.defines.iter().map(|(name, expr)| (name.as_str(), expr.source())).collect();
        (stage.name.as_str(), macros)
    });
    let material = keys::TuningMaterial {
        builds: prepared.builds_by_stage(),
        defines: defines.collect(),
        target: target.to_string(),
        axes: &axes,
        launches: &prepared.pipeline().stages,
        buffers: &prepared.pipeline().buffers,
        decided: &decided.stages,
        device: &setting.device.id,
        protocol: &setting.protocols.tuning,
        limits: setting.protocols.search,
    };
    Ok((material.key(), axes.axes.iter().map(|(_, values)| values.len() as u128).product()))
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

fn skipped(mode: Mode, device: DeviceKind) -> Option<String> {
    match (mode, device) {
        (Mode::Ncu, DeviceKind::Cpu) => Some("Nsight Compute profiles NVIDIA GPUs, and this run is on a CPU".to_owned()),
        (Mode::Nsys, DeviceKind::Cpu) => {
            Some("Nsight Systems' timeline shows streams of a GPU, and this run is on a CPU".to_owned())
        }
        _ => None,
    }
}

/// Time of a run with what precedes it, roughly: launches are assumed to reach a third of the roofline.
fn estimate_ns(protocols: &Protocols, mode: Mode, floor_ns: Option<f64>) -> f64 {
    /// Process, inputs and comparison of a sample set.
    const AROUND_NS: f64 = 0.5e9;
    let launch_ns = 3.0 * floor_ns.unwrap_or(1e6);
    let sampled = |warmup: &crate::model::protocol::Warmup, budget_ns: u64, min_samples: u32| {
        let warm = (warmup.min_ns as f64).max(f64::from(warmup.min_launches) * launch_ns);
        (warm, (budget_ns as f64).max(f64::from(min_samples) * launch_ns))
    };
    match mode {
        Mode::Event => {
            let event = &protocols.event;
            let (warm, one) = sampled(&event.warmup, event.budget_ns, event.min_samples);
            f64::from(protocols.rounds) * (AROUND_NS + warm + one * event.timings.len() as f64)
        }
        Mode::Annotation => {
            let annotation = &protocols.annotation;
            let (warm, one) = sampled(&annotation.warmup, annotation.budget_ns, annotation.min_samples);
            AROUND_NS + warm + one
        }
        Mode::Ncu | Mode::Nsys => 0.0,
    }
}

impl Plan {
    /// Time that is left, roughly, in nanoseconds.
    pub fn estimate_ns(&self) -> f64 {
        self.subjects.iter().flat_map(|subject| &subject.runs).map(|run| run.estimate_ns).sum()
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
