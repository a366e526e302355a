//! Snapshots of every rendered output, and what must hold of them.

use std::collections::BTreeMap;

use super::fixtures::{
    V0_S1, V1_S1, V1_S1_ANNOTATION, V2_S1, annotation_record, event_record, gpu, input, judged_input, renderer, run,
};
use super::{AnalysisError, Input, Outcome, Report, ReportError};
use crate::conf::Conf;
use crate::model::Mode;
use crate::model::protocol::Counters;
use crate::model::record::Body;

fn report(input: &Input) -> Report<'_> {
    Report::new(input, &Conf::default().thresholds).expect("the input is sound")
}

fn profile(input: &Input, index: usize) -> String {
    report(input).profile(&renderer(), index).expect("it renders").expect("it was measured")
}

#[test]
fn an_event_profile() {
    insta::assert_snapshot!("event_profile", profile(&input(), V1_S1));
}

#[test]
fn an_annotation_profile() {
    insta::assert_snapshot!("annotation_profile", profile(&input(), V1_S1_ANNOTATION));
}

#[test]
fn a_profile_without_baseline_peaks_or_tiling() {
    let mut input = input();
    input.runs[V0_S1].peaks = None;
    insta::assert_snapshot!("bare_profile", profile(&input, V0_S1));
}

#[test]
fn a_gpu_profile_shows_counters_and_lets_them_decide() {
    let mut run = run("flash_mla", 1, 1, Mode::Annotation);
    run.device = gpu();
    let counters = [("tensor_core", 20.0), ("dram", 85.0), ("achieved_occupancy", 31.0), ("l2_hit_rate", 55.0)];
    let counters = Counters::Counted(counters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect());
    run.outcome =
        Outcome::Measured(vec![annotation_record(&run, 0, &[("latent", 900.0), ("project", 500.0)], &counters)]);
    let input = Input { experiment: "one".into(), runs: vec![run], comparisons: vec![], gone: vec![], host: None };
    insta::assert_snapshot!("gpu_profile", profile(&input, 0));
}

#[test]
fn an_experiment_report() {
    insta::assert_snapshot!("experiment", report(&input()).experiment(&renderer()).expect("it renders"));
}

#[test]
fn results_for_programs() {
    insta::assert_snapshot!("results_json", report(&input()).results_json());
    insta::assert_snapshot!("results_csv", report(&input()).results_csv().expect("it is written"));
}

#[test]
fn the_headings_and_columns_that_programs_read_are_exact() {
    let text = profile(&input(), V1_S1);
    let exact = [
        "## Profile: mla_var6_plus v1\n\n### Configuration\n| b | s | t | dtype |\n|---|---|---|-------|\n",
        "\n### Stages\n| Stage | Duration (us) | TC% | DRAM% | Occ% | Bottleneck | Key Issue |\n\
         |-------|---------------|-----|-------|------|------------|-----------|\n",
        "\n### Bottleneck: Memory-bound\nRoot cause: ",
        "\n### Top 3 Opportunities (ranked by estimated impact)\n1. ",
        "\n### vs Baseline\n| Metric | Previous | Current | Change |\n|--------|----------|---------|--------|\n",
        "\n### vs Baseline: flash_mla\n| Metric | Previous | Current | Change |\n",
    ];
    let mut from = 0;
    for part in exact {
        let at = text[from..].find(part).unwrap_or_else(|| panic!("{part} is missing or out of order in\n{text}"));
        from += at;
    }
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let (first, second) = (input(), input());
    assert_eq!(report(&first).results_json(), report(&second).results_json());
    assert_eq!(profile(&first, V2_S1), profile(&second, V2_S1));
}

#[test]
fn a_changed_sample_changes_every_report() {
    let (before, mut after) = (input(), input());
    let Outcome::Measured(records) = &mut after.runs[V1_S1].outcome else { panic!("it is measured") };
    for record in records {
        let Body::Event(set) = &mut record.body else { panic!("it is an event record") };
        set.samples[0].ns.iter_mut().for_each(|ns| *ns *= 1.5);
    }
    let renderer = renderer();
    assert_ne!(profile(&before, V1_S1), profile(&after, V1_S1));
    assert_ne!(profile(&before, V2_S1), profile(&after, V2_S1), "its baseline has changed");
    assert_ne!(report(&before).results_json(), report(&after).results_json());
    let text = |input: &Input| report(input).experiment(&renderer).expect("it renders");
    assert_ne!(text(&before), text(&after));
}

