//! Expected rows of the output in float64, from the definition and the very inputs that the kernel reads.
//!
//! Attention is evaluated for each pair of batch entry and head that has a compared row: K = Z·W_UK and V = Z·W_UV of
//! that head are decompressed, scores are scale · (Q·Kᵀ + QPE·KPEᵀ), keys that a query does not see are left out, and
//! the softmax subtracts the largest score. Nothing here shares code or method with a kernel. Where a kernel's rounding of
//! what it reads would by itself move the softmax beyond any tolerance, K, V or Q·W_UKᵀ are taken as it reads them.

use rayon::prelude::*;

use super::buffers::sources;
use super::definition::PipelineError;
use super::einsum::{self, Scattered, multiply_add, multiply_add_transposed};
use super::element::Elements;
use crate::model::pipeline::{AsRead, Buffer, Pipeline, ReferenceFormula};
use crate::model::protocol::Failure;

/// Expected values of some rows, row by row in ascending order of their indices.
#[derive(Debug, Clone, PartialEq)]
pub struct ReferenceRows {
    pub rows: Vec<u64>,
    pub columns: usize,
    pub values: Vec<f64>,
}

impl ReferenceRows {
    /// Each row's index with its values.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[f64])> {
        self.rows.iter().copied().zip(self.values.chunks_exact(self.columns.max(1)))
    }
}

/// Evaluates the reference of a checked pipeline for `rows` of its output. Runs on the current rayon pool.
///
/// # Errors
/// Dimensions that do not fit one another.
pub fn evaluate<'a>(
    pipeline: &'a Pipeline,
    formula: &'a ReferenceFormula,
    output: usize,
    rows: Vec<u64>,
    elements: impl Fn(usize) -> Elements<'a> + Sync,
) -> Result<ReferenceRows, Failure> {
    let dims = &pipeline.buffers[output].dims;
    let columns = dims.last().copied().unwrap_or(1) as usize;
    let mut values = vec![0.0; rows.len() * columns];
    match formula {
        ReferenceFormula::MlaAttention { q, qpe, z, kpe, w_uk, w_uv, scale, causal, as_read } => {
            let sizes = Sizes::new(pipeline, [*q, *qpe, *z, *kpe, *w_uk, *w_uv], as_read, output)?;
            let [q, qpe, z, kpe, w_uk, w_uv] = [*q, *qpe, *z, *kpe, *w_uk, *w_uv].map(&elements);
            let qc = as_read.qc.map(&elements);
            let decompressed = as_read.decompressed.map(|read| [read.key, read.value].map(&elements));
            let (scale, causal) = (*scale, *causal);
            let attention = Attention { sizes, q, qpe, z, kpe, w_uk, w_uv, qc, decompressed, scale, causal };
            attention.evaluate(&rows, &mut values);
        }
        ReferenceFormula::Einsum { formula } => {
            let sources = sources(formula, pipeline, &elements);
            let einsum = einsum::Einsum::new(&formula.spec, &sources, dims)?;
            gather_rows(&einsum, &rows, columns, &mut values);
        }
    }
    Ok(ReferenceRows { rows, columns, values })
}

/// Evaluates a formula and keeps the elements of `rows`.
fn gather_rows(einsum: &einsum::Einsum<'_>, rows: &[u64], columns: usize, values: &mut [f64]) {
    let values = Scattered::new(values);
    einsum.evaluate_vectors(rows, columns, &|row_offsets, column_offsets, block| {
        for (row_offset, block_row) in row_offsets.iter().zip(block.chunks_exact(column_offsets.len())) {
            for (column_offset, value) in column_offsets.iter().zip(block_row) {
                let index = row_offset + column_offset;
                if let Ok(position) = rows.binary_search(&((index / columns) as u64)) {
                    // SAFETY: every index of the result is handed over exactly once, and so is each position.
                    unsafe { values.write(position * columns + index % columns, *value) };
                }
            }
        }
    });
}

/// Sizes by their customary letters.
pub struct Sizes {
    pub h: usize,
    pub s: usize,
    pub t: usize,
    pub d: usize,
    pub k: usize,
    pub p: usize,
    /// Tokens, the last ones, whose keys and values are taken as they are read.
    pub n: usize,
}

