//! Whether a profiler or a sanitizer runs this process, by the variables that it sets. Pure.

use std::ffi::OsString;

/// Parts of the names of libraries that profilers and sanitizers put before a program.
const LIBRARIES: [&str; 4] = ["nsight", "nsys", "sanitizer", "treelauncher"];
/// Starts of the names of variables that they set for it.
const VARIABLES: [&str; 6] =
    ["NVIDIA_PROCESS_INJECTION_", "NV_NSIGHT_", "NV_COMPUTE_PROFILER", "NV_SANITIZER_", "NV_TPS_", "NSYS_"];

/// One of them runs a process with these variables.
pub fn are_attached(variables: impl Iterator<Item = (OsString, OsString)>) -> bool {
    any(variables, |name, value| match name {
        "LD_PRELOAD" => LIBRARIES.iter().any(|library| value.to_lowercase().contains(library)),
        "CUDA_INJECTION64_PATH" | "NVTX_INJECTION64_PATH" => !value.is_empty(),
        _ => VARIABLES.iter().any(|start| name.starts_with(start)),
    })
}

/// Launches are made one after the other in a process with these variables, or are to be treated so.
pub fn serialise_launches(variables: impl Iterator<Item = (OsString, OsString)>) -> bool {
    let variables: Vec<_> = variables.collect();
    let said = any(variables.iter().cloned(), |name, value| {
        matches!(name, "MLARUN_NO_BLOCKING" | "CUDA_LAUNCH_BLOCKING") && !matches!(value, "" | "0")
    });
    said || are_attached(variables.into_iter())
}

fn any(mut variables: impl Iterator<Item = (OsString, OsString)>, holds: impl Fn(&str, &str) -> bool) -> bool {
    variables.any(|(name, value)| holds(&name.to_string_lossy(), &value.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(name: &str, value: &str) -> impl Iterator<Item = (OsString, OsString)> {
        [("PATH", "/bin"), (name, value)].map(|(name, value)| (name.into(), value.into())).into_iter()
    }

    #[test]
    fn launches_overlap_unless_something_says_otherwise() {
        let serialised = |name, value| serialise_launches(process(name, value));
        assert!(!serialised("HOME", "/root") && !serialised("LD_PRELOAD", "/lib/libjemalloc.so"));
        assert!(!serialised("MLARUN_NO_BLOCKING", "0") && !serialised("CUDA_LAUNCH_BLOCKING", ""));
        assert!(serialised("MLARUN_NO_BLOCKING", "1") && serialised("CUDA_LAUNCH_BLOCKING", "1"));
        assert!(!are_attached(process("CUDA_LAUNCH_BLOCKING", "1")));
    }

    #[test]
    fn profilers_and_sanitizers_are_recognised() {
        for (name, value) in [
            ("LD_PRELOAD", "/opt/nsight-compute/libTreeLauncherTargetInjection.so"),
            ("LD_PRELOAD", "/opt/compute-sanitizer/libsanitizer-collection.so"),
            ("CUDA_INJECTION64_PATH", "/opt/nsight/libcuda-injection.so"),
            ("NV_NSIGHT_INJECTION_PORT_BASE", "49152"),
            ("NVIDIA_PROCESS_INJECTION_CRASH_REPORTING", "0"),
            ("NV_SANITIZER_INJECTION_TRANSPORT_TYPE", "uds"),
            ("NSYS_PROFILING_SESSION_ID", "1"),
        ] {
            assert!(are_attached(process(name, value)) && serialise_launches(process(name, value)), "{name}={value}");
        }
    }
}
