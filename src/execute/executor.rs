//! Running a request: the seam between the scheduler and whatever answers it (a worker process, a recording).

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{WaitId, WaitIdOptions};

use crate::model::protocol::{Failure, FailureKind, Line, PROTOCOL, Phase, Request};

/// Answers requests.
pub trait Executor {
    /// The lines of the answer, each also given to `watch` as it arrives.
    ///
    /// # Errors
    /// The task failed, the worker died or hung, or the caller was interrupted.
    fn execute(&self, request: &Request, watch: &mut dyn FnMut(&Line)) -> Result<Vec<Line>, ExecuteError>;
}

/// A request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExecuteError {
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The user asked to stop; nothing is wrong with the run.
    #[error("interrupted")]
    Interrupted,
}

/// Starts a fresh worker process for every request.
#[derive(Debug, Clone)]
pub struct ProcessExecutor {
    /// The program that answers to `__worker`: this one.
    pub program: PathBuf,
    /// A worker that says nothing for this long has hung.
    pub silence_limit: Duration,
    /// Set when the user asks to stop.
    pub interrupted: Arc<AtomicBool>,
    /// What runs around the worker.
    pub wrapper: Option<Wrapper>,
}

/// A program that runs a worker and watches it: a sanitizer or a profiler. It ends as the worker does, or with another
/// exit code to say what it found; what it writes to the standard output would stand between the worker's lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrapper {
    pub program: PathBuf,
    /// Its own arguments; the worker's command line follows them.
    pub arguments: Vec<OsString>,
    /// Variables for it and the worker, beside those that every worker gets.
    pub environment: Vec<(OsString, OsString)>,
}

/// Variables of this process that those it starts may see.
fn environment() -> impl Iterator<Item = (&'static str, OsString)> {
    ENVIRONMENT.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)))
}

impl ProcessExecutor {
    /// Variables that a worker, and a tool beside it, gets.
    pub(super) fn environment(&self) -> impl Iterator<Item = (&'static str, OsString)> + use<> {
        environment()
    }

    /// The user asks to stop.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// The same with `wrapper` around the worker.
    pub fn under(&self, wrapper: Wrapper) -> ProcessExecutor {
        ProcessExecutor { wrapper: Some(wrapper), ..self.clone() }
    }

    /// Waits for the end of what runs around a worker that has said its last line; it gets as long for what it has to
    /// write as the worker had for a line.
    fn finish(&self, worker: &mut Worker, wrapper: &Wrapper) -> Result<(), ExecuteError> {
        let said_last = Instant::now();
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(ExecuteError::Interrupted);
            }
            match worker.lines.recv_timeout(Duration::from_millis(50)) {
                Err(RecvTimeoutError::Disconnected) => break,
                _ if said_last.elapsed() > self.silence_limit => {
                    let (program, limit) = (wrapper.program.display(), self.silence_limit.as_secs());
                    let message = format!("{program} did not end within {limit} s after the worker, and was stopped");
                    return Err(Failure { kind: FailureKind::TimedOut, stage: None, message }.into());
                }
                _ => {}
            }
        }
        match worker.wait() {
            Some(status) if status.success() => Ok(()),
            status => {
                let message = format!("{} {}{}", wrapper.program.display(), how(status), last_words(&worker.said()));
                Err(Failure { kind: FailureKind::Crashed, stage: None, message }.into())
            }
        }
    }
}

/// Variables that a worker sees; everything else of the environment (secrets among it) stays behind.
const ENVIRONMENT: [&str; 11] = [
    "PATH",
    "HOME",
    "TMPDIR",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_LAUNCH_BLOCKING",
    "MLARUN_NO_BLOCKING",
];

impl Executor for ProcessExecutor {
    fn execute(&self, request: &Request, watch: &mut dyn FnMut(&Line)) -> Result<Vec<Line>, ExecuteError> {
        let mut worker = Worker::start(&self.program, self.wrapper.as_ref(), request)?;
        let (lines, failure) = self.hear(&mut worker, watch, |line| *line == Line::Done)?;
        let ended = match &self.wrapper {
            Some(wrapper) => self.finish(&mut worker, wrapper),
            None if failure.is_some() => Ok(()),
            None => {
                worker.wait();
                Ok(())
            }
        };
        match failure {
            // It says more than how a wrapper ends.
            Some(failure) => Err(failure.into()),
            None => ended.map(|()| lines),
        }
    }
}

