//! verification.md and verification.json of an experiment: what was found right, how closely, and what was not. No I/O.

use jiff::Timestamp;
use serde::Serialize;

use super::numbers::{ABSENT, cell, counted};
use super::render::{RenderError, Renderer, Template};
use crate::model::protocol::{FailureKind, Verification};
use crate::model::record::Format;
use crate::model::{Device, KernelId, Shape};
use crate::profiler::sanitizer::SanitizerTool;

/// Format of verification.json.
const FORMAT: Format = Format { major: 1, minor: 0 };

/// A verified experiment: plain data, in the plan's order.
#[derive(Debug, Clone, PartialEq)]
pub struct VerificationReport {
    pub experiment: String,
    pub device: Device,
    /// Version of the compiler.
    pub compiler: String,
    /// Tools that watched every subject that is right.
    pub sanitizers: Vec<SanitizerTool>,
    pub subjects: Vec<VerifiedSubject>,
}

/// One kernel at one shape.
#[derive(Debug, Clone, PartialEq)]
pub struct VerifiedSubject {
    pub id: KernelId,
    pub shape: Shape,
    /// The part of the shape that people are shown.
    pub label: Shape,
    pub verdict: Verdict,
}

/// What is known of a subject's output.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It agrees with the reference: all of it on the reduced shape, the compared rows on its own.
    Right { whole: Verification, own_shape: Verification, taken_at: Timestamp },
    /// It does not, or could not be compared.
    Failed { kind: FailureKind, stage: Option<String>, reason: String },
    /// It cannot run here.
    Refused { reason: String },
    /// The session ended before.
    NotReached,
}

const RIGHT: &str = "RIGHT";
const WRONG: &str = "WRONG";
const FAILED: &str = "FAILED";
const REFUSED: &str = "REFUSED";
const NOT_REACHED: &str = "NOT REACHED";

/// A word for what became of a subject.
fn outcome(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Right { .. } => RIGHT,
        Verdict::Failed { kind: FailureKind::WrongOutput | FailureKind::Sanitizer, .. } => WRONG,
        Verdict::Failed { .. } => FAILED,
        Verdict::Refused { .. } => REFUSED,
        Verdict::NotReached => NOT_REACHED,
    }
}

/// The row of a subject that is not known to be right.
fn without_error(subject: &VerifiedSubject) -> VerifiedRow {
    let absent = || ABSENT.to_owned();
    VerifiedRow {
        kernel: cell(&format!("{} ({})", subject.id.kernel, subject.id.language)),
        version: subject.id.version.to_string(),
        shape: cell(&subject.label.to_string()),
        error: outcome(&subject.verdict).to_owned(),
        worst_row: absent(),
        rows: absent(),
        reduced: absent(),
        same_bits: ABSENT,
    }
}

/// Everything that the template can name.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct View {
    experiment: String,
    subjects: String,
    right: usize,
    failed: usize,
    refused: usize,
    device: String,
    driver: Option<String>,
    compiler: String,
    taken: String,
    mlarun: &'static str,
    /// Names of the sanitizers, e.g. `memcheck and racecheck`.
    sanitizers: Option<String>,
    rows: Vec<VerifiedRow>,
    problems: Vec<ProblemRow>,
}

/// One line of the table of what is right: finished texts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VerifiedRow {
    pub kernel: String,
    pub version: String,
    pub shape: String,
    /// Relative error (Frobenius) at the own shape.
    pub error: String,
    /// Largest relative error of a row, and which row it was.
    pub worst_row: String,
    /// Rows compared, of all.
    pub rows: String,
    /// Relative error of the whole output on the reduced shape.
    pub reduced: String,
    /// Whether launches left the same bits.
    pub same_bits: &'static str,
}

/// A subject that is not known to be right.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct ProblemRow {
    subject: String,
    outcome: &'static str,
    reason: String,
}

impl VerificationReport {
    /// verification.md.
    ///
    /// # Errors
    /// A template that does not render.
    pub fn markdown(&self, renderer: &Renderer) -> Result<String, RenderError> {
        renderer.render(Template::Verification, &self.view())
    }

    /// verification.json; ends with a line break.
    pub fn json(&self) -> String {
        let subjects = self.subjects.iter().map(|subject| self.json_subject(subject)).collect();
        let json = Json {
            format: FORMAT,
            experiment: &self.experiment,
            device: &self.device,
            compiler: &self.compiler,
            mlarun: env!("CARGO_PKG_VERSION"),
            subjects,
        };
        let mut text = serde_json::to_string_pretty(&json).expect("every map of it has strings for keys");
        text.push('\n');
        text
    }

