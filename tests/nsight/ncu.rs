//! Nsight Compute: pages, what it says, and whether that is a result.

use mlarun::conf::{Conf, CounterName};
use mlarun::model::ncu::{Capability, Estimate, KernelNames, Launch, NcuReport, RuleKind, Scope};
use mlarun::model::quantity::{Reading, Unit};
use mlarun::model::source_view::SourceView;
use mlarun::profiler::ncu::{
    Asked, NcuFailure, Profiled, ReadError, counters, join, judge, read_details, read_log, read_raw, read_source,
};
use mlarun::report::listing::{annotated, hot_lines, listing_csv};
use mlarun::report::opportunities::{Opportunity, ProfiledStage, opportunities};
use proptest::prelude::*;

use super::text;

const KERNELS: [&str; 3] = ["latent_stage", "decompressed_stage", "combine_stage"];

fn raw(name: &str) -> NcuReport {
    read_raw(&text(name), KernelNames::Function).expect("the page can be read")
}

fn kernels(report: &NcuReport) -> Vec<&str> {
    report.launches.iter().map(|launch| launch.kernel.as_str()).collect()
}

fn counted_in(unit: &str) -> Unit {
    Unit::try_from(unit.to_owned()).expect("it is one")
}

fn number(launch: &Launch, metric: &str, unit: Unit) -> f64 {
    launch.metrics[metric].in_unit(unit).unwrap_or_else(|| panic!("{metric} is {}", launch.metrics[metric]))
}

#[test]
fn the_raw_page_holds_every_metric_of_every_launch() {
    let report = raw("ncu-raw.csv");
    assert_eq!(kernels(&report), KERNELS);
    for launch in &report.launches {
        assert_eq!(launch.metrics.len(), 2238 - 11, "columns but those that describe the launch");
        let unknown = launch.metrics.iter().find(|(_, reading)| matches!(reading, Reading::UnknownUnit { .. }));
        assert_eq!(unknown, None, "every unit of a full report is known");
    }
    let latent = &report.launches[0];
    assert_eq!((latent.grid, latent.block), (Some([512, 1, 1]), Some([256, 1, 1])));
    assert_eq!((latent.id.process, latent.id.number), (Some(458), 0));
    assert_eq!((latent.context, latent.stream, latent.device), (Some(1), Some(13), Some(0)));
    assert_eq!(latent.capability, Some(Capability { major: 9, minor: 0 }));
    let absent = |metric: &str| latent.metrics[metric].clone();
    assert_eq!(absent("derived_tempMetric4"), Reading::Absent { reason: "`nan` is no number".to_owned() });
    assert_eq!(absent("launch__kernel_name"), Reading::Absent { reason: "empty".to_owned() });
    let no_data = Reading::Absent { reason: "no data".to_owned() };
    assert_eq!(absent("sass__inst_executed_register_spilling_mem_local"), no_data);
    let name = Reading::Text { text: "NVIDIA H200".to_owned() };
    assert_eq!(absent("device__attribute_display_name"), name);
}

#[test]
fn the_units_of_a_page_do_not_change_its_numbers() {
    let (automatic, base) = (raw("ncu-raw.csv"), raw("ncu-annotation-sections.log"));
    let bytes = "launch__shared_mem_config_size";
    for (one, other) in automatic.launches.iter().zip(&base.launches) {
        let (one, other) = (number(one, bytes, Unit::BYTE), number(other, bytes, Unit::BYTE));
        assert!((one / other - 1.0).abs() < 1e-3, "{one} is not {other}");
    }
}

#[test]
fn the_table_is_found_in_a_terminals_output() {
    for name in ["ncu-annotation.log", "ncu-annotation-sections.log"] {
        assert_eq!(kernels(&raw(name)), KERNELS, "{name}");
    }
    let report = raw("ncu-annotation.log");
    let durations: Vec<_> =
        report.launches.iter().map(|launch| number(launch, "gpu__time_duration.sum", Unit::NANOSECOND)).collect();
    assert_eq!(durations, [77_056.0, 230_336.0, 1_144_064.0]);
}

#[test]
fn annotation_asks_for_what_the_tool_delivers() {
    let (conf, capability) = (Conf::default(), Capability { major: 9, minor: 0 });
    let (by_metric, by_section) = (raw("ncu-annotation.log"), raw("ncu-annotation-sections.log"));
    let asked = conf.metrics.to_ask(capability);
    for metric in &asked {
        let delivered = |report: &NcuReport| report.undelivered(std::slice::from_ref(metric)).count() == 0;
        assert!(delivered(&by_metric) || delivered(&by_section), "{metric}");
    }
    let said = read_log(&text("ncu-annotation.log"));
    let metrics = asked.into_iter().filter(|metric| by_metric.launches[0].metrics.contains_key(metric)).collect();
    let report = judge(&said, Ok(by_metric), &Asked { metrics, launches: Some(3) }).expect("it is a result");
    let combine = counters(&report.launches[2], capability, &conf.metrics);
    let spilled = combine[&CounterName::LocalBytes].in_unit(Unit::BYTE);
    assert_eq!(spilled, Some(2_147_483_648.0 + 2_415_919_104.0), "combine_stage spills on purpose");
}

