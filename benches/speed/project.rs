//! Temporary projects whose runs are all recorded: tunings and records are made up, but written by the same code, under
//! the same keys, as measured ones.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use mlarun::app::{Bench, Choice, Ledger, Machine, Project, Workspace};
use mlarun::manifest::{self, Experiment, Source};
use mlarun::model::protocol::{Counters, Samples, Verification};
use mlarun::model::record::{AnnotationPass, Body, Labels, Position, Record, RecordKind, SampleSet, StageMeasurement};
use mlarun::model::{DeviceKind, Mode, Timing};
use mlarun::plan::space::search;
use mlarun::plan::{BuildKeys, Prepared, SubjectState, Wanted, root_scope};
use mlarun::store::Store;
use mlarun::store::tuning::{Outcome, Tried, Tuning, Tunings};
use tempfile::TempDir;

use crate::Result;

/// The repository that this bench belongs to.
pub const REPOSITORY: &str = env!("CARGO_MANIFEST_DIR");

/// A project in a temporary folder on the disk of the build.
pub struct Temporary {
    folder: TempDir,
}

impl Temporary {
    /// The repository's kernels, configuration and experiments, without results.
    pub fn new() -> Result<Temporary> {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        for name in ["kernels", "conf", "experiments"] {
            copy(&Path::new(REPOSITORY).join(name), &folder.path().join(name))?;
        }
        Ok(Temporary { folder })
    }

    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file of the project.
    pub fn write(&self, path: &str, text: &str) -> Result<PathBuf> {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap_or(self.root()))?;
        fs::write(&path, text)?;
        Ok(path)
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&from, &to)?;
        } else {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

/// A project with everything that commands open.
pub struct Opened {
    pub project: Project,
    pub machine: Machine,
    pub ledger: Ledger,
}

impl Opened {
    pub fn new(root: &Path) -> Result<Opened> {
        let project = Project::open(root, Some(root), None)?;
        let worker = Path::new(env!("CARGO_BIN_EXE_mlarun"));
        let machine = Machine::probe(&project, Choice { kind: DeviceKind::Cpu, gpu: None, worker, clocks: None })?;
        let ledger = Ledger::open(&project)?;
        Ok(Opened { project, machine, ledger })
    }

    pub fn workspace(&self) -> Workspace<'_> {
        Workspace { project: &self.project, machine: &self.machine, ledger: &self.ledger }
    }

    /// The experiment of a manifest, planned.
    pub fn plan(&self, manifest: &Path) -> Result<Bench> {
        let experiment = self.experiment(manifest)?;
        Ok(self.workspace().plan(experiment, Wanted::default())?)
    }

    pub fn experiment(&self, manifest: &Path) -> Result<Experiment> {
        let source = Source { path: manifest.to_owned(), text: fs::read_to_string(manifest)? };
        let document = manifest::parse(source, &[]).map_err(|found| format!("{found:?}"))?;
        let (experiment, _) = manifest::resolve(&document, &self.project.catalog, DeviceKind::Cpu)?;
        Ok(experiment)
    }
}

/// Records a result for every run of the manifest, and a tuning wherever one is needed, until nothing is left to do.
pub fn record_everything(root: &Path, manifest: &Path) -> Result<()> {
    let opened = Opened::new(root)?;
    let mut bench = opened.plan(manifest)?;
    while bench.plan.counts().after_tune > 0 {
        tune(&opened, &bench)?;
        bench = opened.plan(manifest)?;
    }
    append(&opened, &bench)
}

/// Every tuning whose key is known chooses the first valid point of its space.
fn tune(opened: &Opened, bench: &Bench) -> Result<()> {
    let tunings = Tunings::new(&opened.project.cache());
    let root = root_scope(&opened.machine.host.device);
    for subject in &bench.plan.subjects {
        let SubjectState::AfterTune { tunings: needed, .. } = &subject.state else { continue };
        let package = opened.project.catalog.package(&subject.id)?;
        for (needed, key) in needed.iter().filter_map(|needed| Some((needed, needed.key?))) {
            let limits = bench.protocols.search;
            let tiling = mlarun::model::Tiling::default();
            let tried = search(package, &needed.target, &subject.shape, &tiling, limits, &root)?.points;
            let history = tried.into_iter().enumerate().map(|(number, point)| {
                let outcome = match point.rejected_by {
                    Some(constraint) => Outcome::Rejected { constraint },
                    None => Outcome::Timed { median_ns: 1e6 + number as f64, samples: 9 },
                };
                Tried { number, choices: point.choices, outcome }
            });
            let history: Vec<Tried> = history.collect();
            let chosen = history.iter().find(|tried| matches!(tried.outcome, Outcome::Timed { .. }));
            let chosen = chosen.ok_or("a space without a valid point")?.choices.clone();
            let material = serde_json::json!({ "target": needed.target.to_string() });
            tunings.save(&subject.id, &needed.target.to_string(), &Tuning { key, material, chosen, history })?;
        }
    }
    Ok(())
}

