//! mlarun's own kernels, as functions. Their source is support.cu, which is compiled for the GPU at hand; the
//! parameters here and there must be kept in step.
//!
//! Everything is queued to the context's stream and not waited for.

use std::ffi::c_void;
use std::path::Path;

use cudarc::driver::sys::CUdeviceptr;

use super::driver::Context;
use super::error::CudaError;
use super::launch::{Launched, launch};
use super::limits::Configuration;
use super::memory::{Guarded, Region};
use super::module::{Function, Module};
use crate::model::DType;
use crate::model::protocol::Failure;
use crate::worker::einsum::{Contraction, Group};
use crate::worker::inputs::Generator;

/// Threads of a block; kernels that share memory among them are written for this many.
const THREADS: u32 = 256;
/// Blocks a multiprocessor of kernels that walk over any number of elements.
const BLOCKS_PER_MULTIPROCESSOR: u64 = 16;
/// Letters of one group of a formula, at most.
const MAX_LETTERS: usize = 12;
const TILE_ROWS: u64 = 128;
const TILE_COLUMNS: u64 = 64;

/// Number of an element type in support.cu.
pub const fn dtype_number(dtype: DType) -> i32 {
    match dtype {
        DType::Float32 => 0,
        DType::Bfloat16 => 1,
        DType::Float16 => 2,
    }
}

/// The number 1 in place of an operand.
const ONE: i32 = 4;

/// Multiprocessors that marks have room for.
const MARKS: usize = 1024;
/// Bytes of the marks of one moment: three numbers of eight bytes for each multiprocessor.
pub const MARKS_BYTES: usize = MARKS * 3 * 8;

/// Functions of the loaded support code.
pub struct Support {
    fill: Function,
    first_non_finite: Function,
    contract: Function,
    contract_vectors: Function,
    attention: Function,
    flush: Function,
    hold: Function,
    mark: Function,
    clock: Function,
    pub empty: Function,
}

/// `struct Group` of support.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawGroup {
    letters: i64,
    extent: [i64; MAX_LETTERS],
    stride: [[i64; 3]; MAX_LETTERS],
}

impl RawGroup {
    /// `None` where there are too many letters even when merged.
    fn new(group: &Group) -> Option<RawGroup> {
        let group = group.merged();
        let letters = group.extents.len();
        let mut raw = RawGroup { letters: letters as i64, extent: [1; MAX_LETTERS], stride: [[0; 3]; MAX_LETTERS] };
        if letters > MAX_LETTERS {
            return None;
        }
        for (index, (extent, strides)) in group.extents.iter().zip(&group.strides).enumerate() {
            raw.extent[index] = *extent as i64;
            raw.stride[index] = strides.map(|stride| stride as i64);
        }
        Some(raw)
    }
}

/// `struct Contraction` of support.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawContraction {
    left: CUdeviceptr,
    right: CUdeviceptr,
    result: CUdeviceptr,
    left_start: i64,
    right_start: i64,
    batches: i64,
    rows: i64,
    columns: i64,
    depth: i64,
    left_dtype: i32,
    right_dtype: i32,
    result_dtype: i32,
    unused: i32,
    batch: RawGroup,
    row: RawGroup,
    column: RawGroup,
    summed: RawGroup,
}

impl RawContraction {
    fn new(contraction: &Contraction, operands: &[&Guarded]) -> Option<RawContraction> {
        let left = operands[contraction.left];
        let right = contraction.right.map(|right| operands[right]);
        Some(RawContraction {
            left: left.address(),
            right: right.map_or(0, Guarded::address),
            result: 0,
            left_start: contraction.left_start as i64,
            right_start: contraction.right_start as i64,
            batches: contraction.batch.len() as i64,
            rows: contraction.rows.len() as i64,
            columns: contraction.columns.len() as i64,
            depth: contraction.summed.len() as i64,
            left_dtype: dtype_number(left.dtype()),
            right_dtype: right.map_or(ONE, |right| dtype_number(right.dtype())),
            result_dtype: 0,
            unused: 0,
            batch: RawGroup::new(&contraction.batch)?,
            row: RawGroup::new(&contraction.rows)?,
            column: RawGroup::new(&contraction.columns)?,
            summed: RawGroup::new(&contraction.summed)?,
        })
    }
}

