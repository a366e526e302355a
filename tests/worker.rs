//! The worker process through its protocol, with small kernels: right ones are measured, planted wrong ones are caught
//! with the right kind of failure, and what ends the process leaves an answer that says where.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use mlarun::model::calling::{ArgType, caller_source};
use mlarun::model::pipeline::{
    Arg, AsRead, Buffer, Distribution, Einsum, Launch, Operand, Pipeline, Reference, ReferenceFormula, Role, Stage,
    Tolerance,
};
use mlarun::model::protocol::{
    AnnotationProtocol, Candidate, CandidateOutcome, Check, Counters, EventProtocol, FailureKind, Launchable, Line,
    PROTOCOL, Phase, Request, Samples, Task, TuneProtocol, Warmup,
};
use mlarun::model::{DType, Timing};

const D: u64 = 8;
const P: u64 = 4;
const SIGABRT: i32 = 6;
const SIGKILL: i32 = 9;
const SIGSEGV: i32 = 11;

/// Sizes of an attention problem.
#[derive(Clone, Copy)]
struct Sizes {
    b: u64,
    h: u64,
    s: u64,
    t: u64,
    causal: bool,
    std: f64,
}

const SIZES: Sizes = Sizes { b: 2, h: 4, s: 3, t: 13, causal: true, std: 0.7 };

fn buffer(name: &str, dims: &[u64], role: Role) -> Buffer {
    Buffer { name: name.into(), dtype: DType::Float32, dims: dims.to_vec(), role }
}

fn operand(buffer: usize) -> Operand {
    Operand { buffer, start: BTreeMap::new() }
}

fn derived(spec: &str, of: &[usize]) -> Role {
    let operands = of.iter().copied().map(operand).collect();
    Role::Derived { formula: Einsum { spec: spec.into(), operands } }
}

fn stage(name: &str, entry: &str, args: Vec<Arg>, grid: [u64; 3], threads: u32) -> Stage {
    let launch = Launch::Cpu { threads };
    Stage { name: name.into(), entry: entry.into(), args, grid, launch, stream: 0, after: vec![] }
}

fn tolerance() -> Tolerance {
    Tolerance { relative_frobenius: 1e-5, relative_row: 4e-5 }
}

/// Attention over decompressed keys, one block a row, by the function `attention` of tests/planted.
fn attention(sizes: Sizes) -> Pipeline {
    let Sizes { b, h, s, t, causal, std } = sizes;
    let k = 6;
    let input = |seed| Role::Input(Distribution::Normal { std, seed });
    let buffers = vec![
        buffer("q", &[b, h, s, D], input(1)),
        buffer("qpe", &[b, h, s, P], input(2)),
        buffer("z", &[b, t, k], input(3)),
        buffer("kpe", &[b, t, P], input(4)),
        buffer("w_uk", &[h, k, D], input(5)),
        buffer("w_uv", &[h, k, D], input(6)),
        buffer("keys", &[b, t, h, D], derived("btk,hkd->bthd", &[2, 4])),
        buffer("values", &[b, t, h, D], derived("btk,hkd->bthd", &[2, 5])),
        buffer("o", &[b, h, s, D], Role::Output),
    ];
    let numbers = [b, h, s, t].map(|size| Arg::Int(size as i64));
    let scale = 1.0 / ((D + P) as f64).sqrt();
    let args = [0, 1, 6, 7, 3, 8].map(Arg::Buffer).into_iter().chain(numbers);
    let args = args.chain([Arg::Int(causal.into()), Arg::Float(scale), Arg::Block(0), Arg::Block(1), Arg::Block(2)]);
    let formula = ReferenceFormula::MlaAttention {
        q: 0,
        qpe: 1,
        z: 2,
        kpe: 3,
        w_uk: 4,
        w_uv: 5,
        scale,
        causal,
        as_read: AsRead::default(),
    };
    Pipeline {
        buffers,
        stages: vec![stage("attention", "attention", args.collect(), [s, h, b], 2)],
        reference: Some(Reference { formula, output: 8, tolerance: tolerance() }),
    }
}

