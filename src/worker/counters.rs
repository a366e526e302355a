//! Hardware counters of the threads that run a stage, through the system's perf events.
//!
//! Every seat opens counters for its own thread and lets them run only while it does its part of a launch. Counts are
//! of user code (the only one that an unprivileged process may count), except for page faults and context switches,
//! which the system counts itself.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Mutex;

use perf_event::events::{Hardware, Software};
use perf_event::{Builder, Counter};

use super::team::Team;
use crate::model::protocol::Counters;

/// Counted by the processor, by the name that perf gives the event.
const HARDWARE: [(&str, Hardware); 4] = [
    ("cycles", Hardware::CPU_CYCLES),
    ("instructions", Hardware::INSTRUCTIONS),
    ("cache-references", Hardware::CACHE_REFERENCES),
    ("cache-misses", Hardware::CACHE_MISSES),
];
/// Counted by the system.
const SOFTWARE: [(&str, Software); 2] =
    [("page-faults", Software::PAGE_FAULTS), ("context-switches", Software::CONTEXT_SWITCHES)];

/// Counters of one seat, with the first reason for which a hardware counter was refused.
#[derive(Default)]
struct Seat {
    counters: Vec<(&'static str, Counter)>,
    refused: Option<std::io::Error>,
}

impl Seat {
    /// Opens what the system gives for the calling thread.
    fn open() -> Seat {
        let mut seat = Seat::default();
        for (name, event) in HARDWARE {
            match Builder::new(event).observe_self().any_cpu().build() {
                Ok(counter) => seat.counters.push((name, counter)),
                Err(error) => {
                    seat.refused.get_or_insert(error);
                }
            }
        }
        for (name, event) in SOFTWARE {
            if let Ok(counter) = Builder::new(event).observe_self().any_cpu().include_kernel().build() {
                seat.counters.push((name, counter));
            }
        }
        seat
    }

    fn set_running(&mut self, running: bool) {
        for (_, counter) in &mut self.counters {
            // Neither can fail on a counter that was opened; a count that stands still would show as 0 for work done.
            let _ = if running { counter.enable() } else { counter.disable() };
        }
    }
}

/// Counters of every seat of a team.
pub struct Counting {
    seats: Vec<Mutex<Seat>>,
}

impl Counting {
    /// Opens counters on every seat, stopped.
    pub fn open(team: &mut Team) -> Counting {
        let seats: Vec<Mutex<Seat>> = (0..team.seats()).map(|_| Mutex::default()).collect();
        team.run(&|seat| *lock(&seats[seat]) = Seat::open());
        Counting { seats }
    }

    /// Runs `part` on the calling seat with its counters running.
    pub fn around(&self, seat: usize, part: &dyn Fn()) {
        let mut counters = lock(&self.seats[seat]);
        counters.set_running(true);
        part();
        counters.set_running(false);
    }

    /// Sums over the seats, divided by the number of launches counted.
    pub fn finish(self, launches: u32) -> Counters {
        let mut sums: BTreeMap<String, f64> = BTreeMap::new();
        let mut refused = None;
        for seat in self.seats {
            let mut seat = seat.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
            for (name, counter) in &mut seat.counters {
                match counter.read() {
                    Ok(count) => *sums.entry((*name).to_owned()).or_default() += count as f64 / f64::from(launches),
                    Err(error) => {
                        refused.get_or_insert(error);
                    }
                }
            }
            refused = refused.or(seat.refused);
        }
        let counted = HARDWARE.iter().any(|(name, _)| sums.contains_key(*name));
        match refused {
            Some(error) if !counted => Counters::Absent { reason: reason(&error) },
            _ => Counters::Counted(sums),
        }
    }
}

fn lock(seat: &Mutex<Seat>) -> std::sync::MutexGuard<'_, Seat> {
    seat.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Why the host gives no hardware counter, and what would change that.
fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            let path = "/proc/sys/kernel/perf_event_paranoid";
            let level = std::fs::read_to_string(path).map_or("unknown".to_owned(), |text| text.trim().to_owned());
            format!(
                "the system refuses hardware counters (perf_event_paranoid is {level}); set it to 2 or less, \
                 `sysctl kernel.perf_event_paranoid=2`, and allow perf_event_open in the container"
            )
        }
        ErrorKind::NotFound | ErrorKind::Unsupported => format!(
            "this host offers no hardware counters ({error}), as is usual in a virtual machine; run on the bare \
             machine, or give the virtual one a performance-monitoring unit"
        ),
        _ => format!("hardware counters cannot be opened: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_counted_or_absent_with_a_reason() {
        std::thread::spawn(|| {
            let allowed = rustix::thread::sched_getaffinity(None).expect("the affinity is known");
            let core = (0..1024).find(|&core| allowed.is_set(core)).expect("a core") as u32;
            let mut team = Team::new(&[core, core]).expect("a team");
            let counting = Counting::open(&mut team);
            team.run(&|seat| {
                counting.around(seat, &|| {
                    std::hint::black_box((0..10_000u64).fold(0, |sum, value| std::hint::black_box(sum + value)));
                });
            });
            match counting.finish(1) {
                Counters::Counted(counts) => assert!(counts["instructions"] > 20_000.0, "{counts:?}"),
                Counters::Absent { reason } => assert!(reason.contains("counters"), "{reason}"),
            }
        })
        .join()
        .expect("it does not panic");
    }

    #[test]
    fn a_refusal_names_the_remedy() {
        let refused = |kind: ErrorKind| reason(&std::io::Error::from(kind));
        assert!(refused(ErrorKind::PermissionDenied).contains("perf_event_paranoid"));
        assert!(refused(ErrorKind::NotFound).contains("virtual machine"));
    }
}
