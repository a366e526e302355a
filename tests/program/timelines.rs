//! Nsys mode: tests/program/nsys.sh stands in for Nsight Systems, with what the real one exported (tests/captures), and the fake
//! worker for CUPTI; the rest is the real program on the fake GPU.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value as Json;

use crate::fake_gpu::Lab;
use crate::project::{Ended, ended};

/// The pipeline that was captured: two stages beside one another, and one behind them.
const PACKAGE: &str = r#"schema = 1
description = "Three stages"

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
name   = "latent"
source = "pipe.cu"
entry  = "latent_stage"
args   = ["x", "y"]
grid   = ["rows"]
block  = [16]
stream = 0
flops  = 0
bytes  = "rows"

[[stages]]
name   = "decompressed"
source = "pipe.cu"
entry  = "decompressed_stage"
args   = ["x", "y"]
grid   = ["rows"]
block  = [16]
stream = 1
flops  = 0
bytes  = "rows"

[[stages]]
name   = "combine"
source = "pipe.cu"
entry  = "combine_stage"
args   = ["x", "y"]
grid   = ["rows"]
block  = [16]
stream = 0
after  = ["decompressed"]
flops  = 0
bytes  = "rows"

[reference]
kind   = "einsum"
spec   = "rc->rc"
of     = ["x"]
output = "y"

[reduced]
rows = 3
"#;

const SOURCE: &str = r#"extern "C" __global__ void latent_stage(const float *x, float *y) {}
extern "C" __global__ void decompressed_stage(const float *x, float *y) {}
extern "C" __global__ void combine_stage(const float *x, float *y) {}
"#;

const MANIFEST: &str = r#"schema = 1

[experiment]
name    = "pipes"
kernels = ["pipe"]
modes   = ["nsys"]

[shapes]
rows = [8]

[protocol.nsys]
launches = 5

[clocks]
policy = "observe"
"#;

const PIPES: &str = "experiments/pipes.toml";
const RECORDS: &str = "out/store/records/timeline";

/// A lab with the pipeline and Nsight Systems.
fn lab() -> Lab {
    let lab = Lab::new();
    lab.project.write("kernels/cuda/rows/pipe/kernel.toml", PACKAGE);
    lab.project.write("kernels/cuda/rows/pipe/pipe.cu", SOURCE);
    lab.project.write(PIPES, MANIFEST);
    lab.project.write("nsys", include_str!("nsys.sh"));
    fs::set_permissions(lab.project.path("nsys"), fs::Permissions::from_mode(0o755)).expect("an executable");
    let captured = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures/nsys-export.sqlite.gz");
    let mut export = Vec::new();
    let mut decoder = flate2::read::GzDecoder::new(fs::File::open(captured).expect("a capture"));
    decoder.read_to_end(&mut export).expect("it is compressed");
    fs::write(lab.project.path("nsys.sqlite"), export).expect("written");
    lab
}

fn with_cupti(lab: &Lab) {
    lab.project.write("cuda/extras/CUPTI/lib64/libcupti.so.13", "");
}

/// The program with Nsight Systems from `nsys`, and a secret in its environment.
fn mlarun(lab: &Lab, arguments: &[&str]) -> Ended {
    let nsys = lab.project.path("nsys").display().to_string();
    lab.mlarun_with(arguments, &[("MLARUN_NSYS", &nsys), ("SECRET", "hush"), ("MLARUN_NSYS_LIBRARIES", "/dw")])
}

fn without_nsys(lab: &Lab, arguments: &[&str]) -> Ended {
    lab.mlarun_with(arguments, &[("MLARUN_NSYS", "/no/nsys")])
}

fn starts(lab: &Lab) -> usize {
    fs::read_to_string(lab.project.path("nsys.starts")).unwrap_or_default().lines().count()
}

fn records(lab: &Lab) -> Vec<Json> {
    let files = if lab.project.path(RECORDS).exists() { lab.project.files(RECORDS) } else { Vec::new() };
    let read = |file: &std::path::PathBuf| -> Json {
        serde_json::from_str(&lab.project.read(&format!("{RECORDS}/{}", file.display()))).expect("JSON")
    };
    files.iter().map(read).map(|file| file["record"].clone()).collect()
}

