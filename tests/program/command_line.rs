//! The command line: help, output for programs, output for people.

use crate::project::{MANIFEST, Project, ended};

const COMMANDS: [&str; 15] = [
    "run",
    "plan",
    "check",
    "profile",
    "report",
    "devlog",
    "list",
    "show",
    "explain",
    "history",
    "pin",
    "cache",
    "device",
    "new-version",
    "schema",
];

#[test]
fn every_command_explains_itself() {
    let project = Project::new();
    let help = project.mlarun(&["--help"]).expect(0).prints("Exit codes:");
    for command in COMMANDS {
        assert!(help.out.lines().any(|line| line.trim_start().starts_with(command)), "{command}");
        project.mlarun(&[command, "--help"]).expect(0).prints("Usage: mlarun ").prints("General options");
    }
    assert!(!help.out.contains("__worker"), "the worker is nobody's command");
    project.mlarun(&["--version"]).expect(0).prints(env!("CARGO_PKG_VERSION"));
}

#[test]
fn without_arguments_there_is_help_and_an_error() {
    let project = Project::new();
    project.mlarun(&[]).expect(2).says("Usage: mlarun");
    project.mlarun(&["run"]).expect(2);
    project.mlarun(&["--no-such-option"]).expect(2).says("--no-such-option");
    project.mlarun(&["no-such-manifest.toml"]).expect(2).says("no-such-manifest.toml");
}

#[test]
fn a_mistyped_command_is_no_manifest() {
    let project = Project::new();
    for arguments in [&["paln"][..], &["paln", MANIFEST], &["paln", "--dot", MANIFEST], &["new-versoin", "copy"]] {
        let near = if arguments[0] == "paln" { "`mlarun plan`" } else { "`mlarun new-version`" };
        project.mlarun(arguments).expect(2).says("no command").says(near);
    }
    project.write("plans", &project.read(MANIFEST));
    project.mlarun(&["plans", "--dry-run"]).expect(0).prints("never measured");
}

#[test]
fn every_manifest_is_looked_for_before_the_first_is_run() {
    let project = Project::new();
    project.mlarun(&[MANIFEST, "experiments/none.toml"]).expect(2).says("none.toml").says("nothing was run");
    assert!(!project.path("out").exists());
}

#[test]
fn completions_are_made_for_every_shell() {
    let project = Project::new();
    for (shell, start) in [("bash", "_mlarun()"), ("zsh", "#compdef mlarun"), ("fish", "complete -c mlarun")] {
        project.mlarun(&["completions", shell]).expect(0).prints(start).prints("new-version");
    }
    project.mlarun(&["completions", "csh"]).expect(2);
}

#[test]
fn the_schema_is_that_of_the_parser() {
    let printed = Project::new().json(&["schema"]);
    assert_eq!(printed, mlarun::manifest::json_schema());
    let validator = jsonschema::validator_for(&printed).expect("a JSON Schema");
    let manifest: toml::Value = toml::from_str(&Project::new().read(MANIFEST)).expect("TOML");
    let manifest = serde_json::to_value(manifest).expect("JSON");
    assert!(validator.is_valid(&manifest));
    let mut wrong = manifest;
    wrong["experiment"]["verions"] = "all".into();
    assert!(!validator.is_valid(&wrong));
}

#[test]
fn what_is_data_is_json_when_asked() {
    let project = Project::new();
    project.run().expect(0);
    for arguments in [&["list"][..], &["list", "copy"], &["device", "show"], &["cache", "ls"], &["cache", "verify"]] {
        let json = project.json(&[arguments, &["--json"]].concat());
        assert!(json.is_array() || json.is_object(), "{json}");
    }
    let plan = project.json(&["plan", "--json", MANIFEST]);
    assert_eq!(plan[0]["format"], serde_json::json!({"major": 1, "minor": 2}));
    let report = project.json(&["report", "--json", MANIFEST]);
    assert!(report["report"].as_str().is_some_and(|path| path.ends_with("report.md")), "{report}");
    let results: serde_json::Value =
        serde_json::from_str(&project.read("out/experiments/rows/results.json")).expect("JSON");
    assert!(results["format"].is_object() || results["schema"].is_number(), "{results}");
}

#[test]
fn kernels_are_listed_with_their_parameters() {
    let project = Project::new();
    project.kernel("copy", 1);
    project.mlarun(&["list"]).expect(0).prints("copy").prints("v1").prints("Copies rows");
    project.mlarun(&["list", "copy"]).expect(0).prints("integer from 1").prints("stages: copy");
    project.mlarun(&["list", "cpoy"]).expect(2).says("`copy`");
}

#[test]
fn a_broken_package_is_shown_and_harms_nobody_else() {
    let project = Project::new();
    project.kernel("broken", 0);
    project.edit("kernels/c/rows/broken/kernel.toml", "role  = \"output\"", "rol  = \"output\"");
    project.mlarun(&["list"]).expect(2).prints("copy").says("kernels/c/rows/broken/kernel.toml").says("rol");
    project.run().expect(0);
}

#[test]
fn plans_are_printed_for_graphviz() {
    let project = Project::new();
    let dot = project.mlarun(&["plan", "--dot", MANIFEST]).expect(0).out;
    assert!(dot.starts_with("digraph \"rows\" {") && dot.trim_end().ends_with('}'), "{dot}");
    project.mlarun(&["plan", "--dot", "--json", MANIFEST]).expect(2);
}

