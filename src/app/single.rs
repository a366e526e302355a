//! The single shot's own parts: a shape from `NAME=VALUE` texts, and a verification without a measurement.

use super::clocks::Held;
use super::experiment::{BenchError, Control, Workspace};
use super::modes::{ProfileError, ProfilePlan, single};
use crate::catalog::{Package, Parameter, ParameterKind};
use crate::diagnostic::suggestion;
use crate::execute::{Sanitizer, TrialsError};
use crate::model::{Mode, Shape, Value};
use crate::plan::{SubjectState, Wanted};

/// A parameter that the kernel does not have, or not with this value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    #[error("`{0}` is not NAME=VALUE")]
    NoValue(String),
    #[error("{kernel} has no parameter `{name}`{near}")]
    Unknown { kernel: String, name: String, near: String },
    #[error("--{name}={value}: {name} of {kernel} is {kind}")]
    Value { kernel: String, name: String, value: String, kind: &'static str },
    #[error("--{0} is given twice")]
    Twice(String),
}

/// The shape that `given` (each `NAME=VALUE`) names, with the types that the package declares.
///
/// # Errors
/// See [`ShapeError`]; ranges are checked when the shape is planned.
pub fn single_shot_shape(package: &Package, given: &[String]) -> Result<Shape, ShapeError> {
    let mut shape = Shape::default();
    for text in given {
        let (name, value) = text.split_once('=').ok_or_else(|| ShapeError::NoValue(text.clone()))?;
        let kernel = package.id.to_string();
        let Some(parameter) = package.parameter(name) else {
            let names = package.parameters.iter().map(|parameter| parameter.name.as_str());
            let near = suggestion(name, names).map(|near| format!("; {near}")).unwrap_or_default();
            return Err(ShapeError::Unknown { kernel, name: name.to_owned(), near });
        };
        let value = parse(parameter, value).ok_or_else(|| ShapeError::Value {
            kernel,
            name: name.to_owned(),
            value: value.to_owned(),
            kind: parameter.kind.word(),
        })?;
        if shape.0.insert(name.to_owned(), value).is_some() {
            return Err(ShapeError::Twice(name.to_owned()));
        }
    }
    Ok(shape)
}

fn parse(parameter: &Parameter, text: &str) -> Option<Value> {
    match &parameter.kind {
        ParameterKind::Int { .. } => text.parse().ok().map(Value::Int),
        ParameterKind::Float => text.parse().ok().filter(|value: &f64| value.is_finite()).map(Value::Float),
        ParameterKind::Bool => text.parse().ok().map(Value::Bool),
        ParameterKind::DType { .. } => Some(Value::Text(text.to_owned())),
    }
}

/// Tunes if need be, compiles, and compares the output, watched by `sanitizer` if there is one; measures nothing.
///
/// # Errors
/// See [`ProfileError`].
pub fn verify_only(
    workspace: &Workspace<'_>,
    plan: &ProfilePlan,
    sanitizer: Option<Sanitizer>,
    control: &mut Control<'_>,
) -> Result<(), ProfileError> {
    let wanted = Wanted { remeasure: true, ..Wanted::default() };
    let experiment = single(workspace, plan.id.clone(), plan.shape.clone(), Mode::Annotation, None);
    let bench = workspace.plan(experiment, wanted)?;
    if let Some(reason) = bench.plan.subjects.iter().find_map(|subject| match &subject.state {
        SubjectState::Refused { reason } => Some(reason.clone()),
        _ => None,
    }) {
        return Err(ProfileError::Refused { reason });
    }
    let limits = &workspace.project.conf.protocol.limits;
    let setting = workspace.setting(&bench.protocols);
    let verified = workspace.with_session(setting, control, limits.verify(), &Held::default(), |session| {
        session.watched_by(sanitizer).verify_only(&bench.experiment, bench.plan.clone(), wanted, workspace.ledger)
    });
    verified.map_err(|error| match error {
        TrialsError::Failed(failure) => ProfileError::Failed(failure),
        TrialsError::Interrupted => ProfileError::Interrupted,
        TrialsError::Session(error) => ProfileError::Bench(BenchError::Session(error)),
    })
}
