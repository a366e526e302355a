//! NVIDIA's compute-sanitizer: how it is started around a worker, and what its log says. Pure.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What the program is called.
pub const PROGRAM: &str = "compute-sanitizer";
/// Every line of a log starts with it.
const PREFIX: &str = "=========";
/// Exit code that says that something was found.
const FOUND: &str = "86";
/// Findings that a log holds at most; the first one is told.
const MOST_FINDINGS: &str = "20";
/// Bytes behind every allocation that belong to none, so that an access there does not land in the next one.
const PADDING: &str = "1048576";

/// One of its tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SanitizerTool {
    /// Accesses beside buffers, misaligned ones, faults of the hardware.
    Memcheck,
    /// Accesses to shared memory that no barrier orders.
    Racecheck,
}

impl SanitizerTool {
    /// Every tool, in the order in which they are used.
    pub const ALL: [SanitizerTool; 2] = [SanitizerTool::Memcheck, SanitizerTool::Racecheck];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            SanitizerTool::Memcheck => "memcheck",
            SanitizerTool::Racecheck => "racecheck",
        }
    }

    /// It is used on a run's own shape too. Racecheck is the slower one, and what it looks at, the shared memory of one block,
    /// is on the reduced shape as on any other.
    pub const fn watches_own_shape(self) -> bool {
        matches!(self, SanitizerTool::Memcheck)
    }
}

impl fmt::Display for SanitizerTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No tool has that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no tool of the sanitizer; choose memcheck, racecheck, or both as memcheck,racecheck")]
pub struct UnknownTool(String);

impl FromStr for SanitizerTool {
    type Err = UnknownTool;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        SanitizerTool::ALL.into_iter().find(|tool| tool.name() == name).ok_or_else(|| UnknownTool(name.to_owned()))
    }
}

/// Arguments before the worker's command line. mlarun's own kernels are not watched: they make inputs and reference, and
/// would take most of the time.
pub fn arguments(tool: SanitizerTool, log: &Path) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = [
        "--tool",
        tool.name(),
        "--error-exitcode",
        FOUND,
        "--print-limit",
        MOST_FINDINGS,
        "--show-backtrace",
        "no",
        "--kernel-name-exclude",
        "kns=mlarun_",
    ]
    .map(OsString::from)
    .to_vec();
    if tool == SanitizerTool::Memcheck {
        // What a call of the driver refuses is told by the worker, with what it was for.
        arguments.extend(["--report-api-errors", "no", "--padding", PADDING].map(OsString::from));
    }
    arguments.push("--log-file".into());
    // In this argument, % starts a replacement.
    arguments.push(log.to_string_lossy().replace('%', "%%").into());
    arguments
}

/// The first thing that a tool found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What, where and by whom, in one line.
    pub text: String,
    /// The function that ran, where the log names one.
    pub kernel: Option<String>,
    /// Findings in all, as the tool counts them.
    pub count: u64,
}

/// A log does not say whether something was found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    #[error("it ended without its summary{}", said(.last))]
    NoSummary {
        /// The last thing that it says.
        last: Option<String>,
    },
    /// The tool itself failed, so that what it did not find says nothing.
    #[error("{0}")]
    Internal(String),
}

fn said(last: &Option<String>) -> String {
    last.as_ref().map(|last| format!("; it says: {last}")).unwrap_or_default()
}

/// What a whole log tells: the first finding, or that nothing was found.
///
/// # Errors
/// The tool failed, or did not come to its end.
pub fn read_log(log: &str) -> Result<Option<Finding>, LogError> {
    let messages = messages(log);
    let is_heading = |message: &&Vec<&str>| message[0] == "COMPUTE-SANITIZER" || summary(message[0]).is_some();
    let mut told = messages.iter().filter(|message| !is_heading(message));
    if let Some(internal) = messages.iter().find(|message| message[0].starts_with("Internal Sanitizer Error")) {
        return Err(LogError::Internal(one_line(internal)));
    }
    let Some(count) = messages.iter().find_map(|message| summary(message[0])) else {
        return Err(LogError::NoSummary { last: told.next_back().map(|message| one_line(message)) });
    };
    if count == 0 {
        return Ok(None);
    }
    let first = told.next().map_or_else(|| vec!["what it is, the log does not say"], Clone::clone);
    let text = one_line(&first);
    Ok(Some(Finding { kernel: kernel(&text), text, count }))
}

