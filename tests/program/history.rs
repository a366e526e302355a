//! `mlarun history`: what is recorded of a kernel, over time.

use crate::project::{MANIFEST, Project, ended};

#[test]
fn sessions_are_points_in_every_form() {
    let project = Project::new();
    project.run().expect(0);
    project.mlarun(&[MANIFEST, "--remeasure"]).expect(0);
    project.mlarun(&["history", "copy"]).expect(0).prints("copy v0").prints("2 sessions").prints("●");
    let json = project.json(&["history", "copy", "v0", "--rows=8", "--since", "1d", "--json"]);
    assert_eq!((&json["metric"], &json["unit"]), (&"cold_isolated".into(), &"ns".into()));
    let points = json["series"][0]["points"].as_array().expect("points");
    assert_eq!(points.len(), 2);
    assert!(points[0]["taken_at"].as_str() < points[1]["taken_at"].as_str());
    assert_eq!(json["series"][0]["marks"].as_array().map(Vec::len), Some(0), "nothing changed in between");
    let csv = project.mlarun(&["history", "copy", "--csv", "--metric", "warm_batched"]).expect(0);
    assert_eq!(csv.out.lines().count(), 3, "{}", csv.out);
    let svg = project.mlarun(&["history", "copy", "--svg", "plots/copy.svg"]).expect(0);
    assert!(svg.out.contains('●'));
    assert_eq!(project.read("plots/copy.svg").matches("<circle").count(), 2);
}

#[test]
fn changed_code_is_marked() {
    let project = Project::new();
    project.run().expect(0);
    let body = "\n{\n    volatile int64_t seen = row;\n    (void)seen;\n";
    project.edit("kernels/c/rows/copy/copy.c", "\n{\n", body);
    project.run().expect(0);
    let json = project.json(&["history", "copy", "--json"]);
    let marks = json["series"][0]["marks"].as_array().expect("marks");
    assert_eq!(marks.iter().map(|mark| mark["what"].as_str()).collect::<Vec<_>>(), [Some("code")]);
}

#[test]
fn what_leaves_nothing_is_named() {
    let project = Project::new();
    project.run().expect(0);
    for (arguments, said) in [
        (&["history", "cop"][..], "did you mean `copy`?"),
        (&["history", "copy", "v3"], "only v0 (c) is recorded"),
        (&["history", "copy", "--rows=9"], "there are 8"),
        (&["history", "copy", "--colums=9"], "has a parameter `colums`"),
        (&["history", "copy", "--metric", "stage.copy"], "mode annotation"),
        (&["history", "copy", "--metric", "power_w"], "does not tell it"),
        (&["history", "copy", "--since", "2999-01-01"], "the newest was taken at 20"),
        (&["history", "copy", "--since", "soon"], "is no time"),
        (&["history", "copy", "--metric", "speed"], "is no metric"),
    ] {
        project.mlarun(arguments).expect(2).says(said);
    }
}

#[test]
fn times_are_shown_in_the_callers_zone() {
    let project = Project::new();
    project.run().expect(0);
    let mut command = project.command(&["history", "copy"]);
    ended(command.env("TZ", "XYZ-5:30")).expect(0).prints("+05:30");
}
