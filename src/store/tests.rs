//! Stores on disk: what is kept, what is noticed, what is set aside.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::model::protocol::{Samples, Verification};
use crate::model::record::{Body, Environment, Labels, Position, SampleSet};
use crate::model::{Device, DeviceId, DeviceKind, KernelId, Language, Mode, Shape, Tiling, Timing, Value, Version};

fn open(out: &Path) -> Store {
    Store::open(out).expect("opened")
}

fn at(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_700_000_000 + second)
}

/// A record of the subject `number`, taken at `second`.
fn record(number: u64, second: i64) -> Record {
    let material = serde_json::json!({ "subject": number, "protocol": 1 });
    Record {
        kind: RecordKind::Event,
        key: Key::of("measurement/1", &material),
        subject: Key::of("subject/1", &number),
        material,
        labels: Labels {
            id: KernelId { kernel: "flash_mla".into(), version: Version(1), language: Language::C },
            shape: Shape([("s".to_owned(), Value::Int(4))].into()),
            mode: Some(Mode::Event),
            origin: None,
        },
        tiling: Tiling::default(),
        code: Vec::new(),
        position: Position { taken_at: at(second), session: "s-1".into(), round: 0, position: 0, looks: None },
        environment: environment(),
        body: Body::Event(SampleSet {
            warmup_launches: 10,
            warmup_ns: 500_000_000,
            steady: true,
            sm_mhz: None,
            samples: vec![Samples {
                timing: Timing::ColdIsolated,
                ns: vec![0.1 + 0.2, 12_345.678],
                launches_per_sample: 1,
                converged: true,
            }],
            verification: Verification {
                relative_frobenius: 1.0e-6,
                worst_row: 3.3e-6,
                worst_row_index: 7,
                rows_compared: 8,
                rows_total: 8,
                output_sha256: "00".into(),
                same_bits: None,
            },
        }),
    }
}

fn environment() -> Environment {
    let id = DeviceId { kind: DeviceKind::Cpu, name: "CPU".into(), uuid: None, units: 2 };
    Environment {
        device: Device { id, memory_bytes: 1 << 30, last_level_cache_bytes: 1 << 20, cores: vec![0, 1], gpu: None },
        peaks: None,
        clocks_hz: BTreeMap::new(),
        clocks_locked: false,
        cpu: None,
        host: "host".into(),
        os: "Linux".into(),
        compiler: "cc".into(),
        mlarun: "0.1.0".into(),
        git_revision: None,
        git_dirty: None,
        telemetry: None,
    }
}

fn get(store: &mut Store, record: &Record) -> Vec<Record> {
    store.get(record.kind, &record.key).expect("readable")
}

fn count(store: &Store, record: &Record) -> u32 {
    store.facts().sets(record.kind, &record.key).map_or(0, |sets| sets.count)
}

#[test]
fn records_are_read_back_oldest_first_and_known_after_reopening() {
    let out = tempfile::tempdir().expect("a folder");
    let (newer, older) = (record(1, 20), record(1, 10));
    let mut store = open(out.path());
    assert!(store.facts().is_empty());
    store.append(&newer).expect("appended");
    store.append(&older).expect("appended");
    assert_eq!(get(&mut store, &newer), [older.clone(), newer.clone()]);
    let facts = store.facts().clone();
    assert_eq!(facts.sets(newer.kind, &newer.key), Some(Sets { count: 2, latest: at(20) }));
    drop(store);
    assert_eq!(*open(out.path()).facts(), facts);
}

#[test]
fn the_newest_key_of_a_slot_is_known() {
    let out = tempfile::tempdir().expect("a folder");
    let mut store = open(out.path());
    let (first, second) = (record(1, 10), record(2, 20));
    store.append(&second).expect("appended");
    store.append(&first).expect("appended");
    let mut elsewhere = record(3, 30);
    elsewhere.environment.device.id.name = "another CPU".into();
    store.append(&elsewhere).expect("appended");
    for store in [&store, &open(out.path())] {
        assert_eq!(store.facts().latest(&Slot::of(&first)), Some(second.key));
        assert_eq!(store.facts().latest(&Slot::of(&elsewhere)), Some(elsewhere.key));
        let mut unknown = record(1, 0);
        unknown.labels.mode = Some(Mode::Annotation);
        assert_eq!(store.facts().latest(&Slot::of(&unknown)), None);
    }
}

