//! `mlarun profile`: one kernel at one shape, in one mode.

use super::args::{Global, ProfType, ProfileArgs};
use super::context::{self, Opened};
use super::exit::{CliError, Exit};
use super::output;
use super::progress::Progress;
use super::run::{acquire, bench_error, calibrate_once, failure_exit};
use super::verify::sanitizer;
use crate::app::modes::{self, Options, ProfileError, ProfilePlan};
use crate::app::{Control, PublishError, single_shot_shape, verify_only};
use crate::model::{DeviceKind, Language, Mode, Shape, Version};

pub fn run(global: &Global, args: &ProfileArgs) -> Result<Exit, CliError> {
    if args.check && args.prof_type != ProfType::Disabled {
        return Err(CliError::usage("--check goes with --prof_type=disabled; the other modes verify by themselves"));
    }
    if args.sanitize.is_some() && args.prof_type != ProfType::Disabled {
        return Err(CliError::usage(
            "--sanitize goes with --prof_type=disabled: what a sanitizer watches has no true time",
        ));
    }
    if args.tool.is_some() && args.prof_type != ProfType::Nsys {
        return Err(CliError::usage("--tool goes with --prof_type=nsys: it says what traces the timeline"));
    }
    let project = context::project_here(global)?;
    let kind = context::host_kind(global);
    let language = args.language.unwrap_or(match kind {
        DeviceKind::Cpu => Language::C,
        DeviceKind::Gpu => Language::Cuda,
    });
    if language.device() == DeviceKind::Gpu && kind == DeviceKind::Cpu {
        return Err(CliError::host(format!("kernels in {language} need a GPU, and this host shows none")));
    }
    let version = version(&project, args, language)?;
    let shape = shape(&project, args, language, version)?;
    let mut opened = Opened::of(global, project, language.device())?;
    let interrupted = context::interruptible()?;
    let plan = ProfilePlan {
        remeasure: args.remeasure,
        stage: args.stage.clone(),
        ..ProfilePlan::of_version(&args.kernel, language, version, shape)
    };
    let (out_dir, bench_runs, tool) = (args.out_dir.as_deref(), args.bench_runs, args.tool);
    let options = Options { out_dir, version: None, bench_runs, tool };
    let mode = args.prof_type.mode();
    let has_work = match mode.map(|mode| modes::is_recorded(&opened.workspace(), &plan, mode, options)) {
        Some(Err(error)) => return without_result(global, mode, error),
        Some(Ok(is_recorded)) => !is_recorded,
        None => true,
    };
    let lease =
        if has_work { Some(acquire(global, opened.machine.gpu.as_ref(), args.no_wait, &interrupted)?) } else { None };
    if lease.is_some() {
        // Whoever held the lease before may have measured what was missing.
        opened.ledger = context::ledger(&opened.project)?;
        if mode.is_some() {
            calibrate_once(global, &mut opened, &interrupted)?;
        }
    }
    let mut progress = Progress::new(global, 0.0);
    let worker = context::worker()?;
    let mut control = Control { observer: &mut progress, interrupted, fail_fast: true, worker, tape: None };
    let workspace = opened.workspace();
    let sanitizer = sanitizer(&workspace, args.sanitize.as_deref(), &control)?;
    let result = match mode {
        Some(mode) => modes::run(&workspace, &plan, mode, options, &mut control).map(Some),
        None => verify_only(&workspace, &plan, sanitizer, &mut control).map(|()| None),
    };
    drop((progress, lease));
    match result {
        Ok(Some(profile)) => finish(global, mode, &profile),
        Ok(None) => {
            if global.json {
                output::json(&serde_json::json!({ "verified": true }))?;
            }
            Ok(Exit::Success)
        }
        Err(error) => without_result(global, mode, error),
    }
}

fn finish(global: &Global, mode: Option<Mode>, profile: &modes::Profile) -> Result<Exit, CliError> {
    if global.json {
        let mode = mode.map(Mode::name);
        output::json(&serde_json::json!({ "mode": mode, "folder": profile.folder, "report": profile.report }))?;
    } else {
        output::text(&profile.report)?;
    }
    if global.quiet < 2 {
        output::note(&format!("artifacts: {}", profile.folder.display()));
    }
    Ok(Exit::Success)
}

/// How a single shot without a result ends.
fn without_result(global: &Global, mode: Option<Mode>, error: ProfileError) -> Result<Exit, CliError> {
    let (exit, outcome, reason) = match error {
        ProfileError::Skipped { reason } => {
            output::note(&format!("skipped: {reason}"));
            (Exit::Success, "skipped", reason)
        }
        // The session has said so when it happened.
        ProfileError::Failed(failure) => (failure_exit(failure.kind), "failed", failure.message),
        error => return Err(profile_error(error)),
    };
    if global.json {
        output::json(&serde_json::json!({ "mode": mode.map(Mode::name), outcome: reason }))?;
    }
    Ok(exit)
}

fn profile_error(error: ProfileError) -> CliError {
    match error {
        ProfileError::Refused { .. } => CliError::Message(Exit::RunsFailed, error.to_string()),
        ProfileError::Publish(error @ PublishError::Invalid(_)) => {
            CliError::Message(Exit::RunsFailed, error.to_string())
        }
        ProfileError::Interrupted => CliError::Message(Exit::Interrupted, "interrupted".to_owned()),
        ProfileError::Bench(error) => bench_error(error),
        ProfileError::Project(_) | ProfileError::Lookup(_) | ProfileError::NoStage { .. } | ProfileError::Scope(_) => {
            CliError::usage(error)
        }
        ProfileError::Machine(_) | ProfileError::Store(_) | ProfileError::Lease(_) => CliError::host(error),
        ProfileError::Skipped { .. } | ProfileError::Failed(_) | ProfileError::Publish(_) => CliError::internal(error),
    }
}

fn version(project: &crate::app::Project, args: &ProfileArgs, language: Language) -> Result<Version, CliError> {
    match args.version.as_deref() {
        None | Some("base") => Ok(Version::BASE),
        Some("latest") => project.catalog.latest(language, &args.kernel).ok_or_else(|| {
            CliError::usage(format!("there is no kernel `{}` in {language}; see `mlarun list`", args.kernel))
        }),
        Some(text) => text.parse().map_err(CliError::usage),
    }
}

/// The shape that the options `--NAME=VALUE` give.
fn shape(
    project: &crate::app::Project,
    args: &ProfileArgs,
    language: Language,
    version: Version,
) -> Result<Shape, CliError> {
    let id = crate::model::KernelId { kernel: args.kernel.clone(), version, language };
    let package = project.catalog.package(&id).map_err(CliError::usage)?;
    single_shot_shape(package, &args.parameters).map_err(CliError::usage)
}
