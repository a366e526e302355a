//! Comparing kernels for a verdict, wherever their sources are: pairs of fresh processes under one lease and one clock policy,
//! until the rule stops.
//!
//! ```no_run
//! # fn f(workspace: &mlarun::app::Workspace<'_>, control: &mut mlarun::app::Control<'_>) -> Result<(), mlarun::app::CompareError> {
//! use mlarun::app::{Pair, Side};
//! use mlarun::execute::Pace;
//! # let (id, other): (mlarun::model::KernelId, mlarun::model::KernelId) = todo!();
//!
//! let side = |id| Side { project: workspace.project, id, revision: None };
//! let pair = Pair { candidate: side(id), baseline: side(other), shape: Default::default() };
//! let compared = workspace.compare(&[pair], &Pace::default(), control)?;
//! println!("{:?}", compared[0].standing);
//! # Ok(())
//! # }
//! ```

use super::clocks::{Held, HoldError};
use super::experiment::{Bench, BenchError, Control, Workspace};
use super::modes::single;
use super::project::Project;
use crate::device::clocks::ClocksError;
use crate::execute::{Contender, Event, Met, Pace, RunFailure, SessionError, TrialsError};
use crate::manifest;
use crate::model::protocol::{Failure, FailureKind};
use crate::model::record::Record;
use crate::model::{KernelId, Key, Mode, Shape};
use crate::pairs::{self, Judged, Standing, Unjudged};
use crate::plan::{Setting, SubjectState, Wanted};
use crate::stats::verdict::Rule;

/// One side of a comparison.
#[derive(Debug, Clone)]
pub struct Side<'a> {
    /// Whose catalogue the kernel is looked up in; another one than the workspace's for sources of another place or time.
    pub project: &'a Project,
    pub id: KernelId,
    /// Commit that the sources are of, or the name of what else they are from, where they are not the working tree's.
    pub revision: Option<String>,
}

/// Two kernels at one shape. A parameter that a kernel does not declare it ignores.
#[derive(Debug, Clone)]
pub struct Pair<'a> {
    pub candidate: Side<'a>,
    pub baseline: Side<'a>,
    pub shape: Shape,
}

/// What became of a pair.
#[derive(Debug, Clone)]
pub struct Compared {
    /// The verdict, corrected for the table that all pairs of the call are; [`Standing::Unjudged`] where one side failed.
    pub standing: Standing,
    /// The failure that ended it.
    pub failure: Option<RunFailure>,
    /// The user or the budget ended it before the rule did.
    pub cut_short: bool,
    /// The newest record of candidate and baseline, where any was taken.
    pub records: Option<Box<(Record, Record)>>,
    /// Keys of the measurements of candidate and baseline, once both are compiled: `mlarun show` knows them.
    pub keys: Option<(Key, Key)>,
}

/// No comparison can be made.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    #[error(transparent)]
    Bench(#[from] BenchError),
    #[error("{name}: {reason}")]
    Refused { name: String, reason: String },
    #[error("interrupted")]
    Interrupted,
}

impl From<SessionError> for CompareError {
    fn from(error: SessionError) -> Self {
        CompareError::Bench(error.into())
    }
}

