//! Reports: rendered again from what is recorded, by templates that users replace.

use crate::project::{MANIFEST, Project};

#[test]
fn a_report_is_rendered_again_without_running_anything() {
    let project = Project::new();
    project.run().expect(0);
    let names = ["report.md", "results.json", "results.csv"].map(|name| format!("out/experiments/rows/{name}"));
    let texts = names.each_ref().map(|name| project.read(name));
    for name in &names {
        std::fs::remove_file(project.path(name)).expect("removed");
    }
    // Nothing could be compiled or run now.
    project.write("kernels/c/rows/copy/copy.c", &project.read("kernels/c/rows/copy/copy.c"));
    let ended = project.mlarun(&["report", MANIFEST]).expect(0).prints("out/experiments/rows/report.md");
    drop(ended.says_nothing_of("measured"));
    assert_eq!(names.each_ref().map(|name| project.read(name)), texts, "byte for byte");
}

#[test]
fn a_report_of_nothing_measured_says_so() {
    let project = Project::new();
    project.mlarun(&["report", MANIFEST]).expect(0);
    let report = project.read("out/experiments/rows/report.md");
    assert!(report.contains("copy"), "{report}");
}

#[test]
fn a_missing_report_is_written_by_the_next_call() {
    let project = Project::new();
    project.run().expect(0);
    std::fs::remove_file(project.path("out/experiments/rows/report.md")).expect("removed");
    project.run().expect(0).says_nothing_of("measured");
    assert!(project.path("out/experiments/rows/report.md").is_file());
}

#[test]
fn a_replaced_template_takes_effect() {
    let project = Project::new();
    project.run().expect(0);
    project.write("templates/experiment.md.hbs", "# My own report of `a | b` & <{{experiment}}>\n");
    project.run().expect(0).says_nothing_of("measured");
    let report = project.read("out/experiments/rows/report.md");
    assert!(report.starts_with("# My own report of `a | b` & <"), "{report}");
    project.run().expect(0).says("nothing to do");
}

#[test]
fn a_broken_template_is_named() {
    let project = Project::new();
    project.write("templates/experiment.md.hbs", "{{#each");
    let ended = project.run().says("experiment.md");
    assert_ne!(ended.code, Some(0));
}
