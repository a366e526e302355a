//! Results when the host is against them: full disks, read-only folders, records of other hosts and times, two programs at
//! once. Each ends in words, with everything finished intact.

use std::fs;
use std::process::Command;

use mlarun::model::Key;
use serde_json::{Value as Json, json};

use crate::project::{Ended, MANIFEST, Project, ended};

/// A project of which one of `rounds` rounds is measured.
fn begun(rounds: u32) -> Project {
    let project = Project::new();
    project.run().expect(0);
    project.edit(MANIFEST, "rounds  = 1", &format!("rounds  = {rounds}"));
    project
}

/// Files of the event records, with their texts.
fn records(project: &Project) -> Vec<(String, String)> {
    let of = |file: &std::path::PathBuf| format!("out/store/records/event/{}", file.display());
    let names = project.files("out/store/records/event").iter().map(of).collect::<Vec<_>>();
    names.into_iter().map(|name| (name.clone(), project.read(&name))).collect()
}

/// Every record that was there still is, byte for byte, and the sweep ends with `rounds` of them.
#[track_caller]
fn is_completed(project: &Project, before: &[(String, String)], rounds: usize) {
    for (file, text) in before {
        assert_eq!(project.read(file), *text, "{file}");
    }
    project.run().expect(0).says("1 run recorded");
    assert_eq!(records(project).len(), rounds);
    assert!(project.files("out/store/quarantine").is_empty());
    project.run().expect(0).says("nothing to do").says_nothing_of("kept as");
}

/// The program, started by a shell that runs `before` first.
fn after(project: &Project, before: &str, arguments: &[&str]) -> Command {
    let program = project.command(arguments);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{before}\nexec \"$@\""), "sh"]).arg(program.get_program()).args(program.get_args());
    shell.current_dir(project.root());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

#[test]
fn a_limit_on_the_size_of_files() {
    // A shell may leave the signal that comes with it to its children, or have them ignore it.
    for signal in ["", "trap '' XFSZ\n"] {
        let project = begun(3);
        let before = records(&project);
        // In blocks of 512 or 1024 bytes, both less than a record has.
        let refused = ended(&mut after(&project, &format!("{signal}ulimit -f 1"), &[MANIFEST])).expect(3);
        let refused = refused.says("the result cannot be kept").says("out/store/records").says("File too large");
        drop(refused.says("the same command goes on from there"));
        assert_eq!(records(&project), before, "no half record");
        is_completed(&project, &before, 3);
    }
}

/// A shell that may mount; `None` is said aloud, as a test that cannot be had is no passed test.
fn mounting(project: &Project, before: &str, arguments: &[&str]) -> Option<Command> {
    let allowed = Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]).output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        println!("NOT TESTED: this host does not let the test mount a file system");
        return None;
    }
    let inner = after(project, before, arguments);
    let mut outer = Command::new("unshare");
    outer.arg("-m").arg(inner.get_program()).args(inner.get_args()).current_dir(project.root());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    Some(outer)
}

#[test]
fn a_full_disk() {
    let project = begun(1000);
    project.write("kept/empty", "");
    // What fitted is copied out of the small file system before that goes.
    let full = "cp -r out small && mount -t tmpfs -o size=200k tmpfs out && cp -r small/. out/ || exit 99\n\
                \"$@\"; code=$?; rm out/index.sqlite; cp -r out/store kept/; exit $code";
    let Some(mut command) = mounting(&project, full, &[MANIFEST]) else { return };
    let refused = ended(&mut command).expect(3);
    drop(refused.says("the result cannot be kept").says("No space left on device"));
    let kept = project.mlarun(&["cache", "verify", "--out", "kept"]).expect(0);
    let listed = project.json(&["cache", "ls", "--json", "--out", "kept"]);
    let count = listed.as_array().map_or(0, Vec::len);
    assert!(count > 3, "some rounds fitted: {listed}");
    drop(kept.prints(&format!("{count} records sound, 0 set aside")));
    let rounds = format!("rounds={}", count - 1);
    let runs = project.json(&["plan", "--json", MANIFEST, "--set", &rounds, "--out", "kept"]);
    assert_eq!(runs[0]["runs"][0]["state"], "fresh", "every round that was measured counts: {runs}");
}

