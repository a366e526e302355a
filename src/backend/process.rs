//! Runs a compiler or a binary tool to its end with an allow-listed environment. Interprets nothing.
//!
//! A tool that may take long is started by a guard, this program under another name: it ends the tool with everything
//! that the tool has started when the runner is gone, however that ended.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Variables that a tool inherits; all others could change what it makes without entering a key.
const INHERITED: [&str; 3] = ["PATH", "HOME", "TMPDIR"];

/// A tool did not run.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("{}: does not start: {error}; check the installation", program.display())]
    Start { program: PathBuf, error: std::io::Error },
    #[error("`{command}` failed ({status}): {message}")]
    Failed { command: String, status: ExitStatus, message: String },
    #[error(
        "`{command}` had not ended after {} s and was stopped; if it needs longer, raise `compile_s` in \
         conf/protocol.toml", limit.as_secs()
    )]
    TimedOut { command: String, limit: Duration },
    #[error("interrupted")]
    Interrupted,
}

/// How long a tool may take.
#[derive(Debug, Clone)]
pub struct Patience {
    pub limit: Duration,
    /// Set when the user asks to stop.
    pub interrupted: Arc<AtomicBool>,
    /// The program that answers to [`GUARD`]: mlarun. `None`: a tool outlives a runner that is killed.
    pub guard: Option<PathBuf>,
}

/// First argument of a guard; program and arguments of the tool follow.
pub const GUARD: &str = "__guard";

/// `program` with nothing but the allow-listed environment, English messages and no input.
pub fn tool(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("LC_ALL", "C").env("LANG", "C").stdin(Stdio::null());
    for name in INHERITED {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
}

/// A file with `text`, to be read as a tool's standard input.
pub fn input(text: &str) -> std::io::Result<Stdio> {
    use std::io::{Seek as _, Write as _};
    let mut file = tempfile::tempfile()?;
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file.into())
}

/// Runs `command` to its end, whatever its exit status.
pub fn output(command: &mut Command) -> Result<Output, ProcessError> {
    command.output().map_err(|error| ProcessError::Start { program: command.get_program().into(), error })
}

/// Runs `command` to its end, whatever its exit status; when `patience` ends first, kills it with all that it started.
pub fn output_within(command: &mut Command, patience: &Patience) -> Result<Output, ProcessError> {
    /// Time between two looks at whether to go on.
    const LOOK: Duration = Duration::from_millis(50);
    let program = PathBuf::from(command.get_program());
    let start = |error| ProcessError::Start { program: program.clone(), error };
    let started = Instant::now();
    let mut guarded = patience.guard.as_ref().map(|guard| guarded(guard, command));
    let spawned = guarded.as_mut().unwrap_or(&mut *command);
    spawned.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut running = Running(spawned.spawn().map_err(start)?);
    let (sender, receiver) = channel();
    let stdout = read_to_end(running.0.stdout.take(), sender.clone());
    let stderr = read_to_end(running.0.stderr.take(), sender);
    // Both ends of `sender` are gone when the tool has closed its output, which is the sign that it has ended.
    while let Err(RecvTimeoutError::Timeout) = receiver.recv_timeout(LOOK) {
        if patience.interrupted.load(Ordering::Relaxed) {
            return Err(ProcessError::Interrupted);
        }
        if started.elapsed() > patience.limit {
            let command = words(std::iter::once(command.get_program()).chain(command.get_args()));
            return Err(ProcessError::TimedOut { command, limit: patience.limit });
        }
    }
    let status = running.0.wait().map_err(start)?;
    let bytes = |thread: JoinHandle<Vec<u8>>| thread.join().unwrap_or_default();
    Ok(Output { status, stdout: bytes(stdout), stderr: bytes(stderr) })
}

/// `command` as a guard runs it, which lives as long as its standard input is open.
fn guarded(guard: &Path, command: &Command) -> Command {
    let mut guarded = Command::new(guard);
    guarded.arg(GUARD).arg(command.get_program()).args(command.get_args()).env_clear().stdin(Stdio::piped());
    guarded.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(folder) = command.get_current_dir() {
        guarded.current_dir(folder);
    }
    guarded
}

