//! `mlarun compare A B`: two kernels against one another until a verdict can be given.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value as Json, json};

use super::args::{CompareArgs, Global};
use super::context::{self, Opened};
use super::exit::{CliError, Exit};
use super::output;
use super::progress::Progress;
use super::run::{acquire, bench_error, failure_exit};
use crate::app::{CompareError, Compared, Control, FoundSide, Pair, Side, SideError, single_shot_shape};
use crate::execute::Pace;
use crate::model::calibration::HostCalibration;
use crate::model::record::Format;
use crate::model::{DeviceKind, Language, Shape};
use crate::pairs::Standing;
use crate::report::attribution::attribution;
use crate::report::calibration::sentence;
use crate::report::numbers::{change_of_speed, counted, duration};
use crate::report::verdict;
use crate::stats::verdict::Verdict;

/// Version of the JSON.
const FORMAT: Format = Format { major: 1, minor: 0 };

pub fn run(global: &Global, args: &CompareArgs) -> Result<Exit, CliError> {
    let budget = args.budget.as_deref().map(super::calibrate::budget).transpose()?;
    let project = context::project_here(global)?;
    let kind = context::host_kind(global);
    let language = args.language.unwrap_or(match kind {
        DeviceKind::Cpu => Language::C,
        DeviceKind::Gpu => Language::Cuda,
    });
    let find = |text: &str| FoundSide::find(text, &project, language).map_err(side_error);
    let (baseline, candidate) = (find(&args.baseline)?, find(&args.candidate)?);
    let language = same_language(&baseline, &candidate)?;
    if language.device() == DeviceKind::Gpu && kind == DeviceKind::Cpu {
        return Err(CliError::host(format!("kernels in {language} need a GPU, and this host shows none")));
    }
    let shape = shape(&[baseline.side(&project), candidate.side(&project)], &args.parameters)?;
    let interrupted = context::interruptible()?;
    super::clocks::recover(global)?;
    let machine = context::machine(global, &project, language.device())?;
    let ledger = context::ledger(&project)?;
    let opened = Opened { project, machine, ledger };
    let lease = acquire(global, opened.machine.gpu.as_ref(), args.no_wait, &interrupted)?;
    let mut progress = Progress::new(global, 0.0);
    let mut control = Control {
        observer: &mut progress,
        interrupted: Arc::clone(&interrupted),
        fail_fast: true,
        worker: context::worker()?,
        tape: None,
    };
    let pair = Pair {
        candidate: candidate.side(&opened.project),
        baseline: baseline.side(&opened.project),
        shape: shape.clone(),
    };
    let pace = Pace { rounds: args.rounds.unwrap_or(Pace::default().rounds), budget, timing: args.timing };
    if global.quiet == 0 {
        let (old, new) = (called(&pair.baseline), called(&pair.candidate));
        let rounds = counted(pace.rounds, "round");
        output::note(&format!(
            "comparing {new} with {old}: at most {rounds}, a fresh process of each side in every one"
        ));
    }
    let workspace = opened.workspace();
    let compared = workspace.compare(std::slice::from_ref(&pair), &pace, &mut control);
    drop((progress, lease));
    let compared = compared.map_err(compare_error)?;
    if interrupted.load(Ordering::Relaxed) {
        output::note("interrupted; every sample set that was finished is kept");
    }
    let [compared] = &compared[..] else { unreachable!("one pair was asked for") };
    let clocks = workspace.calibration_clocks().map_err(super::calibrate::sitting_error)?;
    let host = workspace.host_calibration(&clocks).map_err(CliError::host)?;
    match global.json {
        true => output::json(&data(&pair, compared, host.as_ref()))?,
        false => output::text(&text(args, &pair, compared, host.as_ref()))?,
    }
    Ok(exit(compared, args).and(if interrupted.load(Ordering::Relaxed) { Exit::Interrupted } else { Exit::Success }))
}

fn same_language(baseline: &FoundSide, candidate: &FoundSide) -> Result<Language, CliError> {
    let (old, new) = (baseline.id.language, candidate.id.language);
    match old == new {
        true => Ok(new),
        false => Err(CliError::usage(format!(
            "{} is in {old} and {} in {new}: name two of one language, which run on one device",
            baseline.id, candidate.id
        ))),
    }
}

