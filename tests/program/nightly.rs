//! `mlarun nightly`: alarms and whom they reach, kills, interruptions. Workers are a test of this file, which answers as real ones
//! would, with times that the kernel's source asks for: a host's noise decides nothing here.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Signal, set_parent_process_death_signal};
use serde_json::Value as Json;

use mlarun::model::protocol::{Line, PROTOCOL, Request, Samples, Task, Verification};

use crate::project::{Ended, MANIFEST, Project, ended, package};

/// What a source says that takes longer than others by so many hundredths.
const SLOWER: &str = "slower=";

/// A project whose kernels take the time that their sources say.
struct Lab(Project);

impl Lab {
    fn new() -> Lab {
        let project = Project::new();
        let this = std::env::current_exe().expect("this program");
        let program = assert_cmd::cargo::cargo_bin!("mlarun");
        // What the harness prints is no line of the protocol.
        let script = format!(
            "#!/bin/sh\nexport LAB_ROOT={}\n[ $1 = __worker ] || exec {} \"$@\"\nexec 3>&1 >/dev/null\n\
             exec {} --exact nightly::worker --ignored --nocapture\n",
            project.root().display(),
            program.display(),
            this.display()
        );
        project.write("worker", &script);
        fs::set_permissions(project.path("worker"), fs::Permissions::from_mode(0o755)).expect("an executable");
        Lab(project)
    }

    /// With a kernel that has been pinned, and made slower by so many hundredths since.
    fn slower(by: u32) -> Lab {
        let lab = Lab::new();
        lab.mlarun(&["pin"]).expect(0);
        lab.make_slower(by);
        lab
    }

    fn make_slower(&self, by: u32) {
        let line = format!("\n{{\n    volatile int64_t seen = row * {by};\n    (void)seen;\n");
        self.0.edit(&source(), "\n{\n", &line);
        self.0.edit(&source(), "#include", &format!("const char copy_speed[] = \"{SLOWER}{by};\";\n#include"));
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.0.command(arguments);
        command.env("MLARUN_TEST_WORKER", self.0.path("worker")).env("MLARUN_DEVICE", "cpu");
        command
    }

    fn mlarun(&self, arguments: &[&str]) -> Ended {
        ended(&mut self.command(arguments))
    }

    /// A night with both hooks, whose report lies in night/.
    fn night(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(&["nightly", MANIFEST, "--report", "night"]);
        command.args(["--alarm-hook", "cat >> alarms.json; echo \"$MLARUN_ALARMS $MLARUN_REPORT\" >> told"]);
        command.args(["--alive-hook", "echo $MLARUN_EVENT $MLARUN_EXIT >> alive"]).args(arguments);
        command
    }

