//! Nsight Systems: exports of several versions, tables of `nsys stats`, and what it says.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use mlarun::model::ncu::KernelNames;
use mlarun::model::timeline::{Activity, ActivityKind, Note, Rejection, StreamId, Timeline};
use mlarun::profiler::nsys::{NsysFailure, check_age, judge, read_export, read_log, read_stats};
use proptest::prelude::*;
use rusqlite::Connection;
use tempfile::TempDir;

use super::{capture, text};

/// A file of this content in a folder of its own.
fn file(content: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("export.sqlite");
    std::fs::write(&file, content).expect("it is written");
    (folder, file)
}

/// The captured export after `change`, read.
fn changed(change: &str) -> Result<Timeline, NsysFailure> {
    let (_folder, file) = file(&capture("nsys-export.sqlite"));
    let connection = Connection::open(&file).expect("it is a database");
    connection.execute_batch(change).expect("it can be changed");
    drop(connection);
    read_export(&file, KernelNames::Function)
}

/// An export made of these statements alone.
fn made(of: &str) -> Result<Timeline, NsysFailure> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("export.sqlite");
    Connection::open(&file).expect("it is created").execute_batch(of).expect("it is filled");
    read_export(&file, KernelNames::Function)
}

fn of_kind(timeline: &Timeline, kind: ActivityKind) -> Vec<&Activity> {
    timeline.activities.iter().filter(|activity| activity.kind == kind).collect()
}

#[test]
fn the_export_holds_kernels_calls_and_ranges() {
    let timeline = changed("").expect("it can be read");
    let kernels = of_kind(&timeline, ActivityKind::Kernel);
    assert_eq!(kernels.len(), 15);
    let stream = |stream| StreamId { process: Some(948), device: Some(0), context: Some(1), stream: Some(stream) };
    let first: Vec<_> =
        kernels[..3].iter().map(|kernel| (kernel.name.as_str(), kernel.start_ns, kernel.stream_id())).collect();
    assert_eq!(
        first,
        [
            ("latent_stage", 14_716_433, stream(13)),
            ("decompressed_stage", 14_741_937, stream(14)),
            ("combine_stage", 15_018_034, stream(13)),
        ]
    );
    let calls = of_kind(&timeline, ActivityKind::Api);
    assert_eq!(calls.iter().filter(|call| call.name == "cuLaunchKernel").count(), 15);
    assert!(calls.iter().all(|call| call.process == Some(948)));
    let ranges: Vec<_> = of_kind(&timeline, ActivityKind::Nvtx).into_iter().map(|range| range.name.as_str()).collect();
    assert_eq!(
        &ranges[..4],
        ["mlarun:iteration/0", "mlarun:stage/latent", "mlarun:stage/decompressed", "mlarun:stage/combine"]
    );
    assert_eq!(ranges.len(), 20);
    assert!(timeline.rejected.is_empty(), "{:?}", timeline.rejected);
    let warned = Note::Tool { text: "Not all CUDA events might have been collected.".to_owned() };
    assert!(timeline.notes.contains(&warned), "{:?}", timeline.notes);
}

#[test]
fn a_timeline_survives_being_stored() {
    let timeline =
        changed("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start WHERE correlationId = 10").expect("it can be read");
    let stored = serde_json::to_string(&timeline).expect("it can be written");
    assert_eq!(serde_json::from_str::<Timeline>(&stored).expect("it can be read"), timeline);
}

#[test]
fn the_stats_are_those_of_the_export() {
    let tables = read_stats(&text("nsys-stats.csv")).expect("they can be read");
    let names: Vec<_> = tables.iter().filter_map(|table| table.report.as_deref()).collect();
    assert_eq!(names, ["cuda_gpu_trace", "cuda_gpu_kern_sum", "cuda_api_sum", "nvtx_pushpop_sum"]);
    let exported = changed("").expect("it can be read");
    let trace = tables[0].trace().expect("it is a trace");
    let seen = |timeline: &Timeline| -> Vec<_> {
        let kernels = of_kind(timeline, ActivityKind::Kernel).into_iter();
        kernels.map(|k| (k.name.clone(), k.start_ns, k.end_ns, k.device, k.context, k.stream, k.correlation)).collect()
    };
    assert_eq!(seen(&trace), seen(&exported));
    for (table, kind) in [(1, ActivityKind::Kernel), (2, ActivityKind::Api), (3, ActivityKind::Nvtx)] {
        let summary = tables[table].summary().expect("it is a summary");
        assert!(!summary.is_empty());
        for row in summary {
            let durations: Vec<_> = of_kind(&exported, kind)
                .into_iter()
                .filter(|activity| activity.name == row.name)
                .map(Activity::duration_ns)
                .collect();
            assert_eq!(durations.len() as u64, row.instances, "{}", row.name);
            assert_eq!(durations.iter().sum::<u64>() as f64, row.total_ns, "{}", row.name);
            assert_eq!(durations.iter().max().map(|&ns| ns as f64), Some(row.max_ns), "{}", row.name);
        }
    }
}

