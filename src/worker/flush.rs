//! Evicts the caches between cold samples by writing a large block of memory from every seat.

use std::sync::Mutex;

use super::team::Team;

const LINE_BYTES: usize = 64;
const LINE_WORDS: usize = LINE_BYTES / 8;

/// Memory that is written to in order to displace everything else.
pub struct Flush {
    words: Vec<u64>,
    turn: u64,
}

impl Flush {
    /// A block of `bytes`, which the system provides when it is first written.
    pub fn new(bytes: u64) -> Flush {
        Flush { words: vec![0; (bytes / 8) as usize], turn: 0 }
    }

    /// Writes the block: every seat its share, so that the private caches of all cores in use are displaced as well as
    /// the shared one. Afterwards the caches hold modified lines of this block, and a kernel's first misses pay for
    /// writing them back.
    pub fn evict(&mut self, team: &mut Team) {
        self.turn = self.turn.wrapping_add(1);
        let lines = self.words.len().div_ceil(LINE_WORDS);
        let share = lines.div_ceil(team.seats()).max(1) * LINE_WORDS;
        let turn = self.turn;
        let shares: Vec<Mutex<&mut [u64]>> = self.words.chunks_mut(share).map(Mutex::new).collect();
        team.run(&|seat| {
            let Some(share) = shares.get(seat) else { return };
            let mut share = share.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            share.iter_mut().step_by(LINE_WORDS).for_each(|word| *word = turn);
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
                    assert!(flush.words.chunks(LINE_WORDS).all(|line| line[0] == turn));
                }
            }
        })
        .join()
        .expect("it does not panic");
    }
}
