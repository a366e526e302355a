//! Dev logs: blocks are the program's, everything else is people's.

use crate::project::{MANIFEST, Project};

const LOG: &str = "docs/kernels/copy.md";

/// A project with a dev log of its one kernel.
fn logged() -> Project {
    let project = Project::new();
    project.mlarun(&[MANIFEST, "--devlog-add"]).expect(0).says("dev log: ");
    assert!(project.path(LOG).is_file());
    project
}

#[test]
fn a_log_under_docs_gets_blocks_only_when_asked() {
    let project = Project::new();
    project.run().expect(0);
    assert!(!project.path("docs").exists());
    assert!(project.read("out/devlogs/copy.md").contains("**Performance** ("));
    let project = logged();
    assert!(project.read(LOG).contains("### V0: Copies rows"), "{}", project.read(LOG));
    assert!(project.read(LOG).contains(", float32):\n"), "no b, s and t, and no comma for them");
    assert_eq!(project.files("docs/kernels/records").len(), 1);
}

#[test]
fn the_manifest_may_name_the_device() {
    let project = Project::new();
    let device = project.json(&["device", "show", "--json"]);
    let name = device["device"]["id"]["name"].as_str().expect("a name").to_owned();
    project.edit(MANIFEST, "[shapes]", &format!("[devlog]\ndevices = [\"{name}\"]\n[shapes]"));
    project.run().expect(0);
    assert!(project.path(LOG).is_file());
}

#[test]
fn asking_for_a_log_after_everything_was_measured_writes_it() {
    let project = Project::new();
    project.run().expect(0);
    project.mlarun(&[MANIFEST, "--devlog-add"]).expect(0).says_nothing_of("measured");
    assert!(project.path(LOG).is_file());
}

#[test]
fn a_log_is_checked_and_written_again() {
    let project = logged();
    project.mlarun(&["devlog", "--check"]).expect(0);
    let text = project.read(LOG);
    let duration = text.lines().find(|line| line.starts_with("| Duration")).expect("the table").to_owned();
    project.edit(LOG, &duration, "| Duration          | 0.01 μs | --          |");
    project.mlarun(&["devlog", "--check"]).expect(7).prints("copy.md");
    assert_ne!(project.read(LOG), text, "a check changes nothing");
    project.mlarun(&["devlog"]).expect(0).prints("copy.md");
    assert_eq!(project.read(LOG), text);
    project.mlarun(&["devlog", "--check", "copy"]).expect(0);
}

#[test]
fn logs_are_checked_and_written_for_programs() {
    let project = logged();
    let check = ["devlog", "--check", "--json"];
    assert_eq!(project.json(&check)[0]["stale"], serde_json::json!([]));
    assert_eq!(project.json(&["devlog", "--json"]), serde_json::json!([{ "kernel": "copy", "written": null }]));
    let text = project.read(LOG);
    let duration = text.lines().find(|line| line.starts_with("| Duration")).expect("the table").to_owned();
    project.edit(LOG, &duration, "| Duration          | 0.01 μs | --          |");
    let stale: serde_json::Value = serde_json::from_str(&project.mlarun(&check).expect(7).out).expect("JSON");
    assert_eq!((&stale[0]["kernel"], stale[0]["stale"].as_array().map(Vec::len)), (&"copy".into(), Some(1)));
    let written = project.json(&["devlog", "--json"]);
    assert!(written[0]["written"].as_str().is_some_and(|path| path.ends_with(LOG)), "{written}");
}

#[test]
fn hand_written_text_survives() {
    let project = logged();
    let by_hand = |text: &str| format!("Before all.\n\n{text}\nNot a table: `a | b`\n- \u{00e9}\n\n\n");
    project.write(LOG, &by_hand(&project.read(LOG)));
    let text = project.read(LOG);
    project.mlarun(&[MANIFEST, "--remeasure"]).expect(0);
    let after = project.read(LOG);
    assert!(
        after.starts_with("Before all.\n\n") && after.ends_with("\nNot a table: `a | b`\n- \u{00e9}\n\n\n"),
        "{after}"
    );
    assert_eq!(after.lines().count(), text.lines().count());
    project.mlarun(&["devlog", "--check"]).expect(0);
}

#[test]
fn windows_line_ends_stay() {
    let project = logged();
    let text = project.read(LOG).replace('\n', "\r\n");
    project.write(LOG, &text);
    project.mlarun(&["devlog", "--check"]).expect(0);
    project.mlarun(&[MANIFEST, "--remeasure"]).expect(0);
    let after = project.read(LOG);
    assert_eq!(after.matches('\n').count(), after.matches("\r\n").count(), "{after:?}");
}

#[test]
fn a_broken_border_is_an_error_with_its_line_and_the_file_is_untouched() {
    let project = logged();
    let text = project.read(LOG);
    let border = text.lines().rfind(|line| line.starts_with("<!--")).expect("a border").to_owned();
    project.write(LOG, &text.replacen(&format!("{border}\n"), "", 1));
    let damaged = project.read(LOG);
    project.mlarun(&["devlog"]).expect(2).says("copy.md").says("line").says("untouched");
    assert_eq!(project.read(LOG), damaged);
}

#[test]
fn kernels_without_records_are_told() {
    let project = logged();
    project.mlarun(&["devlog", "other"]).expect(2).says("no records of `other`").says("copy");
}

#[test]
fn a_clean_clone_can_be_checked() {
    let project = logged();
    for folder in ["out", ".cache"] {
        std::fs::remove_dir_all(project.path(folder)).expect("removed");
    }
    project.mlarun(&["devlog", "--check"]).expect(0);
}
