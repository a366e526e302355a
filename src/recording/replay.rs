//! The outside of a session, as a recording remembers it: compilers, workers, time.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::Recording;
use super::clock::AnswerClock;
use super::entry::{Answered, Build, Read};
use super::names::Names;
use crate::backend::{Backend, BuildError, BuildInfo, Compiled, Destination, Listing};
use crate::execute::{Builder, Clock, ExecuteError, Executor, Gauge};
use crate::model::build::{BuildMaterial, Module, StageBuild, Toolchain};
use crate::model::clocks::Reading;
use crate::model::protocol::{Failure, FailureKind, Line, Request};
use crate::model::{Key, Language};

/// Answers a session's requests with those of a recording.
#[derive(Debug)]
pub struct Replayer {
    /// By request; those of equal requests in their order.
    answers: Mutex<BTreeMap<String, VecDeque<Answered>>>,
    /// Numbers of builds, by their keys of today.
    numbers: BTreeMap<Key, usize>,
    readings: Mutex<VecDeque<Read>>,
    names: Names,
    clock: AnswerClock,
    /// Version of the program that recorded.
    mlarun: String,
    cut_short: bool,
}

impl Replayer {
    /// Replays `recording`. `gpu_support` is the path that requests for a GPU will name, `reference` the folder of
    /// reference rows.
    pub fn new(recording: &Recording, gpu_support: Option<PathBuf>, reference: PathBuf) -> Replayer {
        let mut answers: BTreeMap<String, VecDeque<Answered>> = BTreeMap::new();
        for answer in &recording.answers {
            answers.entry(text(&answer.request)).or_default().push_back(answer.clone());
        }
        let names = Names::default();
        names.insert(reference, "reference");
        if let Some(support) = gpu_support {
            names.insert(support, "support");
        }
        Replayer {
            answers: Mutex::new(answers),
            numbers: recording.builds.iter().map(|build| (build.material.key(), build.number)).collect(),
            readings: Mutex::new(recording.readings.iter().cloned().collect()),
            names,
            clock: AnswerClock::starting_at(recording.header.recorded_at),
            mlarun: recording.header.mlarun.clone(),
            cut_short: recording.cut_short,
        }
    }

    /// Time as it was recorded.
    pub fn clock(&self) -> &dyn Clock {
        &self.clock
    }

    /// `inner`, with its modules known to the executor by their numbers.
    pub fn builder<'a>(&'a self, inner: &'a dyn Builder, toolchain: &'a Toolchain) -> impl Builder + 'a {
        NumberingBuilder { replayer: self, inner, toolchain }
    }
}

impl Gauge for Replayer {
    /// A recording of before there were readings has none.
    fn read(&self) -> Result<Option<Reading>, String> {
        let read = self.readings.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        read.map_or(Ok(None), |read| read.outcome)
    }
}

impl Executor for Replayer {
    fn execute(&self, request: &Request, watch: &mut dyn FnMut(&Line)) -> Result<Vec<Line>, ExecuteError> {
        let request = self.names.put_into(request);
        let answer = {
            let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers.get_mut(&text(&request)).and_then(VecDeque::pop_front)
        };
        let Some(answer) = answer else {
            let what = request.task.name();
            let message = if self.cut_short {
                format!("the recording holds no answer to a request for {what}: it was cut short before that")
            } else {
                format!(
                    "the recording, which mlarun {} made, holds no answer to a request for {what}; replay it with that \
                     version, or record the call again",
                    self.mlarun
                )
            };
            return Err(Failure { kind: FailureKind::Unrecorded, stage: None, message }.into());
        };
        self.clock.set(answer.at, Duration::from_nanos(answer.elapsed_ns));
        answer.lines.iter().for_each(&mut *watch);
        match answer.failure {
            Some(failure) => {
                watch(&Line::Failed(failure.clone()));
                Err(failure.into())
            }
            None => Ok(answer.lines),
        }
    }
}

/// What tells requests apart.
fn text(request: &Request) -> String {
    serde_json::to_string(request).expect("a request serialises to JSON")
}

struct NumberingBuilder<'a> {
    replayer: &'a Replayer,
    inner: &'a dyn Builder,
    toolchain: &'a Toolchain,
}

impl NumberingBuilder<'_> {
    fn number(&self, stage: &StageBuild, module: &Module) {
        if let Some(number) = self.replayer.numbers.get(&stage.material(self.toolchain).key()) {
            self.replayer.names.insert_module(module.path.clone(), *number);
        }
    }
}

impl Builder for NumberingBuilder<'_> {
    fn find(&self, stage: &StageBuild) -> Result<Option<Module>, Failure> {
        let found = self.inner.find(stage)?;
        found.iter().for_each(|module| self.number(stage, module));
        Ok(found)
    }

    fn build(&self, stage: &StageBuild) -> Result<Module, Failure> {
        let module = self.inner.build(stage)?;
        self.number(stage, &module);
        Ok(module)
    }
}

/// The compiler of a recording: makes again what is known of a module, but not its machine code.
#[derive(Debug)]
pub struct RecordedBackend {
    language: Language,
    toolchain: Toolchain,
    /// By key.
    builds: BTreeMap<Key, Build>,
}

impl RecordedBackend {
    pub fn new(recording: &Recording) -> RecordedBackend {
        RecordedBackend {
            language: recording.host.language,
            toolchain: recording.host.toolchain.clone(),
            builds: recording.builds.iter().map(|build| (build.material.key(), build.clone())).collect(),
        }
    }
}

impl Backend for RecordedBackend {
    fn language(&self) -> Language {
        self.language
    }

    fn toolchain(&self) -> &Toolchain {
        &self.toolchain
    }

    fn compile(
        &self,
        stage: &StageBuild,
        material: &BuildMaterial,
        into: &Destination<'_>,
    ) -> Result<Compiled, BuildError> {
        let refused = |message: String| BuildError::Recorded { stage_source: stage.source.clone(), message };
        let (info, log) = match self.builds.get(&material.key()).map(|build| &build.outcome) {
            Some(Ok(built)) => built,
            Some(Err(failure)) => return Err(refused(failure.message.clone())),
            None => return Err(refused("the recording does not hold what the compiler made of it".to_owned())),
        };
        let BuildInfo { code_sha256, module_sha256, resources, .. } = info;
        let stand_in = format!("Stands for a module with SHA-256 {module_sha256}, machine code {code_sha256}.\n");
        let module = into.folder.join(MODULE);
        fs::write(&module, stand_in).map_err(|error| BuildError::Io { path: module, error })?;
        Ok(Compiled {
            module: MODULE.to_owned(),
            code_sha256: *code_sha256,
            listing: Listing::Absent { reason: "a recording holds no machine code".to_owned() },
            log: log.clone(),
            resources: *resources,
        })
    }
}

/// File that stands for a module.
const MODULE: &str = "module.txt";
