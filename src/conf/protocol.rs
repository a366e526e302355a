//! `conf/protocol.toml`: how long and how often is measured, and the time limits.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use super::{ConfError, Invalid, check_range, check_schema};
use crate::model::protocol::{AnnotationProtocol, EventProtocol, TuneProtocol, Warmup};
use crate::model::{Device, Timing};

pub(super) const FILE: &str = "protocol.toml";
pub(super) const DEFAULT: &str = include_str!("../../conf/protocol.toml");

const NS_PER_US: u64 = 1_000;
const NS_PER_MS: u64 = 1_000_000;
/// Launches of a pipeline in one timeline at most: each leaves some ten activities in a record.
pub const MOST_TRACED: u32 = 1000;
const BYTES_PER_MIB: u64 = 1 << 20;
/// Longest time that any key admits: one day.
const DAY_MS: u64 = 24 * 3600 * 1000;

/// The measuring protocol, in the file's units.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protocol {
    schema: u32,
    pub flush: Flush,
    pub warmup: WarmupConf,
    pub event: Event,
    pub annotation: Annotation,
    pub tune: Tune,
    pub limits: Limits,
    /// Nsys mode; the built-in values where the file has none.
    #[serde(default = "timeline")]
    pub nsys: Nsys,
    /// What holds on a GPU instead; the built-in values where the file has none.
    #[serde(default = "on_gpu")]
    pub gpu: OnGpu,
}

/// Values that hold on a GPU instead of those of the same name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnGpu {
    pub warmup: WarmupConf,
    pub event: Event,
    pub annotation: Annotation,
}

/// See [`TimelineProtocol`](crate::model::protocol::TimelineProtocol).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nsys {
    pub warmup_launches: u32,
    pub launches: u32,
}

/// The built-in values.
fn timeline() -> Nsys {
    #[derive(Deserialize)]
    struct Part {
        nsys: Nsys,
    }
    toml::from_str::<Part>(DEFAULT).expect("the built-in protocol is valid").nsys
}

/// The built-in values.
fn on_gpu() -> OnGpu {
    #[derive(Deserialize)]
    struct Part {
        gpu: OnGpu,
    }
    toml::from_str::<Part>(DEFAULT).expect("the built-in protocol is valid").gpu
}

/// Eviction of the caches between cold samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flush {
    /// Bytes written, as a multiple of the last-level cache.
    pub last_level_caches: u64,
    pub min_mib: u64,
    pub max_mib: u64,
}

/// See [`Warmup`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmupConf {
    pub min_launches: u32,
    pub min_ms: u64,
    pub block_ms: u64,
    pub steady_blocks: u32,
    pub steady_permille: u32,
    pub max_ms: u64,
}

/// See [`EventProtocol`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    pub timings: Vec<Timing>,
    pub min_samples: u32,
    pub max_samples: u32,
    pub interval_permille: u32,
    pub budget_ms: u64,
    pub batch_window_us: u64,
}

/// See [`AnnotationProtocol`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Annotation {
    pub min_samples: u32,
    pub max_samples: u32,
    pub budget_ms: u64,
}

/// See [`TuneProtocol`]; with the limits of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tune {
    pub min_samples: u32,
    pub max_samples: u32,
    pub budget_ms: u64,
    pub abandon_percent: u32,
    /// Spaces of up to this many points are searched exhaustively, larger ones by as many points drawn at random.
    pub max_candidates: u64,
    /// Seed of the drawing.
    pub seed: u64,
    /// Time for one search.
    pub limit_s: u64,
}

impl Tune {
    /// Time for one search.
    pub fn limit(&self) -> Duration {
        Duration::from_secs(self.limit_s)
    }
}

/// Longest times of child processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    pub compile_s: u64,
    pub verify_s: u64,
    pub run_s: u64,
}

impl Limits {
    /// Of one compiler call.
    pub fn compile(&self) -> Duration {
        Duration::from_secs(self.compile_s)
    }

    /// Of one verification.
    pub fn verify(&self) -> Duration {
        Duration::from_secs(self.verify_s)
    }

    /// Of one sample set or annotation pass.
    pub fn run(&self) -> Duration {
        Duration::from_secs(self.run_s)
    }
}

