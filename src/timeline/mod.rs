//! Arithmetic on timelines: which launch belongs to which stage, how stages overlap, what lies between them, and the same as CSV,
//! as a picture and as a trace for Perfetto. Pure: plain data in, numbers and text out.

mod analysis;
mod csv;
mod intervals;
mod latency;
mod perfetto;
mod picture;
mod stages;

pub use analysis::{Analysis, Gap, Medians};
pub use csv::{activities_csv, gaps_csv, latencies_csv, overlap_csv, streams_csv};
pub use intervals::Intervals;
pub use latency::{Latencies, Latency, launch_latencies};
pub use perfetto::perfetto_trace;
pub use picture::{Drawn, picture};
pub(crate) use picture::{escaped, step};
pub use stages::{Iteration, Mismatch, iterations};

use std::collections::{BTreeMap, BTreeSet};

use crate::model::timeline::{StreamId, Timeline};

/// The streams of a timeline, as people call them.
pub fn stream_names(timeline: &Timeline) -> BTreeMap<StreamId, String> {
    let streams: BTreeSet<StreamId> = timeline.on_gpu().map(|activity| activity.stream_id()).collect();
    let streams: Vec<StreamId> = streams.into_iter().collect();
    streams.iter().map(|&stream| (stream, stream_name(stream, &streams))).collect()
}

/// A stream as people call it: with its device, context and process where `all` of the streams beside it differ in them.
fn stream_name(stream: StreamId, all: &[StreamId]) -> String {
    fn differ<T: PartialEq>(all: &[StreamId], part: impl Fn(&StreamId) -> T) -> bool {
        all.windows(2).any(|pair| part(&pair[0]) != part(&pair[1]))
    }
    let number = |number: Option<u64>| number.map_or("?".to_owned(), |number| number.to_string());
    let mut name = format!("stream {}", number(stream.stream));
    if differ(all, |stream| stream.context) {
        name += &format!(", context {}", number(stream.context));
    }
    if differ(all, |stream| stream.device) {
        name += &format!(", device {}", number(stream.device.map(u64::from)));
    }
    if differ(all, |stream| stream.process) {
        name += &format!(", process {}", number(stream.process));
    }
    name
}

/// Activities to test with.
#[cfg(test)]
mod tests {
    use crate::model::timeline::{Activity, ActivityKind};

    /// A kernel on a stream of one process, device and context.
    pub fn kernel(name: &str, stream: u64, start_ns: u64, end_ns: u64) -> Activity {
        Activity {
            kind: ActivityKind::Kernel,
            name: name.to_owned(),
            start_ns,
            end_ns,
            process: Some(9),
            thread: None,
            device: Some(0),
            context: Some(1),
            stream: Some(stream),
            correlation: None,
            bytes: None,
        }
    }

    #[test]
    fn a_stream_is_named_by_what_tells_it_apart() {
        let on = |device, stream| {
            let mut activity = kernel("a", stream, 1, 2);
            activity.device = Some(device);
            activity.stream_id()
        };
        assert_eq!(super::stream_name(on(0, 7), &[on(0, 7), on(0, 8)]), "stream 7");
        assert_eq!(super::stream_name(on(1, 7), &[on(0, 7), on(1, 7)]), "stream 7, device 1");
    }
}
