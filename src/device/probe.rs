//! Reads what the host's CPU is from /proc, /sys and /etc below a given root. Starts no process.

mod cgroup;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::model::ncu::NcuOffer;
use crate::model::{Device, DeviceId, DeviceKind};

/// The host's CPU cannot be described.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("{}: {error}; mlarun needs a Linux host with /proc mounted", path.display())]
    Unreadable { path: PathBuf, error: std::io::Error },
    #[error("{}: lacks `{field}`; mlarun needs a Linux host with /proc mounted", path.display())]
    Lacking { path: PathBuf, field: &'static str },
    #[error("the cores that this process may run on cannot be asked for: {0}")]
    Affinity(std::io::Error),
    #[error("this process may run on no core; check the affinity mask it was started with")]
    NoCore,
}

/// The host's CPU as a device, and the host around it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Host {
    pub device: Device,
    /// Model of the CPU beside a device that is another one.
    #[serde(default)]
    pub cpu: Option<String>,
    /// Bytes of the machine's memory.
    pub memory_total_bytes: u64,
    /// CPUs' worth of time that a control group allows, where one limits it.
    pub cpu_limit: Option<f64>,
    /// Clocks in Hz, by name (`current`, `max`), where the host tells.
    pub clocks_hz: BTreeMap<String, f64>,
    /// Frequency governor of the first core, where the host tells.
    pub governor: Option<String>,
    pub name: String,
    /// Kernel and distribution.
    pub os: String,
    /// Nsight Compute, or why there is none; absent where nobody looked, as on a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nsight_compute: Option<Result<NcuOffer, String>>,
    /// Version of Nsight Systems, or why there is none that can be used; absent where nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nsight_systems: Option<Result<String, String>>,
    /// Version of CUPTI, or why there is none that can be used; absent where nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cupti: Option<Result<u32, String>>,
}

/// Describes the CPU of this host.
///
/// # Errors
/// /proc is missing, or the affinity mask cannot be read.
pub fn host() -> Result<Host, HostError> {
    let mask = rustix::thread::sched_getaffinity(None).map_err(|error| HostError::Affinity(error.into()))?;
    let cores = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| mask.is_set(core));
    host_below(Path::new("/"), &cores.filter_map(|core| u32::try_from(core).ok()).collect::<Vec<_>>())
}

/// Describes the CPU of the host whose `proc`, `sys` and `etc` lie below `root`, for a process that may run on `cores`.
///
/// # Errors
/// See [`HostError`].
pub fn host_below(root: &Path, cores: &[u32]) -> Result<Host, HostError> {
    let limits = cgroup::limits(root);
    let allowed = limits.cpus.map_or(cores.len(), |cpus| (cpus as usize).clamp(1, cores.len().max(1)));
    let cores: Vec<u32> = cores.iter().copied().take(allowed).collect();
    let first = *cores.first().ok_or(HostError::NoCore)?;
    let cpu = first_cpu(root)?;
    let memory = |field| memory(root, field);
    let (total, available) = (memory("MemTotal")?, memory("MemAvailable")?);
    let units = u32::try_from(cores.len()).unwrap_or(u32::MAX);
    let id = DeviceId { kind: DeviceKind::Cpu, name: model(&cpu), uuid: None, units };
    let device = Device {
        id,
        memory_bytes: limits.memory_bytes.map_or(available, |limit| limit.min(available)),
        last_level_cache_bytes: last_level_cache(root, &cores),
        cores,
        gpu: None,
    };
    Ok(Host {
        device,
        cpu: None,
        memory_total_bytes: total,
        cpu_limit: limits.cpus,
        clocks_hz: clocks(root, first, &cpu),
        governor: line(&frequency(root, first).join("scaling_governor")),
        name: line(&root.join("proc/sys/kernel/hostname")).unwrap_or_else(|| "unknown".into()),
        os: os(root),
        nsight_compute: None,
        nsight_systems: None,
        cupti: None,
    })
}

/// Fields of the first CPU in /proc/cpuinfo; further ones are not even made by the kernel.
fn first_cpu(root: &Path) -> Result<BTreeMap<String, String>, HostError> {
    let path = root.join("proc/cpuinfo");
    let unreadable = |error| HostError::Unreadable { path: path.clone(), error };
    let lines = BufReader::new(File::open(&path).map_err(unreadable)?).lines();
    let block = lines.take_while(|line| line.as_ref().map_or(true, |line| !line.trim().is_empty()));
    let mut fields = BTreeMap::new();
    for line in block {
        if let Some((name, value)) = line.map_err(unreadable)?.split_once(':') {
            fields.insert(name.trim().to_owned(), value.trim().to_owned());
        }
    }
    Ok(fields)
}

/// Name of the CPU's model; where the kernel has no name for it (many ARM cores), its numbers.
fn model(cpu: &BTreeMap<String, String>) -> String {
    let field = |name: &str| cpu.get(name).filter(|value| !value.is_empty());
    match (field("model name"), field("CPU implementer"), field("CPU part")) {
        (Some(name), ..) => name.split_whitespace().collect::<Vec<_>>().join(" "),
        (None, Some(implementer), Some(part)) => format!("CPU implementer {implementer} part {part}"),
        _ => format!("unnamed {} CPU", std::env::consts::ARCH),
    }
}

