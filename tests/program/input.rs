//! Bad input through the program: the exit code, the message that matters, and nothing run.

use std::os::unix::fs::PermissionsExt as _;

use crate::project::{MANIFEST, Project, ended};

/// The manifest with `from` replaced is refused before anything runs, and every one of `says` is in the message.
#[track_caller]
fn refused(from: &str, to: &str, says: &[&str]) {
    let project = Project::new();
    project.edit(MANIFEST, from, to);
    let mut ended = project.run().expect(2);
    for text in says {
        ended = ended.says(text);
    }
    ended.says("nothing was run");
    assert!(!project.path("out").exists(), "nothing was written");
}

/// The manifest with `from` replaced is run, with a warning.
#[track_caller]
fn warned(from: &str, to: &str, says: &str) {
    let project = Project::new();
    project.edit(MANIFEST, from, to);
    let ended = project.mlarun(&["plan", MANIFEST]).expect(0).says("warning").says(says);
    assert_eq!(ended.err.matches("warning").count(), 1, "{}", ended.err);
}

#[test]
fn unknown_keys() {
    refused("modes ", "mods ", &["experiments/rows.toml:7:1", "`mods`", "did you mean `modes`"]);
}

#[test]
fn wrong_types() {
    refused("rounds  = 1", "rounds = \"one\"", &["rounds", "integer", "\"one\""]);
}

#[test]
fn axes() {
    refused("rows = [8]", "rows = [8, \"9\"]", &["mixes types"]);
    refused("rows = [8]", "rows = []", &["rows", "no value"]);
    refused("rows = [8]", "rows = [nan]", &["NaN"]);
    refused("rows = [8]", "row = [8]", &["`row`", "`rows`"]);
    warned("rows = [8]", "rows = [8, 8]", "listed twice");
}

#[test]
fn exclusions() {
    refused(
        "rows = [8]",
        "rows = [8]\n[[shapes.exclude]]\nwhen = \"rows > 0\"",
        &["exclusions leave none of the 1 point"],
    );
    refused("rows = [8]", "rows = [8]\n[[shapes.exclude]]\nwhen = \"rwos > 9\"", &["unknown name", "rwos"]);
    refused("rows = [8]", "rows = [8]\n[[shapes.exclude]]\nwhen = \"rows / 0 > 1\"", &["rows / 0 > 1"]);
    warned("rows = [8]", "rows = [8]\n[[shapes.exclude]]\nwhen = \"rows > 9\"", "matches no point");
}

#[test]
fn too_many_points() {
    let axis = |name: &str| {
        let values: Vec<String> = (1..=2000).map(|value| value.to_string()).collect();
        format!("{name} = [{}]", values.join(", "))
    };
    refused("rows = [8]", &format!("{}\n{}", axis("rows"), axis("columns")), &["4,000,000"]);
}

