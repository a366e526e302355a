//! Two planted faults that leave the output right, found by `mlarun verify --sanitize` where there is a GPU with
//! compute-sanitizer; elsewhere the test says what is missing, as mlarun does.

use std::path::Path;
use std::process::Command;

use walkdir::WalkDir;

/// The project of tests/planted/cuda in a temporary folder.
struct Planted(tempfile::TempDir);

impl Planted {
    fn new() -> Planted {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/planted/cuda");
        for entry in WalkDir::new(&source).into_iter().map(|entry| entry.expect("it can be walked")) {
            let target = folder.path().join(entry.path().strip_prefix(&source).expect("below it"));
            match entry.file_type().is_dir() {
                true => std::fs::create_dir_all(target).expect("a folder"),
                false => drop(std::fs::copy(entry.path(), target).expect("a file")),
            }
        }
        Planted(folder)
    }

    /// Exit code and everything that `mlarun verify` says.
    fn verify(&self, more: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mlarun"));
        command.args(["verify", "experiments/planted.toml"]).args(more).current_dir(self.0.path());
        let output = command.env("MLARUN_LEASE_DIR", self.0.path().join("lease")).output().expect("mlarun starts");
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        (output.status.code(), said)
    }
}

#[test]
fn planted_faults_that_leave_the_output_right_are_found() {
    let planted = Planted::new();
    let (code, said) = planted.verify(&[]);
    if code == Some(3) {
        assert!(said.contains("GPU") || said.contains("CUDA") || said.contains("cuda"), "{said}");
        eprintln!("not tested: {said}");
        return;
    }
    assert_eq!(code, Some(0), "both outputs are right: {said}");
    let (code, said) = planted.verify(&["--sanitize"]);
    if code == Some(3) {
        assert!(said.contains("the host has no compute-sanitizer"), "{said}");
        eprintln!("not tested: {said}");
        return;
    }
    assert_eq!(code, Some(5), "{said}");
    let line =
        |start: &str| said.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {said}"));
    let outside = line("FAILED outside v0");
    for words in ["on the reduced shape", "memcheck found a fault: Invalid __global__ read of size 4", "copy.cu:5"] {
        assert!(outside.contains(words), "{outside}");
    }
    let race = line("FAILED race v0");
    assert!(race.contains("racecheck found a fault: Error: Race reported between Write access"), "{race}");
    assert!(said.contains("memcheck found nothing in race v0"), "{said}");
    let text = std::fs::read_to_string(planted.0.path().join("out/experiments/planted/verification.json"));
    let json: serde_json::Value = serde_json::from_str(&text.expect("it is written")).expect("JSON");
    for subject in json["subjects"].as_array().expect("a list") {
        assert_eq!((&subject["failure"], &subject["stage"]), (&"sanitizer".into(), &"first".into()), "{subject}");
    }
}