#[test]
fn a_version_may_lack_what_is_not_needed() {
    let older = changed(
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN greenContextId;
         ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN graphNodeId;
         ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN contextId;
         ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN somethingNew TEXT;
         DROP TABLE NVTX_EVENTS; DROP TABLE DIAGNOSTIC_EVENT; DROP TABLE META_DATA_EXPORT;",
    )
    .expect("it can be read");
    assert_eq!(of_kind(&older, ActivityKind::Kernel).len(), 15);
    assert!(of_kind(&older, ActivityKind::Nvtx).is_empty());
    let missing = Note::NoColumn { table: "CUPTI_ACTIVITY_KIND_KERNEL".to_owned(), column: "contextId".to_owned() };
    assert_eq!(older.notes, [missing]);
}

#[test]
fn a_version_that_lacks_what_is_needed_is_refused() {
    let error =
        changed("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME COLUMN shortName TO name").expect_err("no names");
    assert!(error.to_string().contains("has no column `shortName` in CUPTI_ACTIVITY_KIND_KERNEL"), "{error}");
}

#[test]
fn a_view_is_no_table() {
    let timeline = changed(
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO Real;
         CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT * FROM Real;",
    )
    .expect("it can be read");
    assert!(of_kind(&timeline, ActivityKind::Kernel).is_empty());
    assert!(timeline.notes.contains(&Note::NoTable { table: "CUPTI_ACTIVITY_KIND_KERNEL".to_owned() }));
}

#[test]
fn kernels_have_the_names_that_were_asked_for() {
    let (_folder, file) = file(&capture("nsys-export.sqlite"));
    let connection = Connection::open(&file).expect("it is a database");
    let change = "INSERT INTO StringIds VALUES (9001, 'void ns::f<int, 3>(float*)'), (9002, '_ZN2ns1fIiLi3EEEvPf');
                  UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = 9001, mangledName = 9002;";
    connection.execute_batch(change).expect("it can be changed");
    drop(connection);
    for (names, wanted) in [
        (KernelNames::Function, "latent_stage"),
        (KernelNames::Demangled, "void ns::f<int, 3>(float*)"),
        (KernelNames::Mangled, "_ZN2ns1fIiLi3EEEvPf"),
    ] {
        let timeline = read_export(&file, names).expect("it can be read");
        assert_eq!(of_kind(&timeline, ActivityKind::Kernel)[0].name, wanted);
    }
}

#[test]
fn times_that_cannot_be_are_rejected_with_reasons() {
    let timeline = changed(
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start WHERE correlationId = 10;
         UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 1 WHERE correlationId = 12;
         UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = -5 WHERE correlationId = 18;
         UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 0 WHERE correlationId = 26;
         UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'soon' WHERE correlationId = 28;
         UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET shortName = 123456 WHERE correlationId = 34;",
    )
    .expect("it can be read");
    let reasons: Vec<_> = timeline.rejected.iter().map(|rejected| rejected.reason).collect();
    assert_eq!(reasons, [Rejection::Empty, Rejection::Reversed, Rejection::Negative, Rejection::Zero]);
    assert_eq!(of_kind(&timeline, ActivityKind::Kernel).len(), 9);
    let unreadable = Note::UnreadableRows { table: "CUPTI_ACTIVITY_KIND_KERNEL".to_owned(), rows: 2 };
    assert!(timeline.notes.contains(&unreadable), "{:?}", timeline.notes);
}

const STRINGS: &str = "CREATE TABLE StringIds (id INTEGER, value TEXT);
     INSERT INTO StringIds VALUES (1, 'cudaGraphLaunch_v10000'), (2, 'f');
     CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
     INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 20, 16777217, 5, 1), (30, 40, 16777217, 6, 1);";

