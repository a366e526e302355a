//! Writing a recording: stands between a session and its outside, and notes what passes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use serde::Serialize;

use super::clock::AnswerClock;
use super::entry::{Answered, Area, Build, Call, Entry, Header, HostEntry, Read, SessionEntry, StoredFile};
use super::names::Names;
use super::redact::{HOST, Redactions};
use super::{RECORDING_FORMAT, RecordingError, io};
use crate::backend::{BuildCache, BuildInfo};
use crate::execute::{Builder, Clock, ExecuteError, Executor, Gauge};
use crate::model::Key;
use crate::model::build::{Module, StageBuild, Toolchain};
use crate::model::clocks::{Reading, Telemetry};
use crate::model::protocol::{Failure, FailureKind, Line, PROTOCOL, Request};
use crate::model::record::Environment;

/// A recording that is being written. What was noted before the program died can be read.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    /// `None` once a write has failed, which [`Recorder::finish`] tells: what is measured is worth more than this file.
    file: Mutex<Result<GzEncoder<File>, RecordingError>>,
    names: Names,
    numbers: Mutex<BTreeMap<Key, usize>>,
    redactions: Redactions,
    clock: AnswerClock,
    started: Instant,
}

impl Recorder {
    /// Starts the recording `path`.
    ///
    /// # Errors
    /// The file exists, or cannot be written.
    pub fn create(path: &Path, redactions: Redactions) -> Result<Recorder, RecordingError> {
        let file = File::create_new(path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => RecordingError::Exists(path.to_owned()),
            _ => io(path)(error),
        })?;
        let recorded_at = Timestamp::now();
        let recorder = Recorder {
            path: path.to_owned(),
            file: Mutex::new(Ok(GzEncoder::new(file, Compression::best()))),
            names: Names::default(),
            numbers: Mutex::default(),
            redactions,
            clock: AnswerClock::starting_at(recorded_at),
            started: Instant::now(),
        };
        let mlarun = env!("CARGO_PKG_VERSION").to_owned();
        recorder.write(&Header { recording: RECORDING_FORMAT, protocol: PROTOCOL, mlarun, recorded_at });
        Ok(recorder)
    }

    /// Notes what mlarun was called for.
    pub fn call(&self, call: Call) {
        self.write(&Entry::Call(call));
    }

    /// Notes a file of the call's by its text.
    pub fn text(&self, area: Area, path: &Path, text: String) {
        self.write(&Entry::File(StoredFile { area, path: path.to_owned(), text }));
    }

    /// Notes the file `path` below `folder`.
    ///
    /// # Errors
    /// It cannot be read, or is no text.
    pub fn file(&self, area: Area, folder: &Path, path: &Path) -> Result<(), RecordingError> {
        let file = folder.join(path);
        let bytes = fs::read(&file).map_err(io(&file))?;
        let text = String::from_utf8(bytes).map_err(|error| RecordingError::NoText { file, error })?;
        self.text(area, path, text);
        Ok(())
    }

    /// Notes the host, without its name.
    pub fn host(&self, mut host: HostEntry) {
        HOST.clone_into(&mut host.host.name);
        if let Some(gpu) = &mut host.gpu {
            self.names.insert(std::mem::replace(&mut gpu.support, PathBuf::from("support")), "support");
        }
        self.write(&Entry::Host(Box::new(host)));
    }

    /// Notes what every record of the session states. Reference rows lie in `reference`.
    pub fn session(&self, name: &str, environment: &Environment, telemetry: Option<&Telemetry>, reference: &Path) {
        self.names.insert(reference.to_owned(), "reference");
        let environment = Environment { host: HOST.to_owned(), ..environment.clone() };
        let (name, telemetry) = (name.to_owned(), telemetry.cloned());
        self.write(&Entry::Session(Box::new(SessionEntry { name, environment, telemetry })));
    }

    /// The time that the session and its replay share.
    pub fn clock(&self) -> &dyn Clock {
        &self.clock
    }

    /// `inner`, with what it reads noted.
    pub fn gauge<'a>(&'a self, inner: &'a dyn Gauge) -> impl Gauge + 'a {
        RecordingGauge { recorder: self, inner }
    }

    /// `inner`, with what it answers noted.
    pub fn executor<'a>(&'a self, inner: &'a dyn Executor) -> impl Executor + 'a {
        RecordingExecutor { recorder: self, inner }
    }

    /// `inner`, which builds into `cache` with `toolchain`, with what it makes noted.
    pub fn builder<'a>(
        &'a self,
        inner: &'a dyn Builder,
        cache: &'a BuildCache,
        toolchain: &'a Toolchain,
    ) -> impl Builder + 'a {
        RecordingBuilder { recorder: self, inner, cache, toolchain }
    }

    /// Completes the file.
    ///
    /// # Errors
    /// Something could not be written, now or before; what the file holds up to there can be read.
    pub fn finish(self) -> Result<(), RecordingError> {
        let file = self.file.into_inner().unwrap_or_else(PoisonError::into_inner)?;
        let file = file.finish().map_err(io(&self.path))?;
        file.sync_all().map_err(io(&self.path))
    }

    fn write(&self, line: &impl Serialize) {
        self.write_text(serde_json::to_vec(line));
    }

    /// Writes what may name the host's folders.
    fn write_redacted(&self, entry: &Entry) {
        self.write_text(self.redactions.json(entry).and_then(|json| serde_json::to_vec(&json)));
    }

    fn write_text(&self, line: Result<Vec<u8>, serde_json::Error>) {
        let mut slot = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(file) = &mut *slot {
            let written = line.map_err(std::io::Error::from).and_then(|mut text| {
                text.push(b'\n');
                file.write_all(&text)?;
                file.flush()
            });
            if let Err(error) = written {
                *slot = Err(io(&self.path)(error));
            }
        }
    }

    /// The number of the build `key`, and whether it is a new one.
    fn number(&self, key: Key) -> (usize, bool) {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let next = numbers.len();
        let number = *numbers.entry(key).or_insert(next);
        (number, number == next)
    }
}