/// `struct Tensor` of support.cu.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawTensor {
    from: CUdeviceptr,
    dtype: i64,
}

impl RawTensor {
    /// There is none.
    pub const NONE: RawTensor = RawTensor { from: 0, dtype: 0 };

    /// All elements of a buffer.
    pub fn new(buffer: &Guarded) -> RawTensor {
        RawTensor { from: buffer.address(), dtype: i64::from(dtype_number(buffer.dtype())) }
    }
}

/// `struct Attention` of support.cu.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawAttention {
    /// q, qpe, z, kpe, w_uk, w_uv.
    pub tensors: [RawTensor; 6],
    /// qc, key, value, where they are taken as the kernel reads them.
    pub as_read: [RawTensor; 3],
    pub h: i64,
    pub s: i64,
    pub t: i64,
    pub d: i64,
    pub k: i64,
    pub p: i64,
    /// Tokens of `key` and `value`.
    pub n: i64,
    pub scale: f64,
    pub causal: i64,
}

/// A kernel's parameter: the address of its value.
fn parameter<T: Copy>(value: &T) -> *mut c_void {
    std::ptr::from_ref(value).cast_mut().cast()
}

/// Failure of a formula with more letters than the kernel takes.
fn too_many_letters() -> Failure {
    super::error::internal(format!("a formula has more than {MAX_LETTERS} letters of one kind"))
}

impl Support {
    /// Loads the support code from the cubin at `path`.
    ///
    /// # Errors
    /// It does not load, or is of another mlarun.
    pub fn load(path: &Path) -> Result<Support, Failure> {
        let module = Module::load(path)?;
        let function = |name: &str| -> Result<Function, Failure> {
            module.function(name).map_err(|error| {
                let failure = Failure::from(error);
                let message =
                    format!("mlarun's own device code in {} has no `{name}`: {}", path.display(), failure.message);
                Failure { message, ..failure }
            })
        };
        Ok(Support {
            fill: function("mlarun_fill")?,
            first_non_finite: function("mlarun_first_non_finite")?,
            contract: function("mlarun_contract")?,
            contract_vectors: function("mlarun_contract_vectors")?,
            attention: function("mlarun_attention")?,
            flush: function("mlarun_flush")?,
            hold: function("mlarun_hold")?,
            mark: function("mlarun_mark")?,
            clock: function("mlarun_clock")?,
            empty: function("mlarun_empty")?,
        })
    }

