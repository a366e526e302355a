//! Verdicts of single comparisons and of tables: the plain cases and the hard ones.

use proptest::prelude::*;

use super::*;

/// A time that wavers by up to 0.2% around `ns`, another in every round.
fn wavering(ns: f64, round: u32) -> f64 {
    ns * (1.0 + 0.0005 * f64::from((round * 7) % 9) - 0.002)
}

fn process(ns: f64) -> Process {
    Process { ns: Some(ns), sm_mhz: None, taints: Vec::new() }
}

/// Rounds of two sides by their time in each.
fn rounds(count: u32, candidate: impl Fn(u32) -> f64, baseline: impl Fn(u32) -> f64) -> Vec<Round> {
    let sides = |(round, candidate_first)| Round {
        candidate: process(candidate(round)),
        baseline: process(baseline(round)),
        candidate_first,
    };
    (0..count).zip(orders(1)).map(sides).collect()
}

/// Sides around these times, unlike in their waver.
fn around(count: u32, candidate: f64, baseline: f64) -> Vec<Round> {
    rounds(count, |round| wavering(candidate, round), |round| wavering(baseline, round + 4))
}

/// Two sides of the same speed whose times differ by several times `noise`.
fn loud(count: u32, noise: f64) -> Vec<Round> {
    let ns = move |round: u32| 100_000.0 * (1.0 + noise * f64::from((round * 5) % 7));
    rounds(count, ns, move |round| ns(round + 3))
}

fn locked() -> Rule {
    Rule::new(Clocks::Locked, 1)
}

fn judged(rounds: &[Round]) -> Judgement {
    judge(rounds, &locked()).unwrap()
}

fn swapped(rounds: &[Round]) -> Vec<Round> {
    let swap = |round: &Round| Round {
        candidate: round.baseline.clone(),
        baseline: round.candidate.clone(),
        candidate_first: !round.candidate_first,
    };
    rounds.iter().map(swap).collect()
}

fn doubt(judgement: &Judgement) -> Option<Doubt> {
    match judgement.verdict {
        Verdict::Inconclusive { doubt, .. } => Some(doubt),
        _ => None,
    }
}

#[test]
fn a_difference_is_called_at_the_first_look_that_shows_it() {
    let faster = judged(&around(32, 100_000.0, 103_000.0));
    assert_eq!((faster.verdict, faster.rounds, faster.next_look), (Verdict::Faster, 8, None));
    let change = faster.effect.unwrap().change();
    assert!((change - 0.03).abs() < 0.002, "{change}");
    let (low, high) = faster.interval().unwrap();
    assert!(0.005 < low && low < change && change < high && high < 0.05, "{low} to {high}");
    assert_eq!(judged(&around(32, 103_000.0, 100_000.0)).verdict, Verdict::Slower);
}

#[test]
fn what_is_the_same_is_called_so_once_the_whole_interval_is_within_the_margin() {
    let same = judged(&around(32, 100_000.0, 100_000.0));
    assert_eq!((same.verdict, same.next_look), (Verdict::Same, None));
    let (low, high) = same.interval().unwrap();
    assert!(-0.01 < low && high < 0.01, "{low} to {high}");
}

#[test]
fn a_change_below_the_threshold_is_never_called() {
    let small = judged(&around(32, 100_000.0, 100_400.0));
    assert_eq!(small.verdict, Verdict::Same);
    assert!(small.effect.unwrap().p_difference() < 0.05);
}

#[test]
fn rounds_go_on_from_look_to_look_until_one_is_final() {
    let next = |count| judged(&loud(count, 0.3)).next_look;
    assert_eq!([1, 7, 8, 11, 12, 31].map(next), [Some(8), Some(8), Some(12), Some(12), Some(16), Some(32)]);
    let before = judged(&loud(7, 0.3));
    assert_eq!(doubt(&before), Some(Doubt::TooFewRounds));
    let between = judged(&loud(11, 0.3));
    assert_eq!(
        (between.rounds, &between),
        (8, &judged(&loud(8, 0.3))),
        "nobody looks between two looks, apart from what is next"
    );
}

