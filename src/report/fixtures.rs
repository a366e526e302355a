//! Hand-made inputs of the tests: two kernels, three versions, two shapes, one skipped and one failed run, one missing
//! baseline. Times are chosen, not measured.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{Baseline, Comparison, Input, Outcome, Renderer, Run, StageCost};
use crate::model::device::PeakSource;
use crate::model::protocol::{Counters, FailureKind, Samples, Verification};
use crate::model::record::{
    AnnotationPass, Body, Environment, Labels, Position, Record, RecordKind, SampleSet, StageMeasurement,
};
use crate::model::{
    DType, Device, DeviceId, DeviceKind, KernelId, Key, Language, Mode, Peaks, Shape, Tiling, Timing, Value, Version,
};
use crate::pairs::{Judged, Standing, Unjudged};
use crate::roofline::Cost;
use crate::stats::verdict::{Clocks, Process, Round, Rule, judge};

/// The embedded templates.
pub fn renderer() -> Renderer {
    Renderer::load(std::path::Path::new("no/such/folder")).expect("the embedded templates are valid")
}

pub fn cpu() -> DeviceId {
    DeviceId { kind: DeviceKind::Cpu, name: "Example CPU".into(), uuid: None, units: 2 }
}

pub fn gpu() -> DeviceId {
    DeviceId { kind: DeviceKind::Gpu, name: "NVIDIA H200".into(), uuid: Some("GPU-1".into()), units: 132 }
}

pub fn kernel(name: &str, version: u32) -> KernelId {
    KernelId { kernel: name.into(), version: Version(version), language: Language::C }
}

pub fn shape(s: i64) -> Shape {
    let values = [("b", 1.into()), ("s", s.into()), ("t", 256.into()), ("dtype", Value::from("float32"))];
    Shape(values.into_iter().map(|(name, value): (&str, Value)| (name.to_owned(), value)).collect())
}

pub fn peaks() -> Peaks {
    Peaks {
        flops_per_s: BTreeMap::from([(DType::Float32, 100e9)]),
        bytes_per_s: 10e9,
        at_sm_mhz: BTreeMap::new(),
        source: PeakSource::Measured { taken_at: time(0) },
    }
}

pub fn time(second: i64) -> Timestamp {
    Timestamp::from_second(1_760_000_000 + second).expect("it is in range")
}

fn verification() -> Verification {
    Verification {
        relative_frobenius: 3e-7,
        worst_row: 9e-7,
        worst_row_index: 3,
        rows_compared: 128,
        rows_total: 128,
        output_sha256: "00".repeat(32),
        same_bits: None,
    }
}

fn record(run: &Run, second: i64, body: Body) -> Record {
    let device = Device {
        id: run.device.clone(),
        memory_bytes: 1 << 33,
        last_level_cache_bytes: 32 << 20,
        cores: vec![0, 1],
        gpu: None,
    };
    Record {
        kind: if run.mode == Mode::Event { RecordKind::Event } else { RecordKind::Annotation },
        key: Key::of("example/1", &(run.id.to_string(), run.shape.to_string(), run.mode)),
        subject: Key::of("subject/1", &(run.id.to_string(), run.shape.to_string())),
        material: serde_json::Value::Null,
        labels: Labels { id: run.id.clone(), shape: run.shape.clone(), mode: Some(run.mode), origin: None },
        tiling: run.tiling.clone(),
        code: Vec::new(),
        position: Position { taken_at: time(second), session: "session-1".into(), round: 0, position: 0, looks: None },
        environment: Environment {
            device,
            peaks: run.peaks.clone(),
            clocks_hz: BTreeMap::new(),
            clocks_locked: false,
            cpu: None,
            host: "host".into(),
            os: "Linux 6.1".into(),
            compiler: "gcc 12.2.0".into(),
            mlarun: "0.1.0".into(),
            git_revision: None,
            git_dirty: None,
            telemetry: None,
        },
        body,
    }
}

/// `count` samples around `us`, symmetric, so that their median is `us`.
fn around(us: f64, count: usize) -> Vec<f64> {
    let middle = (count as f64 - 1.0) / 2.0;
    (0..count).map(|index| (us + (index as f64 - middle) * us / 1000.0) * 1000.0).collect()
}

pub fn event_record(run: &Run, second: i64, us: f64) -> Record {
    let samples = |timing, us: f64, launches_per_sample| Samples {
        timing,
        ns: around(us, 9),
        launches_per_sample,
        converged: true,
    };
    let set = SampleSet {
        warmup_launches: 12,
        warmup_ns: 150_000_000,
        steady: true,
        sm_mhz: None,
        samples: vec![
            samples(Timing::ColdIsolated, us, 1),
            samples(Timing::WarmIsolated, us * 0.75, 1),
            samples(Timing::WarmBatched, us * 0.5, 20),
        ],
        verification: verification(),
    };
    record(run, second, Body::Event(set))
}

pub fn annotation_record(run: &Run, second: i64, stages: &[(&str, f64)], counters: &Counters) -> Record {
    let stage = |(name, us): &(&str, f64)| StageMeasurement {
        stage: (*name).to_owned(),
        ns: around(*us, 9),
        counters: counters.clone(),
        launch: None,
    };
    let pass = AnnotationPass { ncu: None, stages: stages.iter().map(stage).collect(), verification: verification() };
    record(run, second, Body::Annotation(pass))
}

