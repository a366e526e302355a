//! From records to rounds: the sample sets of two subjects that ran in the same round of one session.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::model::Timing;
use crate::model::clocks::{SLOWDOWNS, Telemetry, agrees};
use crate::model::record::{Body, Looks, Record};
use crate::stats;
use crate::stats::verdict::{Process, Round, Taint};

/// The records of one session in which both sides have some, by round: candidate, then baseline.
pub(super) struct Met<'a> {
    pub session: &'a str,
    rounds: Vec<(&'a Record, &'a Record)>,
}

impl<'a> Met<'a> {
    /// Of the newest session with a round of both; sessions later than `horizon` count as older than all others.
    pub fn newest(candidate: &'a [Record], baseline: &'a [Record], horizon: Timestamp) -> Option<Met<'a>> {
        let baselines = by_place(baseline);
        let mut sessions: BTreeMap<&str, Vec<(&Record, &Record)>> = BTreeMap::new();
        for (place, candidate) in by_place(candidate) {
            if let Some(baseline) = baselines.get(&place) {
                sessions.entry(place.0).or_default().push((candidate, baseline));
            }
        }
        let latest = |rounds: &[(&Record, &Record)]| {
            let taken = rounds.iter().map(|(one, other)| one.position.taken_at.max(other.position.taken_at));
            taken.max().map(|taken| (taken <= horizon, taken))
        };
        let newest = sessions.into_iter().max_by_key(|(_, rounds)| latest(rounds))?;
        Some(Met { session: newest.0, rounds: newest.1 })
    }

    /// The looks that the session fixed, where it fixed any.
    pub fn looks(&self) -> Option<&'a Looks> {
        self.rounds.first()?.0.position.looks.as_ref()
    }

    /// Clocks were to be held in every round.
    pub fn are_clocks_held(&self) -> bool {
        let held = |record: &Record| {
            record.environment.telemetry.as_ref().is_some_and(|telemetry| telemetry.clocks.held().is_some())
        };
        self.rounds.iter().all(|(candidate, baseline)| held(candidate) && held(baseline))
    }

    /// In the order in which they ran.
    pub fn rounds(&self, timing: Timing) -> Vec<Round> {
        let when = |record: &Record| (record.position.taken_at, record.position.position);
        let round = |(candidate, baseline): &(&Record, &Record)| Round {
            candidate: process(candidate, timing),
            baseline: process(baseline, timing),
            candidate_first: when(candidate) < when(baseline),
        };
        self.rounds.iter().map(round).collect()
    }
}

/// Sample sets by session and round.
fn by_place(records: &[Record]) -> BTreeMap<(&str, u32), &Record> {
    let sets = records.iter().filter(|record| matches!(record.body, Body::Event(_)));
    sets.map(|record| ((record.position.session.as_str(), record.position.round), record)).collect()
}

/// A sample set as one side of a round: the median of `timing`, and what disturbed it.
pub fn process(record: &Record, timing: Timing) -> Process {
    let Body::Event(set) = &record.body else { return Process { ns: None, sm_mhz: None, taints: Vec::new() } };
    let samples = set.samples.iter().find(|samples| samples.timing == timing);
    let ns = samples.and_then(|samples| stats::median(&samples.ns).ok());
    let telemetry = record.environment.telemetry.as_ref();
    let taints = telemetry.map(|telemetry| taints(telemetry, set.sm_mhz)).unwrap_or_default();
    Process { ns, sm_mhz: set.sm_mhz, taints }
}

/// Physical causes for which a process does not count; `sm_mhz` is the SM clock that it counted itself.
pub fn taints(telemetry: &Telemetry, sm_mhz: Option<f64>) -> Vec<Taint> {
    let held = telemetry.clocks.held();
    let is_off = held.zip(sm_mhz).is_some_and(|(held, mhz)| !agrees(mhz, held.sm_mhz));
    let mut reasons = telemetry.before.throttle.iter().chain(&telemetry.after.throttle);
    let is_slowed = held.is_some() && reasons.any(|reason| SLOWDOWNS.contains(&reason.as_str()));
    let causes = [
        (Taint::ClockOff, is_off),
        (Taint::Throttled, is_slowed),
        (Taint::ForeignProcess, telemetry.company().is_some()),
        (Taint::Xid, telemetry.faults().is_some()),
    ];
    causes.into_iter().filter(|(_, is_so)| *is_so).map(|(taint, _)| taint).collect()
}