struct RecordingGauge<'a> {
    recorder: &'a Recorder,
    inner: &'a dyn Gauge,
}

impl Gauge for RecordingGauge<'_> {
    fn read(&self) -> Result<Option<Reading>, String> {
        let outcome = self.inner.read();
        // Nothing is the same as no entry.
        if !matches!(outcome, Ok(None)) {
            self.recorder.write_redacted(&Entry::Reading(Box::new(Read { outcome: outcome.clone() })));
        }
        outcome
    }
}

struct RecordingExecutor<'a> {
    recorder: &'a Recorder,
    inner: &'a dyn Executor,
}

impl Executor for RecordingExecutor<'_> {
    fn execute(&self, request: &Request, watch: &mut dyn FnMut(&Line)) -> Result<Vec<Line>, ExecuteError> {
        // Lines that came before a failure are part of what happened.
        let mut heard = Vec::new();
        let answer = self.inner.execute(request, &mut |line| {
            heard.push(line.clone());
            watch(line);
        });
        let recorder = self.recorder;
        let at = Timestamp::now();
        let elapsed = recorder.started.elapsed();
        recorder.clock.set(at, elapsed);
        let failure = match &answer {
            Ok(_) => None,
            Err(ExecuteError::Failed(failure)) => Some(failure.clone()),
            Err(ExecuteError::Interrupted) => return answer,
        };
        heard.retain(|line| !matches!(line, Line::Done | Line::Failed(_)));
        let entry = Answered {
            request: recorder.names.put_into(request),
            at,
            elapsed_ns: nanoseconds(elapsed),
            lines: heard,
            failure,
        };
        recorder.write_redacted(&Entry::Answer(Box::new(entry)));
        answer
    }
}

struct RecordingBuilder<'a> {
    recorder: &'a Recorder,
    inner: &'a dyn Builder,
    cache: &'a BuildCache,
    toolchain: &'a Toolchain,
}

impl RecordingBuilder<'_> {
    /// Notes the outcome of building `stage`, once.
    fn note(&self, stage: &StageBuild, outcome: &Result<Module, Failure>) {
        let material = stage.material(self.toolchain);
        let key = material.key();
        let (number, is_new) = self.recorder.number(key);
        if let Ok(module) = outcome {
            self.recorder.names.insert_module(module.path.clone(), number);
        }
        if is_new {
            let outcome = outcome.clone().and_then(|_| self.described(&key));
            self.recorder.write_redacted(&Entry::Build(Box::new(Build { number, material, outcome })));
        }
    }

    /// What the cache knows of a module that it has.
    fn described(&self, key: &Key) -> Result<(BuildInfo, String), Failure> {
        let failed = |message: String| Failure { kind: FailureKind::Internal, stage: None, message };
        let artifact = self.cache.get(key).map_err(|error| failed(error.to_string()))?;
        let artifact = artifact.ok_or_else(|| failed(format!("the build {key} has gone")))?;
        let log = artifact.log().map_err(|error| failed(error.to_string()))?;
        Ok((artifact.info, log))
    }
}

impl Builder for RecordingBuilder<'_> {
    fn find(&self, stage: &StageBuild) -> Result<Option<Module>, Failure> {
        let found = self.inner.find(stage)?;
        if let Some(module) = &found {
            self.note(stage, &Ok(module.clone()));
        }
        Ok(found)
    }

    fn build(&self, stage: &StageBuild) -> Result<Module, Failure> {
        let outcome = self.inner.build(stage);
        self.note(stage, &outcome);
        outcome
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
