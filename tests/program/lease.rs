//! One mlarun measures at a time.

use rustix::process::Signal;

use crate::project::{MANIFEST, Project, package};

/// A project whose kernel waits as long as the file `hang` is there.
fn waiting() -> Project {
    let project = Project::new();
    let hang = project.path("hang");
    project.kernel_that("copy", &format!("while (access(\"{}\", F_OK) == 0) {{}}", hang.display()));
    let source = format!("{}/copy.c", package("copy", 0));
    project.edit(&source, "#include \"../", "#include <unistd.h>\n#include \"../");
    project.write("hang", "");
    project
}

#[test]
fn the_second_waits_for_the_first_and_names_it() {
    let project = waiting();
    let mut first = project.start(&["-v", MANIFEST]);
    first.wait_for("verifying copy");
    let mut second = project.start(&[MANIFEST, "--remeasure"]);
    second.wait_for("waiting: process");
    std::fs::remove_file(project.path("hang")).expect("removed");
    first.end().expect(0);
    let second = second.end().expect(0).says("experiments/rows.toml").says("measured copy");
    drop(second);
    assert_eq!(project.files("out/store/records/event").len(), 2);
}

#[test]
fn the_second_refuses_when_asked_to() {
    let project = waiting();
    let mut first = project.start(&["-v", MANIFEST]);
    first.wait_for("verifying copy");
    let refused = project.mlarun(&[MANIFEST, "--no-wait"]).expect(3).says("already being measured on by process");
    drop(refused.says("experiments/rows.toml"));
    project.mlarun(&["profile", "copy", "--no-wait"]).expect(3).says("already being measured on by process");
    first.signal(Signal::INT);
    first.end().expect(130);
}

#[test]
fn waiting_is_interrupted() {
    let project = waiting();
    let mut first = project.start(&["-v", MANIFEST]);
    first.wait_for("verifying copy");
    let mut second = project.start(&[MANIFEST]);
    second.wait_for("waiting: process");
    second.signal(Signal::INT);
    second.end().expect(130).says("interrupted while waiting");
    first.signal(Signal::INT);
    first.end().expect(130);
}

#[test]
fn what_measures_nothing_needs_no_lease() {
    let project = waiting();
    let mut first = project.start(&["-v", MANIFEST]);
    first.wait_for("verifying copy");
    for arguments in [&["plan", MANIFEST][..], &["list"], &["cache", "ls"], &["report", MANIFEST]] {
        project.mlarun(arguments).expect(0);
    }
    first.signal(Signal::INT);
    first.end().expect(130);
}