#[test]
fn results_that_may_only_be_read() {
    let project = begun(2);
    let before = records(&project);
    let refused = if rustix::process::geteuid().is_root() {
        let bind = "mount --bind out out && mount -o remount,ro,bind out || exit 99";
        let Some(mut command) = mounting(&project, bind, &[MANIFEST]) else { return };
        ended(&mut command)
    } else {
        ended(&mut after(&project, "chmod -R a-w out; trap 'chmod -R u+w out' EXIT; \"$@\"; exit $?", &[MANIFEST]))
    };
    let refused = refused.expect(3).says("results cannot be written there").says("make the folder writable");
    drop(refused.says_nothing_of("measured"));
    is_completed(&project, &before, 2);
}

/// The file of a record whose body `change` has changed, with the checksum that belongs to it.
fn changed(text: &str, change: impl Fn(&mut Json)) -> String {
    let mut file: Json = serde_json::from_str(text).expect("a record is JSON");
    change(&mut file["record"]);
    file["sha256"] = json!(Key::of_bytes(&serde_json::to_vec(&file["record"]).expect("JSON")));
    file.to_string()
}

#[test]
fn a_record_of_a_newer_program_is_named_and_left_alone() {
    let project = begun(2);
    let (file, text) = records(&project).remove(0);
    let newer = text.replacen("\"major\": 1", "\"major\": 9", 1);
    assert_ne!(newer, text);
    project.write(&file, &newer);
    project.run().expect(3).says(&file).says("by a newer mlarun").says_nothing_of("measured copy");
    assert_eq!(project.read(&file), newer);
    project.write(&file, &text);
    is_completed(&project, &[(file, text)], 2);
}

#[test]
fn a_record_of_another_host_is_not_taken_as_this_ones() {
    let project = Project::new();
    project.run().expect(0);
    let (file, text) = records(&project).remove(0);
    let key = project.plan(MANIFEST)[0]["key"].as_str().expect("a key").to_owned();
    // There the device has another name, which enters the key.
    let theirs = Key::of_bytes(b"another host").to_string();
    let foreign = changed(&text, |record| {
        record["key"] = json!(theirs);
        record["environment"]["device"]["id"]["name"] = json!("Another Processor");
        record["material"]["subject"]["device"]["name"] = json!("Another Processor");
    });
    fs::remove_file(project.path(&file)).expect("removed");
    let copied = format!("out/store/records/event/{}/{theirs}-copied.json", &theirs[..2]);
    project.write(&copied, &foreign);
    project.run().expect(0).says("1 to do").says("measured copy").says_nothing_of("kept as");
    assert_eq!(project.read(&copied), foreign);
    project.mlarun(&["cache", "verify"]).expect(0).prints("3 records sound, 0 set aside");
    project.mlarun(&["show", &theirs[..12]]).expect(0).prints("Another Processor");
    assert!(!project.read("out/experiments/rows/results.json").contains("Another Processor"));

    // One that was measured elsewhere and lies under a key of this host is no record of either.
    let (file, text) = records(&project).into_iter().find(|(file, _)| file.contains(&key)).expect("it was measured");
    project.write(
        &file,
        &changed(&text, |record| record["environment"]["device"]["id"]["name"] = json!("Another Processor")),
    );
    let again = project.run().expect(0).says(&format!("warning: {}", project.path(&file).display()));
    drop(again.says("it was measured on Another Processor").says("measured copy"));
    assert!(!project.path(&file).exists() && !project.files("out/store/quarantine").is_empty());
}

