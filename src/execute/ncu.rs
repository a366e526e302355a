//! Requests that Nsight Compute has to watch: it runs around the worker, and what it says becomes part of the answer.

use std::fs;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::tool::{described, finish, internal, remove};
use super::{ExecuteError, Executor, ProcessExecutor, Tracers, Wrapper};
use crate::model::ncu::NcuReport;
use crate::model::protocol::{Collect, Failure, FailureKind, Line, NcuProtocol, Profiled, Request, Task};
use crate::model::source_view::SourceView;
use crate::profiler::ncu::run::{self, Page};
use crate::profiler::ncu::{Asked, NcuFailure, ReadError, join, judge, read_details, read_log, read_raw, read_source};

/// Nsight Compute on this host.
#[derive(Debug, Clone)]
pub struct NsightCompute {
    pub program: PathBuf,
    /// Folder that keeps its reports; logs lie there as long as they are written.
    pub reports: PathBuf,
    /// The project, where sources are looked for.
    pub sources: PathBuf,
}

/// Answers requests for profiles with Nsight Compute around a worker, those for timelines with a tracer, and passes on all others.
pub struct Watching<'a> {
    pub inner: &'a dyn Executor,
    pub workers: &'a ProcessExecutor,
    /// `None`: this host has none.
    pub compute: Option<NsightCompute>,
    pub tracers: Tracers,
}

impl Executor for Watching<'_> {
    fn execute(&self, request: &Request, watch: &mut dyn FnMut(&Line)) -> Result<Vec<Line>, ExecuteError> {
        if matches!(request.task, Task::Timeline { .. }) {
            return self.tracers.trace(self.workers, self.inner, request, watch);
        }
        let Task::Profile { subjects, protocol, report } = &request.task else {
            return self.inner.execute(request, watch);
        };
        let Some(compute) = &self.compute else {
            let message = "this host has no Nsight Compute".to_owned();
            return Err(Failure { kind: FailureKind::Unsupported, stage: None, message }.into());
        };
        compute.profile(self.workers, request, (subjects, protocol, report.as_deref()), watch)
    }
}

/// What a request is about.
type Profile<'a> = (&'a [Profiled], &'a NcuProtocol, Option<&'a str>);

impl NsightCompute {
    fn profile(
        &self,
        workers: &ProcessExecutor,
        request: &Request,
        (subjects, protocol, report): Profile<'_>,
        watch: &mut dyn FnMut(&Line),
    ) -> Result<Vec<Line>, ExecuteError> {
        fs::create_dir_all(&self.reports).map_err(|error| internal(&self.reports, &error))?;
        let kept = report.map(|name| self.reports.join(format!("{name}.ncu-rep")));
        // What an earlier run left must not be taken for this one's.
        if let Some(kept) = &kept {
            remove(kept)?;
        }
        let log = tempfile::Builder::new().prefix("ncu-").suffix(".log").tempfile_in(&self.reports);
        let log = log.map_err(|error| internal(&self.reports, &error))?;
        let arguments = run::arguments(&protocol.collect, log.path(), kept.as_deref(), &self.sources);
        let environment = vec![("LC_ALL".into(), "C".into())];
        let wrapper = Wrapper { program: self.program.clone(), arguments, environment };
        let answer = workers.under(wrapper).execute(request, watch);
        if let Err(ExecuteError::Interrupted) = answer {
            return Err(ExecuteError::Interrupted);
        }
        let text = fs::read(log.path()).map_err(|error| internal(log.path(), &error))?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let said = read_log(&text);
        let mut lines = match answer {
            Ok(lines) => lines,
            // A worker that the tool ended says less than the tool does.
            Err(ExecuteError::Failed(failure)) => {
                let nothing = judge(&said, Err(ReadError::NoTable), &Asked::default());
                return Err(match nothing {
                    Err(reason) if !matches!(reason, NcuFailure::NoData { .. }) => Failure::from(reason).into(),
                    _ => failure.into(),
                });
            }
            Err(ExecuteError::Interrupted) => return Err(ExecuteError::Interrupted),
        };
        let places = run::launched(&lines);
        if places.is_empty() {
            // Every subject was dropped before its launch, and says why.
            return Ok(lines);
        }
        let launched: Vec<&Profiled> = places.iter().filter_map(|&place| subjects.get(place)).collect();
        let asked = run::asked(protocol, &launched);
        let (report, sources) = match (&protocol.collect, &kept) {
            (Collect::Metrics { .. }, _) => (read_details(&text, run::NAMES), Vec::new()),
            (Collect::Full { .. }, Some(kept)) if kept.is_file() => self.pages(workers, kept)?,
            (Collect::Full { .. }, _) => (Err(ReadError::NoTable), Vec::new()),
        };
        let report = judge(&said, report, &asked).map_err(Failure::from)?;
        let profiles = run::assign(report, &launched).map_err(Failure::from)?;
        let file = kept.as_deref().filter(|kept| kept.is_file()).map(described).transpose()?;
        for (&subject, mut profile) in places.iter().zip(profiles) {
            profile.sources.clone_from(&sources);
            profile.report.clone_from(&file);
            let line = Line::Profiled { subject, profile };
            watch(&line);
            lines.push(line);
        }
        Ok(lines)
    }

    /// The pages of a kept report.
    fn pages(
        &self,
        workers: &ProcessExecutor,
        report: &Path,
    ) -> Result<(Result<NcuReport, ReadError>, Vec<SourceView>), ExecuteError> {
        let page = |page: Page| self.print(workers, &page.arguments(report));
        let raw = read_raw(&page(Page::Raw)?, run::NAMES);
        let details = read_details(&page(Page::Details)?, run::NAMES);
        let joined = match (raw, details) {
            (Ok(raw), Ok(details)) => Ok(join(raw, details).map_err(|error| no_data(error.to_string()))?),
            (Err(error), _) | (_, Err(error)) => Err(error),
        };
        let mut sources = Vec::new();
        for source in [Page::SourceAndSass, Page::Sass] {
            match read_source(&page(source)?) {
                Ok(views) => sources.extend(views.into_iter().map(|view| SourceView {
                    file: view.file.as_deref().map(|file| run::project_file(file).to_owned()),
                    ..view
                })),
                // A kernel without lines has no page of that kind.
                Err(ReadError::NoTable) => {}
                Err(error) => return Err(no_data(error.to_string()).into()),
            }
        }
        Ok((joined, sources))
    }

    /// What the tool prints.
    fn print(&self, workers: &ProcessExecutor, arguments: &[std::ffi::OsString]) -> Result<String, ExecuteError> {
        let started = Command::new(&self.program)
            .args(arguments)
            .env_clear()
            .envs(workers.environment())
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        let mut child = started.map_err(|error| internal(&self.program, &error))?;
        let reader = child.stdout.take().map(|mut pipe| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                let read = pipe.read_to_end(&mut bytes);
                read.map(|_| bytes)
            })
        });
        finish(workers, &self.program, &mut child, "print its report")?;
        let bytes = reader.and_then(|reader| reader.join().ok()).transpose();
        let bytes = bytes.map_err(|error| internal(&self.program, &error))?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn no_data(message: String) -> Failure {
    Failure { kind: FailureKind::NoData, stage: None, message }
}
