//! A team of pinned threads that run one closure at a time, each on its own seat. The calling thread has seat 0.
//!
//! Seats spin for a moment after a round and then sleep, so that they disturb neither other work nor each other.
//! [`Team::arm`] wakes all of them and keeps them spinning until the next round starts: what is timed then holds no
//! waking of threads. Knows nothing of stages and buffers.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use rustix::thread::{CpuSet, futex, sched_setaffinity};

/// Turns of a waiting loop before a thread sleeps; a few ten microseconds.
const SPIN_TURNS: u32 = 4096;
/// An armed seat gives way to other threads of its core once in this many turns.
const YIELD_EVERY: u32 = 1024;

/// A number that only grows (modulo 2³²) and that threads can wait for. Alone on its cache lines.
#[repr(align(128))]
#[derive(Default)]
pub struct Gate {
    word: AtomicU32,
    sleepers: AtomicU32,
}

impl Gate {
    /// Sets the number and wakes who waits for it. What happened before is visible to them.
    pub fn open(&self, value: u32) {
        // Sequentially consistent together with `wait_until`: either the sleeper sees the new word, or its count is
        // seen here.
        self.word.store(value, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            let _ = futex::wake(&self.word, futex::Flags::PRIVATE, i32::MAX as u32);
        }
    }

    /// Waits until `ready` holds for the number, and returns it.
    pub fn wait_until(&self, ready: impl Fn(u32) -> bool) -> u32 {
        for _ in 0..SPIN_TURNS {
            let value = self.word.load(Ordering::Acquire);
            if ready(value) {
                return value;
            }
            std::hint::spin_loop();
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let value = loop {
            let value = self.word.load(Ordering::SeqCst);
            if ready(value) {
                break value;
            }
            // Returns at once when the word has changed; a wake-up without cause only repeats the loop.
            let _ = futex::wait(&self.word, futex::Flags::PRIVATE, value, None);
        };
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        value
    }

    /// Waits without sleeping until `ready` holds.
    fn spin_until(&self, ready: impl Fn(u32) -> bool) -> u32 {
        for turn in 1u32.. {
            let value = self.word.load(Ordering::Acquire);
            if ready(value) {
                return value;
            }
            std::hint::spin_loop();
            if turn % YIELD_EVERY == 0 {
                std::thread::yield_now();
            }
        }
        unreachable!("the loop has no end")
    }
}

/// What a round runs: called once a seat with its number.
type Work<'w> = dyn Fn(usize) + Sync + 'w;

#[derive(Default)]
struct Shared {
    /// Even: the number of rounds started, doubled. Odd: armed for the round of the next even number.
    bell: Gate,
    /// Seats (without seat 0) that have still to become ready, or to end their part of the round.
    missing: AtomicU32,
    /// The bell's value for which nothing is missing any more.
    complete: Gate,
    /// What the round runs; none ends the seats.
    work: UnsafeCell<Option<&'static Work<'static>>>,
}

// SAFETY: `work` is written by seat 0 alone, while every other seat waits for the bell, and read by the others between
// the bell and their count in `missing`; both order the accesses.
unsafe impl Sync for Shared {}
// SAFETY: as above; the reference inside points to something that is Sync.
unsafe impl Send for Shared {}

impl Shared {
    /// Seat 0's view: no other seat is missing for `bell`.
    fn wait_complete(&self, bell: u32) {
        self.complete.wait_until(|value| value == bell);
    }

    fn count_down(&self, bell: u32) {
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.complete.open(bell);
        }
    }
}

/// Threads pinned to cores. Dropping it ends them.
pub struct Team {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    bell: u32,
}

/// A thread could not be started or pinned.
#[derive(Debug, thiserror::Error)]
#[error("seat {seat} of the thread team: {reason}")]
pub struct TeamError {
    seat: usize,
    reason: std::io::Error,
}

impl Team {
    /// One seat for each entry of `cores`, pinned to that core; the calling thread is pinned to the first.
    ///
    /// # Errors
    /// The system refuses a thread or a core.
    pub fn new(cores: &[u32]) -> Result<Team, TeamError> {
        let error = |seat, reason| TeamError { seat, reason };
        if let Some(&core) = cores.first() {
            pin(core).map_err(|reason| error(0, reason))?;
        }
        let mut team = Team { shared: Arc::default(), threads: Vec::new(), bell: 0 };
        for (seat, &core) in cores.iter().enumerate().skip(1) {
            let (report, pinned) = std::sync::mpsc::sync_channel(1);
            let shared = Arc::clone(&team.shared);
            let thread = std::thread::Builder::new().name(format!("seat {seat}")).spawn(move || {
                let outcome = pin(core);
                let good = outcome.is_ok();
                let _ = report.send(outcome);
                if good {
                    attend(&shared, seat);
                }
            });
            let thread = thread.map_err(|reason| error(seat, reason))?;
            let outcome = pinned.recv().unwrap_or_else(|_| Err(std::io::Error::other("the thread ended")));
            outcome.map_err(|reason| error(seat, reason))?;
            team.threads.push(thread);
        }
        Ok(team)
    }

