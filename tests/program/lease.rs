//! One mlarun measures at a time.

use rustix::process::Signal;

use crate::fake_gpu::{Lab, SWEEP};
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
fn a_recorded_profile_needs_no_lease() {
    let project = waiting();
    std::fs::remove_file(project.path("hang")).expect("removed");
    project.mlarun(&["profile", "copy", "--rows=4"]).expect(0).says("measured copy");
    project.write("hang", "");
    let mut first = project.start(&["-v", MANIFEST]);
    first.wait_for("verifying copy");
    project.mlarun(&["profile", "copy", "--rows=4", "--no-wait"]).expect(0).prints("## Profile: copy v0");
    project
        .mlarun(&["profile", "copy", "--rows=4", "--remeasure", "--no-wait"])
        .expect(3)
        .says("already being measured");
    first.signal(Signal::INT);
    first.end().expect(130);
}

#[test]
fn results_are_not_removed_under_a_session() {
    let project = waiting();
    std::fs::remove_file(project.path("hang")).expect("removed");
    project.run().expect(0);
    project.write("hang", "");
    project.edit(MANIFEST, "rows = [8]", "rows = [8, 9]");
    let mut first = project.start(&["-v", MANIFEST]);
    first.wait_for("verifying copy");
    let mut second = project.start(&["cache", "gc", "--max-size", "0"]);
    second.wait_for("waiting: process");
    assert_eq!(project.files("out/store/records/event").len(), 1, "nothing is removed yet");
    std::fs::remove_file(project.path("hang")).expect("removed");
    first.end().expect(0).says("2 runs recorded");
    second.end().expect(0).prints("removed");
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
fn a_lease_of_one_gpu_keeps_the_host_from_others() {
    let lab = Lab::new();
    lab.hold();
    let of_gpu = [("MLARUN_LEASE", "gpu")];
    let first = lab.start_with(&[SWEEP], &of_gpu);
    lab.wait_for_a_worker();
    // Neither the same GPU nor the whole host is free meanwhile.
    for variables in [&of_gpu[..], &[]] {
        let refused = lab.mlarun_with(&[SWEEP, "--no-wait"], variables).expect(3);
        drop(refused.says("already being measured on by process").says(SWEEP));
    }
    lab.go_on();
    first.end().expect(0);
    lab.mlarun_with(&[SWEEP, "--remeasure"], &[("MLARUN_LEASE", "core")]).expect(2).says("`core` is no scope");
    lab.is_clean("a sweep");
}

#[test]
fn what_measures_nothing_needs_no_lease() {
    let project = waiting();
    let mut first = project.start(&["-v", MANIFEST]);
    first.wait_for("verifying copy");
    let dry = ["cache", "gc", "--max-size", "0", "--dry-run"];
    for arguments in [&["plan", MANIFEST][..], &["list"], &["cache", "ls"], &["report", MANIFEST], &dry] {
        project.mlarun(arguments).expect(0);
    }
    project.mlarun(&["profile", "copy", "--prof_type=ncu", "--no-wait"]).expect(0).says("skipped");
    project.mlarun(&["profile", "copy", "--rows=1000000000", "--columns=100000", "--no-wait"]).expect(4).says("GiB");
    first.signal(Signal::INT);
    first.end().expect(130);
}