impl Workspace<'_> {
    /// Compares every pair, one after another, and corrects their verdicts for the table that they make. Every sample set is kept
    /// in the workspace's store. The caller holds the lease of the device.
    ///
    /// Sides of equal machine code, launches and inputs are not run. A side that does not compile, gives a wrong output or
    /// fails while it is measured ends its own pair alone.
    ///
    /// # Errors
    /// A side cannot be planned, the clocks cannot be had, a result cannot be kept, the device is gone, or the user has
    /// interrupted it before anything was measured.
    pub fn compare(
        &self,
        pairs: &[Pair<'_>],
        pace: &Pace,
        control: &mut Control<'_>,
    ) -> Result<Vec<Compared>, CompareError> {
        let clocks = manifest::Clocks { policy: manifest::ClockPolicy::Prefer, sm_mhz: None, mem_mhz: None };
        self.compare_at(&clocks, pairs, pace, control)
    }

    /// The same at the clocks that are asked for.
    ///
    /// # Errors
    /// As [`Workspace::compare`].
    pub fn compare_at(
        &self,
        clocks: &manifest::Clocks,
        pairs: &[Pair<'_>],
        pace: &Pace,
        control: &mut Control<'_>,
    ) -> Result<Vec<Compared>, CompareError> {
        let held = match self.hold_clocks(clocks, control) {
            Err(HoldError::Clocks(ClocksError::Interrupted)) => return Err(CompareError::Interrupted),
            held => held.map_err(BenchError::from)?,
        };
        let comparisons = u32::try_from(pairs.len()).unwrap_or(u32::MAX);
        let compared: Result<Vec<_>, _> =
            pairs.iter().map(|pair| self.compare_pair(pair, (pace, comparisons), &held, control)).collect();
        let state = held.state;
        if let Err(error) = held.release() {
            let reason = Some(format!("not given back: {error}; `mlarun clocks reset` tries again"));
            control.observer.observe(&Event::Clocks { state, reason });
        }
        let mut compared = compared?;
        pairs::correct_table(compared.iter_mut().map(|compared| &mut compared.standing));
        Ok(compared)
    }

    fn compare_pair(
        &self,
        pair: &Pair<'_>,
        (pace, comparisons): (&Pace, u32),
        held: &Held,
        control: &mut Control<'_>,
    ) -> Result<Compared, CompareError> {
        let mut sides = Vec::new();
        for side in [&pair.candidate, &pair.baseline] {
            match self.compiled(side, &pair.shape, held, control)? {
                Ok(compiled) => sides.push(compiled),
                Err(failure) => return Ok(Compared::failed(failure)),
            }
        }
        let [candidate, baseline] = &sides[..] else { unreachable!("one of either side") };
        let setting = self.setting(&candidate.bench.protocols);
        let contenders = (&candidate.contender, &baseline.contender);
        let keys = Some((contenders.0.key(&setting), contenders.1.key(&setting)));
        if contenders.0.is_same_code(contenders.1, &setting) {
            return Ok(Compared { standing: Standing::SameCode, keys, ..Compared::nothing() });
        }
        for (side, compiled) in [(&pair.candidate, candidate), (&pair.baseline, baseline)] {
            if let Some(failure) = self.verified(side, compiled, held, control)? {
                return Ok(Compared { keys, ..Compared::failed(failure) });
            }
        }
        let rule = candidate.bench.protocols.rule(comparisons);
        let met = self.meet(contenders, &rule, pace, setting, held, control)?;
        Ok(Compared { keys, ..Compared::of(met, pace) })
    }

    fn meet(
        &self,
        (candidate, baseline): (&Contender, &Contender),
        rule: &Rule,
        pace: &Pace,
        setting: Setting<'_>,
        held: &Held,
        control: &mut Control<'_>,
    ) -> Result<Met, CompareError> {
        let limit = self.project.conf.protocol.limits.run();
        let met = self.with_session(setting, control, limit, held, |mut session| {
            session.compare(candidate, baseline, rule, pace)
        });
        met.map_err(|error| match error {
            TrialsError::Session(error) => error.into(),
            TrialsError::Interrupted => CompareError::Interrupted,
            TrialsError::Failed(failure) => {
                CompareError::Refused { name: candidate.name.to_string(), reason: failure.message }
            }
        })
    }

    /// The side tuned and compiled, or why it cannot be.
    fn compiled(
        &self,
        side: &Side<'_>,
        shape: &Shape,
        held: &Held,
        control: &mut Control<'_>,
    ) -> Result<Result<Compiled, RunFailure>, CompareError> {
        let there = Workspace { project: side.project, ..*self };
        let experiment = single(&there, side.id.clone(), shape.clone(), Mode::Event, Some(1));
        let mut bench = there.plan_at(experiment, held.state, &self.project.conf, WANTED)?;
        // The host's calibration lies where the results go, whatever place or time the sources are of.
        let host = self.host_calibration(&held.state).map_err(BenchError::from)?;
        bench.protocols.unlocked_threshold = host.map(|host| host.threshold);
        let subject = bench.plan.subjects.iter().find(|subject| subject.listed);
        if let Some(SubjectState::Refused { reason }) = subject.map(|subject| &subject.state) {
            return Err(CompareError::Refused { name: side.id.to_string(), reason: reason.clone() });
        }
        let name = subject.map(crate::execute::name_of);
        let setting = there.setting(&bench.protocols);
        let limit = side.project.conf.protocol.limits.run();
        let (experiment, plan) = (&bench.experiment, bench.plan.clone());
        let made = there.with_session(setting, control, limit, held, |session| {
            session.contender(experiment, plan, WANTED, self.ledger)
        });
        match (made, name) {
            (Ok((mut contender, plan)), _) => {
                contender.revision.clone_from(&side.revision);
                bench.plan = plan;
                Ok(Ok(Compiled { contender, bench }))
            }
            (Err(TrialsError::Failed(failure)), Some(name)) => Ok(Err(RunFailure { name, mode: None, failure })),
            (Err(TrialsError::Failed(failure)), None) => {
                Err(CompareError::Refused { name: side.id.to_string(), reason: failure.message })
            }
            (Err(TrialsError::Interrupted), _) => Err(CompareError::Interrupted),
            (Err(TrialsError::Session(error)), _) => Err(error.into()),
        }
    }

    /// Verifies the side, unless that was done before; its failure, where its output is not right.
    fn verified(
        &self,
        side: &Side<'_>,
        compiled: &Compiled,
        held: &Held,
        control: &mut Control<'_>,
    ) -> Result<Option<RunFailure>, CompareError> {
        let there = Workspace { project: side.project, ..*self };
        let setting = there.setting(&compiled.bench.protocols);
        let limit = side.project.conf.protocol.limits.verify();
        let outcome = there.with_session(setting, control, limit, held, |session| {
            session.verify(&compiled.bench.plan, Some(self.ledger))
        })?;
        match outcome.failures.into_iter().next() {
            Some(failure) => Ok(Some(failure)),
            None if outcome.stopped => Err(CompareError::Interrupted),
            None => Ok(None),
        }
    }
}

/// Both sides are measured whatever is recorded of them.
const WANTED: Wanted<'static> = Wanted { only: None, remeasure: true, dev_logs: false, untuned: false, tile: None };

/// A side that is compiled.
struct Compiled {
    contender: Contender,
    bench: Bench,
}

impl Compared {
    fn nothing() -> Compared {
        let standing = Standing::Unjudged(Unjudged::OtherSession);
        Compared { standing, failure: None, cut_short: false, records: None, keys: None }
    }

    fn failed(failure: RunFailure) -> Compared {
        Compared { standing: Standing::Unjudged(Unjudged::Failed), failure: Some(failure), ..Compared::nothing() }
    }

    fn of(met: Met, pace: &Pace) -> Compared {
        let Met { judgement, failure, cut_short, session, records } = met;
        let standing = match (&failure, judgement) {
            (None, Some(judgement)) => Standing::Judged(Box::new(Judged { session, timing: pace.timing, judgement })),
            _ => Standing::Unjudged(if failure.is_some() { Unjudged::Failed } else { Unjudged::OtherSession }),
        };
        Compared { standing, failure, cut_short, records, keys: None }
    }

    /// The failure that ended it, where it was one of a kernel's output.
    pub fn wrong(&self) -> Option<&Failure> {
        let failure = &self.failure.as_ref()?.failure;
        (failure.kind == FailureKind::WrongOutput).then_some(failure)
    }
}
