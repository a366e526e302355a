//! The worker's side of GPUs as far as a host without one can show it: what is missing is said in a sentence, and the
//! compiler, which needs no GPU, compiles and refuses. Where there is a GPU, kernels run on it, and inputs, formulas and
//! the float64 reference are compared with the CPU's; elsewhere those tests say that they did not.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mlarun::model::calling::{ArgType, unit_source};
use mlarun::model::pipeline::{
    Arg, AsRead, Buffer, Decompressed, Distribution, Einsum, Launch, Operand, Pipeline, Reference, ReferenceFormula,
    Role, Stage, TensorMap, Tolerance,
};
use mlarun::model::protocol::{
    Check, CompileRequest, EventProtocol, Failure, FailureKind, GpuRequest, Launchable, Line, PROTOCOL, Phase, Request,
    SUPPORT_SOURCE, Task, TuneProtocol, Warmup,
};
use mlarun::model::{DType, Language, Timing};

/// The worker's whole answer.
fn ask(task: Task, gpu: Option<GpuRequest>) -> Vec<Line> {
    let request = Request { protocol: PROTOCOL, task, cores: vec![core()], gpu };
    let mut worker = Command::new(env!("CARGO_BIN_EXE_mlarun"));
    worker.arg("__worker").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = worker.spawn().expect("the worker starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    serde_json::to_writer(&stdin, &request).expect("the worker reads");
    stdin.flush().expect("the worker reads");
    drop(stdin);
    let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let lines = stdout
        .lines()
        .map(|line| serde_json::from_str(&line.expect("text")).expect("a line of the protocol"))
        .collect();
    assert!(child.wait().expect("the worker ends").success(), "the protocol was followed");
    lines
}

fn core() -> u32 {
    let allowed = rustix::thread::sched_getaffinity(None).expect("the affinity is known");
    (0..rustix::thread::CpuSet::MAX_CPU).find(|&core| allowed.is_set(core)).expect("a core") as u32
}

fn failed(lines: &[Line]) -> Option<&Failure> {
    match lines.last() {
        Some(Line::Failed(failure)) => Some(failure),
        Some(Line::Done) => None,
        other => panic!("the answer ends with {other:?}"),
    }
}

/// A failure that says what this host or this program lacks and what to do.
fn assert_says_what_is_missing(failure: &Failure, library: &str) {
    assert_eq!(failure.kind, FailureKind::Unsupported, "{failure}");
    let built_without = failure.message.contains("cargo feature `cuda`");
    let names = failure.message.contains(library) && failure.message.contains("install");
    assert!(built_without != names, "{failure}");
    assert_eq!(built_without, cfg!(not(feature = "cuda")), "{failure}");
}

#[test]
fn the_gpus_are_told_or_what_is_missing() {
    let lines = ask(Task::Probe, None);
    match failed(&lines) {
        Some(failure) => assert_says_what_is_missing(failure, "libcuda.so.1"),
        None => {
            let told = |line: &Line| matches!(line, Line::Gpus { cuda, .. } if *cuda >= 12_000);
            assert!(lines.iter().any(told), "{lines:?}");
        }
    }
}

/// A pipeline of one stage for a GPU.
fn launchable() -> Launchable {
    let buffer = |name: &str, role| Buffer { name: name.into(), dtype: DType::Float32, dims: vec![8], role };
    let input = Role::Input(Distribution::Normal { std: 1.0, seed: 1 });
    let stage = Stage {
        name: "copy".into(),
        entry: "copy".into(),
        args: vec![Arg::Buffer(0), Arg::Buffer(1)],
        grid: [1; 3],
        launch: Launch::Gpu { block: [8, 1, 1], shared_bytes: 0, cluster: None, cooperative: false },
        stream: 0,
        after: vec![],
    };
    let pipeline =
        Pipeline { buffers: vec![buffer("x", input), buffer("o", Role::Output)], stages: vec![stage], reference: None };
    Launchable { pipeline, modules: vec![PathBuf::from("/nowhere/module.cubin")] }
}

fn event() -> Task {
    let warmup =
        Warmup { min_launches: 1, min_ns: 1, block_ns: 1, steady_blocks: 1, steady_permille: 1000, max_ns: 1000 };
    let protocol = EventProtocol {
        warmup,
        timings: vec![Timing::WarmIsolated],
        min_samples: 1,
        max_samples: 1,
        interval_permille: 5,
        budget_ns: 1,
        batch_window_ns: 1,
        flush_bytes: 0,
    };
    Task::Event {
        launchable: launchable(),
        protocol,
        check: Check { max_rows: None, seed: 1, reference_cache: None, without_bands: false },
    }
}

#[test]
fn a_gpu_that_is_not_there_is_refused_in_a_sentence() {
    let uuid = "GPU-00000000-0000-0000-0000-000000000000".to_owned();
    let gpu = GpuRequest { uuid, support: "/nowhere/support.cubin".into() };
    let protocol = TuneProtocol { min_samples: 1, max_samples: 1, budget_ns: 1, abandon_percent: 10 };
    for task in [event(), Task::Load { ns: 1 }, Task::Tune { candidates: vec![], protocol }] {
        let lines = ask(task, Some(gpu.clone()));
        let failure = failed(&lines).expect("there is no such GPU");
        if failure.message.contains("is not one of those that this process sees") {
            assert_eq!(failure.kind, FailureKind::Unsupported);
        } else {
            assert_says_what_is_missing(failure, "libcuda.so.1");
        }
    }
}

#[test]
fn a_stage_for_a_gpu_does_not_run_on_a_cpu() {
    let lines = ask(event(), None);
    let failure = failed(&lines).expect("it is for a GPU");
    assert!(failure.kind == FailureKind::Internal && failure.message.contains("launched on a GPU"), "{failure}");
}

/// Version and targets of NVRTC; `None`, said aloud, where this host has none.
fn compiler() -> Option<Vec<u32>> {
    let lines = ask(Task::Toolkit, None);
    if let Some(failure) = failed(&lines) {
        assert_says_what_is_missing(failure, "libnvrtc.so");
        eprintln!("not tested: {failure}");
        return None;
    }
    lines.iter().find_map(|line| match line {
        Line::Toolkit { version, library, architectures } => {
            assert!(version.0 >= 11 && library.is_file(), "{version:?} {}", library.display());
            Some(architectures.clone())
        }
        _ => None,
    })
}

fn compile(source: &str, options: &[&str], into: &Path) -> Vec<Line> {
    let options = options.iter().map(|&option| option.to_owned()).collect();
    ask(Task::Compile(CompileRequest { name: "k.cu".into(), source: source.into(), options, into: into.into() }), None)
}

#[test]
fn a_kernel_is_compiled_to_machine_code_and_to_ptx() {
    if compiler().is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = "extern \"C\" __global__ void copy(const float *x, float *o) { o[threadIdx.x] = x[threadIdx.x]; }";
    let options = ["--gpu-architecture=sm_90a", "--std=c++17", "--ptxas-options=-v"];
    let lines = compile(source, &options, folder.path());
    let log = lines.iter().find_map(|line| match line {
        Line::Compiled { log } => Some(log.clone()),
        _ => None,
    });
    assert!(log.is_some_and(|log| log.contains("registers")), "{lines:?}");
    let cubin = std::fs::read(folder.path().join("module.cubin")).expect("it is written");
    assert!(cubin.starts_with(b"\x7fELF") && cubin.windows(4).any(|bytes| bytes == b"copy"));
    let ptx = std::fs::read_to_string(folder.path().join("module.ptx")).expect("it is written");
    assert!(ptx.contains(".entry copy") && ptx.contains("sm_90a") && !ptx.ends_with('\0'), "{ptx}");
}

#[test]
fn what_the_compiler_refuses_is_told_with_its_log() {
    if compiler().is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let refused = |source: &str, options: &[&str]| {
        let lines = compile(source, options, folder.path());
        let failure = failed(&lines).expect(source).clone();
        assert_eq!(failure.kind, FailureKind::Build, "{failure}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 0);
        failure.message
    };
    let message = refused("__global__ void f(float *o) { o[0] = nothing; }", &["--gpu-architecture=sm_90a"]);
    assert!(message.contains("k.cu(1)") && message.contains("nothing"), "{message}");
    let message = refused("", &["--gpu-architecture=sm_1"]);
    assert!(message.contains("gpu-architecture"), "{message}");
}

#[test]
fn the_support_code_compiles_for_old_and_new_gpus() {
    let Some(architectures) = compiler() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let middle = architectures.iter().find(|&&architecture| architecture == 90);
    for architecture in architectures.first().into_iter().chain(middle).chain(architectures.last()) {
        let target = format!("--gpu-architecture=sm_{architecture}");
        let lines = compile(SUPPORT_SOURCE, &[&target, "--std=c++17", "--ptxas-options=-v"], folder.path());
        assert_eq!(failed(&lines), None, "{target}");
        let log = lines.iter().find_map(|line| match line {
            Line::Compiled { log } => Some(log.clone()),
            _ => None,
        });
        let log = log.expect("it compiled");
        assert!(!log.contains("warning") && !log.contains("error"), "{target}: {log}");
        assert!(
            log.lines().filter(|line| line.contains("spill")).all(|line| line.contains("0 bytes spill stores")),
            "{target}: {log}"
        );
    }
}

/// A GPU with the support code and kernels compiled for it, and a folder that holds them.
struct Gpu {
    folder: tempfile::TempDir,
    /// Whether it has tensor maps.
    has_maps: bool,
    request: GpuRequest,
}

/// Kernels of these tests: one that copies, one that also writes beside the output, one that writes where nothing is, one
/// that does nothing.
const KERNELS: &str = r#"
extern "C" __global__ void copy(const float *x, float *o) {
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    o[index] = x[index];
}
extern "C" __global__ void beside(const float *x, float *o) {
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    o[index] = x[index];
    o[64] = 1.0f;
}
extern "C" __global__ void wild(const float *x, float *o) { o[1ll << 42] = x[0]; }
extern "C" __global__ void nothing() {}
"#;

/// A kernel that copies through the copy engine, from a tensor map of its input; needs compute capability 9.0.
const MAPPED: &str = r#"
struct alignas(64) Map { char bytes[128]; };
extern "C" __global__ void mapped(const __grid_constant__ Map map, float *o) {
    __shared__ alignas(128) float box[4 * 8];
    __shared__ alignas(8) unsigned long long barrier;
    unsigned to = __cvta_generic_to_shared(box), done = __cvta_generic_to_shared(&barrier);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(done));
        asm volatile("fence.proxy.async.shared::cta;");
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(done), "r"(int(sizeof(box))));
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                     ::"r"(to), "l"(&map), "r"(0), "r"(int(4 * blockIdx.x)), "r"(done) : "memory");
    }
    __syncthreads();
    for (unsigned ready = 0; !ready;)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(ready) : "r"(done) : "memory");
    o[blockIdx.x * 32 + threadIdx.x] = box[threadIdx.x];
}
"#;

