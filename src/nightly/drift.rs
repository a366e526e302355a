//! Slow drift: shifts of the series of changes against the pinned build, which single verdicts are too coarse to see.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::state::Track;
use crate::report::numbers::change_of_speed;
use crate::stats::{DriftRule, shifts};

/// How the level of a subject's series stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Drift {
    Quiet,
    /// The series fell, as of one session.
    Suspected {
        session: String,
    },
    /// It has fallen still after a second session. `level` is the change of speed against the pinned build there.
    Raised {
        since: Timestamp,
        level: f64,
    },
}

/// What a session did to a drift.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    pub drift: Drift,
    pub note: Option<String>,
    /// Its alarm, raised now: the change of the level.
    pub raised: Option<f64>,
}

/// A series that has fallen, and has not risen since.
struct Fallen {
    /// When the first session at the lower level ended.
    since: Timestamp,
    change: f64,
    level: f64,
}

/// The drift of `track` after its newest observation.
pub(super) fn after(track: &Track, rule: &DriftRule) -> Step {
    let stays = || Step { drift: track.drift.clone(), note: None, raised: None };
    let Some(newest) = track.last().filter(|newest| newest.outcome.change().is_some()) else { return stays() };
    let found = fallen(track, rule);
    match (&track.drift, found) {
        (Drift::Quiet, None) => stays(),
        (Drift::Quiet, Some(fallen)) => {
            let note = format!(
                "its level has fallen since {} ({}): a second session decides",
                day(fallen.since),
                text(&fallen)
            );
            Step { drift: Drift::Suspected { session: newest.session.clone() }, note: Some(note), raised: None }
        }
        (Drift::Suspected { .. }, None) => {
            let note = Some("its level has not fallen after all".to_owned());
            Step { drift: Drift::Quiet, note, raised: None }
        }
        (Drift::Suspected { session }, Some(_)) if *session == newest.session => stays(),
        (Drift::Suspected { .. }, Some(fallen)) => raised(newest.at, &fallen),
        (Drift::Raised { .. }, None) => Step {
            drift: Drift::Quiet,
            note: Some("its level has risen again: the alarm is over".to_owned()),
            raised: None,
        },
        (Drift::Raised { level, .. }, Some(fallen)) if (1.0 + fallen.level) / (1.0 + level) - 1.0 <= -rule.change => {
            raised(newest.at, &fallen)
        }
        (Drift::Raised { .. }, Some(_)) => stays(),
    }
}

fn raised(at: Timestamp, fallen: &Fallen) -> Step {
    let note = format!("alarm: its level has fallen since {} ({})", day(fallen.since), text(fallen));
    Step { drift: Drift::Raised { since: at, level: fallen.level }, note: Some(note), raised: Some(fallen.change) }
}

fn text(fallen: &Fallen) -> String {
    change_of_speed(Some(fallen.change))
}

fn day(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d").to_string()
}

/// The last shift of the series, where it is one to a lower speed.
fn fallen(track: &Track, rule: &DriftRule) -> Option<Fallen> {
    let seen: Vec<(Timestamp, f64)> =
        track.observations.iter().filter_map(|seen| Some((seen.at, 1.0 + seen.outcome.change()?))).collect();
    let ratios: Vec<f64> = seen.iter().map(|(_, ratio)| *ratio).collect();
    let last = *shifts(&ratios, rule).ok()?.last()?;
    (last.change() < 0.0).then(|| Fallen { since: seen[last.at].0, change: last.change(), level: last.after - 1.0 })
}
