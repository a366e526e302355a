//! Ninety nights at a time, in simulated worlds: which alarms are raised and which are missed, and what a night says of what
//! came in its way. Seeds are fixed, so that the counts are too; docs/nightly.md has the same with more worlds.

#[path = "../benches/nights/calendar.rs"]
mod calendar;
#[path = "../benches/nights/tally.rs"]
mod tally;
#[path = "../benches/nights/world.rs"]
mod world;
#[path = "../benches/verdicts/worlds.rs"]
#[allow(dead_code, reason = "only its deviates are used here")]
mod worlds;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use mlarun::nightly::{Report, Why};
use rayon::prelude::*;

use calendar::{KILLED, Lived, MISSED, NEW_GPU, REBOOTED, live};
use tally::tally;
use world::{LIVES, NEW_DRIVER, NIGHTS, Story};

/// A world in which little goes wrong: a night's program is killed once in ten nights.
static WORLD: LazyLock<Lived> = LazyLock::new(|| live(0, 0.1));

fn report(lived: &Lived, night: u32) -> &Report {
    &lived.reports.iter().find(|(of, _)| *of == night).expect("a night that was not missed").1
}

/// The reasons of a night's sessions.
fn reasons(report: &Report) -> Vec<&Why> {
    report.rows.iter().flat_map(|row| row.sessions.iter().map(|session| &session.why)).collect()
}

#[test]
fn what_got_slower_is_alarmed_and_nothing_else() {
    let worlds: Vec<Lived> = (0..4).into_par_iter().map(|seed| live(seed, 0.1)).collect();
    for (life, tally) in LIVES.iter().zip(tally(&worlds)) {
        assert_eq!(tally.false_alarms, 0, "{}", life.name);
        let delay = tally.median_delay();
        match life.story {
            Story::Nothing | Story::Step { slower: ..0.0, .. } => assert_eq!(tally.alarmed, 0, "{}", life.name),
            // Too little for this spread, or for any verdict: an alarm comes when it comes.
            Story::Step { slower: ..0.005, .. } => {}
            Story::Step { slower: ..=0.01, .. } if life.name.contains("noisy") => {}
            Story::Step { .. } | Story::Passing { .. } | Story::Driver { .. } => {
                assert_eq!(tally.alarmed, tally.worlds, "{}", life.name);
                assert!(delay.is_some_and(|nights| nights <= 3), "{}: {delay:?}", life.name);
            }
            Story::Drift { to, from, .. } => {
                assert_eq!(tally.alarmed, tally.worlds, "{}", life.name);
                assert!(delay.is_some_and(|nights| nights < to - from), "{}: {delay:?}", life.name);
            }
        }
    }
}

#[test]
fn the_documents_table_is_of_these_subjects() {
    let document = include_str!("../docs/nightly.md");
    for life in LIVES {
        let slower = if life.story.slower_from().is_some() { "yes" } else { "no" };
        assert!(document.contains(&format!("| {} | {slower} | ", life.name)), "docs/nightly.md lacks `{}`", life.name);
    }
}

#[test]
fn a_kernel_that_was_taken_back_ends_its_alarm() {
    let passing = LIVES.iter().position(|life| matches!(life.story, Story::Passing { .. })).expect("one is taken back");
    let Story::Passing { from, to, .. } = LIVES[passing].story else {
        unreachable!("it is the one that was looked for")
    };
    let lived = &*WORLD;
    let stands = |night| report(lived, night).rows[passing].is_regression();
    assert!(!stands(from - 1) && stands(to - 1) && !stands(to + 2), "in the nights {from} to {to}");
}

