//! Whether a run of Nsight Compute is a result. Each way to fail says what to do about it, and none is ever kept as a result.

use super::{Log, ReadError};
use crate::model::ncu::NcuReport;
use crate::model::quantity::Reading;

/// What the tool was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// Metrics by their exact names.
    pub metrics: Vec<String>,
    /// How many launches it was to profile, where that is known.
    pub launches: Option<usize>,
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NcuFailure {
    #[error(
        "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM). An administrator permits it with \
         `options nvidia NVreg_RestrictProfilingToAdminUsers=0` in a file under /etc/modprobe.d/, and a reboot or a reload of \
         the nvidia module; in a container, start it with the capability SYS_ADMIN (docker run --cap-add=SYS_ADMIN); or run \
         as root"
    )]
    NoPermission,
    #[error(
        "Nsight Compute does not deliver these metrics on this GPU: {}. `ncu --query-metrics` lists those that it knows; name \
         them in conf/metrics.toml",
        names.join(", ")
    )]
    UnknownMetrics { names: Vec<String> },
    #[error(
        "no kernel was profiled: the filter matches none of those that ran{}. Check the kernel's exact name and the range \
         between cuProfilerStart and cuProfilerStop",
        listed(available)
    )]
    NoKernelMatched { available: Vec<String> },
    #[error(
        "there was not enough memory to save and restore the device's memory for replaying{}: run a smaller shape, free memory \
         on the GPU and the host, or ask for metrics that need one pass",
        of_kernel(kernel)
    )]
    ReplayOutOfMemory { kernel: Option<String> },
    #[error("Nsight Compute failed{}: {said}", of_kernel(kernel))]
    Failed { kernel: Option<String>, said: String },
    #[error(
        "Nsight Compute ended without a failure and without data; it said: {}. Run the same command by hand to see all of its \
         output",
        if said.is_empty() { "nothing" } else { said }
    )]
    NoData { said: String },
    #[error("Nsight Compute profiled {found} launches and {wanted} were asked for; profile again")]
    Launches { wanted: usize, found: usize },
    #[error("Nsight Compute profiled `{found}` where stage `{stage}` launches `{wanted}`; profile again")]
    OtherKernel { stage: String, wanted: String, found: String },
    #[error("{0}")]
    Unreadable(ReadError),
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) }
}

fn of_kernel(kernel: &Option<String>) -> String {
    kernel.as_ref().map(|kernel| format!(" of `{kernel}`")).unwrap_or_default()
}

/// The report if it is a result: the tool reported no failure, every launch is there, and each metric that was asked for was
/// delivered for one launch at least. Those that single launches lack, [`NcuReport::undelivered`] names.
///
/// # Errors
/// The first reason that holds, by how much it explains: a lack of permission explains all others.
pub fn judge(log: &Log, read: Result<NcuReport, ReadError>, asked: &Asked) -> Result<NcuReport, NcuFailure> {
    refused(log, asked)?;
    let report = match read {
        Ok(report) if report.launches.is_empty() => return Err(no_data(log)),
        Ok(report) => report,
        Err(ReadError::NoTable) => return Err(no_data(log)),
        Err(error) => return Err(NcuFailure::Unreadable(error)),
    };
    let found = report.launches.len();
    match asked.launches {
        Some(wanted) if wanted != found => return Err(NcuFailure::Launches { wanted, found }),
        None if log.profiled.len() > found => return Err(NcuFailure::Launches { wanted: log.profiled.len(), found }),
        _ => {}
    }
    let nowhere = |metric: &&String| {
        report.launches.iter().all(|launch| match launch.metrics.get(metric.as_str()) {
            None => true,
            Some(Reading::Absent { reason }) => reason == "n/a",
            Some(_) => false,
        })
    };
    let names: Vec<String> = asked.metrics.iter().filter(nowhere).cloned().collect();
    if names.is_empty() { Ok(report) } else { Err(NcuFailure::UnknownMetrics { names }) }
}

/// What the tool itself said went wrong.
fn refused(log: &Log, asked: &Asked) -> Result<(), NcuFailure> {
    let mut said = log.errors.iter().chain(&log.warnings);
    if said.any(|line| line.contains("ERR_NVGPUCTRPERM")) {
        return Err(NcuFailure::NoPermission);
    }
    let kernel = log.failed.first().cloned();
    let starved = |line: &String| {
        let line = line.to_ascii_lowercase();
        ["out of memory", "outofmemory", "bad allocation", "failed to save memory", "failed to restore memory"]
            .iter()
            .any(|cause| line.contains(cause))
    };
    if log.errors.iter().any(starved) {
        return Err(NcuFailure::ReplayOutOfMemory { kernel });
    }
    let missed = log.unavailable_metrics.iter().filter(|name| asked.metrics.contains(name));
    let names: Vec<String> = log.unknown_metrics.iter().chain(missed).cloned().collect();
    if !names.is_empty() {
        return Err(NcuFailure::UnknownMetrics { names });
    }
    if !log.errors.is_empty() {
        return Err(NcuFailure::Failed { kernel, said: log.errors.join("; ") });
    }
    if log.no_kernels {
        return Err(NcuFailure::NoKernelMatched { available: log.available.clone() });
    }
    Ok(())
}