#[test]
fn what_runs_after_the_verdict_does_not_count() {
    let mut session = around(40, 100_000.0, 103_000.0);
    let verdict = judged(&session);
    session[8..].iter_mut().for_each(|round| round.candidate = process(1.0));
    assert_eq!(judged(&session), verdict);
}

#[test]
fn a_spread_that_hides_everything_says_what_it_could_have_shown() {
    let judgement = judged(&loud(32, 0.3));
    assert_eq!((doubt(&judgement), judgement.next_look), (Some(Doubt::Spread), None));
    let Verdict::Inconclusive { smallest: Some(smallest), .. } = judgement.verdict else { panic!("{judgement:?}") };
    assert!(smallest > 0.2, "{smallest}");
    // More noise hides more.
    let Verdict::Inconclusive { smallest: Some(larger), .. } = judged(&loud(32, 0.4)).verdict else {
        panic!("a louder host cannot be conclusive");
    };
    assert!(larger > smallest);
}

#[test]
fn a_baseline_of_zero_or_without_times_makes_the_comparison_invalid() {
    for no_time in [Some(0.0), None, Some(f64::NAN), Some(-3.0)] {
        let mut session = around(12, 100_000.0, 103_000.0);
        session.iter_mut().for_each(|round| round.baseline.ns = no_time);
        let judgement = judged(&session);
        assert_eq!((judgement.verdict, judgement.next_look), (Verdict::Invalid { cause: Taint::NoTime }, None));
        assert_eq!((judgement.effect, judgement.rounds), (None, 0));
        assert_eq!(judgement.dropped, [Dropped { cause: Taint::NoTime, rounds: 12 }]);
    }
}

#[test]
fn sides_that_never_met_are_an_error() {
    let error = judge(&[], &locked()).unwrap_err();
    assert_eq!(error, VerdictError::NoOverlap);
    assert!(error.to_string().contains("measure both in one session"));
}

#[test]
fn one_round_has_no_effect_and_no_verdict() {
    let judgement = judged(&around(1, 100_000.0, 200_000.0));
    assert_eq!((doubt(&judgement), judgement.effect, judgement.next_look), (Some(Doubt::TooFewRounds), None, Some(8)));
    assert_eq!(judgement.verdict, Verdict::Inconclusive { doubt: Doubt::TooFewRounds, smallest: None });
}

#[test]
fn identical_samples_are_the_same() {
    let judgement = judged(&rounds(8, |_| 5_000.0, |_| 5_000.0));
    assert_eq!((judgement.verdict, judgement.next_look), (Verdict::Same, None));
    let effect = judgement.effect.unwrap();
    assert_eq!((effect.change(), effect.ln_error, effect.process_spread()), (0.0, 0.0, 0.0));
    assert_eq!((effect.p_difference(), effect.p_same(0.01)), (1.0, 0.0));
}

/// Both sides always read the same, one step of the clock apart: the step may be the clock's alone.
#[test]
fn one_step_of_the_clock_is_no_difference() {
    let judgement = judged(&rounds(32, |_| 20_000.0, |_| 20_500.0));
    assert_eq!(doubt(&judgement), Some(Doubt::Step));
    let Verdict::Inconclusive { smallest: Some(smallest), .. } = judgement.verdict else { panic!("{judgement:?}") };
    assert!((smallest - 0.025).abs() < 1e-9, "{smallest}");
    let three_steps = judged(&rounds(32, |round| 20_000.0 + 500.0 * f64::from(round % 2), |_| 22_000.0));
    assert_eq!(three_steps.verdict, Verdict::Faster);
    // No clock is that coarse.
    assert_eq!(judged(&rounds(32, |_| 20_000.0, |_| 22_000.0)).verdict, Verdict::Faster);
}

