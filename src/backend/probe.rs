//! Finds the system's C compiler and asks it who it is, once: its answer is remembered by the compiler's resolved path,
//! size and time of change.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::process::{self, ProcessError};
use crate::answers::{Answers, AnswersError};
use crate::model::Key;
use crate::model::build::CompilerId;

/// The host has no C compiler that mlarun can use.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error(
        "no C compiler: `{command}` is not an executable in PATH; install one (Debian, Ubuntu: `apt install gcc`; \
         Fedora: `dnf install gcc`; Alpine: `apk add gcc musl-dev`) or set CC to its path"
    )]
    Missing { command: String },
    #[error("the C compiler cannot be asked for its identity: {0}")]
    Process(#[from] ProcessError),
    #[error("{}: its answer to `{arguments}` lacks {lacking}; mlarun knows gcc and clang: set CC to one of them", program.display())]
    Unclear { program: PathBuf, arguments: &'static str, lacking: &'static str },
    #[error("{}: {error}; check that the file exists and can be read and written", path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error(transparent)]
    Answers(#[from] AnswersError),
}

/// A compiler that was found, and what it said about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Command as the user named it (`cc`, or the value of CC).
    pub command: String,
    /// Executable file.
    pub program: PathBuf,
    pub id: CompilerId,
    /// Folders of the system's headers, with symbolic links resolved.
    pub include_folders: Vec<PathBuf>,
}

/// What a compiler said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Answer {
    id: CompilerId,
    include_folders: Vec<PathBuf>,
}

/// What an answer holds for: this very executable on this very model of CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct State {
    size: u64,
    changed_ns: u64,
    cpu: Key,
}

/// The compiler that `command` (a program and its fixed arguments) names, looked up in the folders of `path`.
///
/// # Errors
/// There is none, or it does not answer as gcc and clang do.
pub fn probe(command: &str, path: &OsStr, cache: &Path) -> Result<Probe, ProbeError> {
    let mut words = command.split_whitespace();
    let missing = || ProbeError::Missing { command: command.to_owned() };
    let program = words.next().and_then(|name| process::find(name, path)).ok_or_else(missing)?;
    let arguments: Vec<String> = words.map(str::to_owned).collect();
    let answer = known_or_asked(&program, &arguments, cache)?;
    Ok(Probe { command: command.to_owned(), program, id: answer.id, include_folders: answer.include_folders })
}

fn known_or_asked(program: &Path, arguments: &[String], cache: &Path) -> Result<Answer, ProbeError> {
    let resolved = program.canonicalize().map_err(io(program))?;
    let name = std::iter::once(resolved.to_string_lossy().as_ref())
        .chain(arguments.iter().map(String::as_str))
        .collect::<Vec<_>>()
        .join(" ");
    Answers::new(cache).get_or_ask(&name, &state(&resolved)?, || ask(program, arguments))
}

fn state(program: &Path) -> Result<State, ProbeError> {
    let meta = program.metadata().map_err(io(program))?;
    let changed = meta.modified().map_err(io(program))?.duration_since(UNIX_EPOCH).unwrap_or_default();
    let changed_ns = u64::try_from(changed.as_nanos()).unwrap_or(u64::MAX);
    Ok(State { size: meta.len(), changed_ns, cpu: cpu_model() })
}

/// Hash of the model and the instruction sets of the first CPU, by which a compiler resolves "native". Where
/// /proc/cpuinfo cannot be read, all machines count as one and a moved cache folder must be deleted by hand.
fn cpu_model() -> Key {
    const CHANGING: [&str; 3] = ["cpu MHz", "bogomips", "BogoMIPS"];
    let lines = fs::File::open("/proc/cpuinfo").map(|file| BufReader::new(file).lines());
    let first: Vec<String> = lines
        .into_iter()
        .flatten()
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .filter(|line| !CHANGING.iter().any(|name| line.starts_with(name)))
        .collect();
    Key::of("cpu/1", &first)
}

fn ask(program: &Path, arguments: &[String]) -> Result<Answer, ProbeError> {
    const VERBOSE: [&str; 7] = ["-march=native", "-v", "-E", "-dM", "-x", "c", "-"];
    let run = |more: &[&str], input| -> Result<std::process::Output, ProbeError> {
        let mut command = process::tool(program);
        Ok(process::success(command.args(arguments).args(more).stdin(input))?)
    };
    let unclear = |arguments, lacking| ProbeError::Unclear { program: program.into(), arguments, lacking };
    let version = process::text(&run(&["--version"], std::process::Stdio::null())?.stdout);
    let version = version.lines().next().filter(|line| !line.is_empty());
    let target = process::text(&run(&["-dumpmachine"], std::process::Stdio::null())?.stdout);
    let verbose = run(&VERBOSE, process::input("#include <stdint.h>\n").map_err(io(&std::env::temp_dir()))?)?;
    let (macros, spoken) = (process::text(&verbose.stdout), process::text(&verbose.stderr));
    let include_folders = include_folders(&spoken);
    if include_folders.is_empty() {
        return Err(unclear("-v", "the folders of its headers"));
    }
    let id = CompilerId {
        version: without_name(version.ok_or_else(|| unclear("--version", "a first line"))?, program),
        target: target.trim().to_owned(),
        arguments: arguments.to_vec(),
        native: Key::of("native/1", &(resolved_flags(&spoken), macros)),
    };
    Ok(Answer { id, include_folders })
}

