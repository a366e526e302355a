//! Nsight Compute around a worker: how it is started, and whose launches the ones are that it reports. Pure.

use std::ffi::OsString;
use std::path::Path;

use super::{Asked, NcuFailure, counters};
use crate::conf::Metrics;
use crate::model::ncu::{Capability, KernelNames, Launch, NcuProfile, NcuReport, StageProfile};
use crate::model::protocol::{
    Check, Collect, Counters, Failure, FailureKind, Launchable, Line, NcuProtocol, Profiled, Task, Verification,
};
use crate::model::quantity::Reading;
use crate::model::record::{AnnotationPass, NcuRun, StageMeasurement};

/// Form of the names of kernels that [`arguments`] asks for.
pub const NAMES: KernelNames = KernelNames::Function;

/// The worker's task for one subject or several.
pub fn task(launchables: Vec<Launchable>, protocol: NcuProtocol, check: &Check, report: Option<String>) -> Task {
    let profiled = |launchable: Launchable| {
        let wanted = |name: &String| launchable.pipeline.stages.iter().position(|stage| stage.name == *name);
        Profiled { stage: protocol.stage.as_ref().and_then(wanted), launchable, check: check.clone() }
    };
    Task::Profile { subjects: launchables.into_iter().map(profiled).collect(), protocol, report }
}

/// Arguments before the worker's command line. The tool writes what it has to say to `log`, and its report to `report`.
/// Sources are looked for below `sources` too. Clocks are left as they are: mlarun holds them, or nobody does.
pub fn arguments(collect: &Collect, log: &Path, report: Option<&Path>, sources: &Path) -> Vec<OsString> {
    let mut arguments: Vec<OsString> =
        ["--clock-control", "none", "--profile-from-start", "off", "--kernel-name-base", "function"]
            .map(OsString::from)
            .to_vec();
    arguments.extend(["--log-file".into(), log.into()]);
    match collect {
        Collect::Metrics { metrics, sections } => {
            arguments.extend(["--csv", "--page", "details", "--print-units", "base"].map(OsString::from));
            arguments.extend(["--metrics".into(), metrics.join(",").into()]);
            sections.iter().for_each(|section| arguments.extend(["--section".into(), section.into()]));
        }
        Collect::Full { metrics } => {
            arguments.extend(["--metrics".into(), metrics.join(",").into()]);
            arguments.extend(["--set", "full", "--import-source", "yes", "--source-folders"].map(OsString::from));
            arguments.push(sources.into());
        }
    }
    if let Some(report) = report {
        arguments.extend(["--force-overwrite".into(), "--export".into(), report.into()]);
    }
    arguments
}

/// A page of a kept report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    Raw,
    Details,
    /// Machine code with what was sampled on each instruction.
    Sass,
    /// Lines of source, each with its instructions.
    SourceAndSass,
}

impl Page {
    /// Arguments that print the page of the report `report` as CSV.
    pub fn arguments(self, report: &Path) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["--import".into(), report.into()];
        arguments.extend(["--csv", "--print-units", "base", "--print-kernel-base", "function"].map(OsString::from));
        let page: &[&str] = match self {
            Page::Raw => &["--page", "raw"],
            Page::Details => &["--page", "details", "--print-details", "all"],
            Page::Sass => &["--page", "source", "--print-source", "sass"],
            Page::SourceAndSass => &["--page", "source", "--print-source", "cuda,sass"],
        };
        arguments.extend(page.iter().map(OsString::from));
        arguments
    }
}

/// A source file as the project knows it. Modules are compiled in a folder that has gone, below whose `source/` the files lay as in
/// the project.
pub fn project_file(path: &str) -> &str {
    path.split_once("/builds/.writing-")
        .and_then(|(_, rest)| rest.split_once("/source/"))
        .map_or(path, |(_, file)| file)
}

/// What is to be delivered for the subjects that were launched.
pub fn asked(protocol: &NcuProtocol, launched: &[&Profiled]) -> Asked {
    let metrics = match &protocol.collect {
        Collect::Metrics { metrics, .. } | Collect::Full { metrics } => metrics.clone(),
    };
    Asked { metrics, launches: Some(launched.iter().map(|profiled| profiled.stages().count()).sum()) }
}

/// Places, in the request, of the subjects that the worker launched, in its order.
pub fn launched(lines: &[Line]) -> Vec<usize> {
    let place = |line: &Line| match line {
        Line::Launched { subject } => Some(*subject),
        _ => None,
    };
    lines.iter().filter_map(place).collect()
}

/// The launches of a report, subject by subject.
///
/// # Errors
/// A launch is of another kernel than the stage in its place.
pub fn assign(report: NcuReport, launched: &[&Profiled]) -> Result<Vec<NcuProfile>, NcuFailure> {
    let mut launches = report.launches.into_iter();
    launched.iter().map(|profiled| assign_one(profiled, &mut launches)).collect()
}

