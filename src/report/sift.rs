//! Measurements under a lock of clocks that slipped, or beside other processes: left out for that cause and never for their
//! value. Too many of them, and the run is invalid. Pure.

use std::collections::BTreeMap;

use super::numbers::counted;
use crate::model::record::Record;

/// What is left of a run's records.
#[derive(Debug, Clone, PartialEq)]
pub enum Sifted {
    /// Those that count, and what is said about the others, if there are any.
    Valid { records: Vec<Record>, left_out: Option<String> },
    /// Too many do not count.
    Invalid { reason: String },
}

/// A run is invalid when more than one in this many does not count.
const ONE_IN: usize = 4;

/// Sifts the records of one run.
pub fn sift(records: Vec<Record>) -> Sifted {
    let all = records.len();
    let (spoilt, kept): (Vec<Record>, Vec<Record>) = records.into_iter().partition(is_spoilt);
    if spoilt.is_empty() {
        return Sifted::Valid { records: kept, left_out: None };
    }
    let causes = causes(&spoilt);
    let count = format!("{} of {}", spoilt.len(), counted(all, "measurement"));
    if spoilt.len() * ONE_IN > all {
        let reason = format!("INVALID: {count} slipped: {causes}; mend the cause, and measure again with --remeasure");
        return Sifted::Invalid { reason };
    }
    Sifted::Valid { records: kept, left_out: Some(format!("{count} left out: {causes}")) }
}

/// Clocks were to be held, and something was not as it was to be.
fn is_spoilt(record: &Record) -> bool {
    let seen = record.environment.telemetry.as_ref();
    seen.is_some_and(|seen| seen.clocks.held().is_some() && !seen.taints.is_empty())
}

/// What happened to `records`, each with how often.
pub(super) fn causes<'a>(records: impl IntoIterator<Item = &'a Record>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for seen in records.into_iter().filter_map(|record| record.environment.telemetry.as_ref()) {
        seen.taints.iter().for_each(|taint| *counts.entry(taint).or_default() += 1);
    }
    let told = counts.iter().map(|(taint, count)| format!("{taint} ({count})"));
    told.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Mode;
    use crate::model::clocks::{ClockState, Frequencies, Telemetry};
    use crate::report::fixtures;

    fn records(clocks: ClockState, taints: &[&str]) -> Vec<Record> {
        let clean = fixtures::event_record(&fixtures::run("k", 1, 16, Mode::Event), 0, 5.0);
        let taint = |taint: &&str| {
            let taints = if taint.is_empty() { Vec::new() } else { vec![(*taint).to_owned()] };
            let mut record = clean.clone();
            record.environment.telemetry = Some(Telemetry { clocks, taints, ..Telemetry::default() });
            record
        };
        taints.iter().map(taint).collect()
    }

    const LOCKED: ClockState = ClockState::Locked(Frequencies { sm_mhz: 1500, mem_mhz: None });

    #[test]
    fn a_few_are_left_out_by_their_cause() {
        let sifted = sift(records(LOCKED, &["", "", "slow", ""]));
        let Sifted::Valid { records, left_out } = sifted else { panic!("{sifted:?}") };
        assert_eq!((records.len(), left_out.as_deref()), (3, Some("1 of 4 measurements left out: slow (1)")));
    }

    #[test]
    fn too_many_make_a_run_invalid() {
        let sifted = sift(records(LOCKED, &["", "slow", "hot", "slow", "", "", ""]));
        let Sifted::Invalid { reason } = &sifted else { panic!("{sifted:?}") };
        assert!(reason.starts_with("INVALID: 3 of 7 measurements slipped: hot (1), slow (2);"), "{reason}");
    }

    #[test]
    fn nothing_is_left_out_of_free_clocks() {
        let all = records(ClockState::Observed, &["shared", "shared"]);
        assert_eq!(sift(all.clone()), Sifted::Valid { records: all.clone(), left_out: None });
        assert_eq!(causes(&all), "shared (2)");
    }
}