/// A field of /proc/meminfo in bytes.
fn memory(root: &Path, field: &'static str) -> Result<u64, HostError> {
    let path = root.join("proc/meminfo");
    let text = fs::read_to_string(&path).map_err(|error| HostError::Unreadable { path: path.clone(), error })?;
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kibibytes = value.and_then(|value| value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kibibytes.map(|kibibytes| kibibytes * 1024).ok_or(HostError::Lacking { path, field })
}

/// Bytes of all last-level caches that `cores` reach together; 0 where the host does not tell.
fn last_level_cache(root: &Path, cores: &[u32]) -> u64 {
    let caches: BTreeSet<(String, u64)> = cores.iter().filter_map(|&core| cache_of(root, core)).collect();
    caches.into_iter().map(|(_, bytes)| bytes).sum()
}

/// The highest cache of one core: which cores share it, and its size in bytes.
fn cache_of(root: &Path, core: u32) -> Option<(String, u64)> {
    let folders = fs::read_dir(cpu_folder(root, core).join("cache")).ok()?;
    let of_level = |folder: PathBuf| -> Option<(u32, PathBuf)> {
        let holds_data = line(&folder.join("type")).is_some_and(|kind| kind != "Instruction");
        Some((line(&folder.join("level"))?.parse().ok()?, folder)).filter(|_| holds_data)
    };
    let (_, folder) = folders.flatten().filter_map(|entry| of_level(entry.path())).max()?;
    Some((line(&folder.join("shared_cpu_list"))?, bytes(&line(&folder.join("size"))?)?))
}

/// A size as /sys prints it: `512`, `32768K`, `32M`.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

fn clocks(root: &Path, core: u32, cpu: &BTreeMap<String, String>) -> BTreeMap<String, f64> {
    let kilohertz = |file: &str| Some(line(&frequency(root, core).join(file))?.parse::<f64>().ok()? * 1e3);
    let megahertz = || Some(cpu.get("cpu MHz")?.parse::<f64>().ok()? * 1e6);
    let current = kilohertz("scaling_cur_freq").or_else(megahertz);
    let named = [("current", current), ("max", kilohertz("cpuinfo_max_freq"))];
    named.into_iter().filter_map(|(name, clock)| Some((name.to_owned(), clock?))).collect()
}

fn os(root: &Path) -> String {
    let kernel = |name: &str| line(&root.join("proc/sys/kernel").join(name));
    let release = fs::read_to_string(root.join("etc/os-release")).unwrap_or_default();
    let pretty = release.lines().find_map(|line| Some(line.strip_prefix("PRETTY_NAME=")?.trim_matches('"').to_owned()));
    let parts = [kernel("ostype"), kernel("osrelease"), pretty.map(|name| format!("({name})"))];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn cpu_folder(root: &Path, core: u32) -> PathBuf {
    root.join(format!("sys/devices/system/cpu/cpu{core}"))
}

fn frequency(root: &Path, core: u32) -> PathBuf {
    cpu_folder(root, core).join("cpufreq")
}

/// The one line of a small file that a host may lack.
fn line(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host made of files.
    struct Fixture(tempfile::TempDir);

    impl Fixture {
        fn new() -> Fixture {
            let fixture = Fixture(tempfile::tempdir().expect("a folder"));
            let cpu = "processor\t: 0\nmodel name\t: EPYC  7763\ncpu MHz\t\t: 2445.5\n\nprocessor\t: 1\nmodel name\t: other\n";
            fixture
                .write("proc/cpuinfo", cpu)
                .write("proc/meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:   800 kB\n")
                .write("proc/sys/kernel/hostname", "alpha\n")
                .write("proc/sys/kernel/ostype", "Linux\n")
                .write("proc/sys/kernel/osrelease", "6.1.0\n")
                .write("etc/os-release", "ID=debian\nPRETTY_NAME=\"Debian 12\"\n");
            for core in 0..4 {
                fixture.cache(core, 1, "Instruction", "32K", &core.to_string()).cache(
                    core,
                    2,
                    "Unified",
                    "1M",
                    &core.to_string(),
                );
                fixture.cache(core, 3, "Unified", "32768K", if core < 2 { "0-1" } else { "2-3" });
            }
            fixture
        }

        fn write(&self, path: &str, text: &str) -> &Self {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, text).expect("written");
            self
        }

        fn cache(&self, core: u32, level: u32, kind: &str, size: &str, shared: &str) -> &Self {
            let folder = format!("sys/devices/system/cpu/cpu{core}/cache/index{level}");
            for (file, text) in
                [("level", &*level.to_string()), ("type", kind), ("size", size), ("shared_cpu_list", shared)]
            {
                self.write(&format!("{folder}/{file}"), &format!("{text}\n"));
            }
            self
        }

        fn host(&self, cores: &[u32]) -> Host {
            host_below(self.0.path(), cores).expect("a host")
        }
    }

    #[test]
    fn a_plain_host_is_described() {
        let host = Fixture::new().host(&[0, 1]);
        let id = DeviceId { kind: DeviceKind::Cpu, name: "EPYC 7763".into(), uuid: None, units: 2 };
        let device =
            Device { id, memory_bytes: 800 * 1024, last_level_cache_bytes: 32 << 20, cores: vec![0, 1], gpu: None };
        assert_eq!(
            host,
            Host {
                device,
                cpu: None,
                memory_total_bytes: 1000 * 1024,
                cpu_limit: None,
                clocks_hz: [("current".to_owned(), 2445.5e6)].into(),
                governor: None,
                name: "alpha".into(),
                os: "Linux 6.1.0 (Debian 12)".into(),
                nsight_compute: None,
                nsight_systems: None,
                cupti: None,
            }
        );
    }

    #[test]
    fn the_last_level_caches_of_all_cores_count_once_each() {
        let fixture = Fixture::new();
        assert_eq!(fixture.host(&[1, 2, 3]).device.last_level_cache_bytes, 64 << 20);
        assert_eq!(fixture.host(&[3]).device.last_level_cache_bytes, 32 << 20);
        assert_eq!(fixture.host(&[9]).device.last_level_cache_bytes, 0);
    }

    #[test]
    fn the_second_version_of_control_groups_limits_memory_and_cores() {
        let fixture = Fixture::new();
        fixture.write("proc/self/cgroup", "0::/a/b\n");
        fixture.write("sys/fs/cgroup/a/b/memory.max", "max\n").write("sys/fs/cgroup/a/memory.max", "409600\n");
        fixture.write("sys/fs/cgroup/a/b/cpu.max", "250000 100000\n").write("sys/fs/cgroup/a/cpu.max", "max 100000\n");
        let host = fixture.host(&[0, 1, 2, 3]);
        assert_eq!((host.device.memory_bytes, host.cpu_limit), (409_600, Some(2.5)));
        assert_eq!((host.device.cores, host.device.id.units), (vec![0, 1], 2));
    }

    #[test]
    fn the_first_version_of_control_groups_limits_memory_and_cores() {
        let fixture = Fixture::new();
        fixture.write("proc/self/cgroup", "4:memory:/box\n1:cpu,cpuacct:/\n0::/\n");
        fixture.write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "409600\n");
        fixture.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        fixture.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n");
        fixture.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
        let host = fixture.host(&[2, 3]);
        assert_eq!((host.device.memory_bytes, host.cpu_limit), (409_600, Some(0.5)));
        assert_eq!(host.device.cores, [2], "half a core's time is still a core");
    }

    #[test]
    fn a_group_without_limits_limits_nothing() {
        let fixture = Fixture::new();
        fixture.write("proc/self/cgroup", "4:memory:/\n1:cpu:/\n");
        fixture.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        fixture
            .write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
            .write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
        let host = fixture.host(&[0, 1]);
        assert_eq!((host.device.memory_bytes, host.cpu_limit, host.device.id.units), (800 * 1024, None, 2));
    }

    #[test]
    fn clocks_come_from_cpufreq_where_it_is_there() {
        let fixture = Fixture::new();
        let folder = "sys/devices/system/cpu/cpu1/cpufreq";
        fixture.write(&format!("{folder}/scaling_cur_freq"), "3500000\n");
        fixture.write(&format!("{folder}/cpuinfo_max_freq"), "3700000\n");
        fixture.write(&format!("{folder}/scaling_governor"), "performance\n");
        let host = fixture.host(&[1]);
        assert_eq!(host.clocks_hz, [("current".to_owned(), 3.5e9), ("max".to_owned(), 3.7e9)].into());
        assert_eq!(host.governor.as_deref(), Some("performance"));
    }

    #[test]
    fn a_cpu_without_a_name_is_told_by_its_numbers() {
        let fixture = Fixture::new();
        fixture.write("proc/cpuinfo", "processor : 0\nCPU implementer : 0x41\nCPU part : 0xd0c\n");
        assert_eq!(fixture.host(&[0]).device.id.name, "CPU implementer 0x41 part 0xd0c");
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let fixture = Fixture::new();
        fixture.write("proc/meminfo", "MemTotal: 1000 kB\n");
        let error = host_below(fixture.0.path(), &[0]).expect_err("no MemAvailable");
        assert!(error.to_string().contains("meminfo: lacks `MemAvailable`"), "{error}");
        fs::remove_file(fixture.0.path().join("proc/cpuinfo")).expect("removed");
        let error = host_below(fixture.0.path(), &[0]).expect_err("no cpuinfo");
        assert!(error.to_string().contains("proc/cpuinfo"), "{error}");
        assert!(matches!(host_below(fixture.0.path(), &[]), Err(HostError::NoCore)));
    }

    #[test]
    fn this_host_has_a_core_and_memory() {
        let device = host().expect("a host").device;
        assert!(device.id.units >= 1 && device.cores.len() == device.id.units as usize && device.memory_bytes > 0);
    }
}
