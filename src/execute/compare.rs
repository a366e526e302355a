//! Comparing two subjects for a verdict: fresh processes in pairs, the order of each drawn, until a look decides. The two may
//! come from different catalogues: what has to be tuned, compiled and verified is made a [`Contender`] first.

use std::time::Duration;

use super::session::{Arm, RunFailure, Session, Stop};
use super::{Event, Name, TrialsError};
use crate::manifest::Experiment;
use crate::model::protocol::{Failure, FailureKind, Launchable};
use crate::model::record::{Body, Labels, Record, RecordKind, StageCode};
use crate::model::{Key, Mode, Timing};
use crate::pairs;
use crate::plan::{Facts, Plan, Prepared, Setting, Wanted};
use crate::profiler;
use crate::stats::verdict::{self, Judgement, Round, Rule};

/// A subject that is compiled and can be measured, wherever its kernel was found.
#[derive(Debug, Clone)]
pub struct Contender {
    pub name: Name,
    pub prepared: Prepared,
    pub code: Vec<StageCode>,
    /// Commit of its sources, or the pinned build that they are from, where they are not the working tree's.
    pub revision: Option<String>,
    launchable: Launchable,
    labels: Labels,
}

impl Contender {
    /// Its key in the session's setting.
    fn subject(&self, session: &Session<'_>) -> Key {
        self.prepared.subject(&session.tools.setting).key()
    }

    /// Key of its measurement in event mode.
    pub fn key(&self, setting: &Setting<'_>) -> Key {
        self.prepared.measurement_key(setting, Mode::Event)
    }

    /// Both are equal machine code, launched alike on the same inputs.
    pub fn is_same_code(&self, other: &Contender, setting: &Setting<'_>) -> bool {
        let material = |contender: &Contender| contender.prepared.explanation(setting, Mode::Event);
        self.key(setting) == other.key(setting)
            || pairs::launches_alike((&self.code, &material(self)), (&other.code, &material(other)))
    }
}

/// How far a comparison may go.
#[derive(Debug, Clone, PartialEq)]
pub struct Pace {
    /// No round begins after so many.
    pub rounds: u32,
    /// No round begins that would, by the longest so far, end later than this after the first began.
    pub budget: Option<Duration>,
    /// What is judged.
    pub timing: Timing,
}

impl Default for Pace {
    /// To the last look, however long that takes, and a quarter more for rounds that are dropped.
    fn default() -> Self {
        let last = Rule::LOOKS[Rule::LOOKS.len() - 1];
        Pace { rounds: last + last.div_ceil(3), budget: None, timing: Timing::ColdIsolated }
    }
}

/// What became of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Met {
    /// `None` where the first round did not end.
    pub judgement: Option<Judgement>,
    /// What one side's failure was, which ended it.
    pub failure: Option<RunFailure>,
    /// The user, or the budget, ended it before the rule did.
    pub cut_short: bool,
    /// Name of the session, in records.
    pub session: String,
    /// The newest record of candidate and baseline.
    pub records: Option<Box<(Record, Record)>>,
}