/// A run on the CPU that has not been measured yet.
pub fn run(name: &str, version: u32, s: i64, mode: Mode) -> Run {
    let cost = |flops: f64, bytes: f64| Cost { flops: flops * s as f64, bytes };
    let stage = |stage: &str, cost| StageCost { stage: stage.to_owned(), cost };
    let costs = match name {
        "flash_mla" => vec![stage("latent", cost(40e6, 2e6)), stage("project", cost(8e6, 4e6))],
        _ => vec![
            stage("latent", cost(30e6, 2e6)),
            stage("decompressed", cost(6e6, 4e6)),
            stage("combine", cost(8e6, 4e6)),
        ],
    };
    let choices = |name: &str, value: i64| BTreeMap::from([(name.to_owned(), Value::Int(value))]);
    let tiling = match version {
        0 => Tiling::default(),
        _ => Tiling {
            pipeline: choices("n", 64),
            stages: BTreeMap::from([
                ("latent".to_owned(), choices("block_t", 32)),
                ("combine".to_owned(), BTreeMap::new()),
            ]),
        },
    };
    Run {
        id: kernel(name, version),
        shape: shape(s),
        label: shape(s),
        mode,
        tiling,
        device: cpu(),
        costs,
        peaks: Some(peaks()),
        outcome: Outcome::Skipped { reason: "not planned".into() },
        left_out: None,
    }
}

fn event(name: &str, version: u32, s: i64, us: f64) -> Run {
    let mut run = run(name, version, s, Mode::Event);
    let records = (0..3).map(|process| event_record(&run, 10 * process, us * (1.0 + 0.01 * process as f64))).collect();
    run.outcome = Outcome::Measured(records);
    run
}

fn annotation(name: &str, version: u32, s: i64, stages: &[(&str, f64)]) -> Run {
    let mut run = run(name, version, s, Mode::Annotation);
    let counters = Counters::Absent { reason: "perf_event_paranoid is 4 and forbids counting".into() };
    run.outcome = Outcome::Measured(vec![annotation_record(&run, 100, stages, &counters)]);
    run
}

/// Indices of [`input`]'s runs.
pub const V0_S1: usize = 0;
pub const V1_S1: usize = 1;
pub const V2_S1: usize = 2;
pub const V1_S1_ANNOTATION: usize = 7;

pub fn input() -> Input {
    let failed = Run {
        outcome: Outcome::Failed { kind: FailureKind::Crashed, reason: "stage `latent` died from SIGSEGV".into() },
        ..run("mla_var6_plus", 2, 16, Mode::Event)
    };
    let skipped = Run {
        outcome: Outcome::Skipped { reason: "Nsight Compute needs an NVIDIA GPU, and the device is a CPU".into() },
        ..run("mla_var6_plus", 2, 1, Mode::Ncu)
    };
    let stages = [("latent", 900.0), ("decompressed", 450.0), ("combine", 500.0)];
    let slow = [("latent", 4000.0), ("decompressed", 1000.0), ("combine", 900.0)];
    let runs = vec![
        event("mla_var6_plus", 0, 1, 6000.0),
        event("mla_var6_plus", 1, 1, 2000.0),
        event("mla_var6_plus", 2, 1, 1250.0),
        event("mla_var6_plus", 1, 16, 22_000.0),
        failed,
        event("flash_mla", 1, 1, 1500.0),
        annotation("mla_var6_plus", 0, 1, &slow),
        annotation("mla_var6_plus", 1, 1, &stages),
        skipped,
    ];
    let against = |run: usize, name: &str, index| Comparison {
        run,
        name: name.to_owned(),
        baseline: Baseline::Run(index),
        standing: Standing::Unjudged(if run == 7 { Unjudged::OtherMode } else { Unjudged::OtherSession }),
    };
    let missing = |run, reason: &str| Comparison {
        run,
        name: "previous".to_owned(),
        baseline: Baseline::Missing { reason: reason.to_owned() },
        standing: Standing::Unjudged(Unjudged::NoBaseline),
    };
    let comparisons = vec![
        missing(0, "v0 is the base version"),
        against(1, "previous", 0),
        against(2, "previous", 1),
        missing(3, "v0 is not planned at this shape"),
        against(7, "previous", 6),
        against(1, "flash_mla", 5),
        against(2, "flash_mla", 5),
    ];
    Input { experiment: "var6_sweep".into(), runs, comparisons, gone: Vec::new(), host: None }
}

/// The same with the comparison of v2 with v1 at the first shape judged from eight rounds of these times, in microseconds.
pub fn judged_input(candidate_us: f64, baseline_us: f64) -> Input {
    let mut input = input();
    let side = |us: f64, round: u32| Process {
        ns: Some(1e3 * us * (1.0 + f64::from(round * 7 % 5) * 1e-4)),
        sm_mhz: None,
        taints: Vec::new(),
    };
    let round = |round: u32| Round {
        candidate: side(candidate_us, round),
        baseline: side(baseline_us, round + 1),
        candidate_first: round.is_multiple_of(2),
    };
    let rounds: Vec<Round> = (0..8).map(round).collect();
    let judgement = judge(&rounds, &Rule::new(Clocks::Locked, 1)).expect("eight rounds");
    let judged = Judged { session: "session-1".into(), timing: Timing::ColdIsolated, judgement };
    input.comparisons[2].standing = Standing::Judged(Box::new(judged));
    input
}
