//! What Nsight Compute said: launches with their metrics and the rules that NVIDIA applied to them. Part of a record, whose
//! format carries the version.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Key;
use super::quantity::{Reading, Unit};
use super::source_view::SourceView;

/// Every profiled launch, in the report's order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NcuReport {
    pub names: KernelNames,
    pub launches: Vec<Launch>,
}

impl NcuReport {
    /// Launches of the kernel of exactly this name, in order.
    pub fn launches_of(&self, kernel: &str) -> impl Iterator<Item = &Launch> {
        self.launches.iter().filter(move |launch| launch.kernel == kernel)
    }

    /// Every metric of `asked` that a launch lacks, by launch and name, with the reason.
    pub fn undelivered<'a>(&'a self, asked: &'a [String]) -> impl Iterator<Item = Undelivered<'a>> {
        self.launches.iter().flat_map(move |launch| {
            asked.iter().filter_map(move |metric| match launch.metrics.get(metric) {
                None => Some(Undelivered { launch, metric, reason: "not in the report" }),
                Some(Reading::Absent { reason }) => Some(Undelivered { launch, metric, reason }),
                Some(_) => None,
            })
        })
    }
}

/// What an installed Nsight Compute can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NcuOffer {
    pub version: String,
    /// Metrics that annotation would ask for and that this version does not know.
    #[serde(default)]
    pub lacks: Vec<String>,
}

/// What Nsight Compute saw of one subject: a launch of each stage.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NcuProfile {
    /// In launch order; while they are profiled, no two run at the same time.
    pub stages: Vec<StageProfile>,
    /// The kernels' source with what was sampled on each line, where that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceView>,
    /// Name of the tool's own report below the folder of reports, where one was kept; it holds every subject of its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<ReportFile>,
}

/// The profiled launch of one stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageProfile {
    pub stage: String,
    pub launch: Launch,
}

/// A report file of Nsight Compute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportFile {
    /// Without folders.
    pub name: String,
    pub sha256: Key,
    pub bytes: u64,
}

/// A metric that was asked for and is not there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Undelivered<'a> {
    pub launch: &'a Launch,
    pub metric: &'a str,
    pub reason: &'a str,
}

/// Which form the names of kernels have; the tool is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelNames {
    /// Without namespaces, templates and parameters: `gemm`.
    Function,
    /// As in the source, with all of them.
    Demangled,
    /// As in machine code: `_Z4gemmPf`.
    Mangled,
}

/// One profiled launch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    pub id: LaunchId,
    /// The kernel's name as printed.
    pub kernel: String,
    /// Blocks.
    pub grid: Option<[u32; 3]>,
    /// Threads of a block.
    pub block: Option<[u32; 3]>,
    pub device: Option<u32>,
    pub context: Option<u64>,
    pub stream: Option<u64>,
    pub capability: Option<Capability>,
    /// By their exact names.
    pub metrics: BTreeMap<String, Reading>,
    /// What the sections show, under names for people; one name may stand in several sections, and twice in one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sections: Vec<SectionReading>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
}

impl Launch {
    /// The reading that a section shows as `metric` in `unit`; `None` where there is none, or more than one.
    pub fn shown(&self, metric: &str, unit: Unit) -> Option<f64> {
        let mut found =
            self.sections.iter().filter(|shown| shown.metric == metric).filter_map(|shown| shown.reading.in_unit(unit));
        let first = found.next()?;
        found.all(|other| other == first).then_some(first)
    }
}

impl Launch {
    /// How it was replayed.
    pub fn replay(&self) -> Replay {
        let metric = |name: &str| {
            let absent = || Reading::Absent { reason: format!("{name}: not in the report") };
            self.metrics.get(name).cloned().unwrap_or_else(absent)
        };
        Replay {
            passes: metric("profiler__replayer_passes"),
            saved_bytes: metric("profiler__replayer_bytes_mem_backed_up.sum"),
        }
    }
}

/// How often a launch was run again for its metrics, and what was saved for that.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    pub passes: Reading,
    /// Of the device's memory, over all passes; as much is written back.
    pub saved_bytes: Reading,
}

/// What tells launches apart: each process counts its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LaunchId {
    /// Process ID, where the report says it.
    pub process: Option<u64>,
    /// Number within the report, from 0.
    pub number: u64,
}

/// Compute capability of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Capability {
    pub major: u32,
    pub minor: u32,
}

impl std::str::FromStr for Capability {
    type Err = String;

