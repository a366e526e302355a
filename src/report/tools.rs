//! Durations of one subject by the tools that told them, side by side and never mixed: which tool, of what, at which clocks, and
//! whether it differs from the events by more than can be let pass. Pure.

use serde::Serialize;

use super::analysis::Analysis;
use super::counters::{clocks, megahertz, tool};
use super::numbers::{ABSENT, cell, counted, fixed, microseconds};
use crate::model::Mode;
use crate::model::record::Body;

/// A profiled time differs from that of events where it lies further away than the larger of this part of it …
const RELATIVE: f64 = 0.01;
/// … and this many nanoseconds.
const ABSOLUTE_NS: f64 = 2000.0;

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ToolRow {
    pub kernel: String,
    pub version: String,
    pub shape: String,
    pub tool: String,
    /// What the duration is the duration of.
    pub of: String,
    pub duration_us: String,
    pub clock_mhz: String,
    /// From the events.
    pub difference: String,
    pub flag: &'static str,
}

/// The rows of every subject that events and at least one profiler measured, in the order of the runs.
pub(super) fn all(analyses: &[Option<Analysis<'_>>]) -> Vec<ToolRow> {
    let events = analyses.iter().flatten().filter(|analysis| analysis.run.mode == Mode::Event);
    events.flat_map(|event| of_subject(analyses, event)).collect()
}

/// The rows of the subject of `analysis`; none where there is nothing to set side by side.
pub(super) fn beside(analyses: &[Option<Analysis<'_>>], analysis: &Analysis<'_>) -> Vec<ToolRow> {
    let event = analyses.iter().flatten().find(|other| other.run.mode == Mode::Event && is_same(other, analysis));
    event.map_or(Vec::new(), |event| of_subject(analyses, event))
}

fn of_subject(analyses: &[Option<Analysis<'_>>], event: &Analysis<'_>) -> Vec<ToolRow> {
    let others = || analyses.iter().flatten().filter(|other| other.run.mode != Mode::Event && is_same(other, event));
    if !others().any(is_profiled) {
        return Vec::new();
    }
    std::iter::once(event).chain(others()).map(|analysis| row(analysis, event)).collect()
}

/// One kernel in one version at one shape, on one device.
fn is_same(one: &Analysis<'_>, other: &Analysis<'_>) -> bool {
    let device = |analysis: &Analysis<'_>| analysis.newest().environment.device.id.clone();
    one.run.id == other.run.id && one.run.shape == other.run.shape && device(one) == device(other)
}

fn is_profiled(analysis: &Analysis<'_>) -> bool {
    analysis.nsight().is_some() || analysis.traced.is_some()
}

fn row(analysis: &Analysis<'_>, event: &Analysis<'_>) -> ToolRow {
    let run = analysis.run;
    let is_event = run.mode == Mode::Event;
    let (before, now) = (event.whole.ns, analysis.whole.ns);
    ToolRow {
        kernel: cell(&format!("{} ({})", run.id.kernel, run.id.language)),
        version: run.id.version.to_string(),
        shape: cell(&run.label.to_string()),
        tool: told_by(analysis),
        of: match run.mode {
            Mode::Event => "end to end, cold".to_owned(),
            Mode::Annotation | Mode::Ncu => {
                format!("sum of {}, one at a time", counted(analysis.stages.len(), "stage"))
            }
            Mode::Nsys => "span, traced".to_owned(),
        },
        duration_us: microseconds(Some(analysis.whole.ns)),
        clock_mhz: clock(analysis),
        difference: if is_event { ABSENT.to_owned() } else { difference(before, now) },
        flag: match is_beyond(before, now) {
            _ if is_event => ABSENT,
            true => "**beyond**",
            false => "within",
        },
    }
}

/// Who told the duration.
pub(super) fn told_by(analysis: &Analysis<'_>) -> String {
    match (analysis.nsight(), &analysis.traced) {
        (Some((_, run)), _) => format!("{} ({})", tool(run), analysis.run.mode),
        (None, Some(traced)) => cell(&traced.run.tracer.to_string()),
        (None, None) => format!("mlarun ({})", analysis.run.mode),
    }
}

fn clock(analysis: &Analysis<'_>) -> String {
    if analysis.run.mode == Mode::Event {
        let seen = analysis.records.iter().filter_map(|record| match &record.body {
            Body::Event(set) => set.sm_mhz,
            _ => None,
        });
        return megahertz(seen);
    }
    clocks(&analysis.stages)
}

/// How much longer a profiled time is than that of events.
fn difference(event_ns: f64, profiled_ns: f64) -> String {
    let percent = (profiled_ns / event_ns - 1.0) * 100.0;
    if !percent.is_finite() {
        return ABSENT.to_owned();
    }
    let signed = |value: f64, decimals| match fixed(Some(value), decimals) {
        text if value > 0.0 => format!("+{text}"),
        text => text,
    };
    format!("{} us ({}%)", signed((profiled_ns - event_ns) / 1e3, 2), signed(percent, 1))
}

/// Further apart than the larger of 1% of the events' time and 2 us.
fn is_beyond(event_ns: f64, profiled_ns: f64) -> bool {
    (profiled_ns - event_ns).abs() > (event_ns * RELATIVE).max(ABSOLUTE_NS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_hundredth_or_two_microseconds_are_let_pass() {
        // Long times by the hundredth, short ones by the two microseconds.
        assert!(!is_beyond(1e6, 1.0099e6) && is_beyond(1e6, 1.0101e6) && is_beyond(1e6, 0.98e6));
        assert!(!is_beyond(10e3, 11.9e3) && is_beyond(10e3, 12.1e3));
        assert_eq!(difference(10e3, 12.5e3), "+2.50 us (+25.0%)");
        assert_eq!(difference(10e3, 9e3), "-1.00 us (-10.0%)");
        assert_eq!(difference(10e3, 10e3), "0.00 us (0.0%)");
    }

    proptest! {
        #[test]
        fn what_is_beyond_is_so_whichever_side_it_lies_on(event in 1.0_f64..1e9, by in 0.0_f64..1e6) {
            let most = (event / 100.0).max(2000.0);
            prop_assume!((by - most).abs() > 1e-3);
            prop_assert_eq!(is_beyond(event, event + by), by > most);
            prop_assert_eq!(is_beyond(event, event - by), by > most);
        }
    }
}
