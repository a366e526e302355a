//! Places where a test may end this process, so that what it leaves behind can be looked at. Nothing in a release build.

/// Names the place; behind a `:`, which visit to it is meant (the first, unless said); behind a `=`, the end: `kill` (the
/// default), `panic`, `int`, `term`, `hup`, or `wait`, which makes the file `reached` in the current folder and waits for a
/// signal from elsewhere.
#[cfg(debug_assertions)]
const VARIABLE: &str = "MLARUN_FAILPOINT";

/// Ends this process here where the environment asks for it.
#[cfg(debug_assertions)]
pub fn here(place: &str) {
    use std::sync::atomic::{AtomicU32, Ordering};

    use rustix::process::{Signal, getpid, kill_process};
    static VISITS: AtomicU32 = AtomicU32::new(0);
    let Ok(asked) = std::env::var(VARIABLE) else { return };
    let (visit, end) = asked.split_once('=').unwrap_or((&asked, "kill"));
    let (name, number) = visit.split_once(':').unwrap_or((visit, "1"));
    if name != place || (VISITS.fetch_add(1, Ordering::Relaxed) + 1).to_string() != number {
        return;
    }
    let signal = match end {
        "panic" => panic!("asked for at {place}"),
        "int" => Some(Signal::INT),
        "term" => Some(Signal::TERM),
        "hup" => Some(Signal::HUP),
        "wait" => None,
        _ => Some(Signal::KILL),
    };
    match signal {
        // It cannot fail for this process itself.
        Some(signal) => drop(kill_process(getpid(), signal)),
        None => {
            std::fs::write("reached", "").expect("the test's folder can be written to");
            loop {
                std::thread::park();
            }
        }
    }
}

/// Nothing.
#[cfg(not(debug_assertions))]
pub fn here(_: &str) {}
