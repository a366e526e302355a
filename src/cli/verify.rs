//! `mlarun verify`: whether every kernel of an experiment is right, and nothing measured.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::args::{Global, VerifyArgs};
use super::context::{self, Opened};
use super::exit::{CliError, Exit};
use super::output;
use super::progress::Progress;
use super::run::{acquire, bench_error, failure_exit};
use crate::app::{Control, SanitizerError, Verified, VerifyError, Workspace};
use crate::execute::Sanitizer;
use crate::manifest::Experiment;
use crate::model::{Choices, KernelId, Value};
use crate::plan::{Wanted, space};
use crate::profiler::sanitizer::SanitizerTool;
use crate::report::Verdict;

/// Verifies every manifest; the worst end of all is the command's.
pub fn run(global: &Global, args: &VerifyArgs) -> Result<Exit, CliError> {
    let interrupted = context::interruptible()?;
    context::each(&args.manifests, &interrupted, |manifest| one(global, args, manifest, &interrupted))
}

fn one(global: &Global, args: &VerifyArgs, manifest: &Path, interrupted: &Arc<AtomicBool>) -> Result<Exit, CliError> {
    let project = context::project(global, manifest)?;
    let experiment = context::experiment(global, manifest, &args.selection.sets, &project)?;
    let mut opened = Opened::of(global, project, experiment.device)?;
    let only = context::only(&args.selection)?;
    let tile = tile(&args.tile)?;
    check_tile(&opened.workspace(), &experiment, &tile)?;
    let mut progress = Progress::new(global, 0.0);
    let mut control = Control {
        observer: &mut progress,
        interrupted: Arc::clone(interrupted),
        fail_fast: args.fail_fast,
        worker: context::worker()?,
        tape: None,
    };
    let sanitizer = sanitizer(&opened.workspace(), args.sanitize.as_deref(), &control)?;
    let lease = acquire(global, opened.machine.gpu.as_ref(), args.no_wait, interrupted)?;
    // Whoever held the lease before may have verified what this was to verify.
    opened.ledger = context::ledger(&opened.project)?;
    let workspace = opened.workspace();
    let wanted = Wanted { only: only.as_ref(), tile: Some(&tile), ..Wanted::default() };
    let bench = workspace.plan_verification(experiment, wanted).map_err(bench_error)?;
    if bench.plan.subjects.is_empty() {
        let name = &bench.experiment.name;
        return Err(CliError::usage(format!("nothing of {name} is selected, so that nothing would be verified")));
    }
    let verified = workspace.verify(&bench, args.selection.remeasure, sanitizer, &mut control).map_err(verify_error)?;
    drop((progress, lease));
    if global.json {
        output::text(&verified.report.json())?;
    } else {
        print(&verified)?;
    }
    if global.quiet < 2 {
        output::note(&format!("table: {}", verified.path.display()));
    }
    Ok(exit(&verified, interrupted))
}

/// The sanitizer that `tools` (the value of --sanitize, names after commas) asks for.
pub fn sanitizer(
    workspace: &Workspace<'_>,
    tools: Option<&str>,
    control: &Control<'_>,
) -> Result<Option<Sanitizer>, CliError> {
    let names = tools.into_iter().flat_map(|tools| tools.split(','));
    let mut tools: Vec<SanitizerTool> =
        names.map(|name| name.trim().parse()).collect::<Result<_, _>>().map_err(CliError::usage)?;
    tools.sort();
    tools.dedup();
    workspace.sanitizer(&tools, control).map_err(|error| match error {
        SanitizerError::Cpu => CliError::usage(error),
        SanitizerError::Missing(_) => CliError::host(error),
    })
}

/// The choices that `given` (each `NAME=VALUE`) names.
fn tile(given: &[String]) -> Result<Choices, CliError> {
    let choice = |text: &String| {
        let (name, value) =
            text.split_once('=').ok_or_else(|| CliError::usage(format!("--tile `{text}` is not NAME=VALUE")))?;
        let number = value.parse().map(Value::Int).ok();
        let value = number.or_else(|| value.parse().map(Value::Bool).ok()).unwrap_or_else(|| value.into());
        Ok((name.to_owned(), value))
    };
    given.iter().map(choice).collect()
}

/// A choice that no kernel has is a slip.
fn check_tile(workspace: &Workspace<'_>, experiment: &Experiment, tile: &Choices) -> Result<(), CliError> {
    let mut known = Choices::new();
    for selection in &experiment.kernels {
        for &version in &selection.versions {
            let id = KernelId { kernel: selection.kernel.clone(), version, language: experiment.language };
            let package = workspace.project.catalog.package(&id).map_err(CliError::usage)?;
            known.extend(space::pinned(package, Some(tile)));
        }
    }
    match tile.keys().find(|name| !known.contains_key(*name)) {
        Some(name) => Err(CliError::usage(format!(
            "--tile {name}: no kernel of {} has that choice in its [space] (see kernel.toml)",
            experiment.name
        ))),
        None => Ok(()),
    }
}

fn print(verified: &Verified) -> Result<(), CliError> {
    let rows = verified.report.all_rows();
    if !rows.is_empty() {
        let header = ["KERNEL", "VERSION", "SHAPE", "ERROR", "WORST ROW", "ROWS", "REDUCED", "SAME BITS"];
        let mut table = output::table(&header);
        for row in rows {
            table.add_row([
                row.kernel,
                row.version,
                row.shape,
                row.error,
                row.worst_row,
                row.rows,
                row.reduced,
                row.same_bits.to_owned(),
            ]);
        }
        output::text(&output::table_text(&table))?;
    }
    output::text(&format!("\n{}\n", verified.report.summary()))?;
    for subject in &verified.report.subjects {
        if let Verdict::Refused { reason } = &subject.verdict {
            output::note(&format!("REFUSED {} {}: {reason}", subject.id, subject.label));
        }
    }
    Ok(())
}

fn verify_error(error: VerifyError) -> CliError {
    match error {
        VerifyError::Bench(error) => bench_error(error),
        error @ (VerifyError::Store(_) | VerifyError::Publish(_)) => CliError::host(error),
    }
}

fn exit(verified: &Verified, interrupted: &AtomicBool) -> Exit {
    if interrupted.load(Ordering::Relaxed) {
        return Exit::Interrupted;
    }
    let is_refused = |verdict: &Verdict| matches!(verdict, Verdict::Refused { .. });
    let any_refused = verified.report.subjects.iter().any(|subject| is_refused(&subject.verdict));
    let refused = if any_refused { Exit::RunsFailed } else { Exit::Success };
    verified.outcome.failures.iter().map(|failed| failure_exit(failed.failure.kind)).fold(refused, Exit::and)
}