impl Gpu {
    /// The first GPU; `None`, said aloud, where this host has none or no compiler for it.
    fn first() -> Option<Gpu> {
        let lines = ask(Task::Probe, None);
        let gpus = lines.iter().find_map(|line| match line {
            Line::Gpus { gpus, .. } => Some(gpus.clone()),
            _ => None,
        });
        let Some(gpu) = gpus.into_iter().flatten().next() else {
            eprintln!("not tested: this host has no GPU");
            return None;
        };
        compiler()?;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (major, minor) = gpu.compute_capability;
        let target = format!("--gpu-architecture=sm_{major}{minor}");
        for (name, source) in [("support", SUPPORT_SOURCE), ("kernels", KERNELS)] {
            let into = folder.path().join(name);
            std::fs::create_dir(&into).expect("it is made");
            assert_eq!(failed(&compile(source, &[&target, "--std=c++17"], &into)), None);
        }
        let has_maps = major >= 9;
        if has_maps {
            let into = folder.path().join("mapped");
            std::fs::create_dir(&into).expect("it is made");
            assert_eq!(failed(&compile(MAPPED, &[&target, "--std=c++17"], &into)), None);
        }
        let support = folder.path().join("support/module.cubin");
        Some(Gpu { folder, has_maps, request: GpuRequest { uuid: gpu.uuid, support } })
    }

