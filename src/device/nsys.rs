//! Nsight Systems on this host: where it is, which version, and whether it can import what it traces.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ask::{Unanswered, ask};
use crate::answers::{Answers, AnswersError};

/// Names the program, whatever else is installed.
pub const VARIABLE: &str = "MLARUN_NSYS";
/// Names folders of libraries for it alone, before those of LD_LIBRARY_PATH.
pub const LIBRARIES: &str = "MLARUN_NSYS_LIBRARIES";
/// Folders of NVIDIA's packages, with one folder a version, and where the program lies in each.
const PACKAGES: [(&str, &str); 4] = [
    ("opt/nvidia/nsight-systems", "bin/nsys"),
    ("opt/nvidia/nsight-systems-cli", "bin/nsys"),
    // Nsight Compute brings a copy of its own.
    ("opt/nvidia/nsight-compute", "host/target-linux-x64/nsys"),
    ("opt/nvidia/nsight-compute", "host/target-linux-sbsa-armv8/nsys"),
];
/// The first start of a version unpacks files.
const LIMIT: Duration = Duration::from_secs(60);

/// Nsight Systems cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NsysError {
    #[error(
        "Nsight Systems (nsys) was not found on PATH, in the CUDA toolkit, below /opt/nvidia/nsight-systems or in Nsight Compute; \
         install it (package nsight-systems), or name the program in {VARIABLE}"
    )]
    Missing,
    #[error("{VARIABLE} names {}, which is no file", .0.display())]
    NoFile(PathBuf),
    #[error("{0}; run `nsys --version` by hand to see why, or name another installation in {VARIABLE}")]
    Unanswered(#[from] Unanswered),
    #[error("{} does not say its version; it said: {said}", program.display())]
    NoVersion { program: PathBuf, said: String },
    #[error(
        "{} traces, and cannot import what it traced: its importer needs libdw.so.1. Install it (libdw1 on Debian and Ubuntu, \
         elfutils-libs on Fedora and RHEL), or name the folder that holds it in {LIBRARIES}",
        .0.display()
    )]
    NoImporter(PathBuf),
    #[error("a folder to try Nsight Systems in cannot be made: {0}")]
    Folder(std::io::Error),
    #[error(transparent)]
    Answers(#[from] AnswersError),
}

/// The program with what it is started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nsys {
    pub program: PathBuf,
    /// Value of LD_LIBRARY_PATH for it, where that differs from this process's.
    pub library_path: Option<OsString>,
}

impl Nsys {
    /// The program: the one that is `named`, else `nsys` in the first of `folders` that has it, else that of the newest package
    /// below `root`. `libraries` are folders that it finds libraries in, before those of `library_path`.
    ///
    /// # Errors
    /// There is none.
    pub fn find(
        named: Option<&OsStr>,
        folders: &[PathBuf],
        root: &Path,
        libraries: Option<&OsStr>,
        library_path: Option<&OsStr>,
    ) -> Result<Nsys, NsysError> {
        let program = match named.filter(|named| !named.is_empty()).map(PathBuf::from) {
            Some(named) if named.is_file() => named,
            Some(named) => return Err(NsysError::NoFile(named)),
            None => {
                let on_path = folders.iter().map(|folder| folder.join("nsys"));
                let mut candidates = on_path.chain(packaged(root));
                candidates.find(|program| program.is_file()).ok_or(NsysError::Missing)?
            }
        };
        let library_path = libraries.filter(|libraries| !libraries.is_empty()).map(|libraries| {
            let mut joined = libraries.to_owned();
            if let Some(others) = library_path.filter(|others| !others.is_empty()) {
                joined.push(":");
                joined.push(others);
            }
            joined
        });
        Ok(Nsys { program, library_path })
    }

    /// What it offers. Remembered as long as the program is the same file.
    ///
    /// # Errors
    /// It does not start, does not answer, or cannot import what it has traced.
    pub fn offer(&self, answers: &Answers) -> Result<String, NsysError> {
        #[derive(Serialize)]
        struct State<'a> {
            program: &'a Path,
            bytes: u64,
            changed_s: i64,
            library_path: Option<String>,
        }
        #[derive(Serialize, Deserialize)]
        struct Found {
            version: String,
        }
        let file = fs::metadata(&self.program).map_err(|_| NsysError::NoFile(self.program.clone()))?;
        let library_path = self.library_path.as_ref().map(|path| path.to_string_lossy().into_owned());
        let state = State { program: &self.program, bytes: file.len(), changed_s: file.mtime(), library_path };
        // What cannot import is asked again: what it lacks may have been installed.
        let found = answers.get_or_ask("nsys", &state, || {
            let said = ask(self.command().arg("--version"), LIMIT)?;
            let version = version(&said).ok_or_else(|| {
                let said = said.lines().last().unwrap_or_default().to_owned();
                NsysError::NoVersion { program: self.program.clone(), said }
            })?;
            self.try_importer()?;
            Ok::<_, NsysError>(Found { version })
        })?;
        Ok(found.version)
    }

    /// Traces a program that does nothing. One that leaves neither a report nor a recording is left to show its fault when it is
    /// used.
    fn try_importer(&self) -> Result<(), NsysError> {
        let folder = tempfile::tempdir().map_err(NsysError::Folder)?;
        let output = folder.path().join("trial");
        let mut trial = self.command();
        trial
            .args(["profile", "-t", "nvtx", "-s", "none", "--cpuctxsw=none", "-f", "true", "-o"])
            .arg(&output)
            .arg("true");
        match ask(&mut trial, LIMIT) {
            Err(error @ Unanswered::Start { .. } | error @ Unanswered::Slow { .. }) => return Err(error.into()),
            Ok(_) | Err(Unanswered::Failed { .. }) => {}
        }
        let left = |ending: &str| output.with_extension(ending).is_file();
        if left("qdstrm") && !left("nsys-rep") { Err(NsysError::NoImporter(self.program.clone())) } else { Ok(()) }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.envs(self.library_path.iter().map(|path| ("LD_LIBRARY_PATH", path)));
        command
    }
}