    /// The table of what is right.
    pub fn rows(&self) -> Vec<VerifiedRow> {
        self.subjects.iter().filter_map(row).collect()
    }

    /// The table of all, in one word where there is no error to be told.
    pub fn all_rows(&self) -> Vec<VerifiedRow> {
        self.subjects.iter().map(|subject| row(subject).unwrap_or_else(|| without_error(subject))).collect()
    }

    /// How many are what, in one line.
    pub fn summary(&self) -> String {
        let count = |word: &str| self.subjects.iter().filter(|subject| outcome(&subject.verdict) == word).count();
        let told = [RIGHT, WRONG, FAILED, REFUSED, NOT_REACHED].map(|word| (count(word), word));
        let told = told.iter().filter(|(count, word)| *count > 0 || *word == RIGHT);
        let told: Vec<String> = told.map(|(count, word)| format!("{count} {}", word.to_lowercase())).collect();
        format!("{}: {}", counted(self.subjects.len(), "subject"), told.join(", "))
    }

    fn view(&self) -> View {
        let count = |wanted: fn(&Verdict) -> bool| self.subjects.iter().filter(|one| wanted(&one.verdict)).count();
        let taken = self.subjects.iter().filter_map(|subject| match subject.verdict {
            Verdict::Right { taken_at, .. } => Some(taken_at),
            _ => None,
        });
        let sanitizers: Vec<&str> = self.sanitizers.iter().map(|tool| tool.name()).collect();
        View {
            experiment: cell(&self.experiment),
            subjects: counted(self.subjects.len(), "subject"),
            right: count(|verdict| matches!(verdict, Verdict::Right { .. })),
            failed: count(|verdict| matches!(verdict, Verdict::Failed { .. })),
            refused: count(|verdict| matches!(verdict, Verdict::Refused { .. })),
            device: cell(&self.device.id.name),
            driver: self.device.gpu.as_ref().map(|gpu| cell(&gpu.driver)),
            compiler: cell(&self.compiler),
            taken: span(taken),
            mlarun: env!("CARGO_PKG_VERSION"),
            sanitizers: (!sanitizers.is_empty()).then(|| sanitizers.join(" and ")),
            rows: self.rows(),
            problems: self.subjects.iter().filter_map(problem).collect(),
        }
    }

    fn json_subject<'a>(&'a self, subject: &'a VerifiedSubject) -> JsonSubject<'a> {
        let (status, failure, stage, reason) = match &subject.verdict {
            Verdict::Right { .. } => ("right", None, None, None),
            Verdict::Failed { kind, stage, reason } => ("failed", Some(*kind), stage.as_deref(), Some(reason.as_str())),
            Verdict::Refused { reason } => ("refused", None, None, Some(reason.as_str())),
            Verdict::NotReached => ("not reached", None, None, None),
        };
        let (reduced_shape, own_shape, taken_at) = match &subject.verdict {
            Verdict::Right { whole, own_shape, taken_at } => (Some(whole), Some(own_shape), Some(*taken_at)),
            _ => (None, None, None),
        };
        let sanitizers = if status == "right" { self.sanitizers.as_slice() } else { &[] };
        let (id, shape) = (&subject.id, &subject.shape);
        JsonSubject { id, shape, status, failure, stage, reason, own_shape, reduced_shape, taken_at, sanitizers }
    }
}

#[derive(Serialize)]
struct Json<'a> {
    format: Format,
    experiment: &'a str,
    device: &'a Device,
    compiler: &'a str,
    mlarun: &'static str,
    subjects: Vec<JsonSubject<'a>>,
}

#[derive(Serialize)]
struct JsonSubject<'a> {
    #[serde(flatten)]
    id: &'a KernelId,
    shape: &'a Shape,
    /// `right`, `failed`, `refused` or `not reached`.
    status: &'static str,
    failure: Option<FailureKind>,
    stage: Option<&'a str>,
    reason: Option<&'a str>,
    own_shape: Option<&'a Verification>,
    reduced_shape: Option<&'a Verification>,
    taken_at: Option<Timestamp>,
    /// Those that found nothing.
    sanitizers: &'a [SanitizerTool],
}