#[test]
fn process_times_in_two_groups_are_said_and_not_averaged() {
    // Which of two groups, 8% apart, a side meets depends on nothing that the other side shares.
    let in_groups = |round: u32| wavering(if (round / 2).is_multiple_of(2) { 100_000.0 } else { 108_000.0 }, round);
    let session = rounds(32, in_groups, |round| in_groups(round + 1));
    let judgement = judged(&session);
    assert_eq!((doubt(&judgement), judgement.rounds), (Some(Doubt::Modes), 32));
    let modes = judgement.candidate_modes.unwrap();
    assert_eq!((modes.fast, modes.slow), (16, 16));
    assert!((modes.fast_ns / 100_000.0 - 1.0).abs() < 0.002 && (modes.slow_ns / 108_000.0 - 1.0).abs() < 0.002);
    assert!(judgement.baseline_modes.is_some());
    // A baseline that is slower than both groups is slower, whichever is met.
    let apart = judged(&rounds(32, in_groups, |round| wavering(120_000.0, round)));
    assert_eq!(apart.verdict, Verdict::Faster);
    // One between the groups is not, however sure the mean.
    let between = judged(&rounds(32, in_groups, |round| wavering(107_000.0, round)));
    assert!(between.effect.unwrap().change() > 0.02);
    assert_eq!(doubt(&between), Some(Doubt::Modes), "{between:?}");
}

#[test]
fn groups_that_both_sides_share_cancel() {
    let host = |round: u32| if round < 8 { 1.0 } else { 1.08 };
    let session = rounds(
        32,
        |round| host(round) * wavering(100_000.0, round),
        |round| host(round) * wavering(102_000.0, round + 4),
    );
    let rule = Rule { looks: vec![32], ..locked() };
    let judgement = judge(&session, &rule).unwrap();
    assert!(judgement.candidate_modes.is_some() && judgement.baseline_modes.is_some());
    assert_eq!(judgement.verdict, Verdict::Faster);
}

/// Spoils the rounds at these places.
fn spoilt(mut session: Vec<Round>, places: impl IntoIterator<Item = usize>, cause: Taint) -> Vec<Round> {
    places.into_iter().for_each(|place| session[place].candidate.taints.push(cause));
    session
}

#[test]
fn a_dropped_round_is_made_up_for_and_counted() {
    let mut session = spoilt(around(12, 100_000.0, 103_000.0), [1, 4], Taint::Throttled);
    session[1].candidate = Process { ns: Some(1e12), ..session[1].candidate.clone() };
    let judgement = judged(&session);
    assert_eq!((judgement.verdict, judgement.rounds), (Verdict::Faster, 8));
    assert_eq!(judgement.dropped, [Dropped { cause: Taint::Throttled, rounds: 2 }]);
}

#[test]
fn more_than_a_quarter_dropped_is_invalid_and_not_averaged() {
    // A quarter is allowed: 3 of 12, with the look at 8 put off as 3 of 11 were too many.
    let allowed = judged(&spoilt(around(16, 100_000.0, 103_000.0), [0, 1, 2], Taint::Xid));
    assert_eq!((allowed.verdict, allowed.rounds), (Verdict::Faster, 12));
    let now = judged(&spoilt(around(11, 100_000.0, 103_000.0), [0, 1, 2], Taint::Xid));
    assert_eq!((now.verdict, now.next_look), (Verdict::Invalid { cause: Taint::Xid }, Some(12)));
    // Eleven cannot be made up for any more.
    let hopeless = judged(&spoilt(around(13, 100_000.0, 103_000.0), 0..11, Taint::ClockOff));
    assert_eq!((hopeless.verdict, hopeless.next_look), (Verdict::Invalid { cause: Taint::ClockOff }, None));
    let ten = judged(&spoilt(around(13, 100_000.0, 103_000.0), 0..10, Taint::ClockOff));
    assert_eq!(ten.next_look, Some(8));
}

#[test]
fn the_cause_of_an_invalid_comparison_is_the_most_frequent_one() {
    let session = spoilt(around(20, 1.0, 1.0), 0..4, Taint::ClockOff);
    let judgement = judged(&spoilt(session, 4..12, Taint::ForeignProcess));
    assert_eq!(judgement.verdict, Verdict::Invalid { cause: Taint::ForeignProcess });
    assert_eq!(judgement.dropped.len(), 2);
}