#[test]
fn counters_are_those_that_the_tool_shows_to_people() {
    let (conf, capability) = (Conf::default(), Capability { major: 9, minor: 0 });
    let details = read_details(&text("ncu-details.csv"), KernelNames::Function).expect("the page can be read");
    let report = join(raw("ncu-raw.csv"), details).expect("they are of one report");
    for launch in &report.launches {
        let counters = counters(launch, capability, &conf.metrics);
        let limiter = match launch.kernel.as_str() {
            "decompressed_stage" => CounterName::BlocksByWarps,
            _ => CounterName::BlocksByRegisters,
        };
        let blocks = |counter| counters[&counter].in_unit(counted_in("block"));
        assert_eq!(CounterName::limiters(blocks), [limiter], "{}", launch.kernel);
        for (name, shown, unit) in [
            (CounterName::Duration, "Duration", Unit::NANOSECOND),
            (CounterName::Dram, "DRAM Throughput", Unit::PERCENT),
            (CounterName::AchievedOccupancy, "Achieved Occupancy", Unit::PERCENT),
            (CounterName::TheoreticalOccupancy, "Theoretical Occupancy", Unit::PERCENT),
            (CounterName::L2HitRate, "L2 Hit Rate", Unit::PERCENT),
            (CounterName::L1HitRate, "L1/TEX Hit Rate", Unit::PERCENT),
            (CounterName::SmThroughput, "Compute (SM) Throughput", Unit::PERCENT),
            (CounterName::MemoryThroughput, "Memory Throughput", Unit::PERCENT),
            (CounterName::SmClock, "SM Frequency", Unit::HERTZ),
            (CounterName::WavesPerSm, "Waves Per SM", Unit::ONE),
        ] {
            let counted = counters[&name].in_unit(unit).unwrap_or_else(|| panic!("{name:?} is {}", counters[&name]));
            let shown = launch.shown(shown, unit).unwrap_or_else(|| panic!("{shown} is not shown once"));
            assert!(
                (counted - shown).abs() <= 0.005 * shown.abs().max(1.0),
                "{}: {name:?} {counted} is not {shown}",
                launch.kernel
            );
        }
    }
}

#[test]
fn one_name_for_two_things_is_told_apart_by_its_unit() {
    let report = read_details(&text("ncu-details.csv"), KernelNames::Function).expect("the page can be read");
    for (launch, percent, bytes_per_s) in [
        (&report.launches[0], 91.30, 27.27e9),
        (&report.launches[1], 46.63, 2.24e12),
        (&report.launches[2], 88.87, 211.48e9),
    ] {
        let memory = launch.sections.iter().filter(|shown| shown.metric == "Memory Throughput").count();
        assert_eq!(memory, 2);
        let shown = |unit| launch.shown("Memory Throughput", unit).expect("it is shown once in this unit");
        assert_eq!(shown(Unit::PERCENT), percent);
        assert!((shown(Unit::BYTE_PER_SECOND) / bytes_per_s - 1.0).abs() < 1e-3);
    }
}

#[test]
fn rules_keep_their_scopes() {
    let report = read_details(&text("ncu-details.csv"), KernelNames::Function).expect("the page can be read");
    let rule = |launch: usize, name: &str| {
        let rules = &report.launches[launch].rules;
        rules.iter().find(|rule| rule.name == name).unwrap_or_else(|| panic!("there is no {name}"))
    };
    let estimate = |scope, percent| Some(Estimate { scope, percent });
    assert_eq!(rule(0, "AchievedOccupancy").estimate, estimate(Scope::Global, 8.703));
    assert_eq!(rule(0, "IssueSlotUtilization").estimate, estimate(Scope::Local, 8.703));
    assert_eq!(rule(2, "UncoalescedGlobalAccess").estimate, estimate(Scope::Global, 86.32));
    assert_eq!(rule(0, "SOLBottleneck").kind, RuleKind::Information);
    assert_eq!((&rule(1, "SOLBottleneck").kind, rule(1, "SOLBottleneck").estimate), (&RuleKind::Optimization, None));
    assert!(rule(1, "LaunchConfiguration").description.contains("only 44 blocks, which is less than the GPU's 132"));
    let names = report.launches.iter().flat_map(|launch| &launch.sections);
    assert!(names.into_iter().all(|shown| !matches!(shown.reading, Reading::UnknownUnit { .. })));
}

