//! What an output is compared with and how, wherever it was computed: expected rows, kept or evaluated, and the
//! agreement of an output with them.

use sha2::{Digest as _, Sha256};

use super::compare;
use super::definition;
use super::element::Elements;
use super::memory;
use super::reference::ReferenceRows;
use super::{cache, rows};
use crate::model::Key;
use crate::model::pipeline::{Pipeline, Reference};
use crate::model::protocol::{Check, Failure, Verification};

/// Expected rows of the output: kept ones, or evaluated by `evaluate` and kept. They do not depend on the device beyond
/// the last bits of float64.
///
/// # Errors
/// The memory does not suffice, the reference cannot tell right from wrong, or what `evaluate` says.
pub fn expected(
    pipeline: &Pipeline,
    check: &Check,
    evaluate: impl FnOnce(&Reference, Vec<u64>) -> Result<ReferenceRows, Failure>,
) -> Result<Option<ReferenceRows>, Failure> {
    let Some(reference) = &pipeline.reference else { return Ok(None) };
    let dims = &pipeline.buffers[reference.output].dims;
    let columns = dims.last().copied().unwrap_or(1);
    let rows = rows::sampled(dims, check.max_rows, check.seed);
    memory::check_fit(rows.len() as u128 * u128::from(columns) * size_of::<f64>() as u128)?;
    let key =
        Key::of("reference-rows/1", &(definition::reference_key(pipeline, reference)?, check.max_rows, check.seed));
    let folder = check.reference_cache.as_deref();
    let expected = match folder.and_then(|folder| cache::read(folder, key, &rows, columns as usize)) {
        Some(kept) => kept,
        None => {
            let made = evaluate(reference, rows)?;
            folder.inspect(|folder| cache::write(folder, key, &made));
            made
        }
    };
    compare::check_telling(&expected, &reference.tolerance)?;
    Ok(Some(expected))
}

/// Compares an output with its expected rows; `bytes` are those of all its elements.
///
/// # Errors
/// It differs.
pub fn verification(
    pipeline: &Pipeline,
    reference: &Reference,
    expected: &ReferenceRows,
    elements: Elements<'_>,
    bytes: &[u8],
) -> Result<Verification, Failure> {
    let buffer = &pipeline.buffers[reference.output];
    let agreement = compare::compare(buffer, elements, expected, &reference.tolerance)?;
    Ok(Verification {
        relative_frobenius: agreement.relative_frobenius,
        worst_row: agreement.worst_row,
        worst_row_index: agreement.worst_row_index,
        rows_compared: expected.rows.len() as u64,
        rows_total: buffer.elements() as u64 / buffer.dims.last().copied().unwrap_or(1).max(1),
        output_sha256: hexadecimal(&Sha256::digest(bytes)),
        same_bits: None,
    })
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