#[test]
fn rounds_of_one_order_alone_say_nothing() {
    let mut session = around(32, 100_000.0, 103_000.0);
    session.iter_mut().for_each(|round| round.candidate_first = true);
    assert_eq!(doubt(&judged(&session)), Some(Doubt::OneOrder));
}

#[test]
fn what_running_second_costs_cancels_even_where_orders_are_unequal() {
    let second =
        |round: &Round, ns: f64, is_candidate: bool| if round.candidate_first == is_candidate { ns } else { ns * 1.02 };
    let mut session = around(16, 100_000.0, 100_000.0);
    for round in &mut session {
        let (candidate, baseline) = (round.candidate.ns.unwrap(), round.baseline.ns.unwrap());
        round.candidate.ns = Some(second(round, candidate, true));
        round.baseline.ns = Some(second(round, baseline, false));
    }
    let dropped: Vec<usize> = (0..16).filter(|place| session[*place].candidate_first).take(4).collect();
    let judgement = judged(&spoilt(session, dropped, Taint::Throttled));
    assert_eq!(judgement.verdict, Verdict::Same, "{judgement:?}");
}

/// Rounds with these clocks, in MHz.
fn clocked(mut session: Vec<Round>, candidate: f64, baseline: f64) -> Vec<Round> {
    for round in &mut session {
        (round.candidate.sm_mhz, round.baseline.sm_mhz) = (Some(candidate), Some(baseline));
    }
    session
}

#[test]
fn unlocked_clocks_ask_for_more_and_for_agreement_in_cycles() {
    let rule = Rule::new(Clocks::Unlocked, 1);
    let judged = |session: &[Round]| judge(session, &rule).unwrap();
    let verdict = |session: &[Round]| judged(session).verdict;
    assert_eq!(verdict(&around(32, 100_000.0, 101_500.0)), Verdict::Same, "1.5% is below the threshold of 2%");
    assert_eq!(verdict(&around(32, 100_000.0, 103_000.0)), Verdict::Faster);
    assert_eq!(verdict(&clocked(around(32, 100_000.0, 103_000.0), 1500.0, 1500.0)), Verdict::Faster);
    // 3% faster at a clock that is 3% higher: the same cycles.
    let at_other_clocks = judged(&clocked(around(32, 100_000.0, 103_000.0), 1545.0, 1500.0));
    assert_eq!(doubt(&at_other_clocks), Some(Doubt::Clocks));
    assert!((at_other_clocks.clock_difference().unwrap() - 0.03).abs() < 1e-9);
    // The same time at a clock that is 10% higher is no sameness of the kernels.
    assert_eq!(doubt(&judged(&clocked(around(32, 100_000.0, 100_000.0), 1650.0, 1500.0))), Some(Doubt::Clocks));
    // Under a lock cycles are not asked for, and a calibration may lower the threshold.
    let locked = judge(&clocked(around(32, 100_000.0, 103_000.0), 1545.0, 1500.0), &locked()).unwrap();
    assert_eq!((locked.verdict, locked.cycles), (Verdict::Faster, None));
    let calibrated = rule.clone().with_threshold(0.01);
    assert_eq!(judge(&around(32, 100_000.0, 101_500.0), &calibrated).unwrap().verdict, Verdict::Faster);
}

/// A table of `count` comparisons, each by the change that it shows.
fn table(count: u32, comparisons: u32, change: impl Fn(u32) -> f64) -> Vec<Judgement> {
    let rule = Rule::new(Clocks::Locked, comparisons);
    (0..count).map(|row| judge(&around(32, 100_000.0, 100_000.0 * (1.0 + change(row))), &rule).unwrap()).collect()
}

#[test]
fn a_claim_that_stands_by_itself_may_fall_in_a_table_of_a_thousand() {
    let barely = {
        let spread = |round: u32| 100_000.0 * (1.0 + 0.0035 * f64::from((round * 7) % 9));
        judge(&rounds(32, spread, |round| 1.03 * spread(round + 4)), &locked()).unwrap()
    };
    assert_eq!(barely.verdict, Verdict::Faster);
    let alone = &mut [barely.clone()];
    correct(alone);
    assert_eq!(alone[0].verdict, Verdict::Faster);
    let mut judgements = table(999, 1, |_| 0.0);
    judgements.push(barely);
    correct(&mut judgements);
    assert_eq!(doubt(&judgements[999]), Some(Doubt::Table));
    let Verdict::Inconclusive { smallest: Some(smallest), .. } = judgements[999].verdict else { panic!("it fell") };
    assert!(smallest > judgements[999].effect.unwrap().smallest(Rule::ALPHA, 0.005));
}