    fn from_str(text: &str) -> Result<Capability, String> {
        let number = |digits: &str| digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()));
        text.split_once('.')
            .and_then(|(major, minor)| Some(Capability { major: number(major)?, minor: number(minor)? }))
            .ok_or_else(|| format!("`{text}` is no compute capability; it looks like 9.0"))
    }
}

impl TryFrom<String> for Capability {
    type Error = String;

    fn try_from(text: String) -> Result<Capability, String> {
        text.parse()
    }
}

impl std::fmt::Display for Capability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl From<Capability> for String {
    fn from(capability: Capability) -> String {
        capability.to_string()
    }
}

/// One row of a section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SectionReading {
    pub section: String,
    pub metric: String,
    pub reading: Reading,
}

/// What one of NVIDIA's rules says about a launch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// Identifier of the section that the rule belongs to.
    pub section: String,
    pub name: String,
    pub kind: RuleKind,
    pub description: String,
    pub estimate: Option<Estimate>,
}

/// How a rule means what it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleKind {
    /// `OPT`: something to gain.
    Optimization,
    /// `INF`: something to know.
    Information,
    /// `WRN`.
    Warning,
    /// `ERR`: the rule could not be applied.
    Error,
    Other(String),
}

/// A speed-up that a rule estimates, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    pub scope: Scope,
    pub percent: f64,
}

/// What an estimate is about. Estimates of different scopes are never compared, and none are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Run time of the kernel.
    Global,
    /// Efficiency of one unit of the hardware.
    Local,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(number: u64, kernel: &str, metrics: &[(&str, Reading)]) -> Launch {
        Launch {
            id: LaunchId { process: Some(7), number },
            kernel: kernel.to_owned(),
            grid: None,
            block: None,
            device: None,
            context: None,
            stream: None,
            capability: None,
            metrics: metrics.iter().map(|(name, reading)| ((*name).to_owned(), reading.clone())).collect(),
            sections: Vec::new(),
            rules: Vec::new(),
        }
    }

    #[test]
    fn kernels_are_found_by_their_exact_names() {
        let launches = vec![launch(0, "gemm", &[]), launch(1, "gemm_v2", &[]), launch(2, "gemm", &[])];
        let report = NcuReport { names: KernelNames::Function, launches };
        let numbers = |kernel| report.launches_of(kernel).map(|launch| launch.id.number).collect::<Vec<_>>();
        assert_eq!(numbers("gemm"), [0, 2]);
        assert_eq!(numbers("gemm_v2"), [1]);
        assert!(numbers("gem").is_empty());
    }

    #[test]
    fn what_was_not_delivered_is_named() {
        let absent = Reading::Absent { reason: "n/a".to_owned() };
        let there = Reading::Number { value: 0.0, unit: Unit::ONE };
        let launches = vec![launch(0, "a", &[("x", there), ("y", absent)])];
        let report = NcuReport { names: KernelNames::Function, launches };
        let asked = ["x", "y", "z"].map(str::to_owned);
        let found: Vec<_> = report.undelivered(&asked).map(|missing| (missing.metric, missing.reason)).collect();
        assert_eq!(found, [("y", "n/a"), ("z", "not in the report")]);
    }

    #[test]
    fn one_name_with_two_units_is_told_apart() {
        let reading = |value, unit| SectionReading {
            section: "a".to_owned(),
            metric: "Memory Throughput".to_owned(),
            reading: Reading::Number { value, unit },
        };
        let mut launch = launch(0, "a", &[]);
        launch.sections = vec![reading(91.3, Unit::PERCENT), reading(27e9, Unit::BYTE_PER_SECOND)];
        assert_eq!(launch.shown("Memory Throughput", Unit::PERCENT), Some(91.3));
        assert_eq!(launch.shown("Memory Throughput", Unit::BYTE_PER_SECOND), Some(27e9));
        launch.sections.push(reading(4.0, Unit::PERCENT));
        assert_eq!(launch.shown("Memory Throughput", Unit::PERCENT), None);
    }

    #[test]
    fn a_capability_is_two_numbers() {
        assert_eq!("9.0".parse(), Ok(Capability { major: 9, minor: 0 }));
        assert_eq!("12.1".parse::<Capability>().map(|found| found.to_string()), Ok("12.1".to_owned()));
        for text in ["9", "9.", ".0", "9.0a", "+9.0", "9.0.0", ""] {
            assert!(text.parse::<Capability>().is_err(), "{text}");
        }
    }
}
