//! The project's own kernels, experiments, configuration, templates and dev logs.

use std::path::{Path, PathBuf};

use mlarun::app::Project as Opened;
use mlarun::manifest::{self, Source};
use mlarun::model::DeviceKind;

use crate::project::Project;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(folder)).expect("a folder");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    files.sort();
    files
}

fn opened() -> Opened {
    Opened::open(root(), None, None).expect("the project opens")
}

#[test]
fn every_kernel_is_sound() {
    let opened = opened();
    let diagnostics = opened.catalog.diagnostics();
    assert!(diagnostics.is_empty(), "{diagnostics:#?}");
    let attention = opened.catalog.packages().filter(|package| package.folder.starts_with("kernels/c/mla")).count();
    assert_eq!(attention, 9);
}

#[test]
fn every_experiment_is_sound() {
    let opened = opened();
    let manifests = files("experiments", "toml");
    assert!(manifests.len() >= 4, "{manifests:?}");
    for path in manifests {
        let text = std::fs::read_to_string(&path).expect("a file");
        let document = manifest::parse(Source { path: path.clone(), text }, &[]).expect("TOML");
        let (experiment, warnings) = manifest::resolve(&document, &opened.catalog, DeviceKind::Cpu)
            .unwrap_or_else(|error| panic!("{path:?}: {error:?}"));
        assert!(warnings.is_empty(), "{warnings:#?}");
        assert_eq!(Some(experiment.name.as_str()), path.file_stem().and_then(|name| name.to_str()));
        assert!(!experiment.shapes.is_empty());
    }
}

#[test]
fn every_template_renders() {
    mlarun::report::Renderer::load(&root().join("templates")).expect("the templates are sound");
    assert!(!files("templates", "hbs").is_empty());
}

#[test]
fn every_dev_log_is_what_its_records_say() {
    let opened = opened();
    for (kernel, records) in mlarun::app::devlogs::recorded_kernels(&opened).expect("records") {
        let checked = mlarun::app::devlogs::check(&opened, &kernel, &records).expect("a log");
        assert!(checked.stale.is_empty(), "{}: {:?}", checked.path.display(), checked.stale);
    }
}

/// The kernels of kernels/c/mla in a project of their own, whose searches try two points.
fn attention() -> Project {
    let project = Project::new();
    project.edit("conf/protocol.toml", "max_candidates = 8", "max_candidates = 1");
    for entry in walkdir::WalkDir::new(root().join("kernels/c")).into_iter().filter_map(Result::ok) {
        if entry.file_type().is_file() {
            let path = entry.path().strip_prefix(root()).expect("below the root");
            let text = std::fs::read_to_string(entry.path()).expect("text");
            project.write(path.to_str().expect("UTF-8"), &text);
        }
    }
    project
}

/// Every version of `kernel` gives the right output, in both element types, causal and not.
#[track_caller]
fn is_right(kernel: &str) {
    let project = attention();
    for version in ["v0", "v1", "v2"] {
        for (dtype, causal, s) in [("float32", "true", 5), ("bfloat16", "false", 1)] {
            let shape = [format!("--dtype={dtype}"), format!("--causal={causal}"), format!("--s={s}")];
            let [dtype, causal, s] = shape.each_ref().map(String::as_str);
            let arguments = [
                "profile",
                kernel,
                version,
                "--prof_type=disabled",
                "--check",
                "--b=1",
                "--h=4",
                "--t=67",
                "--d=32",
                "--k=64",
                "--p=16",
                dtype,
                causal,
                s,
            ];
            project.mlarun(&arguments).expect(0).says(&format!("verified {kernel} {version}"));
        }
    }
}

#[test]
fn flash_attention_is_right() {
    is_right("flash_attention");
}

#[test]
fn flash_mla_is_right() {
    is_right("flash_mla");
}

#[test]
fn mla_var6_plus_is_right() {
    is_right("mla_var6_plus");
}
