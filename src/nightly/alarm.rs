//! When a slower kernel becomes an alarm: one session suspects it, a second one confirms it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::state::{Circumstances, Observation, Outcome, Subject};
use crate::report::numbers::change_of_speed;
use crate::stats::verdict::Verdict;

/// Sessions that may decide nothing before a suspicion is given up.
pub const MOST_UNDECIDED: u32 = 3;

/// How a subject stands against the pinned build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Alarm {
    Quiet,
    /// One session found it slower.
    Suspected {
        since: Timestamp,
        night: String,
        session: String,
        change: f64,
        /// Sessions since then that decided nothing.
        undecided: u32,
        circumstances: Circumstances,
    },
    /// Two sessions found it slower.
    Raised {
        since: Timestamp,
        change: f64,
        /// The session that found it no longer slower.
        recovering: Option<String>,
        /// The session that found it slower yet, beyond what the alarm said.
        worse: Option<String>,
    },
}

/// An alarm, for the operator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alert {
    pub subject: Subject,
    pub device: String,
    pub raised_at: Timestamp,
    /// Change of speed against the pinned build, or of the level of a series, as a fraction.
    pub change: f64,
    pub text: String,
}

/// What a session did to an alarm.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    pub alarm: Alarm,
    /// What to say of it.
    pub note: Option<String>,
    /// Its alarm, raised now: the change of speed.
    pub raised: Option<f64>,
}

impl Alarm {
    /// A second session is to say whether it is right.
    pub const fn is_open(&self) -> bool {
        matches!(
            self,
            Alarm::Suspected { .. } | Alarm::Raised { recovering: Some(_), .. } | Alarm::Raised { worse: Some(_), .. }
        )
    }

    /// The alarm after `seen`. `threshold` is the smallest change that counts.
    pub(super) fn after(&self, seen: &Observation, threshold: f64) -> Step {
        // What was suspected on a host that has changed since is no first session of what is seen now.
        let before = match self {
            Alarm::Suspected { circumstances, .. } if *circumstances != seen.circumstances => &Alarm::Quiet,
            other => other,
        };
        match (&seen.outcome, before) {
            (Outcome::SameCode, _) => before.cleared("the same code again"),
            (Outcome::Judged { verdict: Verdict::Slower, change, high, .. }, _) => {
                let change = change.unwrap_or_default();
                before.slower(seen, change, high.unwrap_or(change), threshold)
            }
            (Outcome::Judged { verdict: Verdict::Faster | Verdict::Same, .. }, _) => before.not_slower(seen),
            (_, Alarm::Suspected { undecided, .. }) if undecided + 1 >= MOST_UNDECIDED => {
                let note =
                    format!("slower in one session, and {MOST_UNDECIDED} more could not decide: not followed further");
                Step { alarm: Alarm::Quiet, note: Some(note), raised: None }
            }
            (_, Alarm::Suspected { since, night, session, change, undecided, circumstances }) => {
                let alarm = Alarm::Suspected {
                    since: *since,
                    night: night.clone(),
                    session: session.clone(),
                    change: *change,
                    undecided: undecided + 1,
                    circumstances: circumstances.clone(),
                };
                Step { alarm, note: Some("slower in one session; this one could not decide".to_owned()), raised: None }
            }
            _ => before.stays(),
        }
    }

    fn stays(&self) -> Step {
        Step { alarm: self.clone(), note: None, raised: None }
    }

    fn cleared(&self, how: &str) -> Step {
        let note = match self {
            Alarm::Quiet => None,
            Alarm::Suspected { .. } => Some(format!("not confirmed: {how}")),
            Alarm::Raised { .. } => Some(format!("the alarm is over: {how}")),
        };
        Step { alarm: Alarm::Quiet, note, raised: None }
    }

    /// `high` is the upper end of the change's interval.
    fn slower(&self, seen: &Observation, change: f64, high: f64, threshold: f64) -> Step {
        match self {
            Alarm::Quiet => {
                let alarm = Alarm::Suspected {
                    since: seen.at,
                    night: seen.night.clone(),
                    session: seen.session.clone(),
                    change,
                    undecided: 0,
                    circumstances: seen.circumstances.clone(),
                };
                Step { alarm, note: Some("slower in one session: a second one decides".to_owned()), raised: None }
            }
            // A record that was read twice is no second session.
            Alarm::Suspected { session, .. } if *session == seen.session => self.stays(),
            Alarm::Suspected { .. } => raised(seen, change, "alarm: slower in two sessions"),
            Alarm::Raised { change: level, worse, since, .. } if high < *level - threshold => match worse {
                Some(session) if *session != seen.session => raised(seen, change, "alarm: slower yet, in two sessions"),
                _ => {
                    let alarm = Alarm::Raised {
                        since: *since,
                        change: *level,
                        recovering: None,
                        worse: Some(seen.session.clone()),
                    };
                    let note = "slower yet than when the alarm was raised: a second session decides".to_owned();
                    Step { alarm, note: Some(note), raised: None }
                }
            },
            Alarm::Raised { since, change: level, .. } => {
                let alarm = Alarm::Raised { since: *since, change: *level, recovering: None, worse: None };
                Step { alarm, note: Some("still slower".to_owned()), raised: None }
            }
        }
    }

    fn not_slower(&self, seen: &Observation) -> Step {
        match self {
            Alarm::Quiet => self.stays(),
            Alarm::Suspected { .. } => self.cleared("a second session does not find it slower"),
            Alarm::Raised { recovering: Some(session), .. } if *session != seen.session => {
                self.cleared("two sessions no longer find it slower")
            }
            Alarm::Raised { since, change, .. } => {
                let recovering = Some(seen.session.clone());
                let alarm = Alarm::Raised { since: *since, change: *change, recovering, worse: None };
                let note = "no longer slower in one session: a second one decides".to_owned();
                Step { alarm, note: Some(note), raised: None }
            }
        }
    }
}

fn raised(seen: &Observation, change: f64, note: &str) -> Step {
    let alarm = Alarm::Raised { since: seen.at, change, recovering: None, worse: None };
    let note = format!("{note} ({})", change_of_speed(Some(change)));
    Step { alarm, note: Some(note), raised: Some(change) }
}