/// A version line without the name by which the compiler was called: `cc (Debian 12.2.0) 12.2.0` says no more than
/// `gcc-12 (Debian 12.2.0) 12.2.0`.
fn without_name(line: &str, program: &Path) -> String {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let rest = line.strip_prefix(name.as_ref()).filter(|rest| rest.starts_with(' '));
    rest.map_or_else(|| line.to_owned(), |rest| format!("cc{rest}"))
}

/// Flags of the inner compiler's command, which `-v` prints behind a space, without paths: what "native" has become.
fn resolved_flags(spoken: &str) -> Vec<&str> {
    let commands = spoken.lines().filter(|line| line.starts_with(' ') && line.contains(" -"));
    commands.flat_map(str::split_whitespace).filter(|word| !word.contains('/')).collect()
}

/// Folders between the lines by which gcc and clang frame the search list of `<…>`.
fn include_folders(spoken: &str) -> Vec<PathBuf> {
    let list = spoken.lines().skip_while(|line| !line.starts_with("#include <...>")).skip(1);
    let folders = list.take_while(|line| line.starts_with(' ')).map(|line| PathBuf::from(line.trim()));
    folders.filter_map(|folder| folder.canonicalize().ok()).collect()
}

pub(super) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> ProbeError {
    let path = path.to_owned();
    move |error| ProbeError::Io { path, error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// A compiler that answers as gcc does and counts, in `calls`, how often it was started.
    fn scripted(folder: &Path, version: &str, flags: &str) -> PathBuf {
        let script = format!(
            "#!/bin/sh\necho \"$@\" >> {calls}\ncase \"$*\" in\n--version) echo 'cc ({version}) {version}';;\n\
             -dumpmachine) echo x86_64-linux-gnu;;\n*) echo '#define __VERSION__'; printf '%s\\n' ' /lib/cc1 -E {flags}' \
             '#include <...> search starts here:' ' /usr' 'End of search list.' >&2;;\nesac\n",
            calls = folder.join("calls").display()
        );
        let program = folder.join("cc");
        fs::write(&program, script).expect("a script");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
        program
    }

    fn calls(folder: &Path) -> usize {
        fs::read_to_string(folder.join("calls")).expect("calls").lines().count()
    }

    #[test]
    fn an_unchanged_compiler_is_asked_once() {
        let folder = tempfile::tempdir().expect("a folder");
        scripted(folder.path(), "1.0", "-mavx2");
        let probe = || probe("cc", folder.path().as_os_str(), &folder.path().join("cache")).expect("probed");
        let first = probe();
        assert_eq!(first.id.version, "cc (1.0) 1.0");
        let asked = calls(folder.path());
        assert_eq!(probe(), first);
        assert_eq!(calls(folder.path()), asked);
    }

    #[test]
    fn a_replaced_compiler_and_a_spoilt_memory_are_asked_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let probe = || probe("cc", folder.path().as_os_str(), &folder.path().join("cache")).expect("probed");
        scripted(folder.path(), "1.0", "-mavx2");
        let first = probe();
        scripted(folder.path(), "1.10", "-mavx2");
        let second = probe();
        assert_ne!(first.id, second.id);
        fs::write(folder.path().join("cache/probes.json"), "{").expect("spoilt");
        assert_eq!(probe(), second);
    }

    #[test]
    fn what_native_means_is_part_of_the_identity_and_the_name_is_not() {
        let (one, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let id = |folder: &Path, command: &str| {
            probe(command, folder.as_os_str(), &folder.join("cache")).expect("probed").id
        };
        scripted(one.path(), "1.0", "-mavx2");
        scripted(other.path(), "1.0", "-mavx2 -mavx512f");
        assert_ne!(id(one.path(), "cc"), id(other.path(), "cc"));
        scripted(other.path(), "1.0", "-mavx2");
        let by_path = other.path().join("cc").display().to_string();
        assert_eq!(id(one.path(), "cc"), id(other.path(), &by_path));
    }

    #[test]
    fn a_missing_compiler_says_what_to_install() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = probe("cc -m32", folder.path().as_os_str(), folder.path()).expect_err("there is none");
        assert!(error.to_string().contains("apt install gcc"), "{error}");
    }

    #[test]
    fn the_inner_command_is_read_without_its_paths() {
        let spoken = "Target: x\n /usr/lib/cc1 -E /dev/null \"-march=znver3\" -mno-xop\n#include <...> search starts here:\n \
                      /usr\nEnd of search list.\n";
        assert_eq!(resolved_flags(spoken), ["-E", "\"-march=znver3\"", "-mno-xop"]);
        assert_eq!(include_folders(spoken), [PathBuf::from("/usr")]);
    }
}
