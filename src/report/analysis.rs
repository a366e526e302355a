//! All arithmetic of reports on one run: summaries of its samples and its place on the roofline, in SI units. No text.

use std::collections::BTreeMap;

use super::bottleneck::{Diagnosis, Evidence, diagnose};
use super::input::{Outcome, Run};
use super::timeline::Traced;
use crate::conf::{CounterName, Thresholds};
use crate::model::protocol::Counters;
use crate::model::record::{AnnotationPass, Body, NcuRun, Record, SampleSet};
use crate::model::{Key, Mode, Timing};
use crate::roofline::{Cost, Roof};
use crate::stats::{LEVEL, StatsError, Summary, median, summarize};

/// Names under which counters of a GPU are read, in percent.
pub(super) const DRAM: &str = "dram";
pub(super) const TENSOR_CORE: &str = "tensor_core";
pub(super) const OCCUPANCY: &str = "achieved_occupancy";
pub(super) const L2_HITS: &str = "l2_hit_rate";

/// Records cannot be made into a report.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AnalysisError {
    #[error("{run}: {what} cannot be summarized: {source}; run `mlarun cache verify`, then measure again")]
    Samples { run: String, what: String, source: StatsError },
    #[error("{run}: record {key} does not hold a measurement of {mode} mode; run `mlarun cache verify`")]
    Body { run: String, key: Key, mode: Mode },
    #[error("{run}: it counts as measured and has no record; run `mlarun cache verify`, then measure again")]
    NoRecord { run: String },
    #[error("{run}: the timeline of record {key} does not hold whole launches: {reason}; run `mlarun cache verify`")]
    Timeline { run: String, key: Key, reason: String },
}

/// One time with everything that follows from it: the whole pipeline, or one stage.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part {
    pub name: String,
    /// Nanoseconds.
    pub ns: f64,
    /// `None` for a sum of stages, which has no samples of its own.
    pub summary: Option<Summary>,
    pub cost: Option<Cost>,
    pub roof: Option<Roof>,
    pub counters: Option<Counters>,
    pub diagnosis: Option<Diagnosis>,
}

impl Part {
    pub fn flops_per_s(&self) -> Option<f64> {
        self.cost.and_then(|cost| cost.flops_per_s(self.ns))
    }

    pub fn bytes_per_s(&self) -> Option<f64> {
        self.cost.and_then(|cost| cost.bytes_per_s(self.ns))
    }

    pub fn floor_ns(&self) -> Option<f64> {
        Some(self.roof?.floor_ns(self.cost?))
    }

    /// Floor over time; 1 is the roofline.
    pub fn fraction(&self) -> Option<f64> {
        self.roof?.fraction(self.cost?, self.ns)
    }

    pub fn counter(&self, name: &str) -> Option<f64> {
        match self.counters.as_ref()? {
            Counters::Counted(counts) => counts.get(name).copied(),
            Counters::Absent { .. } => None,
        }
    }

    /// A counter of Nsight Compute, in the unit of `conf/metrics.toml`.
    pub fn counted(&self, name: CounterName) -> Option<f64> {
        self.counter(name.key())
    }
}

/// A measured run with its numbers.
#[derive(Debug)]
pub(super) struct Analysis<'a> {
    pub run: &'a Run,
    pub records: &'a [Record],
    /// Event mode: every timing.
    pub timings: BTreeMap<Timing, Summary>,
    /// Event mode: end to end, cold. Annotation mode: the sum of the stages.
    pub whole: Part,
    /// Annotation mode: every stage, in launch order.
    pub stages: Vec<Part>,
    /// Nsys mode: the timeline. All times are its tracer's, and none is put beside a work or a roofline.
    pub traced: Option<Traced<'a>>,
}

impl Analysis<'_> {
    /// The newest record.
    pub fn newest(&self) -> &Record {
        let newest = self.records.iter().max_by_key(|record| record.position.taken_at);
        newest.expect("an analysis has at least one record")
    }

    /// The newest pass of Nsight Compute with its run, where that measured.
    pub fn nsight(&self) -> Option<(&AnnotationPass, &NcuRun)> {
        match &self.newest().body {
            Body::Annotation(pass) | Body::Ncu(pass) => Some((pass, pass.ncu.as_ref()?)),
            Body::Event(_) | Body::Timeline(_) | Body::Verification { .. } => None,
        }
    }
}