#[test]
fn a_clock_that_was_set_back_a_day() {
    let project = Project::new();
    project.run().expect(0);
    // As if they had been measured before the clock was set back: they are from tomorrow.
    let tomorrow = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24);
    for (file, text) in records(&project) {
        fs::remove_file(project.path(&file)).expect("removed");
        let text = changed(&text, |record| record["position"]["taken_at"] = json!(tomorrow));
        project.write(&file.replace(".json", "-tomorrow.json"), &text);
    }
    let before = records(&project);
    project.run().expect(0).says("nothing to do").says_nothing_of("kept as");
    project.edit(MANIFEST, "rounds  = 1", "rounds  = 2");
    project.run().expect(0).says("1 to do");
    assert_eq!(records(&project).len(), 2, "one round was missing, and one was measured");
    let report = project.read("out/experiments/rows/report.md");
    assert!(report.contains("2 processes"), "{report}");
    project.mlarun(&["cache", "gc", "--keep", "1d"]).expect(0).prints("0 files");
    project.mlarun(&["cache", "verify"]).expect(0).prints("3 records sound, 0 set aside");
    // Changed code is measured once, although what it replaces is newer by its date.
    project.edit("kernels/c/rows/copy/kernel.toml", "-fwrapv", "-fno-wrapv");
    project.run().expect(0).says("1 to do");
    project.run().expect(0).says("nothing to do");
    project.edit("kernels/c/rows/copy/kernel.toml", "-fno-wrapv", "-fwrapv");
    is_completed(&project, &before, 4);
}

/// Event records that a sweep over `shapes` shapes has.
fn sweep(shapes: usize) -> Project {
    let project = Project::new();
    let rows: Vec<String> = (8..8 + shapes).map(|rows| rows.to_string()).collect();
    project.edit(MANIFEST, "rows = [8]", &format!("rows = [{}]", rows.join(", ")));
    project.edit(MANIFEST, "rounds  = 1", "rounds  = 3");
    project
}

/// Each of `shapes` runs has its three records, and the store and its index agree.
#[track_caller]
fn is_whole(project: &Project, shapes: usize) {
    assert_eq!(records(project).len(), 3 * shapes);
    let count = format!("{} records sound, 0 set aside", 4 * shapes);
    project.mlarun(&["cache", "verify"]).expect(0).prints(&count);
    let listed = project.json(&["cache", "ls", "--json"]);
    assert_eq!(listed.as_array().map(Vec::len), Some(4 * shapes));
    // Whoever began to report before the last one ended may have written after it: the next one writes the whole again.
    project.run().expect(0).says_nothing_of("measured copy");
    project.run().expect(0).says("nothing to do");
}

#[test]
fn two_programs_on_one_folder_measure_everything_once() {
    let project = sweep(4);
    project.write("experiments/other.toml", &project.read(MANIFEST).replace("\"rows\"", "\"other\""));
    let started = [MANIFEST, MANIFEST, "experiments/other.toml"].map(|manifest| project.start(&[manifest]));
    for program in started {
        program.end().expect(0).says_nothing_of("kept as");
    }
    is_whole(&project, 4);
}

#[test]
fn whatever_looks_at_results_may_run_while_they_are_measured() {
    let project = sweep(6);
    let mut running = project.start(&["-v", MANIFEST]);
    running.wait_for("measured copy");
    let collecting = project.start(&["cache", "gc", "--keep", "90d", "--max-size", "20G"]);
    std::thread::scope(|scope| {
        let sweep = scope.spawn(|| running.end());
        let mut looked = 0;
        while !sweep.is_finished() || looked < 4 {
            let looks: [&[&str]; 4] = [
                &["cache", "verify"],
                &["report", MANIFEST],
                &["plan", MANIFEST],
                &["cache", "gc", "--keep", "90d", "--dry-run"],
            ];
            let Ended { code, out, err } = project.mlarun(looks[looked % looks.len()]);
            assert!(code == Some(0) && !err.contains("kept as"), "{out}{err}");
            looked += 1;
        }
        sweep.join().expect("it is watched").expect(0);
    });
    collecting.end().expect(0).prints("0 files");
    is_whole(&project, 6);
}
