//! What a result depends on: one test for each thing that must change a key, and for each that must not.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use crate::project::{MANIFEST, Project, ended};

const PACKAGE: &str = "kernels/c/rows/copy/kernel.toml";

/// Keys of subject and measurement.
type Keys = (String, String);

fn keys(project: &Project) -> Keys {
    let plan = project.plan(MANIFEST);
    let text = |name: &str| plan[0][name].as_str().expect("a key").to_owned();
    (text("subject"), text("key"))
}

/// A change gives the subject, and with it the measurement, another key.
#[track_caller]
fn changes_the_subject(change: impl Fn(&Project)) {
    let project = Project::new();
    let before = keys(&project);
    change(&project);
    let after = keys(&project);
    assert_ne!(before.0, after.0);
    assert_ne!(before.1, after.1);
}

/// A change leaves the subject as it is, but not how it is measured.
#[track_caller]
fn changes_the_measurement(change: impl Fn(&Project)) {
    let project = Project::new();
    let before = keys(&project);
    change(&project);
    let after = keys(&project);
    assert_eq!(before.0, after.0);
    assert_ne!(before.1, after.1);
}

/// A change leaves everything fresh.
#[track_caller]
fn changes_nothing(change: impl Fn(&Project)) {
    let project = Project::new();
    let before = keys(&project);
    change(&project);
    assert_eq!(before, keys(&project));
}

#[test]
fn the_source_is_part_of_the_subject() {
    changes_the_subject(|project| project.edit("kernels/c/rows/copy/copy.c", "i = 0;", "i = 0 ;"));
}

#[test]
fn a_header_is_part_of_the_subject() {
    changes_the_subject(|project| project.edit("kernels/c/common/rows.h", "((row) * columns", "(columns * (row)"));
}

#[test]
fn a_flag_is_part_of_the_subject() {
    changes_the_subject(|project| project.edit(PACKAGE, "-fwrapv", "-fno-wrapv"));
}

#[test]
fn a_macro_is_part_of_the_subject() {
    changes_the_subject(|project| project.edit(PACKAGE, "STEP = 1", "STEP = \"2 - 1\", MORE = 1"));
}

#[test]
fn a_choice_of_the_tiling_is_part_of_the_subject() {
    let project = Project::new();
    project.tunable();
    project.edit(PACKAGE, "step = [1, 2, 4]", "step = [1]");
    let plan = project.plan(MANIFEST);
    assert_eq!(plan[0]["state"], "after tune");
    project.run().expect(0);
    let before = keys(&project);
    project.edit(PACKAGE, "step = [1]", "step = [2]");
    project.edit(PACKAGE, "default = { step = 1 }", "default = { step = 2 }");
    project.run().expect(0);
    assert_ne!(before.0, keys(&project).0);
}

#[test]
fn the_shape_is_part_of_the_subject() {
    changes_the_subject(|project| project.edit(MANIFEST, "rows = [8]", "rows = [9]"));
}

#[test]
fn the_default_of_a_parameter_is_part_of_the_subject() {
    changes_the_subject(|project| project.edit(PACKAGE, "default = 16", "default = 17"));
}

#[test]
fn the_launch_is_part_of_the_subject() {
    changes_the_subject(|project| project.edit(PACKAGE, r#"grid    = ["rows"]"#, "grid = [\"rows\"]\nthreads = 2"));
}

#[test]
fn the_seed_of_an_input_is_part_of_the_subject() {
    changes_the_subject(|project| project.edit(PACKAGE, "seed = 1", "seed = 2"));
}

#[test]
fn the_spread_of_an_input_is_part_of_the_subject() {
    changes_the_subject(|project| project.edit(PACKAGE, "std = 1.0", "std = 2.0"));
}

#[test]
fn the_compiler_is_part_of_the_subject() {
    let project = Project::new();
    let keys_with = |compiler: &str| {
        let plan = ended(project.command(&["plan", "--json", MANIFEST]).env("CC", compiler)).expect(0);
        let plan: serde_json::Value = serde_json::from_str(&plan.out).expect("JSON");
        plan[0]["runs"][0]["subject"].as_str().expect("a key").to_owned()
    };
    let other = project.path("other-cc");
    project.write(
        "other-cc",
        "#!/bin/sh\ncase \"$*\" in *--version*) echo 'cc (Other) 99.1';; *) exec cc \"$@\";; esac\n",
    );
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o755)).expect("an executable");
    symlink("/usr/bin/cc", project.path("same-cc")).expect("a link");
    let usual = keys_with("cc");
    assert_ne!(usual, keys_with(other.to_str().expect("UTF-8")));
    assert_ne!(usual, keys_with("cc -fno-common"), "an argument is part of the compiler");
    assert_eq!(usual, keys_with(project.path("same-cc").to_str().expect("UTF-8")), "where it lies is not");
}

#[test]
fn the_protocol_is_part_of_the_measurement() {
    changes_the_measurement(|project| {
        project.edit("conf/protocol.toml", "interval_permille = 1000", "interval_permille = 900")
    });
    changes_the_measurement(|project| project.edit("conf/protocol.toml", "min_ms = 1", "min_ms = 2"));
    changes_the_measurement(|project| {
        project.edit(MANIFEST, "[shapes]", "[protocol]\nevent.min_samples = 5\n[shapes]");
    });
}