#[test]
fn the_rules_of_all_stages_are_ranked() {
    let details = read_details(&text("ncu-details.csv"), KernelNames::Function).expect("the page can be read");
    let report = join(raw("ncu-raw.csv"), details).expect("they are of one report");
    let stages: Vec<_> = report
        .launches
        .iter()
        .map(|launch| {
            let duration_ns = number(launch, "gpu__time_duration.sum", Unit::NANOSECOND);
            ProfiledStage { stage: launch.kernel.trim_end_matches("_stage"), launch, duration_ns }
        })
        .collect();
    let ranked = opportunities(&stages);
    let lines = |found: &[Opportunity]| -> Vec<String> {
        let percent = |found: &Opportunity| found.pipeline_percent.or(found.estimate_percent).unwrap_or_default();
        found
            .iter()
            .map(|found| format!("{} {} {:.2}: {}", found.stage, found.rule, percent(found), found.trigger))
            .collect()
    };
    let [global, local, unestimated] =
        [&ranked.global, &ranked.local, &ranked.unestimated].map(|found| lines(found).join("\n"));
    insta::assert_snapshot!(format!("of run time:\n{global}\n\nof one unit:\n{local}\n\nunknown:\n{unestimated}"));
}

#[test]
fn replaying_has_its_price() {
    for launch in &raw("ncu-raw.csv").launches {
        let replay = launch.replay();
        assert_eq!(replay.passes.to_string(), "38 pass");
        assert_eq!(replay.saved_bytes.in_unit(Unit::BYTE).map(f64::round), Some(21_994_943_000.0));
    }
}

#[test]
fn what_it_said_is_understood() {
    let log = read_log(&text("ncu-full.log"));
    assert_eq!(log.processes, [458]);
    assert_eq!(log.report.as_deref(), Some("/tmp/mk/pipe.ncu-rep"));
    let passes =
        |number: usize| Profiled { kernel: KERNELS[number].to_owned(), number: number as u64, passes: Some(38) };
    assert_eq!(log.profiled, [passes(0), passes(1), passes(2)]);
    assert!(log.errors.is_empty() && log.failed.is_empty() && !log.no_kernels);
}

#[test]
fn a_filter_that_matches_nothing_is_a_failure_although_it_exits_with_0() {
    let said = text("ncu-error-no-kernels.log");
    let read = read_raw(&said, KernelNames::Function);
    let failure = judge(&read_log(&said), read, &Asked::default()).expect_err("there is no kernel");
    let mut available = KERNELS.map(str::to_owned);
    available.sort();
    assert_eq!(failure, NcuFailure::NoKernelMatched { available: available.into() });
    assert!(failure.to_string().contains("(combine_stage, decompressed_stage, latent_stage)"));
}

#[test]
fn an_unknown_metric_is_a_failure_although_it_exits_with_0() {
    let said = text("ncu-error-unknown-metric.log");
    let asked = Asked { metrics: vec!["no_such__metric.sum".to_owned()], launches: None };
    let failure =
        judge(&read_log(&said), read_raw(&said, KernelNames::Function), &asked).expect_err("there is no metric");
    assert_eq!(failure, NcuFailure::UnknownMetrics { names: asked.metrics });
}

#[test]
fn a_page_that_ends_early_is_no_result() {
    for name in ["ncu-raw.csv", "ncu-details.csv"] {
        let page = text(name);
        let last = page.trim_end().rfind('\n').expect("there are rows") + 1;
        for end in [last + 1, last + 3, last + 40, (last + page.len()) / 2, page.trim_end().len() - 1] {
            let cut = &page[..end];
            let read = if name == "ncu-raw.csv" {
                read_raw(cut, KernelNames::Function)
            } else {
                read_details(cut, KernelNames::Function)
            };
            assert!(matches!(read, Err(ReadError::Truncated { .. })), "{name} up to {end}: {read:?}");
        }
    }
    let page = text("ncu-raw.csv");
    let whole_row = page.trim_end().rfind('\n').expect("there are rows") + 1;
    let read = read_raw(&page[..whole_row], KernelNames::Function);
    let failure = judge(&read_log(&text("ncu-full.log")), read, &Asked::default()).expect_err("a launch is missing");
    assert_eq!(failure, NcuFailure::Launches { wanted: 3, found: 2 });
}

fn source(name: &str) -> Vec<SourceView> {
    read_source(&text(name)).expect("the page can be read")
}

#[test]
fn machine_code_is_listed_by_kernel() {
    let views = source("ncu-source-sass.csv");
    let functions: Vec<_> =
        views.iter().map(|view| (view.function.as_deref(), view.columns.len(), view.rows.len())).collect();
    assert_eq!(functions, [(Some(KERNELS[0]), 66, 216), (Some(KERNELS[1]), 62, 48), (Some(KERNELS[2]), 62, 888)]);
    for view in &views {
        assert!(view.rows.iter().all(|row| row.address.is_some() && row.cells.len() == view.columns.len()));
    }
    let hottest = views[0].hottest(3);
    assert!(hottest.len() == 3 && hottest[0].1 >= hottest[1].1);
    assert!(!views[0].stalls(hottest[0].0).is_empty());
}

