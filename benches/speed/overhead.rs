//! What mlarun adds to a sample set: a session measures a kernel that does nearly nothing with a protocol that asks for
//! nearly nothing, and the time that the worker reports as spent on the protocol is subtracted.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use mlarun::app::{Bench, Control};
use mlarun::backend::BuildCache;
use mlarun::execute::{Event, Executor as _, Observer, ProcessExecutor};
use mlarun::model::Mode;
use mlarun::model::protocol::{Check, Launchable, Line, PROTOCOL, Request, Task};
use mlarun::model::record::{Body, RecordKind, SampleSet};
use mlarun::plan::{BuildKeys, Prepared, SubjectState, Wanted};

use crate::Result;
use crate::figures::{Figure, Goal};
use crate::project::{Opened, Temporary};

const ROUNDS: usize = 60;

const MANIFEST: &str = r#"schema = 1
[experiment]
name    = "copy"
kernels = ["copy"]
modes   = ["event"]
rounds  = 60
[shapes]
rows = [8]
[protocol.event]
timings = ["cold_isolated"]
"#;

const KERNEL: &str = r#"schema = 1
description = "Copies a few numbers"
[parameters]
rows = { type = "int", min = 1, default = 8, doc = "rows" }
[tensors.from]
role   = "input"
dtype  = "float32"
shape  = ["rows", 8]
normal = { std = 1.0, seed = 1 }
[tensors.to]
role  = "output"
dtype = "float32"
shape = ["rows", 8]
[[stages]]
name   = "copy"
source = "copy.c"
entry  = "copy"
args   = ["from", "to", "8 * rows"]
grid   = [1]
threads = "cores"
flops  = 0
bytes  = "64 * rows"
[reference]
kind   = "einsum"
spec   = "rc->rc"
of     = ["from"]
output = "to"
[reference.tolerance]
float32 = { frobenius = 1e-6, row = 1e-5 }
"#;

const SOURCE: &str = "#include <stdint.h>
void copy(const float *from, float *to, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        to[i] = from[i];
}
";

/// The shortest warm-up, one sample, and the smallest buffer for evicting caches: what a protocol asks for is not
/// mlarun's.
const SHORTENED: [(&str, &str); 8] = [
    ("last_level_caches = 2", "last_level_caches = 1"),
    ("min_mib = 32", "min_mib = 1"),
    ("max_mib = 256", "max_mib = 1"),
    ("min_ms = 150", "min_ms = 0"),
    ("block_ms = 30", "block_ms = 1"),
    ("max_ms = 500", "max_ms = 1"),
    ("max_samples = 400", "max_samples = 6"),
    ("budget_ms = 400", "budget_ms = 1"),
];

/// Milliseconds that each sample set takes beyond its protocol.
pub fn sample_set() -> Result<Vec<Figure>> {
    let project = Temporary::new()?;
    project.write("kernels/c/bench/copy/kernel.toml", KERNEL)?;
    project.write("kernels/c/bench/copy/copy.c", SOURCE)?;
    let protocol = std::fs::read_to_string(project.root().join("conf/protocol.toml"))?;
    project.write("conf/protocol.toml", &shortened(protocol)?)?;
    let manifest = project.write("experiments/copy.toml", MANIFEST)?;
    let opened = Opened::new(project.root())?;
    let bench = opened.plan(&manifest)?;
    let mut times = Times { started: Instant::now(), ms: Vec::new() };
    let mut control = Control {
        observer: &mut times,
        interrupted: Arc::new(AtomicBool::new(false)),
        fail_fast: true,
        worker: env!("CARGO_BIN_EXE_mlarun").into(),
        tape: None,
    };
    let finished = opened.workspace().execute(bench, Wanted::default(), &mut control)?;
    if let Some(failed) = finished.outcome.failures.first() {
        return Err(format!("the copying kernel failed: {}", failed.failure).into());
    }
    let key = finished.bench.plan.subjects[0].run(Mode::Event).and_then(|run| run.key).ok_or("a run without a key")?;
    let records = opened.ledger.store().get(RecordKind::Event, &key)?;
    let prescribed = records.iter().filter_map(|record| match &record.body {
        Body::Event(set) => Some(prescribed_ms(set)),
        _ => None,
    });
    let around: Vec<f64> = times.ms.iter().zip(prescribed).map(|(ms, prescribed)| ms - prescribed).collect();
    if around.len() != ROUNDS {
        return Err(format!("{} sample sets instead of {ROUNDS}", around.len()).into());
    }
    Ok(vec![
        Figure::new("mlarun's own time around a sample set", around, "ms", Goal::AtMost(15.0)),
        Figure::new("launch without a block, all cores", launch_ns(&opened, &finished.bench)?, "ns", Goal::None),
    ])
}

/// What workers report as the overhead of a launch, in nanoseconds, one a process.
fn launch_ns(opened: &Opened, bench: &Bench) -> Result<Vec<f64>> {
    let subject = &bench.plan.subjects[0];
    let SubjectState::Ready(ready) = &subject.state else { return Err("the copying kernel is not ready".into()) };
    let setting = opened.workspace().setting(&bench.protocols);
    let package = opened.project.catalog.package(&subject.id)?;
    let (root, known) = (setting.root(), BuildKeys::default());
    let prepared = Prepared::new(&setting, package, &subject.shape, &ready.tiling, &root, &known)?;
    let cache = BuildCache::new(&opened.project.root, &opened.project.cache());
    let build = |stage| cache.build(&*opened.machine.backend, stage).map(|artifact| artifact.module().path);
    let modules = prepared.builds.iter().map(build).collect::<std::result::Result<Vec<_>, _>>()?;
    let launchable = Launchable { pipeline: prepared.instance.pipeline.clone(), modules };
    let check = Check { max_rows: None, seed: 1, reference_cache: None, without_bands: false };
    let task = Task::Event { launchable, protocol: bench.protocols.event.clone(), check };
    let request = Request { protocol: PROTOCOL, task, cores: opened.machine.host.device.cores.clone(), gpu: None };
    let executor = ProcessExecutor {
        program: env!("CARGO_BIN_EXE_mlarun").into(),
        silence_limit: Duration::from_secs(60),
        interrupted: Arc::new(AtomicBool::new(false)),
        wrapper: None,
    };
    let mut overheads = Vec::new();
    for _ in 0..9 {
        let lines = executor.execute(&request, &mut |_| {})?;
        overheads.extend(lines.iter().find_map(|line| match line {
            Line::LaunchOverhead { ns } => Some(*ns),
            _ => None,
        }));
    }
    Ok(overheads)
}

fn shortened(mut text: String) -> Result<String> {
    for (from, to) in SHORTENED {
        if !text.contains(from) {
            return Err(format!("conf/protocol.toml lacks `{from}`").into());
        }
        text = text.replace(from, to);
    }
    Ok(text)
}

/// Time that the protocol asked for, as the worker reports it.
fn prescribed_ms(set: &SampleSet) -> f64 {
    let sampled = |samples: &mlarun::model::protocol::Samples| {
        samples.ns.iter().sum::<f64>() * samples.launches_per_sample as f64
    };
    (set.warmup_ns as f64 + set.samples.iter().map(sampled).sum::<f64>()) / 1e6
}

/// Time between the start of each sample set and its record on disk.
struct Times {
    started: Instant,
    ms: Vec<f64>,
}

impl Observer for Times {
    fn observe(&mut self, event: &Event) {
        match event {
            Event::Measuring { .. } => self.started = Instant::now(),
            Event::Measured { .. } => self.ms.push(self.started.elapsed().as_secs_f64() * 1e3),
            _ => {}
        }
    }
}