/// Programs of packages below `root`, the newest version of each first.
fn packaged(root: &Path) -> Vec<PathBuf> {
    let of_package = |(folder, program): &(&str, &str)| {
        let versions = fs::read_dir(root.join(folder)).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut versions: Vec<PathBuf> = versions.collect();
        versions.sort_by_key(|folder| std::cmp::Reverse(numbers(folder)));
        versions.into_iter().map(|version| version.join(program)).collect::<Vec<_>>()
    };
    PACKAGES.iter().flat_map(of_package).collect()
}

/// The numbers in the name of a folder: 2025.10.1 is newer than 2025.3.1.
fn numbers(folder: &Path) -> Vec<u64> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

/// `2025.3.1.90` in `NVIDIA Nsight Systems version 2025.3.1.90-253135822126v0`.
fn version(said: &str) -> Option<String> {
    let rest = said.lines().find_map(|line| line.split_once("version "))?.1;
    let version = rest.split(|character: char| character.is_whitespace() || character == '-').next()?;
    (!version.is_empty()).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Puts a program there that another process has written: one that is open for writing cannot be started.
    fn program(file: &Path, text: &str) -> PathBuf {
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        let source = file.with_extension("sh");
        fs::write(&source, format!("#!/bin/sh\n{text}\n")).expect("written");
        fs::set_permissions(&source, fs::Permissions::from_mode(0o755)).expect("executable");
        let moved = Command::new("mv").arg(&source).arg(file).status().expect("mv runs");
        assert!(moved.success());
        file.to_owned()
    }

    fn found(named: Option<&OsStr>, folders: &[PathBuf], root: &Path) -> Result<PathBuf, NsysError> {
        Nsys::find(named, folders, root, None, None).map(|nsys| nsys.program)
    }

    #[test]
    fn the_named_one_comes_first_then_the_path_then_packages_then_nsight_computes_copy() {
        let root = tempfile::tempdir().expect("a folder");
        let path = |path: &str| root.path().join(path);
        assert!(matches!(found(None, &[], root.path()), Err(NsysError::Missing)));
        let copy = program(&path("opt/nvidia/nsight-compute/2025.3.1/host/target-linux-x64/nsys"), "");
        assert_eq!(found(None, &[], root.path()).expect("a copy"), copy);
        program(&path("opt/nvidia/nsight-systems/2025.3.1/bin/nsys"), "");
        let newest = program(&path("opt/nvidia/nsight-systems/2025.10.2/bin/nsys"), "");
        assert_eq!(found(None, &[], root.path()).expect("a package"), newest);
        let on_path = program(&path("bin/nsys"), "");
        assert_eq!(found(None, &[path("none"), path("bin")], root.path()).expect("on the path"), on_path);
        assert_eq!(found(Some(copy.as_os_str()), &[path("bin")], root.path()).expect("named"), copy);
        assert!(matches!(found(Some(OsStr::new("/no/nsys")), &[], root.path()), Err(NsysError::NoFile(_))));
    }

    #[test]
    fn its_own_libraries_come_before_the_others() {
        let root = tempfile::tempdir().expect("a folder");
        let named = program(&root.path().join("nsys"), "");
        let path = |libraries: Option<&str>, others: Option<&str>| {
            let text = |text: Option<&str>| text.map(OsString::from);
            let (libraries, others) = (text(libraries), text(others));
            let found = Nsys::find(Some(named.as_os_str()), &[], root.path(), libraries.as_deref(), others.as_deref());
            found.expect("named").library_path.map(|path| path.to_string_lossy().into_owned())
        };
        assert_eq!(path(None, Some("/lib")), None);
        assert_eq!(path(Some("/dw"), None).as_deref(), Some("/dw"));
        assert_eq!(path(Some("/dw"), Some("/lib")).as_deref(), Some("/dw:/lib"));
    }

    /// What a program offers that leaves a file with this ending, and what it was asked.
    fn offered(ending: &str) -> (Result<String, NsysError>, String) {
        let folder = tempfile::tempdir().expect("a folder");
        let asked = folder.path().join("asked");
        let text = format!(
            "echo \"$LD_LIBRARY_PATH $1\" >> {}\n[ $1 = --version ] && echo 'NVIDIA Nsight Systems version 2025.3.1.90-2531v0' && exit\n\
             while [ $1 != -o ]; do shift; done\n> $2.{ending}",
            asked.display()
        );
        let named = program(&folder.path().join("nsys"), &text);
        let nsys =
            Nsys::find(Some(named.as_os_str()), &[], folder.path(), Some(OsStr::new("/dw")), None).expect("named");
        let answers = Answers::new(folder.path());
        let first = nsys.offer(&answers);
        let again = nsys.offer(&answers);
        assert_eq!(first.is_ok(), again.is_ok());
        (first, fs::read_to_string(asked).expect("it was asked"))
    }

    #[test]
    fn one_that_imports_is_asked_once() {
        let (offer, asked) = offered("nsys-rep");
        assert_eq!(offer.expect("an offer"), "2025.3.1.90");
        assert_eq!(asked, "/dw --version\n/dw profile\n");
    }

    #[test]
    fn one_that_cannot_import_says_what_it_needs_and_is_asked_again() {
        let (offer, asked) = offered("qdstrm");
        let error = offer.expect_err("it cannot import").to_string();
        assert!(error.contains("libdw.so.1") && error.contains(LIBRARIES), "{error}");
        assert_eq!(asked.lines().count(), 4);
    }
}