    /// Fills a buffer with the numbers of a generator.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn fill(&self, context: &Context, buffer: &Guarded, generator: &Generator) -> Result<(), CudaError> {
        let (stream, uniform, scale, middle) = match *generator {
            Generator::Normal { stream, scale } => (stream, 0i32, scale, 0.0f32),
            Generator::Uniform { stream, half_width, middle } => (stream, 1, half_width, middle),
        };
        let (to, dtype, count) = (buffer.address(), dtype_number(buffer.dtype()), buffer.len() as i64);
        let parameters = [
            parameter(&to),
            parameter(&dtype),
            parameter(&count),
            parameter(&stream),
            parameter(&uniform),
            parameter(&scale),
            parameter(&middle),
        ];
        run(context, self.fill, walking(context, buffer.len() as u64), &parameters)
    }

    /// Index of the first element that is no finite number; waits for the answer.
    ///
    /// # Errors
    /// A kernel before failed, or the driver refuses.
    pub fn first_non_finite(&self, context: &Context, buffer: &Guarded) -> Result<Option<usize>, CudaError> {
        let first = Region::holding(&[u64::MAX], &context.stream)?;
        let (from, dtype, count, to) =
            (buffer.address(), dtype_number(buffer.dtype()), buffer.len() as i64, first.address());
        let parameters = [parameter(&from), parameter(&dtype), parameter(&count), parameter(&to)];
        run(context, self.first_non_finite, walking(context, buffer.len() as u64), &parameters)?;
        let mut found = [u64::MAX];
        first.download(0, &mut found, &context.stream)?;
        Ok(usize::try_from(found[0]).ok().filter(|_| found[0] != u64::MAX))
    }

    /// Evaluates a formula into a buffer, each element rounded once.
    ///
    /// # Errors
    /// The formula has too many letters, or the driver refuses.
    pub fn contract(
        &self,
        context: &Context,
        contraction: &Contraction,
        operands: &[&Guarded],
        to: &Guarded,
    ) -> Result<(), Failure> {
        let mut raw = RawContraction::new(contraction, operands).ok_or_else(too_many_letters)?;
        raw.result = to.address();
        raw.result_dtype = dtype_number(to.dtype());
        let tiles = |count: i64, tile: u64| u128::from((count as u64).div_ceil(tile));
        let tiles = raw.batches as u128 * tiles(raw.rows, TILE_ROWS) * tiles(raw.columns, TILE_COLUMNS);
        Ok(run(context, self.contract, blocks(tiles.min(1 << 20) as u32), &[parameter(&raw)])?)
    }

    /// Evaluates the vectors of `width` elements along the last dimension of a formula's result with these indices, in
    /// float64; waits for the answer.
    ///
    /// # Errors
    /// The formula has too many letters, the memory does not suffice, or the driver refuses.
    pub fn contract_vectors(
        &self,
        context: &Context,
        contraction: &Contraction,
        operands: &[&Guarded],
        vectors: &[u64],
        width: usize,
    ) -> Result<Vec<f64>, Failure> {
        let raw = RawContraction::new(contraction, operands).ok_or_else(too_many_letters)?;
        let mut values = vec![0.0f64; vectors.len() * width];
        let indices = Region::holding(vectors, &context.stream)?;
        let result = Region::new(size_of_val(&values[..]))?;
        let (from, count, width, to) = (indices.address(), vectors.len() as i64, width as i64, result.address());
        let parameters = [parameter(&raw), parameter(&from), parameter(&count), parameter(&width), parameter(&to)];
        run(context, self.contract_vectors, walking(context, values.len() as u64 * 32), &parameters)?;
        result.download(0, &mut values, &context.stream)?;
        Ok(values)
    }

    /// Evaluates rows of an attention; `work` has room for `t + 2k` numbers a row, `to` for `d`.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn attention(
        &self,
        context: &Context,
        attention: &RawAttention,
        rows: &Region,
        count: usize,
        to: &Region,
        work: &Region,
    ) -> Result<(), CudaError> {
        let (rows, to, work) = (rows.address(), to.address(), work.address());
        let parameters = [parameter(attention), parameter(&rows), parameter(&to), parameter(&work)];
        run(context, self.attention, blocks(u32::try_from(count).unwrap_or(u32::MAX)), &parameters)
    }

    /// Writes all of `region`.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn flush(&self, context: &Context, region: &Region, value: u32) -> Result<(), CudaError> {
        let (to, count) = (region.address(), region.bytes() as i64 / 16);
        let parameters = [parameter(&to), parameter(&count), parameter(&value)];
        run(context, self.flush, walking(context, count as u64), &parameters)
    }

    /// Holds the stream until the number at `ticket` reaches `awaited`, or `limit_ns` have passed; the number at
    /// `expired` then becomes 1.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn hold(
        &self,
        context: &Context,
        ticket: CUdeviceptr,
        awaited: u32,
        expired: CUdeviceptr,
        limit_ns: u64,
    ) -> Result<(), CudaError> {
        let parameters = [parameter(&ticket), parameter(&awaited), parameter(&expired), parameter(&limit_ns)];
        run(context, self.hold, SINGLE, &parameters)
    }

    /// Notes time and cycle of every multiprocessor in `marks`, which has [`MARKS_BYTES`], for the sample `turn`.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn mark(&self, context: &Context, marks: &Region, turn: u64) -> Result<(), CudaError> {
        let to = marks.address();
        let one_each = Configuration { grid: [context.limits.multiprocessors, 1, 1], ..SINGLE };
        run(context, self.mark, one_each, &[parameter(&to), parameter(&turn)])
    }

    /// Writes the clock in MHz between the marks of the sample `turn`, the mean over the multiprocessors, to the number
    /// `index` of `to`.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn clock(
        &self,
        context: &Context,
        [before, after]: [&Region; 2],
        turn: u64,
        to: &Region,
        index: usize,
    ) -> Result<(), CudaError> {
        let to = to.address() + (index * size_of::<f64>()) as CUdeviceptr;
        let (before, after) = (before.address(), after.address());
        let parameters = [parameter(&before), parameter(&after), parameter(&turn), parameter(&to)];
        run(context, self.clock, blocks(1), &parameters)
    }
}

