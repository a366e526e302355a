//! Tuning: every point of a space is compiled, timed in a process of its own kind, and the fastest is chosen.

use std::collections::BTreeMap;

use super::session::{Session, SessionError, Stop};
use super::{Event, ExecuteError, Tried, TriedOutcome, TuningResult};
use crate::catalog::Package;
use crate::expr::Scope;
use crate::model::protocol::{Candidate, CandidateOutcome, Failure, FailureKind, Launchable, Line, Task};
use crate::model::{Choices, Key, Shape, Tiling};
use crate::plan::space::{Point, TuneTarget, search, targets};
use crate::plan::{self, Facts, PlanError, Prepared, Subject};

/// One variant of a kernel, timed without a verification: what calibration is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    pub choices: Choices,
    pub median_ns: f64,
    /// FLOPs and bytes of one launch, by the cost model.
    pub flops: f64,
    pub bytes: f64,
}

/// A kernel's variants could not be timed.
#[derive(Debug, thiserror::Error)]
pub enum TrialsError {
    #[error(transparent)]
    Failed(Failure),
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Session(SessionError),
}

impl From<Stop> for TrialsError {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Subject(failure) => TrialsError::Failed(failure),
            Stop::Interrupted => TrialsError::Interrupted,
            Stop::Session(error) => TrialsError::Session(error),
        }
    }
}

/// A process that dies takes its candidate with it; a space in which this many die is given up.
const MOST_DEATHS: usize = 8;

