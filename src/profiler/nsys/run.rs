//! Nsight Systems around a worker: how it is started, and what of an answer is a result. Pure.

use std::ffi::OsString;
use std::path::Path;

use super::NsysFailure;
use crate::model::Pipeline;
use crate::model::protocol::{Check, Failure, FailureKind, Launchable, Line, Task, TimelineProtocol};
use crate::model::record::TimelineRun;
use crate::model::timeline::{Note, StageKernel};
use crate::profiler::annotation::last_verification;
use crate::profiler::missing;
use crate::timeline::iterations;

/// Program of [`around`].
pub const SHELL: &str = "/bin/sh";
/// Variables that hold LD_LIBRARY_PATH as the tool is given it, and as the worker is to have it.
pub const TOOLS_LIBRARIES: &str = "MLARUN_TOOLS_LIBRARIES";
pub const WORKERS_LIBRARIES: &str = "MLARUN_WORKERS_LIBRARIES";

/// Nsight Systems speaks on the standard output, where the worker's lines are read, and what stands before a program may not
/// hand on its descriptors. So the worker's answer goes to the place of the outermost standard output, found under the number
/// of the process that has it, the request comes from a file, and all that the tool says goes to another one.
///
/// Arguments: the log, the request, the tool's command line up to the worker's.
const OUTER: &str = r#"log=$1 request=$2
shift 2
cat >"$request" || exit 1
exec 3>&1 4>&2 >"$log" 2>&1
MLARUN_OUTER=$$ MLARUN_REQUEST=$request "$@"
exit $?"#;

/// Starts the worker with its own library path, unless the tool has put there something else; it stays, as a worker ends with the
/// process that has started it.
const INNER: &str = r#"if [ "$LD_LIBRARY_PATH" = "$MLARUN_TOOLS_LIBRARIES" ]; then LD_LIBRARY_PATH=$MLARUN_WORKERS_LIBRARIES; fi
[ -n "$LD_LIBRARY_PATH" ] || unset LD_LIBRARY_PATH
outer=$MLARUN_OUTER request=$MLARUN_REQUEST
unset MLARUN_OUTER MLARUN_REQUEST MLARUN_TOOLS_LIBRARIES MLARUN_WORKERS_LIBRARIES
"$@" <"$request" >"/proc/$outer/fd/3" 2>"/proc/$outer/fd/4"
exit $?"#;

/// Arguments of [`SHELL`] before the worker's command line. The report is written to `output` with the ending `.nsys-rep`, what
/// the tool says to `log`; `request` is a file that it may use.
pub fn around(program: &Path, output: &Path, log: &Path, request: &Path) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["-c".into(), OUTER.into(), "mlarun".into(), log.into(), request.into()];
    arguments.push(program.into());
    // No sampling of the CPU: it makes files of gigabytes.
    let options = [
        "profile",
        "-t",
        "cuda,nvtx",
        "-s",
        "none",
        "--cpuctxsw=none",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
        "-f",
        "true",
        "-o",
    ];
    arguments.extend(options.map(OsString::from));
    arguments.push(output.into());
    arguments.extend([SHELL, "-c", INNER, "mlarun"].map(OsString::from));
    arguments
}

/// Arguments that make the database `export` of a report.
pub fn export_arguments(report: &Path, export: &Path) -> Vec<OsString> {
    let mut arguments: Vec<OsString> =
        ["export", "--type", "sqlite", "--force-overwrite=true", "-o"].map(OsString::from).to_vec();
    arguments.extend([export.into(), report.into()]);
    arguments
}

/// The worker's task.
pub fn task(launchable: Launchable, protocol: TimelineProtocol, check: Check, report: Option<String>) -> Task {
    Task::Timeline { launchable, protocol, check, report, library: None }
}

impl NsysFailure {
    /// Its place among the failures of runs. None of them is ever kept as a result.
    pub fn kind(&self) -> FailureKind {
        match self {
            NsysFailure::NoActivity { .. } => FailureKind::NoKernel,
            _ => FailureKind::NoData,
        }
    }
}

impl From<NsysFailure> for Failure {
    fn from(failure: NsysFailure) -> Failure {
        Failure { kind: failure.kind(), stage: None, message: failure.to_string() }
    }
}

