//! A GPU that is not there: NVML is tests/fake_nvml/nvml.c, loaded by the real program as the driver's library is, and the
//! worker is a test of this file, which answers as one on a GPU would, its clock that of the fake.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use mlarun::model::pipeline::Stage;
use mlarun::model::protocol::{
    CandidateOutcome, Counters, GpuInfo, Line, PROTOCOL, Phase, Request, Samples, Task, Verification,
};

use mlarun::model::timeline::{Activity, ActivityKind, Timeline, Tracer};

use crate::project::{Ended, Project, Running, ended};

pub const UUID: &str = "GPU-fa4e0000-0000-0000-0000-000000000000";
/// Clock of the fake while nobody has locked it.
const FREE_MHZ: i64 = 1980;

const PACKAGE: &str = r#"schema = 1
description = "Copies rows"

[parameters]
rows  = { type = "int", min = 1, default = 8, doc = "rows" }
dtype = { type = "dtype", allowed = ["float32"], default = "float32", doc = "element type" }

[tensors.x]
role   = "input"
dtype  = "dtype"
shape  = ["rows", 16]
normal = { std = 1.0, seed = 1 }

[tensors.y]
role  = "output"
dtype = "dtype"
shape = ["rows", 16]

[[stages]]
name   = "copy"
source = "copy.cu"
entry  = "copy"
args   = ["x", "y"]
grid   = ["rows"]
block  = [16]
flops  = 0
bytes  = "2 * size_of(dtype) * rows * 16"

[reference]
kind   = "einsum"
spec   = "rc->rc"
of     = ["x"]
output = "y"

[reduced]
rows = 3
"#;

const SOURCE: &str = r#"extern "C" __global__ void copy(const float *x, float *y) {}
"#;

const MANIFEST: &str = r#"schema = 1

[experiment]
name    = "sweep"
kernels = ["copy"]
modes   = ["event"]
rounds  = 2

[shapes]
rows = [8, 9]

[clocks]
policy = "lock"
sm_mhz = 1500
"#;

/// The manifest of every such project.
pub const SWEEP: &str = "experiments/sweep.toml";

/// A library of ours, compiled once; `lacking` leaves out the lock of the SM clock.
fn library(lacking: bool) -> PathBuf {
    static WHOLE: OnceLock<PathBuf> = OnceLock::new();
    static LACKING: OnceLock<PathBuf> = OnceLock::new();
    let compile = |name: &str, flags: &[&str]| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_nvml/nvml.c");
        let published = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let module = published.with_extension(format!("{}", std::process::id()));
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-O1", "-Wall", "-Werror", "-fPIC", "-shared"]).args(flags).arg("-o").arg(&module);
        assert!(cc.arg(source).status().expect("cc runs").success(), "the fake NVML compiles");
        fs::rename(&module, &published).expect("renamed");
        published
    };
    if lacking {
        LACKING.get_or_init(|| compile("fake_nvml_lacking.so", &["-DLACK_LOCK"])).clone()
    } else {
        WHOLE.get_or_init(|| compile("fake_nvml.so", &[])).clone()
    }
}

/// State of the fake, shared with every process that has loaded it.
pub struct Fake(PathBuf);

impl Fake {
    fn text(file: &mut File) -> String {
        let mut text = String::new();
        file.rewind().expect("a file");
        file.read_to_string(&mut text).expect("text");
        text
    }

    fn open(&self) -> File {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&self.0);
        let file = file.expect("the state of the fake");
        file.lock().expect("locked");
        file
    }

    /// Number under `key`; 0 where there is none.
    pub fn get(&self, key: &str) -> i64 {
        let text = Fake::text(&mut self.open());
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        value.map_or(0, |value| value.parse().expect("a number"))
    }

    pub fn set(&self, key: &str, value: i64) -> &Fake {
        let mut file = self.open();
        let text = Fake::text(&mut file);
        let others = text.lines().filter(|line| !line.starts_with(&format!("{key}=")));
        let text: String = others.map(|line| format!("{line}\n")).chain([format!("{key}={value}\n")]).collect();
        file.rewind().expect("a file");
        file.write_all(text.as_bytes()).expect("written");
        file.set_len(text.len() as u64).expect("written");
        self
    }

    /// MHz that SM and memory are locked to; 0: they are not.
    pub fn locked(&self) -> (i64, i64) {
        (self.get("sm.0"), self.get("mem.0"))
    }

    /// Every call that was to change something, in order.
    pub fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(format!("{}.log", self.0.display())).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// Returns once `is_so`.