impl Protocol {
    /// Event mode on `device`.
    pub fn event(&self, device: &Device) -> EventProtocol {
        let event = if device.gpu.is_some() { &self.gpu.event } else { &self.event };
        EventProtocol {
            warmup: self.warmup(device),
            timings: event.timings.clone(),
            min_samples: event.min_samples,
            max_samples: event.max_samples,
            interval_permille: event.interval_permille,
            budget_ns: event.budget_ms * NS_PER_MS,
            batch_window_ns: event.batch_window_us * NS_PER_US,
            flush_bytes: self.flush_bytes(device),
        }
    }

    /// Annotation mode on `device`.
    pub fn annotation(&self, device: &Device) -> AnnotationProtocol {
        let annotation = if device.gpu.is_some() { self.gpu.annotation } else { self.annotation };
        AnnotationProtocol {
            warmup: self.warmup(device),
            min_samples: annotation.min_samples,
            max_samples: annotation.max_samples,
            budget_ns: annotation.budget_ms * NS_PER_MS,
            flush_bytes: self.flush_bytes(device),
        }
    }

    /// One candidate of tuning.
    pub fn tune(&self) -> TuneProtocol {
        TuneProtocol {
            min_samples: self.tune.min_samples,
            max_samples: self.tune.max_samples,
            budget_ns: self.tune.budget_ms * NS_PER_MS,
            abandon_percent: self.tune.abandon_percent,
        }
    }

    fn warmup(&self, device: &Device) -> Warmup {
        let warmup = if device.gpu.is_some() { self.gpu.warmup } else { self.warmup };
        Warmup {
            min_launches: warmup.min_launches,
            min_ns: warmup.min_ms * NS_PER_MS,
            block_ns: warmup.block_ms * NS_PER_MS,
            steady_blocks: warmup.steady_blocks,
            steady_permille: warmup.steady_permille,
            max_ns: warmup.max_ms * NS_PER_MS,
        }
    }

    /// Bytes that evict the caches of `device`; the largest allowed amount where the size of its cache is unknown.
    fn flush_bytes(&self, device: &Device) -> u64 {
        let (min, max) = (self.flush.min_mib * BYTES_PER_MIB, self.flush.max_mib * BYTES_PER_MIB);
        match device.last_level_cache_bytes {
            0 => max,
            bytes => bytes.saturating_mul(self.flush.last_level_caches).clamp(min, max),
        }
    }
}

pub(super) fn parse(file: &Path, text: &str) -> Result<Protocol, ConfError> {
    super::parse(file, text, check)
}

fn check(protocol: &Protocol) -> Result<(), Invalid> {
    check_schema(protocol.schema)?;
    check_flush(&protocol.flush)?;
    for (section, warmup, event, annotation) in [
        ("", &protocol.warmup, &protocol.event, protocol.annotation),
        ("gpu.", &protocol.gpu.warmup, &protocol.gpu.event, protocol.gpu.annotation),
    ] {
        check_warmup(section, warmup)?;
        check_event(section, event)?;
        let Annotation { min_samples, max_samples, budget_ms } = annotation;
        check_sampling(&format!("{section}annotation"), min_samples, max_samples, budget_ms)?;
    }
    check_tune(&protocol.tune)?;
    check_range("nsys.warmup_launches", protocol.nsys.warmup_launches.into(), 0, 10_000)?;
    check_range("nsys.launches", protocol.nsys.launches.into(), 1, MOST_TRACED.into())?;
    let Limits { compile_s, verify_s, run_s } = protocol.limits;
    for (key, seconds) in [("compile_s", compile_s), ("verify_s", verify_s), ("run_s", run_s)] {
        check_range(&format!("limits.{key}"), seconds, 1, DAY_MS / 1000)?;
    }
    Ok(())
}

fn check_flush(flush: &Flush) -> Result<(), Invalid> {
    check_range("flush.last_level_caches", flush.last_level_caches, 1, 16)?;
    check_range("flush.min_mib", flush.min_mib, 1, 1 << 14)?;
    check_range("flush.max_mib", flush.max_mib, flush.min_mib, 1 << 14)
}

fn check_warmup(section: &str, warmup: &WarmupConf) -> Result<(), Invalid> {
    let key = |name: &str| format!("{section}warmup.{name}");
    check_range(&key("min_launches"), warmup.min_launches.into(), 1, 1_000_000)?;
    check_range(&key("block_ms"), warmup.block_ms, 1, DAY_MS)?;
    check_range(&key("steady_blocks"), warmup.steady_blocks.into(), 2, 1000)?;
    check_range(&key("steady_permille"), warmup.steady_permille.into(), 1, 1000)?;
    check_range(&key("max_ms"), warmup.max_ms, 1, DAY_MS)?;
    check_range(&key("min_ms"), warmup.min_ms, 0, warmup.max_ms)
}

