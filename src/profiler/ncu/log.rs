//! What `ncu` says while it profiles: lines that start with `==`, among the program's own output.

/// What was said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Log {
    /// Processes that the tool attached to.
    pub processes: Vec<u64>,
    /// Launches that were profiled, in order. Not said where the table goes to the terminal.
    pub profiled: Vec<Profiled>,
    /// Kernels whose profiling failed.
    pub failed: Vec<String>,
    /// Whether it said that no kernel was profiled.
    pub no_kernels: bool,
    /// Kernels that ran and that the filter did not match.
    pub available: Vec<String>,
    /// Metrics that it says it does not know.
    pub unknown_metrics: Vec<String>,
    /// Metrics that its tables for people show as `n/a`.
    pub unavailable_metrics: Vec<String>,
    /// The report file that it wrote.
    pub report: Option<String>,
    pub warnings: Vec<String>,
    pub errors: Vec<String>,
}

/// One profiled launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profiled {
    pub kernel: String,
    pub number: u64,
    /// How often the kernel was run again.
    pub passes: Option<u32>,
}

/// Reads what was said; lines of the program's own are passed over.
pub fn read_log(text: &str) -> Log {
    let mut log = Log::default();
    let mut listing = false;
    for line in text.lines().map(str::trim_end) {
        if let Some(kernel) = listing.then(|| numbered(line)).flatten() {
            log.available.push(kernel.to_owned());
            continue;
        }
        listing = line == "Available Kernels:";
        if let Some(said) = line.strip_prefix("==PROF== ") {
            progress(&mut log, said);
        } else if let Some(said) = line.strip_prefix("==WARNING== ") {
            log.no_kernels |= said.starts_with(NO_KERNELS);
            log.warnings.push(said.to_owned());
        } else if let Some(said) = line.strip_prefix("==ERROR== ") {
            error(&mut log, said);
        } else if let Some(name) = line.strip_suffix("(!) n/a").and_then(|rest| rest.split_whitespace().next()) {
            note(&mut log.unavailable_metrics, name);
        }
    }
    log
}

const NO_KERNELS: &str = "No kernels were profiled";

fn progress(log: &mut Log, said: &str) {
    log.no_kernels |= said.starts_with(NO_KERNELS);
    if let Some(rest) = said.strip_prefix("Connected to process ") {
        log.processes.extend(rest.split(' ').next().and_then(|id| id.parse::<u64>().ok()));
    } else if said.starts_with("Target process ") {
        // It ended before its first call of CUDA.
        log.warnings.push(said.to_owned());
    } else if let Some(path) = said.strip_prefix("Report: ") {
        log.report = Some(path.trim().to_owned());
    } else if let Some(launch) = said.strip_prefix("Profiling ").and_then(profiled) {
        log.profiled.push(launch);
    }
}

fn error(log: &mut Log, said: &str) {
    log.no_kernels |= said.starts_with(NO_KERNELS);
    if let Some(kernel) = said.strip_prefix("Failed to profile ") {
        let quoted = kernel.strip_prefix('"').and_then(|rest| rest.rsplit_once('"'));
        log.failed.push(quoted.map_or(kernel, |(name, _)| name).to_owned());
    } else if let Some(name) = said.strip_prefix("Failed to find metric ") {
        note(&mut log.unknown_metrics, name.trim_end_matches('.'));
    }
    log.errors.push(said.to_owned());
}

fn note(metrics: &mut Vec<String>, name: &str) {
    if !metrics.iter().any(|known| known == name) {
        metrics.push(name.to_owned());
    }
}

/// `"name" - 3 (4/7): 0%....50%....100% - 38 passes`; a name may hold quotes, dashes and colons.
fn profiled(said: &str) -> Option<Profiled> {
    let (kernel, rest) = said.strip_prefix('"')?.rsplit_once("\" - ")?;
    let (number, _) = rest.split_once([':', ' '])?;
    let passes = rest.rsplit_once(" - ").and_then(|(_, passes)| passes.split_once(" pass")?.0.parse().ok());
    Some(Profiled { kernel: kernel.to_owned(), number: number.parse().ok()?, passes })
}

/// `3. name`.
fn numbered(line: &str) -> Option<&str> {
    let (number, name) = line.split_once(". ")?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn launches_are_told_with_their_passes() {
        let log = read_log(
            "==PROF== Profiling \"void f<\"x\" - 1>: a\" - 12 (13/40): 0%....50%....100% - 1 pass\n\
             ==PROF== Profiling \"g\" - 13: 0%..\n",
        );
        let first = Profiled { kernel: "void f<\"x\" - 1>: a".to_owned(), number: 12, passes: Some(1) };
        assert_eq!(log.profiled, [first, Profiled { kernel: "g".to_owned(), number: 13, passes: None }]);
    }

    #[test]
    fn failures_name_kernels_and_metrics() {
        let log = read_log(
            "==ERROR== Failed to profile \"f<int>\" in process 7\n==ERROR== Failed to find metric a__b.sum\n\
             ==ERROR== Failed to find metric a__b.sum\n",
        );
        assert_eq!((log.failed, log.unknown_metrics), (vec!["f<int>".to_owned()], vec!["a__b.sum".to_owned()]));
        assert_eq!(log.errors.len(), 3);
    }

    #[test]
    fn the_list_of_kernels_ends_with_its_last_line() {
        let log = read_log("Available Kernels:\n1. a\n2. b, c\ndone\n3. said by the program\n");
        assert_eq!(log.available, ["a", "b, c"]);
        assert_eq!(read_log("1. a\n").available, [""; 0]);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "((==PROF== |==ERROR== |Profiling |Failed to profile |\"| - |:|\n|[0-9]|é){0,3}){0,12}") {
            drop(read_log(&text));
        }
    }
}
