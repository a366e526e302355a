//! Recorded processes of real hosts, judged as if they had been compared: identical code is hardly ever called different, and what is
//! slower by a known part never faster. tests/calibrations/README.md says where the processes come from.

use std::path::Path;

use mlarun::report::calibration::{Calibration, How, judge};
use mlarun::store::calibrations::{Sitting, read};

/// Resampled comparisons of each kernel and number.
const COMPARISONS: u32 = 1000;

fn sittings(name: &str) -> Vec<Sitting> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/calibrations").join(name);
    read(&path).expect("a recorded file")
}

/// What must hold on every host, however loud.
fn judged(name: &str) -> Calibration {
    let judged = judge(&sittings(name), COMPARISONS).expect("enough to judge");
    assert_eq!(judged.kernels.len(), 6);
    let identical = judged.resampled.false_verdicts;
    assert_eq!(identical.comparisons, 6 * u64::from(COMPARISONS));
    assert!(identical.at_most.is_some_and(|limit| limit <= 0.001), "{identical:?}");
    assert_eq!(judged.disjoint.false_verdicts.events, 0, "{:?}", judged.disjoint);
    for kernel in &judged.kernels {
        assert!(kernel.processes >= 100, "{}: {}", kernel.name, kernel.processes);
        for change in &kernel.changes {
            assert_eq!(change.disjoint.faster, 0, "{}: {change:?}", kernel.name);
            // Resampled rounds repeat what the few that ran happen to show; samples that are scaled do not depend on that.
            let may_be_wrong = change.how == How::Spin || change.tally.faster * 1000 <= change.tally.comparisons;
            assert!(may_be_wrong, "{}: {change:?}", kernel.name);
        }
    }
    judged
}

#[test]
fn a_loud_shared_cpu_deceives_nobody_and_keeps_the_usual_threshold() {
    let judged = judged("cpu-shared.jsonl");
    assert_eq!(judged.rule.threshold, judged.usual_threshold);
    assert!(judged.kernels.iter().all(|kernel| kernel.spread.is_some_and(|spread| spread > 0.02)), "{judged:?}");
}

/// What the rule promises: one percent is found 95 times in 100 where processes spread by half a percent at most.
#[test]
fn an_h200_with_free_clocks_shows_one_percent_and_bears_the_lowest_threshold() {
    let judged = judged("h200.jsonl");
    assert_eq!(judged.rule.threshold, 0.005, "{:?}", judged.rule);
    for kernel in &judged.kernels {
        assert!(kernel.spread.is_some_and(|spread| spread <= 0.005), "{}: {:?}", kernel.name, kernel.spread);
        let one = kernel
            .changes
            .iter()
            .find(|change| (change.slower_by - 0.01).abs() < 1e-9 && change.how == How::ScaledSamples);
        let found = one.map(|change| change.at_least);
        assert!(found >= Some(0.95), "{}: {one:?}", kernel.name);
    }
}

/// Without it the others could not fail: the same processes show a difference that is there.
#[test]
fn what_takes_three_times_as_long_is_found_on_the_loudest_host() {
    let mut sittings = sittings("cpu-shared.jsonl");
    for visit in sittings.iter_mut().flat_map(|sitting| &mut sitting.visits).filter(|visit| visit.slower_by > 0.0) {
        visit.process.ns = visit.process.ns.map(|ns| ns * 3.0);
    }
    let judged = judge(&sittings, 50).expect("enough to judge");
    let changes = judged.kernels.iter().flat_map(|kernel| &kernel.changes).filter(|change| change.how == How::Spin);
    let changes: Vec<_> = changes.collect();
    assert_eq!(changes.len(), 12, "four kernels run slower by three parts");
    for change in changes {
        assert!(change.found > 0.9 && change.disjoint.slower == change.disjoint.comparisons, "{change:?}");
    }
}
