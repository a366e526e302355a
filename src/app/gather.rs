//! From plan and records to what a report is made of.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use jiff::{SignedDuration, Timestamp};

use super::experiment::{Bench, Workspace};
use super::recorded::{self, RecordedError, Results, recorded};
use crate::execute::RunFailure;
use crate::model::protocol::FailureKind;
use crate::model::record::Record;
use crate::model::record::RecordKind;
use crate::model::{Mode, Tiling, Timing};
use crate::pairs::{self, Standing, Unjudged};
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
            gone: Vec::new(),
        },
        subjects: Vec::new(),
        runs: HashMap::new(),
    };
    let setting = workspace.setting(&bench.protocols);
    let root = setting.root();
    // Event records as they were taken: what does not count in a run's time may be a dropped round of its verdict.
    let mut taken: HashMap<usize, Vec<Record>> = HashMap::new();
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
                Outcome::Measured(records) => match sift(kept(records, run.mode, index, &mut taken)) {
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
    add_comparisons(&mut gathered, bench, &taken)?;
    Ok(gathered)
}

/// `records`, those of event mode also copied into `taken`.
fn kept(records: Vec<Record>, mode: Mode, subject: usize, taken: &mut HashMap<usize, Vec<Record>>) -> Vec<Record> {
    if mode == Mode::Event {
        taken.insert(subject, records.clone());
    }
    records
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

fn add_comparisons(
    gathered: &mut Gathered,
    bench: &Bench,
    taken: &HashMap<usize, Vec<Record>>,
) -> Result<(), RecordedError> {
    /// A record that is dated later than this from now was taken by a clock that was wrong.
    const TOLERANCE: SignedDuration = SignedDuration::from_hours(24);
    let horizon = Timestamp::now().saturating_add(TOLERANCE).unwrap_or(Timestamp::MAX);
    let mut files: BTreeMap<&Path, Results> = BTreeMap::new();
    for comparison in &bench.plan.comparisons {
        if let BaselineSubject::Recorded(path) = &comparison.baseline
            && !files.contains_key(path.as_path())
        {
            files.insert(path, recorded::read(path)?);
        }
        // A tracer's times are compared with none.
        for run in bench.plan.subjects[comparison.candidate].runs.iter().filter(|run| run.mode != Mode::Nsys) {
            let Some(candidate) = gathered.run(comparison.candidate, run.mode) else { continue };
            let mut standing = Standing::Unjudged(match (run.mode, &comparison.baseline) {
                (_, BaselineSubject::Recorded(_)) => Unjudged::File,
                (_, BaselineSubject::None { .. }) => Unjudged::NoBaseline,
                (Mode::Event, _) => Unjudged::Failed,
                _ => Unjudged::OtherMode,
            });
            let baseline = match &comparison.baseline {
                BaselineSubject::Subject(subject) => match gathered.run(*subject, run.mode) {
                    Some(index) => {
                        let is_measured = |run: usize| matches!(gathered.input.runs[run].outcome, Outcome::Measured(_));
                        if run.mode == Mode::Event
                            && let Some(candidates) = taken.get(&comparison.candidate)
                            && let Some(baselines) = taken.get(subject)
                        {
                            let found = pairs::compare(candidates, baselines, Timing::ColdIsolated, horizon);
                            // One that has failed, or is invalid as a whole, has no verdict whatever its older rounds say.
                            if is_measured(candidate) && is_measured(index) {
                                standing = found;
                            }
                        }
                        Baseline::Run(index)
                    }
                    None => Baseline::Missing { reason: format!("it is not run in mode {}", run.mode) },
                },
                BaselineSubject::Recorded(path) => {
                    recorded(&files[path.as_path()], path, &gathered.input.runs[candidate])
                }
                BaselineSubject::None { reason } => Baseline::Missing { reason: reason.clone() },
            };
            let name = comparison.name.clone();
            gathered.input.comparisons.push(Comparison { run: candidate, name, baseline, standing });
        }
    }
    for (path, results) in &files {
        gathered.input.gone.extend(recorded::gone(results, path, &gathered.input.runs));
    }
    pairs::correct_table(gathered.input.comparisons.iter_mut().map(|comparison| &mut comparison.standing));
    Ok(())
}
