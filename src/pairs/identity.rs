//! Whether two subjects are the same work: equal machine code, launched alike on equal inputs.

use serde_json::Value;

use crate::model::record::{Record, StageCode};

/// Both records are of the same machine code, launched alike on the same inputs and device.
pub fn is_same_code(one: &Record, other: &Record) -> bool {
    one.environment.device.id == other.environment.device.id
        && launches_alike((&one.code, &one.material), (&other.code, &other.material))
}

/// The same, of what a record would hold: the code of each stage, and what the measurement's key depends on.
pub fn launches_alike(one: (&[StageCode], &Value), other: (&[StageCode], &Value)) -> bool {
    let is_known = !one.0.is_empty() && one.0.len() == other.0.len();
    let is_equal = || one.0.iter().zip(other.0).all(|(one, other)| one.code_sha256 == other.code_sha256);
    let launched =
        |material: &Value, part: &str| material.get("subject").and_then(|subject| subject.get(part).cloned());
    let alike = |part: &str| {
        let (one, other) = (launched(one.1, part), launched(other.1, part));
        one.is_some() && one == other
    };
    is_known && is_equal() && alike("launches") && alike("buffers")
}
