//! Nsight Compute around workers: tests/program/ncu.sh stands in for it, the rest is the real program on the fake GPU.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value as Json;

use crate::fake_gpu::{Lab, SWEEP};
use crate::project::{Ended, ended};

/// The sweep of two shapes in `modes`.
fn lab(modes: &str) -> Lab {
    let lab = Lab::new();
    lab.project.edit(SWEEP, "modes   = [\"event\"]", &format!("modes   = [{modes}]"));
    lab.project.edit(SWEEP, "policy = \"lock\"\nsm_mhz = 1500", "policy = \"observe\"");
    lab.project.write("ncu", include_str!("ncu.sh"));
    fs::set_permissions(lab.project.path("ncu"), fs::Permissions::from_mode(0o755)).expect("an executable");
    lab
}

fn sweep(lab: &Lab, arguments: &[&str]) -> Ended {
    let ncu = lab.project.path("ncu").display().to_string();
    lab.mlarun_with(&[&[SWEEP], arguments].concat(), &[("MLARUN_NCU", &ncu)])
}

/// How often it was started around a worker.
fn starts(lab: &Lab) -> usize {
    fs::read_to_string(lab.project.path("ncu.starts")).unwrap_or_default().lines().count()
}

fn records(lab: &Lab, kind: &str) -> Vec<Json> {
    let folder = format!("out/store/records/{kind}");
    let files = if lab.project.path(&folder).exists() { lab.project.files(&folder) } else { Vec::new() };
    let read = |file: &std::path::PathBuf| -> Json {
        serde_json::from_str(&lab.project.read(&format!("{folder}/{}", file.display()))).expect("JSON")
    };
    files.iter().map(read).map(|file| file["record"].clone()).collect()
}

#[test]
fn annotation_of_several_subjects_takes_one_start() {
    let lab = lab("\"annotation\"");
    sweep(&lab, &[]).expect(0).says("2 runs recorded");
    assert_eq!(starts(&lab), 1);
    let records = records(&lab, "annotation");
    assert_eq!(records.len(), 2);
    for record in &records {
        let stage = &record["body"]["stages"][0];
        assert_eq!((&stage["ns"], &stage["launch"]["kernel"]), (&serde_json::json!([2000.0]), &"copy".into()));
        let counted = &stage["counters"]["counted"];
        assert_eq!((&counted["tensor_core"], &counted["sm_clock"]), (&42.5.into(), &1.5e9.into()), "{counted:#}");
        assert_eq!(counted["l1_hit_rate"], Json::Null, "a metric that this version does not know is no zero");
        assert_eq!(record["body"]["ncu"]["version"], "2025.3.1.0");
    }
    let request = lab.project.read("ncu.request");
    assert!(!request.contains("l1tex__t_sector_hit_rate"), "what it does not know would end the whole run");
    sweep(&lab, &[]).expect(0).says("nothing to do");
    assert_eq!(starts(&lab), 1);
}

#[test]
fn a_process_that_fails_for_all_is_repeated_for_each() {
    let lab = lab("\"annotation\"");
    lab.project.write("ncu.mode", "alone");
    sweep(&lab, &[]).expect(0).says("2 runs recorded");
    // The failure may pass: the first process is repeated once before each subject gets its own.
    assert_eq!((starts(&lab), records(&lab, "annotation").len()), (4, 2));
}

#[test]
fn each_failure_says_what_to_do_and_is_no_result() {
    let lab = lab("\"annotation\"");
    for (mode, says) in [
        ("permission", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("nothing", "no kernel was profiled"),
        ("memory", "there was not enough memory to save and restore the device's memory for replaying of `copy`"),
        ("undelivered", "does not deliver these metrics on this GPU: dram__bytes.sum"),
    ] {
        lab.project.write("ncu.mode", mode);
        sweep(&lab, &[]).expect(4).says(says);
        assert!(records(&lab, "annotation").is_empty(), "{mode}");
    }
    lab.project.write("ncu.mode", "");
    sweep(&lab, &[]).expect(0).says("2 runs recorded");
}

#[test]
fn its_own_mode_keeps_the_report() {
    let lab = lab("\"ncu\"");
    sweep(&lab, &["--set", "shapes.rows=[8]"]).expect(0).says("1 run recorded");
    let records = records(&lab, "ncu");
    let run = &records[0]["body"]["ncu"];
    let name = run["report"]["name"].as_str().expect("a name");
    assert_eq!(lab.project.read(&format!("out/nsight/{name}")), "report\n");
    assert_eq!(run["sources"][0]["function"], "copy");
    let metrics = &records[0]["body"]["stages"][0]["launch"]["metrics"];
    assert_eq!(metrics["profiler__replayer_passes"]["number"]["value"], 38.0, "{metrics:#}");
    let profiles = lab.project.files("out/profiles/ncu");
    assert!(profiles.iter().any(|file| file.ends_with(name)), "{profiles:?}");
    let logs = fs::read_dir(lab.project.path("out/nsight")).expect("a folder").count();
    assert_eq!(logs, 1, "no log is left");
}

#[test]
fn a_report_that_is_not_there_is_no_result() {
    let lab = lab("\"ncu\"");
    lab.project.write("ncu.mode", "unkept");
    sweep(&lab, &["--set", "shapes.rows=[8]"]).expect(4).says("without data");
    assert!(records(&lab, "ncu").is_empty());
}

#[test]
fn without_it_stages_are_timed_and_its_mode_is_skipped() {
    let lab = lab("\"annotation\", \"ncu\"");
    let swept = lab.mlarun_with(&[SWEEP], &[("MLARUN_NCU", "/no/ncu")]);
    swept.expect(0).says("2 runs recorded, 2 skipped");
    let report = lab.project.read("out/experiments/sweep/report.md");
    assert!(report.contains("MLARUN_NCU names /no/ncu, which is no file"), "{report}");
    let records = records(&lab, "annotation");
    assert!(records.iter().all(|record| record["body"]["ncu"] == Json::Null));
    assert_eq!(records[0]["body"]["stages"][0]["ns"].as_array().map(Vec::len), Some(6));
}

#[test]
fn a_recording_holds_what_it_said() {
    let lab = lab("\"annotation\", \"ncu\"");
    let recorded = lab.project.path("nsight.recording").display().to_string();
    sweep(&lab, &["--record", &recorded]).expect(0).says("4 runs recorded");
    let replayed = lab.project.path("replayed").display().to_string();
    let mut replay = lab.command(&["--replay", &recorded, "--out", &replayed]);
    ended(replay.env_remove("MLARUN_DEVICE").env("MLARUN_NCU", "/no/ncu")).expect(0);
    let report = "experiments/sweep/report.md";
    assert_eq!(lab.project.read(&format!("out/{report}")), lab.project.read(&format!("replayed/{report}")));
}
