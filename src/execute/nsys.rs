//! Timelines: requests that a tracer has to watch, and the session's part of them. Nsight Systems runs around the worker, and
//! what it exports is read and becomes part of the answer; with CUPTI the worker tells its timeline itself.

use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::session::{Arm, Session, Stop};
use super::tool::{described, finish, internal, remove};
use super::{ExecuteError, Executor, ProcessExecutor, Wrapper};
use crate::model::Mode;
use crate::model::ncu::KernelNames;
use crate::model::protocol::{Failure, FailureKind, Line, Request, Task, TimelineProtocol};
use crate::model::record::Body;
use crate::model::timeline::Tracer;
use crate::plan::{Plan, Trace};
use crate::profiler::nsys::{self, NsysFailure, check_age, judge, read_export, read_log, run};

/// The tracers of this host.
#[derive(Debug, Clone, Default)]
pub struct Tracers {
    pub systems: Option<NsightSystems>,
    /// CUPTI's library.
    pub cupti: Option<PathBuf>,
}

/// Nsight Systems on this host.
#[derive(Debug, Clone)]
pub struct NsightSystems {
    pub program: PathBuf,
    /// LD_LIBRARY_PATH for it alone, where it differs from this process's.
    pub library_path: Option<OsString>,
    /// Folder that keeps its reports.
    pub reports: PathBuf,
}

impl Tracers {
    /// Answers a request for a timeline. `inner` starts workers that trace themselves.
    pub(super) fn trace(
        &self,
        workers: &ProcessExecutor,
        inner: &dyn Executor,
        request: &Request,
        watch: &mut dyn FnMut(&Line),
    ) -> Result<Vec<Line>, ExecuteError> {
        let Task::Timeline { protocol, report, .. } = &request.task else { return inner.execute(request, watch) };
        match (&protocol.tracer, &self.systems, &self.cupti) {
            (Tracer::Nsys { .. }, Some(systems), _) => {
                systems.trace(workers, request, report.as_deref().unwrap_or("timeline"), watch)
            }
            (Tracer::Cupti { .. }, _, Some(cupti)) => {
                let mut request = request.clone();
                if let Task::Timeline { library, .. } = &mut request.task {
                    *library = Some(cupti.clone());
                }
                inner.execute(&request, watch)
            }
            (tracer, ..) => {
                let message = format!("this host has no {}", tracer.name());
                Err(Failure { kind: FailureKind::Unsupported, stage: None, message }.into())
            }
        }
    }
}

impl NsightSystems {
    fn trace(
        &self,
        workers: &ProcessExecutor,
        request: &Request,
        name: &str,
        watch: &mut dyn FnMut(&Line),
    ) -> Result<Vec<Line>, ExecuteError> {
        fs::create_dir_all(&self.reports).map_err(|error| internal(&self.reports, &error))?;
        let kept = |ending: &str| self.reports.join(format!("{name}.{ending}"));
        let (report, export) = (kept("nsys-rep"), kept("sqlite"));
        // What an earlier run left must not be taken for this one's.
        [&report, &export, &kept("qdstrm")].into_iter().try_for_each(|file| remove(file))?;
        let folder = tempfile::Builder::new().prefix("nsys-").tempdir_in(&self.reports);
        let folder = folder.map_err(|error| internal(&self.reports, &error))?;
        let log = folder.path().join("log");
        let arguments = run::around(&self.program, &self.reports.join(name), &log, &folder.path().join("request"));
        let environment = self.environment();
        let wrapper = Wrapper { program: run::SHELL.into(), arguments, environment };
        let mut lines = workers.under(wrapper).execute(request, watch)?;
        let text = fs::read(&log).map_err(|error| internal(&log, &error))?;
        let said = read_log(&String::from_utf8_lossy(&text));
        let exported = if report.is_file() { self.export(workers, &report, &export)? } else { Ok(()) };
        let read = exported.and_then(|()| check_age(&export, &report));
        let read = read.and_then(|()| read_export(&export, KernelNames::Mangled));
        let timeline = judge(&said, read).map_err(Failure::from)?;
        let files = [&report, &export].into_iter().map(|file| described(file)).collect::<Result<_, _>>()?;
        for line in [Line::Timeline(timeline), Line::Files { files }] {
            watch(&line);
            lines.push(line);
        }
        Ok(lines)
    }

    /// Variables for it; the worker's own LD_LIBRARY_PATH is put back inside.
    fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut environment = vec![("LC_ALL".into(), "C".into())];
        if let Some(path) = &self.library_path {
            let own = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
            environment.push(("LD_LIBRARY_PATH".into(), path.clone()));
            environment.push((run::TOOLS_LIBRARIES.into(), path.clone()));
            environment.push((run::WORKERS_LIBRARIES.into(), own));
        }
        environment
    }

    /// Writes the report as a database.
    fn export(
        &self,
        workers: &ProcessExecutor,
        report: &Path,
        export: &Path,
    ) -> Result<Result<(), NsysFailure>, ExecuteError> {
        let started = Command::new(&self.program)
            .args(run::export_arguments(report, export))
            .env_clear()
            .envs(workers.environment())
            .envs(self.environment())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn();
        let mut child = started.map_err(|error| internal(&self.program, &error))?;
        let said = child.stderr.take().map(|mut pipe| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = pipe.read_to_end(&mut bytes);
                String::from_utf8_lossy(&bytes).trim().to_owned()
            })
        });
        let status = finish(workers, &self.program, &mut child, "export its report")?;
        let said = said.and_then(|reader| reader.join().ok()).unwrap_or_default();
        Ok(match status.success() && export.is_file() {
            true => Ok(()),
            false => Err(NsysFailure::NoExport { report: report.to_owned(), said }),
        })
    }
}

impl Session<'_> {
    /// Traces every subject that waits for it, one process each.
    pub(super) fn trace_all(&mut self, plan: &Plan, arms: &[Arm]) -> Result<(), Stop> {
        let Ok(Trace { protocol, instead }) = self.tools.setting.protocols.timeline.clone() else { return Ok(()) };
        for arm in arms {
            if plan.subjects[arm.subject].sets_to_take(Mode::Nsys, 1).is_some() {
                let result = self.traced(plan, arm, &protocol, instead.clone());
                self.keep_going(&arm.name, arm.subject, Some(Mode::Nsys), result)?;
            }
        }
        Ok(())
    }

    fn traced(
        &mut self,
        plan: &Plan,
        arm: &Arm,
        protocol: &TimelineProtocol,
        instead: Option<String>,
    ) -> Result<(), Stop> {
        let check = self.check(Some(self.tools.setting.protocols.verified_rows));
        let report = (protocol.tracer.name() == "nsys").then(|| report_name(arm, &self.tools.session));
        let task = run::task(self.launchable(&arm.prepared)?, protocol.clone(), check, report);
        let lines = self.measure(plan, arm, Mode::Nsys, (0, 1), task)?;
        let run = nsys::run::collect(&lines, arm.prepared.pipeline(), protocol, instead).map_err(Stop::Subject)?;
        self.keep(plan, arm, Mode::Nsys, (0, 1), 0, Body::Timeline(run), None)
    }
}

/// A name that no other report has.
fn report_name(arm: &Arm, session: &str) -> String {
    let id = &arm.name.id;
    format!("{}-{}-{}-{}-{session}", id.kernel, id.version, id.language, arm.key.short())
}
