//! What strangers may have written (manifests, packages, templates, recordings, what kernels and compilers say) is data: it
//! writes nowhere but into the folders of results, and reaches neither the terminal nor the environment.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use crate::project::{Ended, MANIFEST, Project, package};

/// A project one folder down, so that what it might write beside itself is seen.
struct Watched {
    project: Project,
    elsewhere: tempfile::TempDir,
}

impl Watched {
    fn new() -> Watched {
        Watched { project: Project::new(), elsewhere: tempfile::tempdir().expect("a folder") }
    }

    /// Makes `path` a link to a folder outside the project.
    fn link(&self, path: &str) {
        let path = self.project.path(path);
        fs::create_dir_all(path.parent().expect("it lies in the project")).expect("folders");
        symlink(self.elsewhere.path(), path).expect("a link");
    }

    #[track_caller]
    fn nothing_was_written_elsewhere(&self, what: &str) {
        let written: Vec<_> = fs::read_dir(self.elsewhere.path()).expect("a folder").flatten().collect();
        assert!(written.is_empty(), "{what}: {written:?}");
    }
}

#[test]
fn a_folder_that_is_a_link_to_elsewhere_is_refused() {
    for path in [
        "out/profiles",
        "out/profiles/event",
        "out/profiles/event/copy",
        "out/profiles/event/copy/v0-c-float32-columns16-rows8",
        "out/experiments",
        "out/experiments/rows",
        "out/store/records",
        "out/store/records/event",
        "out/store/quarantine",
        "docs",
        "docs/kernels",
        "docs/kernels/records",
        "docs/kernels/records/copy",
        ".cache/builds",
        ".cache/kernel-autotune",
        ".cache/kernel-autotune/copy",
        ".cache/reference",
    ] {
        let watched = Watched::new();
        watched.project.tunable();
        watched.link(path);
        let ended = watched.project.mlarun(&[MANIFEST, "--devlog-add"]);
        assert!(matches!(ended.code, Some(1..=4)), "{path}: {ended:?}");
        let link = watched.project.path(path);
        drop(ended.says(&format!("{} leads to ", link.display())).says(", outside "));
        watched.nothing_was_written_elsewhere(path);
    }
    let watched = Watched::new();
    watched.link("out/devlogs");
    watched.project.run().expect(2).says("leads to");
    watched.nothing_was_written_elsewhere("out/devlogs");
}

#[test]
fn the_folder_of_results_itself_may_be_a_link() {
    let watched = Watched::new();
    watched.link("out");
    watched.project.run().expect(0).says("1 run recorded");
    assert!(watched.elsewhere.path().join("store/records").exists());
}