impl Session<'_> {
    /// Tunes and compiles the one subject of `plan` that is listed; runs and verifies nothing else.
    ///
    /// # Errors
    /// It does not compile, its tuning has no winner, or the session ended.
    pub fn contender(
        mut self,
        experiment: &Experiment,
        plan: Plan,
        wanted: Wanted<'_>,
        facts: &dyn Facts,
    ) -> Result<(Contender, Plan), TrialsError> {
        self.tools.fail_fast = true;
        let plan = self.tune_all(experiment, plan, wanted, facts)?;
        let arms = self.arms(&plan)?;
        self.build_all(arms.iter().flat_map(|(arm, _)| arm.prepared.builds.clone()).collect())?;
        let arm = arms.into_iter().map(|(arm, _)| arm).find(|arm| plan.subjects[arm.subject].listed);
        let Arm { subject, name, prepared, .. } = arm.ok_or_else(|| internal("its plan has nothing to measure"))?;
        let (launchable, code) = (self.launchable(&prepared)?, self.code(&prepared)?);
        let labels = super::session::labels(&plan.subjects[subject], Some(Mode::Event));
        Ok((Contender { name, prepared, code, revision: None, launchable, labels }, plan))
    }

    /// Measures both in turn until a look decides or `pace` ends it; every sample set is kept. `rule` is fixed before the first
    /// round, and stored with each of them.
    ///
    /// # Errors
    /// A result could not be kept, or the device is gone. A side that fails is no error.
    pub fn compare(
        &mut self,
        candidate: &Contender,
        baseline: &Contender,
        rule: &Rule,
        pace: &Pace,
    ) -> Result<Met, TrialsError> {
        self.looks = Some(pairs::looks(rule));
        let met = self.meet(candidate, baseline, rule, pace);
        self.looks = None;
        Ok(met?)
    }

    fn meet(&mut self, candidate: &Contender, baseline: &Contender, rule: &Rule, pace: &Pace) -> Result<Met, Stop> {
        let session = self.tools.session.clone();
        let mut met = Met { judgement: None, failure: None, cut_short: false, session, records: None };
        let orders = verdict::orders(self.seed(&[candidate.subject(self), baseline.subject(self)]));
        let (began, mut longest) = (self.tools.clock.elapsed(), Duration::ZERO);
        let mut rounds: Vec<Round> = Vec::new();
        for (number, candidate_first) in (0..pace.rounds).zip(orders) {
            let round_began = self.tools.clock.elapsed();
            if pace.budget.is_some_and(|budget| round_began - began + longest > budget) {
                met.cut_short = true;
                break;
            }
            let round = match self.round(candidate, baseline, (number, rule), candidate_first) {
                Ok(round) => round,
                Err((contender, Stop::Subject(failure))) => {
                    let name = contender.name.clone();
                    self.tell(Event::Failed {
                        name: name.clone(),
                        mode: Some(Mode::Event),
                        reason: failure.message.clone(),
                    });
                    met.failure = Some(RunFailure { name, mode: Some(Mode::Event), failure });
                    break;
                }
                Err((_, Stop::Interrupted)) => {
                    met.cut_short = true;
                    break;
                }
                Err((_, stop)) => return Err(stop),
            };
            longest = longest.max(self.tools.clock.elapsed() - round_began);
            rounds.push(Round {
                candidate: pairs::process(&round.0, pace.timing),
                baseline: pairs::process(&round.1, pace.timing),
                candidate_first,
            });
            met.records = Some(Box::new(round));
            let judgement = verdict::judge(&rounds, rule).map_err(|error| internal(&error.to_string()))?;
            let is_over = judgement.next_look.is_none();
            if is_over || is_look(&rounds, rule) {
                self.tell(Event::Looked {
                    candidate: candidate.name.clone(),
                    baseline: baseline.name.clone(),
                    judgement: Box::new(judgement.clone()),
                });
            }
            met.judgement = Some(judgement);
            if is_over {
                break;
            }
        }
        Ok(met)
    }

    /// One process of either: the records of candidate and baseline, or which of the two stopped it.
    fn round<'c>(
        &mut self,
        candidate: &'c Contender,
        baseline: &'c Contender,
        (number, rule): (u32, &Rule),
        candidate_first: bool,
    ) -> Result<(Record, Record), (&'c Contender, Stop)> {
        let mut side = |contender: &'c Contender, position| {
            self.contend(contender, (number, rule), position).map_err(|stop| (contender, stop))
        };
        if candidate_first {
            let first = side(candidate, 0)?;
            Ok((first, side(baseline, 1)?))
        } else {
            let first = side(baseline, 0)?;
            Ok((side(candidate, 1)?, first))
        }
    }

    /// One fresh process, kept.
    fn contend(&mut self, contender: &Contender, (round, rule): (u32, &Rule), position: u32) -> Result<Record, Stop> {
        let setting = self.tools.setting;
        let check = self.check(Some(setting.protocols.verified_rows));
        let task = profiler::event::task(contender.launchable.clone(), setting.protocols.event.clone(), check);
        let (name, mode) = (contender.name.clone(), Mode::Event);
        let rounds = rule.looks.last().copied().unwrap_or_default().max(round + 1);
        self.tell(Event::Measuring { name: name.clone(), mode, round, rounds, estimate_ns: 0.0 });
        let lines = self.answer(&name, task)?;
        let body = Body::Event(profiler::event::collect(&lines).map_err(Stop::Subject)?);
        let mut environment = self.environment(&body);
        if let Some(revision) = &contender.revision {
            // What the working tree is says nothing of them.
            environment.git_revision = is_commit(revision).then(|| revision.clone());
            environment.git_dirty = is_commit(revision).then_some(false);
        }
        let record = Record {
            kind: RecordKind::Event,
            key: contender.prepared.measurement_key(&setting, mode),
            subject: contender.subject(self),
            material: contender.prepared.explanation(&setting, mode),
            labels: Labels { origin: contender.revision.clone(), ..contender.labels.clone() },
            tiling: contender.prepared.tiling.clone(),
            code: contender.code.clone(),
            position: self.position(round, position),
            environment,
            body,
        };
        self.tools.journal.append(&record)?;
        crate::failpoint::here("session.kept");
        let median_ns = pairs::process(&record, Timing::ColdIsolated).ns;
        self.tell(Event::Measured { name, mode, round, rounds, median_ns, estimate_ns: 0.0 });
        Ok(record)
    }
}

/// Whether it is the whole hash of a commit.
fn is_commit(revision: &str) -> bool {
    revision.len() >= 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether the last of these rounds is one after which the rule looks.
fn is_look(rounds: &[Round], rule: &Rule) -> bool {
    let counts = |round: &Round| round.taints().is_empty();
    rounds.last().is_some_and(counts)
        && rule.looks.contains(&(rounds.iter().filter(|round| counts(round)).count() as u32))
}

fn internal(message: &str) -> Stop {
    Stop::Subject(Failure { kind: FailureKind::Internal, stage: None, message: message.to_owned() })
}
