//! From plan and records to what a report is made of.

use std::collections::HashMap;
use std::path::Path;

use super::experiment::{Bench, Workspace};
use super::recorded::{self, RecordedError, Results, recorded};
use crate::execute::RunFailure;
use crate::model::protocol::FailureKind;
use crate::model::record::RecordKind;
use crate::model::{Mode, Tiling};
use crate::plan::{
    self, BaselineSubject, BuildKeys, InstantiateError, Prepared, RunState, Stale, Subject, SubjectState,
};
use crate::report::{Baseline, Comparison, Input, Outcome, Run, Sifted, StageCost, sift};
use crate::roofline::Cost;
use crate::store::StoreError;
use crate::store::calibrations::CalibrationsError;

/// A report's input, with the way back to the plan.
#[derive(Debug)]
pub struct Gathered {
    pub input: Input,
    /// By run of the input: its subject in the plan, and the subject at its tiling where it is known.
    pub subjects: Vec<(usize, Option<Prepared>)>,
    runs: HashMap<(usize, Mode), usize>,
}

impl Gathered {
    /// Index of the run of `subject` in `mode`.
    pub fn run(&self, subject: usize, mode: Mode) -> Option<usize> {
        self.runs.get(&(subject, mode)).copied()
    }
}

/// What is known could not be gathered.
#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Plan(#[from] plan::PlanError),
    #[error(transparent)]
    Instantiate(#[from] InstantiateError),
    #[error(transparent)]
    Recorded(#[from] RecordedError),
    #[error(transparent)]
    Calibration(#[from] CalibrationsError),
}

/// Everything that the reports of `bench` show, its records read and checked.
///
/// # Errors
/// A record cannot be read.
pub fn gather(workspace: &Workspace<'_>, bench: &Bench, failures: &[RunFailure]) -> Result<Gathered, GatherError> {
    let builds = BuildKeys::default();
    let mut gathered = Gathered {
        input: Input {
            experiment: bench.experiment.name.clone(),
            runs: Vec::new(),
            comparisons: Vec::new(),
            host: workspace.host_calibration(&bench.protocols.clocks)?,
        },
        subjects: Vec::new(),
        runs: HashMap::new(),
    };
    let setting = workspace.setting(&bench.protocols);
    let root = setting.root();
    for (index, subject) in bench.plan.subjects.iter().enumerate() {
        let tiling = tiling(subject);
        let prepared = match &tiling {
            Some(tiling) => {
                let package = workspace.project.catalog.package(&subject.id).map_err(plan::PlanError::from)?;
                Some(Prepared::new(&setting, package, &subject.shape, tiling, &root, &builds)?)
            }
            None => None,
        };
        for run in &subject.runs {
            let (outcome, left_out) = match outcome(workspace, subject, run, failures)? {
                Outcome::Measured(records) => match sift(records) {
                    Sifted::Valid { records, left_out } => (Outcome::Measured(records), left_out),
                    Sifted::Invalid { reason } => (Outcome::Failed { kind: FailureKind::Invalid, reason }, None),
                },
                other => (other, None),
            };
            gathered.runs.insert((index, run.mode), gathered.input.runs.len());
            gathered.subjects.push((index, prepared.clone()));
            gathered.input.runs.push(Run {
                id: subject.id.clone(),
                shape: subject.shape.clone(),
                label: subject.label.clone(),
                mode: run.mode,
                tiling: tiling.clone().unwrap_or_default(),
                device: workspace.machine.host.device.id.clone(),
                costs: prepared.as_ref().map(costs).unwrap_or_default(),
                peaks: workspace.machine.peaks.clone(),
                outcome,
                left_out,
            });
        }
    }
    add_comparisons(&mut gathered, bench)?;
    Ok(gathered)
}

fn tiling(subject: &Subject) -> Option<Tiling> {
    match &subject.state {
        SubjectState::Ready(ready) => Some(ready.tiling.clone()),
        SubjectState::AfterTune { .. } | SubjectState::Refused { .. } => None,
    }
}

fn costs(prepared: &Prepared) -> Vec<StageCost> {
    let stages = prepared.pipeline().stages.iter().zip(&prepared.instance.stages);
    stages
        .map(|(stage, cost)| StageCost {
            stage: stage.name.clone(),
            cost: Cost { flops: cost.flops, bytes: cost.bytes },
        })
        .collect()
}

fn outcome(
    workspace: &Workspace<'_>,
    subject: &Subject,
    run: &plan::Run,
    failures: &[RunFailure],
) -> Result<Outcome, StoreError> {
    let failed = failures.iter().find(|failed| {
        failed.name.id == subject.id
            && failed.name.shape == subject.shape
            && failed.mode.is_none_or(|mode| mode == run.mode)
    });
    if let Some(failed) = failed {
        return Ok(Outcome::Failed { kind: failed.failure.kind, reason: failed.failure.message.clone() });
    }
    let not_run = |reason: &str| Outcome::Skipped { reason: reason.to_owned() };
    Ok(match (&run.state, run.key, RecordKind::of_mode(run.mode)) {
        (RunState::Skipped { reason }, _, _) => Outcome::Skipped { reason: reason.clone() },
        (RunState::Refused { reason }, _, _) => {
            Outcome::Failed { kind: FailureKind::OutOfMemory, reason: reason.clone() }
        }
        // What an interrupted session left is shown too: the table says over how many processes.
        (RunState::Fresh | RunState::Stale(Stale::Incomplete { .. } | Stale::Beside { .. }), Some(key), Some(kind)) => {
            let records = workspace.ledger.store().get(kind, &key)?;
            if records.is_empty() {
                not_run("its records did not check out and were set aside; run it again")
            } else {
                Outcome::Measured(records)
            }
        }
        _ => not_run("not measured yet"),
    })
}

fn add_comparisons(gathered: &mut Gathered, bench: &Bench) -> Result<(), RecordedError> {
    let mut files: HashMap<&Path, Results> = HashMap::new();
    for comparison in &bench.plan.comparisons {
        if let BaselineSubject::Recorded(path) = &comparison.baseline
            && !files.contains_key(path.as_path())
        {
            files.insert(path, recorded::read(path)?);
        }
        // A tracer's times are compared with none.
        for run in bench.plan.subjects[comparison.candidate].runs.iter().filter(|run| run.mode != Mode::Nsys) {
            let Some(candidate) = gathered.run(comparison.candidate, run.mode) else { continue };
            let baseline = match &comparison.baseline {
                BaselineSubject::Subject(subject) => match gathered.run(*subject, run.mode) {
                    Some(index) => Baseline::Run(index),
                    None => Baseline::Missing { reason: format!("it is not run in mode {}", run.mode) },
                },
                BaselineSubject::Recorded(path) => {
                    recorded(&files[path.as_path()], path, &gathered.input.runs[candidate])
                }
                BaselineSubject::None { reason } => Baseline::Missing { reason: reason.clone() },
            };
            gathered.input.comparisons.push(Comparison { run: candidate, name: comparison.name.clone(), baseline });
        }
    }
    Ok(())
}
