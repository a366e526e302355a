//! Runs a compiler or a binary tool to its end with an allow-listed environment. Interprets nothing.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Variables that a tool inherits; all others could change what it makes without entering a key.
const INHERITED: [&str; 3] = ["PATH", "HOME", "TMPDIR"];

/// A tool did not run.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("{}: does not start: {error}; check the installation", program.display())]
    Start { program: PathBuf, error: std::io::Error },
    #[error("`{command}` failed ({status}): {message}")]
    Failed { command: String, status: ExitStatus, message: String },
    #[error("{}: ended after {} s without a result; `compile_s` in conf/protocol.toml is the limit", program.display(), limit.as_secs())]
    TimedOut { program: PathBuf, limit: Duration },
}

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

/// Runs `command` to its end, whatever its exit status.
pub fn output(command: &mut Command) -> Result<Output, ProcessError> {
    command.output().map_err(|error| ProcessError::Start { program: command.get_program().into(), error })
}

/// Runs `command` to its end, whatever its exit status; kills it after `limit`.
pub fn output_within(command: &mut Command, limit: Duration) -> Result<Output, ProcessError> {
    let program = PathBuf::from(command.get_program());
    let start = |error| ProcessError::Start { program: program.clone(), error };
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(start)?;
    let pid = Pid::from_child(&child);
    let (sender, ended) = channel();
    // Nobody listens any more when it ends after the limit.
    std::thread::spawn(move || drop(sender.send(child.wait_with_output())));
    match ended.recv_timeout(limit) {
        Ok(output) => output.map_err(start),
        Err(_) => {
            // It can end at this very moment; then there is nothing left to kill.
            let _ = kill_process(pid, Signal::KILL);
            Err(ProcessError::TimedOut { program, limit })
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
    fn what_does_not_end_is_killed() {
        let program = find("sh", &std::env::var_os("PATH").unwrap_or_default()).expect("there is a shell");
        let endless = output_within(tool(&program).args(["-c", "while :; do :; done"]), Duration::from_millis(10));
        assert!(matches!(endless, Err(ProcessError::TimedOut { .. })), "{endless:?}");
        let short = output_within(tool(&program).args(["-c", "echo said; exit 3"]), Duration::from_secs(600));
        let short = short.expect("it ends by itself");
        assert_eq!((text(&short.stdout).as_str(), short.status.code()), ("said\n", Some(3)));
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