impl ProcessExecutor {
    /// Starts a worker that answers `request` as long as it lives, and gives it once it has said `ready`.
    pub(super) fn keep(&self, request: &Request, ready: &Line) -> Result<Worker, ExecuteError> {
        let mut worker = Worker::start(&self.program, None, request)?;
        match self.hear(&mut worker, &mut |_| {}, |line| line == ready)? {
            (_, Some(failure)) => Err(failure.into()),
            (_, None) => Ok(worker),
        }
    }

    /// The lines up to one for which `is_last` holds, or up to the failure that the worker tells.
    fn hear(
        &self,
        worker: &mut Worker,
        watch: &mut dyn FnMut(&Line),
        is_last: impl Fn(&Line) -> bool,
    ) -> Result<(Vec<Line>, Option<Failure>), ExecuteError> {
        let mut lines = Vec::new();
        let mut heard = Instant::now();
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(ExecuteError::Interrupted);
            }
            match worker.lines.recv_timeout(Duration::from_millis(50)) {
                Ok(text) => {
                    heard = Instant::now();
                    let line = parse(&text)?;
                    watch(&line);
                    match line {
                        Line::Failed(failure) => return Ok((lines, Some(failure))),
                        line if is_last(&line) => return Ok((lines, None)),
                        line => lines.push(line),
                    }
                }
                Err(RecvTimeoutError::Timeout) if heard.elapsed() > self.silence_limit => {
                    return Err(timed_out(&lines, self.silence_limit).into());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(died(&lines, worker.wait(), worker.said()).into()),
            }
        }
    }
}

/// A running worker. Dropping it kills the process with everything that it started.
#[derive(Debug)]
pub(super) struct Worker {
    child: Child,
    has_ended: bool,
    lines: Receiver<String>,
    said: Option<JoinHandle<String>>,
}

impl Worker {
    fn start(program: &Path, wrapper: Option<&Wrapper>, request: &Request) -> Result<Worker, Failure> {
        let broken = |what: String| Failure { kind: FailureKind::Internal, stage: None, message: what };
        let environment = environment();
        let first = wrapper.map_or(program, |wrapper| &wrapper.program);
        let mut child = Command::new(first)
            .args(wrapper.iter().flat_map(|wrapper| &wrapper.arguments))
            .args(wrapper.map(|_| program))
            .arg("__worker")
            .env_clear()
            .envs(environment)
            .envs(wrapper.iter().flat_map(|wrapper| wrapper.environment.iter().cloned()))
            .envs(request.gpu.iter().map(|gpu| ("CUDA_VISIBLE_DEVICES", gpu.uuid.as_str())))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| broken(format!("{}: the worker does not start: {error}", first.display())))?;
        let mut stdin = child.stdin.take().expect("stdin is piped");
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr = child.stderr.take().expect("stderr is piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            while let Some(line) = next_line(&mut stdout) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let said = std::thread::spawn(move || tail(stderr));
        let worker = Worker { child, has_ended: false, lines, said: Some(said) };
        let text = serde_json::to_vec(request).map_err(|error| broken(format!("the request: {error}")))?;
        // A worker that dies while it reads shows by its exit status, which says more than a broken pipe.
        drop(stdin.write_all(&text));
        Ok(worker)
    }