#[test]
fn a_new_driver_and_a_new_gpu_make_every_subject_due_and_the_report_says_why() {
    let lived = &*WORLD;
    let new_driver = report(lived, NEW_DRIVER);
    assert!(new_driver.notes.iter().any(|note| note.contains("driver: 570.1 → 580.2")), "{:?}", new_driver.notes);
    assert!(new_driver.markdown().contains("driver 570.1 → 580.2"));
    let new_gpu = report(lived, NEW_GPU);
    assert!(new_gpu.notes.iter().any(|note| note.contains("GPU-1) → GPU X (GPU-2)")), "{:?}", new_gpu.notes);
    for (report, is_meant) in [
        (new_driver, (|why| matches!(why, Why::Driver { .. })) as fn(&Why) -> bool),
        (new_gpu, |why| matches!(why, Why::NewDevice { .. })),
    ] {
        for row in &report.rows {
            let why = row.sessions.first().map(|session| &session.why).or(row.due.as_ref());
            // Or it was under way when a kill came.
            let is_told = |why: &Why| is_meant(why) || matches!(why, Why::Interrupted { .. });
            assert!(why.is_some_and(is_told), "{}: {why:?}", row.subject);
        }
    }
    // A night later it is a night like any other.
    assert!(!reasons(report(lived, NEW_GPU + 2)).iter().any(|why| matches!(why, Why::NewDevice { .. })));
}

#[test]
fn missed_nights_are_counted() {
    let lived = &*WORLD;
    assert_eq!(lived.reports.len(), NIGHTS as usize - MISSED.len());
    let told = |night: u32, text: &str| report(lived, night).notes.iter().any(|note| note.contains(text));
    assert!(told(23, "3 nights missed since 2026-01-20") && told(66, "1 night missed"));
    assert!((0..20).all(|night| !told(night, "missed")));
}

#[test]
fn what_a_reboot_interrupted_is_measured_again_first() {
    let lived = &*WORLD;
    let rebooted = report(lived, REBOOTED);
    assert!(rebooted.notes.iter().any(|note| note.starts_with("the host was rebooted; this night went on at")));
    let went_on = report(lived, KILLED);
    assert!(went_on.notes.iter().any(|note| note.contains("this night went on at")), "{:?}", went_on.notes);
    for (report, by_reboot) in [(rebooted, Some(true)), (went_on, None)] {
        let again = reasons(report).into_iter().find_map(|why| match why {
            Why::Interrupted { by_reboot } => Some(*by_reboot),
            _ => None,
        });
        // The kill may have met a place between two sessions.
        assert!(again.is_none_or(|again| by_reboot.is_none_or(|wanted| wanted == again)), "{again:?}");
    }
}

#[test]
fn a_kill_at_any_place_costs_the_session_under_way_and_nothing_else() {
    let worlds: Vec<Lived> = (0..2).into_par_iter().map(|seed| live(seed, 1.0)).collect();
    for lived in &worlds {
        let kept: usize = lived.state.tracks.iter().map(|track| track.observations.len()).sum();
        assert!(lived.lost > 20, "{} sessions were lost", lived.lost);
        // One that was over when the kill came, and not kept, is lost as well.
        assert!(kept as u32 + lived.lost <= lived.sessions, "{kept} kept, {} lost of {}", lived.lost, lived.sessions);
        let sessions: BTreeSet<&str> = lived
            .state
            .tracks
            .iter()
            .flat_map(|track| track.observations.iter().map(|seen| seen.session.as_str()))
            .collect();
        assert_eq!(sessions.len(), kept, "no session was kept twice");
        assert!(lived.state.untold.is_empty() && lived.state.tonight.is_none());
    }
    for (life, tally) in LIVES.iter().zip(tally(&worlds)) {
        assert_eq!(tally.false_alarms, 0, "{}", life.name);
        if matches!(life.story, Story::Step { slower: 0.02.., .. } | Story::Driver { .. }) {
            assert_eq!(tally.alarmed, tally.worlds, "{}", life.name);
        }
    }
}

#[test]
fn the_state_survives_its_file() {
    let state = &WORLD.state;
    let text = serde_json::to_string(state).expect("it serialises");
    assert_eq!(&serde_json::from_str::<mlarun::nightly::State>(&text).expect("it reads"), state);
}