#[track_caller]
pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    const LIMIT: Duration = Duration::from_secs(60);
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A project with a CUDA kernel on a host with the fake GPU.
pub struct Lab {
    pub project: Project,
    pub fake: Fake,
    library: PathBuf,
    program: PathBuf,
}

impl Lab {
    pub fn new() -> Lab {
        Lab::of(assert_cmd::cargo::cargo_bin!("mlarun").to_owned(), false)
    }

    /// Where NVML has no function to lock the SM clock.
    pub fn lacking_the_lock() -> Lab {
        Lab::of(assert_cmd::cargo::cargo_bin!("mlarun").to_owned(), true)
    }

    /// With another build of the program.
    pub fn of(program: PathBuf, lacking: bool) -> Lab {
        let project = Project::new();
        project.write("kernels/cuda/rows/copy/kernel.toml", PACKAGE);
        project.write("kernels/cuda/rows/copy/copy.cu", SOURCE);
        project.write(SWEEP, MANIFEST);
        for file in ["lib64/libnvrtc.so.13", "include/cuda_bf16.h", "include/cuda_fp16.h"] {
            project.write(&format!("cuda/{file}"), "");
        }
        let state = project.path("fake.state");
        let this = std::env::current_exe().expect("this program");
        // What the harness prints is no line of the protocol.
        project.write(
            "worker",
            &format!(
                "#!/bin/sh\nexport FAKE_NVML={} FAKE_ROOT={}\n[ $1 = __worker ] || exec {} \"$@\"\nexec 3>&1 >/dev/null\n\
                 exec {} --exact fake_gpu::worker --ignored --nocapture\n",
                state.display(),
                project.root().display(),
                program.display(),
                this.display()
            ),
        );
        fs::set_permissions(project.path("worker"), fs::Permissions::from_mode(0o755)).expect("an executable");
        project.write("fake.state", "");
        Lab { project, fake: Fake(state), library: library(lacking), program }
    }

    /// The program in the project, on the fake GPU.
    pub fn command(&self, arguments: &[&str]) -> Command {
        self.on("gpu", arguments)
    }

    /// The same, on one device.
    pub fn on(&self, device: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(self.project.root()).args(arguments).env("MLARUN_DEVICE", device);
        command.stdin(std::process::Stdio::null());
        command.env("MLARUN_LEASE_DIR", self.project.path("lease"));
        command.env("MLARUN_NVML", &self.library).env("FAKE_NVML", self.project.path("fake.state"));
        command.env("MLARUN_TEST_WORKER", self.project.path("worker")).env("CUDA_HOME", self.project.path("cuda"));
        for variable in ["LD_LIBRARY_PATH", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "MLARUN_CLOCKS", "NO_COLOR"] {
            command.env_remove(variable);
        }
        command
    }

    pub fn mlarun(&self, arguments: &[&str]) -> Ended {
        self.mlarun_with(arguments, &[])
    }