    /// Waits for its end, and ends what kernels have started and left behind.
    fn wait(&mut self) -> Option<ExitStatus> {
        if !self.has_ended {
            self.has_ended = true;
            let group = rustix::process::Pid::from_child(&self.child);
            // Until its status is taken, the group's number is its own and nobody else's.
            let is_over = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let _ = rustix::process::waitid(WaitId::Pid(group), is_over);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        self.child.wait().ok()
    }

    /// The end of what it wrote to its standard error.
    fn said(&mut self) -> String {
        self.said.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.has_ended {
            let group = rustix::process::Pid::from_child(&self.child);
            // It may have ended by itself; then there is nothing left to kill.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            self.wait();
        }
    }
}

/// The next line of a stream, without its end: of one that never ends, as much as the longest line of an answer may have.
fn next_line(stream: &mut impl BufRead) -> Option<String> {
    /// Samples by the million are no longer than this.
    const LONGEST: u64 = 1 << 26;
    let mut line = Vec::new();
    let read = stream.take(LONGEST).read_until(b'\n', &mut line).ok()?;
    line.pop_if(|last| *last == b'\n');
    (read > 0).then(|| String::from_utf8_lossy(&line).into_owned())
}

/// The last bytes of a stream, which is read to its end.
fn tail(mut stream: impl Read) -> String {
    const KEPT: usize = 4096;
    let mut last = VecDeque::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        last.extend(&buffer[..count]);
        last.drain(..last.len().saturating_sub(KEPT));
    }
    String::from_utf8_lossy(last.make_contiguous()).trim().to_owned()
}

/// One line of an answer.
pub(crate) fn parse(text: &str) -> Result<Line, Failure> {
    let broken = |message| Failure { kind: FailureKind::Internal, stage: None, message };
    let line = serde_json::from_str(text)
        .map_err(|error| broken(format!("the worker answered with a line that is none of the protocol's: {error}")))?;
    match line {
        Line::Hello { protocol, .. } if protocol != PROTOCOL => {
            Err(broken(format!("the worker speaks version {protocol} of the protocol, this program {PROTOCOL}")))
        }
        line => Ok(line),
    }
}

/// Where the worker was when it last said something.
fn place(lines: &[Line]) -> (String, Option<String>) {
    let last = lines.iter().rev().find_map(|line| match line {
        Line::Phase { phase, stage } => Some((*phase, stage.clone())),
        _ => None,
    });
    let what = match last {
        None => "before it had said anything",
        Some((Phase::Load, _)) => "while it loaded the modules",
        Some((Phase::Inputs, _)) => "while it made the inputs",
        Some((Phase::Reference, _)) => "while it computed the reference",
        Some((Phase::Run, _)) => "in the first run of the kernel",
        Some((Phase::Compare, _)) => "while it compared the output",
        Some((Phase::Warmup, _)) => "while it warmed up",
        Some((Phase::Sampling, _)) => "while it took samples",
    };
    (what.to_owned(), last.and_then(|(_, stage)| stage))
}

fn timed_out(lines: &[Line], limit: Duration) -> Failure {
    let (place, stage) = place(lines);
    let message = format!(
        "the worker said nothing for {} s {place} and was stopped; if the kernel needs longer, raise `time_limit_s`",
        limit.as_secs()
    );
    Failure { kind: FailureKind::TimedOut, stage, message }
}

fn died(lines: &[Line], status: Option<ExitStatus>, said: String) -> Failure {
    let (place, stage) = place(lines);
    let message = format!("the worker {} {place}{}", how(status), last_words(&said));
    Failure { kind: FailureKind::Crashed, stage, message }
}

fn how(status: Option<ExitStatus>) -> String {
    match status.map(|status| (status.signal(), status.code())) {
        Some((Some(signal), _)) => format!("was killed by {}", signal_name(signal)),
        Some((_, Some(code))) => format!("ended with exit code {code}"),
        _ => "ended".to_owned(),
    }
}

fn last_words(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!("; its last words: {said}") }
}

fn signal_name(signal: i32) -> String {
    let name = signal_hook::low_level::signal_name(signal);
    name.map_or_else(|| format!("signal {signal}"), |name| format!("{name} (signal {signal})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_whatever_bytes_they_hold() {
        let mut stream = &b"{}\n\n\xff\nlast"[..];
        let lines: Vec<String> = std::iter::from_fn(|| next_line(&mut stream)).collect();
        assert_eq!(lines, ["{}", "", "\u{fffd}", "last"]);
    }

    #[test]
    fn a_line_that_never_ends_is_cut() {
        let mut endless = BufReader::new(std::io::repeat(b'x'));
        let line = next_line(&mut endless).expect("there is one");
        assert!(parse(&line).is_err());
    }
}
