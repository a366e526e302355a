//! Clocks come back whatever ends a run: at every place where something has changed, and at random times.
//!
//! A run that is killed is followed by the next one, which must find nothing in its way.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use rustix::pty::OpenptFlags;

use crate::fake_gpu::{Lab, SWEEP, wait_until};
use crate::project::Running;

/// Where a run may end, in order, and whether a watcher looks after the clocks there.
const PLACES: [(&str, bool); 8] = [
    ("clocks.noted", false),
    ("clocks.watched", true),
    ("clocks.locked", true),
    ("clocks.verified", true),
    ("session.kept", true),
    ("clocks.releasing", true),
    ("clocks.reset", true),
    ("clocks.cleared", true),
];

const AGAIN: [&str; 2] = [SWEEP, "--remeasure"];

fn unlocked(lab: &Lab, after: &str) {
    lab.is_quiet(after);
    assert_eq!(lab.fake.locked(), (0, 0), "{after}: {:?}", lab.fake.calls());
}

/// The next run finds nothing in its way, and leaves nothing.
#[track_caller]
fn next_one_runs(lab: &Lab, after: &str) {
    lab.mlarun(&[SWEEP, "--no-wait"]).expect(0);
    lab.is_clean(after);
}

#[test]
fn every_place_and_every_end() {
    let lab = Lab::new();
    for (place, is_watched) in PLACES {
        for (end, code) in
            [("kill", None), ("panic", Some(101)), ("int", Some(130)), ("term", Some(130)), ("hup", Some(130))]
        {
            let failpoint = format!("{place}={end}");
            let ended = lab.mlarun_with(&AGAIN, &[("MLARUN_FAILPOINT", &failpoint)]);
            assert_eq!(ended.code, code, "{failpoint}: {}", ended.err);
            unlocked(&lab, &failpoint);
            if is_watched {
                lab.is_clean(&failpoint);
            }
        }
        next_one_runs(&lab, place);
    }
}

#[test]
fn what_no_watcher_could_do_the_next_start_does() {
    let lab = Lab::new();
    for place in ["clocks.locked", "clocks.verified", "session.kept", "clocks.releasing"] {
        let failpoint = format!("{place}=wait");
        let run = lab.start_with(&AGAIN, &[("MLARUN_FAILPOINT", &failpoint)]);
        let (what, place_is_reached) = (format!("{place} is reached"), || lab.project.path("reached").exists());
        wait_until(&what, place_is_reached);
        std::fs::remove_file(lab.project.path("reached")).expect("a file");
        // As a service manager does it: the whole group at once, the watcher first.
        assert_eq!(lab.kill_watchers(), 1, "{place}");
        run.signal(Signal::KILL);
        assert_eq!(run.end().code, None);
        lab.is_quiet(place);
        assert_eq!(lab.fake.locked(), (1500, 0), "{place}: nobody is left who could have reset them");
        match place {
            "clocks.locked" => lab.mlarun(&["clocks", "reset", "--stale"]).expect(0).says("had ended without"),
            _ => lab.mlarun(&[SWEEP]).expect(0).says("had ended without"),
        };
        lab.is_clean(place);
    }
}

#[test]
fn a_watcher_that_is_killed_is_missed_by_nobody() {
    let lab = Lab::new();
    lab.hold();
    let run = lab.start_with(&[SWEEP], &[]);
    lab.wait_for_a_worker();
    assert_eq!(lab.kill_watchers(), 1);
    lab.go_on();
    run.end().expect(0);
    lab.is_clean("a sweep without its watcher");
}

#[test]
fn workers_and_their_runner_are_killed() {
    let lab = Lab::new();
    lab.hold();
    let run = lab.start_with(&[SWEEP], &[]);
    lab.wait_for_a_worker();
    assert_eq!(lab.kill_workers(), 1);
    lab.wait_for_a_worker();
    assert_eq!(lab.fake.locked(), (1500, 0), "it is tried once more, at the same clocks");
    lab.go_on();
    run.end().expect(0).says("retrying");
    lab.is_clean("a worker's end");

    lab.hold();
    let run = lab.start_with(&AGAIN, &[]);
    lab.wait_for_a_worker();
    run.signal(Signal::KILL);
    lab.kill_workers();
    assert_eq!(run.end().code, None);
    lab.is_clean("both ends");
    lab.go_on();
    next_one_runs(&lab, "both ends");
}