#[test]
fn another_device_is_not_compared_with() {
    let mut input = input();
    let Outcome::Measured(records) = &mut input.runs[V0_S1].outcome else { panic!("it is measured") };
    records.iter_mut().for_each(|record| record.environment.device.id.name = "Other CPU".into());
    let text = profile(&input, V1_S1);
    assert!(text.contains("No table against previous: event mla_var6_plus v0 (c) at b=1 s=1 t=256 dtype=float32 was measured on another device."), "{text}");
    assert!(text.contains("### vs Baseline\n"), "the next baseline takes the exact table");
    assert!(!text.contains("### vs Baseline: "), "{text}");
}

#[test]
fn a_time_below_the_floor_is_shown_as_it_is_with_what_to_do() {
    let mut input = input();
    let sound = report(&input).experiment(&renderer()).expect("it renders");
    assert!(!sound.contains("Warning") && !profile(&input, V1_S1).contains("Warning"), "{sound}");
    for run in &mut input.runs {
        run.peaks.as_mut().expect("it has peaks").bytes_per_s /= 3.0;
    }
    let text = report(&input).experiment(&renderer()).expect("it renders");
    assert!(text.contains("**Warning**: above the roofline: 4 runs, up to 238%: this host's peaks"), "{text}");
    assert!(text.contains("`mlarun device calibrate`"), "{text}");
    let text = profile(&input, V1_S1);
    assert!(text.contains("149% of the roofline.") && text.contains("**Warning**: end to end at 149%"), "{text}");
}

#[test]
fn two_names_of_one_subject_are_the_same_code() {
    let mut input = input();
    input.runs[V1_S1].outcome = input.runs[V0_S1].outcome.clone();
    let text = profile(&input, V1_S1);
    let table = text.split("### vs Baseline\n").nth(1).and_then(|rest| rest.split("###").next()).expect("a table");
    assert!(table.contains("| same code |") && !table.contains("0.0%"), "{table}");
    assert!(table.contains("it is the same code"), "{table}");
    let text = report(&input).experiment(&renderer()).expect("it renders");
    assert_eq!(text.matches("| same code |").count(), 1, "{text}");
    let links = super::devlog::Links { previous: Some(V0_S1), ..Default::default() };
    let record = report(&input).devlog_record(V1_S1, links).expect("it was measured");
    assert!(record.previous.is_some_and(|previous| previous.same_code));
}

