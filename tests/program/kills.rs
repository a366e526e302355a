//! SIGKILL in the middle of a sweep, again and again: no half record, nothing finished lost, nothing measured twice.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::project::{MANIFEST, Project};

/// Sample sets that each run of the sweep has.
const ROUNDS: usize = 3;

/// A sweep with tuned and untuned runs in two modes.
fn sweep() -> Project {
    let project = Project::new();
    project.tunable();
    project.kernel("copy", 1);
    project.edit(MANIFEST, "rounds  = 1", &format!("rounds  = {ROUNDS}\nversions = \"all\""));
    project.edit(MANIFEST, r#"["event"]"#, r#"["event", "annotation"]"#);
    project.edit(MANIFEST, "rows = [8]", "rows = [8, 9, 10]");
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
    let mut project = sweep();
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
        complete(&project);
        project = sweep();
    }
    project.run().expect(0);
    complete(&project);
    assert!(finished > 0 || kills < 20, "no sweep was ever finished between kills");
}

/// Every run has as many records as it was to have.
#[track_caller]
fn complete(project: &Project) {
    let counts = records(project);
    let of = |kind: &str| {
        counts.iter().filter(|(key, _)| key.starts_with(kind)).map(|(_, count)| *count).collect::<Vec<_>>()
    };
    assert_eq!(of("event/"), [ROUNDS; 6], "{counts:?}");
    assert_eq!(of("annotation/"), [1; 6], "{counts:?}");
    assert_eq!(of("verification/"), [1; 6], "{counts:?}");
    project.run().expect(0).says("nothing to do, 12 runs recorded");
}
