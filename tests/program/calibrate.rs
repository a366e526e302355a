//! `mlarun calibrate`: processes are gathered in sittings that go on where the last one ended, and judged.

use std::path::Path;

use mlarun::model::calibration::{FalseVerdicts, HostCalibration};
use mlarun::store::calibrations::{judged, save_judged};
use serde_json::Value as Json;

use crate::fake_gpu::Lab;
use crate::project::{MANIFEST, Project, package};

/// Gives `project` the packages that a calibration runs, in this language.
fn with_packages(project: &Project, language: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in ["common", "device/spin_copy", "device/spin_fma"] {
        let folder = root.join("kernels").join(language).join(folder);
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let text = std::fs::read_to_string(&path).expect("text");
            project.write(path.strip_prefix(root).expect("below the root").to_str().expect("UTF-8"), &text);
        }
    }
}

/// What each sitting says of itself, and its processes, in a file of `--export`.
fn exported(project: &Project, file: &str) -> Vec<(Json, Vec<Json>)> {
    let mut sittings: Vec<(Json, Vec<Json>)> = Vec::new();
    for line in project.read(file).lines() {
        let line: Json = serde_json::from_str(line).expect("JSON");
        match line.get("sitting") {
            Some(sitting) => sittings.push((sitting.clone(), Vec::new())),
            None => sittings.last_mut().expect("a sitting").1.push(line),
        }
    }
    sittings
}

#[test]
fn a_cpu_is_gathered_from_in_sittings_that_go_on_where_the_last_one_ended() {
    let project = Project::new();
    with_packages(&project, "c");
    let gather = |processes: &str, more: &[&str]| {
        let arguments = ["calibrate", "--device", "cpu", "--gather", "--export", "all.jsonl", "--processes", processes];
        project.mlarun(&[&arguments[..], more].concat()).expect(0)
    };
    gather("1", &["--budget", "0s"]).says("gathered 0 processes in ").says("the time is spent");
    gather("1", &["--identical"])
        .says("compute 10 us (")
        .says("turn 1 of 1: 6 processes")
        .says("gathered 6 processes in ");
    gather("1", &[]).says_nothing_of("gathered");
    let sittings = exported(&project, "all.jsonl");
    let [(first, none), (second, processes)] = &sittings[..] else { panic!("{sittings:?}") };
    assert!(none.is_empty(), "{none:?}");
    assert_eq!(first["kernels"], second["kernels"], "sizes are chosen once");
    for (index, process) in processes.iter().enumerate() {
        assert_eq!((process[0].as_u64(), process[2].as_f64()), (Some(index as u64), Some(0.0)));
        assert!(process[3].as_f64().is_some_and(|ns| ns > 0.0), "{process}");
    }
    // More of them, and those of the long kernels that are slower by half a percent.
    gather("2", &[]).says("turn 1 of 1: 10 processes");
    project
        .mlarun(&["calibrate", "--budget", "soon"])
        .expect(2)
        .says("--budget soon: give a time such as 90s, 6m or 1h");
}

#[test]
fn a_gpu_is_gathered_from_without_a_change_of_its_clocks_where_others_forbid_it() {
    let lab = Lab::new();
    with_packages(&lab.project, "cuda");
    let arguments = ["calibrate", "--processes", "3", "--gather", "--export", "gpu.jsonl"];
    lab.mlarun_with(&arguments, &[("MLARUN_CLOCKS", "observe")]).expect(0).says("turn 3 of 3: 26 processes");
    assert_eq!(lab.fake.calls(), [] as [&str; 0]);
    let sittings = exported(&lab.project, "gpu.jsonl");
    let [(about, processes)] = &sittings[..] else { panic!("{sittings:?}") };
    assert_eq!((&about["clocks"], &about["driver"]), (&"observed".into(), &"580.0".into()));
    assert_eq!(processes.len(), 26);
    assert!(processes.iter().all(|process| process[3] == 1000.0 && process[4] == 1980.0), "{processes:?}");
    // Under a lock that holds, another sitting begins, and its processes are not laid to those.
    let locked = ["calibrate", "--processes", "1", "--gather", "--identical", "--export", "locked.jsonl"];
    lab.mlarun(&locked).expect(0).says("turn 1 of 1: 6 processes");
    let sittings = exported(&lab.project, "locked.jsonl");
    assert_eq!(sittings.len(), 1);
    assert!(sittings[0].0["clocks"]["locked"]["sm_mhz"].is_u64(), "{}", sittings[0].0);
    lab.is_clean("a calibration");
}