/// `o = x / 4 + 3 x / 4` in two stages that may run at the same time and a third that waits for both.
fn two_streams() -> Pipeline {
    let n = 16;
    let blocks = 40;
    let dims = [n * blocks];
    let buffers = vec![
        buffer("x", &dims, Role::Input(Distribution::Uniform { low: -1.0, high: 2.0, seed: 7 })),
        buffer("quarter", &dims, Role::Scratch),
        buffer("rest", &dims, Role::Scratch),
        buffer("o", &dims, Role::Output),
    ];
    let half = |part: i64| {
        let args = [Arg::Buffer(0), Arg::Buffer(1 + part as usize), Arg::Int(n as i64), Arg::Int(part), Arg::Block(0)];
        stage(["quarter", "rest"][part as usize], "half", args.to_vec(), [blocks, 1, 1], 1)
    };
    let merge = [Arg::Buffer(1), Arg::Buffer(2), Arg::Buffer(3), Arg::Int(n as i64), Arg::Block(0)].to_vec();
    let merge = Stage { after: vec![0, 1], ..stage("merge", "merge", merge, [blocks, 1, 1], 3) };
    let stages = vec![half(0), Stage { stream: 1, ..half(1) }, merge];
    let formula = ReferenceFormula::Einsum { formula: Einsum { spec: "i->i".into(), operands: vec![operand(0)] } };
    Pipeline { buffers, stages, reference: Some(Reference { formula, output: 3, tolerance: tolerance() }) }
}

/// Compiled kernels in a temporary folder.
struct Kernels {
    folder: tempfile::TempDir,
}