#[test]
fn rounds_go_on_until_a_claim_would_stand_in_its_table() {
    let mut judgements = table(1000, 1000, |row| if row < 10 { 0.05 } else { 0.0 });
    let before = judgements.clone();
    correct(&mut judgements);
    assert_eq!(judgements, before);
    assert!(judgements[..10].iter().all(|judgement| judgement.verdict == Verdict::Faster));
    assert!(judgements[10..].iter().all(|judgement| judgement.verdict == Verdict::Same));
    let alone = table(1, 1, |_| 0.0);
    assert!(judgements[10].rounds > alone[0].rounds, "a larger table needs more rounds");
}

/// Holm's own example, in p values: 0.0100, 0.0134, 0.0150 among four at 5% stand where Bonferroni keeps one.
#[test]
fn the_correction_is_holms_and_not_bonferronis() {
    let look = Rule { looks: vec![32], alpha: 0.05, ..locked() };
    let with_p = |wanted: f64| {
        let mut judgement = judge(&around(32, 100_000.0, 103_000.0), &look).unwrap();
        let effect = judgement.effect.as_mut().unwrap();
        let t = crate::stats::student::critical(wanted, f64::from(effect.degrees));
        (effect.ln_step, effect.ln_error) = (0.0, effect.ln_speed / t);
        judgement
    };
    let mut judgements = [0.0134, 0.9, 0.01, 0.015].map(with_p);
    correct(&mut judgements);
    let stand = judgements.map(|judgement| judgement.verdict.is_claim());
    assert_eq!(stand, [true, false, true, true]);
}

#[test]
fn an_invalid_comparison_stays_invalid_in_its_table() {
    let mut judgements =
        vec![judged(&spoilt(around(13, 1.0, 1.0), 0..11, Taint::ClockOff)), judged(&around(32, 1.0, 1.03))];
    correct(&mut judgements);
    assert_eq!(judgements[0].verdict, Verdict::Invalid { cause: Taint::ClockOff });
    assert_eq!(judgements[1].verdict, Verdict::Faster);
    correct(&mut []);
}

#[test]
fn a_rule_that_is_none_is_refused() {
    let session = around(8, 1.0, 1.0);
    let refused = |rule: Rule| matches!(judge(&session, &rule), Err(VerdictError::Rule(_)));
    assert!(refused(Rule { looks: Vec::new(), ..locked() }));
    assert!(refused(Rule { looks: vec![2, 8], ..locked() }));
    assert!(refused(Rule { looks: vec![8, 8], ..locked() }));
    assert!(refused(Rule { alpha: 0.0, ..locked() }));
    assert!(refused(Rule { alpha: 0.5, ..locked() }));
    assert!(refused(Rule { alpha: f64::NAN, ..locked() }));
    assert!(refused(Rule { comparisons: 0, ..locked() }));
    assert!(refused(Rule { margin: 0.001, ..locked() }));
    assert!(refused(locked().with_threshold(0.0)));
    assert!(refused(locked().with_threshold(f64::NAN)));
}

#[test]
fn a_judgement_is_written_and_read_without_loss() {
    let sessions = [
        around(32, 100_000.0, 103_000.0),
        around(1, 1.0, 2.0),
        clocked(around(32, 100_000.0, 100_000.0), 1650.0, 1500.0),
        spoilt(around(13, 1.0, 1.0), 0..11, Taint::ClockOff),
    ];
    for session in sessions {
        let judgement = judge(&session, &Rule::new(Clocks::Unlocked, 3)).unwrap();
        let text = serde_json::to_string(&judgement).unwrap();
        assert_eq!(serde_json::from_str::<Judgement>(&text).unwrap(), judgement, "{text}");
        let rounds = serde_json::to_string(&session).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Round>>(&rounds).unwrap(), session);
    }
    // A time that is no number is written as null and read as none.
    let text = serde_json::to_string(&process(f64::NAN)).unwrap();
    assert_eq!(text, r#"{"ns":null}"#);
}