/// The file of this name in the only profile.
fn artifact(lab: &Lab, name: &str) -> String {
    let files = lab.project.files("out/profiles/nsys");
    let mut found = files.iter().filter(|file| file.ends_with(name));
    let file = found.next().unwrap_or_else(|| panic!("{name} is not among {files:?}"));
    assert!(found.next().is_none(), "{files:?}");
    lab.project.read(&format!("out/profiles/nsys/{}", file.display()))
}

#[test]
fn nsight_systems_makes_a_timeline() {
    let lab = lab();
    mlarun(&lab, &[PIPES]).expect(0).says("1 run recorded");
    let record = &records(&lab)[0];
    assert_eq!(record["body"]["tracer"]["nsys"]["version"], "2025.3.1.90");
    assert_eq!((&record["body"]["launches"], record["body"].get("instead")), (&5.into(), None));
    let report = artifact(&lab, "report.md");
    for words in [
        "### Pipeline (nsys, median of 5 launches)",
        "![One launch of pipe v0](timeline.svg)",
        "### Overlap (nsys)",
        "| combine | combine_stage |",
        "Nsight Systems 2025.3.1.90",
        "### Launch latency (nsys)",
    ] {
        assert!(report.contains(words), "{words} is not in {report}");
    }
    assert!(artifact(&lab, "timeline.svg").contains("decompressed_stage"));
    let trace: Json = serde_json::from_str(&artifact(&lab, "timeline.perfetto.json")).expect("JSON");
    assert!(trace["traceEvents"].as_array().is_some_and(|events| events.len() > 15), "{trace:#}");
    for file in ["activities.csv", "overlap.csv", "gaps.csv", "latencies.csv", "streams.csv", "params.json"] {
        assert!(!artifact(&lab, file).is_empty());
    }
    let files = record["body"]["files"].as_array().expect("files");
    let names: Vec<_> = files.iter().map(|file| file["name"].as_str().expect("a name")).collect();
    assert!(names.len() == 2 && names[0].ends_with(".nsys-rep") && names[1].ends_with(".sqlite"), "{names:?}");
    assert_eq!(artifact(&lab, names[0]), "report\n");
    assert_eq!(fs::read_dir(lab.project.path("out/nsight")).expect("a folder").count(), 2, "nothing else is left");
    mlarun(&lab, &[PIPES]).expect(0).says("nothing to do");
    assert_eq!(starts(&lab), 1);
    let shown = mlarun(&lab, &["show", record["subject"].as_str().expect("a key")]);
    let shown = shown.expect(0).out;
    assert!(shown.contains("Nsight Systems 2025.3.1.90: span "), "{shown}");
}

#[test]
fn it_gets_its_own_libraries_and_no_secret() {
    let lab = lab();
    mlarun(&lab, &[PIPES]).expect(0);
    let environment = lab.project.read("nsys.environment");
    let has = |line: &str| environment.lines().any(|other| other == line);
    assert!(has("LD_LIBRARY_PATH=/dw") && has("LC_ALL=C"), "{environment}");
    assert!(!environment.contains("SECRET"), "{environment}");
}

#[test]
fn without_it_cupti_makes_the_same_report_and_says_so() {
    let lab = lab();
    with_cupti(&lab);
    without_nsys(&lab, &[PIPES]).expect(0).says("1 run recorded");
    let record = &records(&lab)[0];
    assert_eq!(record["body"]["tracer"]["cupti"]["version"], 130_001);
    let report = artifact(&lab, "report.md");
    for words in [
        "### Pipeline (CUPTI, median of 5 launches)",
        "| 4.00 | 4.00 |",
        "**Not by Nsight Systems**: MLARUN_NSYS names /no/nsys, which is no file",
        "| latent | -- | 50% (1.00 us) |",
    ] {
        assert!(report.contains(words), "{words} is not in {report}");
    }
    assert!(!report.contains("(nsys"), "{report}");
    // Nsight Systems is another tool: its timeline is another measurement.
    mlarun(&lab, &[PIPES]).expect(0).says("1 run recorded");
    assert_eq!(records(&lab).len(), 2);
    let shown = mlarun(&lab, &["show", record["subject"].as_str().expect("a key")]).expect(0).out;
    assert!(shown.contains("span 4.000 us by CUPTI, ") && shown.contains(" us by nsys: they differ by "), "{shown}");
}