    pub fn mlarun_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
        ended(self.command(arguments).envs(variables.iter().copied()))
    }

    pub fn start_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Running {
        Running::of(self.command(arguments).envs(variables.iter().copied()))
    }

    /// Lets workers on the GPU wait from now on in event mode, until [`Lab::go_on`].
    pub fn hold(&self) {
        self.project.write("hang", "");
    }

    pub fn go_on(&self) {
        fs::remove_file(self.project.path("hang")).expect("it waits");
    }

    /// Returns once a worker waits.
    #[track_caller]
    pub fn wait_for_a_worker(&self) {
        wait_until("a worker measures", || self.project.path("waits").exists());
        fs::remove_file(self.project.path("waits")).expect("a file");
    }

    /// The measurements' records, in the order in which they were taken.
    pub fn records(&self) -> Vec<serde_json::Value> {
        let folder = "out/store/records/event";
        let files = self.project.files(folder);
        let read = |file: &PathBuf| self.project.read(&format!("{folder}/{}", file.display()));
        let mut records: Vec<serde_json::Value> =
            files.iter().map(|file| serde_json::from_str(&read(file)).expect("JSON")).map(record).collect();
        records.sort_by_key(|record| record["position"]["taken_at"].as_str().expect("a time").to_owned());
        records
    }

    /// Processes of this lab, by number, with their command lines.
    pub fn processes(&self) -> Vec<(Pid, String)> {
        let root = self.project.root().display().to_string();
        let marks = [format!("MLARUN_LEASE_DIR={root}"), format!("FAKE_ROOT={root}")];
        let text = |path: PathBuf| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).replace('\0', " ");
        let entries = fs::read_dir("/proc").expect("/proc").flatten();
        let found = entries.filter_map(|entry| {
            let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
            let environment = text(entry.path().join("environ"));
            let command = text(entry.path().join("cmdline"));
            // One that has ended and is not looked at yet has neither.
            (marks.iter().any(|mark| environment.contains(mark)) && !command.is_empty()).then_some((pid, command))
        });
        found.collect()
    }

    /// Kills the watchers; tells how many there were.
    pub fn kill_watchers(&self) -> usize {
        self.kill(|_, command| command.contains("__clock_watch"))
    }

    /// Kills the workers that measure; tells how many there were.
    pub fn kill_workers(&self) -> usize {
        let holder = self.fake.get("holder");
        self.kill(|pid, command| {
            command.contains("fake_gpu::worker") && i64::from(pid.as_raw_nonzero().get()) != holder
        })
    }

    fn kill(&self, is_meant: impl Fn(Pid, &str) -> bool) -> usize {
        let meant: Vec<Pid> =
            self.processes().into_iter().filter(|(pid, command)| is_meant(*pid, command)).map(|(pid, _)| pid).collect();
        for pid in &meant {
            // One that has just ended by itself is gone as well.
            let _ = kill_process(*pid, Signal::KILL);
        }
        meant.len()
    }

    /// Returns once no process of this lab is left.
    #[track_caller]
    pub fn is_quiet(&self, after: &str) {
        // The system shows nothing of a process that is just being started; the locks that it was given stay locked.
        let locks = ["lease.json".to_owned(), format!("clocks-{UUID}.json")];
        let is_free = || {
            let open = |lock: &String| File::open(self.project.path(&format!("lease/{lock}")));
            locks.iter().all(|lock| open(lock).map_or(true, |file| file.try_lock().is_ok()))
        };
        wait_until(&format!("{after}: no process is left"), || self.processes().is_empty() && is_free());
    }

    /// The clocks are the GPU's own, nothing is noted, no process is left, and the next one may measure.
    #[track_caller]
    pub fn is_clean(&self, after: &str) {
        self.is_quiet(after);
        assert_eq!(self.fake.locked(), (0, 0), "{after}: clocks are locked: {:?}", self.fake.calls());
        let note = fs::read_to_string(self.project.path(&format!("lease/clocks-{UUID}.json"))).unwrap_or_default();
        assert_eq!(note, "", "{after}");
        let lease = File::open(self.project.path("lease/lease.json")).expect("a lease was taken");
        lease.try_lock().unwrap_or_else(|error| panic!("{after}: the lease is held: {error}"));
    }
}

/// The record in a file of the store, whatever is around it.
fn record(file: serde_json::Value) -> serde_json::Value {
    if file.get("record").is_some() { file["record"].clone() } else { file }
}

