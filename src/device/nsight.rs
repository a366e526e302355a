//! Nsight Compute on this host: where it is, which version, and which of the metrics that annotation asks for it does not know.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Serialize;

use super::ask::{Unanswered, ask};
use crate::answers::{Answers, AnswersError};
use crate::model::ncu::NcuOffer;

/// Names the program, whatever else is installed.
pub const VARIABLE: &str = "MLARUN_NCU";
/// Folder of the packages of NVIDIA, with one folder a version.
const PACKAGES: &str = "opt/nvidia/nsight-compute";
/// The first start of a version unpacks files.
const LIMIT: Duration = Duration::from_secs(60);

/// Nsight Compute cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NcuError {
    #[error(
        "Nsight Compute (ncu) was not found on PATH, in the CUDA toolkit or below /opt/nvidia/nsight-compute; install it (package \
         nsight-compute, or the CUDA toolkit), or name the program in {VARIABLE}"
    )]
    Missing,
    #[error("{VARIABLE} names {}, which is no file", .0.display())]
    NoFile(PathBuf),
    #[error("{0}; run `ncu --version` by hand to see why, or name another installation in {VARIABLE}")]
    Unanswered(#[from] Unanswered),
    #[error("{} does not say its version; it said: {said}", program.display())]
    NoVersion { program: PathBuf, said: String },
    #[error(transparent)]
    Answers(#[from] AnswersError),
}

/// The program: the one that is `named`, else `ncu` in the first of `folders` that has it, else the newest package below `root`.
///
/// # Errors
/// There is none.
pub fn find(named: Option<&OsStr>, folders: &[PathBuf], root: &Path) -> Result<PathBuf, NcuError> {
    if let Some(named) = named.filter(|named| !named.is_empty()).map(PathBuf::from) {
        return if named.is_file() { Ok(named) } else { Err(NcuError::NoFile(named)) };
    }
    let packages = fs::read_dir(root.join(PACKAGES)).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut packages: Vec<PathBuf> = packages.collect();
    packages.sort_by_key(|folder| std::cmp::Reverse(numbers(folder)));
    let candidates = folders.iter().chain(&packages).map(|folder| folder.join("ncu"));
    candidates.into_iter().find(|program| program.is_file()).ok_or(NcuError::Missing)
}

/// The numbers in the name of a folder: 2025.10.1 is newer than 2025.3.1.
fn numbers(folder: &Path) -> Vec<u64> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

/// What `program` offers: its version, and which of `metrics` it does not know on the GPUs of this host. Remembered as long as
/// the program is the same file.
///
/// # Errors
/// It does not start or does not answer.
pub fn offer(program: &Path, metrics: &[String], answers: &Answers) -> Result<NcuOffer, NcuError> {
    #[derive(Serialize)]
    struct State<'a> {
        program: &'a Path,
        bytes: u64,
        changed_s: i64,
        metrics: &'a [String],
    }
    let file = fs::metadata(program).map_err(|_| NcuError::NoFile(program.to_owned()))?;
    let state = State { program, bytes: file.len(), changed_s: file.mtime(), metrics };
    answers.get_or_ask("ncu", &state, || {
        let said = ask(Command::new(program).arg("--version"), LIMIT)?;
        let version = version(&said).ok_or_else(|| {
            let said = said.lines().last().unwrap_or_default().to_owned();
            NcuError::NoVersion { program: program.to_owned(), said }
        })?;
        let mut known = BTreeSet::new();
        for collection in ["profiling", "launch"] {
            let mut query = Command::new(program);
            query.args(["--query-metrics", "--query-metrics-collection", collection]);
            known.extend(names(&ask(&mut query, LIMIT)?));
        }
        let lacks = metrics.iter().filter(|metric| !is_known(&known, metric)).cloned().collect();
        Ok(NcuOffer { version, lacks })
    })
}

/// `2025.3.1.0` in `Version 2025.3.1.0 (build 36398880) (public-release)`.
fn version(said: &str) -> Option<String> {
    let rest = said.lines().find_map(|line| line.trim().strip_prefix("Version "))?;
    rest.split_whitespace().next().map(str::to_owned)
}

/// First words of the lines of a list of metrics.
fn names(list: &str) -> impl Iterator<Item = String> {
    list.lines().filter_map(|line| line.split_whitespace().next()).filter(|name| name.contains("__")).map(str::to_owned)
}

/// A list holds metrics without what is to be made of them: `dram__bytes` for `dram__bytes.sum`. Ratios that stand for
/// themselves (`sm__maximum_warps_per_active_cycle_pct`) are in no list.
fn is_known(known: &BTreeSet<String>, metric: &str) -> bool {
    let is_listed = metric.contains('.') || metric.starts_with("launch__");
    let base = metric.split('.').next().unwrap_or(metric);
    // Where a version lists none at all, nothing is known against any.
    !is_listed || known.is_empty() || known.contains(base)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn program(folder: &Path, text: &str) -> PathBuf {
        fs::create_dir_all(folder).expect("a folder");
        let file = folder.join("ncu");
        fs::write(&file, text).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("executable");
        file
    }

    #[test]
    fn the_named_one_comes_first_then_the_path_then_the_newest_package() {
        let root = tempfile::tempdir().expect("a folder");
        assert!(matches!(find(None, &[], root.path()), Err(NcuError::Missing)));
        let package = |version: &str| root.path().join(PACKAGES).join(version);
        program(&package("2025.3.1"), "");
        let newest = program(&package("2025.10.0"), "");
        assert_eq!(find(None, &[], root.path()).expect("a package"), newest);
        let on_path = program(&root.path().join("bin"), "");
        let folders = [root.path().join("empty"), root.path().join("bin")];
        assert_eq!(find(None, &folders, root.path()).expect("on the path"), on_path);
        assert_eq!(find(Some(newest.as_os_str()), &folders, root.path()).expect("named"), newest);
        assert!(matches!(find(Some(OsStr::new("/no/ncu")), &folders, root.path()), Err(NcuError::NoFile(_))));
    }

    #[test]
    fn metrics_are_known_by_their_base_names() {
        let list = "Device NVIDIA H200 (GH100)\n------\nMetric Name  Metric Type\n\
                    dram__bytes   Counter  # of bytes\nlaunch__registers_per_thread  registers\n";
        let known: BTreeSet<String> = names(list).collect();
        assert!(is_known(&known, "dram__bytes.sum") && is_known(&known, "launch__registers_per_thread"));
        assert!(!is_known(&known, "dram__bytes_op_read.sum") && !is_known(&known, "launch__waves"));
        assert!(is_known(&known, "sm__maximum_warps_per_active_cycle_pct"), "no list holds it");
        assert!(is_known(&BTreeSet::new(), "anything"));
    }

    #[test]
    fn a_version_is_read_and_its_absence_told() {
        let said =
            "NVIDIA (R) Nsight Compute Command Line Profiler\nCopyright (c)\nVersion 2025.3.1.0 (build 1) (public)\n";
        assert_eq!(version(said).as_deref(), Some("2025.3.1.0"));
        assert_eq!(version("ncu: error"), None);
    }
}
