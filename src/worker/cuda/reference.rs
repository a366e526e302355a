//! Expected rows of the output in float64, on the GPU: the same definitions as on the CPU, in kernels of mlarun's own
//! that share nothing with those that are measured.

use super::buffers::{Buffers, contraction};
use super::driver::{self, Context};
use super::memory::{Guarded, Region};
use super::support::{RawAttention, RawTensor, Support};
use crate::model::pipeline::{AsRead, Pipeline, Reference, ReferenceFormula};
use crate::model::protocol::Failure;
use crate::worker::reference::{ReferenceRows, Sizes};

/// Memory for scores of rows that are evaluated at the same time.
const WORK_BYTES: u64 = 512 << 20;

/// Evaluates the reference of a checked pipeline for `rows` of its output.
///
/// # Errors
/// Dimensions that do not fit one another, or the memory does not suffice.
pub fn evaluate(
    context: &Context,
    support: &Support,
    pipeline: &Pipeline,
    buffers: &Buffers,
    reference: &Reference,
    rows: Vec<u64>,
) -> Result<ReferenceRows, Failure> {
    let dims = &pipeline.buffers[reference.output].dims;
    let columns = dims.last().copied().unwrap_or(1) as usize;
    let values = match &reference.formula {
        ReferenceFormula::MlaAttention { q, qpe, z, kpe, w_uk, w_uv, scale, causal, as_read } => {
            let tensors = [*q, *qpe, *z, *kpe, *w_uk, *w_uv];
            let sizes = Sizes::new(pipeline, tensors, as_read, reference.output)?;
            let tensor = |index: usize| RawTensor::new(buffers.get(index));
            let read = |index: Option<usize>| index.map_or(RawTensor::NONE, tensor);
            let AsRead { qc, decompressed } = as_read;
            let [key, value] = [decompressed.map(|read| read.key), decompressed.map(|read| read.value)];
            let attention = RawAttention {
                tensors: tensors.map(tensor),
                as_read: [*qc, key, value].map(read),
                h: sizes.h as i64,
                s: sizes.s as i64,
                t: sizes.t as i64,
                d: sizes.d as i64,
                k: sizes.k as i64,
                p: sizes.p as i64,
                n: sizes.n as i64,
                scale: *scale,
                causal: i64::from(*causal),
            };
            attention_rows(context, support, &attention, &sizes, &rows)?
        }
        ReferenceFormula::Einsum { formula } => {
            let contraction = contraction(formula, pipeline, dims)?;
            let operands: Vec<&Guarded> = formula.operands.iter().map(|operand| buffers.get(operand.buffer)).collect();
            support.contract_vectors(context, &contraction, &operands, &rows, columns)?
        }
    };
    Ok(ReferenceRows { rows, columns, values })
}

fn attention_rows(
    context: &Context,
    support: &Support,
    attention: &RawAttention,
    sizes: &Sizes,
    rows: &[u64],
) -> Result<Vec<f64>, Failure> {
    let row_bytes = ((sizes.t + 2 * sizes.k) * size_of::<f64>()) as u64;
    let (free, _) = driver::memory_bytes()?;
    let together = (WORK_BYTES.min(free / 4) / row_bytes.max(1)).clamp(1, rows.len().max(1) as u64) as usize;
    let work = Region::new(together * row_bytes as usize)?;
    let result = Region::new(together * sizes.d * size_of::<f64>())?;
    let mut values = vec![0.0f64; rows.len() * sizes.d];
    for (rows, values) in rows.chunks(together).zip(values.chunks_mut((together * sizes.d).max(1))) {
        let indices = Region::holding(rows, &context.stream)?;
        support.attention(context, attention, &indices, rows.len(), &result, &work)?;
        result.download(0, values, &context.stream)?;
    }
    Ok(values)
}
