//! What `mlarun MANIFEST` does: everything once, then nothing.

use crate::project::{MANIFEST, Project};

#[test]
fn the_first_call_measures_and_the_second_says_that_nothing_is_left() {
    let project = Project::new();
    project.run().expect(0).says("1 to do").says("verified copy v0").says("measured copy v0").says("1 run recorded");
    let files = project.files("out");
    let second = project.run().expect(0).says("rows: nothing to do, 1 run recorded");
    assert_eq!(second.err.lines().count(), 1, "{}", second.err);
    assert_eq!(project.files("out"), files, "the second call writes nothing");
}

#[test]
fn every_artifact_is_written() {
    let project = Project::new();
    project.edit(MANIFEST, r#"["event"]"#, r#"["event", "annotation"]"#);
    project.tunable();
    project.run().expect(0);
    for mode in ["event", "annotation"] {
        let files = project.files(&format!("out/profiles/{mode}/copy"));
        for name in [
            "params.json",
            "report.md",
            "tiling/copy.json",
            "tiling/copy/autotuning.json",
            "compiled/copy/copy.c",
            "compiled/copy/command.txt",
            "compiled/copy/listing.s",
        ] {
            let count = files.iter().filter(|path| path.ends_with(name)).count();
            assert_eq!(count, 1, "{name} in {files:?}");
        }
    }
    for name in ["report.md", "results.json", "results.csv"] {
        assert!(project.path(&format!("out/experiments/rows/{name}")).is_file(), "{name}");
    }
}

#[test]
fn without_calibration_kernels_there_is_a_warning_and_no_roofline() {
    let project = Project::new();
    project.run().expect(0).says("warning: no roofline: there is no kernel `peak_fma`");
}

#[test]
fn peaks_are_measured_once() {
    let project = Project::new();
    for name in ["peak_fma", "peak_stream"] {
        let file = format!("kernels/c/device/{name}/kernel.toml");
        project.kernel(name, 0);
        std::fs::rename(project.path(&format!("kernels/c/rows/{name}")), {
            let folder = project.path(&format!("kernels/c/device/{name}"));
            std::fs::create_dir_all(folder.parent().expect("a parent")).expect("a folder");
            folder
        })
        .expect("renamed");
        project.edit(
            &file,
            "[reference]\nkind   = \"einsum\"\nspec   = \"rc->rc\"\nof     = [\"x\"]\noutput = \"y\"\n",
            "",
        );
        project.edit(&file, "STEP = 1,", "STEP = \"tile.step\",");
        project.edit(&file, "flops   = 0", "flops = \"rows * columns\"");
        project.edit(
            &file,
            "\n[reduced]\nrows = 3",
            "[stages.space]\nchoices = { step = [1, 2] }\ndefault = { step = 1 }",
        );
    }
    project.run().expect(0).says("measuring this host's peaks once").says_nothing_of("no roofline");
    project.mlarun(&["device", "show"]).expect(0).prints("peaks (measured").prints("GFLOP/s, ridge point");
    let again = project.mlarun(&[MANIFEST, "--remeasure"]).expect(0);
    again.says_nothing_of("measuring this host's peaks");
    let runs = project.plan(MANIFEST);
    assert!(runs[0]["roofline_ns"].as_f64().is_some_and(|ns| ns > 0.0), "{}", runs[0]);
}

#[test]
fn only_what_depends_on_a_changed_source_runs_again_and_the_plan_names_the_file() {
    let project = Project::new();
    project.kernel("other", 0);
    project.edit(MANIFEST, r#"["copy"]"#, r#"["copy", "other"]"#);
    project.run().expect(0).says("2 to do");
    project.edit("kernels/c/rows/copy/copy.c", "int64_t i = 0;", "int64_t i = 0 * ROWS;");

    let plan = project.plan(MANIFEST);
    let states: Vec<&str> = plan.iter().filter_map(|run| run["state"].as_str()).collect();
    assert_eq!(states, ["stale", "fresh"]);
    let changes = plan[0]["changes"].as_array().expect("a list");
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert_eq!(changes[0]["path"], "subject.builds.copy.sources.copy.c");
    let hash = |name: &str| changes[0][name].as_str().expect("a hash").to_owned();
    assert_ne!(hash("old"), hash("new"));
    let line = format!("copy.c: {} → {}", &hash("old")[..12], &hash("new")[..12]);
    project.mlarun(&["plan", MANIFEST]).expect(0).prints(&line);
    project.mlarun(&["explain", MANIFEST]).expect(0).prints(&line);

    project.run().expect(0).says("1 recorded, 1 to do").says("measured copy v0").says_nothing_of("measured other");
    project.run().expect(0).says("nothing to do");
}

#[test]
fn remeasuring_appends() {
    let project = Project::new();
    project.run().expect(0);
    project.mlarun(&[MANIFEST, "--remeasure"]).expect(0).says("measured copy v0");
    assert_eq!(project.files("out/store/records/event").len(), 2);
    project.run().expect(0).says("nothing to do");
}

#[test]
fn a_filter_leaves_the_rest_alone() {
    let project = Project::new();
    project.kernel("copy", 1);
    project.edit(MANIFEST, r#"["copy"]"#, "[\"copy\"]\nversions = \"all\"");
    project.edit(MANIFEST, "rows = [8]", "rows = [8, 9]");
    let ended = project.mlarun(&[MANIFEST, "--only", "version == 'v0' && rows == 9"]).expect(0);
    ended.says("rows: 1 run: 0 recorded").says("rows=9").says_nothing_of("rows=8");
    let wrong = project.mlarun(&[MANIFEST, "--only", "sersion == 'v0'"]).expect(2).says("--only");
    drop(wrong.says("did you mean `version`?"));
    for arguments in [&[MANIFEST][..], &["plan", MANIFEST], &["explain", MANIFEST]] {
        let none = project.mlarun(&[arguments, &["--only", "version == 'v7'"]].concat()).expect(0);
        none.says("warning: --only `version == 'v7'` selects no run of rows").says_nothing_of("measured");
    }
}

#[test]
fn keys_of_the_manifest_are_overridden() {
    let project = Project::new();
    let ended = project.mlarun(&[MANIFEST, "--set", "shapes.rows=[2,3]", "--set", "name=other"]).expect(0);
    ended.says("other: 2 runs").says("rows=2").says("rows=3");
    assert!(project.path("out/experiments/other/report.md").is_file());
}

#[test]
fn a_dry_run_runs_nothing() {
    let project = Project::new();
    project.mlarun(&[MANIFEST, "--dry-run"]).expect(0).prints("never measured").prints("1 stale");
    assert!(project.files("out/store/records").is_empty());
}

#[test]
fn baselines_are_measured_beside_their_candidates() {
    let project = Project::new();
    project.kernel("copy", 1);
    project.kernel("other", 0);
    project.edit(MANIFEST, r#"["copy"]"#, "[\"copy\"]\nversions = [\"v1\"]\nbaselines = [\"previous\", \"other\"]");
    let ended = project.run().expect(0);
    let ended = ended.says("measured copy v1").says("measured copy v0").says("measured other v0");
    drop(ended.says("3 runs recorded"));
    let report = project.read("out/experiments/rows/report.md");
    assert!(report.contains("vs Baseline"), "{report}");
}

#[test]
fn the_results_folder_can_be_elsewhere() {
    let project = Project::new();
    project.mlarun(&[MANIFEST, "--out", "results"]).expect(0);
    assert!(project.path("results/experiments/rows/report.md").is_file());
    assert!(!project.path("out").exists());
}

#[test]
fn nothing_is_compiled_that_is_there() {
    let project = Project::new();
    project.run().expect(0).says("compiling 2 modules");
    project.mlarun(&[MANIFEST, "--remeasure"]).expect(0).says("measured copy").says_nothing_of("compiling");
    std::fs::remove_dir_all(project.path(".cache/builds")).expect("removed");
    project.edit(MANIFEST, "rows = [8]", "rows = [3]");
    project.run().expect(0).says("compiling 1 module\n");
}

#[test]
fn several_manifests_are_run_in_turn_and_the_worst_end_is_told() {
    let project = Project::new();
    project.kernel_that("broken", "undeclared();");
    project.write(
        "experiments/broken.toml",
        &project.read(MANIFEST).replace("copy", "broken").replace("\"rows\"", "\"b\""),
    );
    let ended = project.mlarun(&["experiments/broken.toml", MANIFEST]).expect(4);
    ended.says("b: done").says("rows: done, 1 run recorded");
}

#[test]
fn results_are_printed_as_json() {
    let project = Project::new();
    let results = project.json(&[MANIFEST, "--json"]);
    assert!(results.to_string().contains("copy"), "{results}");
}
