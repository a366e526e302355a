//! Verifications once more under a sanitizer: faults that leave an output right, such as a read beside a buffer or a
//! missing barrier.
//!
//! Memcheck watches the reduced shape and the run's own, racecheck the reduced one. Buffers then have no guard bands, so
//! that every access beside one is the tool's to find. Nothing of it is recorded: it is done again each time.

use std::path::{Path, PathBuf};

use super::session::{Arm, Session, Stop};
use super::verify::at_reduced;
use super::{Event, ExecuteError, Executor as _, Name, ProcessExecutor, Wrapper};
use crate::model::protocol::{Check, Failure, FailureKind, Launchable, Request, Task};
use crate::model::{Key, Pipeline};
use crate::plan::Prepared;
use crate::profiler::sanitizer::{self, LogError, SanitizerTool};

/// A sanitizer on this host, and what it is to look for.
#[derive(Debug, Clone)]
pub struct Sanitizer {
    pub program: PathBuf,
    pub tools: Vec<SanitizerTool>,
    /// Starts the workers.
    pub executor: ProcessExecutor,
    /// Folder that keeps its logs.
    pub logs: PathBuf,
}

impl Sanitizer {
    /// Answers `request` under `tool`, whose log becomes the file `log`. `pipeline` is what the request launches.
    ///
    /// # Errors
    /// The tool found something, could not tell, or the request failed.
    fn watch(
        &self,
        tool: SanitizerTool,
        request: &Request,
        log: &Path,
        pipeline: &Pipeline,
    ) -> Result<(), ExecuteError> {
        // What an earlier run left there must not be taken for this one's.
        let cleared = std::fs::create_dir_all(&self.logs).and_then(|()| match std::fs::remove_file(log) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        });
        let unwritable = |error: std::io::Error| {
            let message = format!("{}: the sanitizer's log cannot be kept: {error}", log.display());
            Failure { kind: FailureKind::Internal, stage: None, message }
        };
        cleared.map_err(unwritable)?;
        let wrapper = Wrapper {
            program: self.program.clone(),
            arguments: sanitizer::arguments(tool, log),
            environment: Vec::new(),
        };
        let answer = self.executor.under(wrapper).execute(request, &mut |_| {});
        if let Err(ExecuteError::Interrupted) = answer {
            return Err(ExecuteError::Interrupted);
        }
        // How the worker ended follows from what was found, and says less.
        let text = std::fs::read_to_string(log).unwrap_or_default();
        match (sanitizer::read_log(&text), answer) {
            (Ok(Some(finding)), _) => {
                let stage = finding.kernel.as_ref().and_then(|kernel| stage_of(pipeline, kernel));
                let first = if finding.count > 1 { format!("the first of {}; ", finding.count) } else { String::new() };
                let message = format!("{tool} found a fault: {} ({first}see {})", finding.text, log.display());
                Err(Failure { kind: FailureKind::Sanitizer, stage, message }.into())
            }
            (_, Err(ExecuteError::Failed(failure))) => {
                Err(Failure { message: format!("under {tool}: {}", failure.message), ..failure }.into())
            }
            (Ok(None), _) => Ok(()),
            (Err(error), _) => Err(cannot_tell(tool, &error, log).into()),
        }
    }
}

/// Name of the stage whose function is called `kernel`.
fn stage_of(pipeline: &Pipeline, kernel: &str) -> Option<String> {
    pipeline.stages.iter().find(|stage| stage.entry == kernel).map(|stage| stage.name.clone())
}

fn cannot_tell(tool: SanitizerTool, error: &LogError, log: &Path) -> Failure {
    let message = format!("{tool} cannot tell whether the kernel is right: {error} ({})", log.display());
    Failure { kind: FailureKind::CannotTell, stage: None, message }
}

