//! SIGKILL in the middle of a sweep, at any time and at each place that matters: no half record, nothing finished lost,
//! nothing measured twice.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::project::{MANIFEST, Project, ended};

/// Sample sets that each run of the sweep has.
const ROUNDS: usize = 3;

/// A sweep with tuned and untuned runs in two modes.
fn sweep(rows: &str) -> Project {
    let project = Project::new();
    project.tunable();
    project.kernel("copy", 1);
    project.edit(MANIFEST, "rounds  = 1", &format!("rounds  = {ROUNDS}\nversions = \"all\""));
    project.edit(MANIFEST, r#"["event"]"#, r#"["event", "annotation"]"#);
    project.edit(MANIFEST, "rows = [8]", &format!("rows = {rows}"));
    project
}

/// Number of records by kind and key.
fn records(project: &Project) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for file in project.files("out/store/records") {
        let path = file.display().to_string();
        assert!(path.ends_with(".json") || path.contains(".writing-"), "{path}");
        if path.ends_with(".json") {
            let (key, _) = path.split_once('-').expect("a key stands first");
            *counts.entry(key.to_owned()).or_default() += 1;
        }
    }
    counts
}

#[test]
fn whenever_it_is_killed_what_is_finished_stays_and_the_rest_is_measured_once() {
    let kills: u32 = std::env::var("MLARUN_TEST_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(100);
    let mut random = fastrand::Rng::with_seed(6);
    let mut project = sweep("[8, 9, 10]");
    let mut killed = 0;
    let mut finished = 0;
    while killed < kills {
        let before = records(&project);
        let mut running = project.start(&["-v", MANIFEST]);
        let steps = random.usize(0..10);
        let heard = (0..steps).all(|_| running.hears_a_line());
        // Where in a step it dies is left to chance, seeded as far as the host allows.
        let moment = Instant::now() + Duration::from_micros(random.u64(0..20_000));
        while Instant::now() < moment {
            std::thread::yield_now();
        }
        running.signal_if_running(Signal::KILL);
        let ended = running.end();
        let after = records(&project);
        let kept = before.iter().all(|(key, count)| after.get(key).is_some_and(|now| now >= count));
        assert!(kept, "a record is gone after kill {killed}: {before:?} {after:?}\n{}", ended.err);
        assert!(after.values().all(|&count| count <= ROUNDS), "measured twice: {after:?}");
        if ended.code.is_none() {
            killed += 1;
            let verified = project.mlarun(&["cache", "verify"]).expect(0);
            assert!(project.files("out/store/quarantine").is_empty(), "{}{}", verified.out, verified.err);
            continue;
        }
        assert_eq!(ended.code, Some(0), "{heard} {}", ended.err);
        finished += 1;
        complete(&project, 6);
        project = sweep("[8, 9, 10]");
    }
    project.run().expect(0);
    complete(&project, 6);
    assert!(finished > 0 || kills < 20, "no sweep was ever finished between kills");
}

/// Where a write, a build or the index is at its most delicate.
const PLACES: [&str; 9] = [
    "atomic.begun",
    "atomic.written",
    "atomic.renamed",
    "builds.made",
    "builds.published",
    "index.changed",
    "index.committed",
    "profiles.made",
    "store.kept",
];

#[test]
fn killed_at_each_place_of_each_write_it_goes_on_and_leaves_nothing_half() {
    for place in PLACES {
        let project = sweep("[8]");
        let (mut before, mut known) = (records(&project), project.files(""));
        let (mut visit, mut kills) = (1, 0);
        loop {
            let ended = ended(project.command(&[MANIFEST]).env("MLARUN_FAILPOINT", format!("{place}:{visit}")));
            let after = records(&project);
            let kept = before.iter().all(|(key, count)| after.get(key).is_some_and(|now| now >= count));
            assert!(kept, "{place}:{visit}: a record is gone: {before:?} {after:?}\n{}", ended.err);
            assert!(after.values().all(|&count| count <= ROUNDS), "{place}:{visit}: measured twice: {after:?}");
            assert!(project.files("out/store/quarantine").is_empty(), "{place}:{visit}: {}", ended.err);
            before = after;
            if ended.code.is_some() {
                assert_eq!(ended.code, Some(0), "{place}:{visit}: {}", ended.err);
                break;
            }
            kills += 1;
            // Where a run got no further than the one before, the next one dies a visit later.
            let now: Vec<_> = project.files("").into_iter().filter(|path| !is_unfinished(path)).collect();
            visit += u32::from(now == known);
            known = now;
        }
        assert!(kills > 0, "{place} was never reached");
        complete(&project, 2);
        let left: Vec<_> = project.files("").into_iter().filter(|path| is_unfinished(path)).collect();
        assert!(left.is_empty(), "{place}: {left:?} is left");
        for mode in ["event", "annotation"] {
            let profiles = project.files(&format!("out/profiles/{mode}"));
            assert_eq!(profiles.iter().filter(|file| file.ends_with("report.md")).count(), 2, "{place}: {profiles:?}");
            assert_eq!(
                profiles.iter().filter(|file| file.ends_with("params.json")).count(),
                2,
                "{place}: {profiles:?}"
            );
        }
    }
}

#[test]
fn killed_while_a_damaged_record_is_set_aside_it_is_set_aside_by_the_next_one() {
    let project = Project::new();
    project.run().expect(0);
    let file = format!("out/store/records/event/{}", project.files("out/store/records/event")[0].display());
    project.write(&file, "{");
    let killed = ended(project.command(&[MANIFEST]).env("MLARUN_FAILPOINT", "quarantine.explained"));
    assert_eq!(killed.code, None, "{}", killed.err);
    assert_eq!(project.read(&file), "{");
    project.run().expect(0).says(&format!("warning: {}", project.path(&file).display())).says("measured copy");
    project.run().expect(0).says("nothing to do");
}

/// The file was being written, or lies in a folder that was.
fn is_unfinished(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b".writing-"))
}

/// Every run of `subjects` subjects in two modes has as many records as it was to have.
#[track_caller]
fn complete(project: &Project, subjects: usize) {
    let counts = records(project);
    let of = |kind: &str| {
        counts.iter().filter(|(key, _)| key.starts_with(kind)).map(|(_, count)| *count).collect::<Vec<_>>()
    };
    assert_eq!(of("event/"), vec![ROUNDS; subjects], "{counts:?}");
    assert_eq!(of("annotation/"), vec![1; subjects], "{counts:?}");
    assert_eq!(of("verification/"), vec![1; subjects], "{counts:?}");
    project.run().expect(0).says(&format!("nothing to do, {} runs recorded", 2 * subjects));
}
