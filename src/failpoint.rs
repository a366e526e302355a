//! Places where a test may end this process, so that what it leaves behind can be looked at. Nothing in a release build.

/// Names the place and, behind a `=`, the end: `kill` (the default), `panic`, `int`, `term`, `hup`, or `wait`, which makes
/// the file `reached` in the current folder and waits for a signal from elsewhere.
#[cfg(debug_assertions)]
const VARIABLE: &str = "MLARUN_FAILPOINT";

/// Ends this process here where the environment asks for it.
#[cfg(debug_assertions)]
pub fn here(place: &str) {
    use rustix::process::{Signal, getpid, kill_process};
    let Ok(asked) = std::env::var(VARIABLE) else { return };
    let (name, end) = asked.split_once('=').unwrap_or((&asked, "kill"));
    if name != place {
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
