//! Timelines and what follows from them as CSV. Times in nanoseconds; what is not known is empty.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::analysis::Analysis;
use super::intervals::Intervals;
use super::latency::Latencies;
use crate::model::timeline::{Activity, StreamId, Timeline};

/// Every activity, a row each.
pub fn activities_csv(timeline: &Timeline) -> String {
    let header = [
        "kind",
        "name",
        "start_ns",
        "end_ns",
        "duration_ns",
        "process",
        "thread",
        "device",
        "context",
        "stream",
        "correlation",
        "bytes",
    ];
    let rows = timeline.activities.iter().map(|activity| {
        [
            activity.kind.name().to_owned(),
            activity.name.clone(),
            activity.start_ns.to_string(),
            activity.end_ns.to_string(),
            activity.duration_ns().to_string(),
            optional(activity.process),
            optional(activity.thread),
            optional(activity.device),
            optional(activity.context),
            optional(activity.stream),
            optional(activity.correlation),
            optional(activity.bytes),
        ]
    });
    table(&header, rows)
}

/// How long each stage ran beside each other one, for every run of the pipeline.
pub fn overlap_csv(stages: &[String], runs: &[Analysis]) -> String {
    let rows = runs.iter().enumerate().flat_map(|(number, run)| {
        stages.iter().enumerate().flat_map(move |(one, stage)| {
            stages.iter().enumerate().map(move |(other, beside)| {
                let overlap_ns = run.overlap_ns.get(one).and_then(|row| row.get(other)).copied();
                let stage_ns = run.stage_ns.get(one).copied();
                let share = run.share_beside(one, other);
                [
                    number.to_string(),
                    stage.clone(),
                    beside.clone(),
                    optional(overlap_ns),
                    optional(stage_ns),
                    optional(share),
                ]
            })
        })
    });
    table(&["run", "stage", "beside", "overlap_ns", "stage_ns", "share_of_stage"], rows)
}

/// Every time at which no stage ran.
pub fn gaps_csv(stages: &[String], runs: &[Analysis]) -> String {
    let name = |stage: usize| stages.get(stage).cloned().unwrap_or_default();
    let rows = runs.iter().enumerate().flat_map(|(number, run)| {
        run.gaps.iter().map(move |gap| {
            let times = [gap.start_ns, gap.end_ns, gap.duration_ns()].map(|ns| ns.to_string());
            let [start, end, duration] = times;
            [number.to_string(), start, end, duration, name(gap.after), name(gap.before)]
        })
    });
    table(&["run", "start_ns", "end_ns", "duration_ns", "after", "before"], rows)
}

/// From each call to what it started.
pub fn latencies_csv(latencies: &Latencies<'_>) -> String {
    let rows = latencies.launches.iter().map(|launch| {
        [
            launch.call.name.clone(),
            launch.started.name.clone(),
            launch.call.start_ns.to_string(),
            launch.call.duration_ns().to_string(),
            launch.started.start_ns.to_string(),
            launch.latency_ns().to_string(),
        ]
    });
    table(&["call", "started", "call_start_ns", "call_ns", "start_ns", "latency_ns"], rows)
}

/// Every stream of a GPU, by process, device, context and number.
pub fn streams_csv(timeline: &Timeline) -> String {
    let mut streams: BTreeMap<StreamId, Vec<&Activity>> = BTreeMap::new();
    for activity in timeline.on_gpu() {
        streams.entry(activity.stream_id()).or_default().push(activity);
    }
    let rows = streams.into_iter().map(|(stream, activities)| {
        let busy = Intervals::union(activities.iter().map(|activity| (activity.start_ns, activity.end_ns)));
        let (start_ns, end_ns) = busy.span().unzip();
        [
            optional(stream.process),
            optional(stream.device),
            optional(stream.context),
            optional(stream.stream),
            activities.len().to_string(),
            optional(start_ns),
            optional(end_ns),
            busy.total_ns().to_string(),
        ]
    });
    table(&["process", "device", "context", "stream", "activities", "start_ns", "end_ns", "busy_ns"], rows)
}

fn optional(value: Option<impl Display>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

fn table<const COLUMNS: usize>(header: &[&str; COLUMNS], rows: impl Iterator<Item = [String; COLUMNS]>) -> String {
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    let rows = rows.map(|row| row.to_vec());
    let lines = std::iter::once(header.iter().map(|&name| name.to_owned()).collect()).chain(rows);
    for line in lines {
        writer.write_record(&line).expect("memory takes every row of one length");
    }
    let bytes = writer.into_inner().expect("memory takes every row");
    String::from_utf8(bytes).expect("only text was written")
}

#[cfg(test)]
mod tests {
    use super::super::latency::launch_latencies;
    use super::super::tests::kernel;
    use super::*;
    use crate::model::timeline::ActivityKind;

    #[test]
    fn names_are_quoted_and_what_is_unknown_is_empty() {
        let call = Activity {
            kind: ActivityKind::Api,
            correlation: Some(3),
            device: None,
            context: None,
            stream: None,
            ..kernel("cuLaunchKernel", 0, 5, 9)
        };
        let started = Activity { correlation: Some(3), ..kernel("f<int, \"a\">", 7, 20, 50) };
        let timeline = Timeline { activities: vec![call, started], ..Timeline::default() };
        insta::assert_snapshot!(activities_csv(&timeline), @r#"
        kind,name,start_ns,end_ns,duration_ns,process,thread,device,context,stream,correlation,bytes
        api,cuLaunchKernel,5,9,4,9,,,,,3,
        kernel,"f<int, ""a"">",20,50,30,9,,0,1,7,3,
        "#);
        insta::assert_snapshot!(latencies_csv(&launch_latencies(&timeline)), @r#"
        call,started,call_start_ns,call_ns,start_ns,latency_ns
        cuLaunchKernel,"f<int, ""a"">",5,4,20,15
        "#);
    }

    #[test]
    fn stages_are_named() {
        let (first, second) = (kernel("a", 1, 10, 30), kernel("b", 2, 20, 40));
        let apart = kernel("b", 2, 50, 60);
        let stages = ["one".to_owned(), "two".to_owned()];
        let runs = [&second, &apart].map(|other| Analysis::of(&[vec![&first], vec![other]]).expect("they ran"));
        insta::assert_snapshot!(overlap_csv(&stages, &runs[..1]), @r"
        run,stage,beside,overlap_ns,stage_ns,share_of_stage
        0,one,one,20,20,1
        0,one,two,10,20,0.5
        0,two,one,10,20,0.5
        0,two,two,20,20,1
        ");
        insta::assert_snapshot!(gaps_csv(&stages, &runs), @r"
        run,start_ns,end_ns,duration_ns,after,before
        1,30,50,20,one,two
        ");
    }
}
