//! A project of small kernels in a temporary folder, and the real program run in it.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use assert_cmd::cargo::cargo_bin;
use serde_json::Value as Json;
use tempfile::TempDir;

/// The manifest that every project has.
pub const MANIFEST: &str = "experiments/rows.toml";

const ROWS: &str = r#"# One kernel at one shape.
schema = 1

[experiment]
name    = "rows"
kernels = ["copy"]
modes   = ["event"]
rounds  = 1

[shapes]
rows = [8]
"#;

const PACKAGE: &str = r#"# Copies a matrix.
schema = 1
description = "Copies rows"

[parameters]
rows    = { type = "int", min = 1, default = 8, doc = "rows" }
columns = { type = "int", min = 1, default = 16, doc = "columns" }
dtype   = { type = "dtype", allowed = ["float32"], default = "float32", doc = "element type" }

[tensors.x]
role   = "input"
dtype  = "dtype"
shape  = ["rows", "columns"]
normal = { std = 1.0, seed = 1 }

[tensors.y]
role  = "output"
dtype = "dtype"
shape = ["rows", "columns"]

[[stages]]
name    = "copy"
source  = "copy.c"
headers = ["../../common/rows.h"]
entry   = "copy"
args    = ["x", "y", "columns", "block.x"]
grid    = ["rows"]
flops   = 0
bytes   = "2 * size_of(dtype) * rows * columns"
defines = { STEP = 1, ROWS = "rows" }
flags   = ["-fwrapv"]

[reference]
kind   = "einsum"
spec   = "rc->rc"
of     = ["x"]
output = "y"

[reduced]
rows = 3
"#;

const SOURCE: &str = r#"#include "../../common/rows.h"

void copy(const float *x, float *y, int64_t columns, int64_t row)
{
    for (int64_t i = 0; i < columns; i += STEP)
        y[AT(row, i)] = x[AT(row, i)];
}
"#;

const HEADER: &str = r#"#include <stdint.h>
#define AT(row, column) ((row) * columns + (column))
"#;

/// Tells of launches of a few hundred nanoseconds, and takes a few milliseconds.
const PROTOCOL: &str = r#"schema = 1
[flush]
last_level_caches = 1
min_mib = 1
max_mib = 1
[warmup]
min_launches = 1
min_ms = 1
block_ms = 1
steady_blocks = 2
steady_permille = 1000
max_ms = 2
[event]
timings = ["cold_isolated", "warm_batched"]
min_samples = 6
max_samples = 6
interval_permille = 1000
budget_ms = 1
batch_window_us = 10
[annotation]
min_samples = 6
max_samples = 6
budget_ms = 1
[tune]
min_samples = 3
max_samples = 3
budget_ms = 1
abandon_percent = 100
max_candidates = 8
seed = 1
limit_s = 60
[limits]
compile_s = 60
verify_s = 60
run_s = 60
"#;

/// Folder of version `version` of the kernel `design`.
pub fn package(design: &str, version: u32) -> String {
    let suffix = if version == 0 { String::new() } else { format!("_v{version}") };
    format!("kernels/c/rows/{design}{suffix}")
}

/// Runs the program in its folder.
pub struct Project {
    folder: TempDir,
}

