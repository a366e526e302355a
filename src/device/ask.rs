//! What a program of the host says, within a limit of time.

use std::io::{self, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    #[error("{program} does not start: {error}")]
    Start { program: String, error: io::Error },
    #[error("{program} gave no answer within {limit:?}")]
    Slow { program: String, limit: Duration },
    #[error("{program} ended with {status}: {message}")]
    Failed { program: String, status: ExitStatus, message: String },
}

/// What `command` writes to its standard output, in the C locale.
///
/// # Errors
/// It does not start, fails, or takes longer than `limit`.
pub fn ask(command: &mut Command, limit: Duration) -> Result<String, Unanswered> {
    let program = command.get_program().to_string_lossy().into_owned();
    let start = |error| Unanswered::Start { program: program.clone(), error };
    let piped = command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().map_err(start)?;
    let answers = [reader(child.stdout.take()), reader(child.stderr.take())];
    let [answer, message] = answers.map(|answer| answer.recv_timeout(limit));
    let (Ok(answer), Ok(message)) = (answer, message) else {
        // It may have ended in the meantime; either way it must not stay a zombie.
        let _ = child.kill();
        let _ = child.wait();
        return Err(Unanswered::Slow { program, limit });
    };
    let status = child.wait().map_err(start)?;
    match status.success() {
        true => Ok(answer),
        false => Err(Unanswered::Failed { program, status, message: message.trim().to_owned() }),
    }
}

/// Everything that comes from a pipe, once it is closed.
fn reader(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = pipe.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut bytes));
        // A closed channel means that nobody waits any more.
        let _ = read.map(|_| sender.send(String::from_utf8_lossy(&bytes).into_owned()));
    });
    receiver
}