fn assign_one(profiled: &Profiled, launches: &mut impl Iterator<Item = Launch>) -> Result<NcuProfile, NcuFailure> {
    let entry = |name: &str| {
        let stages = &profiled.launchable.pipeline.stages;
        stages.iter().find(|stage| stage.name == name).map_or("", |stage| stage.entry.as_str()).to_owned()
    };
    let stage = |(name, launch): (&str, Launch)| match entry(name) == launch.kernel {
        true => Ok(StageProfile { stage: name.to_owned(), launch }),
        false => Err(NcuFailure::OtherKernel { stage: name.to_owned(), wanted: entry(name), found: launch.kernel }),
    };
    let stages = profiled.stages().zip(launches).map(stage).collect::<Result<_, _>>()?;
    Ok(NcuProfile { stages, ..NcuProfile::default() })
}

impl NcuFailure {
    /// Its place among the failures of runs. None of them is ever kept as a result.
    pub fn kind(&self) -> FailureKind {
        match self {
            NcuFailure::NoPermission => FailureKind::NotPermitted,
            NcuFailure::UnknownMetrics { .. } => FailureKind::UnknownMetric,
            NcuFailure::NoKernelMatched { .. } | NcuFailure::Launches { .. } | NcuFailure::OtherKernel { .. } => {
                FailureKind::NoKernel
            }
            NcuFailure::ReplayOutOfMemory { .. } => FailureKind::OutOfMemory,
            NcuFailure::Failed { .. } | NcuFailure::NoData { .. } | NcuFailure::Unreadable(_) => FailureKind::NoData,
        }
    }
}

impl From<NcuFailure> for Failure {
    fn from(failure: NcuFailure) -> Failure {
        Failure { kind: failure.kind(), stage: None, message: failure.to_string() }
    }
}

/// What became of the subject at place `subject` of a request, in the answer's lines.
///
/// # Errors
/// It was dropped, or a part of the answer is missing.
pub fn collect(
    lines: &[Line],
    subject: usize,
    protocol: &NcuProtocol,
    capability: Capability,
    metrics: &Metrics,
) -> Result<AnnotationPass, Failure> {
    let dropped = |line: &Line| match line {
        Line::Dropped { subject: of, failure } if *of == subject => Some(failure.clone()),
        _ => None,
    };
    if let Some(failure) = lines.iter().find_map(dropped) {
        return Err(failure);
    }
    let profile = |line: &Line| match line {
        Line::Profiled { subject: of, profile } if *of == subject => Some(profile.clone()),
        _ => None,
    };
    let kept = |line: &Line| match line {
        Line::Kept { subject: of, verification } if *of == subject => Some(verification.clone()),
        _ => None,
    };
    let profile = lines.iter().find_map(profile).ok_or_else(|| crate::profiler::missing("what Nsight Compute saw"))?;
    let verification = lines.iter().find_map(kept).ok_or_else(|| crate::profiler::missing("a verification"))?;
    pass(profile, verification, protocol, capability, metrics)
}

fn pass(
    profile: NcuProfile,
    verification: Verification,
    protocol: &NcuProtocol,
    capability: Capability,
    metrics: &Metrics,
) -> Result<AnnotationPass, Failure> {
    let NcuProfile { stages, sources, report } = profile;
    let stages = stages.into_iter().map(|stage| measurement(stage, capability, metrics)).collect::<Result<_, _>>()?;
    let run = NcuRun { version: protocol.version.clone(), asked: metrics.to_ask(capability), sources, report };
    Ok(AnnotationPass { ncu: Some(run), stages, verification })
}

/// A stage's launch with mlarun's own counters.
fn measurement(profiled: StageProfile, capability: Capability, metrics: &Metrics) -> Result<StageMeasurement, Failure> {
    use crate::conf::CounterName;
    let StageProfile { stage, launch } = profiled;
    let mut counted = std::collections::BTreeMap::new();
    for (name, reading) in counters(&launch, capability, metrics) {
        match reading {
            Reading::Number { value, .. } => drop(counted.insert(name.key().to_owned(), value)),
            // A stage without a time is no result, whatever else is known of it.
            other if name == CounterName::Duration => {
                let message = format!("Nsight Compute gives no time for it: {other}");
                return Err(Failure { kind: FailureKind::UnknownMetric, stage: Some(stage), message });
            }
            _ => {}
        }
    }
    let ns = counted[CounterName::Duration.key()];
    if ns <= 0.0 {
        let message = format!("Nsight Compute gives it a time of {ns} ns");
        return Err(Failure { kind: FailureKind::NoData, stage: Some(stage), message });
    }
    Ok(StageMeasurement { stage, ns: vec![ns], counters: Counters::Counted(counted), launch: Some(launch) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_named_as_in_the_project() {
        let built = "/p/.cache/builds/.writing-1LSFtU/source/kernels/cuda/common/mma.cuh";
        assert_eq!(project_file(built), "kernels/cuda/common/mma.cuh");
        assert_eq!(project_file("/usr/include/cuda_bf16.h"), "/usr/include/cuda_bf16.h");
    }
}
