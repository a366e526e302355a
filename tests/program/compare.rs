//! `mlarun compare`: two sides until a verdict can be given, wherever each of them comes from.

use std::process::{Command, Stdio};

use crate::project::{Project, package};

/// Takes far longer than what it is beside, whatever the host does meanwhile.
const SLOW: &str = "for (volatile int again = 0; again < 20000; again++) {}";

fn sets(project: &Project) -> usize {
    if project.path("out/store/records/event").exists() { project.files("out/store/records/event").len() } else { 0 }
}

#[test]
fn a_slower_one_is_said_to_be_slower_and_the_faster_one_faster() {
    let project = Project::new();
    project.kernel_that("slow", SLOW);
    let slower = ["compare", "copy", "slow", "--rows=64", "--fail-on-regression"];
    project.mlarun(&slower).expect(6).prints("SLOWER");
    assert!(sets(&project) >= 16, "every sample set is kept");
    project.mlarun(&["compare", "slow", "copy", "--rows=64", "--fail-on-regression"]).expect(0).prints("FASTER");
}

#[test]
fn equal_machine_code_is_not_run() {
    let project = Project::new();
    project.kernel("copy", 1);
    project.mlarun(&["compare", "copy:v0", "copy:v1", "--rows=8"]).expect(0).prints("same code");
    assert_eq!(sets(&project), 0);
}

#[test]
fn too_few_rounds_give_no_verdict_and_say_so() {
    let project = Project::new();
    project.kernel_that("slow", SLOW);
    let ended =
        project.mlarun(&["compare", "copy", "slow", "--rows=8", "--rounds=2", "--fail-on-regression"]).expect(0);
    ended.prints("INCONCLUSIVE").prints("too few rounds");
    assert_eq!(sets(&project), 4);
}

#[test]
fn a_side_with_a_wrong_output_gets_no_number() {
    let project = Project::new();
    project.kernel_that("wrong", "if (row == 1) return;");
    for sides in [["copy", "wrong"], ["wrong", "copy"]] {
        project.mlarun(&["compare", sides[0], sides[1], "--rows=8"]).expect(5).says("wrong v0");
    }
    assert_eq!(sets(&project), 0);
}

#[test]
fn a_folder_is_a_side() {
    let project = Project::new();
    project.kernel("copy", 1);
    project.mlarun(&["compare", &package("copy", 0), "copy:v1", "--rows=8"]).expect(0).prints("same code");
}

#[test]
fn a_git_revision_is_a_side() {
    let project = Project::new();
    let git = |arguments: &[&str]| {
        let identity = ["-c", "user.name=n", "-c", "user.email=n@example.org"];
        let mut command = Command::new("git");
        command.args(identity).args(arguments).current_dir(project.root()).stdout(Stdio::null()).stderr(Stdio::null());
        command.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE").env_remove("GIT_INDEX_FILE");
        command.status().is_ok_and(|status| status.success())
    };
    if !git(&["init", "-q"]) {
        eprintln!("not tried: this host has no git");
        return;
    }
    assert!(git(&["add", "kernels"]) && git(&["commit", "-q", "-m", "first"]));
    project.mlarun(&["compare", "copy@HEAD", "copy", "--rows=8"]).expect(0).prints("same code");
    project.edit(&format!("{}/copy.c", package("copy", 0)), "\n{\n", &format!("\n{{\n    {SLOW}\n"));
    let ended = project.mlarun(&["compare", "copy@HEAD", "copy", "--rows=8", "--rounds=1"]).expect(0);
    ended.prints("INCONCLUSIVE");
    project.mlarun(&["compare", "copy@no_such_revision", "copy", "--rows=8"]).expect(2).says("no_such_revision");
}

#[test]
fn what_is_not_there_is_named_before_anything_runs() {
    let project = Project::new();
    for (side, says) in [("copy:v7", "v7"), ("nothing", "nothing"), ("kernels/c/rows/none", "kernels/c/rows/none")] {
        project.mlarun(&["compare", "copy", side, "--rows=8"]).expect(2).says(says);
    }
    project.mlarun(&["compare", "copy", "copy", "--rows=8", "--columns=3", "--nothing=1"]).expect(2).says("nothing");
    assert!(!project.path("out/store/records/event").exists() || sets(&project) == 0);
}