#[test]
fn a_file_that_is_a_link_is_replaced_and_not_followed() {
    let watched = Watched::new();
    let precious = watched.project.path("precious");
    fs::write(&precious, "precious").expect("written");
    for path in ["out/experiments/rows/report.md", "out/experiments/rows/results.json", "out/store/format.json"] {
        let path = watched.project.path(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        symlink(&precious, &path).expect("a link");
    }
    watched.project.run().expect(0);
    assert_eq!(watched.project.read("precious"), "precious");
    assert!(watched.project.read("out/experiments/rows/report.md").contains("copy"));
}

#[test]
fn names_that_would_leave_their_folder_are_refused() {
    let kernel = format!("{}/kernel.toml", package("copy", 0));
    let absolute = std::env::temp_dir().join("outside.c").display().to_string();
    for (file, from, to, says) in [
        (MANIFEST, "\"rows\"", "\"../rows\"", "cannot name a folder"),
        (MANIFEST, "\"rows\"", "\"a/b\"", "cannot name a folder"),
        (MANIFEST, "\"rows\"", "\"/rows\"", "cannot name a folder"),
        (MANIFEST, "[\"copy\"]", "[\"../copy\"]", "there is no kernel"),
        (&kernel, "name    = \"copy\"", "name = \"../copy\"", "is no name of a stage"),
        (&kernel, "name    = \"copy\"", "name = \"/copy\"", "is no name of a stage"),
        (&kernel, "\"copy.c\"", "\"../../../../../outside.c\"", "leaves the project"),
        (&kernel, "\"copy.c\"", &format!("{absolute:?}"), "the path is absolute"),
        (&kernel, "entry   = \"copy\"", "entry = \"copy/../x\"", "is no name of a function"),
        (&kernel, "ROWS = ", "\"ROWS/../x\" = ", "is no name of a macro"),
        (&kernel, "[tensors.x]", "[tensors.\"../x\"]", "is no name"),
        (&kernel, "rows    = {", "\"../rows\" = {", "is no name"),
        (&kernel, "\"-fwrapv\"", "\"-o\", \"../outside\"", "none that a package may give its compiler"),
        (&kernel, "\"-fwrapv\"", "\"-Wl,-Map=../outside\"", "none that a package may give its compiler"),
        (&kernel, "\"-fwrapv\"", "\"-fdump-tree-all=../outside\"", "none that a package may give its compiler"),
    ] {
        let project = Project::new();
        project.edit(file, from, to);
        project.run().expect(2).says(says);
        assert!(!project.path("out/experiments").exists(), "{to}: nothing was reported");
    }
    for folder in ["..copy", "Copy", "copy copy", "copy\u{1b}[2J"] {
        let project = Project::new();
        fs::rename(project.path(&package("copy", 0)), project.path(&format!("kernels/c/rows/{folder}")))
            .expect("moved");
        project.run().expect(2).says_nothing_of("\u{1b}");
    }
}

#[test]
fn packages_that_lead_out_of_the_project_by_a_link_are_not_used() {
    let watched = Watched::new();
    let theirs = watched.elsewhere.path().join("copy");
    fs::rename(watched.project.path(&package("copy", 0)), &theirs).expect("moved");
    symlink(&theirs, watched.project.path(&package("copy", 0))).expect("a link");
    let before = fs::read_dir(&theirs).expect("a folder").count();
    watched.project.run().expect(2).says("copy.c links to").says("outside the project");
    assert_eq!(fs::read_dir(&theirs).expect("a folder").count(), before);

    let watched = Watched::new();
    let header = watched.elsewhere.path().join("rows.h");
    fs::rename(watched.project.path("kernels/c/common/rows.h"), &header).expect("moved");
    symlink(&header, watched.project.path("kernels/c/common/rows.h")).expect("a link");
    watched.project.run().expect(2).says("rows.h links to").says("outside the project");
}

#[test]
fn a_dev_logs_record_names_no_other_file() {
    let watched = Watched::new();
    let project = &watched.project;
    project.mlarun(&[MANIFEST, "--devlog-add"]).expect(0);
    let record = format!("docs/kernels/records/{}", project.files("docs/kernels/records")[0].display());
    let text = project.read(&record);
    for name in ["../../../outside", "/outside", "", "a/b"] {
        project.write(&record, &text.replacen("\"copy\"", &format!("{name:?}"), 1));
        for arguments in [&["devlog"][..], &["devlog", "--check"], &["cache", "gc", "--keep", "1d"]] {
            project.mlarun(arguments).expect(2).says("is no kernel's name");
        }
    }
}

#[test]
fn a_replay_needs_an_empty_folder() {
    let watched = Watched::new();
    let project = &watched.project;
    project.mlarun(&[MANIFEST, "--record", "call.recording"]).expect(0);
    watched.link("planted/project");
    project.mlarun(&["--replay", "call.recording", "--out", "planted"]).expect(2).says("is not empty");
    watched.nothing_was_written_elsewhere("a replay");
}

/// The program's words hold no control character but line ends and tabulators, on either stream.
#[track_caller]
fn is_plain(ended: Ended) -> Ended {
    let odd = |text: &str| text.chars().find(|c| c.is_control() && !"\n\t".contains(*c));
    assert_eq!((odd(&ended.out), odd(&ended.err)), (None, None), "{:?} {:?}", ended.out, ended.err);
    ended
}

/// Clears the screen, names the window, moves the cursor.
const ESCAPES: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}1;1H\r";

#[test]
fn what_kernels_and_compilers_say_reaches_no_terminal_raw() {
    let project = Project::new();
    let bytes: String = ESCAPES.bytes().map(|byte| format!("\\{byte:03o}")).collect();
    project.kernel_that("says", &format!("fputs(\"last {bytes} words\", stderr); abort();"));
    let source = format!("{}/copy.c", package("says", 0));
    project.edit(&source, "#include \"../", "#include <stdio.h>\n#include <stdlib.h>\n#include \"../");
    project.kernel_that("lies", &format!("puts(\"{bytes}\"); fflush(stdout);"));
    project.edit(&format!("{}/copy.c", package("lies", 0)), "#include \"../", "#include <stdio.h>\n#include \"../");
    project.kernel("broken", 0);
    project.write(&format!("{}/copy.c", package("broken", 0)), &format!("#error refused {ESCAPES} here\n"));
    project.edit(MANIFEST, "[\"copy\"]", "[\"says\", \"lies\", \"broken\", \"copy\"]");
    let ended = is_plain(project.mlarun(&[MANIFEST, "-v"])).expect(4).says("measured lies");
    drop(ended.says("last \\u{1b}[2J").says("FAILED broken").says("refused \\u{1b}[2J"));
    let report = project.read("out/experiments/rows/report.md");
    assert!(report.contains("last ") && !report.contains('\u{1b}'), "{report:?}");
    serde_json::from_str::<serde_json::Value>(&project.mlarun(&[MANIFEST, "--json"]).out).expect("JSON");
}