fn no_data(log: &Log) -> NcuFailure {
    NcuFailure::NoData { said: log.warnings.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::super::{read_log, read_raw};
    use super::*;
    use crate::model::ncu::KernelNames;

    const PAGE: &str = "\"ID\",\"Kernel Name\",\"a.sum\",\"b.sum\"\n\"\",\"\",\"%\",\"%\"\n\"0\",\"f\",\"1\",\"n/a\"\n\"1\",\"f\",\"n/a\",\"n/a\"\n";

    fn judged(log: &str, page: &str, metrics: &[&str], launches: Option<usize>) -> Result<NcuReport, NcuFailure> {
        let asked = Asked { metrics: metrics.iter().map(|&name| name.to_owned()).collect(), launches };
        judge(&read_log(log), read_raw(page, KernelNames::Function), &asked)
    }

    #[test]
    fn a_metric_that_one_launch_has_is_known() {
        let report = judged("", PAGE, &["a.sum"], Some(2)).expect("it is a result");
        let asked = ["a.sum".to_owned()];
        let missing: Vec<_> = report.undelivered(&asked).map(|missing| missing.launch.id.number).collect();
        assert_eq!(missing, [1]);
    }

    #[test]
    fn a_metric_that_no_launch_has_is_unknown() {
        let failure = judged("", PAGE, &["a.sum", "b.sum", "c.sum"], None).expect_err("two are missing");
        assert_eq!(failure, NcuFailure::UnknownMetrics { names: vec!["b.sum".to_owned(), "c.sum".to_owned()] });
    }

    #[test]
    fn permission_explains_everything_else() {
        let log = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target device 0.\n\
                   ==WARNING== No kernels were profiled.\n";
        let failure = judged(log, PAGE, &[], None).expect_err("not permitted");
        assert_eq!(failure, NcuFailure::NoPermission);
        assert!(failure.to_string().contains("NVreg_RestrictProfilingToAdminUsers=0"));
    }

    #[test]
    fn each_way_to_fail_has_its_own_name() {
        let starved = "==WARNING== Backing up device memory in system memory. Kernel replay might be slow.\n\
                       ==ERROR== Unhandled C++ exception: bad allocation\n==ERROR== Failed to profile \"f\"\n";
        assert_eq!(judged(starved, "", &[], None), Err(NcuFailure::ReplayOutOfMemory { kernel: Some("f".to_owned()) }));
        let failed =
            "==ERROR== UnknownError\n==ERROR== Failed to profile \"f\"\n==WARNING== No kernels were profiled.\n";
        let said = "UnknownError; Failed to profile \"f\"".to_owned();
        assert_eq!(judged(failed, "", &[], None), Err(NcuFailure::Failed { kernel: Some("f".to_owned()), said }));
        let unknown = "==ERROR== Failed to find metric x.sum\n==ERROR== Failed to profile \"f\"\n";
        assert_eq!(judged(unknown, "", &[], None), Err(NcuFailure::UnknownMetrics { names: vec!["x.sum".to_owned()] }));
        assert_eq!(judged("", "", &[], None), Err(NcuFailure::NoData { said: String::new() }));
        let ended = "Target process 41 terminated before first instrumented API call.".to_owned();
        assert_eq!(judged(&format!("==PROF== {ended}\n"), "", &[], None), Err(NcuFailure::NoData { said: ended }));
        assert_eq!(
            judged("done\n", "\"ID\",\"Kernel Name\"\n", &[], None),
            Err(NcuFailure::NoData { said: String::new() })
        );
        assert_eq!(judged("", PAGE, &[], Some(3)), Err(NcuFailure::Launches { wanted: 3, found: 2 }));
        let cut = &PAGE[..PAGE.len() - 3];
        assert_eq!(judged("", cut, &[], None), Err(NcuFailure::Unreadable(ReadError::Truncated { line: 4 })));
    }

    #[test]
    fn a_metric_that_nobody_asked_for_may_be_unavailable() {
        let shown = "    other.sum                  (!) n/a\n";
        assert!(judged(shown, PAGE, &["a.sum"], Some(2)).is_ok());
        let failure = judged(shown, PAGE, &["a.sum", "other.sum"], Some(2)).expect_err("it was asked for");
        assert_eq!(failure, NcuFailure::UnknownMetrics { names: vec!["other.sum".to_owned()] });
    }

    #[test]
    fn memory_backed_up_in_the_host_is_no_failure() {
        let log = "==WARNING== Backing up device memory in system memory. Kernel replay might be slow.\n";
        assert!(judged(log, PAGE, &["a.sum"], Some(2)).is_ok());
    }
}
