//! `--record` and `--replay`: a call repeated from its recording alone.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use assert_cmd::cargo::cargo_bin;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use tempfile::TempDir;

use super::project::{Ended, MANIFEST, Project, ended};

const FILE: &str = "call.recording";

/// A project with a kernel that is tuned, one that is wrong, one that does not compile and one that dies.
fn project() -> Project {
    let project = Project::new();
    project.tunable();
    project.kernel_that("wrong", "x += 1;");
    project.kernel_that("broken", "nothing;");
    project.kernel_that("dies", "__builtin_trap();");
    project.edit(MANIFEST, r#"["copy"]"#, r#"["copy", "wrong", "broken", "dies"]"#);
    project.edit(MANIFEST, r#"["event"]"#, r#"["event", "annotation"]"#);
    project.edit(MANIFEST, "rows = [8]", "rows = [8, 9]");
    project
}

/// An empty folder, and the program run in it without a compiler.
struct Elsewhere(TempDir);

impl Elsewhere {
    fn new() -> Elsewhere {
        Elsewhere(tempfile::tempdir().expect("a folder"))
    }

    fn replay(&self, file: &Path, further: &[&str]) -> Ended {
        let mut command = Command::new(cargo_bin!("mlarun"));
        command.current_dir(self.0.path()).arg("--replay").arg(file).args(further).env("PATH", "/nowhere");
        ended(&mut command)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }
}

/// Every text below `folder` that people and programs read, by path; the name of the host left out.
fn texts(folder: &Path) -> Vec<(PathBuf, String)> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let entries = walkdir::WalkDir::new(folder).sort_by_file_name().into_iter().filter_map(Result::ok);
    let files = entries.filter(|entry| entry.file_type().is_file());
    let of = |entry: walkdir::DirEntry| {
        let path = entry.path().strip_prefix(folder).expect("below it").to_owned();
        let views = ["experiments", "devlogs", "profiles"];
        let is_view = views.iter().any(|view| path.starts_with(view));
        // What the compiler made stays behind; a stamp is about the program and its host.
        let is_left_out = path.components().any(|part| part.as_os_str() == "compiled") || path.ends_with("stamp");
        (is_view && !is_left_out).then(|| {
            let text = fs::read_to_string(entry.path()).expect("a view is text");
            (path, text.replace(&format!("\"host\": \"{host}\""), "\"host\": \"host\""))
        })
    };
    files.filter_map(of).collect()
}

/// The text of a recording.
fn unpacked(file: &Path) -> String {
    let mut text = String::new();
    GzDecoder::new(fs::File::open(file).expect("it is there")).read_to_string(&mut text).expect("gzip over text");
    text
}

fn pack(file: &Path, text: &str) {
    let mut packed = GzEncoder::new(fs::File::create(file).expect("a file"), Compression::default());
    packed.write_all(text.as_bytes()).expect("written");
    packed.finish().expect("written");
}

#[test]
fn a_replay_gives_the_same_reports_byte_for_byte() {
    let project = project();
    // A wrong output outweighs what else has failed.
    project.mlarun(&[MANIFEST, "--record", FILE]).expect(5);
    let here = texts(&project.path("out"));
    assert!(here.len() > 10, "{here:?}");
    let elsewhere = Elsewhere::new();
    elsewhere.replay(&project.path(FILE), &[]).expect(5).says("recorded ");
    let there = texts(&elsewhere.path("call.replay"));
    assert_eq!(
        here.iter().map(|(path, _)| path).collect::<Vec<_>>(),
        there.iter().map(|(path, _)| path).collect::<Vec<_>>()
    );
    for ((path, here), (_, there)) in here.iter().zip(&there) {
        assert_eq!(here, there, "{}", path.display());
    }
    // The machine code stays behind, what the compiler said comes along.
    let compiled = walkdir::WalkDir::new(elsewhere.path("call.replay/profiles")).into_iter().filter_map(Result::ok);
    let names: Vec<_> = compiled.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert!(
        ["module.txt", "log.txt", "build.json", "copy.c"].iter().all(|name| names.iter().any(|other| other == name))
    );
    elsewhere.replay(&project.path(FILE), &[]).expect(2).says("is not empty; name another folder with --out");
}

#[test]
fn what_was_recorded_before_is_part_of_a_recording() {
    let project = Project::new();
    project.tunable();
    project.run().expect(0);
    project.mlarun(&[MANIFEST, "--record", FILE]).expect(0);
    let elsewhere = Elsewhere::new();
    elsewhere.replay(&project.path(FILE), &["--out", "again"]).expect(0);
    let report = |folder: &Path| fs::read_to_string(folder.join("experiments/rows/report.md")).expect("a report");
    assert_eq!(report(&project.path("out")), report(&elsewhere.path("again")));
}

#[test]
fn a_changed_sample_changes_the_report() {
    let project = Project::new();
    project.mlarun(&[MANIFEST, "--record", FILE]).expect(0);
    let text = unpacked(&project.path(FILE));
    // Every cold sample becomes a second.
    let changed: String = text
        .lines()
        .map(|line| {
            let mut line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            for answer in line["lines"].as_array_mut().into_iter().flatten() {
                if answer["line"] == "samples" && answer["timing"] == "cold_isolated" {
                    answer["ns"].as_array_mut().expect("samples").fill(1e9.into());
                }
            }
            format!("{line}\n")
        })
        .collect();
    pack(&project.path("changed.recording"), &changed);
    let elsewhere = Elsewhere::new();
    elsewhere.replay(&project.path(FILE), &[]).expect(0);
    elsewhere.replay(&project.path("changed.recording"), &[]).expect(0);
    let report =
        |name: &str| fs::read_to_string(elsewhere.path(name).join("experiments/rows/report.md")).expect("a report");
    let (before, after) = (report("call.replay"), report("changed.replay"));
    assert!(before != after && after.contains("Duration (s)"), "{after}");
}

#[test]
fn a_recording_names_neither_host_nor_user() {
    let project = project();
    project.mlarun(&[MANIFEST, "--record", FILE]).expect(5);
    let text = unpacked(&project.path(FILE));
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert!(!text.contains(&format!("\"{host}\"")), "the host's name is in it");
    assert!(!text.contains(&project.root().display().to_string()), "a folder of the host is in it");
}

#[test]
fn a_recording_is_written_once_and_of_one_experiment() {
    let project = Project::new();
    project.write(FILE, "mine");
    project.mlarun(&[MANIFEST, "--record", FILE]).expect(2).says("exists; name a new file");
    assert_eq!(project.read(FILE), "mine");
    assert!(project.plan(MANIFEST).iter().all(|run| run["state"] != "fresh"), "nothing was measured");
    project.mlarun(&[MANIFEST, MANIFEST, "--record", "new"]).expect(2).says("one manifest with --record");
    project.mlarun(&[MANIFEST, "--replay", FILE]).expect(2);
}

#[test]
fn what_is_no_recording_is_refused() {
    let project = Project::new();
    project.mlarun(&[MANIFEST, "--record", FILE]).expect(0);
    let good = unpacked(&project.path(FILE));
    let bad = project.path("bad.recording");
    let elsewhere = Elsewhere::new();
    let refused = |says: &str| {
        elsewhere.replay(&bad, &[]).expect(2).says(says);
        assert!(!elsewhere.path("bad.replay").join("store").exists(), "{says}: nothing was replayed");
    };
    fs::write(&bad, "no gzip").expect("written");
    refused("is no recording of mlarun");
    pack(&bad, "");
    refused("is no recording of mlarun");
    pack(&bad, "{}\n");
    refused("its first line");
    pack(&bad, &good.replacen("\"major\":1", "\"major\":2", 1));
    refused("use a newer mlarun");
    pack(&bad, &good.replacen("\"protocol\":1", "\"protocol\":1000", 1));
    refused("use a newer mlarun");
    pack(&bad, &good.replace("\"entry\":\"answer\"", "\"entry\":\"other\""));
    refused("is damaged");
    pack(&bad, good.lines().next().expect("a header"));
    refused("it is empty");
    pack(&bad, &format!("{}\n", good.lines().next().expect("a header")));
    refused("lacks the call");
    for path in ["../outside.toml", "/outside.toml", "kernels/../../outside.toml", ""] {
        pack(&bad, &good.replace("\"path\":\"conf/devices.toml\"", &format!("\"path\":\"{path}\"")));
        refused("does not stay inside its folder");
        assert!(!elsewhere.path("outside.toml").exists() && !elsewhere.path("bad.replay/outside.toml").exists());
    }
}

#[test]
fn a_recording_that_was_cut_short_gives_what_it_holds() {
    let project = Project::new();
    project.edit(MANIFEST, "rows = [8]", "rows = [8, 9]");
    project.mlarun(&[MANIFEST, "--record", FILE]).expect(0);
    let text = unpacked(&project.path(FILE));
    let lines: Vec<&str> = text.lines().collect();
    // The last answer is missing, and the line before is whole but for its end.
    let kept = lines[..lines.len() - 1].join("\n");
    pack(&project.path("cut.recording"), &kept[..kept.len() - 10]);
    let elsewhere = Elsewhere::new();
    let ended = elsewhere.replay(&project.path("cut.recording"), &[]).expect(4).says("was cut short");
    ended.says("holds no answer to a request for a sample set of event mode: it was cut short");
    // The packed file itself may end anywhere.
    let packed = fs::read(project.path(FILE)).expect("it is there");
    fs::write(project.path("torn.recording"), &packed[..packed.len() - 20]).expect("written");
    elsewhere.replay(&project.path("torn.recording"), &[]).says("was cut short");
}

/// What an H200 made of experiments/var6_sweep.toml, and the reports that mlarun wrote there.
#[test]
fn the_recorded_sweep_of_an_h200_gives_the_reports_that_were_written_there() {
    gives_the_reports_that_were_written_there("tests/recordings/var6_sweep-h200");
}

/// mla_var6_plus v2 in event, annotation, ncu and nsys mode.
#[test]
fn the_recorded_modes_of_an_h200_give_the_reports_that_were_written_there() {
    gives_the_reports_that_were_written_there("tests/recordings/four_modes-h200");
}

#[track_caller]
fn gives_the_reports_that_were_written_there(recorded: &str) {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let elsewhere = Elsewhere::new();
    elsewhere.replay(&repository.join(format!("{recorded}.recording")), &["--out", "h200"]).expect(0);
    let expected = repository.join(recorded);
    let folder = elsewhere.path("h200");
    let reports: Vec<_> = texts(&folder).into_iter().filter(|(path, _)| is_report(path)).collect();
    if std::env::var_os("MLARUN_UPDATE_EXPECTED").is_some() {
        fs::remove_dir_all(&expected).expect("removed");
        for (path, text) in &reports {
            fs::create_dir_all(expected.join(path).parent().expect("a folder")).expect("folders");
            fs::write(expected.join(path), text).expect("written");
        }
    }
    let written = texts(&expected);
    let names = |texts: &[(PathBuf, String)]| texts.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
    assert_eq!(names(&written), names(&reports));
    for ((path, there), (_, here)) in written.iter().zip(&reports) {
        assert_eq!(there, here, "{}", path.display());
    }
}

/// Written for people or programs, not about how it was run.
fn is_report(path: &Path) -> bool {
    ["report.md", "results.json", "results.csv"].iter().any(|name| path.ends_with(name))
}

#[test]
fn a_recording_reads_nothing_of_the_host_that_replays_it() {
    let project = Project::new();
    project.mlarun(&[MANIFEST, "--record", FILE]).expect(0);
    let good = unpacked(&project.path(FILE));
    let elsewhere = Elsewhere::new();
    for manifest in ["/etc/passwd", "../outside.toml", ""] {
        let name = format!("\"manifest\":\"{MANIFEST}\"");
        assert_eq!(good.matches(&name).count(), 1);
        let bad = project.path("bad.recording");
        pack(&bad, &good.replace(&name, &format!("\"manifest\":\"{manifest}\"")));
        let ended = elsewhere.replay(&bad, &["--out", "bad"]).expect(2).says("does not stay inside its folder");
        drop(ended.says_nothing_of("root:"));
        fs::remove_dir_all(elsewhere.path("bad")).expect("the folder that it was to go to");
    }
    for option in [["--device", "cpu"], ["--root", "."], ["--clocks", "observe"]] {
        elsewhere.replay(&project.path(FILE), &option).expect(2).says("leave --root, --device and --clocks out");
    }
}

#[test]
fn a_recording_of_a_newer_minor_format_is_read_as_far_as_it_is_known() {
    let project = Project::new();
    project.mlarun(&[MANIFEST, "--record", FILE]).expect(0);
    let minor = format!("\"minor\":{}", mlarun::recording::RECORDING_FORMAT.minor);
    let newer = unpacked(&project.path(FILE)).replacen(&minor, "\"minor\":99", 1);
    let elsewhere = Elsewhere::new();
    pack(&project.path("newer.recording"), &newer);
    elsewhere.replay(&project.path("newer.recording"), &[]).expect(0);
    pack(&project.path("novel.recording"), &format!("{newer}{{\"entry\":\"novel\"}}\n"));
    elsewhere.replay(&project.path("novel.recording"), &[]).expect(2).says("1.99").says("use a newer mlarun");
}

#[test]
fn a_line_without_an_end_is_refused_before_it_fills_the_memory() {
    let project = Project::new();
    project.mlarun(&[MANIFEST, "--record", FILE]).expect(0);
    let header = unpacked(&project.path(FILE)).lines().next().expect("a header").to_owned();
    pack(&project.path("long.recording"), &format!("{header}\n{}", " ".repeat(70 << 20)));
    Elsewhere::new().replay(&project.path("long.recording"), &[]).expect(2).says("which no recording does");
}