#[test]
fn a_graph_without_its_nodes_is_said_and_never_0() {
    let whole = made(&format!(
        "{STRINGS} CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE
             (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, graphId INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (15, 95, 0, 7, 5, 16777216, 3);"
    ))
    .expect("it can be read");
    let graphs = of_kind(&whole, ActivityKind::Graph);
    assert_eq!(
        graphs.iter().map(|graph| (graph.name.as_str(), graph.duration_ns())).collect::<Vec<_>>(),
        [("graph 3", 80)]
    );
    assert!(whole.notes.contains(&Note::GraphsWithoutNodes { launches: 2 }), "{:?}", whole.notes);

    let nothing = made(STRINGS);
    let failure =
        judge(&read_log("Generated:\n\t/tmp/a.nsys-rep\n"), nothing).expect_err("there is nothing").to_string();
    assert!(
        failure.contains("2 launches of CUDA graphs show no kernels") && failure.contains("--cuda-graph-trace=node"),
        "{failure}"
    );
}

#[test]
fn a_graph_with_its_nodes_is_seen_inside() {
    let nodes = made(&format!(
        "{STRINGS} CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL
             (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER,
              globalPid INTEGER, shortName INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (15, 95, 0, 1, 7, 5, 16777216, 2), (35, 99, 0, 1, 7, 6, 33554432, 2);"
    ))
    .expect("it can be read");
    // The second kernel has the right correlation in another process.
    assert!(nodes.notes.contains(&Note::GraphsWithoutNodes { launches: 1 }), "{:?}", nodes.notes);
}

#[test]
fn copies_and_fills_are_named_and_measured() {
    let timeline = made(
        "CREATE TABLE StringIds (id INTEGER, value TEXT);
         CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER, name TEXT, label TEXT);
         INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (1, 'HTOD', 'Host-to-Device');
         CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, bytes INTEGER, copyKind INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (5, 9, 4096, 1), (10, 12, 8, 77);
         CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end INTEGER, bytes INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (20, 21, 64);",
    )
    .expect("it can be read");
    let found: Vec<_> = timeline.on_gpu().map(|activity| (activity.name.as_str(), activity.bytes)).collect();
    assert_eq!(found, [("copy Host-to-Device", Some(4096)), ("copy of kind 77", Some(8)), ("fill", Some(64))]);
}

#[test]
fn an_export_that_is_older_than_its_report_is_stale() {
    let (folder, export) = file(b"");
    let report = folder.path().join("export.nsys-rep");
    std::fs::write(&report, b"").expect("it is written");
    let at = |file: &Path, time: SystemTime| {
        std::fs::File::options()
            .write(true)
            .open(file)
            .and_then(|file| file.set_modified(time))
            .expect("its time is set");
    };
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    at(&report, now);
    at(&export, now);
    check_age(&export, &report).expect("it is no older");
    at(&export, now - Duration::from_secs(1));
    let error = check_age(&export, &report).expect_err("it is older");
    assert!(
        matches!(error, NsysFailure::Stale { .. }) && error.to_string().contains("--force-overwrite=true"),
        "{error}"
    );
    let gone = check_age(&folder.path().join("gone"), &report).expect_err("it is not there");
    assert!(matches!(gone, NsysFailure::Read { .. }), "{gone}");
}

#[test]
fn a_file_that_is_cut_off_is_refused() {
    let whole = capture("nsys-export.sqlite");
    for length in [0, 50, 100, 4096, whole.len() / 2, whole.len() - 1] {
        let (_folder, file) = file(&whole[..length]);
        let error = read_export(&file, KernelNames::Function).expect_err("it is cut off");
        assert!(matches!(error, NsysFailure::Truncated { .. }), "{length}: {error}");
    }
    let (_folder, other) = file(&vec![b'x'; 5000]);
    assert!(matches!(read_export(&other, KernelNames::Function), Err(NsysFailure::Truncated { .. })));
}

#[test]
fn a_recording_that_was_not_imported_says_what_to_install() {
    let log = read_log(&text("nsys-error-no-importer.log"));
    assert_eq!(log.unimported(), Some("/tmp/mk/nolibdw.qdstrm"));
    let failure = judge(&log, Ok(Timeline::default())).expect_err("there is no report").to_string();
    assert!(failure.contains("libdw.so.1") && failure.contains("libdw1"), "{failure}");
}

#[test]
fn a_report_is_found_in_what_was_said() {
    let log = read_log(&text("nsys-profile.log"));
    assert_eq!((log.report.as_deref(), log.unimported()), (Some("/tmp/mk/pipe.nsys-rep"), None));
    assert!(judge(&log, changed("")).is_ok());
    let silent = judge(&read_log("done\nNo reports were generated\n"), changed("")).expect_err("there is no report");
    assert!(silent.to_string().contains("it said: No reports were generated"), "{silent}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_damaged_export_is_read_or_refused(
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40), keep in 0.5_f64..1.3
    ) {
        let mut bytes = capture("nsys-export.sqlite");
        for (at, byte) in places {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate((bytes.len() as f64 * keep) as usize);
        let (_folder, file) = file(&bytes);
        if let Ok(timeline) = read_export(&file, KernelNames::Demangled) {
            for activity in &timeline.activities {
                prop_assert!(activity.end_ns > activity.start_ns && activity.start_ns > 0);
            }
        }
    }

    #[test]
    fn damaged_stats_are_read_or_refused(at in any::<prop::sample::Index>(), length in 0_usize..200, with in "[\",\n0-9a.-]{0,4}") {
        let mut bytes = capture("nsys-stats.csv");
        let start = at.index(bytes.len());
        let end = (start + length).min(bytes.len());
        bytes.splice(start..end, with.bytes());
        let text = String::from_utf8_lossy(&bytes);
        for table in read_stats(&text).unwrap_or_default() {
            drop(table.trace());
            drop(table.summary());
        }
        drop(read_log(&text));
    }
}
