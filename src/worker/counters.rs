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

/// Counters of one seat, each with its name; refused ones with the reason.
#[derive(Default)]
struct Seat(Vec<(&'static str, std::io::Result<Counter>)>);

impl Seat {
    /// Opens what the system gives for the calling thread.
    fn open() -> Seat {
        let hardware = HARDWARE.map(|(name, event)| (name, Builder::new(event).observe_self().any_cpu().build()));
        let counted_by_system = |event: Software| Builder::new(event).observe_self().any_cpu().include_kernel().build();
        let software = SOFTWARE.map(|(name, event)| (name, counted_by_system(event)));
        Seat(hardware.into_iter().chain(software).collect())
    }

    fn set_running(&mut self, running: bool) {
        for (_, counter) in &mut self.0 {
            let Ok(open) = counter else { continue };
            let switched = if running { open.enable() } else { open.disable() };
            if let Err(error) = switched {
                *counter = Err(error);
            }
        }
    }
}

/// Count so far. Where more counters are open than the processor has, each runs a part of the time and is scaled.
fn read(counter: std::io::Result<Counter>) -> std::io::Result<f64> {
    let read = counter?.read_count_and_time()?;
    match (read.time_enabled, read.time_running) {
        (0, _) => Ok(0.0),
        (_, 0) => Err(std::io::Error::other("the counter was open but the processor never ran it")),
        (enabled, running) => Ok(read.count as f64 * enabled as f64 / running as f64),
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

    /// Sums over the seats, divided by the number of launches counted. A counter that any seat lacks is left out; when
    /// that leaves no hardware counter, the reason takes the place of all.
    pub fn finish(self, launches: u32) -> Counters {
        let mut sums: BTreeMap<&str, std::io::Result<f64>> = BTreeMap::new();
        for seat in self.seats {
            let Seat(counters) = seat.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
            for (name, counter) in counters {
                let sum = sums.entry(name).or_insert(Ok(0.0));
                match (sum.as_mut(), read(counter)) {
                    (Ok(sum), Ok(count)) => *sum += count / f64::from(launches),
                    (Ok(_), Err(error)) => *sum = Err(error),
                    (Err(_), _) => {}
                }
            }
        }
        let missing = HARDWARE.iter().filter_map(|(name, _)| sums.get(name)?.as_ref().err()).collect::<Vec<_>>();
        match missing[..] {
            [first, ..] if missing.len() == HARDWARE.len() => Counters::Absent { reason: reason(first) },
            _ => Counters::Counted(
                sums.into_iter().filter_map(|(name, sum)| Some((name.to_owned(), sum.ok()?))).collect(),
            ),
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
