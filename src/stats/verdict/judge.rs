//! From rounds to a verdict: the looks in their order, and what each of them can claim. Pure.

use super::effect::{Effect, Pair};
use super::modes::Modes;
use super::rounds::{Round, Taint};
use super::rule::{Clocks, Rule};
use super::{Doubt, Dropped, Judgement, Verdict, VerdictError};

/// Largest share of the rounds that may be dropped.
const MOST_DROPPED: f64 = 0.25;

/// Judges the rounds of one comparison, in the order in which they ran, all of one session and one device.
///
/// The looks are taken one after another, each at the rounds that had been run then, until one of them makes a claim that
/// would stand in the whole table; what ran after it does not count. So the judgement of the rounds so far says whether to
/// go on ([`Judgement::next_look`]), and that of a stored session is the one that it ended with.
///
/// # Errors
/// No round at all: the two sides were never measured together. Or a rule that is none.
pub fn judge(rounds: &[Round], rule: &Rule) -> Result<Judgement, VerdictError> {
    rule.check()?;
    if rounds.is_empty() {
        return Err(VerdictError::NoOverlap);
    }
    let mut counting: Vec<&Round> = Vec::new();
    let mut looked = None;
    for (index, round) in rounds.iter().enumerate() {
        if !round.taints().is_empty() {
            continue;
        }
        counting.push(round);
        let count = counting.len() as u32;
        if rule.looks.contains(&count) && !too_many_dropped(index + 1, counting.len()) {
            let look = Look::at(&counting, rule);
            let is_final = look.is_firm(rule) || rule.looks.last() == Some(&count);
            if is_final {
                return Ok(look.judgement(&rounds[..=index], None, rule));
            }
            looked = Some((look, index));
        }
    }
    Ok(unfinished(rounds, &counting, looked, rule))
}

/// As it stands between two looks.
fn unfinished(rounds: &[Round], counting: &[&Round], looked: Option<(Look, usize)>, rule: &Rule) -> Judgement {
    let last = rule.looks.last().copied().unwrap_or_default() as usize;
    let dropped = rounds.len() - counting.len();
    // Even if every round from now on counted, too many would have been dropped at the last look.
    let is_hopeless = too_many_dropped(last + dropped, last) || counting.len() >= last;
    let next_look = rule.looks.iter().copied().find(|look| *look as usize > counting.len()).filter(|_| !is_hopeless);
    if is_hopeless || too_many_dropped(rounds.len(), counting.len()) {
        let look = Look::at(counting, rule);
        let judgement = look.judgement(rounds, next_look, rule);
        return Judgement { verdict: Verdict::Invalid { cause: most_frequent(&judgement.dropped) }, ..judgement };
    }
    match looked {
        Some((look, index)) => look.judgement(&rounds[..=index], next_look, rule),
        None => {
            let too_few = Verdict::Inconclusive { doubt: Doubt::TooFewRounds, smallest: None };
            Judgement { verdict: too_few, ..Look::at(counting, rule).judgement(rounds, next_look, rule) }
        }
    }
}

fn too_many_dropped(rounds: usize, counting: usize) -> bool {
    (rounds - counting) as f64 > MOST_DROPPED * rounds as f64
}

fn most_frequent(dropped: &[Dropped]) -> Taint {
    let most = dropped.iter().max_by_key(|dropped| (dropped.rounds, std::cmp::Reverse(dropped.cause)));
    most.map_or(Taint::NoTime, |dropped| dropped.cause)
}

/// What some rounds show.
struct Look {
    rounds: u32,
    effect: Option<Effect>,
    cycles: Option<Effect>,
    candidate_modes: Option<Modes>,
    baseline_modes: Option<Modes>,
    /// The sides' modes are of the host: both sides of nearly every round met the same, so that they cancel.
    modes_are_shared: bool,
}

impl Look {
    fn at(counting: &[&Round], rule: &Rule) -> Look {
        let times: Vec<Pair> = counting.iter().filter_map(|round| Pair::times(round)).collect();
        let cycles: Option<Vec<Pair>> = match rule.clocks {
            Clocks::Locked => None,
            Clocks::Unlocked => counting.iter().map(|round| Pair::cycles(round)).collect(),
        };
        let modes =
            |side: fn(&Pair) -> f64| Modes::find(&times.iter().map(side).collect::<Vec<_>>(), rule.threshold.ln_1p());
        let (candidate_modes, baseline_modes) = (modes(|pair| pair.candidate), modes(|pair| pair.baseline));
        Look {
            rounds: counting.len() as u32,
            effect: Effect::of(&times),
            cycles: cycles.and_then(|cycles| Effect::of(&cycles)),
            candidate_modes,
            baseline_modes,
            modes_are_shared: candidate_modes.zip(baseline_modes).is_some_and(|modes| are_shared(modes, &times)),
        }
    }