#[test]
fn names() {
    for name in ["../out", "a/b", "..", "größe", "", &"x".repeat(300)] {
        refused("\"rows\"\n", &format!("\"{name}\"\n"), &["cannot name a folder"]);
    }
    refused(r#"["copy"]"#, r#"["../copy"]"#, &["../copy"]);
    refused(r#"["copy"]"#, r#"["cpoy"]"#, &["there is no kernel `cpoy`", "`copy`"]);
    refused(r#"["copy"]"#, "[\"copy\"]\nversions = [\"v3\"]", &["v3"]);
}

#[test]
fn everything_at_once() {
    refused(
        "rounds  = 1\n\n[shapes]\nrows = [8]",
        "rounds = \"one\"\nmods = 1\n[shapes]\nrow = []",
        &["rounds", "mods", "row", "3 errors"],
    );
}

#[test]
fn files_of_other_systems_are_read() {
    let project = Project::new();
    let plan = project.mlarun(&["plan", "--json", MANIFEST]).expect(0).out;
    project.write(MANIFEST, &format!("\u{feff}{}", project.read(MANIFEST).replace('\n', "\r\n")));
    assert_eq!(project.mlarun(&["plan", "--json", MANIFEST]).expect(0).out, plan);
}

#[test]
fn files_that_cannot_be_read() {
    let project = Project::new();
    project.mlarun(&["experiments/none.toml"]).expect(2).says("experiments/none.toml");
    std::fs::write(project.path(MANIFEST), b"name = \"\xff\"").expect("written");
    project.run().expect(2).says("UTF-8");
    project.write(MANIFEST, "schema = \n");
    project.run().expect(2).says("experiments/rows.toml:1:");
    project.mlarun(&["experiments"]).expect(2).says("experiments");
}

#[test]
fn expressions_of_a_package_that_do_not_evaluate() {
    let project = Project::new();
    project.edit("kernels/c/rows/copy/kernel.toml", r#"grid    = ["rows"]"#, r#"grid = ["rows / (rows - 8)"]"#);
    let ended = project.run().expect(2).says("copy v0").says("grid");
    drop(ended.says("rows / (rows - 8)"));
}

#[test]
fn a_stage_without_a_block_is_refused() {
    let project = Project::new();
    project.edit("kernels/c/rows/copy/kernel.toml", r#"grid    = ["rows"]"#, r#"grid = ["rows / 9"]"#);
    let ended = project.run().expect(2).says("copy v0").says("stage `copy`, grid: `rows / 9`");
    drop(ended.says("nothing is launched"));
    project.edit("kernels/c/rows/copy/kernel.toml", r#"grid = ["rows / 9"]"#, "grid = [\"rows\"]\nthreads = 0");
    project.run().expect(2).says("`threads` of the stage `copy` is 0");
}

#[test]
fn a_missing_source() {
    let project = Project::new();
    std::fs::remove_file(project.path("kernels/c/rows/copy/copy.c")).expect("removed");
    project.run().expect(2).says("copy.c").says("nothing was run");
}

#[test]
fn a_broken_configuration() {
    let project = Project::new();
    project.edit(
        "conf/protocol.toml",
        "min_samples = 6\nmax_samples = 6\ninterval",
        "min_sample = 6\nmax_samples = 6\ninterval",
    );
    project.run().expect(2).says("protocol.toml").says("min_sample");
}

#[test]
fn a_host_without_a_compiler() {
    let project = Project::new();
    let none = ended(project.command(&[MANIFEST]).env("PATH", project.path("nowhere"))).expect(3);
    drop(none.says("no C compiler: `cc`").says("install"));
    let wrong = ended(project.command(&[MANIFEST]).env("CC", "no-such-compiler")).expect(3);
    drop(wrong.says("`no-such-compiler`"));
    // What needs no compiler works all the same.
    ended(project.command(&["list"]).env("PATH", project.path("nowhere"))).expect(0).prints("copy");
    ended(project.command(&["check", MANIFEST]).env("PATH", project.path("nowhere"))).expect(0);
}

#[test]
fn a_compiler_that_is_none() {
    let project = Project::new();
    project.write("false-cc", "#!/bin/sh\necho no\n");
    std::fs::set_permissions(project.path("false-cc"), std::fs::Permissions::from_mode(0o755)).expect("an executable");
    ended(project.command(&[MANIFEST]).env("CC", project.path("false-cc"))).expect(3).says("gcc and clang");
}

#[test]
fn results_that_cannot_be_written() {
    let project = Project::new();
    // A file in the place of the folder, which even a superuser cannot write into.
    project.write("out", "");
    project.run().expect(3).says("results cannot be written there").says_nothing_of("compiling");
    project.mlarun(&[MANIFEST, "--out", "/proc/nowhere"]).expect(3).says("--out").says_nothing_of("compiling");
}

#[test]
fn compiles_and_tunings_that_cannot_be_kept() {
    for folder in [".cache", ".cache/builds", ".cache/kernel-autotune"] {
        let project = Project::new();
        // A file in the place of the folder, which even a superuser cannot write into.
        project.write(folder, "");
        for arguments in [&[MANIFEST][..], &["profile", "copy"], &["device", "calibrate"], &["plan", MANIFEST]] {
            let refused =
                project.mlarun(arguments).expect(3).says("cannot be kept there").says("make the folder writable");
            let refused = refused.says(&format!("{}: ", project.path(folder).display()));
            assert_eq!(refused.err.lines().count(), 1, "{}", refused.err);
        }
    }
}

#[test]
fn a_lease_that_cannot_be_had() {
    let project = Project::new();
    project.write("lease", "");
    project.run().expect(3).says("MLARUN_LEASE_DIR");
}

#[test]
fn cuda_on_a_host_without_a_gpu() {
    let project = Project::new();
    project.edit(MANIFEST, "rounds  = 1", "language = \"cuda\"");
    let ended = project.run();
    assert!(matches!(ended.code, Some(2 | 3)), "{ended:?}");
}

#[test]
fn a_baseline_file_that_cannot_be_used_is_refused_before_anything_runs() {
    let project = Project::new();
    project.edit(MANIFEST, "rounds  = 1", "rounds = 1\nbaselines = [\"old.json\"]");
    for text in ["{", "{}", "{\"format\": {\"major\": 99, \"minor\": 0}, \"runs\": []}"] {
        project.write("experiments/old.json", text);
        for arguments in [&["check", MANIFEST][..], &["plan", MANIFEST], &[MANIFEST]] {
            project.mlarun(arguments).expect(2).says("old.json").says_nothing_of("compiling");
        }
    }
}

#[test]
fn two_experiments_of_one_name_are_refused() {
    let project = Project::new();
    project.write("experiments/twin.toml", &project.read(MANIFEST));
    let refused = project.mlarun(&[MANIFEST, "experiments/twin.toml"]).expect(2).says("are both named `rows`");
    drop(refused.says_nothing_of("compiling"));
}
