//! The single shot: one kernel, one shape, one mode.

use crate::project::{Project, package};

#[test]
fn annotation_is_the_default_and_parameters_are_options() {
    let project = Project::new();
    let ended = project.mlarun(&["profile", "copy", "--rows=4", "--columns", "5"]).expect(0);
    let ended = ended.prints("## Profile: copy v0").prints("### Configuration").prints("### Stages");
    drop(ended.says("artifacts: "));
    let files = project.files("out/profiles/annotation/copy");
    assert!(
        files.iter().any(|path| path.to_str().is_some_and(|text| text.contains("rows4") && text.contains("columns5"))),
        "{files:?}"
    );
    let params = files.iter().find(|path| path.ends_with("params.json")).expect("parameters");
    let params: serde_json::Value =
        serde_json::from_str(&project.read(&format!("out/profiles/annotation/copy/{}", params.display())))
            .expect("JSON");
    assert_eq!((&params["rows"], &params["columns"]), (&4.into(), &5.into()));
}

#[test]
fn latest_is_the_newest_version() {
    let project = Project::new();
    project.kernel("copy", 1);
    project.kernel("copy", 10);
    project
        .mlarun(&["profile", "copy", "latest", "--prof_type=event", "--bench-runs=1"])
        .expect(0)
        .prints("## Profile: copy v10");
    project
        .mlarun(&["profile", "copy", "v1", "--prof-type", "event", "--bench-runs=1"])
        .expect(0)
        .prints("## Profile: copy v1");
    project.mlarun(&["profile", "copy", "v2"]).expect(2).says("v2");
}

#[test]
fn a_check_verifies_and_measures_nothing() {
    let project = Project::new();
    project.mlarun(&["profile", "copy", "--prof_type=disabled", "--check"]).expect(0).says("verified copy v0");
    assert!(!project.path("out/profiles").exists());
    project.kernel_that("bad", "y[AT(row, 0)] = 9.0f; return;");
    project.mlarun(&["profile", "bad", "--prof_type=disabled", "--check"]).expect(5).says("FAILED bad v0");
    project.mlarun(&["profile", "copy", "--check"]).expect(2).says("--prof_type=disabled");
}

#[test]
fn profilers_of_gpus_are_skipped_on_a_cpu_with_the_reason() {
    let project = Project::new();
    project
        .mlarun(&["profile", "copy", "--prof_type=ncu"])
        .expect(0)
        .says("skipped: Nsight Compute profiles NVIDIA GPUs");
    let json = project.json(&["profile", "copy", "--prof_type=ncu", "--json"]);
    assert!(json["skipped"].as_str().is_some_and(|reason| reason.contains("NVIDIA")), "{json}");
    project.mlarun(&["profile", "copy", "--prof_type=nsys"]).expect(0).says("skipped: Nsight Systems");
}

#[test]
fn artifacts_go_where_they_are_wanted() {
    let project = Project::new();
    project.mlarun(&["profile", "copy", "--out-dir", "here"]).expect(0);
    for name in ["report.md", "params.json", "tiling/copy.json", "compiled/copy/copy.c"] {
        assert!(project.path("here").join(name).is_file(), "{name}");
    }
}

#[test]
fn json_is_printed_alone() {
    let project = Project::new();
    let profile = project.json(&["profile", "copy", "--json", "-qq"]);
    assert_eq!(profile["mode"], "annotation");
    assert!(profile["report"].as_str().is_some_and(|text| text.contains("## Profile: copy v0")));
    assert!(std::path::Path::new(profile["folder"].as_str().expect("a folder")).is_dir());
}

#[test]
fn a_second_shot_measures_nothing_unless_asked() {
    let project = Project::new();
    let shot = ["profile", "copy", "--prof_type=event", "--bench-runs=2"];
    project.mlarun(&shot).expect(0).says("measured copy v0");
    let first = project.files("out/store/records/event").len();
    project.mlarun(&shot).expect(0).prints("## Profile: copy v0").says_nothing_of("measured copy");
    assert_eq!(project.files("out/store/records/event").len(), first);
    project.mlarun(&[&shot[..], &["--remeasure"]].concat()).expect(0).says("measured copy v0");
    assert_eq!(project.files("out/store/records/event").len(), 2 * first);
}

#[test]
fn mistakes_are_named() {
    let project = Project::new();
    project.mlarun(&["profile", "cpoy"]).expect(2).says("cpoy").says("copy");
    project.mlarun(&["profile", "copy", "--row=4"]).expect(2).says("no parameter `row`").says("rows");
    project.mlarun(&["profile", "copy", "--row", "4"]).expect(2).says("no parameter `row`; did you mean `rows`?");
    project.mlarun(&["profile", "copy", "--m", "3"]).expect(2).says("no parameter `m`; known here: `rows`, `columns`");
    project.mlarun(&["profile", "copy", "--no-wiat"]).expect(2).says("--no-wait");
    project.mlarun(&["profile", "copy", "--rows", "-4"]).expect(2).says("allowed are 1");
    project.mlarun(&["profile", "copy", "--rows=four"]).expect(2).says("--rows=four");
    project.mlarun(&["profile", "copy", "--rows=0"]).expect(2).says("rows").says("allowed are 1");
    project.mlarun(&["profile", "copy", "--rows=1", "--rows=2"]).expect(2).says("--rows is given twice");
    project.mlarun(&["profile", "copy", "--dtype=float16"]).expect(2).says("allowed are float32");
    project.mlarun(&["profile", "copy", "--language=cuda"]).expect(3).says("need a GPU");
    project.mlarun(&["profile", "copy", "--prof_type=nvprof"]).expect(2).says("nvprof");
    project.mlarun(&["profile", "copy", "--rows=1000000000", "--columns=100000"]).expect(4).says("GiB");
}

#[test]
fn a_failed_kernel_is_told() {
    let project = Project::new();
    project.kernel_that("bad", "*(volatile int *)8 = 1;");
    let once = project.mlarun(&["profile", "bad"]).expect(4).says("FAILED bad v0").says("SIGSEGV");
    assert_eq!(once.err.matches("SIGSEGV").count(), 1, "{}", once.err);
    let json: serde_json::Value =
        serde_json::from_str(&project.mlarun(&["profile", "bad", "--json"]).expect(4).out).expect("JSON");
    assert!(json["failed"].as_str().is_some_and(|reason| reason.contains("SIGSEGV")), "{json}");
    project.edit(&format!("{}/copy.c", package("bad", 0)), "*(volatile int *)8 = 1;", "undeclared(;");
    project.mlarun(&["profile", "bad"]).expect(4).says("copy.c:5");
}