    /// Whether it makes a claim that would stand whatever else the table holds.
    fn is_firm(&self, rule: &Rule) -> bool {
        self.verdict(rule, rule.alpha_in_table()).is_claim()
    }

    /// What can be claimed at this level.
    fn verdict(&self, rule: &Rule, alpha: f64) -> Verdict {
        let Some(effect) = self.effect else {
            return Verdict::Inconclusive { doubt: Doubt::OneOrder, smallest: None };
        };
        let inconclusive =
            |doubt| Verdict::Inconclusive { doubt, smallest: Some(effect.smallest(alpha, rule.threshold)) };
        let differs = |effect: &Effect| effect.p_difference() <= alpha;
        let is_same = |effect: &Effect| effect.p_same(rule.margin) <= alpha;
        let spread_or_step = |holds: &dyn Fn(&Effect) -> bool| match holds(&effect.without_steps()) {
            true => Doubt::Step,
            false => Doubt::Spread,
        };
        let has_modes = !self.modes_are_shared && (self.candidate_modes.is_some() || self.baseline_modes.is_some());
        match (effect.is_called(rule), self.cycles) {
            (true, _) if has_modes && !self.modes_are_apart(&effect, rule) => inconclusive(Doubt::Modes),
            (true, _) if !differs(&effect) => inconclusive(spread_or_step(&differs)),
            (true, Some(cycles)) if !differs(&cycles) || cycles.ln_speed * effect.ln_speed < 0.0 => {
                inconclusive(Doubt::Clocks)
            }
            (true, _) if effect.ln_speed > 0.0 => Verdict::Faster,
            (true, _) => Verdict::Slower,
            (false, _) if has_modes => inconclusive(Doubt::Modes),
            (false, _) if !is_same(&effect) => inconclusive(spread_or_step(&is_same)),
            (false, Some(cycles)) if !is_same(&cycles) => inconclusive(Doubt::Clocks),
            (false, _) => Verdict::Same,
        }
    }

    /// Whether even the two modes that are closest to one another differ as the effect says.
    fn modes_are_apart(&self, effect: &Effect, rule: &Rule) -> bool {
        let ends = |modes: Option<Modes>, ns: f64| modes.map_or((ns, ns), |modes| (modes.fast_ns, modes.slow_ns));
        let (candidate_fast, candidate_slow) = ends(self.candidate_modes, effect.candidate_ns);
        let (baseline_fast, baseline_slow) = ends(self.baseline_modes, effect.baseline_ns);
        let apart = |slower: f64, faster: f64| slower.ln() - faster.ln() >= rule.threshold.ln_1p();
        match effect.ln_speed > 0.0 {
            true => apart(baseline_fast, candidate_slow),
            false => apart(candidate_fast, baseline_slow),
        }
    }

    /// `rounds` are those that had run then.
    fn judgement(self, rounds: &[Round], next_look: Option<u32>, rule: &Rule) -> Judgement {
        Judgement {
            verdict: self.verdict(rule, rule.alpha),
            effect: self.effect,
            cycles: self.cycles,
            rounds: self.rounds,
            dropped: dropped(rounds),
            candidate_modes: self.candidate_modes,
            baseline_modes: self.baseline_modes,
            next_look,
            rule: rule.clone(),
        }
    }
}

/// Whether both sides are fast, or both slow, in all rounds but an eighth.
fn are_shared((candidate, baseline): (Modes, Modes), times: &[Pair]) -> bool {
    let is_split = |pair: &&Pair| candidate.is_slow(pair.candidate) != baseline.is_slow(pair.baseline);
    times.iter().filter(is_split).count() * 8 <= times.len()
}

/// How many rounds each cause spoilt.
fn dropped(rounds: &[Round]) -> Vec<Dropped> {
    let mut counts = std::collections::BTreeMap::new();
    for taint in rounds.iter().flat_map(Round::taints) {
        *counts.entry(taint).or_insert(0) += 1;
    }
    counts.into_iter().map(|(cause, rounds)| Dropped { cause, rounds }).collect()
}
