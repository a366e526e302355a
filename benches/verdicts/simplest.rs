//! The simplest rule that could do, which the rule in use is compared with: a plain t interval over strictly alternating
//! rounds, and "the same" by a 90% interval.

use mlarun::stats::verdict::{Doubt, Round, Rule, Verdict};
use statrs::distribution::{ContinuousCDF as _, StudentsT};

/// Each round the other way round than the one before.
pub fn alternating(seed: u64) -> impl Iterator<Item = bool> {
    (0..).map(move |round: u64| (round + seed).is_multiple_of(2))
}

/// Critical values of both intervals, a look each.
pub struct Simplest(Vec<(usize, f64, f64)>);

impl Simplest {
    pub fn new() -> Simplest {
        let quantile = |p: f64, rounds: u32| {
            let t = StudentsT::new(0.0, 1.0, f64::from(rounds - 1)).expect("looks are at two rounds or more");
            t.inverse_cdf(p)
        };
        let look = |rounds| (rounds as usize, quantile(1.0 - Rule::ALPHA / 2.0, rounds), quantile(0.95, rounds));
        Simplest(Rule::LOOKS.map(look).to_vec())
    }

    /// The verdict, and after how many rounds.
    pub fn judge(&self, rounds: &[Round]) -> (Verdict, u32) {
        let ln = |ns: Option<f64>| ns.expect("simulated processes have a time").ln();
        let d: Vec<f64> = rounds.iter().map(|round| ln(round.baseline.ns) - ln(round.candidate.ns)).collect();
        let threshold = Rule::LOCKED_THRESHOLD.ln_1p();
        for (looked, wide, narrow) in &self.0 {
            let (count, d) = (*looked as f64, &d[..*looked]);
            let mean = d.iter().sum::<f64>() / count;
            let squares: f64 = d.iter().map(|d| (d - mean) * (d - mean)).sum();
            let error = (squares / (count - 1.0) / count).sqrt();
            let verdict = match mean.abs() >= threshold {
                true if mean.abs() <= wide * error => continue,
                true if mean > 0.0 => Verdict::Faster,
                true => Verdict::Slower,
                false if mean.abs() + narrow * error <= (2.0 * Rule::LOCKED_THRESHOLD).ln_1p() => Verdict::Same,
                false => continue,
            };
            return (verdict, *looked as u32);
        }
        (Verdict::Inconclusive { doubt: Doubt::Spread, smallest: None }, 32)
    }
}