    fn module(&self) -> PathBuf {
        self.folder.path().join("kernels/module.cubin")
    }

    fn ask(&self, task: Task) -> Vec<Line> {
        ask(task, Some(self.request.clone()))
    }

    /// `entry` over 8 blocks of 8 threads, which is to copy an input.
    fn copying(&self, entry: &str, grid: [u64; 3]) -> Launchable {
        let mut launchable = launchable();
        let pipeline = &mut launchable.pipeline;
        pipeline.buffers.iter_mut().for_each(|buffer| buffer.dims = vec![8, 8]);
        pipeline.stages[0].entry = entry.into();
        pipeline.stages[0].grid = grid;
        pipeline.reference = Some(reference(identity("ij", 0), 1));
        launchable.modules = vec![self.module()];
        launchable
    }
}

fn operand(buffer: usize) -> Operand {
    Operand { buffer, start: BTreeMap::new() }
}

/// The buffer itself, by the letters of its axes.
fn identity(letters: &str, buffer: usize) -> ReferenceFormula {
    let formula = Einsum { spec: format!("{letters}->{letters}"), operands: vec![operand(buffer)] };
    ReferenceFormula::Einsum { formula }
}

fn reference(formula: ReferenceFormula, output: usize) -> Reference {
    Reference { formula, output, tolerance: Tolerance { relative_frobenius: 1e-6, relative_row: 4e-6 } }
}