impl Session<'_> {
    /// Makes every tuning that `subject` needs.
    pub(super) fn tune(&mut self, subject: &Subject, facts: &dyn Facts) -> Result<(), Stop> {
        let package = self.package(&subject.id);
        let root = self.tools.setting.root();
        let mut tiling = Tiling::default();
        for target in targets(package, &subject.shape, &root).map_err(Stop::planning)? {
            let (key, _) = plan::tuning_key(
                &self.tools.setting,
                package,
                &subject.shape,
                &tiling,
                &target,
                &root,
                &self.build_keys,
            )
            .map_err(Stop::planning)?;
            let chosen = match facts.tuning(&subject.id, &target, &key).map_err(PlanError::from)? {
                Some(choices) => choices,
                None => self.tune_target(subject, package, &target, key, &tiling, &root)?,
            };
            plan::decide(&mut tiling, &target, chosen);
        }
        Ok(())
    }

    /// Times every variant that the first tiling space of `package` offers, at `shape`.
    ///
    /// # Errors
    /// No variant has a time, or the session ended.
    pub fn trials(&mut self, package: &Package, shape: &Shape) -> Result<Vec<Trial>, TrialsError> {
        Ok(self.try_variants(package, shape)?)
    }

    fn try_variants(&mut self, package: &Package, shape: &Shape) -> Result<Vec<Trial>, Stop> {
        let setting = self.tools.setting;
        let root = setting.root();
        let first = targets(package, shape, &root).map_err(Stop::planning)?.into_iter().next();
        let target = first.unwrap_or(TuneTarget::Pipeline);
        let found = search(package, &target, shape, &Tiling::default(), setting.protocols.search, &root)
            .map_err(Stop::planning)?;
        let prepared = self.prepare_points(package, shape, &target, &Tiling::default(), &found.points, &root)?;
        let cost: BTreeMap<usize, (f64, f64)> =
            prepared.iter().map(|(number, point)| (*number, point.instance.total())).collect();
        let (outcomes, _) = self.try_points(&target, prepared)?;
        let trials: Vec<Trial> = outcomes
            .iter()
            .filter_map(|(number, outcome)| match outcome {
                CandidateOutcome::Timed { median_ns, .. } => Some(Trial {
                    choices: found.points[*number].choices.clone(),
                    median_ns: *median_ns,
                    flops: cost[number].0,
                    bytes: cost[number].1,
                }),
                _ => None,
            })
            .collect();
        if trials.is_empty() { Err(Stop::Subject(no_winner(&target, &outcomes))) } else { Ok(trials) }
    }

    fn tune_target(
        &mut self,
        subject: &Subject,
        package: &Package,
        target: &TuneTarget,
        key: Key,
        tiling: &Tiling,
        root: &Scope<'_>,
    ) -> Result<Choices, Stop> {
        let setting = self.tools.setting;
        let found =
            search(package, target, &subject.shape, tiling, setting.protocols.search, root).map_err(Stop::planning)?;
        let name = super::session::name(subject);
        let valid = found.points.iter().filter(|point| point.rejected_by.is_none()).count();
        self.tell(Event::Tuning {
            name: name.clone(),
            target: target.clone(),
            candidates: valid,
            rejected: found.points.len() - valid,
        });
        let prepared = self.prepare_points(package, &subject.shape, target, tiling, &found.points, root)?;
        let (mut outcomes, out_of_time) = self.try_points(target, prepared)?;

        let best = outcomes
            .iter()
            .filter_map(|(&number, outcome)| match outcome {
                CandidateOutcome::Timed { median_ns, .. } => Some((*median_ns, number)),
                _ => None,
            })
            .min_by(|a, b| a.0.total_cmp(&b.0));
        let Some((median_ns, number)) = best else {
            return Err(Stop::Subject(no_winner(target, &outcomes)));
        };
        let chosen = found.points[number].choices.clone();
        let tried = outcomes.len();
        let material =
            plan::tuning_explanation(&setting, package, &subject.shape, tiling, target, root, &self.build_keys);
        let result = TuningResult {
            material: material.map_err(Stop::planning)?,
            id: subject.id.clone(),
            shape: subject.shape.clone(),
            target: target.clone(),
            key,
            chosen: chosen.clone(),
            history: history(found.points, &mut outcomes),
            exhaustive: found.exhaustive,
            out_of_time,
            taken_at: self.tools.clock.now(),
        };
        self.tools.journal.append_tuning(&result)?;
        self.tell(Event::Tuned { name, target: target.clone(), chosen: list(&chosen), median_ns, tried });
        Ok(chosen)
    }

    /// The valid ones of `points`, by number.
    fn prepare_points(
        &self,
        package: &Package,
        shape: &Shape,
        target: &TuneTarget,
        tiling: &Tiling,
        points: &[Point],
        root: &Scope<'_>,
    ) -> Result<Vec<(usize, Prepared)>, Stop> {
        let valid = points.iter().enumerate().filter(|(_, point)| point.rejected_by.is_none());
        let prepared = valid.map(|(number, point)| {
            let mut tiling = tiling.clone();
            plan::decide(&mut tiling, target, point.choices.clone());
            let prepared = Prepared::new(&self.tools.setting, package, shape, &tiling, root, &self.build_keys);
            prepared.map(|prepared| (number, prepared)).map_err(Stop::planning)
        });
        prepared.collect()
    }

    /// Compiles and times the points, a batch after another. Says whether the time budget ended it.
    fn try_points(
        &mut self,
        target: &TuneTarget,
        mut left: Vec<(usize, Prepared)>,
    ) -> Result<(BTreeMap<usize, CandidateOutcome>, bool), Stop> {
        /// Points between two looks at the time budget.
        const BATCH: usize = 16;
        let started = self.tools.clock.elapsed();
        if *target != TuneTarget::Pipeline {
            // A search that runs out of time has then seen points from everywhere. Points of the pipeline stay in order,
            // as those with equal parameters share their inputs.
            fastrand::Rng::with_seed(self.tools.setting.protocols.search.seed).shuffle(&mut left);
        }
        let mut outcomes = BTreeMap::new();
        let mut deaths = 0;
        while !left.is_empty() {
            if self.tools.clock.elapsed() - started > self.tools.setting.protocols.tuning_budget {
                return Ok((outcomes, true));
            }
            let rest = left.split_off(left.len().min(BATCH));
            let candidates = self.build_candidates(target, std::mem::replace(&mut left, rest), &mut outcomes)?;
            self.time_candidates(candidates, &mut outcomes, &mut deaths)?;
        }
        Ok((outcomes, false))
    }

    /// Compiles every point; what does not compile is an outcome already.
    fn build_candidates(
        &mut self,
        target: &TuneTarget,
        prepared: Vec<(usize, Prepared)>,
        outcomes: &mut BTreeMap<usize, CandidateOutcome>,
    ) -> Result<Vec<Candidate>, Stop> {
        let needed = |point: &Prepared| match stage_index(point, target) {
            Some(stage) => vec![point.builds[stage].clone()],
            None => point.builds.clone(),
        };
        self.build_all(prepared.iter().flat_map(|(_, point)| needed(point)).collect())?;

        let mut candidates = Vec::new();
        for (number, point) in prepared {
            match self.candidate(number, &point, target) {
                Ok(Some(candidate)) => candidates.push(candidate),
                Ok(None) => {}
                Err(failure) => {
                    outcomes.insert(number, CandidateOutcome::Failed(failure));
                }
            }
        }
        Ok(candidates)
    }

    /// The candidate with its modules; `None` where the tuned stage is not launched at this shape.
    fn candidate(&self, number: usize, point: &Prepared, target: &TuneTarget) -> Result<Option<Candidate>, Failure> {
        let stage = stage_index(point, target);
        if stage.is_none() && *target != TuneTarget::Pipeline {
            return Ok(None);
        }
        let (pipeline, builds) = match stage {
            // A stage by itself needs no other stage's module.
            Some(stage) => {
                let mut pipeline = point.pipeline().clone();
                let mut only = pipeline.stages.swap_remove(stage);
                only.after.clear();
                pipeline.stages = vec![only];
                (pipeline, &point.builds[stage..=stage])
            }
            None => (point.pipeline().clone(), &point.builds[..]),
        };
        let path = |build| self.module(build).map(|module| module.path);
        let modules = builds.iter().map(path).collect::<Result<_, _>>()?;
        Ok(Some(Candidate { number, launchable: Launchable { pipeline, modules }, stage: stage.map(|_| 0) }))
    }

    /// Times the candidates in as few processes as their deaths allow.
    fn time_candidates(
        &mut self,
        mut left: Vec<Candidate>,
        outcomes: &mut BTreeMap<usize, CandidateOutcome>,
        deaths: &mut usize,
    ) -> Result<(), Stop> {
        while !left.is_empty() {
            let expected: Vec<usize> = left.iter().map(|candidate| candidate.number).collect();
            let task = Task::Tune { candidates: left.clone(), protocol: self.tools.setting.protocols.tuning.clone() };
            let mut heard = Vec::new();
            let request = self.tools.request(task);
            let observer = &mut self.tools.observer;
            let answer = self.tools.executor.execute(&request, &mut |line| {
                if let Line::Candidate { number, outcome } = line {
                    observer.observe(&Event::CandidateTried);
                    heard.push((*number, outcome.clone()));
                }
            });
            outcomes.extend(heard);
            match answer {
                Ok(_) => {}
                Err(ExecuteError::Interrupted) => return Err(Stop::Interrupted),
                Err(ExecuteError::Failed(failure)) => {
                    *deaths += 1;
                    let died = expected.iter().find(|number| !outcomes.contains_key(number));
                    let Some(&died) = died.filter(|_| *deaths < MOST_DEATHS) else {
                        return Err(Stop::Subject(failure));
                    };
                    outcomes.insert(died, CandidateOutcome::Failed(failure));
                }
            }
            let before = left.len();
            left.retain(|candidate| !outcomes.contains_key(&candidate.number));
            if left.len() == before {
                return Err(Stop::Subject(Failure {
                    kind: FailureKind::Internal,
                    stage: None,
                    message: "the worker ended without having tried a candidate".to_owned(),
                }));
            }
        }
        Ok(())
    }
}

