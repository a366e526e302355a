//! Recorded results: damaged ones are set aside by name, the index is made again, old ones are removed when asked.

use crate::project::{MANIFEST, Project, package};

/// A measured project, and its one event record.
fn measured() -> (Project, String) {
    let project = Project::new();
    project.run().expect(0);
    let files = project.files("out/store/records/event");
    assert_eq!(files.len(), 1);
    let file = format!("out/store/records/event/{}", files[0].display());
    (project, file)
}

/// After its record was damaged, the run is measured again and the damaged file is named and kept.
#[track_caller]
fn is_set_aside(project: &Project, file: &str) {
    let name = std::path::Path::new(file).file_name().expect("a name").to_str().expect("UTF-8");
    project.run().expect(0).says(&format!("warning: {}", project.path(file).display())).says("measured copy");
    assert_eq!(project.files("out/store/records/event").len(), 1);
    let kept = project.files("out/store/quarantine");
    assert!(kept.iter().any(|path| path.display().to_string().contains(name)), "{name} is not in {kept:?}");
    project.run().expect(0).says("nothing to do").says_nothing_of("warning");
}

#[test]
fn a_truncated_record_is_set_aside_and_measured_again() {
    let (project, file) = measured();
    let text = project.read(&file);
    project.write(&file, &text[..text.len() / 2]);
    is_set_aside(&project, &file);
}

#[test]
fn a_changed_number_is_noticed() {
    let (project, file) = measured();
    let text = project.read(&file);
    let changed = text.replacen("\"round\":0", "\"round\":1", 1).replacen("\"round\": 0", "\"round\": 1", 1);
    assert_ne!(text, changed);
    project.write(&file, &changed);
    is_set_aside(&project, &file);
}

#[test]
fn the_index_is_made_again() {
    let (project, _) = measured();
    let before = project.mlarun(&["cache", "ls"]).expect(0).out;
    for damage in ["", "no database"] {
        std::fs::remove_file(project.path("out/index.sqlite")).expect("removed");
        if !damage.is_empty() {
            project.write("out/index.sqlite", &damage.repeat(1000));
        }
        project.run().expect(0).says("nothing to do");
        assert_eq!(project.mlarun(&["cache", "ls"]).expect(0).out, before);
    }
}

#[test]
fn records_are_listed_and_shown() {
    let (project, _) = measured();
    let listed = project.json(&["cache", "ls", "--json"]);
    assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed}");
    let plan = project.plan(MANIFEST);
    let key = plan[0]["key"].as_str().expect("a key");
    let subject = plan[0]["subject"].as_str().expect("a key");
    project.mlarun(&["cache", "ls"]).expect(0).prints(&key[..8]).prints("copy v0 (c)");
    project.mlarun(&["show", &key[..10]]).expect(0).prints("copy v0 (c)").prints("warm_batched").prints("compiler");
    let records = project.json(&["show", "--json", subject]);
    assert_eq!(records.as_array().map(Vec::len), Some(2), "{records}");
    let shown = project.json(&["cache", "show", key]);
    assert_eq!(shown.as_array().map(Vec::len), Some(1), "{shown}");
    let explained = project.json(&["explain", "--json", &key[..10]]);
    assert_eq!(explained[0]["key"], key);
    assert!(explained[0]["depends_on"]["subject"]["builds"]["copy"]["sources"]["copy.c"].is_string(), "{explained}");
}

#[test]
fn a_run_is_explained_to_people() {
    let (project, file) = measured();
    let key = project.plan(MANIFEST)[0]["key"].as_str().expect("a key").to_owned();
    let explained = [&["explain", &key[..10]][..], &["explain", MANIFEST]];
    for arguments in explained {
        let fresh = project.mlarun(arguments).expect(0).prints("copy v0 (c) ").prints(", event\n  fresh: ");
        drop(
            fresh.prints(&format!("key: {key}")).prints("nothing to tune").prints(&format!("1 record:\n    {file}\n")),
        );
    }
    project.edit("kernels/c/rows/copy/kernel.toml", "-fwrapv", "-fno-wrapv");
    for arguments in explained {
        let stale =
            project.mlarun(arguments).expect(0).prints("\n  stale, as something that it depends on has changed:");
        drop(stale.prints("subject.builds.copy.flags").prints("-fwrapv → -fno-wrapv"));
    }
    let json = project.json(&["explain", "--json", &key]);
    assert_eq!((&json[0]["state"], &json[0]["files"][0]), (&"stale".into(), &file.clone().into()), "{json}");
    project.edit("kernels/c/rows/copy/kernel.toml", "-fno-wrapv", "-fwrapv");
    project.edit("conf/protocol.toml", "interval_permille = 1000", "interval_permille = 900");
    drop(
        project
            .mlarun(explained[0])
            .expect(0)
            .prints("fresh in an experiment with its [protocol]")
            .prints("1000 → 900"),
    );
    std::fs::remove_dir_all(project.path(&package("copy", 0))).expect("removed");
    project.mlarun(explained[0]).expect(0).prints("stale: there is no kernel `copy`");
}

