//! What a buffer's contents are a function of: its resolved definition. Equal definitions mean equal bits, which lets
//! buffers be reused between tuning candidates and reference rows between processes. Pure.

use serde::Serialize;

use crate::model::pipeline::{
    Arg, Buffer, Decompressed, Distribution, Einsum, Launch, Pipeline, Reference, ReferenceFormula, Role, Stage,
};
use crate::model::protocol::{Failure, FailureKind};
use crate::model::{DType, Key};

/// What a request runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    Cpu,
    Gpu,
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Device::Cpu => "CPU",
            Device::Gpu => "GPU",
        })
    }
}

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
    #[error("stage `{stage}` has a grid of {grid:?} blocks, more than can be counted")]
    Grid { stage: String, grid: [u64; 3] },
    #[error("stage `{stage}` is to be launched on a {launched} and the request runs on a {device}")]
    Device { stage: String, launched: Device, device: Device },
    #[error("stage `{stage}` takes the index of a block or thread as an argument, which a GPU's kernel has without")]
    Index { stage: String },
    #[error("{modules} modules are given for {stages} stages")]
    Modules { modules: usize, stages: usize },
    #[error("`{buffer}` of the reference has {found} dimensions, not {wanted}")]
    Dimensions { buffer: String, found: usize, wanted: usize },
    #[error("the reference takes keys and values of {n} tokens as they are read, and there are {t}")]
    MoreRead { n: usize, t: usize },
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
        ReferenceFormula::MlaAttention { q, qpe, z, kpe, w_uk, w_uv, scale, causal, as_read } => {
            let of = |index: usize| {
                buffer(pipeline, index, "the reference")?;
                of_buffer(pipeline, index)
            };
            let operands = [*q, *qpe, *z, *kpe, *w_uk, *w_uv].map(of);
            let operands = operands.into_iter().collect::<Result<Vec<_>, _>>()?;
            let qc = as_read.qc.map(of).transpose()?;
            let decompressed = as_read.decompressed.map(|Decompressed { key, value }| Ok((of(key)?, of(value)?)));
            let as_read = (qc, decompressed.transpose()?);
            Ok(Key::of("reference-mla/2", &(operands, as_read, scale.to_bits(), causal, dims)))
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

/// Checks every index in `pipeline` and that its stages are for `device`, so that what follows may rely on both.
///
/// # Errors
/// The first that has no meaning.
pub fn check(pipeline: &Pipeline, modules: usize, device: Device) -> Result<(), PipelineError> {
    if modules != pipeline.stages.len() {
        return Err(PipelineError::Modules { modules, stages: pipeline.stages.len() });
    }
    for (index, stage) in pipeline.stages.iter().enumerate() {
        check_device(stage, device)?;
        for arg in &stage.args {
            if let Some(argument) = arg.buffer() {
                buffer(pipeline, argument, &stage.name)?;
            }
        }
        let blocks = stage.grid.iter().try_fold(1u64, |product, blocks| product.checked_mul(*blocks));
        // The counter that deals blocks out goes beyond the last by one a thread.
        if blocks.is_none_or(|blocks| i64::try_from(blocks).is_err()) {
            return Err(PipelineError::Grid { stage: stage.name.clone(), grid: stage.grid });
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

fn check_device(stage: &Stage, device: Device) -> Result<(), PipelineError> {
    let launched = match stage.launch {
        Launch::Cpu { .. } => Device::Cpu,
        Launch::Gpu { .. } => Device::Gpu,
    };
    if launched != device {
        return Err(PipelineError::Device { stage: stage.name.clone(), launched, device });
    }
    let is_index = |arg: &Arg| matches!(arg, Arg::Block(_) | Arg::Thread);
    if device == Device::Gpu && stage.args.iter().any(is_index) {
        return Err(PipelineError::Index { stage: stage.name.clone() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pipeline::{Operand, Tolerance};
    use std::collections::BTreeMap;

    fn pipeline() -> Pipeline {
        let buffer = |name: &str, role| Buffer { name: name.into(), dtype: DType::Float32, dims: vec![4], role };
        let copy = |of: usize| {
            let operands = vec![Operand { buffer: of, start: BTreeMap::new() }];
            Einsum { spec: "i->i".into(), operands }
        };
        Pipeline {
            buffers: vec![
                buffer("x", Role::Input(Distribution::Normal { std: 1.0, seed: 1 })),
                buffer("y", Role::Derived { formula: copy(0) }),
                buffer("o", Role::Output),
            ],
            stages: vec![Stage {
                name: "s".into(),
                entry: "f".into(),
                args: vec![],
                grid: [1, 1, 1],
                launch: Launch::Cpu { threads: 1 },
                stream: 0,
                after: vec![],
            }],
            reference: Some(Reference {
                formula: ReferenceFormula::Einsum { formula: copy(1) },
                output: 2,
                tolerance: Tolerance { relative_frobenius: 1e-5, relative_row: 4e-5 },
            }),
        }
    }

    fn key(pipeline: &Pipeline) -> Key {
        reference_key(pipeline, pipeline.reference.as_ref().expect("it has one")).expect("it makes sense")
    }

    #[test]
    fn a_reference_depends_on_everything_that_it_is_computed_from_and_on_no_name() {
        let original = key(&pipeline());
        let mut renamed = pipeline();
        renamed.buffers[0].name = "other".into();
        renamed.buffers[2].dtype = DType::Bfloat16;
        assert_eq!(key(&renamed), original);
        let mut seed = pipeline();
        seed.buffers[0].role = Role::Input(Distribution::Normal { std: 1.0, seed: 2 });
        let mut rounded = pipeline();
        rounded.buffers[1].dtype = DType::Bfloat16;
        let mut longer = pipeline();
        longer.buffers.iter_mut().for_each(|buffer| buffer.dims = vec![5]);
        for changed in [seed, rounded, longer] {
            assert_ne!(key(&changed), original);
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert_eq!(check(&pipeline(), 1, Device::Cpu), Ok(()));
        let mut itself = pipeline();
        if let Role::Derived { formula } = &mut itself.buffers[1].role {
            formula.operands[0].buffer = 1;
        }
        assert!(matches!(check(&itself, 1, Device::Cpu), Err(PipelineError::NotBefore { .. })));
        assert!(matches!(check(&pipeline(), 1, Device::Gpu), Err(PipelineError::Device { .. })));
        let mut index = pipeline();
        index.stages[0].launch = Launch::Gpu { block: [32, 1, 1], shared_bytes: 0, cluster: None, cooperative: false };
        assert_eq!(check(&index, 1, Device::Gpu), Ok(()));
        index.stages[0].args.push(Arg::Thread);
        assert!(matches!(check(&index, 1, Device::Gpu), Err(PipelineError::Index { .. })));
        let mut grid = pipeline();
        grid.stages[0].grid = [u64::MAX, 2, 1];
        assert!(matches!(check(&grid, 1, Device::Cpu), Err(PipelineError::Grid { .. })));
        let mut output = pipeline();
        output.reference.as_mut().expect("it has one").output = 7;
        assert!(matches!(check(&output, 1, Device::Cpu), Err(PipelineError::NoSuchBuffer { index: 7, .. })));
        let mut result = pipeline();
        result.reference.as_mut().expect("it has one").formula = ReferenceFormula::Einsum {
            formula: Einsum { spec: "i->i".into(), operands: vec![Operand { buffer: 2, start: BTreeMap::new() }] },
        };
        assert!(matches!(check(&result, 1, Device::Cpu), Err(PipelineError::NotAnInput { .. })));
    }
}