#[test]
fn the_tool_can_be_chosen() {
    let lab = lab();
    with_cupti(&lab);
    let profile = ["profile", "pipe", "--prof_type=nsys", "--rows=8", "--no-wait"];
    let traced = mlarun(&lab, &[&profile[..], &["--tool=cupti"]].concat()).expect(0).out;
    assert!(traced.contains("### Pipeline (CUPTI, median of 20 launches)"), "{traced}");
    assert!(traced.contains("**Not by Nsight Systems**: CUPTI was asked for."), "{traced}");
    assert_eq!(starts(&lab), 0);
    mlarun(&lab, &[PIPES, "--set", "protocol.nsys.tool=\"cupti\""]).expect(0).says("1 run recorded");
    assert_eq!(starts(&lab), 0);
    let refused = mlarun(&lab, &["profile", "pipe", "--prof_type=event", "--tool=cupti"]);
    refused.expect(2).says("--tool goes with --prof_type=nsys");
    let skipped = without_nsys(&lab, &[&profile[..], &["--tool=nsys"]].concat());
    skipped.expect(0).says("skipped: MLARUN_NSYS names /no/nsys");
}

#[test]
fn with_neither_the_mode_is_skipped_with_both_reasons() {
    let lab = lab();
    let swept = without_nsys(&lab, &[PIPES]);
    swept.expect(0).says("1 skipped");
    let report = lab.project.read("out/experiments/pipes/report.md");
    assert!(report.contains("which is no file; and without it: CUPTI"), "{report}");
}

#[test]
fn one_that_cannot_import_gives_way_to_cupti() {
    let lab = lab();
    with_cupti(&lab);
    lab.project.write("nsys.mode", "unimported");
    mlarun(&lab, &[PIPES]).expect(0).says("1 run recorded");
    let report = artifact(&lab, "report.md");
    assert!(report.contains("its importer needs libdw.so.1") && report.contains("(CUPTI, "), "{report}");
    assert_eq!(starts(&lab), 0);
    // Once it can, it is preferred.
    lab.project.write("nsys.mode", "");
    mlarun(&lab, &[PIPES]).expect(0).says("1 run recorded");
    assert_eq!(starts(&lab), 1);
}

#[test]
fn each_failure_says_what_to_do_and_is_no_result() {
    let lab = lab();
    for (mode, says) in [
        ("unimported_later", "could not import what it recorded"),
        ("nothing", "Nsight Systems left no report"),
        ("unexported", "could not export"),
        ("stale", "is the export of an earlier trace"),
    ] {
        lab.project.write("nsys.mode", mode);
        mlarun(&lab, &[PIPES]).expect(4).says(says);
        assert!(records(&lab).is_empty(), "{mode}");
    }
    lab.project.write("nsys.mode", "");
    let other = mlarun(&lab, &[PIPES, "--set", "protocol.nsys.launches=6"]);
    other.expect(4).says("the trace holds 5 launches of the pipeline, and 6 were made");
    assert!(records(&lab).is_empty());
    mlarun(&lab, &[PIPES]).expect(0).says("1 run recorded");
}

#[test]
fn a_recording_holds_what_was_traced() {
    let lab = lab();
    let recorded = lab.project.path("nsys.recording").display().to_string();
    mlarun(&lab, &[PIPES, "--record", &recorded]).expect(0).says("1 run recorded");
    let replayed = lab.project.path("replayed").display().to_string();
    let mut replay = lab.command(&["--replay", &recorded, "--out", &replayed]);
    ended(replay.env_remove("MLARUN_DEVICE").env("MLARUN_NSYS", "/no/nsys")).expect(0);
    for report in ["experiments/pipes/report.md", "experiments/pipes/results.json"] {
        assert_eq!(lab.project.read(&format!("out/{report}")), lab.project.read(&format!("replayed/{report}")));
    }
    let timelines = |out: &str| {
        let files = lab.project.files(&format!("{out}/profiles/nsys"));
        let svg = files.into_iter().find(|file| file.ends_with("timeline.svg")).expect("a picture");
        lab.project.read(&format!("{out}/profiles/nsys/{}", svg.display()))
    };
    assert_eq!(timelines("out"), timelines("replayed"));
}
