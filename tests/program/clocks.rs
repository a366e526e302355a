//! Clocks: locked, verified and given back by runs; refused, slipping and lost; never touched where that is forbidden.

use serde_json::Value as Json;

use crate::fake_gpu::{Lab, SWEEP, UUID};

/// What a run does that locks the SM clock at 1500 MHz.
const LOCKED_AND_RESET: [&str; 5] =
    ["reset_sm 0 0", "reset_mem 0 0", "lock_sm 0 1500", "reset_sm 0 0", "reset_mem 0 0"];

#[track_caller]
fn each_record(lab: &Lab, count: usize, says: &[(&str, Json)]) {
    let records = lab.records();
    assert_eq!(records.len(), count);
    for record in &records {
        for (path, value) in says {
            assert_eq!(record.pointer(path).unwrap_or(&Json::Null), value, "{path} of {record:#}");
        }
    }
}

const LOCKED: &str = "/environment/clocks_locked";
const POLICY: &str = "/material/clock_policy";

#[test]
fn a_sweep_locks_clocks_and_gives_them_back() {
    let lab = Lab::new();
    lab.mlarun(&[SWEEP]).expect(0).says("2 runs recorded");
    assert_eq!(lab.fake.calls(), LOCKED_AND_RESET);
    lab.is_clean("a sweep");
    each_record(&lab, 4, &[(LOCKED, true.into()), (POLICY, "lock sm=1500".into())]);
    let seen = lab.records()[0]["environment"]["telemetry"].clone();
    assert_eq!(seen["board"]["vbios"], "96.00.00.00.01", "{seen:#}");
    assert_eq!((&seen["before"]["sm_mhz"], &seen["after"]["power_w"]), (&1500.into(), &123.456.into()), "{seen:#}");
    assert!(lab.project.read("out/experiments/sweep/report.md").contains(", locked clocks"));
    let again = lab.mlarun(&[SWEEP]).expect(0).says("nothing to do, 2 runs recorded");
    drop(again);
    assert_eq!(lab.fake.calls(), LOCKED_AND_RESET, "what is recorded needs no clock");
}

#[test]
fn another_clock_is_another_measurement() {
    let lab = Lab::new();
    lab.mlarun(&[SWEEP]).expect(0);
    lab.mlarun(&[SWEEP, "--set", "clocks.sm_mhz=1400"]).expect(0).says("clock_policy");
    assert!(lab.fake.calls().contains(&"lock_sm 0 1400".to_owned()));
    assert_eq!(lab.records().len(), 8);
    lab.mlarun(&["--clocks", "observe", SWEEP]).expect(0).says("2 to do");
    assert_eq!(lab.records().len(), 12);
    lab.mlarun(&[SWEEP]).expect(0).says("2 recorded, 0 to do");
}

#[test]
fn a_device_has_a_default_and_a_memory_clock_is_locked_where_it_can_be() {
    let lab = Lab::new();
    lab.project.edit(SWEEP, "sm_mhz = 1500", "mem_mhz = 2619");
    lab.mlarun(&[SWEEP]).expect(0);
    assert!(lab.fake.calls().contains(&"lock_mem 0 2619".to_owned()));
    each_record(&lab, 4, &[(LOCKED, true.into()), (POLICY, "lock sm=1500 mem=2619".into())]);
    lab.is_clean("a sweep");

    let lab = Lab::new();
    lab.project.edit(SWEEP, "sm_mhz = 1500", "mem_mhz = 2619");
    lab.fake.set("refuse_mem", 2);
    lab.mlarun(&[SWEEP]).expect(0);
    each_record(&lab, 4, &[(LOCKED, true.into()), (POLICY, "lock sm=1500".into())]);
    lab.mlarun(&[SWEEP]).expect(0).says("nothing to do");
}

#[test]
fn a_run_that_may_not_lock_is_refused_or_goes_on_unlocked() {
    let lab = Lab::new();
    lab.fake.set("refuse", 1);
    lab.mlarun(&[SWEEP]).expect(3).says("may not reset its clocks").says("nothing was measured");
    assert!(lab.records().is_empty());
    let prefer = ["--clocks", "prefer", SWEEP];
    lab.mlarun(&prefer).expect(0).says("clocks: unlocked: NVIDIA H200").says("2 runs recorded");
    each_record(&lab, 4, &[(LOCKED, false.into()), (POLICY, "observe".into())]);
    assert!(lab.project.read("out/experiments/sweep/report.md").contains(", unlocked clocks"));
    let calls = lab.fake.calls();
    lab.mlarun(&prefer).expect(0).says("nothing to do");
    assert_eq!(lab.fake.calls(), calls, "what came of it is known");
    // Who may lock by now does so as soon as there is something to measure.
    lab.fake.set("refuse", 0);
    lab.mlarun(&["--clocks", "prefer", SWEEP, "--remeasure"]).expect(0);
    assert_eq!(lab.records().iter().filter(|record| record["environment"]["clocks_locked"] == true).count(), 4);
    lab.mlarun(&prefer).expect(0).says("nothing to do");
    lab.is_clean("a sweep");
}