/// What a run is called in messages.
pub(super) fn run_name(run: &Run) -> String {
    format!("{} {} at {}", run.mode, run.id, run.label)
}

/// Numbers of `run`; `None` when it was skipped or has failed.
pub(super) fn analyse<'a>(run: &'a Run, thresholds: &Thresholds) -> Result<Option<Analysis<'a>>, AnalysisError> {
    let Outcome::Measured(records) = &run.outcome else { return Ok(None) };
    if records.is_empty() {
        return Err(AnalysisError::NoRecord { run: run_name(run) });
    }
    match run.mode {
        Mode::Event => event(run, records, thresholds).map(Some),
        Mode::Annotation | Mode::Ncu => annotation(run, records, thresholds).map(Some),
        Mode::Nsys => timeline(run, records).map(Some),
    }
}

fn event<'a>(run: &'a Run, records: &'a [Record], thresholds: &Thresholds) -> Result<Analysis<'a>, AnalysisError> {
    let sets = bodies(run, records, |body| match body {
        Body::Event(set) => Some(set),
        Body::Annotation(_) | Body::Ncu(_) | Body::Timeline(_) | Body::Verification { .. } => None,
    })?;
    let mut timings = BTreeMap::new();
    for timing in [Timing::ColdIsolated, Timing::WarmIsolated, Timing::WarmBatched] {
        let processes = samples_of(&sets, timing);
        if !processes.is_empty() || timing == Timing::ColdIsolated {
            timings.insert(timing, summary(run, timing.name(), &processes)?);
        }
    }
    let cold = timings[&Timing::ColdIsolated].clone();
    let whole = part(run, "end to end", cold.median, Some(cold), total(run), None, thresholds);
    Ok(Analysis { run, records, timings, whole, stages: Vec::new(), traced: None })
}

fn samples_of<'a>(sets: &[&'a SampleSet], timing: Timing) -> Vec<&'a [f64]> {
    let of_set = |set: &&'a SampleSet| set.samples.iter().find(|samples| samples.timing == timing);
    sets.iter().filter_map(of_set).map(|samples| samples.ns.as_slice()).collect()
}

fn annotation<'a>(run: &'a Run, records: &'a [Record], thresholds: &Thresholds) -> Result<Analysis<'a>, AnalysisError> {
    let passes = bodies(run, records, |body| match body {
        Body::Annotation(pass) | Body::Ncu(pass) => Some(pass),
        Body::Event(_) | Body::Timeline(_) | Body::Verification { .. } => None,
    })?;
    let names = passes.iter().max_by_key(|pass| pass.stages.len()).map_or(&[][..], |pass| &pass.stages);
    let stages =
        names.iter().map(|named| stage(run, &passes, &named.stage, thresholds)).collect::<Result<Vec<_>, _>>()?;
    let ns = stages.iter().map(|stage| stage.ns).sum();
    let counters = weighted(&stages, ns);
    let whole = part(run, "sum of stages", ns, None, total(run), counters, thresholds);
    Ok(Analysis { run, records, timings: BTreeMap::new(), whole, stages, traced: None })
}

fn timeline<'a>(run: &'a Run, records: &'a [Record]) -> Result<Analysis<'a>, AnalysisError> {
    let traced = Traced::of(run, records)?;
    let part = |name: String, ns: f64| Part {
        name,
        ns,
        summary: None,
        cost: None,
        roof: None,
        counters: None,
        diagnosis: None,
    };
    let stages = traced.run.stages.iter().zip(&traced.medians.stage_ns);
    let stages = stages.map(|(stage, &ns)| part(stage.stage.clone(), ns)).collect();
    let whole = part(format!("span by {}", traced.run.tracer.name()), traced.medians.span_ns);
    Ok(Analysis { run, records, timings: BTreeMap::new(), whole, stages, traced: Some(traced) })
}