impl Sizes {
    /// Sizes of the tensors of an attention, by their indices.
    ///
    /// # Errors
    /// They do not fit one another.
    pub fn new(
        pipeline: &Pipeline,
        [q, qpe, z, kpe, w_uk, w_uv]: [usize; 6],
        as_read: &AsRead,
        output: usize,
    ) -> Result<Sizes, PipelineError> {
        let mut letters = Letters::default();
        let base =
            [(q, "bhsd"), (qpe, "bhsp"), (z, "btk"), (kpe, "btp"), (w_uk, "hkd"), (w_uv, "hkd"), (output, "bhsd")];
        let qc = as_read.qc.map(|qc| (qc, "bhsk"));
        let decompressed = as_read.decompressed.map(|read| [(read.key, "bnhd"), (read.value, "bnhd")]);
        for (index, names) in base.into_iter().chain(qc).chain(decompressed.into_iter().flatten()) {
            letters.bind(&pipeline.buffers[index], names)?;
        }
        let size =
            |letter: char| letters.0.iter().find(|(known, ..)| *known == letter).map_or(0, |found| found.1 as usize);
        let sizes = ['h', 's', 't', 'd', 'k', 'p', 'n'].map(size);
        let [h, s, t, d, k, p, n] = sizes;
        if n > t {
            return Err(PipelineError::MoreRead { n, t });
        }
        Ok(Sizes { h, s, t, d, k, p, n })
    }
}

/// Sizes bound so far, with the buffer that bound them.
#[derive(Default)]
struct Letters(Vec<(char, u64, String)>);

impl Letters {
    fn bind(&mut self, buffer: &Buffer, names: &str) -> Result<(), PipelineError> {
        if buffer.dims.len() != names.len() {
            let (found, wanted) = (buffer.dims.len(), names.len());
            return Err(PipelineError::Dimensions { buffer: buffer.name.clone(), found, wanted });
        }
        for (letter, &other) in names.chars().zip(&buffer.dims) {
            match self.0.iter().find(|(known, ..)| *known == letter) {
                Some((_, one, a)) if *one != other => {
                    let (a, b) = (a.clone(), buffer.name.clone());
                    return Err(PipelineError::Mismatch { letter, a, one: *one, b, other });
                }
                Some(_) => {}
                None => self.0.push((letter, other, buffer.name.clone())),
            }
        }
        Ok(())
    }
}

struct Attention<'a> {
    sizes: Sizes,
    q: Elements<'a>,
    qpe: Elements<'a>,
    z: Elements<'a>,
    kpe: Elements<'a>,
    w_uk: Elements<'a>,
    w_uv: Elements<'a>,
    qc: Option<Elements<'a>>,
    /// Keys and values of the last tokens.
    decompressed: Option<[Elements<'a>; 2]>,
    scale: f64,
    causal: bool,
}