/// The timeline in an answer, of which every launch of the pipeline is told apart.
///
/// # Errors
/// A part of the answer is missing, or the trace does not hold the launches that were made.
pub fn collect(
    lines: &[Line],
    pipeline: &Pipeline,
    protocol: &TimelineProtocol,
    instead: Option<String>,
) -> Result<TimelineRun, Failure> {
    let timeline = lines.iter().find_map(|line| match line {
        Line::Timeline(timeline) => Some(timeline.clone()),
        _ => None,
    });
    let timeline = timeline.ok_or_else(|| missing("a timeline"))?;
    let files = lines.iter().find_map(|line| match line {
        Line::Files { files } => Some(files.clone()),
        _ => None,
    });
    // A grid without blocks launches nothing.
    let launched = pipeline.stages.iter().filter(|stage| !stage.grid.contains(&0));
    let stages: Vec<StageKernel> =
        launched.map(|stage| StageKernel { stage: stage.name.clone(), kernel: stage.entry.clone() }).collect();
    let tracer = protocol.tracer.name();
    let no_kernel = |what: String| {
        let notes: String = timeline.notes.iter().filter(|note| tells(note)).map(|note| format!("; {note}")).collect();
        Failure { kind: FailureKind::NoKernel, stage: None, message: format!("{tracer}: {what}{notes}") }
    };
    let runs = iterations(&timeline, &stages).map_err(|mismatch| no_kernel(mismatch.to_string()))?.len();
    if runs != protocol.launches as usize {
        return Err(no_kernel(format!(
            "the trace holds {runs} launches of the pipeline, and {} were made",
            protocol.launches
        )));
    }
    Ok(TimelineRun {
        tracer: protocol.tracer.clone(),
        instead,
        launches: protocol.launches,
        stages,
        timeline,
        files: files.unwrap_or_default(),
        verification: last_verification(lines)?,
    })
}

/// A note that may say why kernels are missing.
fn tells(note: &Note) -> bool {
    !matches!(note, Note::NoColumn { .. })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::{Command, Stdio};

    use super::*;

    /// A folder with a tool that says things where the worker's lines are read, closes all that it was given beside the usual
    /// three, and leaves nothing of what comes in to the program that it starts.
    fn run(library_path: &str, worker: &str) -> (std::process::Output, String) {
        use std::io::Write as _;
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| -> PathBuf { folder.path().join(name) };
        let tool = "echo before; shift 12; \"$@\" 3>&- 4>&- </dev/null; code=$?; echo after; exit $code";
        std::fs::write(path("tool"), tool).expect("written");
        let mut arguments = around(Path::new("/bin/sh"), &path("out"), &path("log"), &path("request"));
        // The tool is a script, which a shell reads.
        let place = arguments.iter().position(|argument| argument == "profile").expect("it is there");
        arguments.insert(place, path("tool").into());
        let mut child = Command::new(SHELL)
            .args(arguments)
            .args(["/bin/sh", "-c", worker])
            .envs([("LD_LIBRARY_PATH", library_path), (TOOLS_LIBRARIES, "/tool"), (WORKERS_LIBRARIES, "/own")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        child.stdin.take().expect("piped").write_all(b"the request").expect("written");
        let output = child.wait_with_output().expect("it ends");
        (output, std::fs::read_to_string(path("log")).expect("a log"))
    }

    #[test]
    fn a_worker_speaks_past_the_tool_around_it() {
        let (output, log) = run("/tool", "echo \"got $(cat)\"; echo \"$LD_LIBRARY_PATH$MLARUN_OUTER\"; echo oh >&2");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "got the request\n/own\n", "{log}");
        assert_eq!((String::from_utf8_lossy(&output.stderr).as_ref(), log.as_str()), ("oh\n", "before\nafter\n"));
        assert!(output.status.success());
        let (output, _) = run("/injected:/tool", "echo $LD_LIBRARY_PATH");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "/injected:/tool\n", "what the tool adds stays");
    }

    #[test]
    fn a_workers_end_is_that_of_the_whole() {
        let (output, _) = run("", "kill -9 $$");
        assert_eq!(output.status.code(), Some(137));
    }
}