impl Session<'_> {
    /// Has the session's sanitizer, if it has one, watch launches of one subject.
    pub(super) fn sanitize(
        &mut self,
        arm: &Arm,
        own: &Launchable,
        reduced: &Launchable,
        reduced_shape: &Prepared,
    ) -> Result<(), Stop> {
        let Some(sanitizer) = self.sanitizer.clone() else { return Ok(()) };
        for &tool in &sanitizer.tools {
            self.tell(Event::Sanitizing { name: arm.name.clone(), tool });
            let log = |of: &str| sanitizer.logs.join(format!("{}-{of}-{tool}.log", file_name(arm)));
            self.watch(&sanitizer, tool, reduced, None, &log("reduced"))
                .map_err(|stop| at_reduced(stop, reduced_shape))?;
            if tool.watches_own_shape() {
                let rows = Some(self.tools.setting.protocols.verified_rows);
                self.watch(&sanitizer, tool, own, rows, &log("own"))?;
            }
            self.tell(Event::Sanitized { name: arm.name.clone(), tool });
        }
        Ok(())
    }

    fn watch(
        &mut self,
        sanitizer: &Sanitizer,
        tool: SanitizerTool,
        launchable: &Launchable,
        max_rows: Option<u64>,
        log: &Path,
    ) -> Result<(), Stop> {
        let same = Key::of("sanitizing/1", &(tool, launchable, max_rows));
        if self.sanitized.contains(&same) {
            return Ok(());
        }
        let check = Check { without_bands: true, ..self.check(max_rows) };
        let request = self.tools.request(Task::Verify { launchable: launchable.clone(), check });
        sanitizer.watch(tool, &request, log, &launchable.pipeline)?;
        self.sanitized.insert(same);
        Ok(())
    }
}