#[test]
fn records_of_one_instant_do_not_replace_each_other() {
    let out = tempfile::tempdir().expect("a folder");
    let mut store = open(out.path());
    let first = record(1, 10);
    let mut second = first.clone();
    second.position.position = 1;
    let paths = [&first, &second].map(|record| store.append(record).expect("appended"));
    assert_ne!(paths[0], paths[1]);
    assert_eq!(get(&mut store, &first), [first, second]);
}

#[test]
fn a_session_cannot_name_another_folder() {
    let out = tempfile::tempdir().expect("a folder");
    let mut hostile = record(1, 10);
    hostile.position.session = "../../x".into();
    let path = open(out.path()).append(&hostile).expect("appended");
    assert!(path.starts_with(out.path().join("store/records/event")), "{path:?}");
    assert_eq!(
        path.components().count(),
        open(out.path()).append(&record(1, 11)).expect("appended").components().count()
    );
}

/// A store with one record whose file was changed by `damage`; the record must be set aside for a reason with `word`,
/// by reopening as well as by reading and by verifying.
fn assert_set_aside(word: &str, damage: impl Fn(&str) -> Vec<u8>) {
    type Look = fn(&Path, &Record) -> Vec<SetAside>;
    let by_opening: Look = |out, _| open(out).set_aside().to_vec();
    let by_reading: Look = |out, record| {
        let mut store = open(out);
        assert_eq!(get(&mut store, record), []);
        store.set_aside().to_vec()
    };
    let by_verifying: Look = |out, _| {
        let mut store = open(out);
        let report = store.verify().expect("verified");
        assert_eq!(report.sound, 1);
        [store.set_aside(), &report.set_aside].concat()
    };
    for look in [by_opening, by_reading, by_verifying] {
        let out = tempfile::tempdir().expect("a folder");
        let (spoilt, sound) = (record(1, 10), record(2, 10));
        let mut store = open(out.path());
        store.append(&sound).expect("appended");
        let path = store.append(&spoilt).expect("appended");
        drop(store);
        fs::write(&path, damage(&fs::read_to_string(&path).expect("text"))).expect("damaged");
        let set_aside = look(out.path(), &spoilt);
        let first = set_aside.first().unwrap_or_else(|| panic!("nothing was set aside ({word})"));
        assert_eq!(first.from, path);
        assert!(first.reason.contains(word), "{}", first.reason);
        assert!(!path.exists() && first.to.exists());
        let beside = fs::read_to_string(format!("{}.reason", first.to.display())).expect("a reason beside it");
        assert!(beside.contains(word), "{beside}");
        let mut store = open(out.path());
        assert_eq!((count(&store, &spoilt), count(&store, &sound)), (0, 1));
        assert_eq!(get(&mut store, &sound), [sound]);
    }
}

#[test]
fn a_truncated_record_is_set_aside() {
    assert_set_aside("EOF", |text| text.as_bytes()[..text.len() / 2].to_vec());
    assert_set_aside("EOF", |_| Vec::new());
}

#[test]
fn a_changed_sample_is_set_aside() {
    assert_set_aside("checksum", |text| text.replace("12345.678", "12345.679").into_bytes());
}

#[test]
fn bytes_that_are_no_text_are_set_aside() {
    assert_set_aside("no such file", |_| vec![0xff, 0xfe, 0x00]);
}

#[test]
fn an_older_format_is_set_aside() {
    assert_set_aside("format is 0.0", |text| text.replace("\"major\": 1", "\"major\": 0").into_bytes());
}

#[test]
fn a_record_in_the_place_of_another_key_is_set_aside() {
    let text = envelope::encode("record", &record(3, 10)).expect("serialises");
    assert_set_aside("where another kind or key", move |_| text.clone());
}