/// The shape that the parameters give; each must be one of some side.
fn shape(sides: &[Side<'_>], parameters: &[String]) -> Result<Shape, CliError> {
    let packages: Vec<_> = sides.iter().filter_map(|side| side.project.catalog.package(&side.id).ok()).collect();
    let mut shape = Shape::default();
    for parameter in parameters {
        let name = parameter.split_once('=').map_or(parameter.as_str(), |(name, _)| name);
        let package = packages.iter().find(|package| package.parameter(name).is_some()).or(packages.first());
        let package = package.ok_or_else(|| CliError::internal("a side that was found has no package"))?;
        let one = single_shot_shape(package, std::slice::from_ref(parameter)).map_err(CliError::usage)?;
        for (name, value) in one.0 {
            if shape.0.insert(name.clone(), value).is_some() {
                return Err(CliError::usage(format!("--{name} is given twice")));
            }
        }
    }
    Ok(shape)
}

fn exit(compared: &Compared, args: &CompareArgs) -> Exit {
    if let Some(failure) = &compared.failure {
        return failure_exit(failure.failure.kind);
    }
    let verdict = compared.standing.judged().map(|judged| judged.judgement.verdict);
    let is_slower = args.fail_on_regression && verdict == Some(Verdict::Slower);
    if is_slower { Exit::Regression } else { Exit::Success }
}

fn side_error(error: SideError) -> CliError {
    match error {
        SideError::Lookup { error: crate::catalog::LookupError::Broken { diagnostics, .. }, .. } => {
            CliError::Diagnostics(Exit::Usage, diagnostics)
        }
        error @ SideError::Io { .. } => CliError::host(error),
        error => CliError::usage(error),
    }
}

fn compare_error(error: CompareError) -> CliError {
    match error {
        CompareError::Bench(error) => bench_error(error),
        CompareError::Refused { .. } => CliError::Message(Exit::RunsFailed, error.to_string()),
        CompareError::Interrupted => {
            CliError::Message(Exit::Interrupted, "interrupted; every sample set that was finished is kept".to_owned())
        }
    }
}

/// What a side is called.
fn called(side: &Side<'_>) -> String {
    let revision = side.revision.as_ref().map(|revision| format!(" at {revision:.12}")).unwrap_or_default();
    format!("{}{revision}", side.id)
}

fn text(args: &CompareArgs, pair: &Pair<'_>, compared: &Compared, host: Option<&HostCalibration>) -> String {
    let key = |of: fn(&(crate::model::Key, crate::model::Key)) -> crate::model::Key| {
        compared.keys.as_ref().map(|keys| format!(", record {}", of(keys).short())).unwrap_or_default()
    };
    let mut lines = vec![
        format!("baseline   {}{}", called(&pair.baseline), key(|keys| keys.1)),
        format!("candidate  {}{}", called(&pair.candidate), key(|keys| keys.0)),
    ];
    if let Some((record, _)) = compared.records.as_deref() {
        lines.push(format!("shape      {}", record.labels.shape));
    }
    lines.push(format!("verdict    {}", verdict::word(&compared.standing)));
    if let Some(judged) = compared.standing.judged() {
        let judgement = &judged.judgement;
        if let Some(effect) = judgement.effect {
            let (old, new) = (duration(effect.baseline_ns), duration(effect.candidate_ns));
            let change = change_of_speed(Some(effect.change()));
            let (interval, level) = (verdict::interval(judgement), verdict::level(judgement));
            lines.push(format!("change     {change}: {old} before, {new} now"));
            lines.push(format!("interval   {interval} ({level})"));
        }
        lines.push(format!("from       {}", verdict::origin(judged)));
    }
    lines.extend(
        compared.failure.iter().map(|failed| format!("failed     {}: {}", failed.name, failed.failure.message)),
    );
    lines.extend(verdict::remarks(&compared.standing).into_iter().map(|remark| format!("note       {remark}")));
    if compared.cut_short {
        let what = args
            .budget
            .as_ref()
            .map_or("it was interrupted".to_owned(), |budget| format!("--budget {budget} ended it"));
        lines.push(format!("note       {what} before the last look"));
    }
    lines.extend(differences(compared).into_iter().map(|difference| format!("differs    {difference}")));
    lines.extend(host.filter(|_| compared.standing.judged().is_some()).map(sentence));
    lines.push(String::new());
    lines.join("\n")
}

/// What may explain that the candidate is slower.
fn differences(compared: &Compared) -> Vec<String> {
    let is_slower = compared.standing.judged().is_some_and(|judged| judged.judgement.verdict == Verdict::Slower);
    let records = compared.records.as_deref().filter(|_| is_slower);
    records.map(|(candidate, baseline)| attribution(baseline, candidate)).unwrap_or_default()
}

fn data(pair: &Pair<'_>, compared: &Compared, host: Option<&HostCalibration>) -> Json {
    let side = |side: &Side<'_>, key: Option<crate::model::Key>| {
        json!({ "kernel": side.id.kernel, "version": side.id.version, "language": side.id.language,
                "revision": side.revision, "key": key })
    };
    let judged = compared.standing.judged();
    let effect = judged.and_then(|judged| judged.judgement.effect);
    let interval = judged.and_then(|judged| judged.judgement.interval());
    json!({
        "format": FORMAT,
        "baseline": side(&pair.baseline, compared.keys.map(|keys| keys.1)),
        "candidate": side(&pair.candidate, compared.keys.map(|keys| keys.0)),
        "shape": compared.records.as_deref().map_or(&pair.shape, |(record, _)| &record.labels.shape),
        "verdict": verdict::word(&compared.standing),
        "reason": match &compared.standing {
            Standing::Unjudged(why) => json!(why),
            _ => Json::Null,
        },
        "change": effect.map(|effect| effect.change()),
        "interval": interval.map(|(low, high)| json!({ "low": low, "high": high })),
        "baseline_ns": effect.map(|effect| effect.baseline_ns),
        "candidate_ns": effect.map(|effect| effect.candidate_ns),
        "judged": judged,
        "remarks": verdict::remarks(&compared.standing),
        "host": host,
        "cut_short": compared.cut_short,
        "failure": compared.failure.as_ref().map(|failed| json!({
            "name": failed.name.to_string(), "reason": failed.failure.message,
        })),
        "differences": differences(compared),
    })
}
