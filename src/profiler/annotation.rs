//! Annotation mode on the CPU: every stage by itself, with hardware counters where the host gives them.

use super::missing;
use crate::model::protocol::{AnnotationProtocol, Check, Counters, Failure, Launchable, Line, Task, Verification};
use crate::model::record::{AnnotationPass, StageMeasurement};

/// The worker's task.
pub fn task(launchable: Launchable, protocol: AnnotationProtocol, check: Check) -> Task {
    Task::Annotation { launchable, protocol, check }
}

/// The pass in a worker's answer.
///
/// # Errors
/// A part of the answer is missing.
pub fn collect(lines: &[Line]) -> Result<AnnotationPass, Failure> {
    let counters_of = |stage: &str| {
        lines.iter().find_map(|line| match line {
            Line::Counters { stage: of, counters } if of == stage => Some(counters.clone()),
            _ => None,
        })
    };
    let stages: Vec<StageMeasurement> = lines
        .iter()
        .filter_map(|line| match line {
            Line::StageSamples { stage, ns } if !ns.is_empty() => Some(StageMeasurement {
                stage: stage.clone(),
                ns: ns.clone(),
                counters: counters_of(stage)
                    .unwrap_or_else(|| Counters::Absent { reason: "the worker reported none".to_owned() }),
                launch: None,
            }),
            _ => None,
        })
        .collect();
    if stages.is_empty() {
        return Err(missing("a measured stage"));
    }
    Ok(AnnotationPass { ncu: None, stages, verification: last_verification(lines)? })
}

/// The last comparison of an answer.
///
/// # Errors
/// There is none.
pub fn last_verification(lines: &[Line]) -> Result<Verification, Failure> {
    let last = lines.iter().rev().find_map(|line| match line {
        Line::Verified(verification) => Some(verification.clone()),
        _ => None,
    });
    last.ok_or_else(|| missing("a verification"))
}
