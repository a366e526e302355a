//! Comparisons over records as sessions leave them: which are judged, how, and which are not.

use jiff::Timestamp;
use proptest::prelude::*;

use super::{Standing, Unjudged, compare, correct_table, looks};
use crate::model::clocks::{ClockState, Frequencies, Reading, Telemetry};
use crate::model::protocol::{Samples, Verification};
use crate::model::record::{Body, Environment, Labels, Position, Record, RecordKind, SampleSet, StageCode};
use crate::model::{Device, DeviceId, DeviceKind, KernelId, Key, Language, Mode, Shape, Tiling, Timing, Version};
use crate::stats::verdict::{Clocks, Doubt, Rule, Taint, Verdict};

const LOCKED: ClockState = ClockState::Locked(Frequencies { sm_mhz: 1500, mem_mhz: None });

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(1_760_000_000 + second).expect("in range")
}

fn horizon() -> Timestamp {
    second(1_000_000)
}

/// A sample set of `kernel`, of 5 samples around `us`.
fn set(kernel: &str, session: &str, (round, place): (u32, u32), at: i64, us: f64) -> Record {
    let id = KernelId { kernel: kernel.to_owned(), version: Version(1), language: Language::Cuda };
    let ns = [-2.0, -1.0, 0.0, 1.0, 2.0].map(|step| us * 1e3 * (1.0 + step / 1e3)).to_vec();
    let verification = Verification {
        relative_frobenius: 0.0,
        worst_row: 0.0,
        worst_row_index: 0,
        rows_compared: 1,
        rows_total: 1,
        output_sha256: String::new(),
        same_bits: None,
    };
    let samples = Samples { timing: Timing::ColdIsolated, ns, launches_per_sample: 1, converged: true };
    let telemetry = Telemetry { clocks: LOCKED, ..Telemetry::default() };
    Record {
        kind: RecordKind::Event,
        key: Key::of_bytes(kernel.as_bytes()),
        subject: Key::of_bytes(kernel.as_bytes()),
        material: serde_json::json!({ "subject": { "launches": [{ "grid": [1, 1, 1] }], "buffers": [{ "dims": [8] }] } }),
        labels: Labels { id, shape: Shape::default(), mode: Some(Mode::Event), origin: None },
        tiling: Tiling::default(),
        code: vec![StageCode { stage: "s".into(), code_sha256: Key::of_bytes(kernel.as_bytes()), resources: None }],
        position: Position {
            taken_at: second(at),
            session: session.to_owned(),
            round,
            position: place,
            looks: Some(looks(&Rule::new(Clocks::Locked, 1))),
        },
        environment: Environment {
            device: Device {
                id: DeviceId { kind: DeviceKind::Gpu, name: "GPU".into(), uuid: Some("GPU-1".into()), units: 1 },
                memory_bytes: 1,
                last_level_cache_bytes: 1,
                cores: Vec::new(),
                gpu: None,
            },
            peaks: None,
            clocks_hz: std::collections::BTreeMap::new(),
            clocks_locked: true,
            cpu: None,
            host: "host".into(),
            os: "Linux".into(),
            compiler: "nvrtc".into(),
            mlarun: "0.1.0".into(),
            git_revision: None,
            git_dirty: None,
            telemetry: Some(telemetry),
        },
        body: Body::Event(SampleSet {
            warmup_launches: 1,
            warmup_ns: 1,
            steady: true,
            sm_mhz: Some(1500.0),
            samples: vec![samples],
            verification,
        }),
    }
}

/// Candidate and baseline in `rounds` rounds of `session` from `start` on, with these times in microseconds.
fn session(
    name: &str,
    start: i64,
    rounds: u32,
    candidate: impl Fn(u32) -> f64,
    baseline: impl Fn(u32) -> f64,
) -> (Vec<Record>, Vec<Record>) {
    let side = |kernel: &str, second: bool, us: &dyn Fn(u32) -> f64| -> Vec<Record> {
        let place = |round: u32| u32::from((round.is_multiple_of(2)) == second);
        let one = |round: u32| {
            set(kernel, name, (round, place(round)), start + i64::from(2 * round + place(round)), us(round))
        };
        (0..rounds).map(one).collect()
    };
    (side("candidate", false, &candidate), side("baseline", true, &baseline))
}

/// A little noise that differs from round to round.
fn noise(round: u32) -> f64 {
    f64::from((round * 7 + 3) % 5) * 0.0004
}

fn standing((candidate, baseline): &(Vec<Record>, Vec<Record>)) -> Standing {
    compare(candidate, baseline, Timing::ColdIsolated, horizon())
}

fn verdict(standing: &Standing) -> Verdict {
    standing.judged().unwrap_or_else(|| panic!("judged: {standing:?}")).judgement.verdict
}