#[test]
fn a_lock_that_does_not_hold_is_none() {
    for key in ["keep_sm", "keep_mem"] {
        let lab = Lab::new();
        lab.project.edit(SWEEP, "sm_mhz = 1500", "sm_mhz = 1500\nmem_mhz = 2619");
        lab.fake.set(key, 1300);
        lab.mlarun(&[SWEEP]).expect(3).says("does not hold its clocks under load: 1").says("instead of 1500 MHz");
        assert!(lab.records().is_empty());
        lab.is_clean("a refusal");
        lab.mlarun(&["--clocks", "prefer", SWEEP]).expect(0).says("clocks: unlocked: ");
        each_record(&lab, 4, &[(LOCKED, false.into())]);
        lab.is_clean("a sweep");
    }
}

#[test]
fn a_driver_without_the_function_or_without_nvml_is_named() {
    let lab = Lab::lacking_the_lock();
    lab.mlarun(&[SWEEP]).expect(3).says("cannot lock the SM clock").says("nvmlDeviceSetGpuLockedClocks");
    lab.is_clean("a refusal");
    let lab = Lab::new();
    lab.fake.set("no_driver", 1);
    lab.mlarun(&[SWEEP]).expect(3).says("management library cannot be used").says("driver is not loaded");
    lab.mlarun_with(&[SWEEP], &[("MLARUN_NVML", "/nowhere/libnvml.so")]).expect(3).says("/nowhere/libnvml.so");
    lab.mlarun_with(&["clocks", "status"], &[("MLARUN_NVML", "/nowhere/libnvml.so")]).expect(3).says("MLARUN_NVML");
    lab.mlarun_with(&["--clocks", "observe", SWEEP], &[("MLARUN_NVML", "/nowhere/libnvml.so")]).expect(0);
    each_record(&lab, 4, &[(LOCKED, false.into())]);
}

#[test]
fn an_administrators_lock_is_verified_and_left_alone() {
    let lab = Lab::new();
    let external = ["--clocks", "external", SWEEP];
    lab.mlarun(&external).expect(3).says("1980 MHz instead of 1500 MHz");
    lab.fake.set("sm.0", 1500);
    lab.mlarun(&external).expect(0);
    each_record(&lab, 4, &[(LOCKED, true.into()), (POLICY, "external sm=1500".into())]);
    assert!(lab.fake.calls().is_empty());
    assert_eq!(lab.fake.locked(), (1500, 0));
}

#[test]
fn a_lock_of_the_command_line_comes_back_after_a_run() {
    let lab = Lab::new();
    lab.mlarun(&["clocks", "lock", "--sm-mhz", "1200"]).expect(0).says("locked at 1200 MHz");
    lab.mlarun(&[SWEEP]).expect(0);
    each_record(&lab, 4, &[(POLICY, "lock sm=1500".into())]);
    assert_eq!(lab.fake.locked(), (1200, 0));
    lab.mlarun(&["clocks", "status"]).expect(0).prints("locked at 1200 MHz by process");
    lab.mlarun(&["clocks", "reset"]).expect(0).says("clocks reset");
    assert_eq!(lab.fake.locked(), (0, 0));
}

#[test]
fn clocks_are_shown_locked_and_reset() {
    let lab = Lab::new();
    lab.fake.set("gpus", 2);
    let status = |lab: &Lab| -> Json {
        serde_json::from_str(&lab.mlarun(&["clocks", "status", "--json"]).expect(0).out).expect("JSON")
    };
    lab.mlarun(&["clocks", "status"]).expect(0).prints("not locked by mlarun").prints(UUID);
    let shown = status(&lab);
    assert_eq!((&shown[0]["sm_mhz"], &shown[1]["index"], &shown[0]["locked"]), (&1980.into(), &1.into(), &Json::Null));
    lab.mlarun(&["clocks", "lock", "--mem-mhz", "2619"]).expect(0).says("locked at 1500 MHz, memory 2619 MHz");
    assert_eq!((lab.fake.locked(), lab.fake.get("sm.1")), ((1500, 2619), 1500));
    let shown = status(&lab);
    assert_eq!(shown[0]["locked"]["kind"], "command");
    assert_eq!(shown[0]["locked"]["mem_mhz"], 2619);
    let one = format!("{}1", &UUID[..UUID.len() - 1]);
    let reset_one = |lab: &Lab, device: &str| crate::project::ended(&mut lab.on(device, &["clocks", "reset"]));
    reset_one(&lab, &one).expect(0);
    assert_eq!((lab.fake.locked(), lab.fake.get("sm.1")), ((1500, 2619), 0));
    reset_one(&lab, "0").expect(0);
    assert_eq!(lab.fake.locked(), (0, 0));
    reset_one(&lab, "2").expect(2).says("no GPU `2`");
    reset_one(&lab, "cpu").expect(2).says("left alone");
    lab.fake.set("refuse", 1);
    lab.mlarun(&["clocks", "lock"]).expect(3).says("may not").says("docs/operations.md");
    assert_eq!(status(&lab)[0]["locked"], Json::Null);
}