fn row(subject: &VerifiedSubject) -> Option<VerifiedRow> {
    let Verdict::Right { whole, own_shape, .. } = &subject.verdict else { return None };
    let same = [whole.same_bits, own_shape.same_bits];
    Some(VerifiedRow {
        kernel: cell(&format!("{} ({})", subject.id.kernel, subject.id.language)),
        version: subject.id.version.to_string(),
        shape: cell(&subject.label.to_string()),
        error: error(own_shape.relative_frobenius),
        worst_row: format!("{} (row {})", error(own_shape.worst_row), own_shape.worst_row_index),
        rows: format!("{} of {}", own_shape.rows_compared, own_shape.rows_total),
        reduced: error(whole.relative_frobenius),
        same_bits: match same {
            [Some(true), Some(true)] => "yes",
            same if same.contains(&Some(false)) => "no",
            _ => ABSENT,
        },
    })
}

fn error(value: f64) -> String {
    format!("{value:.1e}")
}

fn problem(subject: &VerifiedSubject) -> Option<ProblemRow> {
    let (outcome, reason) = match &subject.verdict {
        Verdict::Right { .. } => return None,
        Verdict::Failed { reason, .. } => ("failed", reason.clone()),
        Verdict::Refused { reason } => ("refused", reason.clone()),
        Verdict::NotReached => ("not reached", "the session ended before".to_owned()),
    };
    let name = format!("{} {}", subject.id, subject.label);
    Some(ProblemRow { subject: cell(&name), outcome, reason: cell(&reason) })
}

/// The time, or the span of times.
fn span(times: impl Iterator<Item = Timestamp> + Clone) -> String {
    match (times.clone().min(), times.max()) {
        (Some(first), Some(last)) if first == last => first.to_string(),
        (Some(first), Some(last)) => format!("{first} to {last}"),
        _ => ABSENT.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures::{gpu, kernel, renderer, shape, time};

    fn agreement(error: f64, same_bits: Option<bool>) -> Verification {
        Verification {
            relative_frobenius: error,
            worst_row: 2.0 * error,
            worst_row_index: 3,
            rows_compared: 128,
            rows_total: 4096,
            output_sha256: "00".repeat(32),
            same_bits,
        }
    }

    /// One subject of every verdict; of the right ones, one that is deterministic, one that is not, one of which nobody
    /// knows.
    fn report() -> VerificationReport {
        let right = |error, same_bits, second| Verdict::Right {
            whole: agreement(1e-3, same_bits),
            own_shape: agreement(error, same_bits),
            taken_at: time(second),
        };
        let verdicts = [
            right(1.8e-3, Some(true), 18),
            right(2.5e-3, Some(false), 25),
            right(3e-3, None, 30),
            Verdict::Failed {
                kind: FailureKind::Sanitizer,
                stage: Some("latent".into()),
                reason: "memcheck found a fault | here".into(),
            },
            Verdict::Refused { reason: "its buffers need 200.0 GiB".into() },
            Verdict::NotReached,
        ];
        let subject = |(version, verdict)| VerifiedSubject {
            id: kernel("mla", version),
            shape: shape(4),
            label: shape(4),
            verdict,
        };
        VerificationReport {
            experiment: "covering".into(),
            device: Device { id: gpu(), memory_bytes: 1, last_level_cache_bytes: 1, cores: vec![], gpu: None },
            compiler: "NVRTC 13.0".into(),
            sanitizers: vec![SanitizerTool::Memcheck, SanitizerTool::Racecheck],
            subjects: (0..).zip(verdicts).map(subject).collect(),
        }
    }

    #[test]
    fn a_verification_is_told_subject_by_subject() {
        let text = report().markdown(&renderer()).expect("it renders");
        insta::assert_snapshot!(text.replace(env!("CARGO_PKG_VERSION"), "0.0.0"));
    }

    #[test]
    fn programs_get_every_number_and_the_sanitizers_of_what_is_right_alone() {
        let json: serde_json::Value = serde_json::from_str(&report().json()).expect("JSON");
        let of = |index: usize, key: &str| json["subjects"][index][key].clone();
        let status: Vec<_> = (0..6).map(|index| of(index, "status")).collect();
        assert_eq!(status, ["right", "right", "right", "failed", "refused", "not reached"]);
        assert_eq!(of(1, "own_shape")["relative_frobenius"], 2.5e-3);
        assert_eq!(of(0, "sanitizers"), serde_json::json!(["memcheck", "racecheck"]));
        assert_eq!((of(3, "sanitizers"), of(3, "stage")), (serde_json::json!([]), "latent".into()));
        assert_eq!(of(4, "reason"), "its buffers need 200.0 GiB");
    }
}
