//! Results files as baselines: what they share with an experiment, and what only they have.

use crate::project::{MANIFEST, Project};

/// A project whose earlier results, of two kernels, are a file beside it.
fn with_results() -> Project {
    let project = Project::new();
    project.kernel("other", 0);
    project.edit(MANIFEST, r#"kernels = ["copy"]"#, r#"kernels = ["copy", "other"]"#);
    project.run().expect(0);
    project.write("experiments/old.json", &project.read("out/experiments/rows/results.json"));
    project.edit(MANIFEST, "rounds  = 1", "rounds  = 1\nbaselines = [\"old.json\"]");
    project
}

#[test]
fn runs_that_only_the_file_has_are_counted_and_fail_the_gate() {
    let project = with_results();
    project.edit(MANIFEST, r#"kernels = ["copy", "other"]"#, r#"kernels = ["copy"]"#);
    project.run().expect(0);
    let report = project.read("out/experiments/rows/report.md");
    assert!(report.contains("1 run") && report.contains("other"), "{report}");
    project.mlarun(&[MANIFEST, "--fail-on-regression"]).expect(6);
}

#[test]
fn a_file_without_any_run_of_the_experiment_is_refused_before_anything_runs() {
    let project = with_results();
    project.edit(MANIFEST, "rows = [8]", "rows = [9]");
    project.run().expect(2).says("no run in common with this experiment");
}

#[test]
fn a_ratio_to_a_file_gets_no_verdict() {
    let project = with_results();
    project.run().expect(0);
    let results = project.read("out/experiments/rows/results.json");
    assert!(!results.contains("\"FASTER\"") && !results.contains("\"SLOWER\""), "{results}");
    let report = project.read("out/experiments/rows/report.md");
    assert!(report.contains("No verdict: the baseline comes from a file"), "{report}");
}
