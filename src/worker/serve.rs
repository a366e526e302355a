//! Serves one request: reads it, does its task, answers. The process ends with its parent.

use std::io::Read as _;

use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};

use super::answer::Answer;
use super::host::Host;
use super::measurement::Measurement;
use super::tune::Tried;
use super::{cpu, cuda, tune, verify};
use crate::model::protocol::{
    Candidate, Check, Failure, FailureKind, Launchable, Line, PROTOCOL, Request, Task, TuneProtocol,
};

/// The protocol could not be followed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("worker: the standard output cannot be taken: {0}")]
    Stdout(std::io::Error),
    #[error("worker: {0}")]
    Request(Failure),
    #[error("worker: {0}")]
    Answer(Failure),
}

/// Reads the request from the standard input and answers it. A task that fails is answered too, and no error here.
///
/// # Errors
/// The request cannot be understood, or the answer cannot be written.
pub fn serve() -> Result<(), ServeError> {
    // Refused on no Linux; without it a worker would outlive a runner that is killed, no more.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // A crash is an answer here, and its memory image of no use to anyone.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let mut answer = Answer::take_stdout().map_err(ServeError::Stdout)?;
    let request = match read_request() {
        Ok(request) => request,
        Err(failure) => {
            answer.line(&Line::Failed(failure.clone())).map_err(ServeError::Answer)?;
            return Err(ServeError::Request(failure));
        }
    };
    answer.line(&Line::Hello { protocol: PROTOCOL, pid: std::process::id() }).map_err(ServeError::Answer)?;
    let last = match perform(&mut answer, &request) {
        Ok(()) => Line::Done,
        Err(failure) => Line::Failed(failure),
    };
    answer.line(&last).map_err(ServeError::Answer)
}

fn perform(answer: &mut Answer, request: &Request) -> Result<(), Failure> {
    match &request.task {
        Task::Load { ns } => match &request.gpu {
            Some(gpu) => cuda::load(answer, gpu, *ns),
            None => Err(not_understood("a load is put on a GPU, and it names none".to_owned())),
        },
        Task::Hold => hold(answer, request),
        Task::Probe => cuda::probe(answer),
        Task::Toolkit => cuda::toolkit(answer),
        Task::Compile(compile) => cuda::compile(answer, compile),
        Task::Verify { launchable, check } => {
            verify::require_reference(&launchable.pipeline)?;
            measure(answer, request, launchable, check, Measurement::Verify)
        }
        Task::Event { launchable, protocol, check } => {
            measure(answer, request, launchable, check, Measurement::Event(protocol))
        }
        Task::Annotation { launchable, protocol, check } => {
            measure(answer, request, launchable, check, Measurement::Annotation(protocol))
        }
        Task::Profile { subjects, protocol, .. } => match &request.gpu {
            Some(gpu) => {
                let _pinned = Host::new(&request.cores)?;
                cuda::profile(answer, gpu, subjects, protocol)
            }
            None => Err(not_understood("Nsight Compute profiles on a GPU, and it names none".to_owned())),
        },
        Task::Timeline { launchable, protocol, check, library, .. } => match &request.gpu {
            Some(gpu) => {
                let _pinned = Host::new(&request.cores)?;
                cuda::timeline(answer, gpu, launchable, protocol, check, library.as_deref())
            }
            None => Err(not_understood("a timeline is one of a GPU, and it names none".to_owned())),
        },
        Task::Cupti { library } => cuda::cupti(answer, library),
        Task::Tune { candidates, protocol } => {
            let mut host = Host::new(&request.cores)?;
            match &request.gpu {
                Some(gpu) => cuda::tune(answer, gpu, candidates, protocol),
                None => tune_on_cpu(answer, &mut host, candidates, protocol),
            }
        }
    }
}

/// Never returns but with a failure: whoever asked ends the process.
fn hold(answer: &mut Answer, request: &Request) -> Result<(), Failure> {
    let Some(gpu) = &request.gpu else { return Err(not_understood("it names no GPU to keep open".to_owned())) };
    cuda::hold(gpu)?;
    answer.line(&Line::Held)?;
    loop {
        std::thread::park();
    }
}

fn measure(
    answer: &mut Answer,
    request: &Request,
    launchable: &Launchable,
    check: &Check,
    measurement: Measurement<'_>,
) -> Result<(), Failure> {
    let mut host = Host::new(&request.cores)?;
    if let Some(gpu) = &request.gpu {
        return cuda::measure(answer, gpu, launchable, check, measurement);
    }
    let modules = cpu::load(answer, launchable)?;
    let mut rig = cpu::Rig::prepare(answer, &mut host, &modules, &launchable.pipeline, check)?;
    measurement.take(answer, &mut rig)
}

fn tune_on_cpu(
    answer: &mut Answer,
    host: &mut Host,
    candidates: &[Candidate],
    protocol: &TuneProtocol,
) -> Result<(), Failure> {
    let mut kept = None;
    let mut time = |answer: &mut Answer, candidate: &Candidate, best_ns: f64| {
        let modules = cpu::load(answer, &candidate.launchable)?;
        let mut rig = cpu::Rig::for_candidate(answer, host, &modules, candidate, kept.take())?;
        let tried = tune::time(answer, &mut rig, candidate, protocol, best_ns);
        kept = tried.left_in_order().then(|| rig.into_buffers());
        Ok(tried)
    };
    tune::run(answer, candidates, |answer, candidate, best_ns| {
        time(answer, candidate, best_ns).unwrap_or_else(Tried::failed)
    })
}

fn read_request() -> Result<Request, Failure> {
    let mut text = String::new();
    let read = std::io::stdin().lock().read_to_string(&mut text);
    read.map_err(|error| not_understood(format!("it cannot be read: {error}")))?;
    parse(&text)
}

fn not_understood(reason: String) -> Failure {
    Failure { kind: FailureKind::Internal, stage: None, message: format!("the request is not understood: {reason}") }
}

/// The version first, so that a request of another version is refused for that reason.
fn parse(text: &str) -> Result<Request, Failure> {
    let value: serde_json::Value = serde_json::from_str(text).map_err(|error| not_understood(error.to_string()))?;
    match value.get("protocol").and_then(serde_json::Value::as_u64) {
        Some(version) if version == u64::from(PROTOCOL) => {}
        Some(version) => {
            return Err(not_understood(format!(
                "it has protocol version {version} and this worker speaks {PROTOCOL}; runner and worker must be the same program"
            )));
        }
        None => return Err(not_understood("it has no protocol version".to_owned())),
    }
    serde_json::from_value(value).map_err(|error| not_understood(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_request_is_refused_with_the_reason() {
        let reason = |text: &str| parse(text).expect_err(text).message;
        assert!(reason("").contains("not understood"));
        assert!(reason("{}").contains("no protocol version"));
        assert!(reason(r#"{"protocol": 99}"#).contains("version 99"));
        assert!(reason(r#"{"protocol": 1}"#).contains("task"));
        assert!(parse(r#"{"protocol":1,"cores":[0],"task":{"task":"tune","candidates":[],"protocol":{"min_samples":1,"max_samples":1,"budget_ns":1,"abandon_percent":1}}}"#).is_ok());
    }
}