#[test]
fn records_that_do_not_fit_are_errors() {
    let thresholds = Conf::default().thresholds;
    let error = |outcome: Outcome| {
        let mut run = run("flash_mla", 1, 1, Mode::Event);
        run.outcome = outcome;
        let input = Input { experiment: "bad".into(), runs: vec![run], comparisons: vec![], gone: vec![], host: None };
        match Report::new(&input, &thresholds) {
            Err(ReportError::Analysis(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(error(Outcome::Measured(vec![])), AnalysisError::NoRecord { .. }));
    let fitting = run("flash_mla", 1, 1, Mode::Event);
    let annotation = annotation_record(&fitting, 0, &[], &Counters::Absent { reason: String::new() });
    assert!(matches!(error(Outcome::Measured(vec![annotation])), AnalysisError::Body { .. }));
    let mut empty = event_record(&fitting, 0, 10.0);
    let Body::Event(set) = &mut empty.body else { panic!("it is an event record") };
    set.samples[0].ns.clear();
    let message = error(Outcome::Measured(vec![empty])).to_string();
    assert!(message.contains("cold_isolated cannot be summarized: no samples"), "{message}");
}

#[test]
fn names_cannot_break_a_table() {
    let mut input = input();
    input.runs[V1_S1_ANNOTATION].id.kernel = "a|b`c".into();
    let text = report(&input).experiment(&renderer()).expect("it renders");
    assert!(text.contains("| a\\|b\\`c (c) | v1 |"), "{text}");
}

#[test]
fn no_output_shows_nan() {
    let input = input();
    let report = report(&input);
    let texts = [
        report.results_json(),
        report.results_csv().expect("it is written"),
        report.experiment(&renderer()).expect("it renders"),
    ];
    for text in texts {
        assert!(!text.contains("NaN") && !text.contains(" inf"), "{text}");
    }
}

#[test]
fn a_results_file_parses_and_has_a_version() {
    let input = input();
    let value: serde_json::Value = serde_json::from_str(&report(&input).results_json()).expect("it is JSON");
    assert_eq!(value["format"], serde_json::json!({ "major": 1, "minor": 0 }));
    assert_eq!(value["runs"].as_array().map(Vec::len), Some(input.runs.len()));
    let by_status = value["runs"].as_array().into_iter().flatten().fold(BTreeMap::new(), |mut count, run| {
        *count.entry(run["status"].as_str().unwrap_or("?").to_owned()).or_insert(0) += 1;
        count
    });
    assert_eq!(by_status, BTreeMap::from([("failed".into(), 1), ("measured".into(), 7), ("skipped".into(), 1)]));
}

#[test]
fn a_verdict_stands_with_its_interval_beside_the_times_that_it_was_made_from() {
    let text = profile(&judged_input(1000.0, 1100.0), V2_S1);
    let table = text.split("### vs Baseline\n").nth(1).and_then(|rest| rest.split("###").next()).expect("a table");
    assert!(table.contains("| Duration (us) | 1100.23 | 1000.20 | 10.0% faster |"), "{table}");
    assert!(table.contains("| Verdict, 99.98% interval | -- | FASTER | +9."), "{table}");
    let json: serde_json::Value =
        serde_json::from_str(&report(&judged_input(1000.0, 1100.0)).results_json()).expect("it is JSON");
    let compared = &json["comparisons"][2];
    assert_eq!((&compared["verdict"], compared["interval"]["level"].is_number()), (&serde_json::json!("FASTER"), true));
    let csv = report(&judged_input(1000.0, 1100.0)).results_csv().expect("it is written");
    assert!(csv.lines().any(|line| line.contains("vs previous") && line.contains("FASTER")), "{csv}");
}

#[test]
fn what_is_slower_is_said_with_what_differs() {
    let mut input = judged_input(1100.0, 1000.0);
    let Outcome::Measured(records) = &mut input.runs[V2_S1].outcome else { panic!("it is measured") };
    for record in records {
        record.environment.compiler = "gcc 13".into();
        record.tiling.pipeline.insert("n".into(), 128.into());
    }
    // Twice the work in a tenth more time: the rate rises, and the verdict is one of time.
    input.runs[V2_S1].costs.iter_mut().for_each(|stage| stage.cost.flops *= 2.0);
    let text = profile(&input, V2_S1);
    for part in [
        "| SLOWER |",
        "9.1% slower",
        "compiler (gcc 12.2.0 → gcc 13)",
        "tiling (",
        "The cost model counts other work (FLOPs +100.0%)",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    assert!(text.lines().any(|line| line.starts_with("| Achieved TFLOPs/s |") && line.contains("| +")), "{text}");
    assert_eq!(input.regressions(), 1);
    let text = report(&input).experiment(&renderer()).expect("it renders");
    assert!(text.contains("Verdicts: 1 SLOWER, 3 none of 4 comparisons."), "{text}");
}

#[test]
fn a_run_that_only_the_baseline_has_is_counted_and_shown() {
    let mut input = input();
    let gone = super::Gone { baseline: "old.json".into(), run: "event old v0".into(), reason: "not a kernel".into() };
    input.gone.push(gone);
    assert_eq!(input.regressions(), 1);
    let text = report(&input).experiment(&renderer()).expect("it renders");
    assert!(text.contains("## Missing now\n1 run of a baseline without a result here."), "{text}");
    assert!(report(&input).results_json().contains("\"gone\""));
}
