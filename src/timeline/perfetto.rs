//! A timeline as a trace in JSON that ui.perfetto.dev and chrome://tracing open: a track a stream and a host thread, and an arrow
//! from each call to what it started.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Value, json};

use super::latency::launch_latencies;
use super::stream_name;
use crate::model::timeline::{Activity, ActivityKind, StreamId, Timeline};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Trace {
    display_time_unit: &'static str,
    trace_events: Vec<Event>,
}

/// One event; the names of its fields are those of the format. Times in microseconds.
#[derive(Serialize, Default)]
struct Event {
    ph: &'static str,
    name: String,
    pid: usize,
    tid: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<usize>,
    /// Where an arrow ends: at the slice that encloses its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Value>,
}

/// A group of tracks: what the format calls a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Host(Option<u64>),
    Gpu(Option<u64>, Option<u32>),
}

/// A track: what the format calls a thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Track {
    Calls(Option<u64>),
    Ranges(Option<u64>),
    Stream(StreamId),
}

/// The trace as JSON text; equal timelines give equal texts.
pub fn perfetto_trace(timeline: &Timeline) -> String {
    let places: BTreeSet<(Group, Track)> = timeline.activities.iter().map(place).collect();
    let groups: BTreeSet<Group> = places.iter().map(|(group, _)| *group).collect();
    // Numbers from 1 up: 0 stands for the idle process in some viewers.
    let pids: BTreeMap<Group, usize> = groups.into_iter().zip(1..).collect();
    let tids: BTreeMap<(Group, Track), usize> = places.into_iter().zip(1..).collect();
    let at = |activity: &Activity| {
        let (group, track) = place(activity);
        (pids[&group], tids[&(group, track)])
    };
    let mut events = names(&pids, &tids);
    events.extend(timeline.activities.iter().map(|activity| slice(activity, at(activity))));
    for (id, launch) in launch_latencies(timeline).launches.iter().enumerate() {
        for (ph, bp, activity) in [("s", None, launch.call), ("f", Some("e"), launch.started)] {
            let ((pid, tid), name) = (at(activity), "launch".to_owned());
            let ts = Some(microseconds(activity.start_ns));
            events.push(Event { ph, name, pid, tid, cat: Some("launch"), ts, id: Some(id), bp, ..Event::default() });
        }
    }
    let trace = Trace { display_time_unit: "ns", trace_events: events };
    serde_json::to_string(&trace).expect("text and finite numbers can be written")
}

fn place(activity: &Activity) -> (Group, Track) {
    match activity.kind {
        ActivityKind::Api => (Group::Host(activity.process), Track::Calls(activity.thread)),
        ActivityKind::Nvtx => (Group::Host(activity.process), Track::Ranges(activity.thread)),
        _ => (Group::Gpu(activity.process, activity.device), Track::Stream(activity.stream_id())),
    }
}

fn names(pids: &BTreeMap<Group, usize>, tids: &BTreeMap<(Group, Track), usize>) -> Vec<Event> {
    let number = |number: Option<u64>| number.map_or("?".to_owned(), |number| number.to_string());
    let named = |name: &str, pid, tid, what: String| Event {
        ph: "M",
        name: name.to_owned(),
        pid,
        tid,
        args: Some(json!({ "name": what })),
        ..Event::default()
    };
    let groups = pids.iter().map(|(group, &pid)| {
        let what = match group {
            Group::Host(process) => format!("process {}", number(*process)),
            Group::Gpu(process, device) => {
                format!("GPU {} of process {}", number(device.map(u64::from)), number(*process))
            }
        };
        named("process_name", pid, 0, what)
    });
    let tracks = tids.iter().map(|((group, track), &tid)| {
        let beside: Vec<StreamId> = tids
            .keys()
            .filter(|(other, _)| other == group)
            .filter_map(|(_, track)| if let Track::Stream(stream) = track { Some(*stream) } else { None })
            .collect();
        let what = match track {
            Track::Calls(thread) => format!("calls of thread {}", number(*thread)),
            Track::Ranges(thread) => format!("ranges of thread {}", number(*thread)),
            Track::Stream(stream) => stream_name(*stream, &beside),
        };
        named("thread_name", pids[group], tid, what)
    });
    groups.chain(tracks).collect()
}

fn slice(activity: &Activity, (pid, tid): (usize, usize)) -> Event {
    let mut args = serde_json::Map::new();
    for (name, value) in [("correlation", activity.correlation), ("bytes", activity.bytes)] {
        args.extend(value.map(|value| (name.to_owned(), value.into())));
    }
    Event {
        ph: "X",
        name: activity.name.clone(),
        pid,
        tid,
        cat: Some(activity.kind.name()),
        ts: Some(microseconds(activity.start_ns)),
        dur: Some(microseconds(activity.duration_ns())),
        args: (!args.is_empty()).then_some(Value::Object(args)),
        ..Event::default()
    }
}

fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::super::tests::kernel;
    use super::*;

    #[test]
    fn tracks_are_named_and_calls_point_at_what_they_started() {
        let call = Activity {
            kind: ActivityKind::Api,
            thread: Some(10),
            device: None,
            context: None,
            stream: None,
            correlation: Some(3),
            ..kernel("cuLaunchKernel", 0, 1_000, 2_500)
        };
        let range =
            Activity { kind: ActivityKind::Nvtx, correlation: None, name: "stage \"x\"".to_owned(), ..call.clone() };
        let started = Activity { correlation: Some(3), ..kernel("f<int>", 7, 2_000, 5_001) };
        let beside = kernel("g", 8, 2_000, 4_000);
        let timeline = Timeline { activities: vec![call, range, started, beside], ..Timeline::default() };
        let trace: Value = serde_json::from_str(&perfetto_trace(&timeline)).expect("it is JSON");
        let events: Vec<String> =
            trace["traceEvents"].as_array().expect("a list").iter().map(|event| event.to_string()).collect();
        insta::assert_snapshot!(events.join("\n"), @r#"
        {"args":{"name":"process 9"},"name":"process_name","ph":"M","pid":1,"tid":0}
        {"args":{"name":"GPU 0 of process 9"},"name":"process_name","ph":"M","pid":2,"tid":0}
        {"args":{"name":"calls of thread 10"},"name":"thread_name","ph":"M","pid":1,"tid":1}
        {"args":{"name":"ranges of thread 10"},"name":"thread_name","ph":"M","pid":1,"tid":2}
        {"args":{"name":"stream 7"},"name":"thread_name","ph":"M","pid":2,"tid":3}
        {"args":{"name":"stream 8"},"name":"thread_name","ph":"M","pid":2,"tid":4}
        {"args":{"correlation":3},"cat":"api","dur":1.5,"name":"cuLaunchKernel","ph":"X","pid":1,"tid":1,"ts":1.0}
        {"cat":"nvtx","dur":1.5,"name":"stage \"x\"","ph":"X","pid":1,"tid":2,"ts":1.0}
        {"args":{"correlation":3},"cat":"kernel","dur":3.001,"name":"f<int>","ph":"X","pid":2,"tid":3,"ts":2.0}
        {"cat":"kernel","dur":2.0,"name":"g","ph":"X","pid":2,"tid":4,"ts":2.0}
        {"cat":"launch","id":0,"name":"launch","ph":"s","pid":1,"tid":1,"ts":1.0}
        {"bp":"e","cat":"launch","id":0,"name":"launch","ph":"f","pid":2,"tid":3,"ts":2.0}
        "#);
    }
}