#[test]
fn what_files_hold_reaches_no_terminal_raw() {
    let escaped = "\\u001b[2J\\u009b1H";
    let kernel = format!("{}/kernel.toml", package("copy", 0));
    for (file, from, to) in [
        (MANIFEST, "rounds ", &*format!("\"rou{escaped}nds\" ")),
        (MANIFEST, "\"rows\"", &format!("\"rows{escaped}\"")),
        (MANIFEST, "[\"copy\"]", &format!("[\"copy{escaped}\"]")),
        (MANIFEST, "rows = [8]", &format!("rows = [8]\n[[shapes.exclude]]\nwhen = \"a == '{escaped}'\"")),
        (&kernel, "\"copy.c\"", &format!("\"copy{escaped}.c\"")),
        (&kernel, "grid    = [\"rows\"]", &format!("grid = [\"rows + '{escaped}'\"]")),
        (&kernel, "grid    = [\"rows\"]", &format!("grid = [\"rows + {ESCAPES:?}\"]")),
    ] {
        let project = Project::new();
        project.edit(file, from, to);
        let ended = is_plain(project.run()).expect(2);
        assert!(!ended.err.is_empty());
    }
    let project = Project::new();
    project.write(MANIFEST, &format!("name = {ESCAPES}\n"));
    is_plain(project.run()).expect(2);
    let project = Project::new();
    project.edit(&kernel, "\"Copies rows\"", &format!("\"Copies {escaped} rows\""));
    is_plain(project.mlarun(&["list"])).expect(0).prints("copy");
    is_plain(project.mlarun(&["list", "copy"])).expect(0).prints("Copies \\u{1b}[2J");
    is_plain(project.mlarun(&["list", "--json"])).expect(0);
}

#[test]
fn a_template_that_might_not_end_is_refused_and_what_was_measured_is_kept() {
    let project = Project::new();
    for template in ["{{> experiment.md.hbs}}", "{{#each results}}{{#each ../results}}{{/each}}{{/each}}"] {
        project.write("templates/experiment.md.hbs", template);
        let ended = project.run();
        assert!(matches!(ended.code, Some(1..=3)), "{ended:?}");
        drop(ended.says("templates/experiment.md.hbs:1: "));
    }
    fs::remove_file(project.path("templates/experiment.md.hbs")).expect("removed");
    project.run().expect(0).says_nothing_of("measured copy");
}

/// Every file below `folder` that holds `secret`, recordings unpacked.
fn leaks(folder: &Path, secret: &str) -> Vec<std::path::PathBuf> {
    let holds = |path: &Path| {
        let mut bytes = fs::read(path).expect("a file can be read");
        if path.extension().is_some_and(|extension| extension == "recording") {
            let mut text = Vec::new();
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut text).expect("gzip");
            bytes = text;
        }
        bytes.windows(secret.len()).any(|window| window == secret.as_bytes())
    };
    let entries = walkdir::WalkDir::new(folder).into_iter().flatten().filter(|entry| entry.file_type().is_file());
    entries.map(walkdir::DirEntry::into_path).filter(|path| holds(path)).collect()
}

#[test]
fn a_secret_of_the_environment_reaches_nothing() {
    const SECRET: &str = "swordfish-5d41402a";
    let project = Project::new();
    project.tunable();
    // A kernel that tells all it knows with its last words, and a compiler that notes what it was given.
    let tells = "for (char **at = environ; *at; at++) { fputs(*at, stderr); fputs(\" \", stderr); } abort();";
    project.kernel_that("tells", tells);
    let head = "#include <stdio.h>\n#include <stdlib.h>\nextern char **environ;\n#include \"../";
    project.edit(&format!("{}/copy.c", package("tells", 0)), "#include \"../", head);
    project.edit(MANIFEST, "[\"copy\"]", "[\"tells\", \"copy\"]");
    project.edit(MANIFEST, "[\"event\"]", "[\"event\", \"annotation\", \"ncu\", \"nsys\"]");
    project.write("noting-cc", "#!/bin/sh\nenv >> \"$(dirname \"$0\")/noted\"\nenv >&2\nexec cc \"$@\"\n");
    fs::set_permissions(project.path("noting-cc"), fs::Permissions::from_mode(0o755)).expect("an executable");
    let compiler = project.path("noting-cc").display().to_string();
    let variables = [("CC", compiler.as_str()), ("MLARUN_TEST_SECRET", SECRET), ("AWS_SECRET_ACCESS_KEY", SECRET)];
    for arguments in [
        &[MANIFEST, "-v", "--devlog-add", "--record", "call.recording"][..],
        &["profile", "copy", "--rows=9", "--prof_type=annotation"],
        &["report", MANIFEST],
    ] {
        let ended = project.start_with(arguments, &variables).end();
        assert!(matches!(ended.code, Some(0 | 4)), "{ended:?}");
        drop(ended.says_nothing_of(SECRET));
        if arguments.contains(&"--record") {
            let told = project.read("out/experiments/rows/results.json");
            assert!(told.contains("PATH="), "the kernel told what it knew: {told}");
        }
    }
    assert!(project.read("noted").contains("PATH="), "the compiler noted what it was given");
    assert!(project.path("call.recording").exists() && project.path("docs/kernels/copy.md").exists());
    assert_eq!(leaks(project.root(), SECRET), Vec::<std::path::PathBuf>::new());
}