#[test]
fn unknown_keys_are_told() {
    let (project, _) = measured();
    for command in [&["show"][..], &["cache", "show"], &["explain"]] {
        let with = |key: &'static str| [command, &[key]].concat();
        project.mlarun(&with("ffffffffffffffff")).expect(2).says("nothing is recorded under");
        project.mlarun(&with("xyz")).expect(2).says("is no key");
    }
}

#[test]
fn every_record_is_verified() {
    let (project, file) = measured();
    project.mlarun(&["cache", "verify"]).expect(0).prints("2 records sound, 0 set aside");
    let text = project.read(&file);
    // The size and time of change stay, so that only reading it again shows it.
    let time = project.path(&file).metadata().and_then(|meta| meta.modified()).expect("a time");
    project.write(&file, &text.replacen("rows", "ROWS", 1));
    std::fs::File::options()
        .append(true)
        .open(project.path(&file))
        .and_then(|file| file.set_modified(time))
        .expect("set");
    project.mlarun(&["cache", "verify"]).expect(4).prints("1 record sound, 1 set aside").prints(&file);
    project.run().expect(0).says("measured copy");
    // One of another size is found as soon as the store is opened.
    let file = format!("out/store/records/event/{}", project.files("out/store/records/event")[0].display());
    project.write(&file, "{");
    project.mlarun(&["cache", "verify"]).expect(4).prints("1 record sound, 1 set aside").prints(&file);
    project.run().expect(0).says("measured copy");
}

#[test]
fn old_results_are_removed_when_asked() {
    let (project, _) = measured();
    project.mlarun(&["cache", "gc"]).expect(2).says("say what to keep");
    project.mlarun(&["cache", "gc", "--keep", "1d"]).expect(0).prints("0 files");
    project
        .mlarun(&["cache", "gc", "--max-size", "0", "--dry-run"])
        .expect(0)
        .prints("2 files")
        .prints("would be removed");
    project.run().expect(0).says("nothing to do");
    project.mlarun(&["cache", "gc", "--max-size", "0"]).expect(0).prints("2 files").prints("bytes removed");
    project.run().expect(0).says("1 to do");
}

#[test]
fn what_dev_logs_refer_to_is_not_removed() {
    let project = Project::new();
    project.mlarun(&[MANIFEST, "--devlog-add"]).expect(0);
    project.mlarun(&["cache", "gc", "--max-size", "0"]).expect(0).prints("1 file,");
    project.mlarun(&["cache", "gc", "--keep", "0h"]).expect(0).prints("0 files");
    assert_eq!(project.files("out/store/records/event").len(), 1);
}

#[test]
fn compiled_modules_are_made_again_when_the_cache_is_gone() {
    let (project, _) = measured();
    std::fs::remove_dir_all(project.path(".cache")).expect("removed");
    project.run().expect(0).says("nothing to do");
    project.mlarun(&[MANIFEST, "--remeasure"]).expect(0).says("measured copy");
}

#[test]
fn a_damaged_module_is_built_again() {
    let (project, _) = measured();
    let module = project.files(".cache").into_iter().find(|path| path.ends_with("module.so")).expect("a module");
    project.write(&format!(".cache/{}", module.display()), "no library");
    project.mlarun(&[MANIFEST, "--remeasure"]).expect(0).says("measured copy");
}

#[test]
fn results_of_a_newer_program_are_left_alone() {
    let (project, _) = measured();
    let format = project.read("out/store/format.json");
    project.write(
        "out/store/format.json",
        &format.replacen("\"major\":1", "\"major\":9", 1).replacen("\"major\": 1", "\"major\": 9", 1),
    );
    assert_ne!(project.read("out/store/format.json"), format);
    project.run().expect(3).says("by a newer mlarun");
}

#[test]
fn a_measured_version_that_is_gone_stays_listed() {
    let (project, _) = measured();
    project.kernel("copy", 1);
    std::fs::remove_dir_all(project.path(&package("copy", 0))).expect("removed");
    project.mlarun(&["cache", "ls"]).expect(0).prints("copy v0 (c)");
}

#[test]
fn two_results_are_compared_field_by_field() {
    let project = Project::new();
    project.kernel("copy", 1);
    project.edit(&format!("{}/kernel.toml", package("copy", 1)), "-fwrapv", "-fno-wrapv");
    project.edit(MANIFEST, "rounds  = 1", "rounds  = 2\nversions = \"all\"");
    project.run().expect(0);
    let plan = project.plan(MANIFEST);
    let key = |run: usize| plan[run]["key"].as_str().expect("it is measured").to_owned();
    let (a, b) = (key(0), key(1));
    let ended = project.mlarun(&["diff", &a, &b]).expect(0);
    for words in ["the newest of 2 records", "labels.id.version: v0 → v1", "-fwrapv → -fno-wrapv", "measured.median_ns"]
    {
        assert!(ended.out.contains(words), "`{words}` is not in:\n{}", ended.out);
    }
    let json = project.json(&["diff", "--json", &a, &b]);
    let changes = json[0]["changes"].as_array().expect("a list");
    assert!(changes.iter().any(|change| change["path"] == "labels.id.version" && change["new"] == "v1"), "{json}");
    project.mlarun(&["diff", &a, &a]).expect(0).prints("nothing differs");
    project.mlarun(&["diff", &a, "0000"]).expect(2).says("nothing is recorded under `0000`");
}
