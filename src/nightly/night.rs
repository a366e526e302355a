//! One night from its beginning to its end. Every step is kept before the next: a kill at any place costs at most the session
//! that was under way, which is measured again.

use jiff::{SignedDuration, Timestamp};

use super::alarm::Alert;
use super::drift;
use super::order::{Choice, Offer, queue};
use super::state::{Observation, Outcome, Past, Situation, State, Subject, Tonight};
use crate::model::Key;
use crate::report::numbers::counted;
use crate::stats::DriftRule;

/// Between two nights, this much is no night missed.
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// Where nights happen.
pub trait Host {
    type Error;

    fn now(&self) -> Timestamp;

    /// Keeps the state, whole and for good.
    ///
    /// # Errors
    /// It cannot be kept; the night ends.
    fn keep(&mut self, state: &State) -> Result<(), Self::Error>;

    /// Measures this subject against the pinned build, in a session of its own.
    ///
    /// # Errors
    /// Nothing can be measured any more. A subject that fails is an outcome.
    fn measure(&mut self, offer: &Offer) -> Result<Measured, Self::Error>;

    /// The user wants the night to end.
    fn is_interrupted(&self) -> bool;
}

/// What a session gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    pub session: String,
    pub outcome: Outcome,
    /// The smallest change that its verdict counts.
    pub threshold: f64,
    /// Key of what was measured, where the offer did not know it yet: its tiling was tuned first.
    pub candidate: Option<Key>,
}

/// A night that may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun {
    /// When the budget is spent.
    pub until: Timestamp,
    /// It began in an earlier process.
    pub is_resumed: bool,
}

/// Begins a night, or goes on with one that ended early and has budget left.
pub fn begin(state: &mut State, situation: &Situation, budget: SignedDuration, now: Timestamp) -> Begun {
    let changes = state.situation.as_ref().map(|before| changes(before, situation)).unwrap_or_default();
    state.situation = Some(situation.clone());
    if let Some(tonight) = &mut state.tonight {
        let until = tonight.began_at.checked_add(budget).unwrap_or(Timestamp::MAX);
        if tonight.began_at <= now && now < until {
            let how = if tonight.boot == situation.boot { "the run ended early" } else { "the host was rebooted" };
            tonight.notes.push(format!("{how}; this night went on at {}", now.strftime("%H:%MZ")));
            tonight.notes.extend(changes);
            return Begun { until, is_resumed: true };
        }
    }
    let unfinished = state.tonight.take();
    let mut notes: Vec<String> = missed(state, unfinished.as_ref(), now).into_iter().chain(changes).collect();
    let mut measuring = None;
    let mut boot = situation.boot.clone();
    if let Some(night) = unfinished {
        let how = if night.boot == situation.boot { "ended early" } else { "was ended by a reboot" };
        notes.push(format!("the night {} {how}; its budget was spent before it could go on", night.id));
        // Its boot is kept until what it interrupted is measured: that is why it is measured again.
        (measuring, boot) = (night.measuring, night.boot);
        state.remember(Past { id: night.id, began_at: night.began_at });
    }
    let id = now.strftime("%Y%m%dT%H%M%S%.3fZ").to_string();
    state.tonight = Some(Tonight { id, began_at: now, boot, measuring, notes });
    Begun { until: now.checked_add(budget).unwrap_or(Timestamp::MAX), is_resumed: false }
}

/// That nights were missed, if they were.
fn missed(state: &State, unfinished: Option<&Tonight>, now: Timestamp) -> Option<String> {
    let last = unfinished.map(|night| night.began_at).or_else(|| state.past.last().map(|night| night.began_at))?;
    let days = now.duration_since(last).as_secs_f64() / DAY.as_secs_f64();
    // A night that begins a few hours later than the one before is none missed.
    let missed = days.round() as i64 - 1;
    let since = last.strftime("%Y-%m-%d");
    (missed > 0).then(|| format!("{} missed since {since}: what was due then is due now", counted(missed, "night")))
}