/// Means of the percentages that every stage has, weighted by the stages' durations.
fn weighted(stages: &[Part], total_ns: f64) -> Option<Counters> {
    let mean = |name: &str| {
        let parts: Option<Vec<f64>> = stages.iter().map(|stage| Some(stage.counter(name)? * stage.ns)).collect();
        let mean = parts?.iter().sum::<f64>() / total_ns;
        mean.is_finite().then(|| (name.to_owned(), mean))
    };
    let means: BTreeMap<_, _> = [DRAM, TENSOR_CORE, OCCUPANCY, L2_HITS].into_iter().filter_map(mean).collect();
    (!means.is_empty()).then_some(Counters::Counted(means))
}

fn stage(run: &Run, passes: &[&AnnotationPass], name: &str, thresholds: &Thresholds) -> Result<Part, AnalysisError> {
    let measured = || passes.iter().flat_map(|pass| &pass.stages).filter(|stage| stage.stage == name);
    let processes: Vec<&[f64]> = measured().map(|stage| stage.ns.as_slice()).collect();
    let summary = summary(run, &format!("stage `{name}`"), &processes)?;
    let counters = combined(run, name, measured().map(|stage| &stage.counters))?;
    let cost = run.costs.iter().find(|cost| cost.stage == name).map(|cost| cost.cost);
    Ok(part(run, name, summary.median, Some(summary), cost, counters, thresholds))
}

/// Median of each counter over the passes that counted it, or the first reason for its absence.
fn combined<'a>(
    run: &Run,
    stage: &str,
    passes: impl Iterator<Item = &'a Counters>,
) -> Result<Option<Counters>, AnalysisError> {
    let mut counts: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut absent = None;
    for counters in passes {
        match counters {
            Counters::Counted(values) => {
                values.iter().for_each(|(name, value)| counts.entry(name).or_default().push(*value))
            }
            Counters::Absent { .. } => absent = absent.or(Some(counters)),
        }
    }
    if counts.is_empty() {
        return Ok(absent.cloned());
    }
    let median_of = |(name, values): (&str, Vec<f64>)| match median(&values) {
        Ok(value) => Ok((name.to_owned(), value)),
        Err(source) => {
            let what = format!("counter `{name}` of stage `{stage}`");
            Err(AnalysisError::Samples { run: run_name(run), what, source })
        }
    };
    counts.into_iter().map(median_of).collect::<Result<_, _>>().map(|counts| Some(Counters::Counted(counts)))
}

fn part(
    run: &Run,
    name: &str,
    ns: f64,
    summary: Option<Summary>,
    cost: Option<Cost>,
    counters: Option<Counters>,
    thresholds: &Thresholds,
) -> Part {
    let roof = run.peaks.as_ref().zip(run.shape.dtype()).and_then(|(peaks, dtype)| Roof::of(peaks, dtype));
    let mut part = Part { name: name.to_owned(), ns, summary, cost, roof, counters, diagnosis: None };
    let evidence = Evidence {
        kind: run.device.kind,
        dram_percent: part.counter(DRAM),
        tensor_core_percent: part.counter(TENSOR_CORE),
        l2_hit_percent: part.counter(L2_HITS),
        cost,
        roof,
        ns,
    };
    part.diagnosis = diagnose(&evidence, thresholds);
    part
}

fn total(run: &Run) -> Option<Cost> {
    (!run.costs.is_empty()).then(|| run.costs.iter().map(|stage| stage.cost).sum())
}

fn summary(run: &Run, what: &str, processes: &[&[f64]]) -> Result<Summary, AnalysisError> {
    summarize(processes, LEVEL).map_err(|source| AnalysisError::Samples {
        run: run_name(run),
        what: what.to_owned(),
        source,
    })
}

fn bodies<'a, T>(
    run: &Run,
    records: &'a [Record],
    pick: impl Fn(&'a Body) -> Option<&'a T>,
) -> Result<Vec<&'a T>, AnalysisError> {
    let body = |record: &'a Record| {
        let wrong = AnalysisError::Body { run: run_name(run), key: record.key, mode: run.mode };
        pick(&record.body).ok_or(wrong)
    };
    records.iter().map(body).collect()
}