    fn alive(&self) -> Vec<String> {
        self.0.read("alive").lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// Alarms that the operator was told of.
    fn told(&self) -> usize {
        if self.0.path("told").exists() { self.0.read("told").lines().count() } else { 0 }
    }

    fn report(&self) -> Json {
        serde_json::from_str(&self.0.read("night/report.json")).expect("JSON")
    }

    fn state(&self) -> Json {
        serde_json::from_str(&self.0.read("out/nightly/state.json")).expect("JSON")
    }
}

fn source() -> String {
    format!("{}/copy.c", package("copy", 0))
}

/// Words of the verdicts of a report's only subject.
fn verdicts(report: &Json) -> Vec<&str> {
    let sessions = report["rows"][0]["sessions"].as_array().expect("sessions");
    let word =
        |session: &Json| session["verdict"]["verdict"].as_str().or(session["outcome"].as_str()).map(str::to_owned);
    sessions.iter().map(|session| word(session).expect("a word")).map(|word| -> &str { word.leak() }).collect()
}

#[test]
fn two_sessions_alarm_once_and_the_old_code_ends_it() {
    let lab = Lab::slower(5);
    let first = ended(&mut lab.night(&["--fail-on-regression"])).expect(6).says("1 alarm");
    assert_eq!(verdicts(&lab.report()), ["slower", "slower"], "{}", first.err);
    let alarms: Json = serde_json::from_str(&lab.0.read("alarms.json")).expect("JSON");
    assert_eq!(alarms.as_array().map(Vec::len), Some(1));
    let change = alarms[0]["change"].as_f64().expect("a number");
    assert!((-0.05..-0.045).contains(&change), "5% more time is 4.8% less speed: {change}");
    assert!(lab.0.read("told").ends_with("night/report.md\n") && lab.0.read("told").starts_with("1 "));
    assert!(lab.0.read("night/report.md").contains("| ALARM |"));
    assert!(lab.0.read("night/report.xml").contains("failures=\"1\""));
    assert_eq!(lab.alive(), ["begun", "ended 6"]);

    let history: Json = serde_json::from_str(&lab.mlarun(&["history", "copy", "--json"]).expect(0).out).expect("JSON");
    let points = history["series"][0]["points"].as_array().expect("points");
    assert_eq!(points.len(), 2, "a session is a point, and the pinned build is none");
    assert_eq!(history["series"][0]["marks"].as_array().map(Vec::len), Some(0));

    ended(&mut lab.night(&[])).expect(0).says("1 alarm");
    assert_eq!((verdicts(&lab.report()).len(), lab.told()), (1, 1), "it stands, and nobody is told again");

    lab.0.edit(&source(), &format!("const char copy_speed[] = \"{SLOWER}5;\";\n"), "");
    lab.0.edit(&source(), "    volatile int64_t seen = row * 5;\n    (void)seen;\n", "");
    ended(&mut lab.night(&["--fail-on-regression"])).expect(0).says("no alarm");
    assert_eq!(verdicts(&lab.report()), ["same_code"]);
    assert!(lab.0.read("night/report.md").contains("the alarm is over: the same code again"));
}

#[test]
fn what_is_as_fast_as_before_is_the_same_and_what_is_the_same_is_not_run() {
    let lab = Lab::slower(0);
    ended(&mut lab.night(&["--fail-on-regression", "--devlog"])).expect(0).says("no alarm");
    assert_eq!(verdicts(&lab.report()), ["same"]);
    assert!(lab.0.path("out/experiments/rows/report.md").exists(), "--devlog writes reports too");
    let state = lab.state();
    assert_eq!((&state["tonight"], state["past"].as_array().map(Vec::len)), (&Json::Null, Some(1)));
    // By itself, a night leaves its report with the results.
    let alone = lab.command(&["nightly", MANIFEST]).output().expect("it runs");
    assert!(alone.status.success());
    let nights =
        fs::read_dir(lab.0.path("out/nightly")).expect("a folder").map(|entry| entry.expect("an entry").path());
    let reports = nights.filter(|path| path.is_dir()).flat_map(|path| fs::read_dir(path).expect("a folder"));
    assert_eq!(reports.count(), 3, "Markdown, JSON and JUnit XML");
}

#[test]
fn a_hook_that_fails_is_tried_again_the_next_night() {
    let lab = Lab::slower(5);
    let failing = &["--alarm-hook", "exit 7"];
    let mut night = lab.command(&["nightly", MANIFEST]);
    ended(night.args(failing)).expect(4).says("`exit 7`").says("the next night tries again");
    assert_eq!(lab.state()["untold"].as_array().map(Vec::len), Some(1));
    ended(&mut lab.night(&[])).expect(0);
    assert_eq!((lab.told(), lab.state()["untold"].as_array().map(Vec::len)), (1, Some(0)));
}

#[test]
fn a_kill_at_any_place_loses_no_alarm() {
    for place in [
        "nightly.kept:2",
        "session.kept:5",
        "nightly.measured",
        "nightly.keeping:3",
        "nightly.reported",
        "nightly.told",
    ] {
        let lab = Lab::slower(5);
        let killed = ended(lab.night(&[]).env("MLARUN_FAILPOINT", place));
        assert_eq!(killed.code, None, "{place}: {}", killed.err);
        ended(&mut lab.night(&["--fail-on-regression"])).expect(6);
        let report = lab.report();
        assert_eq!(verdicts(&report), ["slower", "slower"], "{place}");
        assert!((1..=2).contains(&lab.told()), "{place}: told {} times", lab.told());
        let notes = report["notes"].as_array().expect("notes");
        let went_on =
            notes.iter().any(|note| note.as_str().is_some_and(|note| note.starts_with("the run ended early")));
        assert!(went_on, "{place}: {notes:?}");
        let first = report["rows"][0]["sessions"][0]["why"]["why"].as_str();
        let under_way = ["nightly.kept:2", "session.kept:5", "nightly.measured", "nightly.keeping:3"].contains(&place);
        assert_eq!(first, Some(if under_way { "interrupted" } else { "never" }), "{place}");
    }
}

#[test]
fn an_interrupted_night_goes_on_where_it_stood() {
    let lab = Lab::slower(5);
    // After the first session.
    let stopped = ended(lab.night(&[]).env("MLARUN_FAILPOINT", "nightly.kept:3=term"));
    let stopped = stopped.expect(130).says("the same command goes on from here");
    assert_eq!(verdicts(&lab.report()).len(), 1, "{}", stopped.err);
    assert_eq!(lab.told(), 0, "one session is no alarm");
    let night = lab.report()["night"].clone();
    ended(&mut lab.night(&["--fail-on-regression"])).expect(6);
    assert_eq!((lab.report()["night"].clone(), verdicts(&lab.report()).len(), lab.told()), (night, 2, 1));
}

#[test]
fn what_cannot_be_compared_is_said() {
    let lab = Lab::new();
    lab.mlarun(&["nightly", MANIFEST]).expect(2).says("`mlarun pin reference` makes one");
    lab.mlarun(&["nightly", MANIFEST, "--budget", "3"]).expect(2).says("3h or 90m");
    lab.mlarun(&["nightly", "experiments/none.toml"]).expect(2).says("there is no such manifest");
    lab.mlarun(&["pin"]).expect(0);
    lab.0.kernel("other", 0);
    lab.0.edit(MANIFEST, "[\"copy\"]", "[\"copy\", \"other\"]");
    ended(&mut lab.night(&[])).expect(0);
    let notes = lab.report()["notes"].to_string();
    assert!(notes.contains("not in the pinned build: other v0 (c)"), "{notes}");
    lab.0.edit(MANIFEST, "[\"copy\", \"other\"]", "[\"other\"]");
    lab.mlarun(&["nightly", MANIFEST]).expect(2).says("nothing to measure").says("other v0 (c)");
    let pinned = lab.0.files("out/pins").into_iter().find(|file| file.ends_with("copy.c")).expect("a pinned source");
    fs::write(lab.0.path("out/pins").join(pinned), "changed").expect("written");
    lab.mlarun(&["nightly", MANIFEST]).expect(3).says("is not what was pinned");
}

#[test]
fn a_kernel_that_does_not_compile_fails_alone() {
    let lab = Lab::slower(0);
    lab.0.edit(&source(), "volatile", "volatile nonsense");
    ended(&mut lab.night(&["--fail-on-regression"])).expect(4);
    assert_eq!(verdicts(&lab.report()), ["failed"]);
    assert!(lab.0.read("night/report.xml").contains("errors=\"1\""));
    assert_eq!(lab.alive(), ["begun", "ended 4"]);
}

#[test]
fn examples_of_services_use_options_that_exist() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let help = Project::new().mlarun(&["nightly", "--help"]).expect(0).out;
    for file in ["contrib/systemd/mlarun-nightly.service", "docs/ci/nightly.yml", "docs/nightly.md"] {
        let text = fs::read_to_string(root.join(file)).expect("a file");
        let start = text.find(" nightly experiments/").unwrap_or_else(|| panic!("{file}: no night"));
        let call =
            text[start..].split("\n\n").next().expect("a paragraph").split("ExecStopPost").next().expect("a call");
        let options: Vec<&str> = call.split_whitespace().filter(|word| word.starts_with("--")).collect();
        assert!(options.len() >= 3, "{file}: {options:?}");
        for option in options {
            assert!(help.contains(option), "{file}: {option}");
        }
    }
}

