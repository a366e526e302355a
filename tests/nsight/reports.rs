//! Reports of records that hold what the real tools said: annotation and ncu mode from the captures, of an H200.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mlarun::conf::{Conf, CounterName};
use mlarun::model::device::PeakSource;
use mlarun::model::ncu::{Capability, KernelNames, Launch, ReportFile};
use mlarun::model::protocol::{Counters, Samples, Verification};
use mlarun::model::quantity::Reading;
use mlarun::model::record::{
    AnnotationPass, Body, Environment, Labels, NcuRun, Position, Record, RecordKind, SampleSet, StageMeasurement,
};
use mlarun::model::{
    DType, Device, DeviceId, DeviceKind, KernelId, Key, Language, Mode, Peaks, Shape, Tiling, Timing, Value, Version,
};
use mlarun::profiler::ncu::{counters, join, read_details, read_raw, read_source};
use mlarun::report::{Bottleneck, Input, Outcome, Renderer, Report, Run, StageCost, devlog};
use mlarun::roofline::Cost;

use super::text;

const CAPABILITY: Capability = Capability { major: 9, minor: 0 };

/// Every launch of the captured report, with its sections and rules.
fn launches() -> Vec<Launch> {
    let details = read_details(&text("ncu-details.csv"), KernelNames::Function).expect("the page can be read");
    let raw = read_raw(&text("ncu-raw.csv"), KernelNames::Function).expect("the page can be read");
    join(raw, details).expect("they are of one report").launches
}

/// The same launches as annotation sees them: the metrics that it asks for, and the rules of its sections.
fn annotated_launches() -> Vec<Launch> {
    let raw = |name: &str| read_raw(&text(name), KernelNames::Function).expect("the page can be read").launches;
    let metrics = Conf::default().metrics;
    let (asked, mut launches) = (metrics.to_ask(CAPABILITY), raw("ncu-annotation-sections.log"));
    for ((launch, by_metric), full) in launches.iter_mut().zip(raw("ncu-annotation.log")).zip(self::launches()) {
        launch.metrics.extend(by_metric.metrics);
        launch.metrics.retain(|name, _| asked.contains(name));
        launch.rules = full.rules.into_iter().filter(|rule| metrics.sections.contains(&rule.section)).collect();
        launch.sections = full.sections;
    }
    launches
}

/// A pass over `launches`, as the runner records it.
fn pass(launches: Vec<Launch>) -> AnnotationPass {
    let metrics = Conf::default().metrics;
    let stages = launches.into_iter().map(|launch| {
        let counted: BTreeMap<String, f64> = counters(&launch, CAPABILITY, &metrics)
            .into_iter()
            .filter_map(|(name, reading)| match reading {
                Reading::Number { value, .. } => Some((name.key().to_owned(), value)),
                _ => None,
            })
            .collect();
        StageMeasurement {
            stage: launch.kernel.trim_end_matches("_stage").to_owned(),
            ns: vec![counted[CounterName::Duration.key()]],
            counters: Counters::Counted(counted),
            launch: Some(launch),
        }
    });
    let run =
        NcuRun { version: "2025.3.1".to_owned(), asked: metrics.to_ask(CAPABILITY), sources: Vec::new(), report: None };
    AnnotationPass { ncu: Some(run), stages: stages.collect(), verification: verification() }
}

fn verification() -> Verification {
    Verification {
        relative_frobenius: 3e-7,
        worst_row: 9e-7,
        worst_row_index: 3,
        rows_compared: 128,
        rows_total: 128,
        output_sha256: "00".repeat(32),
        same_bits: None,
    }
}

