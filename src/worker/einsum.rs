//! Tensor formulas in float64: every einsum of one or two operands, done as a batch of matrix products.
//!
//! The letters of a formula fall into four groups: those of both operands and the result (batch), of the first operand
//! and the result (rows), of the second and the result (columns), and those that are summed over. Blocks of rows and
//! columns are packed into float64 matrices, multiplied by `matrixmultiply`, and handed over block by block, in
//! parallel. Knows nothing of buffers in memory: it reads [`Elements`] with their dimensions. A [`Contraction`] is what
//! a formula means for tensors of given dimensions; it is the same on every device.

use std::collections::{BTreeMap, BTreeSet};

use matrixmultiply::dgemm;
use rayon::prelude::*;

use super::element::{Element, Elements, ElementsMut};
use crate::model::protocol::{Failure, FailureKind};

/// Rows and columns of one block of the result, and the depth of one product.
const BLOCK_ROWS: usize = 256;
const BLOCK_COLUMNS: usize = 512;
const BLOCK_DEPTH: usize = 512;

/// A tensor that a formula reads, from `start` on along the named axes.
pub struct Source<'a> {
    pub elements: Elements<'a>,
    pub dims: &'a [u64],
    pub start: &'a BTreeMap<char, u64>,
}

/// Dimensions of a tensor that a formula reads, from `start` on along the named axes.
#[derive(Debug, Clone, Copy)]
pub struct Axes<'a> {
    pub dims: &'a [u64],
    pub start: &'a BTreeMap<char, u64>,
}

/// The formula does not fit its operands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the formula `{spec}` does not evaluate: {reason}")]
pub struct EinsumError {
    spec: String,
    reason: String,
}

impl From<EinsumError> for Failure {
    fn from(error: EinsumError) -> Failure {
        Failure { kind: FailureKind::Internal, stage: None, message: error.to_string() }
    }
}

/// A group of letters walked together, the last one fastest.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Group {
    pub extents: Vec<usize>,
    /// Strides of each letter in the left operand, the right one, the result.
    pub strides: Vec<[usize; 3]>,
}

impl Group {
    fn push(&mut self, extent: usize, strides: [usize; 3]) {
        self.extents.push(extent);
        self.strides.push(strides);
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.extents.iter().product()
    }

    /// The same members in the same order with as few letters as possible: letters of one value are left out, and
    /// neighbours that all three tensors hold as one dimension are one.
    #[cfg(any(feature = "cuda", test))]
    pub fn merged(&self) -> Group {
        let mut merged = Group::default();
        for (&extent, &strides) in self.extents.iter().zip(&self.strides) {
            if extent == 1 {
                continue;
            }
            match (merged.extents.last_mut(), merged.strides.last_mut()) {
                (Some(outer), Some(outer_strides))
                    if (0..3).all(|tensor| outer_strides[tensor] == strides[tensor] * extent) =>
                {
                    *outer *= extent;
                    *outer_strides = strides;
                }
                _ => merged.push(extent, strides),
            }
        }
        merged
    }

    /// The member to which the element `index` of the result belongs.
    fn member_at(&self, index: usize) -> usize {
        let walk = self.extents.iter().zip(&self.strides);
        walk.fold(0, |member, (&extent, strides)| member * extent + index / strides[2] % extent)
    }

    /// Offsets of all members in one of the three tensors.
    pub fn offsets(&self, tensor: usize) -> Vec<usize> {
        let mut offsets = vec![0];
        for (&extent, strides) in self.extents.iter().zip(&self.strides) {
            let stride = strides[tensor];
            offsets = offsets.iter().flat_map(|base| (0..extent).map(move |index| base + index * stride)).collect();
        }
        offsets
    }
}

/// A formula with the dimensions of its operands, checked: its letters in groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contraction {
    /// Which operand is the left one.
    pub left: usize,
    /// Which operand is the right one; `None` stands for the number 1.
    pub right: Option<usize>,
    /// Offsets of the first elements that are read.
    pub left_start: usize,
    pub right_start: usize,
    /// Letters of both operands and the result.
    pub batch: Group,
    /// Letters of the left operand and the result.
    pub rows: Group,
    /// Letters of the right operand and the result.
    pub columns: Group,
    /// Letters that are summed over.
    pub summed: Group,
    /// The result's last letter is one of the batch or of the rows.
    last_is_split: bool,
}

