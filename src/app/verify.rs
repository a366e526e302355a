//! Verifying a whole experiment: every subject's output against its reference, nothing measured, and a table of it.

use std::path::PathBuf;
use std::sync::Arc;

use super::artifacts::write_text;
use super::clocks::Held;
use super::experiment::{Bench, BenchError, Control, Workspace};
use super::publish::PublishError;
use crate::backend::cuda;
use crate::execute::{Outcome, ProcessExecutor, Sanitizer, Session};
use crate::manifest::Experiment;
use crate::model::record::{Body, RecordKind};
use crate::model::{DeviceKind, Mode};
use crate::plan::{self, BuildKeys, PlanError, Prepared, Subject, SubjectState, Wanted};
use crate::profiler::sanitizer::{PROGRAM, SanitizerTool};
use crate::report::{Renderer, Verdict, VerificationReport, VerifiedSubject};
use crate::store::StoreError;

/// A verified experiment.
#[derive(Debug)]
pub struct Verified {
    pub report: VerificationReport,
    pub outcome: Outcome,
    /// verification.md of the experiment; verification.json lies beside it.
    pub path: PathBuf,
}

/// An experiment could not be verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error(transparent)]
    Bench(#[from] BenchError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Publish(#[from] PublishError),
}

/// A sanitizer cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SanitizerError {
    #[error(
        "--sanitize watches kernels on NVIDIA GPUs, and these run on the CPU; leave it out, or compile them with the C \
         compiler's own sanitizers (-fsanitize=address in a stage's `flags`)"
    )]
    Cpu,
    #[error(transparent)]
    Missing(#[from] cuda::NoProgram),
}

impl Workspace<'_> {
    /// The sanitizer with `tools`; `None` where no tool is asked for.
    ///
    /// # Errors
    /// Kernels run on the CPU, or the host has none.
    pub fn sanitizer(
        &self,
        tools: &[SanitizerTool],
        control: &Control<'_>,
    ) -> Result<Option<Sanitizer>, SanitizerError> {
        if tools.is_empty() {
            return Ok(None);
        }
        if self.machine.host.device.id.kind == DeviceKind::Cpu {
            return Err(SanitizerError::Cpu);
        }
        let executor = ProcessExecutor {
            program: control.worker.clone(),
            silence_limit: self.project.conf.protocol.limits.verify(),
            interrupted: Arc::clone(&control.interrupted),
            wrapper: None,
        };
        let (program, logs) = (cuda::program(PROGRAM)?, self.project.out.join("sanitizer"));
        Ok(Some(Sanitizer { program, tools: tools.to_vec(), executor, logs }))
    }

    /// Plans the verification of every subject of `experiment`, whatever its modes. A tiling that was never tuned is the
    /// declared default: whether a kernel is right must not cost a tuning.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn plan_verification(&self, experiment: Experiment, wanted: Wanted<'_>) -> Result<Bench, BenchError> {
        // Every subject is verified for this mode, whatever is recorded of it.
        let experiment = Experiment { modes: vec![Mode::Annotation], ..experiment };
        self.plan(experiment, Wanted { remeasure: true, untuned: true, dev_logs: false, ..wanted })
    }

    /// Verifies the subjects of `bench`, those that were verified before only if `again`, and writes verification.md and
    /// verification.json of the experiment.
    ///
    /// # Errors
    /// A result could not be kept or written. Subjects that fail are in the outcome.
    pub fn verify(
        &self,
        bench: &Bench,
        again: bool,
        sanitizer: Option<Sanitizer>,
        control: &mut Control<'_>,
    ) -> Result<Verified, VerifyError> {
        let tools = sanitizer.as_ref().map_or(Vec::new(), |sanitizer| sanitizer.tools.clone());
        let limit = self.project.conf.protocol.limits.verify();
        let known = (!again).then_some(self.ledger as &dyn plan::Facts);
        let run = |session: Session<'_>| session.watched_by(sanitizer).verify(&bench.plan, known);
        let outcome = self
            .with_session(self.setting(&bench.protocols), control, limit, &Held::default(), run)
            .map_err(BenchError::from)?;
        let report = VerificationReport {
            experiment: bench.experiment.name.clone(),
            device: self.machine.host.device.clone(),
            compiler: self.machine.backend.toolchain().compiler.version.clone(),
            sanitizers: tools,
            subjects: self.verified_subjects(bench, &outcome)?,
        };
        let path = self.project.experiment(&bench.experiment.name).join("verification.md");
        let renderer = Renderer::load(&self.project.templates()).map_err(PublishError::from)?;
        write_text(&path.with_extension("json"), &report.json())?;
        write_text(&path, &report.markdown(&renderer).map_err(PublishError::from)?)?;
        Ok(Verified { report, outcome, path })
    }

    fn verified_subjects(&self, bench: &Bench, outcome: &Outcome) -> Result<Vec<VerifiedSubject>, VerifyError> {
        let builds = BuildKeys::default();
        let subject = |subject: &Subject| {
            Ok(VerifiedSubject {
                id: subject.id.clone(),
                shape: subject.shape.clone(),
                label: subject.label.clone(),
                verdict: self.verdict(bench, outcome, subject, &builds)?,
            })
        };
        bench.plan.subjects.iter().map(subject).collect()
    }

    fn verdict(
        &self,
        bench: &Bench,
        outcome: &Outcome,
        subject: &Subject,
        builds: &BuildKeys,
    ) -> Result<Verdict, VerifyError> {
        let is_of = |name: &crate::execute::Name| name.id == subject.id && name.shape == subject.shape;
        if let Some(failed) = outcome.failures.iter().find(|failed| is_of(&failed.name)) {
            let failure = &failed.failure;
            return Ok(Verdict::Failed {
                kind: failure.kind,
                stage: failure.stage.clone(),
                reason: failure.message.clone(),
            });
        }
        let ready = match &subject.state {
            SubjectState::Refused { reason } => return Ok(Verdict::Refused { reason: reason.clone() }),
            SubjectState::AfterTune { .. } => return Ok(Verdict::NotReached),
            SubjectState::Ready(ready) => ready,
        };
        let setting = self.setting(&bench.protocols);
        let root = setting.root();
        let package = self.project.catalog.package(&subject.id).map_err(PlanError::from).map_err(BenchError::from)?;
        let instantiated = Prepared::new(&setting, package, &subject.shape, &ready.tiling, &root, builds)
            .and_then(|own| Ok((plan::prepare_reduced(&setting, package, &own, &root, builds)?, own)));
        let (reduced, own) = instantiated.map_err(PlanError::from).map_err(BenchError::from)?;
        let Some(key) = plan::verification_key(&setting, ready.key, &own, &reduced) else {
            return Ok(Verdict::NotReached);
        };
        let newest = self.ledger.store().get(RecordKind::Verification, &key)?.pop();
        Ok(match newest.map(|record| (record.position.taken_at, record.body)) {
            Some((taken_at, Body::Verification { whole, own_shape })) => Verdict::Right { whole, own_shape, taken_at },
            _ => Verdict::NotReached,
        })
    }
}