fn run(mode: Mode, body: Body) -> Run {
    let values = [("b", 1.into()), ("s", 16.into()), ("t", 4096.into()), ("dtype", Value::from("bfloat16"))];
    let shape = Shape(values.into_iter().map(|(name, value): (&str, Value)| (name.to_owned(), value)).collect());
    let id = KernelId { kernel: "mla_var6_plus".into(), version: Version(1), language: Language::Cuda };
    let device = DeviceId { kind: DeviceKind::Gpu, name: "NVIDIA H200".into(), uuid: Some("GPU-1".into()), units: 132 };
    let taken_at = "2026-11-30T12:00:00Z".parse().expect("a time");
    let peaks = Peaks {
        flops_per_s: [(DType::Bfloat16, 989.5e12)].into(),
        bytes_per_s: 4.8e12,
        at_sm_mhz: [(DType::Bfloat16, 1830)].into(),
        source: PeakSource::Datasheet { source: "the vendor".into() },
    };
    let record = Record {
        kind: RecordKind::of_mode(mode).expect("a mode that records"),
        key: Key::of("example/1", &mode),
        subject: Key::of("subject/1", &()),
        material: serde_json::Value::Null,
        labels: Labels { id: id.clone(), shape: shape.clone(), mode: Some(mode), origin: None },
        tiling: Tiling::default(),
        code: Vec::new(),
        position: Position { taken_at, session: "session-1".into(), round: 0, position: 0, looks: None },
        environment: Environment {
            device: Device {
                id: device.clone(),
                memory_bytes: 1 << 37,
                last_level_cache_bytes: 50 << 20,
                cores: vec![],
                gpu: None,
            },
            peaks: Some(peaks.clone()),
            clocks_hz: BTreeMap::new(),
            clocks_locked: false,
            cpu: None,
            host: "host".into(),
            os: "Linux 6.1".into(),
            compiler: "NVRTC 13.0".into(),
            mlarun: "0.1.0".into(),
            git_revision: None,
            git_dirty: None,
            telemetry: None,
        },
        body,
    };
    let cost = |stage: &str, flops: f64, bytes: f64| StageCost { stage: stage.to_owned(), cost: Cost { flops, bytes } };
    Run {
        id,
        label: shape.clone(),
        shape,
        mode,
        tiling: Tiling::default(),
        device,
        costs: vec![cost("latent", 2.15e9, 8.4e6), cost("decompressed", 0.0, 537e6), cost("combine", 134e6, 12.6e6)],
        peaks: Some(peaks),
        outcome: Outcome::Measured(vec![record]),
        left_out: None,
    }
}

fn annotation() -> Run {
    run(Mode::Annotation, Body::Annotation(pass(annotated_launches())))
}

/// The captured report as ncu mode records it, with its listings.
fn ncu() -> Run {
    let mut pass = pass(launches());
    let run = pass.ncu.as_mut().expect("it is there");
    for page in ["ncu-source-cuda-sass.csv", "ncu-source-sass.csv", "ncu-source-ptx.csv"] {
        run.sources.extend(read_source(&text(page)).expect("the page can be read"));
    }
    run.report = Some(ReportFile { name: "mla-1.ncu-rep".into(), sha256: Key::of("example/1", &()), bytes: 473_348 });
    self::run(Mode::Ncu, Body::Ncu(pass))
}

fn event(us: f64) -> Run {
    let samples = Samples {
        timing: Timing::ColdIsolated,
        ns: [0.998, 1.0, 1.002].map(|by| by * us * 1e3).into(),
        launches_per_sample: 1,
        converged: true,
    };
    let set = SampleSet {
        warmup_launches: 12,
        warmup_ns: 150_000_000,
        steady: true,
        sm_mhz: Some(1755.0),
        samples: vec![samples],
        verification: verification(),
    };
    run(Mode::Event, Body::Event(set))
}

fn input(runs: Vec<Run>) -> Input {
    Input { experiment: "captured".into(), runs, comparisons: vec![], gone: vec![], host: None }
}

fn renderer() -> Renderer {
    Renderer::load(Path::new("no/such/folder")).expect("the embedded templates are valid")
}

fn report(input: &Input) -> Report<'_> {
    Report::new(input, &Conf::default().thresholds).expect("the input is sound")
}

fn profile(input: &Input, index: usize) -> String {
    report(input).profile(&renderer(), index).expect("it renders").expect("it was measured")
}

