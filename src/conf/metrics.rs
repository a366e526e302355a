//! `conf/metrics.toml`: what Nsight Compute calls the metrics that annotation asks for, by compute capability.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use super::{ConfError, Invalid, check_schema};
use crate::model::ncu::Capability;
use crate::model::quantity::Unit;

pub(super) const FILE: &str = "metrics.toml";
pub(super) const DEFAULT: &str = include_str!("../../conf/metrics.toml");

/// Names and units of all counters.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    schema: u32,
    /// Sections whose rules annotation asks for, by NVIDIA's identifiers.
    pub sections: Vec<String>,
    #[serde(rename = "metric")]
    pub counters: BTreeMap<CounterName, CounterRule>,
}

/// A counter as mlarun calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CounterName {
    Duration,
    TensorCore,
    Dram,
    DramBytes,
    AchievedOccupancy,
    TheoreticalOccupancy,
    BlocksByRegisters,
    BlocksBySharedMemory,
    BlocksByWarps,
    BlocksBySlots,
    BlocksByBarriers,
    L2HitRate,
    L1HitRate,
    LocalBytes,
    WavesPerSm,
    Registers,
    SharedMemory,
    SmThroughput,
    MemoryThroughput,
    SmClock,
}

impl CounterName {
    /// Every counter, each with its key and the unit that mlarun calculates in.
    const ALL: [(CounterName, &'static str, &'static str); 20] = [
        (CounterName::Duration, "duration", "ns"),
        (CounterName::TensorCore, "tensor_core", "%"),
        (CounterName::Dram, "dram", "%"),
        (CounterName::DramBytes, "dram_bytes", "byte"),
        (CounterName::AchievedOccupancy, "achieved_occupancy", "%"),
        (CounterName::TheoreticalOccupancy, "theoretical_occupancy", "%"),
        (CounterName::BlocksByRegisters, "blocks_by_registers", "block"),
        (CounterName::BlocksBySharedMemory, "blocks_by_shared_memory", "block"),
        (CounterName::BlocksByWarps, "blocks_by_warps", "block"),
        (CounterName::BlocksBySlots, "blocks_by_slots", "block"),
        (CounterName::BlocksByBarriers, "blocks_by_barriers", "block"),
        (CounterName::L2HitRate, "l2_hit_rate", "%"),
        (CounterName::L1HitRate, "l1_hit_rate", "%"),
        (CounterName::LocalBytes, "local_bytes", "byte"),
        (CounterName::WavesPerSm, "waves_per_sm", ""),
        (CounterName::Registers, "registers", "register/thread"),
        (CounterName::SharedMemory, "shared_memory", "byte/block"),
        (CounterName::SmThroughput, "sm_throughput", "%"),
        (CounterName::MemoryThroughput, "memory_throughput", "%"),
        (CounterName::SmClock, "sm_clock", "hz"),
    ];

    /// Its key in the file.
    pub fn key(self) -> &'static str {
        let entry = CounterName::ALL.into_iter().find(|(name, ..)| *name == self);
        entry.map_or("", |(_, key, _)| key)
    }

    /// What limits the theoretical occupancy, given how many blocks each resource allows on a multiprocessor: the resources that
    /// allow the fewest, all of them where several do; none where no limit is known.
    pub fn limiters(blocks: impl Fn(CounterName) -> Option<f64>) -> Vec<CounterName> {
        let limits: Vec<_> = LIMITS.into_iter().filter_map(|limit| Some((limit, blocks(limit)?))).collect();
        let fewest = limits.iter().map(|(_, blocks)| *blocks).fold(f64::INFINITY, f64::min);
        limits.into_iter().filter(|(_, blocks)| *blocks == fewest).map(|(limit, _)| limit).collect()
    }
}

/// The resources that can limit how many blocks fit a multiprocessor.
const LIMITS: [CounterName; 5] = [
    CounterName::BlocksByRegisters,
    CounterName::BlocksBySharedMemory,
    CounterName::BlocksByWarps,
    CounterName::BlocksBySlots,
    CounterName::BlocksByBarriers,
];

/// One counter.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CounterRule {
    pub doc: String,
    pub unit: Unit,
    pub names: Vec<Named>,
}

/// What a counter is called on some architectures.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// The lowest compute capability that these names hold for.
    pub from: Capability,
    /// The lowest above it that they do not hold for.
    pub below: Option<Capability>,
    /// Metrics to add up.
    pub metrics: Vec<String>,
}

impl Named {
    fn holds_for(&self, capability: Capability) -> bool {
        capability >= self.from && self.below.is_none_or(|below| capability < below)
    }
}

impl Metrics {
    /// What `counter` is called on GPUs of this capability, with its unit; `None` where it has no name there.
    pub fn named(&self, counter: CounterName, capability: Capability) -> Option<(&[String], Unit)> {
        let rule = self.counters.get(&counter)?;
        let named = rule.names.iter().find(|named| named.holds_for(capability))?;
        Some((&named.metrics, rule.unit))
    }

    /// Everything to ask Nsight Compute for on GPUs of this capability, sorted.
    pub fn to_ask(&self, capability: Capability) -> Vec<String> {
        let names = self.counters.keys().filter_map(|counter| Some(self.named(*counter, capability)?.0));
        let names: BTreeSet<&String> = names.flatten().collect();
        names.into_iter().cloned().collect()
    }
}