#[test]
fn lines_of_source_carry_what_their_instructions_were_sampled() {
    let views = source("ncu-source-cuda-sass.csv");
    let files: Vec<_> = views.iter().map(|view| (view.function.as_deref(), view.file.as_deref())).collect();
    let kernel = Some("/tmp/mk/pipeline.cu");
    assert_eq!(
        files,
        [
            (Some(KERNELS[0]), kernel),
            (Some(KERNELS[0]), Some("/usr/local/cuda/include/crt/mma.hpp")),
            (Some(KERNELS[1]), kernel),
            (Some(KERNELS[2]), kernel),
        ]
    );
    let first = &views[0].rows[0];
    assert_eq!(first.line, Some(4));
    assert!(
        first.text.starts_with("extern \"C\" __global__ void latent_stage(const __nv_bfloat16* a, "),
        "{}",
        first.text
    );
    let latent: Vec<_> = views.iter().filter(|view| view.function.as_deref() == Some(KERNELS[0])).collect();
    let hottest = hot_lines(&latent, 3);
    assert_eq!((hottest.len(), hottest[0].file.as_deref()), (3, Some("/usr/local/cuda/include/crt/mma.hpp")));
    assert_eq!(annotated(&views.iter().collect::<Vec<_>>()).matches(" samples\n").count(), views.len());
    for view in &views {
        assert_eq!(listing_csv(view).expect("rows fit their header").lines().count(), 1 + view.rows.len());
        let sampled = |lines: bool| -> f64 {
            let rows = view.rows.iter().filter(|row| row.line.is_some() == lines);
            rows.filter_map(|row| view.samples(row)).sum()
        };
        assert!(sampled(true) > 0.0, "{:?}", view.file);
        assert_eq!(sampled(true), sampled(false), "{:?}", view.file);
    }
}

#[test]
fn ptx_is_listed_by_line() {
    let views = source("ncu-source-ptx.csv");
    let rows: Vec<_> = views.iter().flat_map(|view| &view.rows).collect();
    assert_eq!((views.len(), rows.len()), (1, 1356));
    assert_eq!((rows[9].line, rows[9].text.as_str()), (Some(10), ".target sm_90a"));
    assert!(rows.iter().all(|row| row.cells.is_empty()));
}

#[test]
fn a_report_survives_being_stored() {
    let details = read_details(&text("ncu-details.csv"), KernelNames::Function).expect("the page can be read");
    let report = join(raw("ncu-raw.csv"), details).expect("they are of one report");
    let stored = serde_json::to_string(&report).expect("it can be written");
    assert_eq!(serde_json::from_str::<NcuReport>(&stored).expect("it can be read"), report);
    let views = source("ncu-source-cuda-sass.csv");
    let stored = serde_json::to_string(&views).expect("it can be written");
    assert_eq!(serde_json::from_str::<Vec<SourceView>>(&stored).expect("it can be read"), views);
}

const PAGES: [&str; 6] = [
    "ncu-raw.csv",
    "ncu-details.csv",
    "ncu-annotation.log",
    "ncu-error-unknown-metric.log",
    "ncu-source-ptx.csv",
    "ncu-full.log",
];

/// Every reader over one text: none may panic, whatever it is.
fn read_all(text: &str) {
    let log = read_log(text);
    let raw = read_raw(text, KernelNames::Demangled);
    if let (Ok(raw), Ok(details)) = (&raw, read_details(text, KernelNames::Demangled)) {
        drop(join(raw.clone(), details));
    }
    drop(judge(&log, raw, &Asked { metrics: vec!["gpu__time_duration.sum".to_owned()], launches: None }));
    for view in read_source(text).unwrap_or_default() {
        drop(view.hottest(3));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        read_all(&String::from_utf8_lossy(&bytes));
    }

    /// A changed capture is read or refused: bytes overwritten, a part cut out, a part repeated.
    #[test]
    fn a_damaged_capture_is_read_or_refused(
        page in 0..PAGES.len(), at in any::<prop::sample::Index>(), length in 0_usize..300, with in "[\"\\n,0-9a]{0,4}", repeat in any::<bool>()
    ) {
        let mut bytes = super::capture(PAGES[page]);
        let start = at.index(bytes.len());
        let end = (start + length).min(bytes.len());
        let taken = if repeat { bytes[start..end].to_vec() } else { Vec::new() };
        bytes.splice(start..end, taken.iter().chain(&taken).copied().chain(with.bytes()));
        read_all(&String::from_utf8_lossy(&bytes));
    }
}