#[test]
fn planning_twice_gives_the_same_text() {
    let project = Project::new();
    project.edit(MANIFEST, "rows = [8]", "rows = [5, 6, 7, 8]\ncolumns = [1, 2, 3]");
    let plan = || project.mlarun(&["plan", "--json", MANIFEST]).expect(0).out;
    assert_eq!(plan(), plan());
}

#[test]
fn without_a_terminal_there_are_plain_lines() {
    let project = Project::new();
    project.run().expect(0).says_nothing_of("\u{1b}").says_nothing_of("\r");
}

#[test]
fn colours_are_a_choice() {
    let project = Project::new();
    project.edit(MANIFEST, "modes ", "mods ");
    project.run().expect(2).says_nothing_of("\u{1b}");
    project.mlarun(&["--color", "always", MANIFEST]).expect(2).says("\u{1b}[");
    ended(project.command(&[MANIFEST]).env("NO_COLOR", "1")).expect(2).says_nothing_of("\u{1b}");
}

#[test]
fn less_and_more_is_said_on_request() {
    let project = Project::new();
    project.edit(MANIFEST, "rounds  = 1", "rounds = 2");
    let normal = project.run().expect(0).says("event 2/2").says_nothing_of("event 1/2");
    let quiet = project.mlarun(&["-q", "--remeasure", MANIFEST]).expect(0).says("report:").says_nothing_of("measured");
    let silent = project.mlarun(&["-qq", "--remeasure", MANIFEST]).expect(0);
    assert_eq!(silent.err, "");
    let verbose = project.mlarun(&["-v", "--remeasure", MANIFEST]).expect(0).says("event 1/2").says("event 2/2");
    assert!(quiet.err.len() < normal.err.len() && !verbose.err.is_empty());
}

#[test]
fn a_version_is_cloned() {
    let project = Project::new();
    project.mlarun(&["new-version", "copy", "v0", "v1"]).expect(0).prints("kernels/c/rows/copy_v1");
    project.mlarun(&["profile", "copy", "latest", "--prof_type=disabled", "--check"]).expect(0).says("copy v1");
    project.mlarun(&["new-version", "copy", "v0", "v1"]).expect(2).says("copy_v1");
    project.mlarun(&["new-version", "copy", "v7", "v8"]).expect(2).says("no version v7; it has v0, v1");
    project.mlarun(&["new-version", "cpoy", "v0", "v2"]).expect(2).says("did you mean `copy`?");
}

#[test]
fn a_manifest_is_checked_without_running() {
    let project = Project::new();
    project.mlarun(&["check", MANIFEST]).expect(0).says("sound, 1 run on this host");
    project.mlarun(&["check", MANIFEST, "--set", "modes=evnt"]).expect(2).says("event");
    assert!(!project.path("out").exists() && !project.path(".cache").exists());
}

#[test]
fn what_a_check_finds_is_json_when_asked() {
    let project = Project::new();
    let sound = project.json(&["check", "--json", MANIFEST]);
    assert_eq!((&sound[0]["sound"], &sound[0]["runs"]), (&true.into(), &1.into()));
    let wrong = |arguments: &[&str]| -> serde_json::Value {
        let ended = project.mlarun(arguments).expect(2);
        assert_eq!(ended.err, "", "what is wrong stands in the data");
        serde_json::from_str(&ended.out).expect("JSON")
    };
    project.edit(MANIFEST, "modes ", "mods ");
    let found = wrong(&["check", "--json", MANIFEST, "experiments/none.toml"]);
    assert_eq!(found[0]["sound"], false);
    let finding = &found[0]["findings"][0];
    assert_eq!((&finding["severity"], &finding["line"]), (&"error".into(), &7.into()), "{found}");
    assert!(finding["help"].as_str().is_some_and(|help| help.contains("`modes`")), "{found}");
    assert!(found[1]["error"].as_str().is_some_and(|error| error.contains("none.toml")), "{found}");
}

#[test]
fn a_project_is_found_from_anywhere() {
    let project = Project::new();
    let below = project.path("kernels/c");
    ended(project.command(&["list"]).current_dir(&below)).expect(0).prints("copy");
    let elsewhere = tempfile::tempdir().expect("a folder");
    ended(project.command(&["list"]).current_dir(elsewhere.path())).expect(2).says("--root");
    let root = project.root().to_str().expect("UTF-8");
    ended(project.command(&["list", "--root", root]).current_dir(elsewhere.path())).expect(0).prints("copy");
    project.mlarun(&["list", "--root", "conf"]).expect(2).says("kernels/");
}

#[test]
fn general_options_may_stand_before_a_command() {
    let project = Project::new();
    let root = project.root().display().to_string();
    project.mlarun(&["--root", &root, "check", MANIFEST]).expect(0);
    project.mlarun(&["--json", "--device", "cpu", "device", "show"]).expect(0).prints("\"device\"");
    project.mlarun(&["--dry-run", "check", MANIFEST]).expect(2).says("stand before a command");
    project.mlarun(&[MANIFEST, "check", MANIFEST]).expect(2);
    project.mlarun(&["--root", &root, MANIFEST, "--dry-run"]).expect(0);
}