#[test]
#[ignore = "is the worker of other tests"]
fn worker() {
    set_parent_process_death_signal(Some(Signal::KILL)).expect("it ends with its parent");
    let mut answer = File::options().append(true).open("/proc/self/fd/3").expect("started by a script of this file");
    let mut line = |line: Line| {
        let text = serde_json::to_string(&line).expect("JSON");
        writeln!(answer, "{text}").expect("someone listens");
    };
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).expect("a request");
    let request: Request = serde_json::from_str(&text).expect("a request");
    line(Line::Hello { protocol: PROTOCOL, pid: std::process::id() });
    let verified = Line::Verified(Verification {
        same_bits: None,
        relative_frobenius: 0.0,
        worst_row: 0.0,
        worst_row_index: 0,
        rows_compared: 8,
        rows_total: 8,
        output_sha256: "0".repeat(64),
    });
    match request.task {
        Task::Verify { .. } => line(verified),
        Task::Event { launchable, protocol, .. } => {
            line(Line::WarmedUp { launches: 1, ns: 1, steady: true });
            let ns = 1e5 * (1.0 + hundredths(&launchable.modules) / 100.0) * noise();
            for timing in protocol.timings {
                line(Line::Samples(Samples { timing, ns: vec![ns; 6], launches_per_sample: 1, converged: true }));
            }
            line(verified);
        }
        other => panic!("these projects ask for no {other:?}"),
    }
    line(Line::Done);
}

/// What the kernel's source asks for.
fn hundredths(modules: &[PathBuf]) -> f64 {
    let bytes = fs::read(&modules[0]).expect("a module");
    let text = String::from_utf8_lossy(&bytes);
    let number = text.split_once(SLOWER).and_then(|(_, rest)| rest.split_once(';')?.0.parse().ok());
    number.unwrap_or(0.0)
}

/// A process differs from the next by a thousandth, in a fixed sequence.
fn noise() -> f64 {
    let root = PathBuf::from(std::env::var_os("LAB_ROOT").expect("set by the script"));
    let file = root.join("processes");
    let number: u64 = fs::read_to_string(&file).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    fs::write(file, (number + 1).to_string()).expect("written");
    1.0 + 1e-3 * (fastrand::Rng::with_seed(number).f64() - 0.5)
}