/// How the program ended, and what it said.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Project {
    /// With the kernel `copy` in version v0, and [`MANIFEST`], which measures it.
    pub fn new() -> Project {
        let project = Project { folder: tempfile::tempdir().expect("a temporary folder") };
        project.write("conf/protocol.toml", PROTOCOL);
        project.write("kernels/c/common/rows.h", HEADER);
        project.write(MANIFEST, ROWS);
        project.kernel("copy", 0);
        project
    }

    /// Adds a kernel that copies.
    pub fn kernel(&self, design: &str, version: u32) {
        self.write(&format!("{}/kernel.toml", package(design, version)), PACKAGE);
        self.write(&format!("{}/copy.c", package(design, version)), SOURCE);
    }

    /// Adds a kernel that copies, whose function starts with `statement`.
    pub fn kernel_that(&self, design: &str, statement: &str) {
        self.kernel(design, 0);
        self.edit(&format!("{}/copy.c", package(design, 0)), "\n{\n", &format!("\n{{\n    {statement}\n"));
    }

    /// Gives version v0 of `copy` a tiling space of STEP.
    pub fn tunable(&self) {
        let space = "[stages.space]\nchoices = { step = [1, 2, 4] }\nconstraints = [\"tile.step < 3\"]\n\
                     default = { step = 1 }\n\n[reference]";
        let file = format!("{}/kernel.toml", package("copy", 0));
        self.edit(&file, "[reference]", space);
        self.edit(&file, "STEP = 1,", "UNROLL = \"tile.step\", STEP = 1,");
    }

    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Writes a file with its folders.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("folders");
        fs::write(path, text).expect("a file");
    }

    /// Replaces the one occurrence of `from`.
    pub fn edit(&self, path: &str, from: &str, to: &str) {
        let text = self.read(path);
        assert_eq!(text.matches(from).count(), 1, "`{from}` occurs once in {path}");
        self.write(path, &text.replace(from, to));
    }

    /// Every file below `path`, relative to it, sorted.
    pub fn files(&self, path: &str) -> Vec<PathBuf> {
        let start = self.path(path);
        let entries = walkdir::WalkDir::new(&start).sort_by_file_name().into_iter().filter_map(Result::ok);
        let files = entries.filter(|entry| entry.file_type().is_file());
        files.map(|entry| entry.path().strip_prefix(&start).expect("below it").to_owned()).collect()
    }

    /// The program in this folder; it sees none of the caller's settings.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(cargo_bin!("mlarun"));
        command.current_dir(self.root()).args(arguments).stdin(Stdio::null());
        command.env("MLARUN_LEASE_DIR", self.path("lease"));
        for variable in ["CC", "NO_COLOR", "CLICOLOR_FORCE"] {
            command.env_remove(variable);
        }
        command
    }

    pub fn mlarun(&self, arguments: &[&str]) -> Ended {
        ended(&mut self.command(arguments))
    }

    /// Runs [`MANIFEST`].
    pub fn run(&self) -> Ended {
        self.mlarun(&[MANIFEST])
    }

    /// Standard output of a call that succeeds, as JSON.
    pub fn json(&self, arguments: &[&str]) -> Json {
        let ended = self.mlarun(arguments).expect(0);
        serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {}", ended.out))
    }

    /// Runs of the plan of `manifest`.
    pub fn plan(&self, manifest: &str) -> Vec<Json> {
        let plans = self.json(&["plan", "--json", manifest]);
        plans[0]["runs"].as_array().expect("a list of runs").clone()
    }

    /// Starts the program and lets it be followed.
    pub fn start(&self, arguments: &[&str]) -> Running {
        self.start_with(arguments, &[])
    }

    /// The same with variables of the environment.
    pub fn start_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Running {
        let mut command = self.command(arguments);
        Running::of(command.envs(variables.iter().copied()))
    }
}

/// Runs `command` to its end.
pub fn ended(command: &mut Command) -> Ended {
    let output = command.output().expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

impl Ended {
    /// Checks the exit code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Ended {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        self
    }

    /// Checks that something was said to people.
    #[track_caller]
    pub fn says(self, text: &str) -> Ended {
        assert!(self.err.contains(text), "`{text}` is not in:\n{}", self.err);
        self
    }

    #[track_caller]
    pub fn says_nothing_of(self, text: &str) -> Ended {
        assert!(!self.err.contains(text) && !self.out.contains(text), "`{text}` is in:\n{}{}", self.out, self.err);
        self
    }

    /// Checks that something was printed.
    #[track_caller]
    pub fn prints(self, text: &str) -> Ended {
        assert!(self.out.contains(text), "`{text}` is not in:\n{}", self.out);
        self
    }
}

/// The program while it runs.
pub struct Running {
    child: Child,
    lines: BufReader<ChildStderr>,
    heard: String,
}

impl Running {
    /// Starts `command`.
    pub fn of(command: &mut Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let lines = BufReader::new(child.stderr.take().expect("stderr is piped"));
        Running { child, lines, heard: String::new() }
    }

    /// Returns once a line with `text` was said.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) {
        loop {
            let start = self.heard.len();
            let read = self.lines.read_line(&mut self.heard).expect("its standard error can be read");
            assert!(read > 0, "it ended without saying `{text}`:\n{}", self.heard);
            if self.heard[start..].contains(text) {
                return;
            }
        }
    }

    /// Waits for the next line; false at its end.
    pub fn hears_a_line(&mut self) -> bool {
        self.lines.read_line(&mut self.heard).expect("its standard error can be read") > 0
    }

    /// Signals a process that may have ended by itself.
    pub fn signal_if_running(&self, signal: rustix::process::Signal) {
        // Until it is waited for, its number is its own.
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal);
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        self.try_signal(signal).expect("it is running");
    }

    /// The same, of a program that may have ended.
    pub fn try_signal(&self, signal: rustix::process::Signal) -> rustix::io::Result<()> {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal)
    }

    /// Waits for its end.
    pub fn end(mut self) -> Ended {
        self.lines.read_to_string(&mut self.heard).expect("UTF-8");
        let mut out = String::new();
        self.child.stdout.take().expect("stdout is piped").read_to_string(&mut out).expect("UTF-8");
        Ended { code: self.child.wait().expect("it ends").code(), out, err: std::mem::take(&mut self.heard) }
    }
}
