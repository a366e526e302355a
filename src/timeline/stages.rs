//! Which launch is which stage of which run of the pipeline: told by the kernel's exact name and the order of launches.

use std::collections::BTreeMap;

use crate::model::timeline::{Activity, ActivityKind, StageKernel, Timeline};

/// One run of the pipeline: the launch of each stage, in the stages' order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Iteration<'t> {
    pub launches: Vec<&'t Activity>,
}

impl<'t> Iteration<'t> {
    /// The activities of each stage, as [`super::Analysis::of`] takes them.
    pub fn by_stage(&self) -> Vec<Vec<&'t Activity>> {
        self.launches.iter().map(|&launch| vec![launch]).collect()
    }
}

/// The trace does not hold whole runs of the pipeline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    #[error("the kernel `{kernel}` of stage `{stage}` is not in the trace; these are: {}", seen.join(", "))]
    Missing { stage: String, kernel: String, seen: Vec<String> },
    #[error(
        "the trace holds {found} launches of `{kernel}`, which {stages} stages of the pipeline launch, and {runs} runs of the \
         pipeline: it was cut off, or something else launches this kernel"
    )]
    Uneven { kernel: String, stages: usize, found: usize, runs: usize },
}

/// The runs of a pipeline of these stages. Other activities are passed over.
///
/// # Errors
/// A stage's kernel is missing, or was launched more or less often than its stages run.
pub fn iterations<'t>(timeline: &'t Timeline, stages: &[StageKernel]) -> Result<Vec<Iteration<'t>>, Mismatch> {
    let mut launches: BTreeMap<&str, Vec<&Activity>> = BTreeMap::new();
    for activity in timeline.activities.iter().filter(|activity| activity.kind == ActivityKind::Kernel) {
        launches.entry(&activity.name).or_default().push(activity);
    }
    // Kernels on several streams may start in another order than they were launched.
    for of_kernel in launches.values_mut() {
        of_kernel.sort_by_key(|launch| (launch.process, launch.correlation, launch.start_ns));
    }
    let mut runs = None;
    for StageKernel { stage, kernel } in stages {
        let Some(found) = launches.get(kernel.as_str()).map(Vec::len) else {
            let seen = launches.keys().map(|&name| name.to_owned()).collect();
            return Err(Mismatch::Missing { stage: stage.clone(), kernel: kernel.clone(), seen });
        };
        let sharing = stages.iter().filter(|other| other.kernel == *kernel).count();
        let runs = *runs.get_or_insert(found / sharing);
        if found != runs * sharing {
            return Err(Mismatch::Uneven { kernel: kernel.clone(), stages: sharing, found, runs });
        }
    }
    let mut taken =
        launches.into_iter().map(|(name, of_kernel)| (name, of_kernel.into_iter())).collect::<BTreeMap<_, _>>();
    let next = |stage: &StageKernel| taken.get_mut(stage.kernel.as_str()).and_then(Iterator::next);
    let in_order: Vec<&Activity> =
        stages.iter().cycle().take(stages.len() * runs.unwrap_or(0)).map_while(next).collect();
    Ok(in_order.chunks(stages.len().max(1)).map(|launches| Iteration { launches: launches.to_vec() }).collect())
}

#[cfg(test)]
mod tests {
    use super::super::tests::kernel;
    use super::*;

    fn stages(pairs: &[(&str, &str)]) -> Vec<StageKernel> {
        pairs.iter().map(|(stage, kernel)| StageKernel { stage: (*stage).into(), kernel: (*kernel).into() }).collect()
    }

    fn launched(names: &[&str]) -> Timeline {
        let launch = |(index, name): (usize, &&str)| {
            let at = index as u64 * 10 + 1;
            Activity { correlation: Some(index as u64), ..kernel(name, 7, at, at + 5) }
        };
        Timeline { activities: names.iter().enumerate().map(launch).collect(), ..Timeline::default() }
    }

    fn orders(timeline: &Timeline, stages: &[StageKernel]) -> Result<Vec<Vec<u64>>, Mismatch> {
        let runs = iterations(timeline, stages)?;
        Ok(runs.iter().map(|run| run.launches.iter().filter_map(|launch| launch.correlation).collect()).collect())
    }

    #[test]
    fn launches_are_dealt_to_stages_in_order() {
        let stages = stages(&[("first", "gemm"), ("second", "gemm_v2"), ("third", "gemm")]);
        let trace = launched(&["gemm", "gemm_v2", "gemm", "fill", "gemm", "gemm_v2", "gemm"]);
        assert_eq!(orders(&trace, &stages), Ok(vec![vec![0, 1, 2], vec![4, 5, 6]]));
    }

    #[test]
    fn the_order_of_launches_counts_and_not_that_of_starts() {
        let mut trace = launched(&["a", "a"]);
        trace.activities[0].start_ns = 100;
        trace.activities[0].end_ns = 110;
        assert_eq!(orders(&trace, &stages(&[("x", "a"), ("y", "a")])), Ok(vec![vec![0, 1]]));
    }

    #[test]
    fn a_trace_that_does_not_fit_is_refused() {
        let two = stages(&[("first", "gemm"), ("second", "merge")]);
        let error = orders(&launched(&["gemm", "gemm_v2"]), &two).expect_err("no merge").to_string();
        assert_eq!(error, "the kernel `merge` of stage `second` is not in the trace; these are: gemm, gemm_v2");
        let error = orders(&launched(&["gemm", "merge", "gemm"]), &two).expect_err("a merge is missing").to_string();
        assert!(error.contains("1 launches of `merge`") && error.contains("2 runs"), "{error}");
        let shared = stages(&[("first", "gemm"), ("second", "gemm")]);
        let error = orders(&launched(&["gemm", "gemm", "gemm"]), &shared).expect_err("an odd number").to_string();
        assert!(error.contains("3 launches of `gemm`, which 2 stages"), "{error}");
        assert_eq!(orders(&launched(&["gemm"]), &[]), Ok(vec![]));
    }
}