#[test]
fn a_clear_change_is_called_and_the_sides_exchanged_mirror_it() {
    let (slow, fast) = session("s", 0, 8, |round| 110.0 + noise(round), |round| 100.0 - noise(round));
    let slower = compare(&slow, &fast, Timing::ColdIsolated, horizon());
    let faster = compare(&fast, &slow, Timing::ColdIsolated, horizon());
    assert_eq!((verdict(&slower), verdict(&faster)), (Verdict::Slower, Verdict::Faster));
    let effect = |standing: &Standing| standing.judged().and_then(|judged| judged.judgement.effect).expect("an effect");
    let (one, other) = (effect(&slower), effect(&faster));
    assert_eq!((one.ln_speed, one.candidate_ns), (-other.ln_speed, other.baseline_ns));
    assert_eq!((one.ln_error, one.ln_step), (other.ln_error, other.ln_step));
}

#[test]
fn one_sample_set_is_too_few_and_says_so() {
    let one = session("s", 0, 1, |_| 100.0, |_| 90.0);
    let doubt = Verdict::Inconclusive { doubt: Doubt::TooFewRounds, smallest: None };
    assert_eq!(verdict(&standing(&one)), doubt);
    assert_eq!(verdict(&standing(&session("s", 0, 7, |_| 100.0, |_| 90.0))), doubt);
}

#[test]
fn identical_samples_are_the_same() {
    assert_eq!(verdict(&standing(&session("s", 0, 8, |_| 100.0, |_| 100.0))), Verdict::Same);
}

#[test]
fn two_groups_of_processes_are_said_and_not_averaged() {
    let fast_and_slow = |round: u32| if round.is_multiple_of(3) { 110.0 } else { 100.0 } + noise(round);
    let found = standing(&session("s", 0, 32, fast_and_slow, |round| 104.0 + noise(round + 1)));
    let judgement = &found.judged().expect("judged").judgement;
    assert!(matches!(judgement.verdict, Verdict::Inconclusive { doubt: Doubt::Modes, .. }), "{judgement:?}");
    assert!(judgement.candidate_modes.is_some_and(|modes| modes.fast > modes.slow && modes.slow > 4));
}

#[test]
fn a_time_of_zero_is_no_time() {
    let (candidate, mut baseline) = session("s", 0, 8, |_| 100.0, |_| 90.0);
    for record in &mut baseline {
        if let Body::Event(set) = &mut record.body {
            set.samples[0].ns = vec![0.0; 5];
        }
    }
    let found = compare(&candidate, &baseline, Timing::ColdIsolated, horizon());
    assert_eq!(verdict(&found), Verdict::Invalid { cause: Taint::NoTime });
}

#[test]
fn without_a_baseline_or_a_common_round_there_is_no_verdict() {
    let (candidate, _) = session("s", 0, 8, |_| 100.0, |_| 90.0);
    let (_, later) = session("t", 1000, 8, |_| 100.0, |_| 90.0);
    let (_, earlier) = session("r", -1000, 8, |_| 100.0, |_| 90.0);
    let against = |baseline: &[Record]| compare(&candidate, baseline, Timing::ColdIsolated, horizon());
    assert_eq!(against(&[]), Standing::Unjudged(Unjudged::OtherSession));
    assert_eq!(against(&earlier), Standing::Unjudged(Unjudged::OtherSession));
    assert_eq!(against(&later), Standing::Unjudged(Unjudged::NewerBaseline));
}

#[test]
fn the_newest_session_of_both_is_judged_and_never_two_mixed() {
    let old = session("old", 0, 8, |_| 90.0, |_| 100.0);
    let new = session("new", 1000, 8, |_| 110.0, |_| 100.0);
    let lone = session("lone", 2000, 8, |_| 50.0, |_| 100.0);
    let candidate = [old.0, new.0, lone.0].concat();
    let found = compare(&candidate, &[old.1, new.1].concat(), Timing::ColdIsolated, horizon());
    assert_eq!((verdict(&found), found.judged().map(|judged| judged.session.as_str())), (Verdict::Slower, Some("new")));
}

#[test]
fn a_record_far_in_the_future_hides_no_session_of_now() {
    let now = session("now", 0, 8, |_| 110.0, |_| 100.0);
    let far = session("far", 2_000_000_000, 8, |_| 90.0, |_| 100.0);
    let both = ([now.0, far.0.clone()].concat(), [now.1, far.1.clone()].concat());
    assert_eq!(verdict(&standing(&both)), Verdict::Slower);
    assert_eq!(verdict(&standing(&far)), Verdict::Faster, "it is what there is");
}

#[test]
fn looks_that_were_not_fixed_beforehand_give_no_verdict() {
    let (mut candidate, baseline) = session("s", 0, 8, |_| 110.0, |_| 100.0);
    candidate.iter_mut().for_each(|record| record.position.looks = None);
    let found = compare(&candidate, &baseline, Timing::ColdIsolated, horizon());
    assert_eq!(found, Standing::Unjudged(Unjudged::NotPlanned));
}