#[test]
fn damage_behind_an_unchanged_stamp_is_found_by_reading() {
    let out = tempfile::tempdir().expect("a folder");
    let spoilt = record(1, 10);
    let mut store = open(out.path());
    let path = store.append(&spoilt).expect("appended");
    drop(store);
    let changed = fs::metadata(&path).expect("metadata").modified().expect("a time");
    let text = fs::read_to_string(&path).expect("text").replace("12345.678", "12345.679");
    fs::write(&path, text).expect("changed");
    fs::File::options().write(true).open(&path).expect("a file").set_modified(changed).expect("set");
    let mut store = open(out.path());
    assert_eq!(store.set_aside(), []);
    assert_eq!(get(&mut store, &spoilt), []);
    assert_eq!((store.set_aside().len(), count(&store, &spoilt)), (1, 0));
}

#[test]
fn a_newer_major_version_is_refused_and_left_alone() {
    let out = tempfile::tempdir().expect("a folder");
    let mut store = open(out.path());
    let path = store.append(&record(1, 10)).expect("appended");
    let newer = fs::read_to_string(&path).expect("text").replace("\"major\": 1", "\"major\": 2");
    fs::write(&path, &newer).expect("changed");
    assert!(matches!(store.get(RecordKind::Event, &record(1, 10).key), Err(StoreError::Newer { .. })));
    drop(store);
    let error = Store::open(out.path()).expect_err("newer");
    assert!(error.to_string().contains("format 2.0 by a newer mlarun"), "{error}");
    assert_eq!(fs::read_to_string(&path).expect("still there"), newer);
}

#[test]
fn a_store_of_a_newer_major_version_is_refused() {
    let out = tempfile::tempdir().expect("a folder");
    drop(open(out.path()));
    fs::write(out.path().join("store/format.json"), r#"{"major":2,"minor":0}"#).expect("written");
    assert!(matches!(Store::open(out.path()), Err(StoreError::Newer { .. })));
}

#[test]
fn a_newer_minor_version_is_read() {
    let out = tempfile::tempdir().expect("a folder");
    let sound = record(1, 10);
    let mut store = open(out.path());
    let path = store.append(&sound).expect("appended");
    let mut body = serde_json::to_value(&sound).expect("serialises");
    body["a_field_of_the_future"] = serde_json::json!(1);
    let text = String::from_utf8(envelope::encode("record", &body).expect("serialises")).expect("text");
    fs::write(&path, text.replace("\"minor\": 0", "\"minor\": 7")).expect("written");
    assert_eq!(get(&mut store, &sound), [sound]);
}

#[test]
fn threads_and_stores_append_side_by_side() {
    const EACH: i64 = 12;
    let out = tempfile::tempdir().expect("a folder");
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let out = out.path();
            scope.spawn(move || {
                let mut store = open(out);
                for second in 0..EACH {
                    let mut record = record(1, second);
                    record.position.round = writer;
                    store.append(&record).expect("appended");
                }
                store.flush().expect("flushed");
            });
        }
    });
    let mut store = open(out.path());
    assert_eq!(count(&store, &record(1, 0)), 4 * EACH as u32);
    assert_eq!(get(&mut store, &record(1, 0)).len(), 4 * EACH as usize);
    assert_eq!(store.verify().expect("verified"), Report { sound: 4 * EACH as usize, set_aside: vec![] });
}

/// Facts and rows after `change` was made to a closed store with two records must be those of the files.
fn assert_index_follows(change: impl FnOnce(&Path, &[PathBuf])) -> Vec<String> {
    let out = tempfile::tempdir().expect("a folder");
    let mut store = open(out.path());
    let paths = [record(1, 10), record(2, 20)].map(|record| store.append(&record).expect("appended"));
    drop(store);
    change(out.path(), &paths);
    let mut store = open(out.path());
    assert_eq!(store.set_aside(), []);
    let rows: Vec<String> = store.ls().expect("listed").into_iter().map(|entry| entry.path).collect();
    let walked: BTreeSet<String> = store.files.walk().expect("walked").into_keys().collect();
    assert_eq!(rows.iter().cloned().collect::<BTreeSet<_>>(), walked);
    assert_eq!(store.facts().len(), rows.len());
    rows
}