#[test]
fn a_second_signal_ends_a_run_at_once() {
    let lab = Lab::new();
    lab.hold();
    let run = lab.start_with(&AGAIN, &[("MLARUN_FAILPOINT", "clocks.releasing=wait")]);
    lab.wait_for_a_worker();
    run.signal(Signal::TERM);
    wait_until("the run ends politely", || lab.project.path("reached").exists());
    run.signal(Signal::TERM);
    run.end().expect(130);
    lab.is_clean("two signals");
}

#[test]
fn a_terminal_closes() {
    let lab = Lab::new();
    lab.hold();
    // Its master is this process's alone, so that the terminal closes with it.
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let terminal = rustix::pty::openpt(flags).expect("a terminal");
    rustix::pty::unlockpt(&terminal).expect("unlocked");
    let name = rustix::pty::ptsname(&terminal, Vec::new()).expect("its name").into_string().expect("UTF-8");
    let side =
        || Stdio::from(OwnedFd::from(std::fs::File::options().read(true).write(true).open(&name).expect("a side")));
    // Nobody reads what it says.
    let program = lab.command(&[SWEEP, "-qq"]);
    // In a session of its own, whose terminal this is.
    let mut command = Command::new("setsid");
    command.arg("--ctty").arg("--wait").arg(program.get_program()).args(program.get_args());
    command.current_dir(lab.project.root()).stdin(side()).stdout(side()).stderr(side());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut run = command.spawn().expect("setsid (util-linux) starts it");
    drop(command);
    lab.wait_for_a_worker();
    assert_eq!(lab.fake.locked(), (1500, 0));
    drop(terminal);
    run.wait().expect("it ends");
    lab.is_clean("its terminal's end");
}

#[test]
fn a_group_is_hung_up_and_killed() {
    for signal in [Signal::HUP, Signal::KILL] {
        let lab = Lab::new();
        lab.hold();
        let mut command = lab.command(&[SWEEP]);
        let mut run = command.process_group(0).stderr(Stdio::null()).spawn().expect("the program starts");
        lab.wait_for_a_worker();
        kill_process_group(Pid::from_child(&run), signal).expect("it is running");
        run.wait().expect("it ends");
        lab.is_clean("its group's end");
    }
}

/// How many times; 200 before a release.
fn kills() -> usize {
    std::env::var("MLARUN_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(50)
}

#[test]
fn at_random_times() {
    let seed = std::env::var("MLARUN_KILL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = fastrand::Rng::with_seed(seed);
    let lab = Lab::new();
    let started = Instant::now();
    lab.mlarun(&AGAIN).expect(0);
    // Kills fall into a whole run, and a little behind it.
    let whole = started.elapsed().mul_f64(1.1);
    let (mut locked, mut left) = (0, 0);
    for kill in 0..kills() {
        let run: Running = lab.start_with(&AGAIN, &[]);
        std::thread::sleep(Duration::from_secs_f64(whole.as_secs_f64() * random.f64()));
        locked += usize::from(lab.fake.locked().0 != 0);
        let how = random.usize(0..6);
        // A run that has ended by itself takes no signal, which is as good.
        let _ = match how {
            0 => run.try_signal(Signal::TERM),
            1 => run.try_signal(Signal::INT),
            2 => run.try_signal(Signal::HUP),
            3 => {
                lab.kill_workers();
                run.try_signal(Signal::KILL)
            }
            4 => {
                lab.kill_watchers();
                run.try_signal(Signal::KILL)
            }
            _ => run.try_signal(Signal::KILL),
        };
        run.end();
        let after = format!("kill {kill} of seed {seed}, of kind {how}");
        lab.is_quiet(&after);
        if how == 4 && lab.fake.locked() != (0, 0) {
            left += 1;
            lab.mlarun(&["clocks", "reset", "--stale"]).expect(0).says("had ended without");
        }
        unlocked(&lab, &after);
    }
    next_one_runs(&lab, "all of them");
    eprintln!("{} kills of seed {seed}: {locked} met locked clocks, {left} of them left to the next start", kills());
    assert!(locked > 0, "no kill has met locked clocks");
}
