//! Launch latency: from the call on the host to the start on the GPU. It includes the wait for what was launched before.

use std::collections::BTreeMap;

use crate::model::timeline::{Activity, ActivityKind, Timeline};

/// What each call started.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Latencies<'t> {
    /// By start of the call.
    pub launches: Vec<Latency<'t>>,
    /// Activities of the GPU whose call is not in the trace.
    pub without_call: usize,
    /// Activities that start before their call does: clocks of host and GPU disagree, and these say nothing.
    pub before_call: usize,
}

/// A call, and the first thing that it started.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latency<'t> {
    pub call: &'t Activity,
    pub started: &'t Activity,
}

impl Latency<'_> {
    /// From the start of the call to the start on the GPU.
    pub fn latency_ns(&self) -> u64 {
        self.started.start_ns - self.call.start_ns
    }
}

/// The latency of every call that started something. A graph's counts up to its first kernel.
pub fn launch_latencies(timeline: &Timeline) -> Latencies<'_> {
    let mut calls: BTreeMap<_, &Activity> = BTreeMap::new();
    for call in timeline.activities.iter().filter(|activity| activity.kind == ActivityKind::Api) {
        if let Some(correlation) = call.correlation {
            let first = calls.entry((call.process, correlation)).or_insert(call);
            if call.start_ns < first.start_ns {
                *first = call;
            }
        }
    }
    let (mut firsts, mut found) = (BTreeMap::new(), Latencies::default());
    for activity in timeline.on_gpu() {
        let key = activity.correlation.map(|correlation| (activity.process, correlation));
        let Some(key) = key.filter(|key| calls.contains_key(key)) else {
            found.without_call += 1;
            continue;
        };
        let first = firsts.entry(key).or_insert(activity);
        if activity.start_ns < first.start_ns {
            *first = activity;
        }
    }
    for (key, started) in firsts {
        match calls.get(&key) {
            Some(call) if call.start_ns <= started.start_ns => found.launches.push(Latency { call, started }),
            _ => found.before_call += 1,
        }
    }
    found.launches.sort_by_key(|launch| (launch.call.start_ns, launch.started.start_ns));
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::kernel;
    use super::*;

    fn call(correlation: u64, start_ns: u64) -> Activity {
        let call = kernel("cuLaunchKernel", 0, start_ns, start_ns + 4);
        Activity { kind: ActivityKind::Api, stream: None, correlation: Some(correlation), ..call }
    }

    fn started(correlation: Option<u64>, process: u64, start_ns: u64) -> Activity {
        Activity { correlation, process: Some(process), ..kernel("a", 7, start_ns, start_ns + 9) }
    }

    #[test]
    fn calls_and_kernels_are_joined_within_their_process() {
        let activities = vec![
            call(1, 100),
            call(2, 110),
            started(Some(1), 9, 108),
            started(Some(1), 9, 140),
            started(Some(2), 8, 130),
            started(None, 9, 150),
            call(3, 200),
            started(Some(3), 9, 190),
        ];
        let timeline = Timeline { activities, ..Timeline::default() };
        let found = launch_latencies(&timeline);
        let latencies: Vec<_> =
            found.launches.iter().map(|launch| (launch.call.start_ns, launch.latency_ns())).collect();
        assert_eq!(latencies, [(100, 8)], "the first of a graph's kernels counts");
        assert_eq!((found.without_call, found.before_call), (2, 1));
    }
}
