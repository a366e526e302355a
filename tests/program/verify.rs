//! What `mlarun verify` does: outputs compared and told, nothing measured.

use crate::project::{MANIFEST, Project, package};

/// A project with a right kernel and one that starts with `statement`.
fn with(statement: &str) -> Project {
    let project = Project::new();
    project.kernel_that("other", statement);
    project.edit(MANIFEST, r#"["copy"]"#, r#"["copy", "other"]"#);
    project
}

#[test]
fn every_kernel_is_verified_and_none_is_measured() {
    let project = with("");
    let ended = project.mlarun(&["verify", MANIFEST]).expect(0).says("verified copy v0").says("verified other v0");
    let ended = ended.prints("8 of 8").prints("yes").says_nothing_of("measured");
    assert!(ended.out.ends_with("\n\n2 subjects: 2 right\n"), "{}", ended.out);
    assert_eq!(ended.out.lines().count(), 5, "{}", ended.out);
    assert_eq!(project.files("out/store/records/verification").len(), 2);
    assert!(project.files("out/store/records/event").is_empty());
    let table = project.read("out/experiments/rows/verification.md");
    assert!(table.contains("2 subjects: 2 right, 0 failed, 0 refused"), "{table}");
    // What is recorded is shown and not done again; asked for, it is.
    project.mlarun(&["verify", MANIFEST]).expect(0).prints("other (c)").says_nothing_of("verified");
    project.mlarun(&["verify", MANIFEST, "--remeasure"]).expect(0).says("verified copy v0");
    // A measurement needs no further verification.
    project.run().expect(0).says("measured copy v0").says_nothing_of("verified");
}

#[test]
fn a_wrong_output_ends_with_its_exit_code_and_the_others_are_verified() {
    let project = with("if (row == 2) { y[AT(row, 3)] = 7.0f; return; }");
    let ended = project.mlarun(&["verify", MANIFEST]).expect(5).says("FAILED other v0").says("verified copy v0");
    drop(ended.prints("WRONG").prints("2 subjects: 1 right, 1 wrong"));
    // A filter that selects nothing verifies nothing, and leaves what is known.
    project.mlarun(&["verify", MANIFEST, "--only", "rows == 99"]).expect(2).says("nothing of rows is selected");
    let table = project.read("out/experiments/rows/verification.md");
    assert!(table.contains("1 right, 1 failed") && table.contains("| other v0 (c) rows=8"), "{table}");
    let json = project.read("out/experiments/rows/verification.json");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["subjects"][0]["status"], "right");
    assert_eq!(json["subjects"][0]["own_shape"]["same_bits"], true);
    assert_eq!(json["subjects"][1]["failure"], "wrong_output");
}

#[test]
fn an_output_that_differs_between_launches_is_told_everywhere() {
    let project = with("");
    project.edit(
        &format!("{}/copy.c", package("other", 0)),
        "void copy(",
        "static int launches;\nfloat nextafterf(float, float);\nvoid copy(",
    );
    let last = "y[AT(row, i)] = x[AT(row, i)];\n";
    let moved = format!("{last}    if (row == 0 && launches++ % 2) y[0] = nextafterf(y[0], 9.0f);\n");
    project.edit(&format!("{}/copy.c", package("other", 0)), last, &moved);
    project.mlarun(&["verify", MANIFEST]).expect(0).prints(" no");
    let told = project.json(&["verify", "--json", MANIFEST]);
    assert_eq!(told["subjects"][1]["own_shape"]["same_bits"], false);
    let recorded = project.json(&["cache", "ls", "--json"]);
    let entries = recorded.as_array().expect("a list");
    let other = entries.iter().find(|entry| entry["id"]["kernel"] == "other").expect("it is recorded");
    let shown = project.mlarun(&["show", other["key"].as_str().expect("a key")]).expect(0);
    drop(shown.prints("not deterministic"));
}

#[test]
fn verifying_never_tunes() {
    let project = Project::new();
    project.tunable();
    project.mlarun(&["verify", MANIFEST]).expect(0).says("verified copy v0").says_nothing_of("tun");
    project.run().expect(0).says("tuned copy v0");
    // From now on the tuned kernel is the one that counts.
    project.mlarun(&["verify", MANIFEST]).expect(0).prints("8 of 8").says_nothing_of("verified");
}

#[test]
fn what_is_asked_for_wrongly_is_said() {
    let project = Project::new();
    project.mlarun(&["verify", MANIFEST, "--sanitize"]).expect(2).says("these run on the CPU");
    project.mlarun(&["verify", MANIFEST, "--sanitize=valgrind"]).expect(2).says("no tool of the sanitizer");
    project.mlarun(&["verify", MANIFEST, "--only", "version == 'v7'"]).expect(2).says("is selected");
    project.mlarun(&["verify", "no/such.toml"]).expect(2);
    project.mlarun(&["profile", "copy", "--sanitize"]).expect(2).says("--prof_type=disabled");
}

#[test]
fn a_tiling_can_be_chosen_and_is_refused_where_its_space_rules_it_out() {
    let project = Project::new();
    let space = "[space]\nchoices = { lanes = [1, 2] }\nconstraints = [\"tile.lanes == 1 || rows > 8\"]\n\
                 default = { lanes = 1 }\n\n[[stages]]";
    project.edit(&format!("{}/kernel.toml", package("copy", 0)), "[[stages]]", space);
    let verify = |more: &[&str]| project.mlarun(&[&["verify", MANIFEST], more].concat());
    verify(&["--tile", "lanes=2"]).expect(4).says("REFUSED copy v0").says("`tile.lanes == 1 || rows > 8`");
    verify(&["--tile", "lanes=2", "--set", "shapes.rows=9"]).expect(0).prints("9 of 9");
    verify(&["--set", "shapes.rows=9"]).expect(0).says("verified copy v0");
    verify(&["--tile", "lans=2"]).expect(2).says("no kernel of rows has that choice");
    verify(&["--tile", "lanes"]).expect(2).says("NAME=VALUE");
}
