//! Alarms step by step, the order of a night, what a report says.

use jiff::{SignedDuration, Timestamp};

use super::alarm::{Alarm, MOST_UNDECIDED};
use super::*;
use crate::model::{KernelId, Key, Language, Shape, Value, Version};
use crate::stats::verdict::{Doubt, Taint, Verdict};

const THRESHOLD: f64 = 0.005;

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn subject(name: &str) -> Subject {
    Subject {
        id: KernelId { kernel: name.into(), version: Version(0), language: Language::Cuda },
        shape: Shape([("s".to_owned(), Value::Int(4))].into()),
    }
}

fn situation() -> Situation {
    Situation {
        device: "GPU X (GPU-1)".into(),
        pin_name: "reference".into(),
        pin: Key::of_bytes(b"pin"),
        boot: "boot-1".into(),
        circumstances: Circumstances {
            driver: Some("570.1".into()),
            compiler: "nvrtc 13.0".into(),
            clocks: "lock sm=1500".into(),
        },
    }
}

fn offer(name: &str) -> Offer {
    Offer { subject: subject(name), candidate: Key::of_bytes(b"code"), estimate_s: 60.0 }
}

fn judged(verdict: Verdict, change: f64) -> Outcome {
    let ends = (Some(change - 0.001), Some(change + 0.001));
    Outcome::Judged { verdict, change: Some(change), low: ends.0, high: ends.1, rounds: 12 }
}

fn undecided() -> Outcome {
    judged(Verdict::Inconclusive { doubt: Doubt::Spread, smallest: Some(0.03) }, -0.01)
}

fn failed() -> Outcome {
    Outcome::Failed { reason: "it does not compile".into(), is_wrong: false }
}

/// A host on which every session takes a minute and gives what is next in a list.
struct Scripted {
    now: Timestamp,
    script: Vec<Outcome>,
    measured: Vec<String>,
    kept: Vec<State>,
}

impl Host for Scripted {
    type Error = String;

    fn now(&self) -> Timestamp {
        self.now
    }

    fn keep(&mut self, state: &State) -> Result<(), String> {
        self.kept.push(state.clone());
        Ok(())
    }

    fn measure(&mut self, offer: &Offer) -> Result<Measured, String> {
        self.now += SignedDuration::from_mins(1);
        self.measured.push(offer.subject.id.kernel.clone());
        let outcome = if self.script.is_empty() { return Err("nothing more".into()) } else { self.script.remove(0) };
        Ok(Measured { session: self.now.to_string(), outcome, threshold: THRESHOLD, candidate: None })
    }

    fn is_interrupted(&self) -> bool {
        false
    }
}

/// One night with these outcomes; names in the order of their sessions.
fn night(state: &mut State, day: u32, offers: &[Offer], situation: &Situation, script: Vec<Outcome>) -> Vec<String> {
    let now = at(&format!("2026-05-{day:02}T02:00:00Z"));
    let begun = begin(state, situation, SignedDuration::from_hours(3), now);
    let mut host = Scripted { now, script, measured: Vec::new(), kept: Vec::new() };
    let rule = crate::stats::DriftRule::default();
    run(&mut host, offers, situation, begun.until, &rule, state).expect("the script is long enough");
    assert_eq!(host.kept.last(), Some(&*state), "the last step is kept");
    finish(state);
    host.measured
}

fn alarm(state: &State, name: &str) -> Alarm {
    state.track(&subject(name), &situation()).expect("it was measured").alarm.clone()
}

/// What became of an alarm over sessions, one a night, each in a word.
fn words(outcomes: &[Outcome]) -> Vec<&'static str> {
    let mut state = State::default();
    let word = |alarm: &Alarm| match alarm {
        Alarm::Quiet => "quiet",
        Alarm::Suspected { .. } => "suspected",
        Alarm::Raised { recovering: Some(_), .. } => "recovering",
        Alarm::Raised { worse: Some(_), .. } => "worse",
        Alarm::Raised { .. } => "raised",
    };
    let step = |(day, outcome): (usize, &Outcome)| {
        let now = at(&format!("2026-05-{:02}T02:00:00Z", day + 1));
        let begun = begin(&mut state, &situation(), SignedDuration::from_secs(90), now);
        let mut host = Scripted { now, script: vec![outcome.clone()], measured: Vec::new(), kept: Vec::new() };
        // Budget for one session a night.
        let rule = crate::stats::DriftRule::default();
        run(&mut host, &[offer("a")], &situation(), begun.until, &rule, &mut state).expect("one session");
        finish(&mut state);
        word(&alarm(&state, "a"))
    };
    outcomes.iter().enumerate().map(step).collect()
}