#[test]
#[ignore = "is the worker of other tests"]
fn worker() {
    set_parent_process_death_signal(Some(Signal::KILL)).expect("it ends with its parent");
    let mut answer = File::options().append(true).open("/proc/self/fd/3").expect("started by a script of this file");
    let mut line = |line: Line| {
        let text = serde_json::to_string(&line).expect("JSON");
        writeln!(answer, "{text}").expect("someone listens");
    };
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).expect("a request");
    let request: Request = serde_json::from_str(&text).expect("a request");
    line(Line::Hello { protocol: PROTOCOL, pid: std::process::id() });
    let root = PathBuf::from(std::env::var_os("FAKE_ROOT").expect("set by the script"));
    let fake = Fake(PathBuf::from(std::env::var_os("FAKE_NVML").expect("set by the script")));
    let mhz = || match (fake.get("sm.0"), fake.get("keep_sm")) {
        (0, _) => FREE_MHZ as f64,
        (locked, 0) => locked as f64,
        (_, kept) => kept as f64,
    };
    let right = || {
        let output_sha256 = "0".repeat(64);
        let (rows_compared, rows_total) = (8, 8);
        let (relative_frobenius, worst_row) = (0.0, 0.0);
        Verification {
            same_bits: None,
            relative_frobenius,
            worst_row,
            worst_row_index: 0,
            rows_compared,
            rows_total,
            output_sha256,
        }
    };
    let verification = || Line::Verified(right());
    match request.task {
        Task::Probe => line(Line::Gpus { driver: "580.0".into(), cuda: 13_000, gpus: vec![gpu()] }),
        Task::Toolkit => {
            line(Line::Toolkit { version: (13, 0), library: "libnvrtc.so.13".into(), architectures: vec![90] });
        }
        Task::Compile(compile) => {
            // Any object file: this GPU runs none.
            let this = std::env::current_exe().expect("this program");
            std::os::unix::fs::symlink(this, compile.into.join("module.cubin")).expect("a module");
            fs::write(compile.into.join("module.ptx"), "").expect("written");
            line(Line::Compiled { log: String::new() });
        }
        Task::Hold => {
            fake.set("holder", i64::from(std::process::id()));
            line(Line::Held);
            loop {
                std::thread::park();
            }
        }
        Task::Load { .. } => {
            line(Line::Phase { phase: Phase::Sampling, stage: None });
            line(Line::SmClock { mhz: mhz() });
        }
        Task::Verify { .. } => line(verification()),
        Task::Event { protocol, .. } => {
            if root.join("hang").exists() {
                fs::write(root.join("waits"), "").expect("written");
                wait_until("going on", || !root.join("hang").exists());
            }
            line(Line::WarmedUp { launches: 1, ns: 1, steady: true });
            line(Line::SmClock { mhz: mhz() });
            for timing in protocol.timings {
                let ns = vec![1000.0; 6];
                line(Line::Samples(Samples { timing, ns, launches_per_sample: 1, converged: true }));
            }
            line(verification());
        }
        Task::Annotation { launchable, .. } => {
            for stage in launchable.pipeline.stages {
                line(Line::StageSamples { stage: stage.name.clone(), ns: vec![1000.0; 6] });
                let counters = Counters::Absent { reason: "a fake".into() };
                line(Line::Counters { stage: stage.name, counters });
            }
            line(verification());
        }
        Task::Profile { subjects, .. } => {
            for subject in 0..subjects.len() {
                line(Line::Launched { subject });
                line(Line::Kept { subject, verification: right() });
            }
        }
        Task::Cupti { .. } => line(Line::Cupti { version: 130_001 }),
        Task::Timeline { launchable, protocol, library, .. } => {
            line(verification());
            if let Tracer::Cupti { .. } = protocol.tracer {
                assert!(library.is_some_and(|library| library.is_file()), "there is a library to trace with");
                line(Line::Timeline(traced(&launchable.pipeline.stages, protocol.launches)));
            }
            line(verification());
        }
        Task::Tune { candidates, .. } => {
            for candidate in candidates {
                let outcome = CandidateOutcome::Timed { median_ns: 1000.0, samples: 6 };
                line(Line::Candidate { number: candidate.number, outcome });
            }
        }
    }
    line(Line::Done);
}

/// Launches of a pipeline as CUPTI would tell them: the stages 2 us each, each beside the first half of the one after it.
fn traced(stages: &[Stage], launches: u32) -> Timeline {
    let mut timeline = Timeline::default();
    for launch in 0..u64::from(launches) {
        for (index, stage) in stages.iter().enumerate() {
            let (start_ns, correlation) =
                (1_000_000 + launch * 10_000 + index as u64 * 1000, launch * 10 + index as u64);
            let activity = |kind, name: &str, start_ns, end_ns| Activity {
                kind,
                name: name.to_owned(),
                start_ns,
                end_ns,
                process: Some(4),
                thread: None,
                device: Some(0),
                context: Some(1),
                stream: Some(13 + index as u64),
                correlation: Some(correlation),
                bytes: None,
            };
            timeline.activities.push(activity(ActivityKind::Kernel, &stage.entry, start_ns, start_ns + 2000));
            let call = activity(ActivityKind::Api, "cuLaunchKernelEx", start_ns - 800, start_ns - 300);
            timeline.activities.push(Activity { device: None, context: None, stream: None, ..call });
        }
    }
    timeline.sort();
    timeline
}

fn gpu() -> GpuInfo {
    GpuInfo {
        index: 0,
        uuid: UUID.into(),
        name: "NVIDIA H200".into(),
        compute_capability: (9, 0),
        multiprocessors: 132,
        memory_bytes: 1 << 37,
        free_bytes: 1 << 37,
        l2_bytes: 1 << 26,
        shared_bytes_per_block_max: 232_448,
        sm_clock_khz: 1_980_000,
        memory_clock_khz: 3_201_000,
        mig: false,
    }
}
