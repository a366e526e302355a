//! Two subjects' records side by side: which of their sample sets ran together, what verdict these give, and whether both are
//! the same code. Pure.
//!
//! A verdict is stored nowhere by itself. It follows from the sample sets of one session, which name their round, their place
//! in it, and the looks and level that were fixed before the first of them ([`Looks`]): whoever reads the records again comes to
//! the same words and digits.

mod identity;
mod rounds;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde::Serialize;

use crate::model::Timing;
use crate::model::record::{Looks, Record};
use crate::stats::verdict::{Clocks, Judgement, Rule, VerdictError, correct, judge};

pub use identity::{is_same_code, launches_alike};
pub use rounds::{process, taints};

use rounds::Met;

/// What is known of a candidate beside its baseline.
#[derive(Debug, Clone, PartialEq)]
pub enum Standing {
    /// Both are the same machine code, launched alike on the same inputs: nothing is to be measured.
    SameCode,
    /// They ran in turn, in one session.
    Judged(Box<Judged>),
    /// They have no verdict.
    Unjudged(Unjudged),
}

impl Standing {
    /// The judgement, where there is one.
    pub fn judged(&self) -> Option<&Judged> {
        match self {
            Standing::Judged(judged) => Some(judged),
            Standing::SameCode | Standing::Unjudged(_) => None,
        }
    }
}

/// Why two sides have a ratio and no verdict, as a word for programs and a text for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unjudged {
    /// No round of one session holds both.
    OtherSession,
    /// The same, and the baseline is the newer of the two.
    NewerBaseline,
    /// They ran together before looks and level were fixed beforehand.
    NotPlanned,
    /// Verdicts are made of end-to-end times in event mode.
    OtherMode,
    /// The baseline is a number in a file.
    File,
    /// There is nothing to compare with.
    NoBaseline,
    /// One of the two failed.
    Failed,
    /// The records' times cannot be judged by the rule that they name.
    Rule,
}

impl std::fmt::Display for Unjudged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Unjudged::OtherSession => "the two were measured in different sessions",
            Unjudged::NewerBaseline => "the two were measured in different sessions, the baseline after the candidate",
            Unjudged::NotPlanned => "they were measured by a version of mlarun that fixed no looks beforehand",
            Unjudged::OtherMode => "verdicts are made in event mode",
            Unjudged::NoBaseline => "there is no baseline",
            Unjudged::File => "the baseline comes from a file",
            Unjudged::Failed => "one of the two failed",
            Unjudged::Rule => "the records name a rule that is none",
        })
    }
}

/// A judgement with where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// Session in which the rounds ran.
    pub session: String,
    /// What was timed.
    pub timing: Timing,
    #[serde(flatten)]
    pub judgement: Judgement,
}

/// Compares event records of a candidate with those of its baseline: the newest session in which both ran together is judged.
/// A session later than `horizon` stands behind all others, as its host's clock was wrong.
pub fn compare(candidate: &[Record], baseline: &[Record], timing: Timing, horizon: Timestamp) -> Standing {
    let newest = |records: &[Record]| records.iter().max_by_key(|record| record.position.taken_at).cloned();
    if let Some((candidate, baseline)) = newest(candidate).zip(newest(baseline))
        && (candidate.key == baseline.key || is_same_code(&candidate, &baseline))
    {
        return Standing::SameCode;
    }
    let Some(met) = Met::newest(candidate, baseline, horizon) else {
        let latest = |records: &[Record]| records.iter().map(|record| record.position.taken_at).max();
        let is_newer = latest(baseline) > latest(candidate);
        return Standing::Unjudged(if is_newer { Unjudged::NewerBaseline } else { Unjudged::OtherSession });
    };
    let Some(looks) = met.looks() else { return Standing::Unjudged(Unjudged::NotPlanned) };
    let clocks = if met.are_clocks_held() { Clocks::Locked } else { Clocks::Unlocked };
    match judge(&met.rounds(timing), &rule(looks, clocks)) {
        Ok(judgement) => Standing::Judged(Box::new(Judged { session: met.session.to_owned(), timing, judgement })),
        Err(VerdictError::NoOverlap) => Standing::Unjudged(Unjudged::OtherSession),
        Err(VerdictError::Rule(_)) => Standing::Unjudged(Unjudged::Rule),
    }
}

/// The rule that a session fixed, under the clocks that it ran at.
pub fn rule(looks: &Looks, clocks: Clocks) -> Rule {
    Rule {
        looks: looks.after.clone(),
        alpha: looks.alpha,
        comparisons: looks.comparisons,
        ..Rule::new(clocks, 1).with_threshold(looks.threshold)
    }
}

/// What a session is to store of `rule`.
pub fn looks(rule: &Rule) -> Looks {
    let Rule { looks, alpha, comparisons, threshold, .. } = rule.clone();
    Looks { after: looks, alpha, comparisons, threshold }
}

/// Takes back the claims that do not stand in a table of all these standings; see [`correct`].
pub fn correct_table<'a>(standings: impl IntoIterator<Item = &'a mut Standing>) {
    let mut judged: Vec<&mut Judgement> = Vec::new();
    for standing in standings {
        if let Standing::Judged(one) = standing {
            judged.push(&mut one.judgement);
        }
    }
    let mut judgements: Vec<Judgement> = judged.iter().map(|judgement| (**judgement).clone()).collect();
    correct(&mut judgements);
    for (judgement, corrected) in judged.into_iter().zip(judgements) {
        *judgement = corrected;
    }
}