#[test]
fn an_alarm_takes_two_sessions_and_ends_with_two() {
    let (slower, same, faster) =
        (judged(Verdict::Slower, -0.03), judged(Verdict::Same, 0.0), judged(Verdict::Faster, 0.04));
    assert_eq!(words(&[slower.clone(), slower.clone()]), ["suspected", "raised"]);
    assert_eq!(words(&[slower.clone(), same.clone(), slower.clone()]), ["suspected", "quiet", "suspected"]);
    assert_eq!(words(&[slower.clone(), faster]), ["suspected", "quiet"]);
    let recovered = [slower.clone(), slower.clone(), slower.clone(), same.clone(), same.clone()];
    assert_eq!(words(&recovered), ["suspected", "raised", "raised", "recovering", "quiet"]);
    let relapsed = [slower.clone(), slower.clone(), same.clone(), slower.clone(), same];
    assert_eq!(words(&relapsed), ["suspected", "raised", "recovering", "raised", "recovering"]);
    assert_eq!(words(&[slower, Outcome::SameCode]), ["suspected", "quiet"]);
}

#[test]
fn what_decides_nothing_neither_raises_nor_ends_an_alarm() {
    let slower = judged(Verdict::Slower, -0.03);
    let invalid = judged(Verdict::Invalid { cause: Taint::Throttled }, -0.5);
    assert_eq!(words(&[undecided(), invalid.clone(), failed()]), ["quiet"; 3]);
    assert_eq!(words(&[slower.clone(), undecided(), slower.clone()]), ["suspected", "suspected", "raised"]);
    assert_eq!(words(&[slower.clone(), slower.clone(), undecided(), failed()])[2..], ["raised", "raised"]);
    // A suspicion that nothing decides is given up.
    let tries = [slower, undecided(), invalid, failed()];
    assert_eq!(tries.len() as u32 - 1, MOST_UNDECIDED);
    assert_eq!(words(&tries), ["suspected", "suspected", "suspected", "quiet"]);
}

#[test]
fn an_alarm_that_stands_is_raised_again_where_it_gets_worse() {
    let (slower, much) = (judged(Verdict::Slower, -0.03), judged(Verdict::Slower, -0.08));
    let mut state = State::default();
    for (day, outcome) in [&slower, &slower, &slower, &much, &much].into_iter().enumerate() {
        // One session a night: what it leaves open waits for the next one.
        let now = at(&format!("2026-05-{:02}T02:00:00Z", day + 1));
        let begun = begin(&mut state, &situation(), SignedDuration::from_secs(90), now);
        let mut host = Scripted { now, script: vec![outcome.clone()], measured: Vec::new(), kept: Vec::new() };
        let rule = crate::stats::DriftRule::default();
        run(&mut host, &[offer("a")], &situation(), begun.until, &rule, &mut state).expect("one session");
        finish(&mut state);
        let raised = state.untold.iter().map(|alert| alert.change).collect::<Vec<_>>();
        let wanted = [&[][..], &[-0.03], &[-0.03], &[-0.03], &[-0.03, -0.08]][day];
        assert_eq!(raised, wanted, "night {day}");
    }
    assert!(state.untold[1].text.contains("slower yet"), "{}", state.untold[1].text);
}

#[test]
fn a_suspicion_on_another_driver_is_no_first_session() {
    let mut state = State::default();
    let slower = || judged(Verdict::Slower, -0.03);
    let one = [offer("a")];
    let begun = |state: &mut State, day: u32, situation: &Situation, script| night(state, day, &one, situation, script);
    // Its second session fails: the suspicion stays open.
    begun(&mut state, 1, &situation(), vec![slower(), undecided()]);
    assert!(matches!(alarm(&state, "a"), Alarm::Suspected { .. }));
    let mut updated = situation();
    updated.circumstances.driver = Some("580.2".into());
    begun(&mut state, 2, &updated, vec![slower(), undecided()]);
    assert!(matches!(alarm(&state, "a"), Alarm::Suspected { undecided: 1, .. }), "{:?}", alarm(&state, "a"));
    assert!(state.untold.is_empty());
    begun(&mut state, 3, &updated, vec![slower()]);
    assert_eq!(state.untold.len(), 1);
}

