//! Ninety nights in many simulated worlds: the table of docs/nightly.md.
//!
//! `cargo bench --bench nights` lives through 40 worlds, `-- 400` through as many.

mod calendar;
mod tally;
mod world;
#[path = "../verdicts/worlds.rs"]
#[allow(dead_code, reason = "only its deviates are used here")]
mod worlds;

use rayon::prelude::*;

use tally::Tally;
use world::LIVES;

fn main() {
    let number = std::env::args().skip(1).find_map(|argument| argument.parse::<u64>().ok());
    let lived: Vec<_> = (0..number.unwrap_or(40)).into_par_iter().map(|seed| calendar::live(seed, 0.1)).collect();
    println!("{}", table(&tally::tally(&lived)));
    let sessions: u32 = lived.iter().map(|lived| lived.sessions).sum();
    let lost: u32 = lived.iter().map(|lived| lived.lost).sum();
    println!("{sessions} sessions in {} worlds, {lost} of them lost to kills and measured again", lived.len());
}

/// The table of docs/nightly.md.
fn table(tallies: &[Tally]) -> String {
    let mut text =
        "| subject | slower | alarmed | median delay in nights | false alarms |\n|---|---|---|---|---|\n".to_owned();
    for (life, tally) in LIVES.iter().zip(tallies) {
        let is_slower = life.story.slower_from().is_some();
        let alarmed = if is_slower { format!("{} of {}", tally.alarmed, tally.worlds) } else { "--".to_owned() };
        let delay = tally.median_delay().map_or("--".to_owned(), |nights| nights.to_string());
        let slower = if is_slower { "yes" } else { "no" };
        text += &format!("| {} | {slower} | {alarmed} | {delay} | {} |\n", life.name, tally.false_alarms);
    }
    text
}