/// The guard: runs the tool that `arguments` name and ends as it does. Both are one process group, which the guard kills
/// when its standard input ends, as it does with the runner.
pub fn guard(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    /// What a shell answers for a program that does not start.
    const NOT_FOUND: u8 = 127;
    let program = arguments.next().unwrap_or_default();
    std::thread::spawn(|| {
        // Nothing is ever written to it.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        if rustix::process::getpgrp() == rustix::process::getpid() {
            let _ = rustix::process::kill_current_process_group(rustix::process::Signal::KILL);
        }
    });
    match Command::new(&program).args(arguments).stdin(Stdio::null()).status() {
        Ok(status) => {
            let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
            ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
        }
        Err(error) => {
            eprintln!("{}: does not start: {error}", program.display());
            ExitCode::from(NOT_FOUND)
        }
    }
}

/// Everything that a stream holds; `open` is dropped at its end.
fn read_to_end(stream: Option<impl Read + Send + 'static>, open: Sender<()>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // What was read before an error is what there is to show.
            let _ = stream.read_to_end(&mut bytes);
        }
        drop(open);
        bytes
    })
}

/// A tool that is killed with its whole process group if it has not ended when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let group = rustix::process::Pid::from_child(&self.0);
            // It can end between the two calls; then there is nothing left to kill.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = self.0.wait();
        }
    }
}

/// Runs `command` to its end; a status other than 0 is an error.
pub fn success(command: &mut Command) -> Result<Output, ProcessError> {
    let done = output(command)?;
    if done.status.success() {
        return Ok(done);
    }
    Err(ProcessError::Failed {
        command: words(std::iter::once(command.get_program()).chain(command.get_args())),
        status: done.status,
        message: text(&done.stderr).trim().to_owned(),
    })
}

/// What a tool printed, as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// `arguments` as a shell would read them.
pub fn words<'a>(arguments: impl Iterator<Item = &'a OsStr>) -> String {
    arguments.map(|argument| quoted(&argument.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,+:@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The executable file `name` in the folders of `path` (the form of the variable PATH), or `name` itself where it has
/// a slash.
pub fn find(name: &str, path: &OsStr) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let executable =
        |file: &PathBuf| file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(executable);
    }
    std::env::split_paths(path).map(|folder| folder.join(name)).find(executable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_a_shell_needs_it() {
        let arguments = ["cc", "-DX=1", "a b", "it's", ""].map(OsStr::new);
        assert_eq!(words(arguments.into_iter()), r"cc -DX=1 'a b' 'it'\''s' ''");
    }

    #[test]
    fn a_tool_that_takes_too_long_is_stopped_with_what_it_started() {
        let shell = || {
            let mut shell = tool(Path::new("/bin/sh"));
            shell.args(["-c", "echo out; echo err >&2; sleep 1000; true"]);
            shell
        };
        let patience = Patience { limit: Duration::ZERO, interrupted: Arc::default(), guard: None };
        let error = output_within(&mut shell(), &patience).expect_err("too long");
        assert!(matches!(error, ProcessError::TimedOut { .. }), "{error}");
        assert!(error.to_string().contains("compile_s"), "{error}");
        let interrupted = Arc::new(AtomicBool::new(true));
        let patience = Patience { limit: Duration::from_secs(1000), interrupted, guard: None };
        assert!(matches!(output_within(&mut shell(), &patience), Err(ProcessError::Interrupted)));
    }

    #[test]
    fn a_tool_that_ends_in_time_is_heard() {
        let patience = Patience { limit: Duration::from_secs(1000), interrupted: Arc::default(), guard: None };
        let mut shell = tool(Path::new("/bin/sh"));
        let done = output_within(shell.args(["-c", "echo out; echo err >&2; exit 3"]), &patience).expect("it ran");
        assert_eq!((text(&done.stdout), text(&done.stderr)), ("out\n".to_owned(), "err\n".to_owned()));
        assert_eq!(done.status.code(), Some(3));
    }

    #[test]
    fn only_executables_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("cc"), "").expect("a file");
        assert_eq!(find("cc", folder.path().as_os_str()), None);
        assert!(find("sh", OsStr::new("/nowhere:/bin")).is_some());
        assert!(find("/bin/sh", OsStr::new("")).is_some());
    }
}
