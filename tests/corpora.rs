//! What fuzzers found worth keeping (fuzz/corpus), met again by every reader of texts that strangers may have written.

use std::path::{Path, PathBuf};

use mlarun::catalog::Catalog;
use mlarun::fuzz;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Gives every file of the corpus of `target` to `reader`.
fn replay(target: &str, reader: impl Fn(&[u8])) {
    let folder = root().join("fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let files: Vec<PathBuf> = entries.map(|entry| entry.expect("the folder can be read").path()).collect();
    assert!(files.len() > 10, "{} holds a corpus", folder.display());
    for file in files {
        // The last one that is named is the one that failed.
        println!("{}", file.display());
        reader(&std::fs::read(&file).expect("a file of the corpus can be read"));
    }
}

#[test]
fn manifests() {
    let catalog = Catalog::load(root());
    replay("manifest", |text| fuzz::manifest(text, &catalog));
}

#[test]
fn kernels() {
    replay("kernel", |text| fuzz::kernel(text, root()));
}

#[test]
fn expressions() {
    replay("expression", fuzz::expression);
}

#[test]
fn worker_lines() {
    replay("worker_lines", fuzz::worker_lines);
}

#[test]
fn records() {
    replay("record", fuzz::record);
}

#[test]
fn recordings() {
    replay("recording", fuzz::recording);
}

#[test]
fn exports_of_nsight_systems() {
    replay("nsys_export", fuzz::nsys_export);
}

#[test]
fn texts_of_nsight_systems() {
    replay("nsys_text", fuzz::nsys_text);
}
