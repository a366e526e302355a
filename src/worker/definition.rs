//! What a buffer's contents are a function of: its resolved definition. Equal definitions mean equal bits, which lets
//! buffers be reused between tuning candidates and reference rows between processes. Pure.

use serde::Serialize;

use crate::model::pipeline::{Buffer, Distribution, Einsum, Pipeline, Reference, ReferenceFormula, Role};
use crate::model::protocol::{Failure, FailureKind};
use crate::model::{DType, Key};

/// A pipeline refers to a buffer or a stage in a way that has no meaning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PipelineError {
    #[error("{what} refers to buffer {index} of {count}")]
    NoSuchBuffer { what: String, index: usize, count: usize },
    #[error("`{buffer}` is computed from `{operand}`, which is {role}, not an input or derived from inputs")]
    NotAnInput { buffer: String, operand: String, role: &'static str },
    #[error("`{buffer}` is computed from `{operand}`, which is not declared before it")]
    NotBefore { buffer: String, operand: String },
    #[error("stage `{stage}` waits for stage {index}, which does not come before it")]
    NotEarlier { stage: String, index: usize },
    #[error("{modules} modules are given for {stages} stages")]
    Modules { modules: usize, stages: usize },
    #[error("`{buffer}` of the reference has {found} dimensions, not {wanted}")]
    Dimensions { buffer: String, found: usize, wanted: usize },
    #[error("the reference's dimension {letter} is {one} in `{a}` and {other} in `{b}`")]
    Mismatch { letter: char, a: String, one: u64, b: String, other: u64 },
}

impl From<PipelineError> for Failure {
    fn from(error: PipelineError) -> Failure {
        Failure { kind: FailureKind::Internal, stage: None, message: format!("the request makes no sense: {error}") }
    }
}

/// Definition of a tensor's contents, with every reference replaced by the definition of what it refers to.
#[derive(Debug, Clone, Serialize)]
pub struct Definition<'p> {
    dtype: DType,
    dims: &'p [u64],
    contents: Contents<'p>,
}

#[derive(Debug, Clone, Serialize)]
enum Contents<'p> {
    Generated(&'p Distribution),
    Formula(ResolvedEinsum<'p>),
}

#[derive(Debug, Clone, Serialize)]
struct ResolvedEinsum<'p> {
    spec: &'p str,
    operands: Vec<(Definition<'p>, &'p std::collections::BTreeMap<char, u64>)>,
}

/// Definition of the buffer `index`.
///
/// # Errors
/// It is scratch or an output, or refers to something that is, or to a buffer that does not come before it.
pub fn of_buffer(pipeline: &Pipeline, index: usize) -> Result<Definition<'_>, PipelineError> {
    let buffer = &pipeline.buffers[index];
    let contents = match &buffer.role {
        Role::Input(distribution) => Contents::Generated(distribution),
        Role::Derived { formula } => {
            check_operands(pipeline, index, formula)?;
            Contents::Formula(of_einsum(pipeline, formula)?)
        }
        Role::Scratch | Role::Output => {
            let role = role_name(buffer);
            return Err(PipelineError::NotAnInput { buffer: "a formula".into(), operand: buffer.name.clone(), role });
        }
    };
    Ok(Definition { dtype: buffer.dtype, dims: &buffer.dims, contents })
}

fn check_operands(pipeline: &Pipeline, index: usize, formula: &Einsum) -> Result<(), PipelineError> {
    let name = &pipeline.buffers[index].name;
    for operand in &formula.operands {
        let source = buffer(pipeline, operand.buffer, name)?;
        if operand.buffer >= index {
            return Err(PipelineError::NotBefore { buffer: name.clone(), operand: source.name.clone() });
        }
        if matches!(source.role, Role::Scratch | Role::Output) {
            let role = role_name(source);
            return Err(PipelineError::NotAnInput { buffer: name.clone(), operand: source.name.clone(), role });
        }
    }
    Ok(())
}

fn of_einsum<'p>(pipeline: &'p Pipeline, formula: &'p Einsum) -> Result<ResolvedEinsum<'p>, PipelineError> {
    let mut operands = Vec::new();
    for operand in &formula.operands {
        buffer(pipeline, operand.buffer, &formula.spec)?;
        operands.push((of_buffer(pipeline, operand.buffer)?, &operand.start));
    }
    Ok(ResolvedEinsum { spec: &formula.spec, operands })
}

/// Key of the values that the reference has: formula, definitions of what it reads, shape of its result.
///
/// # Errors
/// The reference reads something that is no input.
pub fn reference_key(pipeline: &Pipeline, reference: &Reference) -> Result<Key, PipelineError> {
    let dims = &buffer(pipeline, reference.output, "the reference")?.dims;
    match &reference.formula {
        ReferenceFormula::Einsum { formula } => {
            Ok(Key::of("reference-einsum/1", &(of_einsum(pipeline, formula)?, dims)))
        }
        ReferenceFormula::MlaAttention { q, qpe, z, kpe, w_uk, w_uv, scale, causal } => {
            let mut operands = Vec::new();
            for index in [*q, *qpe, *z, *kpe, *w_uk, *w_uv] {
                buffer(pipeline, index, "the reference")?;
                operands.push(of_buffer(pipeline, index)?);
            }
            Ok(Key::of("reference-mla/1", &(operands, scale.to_bits(), causal, dims)))
        }
    }
}

fn buffer<'p>(pipeline: &'p Pipeline, index: usize, what: &str) -> Result<&'p Buffer, PipelineError> {
    let count = pipeline.buffers.len();
    pipeline.buffers.get(index).ok_or_else(|| PipelineError::NoSuchBuffer { what: what.to_owned(), index, count })
}

fn role_name(buffer: &Buffer) -> &'static str {
    match buffer.role {
        Role::Input(_) => "an input",
        Role::Derived { .. } => "derived",
        Role::Scratch => "scratch",
        Role::Output => "an output",
    }
}

/// Checks every index in `pipeline`, so that what follows may use them.
///
/// # Errors
/// The first that has no meaning.
pub fn check(pipeline: &Pipeline, modules: usize) -> Result<(), PipelineError> {
    if modules != pipeline.stages.len() {
        return Err(PipelineError::Modules { modules, stages: pipeline.stages.len() });
    }
    for (index, stage) in pipeline.stages.iter().enumerate() {
        for arg in &stage.args {
            if let crate::model::pipeline::Arg::Buffer(argument) = arg {
                buffer(pipeline, *argument, &stage.name)?;
            }
        }
        if let Some(&later) = stage.after.iter().find(|&&earlier| earlier >= index) {
            return Err(PipelineError::NotEarlier { stage: stage.name.clone(), index: later });
        }
    }
    for (index, buffer) in pipeline.buffers.iter().enumerate() {
        if matches!(buffer.role, Role::Input(_) | Role::Derived { .. }) {
            of_buffer(pipeline, index)?;
        }
    }
    pipeline.reference.as_ref().map_or(Ok(()), |reference| reference_key(pipeline, reference).map(|_| ()))
}
