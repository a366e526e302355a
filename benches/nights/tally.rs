//! What was alarmed of what happened, counted over several worlds.

use super::calendar::{Lived, Told};
use super::world::LIVES;

/// One life over all worlds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    pub worlds: u32,
    /// Worlds in which its slowdown was alarmed.
    pub alarmed: u32,
    /// Nights from the slowdown to its alarm, one a world in which there was one.
    pub delays: Vec<u32>,
    /// Alarms while it was not slower than the pinned build.
    pub false_alarms: u32,
}

impl Tally {
    pub fn median_delay(&self) -> Option<u32> {
        let mut delays = self.delays.clone();
        delays.sort_unstable();
        delays.get(delays.len().saturating_sub(1) / 2).copied()
    }
}

/// A tally a life, in the order of [`LIVES`].
pub fn tally(lived: &[Lived]) -> Vec<Tally> {
    let of_life = |index: usize| {
        let story = LIVES[index].story;
        let mut tally = Tally { worlds: lived.len() as u32, ..Tally::default() };
        for told in lived.iter().map(|lived| lived.told.iter().filter(move |told| told.life == index)) {
            let told: Vec<&Told> = told.collect();
            // The night before counts as well: a kernel taken back tonight was slower when it was suspected.
            let is_true = |told: &&&Told| {
                story.ln_slower(told.night) > 0.0 || story.ln_slower(told.night.saturating_sub(1)) > 0.0
            };
            tally.false_alarms += told.iter().filter(|told| !is_true(told)).count() as u32;
            if let Some((first, from)) = told.iter().find(is_true).zip(story.slower_from()) {
                tally.alarmed += 1;
                tally.delays.push(first.night - from);
            }
        }
        tally
    };
    (0..LIVES.len()).map(of_life).collect()
}