pub(super) fn parse(file: &Path, text: &str) -> Result<Metrics, ConfError> {
    super::parse(file, text, check)
}

fn check(metrics: &Metrics) -> Result<(), Invalid> {
    check_schema(metrics.schema)?;
    if let Some(name) = metrics.sections.iter().find(|name| !is_identifier(name)) {
        return Err(Invalid::new("sections", format!("{name:?}"), "identifiers of letters, digits and `_`"));
    }
    for (name, key, unit) in CounterName::ALL {
        let key = format!("metric.{key}");
        let rule = metrics.counters.get(&name).ok_or_else(|| Invalid::new(&key, "missing", "every counter"))?;
        if rule.unit.to_string() != unit {
            return Err(Invalid::new(format!("{key}.unit"), format!("`{}`", rule.unit), format!("`{unit}`")));
        }
        check_names(&format!("{key}.names"), &rule.names)?;
    }
    Ok(())
}

fn is_identifier(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Rows stand in ascending order and do not overlap, and each has a name. A name goes to `ncu --metrics`, which takes a list
/// separated by commas.
fn check_names(key: &str, names: &[Named]) -> Result<(), Invalid> {
    for named in names {
        if let Some(below) = named.below.filter(|below| *below <= named.from) {
            return Err(Invalid::new(key, format!("from {} below {below}", named.from), "a range that is not empty"));
        }
        let plain = |name: &String| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.')
        };
        if named.metrics.is_empty() || !named.metrics.iter().all(plain) {
            let allowed = "at least one name of letters, digits, `_` and `.`";
            return Err(Invalid::new(key, format!("{:?}", named.metrics), allowed));
        }
    }
    match names.windows(2).find(|pair| pair[0].below.is_none_or(|below| below > pair[1].from)) {
        Some(pair) => Err(Invalid::new(key, format!("from {}, twice", pair[1].from), "rows that follow one another")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults() -> Metrics {
        parse(Path::new(FILE), DEFAULT).expect("the default is valid")
    }

    fn capability(text: &str) -> Capability {
        text.parse().expect("it is one")
    }

    #[test]
    fn names_follow_the_architecture() {
        let metrics = defaults();
        let names = |at: &str| metrics.named(CounterName::DramBytes, capability(at)).map(|(names, _)| names.to_vec());
        assert_eq!(names("9.0"), Some(vec!["dram__bytes.sum".to_owned()]));
        assert_eq!(
            names("12.0"),
            Some(vec!["dram__bytes_op_read.sum".to_owned(), "dram__bytes_op_write.sum".to_owned()])
        );
        assert_eq!(names("6.1"), None);
    }

    #[test]
    fn a_metric_is_asked_for_once() {
        let asked = defaults().to_ask(capability("9.0"));
        let unique: BTreeSet<_> = asked.iter().collect();
        assert_eq!(unique.len(), asked.len());
        assert!(asked.contains(&"gpu__time_duration.sum".to_owned()));
        assert!(!defaults().to_ask(capability("8.0")).contains(&"launch__occupancy_limit_barriers".to_owned()));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (old, new, says) in [
            (
                "below = \"12.0\"",
                "below = \"7.0\"",
                "`metric.dram_bytes.names` is from 7.0 below 7.0; allowed is a range",
            ),
            (
                "below = \"12.0\"",
                "below = \"12.1\"",
                "`metric.dram_bytes.names` is from 12.0, twice; allowed is rows that",
            ),
            ("unit = \"hz\"", "unit = \"%\"", "`metric.sm_clock.unit` is `%`; allowed is `hz`"),
            ("[metric.sm_clock]", "[metric.sm_clocks]", "sm_clocks"),
            ("\"lts__t_sector_hit_rate.pct\"", "\"a,b\"", "at least one name of letters"),
            ("\"Occupancy\"", "\"Occupancy --set full\"", "`sections` is \"Occupancy --set full\""),
            ("from = \"8.0\"", "from = \"8\"", "`8` is no compute capability"),
            ("unit = \"ns\"", "unit = \"us\"", "not in base form; write `ns`"),
        ] {
            let error = parse(Path::new(FILE), &DEFAULT.replacen(old, new, 1)).expect_err("it is wrong").to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn every_counter_has_a_key_of_its_own() {
        let keys: BTreeSet<_> = CounterName::ALL.iter().map(|(name, ..)| name.key()).collect();
        assert_eq!(keys.len(), CounterName::ALL.len());
        assert!(!keys.contains(""));
    }

    #[test]
    fn resources_that_limit_alike_are_all_named() {
        let blocks = |counter| match counter {
            CounterName::BlocksByRegisters | CounterName::BlocksByWarps => Some(2.0),
            CounterName::BlocksBySharedMemory => Some(3.0),
            CounterName::Duration => Some(1.0),
            _ => None,
        };
        assert_eq!(CounterName::limiters(blocks), [CounterName::BlocksByRegisters, CounterName::BlocksByWarps]);
        assert!(CounterName::limiters(|_| None).is_empty(), "nothing is known of any");
    }
}
