//! How the stages of a pipeline lie in time: overlap, span, busy time, gaps.

use serde::{Deserialize, Serialize};

use super::intervals::Intervals;
use crate::model::timeline::Activity;
use crate::stats::median;

/// One run of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Analysis {
    /// How long each stage ran.
    pub stage_ns: Vec<u64>,
    /// How long the first of two stages ran while the second did. Symmetric; on the diagonal stands the stage's own time.
    pub overlap_ns: Vec<Vec<u64>>,
    /// From the first start to the last end.
    pub span_ns: u64,
    /// While at least one stage ran.
    pub busy_ns: u64,
    /// Of the stages' times.
    pub sum_ns: u64,
    /// Times within the span at which no stage ran.
    pub gaps: Vec<Gap>,
}

/// A time at which no stage ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    pub start_ns: u64,
    pub end_ns: u64,
    /// Stage that ended before it, by its position.
    pub after: usize,
    /// Stage that started behind it.
    pub before: usize,
}

impl Gap {
    /// How long it was.
    pub fn duration_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }
}

impl Analysis {
    /// Of stages that each consist of these activities; `None` if nothing ran.
    pub fn of(stages: &[Vec<&Activity>]) -> Option<Analysis> {
        let sets: Vec<Intervals> =
            stages.iter().map(|stage| Intervals::union(stage.iter().map(|ran| (ran.start_ns, ran.end_ns)))).collect();
        let all = || stages.iter().enumerate().flat_map(|(index, stage)| stage.iter().map(move |ran| (index, *ran)));
        let union = Intervals::union(all().map(|(_, ran)| (ran.start_ns, ran.end_ns)));
        let (start_ns, end_ns) = union.span()?;
        let gap = |(start_ns, end_ns)| {
            let after = all().find(|(_, ran)| ran.end_ns == start_ns)?.0;
            let before = all().find(|(_, ran)| ran.start_ns == end_ns)?.0;
            Some(Gap { start_ns, end_ns, after, before })
        };
        let stage_ns: Vec<u64> = sets.iter().map(Intervals::total_ns).collect();
        Some(Analysis {
            overlap_ns: sets.iter().map(|one| sets.iter().map(|other| one.beside_ns(other)).collect()).collect(),
            span_ns: end_ns - start_ns,
            busy_ns: union.total_ns(),
            sum_ns: stage_ns.iter().sum(),
            stage_ns,
            gaps: union.gaps().filter_map(gap).collect(),
        })
    }

    /// Share of stage `one` that ran beside `other`, from 0 to 1; `None` if it did not run.
    pub fn share_beside(&self, one: usize, other: usize) -> Option<f64> {
        ratio(self.overlap_ns.get(one)?.get(other).copied()?, *self.stage_ns.get(one)?)
    }

    /// Overlap efficiency: the time that overlap saved, as share of what it can save at most, from 0 (one stage after another)
    /// to 1 (all others beside the longest). `None` where there is nothing to save: for a single stage.
    pub fn overlap_efficiency(&self) -> Option<f64> {
        let longest = self.stage_ns.iter().copied().max()?;
        ratio(self.sum_ns - self.busy_ns, self.sum_ns - longest)
    }