/// The verdict from the other side.
fn mirrored(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Faster => Verdict::Slower,
        Verdict::Slower => Verdict::Faster,
        other => other,
    }
}

prop_compose! {
    fn session()(
        times in prop::collection::vec((1e3..1.1e3_f64, 1e3..1.1e3_f64, any::<bool>(), 0..10_u32), 1..48),
        change in -0.1..0.1_f64,
    ) -> Vec<Round> {
        let round = |(candidate, baseline, candidate_first, spoilt): (f64, f64, bool, u32)| Round {
            candidate: Process {
                taints: if spoilt == 0 { vec![Taint::Throttled] } else { Vec::new() },
                sm_mhz: Some(candidate),
                ns: Some(candidate),
            },
            baseline: Process { sm_mhz: Some(baseline), ..process(baseline * (1.0 + change)) },
            candidate_first,
        };
        times.into_iter().map(round).collect()
    }
}

proptest! {
    #[test]
    fn the_sides_exchanged_give_the_mirror_of_the_verdict(session in session(), is_locked in any::<bool>()) {
        let rule = Rule::new(if is_locked { Clocks::Locked } else { Clocks::Unlocked }, 1);
        let (one, other) = (judge(&session, &rule).unwrap(), judge(&swapped(&session), &rule).unwrap());
        prop_assert_eq!(one.verdict, mirrored(other.verdict));
        prop_assert_eq!((one.rounds, one.next_look, &one.dropped), (other.rounds, other.next_look, &other.dropped));
        prop_assert_eq!(one.candidate_modes, other.baseline_modes);
        if let Some((one, other)) = one.effect.zip(other.effect) {
            prop_assert_eq!(one.ln_speed, -other.ln_speed);
            prop_assert_eq!((one.ln_error, one.ln_step), (other.ln_error, other.ln_step));
            prop_assert_eq!((one.candidate_ns, one.baseline_ns), (other.baseline_ns, other.candidate_ns));
        }
    }

    #[test]
    fn a_claim_agrees_with_the_interval_and_the_times_that_are_shown(session in session()) {
        let judgement = judged(&session);
        let Some(effect) = judgement.effect else { return Ok(()) };
        let shown = effect.baseline_ns / effect.candidate_ns - 1.0;
        prop_assert!((shown - effect.change()).abs() < 1e-12, "{shown}, {}", effect.change());
        let (low, high) = judgement.interval().unwrap();
        prop_assert!(low <= effect.change() && effect.change() <= high);
        match judgement.verdict {
            Verdict::Faster => prop_assert!(low > 0.0 && effect.change() >= 0.005 - 1e-12),
            Verdict::Slower => prop_assert!(high < 0.0 && effect.change() <= 1.0 / 1.005 - 1.0 + 1e-12),
            Verdict::Same => prop_assert!(1.0 / 1.01 - 1.0 <= low + 1e-9 && high <= 0.01 + 1e-9),
            _ => {}
        }
    }

    /// Whatever the digits, so that no rounding decides.
    #[test]
    fn two_readings_of_a_clock_are_never_a_difference(ns in 1e3..1e7_f64, step in 0.006..0.05_f64) {
        let judgement = judged(&rounds(32, |_| ns, |_| ns * step.exp()));
        prop_assert_eq!(doubt(&judgement), Some(Doubt::Step), "{:?}", judgement);
    }

    #[test]
    fn times_in_another_unit_give_the_same_verdict(session in session()) {
        let mut scaled = session.clone();
        for round in &mut scaled {
            round.candidate.ns = round.candidate.ns.map(|ns| ns * 1024.0);
            round.baseline.ns = round.baseline.ns.map(|ns| ns * 1024.0);
        }
        prop_assert_eq!(judged(&session).verdict.name(), judged(&scaled).verdict.name());
    }
}