#[test]
fn a_suspicion_is_confirmed_in_the_same_night_after_what_is_stale() {
    let mut state = State::default();
    let offers = [offer("a"), offer("b"), offer("c")];
    let same = || judged(Verdict::Same, 0.0);
    let slower = || judged(Verdict::Slower, -0.03);
    let first = night(&mut state, 1, &offers, &situation(), vec![slower(), same(), same(), slower()]);
    assert_eq!(first, ["a", "b", "c", "a"]);
    assert!(matches!(alarm(&state, "a"), Alarm::Raised { .. }));
    let Alert { subject: alarmed, text, .. } = &state.untold[0];
    assert_eq!((state.untold.len(), alarmed), (1, &subject("a")));
    assert!(text.contains("slower in two sessions (3.0% slower)"), "{text}");
}

#[test]
fn a_night_goes_from_suspected_over_stale_and_undecided_to_old() {
    let mut state = State::default();
    let names = ["old", "older", "undecided", "stale", "suspected"];
    let offers: Vec<Offer> = names.into_iter().map(offer).collect();
    let same = || judged(Verdict::Same, 0.0);
    night(&mut state, 1, &offers[1..2], &situation(), vec![same()]);
    night(&mut state, 2, &offers[..1], &situation(), vec![same()]);
    night(&mut state, 3, &offers[2..4], &situation(), vec![undecided(), same()]);
    // The second session of its night decides nothing.
    night(&mut state, 4, &offers[4..], &situation(), vec![judged(Verdict::Slower, -0.03), undecided()]);
    let mut offers = offers;
    offers[3].candidate = Key::of_bytes(b"new code");
    offers.push(offer("new"));
    let order = night(&mut state, 5, &offers, &situation(), vec![same(); 6]);
    assert_eq!(order, ["suspected", "new", "stale", "undecided", "older", "old"]);
    let why = |name: &str| state.track(&subject(name), &situation()).and_then(Track::last).map(|last| last.why.clone());
    assert_eq!(why("stale"), Some(Why::Changed));
    assert_eq!(why("new"), Some(Why::Never));
    assert!(matches!(why("undecided"), Some(Why::Ambiguous { .. })));
    assert!(matches!(why("suspected"), Some(Why::Unconfirmed { .. })));
}

#[test]
fn what_is_never_decided_waits_for_its_turn_like_any_other() {
    let mut state = State::default();
    let offers = [offer("noisy"), offer("quiet")];
    let same = || judged(Verdict::Same, 0.0);
    night(&mut state, 1, &offers, &situation(), vec![undecided(), same()]);
    assert_eq!(night(&mut state, 2, &offers, &situation(), vec![undecided(), same()]), ["noisy", "quiet"]);
    // Undecided twice: from now on the one measured longest ago goes first, and the budget may end before the noisy one.
    night(&mut state, 3, &offers[..1], &situation(), vec![undecided()]);
    assert_eq!(night(&mut state, 4, &offers, &situation(), vec![same(), undecided()]), ["quiet", "noisy"]);
}

#[test]
fn what_does_not_fit_into_the_budget_lets_the_next_one_go_first() {
    let mut state = State::default();
    let long = Offer { estimate_s: 3600.0, ..offer("long") };
    let offers = [long, offer("short")];
    let now = at("2026-05-01T02:00:00Z");
    let begun = begin(&mut state, &situation(), SignedDuration::from_mins(30), now);
    let mut host = Scripted { now, script: vec![judged(Verdict::Same, 0.0)], measured: Vec::new(), kept: Vec::new() };
    let rule = crate::stats::DriftRule::default();
    run(&mut host, &offers, &situation(), begun.until, &rule, &mut state).expect("one session");
    assert_eq!(host.measured, ["short"]);
    let report = Report::of(&state, &offers, &situation(), host.now).expect("a night");
    assert_eq!(report.rows[0].due, Some(Why::Never));
    assert!(report.markdown().contains("## Still due") && report.rows[1].due.is_none());
}

#[test]
fn another_device_and_another_pin_are_told_apart() {
    let mut state = State::default();
    let one = [offer("a")];
    let same = || judged(Verdict::Same, 0.0);
    night(&mut state, 1, &one, &situation(), vec![same()]);
    let elsewhere = Situation { device: "GPU X (GPU-2)".into(), ..situation() };
    night(&mut state, 2, &one, &elsewhere, vec![same()]);
    let pinned = Situation { pin: Key::of_bytes(b"another"), ..situation() };
    night(&mut state, 3, &one, &pinned, vec![same()]);
    let why = |situation: &Situation| state.track(&subject("a"), situation).and_then(Track::last).map(|seen| &seen.why);
    assert_eq!(why(&elsewhere), Some(&Why::NewDevice { before: "GPU X (GPU-1)".into() }));
    assert_eq!(why(&pinned), Some(&Why::NewPin));
}

