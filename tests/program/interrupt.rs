//! Ctrl-C: ends at once whatever is going on, keeps what is finished, and the next call goes on from there.

use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;

use crate::project::{MANIFEST, Project, package};

/// A statement that hangs as long as the file `hang` is there, after it has written the process's number into `worker`.
fn hangs(project: &Project, when: &str) -> String {
    let path = |name: &str| project.path(name).display().to_string();
    format!(
        "static int calls; calls++;\n    if ({when} && access(\"{}\", F_OK) == 0) {{\n        \
         FILE *file = fopen(\"{}\", \"w\"); fprintf(file, \"%d\", getpid()); fclose(file);\n        \
         for (volatile int i = 0;; i = i) {{}}\n    }}",
        path("hang"),
        path("worker")
    )
}

/// A project whose kernel `copy` hangs in shapes of nine rows after `calls` blocks.
fn hanging(calls: u32) -> Project {
    let project = Project::new();
    project.kernel_that("copy", &hangs(&project, &format!("ROWS == 9 && calls > {calls}")));
    let source = format!("{}/copy.c", package("copy", 0));
    project.edit(
        &source,
        "#include \"../../common/rows.h\"",
        "#include <stdio.h>\n#include <unistd.h>\n#include \"../../common/rows.h\"",
    );
    project.edit(MANIFEST, "rows = [8]", "rows = [8, 9]");
    project.write("hang", "");
    project
}

/// The worker that hung is gone.
#[track_caller]
fn no_worker_is_left(project: &Project) {
    let number = std::fs::read_to_string(project.path("worker")).expect("the worker wrote its number");
    assert!(!number.is_empty() && !std::path::Path::new("/proc").join(&number).exists(), "worker {number} is left");
}

/// Returns once the kernel hangs.
fn wait_until_it_hangs(project: &Project) {
    while std::fs::read_to_string(project.path("worker")).unwrap_or_default().is_empty() {
        std::thread::yield_now();
    }
}

#[test]
fn finished_sets_are_kept_and_the_next_call_goes_on() {
    let project = hanging(100);
    let mut running = project.start(&[MANIFEST]);
    running.wait_for("measured copy v0 (c) rows=8");
    wait_until_it_hangs(&project);
    running.signal(Signal::INT);
    let ended = running.end().expect(130).says("stopped, 1 run recorded").says("goes on from here");
    drop(ended.says_nothing_of("FAILED"));
    no_worker_is_left(&project);

    std::fs::remove_file(project.path("hang")).expect("removed");
    let next = project.run().expect(0).says("1 recorded, 1 to do").says("rows=9");
    drop(next.says_nothing_of("measured copy v0 (c) rows=8"));
}

#[test]
fn a_verification_is_interrupted() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let project = hanging(0);
        let mut running = project.start(&["-v", MANIFEST]);
        running.wait_for("verifying copy v0 (c) rows=9");
        wait_until_it_hangs(&project);
        running.signal(signal);
        running.end().expect(130).says_nothing_of("FAILED");
        no_worker_is_left(&project);
    }
}

#[test]
fn a_tuning_is_interrupted() {
    let project = hanging(0);
    project.tunable();
    project.edit(MANIFEST, "rows = [8, 9]", "rows = [9]");
    let mut running = project.start(&[MANIFEST]);
    running.wait_for("tuning copy v0");
    wait_until_it_hangs(&project);
    running.signal(Signal::INT);
    running.end().expect(130).says_nothing_of("FAILED").says_nothing_of("tuned");
    no_worker_is_left(&project);
    assert!(project.files(".cache/kernel-autotune").is_empty(), "half a search is no result");
}

#[test]
fn a_compilation_is_interrupted() {
    let project = Project::new();
    // Hangs when it compiles, answers when it is asked who it is.
    let script = "#!/bin/sh\ncase \"$*\" in *-shared*) echo $$ >> $(dirname $0)/started; exec sleep 1000;; esac\n\
                  exec cc \"$@\"\n";
    project.write("slow-cc", script);
    let compiler = project.path("slow-cc");
    std::fs::set_permissions(&compiler, std::fs::Permissions::from_mode(0o755)).expect("an executable");
    let mut running = project.start_with(&[MANIFEST], &[("CC", compiler.to_str().expect("UTF-8"))]);
    running.wait_for("compiling 2 modules");
    while std::fs::read_to_string(project.path("started")).unwrap_or_default().is_empty() {
        std::thread::yield_now();
    }
    running.signal(Signal::INT);
    running.end().expect(130).says_nothing_of("FAILED");
    project.read("started").lines().for_each(ends);
}

/// Returns once the process is gone; one that its new parent has not looked at yet counts as gone.
#[track_caller]
fn ends(process: &str) {
    let stat = std::path::Path::new("/proc").join(process).join("stat");
    let is_running = || std::fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z "));
    let started = std::time::Instant::now();
    while is_running() {
        assert!(started.elapsed().as_secs() < 30, "process {process} is left");
        std::thread::yield_now();
    }
}

#[test]
fn a_killed_program_takes_its_compilers_along_and_the_next_one_sweeps() {
    let project = Project::new();
    // Hangs with a process of its own when it compiles, as cc does with cc1.
    let script = "#!/bin/sh\ncase \"$*\" in *-shared*) sleep 1000 & echo \"$! $$\" >> $(dirname $0)/started; wait;; esac\n\
                  exec cc \"$@\"\n";
    project.write("slow-cc", script);
    let compiler = project.path("slow-cc");
    std::fs::set_permissions(&compiler, std::fs::Permissions::from_mode(0o755)).expect("an executable");
    let mut running = project.start_with(&[MANIFEST], &[("CC", compiler.to_str().expect("UTF-8"))]);
    running.wait_for("compiling 2 modules");
    while std::fs::read_to_string(project.path("started")).unwrap_or_default().is_empty() {
        std::thread::yield_now();
    }
    running.signal(Signal::KILL);
    assert_eq!(running.end().code, None);
    project.read("started").split_whitespace().for_each(ends);
    let left = || {
        let names = std::fs::read_dir(project.path(".cache/builds")).expect("a folder").flatten();
        names.filter(|entry| entry.file_name().to_string_lossy().starts_with(".writing-")).count()
    };
    assert!(left() > 0, "the folder that the killed one was filling");
    project.run().expect(0).says("measured copy");
    assert_eq!(left(), 0);
}