/// The start of the names of a subject's logs.
fn file_name(arm: &Arm) -> String {
    let Name { id, .. } = &arm.name;
    format!("{}-{}-{}-{}", id.kernel, id.version, id.language, arm.key.short())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pipeline::{Launch, Stage};
    use crate::model::protocol::PROTOCOL;
    use std::sync::Arc;
    use std::time::Duration;

    const VERIFIED: &str = r#"{"line":"verified","relative_frobenius":0.0,"worst_row":0.0,"worst_row_index":0,"rows_compared":1,"rows_total":1,"output_sha256":"00"}"#;

    /// A folder with a worker that answers `answer` and a sanitizer that writes `log` after the worker's end and then
    /// ends with `code`.
    struct Fake {
        folder: tempfile::TempDir,
        sanitizer: Sanitizer,
    }

    /// Makes `path` a program. Another process writes it: one that this process has open for writing, be it for the
    /// moment in which another test starts a program, cannot be started.
    fn script(path: PathBuf, text: &str) -> PathBuf {
        let source = path.with_extension("sh");
        std::fs::write(&source, format!("#!/bin/sh\n{text}\n")).expect("it is written");
        let installed = std::process::Command::new("install").args(["-m", "755"]).arg(&source).arg(&path).status();
        assert!(installed.expect("install runs").success());
        path
    }

    impl Fake {
        fn new(answer: &[&str], log: &str, code: i32) -> Fake {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let script = |name: &str, text: &str| script(folder.path().join(name), text);
            let hello = format!(r#"{{"line":"hello","protocol":{PROTOCOL},"pid":1}}"#);
            let lines =
                [hello.as_str()].iter().chain(answer).map(|line| format!("echo '{line}'\n")).collect::<String>();
            let worker = script("worker", &format!("cat > /dev/null\n{lines}"));
            std::fs::write(folder.path().join("text"), log).expect("it is written");
            let text = folder.path().join("text").display().to_string();
            let program = script(
                "compute-sanitizer",
                &format!(
                    "while [ \"$1\" != --log-file ]; do shift; done\nlog=$2; shift 2\n\"$@\"\ncp {text} \"$log\"\nexit {code}"
                ),
            );
            let executor = ProcessExecutor {
                program: worker,
                silence_limit: Duration::from_secs(60),
                interrupted: Arc::default(),
                wrapper: None,
            };
            let logs = folder.path().join("logs");
            let tools = SanitizerTool::ALL.to_vec();
            Fake { folder, sanitizer: Sanitizer { program, tools, executor, logs } }
        }

        /// What a watched verification of one stage with the function `copy` ends with.
        fn watch(&self) -> Result<(), ExecuteError> {
            let launch = Launch::Gpu { block: [1; 3], shared_bytes: 0, cluster: None, cooperative: false };
            let (name, entry, args) = ("first".to_owned(), "copy".to_owned(), Vec::new());
            let stage = Stage { name, entry, args, grid: [1; 3], launch, stream: 0, after: Vec::new() };
            let pipeline = Pipeline { buffers: Vec::new(), stages: vec![stage], reference: None };
            let check = Check { max_rows: None, seed: 1, reference_cache: None, without_bands: true };
            let launchable = Launchable { pipeline: pipeline.clone(), modules: Vec::new() };
            let task = Task::Verify { launchable, check };
            let request = Request { protocol: PROTOCOL, task, cores: vec![0], gpu: None };
            let log = self.folder.path().join("logs/one.log");
            self.sanitizer.watch(SanitizerTool::Memcheck, &request, &log, &pipeline)
        }

        fn failure(&self) -> Failure {
            match self.watch() {
                Err(ExecuteError::Failed(failure)) => failure,
                other => panic!("{other:?}"),
            }
        }
    }

    const FOUND: &str = include_str!("../profiler/fixtures/memcheck.log");
    const CLEAN: &str = include_str!("../profiler/fixtures/memcheck-clean.log");

    #[test]
    fn a_finding_fails_a_verification_whose_output_is_right() {
        let fake = Fake::new(&[VERIFIED, r#"{"line":"done"}"#], FOUND, 86);
        let failure = fake.failure();
        assert_eq!((failure.kind, failure.stage.as_deref()), (FailureKind::Sanitizer, Some("first")));
        for words in ["memcheck found a fault: Invalid __global__ read of size 4 bytes", "the first of 1024", "one.log"]
        {
            assert!(failure.message.contains(words), "{failure}");
        }
    }

    #[test]
    fn a_finding_says_more_than_the_fault_that_ends_the_worker() {
        let fault = r#"{"line":"failed","kind":"crashed","stage":"first","message":"CUDA_ERROR_LAUNCH_FAILED"}"#;
        assert_eq!(Fake::new(&[fault], FOUND, 86).failure().kind, FailureKind::Sanitizer);
        let failure = Fake::new(&[fault], CLEAN, 0).failure();
        assert_eq!(failure.kind, FailureKind::Crashed);
        assert!(failure.message.starts_with("under memcheck: CUDA_ERROR_LAUNCH_FAILED"), "{failure}");
    }

    #[test]
    fn nothing_found_is_what_log_and_exit_code_say_together() {
        let right = [VERIFIED, r#"{"line":"done"}"#];
        assert_eq!(Fake::new(&right, CLEAN, 0).watch(), Ok(()));
        let failure = Fake::new(&right, CLEAN, 86).failure();
        assert!(failure.message.contains("ended with exit code 86"), "{failure}");
        let failure = Fake::new(&right, "========= COMPUTE-SANITIZER", 0).failure();
        assert_eq!(failure.kind, FailureKind::CannotTell);
        assert!(failure.message.contains("without its summary"), "{failure}");
    }

    #[test]
    fn an_earlier_log_is_not_taken_for_this_one() {
        let fake = Fake::new(&[VERIFIED, r#"{"line":"done"}"#], CLEAN, 0);
        assert_eq!(fake.watch(), Ok(()));
        script(fake.sanitizer.program.clone(), "exit 1");
        let failure = fake.failure();
        assert!(failure.message.contains("the worker ended with exit code 1"), "{failure}");
    }
}
