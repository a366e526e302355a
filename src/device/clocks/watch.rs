//! The watcher: a process of its own session that gives clocks back when the program that locked them is gone.
//!
//! It is mlarun under another name. Its standard input is one end of a socket whose other end the program holds: the
//! system closes that whatever ends the program. Its standard output is the note about the clocks, locked; so long as the
//! watcher has something to do, nobody else takes the clocks.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::ClocksError;
use super::guard::restore;
use super::note::Note;
use crate::device::nvml::Nvml;

/// First argument of a watcher.
pub const WATCH: &str = "__clock_watch";

/// Time for a watcher to get ready.
const START_LIMIT: Duration = Duration::from_secs(30);

/// First word of a watcher that is ready.
const READY: &str = "ready";

/// The program's side of a watcher. Dropping it lets the watcher look at the note, and waits for its end.
#[derive(Debug)]
pub(super) struct Watcher {
    /// `None` once it was let go.
    socket: Option<UnixStream>,
    child: Child,
}

impl Watcher {
    /// Starts a watcher over `note` and returns when it is ready.
    ///
    /// # Errors
    /// It does not start, or cannot use NVML.
    pub(super) fn start(program: &Path, note: &Note) -> Result<Watcher, ClocksError> {
        let failed = |error: std::io::Error| ClocksError::Watcher(format!("{}: {error}", program.display()));
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let child = Command::new(program)
            .arg(WATCH)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(note.share()?))
            .stderr(Stdio::null())
            .current_dir("/")
            .spawn()
            .map_err(failed)?;
        let said = first_line(&ours);
        let mut watcher = Watcher { socket: Some(ours), child };
        let reason = match said {
            Ok(said) if said == READY => return Ok(watcher),
            Ok(said) if said.is_empty() => "it ended at once".to_owned(),
            Ok(said) => said,
            Err(error) => error.to_string(),
        };
        // Nothing is locked yet; one that says nothing would be waited for, for ever.
        let _ = watcher.child.kill();
        Err(ClocksError::Watcher(reason))
    }
}

fn first_line(socket: &UnixStream) -> std::io::Result<String> {
    socket.set_read_timeout(Some(START_LIMIT))?;
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

impl Drop for Watcher {
    fn drop(&mut self) {
        drop(self.socket.take());
        // It ends by itself; a watcher that was killed is waited for as well.
        let _ = self.child.wait();
    }
}

/// Serves as watcher until the other end is gone.
pub fn watch() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve() -> Result<(), ClocksError> {
    leave_the_session();
    let failed = |error: std::io::Error| ClocksError::Watcher(error.to_string());
    let mut socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
    let file = File::from(std::io::stdout().as_fd().try_clone_to_owned().map_err(failed)?);
    let opened = Note::given(file)
        .ok_or_else(|| {
            ClocksError::Watcher("its standard output is no note about clocks; mlarun starts it itself".into())
        })
        .and_then(|note| Ok((Nvml::open()?.gpu(note.uuid())?, note)));
    let (gpu, note) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            // Whoever started it reads why; nobody does where the start was no program's.
            let _ = writeln!(socket, "{error}");
            return Err(error);
        }
    };
    writeln!(socket, "{READY}").map_err(failed)?;
    // Nothing is ever written to it: the end of the stream, or an error, is the end of the program.
    let _ = socket.read_to_end(&mut Vec::new());
    if let Some(noted) = note.read()?.filter(|noted| noted.held.is_some()) {
        restore(&gpu, noted.kept.as_ref())?;
        note.write(noted.kept.as_ref(), None)?;
    }
    Ok(())
}

/// Neither a terminal that closes nor whoever stops the program politely is to end the watcher before its work.
fn leave_the_session() {
    // Refused to the first process of a group only, which a started process is not.
    let _ = rustix::process::setsid();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        // Without the handler it is ended by the signal, and the note stays for the next start.
        let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
}
