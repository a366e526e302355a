//! What is measured next, and why: what an end interrupted, what is to be confirmed, what is stale, ambiguous, old.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::alarm::Alarm;
use super::state::{Circumstances, Observation, Situation, State, Subject, Tonight, Track};
use crate::model::Key;
use crate::report::numbers::change_of_speed;

/// Sessions in a row that may decide nothing before a subject waits for its turn like any other.
const MOST_AMBIGUOUS: usize = 2;

/// A subject that could be measured tonight.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    pub subject: Subject,
    /// Key of what would be measured against the pinned build.
    pub candidate: Key,
    /// Rough time of a session, in seconds, where no night has measured one.
    pub estimate_s: f64,
}

/// Why a subject is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Why {
    /// A run ended while it measured this.
    Interrupted {
        by_reboot: bool,
    },
    /// One session said something that a second one has to confirm.
    Unconfirmed {
        change: f64,
    },
    /// It was never measured against this build on any device.
    Never,
    /// It was measured against another pinned build.
    NewPin,
    NewDevice {
        before: String,
    },
    Driver {
        from: String,
        to: String,
    },
    Compiler {
        from: String,
        to: String,
    },
    Clocks {
        from: String,
        to: String,
    },
    /// Its code, its tiling or its protocol is another one.
    Changed,
    /// The last session decided nothing.
    Ambiguous {
        doubt: String,
    },
    /// Nothing but time has passed.
    Old {
        last: Timestamp,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Interrupted { by_reboot: true } => f.write_str("the host was rebooted while it was measured"),
            Why::Interrupted { by_reboot: false } => f.write_str("a run ended while it measured it"),
            Why::Unconfirmed { change } => {
                write!(f, "a second session decides ({} in the first)", change_of_speed(Some(*change)))
            }
            Why::Never => f.write_str("never measured"),
            Why::NewPin => f.write_str("another build is pinned"),
            Why::NewDevice { before } => write!(f, "never measured on this device (before on {before})"),
            Why::Driver { from, to } => write!(f, "driver {from} → {to}"),
            Why::Compiler { from, to } => write!(f, "compiler {from} → {to}"),
            Why::Clocks { from, to } => write!(f, "clocks {from} → {to}"),
            Why::Changed => f.write_str("changed since it was measured"),
            Why::Ambiguous { doubt } => write!(f, "undecided last time: {doubt}"),
            Why::Old { last } => write!(f, "last measured {}", last.strftime("%Y-%m-%d %H:%MZ")),
        }
    }
}

/// Groups that go before one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    Interrupted,
    /// Suspected in an earlier night.
    Confirm,
    Stale,
    /// Suspected in this very night: as late in it as what follows allows.
    ConfirmTonight,
    Ambiguous,
    Old,
}

/// A subject with its place in the queue.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Index of the offer.
    pub offer: usize,
    pub rank: Rank,
    pub why: Why,
    /// How long it will take, roughly.
    pub estimate_s: f64,
}

/// What is left to measure tonight, in its order: by rank, the longest unmeasured first.
pub fn queue(offers: &[Offer], state: &State, situation: &Situation, tonight: &Tonight, now: Timestamp) -> Vec<Choice> {
    let mut choices: Vec<(Choice, Option<Timestamp>)> = offers
        .iter()
        .enumerate()
        .filter_map(|(index, offer)| {
            let track = state.track(&offer.subject, situation);
            let (rank, why) = place(offer, track, state, situation, tonight)?;
            let last = track.and_then(Track::last);
            let estimate_s = last.map_or(offer.estimate_s, |last| last.took_s.max(1.0));
            // One that lies in the future was noted while the host's clock was wrong: it may be of any age.
            let at = last.map(|last| last.at).filter(|at| *at <= now);
            Some((Choice { offer: index, rank, why, estimate_s }, at))
        })
        .collect();
    choices.sort_by(|(one, one_last), (other, other_last)| {
        let by = |choice: &Choice, last: &Option<Timestamp>| (choice.rank, *last, choice.offer);
        by(one, one_last).cmp(&by(other, other_last))
    });
    choices.into_iter().map(|(choice, _)| choice).collect()
}

/// Rank and reason; `None` where it has had its turn tonight.
fn place(
    offer: &Offer,
    track: Option<&Track>,
    state: &State,
    situation: &Situation,
    tonight: &Tonight,
) -> Option<(Rank, Why)> {
    if tonight.measuring.as_ref() == Some(&offer.subject) {
        return Some((Rank::Interrupted, Why::Interrupted { by_reboot: tonight.boot != situation.boot }));
    }
    let Some((track, last)) = track.and_then(|track| Some((track, track.last()?))) else {
        return Some((Rank::Stale, unknown(offer, state, situation)));
    };
    let sessions = track.observations.iter().rev().take_while(|seen| seen.night == tonight.id).count();
    if let Some(why) = stale(offer, last, &situation.circumstances) {
        // Even tonight: a driver or a source may change between a reboot and what follows it.
        return Some((Rank::Stale, why));
    }
    if track.alarm.is_open() && sessions < 2 {
        let change = last.outcome.change().unwrap_or(suspected(&track.alarm));
        let rank = if sessions == 0 { Rank::Confirm } else { Rank::ConfirmTonight };
        return Some((rank, Why::Unconfirmed { change }));
    }
    if sessions > 0 {
        return None;
    }
    let doubts = track.observations.iter().rev().take_while(|seen| seen.outcome.doubt().is_some()).count();
    if let Some(doubt) = last.outcome.doubt().filter(|_| doubts <= MOST_AMBIGUOUS) {
        return Some((Rank::Ambiguous, Why::Ambiguous { doubt }));
    }
    Some((Rank::Old, Why::Old { last: last.at }))
}

fn suspected(alarm: &Alarm) -> f64 {
    match alarm {
        Alarm::Suspected { change, .. } | Alarm::Raised { change, .. } => *change,
        Alarm::Quiet => 0.0,
    }
}

/// Why nothing is known of a subject here.
fn unknown(offer: &Offer, state: &State, situation: &Situation) -> Why {
    let others = || state.tracks.iter().filter(|track| track.subject == offer.subject && track.last().is_some());
    let newest = others().max_by_key(|track| track.last().map(|last| last.at));
    match newest {
        None => Why::Never,
        Some(_) if others().any(|track| track.device == situation.device) => Why::NewPin,
        Some(track) => Why::NewDevice { before: track.device.clone() },
    }
}

/// What about the last observation no longer holds.
fn stale(offer: &Offer, last: &Observation, now: &Circumstances) -> Option<Why> {
    let then = &last.circumstances;
    let told = |driver: &Option<String>| driver.clone().unwrap_or_else(|| "unknown".to_owned());
    match () {
        () if then.driver != now.driver => Some(Why::Driver { from: told(&then.driver), to: told(&now.driver) }),
        () if then.compiler != now.compiler => {
            Some(Why::Compiler { from: then.compiler.clone(), to: now.compiler.clone() })
        }
        () if then.clocks != now.clocks => Some(Why::Clocks { from: then.clocks.clone(), to: now.clocks.clone() }),
        () if last.candidate != offer.candidate => Some(Why::Changed),
        () => None,
    }
}