fn stage_index(point: &Prepared, target: &TuneTarget) -> Option<usize> {
    match target {
        TuneTarget::Pipeline => None,
        TuneTarget::Stage(name) => point.pipeline().stages.iter().position(|stage| &stage.name == name),
    }
}

fn no_winner(target: &TuneTarget, outcomes: &BTreeMap<usize, CandidateOutcome>) -> Failure {
    let first = outcomes.values().find_map(|outcome| match outcome {
        CandidateOutcome::Failed(failure) => Some(failure.clone()),
        _ => None,
    });
    match first {
        Some(failure) => Failure {
            message: format!("every candidate of tuning {target} failed; the first: {}", failure.message),
            ..failure
        },
        None => Failure {
            kind: FailureKind::Build,
            stage: None,
            message: format!(
                "the tiling space of {target} has no point that satisfies its constraints at this shape; widen the \
                 choices or relax the constraints in kernel.toml"
            ),
        },
    }
}

fn history(points: Vec<Point>, outcomes: &mut BTreeMap<usize, CandidateOutcome>) -> Vec<Tried> {
    points
        .into_iter()
        .enumerate()
        .map(|(number, point)| Tried {
            choices: point.choices,
            outcome: match (point.rejected_by, outcomes.remove(&number)) {
                (Some(constraint), _) => TriedOutcome::Rejected { constraint },
                (None, Some(outcome)) => TriedOutcome::Tried(outcome),
                (None, None) => TriedOutcome::NotReached,
            },
        })
        .collect()
}

fn list(choices: &Choices) -> String {
    choices.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}