    /// Time within the span at which no stage ran.
    pub fn idle_ns(&self) -> u64 {
        self.span_ns - self.busy_ns
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Medians over several runs of one pipeline, each taken by itself: that of the sum is not the sum of those of the stages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Medians {
    pub runs: usize,
    pub stage_ns: Vec<f64>,
    pub overlap_ns: Vec<Vec<f64>>,
    pub span_ns: f64,
    pub busy_ns: f64,
    pub sum_ns: f64,
    pub idle_ns: f64,
    pub overlap_efficiency: Option<f64>,
}

impl Medians {
    /// Of these runs; `None` if there are none, or they differ in their number of stages.
    pub fn of(runs: &[Analysis]) -> Option<Medians> {
        let stages = runs.first()?.stage_ns.len();
        if runs.iter().any(|run| run.stage_ns.len() != stages) {
            return None;
        }
        let of = |value: &dyn Fn(&Analysis) -> u64| {
            median(&runs.iter().map(|run| value(run) as f64).collect::<Vec<_>>()).ok()
        };
        let efficiencies: Vec<f64> = runs.iter().filter_map(Analysis::overlap_efficiency).collect();
        let row = |one: usize| (0..stages).map(|other| of(&|run| run.overlap_ns[one][other])).collect();
        Some(Medians {
            runs: runs.len(),
            stage_ns: (0..stages).map(|stage| of(&|run| run.stage_ns[stage])).collect::<Option<_>>()?,
            overlap_ns: (0..stages).map(row).collect::<Option<_>>()?,
            span_ns: of(&|run| run.span_ns)?,
            busy_ns: of(&|run| run.busy_ns)?,
            sum_ns: of(&|run| run.sum_ns)?,
            idle_ns: of(&Analysis::idle_ns)?,
            overlap_efficiency: median(&efficiencies).ok(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::kernel;
    use super::*;

    fn analysed(stages: &[&[(u64, u64)]]) -> Option<Analysis> {
        let ran: Vec<Vec<Activity>> =
            stages.iter().map(|stage| stage.iter().map(|&(start, end)| kernel("a", 1, start, end)).collect()).collect();
        Analysis::of(&ran.iter().map(|stage| stage.iter().collect()).collect::<Vec<_>>())
    }

    #[test]
    fn two_beside_one_another_and_one_behind() {
        let run = analysed(&[&[(10, 30)], &[(20, 60)], &[(70, 100)]]).expect("they ran");
        assert_eq!((run.span_ns, run.busy_ns, run.sum_ns, run.idle_ns()), (90, 80, 90, 10));
        assert_eq!(run.overlap_ns, [[20, 10, 0], [10, 40, 0], [0, 0, 30]]);
        assert_eq!((run.share_beside(0, 1), run.share_beside(1, 0)), (Some(0.5), Some(0.25)));
        assert_eq!(run.gaps, [Gap { start_ns: 60, end_ns: 70, after: 1, before: 2 }]);
        assert_eq!(run.overlap_efficiency(), Some(10.0 / 50.0));
    }

    #[test]
    fn efficiency_ends_at_both_ends() {
        assert_eq!(analysed(&[&[(1, 11)], &[(11, 21)]]).expect("they ran").overlap_efficiency(), Some(0.0));
        assert_eq!(analysed(&[&[(1, 11)], &[(2, 8)]]).expect("they ran").overlap_efficiency(), Some(1.0));
        assert_eq!(analysed(&[&[(1, 11)]]).expect("it ran").overlap_efficiency(), None);
        assert_eq!(analysed(&[&[], &[]]), None);
    }

    #[test]
    fn medians_are_those_of_each_quantity() {
        let runs: Vec<_> = [(10, 20), (10, 40), (10, 90)]
            .map(|(start, end)| analysed(&[&[(start, end)], &[(15, 20)]]).expect("they ran"))
            .into();
        let medians = Medians::of(&runs).expect("there are runs");
        assert_eq!((medians.runs, medians.span_ns, medians.stage_ns), (3, 30.0, vec![30.0, 5.0]));
        assert_eq!(Medians::of(&[]), None);
        let other = analysed(&[&[(1, 2)]]).expect("it ran");
        assert_eq!(Medians::of(&[runs[0].clone(), other]), None);
    }

    fn any_stages() -> impl Strategy<Value = Vec<Vec<(u64, u64)>>> {
        prop::collection::vec(
            prop::collection::vec((1_u64..80, 1_u64..30).prop_map(|(at, ns)| (at, at + ns)), 0..4),
            0..5,
        )
    }

    proptest! {
        #[test]
        fn the_numbers_agree_with_one_another(stages in any_stages()) {
            let slices: Vec<&[(u64, u64)]> = stages.iter().map(Vec::as_slice).collect();
            let Some(run) = analysed(&slices) else {
                prop_assert!(stages.iter().all(Vec::is_empty));
                return Ok(());
            };
            prop_assert!(run.busy_ns <= run.span_ns && run.busy_ns <= run.sum_ns);
            prop_assert_eq!(run.gaps.iter().map(Gap::duration_ns).sum::<u64>(), run.idle_ns());
            for one in 0..stages.len() {
                prop_assert!(run.stage_ns[one] <= run.busy_ns);
                prop_assert_eq!(run.overlap_ns[one][one], run.stage_ns[one]);
                for other in 0..stages.len() {
                    prop_assert_eq!(run.overlap_ns[one][other], run.overlap_ns[other][one]);
                    prop_assert!(run.overlap_ns[one][other] <= run.stage_ns[one].min(run.stage_ns[other]));
                }
            }
            prop_assert!(run.overlap_efficiency().is_none_or(|share| (0.0..=1.0).contains(&share)));
        }
    }
}
