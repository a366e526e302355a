//! Kernels that fail: each fails alone, says why, and gets no number.

use crate::project::{MANIFEST, Project, package};

/// A project whose experiment measures `bad`, which starts with `statement`, and then `copy`.
fn with_bad_kernel(statement: &str) -> Project {
    let project = Project::new();
    project.kernel_that("bad", statement);
    project.edit(MANIFEST, r#"["copy"]"#, r#"["bad", "copy"]"#);
    project
}

/// No number of the kernel `bad` was recorded, reported or printed.
#[track_caller]
fn has_no_timing(project: &Project) {
    for kind in ["event", "annotation", "verification"] {
        for file in project.files(&format!("out/store/records/{kind}")) {
            let text = project.read(&format!("out/store/records/{kind}/{}", file.display()));
            assert!(!text.contains("\"bad\""), "{text}");
        }
    }
    let csv = project.read("out/experiments/rows/results.csv");
    let has_number = |line: &&str| line.contains("bad") && line.contains("event") && line.contains("_isolated");
    assert_eq!(csv.lines().find(has_number), None);
    assert!(!project.path("out/profiles/event/bad").exists());
}

#[test]
fn a_failed_build_fails_alone_and_is_not_remembered() {
    let project = with_bad_kernel("undeclared(;");
    project.run().expect(4).says("FAILED bad v0").says("copy.c:5").says("1 run recorded, 1 failed");
    has_no_timing(&project);
    project.run().expect(4).says("FAILED bad v0").says_nothing_of("measured copy");
    project.edit(&format!("{}/copy.c", package("bad", 0)), "undeclared(;", "columns += 0;");
    project.run().expect(0).says("measured bad v0").says("2 runs recorded");
}

#[test]
fn a_compiler_that_refuses_a_flag_fails_the_run() {
    let project = with_bad_kernel("");
    project.edit(&format!("{}/kernel.toml", package("bad", 0)), "-fwrapv", "-fno-such-flag");
    project.run().expect(4).says("FAILED bad v0").says("-fno-such-flag");
    assert_eq!(project.plan(MANIFEST)[0]["state"], "stale");
}

#[test]
fn a_wrong_output_gets_no_timing() {
    let project = with_bad_kernel("if (row == 2) { y[AT(row, 3)] = 7.0f; return; }");
    let ended = project.run().expect(5).says("FAILED bad v0").says("measured copy v0");
    drop(ended.says_nothing_of("measured bad"));
    has_no_timing(&project);
    let report = project.read("out/experiments/rows/report.md");
    assert!(report.contains("bad"), "{report}");
}

#[test]
fn an_unwritten_element_is_a_wrong_output() {
    let project = with_bad_kernel("if (row == 0) columns--;");
    project.run().expect(5).says("FAILED bad v0");
    has_no_timing(&project);
}

#[test]
fn a_write_outside_the_output_is_a_wrong_output() {
    let project = with_bad_kernel("if (row == 0) y[-1] = 1.0f;");
    project.run().expect(5).says("FAILED bad v0");
    has_no_timing(&project);
}

#[test]
fn a_crash_is_isolated() {
    let project = with_bad_kernel("*(volatile int *)8 = 1;");
    project.run().expect(4).says("killed by SIGSEGV").says("measured copy v0");
    has_no_timing(&project);
}

#[test]
fn an_abort_is_isolated_with_its_last_words() {
    let project = with_bad_kernel("void abort(void); int puts(const char *); abort();");
    project.run().expect(4).says("killed by SIGABRT").says("measured copy v0");
    has_no_timing(&project);
}

#[test]
fn a_hang_ends_with_the_time_limit() {
    let project = with_bad_kernel("for (volatile int i = 0;; i = i) {}");
    project.edit(MANIFEST, "rounds  = 1", "rounds = 1\ntime_limit_s = 3");
    project.run().expect(4).says("said nothing for 3 s").says("time_limit_s").says("measured copy v0");
    has_no_timing(&project);
}

#[test]
fn a_worker_that_ends_early_is_a_failure() {
    let project = with_bad_kernel("void _exit(int); _exit(0);");
    project.run().expect(4).says("ended with exit code 0").says("measured copy v0");
    has_no_timing(&project);
}

#[test]
fn a_kernel_without_reference_is_not_measured() {
    let project = with_bad_kernel("");
    let reference = "[reference]\nkind   = \"einsum\"\nspec   = \"rc->rc\"\nof     = [\"x\"]\noutput = \"y\"\n";
    project.edit(&format!("{}/kernel.toml", package("bad", 0)), reference, "");
    project.run().expect(5).says("declares no [reference]");
    has_no_timing(&project);
}

#[test]
fn fail_fast_stops_at_the_first_failure() {
    let project = with_bad_kernel("*(volatile int *)8 = 1;");
    project.mlarun(&[MANIFEST, "--fail-fast"]).expect(4).says("stopped").says_nothing_of("measured copy");
    project.mlarun(&[MANIFEST, "--keep-going"]).expect(4).says("measured copy v0");
    project.mlarun(&[MANIFEST, "--keep-going", "--fail-fast"]).expect(2);
}

#[test]
fn a_wrong_output_outweighs_a_failure() {
    let project = with_bad_kernel("y[AT(row, 0)] = 9.0f; return;");
    project.kernel_that("broken", "undeclared(;");
    project.edit(MANIFEST, r#"["bad", "copy"]"#, r#"["bad", "broken", "copy"]"#);
    project.run().expect(5).says("FAILED bad").says("FAILED broken").says("measured copy");
}

#[test]
fn a_failed_run_is_reported_with_its_reason_in_the_results() {
    let project = with_bad_kernel("*(volatile int *)8 = 1;");
    project.run().expect(4);
    let results = project.read("out/experiments/rows/results.json");
    assert!(results.contains("SIGSEGV"), "{results}");
}

#[test]
fn a_tensor_larger_than_the_memory_is_refused_with_both_sizes_and_the_rest_runs() {
    let project = Project::new();
    project.edit(MANIFEST, "rows = [8]", "rows = [8]\n[[shapes.point]]\nrows = 1000000000\ncolumns = 100000");
    let ended = project.run().expect(4).says("1 refused").says("measured copy v0");
    drop(ended);
    let plan = project.mlarun(&["plan", MANIFEST]).expect(0).prints("refused");
    let line = plan.out.lines().find(|line| line.contains("buffers need")).expect("the reason");
    assert_eq!(line.matches("GiB").count(), 2, "{line}");
    assert!(line.contains("745058.1 GiB"), "{line}");
}

#[test]
fn what_a_kernel_started_ends_with_its_worker() {
    let project = with_bad_kernel(
        "extern int fork(void); extern unsigned sleep(unsigned); if (row == 0 && fork() == 0) for (;;) sleep(1);",
    );
    project.run().expect(0).says("measured bad v0");
    // Each of them has the kernel's module mapped, which lies below the project's folder.
    let root = project.root().display().to_string();
    let is_left = |entry: &std::fs::DirEntry| {
        let text = |name: &str| std::fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        text("maps").contains(&root) && !text("stat").contains(") Z ")
    };
    let left = || std::fs::read_dir("/proc").expect("processes").flatten().find(is_left);
    let started = std::time::Instant::now();
    // A process that was killed takes a moment to go.
    while let Some(process) = left() {
        assert!(started.elapsed().as_secs() < 30, "{} is left", process.path().display());
        std::thread::yield_now();
    }
}