#[test]
fn a_deleted_or_damaged_index_is_rebuilt() {
    let index = |out: &Path| out.join("index.sqlite");
    assert_eq!(assert_index_follows(|out, _| fs::remove_file(index(out)).expect("removed")).len(), 2);
    assert_eq!(assert_index_follows(|out, _| fs::write(index(out), "no database at all").expect("spoilt")).len(), 2);
    assert_eq!(assert_index_follows(|out, _| fs::write(index(out), "").expect("spoilt")).len(), 2);
    let overwrite = |out: &Path| {
        let mut bytes = fs::read(index(out)).expect("bytes");
        let page = bytes.len() / 3;
        bytes[page..].fill(0xa5);
        fs::write(index(out), bytes).expect("spoilt");
    };
    assert_eq!(assert_index_follows(|out, _| overwrite(out)).len(), 2);
    let older = |out: &Path| {
        let connection = rusqlite::Connection::open(index(out)).expect("opened");
        connection
            .execute_batch("DROP TABLE records; CREATE TABLE records (x); PRAGMA user_version = 0")
            .expect("changed");
    };
    assert_eq!(assert_index_follows(|out, _| older(out)).len(), 2);
    let without_table = |out: &Path| {
        let connection = rusqlite::Connection::open(index(out)).expect("opened");
        connection.execute_batch("DROP TABLE records").expect("changed");
    };
    assert_eq!(assert_index_follows(|out, _| without_table(out)).len(), 2);
}

#[test]
fn files_removed_or_brought_by_others_are_noticed() {
    assert_eq!(assert_index_follows(|_, paths| fs::remove_file(&paths[0]).expect("removed")).len(), 1);
    let bring = |out: &Path| {
        let other = tempfile::tempdir().expect("a folder");
        let path = open(other.path()).append(&record(3, 30)).expect("appended");
        let to = out.join(path.strip_prefix(other.path()).expect("below"));
        fs::create_dir_all(to.parent().expect("a folder")).expect("made");
        fs::copy(path, to).expect("copied");
    };
    assert_eq!(assert_index_follows(|out, _| bring(out)).len(), 3);
    let stray = |out: &Path| fs::write(out.join("store/records/event/README"), "text").expect("written");
    assert_eq!(assert_index_follows(|out, _| stray(out)).len(), 2);
}

#[test]
fn what_was_appended_but_not_flushed_is_found_by_the_next_opening() {
    let out = tempfile::tempdir().expect("a folder");
    let mut killed = open(out.path());
    killed.append(&record(1, 10)).expect("appended");
    let next = open(out.path());
    assert_eq!(count(&next, &record(1, 10)), 1);
}

#[test]
fn a_folder_that_cannot_be_written_is_refused_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("file"), "").expect("a file");
    let error = Store::open(&folder.path().join("file/out")).expect_err("below a file");
    assert!(matches!(error, StoreError::Unwritable { .. }));
    assert!(error.to_string().contains("--out"), "{error}");
}

#[test]
fn collecting_by_age_spares_newer_and_pinned_records() {
    let out = tempfile::tempdir().expect("a folder");
    let mut store = open(out.path());
    let [old, pinned, new] = [record(1, 10), record(2, 10), record(3, 30)];
    let paths = [&old, &pinned, &new].map(|record| store.append(record).expect("appended"));
    let policy = Policy { taken_before: Some(at(20)), pinned: [pinned.key].into(), ..Policy::default() };
    let collected = store.gc(&policy).expect("collected");
    assert_eq!(collected.removed, [paths[0].clone()]);
    assert!(collected.bytes > 0 && !paths[0].exists());
    assert_eq!([&old, &pinned, &new].map(|record| count(&store, record)), [0, 1, 1]);
}

#[test]
fn collecting_by_size_removes_the_oldest_first() {
    let out = tempfile::tempdir().expect("a folder");
    let mut store = open(out.path());
    let records = [record(1, 40), record(2, 10), record(3, 30), record(4, 20)];
    let sizes: Vec<u64> = records
        .iter()
        .map(|record| fs::metadata(store.append(record).expect("appended")).expect("metadata").len())
        .collect();
    let policy = Policy { max_bytes: Some(sizes[0] + sizes[1]), pinned: [records[1].key].into(), ..Policy::default() };
    store.gc(&policy).expect("collected");
    assert_eq!(records.each_ref().map(|record| count(&store, record)), [1, 1, 0, 0]);
    assert_eq!(store.gc(&Policy::default()).expect("collected"), Collected::default());
}
