//! Series, times and pictures over records that are made up.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ZonedDateTime};
use proptest::prelude::*;

use super::axis::{Period, Range, value_ticks};
use super::*;
use crate::model::clocks::{Board, ClockState, Frequencies, Telemetry};
use crate::model::protocol::{Samples, Verification};
use crate::model::record::{Body, Environment, Labels, Position, Record, RecordKind, SampleSet, StageCode};
use crate::model::{
    Device, DeviceId, DeviceKind, KernelId, Key, Language, Mode, Shape, Tiling, Timing, Value, Version,
};

const NOW: &str = "2026-06-01T12:00:00Z";

fn time(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

/// Central Europe, by its rule: no data of the host's zones is needed.
fn berlin() -> TimeZone {
    TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone")
}

/// A zone whose clocks are put forward at midnight, so that one day in the year starts at 01:00.
fn without_a_midnight() -> TimeZone {
    TimeZone::posix("AAA3BBB,M3.4.0/0,M10.4.0/0").expect("a zone")
}

fn record(taken_at: &str, session: &str, us: f64) -> Record {
    let id = DeviceId { kind: DeviceKind::Gpu, name: "GPU X".into(), uuid: Some("GPU-1".into()), units: 132 };
    let held = ClockState::Locked(Frequencies { sm_mhz: 1500, mem_mhz: None });
    let board = Board { driver: Some("570.1".into()), ..Board::default() };
    Record {
        kind: RecordKind::Event,
        key: Key::of("measurement/1", &1),
        subject: Key::of("subject/1", &1),
        material: serde_json::Value::Null,
        labels: Labels {
            id: KernelId { kernel: "copy".into(), version: Version(1), language: Language::Cuda },
            shape: Shape([("s".to_owned(), Value::Int(4))].into()),
            mode: Some(Mode::Event),
            origin: None,
        },
        tiling: Tiling::default(),
        code: vec![StageCode { stage: "copy".into(), code_sha256: Key::of_bytes(b"one"), resources: None }],
        position: Position { taken_at: time(taken_at), session: session.into(), round: 0, position: 0, looks: None },
        environment: Environment {
            device: Device { id, memory_bytes: 1, last_level_cache_bytes: 1, cores: vec![0], gpu: None },
            peaks: None,
            clocks_hz: BTreeMap::new(),
            clocks_locked: true,
            cpu: None,
            host: "host".into(),
            os: "Linux".into(),
            compiler: "nvrtc 13.0".into(),
            mlarun: "0.1.0".into(),
            git_revision: None,
            git_dirty: None,
            telemetry: Some(Telemetry { clocks: held, board, ..Telemetry::default() }),
        },
        body: Body::Event(SampleSet {
            warmup_launches: 1,
            warmup_ns: 1,
            steady: true,
            sm_mhz: Some(1500.0),
            samples: vec![Samples {
                timing: Timing::ColdIsolated,
                ns: vec![us * 1e3],
                launches_per_sample: 1,
                converged: true,
            }],
            verification: Verification {
                relative_frobenius: 1e-6,
                worst_row: 1e-6,
                worst_row_index: 0,
                rows_compared: 1,
                rows_total: 1,
                output_sha256: "00".into(),
                same_bits: None,
            },
        }),
    }
}

fn duration() -> Metric {
    "duration".parse().expect("a metric")
}

fn one(records: &[Record]) -> Series {
    let mut series = series(records, &duration(), time(NOW));
    assert_eq!(series.len(), 1);
    series.remove(0)
}

#[test]
fn a_session_is_one_point_the_median_of_its_processes() {
    let records = [
        record("2026-05-02T02:00:10Z", "two", 9.0),
        record("2026-05-01T02:00:00Z", "one", 10.0),
        record("2026-05-01T02:00:02Z", "one", 30.0),
        record("2026-05-01T02:00:01Z", "one", 11.0),
    ];
    let series = one(&records);
    let points: Vec<_> = series
        .points
        .iter()
        .map(|point| (point.session.as_str(), point.value, point.lowest, point.highest, point.processes))
        .collect();
    assert_eq!(points, [("one", 11e3, 10e3, 30e3, 3), ("two", 9e3, 9e3, 9e3, 1)]);
    assert_eq!(series.points[0].taken_at, time("2026-05-01T02:00:00Z"));
    assert!(series.marks.is_empty());
}

#[test]
fn versions_and_shapes_are_series_of_their_own() {
    let mut other = record("2026-05-01T02:00:00Z", "one", 10.0);
    other.labels.id.version = Version(2);
    let mut larger = record("2026-05-01T02:00:00Z", "one", 20.0);
    larger.labels.shape = Shape([("s".to_owned(), Value::Int(16))].into());
    let records = [record("2026-05-01T02:00:00Z", "one", 10.0), other, larger];
    assert_eq!(series(&records, &duration(), time(NOW)).len(), 3);
    assert!(series(&records, &"warm_batched".parse().expect("a metric"), time(NOW)).is_empty(), "none was taken");
}

#[test]
fn what_changes_is_marked_where_it_changes_and_silence_is_no_change() {
    let mut new_driver = record("2026-05-02T02:00:00Z", "two", 10.0);
    let mut silent = record("2026-05-03T02:00:00Z", "three", 10.0);
    silent.environment.telemetry = None;
    silent.code.clear();
    let mut new_gpu = record("2026-05-04T02:00:00Z", "four", 10.0);
    let mut unlocked = record("2026-05-05T02:00:00Z", "five", 10.0);
    let mut new_code = record("2026-05-06T02:00:00Z", "six", 10.0);
    for record in [&mut new_driver, &mut new_gpu, &mut unlocked, &mut new_code] {
        record.environment.telemetry.as_mut().expect("told").board.driver = Some("580.2".into());
    }
    for record in [&mut new_gpu, &mut unlocked, &mut new_code] {
        record.environment.device.id.uuid = Some("GPU-2".into());
    }
    for record in [&mut unlocked, &mut new_code] {
        record.environment.telemetry.as_mut().expect("told").clocks = ClockState::Observed;
    }
    new_code.code[0].code_sha256 = Key::of_bytes(b"two");
    new_code.environment.compiler = "nvrtc 13.1".into();
    let first = record("2026-05-01T02:00:00Z", "one", 10.0);
    let series = one(&[new_code, unlocked, new_gpu, silent, new_driver, first]);
    let marks: Vec<_> = series
        .marks
        .iter()
        .filter(|mark| mark.what != What::Code)
        .map(|mark| format!("{} {}: {} → {}", mark.at.strftime("%d"), mark.what.name(), mark.from, mark.to))
        .collect();
    assert_eq!(
        marks,
        [
            "02 driver: 570.1 → 580.2",
            "04 device: GPU X (GPU-1) → GPU X (GPU-2)",
            "05 clocks: lock sm=1500 → observe",
            "06 compiler: nvrtc 13.0 → nvrtc 13.1",
        ]
    );
    let code: Vec<_> = series.marks.iter().filter(|mark| mark.what == What::Code).map(|mark| mark.at).collect();
    assert_eq!(code, [time("2026-05-06T02:00:00Z")]);
    let text = chart(&series, &duration(), &berlin());
    assert!(text.contains("  D 2026-05-02 04:00 +02:00  driver: 570.1 → 580.2\n"), "{text}");
    assert!(text.lines().any(|line| line.trim_start().starts_with('D') && line.trim_end().ends_with('T')), "{text}");
}

#[test]
fn a_record_from_the_future_is_told_and_moves_nothing() {
    let mut far = record("2099-01-01T00:00:00Z", "far", 99.0);
    far.environment.compiler = "another".into();
    let near = record("2026-06-02T11:00:00Z", "near", 10.5);
    let plain = [record("2026-05-01T02:00:00Z", "one", 10.0), record("2026-05-31T02:00:00Z", "two", 11.0), near];
    let with_far = one(&[plain.as_slice(), &[far]].concat());
    let without = one(&plain);
    assert_eq!(with_far.points.len(), 3, "a clock that is an hour ahead is none that was wrong");
    assert_eq!((&with_far.points, &with_far.marks), (&without.points, &without.marks));
    assert_eq!(with_far.ahead.len(), 1);
    let (zone, metric) = (TimeZone::UTC, duration());
    let told = "  left out: 2099-01-01 00:00 +00:00 lies in the future; the host's clock was wrong then\n";
    assert_eq!(chart(&with_far, &metric, &zone), chart(&without, &metric, &zone) + told);
    assert_eq!(picture(std::slice::from_ref(&with_far), &metric, &zone), picture(&[without], &metric, &zone));
    let csv = csv(&[with_far], &metric).expect("a text");
    assert_eq!(csv.lines().filter(|line| line.ends_with(",true")).count(), 1, "{csv}");
    assert_eq!(csv.lines().filter(|line| line.ends_with(",false")).count(), 3, "{csv}");
}

#[test]
fn the_hour_that_comes_twice_keeps_its_order() {
    // 02:30 in summer time, and again 02:30 an hour later.
    let records = [record("2026-10-25T01:30:00Z", "winter", 11.0), record("2026-10-25T00:30:00Z", "summer", 10.0)];
    let mut found = series(&records, &duration(), time("2026-11-01T00:00:00Z"));
    let series = found.remove(0);
    let (_, rows) = table(&series, &duration(), &berlin());
    let taken: Vec<_> = rows.iter().map(|row| (row[0].as_str(), row[1].as_str())).collect();
    assert_eq!(taken, [("2026-10-25 02:30 +02:00", "10.00"), ("2026-10-25 02:30 +01:00", "11.00")]);
}

#[test]
fn every_day_has_its_tick_at_midnight_whatever_its_length() {
    for (from, to) in
        [("2026-03-27T12:00:00Z", "2026-03-31T12:00:00Z"), ("2026-10-23T12:00:00Z", "2026-10-27T12:00:00Z")]
    {
        let period = Period { from: time(from), to: time(to) };
        let ticks = period.ticks(&berlin(), 8);
        let clock: Vec<_> =
            ticks.iter().map(|(at, _)| at.to_zoned_datetime(berlin()).strftime("%H:%M").to_string()).collect();
        assert_eq!(clock, ["00:00"; 4]);
        let texts: Vec<_> = ticks.iter().map(|(_, text)| &text[8..]).collect();
        assert!(texts.windows(2).all(|pair| pair[0].parse::<u32>().map(|day| day + 1) == pair[1].parse()), "{texts:?}");
    }
}

#[test]
fn times_are_understood_as_people_write_them() {
    let now: ZonedDateTime = time("2026-03-29T10:00:00Z").to_zoned_datetime(berlin());
    let from = |text: &str| since(text, &now).map(|at| at.to_string());
    for (text, wanted) in [
        ("2026-03-01", "2026-02-28T23:00:00Z"),
        ("2026-03-01T04:00", "2026-03-01T03:00:00Z"),
        ("2026-03-01 04:00", "2026-03-01T03:00:00Z"),
        ("2026-03-01T04:00Z", "2026-03-01T04:00:00Z"),
        ("2026-03-01T04:00+05:00", "2026-02-28T23:00:00Z"),
        // The night before had 23 hours: a day ago it was the same time of day, 23 hours ago.
        ("1d", "2026-03-28T11:00:00Z"),
        ("24h", "2026-03-28T10:00:00Z"),
        ("2 weeks", "2026-03-15T11:00:00Z"),
        ("1 month", "2026-02-28T11:00:00Z"),
        // A time that this night does not have is the one after the gap.
        ("2026-03-29T02:30", "2026-03-29T01:30:00Z"),
    ] {
        assert_eq!(from(text), Ok(wanted.to_owned()), "{text}");
    }
    for text in ["", "yesterday", "-3d", "2026-13-01", "30"] {
        assert_eq!(since(text, &now), Err(SinceError::Unknown(text.to_owned())), "{text}");
    }
    assert_eq!(since("19000 years", &now), Err(SinceError::OutOfRange("19000 years".to_owned())));
}

#[test]
fn a_day_without_a_midnight_starts_when_it_starts() {
    let zone = without_a_midnight();
    let now = time("2026-04-01T12:00:00Z").to_zoned_datetime(zone.clone());
    let start = since("2026-03-22", &now).expect("a time");
    assert_eq!(start.to_zoned_datetime(zone.clone()).strftime("%F %H:%M").to_string(), "2026-03-22 01:00");
    let period = Period { from: time("2026-03-20T12:00:00Z"), to: time("2026-03-24T12:00:00Z") };
    let days: Vec<_> = period.ticks(&zone, 8).into_iter().map(|(_, text)| text).collect();
    assert_eq!(days, ["2026-03-21", "2026-03-22", "2026-03-23", "2026-03-24"]);
}

#[test]
fn metrics_are_known_by_their_names() {
    for name in
        ["cold_isolated", "warm_batched", "sm_mhz", "power_w", "temperature_c", "error", "stage.copy", "counter.a-b"]
    {
        assert_eq!(name.parse::<Metric>().map(|metric| metric.to_string()), Ok(name.to_owned()));
    }
    for name in ["", "stage.", "speed"] {
        assert_eq!(name.parse::<Metric>(), Err(UnknownMetric(name.to_owned())));
    }
    let set = record(NOW, "one", 10.0);
    assert_eq!("sm_mhz".parse::<Metric>().expect("a metric").of(&set), Some(1500.0));
    assert_eq!("power_w".parse::<Metric>().expect("a metric").of(&set), None, "NVML did not tell it");
}

#[test]
fn a_picture_has_a_dot_a_point_and_a_line_a_mark() {
    let mut other = record("2026-05-02T02:00:00Z", "<two>", 11.0);
    other.environment.compiler = "cc & co".into();
    let series = one(&[record("2026-05-01T02:00:00Z", "one", 10.0), other]);
    let svg = picture(&[series], &duration(), &berlin());
    assert_eq!(svg.matches("<circle").count(), 2);
    assert_eq!(svg.matches("stroke-dasharray").count(), 1);
    assert!(svg.contains("&lt;two&gt;") && svg.contains("nvrtc 13.0 → cc &amp; co"), "{svg}");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
}

#[test]
fn a_plot_of_two_sessions() {
    let series = one(&[record("2026-05-01T02:00:00Z", "one", 10.0), record("2026-05-03T02:00:00Z", "two", 12.0)]);
    insta::assert_snapshot!(chart(&series, &duration(), &berlin()));
}

proptest! {
    #[test]
    fn plots_take_any_values_and_times(
        taken in prop::collection::vec((0_i64..4_000_000_000, prop::num::f64::POSITIVE | prop::num::f64::NORMAL), 1..12)
    ) {
        let records: Vec<_> = taken
            .iter()
            .enumerate()
            .map(|(number, (second, us))| {
                let at = Timestamp::from_second(*second).expect("a time").to_string();
                record(&at, &number.to_string(), us.abs().min(1e12))
            })
            .collect();
        for series in series(&records, &duration(), Timestamp::from_second(4_000_000_000).expect("a time")) {
            prop_assert_eq!(series.points.len() , taken.len());
            let text = chart(&series, &duration(), &berlin());
            prop_assert!(text.lines().all(|line| line.chars().count() < 100), "{}", text);
            let svg = picture(&[series], &duration(), &berlin());
            prop_assert!(!svg.contains("NaN") && !svg.contains("inf"), "{}", svg);
        }
    }

    #[test]
    fn ticks_lie_in_their_range(from in -1e9..1e9_f64, width in 1e-6..1e9_f64) {
        let range = Range { from, to: from + width };
        let ticks = value_ticks(&range);
        prop_assert!(ticks.len() <= 11);
        prop_assert!(ticks.iter().all(|tick| *tick >= range.from - width * 1e-6 && *tick <= range.to), "{:?}", ticks);
    }

    #[test]
    fn there_are_never_more_ticks_than_fit(from in 0_i64..4_000_000_000, seconds in 0_i64..4_000_000_000) {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let period = Period { from: at(from), to: at(from + seconds) };
        let ticks = period.ticks(&berlin(), 7);
        prop_assert!(ticks.len() <= 7);
        prop_assert!(ticks.iter().all(|(at, _)| *at >= period.from && *at <= period.to));
    }
}
