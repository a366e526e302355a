//! What Nsight Compute measures: annotation, several subjects to a process, as its start takes longer than any of them; and its
//! own mode, one subject to a report.

use super::session::{Arm, Session, Stop};
use crate::model::Mode;
use crate::model::ncu::Capability;
use crate::model::protocol::{Failure, Line, NcuProtocol};
use crate::model::record::{AnnotationPass, Body};
use crate::plan::{Nsight, Plan};
use crate::profiler::ncu::run;

/// Subjects that share one process at most. Each makes and frees its own memory.
const TOGETHER: usize = 16;

impl Session<'_> {
    /// Profiles every subject that waits for it.
    pub(super) fn profile_all(&mut self, plan: &Plan, arms: &[Arm]) -> Result<(), Stop> {
        let Ok(Nsight { annotation, ncu }) = self.tools.setting.protocols.nsight_compute.clone() else {
            return Ok(());
        };
        let waiting = |mode| -> Vec<&Arm> {
            arms.iter().filter(|arm| plan.subjects[arm.subject].sets_to_take(mode, 1).is_some()).collect()
        };
        for together in waiting(Mode::Annotation).chunks(TOGETHER) {
            self.profile_together(plan, together, Mode::Annotation, &annotation)?;
        }
        for arm in waiting(Mode::Ncu) {
            self.profile_together(plan, &[arm], Mode::Ncu, &ncu)?;
        }
        Ok(())
    }

    /// One process for all of `arms`; where it fails as a whole, one for each, so that only those without a result have none.
    fn profile_together(&mut self, plan: &Plan, arms: &[&Arm], mode: Mode, protocol: &NcuProtocol) -> Result<(), Stop> {
        let lines = match self.profiled(plan, arms, mode, protocol) {
            Ok(lines) => lines,
            Err(Stop::Subject(_)) if arms.len() > 1 => {
                return arms.iter().try_for_each(|arm| self.profile_together(plan, &[arm], mode, protocol));
            }
            Err(Stop::Subject(failure)) => {
                let arm = arms[0];
                return self
                    .keep_going(&arm.name, arm.subject, Some(mode), Err::<(), _>(Stop::Subject(failure)))
                    .map(drop);
            }
            Err(stop) => return Err(stop),
        };
        for (place, arm) in arms.iter().enumerate() {
            let result = self
                .pass(&lines, place, protocol)
                .map_err(Stop::Subject)
                .and_then(|pass| self.keep(plan, arm, mode, (0, 1), place as u32, body(mode, pass), None));
            self.keep_going(&arm.name, arm.subject, Some(mode), result)?;
        }
        Ok(())
    }

    fn profiled(&mut self, plan: &Plan, arms: &[&Arm], mode: Mode, protocol: &NcuProtocol) -> Result<Vec<Line>, Stop> {
        let launchables = arms.iter().map(|arm| self.launchable(&arm.prepared)).collect::<Result<_, _>>()?;
        let check = self.check(Some(self.tools.setting.protocols.verified_rows));
        let report = (mode == Mode::Ncu).then(|| report_name(arms[0], &self.tools.session));
        let task = run::task(launchables, protocol.clone(), &check, report);
        self.measure(plan, arms[0], mode, (0, 1), task)
    }

    fn pass(&self, lines: &[Line], place: usize, protocol: &NcuProtocol) -> Result<AnnotationPass, Failure> {
        let gpu = self.tools.setting.device.gpu.as_ref();
        let capability = gpu.map_or(Capability { major: 0, minor: 0 }, |gpu| gpu.capability());
        run::collect(lines, place, protocol, capability, self.tools.metrics)
    }
}

fn body(mode: Mode, pass: AnnotationPass) -> Body {
    match mode {
        Mode::Ncu => Body::Ncu(pass),
        _ => Body::Annotation(pass),
    }
}

/// A name that no other report has.
fn report_name(arm: &Arm, session: &str) -> String {
    let id = &arm.name.id;
    format!("{}-{}-{}-{}-{session}", id.kernel, id.version, id.language, arm.key.short())
}
