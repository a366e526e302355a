//! What ran when: activities of GPUs and of the host, as a tracing tool saw them. Part of a record, whose format carries the
//! version.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What saw a timeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tracer {
    /// Nsight Systems, of this version.
    Nsys { version: String },
    /// Activity records that the worker collects itself, through the CUPTI of this version: 26 is CUDA 12.8's, 130001 that of
    /// CUDA 13.0.1.
    Cupti { version: u32 },
}

impl Tracer {
    /// Word for it in tables: durations that it gives carry it.
    pub const fn name(&self) -> &'static str {
        match self {
            Tracer::Nsys { .. } => "nsys",
            Tracer::Cupti { .. } => "CUPTI",
        }
    }
}

impl fmt::Display for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tracer::Nsys { version } => write!(f, "Nsight Systems {version}"),
            Tracer::Cupti { version } => write!(f, "CUPTI, API version {version}"),
        }
    }
}

/// Which tracer is asked for, whatever version is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TracerKind {
    Nsys,
    Cupti,
}

impl TracerKind {
    /// Every tracer, the preferred one first.
    pub const ALL: [TracerKind; 2] = [TracerKind::Nsys, TracerKind::Cupti];

    /// Name on the command line and in manifests.
    pub const fn name(self) -> &'static str {
        match self {
            TracerKind::Nsys => "nsys",
            TracerKind::Cupti => "cupti",
        }
    }
}

/// The text names no tracer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no tracer (nsys, cupti)")]
pub struct UnknownTracer(pub String);

impl std::str::FromStr for TracerKind {
    type Err = UnknownTracer;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        TracerKind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| UnknownTracer(text.to_owned()))
    }
}

/// A stage of the pipeline, in launch order, and the kernel that it launches once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageKernel {
    pub stage: String,
    pub kernel: String,
}

/// Everything traced, by start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    pub activities: Vec<Activity>,
    /// What cannot be believed, and is in no number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<Rejected>,
    /// What the reader should know about what is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
}

impl Timeline {
    /// What ran on GPUs.
    pub fn on_gpu(&self) -> impl Iterator<Item = &Activity> {
        self.activities.iter().filter(|activity| activity.kind.on_gpu())
    }

    /// Sorts activities by start, then by end, stream and name, so that equal contents are equal.
    pub fn sort(&mut self) {
        self.activities.sort_by(|a, b| {
            (a.start_ns, a.end_ns, a.kind, a.stream_id(), &a.name, a.correlation).cmp(&(
                b.start_ns,
                b.end_ns,
                b.kind,
                b.stream_id(),
                &b.name,
                b.correlation,
            ))
        });
    }
}

/// One thing that ran for some time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    pub kind: ActivityKind,
    pub name: String,
    /// Nanoseconds from the tool's own zero.
    pub start_ns: u64,
    /// After the start.
    pub end_ns: u64,
    /// Process ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<u64>,
    /// Thread of the host, for what ran there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<u64>,
    /// Joins an API call with what it started, within one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation: Option<u64>,
    /// Moved or written, for copies and fills.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl Activity {
    /// How long it ran.
    pub fn duration_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// The stream that it ran on. Numbers of streams repeat between contexts, devices and processes.
    pub fn stream_id(&self) -> StreamId {
        StreamId { process: self.process, device: self.device, context: self.context, stream: self.stream }
    }
}

/// Kind of an activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivityKind {
    Kernel,
    Memcpy,
    Memset,
    /// A whole CUDA graph, whose kernels were not traced one by one.
    Graph,
    /// A call of the CUDA runtime or driver.
    Api,
    /// A range that the program marked.
    Nvtx,
}

impl ActivityKind {
    /// Whether it ran on a GPU.
    pub const fn on_gpu(self) -> bool {
        matches!(self, ActivityKind::Kernel | ActivityKind::Memcpy | ActivityKind::Memset | ActivityKind::Graph)
    }

    /// As it is written in tables.
    pub const fn name(self) -> &'static str {
        match self {
            ActivityKind::Kernel => "kernel",
            ActivityKind::Memcpy => "memcpy",
            ActivityKind::Memset => "memset",
            ActivityKind::Graph => "graph",
            ActivityKind::Api => "api",
            ActivityKind::Nvtx => "nvtx",
        }
    }
}

/// What tells streams apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StreamId {
    pub process: Option<u64>,
    pub device: Option<u32>,
    pub context: Option<u64>,
    pub stream: Option<u64>,
}

/// A row of the trace that cannot be believed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    pub kind: ActivityKind,
    pub name: String,
    pub start_ns: i64,
    pub end_ns: i64,
    pub reason: Rejection,
}

/// Why a row cannot be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rejection {
    /// It starts or ends before the trace does.
    Negative,
    /// It starts at 0, which stands for a time that was not taken.
    Zero,
    /// It ends before it starts.
    Reversed,
    /// It ends when it starts.
    Empty,
}

impl Rejection {
    /// Why something from `start_ns` to `end_ns` cannot be believed; `None` if it can.
    pub const fn of(start_ns: i64, end_ns: i64) -> Option<Rejection> {
        if start_ns < 0 || end_ns < 0 {
            Some(Rejection::Negative)
        } else if start_ns == 0 {
            Some(Rejection::Zero)
        } else if end_ns < start_ns {
            Some(Rejection::Reversed)
        } else if end_ns == start_ns {
            Some(Rejection::Empty)
        } else {
            None
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rejection::Negative => "it lies before the trace began",
            Rejection::Zero => "it starts at 0, which stands for a time that was not taken",
            Rejection::Reversed => "it ends before it starts",
            Rejection::Empty => "it takes no time at all",
        })
    }
}

/// Something about a trace that its numbers do not show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Note {
    /// Graphs were launched and their kernels not traced: `launches` of them have no kernel in the timeline.
    GraphsWithoutNodes { launches: u64 },
    /// The export has no such table: nothing of the kind was traced.
    NoTable { table: String },
    /// A table lacks a column, and its activities what stands there.
    NoColumn { table: String, column: String },
    /// Rows that name no string, or hold what is no number.
    UnreadableRows { table: String, rows: u64 },
    /// What the tool itself warned of.
    Tool { text: String },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::GraphsWithoutNodes { launches } => write!(
                f,
                "{launches} launches of CUDA graphs show no kernels: trace with --cuda-graph-trace=node to see what ran \
                 inside"
            ),
            Note::NoTable { table } => write!(f, "there is no {table}: nothing of the kind was traced"),
            Note::NoColumn { table, column } => write!(f, "{table} has no column {column}"),
            Note::UnreadableRows { table, rows } => write!(f, "{rows} rows of {table} cannot be read and are left out"),
            Note::Tool { text } => write!(f, "the tool warned: {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_cannot_be_are_rejected() {
        for (start, end, reason) in [
            (5, 9, None),
            (5, 5, Some(Rejection::Empty)),
            (5, 4, Some(Rejection::Reversed)),
            (0, 4, Some(Rejection::Zero)),
            (-3, 4, Some(Rejection::Negative)),
            (3, -4, Some(Rejection::Negative)),
        ] {
            assert_eq!(Rejection::of(start, end), reason, "{start} to {end}");
        }
    }

    #[test]
    fn streams_of_one_number_are_told_apart() {
        let on = |process, context| StreamId {
            process: Some(process),
            device: Some(0),
            context: Some(context),
            stream: Some(7),
        };
        assert_ne!(on(1, 1), on(2, 1));
        assert_ne!(on(1, 1), on(1, 2));
    }
}