/// Writes the sample sets of every stale run. Several stores write at the same time, as each waits for the disk.
fn append(opened: &Opened, bench: &Bench) -> Result<()> {
    const WRITERS: usize = 16;
    let environment = opened.machine.environment(&opened.project);
    let subjects = &bench.plan.subjects;
    let write = |part: usize| -> std::result::Result<(), String> {
        let fail = |error: &dyn std::fmt::Display| error.to_string();
        let mut store = Store::open(&opened.project.out).map_err(|error| fail(&error))?;
        let setting = opened.workspace().setting(&bench.protocols);
        let (scope, builds) = (setting.root(), BuildKeys::default());
        for subject in subjects.iter().skip(part).step_by(WRITERS) {
            let SubjectState::Ready(ready) = &subject.state else { continue };
            let package = opened.project.catalog.package(&subject.id).map_err(|error| fail(&error))?;
            let prepared = Prepared::new(&setting, package, &subject.shape, &ready.tiling, &scope, &builds)
                .map_err(|error| fail(&error))?;
            for run in &subject.runs {
                let (Some(key), Some(kind)) = (run.key, RecordKind::of_mode(run.mode)) else { continue };
                for round in 0..subject.sets_to_take(run.mode, bench.protocols.rounds(run.mode)).unwrap_or(0) {
                    let labels = Labels {
                        id: subject.id.clone(),
                        shape: subject.shape.clone(),
                        mode: Some(run.mode),
                        origin: None,
                    };
                    let record = Record {
                        kind,
                        key,
                        subject: ready.key,
                        material: prepared.explanation(&setting, run.mode),
                        labels,
                        tiling: ready.tiling.clone(),
                        code: Vec::new(),
                        position: position(round),
                        environment: environment.clone(),
                        body: body(run.mode, &prepared, f64::from(round)),
                    };
                    store.append(&record).map_err(|error| fail(&error))?;
                }
            }
        }
        store.flush().map_err(|error| fail(&error))
    };
    let write = &write;
    let done: std::result::Result<(), String> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|part| scope.spawn(move || write(part))).collect();
        let mut joined = writers.into_iter().map(|writer| writer.join());
        joined.try_for_each(|done| done.unwrap_or_else(|_| Err("a writer panicked".to_owned())))
    });
    Ok(done?)
}

pub fn position(round: u32) -> Position {
    let taken_at = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_760_000_000 + i64::from(round));
    Position { taken_at, session: "20251009T085320.000Z-1".into(), round, position: 0, looks: None }
}

/// A measurement of the usual number of samples, around a millisecond.
fn body(mode: Mode, prepared: &Prepared, drift: f64) -> Body {
    match mode {
        Mode::Event => Body::Event(sample_set(1e6 + drift)),
        _ => {
            let stages = prepared.pipeline().stages.iter().map(|stage| StageMeasurement {
                stage: stage.name.clone(),
                ns: around(1e6 + drift, 40),
                counters: Counters::Absent { reason: "nothing was counted".into() },
                launch: None,
            });
            Body::Annotation(AnnotationPass { ncu: None, stages: stages.collect(), verification: verification() })
        }
    }
}

/// Samples of every timing around `ns`.
pub fn sample_set(ns: f64) -> SampleSet {
    let samples = |timing, ns, count, launches_per_sample| Samples {
        timing,
        ns: around(ns, count),
        launches_per_sample,
        converged: true,
    };
    SampleSet {
        warmup_launches: 120,
        warmup_ns: 150_000_000,
        steady: true,
        sm_mhz: None,
        samples: vec![
            samples(Timing::ColdIsolated, ns, 60, 1),
            samples(Timing::WarmIsolated, 0.75 * ns, 60, 1),
            samples(Timing::WarmBatched, 0.5 * ns, 40, 5),
        ],
        verification: verification(),
    }
}

fn around(ns: f64, count: usize) -> Vec<f64> {
    (0..count).map(|index| ns * (1.0 + (index as f64 - count as f64 / 2.0) / 1000.0)).collect()
}

fn verification() -> Verification {
    Verification {
        relative_frobenius: 3e-7,
        worst_row: 9e-7,
        worst_row_index: 3,
        rows_compared: 128,
        rows_total: 128,
        output_sha256: "00".repeat(32),
        same_bits: None,
    }
}