#[test]
fn the_stored_looks_and_level_are_those_of_the_verdict() {
    let (mut candidate, baseline) = session("s", 0, 8, |_| 110.0, |_| 100.0);
    let rule = Rule { looks: vec![4, 6], alpha: 0.01, ..Rule::new(Clocks::Locked, 7) };
    candidate.iter_mut().for_each(|record| record.position.looks = Some(looks(&rule)));
    let found = compare(&candidate, &baseline, Timing::ColdIsolated, horizon());
    let judged = found.judged().expect("judged");
    assert_eq!((&judged.judgement.rule, judged.judgement.rounds), (&rule, 4));
}

#[test]
fn equal_code_launched_alike_is_the_same_code_whatever_it_is_called() {
    let (candidate, mut baseline) = session("s", 0, 8, |_| 110.0, |_| 100.0);
    baseline.iter_mut().for_each(|record| record.code.clone_from(&candidate[0].code));
    let found = compare(&candidate, &baseline, Timing::ColdIsolated, horizon());
    assert_eq!(found, Standing::SameCode, "a kernel under another name");
    let newest = baseline.last_mut().expect("eight of them");
    newest.material["subject"]["launches"][0]["grid"] = serde_json::json!([2, 1, 1]);
    let found = compare(&candidate, &baseline, Timing::ColdIsolated, horizon());
    assert_eq!(verdict(&found), Verdict::Slower, "another launch is another work");
}

#[test]
fn code_that_is_not_known_is_never_the_same() {
    let (mut candidate, mut baseline) = session("s", 0, 8, |_| 110.0, |_| 100.0);
    candidate.iter_mut().chain(&mut baseline).for_each(|record| record.code.clear());
    let found = compare(&candidate, &baseline, Timing::ColdIsolated, horizon());
    assert_eq!(verdict(&found), Verdict::Slower);
}

#[test]
fn disturbed_rounds_are_dropped_by_their_cause_and_too_many_are_invalid() {
    let (candidate, baseline) = session("s", 0, 10, |round| 110.0 + noise(round), |_| 100.0);
    let disturb = |count: usize| {
        let mut baseline = baseline.clone();
        for record in baseline.iter_mut().take(count) {
            let throttle = vec!["SW Power Cap".to_owned()];
            let telemetry = record.environment.telemetry.as_mut().expect("a GPU's");
            telemetry.after = Reading { throttle, ..Reading::default() };
        }
        compare(&candidate, &baseline, Timing::ColdIsolated, horizon())
    };
    let two = disturb(2);
    let judgement = &two.judged().expect("judged").judgement;
    assert_eq!((judgement.verdict, judgement.rounds), (Verdict::Slower, 8));
    assert_eq!(
        judgement.dropped.iter().map(|dropped| (dropped.cause, dropped.rounds)).collect::<Vec<_>>(),
        [(Taint::Throttled, 2)]
    );
    assert_eq!(verdict(&disturb(4)), Verdict::Invalid { cause: Taint::Throttled });
}

#[test]
fn a_thousand_comparisons_keep_only_claims_beyond_doubt_among_all() {
    let doubtful = session("s", 0, 8, |round| 100.6 + 100.0 * noise(round), |round| 100.0 + 100.0 * noise(round + 1));
    let clear = session("s", 0, 8, |round| 200.0 + noise(round), |_| 100.0);
    let weak = standing(&doubtful);
    assert_eq!(verdict(&weak), Verdict::Slower, "by itself it stands");
    let mut table: Vec<Standing> = (0..1000).map(|k| if k == 500 { standing(&clear) } else { weak.clone() }).collect();
    correct_table(&mut table);
    assert_eq!(verdict(&table[500]), Verdict::Slower);
    let claims = table.iter().filter(|standing| verdict(standing).is_claim()).count();
    assert_eq!(claims, 1, "the others: {:?}", verdict(&table[0]));
}

#[test]
fn what_has_no_verdict_is_no_part_of_the_table() {
    let clear = session("s", 0, 8, |round| 110.0 + noise(round), |_| 100.0);
    let mut table = vec![standing(&clear), Standing::SameCode, Standing::Unjudged(Unjudged::File)];
    correct_table(&mut table);
    assert_eq!(verdict(&table[0]), Verdict::Slower);
    assert_eq!(table[1..], [Standing::SameCode, Standing::Unjudged(Unjudged::File)]);
}

proptest! {
    /// Whatever the order in which records are read, and whatever else is stored, the verdict is the same.
    #[test]
    fn the_order_of_reading_does_not_matter(seed in any::<u64>(), rounds in 1_u32..20) {
        let mut both = session("s", 0, rounds, |round| 101.0 + noise(round), |round| 100.0 + noise(round + 1));
        let before = standing(&both);
        let mut random = fastrand::Rng::with_seed(seed);
        random.shuffle(&mut both.0);
        random.shuffle(&mut both.1);
        prop_assert_eq!(standing(&both), before);
    }
}
