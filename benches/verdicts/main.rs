//! The error rates of verdicts, simulated: `cargo bench --bench verdicts`, with the number of comparisons a row behind `--`
//! (300,000 unless said). It prints the tables of docs/verdicts.md.

mod series;
mod simplest;
mod trials;
mod worlds;

use std::process::ExitCode;

use mlarun::stats::Proportion;
use mlarun::stats::verdict::Tally;
use rayon::prelude::*;

use series::SERIES;
use simplest::{Simplest, alternating};
use worlds::{Kind, WORLDS, World};

/// Level of the limits of false verdicts, one-sided.
const LEVEL: f64 = 0.95;

fn main() -> ExitCode {
    // Cargo adds `--bench`; what else begins with a dash is for the harness that this is not.
    let word = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let Ok(trials) = word.as_deref().unwrap_or("300000").parse::<u64>() else {
        eprintln!("verdicts: {word:?} is no number of comparisons a row");
        return ExitCode::FAILURE;
    };
    if trials == 0 {
        eprintln!("verdicts: at least one comparison a row is needed");
        return ExitCode::FAILURE;
    }
    println!("Identical code, {trials} comparisons a row:\n");
    println!(
        "| host | FASTER or SLOWER | at most | SAME | rounds | simplest rule: FASTER or SLOWER |\n|---|---|---|---|---|---|"
    );
    print(|world| identical(world, trials));
    println!("\nA candidate that is 1% faster (4% with unlocked clocks), {trials} comparisons a row:\n");
    println!(
        "| host | FASTER | at least | SLOWER | SAME | rounds | simplest rule: SAME |\n|---|---|---|---|---|---|---|"
    );
    print(|world| faster(world, trials));
    let series = trials.div_ceil(10);
    println!("\nSeries of {} nights, {series} a row:\n", series::NIGHTS);
    println!("| series | its level shifts | alarms | at least | at most |\n|---|---|---|---|---|");
    for kind in SERIES {
        let alarms = series::alarms(kind, series);
        let low = alarms.at_least(LEVEL).expect("it is a level");
        let high = alarms.at_most(LEVEL).expect("it is a level");
        let shifts = if kind.has_shift { "yes" } else { "no" };
        println!("| {} | {shifts} | {} | {} | {} |", kind.name, percent(alarms.share()), percent(low), percent(high));
    }
    ExitCode::SUCCESS
}

fn print(row: impl Fn(&World) -> String + Send + Sync) {
    let rows: Vec<String> = WORLDS.par_iter().map(row).collect();
    rows.iter().for_each(|row| println!("{row}"));
}

fn identical(world: &World, trials: u64) -> String {
    let tally = trials::tally(world, 0.0, trials);
    let simplest = simplest_rule(world, 0.0, trials);
    let simplest = simplest.map_or("--".to_owned(), |tally| share(&tally, tally.faster + tally.slower));
    format!(
        "| {} | {} | {} | {} | {} | {} |",
        name(world),
        share(&tally, tally.faster + tally.slower),
        percent(part(&tally, tally.faster + tally.slower).at_most(LEVEL).expect("it is a level")),
        share(&tally, tally.same),
        mean_rounds(&tally),
        simplest,
    )
}

fn faster(world: &World, trials: u64) -> String {
    let change = worlds::change(world);
    let tally = trials::tally(world, change, trials);
    let simplest = simplest_rule(world, change, trials);
    let simplest = simplest.map_or("--".to_owned(), |tally| share(&tally, tally.same));
    format!(
        "| {} | {} | {} | {} | {} | {} | {} |",
        name(world),
        share(&tally, tally.faster),
        percent(part(&tally, tally.faster).at_least(LEVEL).expect("it is a level")),
        share(&tally, tally.slower),
        share(&tally, tally.same),
        mean_rounds(&tally),
        simplest,
    )
}

/// `None` where clocks are unlocked, for which it has no threshold.
fn simplest_rule(world: &World, change: f64, trials: u64) -> Option<Tally> {
    let rule = Simplest::new();
    world.clock.is_none().then(|| trials::tally_by(world, change, trials, alternating, |rounds| rule.judge(rounds)))
}

fn part(tally: &Tally, events: u64) -> Proportion {
    Proportion::new(events, tally.comparisons).expect("there are comparisons, and no more events")
}

fn share(tally: &Tally, events: u64) -> String {
    percent(part(tally, events).share())
}

fn mean_rounds(tally: &Tally) -> String {
    format!("{:.1}", tally.mean_rounds().expect("there are comparisons"))
}

/// Marked where the rule promises nothing.
fn name(world: &World) -> String {
    format!("{}{}", world.name, if world.kind == Kind::InStep { " (beyond the promise)" } else { "" })
}

/// With the digits that rates within 1% of either end need.
fn percent(share: f64) -> String {
    let is_near_an_end = (share > 0.0 && share < 0.01) || (share > 0.99 && share < 1.0);
    let decimals = if is_near_an_end { 4 } else { 2 };
    format!("{:.decimals$}%", share * 100.0)
}
