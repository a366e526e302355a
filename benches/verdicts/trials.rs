//! Many simulated comparisons of one kind, counted by what they end with.

use fastrand::Rng;
use mlarun::stats::verdict::{Clocks, Process, Round, Rule, Taint, Tally, Verdict, judge, orders};
use rayon::prelude::*;

use super::worlds::World;

/// Rounds of a session up to the last look.
const ROUNDS: usize = 32;

/// Rounds of a session of which some are dropped, up to as many as may be.
const ROUNDS_WITH_DROPPED: usize = 42;

/// `trials` sessions in this world, the candidate's speed higher by `change`, judged by the rule for its clocks.
pub fn tally(world: &World, change: f64, trials: u64) -> Tally {
    let clocks = if world.clock.is_some() { Clocks::Unlocked } else { Clocks::Locked };
    let rule = Rule::new(clocks, 1);
    tally_by(world, change, trials, orders, |rounds| {
        let judgement = judge(rounds, &rule).expect("there are rounds, and the rule is one");
        (judgement.verdict, judgement.rounds)
    })
}

/// The same with other orders of the rounds, by seed, and another way to judge: a verdict, and after how many rounds.
pub fn tally_by<O: Iterator<Item = bool>>(
    world: &World,
    change: f64,
    trials: u64,
    orders: fn(u64) -> O,
    judge: impl Fn(&[Round]) -> (Verdict, u32) + Sync,
) -> Tally {
    let parts = (0..trials).into_par_iter().fold(Tally::default, |mut tally, trial| {
        let (verdict, rounds) = judge(&session(world, change, trial, orders(trial)));
        tally.count(&verdict, rounds);
        tally
    });
    parts.reduce(Tally::default, Tally::plus)
}

/// All rounds that a session could need, in the order in which they run.
fn session(world: &World, change: f64, seed: u64, orders: impl Iterator<Item = bool>) -> Vec<Round> {
    // Apart from that of the orders, which has the same seed.
    let mut random = Rng::with_seed(seed ^ 0x5DEE_CE66);
    let count = if world.dropped > 0.0 { ROUNDS_WITH_DROPPED } else { ROUNDS };
    let noise = (world.noise)(&mut random, 2 * count);
    let clock = world.clock.map(|clock| clock(&mut random, 2 * count));
    let process = |slot: usize, ln_speed: f64| {
        let clock = clock.as_ref().map(|clock| clock[slot]);
        let ns = 100_000.0 * (noise[slot] - ln_speed - clock.unwrap_or_default()).exp();
        Process { ns: Some(ns), sm_mhz: clock.map(|clock| 1500.0 * clock.exp()), taints: Vec::new() }
    };
    let round = |(index, candidate_first): (usize, bool)| {
        let (candidate, baseline) = if candidate_first { (0, 1) } else { (1, 0) };
        let candidate = process(2 * index + candidate, change.ln_1p());
        Round { candidate, baseline: process(2 * index + baseline, 0.0), candidate_first }
    };
    let mut rounds: Vec<Round> = orders.take(count).enumerate().map(round).collect();
    for round in &mut rounds {
        if random.f64() < world.dropped {
            round.baseline.taints.push(Taint::ForeignProcess);
        }
    }
    rounds
}