#[test]
fn an_observation_from_the_future_is_of_any_age() {
    let mut state = State::default();
    let offers = [offer("wrong clock"), offer("right clock")];
    let same = || judged(Verdict::Same, 0.0);
    night(&mut state, 1, &offers, &situation(), vec![same(), same()]);
    state.tracks[0].observations[0].at = at("2099-01-01T00:00:00Z");
    assert_eq!(night(&mut state, 2, &offers, &situation(), vec![same(), same()]), ["wrong clock", "right clock"]);
    // A night that seems to begin in the future is none to go on with.
    state.tonight = Some(Tonight {
        id: "20990101T020000Z".into(),
        began_at: at("2099-01-01T02:00:00Z"),
        boot: "boot-1".into(),
        measuring: None,
        notes: Vec::new(),
    });
    let begun = begin(&mut state, &situation(), SignedDuration::from_hours(3), at("2026-05-03T02:00:00Z"));
    assert!(!begun.is_resumed);
}

#[test]
fn a_fall_of_the_level_is_alarmed_by_the_session_after_the_one_that_saw_it() {
    let mut state = State::default();
    let one = [offer("a")];
    // Too little for the verdict on this host, and steady.
    let wobble = |night: u32| f64::from(night % 3) * 1e-4;
    let outcome = |night: u32| {
        let change = if night < 12 { 0.0 } else { -0.015 } + wobble(night);
        judged(Verdict::Inconclusive { doubt: Doubt::Spread, smallest: Some(0.05) }, change)
    };
    let mut raised = Vec::new();
    for day in 1..=28 {
        night(&mut state, day, &one, &situation(), vec![outcome(day)]);
        let track = state.track(&subject("a"), &situation()).expect("a track");
        raised.push(match track.drift {
            Drift::Quiet => 'q',
            Drift::Suspected { .. } => 's',
            Drift::Raised { .. } => 'r',
        });
    }
    let text: String = raised.iter().collect();
    assert!(text.starts_with(&"q".repeat(15)), "five nights on either side at least: {text}");
    assert_eq!(text.matches('s').count(), 1, "{text}");
    assert!(text.trim_start_matches('q').starts_with("sr") && text.ends_with('r'), "{text}");
    assert_eq!(state.untold.len(), 1, "{:?}", state.untold);
    assert!((-0.016..-0.014).contains(&state.untold[0].change), "{:?}", state.untold);
}

fn reported() -> Report {
    let mut state = State::default();
    let offers: Vec<Offer> = ["alarmed", "same <&> code", "broken", "quiet"].into_iter().map(offer).collect();
    let slower = || judged(Verdict::Slower, -0.03);
    let same = || judged(Verdict::Same, 0.0004);
    night(&mut state, 1, &offers[..1], &situation(), vec![slower(), slower()]);
    let now = at("2026-05-04T02:00:00Z");
    let begun = begin(&mut state, &situation(), SignedDuration::from_secs(250), now);
    let script = vec![Outcome::SameCode, failed(), same(), slower()];
    let mut host = Scripted { now, script, measured: Vec::new(), kept: Vec::new() };
    let rule = crate::stats::DriftRule::default();
    let mut offers = offers;
    offers.push(Offer { estimate_s: 3600.0, ..offer("long") });
    run(&mut host, &offers, &situation(), begun.until, &rule, &mut state).expect("four sessions");
    Report::of(&state, &offers, &situation(), host.now).expect("a night")
}

#[test]
fn a_report_for_people() {
    insta::assert_snapshot!(reported().markdown());
}

#[test]
fn a_report_as_test_results() {
    insta::assert_snapshot!(reported().junit().expect("it serialises"));
}

#[test]
fn a_report_for_programs_has_numbers_and_no_texts_of_them() {
    let json: serde_json::Value = serde_json::from_str(&reported().json().expect("it serialises")).expect("JSON");
    assert_eq!(json["regressions"], 1);
    assert_eq!(json["rows"][0]["alarm"]["state"], "raised");
    assert_eq!(json["rows"][0]["sessions"][0]["change"], -0.03);
    assert_eq!(json["rows"][2]["sessions"][0]["outcome"], "failed");
    assert_eq!(json["rows"][4]["due"]["why"], "never");
}