/// What is different about the host since the last night.
fn changes(before: &Situation, now: &Situation) -> Vec<String> {
    let told = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let (then, here) = (&before.circumstances, &now.circumstances);
    let all = [
        ("device", before.device.clone(), now.device.clone()),
        ("driver", told(&then.driver), told(&here.driver)),
        ("compiler", then.compiler.clone(), here.compiler.clone()),
        ("clocks", then.clocks.clone(), here.clocks.clone()),
        ("pinned build", pin(before), pin(now)),
    ];
    let changed = all.into_iter().filter(|(_, from, to)| from != to);
    changed.map(|(what, from, to)| format!("{what}: {from} → {to}; what it concerns is measured again")).collect()
}

fn pin(situation: &Situation) -> String {
    format!("{} ({})", situation.pin_name, situation.pin.short())
}

/// Measures what is due, in its order, until the time `until`. A subject that would take longer than what is left waits for
/// another night, and what is behind it goes before it.
///
/// # Errors
/// The host's: the night can go on later from where it stood.
pub fn run<H: Host>(
    host: &mut H,
    offers: &[Offer],
    situation: &Situation,
    until: Timestamp,
    rule: &DriftRule,
    state: &mut State,
) -> Result<(), H::Error> {
    host.keep(state)?;
    while let Some(choice) = next(host.now(), offers, situation, until, state)
        && !host.is_interrupted()
    {
        let offer = &offers[choice.offer];
        let began = host.now();
        if let Some(tonight) = &mut state.tonight {
            tonight.measuring = Some(offer.subject.clone());
            tonight.boot.clone_from(&situation.boot);
        }
        host.keep(state)?;
        let measured = host.measure(offer)?;
        note(state, offer, situation, choice, measured, (began, host.now()), rule);
        host.keep(state)?;
    }
    Ok(())
}

/// The first of the queue that fits into what is left.
fn next(now: Timestamp, offers: &[Offer], situation: &Situation, until: Timestamp, state: &State) -> Option<Choice> {
    let tonight = state.tonight.as_ref()?;
    let left_s = until.duration_since(now).as_secs_f64();
    let choices = queue(offers, state, situation, tonight, now);
    choices.into_iter().find(|choice| choice.estimate_s <= left_s)
}

/// Enters a result: into its track, its alarm and its drift.
fn note(
    state: &mut State,
    offer: &Offer,
    situation: &Situation,
    choice: Choice,
    measured: Measured,
    (began, ended): (Timestamp, Timestamp),
    rule: &DriftRule,
) {
    let Some(tonight) = &mut state.tonight else { return };
    tonight.measuring = None;
    let night = tonight.id.clone();
    let track = state.track_mut(&offer.subject, situation);
    let mut seen = Observation {
        at: ended,
        night,
        session: measured.session,
        why: choice.why,
        candidate: measured.candidate.unwrap_or(offer.candidate),
        circumstances: situation.circumstances.clone(),
        took_s: ended.duration_since(began).as_secs_f64(),
        outcome: measured.outcome,
        notes: Vec::new(),
    };
    let alarm = track.alarm.after(&seen, measured.threshold);
    seen.notes.extend(alarm.note.clone());
    track.alarm = alarm.alarm;
    track.add(seen);
    let fallen = drift::after(track, rule);
    track.drift = fallen.drift;
    if let Some(newest) = track.observations.last_mut() {
        newest.notes.extend(fallen.note.clone());
    }
    // A fall that an alarm has told already is no second alarm.
    let is_told = matches!(track.alarm, super::Alarm::Raised { .. });
    let of_verdict = alarm.raised.zip(alarm.note);
    let of_drift = fallen.raised.zip(fallen.note).filter(|_| !is_told);
    let alert = |subject: &Subject, (change, text)| Alert {
        subject: subject.clone(),
        device: situation.device.clone(),
        raised_at: ended,
        change,
        text,
    };
    let alerts: Vec<Alert> = of_verdict.into_iter().chain(of_drift).map(|told| alert(&offer.subject, told)).collect();
    state.untold.extend(alerts);
}

/// Ends the night: the next call begins another one.
pub fn finish(state: &mut State) {
    if let Some(night) = state.tonight.take() {
        state.remember(Past { id: night.id, began_at: night.began_at });
    }
}
