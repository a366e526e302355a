//! The timeline of the captured pipeline: stages, overlap, latency, and what is drawn of it.

use mlarun::model::ncu::KernelNames;
use mlarun::model::timeline::{StageKernel, Timeline};
use mlarun::profiler::nsys::read_export;
use mlarun::timeline::{
    Analysis, Drawn, Iteration, Medians, activities_csv, gaps_csv, iterations, launch_latencies, overlap_csv,
    perfetto_trace, picture,
};

use super::capture;

const STAGES: [&str; 3] = ["latent", "decompressed", "combine"];

fn timeline() -> Timeline {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("export.sqlite");
    std::fs::write(&file, capture("nsys-export.sqlite")).expect("it is written");
    read_export(&file, KernelNames::Function).expect("it can be read")
}

fn runs(timeline: &Timeline) -> Vec<Iteration<'_>> {
    let stages = STAGES.map(|stage| StageKernel { stage: stage.to_owned(), kernel: format!("{stage}_stage") });
    iterations(timeline, &stages).expect("it holds whole runs")
}

fn analyses(runs: &[Iteration<'_>]) -> Vec<Analysis> {
    runs.iter().filter_map(|run| Analysis::of(&run.by_stage())).collect()
}

#[test]
fn two_stages_run_beside_one_another_and_the_third_behind_them() {
    let timeline = timeline();
    let runs = analyses(&runs(&timeline));
    assert_eq!(runs.len(), 5);
    // From the tool's own table: 14716433 + 84545, 14741937 + 274881, 15018034 + 1153155.
    let first = &runs[0];
    assert_eq!(first.stage_ns, [84_545, 274_881, 1_153_155]);
    assert_eq!(first.overlap_ns[0][1], 14_716_433 + 84_545 - 14_741_937);
    assert_eq!((first.overlap_ns[0][2], first.overlap_ns[1][2]), (0, 0));
    assert_eq!(first.span_ns, 15_018_034 + 1_153_155 - 14_716_433);
    let gaps: Vec<_> = first.gaps.iter().map(|gap| (gap.duration_ns(), gap.after, gap.before)).collect();
    assert_eq!(gaps, [(15_018_034 - 14_741_937 - 274_881, 1, 2)]);
    for run in &runs {
        assert!(run.share_beside(0, 1).is_some_and(|share| share > 0.6), "the shorter stage lies beside the longer");
        assert!(
            run.overlap_efficiency().is_some_and(|share| (0.1..0.3).contains(&share)),
            "{:?}",
            run.overlap_efficiency()
        );
    }
    let medians = Medians::of(&runs).expect("there are runs");
    assert_eq!(medians.stage_ns, [86_080.0, 280_288.0, 1_140_003.0], "those of the tool's own summary");
}

#[test]
fn every_kernel_has_the_latency_of_its_call() {
    let timeline = timeline();
    let found = launch_latencies(&timeline);
    let kernels = found.launches.iter().filter(|launch| launch.call.name == "cuLaunchKernel").count();
    assert_eq!((kernels, found.launches.len(), found.without_call, found.before_call), (15, 15, 0, 0));
    let first = found.launches[0];
    assert_eq!((first.started.name.as_str(), first.latency_ns()), ("latent_stage", 14_716_433 - 14_654_248));
}

#[test]
fn tables_have_a_row_each() {
    let timeline = timeline();
    let runs = analyses(&runs(&timeline));
    let stages = STAGES.map(str::to_owned);
    assert_eq!(activities_csv(&timeline).lines().count(), 1 + timeline.activities.len());
    assert_eq!(overlap_csv(&stages, &runs).lines().count(), 1 + 5 * 9);
    assert_eq!(gaps_csv(&stages, &runs).lines().count(), 1 + 5);
}

#[test]
fn the_first_run_as_a_picture() {
    let timeline = timeline();
    let runs = runs(&timeline);
    let drawn: Vec<_> =
        runs[0].launches.iter().enumerate().map(|(stage, activity)| Drawn { activity, stage: Some(stage) }).collect();
    insta::assert_snapshot!(picture("captured pipeline, run 1 of 5", &STAGES.map(str::to_owned), &drawn));
}

#[test]
fn the_trace_holds_every_activity_and_an_arrow_for_each_launch() {
    let timeline = timeline();
    let text = perfetto_trace(&timeline);
    let trace: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let events = trace["traceEvents"].as_array().expect("a list");
    let count = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    assert_eq!(count("X"), timeline.activities.len());
    assert_eq!((count("s"), count("f")), (15, 15));
    assert_eq!(perfetto_trace(&timeline), text, "it is the same every time");
}