#[test]
fn clocks_that_a_run_holds_are_shown_as_such_and_not_reset() {
    let lab = Lab::new();
    lab.hold();
    let running = lab.start_with(&[SWEEP], &[]);
    lab.wait_for_a_worker();
    lab.mlarun(&["clocks", "status"]).expect(0).prints("locked at 1500 MHz by process").prints(SWEEP);
    lab.mlarun(&["clocks", "reset", "--stale"]).expect(0);
    lab.mlarun(&["clocks", "reset"]).expect(3).says("in the hands of process").says(SWEEP);
    assert_eq!(lab.fake.locked(), (1500, 0));
    lab.go_on();
    running.end().expect(0);
    lab.is_clean("a sweep");
}

#[test]
fn a_slowdown_under_a_lock_marks_what_it_met() {
    let lab = Lab::new();
    // Four readings go into the settling and the first set.
    lab.fake.set("throttle", 4).set("throttle_from", 4);
    // Three of four slip.
    lab.mlarun(&[SWEEP]).expect(4);
    let report = lab.project.read("out/experiments/sweep/report.md");
    assert!(
        report.contains("INVALID: 2 of 2 measurements slipped: clocks were held down (SW Power Cap) (2)"),
        "{report}"
    );
    lab.mlarun(&[SWEEP]).expect(4);
    let records = lab.records();
    let taints: Vec<_> = records.iter().map(|record| record["environment"]["telemetry"]["taints"].clone()).collect();
    assert_eq!(taints[0], serde_json::json!([]));
    assert_eq!(taints[3], serde_json::json!(["clocks were held down (SW Power Cap)"]));
    assert_eq!(records[0]["environment"]["clocks_locked"], true);
    assert_eq!(records[3]["environment"]["clocks_locked"], false);
}

#[test]
fn a_slowdown_of_free_clocks_is_recorded_and_no_taint() {
    let lab = Lab::new();
    lab.fake.set("throttle", 4);
    lab.mlarun(&["--clocks", "observe", SWEEP]).expect(0);
    let power_cap = serde_json::json!(["SW Power Cap"]);
    let telemetry = "/environment/telemetry";
    each_record(
        &lab,
        4,
        &[
            (&format!("{telemetry}/before/throttle"), power_cap),
            (&format!("{telemetry}/taints"), serde_json::json!([])),
            (&format!("{telemetry}/clocks"), "observed".into()),
        ],
    );
}

#[test]
fn a_fault_that_the_driver_reports_marks_what_it_met() {
    let lab = Lab::new();
    // Four readings go into the settling and the first set: the second set of the first run meets it.
    lab.fake.set("xid", 79).set("xid_from", 5);
    lab.mlarun(&[SWEEP]).expect(4);
    let taints: Vec<_> =
        lab.records().iter().map(|record| record["environment"]["telemetry"]["taints"].clone()).collect();
    let told = serde_json::json!(["the driver reported a fault of the GPU (Xid 79)"]);
    assert_eq!(taints.iter().filter(|taints| **taints == told).count(), 1, "{taints:?}");
    assert_eq!(taints.iter().filter(|taints| **taints == serde_json::json!([])).count(), 3, "{taints:?}");
    let report = lab.project.read("out/experiments/sweep/report.md");
    assert!(report.contains("INVALID: 1 of 2 measurements slipped: the driver reported a fault"), "{report}");
}

#[test]
fn company_on_the_gpu_is_named() {
    let lab = Lab::new();
    lab.fake.set("process", 4711);
    lab.mlarun(&["--clocks", "observe", SWEEP]).expect(0);
    let taints = serde_json::json!(["other processes computed on the GPU (4711)"]);
    each_record(&lab, 4, &[("/environment/telemetry/taints", taints)]);
    let key = lab.records()[0]["key"].as_str().expect("a key").to_owned();
    lab.mlarun(&["show", &key]).expect(0).prints("other processes computed on the GPU (4711)").prints("96.00.00.00.01");
}