fn everything() -> Check {
    Check { max_rows: None, seed: 1, reference_cache: None, without_bands: false }
}

#[test]
fn where_there_is_a_gpu_a_load_tells_its_clock_from_the_middle_on() {
    let Some(gpu) = Gpu::first() else { return };
    let lines = gpu.ask(Task::Load { ns: 100_000_000 });
    assert_eq!(failed(&lines), None);
    let half = |line: &Line| matches!(line, Line::Phase { phase: Phase::Sampling, .. });
    let behind = lines.iter().skip_while(|line| !half(line));
    let clock = |line: &Line| matches!(line, Line::SmClock { mhz } if (100.0..10_000.0).contains(mhz));
    assert_eq!(behind.filter(|line| clock(line)).count(), 1, "{lines:?}");
}

#[test]
fn where_there_is_a_gpu_a_right_kernel_is_timed_and_a_wrong_one_named() {
    let Some(gpu) = Gpu::first() else { return };
    let Task::Event { mut protocol, .. } = event() else { unreachable!("it is one") };
    protocol.timings = vec![Timing::ColdIsolated, Timing::WarmIsolated, Timing::WarmBatched];
    protocol.batch_window_ns = 100_000;
    protocol.flush_bytes = 1 << 20;
    let of = |launchable| Task::Event { launchable, protocol: protocol.clone(), check: everything() };
    let lines = gpu.ask(of(gpu.copying("copy", [8, 1, 1])));
    assert_eq!(failed(&lines), None);
    let verified = lines.iter().filter(|line| matches!(line, Line::Verified(found) if found.relative_frobenius == 0.0));
    assert_eq!(verified.count(), 2, "{lines:?}");
    let timed = |line: &&Line| matches!(line, Line::Samples(samples) if samples.ns.iter().all(|&ns| ns > 100.0));
    assert_eq!(lines.iter().filter(timed).count(), 3, "{lines:?}");
    assert!(lines.iter().any(|line| matches!(line, Line::SmClock { mhz } if *mhz > 100.0)), "{lines:?}");
    for (entry, grid, kind, words) in [
        ("copy", [7, 1, 1], FailureKind::WrongOutput, "o[7,0] (element 56) is the NaN that the output held"),
        ("beside", [8, 1, 1], FailureKind::WrongOutput, "element 64 was overwritten"),
        ("copy", [1, 70_000, 1], FailureKind::Launch, "70000 blocks along y"),
        ("nothing", [1, 1, 1], FailureKind::Load, "takes 0 parameters"),
        ("other", [1, 1, 1], FailureKind::Load, "has no `other`"),
        ("wild", [1, 1, 1], FailureKind::Crashed, "stage `copy` (grid 1 x 1 x 1, block 8 x 1 x 1"),
    ] {
        let lines = gpu.ask(of(gpu.copying(entry, grid)));
        let failure = failed(&lines).expect(words);
        assert!(failure.kind == kind && failure.message.contains(words), "{failure}");
        assert!(!lines.iter().any(|line| matches!(line, Line::Samples(_))), "{words}");
    }
}

