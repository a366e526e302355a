//! The timestamped folder of one run, for people: parameters, tilings with their histories, compiled files, report.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::{Map, Value as Json};

use super::experiment::Workspace;
use super::publish::PublishError;
use crate::atomic::{self, Durability, Growing};
use crate::backend::BuildCache;
use crate::failpoint;
use crate::model::ncu::ReportFile;
use crate::model::{DeviceId, KernelId, Key, Mode, Tiling};
use crate::plan::space::{TuneTarget, targets};
use crate::plan::{self, BuildKeys, PlanError, Prepared, Protocols, Subject};

/// Folder below out/ of the reports that Nsight Compute kept.
pub(super) const REPORTS: &str = "nsight";

/// `out/profiles/<mode>/<kernel>/<params>/<timestamp>`: where the profile of records lies of which the newest was taken at
/// `taken_at`.
pub(super) fn place(out: &Path, id: &KernelId, mode: Mode, prepared: &Prepared, taken_at: Timestamp) -> PathBuf {
    let parent = out.join("profiles").join(mode.name()).join(&id.kernel).join(params(id, prepared));
    parent.join(taken_at.strftime("%Y%m%dT%H%M%SZ").to_string())
}

/// Starts the folder of a profile that is to lie at `place` below `out`.
pub(super) fn begin(out: &Path, place: &Path) -> Result<Growing, PublishError> {
    let parent = place.parent().unwrap_or(out);
    let begun = atomic::check_below(out, parent).and_then(|()| Growing::begin(parent));
    begun.map_err(PublishError::io(parent))
}

/// Gives a finished profile its place; a suffix tells profiles of one second apart.
pub(super) fn finish(mut profile: Growing, place: &Path) -> Result<PathBuf, PublishError> {
    failpoint::here("profiles.made");
    for number in 1_u32.. {
        let named = if number == 1 { place.to_owned() } else { PathBuf::from(format!("{}-{number}", place.display())) };
        match profile.name(&named) {
            Ok(()) => return Ok(named),
            Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty) => {}
            Err(error) => return Err(PublishError::io(&named)(error)),
        }
    }
    unreachable!("profiles of one second are fewer than u32 can count")
}

/// Version, language, dtype and shape as one folder name.
fn params(id: &KernelId, prepared: &Prepared) -> String {
    let shape = &prepared.instance.shape;
    let dtype = shape.dtype().map(|dtype| format!("-{dtype}")).unwrap_or_default();
    let rest = shape.ordered().filter(|(name, _)| *name != "dtype").map(|(name, value)| format!("-{name}{value}"));
    format!("{}-{}{dtype}{}", id.version, id.language, rest.collect::<String>())
}

/// Writes everything but the report into `folder`.
pub(super) fn write(
    workspace: &Workspace<'_>,
    folder: &Path,
    subject: &Subject,
    prepared: &Prepared,
    protocols: &Protocols,
) -> Result<(), PublishError> {
    let device = &workspace.machine.host.device.id;
    write_json(&folder.join("params.json"), &parameters(&subject.id, prepared, device))?;
    write_tilings(workspace, folder, subject, prepared, protocols)?;
    let cache = BuildCache::new(&workspace.project.root, &workspace.project.cache());
    let builds = prepared.builds.iter().zip(&prepared.build_keys);
    for (stage, (build, key)) in prepared.pipeline().stages.iter().zip(builds) {
        let compiled = folder.join("compiled").join(&stage.name);
        copy_folder(&cache.folder_of(key), &compiled)?;
        let name = build.source.file_name().unwrap_or_default();
        copy(&workspace.project.root.join(&build.source), &compiled.join(name))?;
    }
    Ok(())
}

/// Copies the report that Nsight Compute kept for this record, as long as it is the same file: a link where the disk allows it,
/// as these files are large.
pub(super) fn copy_report(out: &Path, folder: &Path, report: &ReportFile) -> Result<(), PublishError> {
    let (from, to) = (out.join(REPORTS).join(&report.name), folder.join(&report.name));
    let is_same = |bytes: &Vec<u8>| Key::of_bytes(bytes) == report.sha256;
    match fs::read(&from).ok().filter(is_same) {
        Some(bytes) => fs::hard_link(&from, &to)
            .or_else(|_| atomic::write(&to, &bytes, Durability::Cached))
            .map_err(PublishError::io(&to)),
        None => Ok(()),
    }
}

/// params.json: every parameter by name, with the kernel and the device.
fn parameters(id: &KernelId, prepared: &Prepared, device: &DeviceId) -> Json {
    let mut params = Map::new();
    params.insert("kernel".to_owned(), id.kernel.clone().into());
    params.insert("version".to_owned(), id.version.to_string().into());
    params.insert("language".to_owned(), id.language.name().into());
    params.insert("device".to_owned(), device.name.clone().into());
    for (name, value) in &prepared.instance.shape.0 {
        params.insert(name.clone(), json(value));
    }
    Json::Object(params)
}

fn json<T: serde::Serialize>(value: &T) -> Json {
    serde_json::to_value(value).expect("values of parameters serialise to JSON")
}

/// `tiling/<stage>.json` for every stage and for the pipeline, each beside its history where it was tuned.
fn write_tilings(
    workspace: &Workspace<'_>,
    folder: &Path,
    subject: &Subject,
    prepared: &Prepared,
    protocols: &Protocols,
) -> Result<(), PublishError> {
    let folder = folder.join("tiling");
    for (name, choices) in &prepared.instance.choices {
        write_json(&folder.join(format!("{name}.json")), &json(choices))?;
    }
    let package = workspace.project.catalog.package(&subject.id).map_err(PlanError::from)?;
    let setting = workspace.setting(protocols);
    let (root, builds) = (setting.root(), BuildKeys::default());
    let mut decided = Tiling::default();
    for target in targets(package, &subject.shape, &root).map_err(PlanError::from)? {
        let (key, _) = plan::tuning_key(&setting, package, &subject.shape, &decided, &target, &root, &builds)
            .map_err(PlanError::from)?;
        let history = workspace.ledger.tuning_path(&subject.id, &target, &key);
        if history.is_file() {
            copy(&history, &folder.join(target.to_string()).join("autotuning.json"))?;
        }
        let chosen = match &target {
            TuneTarget::Pipeline => Some(&prepared.tiling.pipeline),
            TuneTarget::Stage(name) => prepared.tiling.stages.get(name),
        };
        plan::decide(&mut decided, &target, chosen.cloned().unwrap_or_default());
    }
    Ok(())
}

pub(super) fn write_json(path: &Path, value: &Json) -> Result<(), PublishError> {
    write_text(path, &format!("{value:#}\n"))
}

pub(super) fn write_text(path: &Path, text: &str) -> Result<(), PublishError> {
    atomic::write(path, text.as_bytes(), Durability::Cached).map_err(PublishError::io(path))
}

fn copy(from: &Path, to: &Path) -> Result<(), PublishError> {
    let bytes = fs::read(from).map_err(PublishError::io(from))?;
    atomic::write(to, &bytes, Durability::Cached).map_err(PublishError::io(to))
}

/// Copies a folder with everything in it.
fn copy_folder(from: &Path, to: &Path) -> Result<(), PublishError> {
    for entry in fs::read_dir(from).map_err(PublishError::io(from))? {
        let entry = entry.map_err(PublishError::io(from))?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() { copy_folder(&from, &to)? } else { copy(&from, &to)? }
    }
    Ok(())
}
