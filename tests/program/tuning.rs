//! Tuning: searched once, kept with its history, and planned again with what it found.

use crate::project::{MANIFEST, Project};

const PACKAGE: &str = "kernels/c/rows/copy/kernel.toml";

#[test]
fn a_run_waits_for_its_tuning_and_then_has_a_key() {
    let project = Project::new();
    project.tunable();
    let before = project.plan(MANIFEST);
    assert_eq!((before[0]["state"].as_str(), &before[0]["key"]), (Some("after tune"), &serde_json::Value::Null));
    project.mlarun(&["plan", MANIFEST]).expect(0).prints("tunes copy (3 points)").prints("of tuning");
    project.run().expect(0).says("tuning copy v0").says("2 candidates (1 rejected)").says("tuned copy v0");
    let after = project.plan(MANIFEST);
    assert_eq!(after[0]["state"], "fresh");
    assert!(after[0]["key"].is_string());
    project.mlarun(&["explain", MANIFEST]).expect(0).prints("tiling: copy{step=");
    project.run().expect(0).says("nothing to do");
}

#[test]
fn the_history_shows_every_point_and_rejections_with_their_constraint() {
    let project = Project::new();
    project.tunable();
    project.run().expect(0);
    let files = project.files("out/profiles");
    let history = files.iter().find(|path| path.ends_with("copy/autotuning.json")).expect("a history");
    let text = project.read(&format!("out/profiles/{}", history.display()));
    assert!(text.contains("tile.step < 3"), "{text}");
    let history: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert!(history.to_string().matches("\"step\"").count() >= 4, "{history}");
}

#[test]
fn a_tuning_that_is_known_is_not_made_again() {
    let project = Project::new();
    project.tunable();
    project.run().expect(0);
    project.mlarun(&[MANIFEST, "--remeasure"]).expect(0).says_nothing_of("tuning");
    project.edit(PACKAGE, "tile.step < 3", "tile.step < 4");
    project.run().expect(0).says("tuning copy v0");
}

#[test]
fn a_damaged_tuning_is_set_aside_and_made_again() {
    let project = Project::new();
    project.tunable();
    project.run().expect(0);
    let files = project.files(".cache/kernel-autotune");
    assert_eq!(files.len(), 2, "the history and what it chose: {files:?}");
    for file in &files {
        project.write(&format!(".cache/kernel-autotune/{}", file.display()), "{");
    }
    project.run().expect(0).says("kept as").says("tuning copy v0");
}

#[test]
fn a_space_without_a_valid_point_is_a_failure_that_names_it() {
    let project = Project::new();
    project.tunable();
    project.edit(PACKAGE, "tile.step < 3", "tile.step > 4");
    project.run().expect(4).says("the tiling space of copy has no point that satisfies its constraints");
}

#[test]
fn a_pinned_parameter_is_not_tuned() {
    let project = Project::new();
    project.edit(PACKAGE, "default = 16", "default = 16, candidates = [8, 16]");
    project.run().expect(0).says("tuned copy v0 (c) rows=8 dtype=float32: pipeline columns=");
    project.edit(MANIFEST, "rows = [8]", "rows = [8]\ncolumns = [8]");
    project.run().expect(0).says_nothing_of("tuning").says("columns=8");
}

#[test]
fn a_candidate_that_crashes_loses_and_the_rest_is_tried() {
    let project = Project::new();
    project.tunable();
    project.edit("kernels/c/rows/copy/copy.c", "\n{\n", "\n{\n    if (UNROLL == 1) *(volatile int *)8 = 1;\n");
    project.run().expect(0).says("tuned copy v0").says("step=2");
}
