//! mlarun's own counters of a launch, by the names that `conf/metrics.toml` gives their metrics.

use std::collections::BTreeMap;

use crate::conf::{CounterName, Metrics};
use crate::model::ncu::{Capability, Launch};
use crate::model::quantity::{Reading, Unit};

/// Every counter of `launch`, a GPU of this capability; one that is missing says which metric was not delivered and why.
pub fn counters(launch: &Launch, capability: Capability, metrics: &Metrics) -> BTreeMap<CounterName, Reading> {
    metrics.counters.keys().map(|&counter| (counter, counter_of(launch, capability, metrics, counter))).collect()
}

fn counter_of(launch: &Launch, capability: Capability, metrics: &Metrics, counter: CounterName) -> Reading {
    let Some((names, unit)) = metrics.named(counter, capability) else {
        let reason = format!("conf/metrics.toml names no metric for compute capability {capability}");
        return Reading::Absent { reason };
    };
    let mut sum = 0.0;
    for name in names {
        match launch.metrics.get(name) {
            Some(Reading::Number { value, unit: own }) if *own == unit => sum += value,
            Some(Reading::Absent { reason }) => return Reading::Absent { reason: format!("{name}: {reason}") },
            Some(other) => {
                return Reading::Absent { reason: format!("{name} is {other}, which is not in {}", spelled(unit)) };
            }
            None => return Reading::Absent { reason: format!("{name}: not in the report") },
        }
    }
    Reading::Number { value: sum, unit }
}

fn spelled(unit: Unit) -> String {
    match unit.to_string() {
        none if none.is_empty() => "plain numbers".to_owned(),
        unit => unit,
    }
}

#[cfg(test)]
mod tests {
    use super::super::read_raw;
    use super::*;
    use crate::conf::Conf;
    use crate::model::ncu::KernelNames;

    const PAGE: &str = "\
\"ID\",\"Kernel Name\",\"l1tex__t_bytes_pipe_lsu_mem_local_op_ld.sum\",\"l1tex__t_bytes_pipe_lsu_mem_local_op_st.sum\",\"dram__bytes.sum\",\"gpu__time_duration.sum\",\"sm__throughput.avg.pct_of_peak_sustained_elapsed\"
\"\",\"\",\"Mbyte\",\"Kbyte\",\"byte\",\"cycle\",\"%\"
\"0\",\"f\",\"2\",\"500\",\"n/a\",\"7\",\"0\"
";

    #[test]
    fn parts_are_added_and_what_is_missing_says_why() {
        let report = read_raw(PAGE, KernelNames::Function).expect("it can be read");
        let capability = Capability { major: 9, minor: 0 };
        let found = counters(&report.launches[0], capability, &Conf::default().metrics);
        assert_eq!(found[&CounterName::LocalBytes].in_unit(Unit::BYTE), Some(2_500_000.0));
        assert_eq!(found[&CounterName::SmThroughput].in_unit(Unit::PERCENT), Some(0.0));
        let absent = |reason: &str| Reading::Absent { reason: reason.to_owned() };
        assert_eq!(found[&CounterName::DramBytes], absent("dram__bytes.sum: n/a"));
        assert_eq!(found[&CounterName::Duration], absent("gpu__time_duration.sum is 7 cycle, which is not in ns"));
        assert_eq!(found[&CounterName::L2HitRate], absent("lts__t_sector_hit_rate.pct: not in the report"));
        let old = counters(&report.launches[0], Capability { major: 6, minor: 1 }, &Conf::default().metrics);
        assert!(old.values().all(|reading| matches!(reading, Reading::Absent { .. })));
    }
}