fn check_event(section: &str, event: &Event) -> Result<(), Invalid> {
    let key = |name: &str| format!("{section}event.{name}");
    check_sampling(&format!("{section}event"), event.min_samples, event.max_samples, event.budget_ms)?;
    check_range(&key("interval_permille"), event.interval_permille.into(), 1, 1000)?;
    check_range(&key("batch_window_us"), event.batch_window_us, 1, DAY_MS)?;
    let repeated = event.timings.iter().enumerate().any(|(index, timing)| event.timings[..index].contains(timing));
    if repeated || !event.timings.contains(&Timing::ColdIsolated) {
        let value = format!("{:?}", event.timings.iter().map(|timing| timing.name()).collect::<Vec<_>>());
        let allowed = "cold_isolated and any of warm_isolated and warm_batched, each once";
        return Err(Invalid::new(key("timings"), value, allowed));
    }
    Ok(())
}

fn check_tune(tune: &Tune) -> Result<(), Invalid> {
    check_sampling("tune", tune.min_samples, tune.max_samples, tune.budget_ms)?;
    check_range("tune.abandon_percent", tune.abandon_percent.into(), 1, 10_000)?;
    check_range("tune.max_candidates", tune.max_candidates, 1, 1_000_000)?;
    check_range("tune.limit_s", tune.limit_s, 1, DAY_MS / 1000)
}

fn check_sampling(section: &str, min: u32, max: u32, budget_ms: u64) -> Result<(), Invalid> {
    check_range(&format!("{section}.min_samples"), min.into(), 1, 1_000_000)?;
    check_range(&format!("{section}.max_samples"), max.into(), min.into(), 1_000_000)?;
    check_range(&format!("{section}.budget_ms"), budget_ms, 1, DAY_MS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{DeviceId, DeviceKind};
    use crate::stats::{LEVEL, median_interval};

    fn device(last_level_cache_bytes: u64) -> Device {
        let id = DeviceId { kind: DeviceKind::Cpu, name: "cpu".into(), uuid: None, units: 2 };
        Device { id, memory_bytes: 1 << 30, last_level_cache_bytes, cores: vec![0, 1], gpu: None }
    }

    fn defaults() -> Protocol {
        parse(Path::new(FILE), DEFAULT).expect("the default is valid")
    }

    #[test]
    fn a_flush_is_twice_the_cache_within_its_limits() {
        let protocol = defaults();
        assert_eq!(protocol.event(&device(48 << 20)).flush_bytes, 96 << 20);
        assert_eq!(protocol.event(&device(1 << 20)).flush_bytes, 32 << 20);
        assert_eq!(protocol.annotation(&device(1 << 40)).flush_bytes, 256 << 20);
        assert_eq!(protocol.annotation(&device(0)).flush_bytes, 256 << 20);
    }

    #[test]
    fn the_fewest_samples_still_have_an_interval() {
        let protocol = defaults();
        for min in [protocol.event.min_samples, protocol.annotation.min_samples] {
            assert!(median_interval(&vec![1.0; min as usize], LEVEL).is_ok_and(|interval| interval.is_some()));
        }
    }

    #[test]
    fn units_are_converted() {
        let protocol = defaults();
        let event = protocol.event(&device(0));
        assert_eq!((event.budget_ns, event.batch_window_ns), (400_000_000, 5_000_000));
        assert_eq!(event.warmup.max_ns, 500_000_000);
        assert_eq!(protocol.tune().budget_ns, 60_000_000);
    }

    #[test]
    fn impossible_values_are_refused_by_key() {
        for (from, to, key) in [
            ("max_samples = 400", "max_samples = 5", "event.max_samples"),
            ("max_ms = 500", "max_ms = 100", "warmup.min_ms"),
            ("max_mib = 256", "max_mib = 16", "flush.max_mib"),
            ("run_s = 120", "run_s = 0", "limits.run_s"),
            ("[\"cold_isolated\", ", "[", "event.timings"),
            ("[\"cold_isolated\", ", "[\"cold_isolated\", \"cold_isolated\", ", "event.timings"),
        ] {
            assert!(DEFAULT.contains(from), "{from} is gone");
            let error = parse(Path::new(FILE), &DEFAULT.replace(from, to)).expect_err(to).to_string();
            assert!(error.contains(&format!("`{key}`")), "{error}");
        }
    }
}
