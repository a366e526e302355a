//! Whether an experiment's files are what its records, templates and configuration give: a hash kept beside them.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::experiment::{Bench, Workspace};
use crate::model::{KernelId, Key, Mode, Shape};
use crate::plan::{BaselineSubject, RunState, SubjectState};

/// What the files depend on.
#[derive(Serialize)]
struct Inputs<'a> {
    mlarun: &'static str,
    experiment: &'a str,
    device: &'a str,
    devlog_devices: &'a [String],
    peaks: serde_json::Value,
    runs: Vec<RunInputs<'a>>,
    comparisons: Vec<(usize, &'a str, Key)>,
    /// Templates and configuration that replace the embedded ones.
    files: Vec<(PathBuf, Key)>,
}

#[derive(Serialize)]
struct RunInputs<'a> {
    id: &'a KernelId,
    shape: &'a Shape,
    mode: Mode,
    key: Option<Key>,
    is_skipped: bool,
    /// It has all the sample sets that this experiment asks for.
    is_complete: bool,
    sets: u32,
    /// Cost model and description come from the package.
    declaration: Option<Key>,
}

/// File of the stamp, beside report.md.
fn path(workspace: &Workspace<'_>, bench: &Bench) -> PathBuf {
    workspace.project.experiment(&bench.experiment.name).join("stamp")
}

/// The experiment's files are there and up to date.
pub fn is_published(workspace: &Workspace<'_>, bench: &Bench) -> bool {
    let folder = workspace.project.experiment(&bench.experiment.name);
    let stamped = fs::read_to_string(path(workspace, bench)).is_ok_and(|text| text == stamp(workspace, bench));
    stamped && ["report.md", "results.json", "results.csv"].iter().all(|name| folder.join(name).is_file())
}

/// Notes that the files of `bench` are up to date.
pub(super) fn write(workspace: &Workspace<'_>, bench: &Bench) -> Result<(), super::publish::PublishError> {
    super::artifacts::write_text(&path(workspace, bench), &stamp(workspace, bench))
}

/// Forgets that the files are up to date, as they show a failure that a later call may not meet.
pub(super) fn remove(workspace: &Workspace<'_>, bench: &Bench) {
    // A stamp that is not there, or cannot be removed, does not match the next plan's either.
    let _ = fs::remove_file(path(workspace, bench));
}

fn stamp(workspace: &Workspace<'_>, bench: &Bench) -> String {
    let sets = |mode: Mode, key: Option<Key>| {
        key.map_or(0, |key| crate::plan::Facts::sample_sets(workspace.ledger, mode, &key))
    };
    let runs = bench.plan.subjects.iter().flat_map(|subject| {
        subject.runs.iter().map(move |run| RunInputs {
            id: &subject.id,
            shape: &subject.shape,
            mode: run.mode,
            key: run.key,
            is_skipped: matches!(run.state, RunState::Skipped { .. }),
            is_complete: matches!(run.state, RunState::Fresh),
            sets: sets(run.mode, run.key),
            declaration: workspace.project.catalog.package(&subject.id).ok().map(|package| package.declaration),
        })
    });
    let baseline = |baseline: &BaselineSubject| match baseline {
        BaselineSubject::Subject(index) => match &bench.plan.subjects[*index].state {
            SubjectState::Ready(ready) => ready.key,
            _ => Key::of_bytes(b"none"),
        },
        BaselineSubject::Recorded(path) => Key::of_bytes(&fs::read(path).unwrap_or_default()),
        BaselineSubject::None { .. } => Key::of_bytes(b"none"),
    };
    let comparisons = bench.plan.comparisons.iter();
    let inputs = Inputs {
        mlarun: env!("CARGO_PKG_VERSION"),
        experiment: &bench.experiment.name,
        device: &workspace.machine.host.device.id.name,
        devlog_devices: &bench.experiment.devlog.devices,
        peaks: serde_json::to_value(&workspace.machine.peaks).expect("peaks serialise to JSON"),
        runs: runs.collect(),
        comparisons: comparisons.map(|one| (one.candidate, one.name.as_str(), baseline(&one.baseline))).collect(),
        files: [workspace.project.templates(), workspace.project.root.join("conf")]
            .iter()
            .flat_map(|f| hashes(f))
            .collect(),
    };
    Key::of("stamp/1", &inputs).to_string()
}

/// Name and hash of every file of a folder; a folder or file that cannot be read counts as empty, as the files that it
/// would replace are then the embedded ones.
fn hashes(folder: &Path) -> Vec<(PathBuf, Key)> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut files: Vec<_> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| Some((PathBuf::from(entry.file_name()), Key::of_bytes(&fs::read(entry.path()).ok()?))))
        .collect();
    files.sort();
    files
}
