//! Many comparisons in one table: which claims stand among all of them, by Holm's correction. Pure.

use super::{Doubt, Judgement, Verdict};

/// Takes back the claims that do not stand in a table of all these comparisons: their verdict becomes inconclusive.
///
/// With it the chance that the table holds even one false FASTER or SLOWER is at most the rule's error (1 in 1,000),
/// however many rows it has, and so is that of one false SAME. Each comparison's probability is that of its last look
/// times its number of looks; among m of them the k-th smallest stands where it is at most `error / (m - k + 1)` and all
/// smaller ones stand (Holm 1979). FASTER and SLOWER are one family, SAME another, as a comparison's two hypotheses
/// would otherwise be counted as one.
pub fn correct(judgements: &mut [Judgement]) {
    let differences = standing(judgements, Judgement::p_difference);
    let sames = standing(judgements, Judgement::p_same);
    let count = judgements.len() as f64;
    for (index, judgement) in judgements.iter_mut().enumerate() {
        let stands = match judgement.verdict {
            Verdict::Faster | Verdict::Slower => differences[index],
            Verdict::Same => sames[index],
            Verdict::Inconclusive { .. } | Verdict::Invalid { .. } => continue,
        };
        if !stands {
            let rule = &judgement.rule;
            let smallest = judgement.effect.map(|effect| effect.smallest(rule.alpha / count, rule.threshold));
            judgement.verdict = Verdict::Inconclusive { doubt: Doubt::Table, smallest };
        }
    }
}

/// Which hypotheses Holm's procedure refutes; `p` already covers all looks.
fn standing(judgements: &[Judgement], p: fn(&Judgement) -> f64) -> Vec<bool> {
    let mut ranked: Vec<(usize, f64)> = judgements.iter().map(p).enumerate().collect();
    ranked.sort_by(|one, other| one.1.total_cmp(&other.1));
    let mut stands = vec![false; ranked.len()];
    let count = ranked.len();
    for (rank, (index, p)) in ranked.into_iter().enumerate() {
        if p > judgements[index].rule.error() / (count - rank) as f64 {
            break;
        }
        stands[index] = true;
    }
    stands
}