#[test]
fn where_there_is_a_copy_engine_it_finds_boxes_by_a_tensor_map() {
    let Some(gpu) = Gpu::first() else { return };
    if !gpu.has_maps {
        eprintln!("not tested: this host's GPU has no tensor maps");
        return;
    }
    let mut launchable = gpu.copying("mapped", [2, 1, 1]);
    let map = TensorMap { buffer: 0, extents: vec![4, 8], swizzle_bytes: 0, promotion_bytes: 128 };
    let stage = &mut launchable.pipeline.stages[0];
    stage.args[0] = Arg::Map(map);
    stage.launch = Launch::Gpu { block: [32, 1, 1], shared_bytes: 0, cluster: None, cooperative: false };
    launchable.modules = vec![gpu.folder.path().join("mapped/module.cubin")];
    let lines = gpu.ask(Task::Verify { launchable: launchable.clone(), check: everything() });
    assert_eq!(failed(&lines), None);
    launchable.modules = vec![gpu.module()];
    launchable.pipeline.stages[0].entry = "copy".into();
    let lines = gpu.ask(Task::Verify { launchable, check: everything() });
    assert!(failed(&lines).is_some_and(|failure| failure.message.contains("a tensor map")), "{lines:?}");
}

#[test]
fn a_tensor_map_is_told_from_other_parameters() {
    if compiler().is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let options = ["--gpu-architecture=sm_90a", "--std=c++17"];
    let header = "struct alignas(64) Map { char bytes[128]; }; struct Other { char bytes[128]; };\n";
    let compiles = |parameters: &str| {
        let source = format!("{header}extern \"C\" __global__ void f({parameters}) {{}}\n");
        let unit = unit_source(Language::Cuda, "f.cu", "f", &[ArgType::Map, ArgType::Tensor(DType::Float32)]);
        // The unit's includes are of the toolkit, which the assertion on these parameters does without.
        let body: String =
            unit.lines().filter(|line| !line.starts_with("#include")).map(|line| format!("{line}\n")).collect();
        failed(&compile(&format!("{source}{body}"), &options, folder.path())).is_none()
    };
    assert_eq!(failed(&compile(MAPPED, &options, folder.path())), None);
    assert!(compiles("const __grid_constant__ Map map, const float *x"));
    assert!(!compiles("const Other map, const float *x"));
    assert!(!compiles("const Map *map, const float *x"));
}

/// Expected rows of a pipeline, as the worker keeps them.
fn rows(buffers: &[Buffer], of: &Reference, stage: Stage, module: &Path, gpu: Option<&GpuRequest>) -> Vec<f64> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipeline = Pipeline { buffers: buffers.to_vec(), stages: vec![stage], reference: Some(of.clone()) };
    let check = Check { reference_cache: Some(folder.path().into()), ..everything() };
    let lines =
        ask(Task::Verify { launchable: Launchable { pipeline, modules: vec![module.into()] }, check }, gpu.cloned());
    let failure = failed(&lines).expect("nothing writes the output");
    assert!(failure.message.contains("never written"), "{failure}");
    let file = std::fs::read_dir(folder.path()).expect("it is there").next().expect("rows are kept").expect("a file");
    let bytes = std::fs::read(file.path()).expect("it can be read");
    let number = |start: usize| bytes[start..start + 8].try_into().expect("eight bytes");
    let (rows, columns) = (u64::from_le_bytes(number(16)) as usize, u64::from_le_bytes(number(24)) as usize);
    (0..rows * columns).map(|index| f64::from_le_bytes(number(32 + 8 * (rows + index)))).collect()
}

