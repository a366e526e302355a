//! Verifying: a kernel's output against its reference, whole on a reduced shape and by sampled rows on its own.

use super::session::{Arm, Outcome, Session, SessionError, Stop, builds, labels};
use super::{Event, TrialsError};
use crate::manifest::Experiment;
use crate::model::Key;
use crate::model::protocol::{Check, Failure, FailureKind, Launchable, Task, Verification};
use crate::model::record::{Body, Record, RecordKind};
use crate::plan::{self, Facts, Plan, Prepared, Subject, Wanted};
use crate::profiler;

impl Session<'_> {
    /// Compiles and compares the output of every subject of a plan that waits for no tuning; measures nothing. What
    /// `known` says to be verified is not verified again.
    ///
    /// # Errors
    /// A result could not be kept. Subjects that fail are no error: they are in the outcome.
    pub fn verify(mut self, plan: &Plan, known: Option<&dyn Facts>) -> Result<Outcome, SessionError> {
        let ended = self.verify_all(plan, known).map(drop);
        self.outcome(ended)
    }

    /// Tunes what has to be tuned, compiles and compares the output of every subject; measures nothing.
    ///
    /// # Errors
    /// An output is wrong, or the session ended.
    pub fn verify_only(
        mut self,
        experiment: &Experiment,
        plan: Plan,
        wanted: Wanted<'_>,
        facts: &dyn Facts,
    ) -> Result<(), TrialsError> {
        self.tools.fail_fast = true;
        let plan = self.tune_all(experiment, plan, wanted, facts)?;
        self.verify_all(&plan, Some(facts))?;
        Ok(())
    }

    /// What has to be measured, compiled and found right.
    pub(super) fn verify_all(&mut self, plan: &Plan, known: Option<&dyn Facts>) -> Result<Vec<Arm>, Stop> {
        let arms = self.arms(plan)?;
        self.build_all(arms.iter().flat_map(|(arm, reduced)| [&arm.prepared, reduced]).flat_map(builds).collect())?;
        let mut verified = Vec::new();
        for (arm, reduced) in arms {
            let subject = &plan.subjects[arm.subject];
            let result = self.verify_arm(subject, &arm, &reduced, known);
            if self.keep_going(&arm.name, arm.subject, None, result)?.is_some() {
                verified.push(arm);
            }
        }
        Ok(verified)
    }

    /// Verifies one subject, and has the session's sanitizer watch it.
    fn verify_arm(
        &mut self,
        subject: &Subject,
        arm: &Arm,
        reduced: &Prepared,
        known: Option<&dyn Facts>,
    ) -> Result<(), Stop> {
        let Some(key) = plan::verification_key(&self.tools.setting, arm.key, &arm.prepared, reduced) else {
            return Err(Stop::Subject(Failure {
                kind: FailureKind::CannotTell,
                stage: None,
                message: "the kernel declares no [reference], so that nothing says whether its output is right"
                    .to_owned(),
            }));
        };
        // The modules must be there for measuring, verified or not.
        let own = self.launchable(&arm.prepared)?;
        let small = self.launchable(reduced)?;
        if !known.is_some_and(|known| known.is_verified(&key)) && !self.verified.contains(&key) {
            let whole = self.compare_reduced(arm, &small).map_err(|stop| at_reduced(stop, reduced))?;
            let own_shape = self.launch_and_compare(&own, Some(self.tools.setting.protocols.verified_rows))?;
            self.keep_verification(subject, arm, key, whole, own_shape)?;
        }
        self.sanitize(arm, &own, &small, reduced)
    }

    /// Compares the whole output on the reduced shape; once where subjects share it.
    fn compare_reduced(&mut self, arm: &Arm, reduced: &Launchable) -> Result<Verification, Stop> {
        self.tell(Event::Verifying { name: arm.name.clone() });
        let same = Key::of("comparison/1", reduced);
        if let Some(known) = self.reduced.get(&same) {
            return Ok(known.clone());
        }
        let whole = self.launch_and_compare(reduced, None)?;
        self.reduced.insert(same, whole.clone());
        Ok(whole)
    }

    fn keep_verification(
        &mut self,
        subject: &Subject,
        arm: &Arm,
        key: Key,
        whole: Verification,
        own_shape: Verification,
    ) -> Result<(), Stop> {
        self.tell(Event::Verified { name: arm.name.clone(), relative_frobenius: own_shape.relative_frobenius });
        let record = Record {
            kind: RecordKind::Verification,
            key,
            subject: arm.key,
            material: serde_json::Value::Null,
            labels: labels(subject, None),
            tiling: arm.prepared.tiling.clone(),
            code: self.code(&arm.prepared)?,
            position: self.position(0, 0),
            environment: self.tools.environment.clone(),
            body: Body::Verification { whole, own_shape },
        };
        self.tools.journal.append(&record)?;
        self.verified.insert(key);
        Ok(())
    }

    fn launch_and_compare(&mut self, launchable: &Launchable, max_rows: Option<u64>) -> Result<Verification, Stop> {
        let task = Task::Verify { launchable: launchable.clone(), check: self.check(max_rows) };
        let lines = self.tools.executor.execute(&self.tools.request(task), &mut |_| {})?;
        profiler::annotation::last_verification(&lines).map_err(Stop::Subject)
    }

    /// How outputs are compared, over `max_rows` rows at most.
    pub(super) fn check(&self, max_rows: Option<u64>) -> Check {
        Check {
            max_rows,
            seed: self.tools.setting.protocols.verification_seed,
            reference_cache: self.tools.reference_cache.clone(),
            without_bands: false,
        }
    }
}

/// Says that a failure happened on the reduced shape.
pub(super) fn at_reduced(stop: Stop, reduced: &Prepared) -> Stop {
    match stop {
        Stop::Subject(failure) => Stop::Subject(Failure {
            message: format!("on the reduced shape {}: {}", reduced.instance.shape, failure.message),
            ..failure
        }),
        stop => stop,
    }
}