impl Attention<'_> {
    fn evaluate(&self, rows: &[u64], values: &mut [f64]) {
        let (s, d) = (self.sizes.s as u64, self.sizes.d);
        let mut heads = Vec::new();
        let mut rest = values;
        for rows in rows.chunk_by(|a, b| a / s == b / s) {
            let (values, after) = rest.split_at_mut(rows.len() * d);
            heads.push((rows, values));
            rest = after;
        }
        heads.into_par_iter().for_each(|(rows, values)| self.evaluate_head(rows, values));
    }

    /// Rows of one pair of batch entry and head.
    fn evaluate_head(&self, rows: &[u64], values: &mut [f64]) {
        let Sizes { h, s, t, d, k, p, n } = self.sizes;
        let pair = rows[0] as usize / s;
        let (b, head) = (pair / h, pair % h);
        let old = t - n;
        let z = numbers(self.z, b * t * k, old * k);
        let decompress = |weights: Elements<'_>| {
            let mut product = vec![0.0; old * d];
            multiply_add(old, k, d, &z, &numbers(weights, head * k * d, k * d), &mut product);
            product
        };
        // The head's rows of the last tokens.
        let read = |elements: Elements<'_>| -> Vec<f64> {
            (0..n).flat_map(|token| numbers(elements, ((b * n + token) * h + head) * d, d)).collect()
        };
        let gather = |elements: Elements<'_>, width: usize| -> Vec<f64> {
            rows.iter().flat_map(|row| numbers(elements, *row as usize * width, width)).collect()
        };
        let mut scores = vec![0.0; rows.len() * t];
        let mut add = |first: usize, depth: usize, queries: &[f64], keys: &[f64]| {
            let tokens = keys.len() / depth.max(1);
            let mut products = vec![0.0; rows.len() * tokens];
            multiply_add_transposed(rows.len(), depth, tokens, queries, keys, &mut products);
            for (scores, products) in scores.chunks_exact_mut(t.max(1)).zip(products.chunks_exact(tokens.max(1))) {
                scores[first..].iter_mut().zip(products).for_each(|(score, product)| *score += product);
            }
        };
        let queries = gather(self.q, d);
        match self.qc {
            Some(qc) => add(0, k, &gather(qc, k), &z),
            None => add(0, d, &queries, &decompress(self.w_uk)),
        }
        self.decompressed.iter().for_each(|[key, _]| add(old, d, &queries, &read(*key)));
        add(0, p, &gather(self.qpe, p), &numbers(self.kpe, b * t * p, t * p));
        for (row, scores) in rows.iter().zip(scores.chunks_exact_mut(t.max(1))) {
            softmax(scores, self.visible_keys(*row as usize % s), self.scale);
        }
        values.fill(0.0);
        let mut all = decompress(self.w_uv);
        all.extend(self.decompressed.iter().flat_map(|[_, value]| read(*value)));
        multiply_add(rows.len(), t, d, &scores, &all, values);
    }

    /// Keys that query `i` sees: those before this number. Causal: j <= t - s + i.
    fn visible_keys(&self, i: usize) -> usize {
        let Sizes { s, t, .. } = self.sizes;
        if self.causal { (t + i + 1).saturating_sub(s).min(t) } else { t }
    }
}

/// Replaces scores by the weights of the first `visible` keys, 0 for the others and for a query that sees none.
fn softmax(scores: &mut [f64], visible: usize, scale: f64) {
    let (seen, hidden) = scores.split_at_mut(visible);
    hidden.fill(0.0);
    let largest = seen.iter().fold(f64::NEG_INFINITY, |largest, score| largest.max(score * scale));
    seen.iter_mut().for_each(|score| *score = (*score * scale - largest).exp());
    let sum: f64 = seen.iter().sum();
    seen.iter_mut().for_each(|weight| *weight /= sum);
}