#[test]
fn what_was_gathered_is_judged_and_kept_in_short() {
    let lab = Lab::new();
    with_packages(&lab.project, "cuda");
    let observed = [("MLARUN_CLOCKS", "observe")];
    lab.mlarun_with(&["calibrate", "--judge"], &observed).expect(2).says("there is no process to judge");
    let arguments = ["--processes", "16", "--identical", "--comparisons", "100", "--export", "all.jsonl"];
    let ended = lab.mlarun_with(&[&["calibrate"], &arguments[..]].concat(), &observed).expect(0);
    // Every process takes the same time: each comparison ends with SAME at its first look, and eight rounds use all.
    for said in [
        "NVIDIA H200, driver 580.0, clocks observe: 96 processes of identical code, 1 sitting",
        "rule: changes from 2.00% on",
        "all together                                                 0 of 6           0 of 600          0.498%   100.00%",
        "2.00%      compute 4 ms    scaled samples",
        "of comparisons of identical code 0 of 6 (at most 39.30%) were called different",
    ] {
        assert!(ended.out.contains(said), "`{said}` is not in:\n{}", ended.out);
    }
    let folders = lab.project.files("out/store/calibrations");
    let judged = folders.iter().find(|path| path.ends_with("judged.json")).expect("kept");
    let judged: Json =
        serde_json::from_str(&lab.project.read(&format!("out/store/calibrations/{}", judged.display()))).expect("JSON");
    assert_eq!(judged["calibration"]["threshold"], 0.02);
    assert_eq!(judged["calibration"]["resampled"]["comparisons"], 600);
    lab.mlarun_with(&["device", "show"], &observed).expect(0).prints("verdicts: This host: a change of 5.14% is found");
    let shown = lab.mlarun_with(&["device", "show", "--json"], &observed).expect(0);
    let shown: Json = serde_json::from_str(&shown.out).expect("JSON");
    assert_eq!(shown["verdicts"], judged["calibration"]);
    lab.mlarun(&["device", "show", "--device", "cpu"]).expect(0).prints("verdicts: not calibrated");
    // Elsewhere, from the exported file alone, twice: as many processes again.
    let elsewhere = Project::new();
    let file = lab.project.path("all.jsonl").display().to_string();
    let json = elsewhere.mlarun(&["calibrate", "--json", "--comparisons", "50", "--judge", &file, &file]).expect(0);
    let json: Json = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!((&json["sittings"], &json["kernels"][0]["processes"]), (&2.into(), &32.into()));
    elsewhere.mlarun(&["calibrate", "--judge", "none.jsonl"]).expect(2).says("none.jsonl: No such file");
}

#[test]
fn a_calibration_is_quoted_by_reports_and_lowers_the_threshold_of_comparisons() {
    let project = Project::new();
    with_packages(&project, "c");
    let calibrate = ["calibrate", "--device", "cpu", "--processes", "1", "--identical", "--comparisons", "10"];
    project.mlarun(&calibrate).expect(0).prints("This host: 6 processes are too few for a single comparison");
    // As one would find it that had seen more.
    let found = project.files("out/store/calibrations").into_iter().find(|path| path.ends_with("judged.json"));
    let folder = project.path("out/store/calibrations").join(found.expect("judged").parent().expect("a folder"));
    let host = judged(&folder).expect("readable").expect("judged");
    assert_eq!(host.threshold, 0.02);
    assert!(!host.says_something(), "no comparison, no sentence");
    let resampled = FalseVerdicts { events: 0, comparisons: 600, at_most: Some(0.005) };
    let host = HostCalibration { threshold: 0.0075, resampled, ..host };
    save_judged(&folder, &host).expect("written");

    project.kernel("copy", 1);
    project.edit(
        &format!("{}/copy.c", package("copy", 1)),
        "i += STEP)",
        "i += STEP) /* as before, and then once more */\n        y[AT(row, i)] = 0.0f,",
    );
    project.edit(
        MANIFEST,
        r#"modes   = ["event"]"#,
        "versions = \"all\"\nbaselines = [\"previous\"]\nmodes   = [\"event\"]",
    );
    project.mlarun(&[MANIFEST, "--device", "cpu", "--record", "call.recording"]).expect(0);
    let records = project.files("out/store/records/event");
    assert!(!records.is_empty());
    for record in records {
        let record = project.read(&format!("out/store/records/event/{}", record.display()));
        assert!(record.contains("\"threshold\": 0.0075"), "{record}");
    }
    let report = project.read("out/experiments/rows/report.md");
    assert!(report.contains("This host: no change up to twice the speed is found"), "{report}");
    // A replay has it from the recording.
    let elsewhere = Project::new();
    let recording = project.path("call.recording").display().to_string();
    elsewhere.mlarun(&["--replay", &recording, "--out", "replayed"]).expect(0);
    assert_eq!(elsewhere.read("replayed/experiments/rows/report.md"), report);
    // What cannot be read is no calibration that was never made.
    std::fs::write(folder.join("judged.json"), "{}").expect("spoilt");
    let ended = project.mlarun(&["plan", MANIFEST, "--device", "cpu"]).expect(3);
    ended.says("judged.json").says("`mlarun calibrate --judge` makes it again");
    project.mlarun(&["calibrate", "--device", "cpu", "--judge", "--comparisons", "10"]).expect(0);
    project.mlarun(&["plan", MANIFEST, "--device", "cpu"]).expect(0);
}
