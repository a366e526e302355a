//! Verdicts in words: what a comparison ended with, its interval, and what is said beside it. Pure.

use super::numbers::{ABSENT, SAME_CODE, change_of_speed, counted, duration, signed_percent};
use crate::pairs::{Judged, Standing};
use crate::stats::verdict::{Judgement, Modes, Verdict};

/// The verdict's word; `same code` where nothing was to be measured, `none` where there is a ratio alone.
pub fn word(standing: &Standing) -> &'static str {
    match standing {
        Standing::SameCode => SAME_CODE,
        Standing::Judged(judged) => judged.judgement.verdict.name(),
        Standing::Unjudged(_) => "none",
    }
}

/// Lowest and highest change of speed, e.g. `+0.9% to +1.5%`.
pub fn interval(judgement: &Judgement) -> String {
    judgement.interval().map_or(ABSENT.to_owned(), |(low, high)| {
        format!("{} to {}", signed_percent(Some(low)), signed_percent(Some(high)))
    })
}

/// The level of the intervals of `judgement`, e.g. `99.98%`.
pub fn level(judgement: &Judgement) -> String {
    let text = format!("{:.4}", (1.0 - judgement.rule.alpha) * 100.0);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Why there is no claim and what would have been seen, or what was seen beside one; empty where there is nothing to add.
pub fn remarks(standing: &Standing) -> Vec<String> {
    match standing {
        Standing::SameCode => {
            vec!["equal machine code, launches and inputs: not measured against one another".to_owned()]
        }
        Standing::Unjudged(why) => vec![format!("no verdict: {why}")],
        Standing::Judged(judged) => remarks_on(&judged.judgement),
    }
}

fn remarks_on(judgement: &Judgement) -> Vec<String> {
    let mut remarks = Vec::new();
    match judgement.verdict {
        Verdict::Inconclusive { doubt, smallest } => {
            remarks.push(doubt.to_string());
            remarks.extend(
                smallest.map(|smallest| {
                    format!("a change of {} would have been found 95 times in 100", magnitude(smallest))
                }),
            );
        }
        Verdict::Invalid { cause } => remarks.push(cause.to_string()),
        Verdict::Faster | Verdict::Slower | Verdict::Same => {}
    }
    for (side, modes) in [("candidate", judgement.candidate_modes), ("baseline", judgement.baseline_modes)] {
        remarks.extend(modes.map(|modes| format!("the {side}'s {}", groups(modes))));
    }
    remarks.extend(
        judgement
            .dropped
            .iter()
            .map(|dropped| format!("{} dropped: {}", counted(dropped.rounds, "round"), dropped.cause)),
    );
    if let Some(difference) = judgement.clock_difference().filter(|difference| difference.abs() >= 0.005) {
        remarks.push(format!("the candidate's clock was {} from the baseline's", signed_percent(Some(difference))));
    }
    remarks
}

fn groups(modes: Modes) -> String {
    format!(
        "processes come in two groups: {} around {}, {} around {}",
        modes.fast,
        duration(modes.fast_ns),
        modes.slow,
        duration(modes.slow_ns)
    )
}

fn magnitude(fraction: f64) -> String {
    signed_percent(Some(fraction.abs())).trim_start_matches('+').to_owned()
}

/// All of it in one line, e.g. `FASTER, 1.2% faster (+0.9% to +1.5%)`.
pub fn told(judgement: &Judgement) -> String {
    let mut text = judgement.verdict.name().to_owned();
    if let Some(effect) = judgement.effect {
        text.push_str(&format!(", {} ({})", change_of_speed(Some(effect.change())), interval(judgement)));
    }
    let remarks = remarks_on(judgement).join("; ");
    if !remarks.is_empty() {
        text.push_str(&format!("; {remarks}"));
    }
    text
}

/// The rounds that a judgement was made from, e.g. `12 rounds of session S`.
pub fn origin(judged: &Judged) -> String {
    format!("{} of {}, session {}", counted(judged.judgement.rounds, "round"), judged.timing, judged.session)
}
