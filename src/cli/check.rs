//! `mlarun check`: everything that can be said about manifests without running anything.

use std::path::Path;

use serde::Serialize;

use super::args::{CheckArgs, Global};
use super::context;
use super::exit::{CliError, Exit};
use super::output::{self, Finding};
use crate::diagnostic::Diagnostic;
use crate::manifest::Experiment;
use crate::report::numbers::counted;

/// What there is to say about one manifest, for programs.
#[derive(Serialize)]
struct Checked<'a> {
    manifest: &'a Path,
    sound: bool,
    /// Runs on this host, beside those of baselines; `null` where it is not sound.
    runs: Option<usize>,
    /// What is wrong beside the places, e.g. a file that cannot be read.
    error: Option<String>,
    findings: Vec<Finding>,
}

pub fn run(global: &Global, args: &CheckArgs) -> Result<Exit, CliError> {
    let mut exit = Exit::Success;
    let mut all = Vec::new();
    for manifest in &args.manifests {
        let checked = check(global, manifest, &args.sets);
        if global.json {
            all.push(document(manifest, &checked));
        } else if let Ok((experiment, warnings)) = &checked {
            say(global, manifest, experiment, warnings);
        }
        exit = exit.and(match checked {
            Ok(_) => Exit::Success,
            Err(error) if global.json => error.exit(),
            Err(error) => output::report_error(&error, global.color),
        });
    }
    if global.json {
        output::json(&all)?;
    }
    Ok(exit)
}

fn check(global: &Global, manifest: &Path, sets: &[String]) -> Result<(Experiment, Vec<Diagnostic>), CliError> {
    let project = context::project(global, manifest)?;
    context::resolve(manifest, sets, &project, context::host_kind(global))
}

fn runs(experiment: &Experiment) -> usize {
    let versions: usize = experiment.kernels.iter().map(|kernel| kernel.versions.len()).sum();
    versions * experiment.shapes.len() * experiment.modes.len()
}

fn say(global: &Global, manifest: &Path, experiment: &Experiment, warnings: &[Diagnostic]) {
    if global.quiet < 2 {
        output::diagnostics(warnings, global.color);
    }
    if global.quiet == 0 {
        let runs = counted(runs(experiment), "run");
        output::note(&format!("{}: sound, {runs} on this host beside baselines", manifest.display()));
    }
}

fn document<'a>(manifest: &'a Path, checked: &Result<(Experiment, Vec<Diagnostic>), CliError>) -> Checked<'a> {
    let findings = |found: &[Diagnostic]| found.iter().map(Finding::of).collect();
    let (runs, error, findings) = match checked {
        Ok((experiment, warnings)) => (Some(runs(experiment)), None, findings(warnings)),
        Err(CliError::Diagnostics(_, found)) => (None, None, findings(found)),
        Err(CliError::Message(_, message)) => (None, Some(message.clone()), Vec::new()),
    };
    Checked { manifest, sound: checked.is_ok(), runs, error, findings }
}