#[test]
fn where_there_is_a_gpu_it_makes_the_numbers_that_the_cpu_makes() {
    let Some(gpu) = Gpu::first() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (source, module) = (folder.path().join("nothing.c"), folder.path().join("nothing.so"));
    let text = "void mlarun_call_nothing(void *const *a, long x, long y, long z, long t) {}";
    std::fs::write(&source, text).expect("it is written");
    let cc = Command::new("cc").args(["-w", "-shared", "-fPIC", "-o"]).arg(&module).arg(&source).status();
    assert!(cc.expect("cc runs").success());
    let stage =
        |launch| Stage { entry: "nothing".into(), args: vec![], launch, ..launchable().pipeline.stages[0].clone() };
    let both = |buffers: &[Buffer], of: &Reference| {
        let on_gpu = Launch::Gpu { block: [1; 3], shared_bytes: 0, cluster: None, cooperative: false };
        let cpu = rows(buffers, of, stage(Launch::Cpu { threads: 1 }), &module, None);
        (cpu, rows(buffers, of, stage(on_gpu), &gpu.module(), Some(&gpu.request)))
    };
    let buffer = |name: &str, dtype, dims: &[u64], role| Buffer { name: name.into(), dtype, dims: dims.to_vec(), role };
    let normal = |seed| Role::Input(Distribution::Normal { std: 0.7, seed });
    for dtype in DType::ALL {
        for input in [normal(3), Role::Input(Distribution::Uniform { low: -1.5, high: 3.25, seed: 4 })] {
            let buffers = [buffer("x", dtype, &[77, 13], input), buffer("o", dtype, &[77, 13], Role::Output)];
            let (cpu, gpu) = both(&buffers, &reference(identity("ij", 0), 1));
            assert_eq!(cpu, gpu, "{dtype}");
        }
        // One group of each kind of letter, an operand that is read from a start on, and a rounded result.
        let formula = Einsum {
            spec: "bnk,hkd->bnhd".into(),
            operands: vec![Operand { buffer: 0, start: BTreeMap::from([('n', 6)]) }, operand(1)],
        };
        let buffers = [
            buffer("z", dtype, &[2, 9, 40], normal(5)),
            buffer("w", DType::Float32, &[3, 40, 70], normal(6)),
            buffer("y", dtype, &[2, 3, 3, 70], Role::Derived { formula }),
            buffer("o", dtype, &[2, 3, 3, 70], Role::Output),
        ];
        let (cpu, gpu) = both(&buffers, &reference(identity("bnhd", 2), 3));
        assert_eq!(cpu, gpu, "{dtype}");
        for (b, h, s, t, causal) in [(2, 3, 4, 37, true), (2, 3, 4, 37, false), (1, 2, 6, 3, true)] {
            let buffers = [
                buffer("q", dtype, &[b, h, s, 16], normal(1)),
                buffer("qpe", dtype, &[b, h, s, 8], normal(2)),
                buffer("z", dtype, &[b, t, 24], normal(3)),
                buffer("kpe", dtype, &[b, t, 8], normal(4)),
                buffer("w_uk", dtype, &[h, 24, 16], normal(5)),
                buffer("w_uv", dtype, &[h, 24, 16], normal(6)),
                buffer("o", dtype, &[b, h, s, 16], Role::Output),
                buffer("qc", dtype, &[b, h, s, 24], normal(7)),
                buffer("key", dtype, &[b, t / 3, h, 16], normal(8)),
                buffer("value", dtype, &[b, t / 3, h, 16], normal(9)),
            ];
            let (q, qpe, z, kpe, w_uk, w_uv) = (0, 1, 2, 3, 4, 5);
            let (qc, decompressed) = (Some(7), Some(Decompressed { key: 8, value: 9 }));
            for as_read in [
                AsRead::default(),
                AsRead { qc, decompressed: None },
                AsRead { qc: None, decompressed },
                AsRead { qc, decompressed },
            ] {
                let formula =
                    ReferenceFormula::MlaAttention { q, qpe, z, kpe, w_uk, w_uv, scale: 0.3, causal, as_read };
                let (cpu, gpu) = both(&buffers, &reference(formula, 6));
                let apart = cpu.iter().zip(&gpu).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(cpu.len() == gpu.len() && apart < 1e-13, "{dtype} s={s} t={t} {as_read:?}: {apart}");
            }
        }
    }
}
