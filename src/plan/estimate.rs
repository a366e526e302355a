//! How long what a plan has left to do will take, roughly: sizes and budgets, no history. Pure.

use std::collections::{BTreeSet, HashSet};

use serde::Serialize;

use super::{Plan, Protocols, Run, RunState, Setting, Stale, Subject, SubjectState, Tuning};
use crate::catalog::Catalog;
use crate::model::protocol::Warmup;
use crate::model::timeline::Tracer;
use crate::model::{DType, KernelId, Mode, Tiling};

/// A process with its inputs and the comparison of its output.
const PROCESS_NS: f64 = 0.5e9;
/// The compiler on one module, with its listing; as many as there are cores run at a time.
const COMPILE_NS: f64 = 1e9;

/// Rough times that are left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// At most: constraints may rule out most of the points that are counted here.
    pub tuning_ns: f64,
    /// Modules of subjects that no run of this plan has compiled before.
    pub compiling_ns: f64,
    /// Sample sets that are missing, and the verifications before them.
    pub measuring_ns: f64,
}

impl Estimate {
    /// All of it.
    pub fn total_ns(&self) -> f64 {
        self.tuning_ns + self.compiling_ns + self.measuring_ns
    }
}

impl Plan {
    /// Time that is left. Counts points of tuning spaces instead of making them, so that it costs next to nothing.
    pub fn estimate(&self, catalog: &Catalog, setting: &Setting<'_>) -> Estimate {
        Estimate {
            tuning_ns: self.tuning_ns(setting),
            compiling_ns: self.modules_to_compile(catalog) as f64 * COMPILE_NS / cores(setting),
            measuring_ns: self.subjects.iter().map(measuring_ns).sum(),
        }
    }

    fn tuning_ns(&self, setting: &Setting<'_>) -> f64 {
        // Shapes of one kernel mostly try the same modules, which are compiled for the first of them.
        let mut compiled = BTreeSet::new();
        let mut total = 0.0;
        for subject in self.subjects.iter().filter(|subject| subject.has_work()) {
            let SubjectState::AfterTune { tunings, floor_ns } = &subject.state else { continue };
            for tuning in tunings {
                let compiles = compiled.insert((&subject.id, &tuning.target));
                total += search_ns(setting, tuning, *floor_ns, compiles);
            }
        }
        total
    }

    /// One module a stage for every kernel, dtype and tiling of which nothing is recorded.
    fn modules_to_compile(&self, catalog: &Catalog) -> usize {
        let built = |subject: &&Subject| subject.runs.iter().any(Run::has_records);
        let mut known: HashSet<_> = self.subjects.iter().filter(built).filter_map(Subject::modules).collect();
        let missing = self.subjects.iter().filter(|subject| subject.has_work()).filter(|subject| {
            let modules = subject.modules();
            modules.is_some_and(|modules| known.insert(modules))
        });
        missing.filter_map(|subject| catalog.package(&subject.id).ok()).map(|package| package.stages.len()).sum()
    }
}

impl Subject {
    fn has_work(&self) -> bool {
        self.runs.iter().any(|run| matches!(run.state, RunState::Stale(_) | RunState::AfterTune))
    }

    /// What tells its modules from those of other subjects, as far as that can be said without their keys.
    fn modules(&self) -> Option<(&KernelId, Option<DType>, &Tiling)> {
        match &self.state {
            SubjectState::Ready(ready) => Some((&self.id, self.shape.dtype(), &ready.tiling)),
            SubjectState::AfterTune { .. } | SubjectState::Refused { .. } => None,
        }
    }
}

impl Run {
    /// Rough time that it takes from here on, in nanoseconds.
    pub fn left_ns(&self) -> f64 {
        match self.state {
            RunState::Stale(Stale::Incomplete { have, want }) => {
                self.estimate_ns * f64::from(want.saturating_sub(have)) / f64::from(want.max(1))
            }
            RunState::Stale(_) | RunState::AfterTune => self.estimate_ns,
            RunState::Fresh | RunState::Skipped { .. } | RunState::Refused { .. } => 0.0,
        }
    }

    /// Something was measured under its key, so that its modules were compiled and its output was compared.
    fn has_records(&self) -> bool {
        matches!(
            self.state,
            RunState::Fresh | RunState::Stale(Stale::Incomplete { .. } | Stale::Remeasure | Stale::Beside { .. })
        )
    }
}

fn measuring_ns(subject: &Subject) -> f64 {
    let runs: f64 = subject.runs.iter().map(Run::left_ns).sum();
    // On the reduced shape and on its own.
    let verifying =
        if subject.has_work() && !subject.runs.iter().any(Run::has_records) { 2.0 * PROCESS_NS } else { 0.0 };
    runs + verifying
}

/// One search: its points compiled and timed, within its time budget.
fn search_ns(setting: &Setting<'_>, tuning: &Tuning, floor_ns: Option<f64>, compiles: bool) -> f64 {
    let protocols = setting.protocols;
    let points = tuning.points.min(protocols.search.points as u128) as f64;
    let compiling = if compiles { COMPILE_NS / cores(setting) } else { 0.0 };
    let launch = launch_ns(floor_ns);
    let timing = launch + (protocols.tuning.budget_ns as f64).min(f64::from(protocols.tuning.max_samples) * launch);
    (PROCESS_NS + points * (compiling + timing)).min(protocols.tuning_budget.as_nanos() as f64)
}

fn cores(setting: &Setting<'_>) -> f64 {
    setting.device.cores.len().max(1) as f64
}

/// A subject of some stages under Nsight Compute, with the counters of annotation mode and with all of them: its start, and the
/// replays of every launch.
const NCU_NS: f64 = 3e9;
const FULL_NCU_NS: f64 = 20e9;

/// A subject under Nsight Systems: its start, its import and its export.
const NSYS_NS: f64 = 6e9;

/// Launches are assumed to reach a third of the roofline.
fn launch_ns(floor_ns: Option<f64>) -> f64 {
    3.0 * floor_ns.unwrap_or(1e6)
}

/// Time of all sample sets of a run in `mode`.
pub(super) fn estimate_ns(protocols: &Protocols, mode: Mode, floor_ns: Option<f64>) -> f64 {
    let launch_ns = launch_ns(floor_ns);
    let sampled = |warmup: &Warmup, budget_ns: u64, min_samples: u32| {
        let warm = (warmup.min_ns as f64).max(f64::from(warmup.min_launches) * launch_ns);
        (warm, (budget_ns as f64).max(f64::from(min_samples) * launch_ns))
    };
    match mode {
        Mode::Event => {
            let event = &protocols.event;
            let (warm, one) = sampled(&event.warmup, event.budget_ns, event.min_samples);
            f64::from(protocols.rounds) * (PROCESS_NS + warm + one * event.timings.len() as f64)
        }
        Mode::Annotation if protocols.nsight_compute.is_ok() => NCU_NS,
        Mode::Annotation => {
            let annotation = &protocols.annotation;
            let (warm, one) = sampled(&annotation.warmup, annotation.budget_ns, annotation.min_samples);
            PROCESS_NS + warm + one
        }
        Mode::Ncu => FULL_NCU_NS,
        Mode::Nsys => match &protocols.timeline {
            Ok(trace) if matches!(trace.protocol.tracer, Tracer::Nsys { .. }) => NSYS_NS,
            _ => PROCESS_NS,
        },
    }
}