impl Kernels {
    fn new() -> Kernels {
        Kernels { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    /// Compiles tests/planted/`source` as the module of `stage`.
    fn compile(&self, source: &str, stage: &Stage, buffers: &[Buffer]) -> PathBuf {
        let planted = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/planted").join(source);
        let unit = self.folder.path().join(format!("{source}.{}.c", stage.name));
        let args: Vec<ArgType> = stage.args.iter().map(|arg| ArgType::of(arg, buffers)).collect();
        let text = caller_source(&planted.to_string_lossy(), &stage.entry, &args);
        std::fs::write(&unit, text).expect("it is written");
        let module = unit.with_extension("so");
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-O2", "-fwrapv", "-fPIC", "-shared"]);
        cc.args([format!("-DD={D}"), format!("-DP={P}")]).arg("-o").arg(&module).arg(&unit).arg("-lm");
        assert!(cc.status().expect("cc runs").success(), "{source} does not compile");
        module
    }

    fn launchable(&self, sources: &[&str], pipeline: Pipeline) -> Launchable {
        let stages = sources.iter().zip(&pipeline.stages);
        let modules = stages.map(|(source, stage)| self.compile(source, stage, &pipeline.buffers)).collect();
        Launchable { pipeline, modules }
    }
}

fn cores() -> Vec<u32> {
    let allowed = rustix::thread::sched_getaffinity(None).expect("the affinity is known");
    let all = 0..rustix::thread::CpuSet::MAX_CPU;
    all.filter(|&core| allowed.is_set(core)).map(|core| core as u32).collect()
}

fn start(task: Task) -> Child {
    let request = Request { protocol: PROTOCOL, task, cores: cores(), gpu: None };
    let mut worker = Command::new(env!("CARGO_BIN_EXE_mlarun"));
    worker.arg("__worker").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = worker.spawn().expect("the worker starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    serde_json::to_writer(&stdin, &request).expect("the worker reads");
    stdin.flush().expect("the worker reads");
    child
}

fn lines(child: &mut Child) -> impl Iterator<Item = Line> + use<> {
    let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    stdout.lines().map(|line| serde_json::from_str(&line.expect("text")).expect("a line of the protocol"))
}

fn ask(task: Task) -> (Vec<Line>, ExitStatus) {
    let mut child = start(task);
    let lines = lines(&mut child).collect();
    (lines, child.wait().expect("the worker ends"))
}

fn check(max_rows: Option<u64>) -> Check {
    Check { max_rows, seed: 5, reference_cache: None, without_bands: false }
}

fn verify(launchable: Launchable) -> (Vec<Line>, ExitStatus) {
    ask(Task::Verify { launchable, check: check(None) })
}

/// The failure that ends an answer.
fn failure(lines: &[Line]) -> (FailureKind, String) {
    match lines.last() {
        Some(Line::Failed(failure)) => (failure.kind, failure.message.clone()),
        other => panic!("the answer ends with {other:?}"),
    }
}

/// Verifies `source` at `sizes` and expects a failure of `kind` whose message has `words`.
fn caught(source: &str, sizes: Sizes, kind: FailureKind, words: &[&str]) {
    let kernels = Kernels::new();
    let (lines, status) = verify(kernels.launchable(&[source], attention(sizes)));
    let (found, message) = failure(&lines);
    assert_eq!(found, kind, "{source}: {message}");
    assert!(words.iter().all(|word| message.contains(word)), "{source}: {message}");
    assert!(status.success(), "{source}: the protocol was followed");
    assert!(!lines.iter().any(|line| matches!(line, Line::Verified(_))));
}

#[test]
fn a_right_kernel_agrees_over_all_rows() {
    let kernels = Kernels::new();
    for sizes in [SIZES, Sizes { causal: false, ..SIZES }, Sizes { s: 15, ..SIZES }] {
        let (lines, status) = verify(kernels.launchable(&["right.c"], attention(sizes)));
        assert!(matches!(lines.first(), Some(Line::Hello { protocol: PROTOCOL, .. })));
        let Some([Line::Verified(found), Line::Done]) = lines.last_chunk() else { panic!("{lines:?}") };
        assert!(found.relative_frobenius > 0.0 && found.relative_frobenius < 1e-6, "{found:?}");
        assert_eq!((found.rows_compared, found.rows_total), (sizes.b * sizes.h * sizes.s, sizes.b * sizes.h * sizes.s));
        assert_eq!(found.output_sha256.len(), 64);
        assert_eq!(found.same_bits, Some(true));
        assert!(status.success());
    }
}

#[test]
fn a_right_kernel_whose_launches_differ_is_told() {
    let kernels = Kernels::new();
    let (lines, _) = verify(kernels.launchable(&["varying.c"], attention(SIZES)));
    let Some([Line::Verified(found), Line::Done]) = lines.last_chunk() else { panic!("{lines:?}") };
    assert_eq!(found.same_bits, Some(false));
    assert!(found.relative_frobenius < 1e-6, "{found:?}");
}

#[test]
fn an_element_left_unwritten_is_caught() {
    caught("unwritten.c", SIZES, FailureKind::WrongOutput, &["o[1,3,2,7]", "never written"]);
}

#[test]
fn a_tail_that_is_off_by_one_is_caught() {
    caught("tail.c", SIZES, FailureKind::WrongOutput, &["relative Frobenius", "24 of 24 compared rows"]);
}

#[test]
fn one_wrong_head_is_caught() {
    caught(
        "wrong_head.c",
        SIZES,
        FailureKind::WrongOutput,
        &["6 of 24 compared rows", "(6, 7, 8, 18, 19, …)", "o[0,2,0,"],
    );
}

#[test]
fn one_wrong_head_is_caught_among_sampled_rows() {
    let kernels = Kernels::new();
    let launchable = kernels.launchable(&["wrong_head.c"], attention(Sizes { b: 3, s: 40, t: 50, ..SIZES }));
    let (lines, _) = ask(Task::Verify { launchable, check: check(Some(6)) });
    let (kind, message) = failure(&lines);
    assert_eq!(kind, FailureKind::WrongOutput);
    assert!(message.contains("of 6 compared rows"), "{message}");
}

#[test]
fn nan_from_a_split_without_a_visible_key_is_caught() {
    caught("split.c", SIZES, FailureKind::WrongOutput, &["o[0,0,0,0]", "computed by the kernel"]);
}

#[test]
fn values_read_from_padding_are_caught() {
    let sizes = Sizes { causal: false, ..SIZES };
    caught("padding.c", sizes, FailureKind::WrongOutput, &["o[1,", "read from outside"]);
}

#[test]
fn a_write_outside_a_buffer_is_caught() {
    caught("outside.c", SIZES, FailureKind::WrongOutput, &["`o` was written outside of", "0 to 191 and element -1"]);
}

#[test]
fn a_constant_output_is_caught() {
    caught("constant.c", SIZES, FailureKind::WrongOutput, &["24 of 24 compared rows"]);
}

#[test]
fn a_reference_of_zeros_can_tell_nothing() {
    caught("right.c", Sizes { std: 0.0, ..SIZES }, FailureKind::CannotTell, &["an output of zeros would pass"]);
}

/// Needs 2.2 GB of memory.
#[test]
fn an_offset_that_overflows_32_bits_is_caught() {
    let (rows, columns) = (1056, 1 << 19);
    let input = |seed| Role::Input(Distribution::Normal { std: 1.0, seed });
    let buffers = vec![
        buffer("a", &[rows], input(1)),
        buffer("b", &[columns], input(2)),
        buffer("o", &[rows, columns], Role::Output),
    ];
    let args = [Arg::Buffer(0), Arg::Buffer(1), Arg::Buffer(2), Arg::Int(columns as i64), Arg::Block(0)];
    let operands = vec![operand(0), operand(1)];
    let formula = ReferenceFormula::Einsum { formula: Einsum { spec: "i,j->ij".into(), operands } };
    let pipeline = Pipeline {
        buffers,
        stages: vec![stage("outer", "outer", args.to_vec(), [rows, 1, 1], 2)],
        reference: Some(Reference { formula, output: 2, tolerance: tolerance() }),
    };
    let kernels = Kernels::new();
    let launchable = kernels.launchable(&["overflow.c"], pipeline);
    let (lines, _) = ask(Task::Verify { launchable, check: check(Some(4)) });
    let (kind, message) = failure(&lines);
    assert_eq!(kind, FailureKind::WrongOutput);
    assert!(message.contains("o[1024,0]") && message.contains("never written"), "{message}");
}

#[test]
fn what_does_not_fit_in_memory_is_refused_with_both_sizes() {
    let kernels = Kernels::new();
    let mut launchable = kernels.launchable(&["right.c"], attention(SIZES));
    launchable.pipeline.buffers[8].dims = vec![1 << 30, 1 << 20, 4, 8];
    launchable.pipeline.reference = None;
    let (lines, _) = ask(Task::Event { launchable, protocol: event_protocol(), check: check(None) });
    let (kind, message) = failure(&lines);
    assert_eq!(kind, FailureKind::OutOfMemory);
    assert!(message.contains("14411518807") && message.contains("available"), "{message}");
}

#[test]
fn a_crash_leaves_the_phase_in_which_it_happened() {
    let kernels = Kernels::new();
    for (source, signal) in [("segfault.c", SIGSEGV), ("abort.c", SIGABRT)] {
        let (lines, status) = verify(kernels.launchable(&[source], attention(SIZES)));
        assert_eq!(status.signal(), Some(signal), "{source}");
        assert_eq!(lines.last(), Some(&Line::Phase { phase: Phase::Run, stage: None }), "{source}");
    }
}

#[test]
fn an_endless_kernel_can_be_killed() {
    let kernels = Kernels::new();
    let mut child =
        start(Task::Verify { launchable: kernels.launchable(&["endless.c"], attention(SIZES)), check: check(None) });
    let mut lines = lines(&mut child);
    assert!(lines.any(|line| line == Line::Phase { phase: Phase::Run, stage: None }));
    child.kill().expect("it runs");
    assert_eq!(child.wait().expect("it ends").signal(), Some(SIGKILL));
    assert_eq!(lines.next(), None);
}

#[test]
fn what_a_kernel_prints_is_no_line_of_the_answer() {
    let kernels = Kernels::new();
    let (lines, _) = verify(kernels.launchable(&["print.c"], attention(SIZES)));
    assert_eq!(lines.iter().filter(|line| **line == Line::Done).count(), 1);
    assert!(matches!(lines.last_chunk(), Some([Line::Verified(_), Line::Done])), "{lines:?}");
}

#[test]
fn a_module_that_does_not_load_is_named() {
    let kernels = Kernels::new();
    let mut launchable = kernels.launchable(&["right.c"], attention(SIZES));
    launchable.pipeline.stages[0].entry = "other".into();
    let (kind, message) = failure(&verify(launchable.clone()).0);
    assert!(kind == FailureKind::Load && message.contains("mlarun_call_other"), "{message}");
    launchable.modules[0] = "/nowhere/k.so".into();
    let (kind, message) = failure(&verify(launchable).0);
    assert!(kind == FailureKind::Load && message.contains("/nowhere/k.so"), "{message}");
}

#[test]
fn a_request_without_sense_is_an_answer_too() {
    let kernels = Kernels::new();
    let launchable = kernels.launchable(&["right.c"], attention(SIZES));
    let mut wrong = launchable.clone();
    wrong.pipeline.stages[0].args[0] = Arg::Buffer(99);
    assert!(failure(&verify(wrong).0).1.contains("buffer 99 of 9"));
    let mut wrong = launchable.clone();
    wrong.pipeline.stages[0].after = vec![0];
    assert!(failure(&verify(wrong).0).1.contains("waits for stage 0"));
    let mut wrong = launchable.clone();
    wrong.modules.clear();
    assert!(failure(&verify(wrong).0).1.contains("0 modules"));
    let mut wrong = launchable;
    wrong.pipeline.buffers[6].role = derived("btk,hkd->bthd", &[2, 8]);
    assert!(failure(&verify(wrong).0).1.contains("`o`"));
}

#[test]
fn reference_rows_are_kept_and_a_damaged_file_is_not_trusted() {
    let kernels = Kernels::new();
    let folder = kernels.folder.path().join("rows");
    let check = Check { reference_cache: Some(folder.clone()), ..check(Some(20)) };
    let launchable = kernels.launchable(&["right.c"], attention(SIZES));
    let verified = || {
        let (lines, _) = ask(Task::Verify { launchable: launchable.clone(), check: check.clone() });
        assert!(matches!(lines.last_chunk(), Some([Line::Verified(_), Line::Done])), "{lines:?}");
        lines[lines.len() - 2].clone()
    };
    let first = verified();
    let files: Vec<PathBuf> =
        std::fs::read_dir(&folder).expect("it was made").map(|entry| entry.expect("an entry").path()).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    let good = std::fs::read(file).expect("it is there");
    assert_eq!(verified(), first);
    let mut damaged = good.clone();
    damaged[200] ^= 0x40;
    std::fs::write(file, damaged).expect("it is written");
    assert_eq!(verified(), first);
    assert_eq!(std::fs::read(file).expect("it is there"), good, "it is written again");
}

fn warmup() -> Warmup {
    Warmup {
        min_launches: 3,
        min_ns: 10_000,
        block_ns: 5_000,
        steady_blocks: 2,
        steady_permille: 1000,
        max_ns: 60_000_000_000,
    }
}

fn event_protocol() -> EventProtocol {
    EventProtocol {
        warmup: warmup(),
        timings: vec![Timing::ColdIsolated, Timing::WarmIsolated, Timing::WarmBatched],
        min_samples: 7,
        max_samples: 12,
        interval_permille: 1,
        budget_ns: 1_000_000_000,
        batch_window_ns: 300_000,
        flush_bytes: 1 << 20,
    }
}

#[test]
fn event_mode_verifies_before_and_after_it_samples() {
    let kernels = Kernels::new();
    let protocol = event_protocol();
    for launchable in [
        kernels.launchable(&["right.c"], attention(SIZES)),
        kernels.launchable(&["half.c", "half.c", "merge.c"], two_streams()),
    ] {
        let (lines, status) = ask(Task::Event { launchable, protocol: protocol.clone(), check: check(None) });
        let results: Vec<&Line> = lines.iter().filter(|line| !matches!(line, Line::Phase { .. })).collect();
        let [
            Line::Hello { .. },
            Line::Verified(before),
            Line::WarmedUp { launches, ns, .. },
            Line::LaunchOverhead { ns: overhead_ns },
            Line::Verified(after),
            Line::Samples(cold),
            Line::Samples(warm),
            Line::Samples(batched),
            Line::Done,
        ] = results[..]
        else {
            panic!("{lines:?}")
        };
        assert_eq!((before.same_bits, after.same_bits), (None, Some(true)));
        assert_eq!(before.output_sha256, after.output_sha256, "a deterministic kernel gives the same bits");
        assert!(*launches >= 3 && *ns >= 10_000 && *overhead_ns > 0.0);
        for (samples, timing) in [cold, warm, batched].into_iter().zip(&protocol.timings) {
            let Samples { timing: found, ns, launches_per_sample, .. } = samples;
            assert_eq!(found, timing);
            assert!((7..=12).contains(&ns.len()) && ns.iter().all(|ns| *ns > 0.0), "{samples:?}");
            assert!(*timing == Timing::WarmBatched || *launches_per_sample == 1);
        }
        assert!(batched.launches_per_sample >= 1);
        assert!(status.success());
        let phases: Vec<Phase> = lines.iter().filter_map(phase).collect();
        let (_, timed) = phases.split_at(phases.len() - 5);
        assert_eq!(timed, [Phase::Warmup, Phase::Sampling, Phase::Compare, Phase::Run, Phase::Compare]);
    }
}

fn phase(line: &Line) -> Option<Phase> {
    match line {
        Line::Phase { phase, .. } => Some(*phase),
        _ => None,
    }
}

#[test]
fn a_wrong_kernel_gets_no_timing() {
    let kernels = Kernels::new();
    let launchable = kernels.launchable(&["tail.c"], attention(SIZES));
    let annotation =
        Task::Annotation { launchable: launchable.clone(), protocol: annotation_protocol(), check: check(None) };
    for task in [Task::Event { launchable, protocol: event_protocol(), check: check(None) }, annotation] {
        let (lines, status) = ask(task);
        assert_eq!(failure(&lines).0, FailureKind::WrongOutput);
        let timed = |line: &Line| matches!(line, Line::Samples(_) | Line::StageSamples { .. } | Line::WarmedUp { .. });
        assert!(!lines.iter().any(timed) && status.success());
    }
}

#[test]
fn a_kernel_that_goes_wrong_while_it_is_timed_gets_no_timing() {
    let kernels = Kernels::new();
    let launchable = kernels.launchable(&["late.c"], attention(SIZES));
    let annotation =
        Task::Annotation { launchable: launchable.clone(), protocol: annotation_protocol(), check: check(None) };
    for task in [Task::Event { launchable, protocol: event_protocol(), check: check(None) }, annotation] {
        let (lines, _) = ask(task);
        assert_eq!(failure(&lines).0, FailureKind::WrongOutput);
        assert!(lines.iter().any(|line| matches!(line, Line::Verified(_))), "the first launch is right");
        assert!(!lines.iter().any(|line| matches!(line, Line::Samples(_) | Line::StageSamples { .. })));
    }
}

fn annotation_protocol() -> AnnotationProtocol {
    AnnotationProtocol { warmup: warmup(), min_samples: 4, max_samples: 9, budget_ns: 1, flush_bytes: 1 << 20 }
}

#[test]
fn annotation_measures_every_stage_in_order() {
    let kernels = Kernels::new();
    let launchable = kernels.launchable(&["half.c", "half.c", "merge.c"], two_streams());
    let (lines, _) = ask(Task::Annotation { launchable, protocol: annotation_protocol(), check: check(None) });
    let measured: Vec<(&str, usize)> = lines
        .iter()
        .filter_map(|line| match line {
            Line::StageSamples { stage, ns } => Some((stage.as_str(), ns.len())),
            _ => None,
        })
        .collect();
    assert_eq!(measured, [("quarter", 4), ("rest", 4), ("merge", 4)]);
    let counted = lines.iter().filter(|line| match line {
        Line::Counters { counters: Counters::Counted(counts), .. } => counts["instructions"] > 0.0,
        Line::Counters { counters: Counters::Absent { reason }, .. } => reason.contains("counters"),
        _ => false,
    });
    assert_eq!(counted.count(), 3);
    assert_eq!(lines.iter().filter(|line| matches!(line, Line::Verified(_))).count(), 2);
    assert_eq!(lines.last(), Some(&Line::Done));
}

#[test]
fn tuning_answers_each_candidate_and_goes_on() {
    let kernels = Kernels::new();
    let right = kernels.launchable(&["right.c"], attention(SIZES));
    let longer = kernels.launchable(&["right.c"], attention(Sizes { t: 14, ..SIZES }));
    let poisoned = kernels.launchable(&["unwritten.c"], attention(SIZES));
    let outside = kernels.launchable(&["outside.c"], attention(SIZES));
    let streams = kernels.launchable(&["half.c", "half.c", "merge.c"], two_streams());
    let missing = Launchable { modules: vec!["/nowhere/k.so".into()], ..right.clone() };
    let all = [
        (right.clone(), None),
        (poisoned, None),
        (missing, None),
        (outside, None),
        (longer, None),
        (streams.clone(), Some(2)),
        (streams, Some(3)),
        (right, Some(0)),
    ];
    let candidates = all
        .into_iter()
        .enumerate()
        .map(|(index, (launchable, stage))| Candidate { number: 10 * index, launchable, stage })
        .collect();
    let protocol = TuneProtocol { min_samples: 3, max_samples: 5, budget_ns: 1, abandon_percent: 1_000_000 };
    let (lines, status) = ask(Task::Tune { candidates, protocol });
    let outcomes: Vec<(usize, Result<u32, FailureKind>)> = lines
        .iter()
        .filter_map(|line| match line {
            Line::Candidate { number, outcome: CandidateOutcome::Timed { median_ns, samples } } => {
                assert!(*median_ns > 0.0);
                Some((*number, Ok(*samples)))
            }
            Line::Candidate { number, outcome: CandidateOutcome::Failed(failure) } => {
                Some((*number, Err(failure.kind)))
            }
            _ => None,
        })
        .collect();
    let wrong = Err(FailureKind::WrongOutput);
    let expected = [
        (0, Ok(3)),
        (10, wrong),
        (20, Err(FailureKind::Load)),
        (30, wrong),
        (40, Ok(3)),
        (50, Ok(3)),
        (60, Err(FailureKind::Internal)),
        (70, Ok(3)),
    ];
    assert_eq!(outcomes, expected, "{lines:?}");
    assert_eq!(lines.last(), Some(&Line::Done));
    assert!(status.success());
}

#[test]
fn a_candidate_that_crashes_is_the_first_without_an_answer() {
    let kernels = Kernels::new();
    let good = kernels.launchable(&["right.c"], attention(SIZES));
    let bad = kernels.launchable(&["segfault.c"], attention(SIZES));
    let candidate = |(number, launchable)| Candidate { number, launchable, stage: None };
    let candidates = [(1, good.clone()), (2, bad), (3, good)].map(candidate).to_vec();
    let protocol = TuneProtocol { min_samples: 1, max_samples: 1, budget_ns: 1, abandon_percent: 1_000_000 };
    let (lines, status) = ask(Task::Tune { candidates, protocol });
    assert_eq!(status.signal(), Some(SIGSEGV));
    let answered = lines.iter().filter(|line| matches!(line, Line::Candidate { .. })).count();
    assert_eq!(answered, 1);
}

#[test]
fn bfloat16_is_compared_as_itself() {
    let mut pipeline = two_streams();
    pipeline.stages.truncate(0);
    pipeline.buffers[0].dtype = DType::Bfloat16;
    let args = [Arg::Buffer(0), Arg::Buffer(3), Arg::Int(640)];
    pipeline.stages.push(stage("widen", "widen", args.to_vec(), [1, 1, 1], 1));
    let kernels = Kernels::new();
    let (lines, _) = verify(kernels.launchable(&["widen.c"], pipeline));
    let Some([Line::Verified(found), Line::Done]) = lines.last_chunk() else { panic!("{lines:?}") };
    assert_eq!(found.relative_frobenius, 0.0);
}
