//! Commands of the operator's, called with an allow-listed environment: one for alarms, one that tells that nights happen.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Variables that a hook sees of the caller's, beside those that are given to it.
const INHERITED: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_RUNTIME_DIR"];
/// Time after which a hook that has not ended is ended.
pub const LIMIT: Duration = Duration::from_secs(60);
/// Time between two looks at a hook that runs.
const POLL: Duration = Duration::from_millis(20);

/// A hook did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    #[error("the hook `{command}` does not start: {error}")]
    Start { command: String, error: io::Error },
    #[error("the hook `{command}` ended with {status}")]
    Failed { command: String, status: ExitStatus },
    #[error("the hook `{command}` did not end within {} s, and was ended", limit.as_secs())]
    Slow { command: String, limit: Duration },
}

/// Runs `command` in a shell, with `variables` and `input` on its standard input; what it prints goes to standard error.
///
/// # Errors
/// It does not start, fails, or takes longer than `limit`: then it is ended, with all that it has started.
pub fn call(command: &str, variables: &[(&str, String)], input: &[u8], limit: Duration) -> Result<(), HookError> {
    let failed = |error| HookError::Start { command: command.to_owned(), error };
    let inherited = INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .env_clear()
        .envs(inherited)
        .envs(variables.iter().map(|(name, value)| (*name, value.as_str())))
        .stdin(Stdio::piped())
        .stdout(io::stderr())
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    // It may end without reading, and it may read no further than a pipe holds: neither is for us to wait for.
    let stdin = child.stdin.take();
    let input = input.to_owned();
    std::thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(&input)));
    match wait(&mut child, limit).map_err(failed)? {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(HookError::Failed { command: command.to_owned(), status }),
        None => {
            // Until it is waited for, the group's number is its own.
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            let _ = child.wait();
            Err(HookError::Slow { command: command.to_owned(), limit })
        }
    }
}

/// Its end; `None` where it has not come within `limit`.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if began.elapsed() >= limit {
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_gets_its_input_its_variables_and_nothing_of_the_callers() {
        let folder = tempfile::tempdir().expect("a folder");
        let to = folder.path().join("seen").display().to_string();
        let variables = [("MLARUN_TO", to.clone()), ("MLARUN_ALARMS", "2".to_owned())];
        // Cargo sets variables of its own for tests.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        call("{ cat; env; } > \"$MLARUN_TO\"", &variables, b"[alarms]\n", LIMIT).expect("it runs");
        let seen = std::fs::read_to_string(to).expect("it was written");
        assert!(seen.starts_with("[alarms]\n") && seen.contains("MLARUN_ALARMS=2\n"), "{seen}");
        assert!(seen.contains("PATH=") && !seen.contains("CARGO"), "{seen}");
    }

    #[test]
    fn a_hook_that_fails_or_does_not_end_is_told() {
        let failed = call("exit 3", &[], b"", LIMIT).expect_err("it fails").to_string();
        assert!(failed.contains("`exit 3`") && failed.contains('3'), "{failed}");
        let large = vec![b'x'; 1 << 20];
        call("true", &[], &large, LIMIT).expect("it need not read");
        let slow = call("sleep 1000 & wait", &[], &large, Duration::ZERO).expect_err("it takes too long");
        assert!(matches!(slow, HookError::Slow { .. }), "{slow}");
    }
}
