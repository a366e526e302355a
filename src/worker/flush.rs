//! Evicts the caches between cold samples by writing a large block of memory from every seat.

use std::sync::atomic::{AtomicU64, Ordering};

use super::team::Team;

const LINE_BYTES: usize = 64;
const LINE_WORDS: usize = LINE_BYTES / 8;

/// Memory that is written to in order to displace everything else.
pub struct Flush {
    words: Vec<AtomicU64>,
    turn: u64,
}

impl Flush {
    /// A block of `bytes`.
    pub fn new(bytes: u64) -> Flush {
        let words = (bytes / 8) as usize;
        Flush { words: (0..words).map(|_| AtomicU64::new(0)).collect(), turn: 0 }
    }

    /// Writes the block: every seat its share, so that the private caches of all cores in use are displaced as well as
    /// the shared one. Afterwards the caches hold modified lines of this block, and a kernel's first misses pay for
    /// writing them back.
    pub fn evict(&mut self, team: &mut Team) {
        self.turn = self.turn.wrapping_add(1);
        let lines = self.words.len().div_ceil(LINE_WORDS);
        let share = lines.div_ceil(team.seats()).max(1) * LINE_WORDS;
        let (words, turn) = (&self.words, self.turn);
        team.run(&|seat| {
            let own = words.chunks(share).nth(seat).unwrap_or_default();
            own.iter().step_by(LINE_WORDS).for_each(|word| word.store(turn, Ordering::Relaxed));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_written_each_time() {
        std::thread::spawn(|| {
            let allowed = rustix::thread::sched_getaffinity(None).expect("the affinity is known");
            let core = (0..1024).find(|&core| allowed.is_set(core)).expect("a core") as u32;
            let mut team = Team::new(&[core, core, core]).expect("a team");
            for bytes in [0, 8, 64, 1000, 64 * 100] {
                let mut flush = Flush::new(bytes);
                for turn in 1..4 {
                    flush.evict(&mut team);
                    assert!(flush.words.chunks(LINE_WORDS).all(|line| line[0].load(Ordering::Relaxed) == turn));
                }
            }
        })
        .join()
        .expect("it does not panic");
    }
}
