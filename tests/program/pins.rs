//! `mlarun pin`: what is kept, listed, replaced and removed, and what a kill leaves.

use std::os::unix::fs::MetadataExt as _;

use crate::project::{Project, package};

fn keys(project: &Project) -> Vec<(String, String)> {
    let pins = project.json(&["pin", "--list", "--json"]);
    let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
    pins.as_array().expect("a list").iter().map(|pin| (text(&pin["name"]), text(&pin["key"]))).collect()
}

/// Folders of pinned builds.
fn folders(project: &Project) -> usize {
    let entries = std::fs::read_dir(project.path("out/pins")).expect("a folder").map(|entry| entry.expect("an entry"));
    entries.filter(|entry| entry.path().is_dir()).count()
}

#[test]
fn a_pin_holds_sources_tunings_and_modules() {
    let project = Project::new();
    project.tunable();
    project.run().expect(0);
    project.mlarun(&["pin"]).expect(0).prints("pinned reference");
    let [(name, key)] = &keys(&project)[..] else { panic!("one pin") };
    assert_eq!(name, "reference");
    let pinned = format!("out/pins/{key}");
    let source = format!("{}/copy.c", package("copy", 0));
    assert_eq!(project.read(&format!("{pinned}/{source}")), project.read(&source));
    assert_eq!(project.read(&format!("{pinned}/kernels/c/common/rows.h")), project.read("kernels/c/common/rows.h"));
    let tunings = project.files(&format!("{pinned}/.cache/kernel-autotune"));
    assert_eq!(tunings.len(), 1, "{tunings:?}");
    assert!(project.files(&format!("{pinned}/.cache/builds")).iter().any(|file| file.ends_with("build.json")));
    // What is edited in place later is not what was pinned.
    assert_eq!(project.path(&format!("{pinned}/{source}")).metadata().expect("a file").nlink(), 1);
}

#[test]
fn a_name_is_taken_until_it_is_replaced_or_removed() {
    let project = Project::new();
    project.mlarun(&["pin", "good"]).expect(0);
    let first = keys(&project);
    project.mlarun(&["pin", "good"]).expect(2).says("--replace");
    project.mlarun(&["pin", "again"]).expect(0);
    assert_eq!(folders(&project), 1, "the same kernels are kept once");
    project.edit(&format!("{}/copy.c", package("copy", 0)), "y[AT(row, i)] = ", "y[AT(row, i)] =  ");
    project.mlarun(&["pin", "good", "--replace"]).expect(0);
    assert_ne!(keys(&project)[1], first[0]);
    assert_eq!(folders(&project), 2);
    project.mlarun(&["pin", "again", "--remove"]).expect(0).prints("removed again");
    assert_eq!((keys(&project).len(), folders(&project)), (1, 1));
    project.mlarun(&["pin", "god", "--remove"]).expect(2).says("did you mean `good`?");
    for name in ["../x", ".x", "a/b", ""] {
        project.mlarun(&["pin", name]).expect(2).says("is no name of a pin");
    }
}

#[test]
fn a_kill_leaves_the_old_pin_or_the_new_one() {
    let project = Project::new();
    project.run().expect(0);
    project.mlarun(&["pin"]).expect(0);
    for place in ["pin.copied", "pin.published", "atomic.begun:3", "atomic.renamed:2"] {
        let old = keys(&project);
        project.edit(&format!("{}/copy.c", package("copy", 0)), "y[AT(row, i)] = ", "y[AT(row, i)] =  ");
        let mut command = project.command(&["pin", "--replace"]);
        let ended = crate::project::ended(command.env("MLARUN_FAILPOINT", place));
        assert_eq!(ended.code, None, "{place}: {}", ended.err);
        assert_eq!(keys(&project), old, "{place}");
        project.mlarun(&["pin", "--replace"]).expect(0);
        assert_ne!(keys(&project), old, "{place}");
        assert_eq!(folders(&project), 1, "{place}: nothing is left behind");
        project.edit(&format!("{}/copy.c", package("copy", 0)), "y[AT(row, i)] =  ", "y[AT(row, i)] = ");
        project.mlarun(&["pin", "--replace"]).expect(0);
    }
}

#[test]
fn a_pin_that_cannot_be_read_hides_no_other_and_can_be_removed() {
    let project = Project::new();
    project.mlarun(&["pin", "good"]).expect(0);
    project.write("out/pins/bad.json", "");
    project.mlarun(&["pin", "--list"]).expect(3).prints("good").says("bad.json");
    project.mlarun(&["pin", "--remove", "bad"]).expect(0).says("removed bad");
    project.mlarun(&["pin", "--list"]).expect(0).prints("good").says_nothing_of("bad");
    project.mlarun(&["pin", "--", "-x"]).expect(2).says("is no name of a pin");
}
