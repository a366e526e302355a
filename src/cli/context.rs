//! What commands open before they do their work, with errors turned into exit codes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::args::{Global, Selection};
use super::exit::{CliError, Exit};
use super::output;
use crate::app::{self, Bench, Choice, Ledger, Machine, MachineError, Project, Workspace};
use crate::diagnostic::Diagnostic;
use crate::expr::Expr;
use crate::manifest::{self, Document, Experiment, Source};
use crate::model::DeviceKind;

/// Opens the project that `start` (a manifest, or a folder) belongs to.
pub fn project(global: &Global, start: &Path) -> Result<Project, CliError> {
    Project::open(start, global.root.as_deref(), global.out.as_deref()).map_err(CliError::usage)
}

/// Opens the project of the current folder.
pub fn project_here(global: &Global) -> Result<Project, CliError> {
    project(global, Path::new("."))
}

/// Kind of the device that kernels run on unless a manifest says otherwise.
pub fn host_kind(global: &Global) -> DeviceKind {
    match global.device.as_deref() {
        Some("cpu") => DeviceKind::Cpu,
        Some(_) => DeviceKind::Gpu,
        None => app::default_kind(),
    }
}

pub fn machine(global: &Global, project: &Project, kind: DeviceKind) -> Result<Machine, CliError> {
    let gpu = global.device.as_deref().filter(|device| !["cpu", "gpu"].contains(device));
    let choice = Choice { kind, gpu, worker: &worker()?, clocks: global.clocks };
    Machine::probe(project, choice).map_err(|error| match error {
        MachineError::Clocks(error) => CliError::usage(error),
        error => CliError::host(error),
    })
}

pub fn ledger(project: &Project) -> Result<Ledger, CliError> {
    let ledger = Ledger::open(project).map_err(CliError::host)?;
    for warning in ledger.take_warnings() {
        output::note(&format!("warning: {warning}"));
    }
    Ok(ledger)
}

/// Project, host and records, owned.
pub struct Opened {
    pub project: Project,
    pub machine: Machine,
    pub ledger: Ledger,
}

impl Opened {
    /// `project` with a device of the kind `kind`.
    pub fn of(global: &Global, project: Project, kind: DeviceKind) -> Result<Opened, CliError> {
        let machine = machine(global, &project, kind)?;
        let ledger = ledger(&project)?;
        Ok(Opened { project, machine, ledger })
    }

    pub fn workspace(&self) -> Workspace<'_> {
        Workspace { project: &self.project, machine: &self.machine, ledger: &self.ledger }
    }
}

/// Reads a manifest with its overrides.
pub fn document(path: &Path, sets: &[String]) -> Result<Document, CliError> {
    let bytes = std::fs::read(path)
        .map_err(|error| CliError::usage(format!("{}: {error}; name a manifest that can be read", path.display())))?;
    let text = String::from_utf8(bytes)
        .map_err(|error| CliError::usage(format!("{}: {error}; manifests are UTF-8", path.display())))?;
    manifest::parse(Source { path: path.to_owned(), text }, sets)
        .map_err(|diagnostics| CliError::Diagnostics(Exit::Usage, diagnostics))
}

/// What a manifest means on this host; warnings are printed.
pub fn experiment(global: &Global, path: &Path, sets: &[String], project: &Project) -> Result<Experiment, CliError> {
    let (experiment, warnings) = resolve(path, sets, project, host_kind(global))?;
    if global.quiet < 2 {
        output::diagnostics(&warnings, global.color);
    }
    Ok(experiment)
}

/// What a manifest means on a host with a device of the kind `host`, with warnings.
pub fn resolve(
    path: &Path,
    sets: &[String],
    project: &Project,
    host: DeviceKind,
) -> Result<(Experiment, Vec<Diagnostic>), CliError> {
    let document = document(path, sets)?;
    let resolved = manifest::resolve(&document, &project.catalog, host).map_err(|error| match error {
        manifest::Error::Invalid(diagnostics) => CliError::Diagnostics(Exit::Usage, diagnostics),
        manifest::Error::NoDevice { diagnostic, .. } => CliError::Diagnostics(Exit::HostLacks, vec![*diagnostic]),
    })?;
    app::check_baselines(&resolved.0).map_err(CliError::usage)?;
    Ok(resolved)
}

/// The filter of `--only`.
pub fn only(selection: &Selection) -> Result<Option<Expr>, CliError> {
    filter(selection.only.as_deref())
}

/// The filter `only`.
pub fn filter(only: Option<&str>) -> Result<Option<Expr>, CliError> {
    let parsed = only.map(str::parse::<Expr>).transpose();
    parsed.map_err(|error| CliError::usage(format!("--only: {error}")))
}

/// Says that the filter of `--only` leaves nothing of an experiment.
pub fn warn_of_nothing(global: &Global, selection: &Selection, bench: &Bench) {
    if let Some(only) = &selection.only
        && bench.plan.subjects.is_empty()
        && global.quiet < 2
    {
        output::note(&format!(
            "warning: --only `{only}` selects no run of {}; `mlarun plan` without it shows all",
            bench.experiment.name
        ));
    }
}

/// This program, which also serves as worker. A test may name a stand-in for it, which a release build does not heed.
pub fn worker() -> Result<PathBuf, CliError> {
    #[cfg(debug_assertions)]
    if let Some(stand_in) = std::env::var_os("MLARUN_TEST_WORKER") {
        return Ok(stand_in.into());
    }
    std::env::current_exe().map_err(|error| CliError::internal(format!("this program's own path: {error}")))
}

/// A flag that SIGINT, SIGTERM and SIGHUP set. A second signal ends the process at once.
pub fn interruptible() -> Result<Arc<AtomicBool>, CliError> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let interrupted = Arc::new(AtomicBool::new(false));
    let code = i32::from(Exit::Interrupted.code());
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // The shutdown is armed by the first signal, which the flag below receives.
        signal_hook::flag::register_conditional_shutdown(signal, code, Arc::clone(&interrupted))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&interrupted)))
            .map_err(|error| CliError::internal(format!("signal handlers: {error}")))?;
    }
    Ok(interrupted)
}

/// Does `one` for every manifest until the user interrupts; the worst end of all is the command's.
pub fn each(
    manifests: &[PathBuf],
    interrupted: &AtomicBool,
    mut one: impl FnMut(&Path) -> Result<Exit, CliError>,
) -> Result<Exit, CliError> {
    let mut exit = Exit::Success;
    for manifest in manifests {
        if interrupted.load(Ordering::Relaxed) {
            return Ok(Exit::Interrupted);
        }
        exit = exit.and(one(manifest)?);
    }
    Ok(exit)
}