#[test]
fn a_lost_gpu_ends_the_sweep_which_goes_on_later() {
    let lab = Lab::new();
    lab.fake.set("lost_from", 5);
    lab.mlarun(&[SWEEP]).expect(3).says("the GPU is lost").says("goes on from there");
    let recorded = lab.records().len();
    assert!((1..4).contains(&recorded), "{recorded} sets are recorded");
    lab.fake.set("lost_from", 0);
    lab.mlarun(&[SWEEP]).expect(0).says("2 runs recorded");
    assert_eq!(lab.records().len(), 4);
    lab.is_clean("a sweep");
}

#[test]
fn a_recording_knows_the_clocks_and_what_was_read() {
    let lab = Lab::new();
    lab.fake.set("throttle", 4).set("throttle_from", 4);
    lab.mlarun(&[SWEEP, "--record", "call.recording"]).expect(4);
    let elsewhere = tempfile::tempdir().expect("a folder");
    let mut replay = std::process::Command::new(assert_cmd::cargo::cargo_bin!("mlarun"));
    replay.current_dir(elsewhere.path()).arg("--replay").arg(lab.project.path("call.recording"));
    crate::project::ended(replay.env("MLARUN_CLOCKS", "lock")).expect(4).says("2 runs recorded");
    let report = "experiments/sweep/report.md";
    let replayed = std::fs::read_to_string(elsewhere.path().join("call.replay").join(report)).expect("a report");
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert_eq!(replayed.replace("redacted", &host), lab.project.read(&format!("out/{report}")));
    assert!(replayed.contains("INVALID: "), "{replayed}");
}

/// Every flag, variable and manifest that forbids it, against every command that could change a clock.
#[test]
fn forbidden_clocks_are_never_touched() {
    let lab = Lab::new();
    never_touches(&lab, &["--clocks", "observe"], &[]);
    never_touches(&lab, &[], &[("MLARUN_CLOCKS", "observe")]);
    never_touches(&lab, &["--clocks", "lock"], &[("MLARUN_CLOCKS", "observe")]);
    lab.mlarun_with(&[SWEEP], &[("MLARUN_CLOCKS", "Observe")]).expect(2).says("`Observe` is no clock policy");
    lab.mlarun_with(&["clocks", "lock"], &[("MLARUN_CLOCKS", "never")]).expect(2).says("`never` is no clock policy");
    lab.mlarun(&["--clocks", "free", SWEEP]).expect(2).says("lock, prefer, external, observe");
    assert!(lab.fake.calls().is_empty());
    // The same commands do touch them where they may.
    lab.mlarun(&["clocks", "lock"]).expect(0);
    assert_eq!(lab.fake.calls().last().map(String::as_str), Some("lock_sm 0 1500"));
}

/// Tries everything that could change a clock.
pub fn never_touches(lab: &Lab, flags: &[&str], variables: &[(&str, &str)]) {
    lab.fake.set("sm.0", 0);
    let with = |arguments: &[&str]| lab.mlarun_with(&[arguments, flags].concat(), variables);
    for policy in ["lock", "prefer", "external", "observe"] {
        let set = format!("clocks.policy={policy}");
        for more in ["clocks.sm_mhz=1500", "clocks.mem_mhz=2619"] {
            with(&[SWEEP, "--remeasure", "--set", &set, "--set", more]).expect(0).says("2 runs recorded");
        }
    }
    with(&["profile", "copy", "--prof_type=event", "--remeasure"]).expect(0);
    with(&["profile", "copy", "--prof_type=disabled", "--check"]).expect(0);
    for arguments in [&["clocks", "lock"][..], &["clocks", "lock", "--sm-mhz=1500"], &["clocks", "reset"]] {
        with(arguments).expect(3);
    }
    with(&["clocks", "reset", "--stale"]).expect(3);
    with(&["clocks", "status"]).expect(0);
    // What a dead run has left is told, and left.
    let note = format!("lease/clocks-{UUID}.json");
    let by = r#"{"pid":1,"command":"mlarun old.toml","since":"2026-01-01T00:00:00Z"}"#;
    let held =
        format!(r#"{{"uuid":"{UUID}","boot":"","kept":null,"held":{{"frequencies":{{"sm_mhz":1500}},"by":{by}}}}}"#);
    lab.project.write(&note, &held);
    lab.fake.set("sm.0", 1500);
    with(&[SWEEP, "--remeasure"]).expect(0).says("has left its clocks locked");
    assert_eq!(lab.project.read(&note), held);
    lab.project.write(&note, "");
    assert!(lab.fake.calls().is_empty(), "{:?}", lab.fake.calls());
}