#[test]
fn the_mode_is_part_of_the_measurement() {
    changes_the_measurement(|project| project.edit(MANIFEST, r#"["event"]"#, r#"["annotation"]"#));
}

#[test]
fn comments_and_order_of_keys_are_no_part() {
    changes_nothing(|project| {
        project.edit(MANIFEST, "# One kernel at one shape.\n", "");
        project.edit(MANIFEST, "rounds  = 1\n", "");
        project.edit(MANIFEST, "[experiment]\n", "[experiment]\nrounds = 1 # one is enough\n");
    });
    changes_nothing(|project| {
        project.edit(PACKAGE, "# Copies a matrix.\n", "# Copies.\n");
        project.edit(PACKAGE, "flops   = 0\n", "");
        project.edit(PACKAGE, "[[stages]]\n", "[[stages]]\nflops = 0\n");
        project.edit(PACKAGE, "defines = { STEP = 1, ROWS = \"rows\" }", "defines = { ROWS = \"rows\", STEP = 1 }");
    });
}

#[test]
fn labels_are_no_part() {
    changes_nothing(|project| {
        project.edit(MANIFEST, "\"rows\"\n", "\"columns\"\ndescription = \"another\"\n");
        project.edit(PACKAGE, "Copies rows", "Copies every row");
        project.edit(PACKAGE, "doc = \"columns\"", "doc = \"width\"");
    });
}

#[test]
fn the_cost_model_is_no_part() {
    changes_nothing(|project| project.edit(PACKAGE, "flops   = 0", "flops = \"rows * columns\""));
}

#[test]
fn rounds_and_baselines_are_no_part() {
    changes_nothing(|project| {
        project.kernel("other", 0);
        project.edit(MANIFEST, "rounds  = 1", "rounds = 3\nbaselines = [\"other\"]");
    });
}

#[test]
fn templates_thresholds_and_time_limits_are_no_part() {
    changes_nothing(|project| {
        project.write("templates/experiment.md.hbs", "nothing\n");
        project.edit(MANIFEST, "rounds  = 1", "rounds = 1\ntime_limit_s = 7");
        project.edit("conf/protocol.toml", "run_s = 60", "run_s = 61");
    });
}

#[test]
fn other_versions_are_no_part() {
    changes_nothing(|project| project.kernel("copy", 1));
}

#[test]
fn times_of_files_are_no_part() {
    let project = Project::new();
    project.run().expect(0);
    for file in ["kernels/c/rows/copy/copy.c", "kernels/c/common/rows.h", PACKAGE, MANIFEST, "conf/protocol.toml"] {
        let file = std::fs::File::options().append(true).open(project.path(file)).expect("a file");
        file.set_modified(std::time::UNIX_EPOCH).expect("its time is set");
    }
    project.run().expect(0).says("nothing to do");
}

#[test]
fn a_project_can_be_moved() {
    let project = Project::new();
    project.run().expect(0);
    let elsewhere = tempfile::tempdir().expect("a folder");
    let moved = elsewhere.path().join("moved");
    std::fs::create_dir(&moved).expect("a folder");
    for part in ["kernels", "conf", "experiments", "out", ".cache"] {
        std::fs::rename(project.path(part), moved.join(part)).expect("on one file system");
    }
    ended(project.command(&[MANIFEST]).current_dir(&moved)).expect(0).says("nothing to do");
}

#[test]
fn a_project_can_be_reached_through_a_link() {
    let project = Project::new();
    project.run().expect(0);
    let elsewhere = tempfile::tempdir().expect("a folder");
    let link = elsewhere.path().join("link");
    symlink(project.root(), &link).expect("a link");
    ended(project.command(&[MANIFEST]).current_dir(&link)).expect(0).says("nothing to do");
    let manifest = link.join(MANIFEST);
    let from_elsewhere = ended(project.command(&[manifest.to_str().expect("UTF-8")]).current_dir(elsewhere.path()));
    from_elsewhere.expect(0).says("nothing to do");
}

#[test]
fn a_kernel_may_be_a_link_and_only_its_contents_count() {
    let project = Project::new();
    project.run().expect(0);
    std::fs::rename(project.path("kernels/c/rows/copy/copy.c"), project.path("elsewhere.c")).expect("renamed");
    symlink(project.path("elsewhere.c"), project.path("kernels/c/rows/copy/copy.c")).expect("a link");
    project.run().expect(0).says("nothing to do");
    project.edit("elsewhere.c", "i = 0;", "i = 0 ;");
    project.run().expect(0).says("1 to do");
}

#[test]
fn a_report_of_another_state_is_written_again() {
    let project = Project::new();
    project.run().expect(0);
    let complete = project.read("out/experiments/rows/report.md");
    // As an interrupted session that was to take more sample sets leaves it.
    project.edit(MANIFEST, "rounds  = 1", "rounds = 2");
    project.mlarun(&["report", MANIFEST]).expect(0);
    let report = project.read("out/experiments/rows/report.md");
    assert!(report.contains("1 measured"), "numbers that are there are shown: {report}");
    project.write("out/experiments/rows/report.md", "of another state");
    project.edit(MANIFEST, "rounds = 2", "rounds = 1");
    project.run().expect(0).says_nothing_of("measured copy");
    assert_eq!(project.read("out/experiments/rows/report.md"), complete);
}
