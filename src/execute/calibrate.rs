//! Single processes for a calibration: a kernel's time at several sizes, and fresh processes one by one. Nothing here is a
//! result of a kernel, so that outputs are checked to be finite and written, and compared with no reference.

use super::session::{Session, SessionError, Stop};
use super::{ExecuteError, TrialsError};
use crate::catalog::Package;
use crate::model::clocks::{Reading, Telemetry};
use crate::model::protocol::{
    Candidate, CandidateOutcome, EventProtocol, Failure, FailureKind, Launchable, Line, Task, TuneProtocol,
};
use crate::model::{Shape, Tiling};
use crate::pairs::taints;
use crate::plan::Prepared;
use crate::profiler;
use crate::stats;
use crate::stats::verdict::Process;

impl Session<'_> {
    /// Compiles `package` at `shape`, ready to be launched.
    ///
    /// # Errors
    /// It does not compile, or the session ended.
    pub fn ready(&mut self, package: &Package, shape: &Shape) -> Result<Launchable, TrialsError> {
        Ok(self.compiled(package, shape)?)
    }

    fn compiled(&mut self, package: &Package, shape: &Shape) -> Result<Launchable, Stop> {
        let setting = self.tools.setting;
        let prepared = Prepared::new(&setting, package, shape, &Tiling::default(), &setting.root(), &self.build_keys)
            .map_err(Stop::planning)?;
        self.build_all(prepared.builds.clone())?;
        let mut launchable = self.launchable(&prepared)?;
        launchable.pipeline.reference = None;
        Ok(launchable)
    }

    /// Median time of a warm launch of each, in nanoseconds, all in one process.
    ///
    /// # Errors
    /// One of them fails, or the session ended.
    pub fn times(&mut self, launchables: &[Launchable], protocol: TuneProtocol) -> Result<Vec<f64>, TrialsError> {
        let candidate = |(number, launchable): (usize, &Launchable)| Candidate {
            number,
            launchable: launchable.clone(),
            stage: None,
        };
        let candidates = launchables.iter().enumerate().map(candidate).collect();
        let lines = self.ask(Task::Tune { candidates, protocol })?;
        let outcomes = lines.into_iter().filter_map(|line| match line {
            Line::Candidate { outcome, .. } => Some(outcome),
            _ => None,
        });
        let times = outcomes.map(|outcome| match outcome {
            CandidateOutcome::Timed { median_ns, .. } => Ok(median_ns),
            CandidateOutcome::Abandoned { ns } => Ok(ns),
            CandidateOutcome::Failed(failure) => Err(TrialsError::Failed(failure)),
        });
        let times: Vec<f64> = times.collect::<Result<_, _>>()?;
        if times.len() == launchables.len() {
            return Ok(times);
        }
        let message = format!("the worker timed {} of {} sizes", times.len(), launchables.len());
        Err(TrialsError::Failed(Failure { kind: FailureKind::Internal, stage: None, message }))
    }

    /// One fresh process: the median of its first timing, and what disturbed it. A kernel that fails gives a process without a
    /// time, and why.
    ///
    /// # Errors
    /// The device is gone, or the session was interrupted.
    pub fn process(
        &mut self,
        launchable: &Launchable,
        protocol: &EventProtocol,
    ) -> Result<(Process, Option<Failure>), TrialsError> {
        let task = profiler::event::task(launchable.clone(), protocol.clone(), self.check(Some(0)));
        let before = self.reading()?;
        let answer = self.ask(task);
        let after = self.reading()?;
        let mut process = Process { ns: None, sm_mhz: None, taints: Vec::new() };
        let failure = match answer {
            Ok(lines) => {
                for line in &lines {
                    match line {
                        Line::Samples(samples) if process.ns.is_none() => process.ns = stats::median(&samples.ns).ok(),
                        Line::SmClock { mhz } => process.sm_mhz = Some(*mhz),
                        _ => {}
                    }
                }
                None
            }
            Err(Stop::Subject(failure)) => Some(failure),
            Err(stop) => return Err(stop.into()),
        };
        if let (Some(telemetry), Some(before), Some(after)) = (&self.tools.telemetry, before, after) {
            let telemetry = Telemetry { before, after, ..telemetry.clone() };
            process.taints = taints(&telemetry, process.sm_mhz);
        }
        Ok((process, failure))
    }

    fn ask(&mut self, task: Task) -> Result<Vec<Line>, Stop> {
        let request = self.tools.request(task);
        let answer = self.tools.executor.execute(&request, &mut |_| {});
        answer.map_err(|error| match error {
            ExecuteError::Failed(failure) => Stop::Subject(failure),
            ExecuteError::Interrupted => Stop::Interrupted,
        })
    }

    fn reading(&self) -> Result<Option<Reading>, Stop> {
        self.tools.gauge.read().map_err(|reason| Stop::Session(SessionError::Lost(reason)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::clocks::{ClockState, Frequencies};
    use crate::stats::verdict::Taint;

    #[test]
    fn causes_are_physical_and_those_of_clocks_hold_under_a_lock_alone() {
        let locked = ClockState::Locked(Frequencies { sm_mhz: 1500, mem_mhz: None });
        let after =
            Reading { throttle: vec!["SW Power Cap".into()], processes: vec![7], xids: vec![79], ..Reading::default() };
        let of = |clocks, after: &Reading, mhz| {
            taints(&Telemetry { clocks, after: after.clone(), ..Telemetry::default() }, mhz)
        };
        let all = [Taint::ClockOff, Taint::Throttled, Taint::ForeignProcess, Taint::Xid];
        assert_eq!(of(locked, &after, Some(1400.0)), all);
        assert_eq!(of(locked, &Reading::default(), Some(1505.0)), []);
        assert_eq!(of(ClockState::Observed, &after, Some(1400.0)), all[2..]);
    }
}