/// A formula with its operands, checked and ready to be evaluated.
pub struct Einsum<'a> {
    left: Elements<'a>,
    right: Elements<'a>,
    contraction: Contraction,
}

/// The second operand of a formula that has one.
static ONE: [f32; 1] = [1.0];
static NO_START: BTreeMap<char, u64> = BTreeMap::new();

impl Contraction {
    /// Checks `spec` (`letters[,letters]->letters`) against the operands and the dimensions of the result.
    ///
    /// A letter of the result has the result's extent, which operands must hold from their start on; a letter that is
    /// summed over must have the same extent (from the start on) wherever it occurs.
    ///
    /// # Errors
    /// The notation is malformed, or an extent does not fit; the reason names the letter.
    pub fn new(spec: &str, axes: &[Axes<'_>], result_dims: &[u64]) -> Result<Contraction, EinsumError> {
        let error = |reason: String| EinsumError { spec: spec.to_owned(), reason };
        let (operands, result) = spec.split_once("->").ok_or_else(|| error("it has no `->`".to_owned()))?;
        let operands: Vec<Vec<char>> = operands.split(',').map(letters).collect();
        let result = letters(result);
        if operands.len() != axes.len() || axes.is_empty() || axes.len() > 2 {
            return Err(error(format!("it needs one or two operands, as many as the {} given", axes.len())));
        }
        let extents = extents(&operands, &result, axes, result_dims).map_err(error)?;
        let scalar = (Vec::new(), Axes { dims: &[], start: &NO_START });
        let (mut left, mut right) = (0, (axes.len() == 2).then_some(1));
        if let Some(second) = right
            && result.last().is_some_and(|last| !operands[second].contains(last))
        {
            // The last letter of the result belongs to the columns where possible: blocks are then written in order.
            (left, right) = (second, Some(left));
        }
        let (left_letters, left_axes) = (&operands[left], axes[left]);
        let (right_letters, right_axes) = right.map_or((&scalar.0, scalar.1), |right| (&operands[right], axes[right]));
        let mut contraction = Contraction {
            left,
            right,
            left_start: start_offset(left_letters, left_axes),
            right_start: start_offset(right_letters, right_axes),
            batch: Group::default(),
            rows: Group::default(),
            columns: Group::default(),
            summed: Group::default(),
            last_is_split: result.last().is_some_and(|last| left_letters.contains(last)),
        };
        let result_extents: Vec<u64> = result.iter().map(|letter| extents[letter]).collect();
        for letter in in_order(&operands, &result) {
            let strides = [
                stride(letter, left_letters, left_axes.dims),
                stride(letter, right_letters, right_axes.dims),
                stride(letter, &result, &result_extents),
            ];
            let (in_left, in_right) = (left_letters.contains(&letter), right_letters.contains(&letter));
            let group = match (result.contains(&letter), in_left, in_right) {
                (false, _, _) => &mut contraction.summed,
                (true, true, true) => &mut contraction.batch,
                (true, true, false) => &mut contraction.rows,
                (true, false, _) => &mut contraction.columns,
            };
            group.push(extents[&letter] as usize, strides);
        }
        Ok(contraction)
    }
}

impl<'a> Einsum<'a> {
    /// A formula whose operands have elements; see [`Contraction::new`].
    ///
    /// # Errors
    /// As [`Contraction::new`].
    pub fn new(spec: &str, sources: &[Source<'a>], result_dims: &[u64]) -> Result<Einsum<'a>, EinsumError> {
        let axes: Vec<Axes<'_>> =
            sources.iter().map(|source| Axes { dims: source.dims, start: source.start }).collect();
        let contraction = Contraction::new(spec, &axes, result_dims)?;
        let one = Elements::Float32(&ONE);
        Ok(Einsum {
            left: sources[contraction.left].elements,
            right: contraction.right.map_or(one, |right| sources[right].elements),
            contraction,
        })
    }

    /// Evaluates block by block; `sink` gets the row-major indices of a block's rows and columns in the result (an
    /// element's index is the sum of both) and its values, row by row. Every element is handed over exactly once, from
    /// several threads of the current rayon pool.
    pub fn evaluate(&self, sink: &Sink<'_>) {
        let all: Vec<usize> = (0..self.contraction.rows.len()).collect();
        let rows = |batch: usize| (batch, all.clone());
        self.evaluate_rows((0..self.contraction.batch.len()).map(rows).collect(), sink);
    }

    /// As [`Einsum::evaluate`], but only what is needed for the vectors of `width` elements along the result's last
    /// dimension with the indices `vectors`; more than those may be handed over.
    pub fn evaluate_vectors(&self, vectors: &[u64], width: usize, sink: &Sink<'_>) {
        // Elements of one vector are in different columns, unless the last letter is no letter of the columns.
        let split = self.contraction.last_is_split;
        let elements = vectors.iter().flat_map(|&vector| {
            let first = vector as usize * width;
            first..first + if split { width } else { width.min(1) }
        });
        let mut needed: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for element in elements {
            needed
                .entry(self.contraction.batch.member_at(element))
                .or_default()
                .insert(self.contraction.rows.member_at(element));
        }
        self.evaluate_rows(needed.into_iter().map(|(batch, rows)| (batch, rows.into_iter().collect())).collect(), sink);
    }

    /// Evaluates the given rows of each batch entry.
    fn evaluate_rows(&self, rows: Vec<(usize, Vec<usize>)>, sink: &Sink<'_>) {
        let offsets = Offsets::new(&self.contraction);
        let columns = self.contraction.columns.len();
        let mut pieces = Vec::new();
        for (batch, rows) in &rows {
            for rows in rows.chunks(BLOCK_ROWS) {
                let starts = (0..columns).step_by(BLOCK_COLUMNS);
                pieces.extend(starts.map(|start| (*batch, rows, start..columns.min(start + BLOCK_COLUMNS))));
            }
        }
        pieces.into_par_iter().for_each_init(Scratch::default, |scratch, (batch, rows, columns)| {
            self.evaluate_block(&offsets, scratch, batch, rows, columns, sink);
        });
    }

    fn evaluate_block(
        &self,
        offsets: &Offsets,
        scratch: &mut Scratch,
        batch: usize,
        rows: &[usize],
        columns: std::ops::Range<usize>,
        sink: &Sink<'_>,
    ) {
        let [left_base, right_base, result_base] = offsets.batch.each_ref().map(|offsets| offsets[batch]);
        let (m, n) = (rows.len(), columns.len());
        let column_offsets = &offsets.columns[1][columns.clone()];
        scratch.rows.clear();
        scratch.rows.extend(rows.iter().map(|&row| offsets.rows[0][row]));
        scratch.block.clear();
        scratch.block.resize(m * n, 0.0);
        for depth in (0..offsets.summed[0].len()).step_by(BLOCK_DEPTH) {
            let end = offsets.summed[0].len().min(depth + BLOCK_DEPTH);
            let (left_depth, right_depth) = (&offsets.summed[0][depth..end], &offsets.summed[1][depth..end]);
            pack(self.left, self.contraction.left_start + left_base, &scratch.rows, left_depth, &mut scratch.left);
            pack(
                self.right,
                self.contraction.right_start + right_base,
                right_depth,
                column_offsets,
                &mut scratch.right,
            );
            multiply_add(m, end - depth, n, &scratch.left, &scratch.right, &mut scratch.block);
        }
        scratch.rows.clear();
        scratch.rows.extend(rows.iter().map(|&row| result_base + offsets.rows[2][row]));
        sink(&scratch.rows, &offsets.columns[2][columns], &scratch.block);
    }
}

/// Takes one block of a result: indices of its rows, of its columns, values.
pub type Sink<'s> = dyn Fn(&[usize], &[usize], &[f64]) + Sync + 's;

/// Offsets of every member of every group, by tensor.
struct Offsets {
    batch: [Vec<usize>; 3],
    rows: [Vec<usize>; 3],
    columns: [Vec<usize>; 3],
    summed: [Vec<usize>; 3],
}

impl Offsets {
    fn new(contraction: &Contraction) -> Offsets {
        let all = |group: &Group| [0, 1, 2].map(|tensor| group.offsets(tensor));
        Offsets {
            batch: all(&contraction.batch),
            rows: all(&contraction.rows),
            columns: all(&contraction.columns),
            summed: all(&contraction.summed),
        }
    }
}

/// Matrices of one thread, reused from block to block.
#[derive(Default)]
struct Scratch {
    left: Vec<f64>,
    right: Vec<f64>,
    block: Vec<f64>,
    rows: Vec<usize>,
}

/// Writes the float64 matrix with the elements at `base + rows[i] + columns[j]`, row by row.
fn pack(elements: Elements<'_>, base: usize, rows: &[usize], columns: &[usize], matrix: &mut Vec<f64>) {
    matrix.clear();
    matrix.reserve(rows.len() * columns.len());
    match elements {
        Elements::Float32(slice) => pack_slice(slice, base, rows, columns, matrix),
        Elements::Bfloat16(slice) => pack_slice(slice, base, rows, columns, matrix),
        Elements::Float16(slice) => pack_slice(slice, base, rows, columns, matrix),
    }
}

fn pack_slice<T: Element>(slice: &[T], base: usize, rows: &[usize], columns: &[usize], matrix: &mut Vec<f64>) {
    let contiguous = columns.windows(2).all(|pair| pair[1] == pair[0] + 1);
    for row in rows {
        match columns.first() {
            Some(first) if contiguous => {
                let start = base + row + first;
                matrix.extend(slice[start..start + columns.len()].iter().map(|value| value.to_f64()));
            }
            _ => matrix.extend(columns.iter().map(|column| slice[base + row + column].to_f64())),
        }
    }
}

/// `c += a · b` for row-major matrices, a: m×k, b: k×n, c: m×n.
///
/// # Panics
/// When a slice has another length.
pub fn multiply_add(m: usize, k: usize, n: usize, a: &[f64], b: &[f64], c: &mut [f64]) {
    assert!(a.len() == m * k && b.len() == k * n && c.len() == m * n, "matrices of other sizes");
    let stride = |columns: usize| columns as isize;
    // SAFETY: the lengths were checked against the sizes and row strides given; `c` is borrowed uniquely.
    unsafe {
        dgemm(m, k, n, 1.0, a.as_ptr(), stride(k), 1, b.as_ptr(), stride(n), 1, 1.0, c.as_mut_ptr(), stride(n), 1);
    }
}

/// `c += a · bᵀ` for row-major matrices, a: m×k, b: n×k, c: m×n.
///
/// # Panics
/// When a slice has another length.
pub fn multiply_add_transposed(m: usize, k: usize, n: usize, a: &[f64], b: &[f64], c: &mut [f64]) {
    assert!(a.len() == m * k && b.len() == k * n && c.len() == m * n, "matrices of other sizes");
    let stride = |columns: usize| columns as isize;
    // SAFETY: as in `multiply_add`, with `b` read along its columns.
    unsafe {
        dgemm(m, k, n, 1.0, a.as_ptr(), stride(k), 1, b.as_ptr(), 1, stride(k), 1.0, c.as_mut_ptr(), stride(n), 1);
    }
}

/// Evaluates `einsum` into `result`, each element rounded once.
pub fn evaluate_into(einsum: &Einsum<'_>, result: ElementsMut<'_>) {
    match result {
        ElementsMut::Float32(slice) => evaluate_into_slice(einsum, slice),
        ElementsMut::Bfloat16(slice) => evaluate_into_slice(einsum, slice),
        ElementsMut::Float16(slice) => evaluate_into_slice(einsum, slice),
    }
}

fn evaluate_into_slice<T: Element>(einsum: &Einsum<'_>, result: &mut [T]) {
    let result = Scattered::new(result);
    einsum.evaluate(&|rows, columns, values| {
        for (row, values) in rows.iter().zip(values.chunks_exact(columns.len())) {
            for (column, value) in columns.iter().zip(values) {
                // SAFETY: every index of the result is handed over exactly once, so no two threads write one element.
                unsafe { result.write(row + column, T::from_f64(*value)) };
            }
        }
    });
}

/// A slice of which several threads write distinct elements.
pub struct Scattered<'a, T> {
    start: *mut T,
    len: usize,
    _slice: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: elements are only written, and `write` demands that no element is written by two threads.
unsafe impl<T: Send> Sync for Scattered<'_, T> {}

impl<'a, T: Copy> Scattered<'a, T> {
    /// Borrows `slice` for scattered writes.
    pub fn new(slice: &'a mut [T]) -> Scattered<'a, T> {
        Scattered { start: slice.as_mut_ptr(), len: slice.len(), _slice: std::marker::PhantomData }
    }

    /// Writes one element.
    ///
    /// # Safety
    /// No two calls, on whatever thread, may be given the same index.
    ///
    /// # Panics
    /// When `index` is out of range.
    pub unsafe fn write(&self, index: usize, value: T) {
        assert!(index < self.len, "index {index} of {}", self.len);
        // SAFETY: in range of a slice that is borrowed uniquely; distinct from every other call's by contract.
        unsafe { self.start.add(index).write(value) };
    }
}

fn letters(text: &str) -> Vec<char> {
    text.trim().chars().collect()
}

/// Every letter once: those of the result first, in its order.
fn in_order(operands: &[Vec<char>], result: &[char]) -> Vec<char> {
    let mut order = result.to_vec();
    for &letter in operands.iter().flatten() {
        if !order.contains(&letter) {
            order.push(letter);
        }
    }
    order
}

/// Stride of `letter` in a row-major tensor: 0 where it does not occur, the sum where it does more than once.
fn stride(letter: char, letters: &[char], dims: &[u64]) -> usize {
    let positions = letters.iter().enumerate().filter(|(_, found)| **found == letter);
    positions.map(|(axis, _)| dims[axis + 1..].iter().product::<u64>() as usize).sum()
}

fn start_offset(letters: &[char], axes: Axes<'_>) -> usize {
    let strided = |(letter, start): (&char, &u64)| *start as usize * stride(*letter, letters, axes.dims);
    axes.start.iter().map(strided).sum()
}

/// Extent of every letter, checked wherever it occurs.
fn extents(
    operands: &[Vec<char>],
    result: &[char],
    axes: &[Axes<'_>],
    result_dims: &[u64],
) -> Result<BTreeMap<char, u64>, String> {
    let all = || operands.iter().flatten().chain(result);
    if let Some(odd) = all().find(|letter| !letter.is_ascii_alphabetic()) {
        return Err(format!("`{odd}` is not a letter"));
    }
    if result.len() != result_dims.len() {
        return Err(format!("the result has {} letters and {} dimensions", result.len(), result_dims.len()));
    }
    let mut extents = BTreeMap::new();
    for (&letter, &dim) in result.iter().zip(result_dims) {
        if extents.insert(letter, dim).is_some() {
            return Err(format!("`{letter}` occurs twice in the result"));
        }
        if !operands.iter().flatten().any(|found| *found == letter) {
            return Err(format!("`{letter}` of the result occurs in no operand"));
        }
    }
    for (letters, source) in operands.iter().zip(axes) {
        if letters.len() != source.dims.len() {
            return Err(format!("an operand has {} letters and {} dimensions", letters.len(), source.dims.len()));
        }
        if let Some(letter) = source.start.keys().find(|letter| !letters.contains(letter)) {
            return Err(format!("the start along `{letter}` belongs to no axis of its operand"));
        }
        for (&letter, &dim) in letters.iter().zip(source.dims) {
            let start = source.start.get(&letter).copied().unwrap_or(0);
            let left = dim.checked_sub(start).ok_or(format!("`{letter}` starts at {start} of {dim}"))?;
            let extent = *extents.entry(letter).or_insert(left);
            let fits = if result.contains(&letter) { extent <= left } else { extent == left };
            if !fits {
                return Err(format!("`{letter}` is {extent} and, in an operand, {left}"));
            }
        }
    }
    Ok(extents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|index| ((index * 37 + 11) % 64) as f32 - 32.0).collect()
    }

    /// Elements, dimensions, start.
    type Numbers<'a> = (&'a [f32], &'a [u64], &'a BTreeMap<char, u64>);

    /// The sum written out, one term at a time.
    fn naive(spec: &str, operands: &[Numbers<'_>], dims: &[u64]) -> Vec<f64> {
        let (inputs, result) = spec.split_once("->").expect("an arrow");
        let inputs: Vec<Vec<char>> = inputs.split(',').map(letters).collect();
        let result = letters(result);
        let mut order: BTreeMap<char, u64> = result.iter().copied().zip(dims.iter().copied()).collect();
        for (letters, (_, dims, start)) in inputs.iter().zip(operands) {
            for (letter, dim) in letters.iter().zip(*dims) {
                order.entry(*letter).or_insert(dim - start.get(letter).unwrap_or(&0));
            }
        }
        let mut sums = vec![0.0; dims.iter().product::<u64>() as usize];
        let total: u64 = order.values().product();
        for flat in 0..total {
            let mut rest = flat;
            let index: BTreeMap<char, u64> = order
                .iter()
                .map(|(letter, extent)| {
                    let value = rest % extent;
                    rest /= extent;
                    (*letter, value)
                })
                .collect();
            let at = |letters: &[char], dims: &[u64], start: &BTreeMap<char, u64>| {
                letters
                    .iter()
                    .zip(dims)
                    .fold(0, |flat, (letter, dim)| flat * dim + index[letter] + start.get(letter).unwrap_or(&0))
                    as usize
            };
            let term: f64 = inputs
                .iter()
                .zip(operands)
                .map(|(letters, (values, dims, start))| f64::from(values[at(letters, dims, start)]))
                .product();
            sums[at(&result, dims, &BTreeMap::new())] += term;
        }
        sums
    }

    fn check(spec: &str, shapes: &[&[u64]], starts: &[&[(char, u64)]], dims: &[u64]) {
        let values: Vec<Vec<f32>> = shapes.iter().map(|dims| numbers(dims.iter().product::<u64>() as usize)).collect();
        let starts: Vec<BTreeMap<char, u64>> =
            (0..shapes.len()).map(|i| starts.get(i).map(|s| s.iter().copied().collect()).unwrap_or_default()).collect();
        let sources: Vec<Source<'_>> = (0..shapes.len())
            .map(|i| Source { elements: Elements::Float32(&values[i]), dims: shapes[i], start: &starts[i] })
            .collect();
        let einsum = Einsum::new(spec, &sources, dims).expect(spec);
        let mut result = vec![f32::NAN; dims.iter().product::<u64>() as usize];
        evaluate_into(&einsum, ElementsMut::Float32(&mut result));
        let operands: Vec<_> = (0..shapes.len()).map(|i| (&values[i][..], shapes[i], &starts[i])).collect();
        let expected: Vec<f32> = naive(spec, &operands, dims).into_iter().map(|value| value as f32).collect();
        assert_eq!(result, expected, "{spec}");
    }

    #[test]
    fn formulas_equal_the_sum_written_out() {
        check("btk,hkd->bthd", &[&[2, 5, 7], &[3, 7, 4]], &[], &[2, 5, 3, 4]);
        check("bhsd,hkd->bhsk", &[&[2, 3, 2, 4], &[3, 6, 4]], &[], &[2, 3, 2, 6]);
        check("mk,kn->mn", &[&[9, 600], &[600, 5]], &[], &[9, 5]);
        check("mk,kn->nm", &[&[300, 3], &[3, 520]], &[], &[520, 300]);
        check("ij->ji", &[&[4, 6]], &[], &[6, 4]);
        check("ij->i", &[&[4, 6]], &[], &[4]);
        check("ii->i", &[&[5, 5]], &[], &[5]);
        check("i,j->", &[&[5], &[4]], &[], &[]);
        check("ab,ab->ab", &[&[5, 3], &[5, 3]], &[], &[5, 3]);
        check("aij,jk->k", &[&[2, 3, 4], &[4, 5]], &[], &[5]);
    }

    #[test]
    fn merged_letters_have_the_same_offsets() {
        let none = BTreeMap::new();
        let check = |spec: &str, shapes: &[&[u64]], dims: &[u64], letters: [usize; 4]| {
            let axes: Vec<Axes<'_>> = shapes.iter().map(|dims| Axes { dims, start: &none }).collect();
            let made = Contraction::new(spec, &axes, dims).expect(spec);
            let groups = [&made.batch, &made.rows, &made.columns, &made.summed];
            for (group, letters) in groups.into_iter().zip(letters) {
                let merged = group.merged();
                assert_eq!(merged.extents.len(), letters, "{spec}: {group:?} is {merged:?}");
                assert_eq!(merged.len(), group.len());
                assert!((0..3).all(|tensor| merged.offsets(tensor) == group.offsets(tensor)), "{spec}: {merged:?}");
            }
        };
        check("btk,hkd->bthd", &[&[2, 5, 7], &[3, 7, 4]], &[2, 5, 3, 4], [0, 1, 2, 1]);
        check("bhsd,hkd->bhsk", &[&[2, 3, 2, 4], &[3, 6, 4]], &[2, 3, 2, 6], [1, 2, 1, 1]);
        check("bhsd->bhsd", &[&[2, 3, 2, 4]], &[2, 3, 2, 4], [0, 1, 0, 0]);
        check("bok->bok", &[&[2, 9, 3]], &[2, 4, 3], [0, 2, 0, 0]);
        check("ij->ji", &[&[4, 6]], &[6, 4], [0, 2, 0, 0]);
        check("ii->i", &[&[5, 5]], &[5], [0, 1, 0, 0]);
        check("i,j->", &[&[5], &[4]], &[], [0, 0, 0, 2]);
        check("bij->", &[&[1, 0, 3]], &[], [0, 0, 0, 1]);
    }

    #[test]
    fn some_vectors_are_evaluated_without_the_rest() {
        let (a, b) = (numbers(7 * 5), numbers(5 * 3));
        let none = BTreeMap::new();
        let sources = || {
            [
                Source { elements: Elements::Float32(&a), dims: &[7, 5], start: &none },
                Source { elements: Elements::Float32(&b), dims: &[5, 3], start: &none },
            ]
        };
        let operands: [Numbers<'_>; 2] = [(&a, &[7, 5], &none), (&b, &[5, 3], &none)];
        for (spec, dims, vectors) in [("mk,kn->mn", [7, 3], [1, 6]), ("mk,kn->nm", [3, 7], [0, 2])] {
            let einsum = Einsum::new(spec, &sources(), &dims).expect("it fits");
            let width = dims[1] as usize;
            let found = std::sync::Mutex::new(BTreeMap::new());
            einsum.evaluate_vectors(&vectors, width, &|rows, columns, values| {
                for (row, values) in rows.iter().zip(values.chunks_exact(columns.len())) {
                    let indices = columns.iter().map(|column| row + column);
                    found.lock().expect("no panic").extend(indices.zip(values.iter().copied()));
                }
            });
            let found = found.into_inner().expect("no panic");
            let wanted: Vec<usize> =
                vectors.iter().flat_map(|v| *v as usize * width..(*v as usize + 1) * width).collect();
            assert_eq!(found.keys().copied().collect::<Vec<_>>(), wanted, "{spec}");
            let expected = naive(spec, &operands, &dims);
            assert!(found.iter().all(|(index, value)| *value == expected[*index]));
        }
    }

    #[test]
    fn operands_are_read_from_their_start_on() {
        check("bnk,hkd->bnhd", &[&[2, 9, 3], &[2, 3, 4]], &[&[('n', 6)]], &[2, 3, 2, 4]);
        check("bok->bok", &[&[2, 9, 3]], &[], &[2, 4, 3]);
        check("mk,kn->mn", &[&[2, 5], &[7, 3]], &[&[('k', 1)], &[('k', 3)]], &[2, 3]);
        check("ij->i", &[&[4, 6]], &[&[('j', 2), ('i', 1)]], &[3]);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_letter() {
        let refused = |spec: &str, shapes: &[&[u64]], start: &[(char, u64)], dims: &[u64]| {
            let values = numbers(1000);
            let start: BTreeMap<char, u64> = start.iter().copied().collect();
            let sources: Vec<Source<'_>> = shapes
                .iter()
                .map(|dims| Source { elements: Elements::Float32(&values), dims, start: &start })
                .collect();
            Einsum::new(spec, &sources, dims).err().expect(spec).to_string()
        };
        assert!(refused("ij", &[&[2, 3]], &[], &[]).contains("`->`"));
        assert!(refused("ij->ik", &[&[2, 3]], &[], &[2, 3]).contains("`k`"));
        assert!(refused("ij->ii", &[&[2, 3]], &[], &[2, 2]).contains("`i` occurs twice"));
        assert!(refused("ij->i", &[&[2, 3]], &[], &[3]).contains("`i` is 3"));
        assert!(refused("ij->i", &[&[2, 3]], &[('j', 4)], &[2]).contains("`j` starts at 4"));
        assert!(refused("ij->i", &[&[2, 3]], &[('x', 1)], &[2]).contains("`x`"));
        assert!(refused("ij,jk->ik", &[&[2, 3], &[4, 5]], &[], &[2, 5]).contains("`j` is 3"));
        assert!(refused("ij->i", &[&[2, 3, 4]], &[], &[2]).contains("dimensions"));
        assert!(refused("i1->i", &[&[2, 3]], &[], &[2]).contains("`1`"));
        assert!(refused("a,b,c->a", &[&[2], &[2]], &[], &[2]).contains("operands"));
    }

    proptest! {
        #[test]
        fn products_of_any_size_are_right(m in 1u64..40, k in 1u64..40, n in 1u64..40, b in 1u64..4) {
            check("bmk,bkn->bmn", &[&[b, m, k], &[b, k, n]], &[], &[b, m, n]);
        }
    }
}