/// The log's messages, each a line and the indented ones below it, without what only debuggers read.
fn messages(log: &str) -> Vec<Vec<&str>> {
    let mut messages: Vec<Vec<&str>> = Vec::new();
    for line in log.lines().filter_map(|line| line.strip_prefix(PREFIX)) {
        let text = line.trim();
        if text.is_empty() || text.starts_with("Saved host backtrace") || text.starts_with("Host Frame") {
            continue;
        }
        match messages.last_mut() {
            Some(message) if line.starts_with("  ") => message.push(text),
            _ => messages.push(vec![text]),
        }
    }
    messages
}

/// A message's lines after one another; one that starts a sentence is set off.
fn one_line(message: &[&str]) -> String {
    let mut text = String::new();
    for line in message {
        let starts_sentence = line.starts_with(|first: char| first.is_uppercase());
        text.push_str(if text.is_empty() {
            ""
        } else if starts_sentence {
            "; "
        } else {
            " "
        });
        text.push_str(line);
    }
    text
}

/// Number of findings, where `line` is a summary.
fn summary(line: &str) -> Option<u64> {
    let (_, count) = line.split_once(" SUMMARY: ")?;
    count.split(' ').next()?.replace(',', "").parse().ok()
}

/// `copy` of `… at copy+0x100 in copy.cu:5 …`.
fn kernel(text: &str) -> Option<String> {
    let (_, after) = text.split_once(" at ")?;
    let name = after.split(['+', ' ']).next()?;
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMCHECK: &str = include_str!("fixtures/memcheck.log");
    const MEMCHECK_CLEAN: &str = include_str!("fixtures/memcheck-clean.log");
    const MEMCHECK_BACKTRACE: &str = include_str!("fixtures/memcheck-backtrace.log");
    const RACECHECK: &str = include_str!("fixtures/racecheck.log");
    const RACECHECK_CLEAN: &str = include_str!("fixtures/racecheck-clean.log");
    const INTERNAL: &str = include_str!("fixtures/internal.log");
    const NO_CUDA: &str = include_str!("fixtures/no-cuda.log");

    #[test]
    fn a_read_beside_a_buffer_is_told_in_one_line() {
        let finding = read_log(MEMCHECK).expect("it is whole").expect("there is one");
        assert_eq!(
            finding.text,
            "Invalid __global__ read of size 4 bytes at copy+0x100 in copy.cu:5 by thread (96,0,0) in block (0,0,0); \
             Access to 0x7fee6e802180 is out of bounds and is 385 bytes after the nearest allocation at 0x7fee6e801000 \
             of size 4,096 bytes"
        );
        assert_eq!((finding.kernel.as_deref(), finding.count), (Some("copy"), 1024));
        let with_backtrace = read_log(MEMCHECK_BACKTRACE).expect("it is whole").expect("there is one");
        assert!(with_backtrace.text.ends_with("of size 4,096 bytes"), "{}", with_backtrace.text);
    }

    #[test]
    fn a_race_is_told_with_both_of_its_sides() {
        let finding = read_log(RACECHECK).expect("it is whole").expect("there is one");
        assert_eq!(
            finding.text,
            "Error: Race reported between Write access at copy+0x100 in copy.cu:9 and Read access at copy+0x110 in \
             copy.cu:11 [56 hazards]"
        );
        assert_eq!((finding.kernel.as_deref(), finding.count), (Some("copy"), 1));
    }

    #[test]
    fn nothing_was_found_only_where_the_summary_says_so() {
        assert_eq!(read_log(MEMCHECK_CLEAN), Ok(None));
        assert_eq!(read_log(RACECHECK_CLEAN), Ok(None));
        assert_eq!(read_log(""), Err(LogError::NoSummary { last: None }));
        let error = read_log(NO_CUDA).expect_err("it ended early").to_string();
        assert!(error.contains("terminated before first instrumented API call"), "{error}");
        let error = read_log(INTERNAL).expect_err("the tool failed").to_string();
        assert!(error.starts_with("Internal Sanitizer Error: The Sanitizer failed"), "{error}");
        let cut = &MEMCHECK[..MEMCHECK.find("ERROR SUMMARY").expect("it has one")];
        let error = read_log(cut).expect_err("it has no summary").to_string();
        assert!(error.contains("without its summary; it says: Invalid __global__ read"), "{error}");
    }

    #[test]
    fn tools_are_known_by_their_names() {
        assert_eq!("racecheck".parse(), Ok(SanitizerTool::Racecheck));
        let error = "valgrind".parse::<SanitizerTool>().expect_err("it is none").to_string();
        assert!(error.contains("memcheck"), "{error}");
        let log = Path::new("/tmp/100%/log");
        let arguments = arguments(SanitizerTool::Racecheck, log);
        assert!(arguments.contains(&"/tmp/100%%/log".into()) && !arguments.contains(&"--padding".into()));
    }
}