fn numbers(elements: Elements<'_>, start: usize, count: usize) -> Vec<f64> {
    (start..start + count).map(|index| elements.get(index)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::DType;
    use crate::model::pipeline::{Decompressed, Distribution, Einsum, Operand, Role};
    use crate::worker::element::ElementsMut;
    use crate::worker::inputs;

    struct Case {
        pipeline: Pipeline,
        values: Vec<Vec<f32>>,
    }

    fn case(b: u64, h: u64, s: u64, t: u64, d: u64, k: u64, p: u64) -> Case {
        let shapes = [
            ("q", vec![b, h, s, d]),
            ("qpe", vec![b, h, s, p]),
            ("z", vec![b, t, k]),
            ("kpe", vec![b, t, p]),
            ("w_uk", vec![h, k, d]),
            ("w_uv", vec![h, k, d]),
            ("o", vec![b, h, s, d]),
            ("qc", vec![b, h, s, k]),
            ("key", vec![b, t / 2, h, d]),
            ("value", vec![b, t / 2, h, d]),
        ];
        let buffers: Vec<Buffer> = shapes
            .into_iter()
            .map(|(name, dims)| Buffer { name: name.into(), dtype: DType::Float32, dims, role: Role::Output })
            .collect();
        let values = buffers
            .iter()
            .zip(0..)
            .map(|(buffer, seed)| {
                let mut values = vec![0.0; buffer.elements() as usize];
                inputs::fill(ElementsMut::Float32(&mut values), &Distribution::Normal { std: 0.5, seed });
                values
            })
            .collect();
        Case { pipeline: Pipeline { buffers, stages: vec![], reference: None }, values }
    }

    fn attention(scale: f64, causal: bool) -> ReferenceFormula {
        let as_read = AsRead::default();
        ReferenceFormula::MlaAttention { q: 0, qpe: 1, z: 2, kpe: 3, w_uk: 4, w_uv: 5, scale, causal, as_read }
    }

    impl Case {
        fn evaluate(&self, formula: &ReferenceFormula, rows: Vec<u64>) -> Result<ReferenceRows, Failure> {
            evaluate(&self.pipeline, formula, 6, rows, |index| Elements::Float32(&self.values[index]))
        }

        /// The definition written out with loops, one element at a time.
        fn naive(&self, row: usize, scale: f64, causal: bool) -> Vec<f64> {
            let dims = |index: usize| self.pipeline.buffers[index].dims.iter().map(|d| *d as usize).collect::<Vec<_>>();
            let ([_, h, s, d], [_, t, k], p) =
                (dims(0)[..4].try_into().unwrap_or([0; 4]), dims(2)[..3].try_into().unwrap_or([0; 3]), dims(1)[3]);
            let at = |buffer: usize, index: usize| f64::from(self.values[buffer][index]);
            let (b, head, i) = (row / s / h, row / s % h, row % s);
            let up = |weights: usize, j: usize, e: usize| -> f64 {
                (0..k).map(|c| at(2, (b * t + j) * k + c) * at(weights, (head * k + c) * d + e)).sum()
            };
            let score = |j: usize| -> f64 {
                let content: f64 = (0..d).map(|e| at(0, row * d + e) * up(4, j, e)).sum();
                let rotary: f64 = (0..p).map(|e| at(1, row * p + e) * at(3, (b * t + j) * p + e)).sum();
                (scale * (content + rotary)).exp()
            };
            let seen: Vec<usize> = (0..t).filter(|j| !causal || j + s <= t + i).collect();
            let weights: Vec<f64> = seen.iter().map(|j| score(*j)).collect();
            let sum: f64 = weights.iter().sum();
            let value = |e: usize| seen.iter().zip(&weights).map(|(j, w)| w / sum * up(5, *j, e)).sum();
            if seen.is_empty() { vec![0.0; d] } else { (0..d).map(value).collect() }
        }
    }

    #[test]
    fn attention_equals_the_definition_written_out() {
        for (shape, causal) in [([2, 3, 2, 7], false), ([2, 3, 4, 7], true), ([1, 2, 6, 3], true), ([1, 1, 1, 1], true)]
        {
            let [b, h, s, t] = shape;
            let case = case(b, h, s, t, 5, 6, 3);
            let found = case.evaluate(&attention(0.4, causal), (0..b * h * s).collect()).expect("it fits");
            for (row, values) in found.iter() {
                for (value, expected) in values.iter().zip(case.naive(row as usize, 0.4, causal)) {
                    assert!((value - expected).abs() < 1e-12, "{shape:?} row {row}: {value} {expected}");
                }
            }
        }
    }

    /// Every way to take tensors as they are read: absorbed queries, keys and values of the last tokens, both.
    fn ways_to_read() -> [AsRead; 3] {
        let (qc, decompressed) = (Some(7), Some(Decompressed { key: 8, value: 9 }));
        [AsRead { qc, decompressed: None }, AsRead { qc: None, decompressed }, AsRead { qc, decompressed }]
    }

    #[test]
    fn tensors_that_are_taken_as_they_are_read_replace_what_would_be_derived() {
        let [b, h, s, t, d, k, p] = [2usize, 3, 4, 7, 5, 6, 3];
        let case = case(2, 3, 4, 7, 5, 6, 3);
        let at = |buffer: usize, index: usize| f64::from(case.values[buffer][index]);
        for (as_read, causal) in ways_to_read().into_iter().flat_map(|as_read| [(as_read, true), (as_read, false)]) {
            let n = if as_read.decompressed.is_some() { t / 2 } else { 0 };
            let old = t - n;
            let mut formula = attention(0.4, causal);
            if let ReferenceFormula::MlaAttention { as_read: of, .. } = &mut formula {
                *of = as_read;
            }
            let found = case.evaluate(&formula, (0..(b * h * s) as u64).collect()).expect("it fits");
            for (row, values) in found.iter() {
                let row = row as usize;
                let (batch, head, i) = (row / s / h, row / s % h, row % s);
                let z = |j: usize, c: usize| at(2, (batch * t + j) * k + c);
                let up = |weights: usize, j: usize, e: usize| -> f64 {
                    (0..k).map(|c| z(j, c) * at(weights, (head * k + c) * d + e)).sum()
                };
                let read = |buffer: usize, j: usize, e: usize| at(buffer, ((batch * n + j - old) * h + head) * d + e);
                let score = |j: usize| -> f64 {
                    let q = |e: usize| at(0, row * d + e);
                    let content: f64 = match (j < old, as_read.qc) {
                        (true, Some(qc)) => (0..k).map(|c| at(qc, row * k + c) * z(j, c)).sum(),
                        (true, None) => (0..d).map(|e| q(e) * up(4, j, e)).sum(),
                        (false, _) => (0..d).map(|e| q(e) * read(8, j, e)).sum(),
                    };
                    let rotary: f64 = (0..p).map(|e| at(1, row * p + e) * at(3, (batch * t + j) * p + e)).sum();
                    (0.4 * (content + rotary)).exp()
                };
                let seen: Vec<usize> = (0..t).filter(|j| !causal || j + s <= t + i).collect();
                let sum: f64 = seen.iter().map(|j| score(*j)).sum();
                for (e, value) in values.iter().enumerate() {
                    let of = |j: usize| if j < old { up(5, j, e) } else { read(9, j, e) };
                    let expected: f64 = seen.iter().map(|j| score(*j) / sum * of(*j)).sum();
                    assert!((value - expected).abs() < 1e-12, "{as_read:?} row {row}: {value} {expected}");
                }
            }
        }
    }

    #[test]
    fn some_rows_are_the_same_rows() {
        let case = case(2, 3, 4, 7, 5, 6, 3);
        let all = case.evaluate(&attention(0.4, true), (0..24).collect()).expect("it fits");
        let some = case.evaluate(&attention(0.4, true), vec![0, 5, 6, 23]).expect("it fits");
        for (row, values) in some.iter() {
            let (_, expected) = all.iter().nth(row as usize).expect("it is there");
            assert!(values.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-13));
        }
    }

    #[test]
    fn a_query_that_sees_no_key_has_the_result_zero() {
        let case = case(1, 1, 5, 2, 3, 4, 2);
        let rows = case.evaluate(&attention(1.0, true), vec![0, 2, 3]).expect("it fits");
        let (unseen, seen) = rows.values.split_at(6);
        assert!(unseen.iter().all(|value| *value == 0.0) && seen.iter().all(|value| *value != 0.0));
    }

    #[test]
    fn a_formula_gives_its_rows() {
        let case = case(2, 3, 2, 4, 5, 6, 3);
        let operands = vec![Operand { buffer: 0, start: Default::default() }];
        let formula = ReferenceFormula::Einsum { formula: Einsum { spec: "bhsd->bhsd".into(), operands } };
        let rows = case.evaluate(&formula, vec![1, 7, 11]).expect("it fits");
        let expected: Vec<f64> =
            [1, 7, 11].iter().flat_map(|row| &case.values[0][row * 5..row * 5 + 5]).map(|v| f64::from(*v)).collect();
        assert_eq!(rows.values, expected);
    }

    #[test]
    fn dimensions_that_do_not_fit_are_named() {
        let mut case = case(2, 3, 2, 4, 5, 6, 3);
        case.pipeline.buffers[3].dims[1] = 9;
        let failure = case.evaluate(&attention(1.0, false), vec![0]).expect_err("t differs");
        assert!(failure.message.contains("t is 4 in `z` and 9 in `kpe`"), "{failure}");
    }
}
