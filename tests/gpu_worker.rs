//! The worker's side of GPUs as far as a host without one can show it: what is missing is said in a sentence, and the
//! compiler, which needs no GPU, compiles and refuses.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mlarun::model::pipeline::{Arg, Buffer, Distribution, Launch, Pipeline, Role, Stage};
use mlarun::model::protocol::{
    Check, CompileRequest, EventProtocol, Failure, FailureKind, GpuRequest, Launchable, Line, PROTOCOL, Request,
    SUPPORT_SOURCE, Task, TuneProtocol, Warmup,
};
use mlarun::model::{DType, Timing};

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
    Task::Event { launchable: launchable(), protocol, check: Check { max_rows: None, seed: 1, reference_cache: None } }
}

#[test]
fn a_gpu_that_is_not_there_is_refused_in_a_sentence() {
    let uuid = "GPU-00000000-0000-0000-0000-000000000000".to_owned();
    let gpu = GpuRequest { uuid, support: "/nowhere/support.cubin".into() };
    let protocol = TuneProtocol { min_samples: 1, max_samples: 1, budget_ns: 1, abandon_percent: 10 };
    for task in [event(), Task::Tune { candidates: vec![], protocol }] {
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
