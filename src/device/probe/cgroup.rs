//! Limits that control groups, version 1 or 2, put on this process.

use std::path::Path;

use super::line;

/// The tightest limits of all groups that the process is in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    pub memory_bytes: Option<u64>,
    /// CPUs' worth of time.
    pub cpus: Option<f64>,
}

/// From here on the kernel's "limit" of version 1 means that there is none.
const UNLIMITED_BYTES: u64 = 1 << 60;

/// Limits according to `proc/self/cgroup` and `sys/fs/cgroup` below `root`. Groups that are not mounted (a container
/// sees its own alone) limit nothing.
pub fn limits(root: &Path) -> Limits {
    let mut limits = Limits { memory_bytes: None, cpus: None };
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    for group in groups.lines() {
        let mut fields = group.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let mount = root.join("sys/fs/cgroup").join(controllers);
        let folder = mount.join(path.trim_start_matches('/'));
        // A limit of a group holds for all groups below it.
        for folder in folder.ancestors().take_while(|folder| folder.starts_with(&mount)) {
            let has = |name| controllers.split(',').any(|controller| controller == name);
            if controllers.is_empty() {
                limits.tighten(line(&folder.join("memory.max")).and_then(|text| text.parse().ok()), cpu_max(folder));
            } else if has("memory") {
                limits.tighten(line(&folder.join("memory.limit_in_bytes")).and_then(|text| text.parse().ok()), None);
            } else if has("cpu") {
                limits.tighten(None, quota(folder));
            }
        }
    }
    limits
}

impl Limits {
    fn tighten(&mut self, memory_bytes: Option<u64>, cpus: Option<f64>) {
        if let Some(bytes) = memory_bytes.filter(|&bytes| bytes < UNLIMITED_BYTES) {
            self.memory_bytes = Some(self.memory_bytes.map_or(bytes, |known| known.min(bytes)));
        }
        if let Some(cpus) = cpus.filter(|&cpus| cpus > 0.0) {
            self.cpus = Some(self.cpus.map_or(cpus, |known| known.min(cpus)));
        }
    }
}

/// Version 2: `<quota> <period>` in microseconds; the quota may be `max`.
fn cpu_max(folder: &Path) -> Option<f64> {
    let text = line(&folder.join("cpu.max"))?;
    let (quota, period) = text.split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
}

/// Version 1: quota and period in microseconds; -1 means that there is none.
fn quota(folder: &Path) -> Option<f64> {
    let number = |file: &str| line(&folder.join(file))?.parse::<f64>().ok();
    Some(number("cpu.cfs_quota_us")? / number("cpu.cfs_period_us")?)
}
