//! What nsys mode shows: a timeline's numbers, its report's view, and the files beside that. No I/O.
//!
//! All times are those of the tracer, whose name they carry; they are compared with no clean time and enter no verdict.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::analysis::{AnalysisError, run_name};
use super::input::Run;
use super::numbers::{ABSENT, cell, counted, fixed, microseconds, percent_of};
use super::view::{Configuration, Context, configuration};
use crate::model::record::{Body, Record, TimelineRun};
use crate::model::timeline::{Activity, StreamId};
use crate::stats::median;
use crate::timeline::{
    Analysis, Drawn, Iteration, Latencies, Medians, activities_csv, gaps_csv, iterations, latencies_csv,
    launch_latencies, overlap_csv, perfetto_trace, picture, stream_names, streams_csv,
};

/// The picture that report.md shows.
pub(super) const PICTURE: &str = "timeline.svg";

/// A recorded timeline, its launches told apart.
#[derive(Debug)]
pub(super) struct Traced<'a> {
    pub run: &'a TimelineRun,
    iterations: Vec<Iteration<'a>>,
    analyses: Vec<Analysis>,
    pub medians: Medians,
}

impl<'a> Traced<'a> {
    /// That of the newest record.
    ///
    /// # Errors
    /// A record of another mode, or one that does not hold whole launches.
    pub fn of(run: &Run, records: &'a [Record]) -> Result<Traced<'a>, AnalysisError> {
        let name = || run_name(run);
        let newest = records.iter().max_by_key(|record| record.position.taken_at);
        let newest = newest.ok_or_else(|| AnalysisError::NoRecord { run: name() })?;
        let Body::Timeline(traced) = &newest.body else {
            return Err(AnalysisError::Body { run: name(), key: newest.key, mode: run.mode });
        };
        let iterations = iterations(&traced.timeline, &traced.stages).map_err(|source| AnalysisError::Timeline {
            run: name(),
            key: newest.key,
            reason: source.to_string(),
        })?;
        let analyses: Vec<Analysis> =
            iterations.iter().filter_map(|iteration| Analysis::of(&iteration.by_stage())).collect();
        let nothing =
            || AnalysisError::Timeline { run: name(), key: newest.key, reason: "nothing ran in it".to_owned() };
        let medians = Medians::of(&analyses).ok_or_else(nothing)?;
        Ok(Traced { run: traced, iterations, analyses, medians })
    }

    fn stage_names(&self) -> Vec<String> {
        self.run.stages.iter().map(|stage| stage.stage.clone()).collect()
    }

    /// The launch whose span is nearest to the median.
    fn typical(&self) -> usize {
        let distance = |(_, one): &(usize, &Analysis)| (one.span_ns as f64 - self.medians.span_ns).abs();
        let nearest = self.analyses.iter().enumerate().min_by(|a, b| distance(a).total_cmp(&distance(b)));
        nearest.map_or(0, |(index, _)| index)
    }

    fn picture(&self, title: &str) -> String {
        let typical = &self.iterations[self.typical()];
        let drawn = typical.launches.iter().enumerate();
        let drawn: Vec<_> = drawn.map(|(stage, &activity)| Drawn { activity, stage: Some(stage) }).collect();
        picture(title, &self.stage_names(), &drawn)
    }

    /// Files beside report.md, by name.
    pub fn files(&self, title: &str) -> Vec<(&'static str, String)> {
        let (timeline, stages) = (&self.run.timeline, self.stage_names());
        vec![
            (PICTURE, self.picture(&format!("{title}: one launch, by {}", self.run.tracer.name()))),
            ("timeline.perfetto.json", perfetto_trace(timeline)),
            ("activities.csv", activities_csv(timeline)),
            ("overlap.csv", overlap_csv(&stages, &self.analyses)),
            ("gaps.csv", gaps_csv(&stages, &self.analyses)),
            ("latencies.csv", latencies_csv(&launch_latencies(timeline))),
            ("streams.csv", streams_csv(timeline)),
        ]
    }
}

/// Everything that the template `timeline.md.hbs` can name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct TimelineView {
    pub kernel: String,
    pub version: String,
    pub language: String,
    pub mode: &'static str,
    pub configuration: Configuration,
    pub parameters: String,
    /// `nsys` or `CUPTI`: every duration is this tool's.
    pub tool: &'static str,
    pub tracer: String,
    pub instead: Option<String>,
    pub launches: String,
    pub span_us: String,
    pub busy_us: String,
    pub idle_us: String,
    pub sum_us: String,
    pub efficiency: String,
    pub stages: Vec<StageRow>,
    /// Names of the stages, as the cells of one row.
    pub beside: String,
    /// As many dashes as there are stages.
    pub rule: String,
    pub overlap: Vec<OverlapRow>,
    pub streams: Vec<StreamRow>,
    pub gaps: Vec<GapRow>,
    pub latency: Option<LatencyView>,
    pub picture: &'static str,
    pub files: Vec<String>,
    pub context: Context,
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct StageRow {
    pub stage: String,
    pub kernel: String,
    pub stream: String,
    pub duration_us: String,
    pub of_span: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct OverlapRow {
    pub stage: String,
    pub cells: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct StreamRow {
    pub stream: String,
    pub process: String,
    pub device: String,
    pub context: String,
    pub activities: usize,
    pub stages: String,
    pub busy_us: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct GapRow {
    pub after: String,
    pub before: String,
    pub median_us: String,
    pub longest_us: String,
    pub launches: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct LatencyView {
    pub median_us: String,
    pub shortest_us: String,
    pub longest_us: String,
    pub count: usize,
    pub call_us: String,
}

/// View of a traced run; `others` are notes that are not about the trace.
pub(super) fn view(run: &Run, traced: &Traced<'_>, context: Context, others: Vec<String>) -> TimelineView {
    let medians = &traced.medians;
    let us = |ns: f64| microseconds(Some(ns));
    let stages = traced.stage_names();
    let latencies = launch_latencies(&traced.run.timeline);
    TimelineView {
        kernel: run.id.kernel.clone(),
        version: run.id.version.to_string(),
        language: run.id.language.to_string(),
        mode: run.mode.name(),
        configuration: configuration(&run.shape),
        parameters: cell(&run.shape.to_string()),
        tool: traced.run.tracer.name(),
        tracer: cell(&traced.run.tracer.to_string()),
        instead: traced.run.instead.as_ref().map(|reason| cell(reason)),
        launches: counted(medians.runs, "launch"),
        span_us: us(medians.span_ns),
        busy_us: us(medians.busy_ns),
        idle_us: us(medians.idle_ns),
        sum_us: us(medians.sum_ns),
        efficiency: percent_of(medians.overlap_efficiency),
        stages: stage_rows(traced),
        beside: stages.iter().map(|stage| cell(stage)).collect::<Vec<_>>().join(" | "),
        rule: vec!["---"; stages.len()].join("|"),
        overlap: overlap_rows(traced, &stages),
        streams: stream_rows(traced),
        gaps: gap_rows(traced, &stages),
        latency: latency(&latencies),
        picture: PICTURE,
        files: traced.run.files.iter().map(|file| cell(&file.name)).collect(),
        context,
        notes: notes(traced, &latencies).into_iter().chain(others).collect(),
    }
}

fn stage_rows(traced: &Traced<'_>) -> Vec<StageRow> {
    let typical = &traced.iterations[traced.typical()];
    let names = stream_names(&traced.run.timeline);
    let row = |(index, stage): (usize, &crate::model::timeline::StageKernel)| StageRow {
        stage: cell(&stage.stage),
        kernel: cell(&stage.kernel),
        stream: typical
            .launches
            .get(index)
            .and_then(|launch| names.get(&launch.stream_id()))
            .map_or_else(|| ABSENT.to_owned(), |name| cell(name)),
        duration_us: microseconds(traced.medians.stage_ns.get(index).copied()),
        of_span: percent_of(traced.medians.stage_ns.get(index).map(|ns| ns / traced.medians.span_ns)),
    };
    traced.run.stages.iter().enumerate().map(row).collect()
}

/// How much of the row's stage ran beside the column's; on the diagonal the stage's own time.
fn overlap_rows(traced: &Traced<'_>, stages: &[String]) -> Vec<OverlapRow> {
    let medians = &traced.medians;
    let text = |one: usize, other: usize| {
        let overlap = medians.overlap_ns.get(one).and_then(|row| row.get(other)).copied();
        let share = overlap.zip(medians.stage_ns.get(one)).map(|(overlap, own)| overlap / own);
        match one == other {
            true => ABSENT.to_owned(),
            false => format!("{} ({} us)", percent_of(share), microseconds(overlap)),
        }
    };
    let row = |(one, stage): (usize, &String)| OverlapRow {
        stage: cell(stage),
        cells: (0..stages.len()).map(|other| text(one, other)).collect::<Vec<_>>().join(" | "),
    };
    stages.iter().enumerate().map(row).collect()
}

fn stream_rows(traced: &Traced<'_>) -> Vec<StreamRow> {
    let timeline = &traced.run.timeline;
    let number = |number: Option<u64>| number.map_or(ABSENT.to_owned(), |number| number.to_string());
    let mut streams: BTreeMap<StreamId, Vec<&Activity>> = BTreeMap::new();
    for activity in timeline.on_gpu() {
        streams.entry(activity.stream_id()).or_default().push(activity);
    }
    let row = |(stream, activities): (StreamId, Vec<&Activity>)| {
        let ran: BTreeSet<&str> = activities.iter().map(|activity| activity.name.as_str()).collect();
        let stages = traced.run.stages.iter().filter(|stage| ran.contains(stage.kernel.as_str()));
        let stages: Vec<String> = stages.map(|stage| cell(&stage.stage)).collect();
        let busy_ns: u64 = activities.iter().map(|activity| activity.duration_ns()).sum();
        StreamRow {
            stream: number(stream.stream),
            process: number(stream.process),
            device: number(stream.device.map(u64::from)),
            context: number(stream.context),
            activities: activities.len(),
            stages: if stages.is_empty() { ABSENT.to_owned() } else { stages.join(", ") },
            busy_us: microseconds(Some(busy_ns as f64)),
        }
    };
    streams.into_iter().map(row).collect()
}

/// Gaps between the same two stages over all launches, the longest first.
fn gap_rows(traced: &Traced<'_>, stages: &[String]) -> Vec<GapRow> {
    let mut between: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
    for gap in traced.analyses.iter().flat_map(|run| &run.gaps) {
        between.entry((gap.after, gap.before)).or_default().push(gap.duration_ns() as f64);
    }
    let name = |stage: usize| stages.get(stage).map_or(ABSENT.to_owned(), |stage| cell(stage));
    let mut rows: Vec<_> = between.into_iter().filter_map(|(pair, ns)| Some((median(&ns).ok()?, pair, ns))).collect();
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    let row = |(median_ns, (after, before), ns): (f64, (usize, usize), Vec<f64>)| GapRow {
        after: name(after),
        before: name(before),
        median_us: microseconds(Some(median_ns)),
        longest_us: microseconds(ns.iter().copied().reduce(f64::max)),
        launches: ns.len(),
    };
    rows.into_iter().map(row).collect()
}

fn latency(latencies: &Latencies<'_>) -> Option<LatencyView> {
    let all: Vec<f64> = latencies.launches.iter().map(|launch| launch.latency_ns() as f64).collect();
    let calls: Vec<f64> = latencies.launches.iter().map(|launch| launch.call.duration_ns() as f64).collect();
    let us = |ns: Option<f64>| microseconds(ns);
    (!all.is_empty()).then(|| LatencyView {
        median_us: us(median(&all).ok()),
        shortest_us: us(all.iter().copied().reduce(f64::min)),
        longest_us: us(all.iter().copied().reduce(f64::max)),
        count: all.len(),
        call_us: us(median(&calls).ok()),
    })
}

fn notes(traced: &Traced<'_>, latencies: &Latencies<'_>) -> Vec<String> {
    let timeline = &traced.run.timeline;
    let mut notes: Vec<String> = timeline.notes.iter().map(|note| cell(&note.to_string())).collect();
    let rejected = timeline.rejected.iter();
    notes
        .extend(rejected.map(|row| cell(&format!("{} {} is in no number: {}", row.kind.name(), row.name, row.reason))));
    let say = |count: usize, what: &str| (count > 0).then(|| format!("{} {what}", counted(count, "activity")));
    notes.extend(say(latencies.without_call, "of the GPU without a call in the trace: they have no launch latency"));
    notes.extend(say(
        latencies.before_call,
        "of the GPU begin before their calls: the clocks of host and GPU disagree, and these have no launch latency",
    ));
    notes
}

/// Median span of a launch, for `over` in tables.
pub(super) fn basis(traced: &Traced<'_>) -> String {
    format!("{}, {}", counted(traced.medians.runs, "launch"), traced.run.tracer.name())
}

/// Medians over the launches of a recorded timeline; `None` where it holds none.
fn medians(run: &TimelineRun) -> Option<Medians> {
    let found = iterations(&run.timeline, &run.stages);
    let analyses: Vec<Analysis> =
        found.iter().flatten().filter_map(|iteration| Analysis::of(&iteration.by_stage())).collect();
    Medians::of(&analyses)
}

/// One line of the terminal: what a record says.
pub fn summary(run: &TimelineRun) -> String {
    let Some(medians) = medians(run) else { return format!("{}: no whole launch", run.tracer) };
    let us = |ns: f64| fixed(Some(ns / 1e3), 3);
    format!(
        "{}: span {} us, busy {} us, sum of stages {} us ({}; overlap efficiency {})",
        run.tracer,
        us(medians.span_ns),
        us(medians.busy_ns),
        us(medians.sum_ns),
        counted(medians.runs, "launch"),
        percent_of(medians.overlap_efficiency)
    )
}

/// How the spans of one subject agree that two tracers saw, in one line; `None` where only one did. Of each tracer the last of
/// `runs` counts.
pub fn agreement<'a>(runs: impl IntoIterator<Item = &'a TimelineRun>) -> Option<String> {
    let mut spans: BTreeMap<&str, f64> = BTreeMap::new();
    for run in runs {
        if let Some(medians) = medians(run) {
            spans.insert(run.tracer.name(), medians.span_ns);
        }
    }
    let [(one, one_ns), (other, other_ns)] = *spans.into_iter().collect::<Vec<_>>() else { return None };
    let us = |ns: f64| fixed(Some(ns / 1e3), 3);
    let percent = fixed(Some((one_ns - other_ns).abs() / one_ns.max(other_ns) * 100.0), 2);
    Some(format!("span {} us by {one}, {} us by {other}: they differ by {percent}%", us(one_ns), us(other_ns)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::protocol::Verification;
    use crate::model::timeline::{ActivityKind, StageKernel, Timeline, Tracer};

    fn run(tracer: Tracer, span_ns: u64) -> TimelineRun {
        let activity = |name: &str, start_ns, end_ns| Activity {
            kind: ActivityKind::Kernel,
            name: name.to_owned(),
            start_ns,
            end_ns,
            process: None,
            thread: None,
            device: None,
            context: None,
            stream: None,
            correlation: None,
            bytes: None,
        };
        let activities = vec![activity("a", 1_000, 1_000 + span_ns / 2), activity("b", 1_500, 1_000 + span_ns)];
        let stage = |name: &str| StageKernel { stage: format!("of {name}"), kernel: name.to_owned() };
        TimelineRun {
            tracer,
            instead: None,
            launches: 1,
            stages: vec![stage("a"), stage("b")],
            timeline: Timeline { activities, ..Timeline::default() },
            files: Vec::new(),
            verification: Verification {
                relative_frobenius: 0.0,
                worst_row: 0.0,
                worst_row_index: 0,
                rows_compared: 1,
                rows_total: 1,
                output_sha256: String::new(),
                same_bits: None,
            },
        }
    }

    #[test]
    fn spans_of_two_tracers_are_put_beside_one_another() {
        let (nsys, cupti) = (Tracer::Nsys { version: "2025.3.1".into() }, Tracer::Cupti { version: 130_001 });
        let runs = [run(nsys.clone(), 50_000), run(nsys, 100_000), run(cupti, 99_000)];
        assert_eq!(
            agreement(&runs).as_deref(),
            Some("span 99.000 us by CUPTI, 100.000 us by nsys: they differ by 1.00%")
        );
        assert_eq!(agreement(&runs[..2]), None);
        let shown = summary(&runs[1]);
        assert!(
            shown.starts_with("Nsight Systems 2025.3.1: span 100.000 us, busy 100.000 us, sum of stages "),
            "{shown}"
        );
    }
}