    /// Number of seats.
    pub fn seats(&self) -> usize {
        self.threads.len() + 1
    }

    /// Wakes every seat and returns when all of them spin, waiting for the next round.
    pub fn arm(&mut self) {
        if !self.threads.is_empty() && self.bell.is_multiple_of(2) {
            self.ring();
            self.shared.wait_complete(self.bell);
        }
    }

    /// Calls `work` once on every seat, with its number, and returns when all calls have. A panic aborts the process.
    pub fn run(&mut self, work: &Work<'_>) {
        if self.threads.is_empty() {
            return work(0);
        }
        let abort = AbortOnUnwind;
        // SAFETY: the reference is used by this round alone, and this function returns only when every seat has ended
        // its part (an unwinding one aborts), so that `work` outlives every use.
        let work_for_all = unsafe { std::mem::transmute::<&Work<'_>, &'static Work<'static>>(work) };
        // SAFETY: every other seat waits for the bell.
        unsafe { *self.shared.work.get() = Some(work_for_all) };
        self.ring_for_round();
        work(0);
        self.shared.wait_complete(self.bell);
        std::mem::forget(abort);
    }

    fn ring_for_round(&mut self) {
        let armed = self.bell % 2 == 1;
        self.bell = self.bell.wrapping_add(u32::from(!armed));
        self.ring();
    }

    fn ring(&mut self) {
        self.bell = self.bell.wrapping_add(1);
        self.shared.missing.store(self.threads.len() as u32, Ordering::Release);
        self.shared.bell.open(self.bell);
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        // SAFETY: every other seat waits for the bell.
        unsafe { *self.shared.work.get() = None };
        self.ring_for_round();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Life of a seat other than 0.
fn attend(shared: &Shared, seat: usize) {
    let mut seen = 0;
    loop {
        let mut bell = shared.bell.wait_until(|value| value != seen);
        if bell % 2 == 1 {
            shared.count_down(bell);
            bell = shared.bell.spin_until(|value| value != bell);
        }
        seen = bell;
        // SAFETY: seat 0 wrote the work before it rang, and writes again only when nobody is missing.
        let Some(work) = (unsafe { *shared.work.get() }) else { return };
        let abort = AbortOnUnwind;
        work(seat);
        std::mem::forget(abort);
        shared.count_down(bell);
    }
}

fn pin(core: u32) -> Result<(), std::io::Error> {
    let mut cores = CpuSet::new();
    let core = core as usize;
    if core >= CpuSet::MAX_CPU {
        return Err(std::io::Error::other(format!("core {core} is beyond the {} that can be named", CpuSet::MAX_CPU)));
    }
    cores.set(core);
    let refused = |error| std::io::Error::other(format!("it cannot be pinned to core {core}: {error}"));
    sched_setaffinity(None, &cores).map_err(refused)
}

/// Other seats may still use what an unwinding one would free: end the process instead.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        eprintln!("a seat of the thread team panicked; the process ends");
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// Seats on the cores that the test may use, whatever they are; more seats than cores on purpose.
    fn team(seats: usize) -> Team {
        let allowed = rustix::thread::sched_getaffinity(None).expect("the affinity is known");
        let cores: Vec<u32> =
            (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).map(|core| core as u32).collect();
        Team::new(&(0..seats).map(|seat| cores[seat % cores.len()]).collect::<Vec<_>>()).expect("a team")
    }

    /// Runs `body` on a thread of its own, as a team pins the thread that makes it.
    fn apart(body: impl FnOnce() + Send + 'static) {
        std::thread::spawn(body).join().expect("the body does not panic");
    }

    #[test]
    fn every_seat_runs_every_round_once_armed_or_not() {
        apart(|| {
            for seats in 1..=5 {
                let mut team = team(seats);
                assert_eq!(team.seats(), seats);
                let counts: Vec<AtomicU64> = (0..seats).map(|_| AtomicU64::new(0)).collect();
                for round in 0..300 {
                    if round % 3 == 0 {
                        team.arm();
                    }
                    if round % 6 == 0 {
                        team.arm();
                    }
                    team.run(&|seat| {
                        counts[seat].fetch_add(1, Ordering::Relaxed);
                    });
                    assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == round + 1));
                }
            }
        });
    }

    #[test]
    fn what_a_round_reads_may_end_with_it() {
        apart(|| {
            let mut team = team(3);
            for round in 0..100u64 {
                let local = [round; 3];
                let sum = AtomicU64::new(0);
                team.run(&|seat| {
                    sum.fetch_add(local[seat], Ordering::Relaxed);
                });
                assert_eq!(sum.into_inner(), 3 * round);
            }
        });
    }

    #[test]
    fn an_armed_team_can_be_dropped() {
        apart(|| {
            let mut team = team(3);
            team.arm();
        });
    }

    #[test]
    fn a_core_that_does_not_exist_is_an_error() {
        apart(|| {
            let error = Team::new(&[1023]).err().expect("no host of ours has core 1023").to_string();
            assert!(error.contains("core 1023"), "{error}");
            assert!(Team::new(&[5000]).is_err());
        });
    }
}