/// One thread.
const SINGLE: Configuration =
    Configuration { grid: [1; 3], block: [1; 3], shared_bytes: 0, cluster: None, cooperative: false };

fn blocks(blocks: u32) -> Configuration {
    Configuration { grid: [blocks, 1, 1], block: [THREADS, 1, 1], ..SINGLE }
}

/// For a kernel that walks over `threads` pieces of work with as many threads as the GPU holds.
fn walking(context: &Context, threads: u64) -> Configuration {
    let most = u64::from(context.limits.multiprocessors) * BLOCKS_PER_MULTIPROCESSOR;
    blocks(u32::try_from(threads.div_ceil(u64::from(THREADS)).min(most)).unwrap_or(u32::MAX))
}

fn run(
    context: &Context,
    function: Function,
    configuration: Configuration,
    parameters: &[*mut c_void],
) -> Result<(), CudaError> {
    if configuration.is_empty() {
        return Ok(());
    }
    launch(&Launched { function, configuration, parameters }, &context.stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::einsum::Axes;
    use std::collections::BTreeMap;

    #[test]
    fn structures_have_the_layout_of_the_device_code() {
        assert_eq!(size_of::<RawGroup>(), 8 * (1 + MAX_LETTERS + 3 * MAX_LETTERS));
        assert_eq!(size_of::<RawContraction>(), 9 * 8 + 4 * 4 + 4 * size_of::<RawGroup>());
        assert_eq!(size_of::<RawAttention>(), 9 * 16 + 9 * 8);
        let source = crate::model::protocol::SUPPORT_SOURCE;
        assert!(source.contains(&format!("#define MAX_LETTERS {MAX_LETTERS}\n")));
        assert!(source.contains(&format!("#define TILE_ROWS {TILE_ROWS}\n")));
        assert!(source.contains(&format!("#define TILE_COLUMNS {TILE_COLUMNS}\n")));
        assert!(source.contains(&format!("#define THREADS {THREADS}\n")));
        assert!(source.contains(&format!("#define MARKS {MARKS}\n")));
        assert!(source.contains("FLOAT32 = 0, BFLOAT16 = 1, FLOAT16 = 2, FLOAT64 = 3, ONE = 4"));
    }

    /// What `place` of the device code computes.
    fn place(group: &RawGroup, mut member: i64) -> [i64; 3] {
        let mut at = [0; 3];
        for letter in (0..group.letters as usize).rev() {
            let index = if letter == 0 { member } else { member % group.extent[letter] };
            member = if letter == 0 { 0 } else { member / group.extent[letter] };
            (0..3).for_each(|tensor| at[tensor] += index * group.stride[letter][tensor]);
        }
        at
    }

    #[test]
    fn the_device_walks_a_group_as_the_host_does() {
        let start = BTreeMap::from([('n', 6)]);
        let none = BTreeMap::new();
        let (left, right) = (Axes { dims: &[2, 9, 3], start: &start }, Axes { dims: &[2, 3, 4], start: &none });
        let made = Contraction::new("bnk,hkd->bnhd", &[left, right], &[2, 3, 2, 4]).expect("it fits");
        assert_eq!((made.left_start, made.right_start), (18, 0));
        for group in [&made.batch, &made.rows, &made.columns, &made.summed] {
            let raw = RawGroup::new(group).expect("few letters");
            for member in 0..group.len() {
                let expected = [0, 1, 2].map(|tensor| group.offsets(tensor)[member] as i64);
                assert_eq!(place(&raw, member as i64), expected, "{group:?} {member}");
            }
        }
    }
}
