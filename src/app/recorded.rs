//! Baselines from a results file: what an experiment, here or elsewhere, once wrote as results.json.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::manifest::{self, Experiment};
use crate::model::record::Format;
use crate::model::{DeviceId, KernelId, Mode, Shape};
use crate::report::{Baseline, Gone, Outcome, RESULTS_FORMAT, Recorded, Run};
use crate::roofline::Cost;

/// The part of results.json that a comparison needs.
#[derive(Debug, Deserialize)]
pub(super) struct Results {
    format: Format,
    runs: Vec<RunResult>,
}

#[derive(Debug, Deserialize)]
struct RunResult {
    #[serde(flatten)]
    id: KernelId,
    shape: Shape,
    mode: Mode,
    device: DeviceId,
    whole: Option<Whole>,
}

#[derive(Debug, Deserialize)]
struct Whole {
    ns: f64,
    cost: Option<Cost>,
}

/// A results file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordedError {
    #[error("baseline {}: {error}; name a results.json that can be read", path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error("baseline {}: {error}; name a results.json that mlarun wrote", path.display())]
    Json { path: PathBuf, error: serde_json::Error },
    #[error(
        "baseline {}: it has no run in common with this experiment (kernel, version, language, mode and shape): name another \
         file, or run the experiment that it came from", path.display()
    )]
    NoOverlap { path: PathBuf },
    #[error("baseline {}: its format is {major}, and this program reads {}", path.display(), RESULTS_FORMAT.major)]
    Newer { path: PathBuf, major: u32 },
}

/// Reads the results file `path`.
///
/// # Errors
/// The file cannot be read or is no results file.
pub(super) fn read(path: &Path) -> Result<Results, RecordedError> {
    let text = fs::read(path).map_err(|error| RecordedError::Io { path: path.to_owned(), error })?;
    let results: Results =
        serde_json::from_slice(&text).map_err(|error| RecordedError::Json { path: path.to_owned(), error })?;
    if results.format.major != RESULTS_FORMAT.major {
        return Err(RecordedError::Newer { path: path.to_owned(), major: results.format.major });
    }
    Ok(results)
}

/// Checks that every results file that `experiment` compares with can be used.
///
/// # Errors
/// The first one that cannot.
pub fn check_baselines(experiment: &Experiment) -> Result<(), RecordedError> {
    let files = experiment.baselines.iter().filter_map(|baseline| match baseline {
        manifest::Baseline::File(path) => Some(path),
        _ => None,
    });
    for path in files {
        let results = read(path)?;
        if !results.runs.iter().any(|run| is_of(run, experiment)) {
            return Err(RecordedError::NoOverlap { path: path.clone() });
        }
    }
    Ok(())
}

/// Whether `experiment` has a run like this one; what its shapes leave open may have any value.
fn is_of(run: &RunResult, experiment: &Experiment) -> bool {
    let is_selected = experiment.language == run.id.language
        && experiment.modes.contains(&run.mode)
        && experiment
            .kernels
            .iter()
            .any(|kernels| kernels.kernel == run.id.kernel && kernels.versions.contains(&run.id.version));
    let agrees = |shape: &Shape| {
        shape.0.iter().all(|(name, value)| run.shape.get(name).is_none_or(|recorded| recorded == value))
    };
    is_selected && experiment.shapes.iter().any(agrees)
}

/// What `results`, read from `path`, measured in the modes of `runs` and these have no result of.
pub(super) fn gone(results: &Results, path: &Path, runs: &[Run]) -> Vec<Gone> {
    let measured = results.runs.iter().filter(|run| run.whole.is_some());
    let of_a_mode = measured.filter(|old| runs.iter().any(|run| run.mode == old.mode));
    let baseline = path.display().to_string();
    of_a_mode
        .filter_map(|old| {
            let now = runs.iter().find(|run| run.id == old.id && run.shape == old.shape && run.mode == old.mode);
            let reason = match now.map(|run| &run.outcome) {
                Some(Outcome::Measured(_)) => return None,
                Some(Outcome::Failed { reason, .. } | Outcome::Skipped { reason }) => reason.clone(),
                None if runs.iter().any(|run| run.id == old.id) => "not a shape of this experiment".to_owned(),
                None => "not a kernel of this experiment; one that was renamed counts as gone".to_owned(),
            };
            let run = format!("{} {} at {}", old.mode, old.id, old.shape);
            Some(Gone { baseline: baseline.clone(), run, reason })
        })
        .collect()
}

/// The result of the same kernel, version, shape and mode as `run`; missing where `results`, read from `path`, has none.
pub(super) fn recorded(results: &Results, path: &Path, run: &Run) -> Baseline {
    let same = |other: &&RunResult| other.id == run.id && other.shape == run.shape && other.mode == run.mode;
    let found = results.runs.iter().find(same).and_then(|found| Some((found, found.whole.as_ref()?)));
    let file = path.display().to_string();
    match found {
        Some((found, whole)) => Baseline::Recorded(Recorded {
            id: found.id.clone(),
            ns: whole.ns,
            cost: whole.cost,
            device: found.device.name.clone(),
            file,
        }),
        None => Baseline::Missing { reason: format!("{file} holds no such run") },
    }
}