fn body(run: &mut Run) -> &mut AnnotationPass {
    let Outcome::Measured(records) = &mut run.outcome else { panic!("it is measured") };
    match &mut records[0].body {
        Body::Annotation(pass) | Body::Ncu(pass) => pass,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_annotation_by_nsight_compute() {
    insta::assert_snapshot!("annotation", profile(&input(vec![annotation()]), 0));
    assert!(report(&input(vec![annotation()])).files(0).expect("there is nothing to write").is_empty());
}

#[test]
fn a_report_of_ncu_mode() {
    insta::assert_snapshot!("ncu", profile(&input(vec![ncu()]), 0));
}

#[test]
fn the_headings_that_programs_read_come_first_and_in_order() {
    for run in [annotation(), ncu()] {
        let text = profile(&input(vec![run]), 0);
        let headings: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
        assert_eq!(
            headings[..5],
            [
                "## Profile: mla_var6_plus v1",
                "### Configuration",
                "### Stages",
                "### Bottleneck: Latency-bound",
                "### Top 3 Opportunities (ranked by estimated impact)",
            ],
            "{text}"
        );
        let opportunities: Vec<&str> = text.lines().filter(|line| line.contains(" — est. ")).take(3).collect();
        for (rank, line) in opportunities.iter().enumerate() {
            let parts: Vec<&str> = line.split(" — ").collect();
            let [name, gain, trigger] = parts[..] else { panic!("{line}") };
            assert!(name.starts_with(&format!("{}. ", rank + 1)), "{line}");
            assert!(gain == "est. gain unknown" || gain.ends_with("% gain"), "{line}");
            assert!(trigger.starts_with("trigger: [") && trigger.contains('=') && trigger.ends_with(']'), "{line}");
        }
        assert_eq!(opportunities.len(), 3);
    }
}

#[test]
fn ncu_mode_lists_everything_beside_its_report() {
    let input = input(vec![ncu()]);
    let files: BTreeMap<PathBuf, String> = report(&input).files(0).expect("they can be written").into_iter().collect();
    let names: Vec<String> = files.keys().map(|path| path.to_string_lossy().into_owned()).collect();
    let stages = ["combine", "decompressed", "latent"];
    let mut wanted = vec!["report-verbose.md".to_owned()];
    wanted.extend(stages.map(|stage| format!("sass/{stage}.csv")));
    wanted.extend(stages.map(|stage| format!("source/{stage}.txt")));
    assert_eq!(names, wanted);
    let file = |name: &str| files[Path::new(name)].as_str();
    assert_eq!(file("sass/latent.csv").lines().count(), 1 + 216);
    assert!(file("sass/latent.csv").starts_with("line,address,source,"));
    let source = file("source/latent.txt");
    assert!(source.starts_with("Hot lines of stage latent\n\n"), "{}", &source[..80]);
    assert!(source.contains("pipeline.cu: ") && source.contains("mma.hpp: ") && !source.contains("combine_stage"));
    let shown = launches();
    let verbose = file("report-verbose.md");
    for launch in &shown {
        for metric in launch.metrics.keys() {
            assert!(verbose.contains(&format!("\n| {metric} | ")), "{metric}");
        }
        for rule in &launch.rules {
            assert!(verbose.contains(&format!("\n- **{}** ({}; ", rule.name, rule.section)), "{}", rule.name);
        }
    }
    let rows: usize = shown.iter().map(|launch| launch.metrics.len() + launch.sections.len()).sum();
    let heads = verbose.matches("\n| Metric | Value |\n").count();
    assert_eq!(verbose.lines().filter(|line| line.starts_with("| ")).count(), rows + heads);
    insta::assert_snapshot!("verbose_head", verbose.lines().take(40).collect::<Vec<_>>().join("\n"));
    insta::assert_snapshot!("source_head", source.lines().take(32).collect::<Vec<_>>().join("\n"));
}

#[test]
fn what_was_not_delivered_is_named_and_is_no_zero() {
    let mut run = annotation();
    let pass = body(&mut run);
    let launch = pass.stages[1].launch.as_mut().expect("it was profiled");
    launch.metrics.remove("lts__t_sector_hit_rate.pct");
    let absent = Reading::Absent { reason: "n/a".into() };
    launch.metrics.insert("dram__bytes.sum".into(), absent);
    let Counters::Counted(counted) = &mut pass.stages[1].counters else { panic!("it was counted") };
    counted.remove("l2_hit_rate");
    counted.remove("dram_bytes");
    let text = profile(&input(vec![run]), 0);
    assert!(text.contains("\n- dram__bytes.sum (decompressed: n/a)\n"), "{text}");
    assert!(text.contains("\n- lts__t_sector_hit_rate.pct (decompressed: not in the report)\n"), "{text}");
    let row = |name: &str| text.lines().find(|line| line.starts_with(&format!("| {name} |"))).expect("the row");
    for name in ["L2 Hit Rate", "DRAM traffic (MB)", "GB/s by the counters (DRAM traffic / duration)"] {
        assert_eq!(row(name).split(" | ").nth(2), Some("--"), "{}", row(name));
    }
    assert!(!text.contains("Stage decompressed: the cost model"), "{text}");
}

/// Names of kernels, sections, rules and files may hold anything.
#[test]
fn hostile_names_stay_in_their_cells() {
    let hostile = "a|b`c\n# heading\u{1b}[31m";
    let mut run = ncu();
    let pass = body(&mut run);
    let ncu = pass.ncu.as_mut().expect("it is there");
    ncu.version = hostile.into();
    ncu.asked.push(hostile.into());
    ncu.report.as_mut().expect("it is there").name = hostile.into();
    for view in &mut ncu.sources {
        view.function = view.function.take().map(|_| hostile.to_owned());
        view.rows.iter_mut().for_each(|row| row.text = hostile.into());
    }
    pass.stages[0].stage = hostile.into();
    for stage in &mut pass.stages {
        let launch = stage.launch.as_mut().expect("it was profiled");
        launch.kernel = hostile.into();
        launch.sections.iter_mut().for_each(|shown| shown.metric = hostile.into());
        for rule in &mut launch.rules {
            (rule.name, rule.section, rule.description) = (hostile.into(), hostile.into(), hostile.into());
        }
    }
    let input = input(vec![run]);
    let report = report(&input);
    let mut texts = vec![profile(&input, 0)];
    for (path, text) in report.files(0).expect("they can be written") {
        assert!(path.components().all(|part| matches!(part, std::path::Component::Normal(_))), "{path:?}");
        if path.extension().is_some_and(|extension| extension == "md") {
            texts.push(text);
        }
    }
    for text in texts {
        assert!(!text.contains('\u{1b}') && !text.contains("\n# heading"), "{text}");
        assert!(!text.contains("a|b"), "a bar ends a cell");
        let mut columns = None;
        for line in text.lines() {
            let cells = line.replace("\\|", "").matches('|').count();
            match columns {
                _ if !line.starts_with('|') => columns = None,
                Some(columns) => assert_eq!(cells, columns, "{line}"),
                None => columns = Some(cells),
            }
        }
    }
}

#[test]
fn durations_stand_side_by_side_with_their_tools() {
    let input = input(vec![event(1446.0), annotation(), ncu()]);
    let text = report(&input).experiment(&renderer()).expect("it renders");
    let table = |text: &str| -> Vec<String> {
        let table = text.split("# Durations by tool\n").nth(1).expect("the table").lines();
        table.take_while(|line| line.starts_with('|')).map(str::to_owned).collect()
    };
    insta::assert_snapshot!("by_tool", table(&text).join("\n"));
    for index in 0..3 {
        assert_eq!(table(&profile(&input, index)).len(), 2 + 3);
    }
    let alone = self::input(vec![event(1446.0)]);
    assert!(!profile(&alone, 0).contains("Durations by tool"), "there is nothing to set beside it");
}

#[test]
fn the_dev_log_weighs_the_counters_by_duration() {
    let input = input(vec![event(1500.0), annotation()]);
    let links = devlog::Links { annotation: Some(1), ..Default::default() };
    let record = report(&input).devlog_record(0, links).expect("it was measured");
    let Outcome::Measured(records) = &input.runs[1].outcome else { panic!("it is measured") };
    let Body::Annotation(pass) = &records[0].body else { panic!("it is an annotation") };
    let weighted = |name: CounterName| {
        let count = |stage: &StageMeasurement| match &stage.counters {
            Counters::Counted(counts) => counts[name.key()],
            Counters::Absent { reason } => panic!("{reason}"),
        };
        let total: f64 = pass.stages.iter().map(|stage| stage.ns[0]).sum();
        pass.stages.iter().map(|stage| count(stage) * stage.ns[0]).sum::<f64>() / total
    };
    let near = |found: Option<f64>, wanted: f64| found.is_some_and(|found| (found - wanted).abs() < 1e-9);
    assert!(near(record.achieved_occupancy_percent, weighted(CounterName::AchievedOccupancy)), "{record:?}");
    assert!(near(record.tensor_core_percent, weighted(CounterName::TensorCore)), "{record:?}");
    assert_eq!(record.bottleneck, Some(Bottleneck::Latency));
    assert_eq!(record.duration_ns, 1_500_000.0, "the duration is that of events");
}
