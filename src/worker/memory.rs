//! Buffers of a pipeline in the worker's memory: aligned, with a guard band of NaN on either side, poisoned before a
//! run. Finds what a kernel did not write, wrote beside a buffer, or computed from memory that it should not read.
//! Knows nothing of formulas.
//!
//! Every band and poison is a quiet NaN whose payload tells its origin. Arithmetic on x86 and Arm keeps the payload of
//! a NaN operand, so a NaN in the output often names the memory that it came from. A kernel that is compiled with
//! `-ffinite-math-only` may swallow a NaN; then the comparison of values remains.

use std::ffi::c_void;
use std::ptr::NonNull;

use half::{bf16, f16};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::element::{Elements, ElementsMut};
use crate::model::DType;
use crate::model::pipeline::{Buffer, Role};
use crate::model::protocol::{Failure, FailureKind};

/// Bytes of each guard band, at least.
pub const GUARD_BYTES: usize = 4096;
/// Rows (tokens, where the second dimension counts them) by which a tile may reach over the end of an input.
const OVERHANG_ROWS: u128 = 128;
/// Bytes behind an input at most: the overhang of a cache of 128 heads of 128 float32.
const MOST_BEHIND: u128 = 8 << 20;
/// Buffers start at a multiple of this many bytes.
pub const ALIGNMENT: usize = 64;
/// From this size on, huge pages are asked for, so that address translation differs less between processes.
const HUGE_PAGES_FROM_BYTES: usize = 4 << 20;

/// What a NaN payload stands for. The 16-bit pattern is a NaN of bfloat16 and of float16; twice, one of float32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Poison {
    /// An output before a run.
    Output = 0x7FD5,
    /// Scratch before a run.
    Scratch = 0x7FE9,
    /// Memory beside a buffer.
    Guard = 0x7FDA,
}

impl Poison {
    const ALL: [Poison; 3] = [Poison::Output, Poison::Scratch, Poison::Guard];

    fn of_bits(high_bits: u16) -> Option<Poison> {
        Poison::ALL.into_iter().find(|poison| *poison as u16 == high_bits & 0x7FFF)
    }

    fn explain(self) -> &'static str {
        match self {
            Poison::Output => "the NaN that the output held before the run: it was never written",
            Poison::Scratch => "a NaN from scratch memory that no stage had written",
            Poison::Guard => "a NaN from the memory beside a buffer: values were read from outside of it",
        }
    }
}

/// Bytes of NaN behind `buffer`, at least `least`: what a kernel finds that reads a whole tile of an input of which only
/// the first rows are there, as in a cache with room for more tokens.
pub fn bytes_behind(buffer: &Buffer, least: usize) -> usize {
    let is_input = matches!(buffer.role, Role::Input(_) | Role::Derived { .. });
    let rows: u128 = buffer.dims.iter().take(2).map(|&dim| u128::from(dim)).product();
    let overhang = if is_input && rows > 0 { OVERHANG_ROWS * (buffer.bytes() / rows) } else { 0 };
    // A multiple of two, as bands are filled with a pattern of 16 bits.
    (overhang.min(MOST_BEHIND) as usize).next_multiple_of(GUARD_BYTES).max(least)
}

/// Why memory is refused or found damaged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    #[error("the buffers need {needed_bytes} bytes of memory and {available_bytes} are available; use a smaller shape")]
    TooLarge { needed_bytes: u128, available_bytes: u64 },
    #[error("the system refused {bytes} bytes of memory for `{buffer}`: {reason}")]
    Refused { buffer: String, bytes: usize, reason: String },
    #[error("`{buffer}` was written outside of: its elements are 0 to {last} and element {element} was overwritten")]
    GuardWritten {
        buffer: String,
        last: i128,
        /// Index that the nearest overwritten element would have.
        element: i128,
    },
}

impl From<MemoryError> for Failure {
    fn from(error: MemoryError) -> Failure {
        let kind = match error {
            MemoryError::TooLarge { .. } | MemoryError::Refused { .. } => FailureKind::OutOfMemory,
            MemoryError::GuardWritten { .. } => FailureKind::WrongOutput,
        };
        Failure { kind, stage: None, message: error.to_string() }
    }
}

/// One buffer between its guard bands.
pub struct Guarded {
    name: String,
    dtype: DType,
    region: NonNull<u8>,
    region_bytes: usize,
    offset: usize,
    bytes: usize,
}

// SAFETY: the region belongs to this value alone, and access to it through `&self` and `&mut self` follows the usual
// rules; kernels write through `pointer` only while no slice of it is borrowed.
unsafe impl Send for Guarded {}
// SAFETY: as above.
unsafe impl Sync for Guarded {}

impl Guarded {
    /// Bytes that `buffer` takes with its bands, at most.
    pub fn region_bytes(buffer: &Buffer) -> u128 {
        buffer.bytes() + (bytes_behind(buffer, GUARD_BYTES) + 3 * GUARD_BYTES) as u128
    }

    /// Memory for `buffer`, its bands filled. `place` staggers the starts of buffers over cache sets, so that not all
    /// of them collide at the same offset within a page.
    ///
    /// # Errors
    /// [`MemoryError::Refused`].
    pub fn new(buffer: &Buffer, place: usize) -> Result<Guarded, MemoryError> {
        let refused =
            |bytes: usize, reason: String| MemoryError::Refused { buffer: buffer.name.clone(), bytes, reason };
        let offset = GUARD_BYTES + ALIGNMENT * ((place * 17) % 64);
        let bytes = usize::try_from(buffer.bytes()).map_err(|error| refused(usize::MAX, error.to_string()))?;
        let region_bytes = bytes
            .checked_add(offset + bytes_behind(buffer, GUARD_BYTES) + GUARD_BYTES)
            .map(|end| end & !(GUARD_BYTES - 1))
            .ok_or_else(|| refused(bytes, "its size exceeds the address space".to_owned()))?;
        let region = map(region_bytes).map_err(|error| refused(bytes, error.to_string()))?;
        let mut guarded =
            Guarded { name: buffer.name.clone(), dtype: buffer.dtype, region, region_bytes, offset, bytes };
        guarded.fill_bands();
        Ok(guarded)
    }

    /// Address of the first element, for kernels.
    pub fn pointer(&self) -> *mut c_void {
        // SAFETY: the offset lies inside the region.
        unsafe { self.region.as_ptr().add(self.offset).cast() }
    }

    /// All bytes between the bands.
    pub fn bytes(&self) -> &[u8] {
        &self.region()[self.offset..self.offset + self.bytes]
    }

    fn region(&self) -> &[u8] {
        // SAFETY: the mapping is readable, initialised by the system, and as long as said.
        unsafe { std::slice::from_raw_parts(self.region.as_ptr(), self.region_bytes) }
    }

    fn region_mut(&mut self) -> &mut [u8] {
        // SAFETY: as `region`, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.region.as_ptr(), self.region_bytes) }
    }

    /// The elements.
    pub fn elements(&self) -> Elements<'_> {
        let count = self.bytes / self.dtype.bytes() as usize;
        let start = self.pointer();
        // SAFETY: `start` is aligned to ALIGNMENT and followed by `count` initialised elements; each of the three
        // types accepts every bit pattern.
        unsafe {
            match self.dtype {
                DType::Float32 => Elements::Float32(std::slice::from_raw_parts(start.cast::<f32>(), count)),
                DType::Bfloat16 => Elements::Bfloat16(std::slice::from_raw_parts(start.cast::<bf16>(), count)),
                DType::Float16 => Elements::Float16(std::slice::from_raw_parts(start.cast::<f16>(), count)),
            }
        }
    }

    /// The elements, to be written.
    pub fn elements_mut(&mut self) -> ElementsMut<'_> {
        let count = self.bytes / self.dtype.bytes() as usize;
        let start = self.pointer();
        // SAFETY: as `elements`, and `&mut self` makes the access unique.
        unsafe {
            match self.dtype {
                DType::Float32 => ElementsMut::Float32(std::slice::from_raw_parts_mut(start.cast::<f32>(), count)),
                DType::Bfloat16 => ElementsMut::Bfloat16(std::slice::from_raw_parts_mut(start.cast::<bf16>(), count)),
                DType::Float16 => ElementsMut::Float16(std::slice::from_raw_parts_mut(start.cast::<f16>(), count)),
            }
        }
    }

    /// Overwrites every element with NaN of the given origin.
    pub fn poison(&mut self, poison: Poison) {
        let (start, end) = (self.offset, self.offset + self.bytes);
        fill_pattern(&mut self.region_mut()[start..end], poison);
    }

    fn fill_bands(&mut self) {
        let (start, end) = (self.offset, self.offset + self.bytes);
        let region = self.region_mut();
        fill_pattern(&mut region[..start], Poison::Guard);
        fill_pattern(&mut region[end..], Poison::Guard);
    }

    /// Checks that nothing was written beside the buffer, up to [`GUARD_BYTES`] behind it.
    ///
    /// # Errors
    /// [`MemoryError::GuardWritten`] with the nearest overwritten place.
    pub fn check_bands(&self) -> Result<(), MemoryError> {
        let (before, rest) = self.region().split_at(self.offset);
        check_bands(&self.name, self.dtype, self.bytes, before, &rest[self.bytes..][..GUARD_BYTES])
    }

    /// The first element that is no finite number: its index and what it says.
    pub fn first_non_finite(&self) -> Option<NonFinite> {
        first_non_finite(self.elements())
    }
}

/// Checks the bands on both sides of `bytes` bytes of a buffer; each starts at a multiple of two bytes from it.
///
/// # Errors
/// [`MemoryError::GuardWritten`] with the nearest overwritten place.
pub fn check_bands(name: &str, dtype: DType, bytes: usize, before: &[u8], after: &[u8]) -> Result<(), MemoryError> {
    let pattern = (Poison::Guard as u16).to_ne_bytes();
    let written = |band: &[u8], position: usize| band[position] != pattern[position % 2];
    let below = (0..before.len()).rev().find(|&position| written(before, position));
    let below = below.map(|position| position as i128 - before.len() as i128);
    let above = || (0..after.len()).find(|&position| written(after, position));
    let Some(place) = below.or_else(|| above().map(|position| bytes as i128 + position as i128)) else {
        return Ok(());
    };
    let element_bytes = i128::from(dtype.bytes());
    let (element, last) = (place.div_euclid(element_bytes), bytes as i128 / element_bytes - 1);
    Err(MemoryError::GuardWritten { buffer: name.to_owned(), last, element })
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the region was mapped with this length and nothing refers to it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.region.as_ptr().cast(), self.region_bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// The first element that is no finite number: its index and what it says.
pub fn first_non_finite(elements: Elements<'_>) -> Option<NonFinite> {
    let (index, high_bits, value) = match elements {
        Elements::Float32(slice) => {
            let index = slice.iter().position(|value| !value.is_finite())?;
            (index, (slice[index].to_bits() >> 16) as u16, f64::from(slice[index]))
        }
        Elements::Bfloat16(slice) => {
            let index = slice.iter().position(|value| !value.is_finite())?;
            (index, slice[index].to_bits(), f64::from(slice[index]))
        }
        Elements::Float16(slice) => {
            let index = slice.iter().position(|value| !value.is_finite())?;
            (index, slice[index].to_bits(), f64::from(slice[index]))
        }
    };
    Some(NonFinite { index, value, poison: Poison::of_bits(high_bits).filter(|_| value.is_nan()) })
}

/// An element that is NaN or infinite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NonFinite {
    pub index: usize,
    pub value: f64,
    /// Origin of the NaN, when its payload is one of ours.
    pub poison: Option<Poison>,
}

impl NonFinite {
    /// What the value says about the kernel.
    pub fn explain(&self) -> String {
        match self.poison {
            Some(poison) => poison.explain().to_owned(),
            None => format!("{}, computed by the kernel", self.value),
        }
    }
}

fn fill_pattern(bytes: &mut [u8], poison: Poison) {
    let pattern: Vec<u8> = (poison as u16).to_ne_bytes().repeat(GUARD_BYTES / 2);
    bytes.chunks_mut(pattern.len()).for_each(|chunk| chunk.copy_from_slice(&pattern[..chunk.len()]));
}

fn map(bytes: usize) -> rustix::io::Result<NonNull<u8>> {
    // SAFETY: a fresh private mapping at an address of the system's choice touches no memory of ours.
    let address = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    }?;
    if bytes >= HUGE_PAGES_FROM_BYTES {
        // SAFETY: the range is the mapping just made; the advice does not change its contents. A refusal costs speed
        // alone.
        let _ = unsafe { rustix::mm::madvise(address, bytes, Advice::LinuxHugepage) };
    }
    NonNull::new(address.cast()).ok_or(rustix::io::Errno::NOMEM)
}

/// Refuses buffers that do not fit into the memory that is left, with both sizes.
///
/// # Errors
/// [`MemoryError::TooLarge`].
pub fn check_fit(needed_bytes: u128) -> Result<(), MemoryError> {
    let available_bytes = available_bytes();
    if needed_bytes > u128::from(available_bytes) {
        return Err(MemoryError::TooLarge { needed_bytes, available_bytes });
    }
    Ok(())
}

/// Bytes that can be had without swapping: what the system reports, or what the control group leaves, if less.
/// A host that reports neither sets no limit here; the system's own refusal remains.
fn available_bytes() -> u64 {
    let system = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
        line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
    });
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let group = number("/sys/fs/cgroup/memory.max")
        .zip(number("/sys/fs/cgroup/memory.current"))
        .map(|(limit, used)| limit.saturating_sub(used));
    system.into_iter().chain(group).min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pipeline::Distribution;

    fn guarded(dtype: DType, elements: u64) -> Guarded {
        Guarded::new(&Buffer { name: "o".into(), dtype, dims: vec![elements], role: Role::Output }, 3).expect("it fits")
    }

    #[test]
    fn a_buffer_is_aligned_and_its_bands_hold_nan() {
        for (dtype, elements) in
            [(DType::Float32, 5), (DType::Bfloat16, 7), (DType::Float16, 2049), (DType::Float32, 0)]
        {
            let buffer = guarded(dtype, elements);
            assert_eq!(buffer.pointer() as usize % ALIGNMENT, 0);
            assert!(buffer.offset >= GUARD_BYTES);
            assert!(buffer.region_bytes - buffer.offset - buffer.bytes >= GUARD_BYTES);
            assert_eq!(buffer.check_bands(), Ok(()));
        }
    }

    #[test]
    fn behind_an_input_is_room_for_the_overhang_of_a_tile() {
        let buffer =
            |dims: &[u64], role| Buffer { name: "x".into(), dtype: DType::Bfloat16, dims: dims.to_vec(), role };
        let input = || Role::Input(Distribution::Normal { std: 1.0, seed: 1 });
        let behind = |dims: &[u64]| bytes_behind(&buffer(dims, input()), GUARD_BYTES);
        assert_eq!(behind(&[32, 4096, 512]), 128 * 512 * 2);
        assert_eq!(behind(&[32, 4096, 128, 128]), 128 * 128 * 128 * 2);
        assert_eq!(behind(&[2, 3, 1 << 30]), MOST_BEHIND as usize);
        assert_eq!([behind(&[7]), behind(&[2, 0, 4, 16]), behind(&[])], [GUARD_BYTES; 3]);
        assert_eq!(bytes_behind(&buffer(&[32, 4096, 512], Role::Output), GUARD_BYTES), GUARD_BYTES);
        assert_eq!(bytes_behind(&buffer(&[2, 3, 8], input()), 1 << 16), 1 << 16);
        let guarded = Guarded::new(&buffer(&[2, 5, 512], input()), 7).expect("it fits");
        let behind = guarded.region_bytes - guarded.offset - guarded.bytes;
        assert!(
            behind >= 128 * 512 * 2
                && guarded.region_bytes as u128 <= Guarded::region_bytes(&buffer(&[2, 5, 512], input()))
        );
    }

    #[test]
    fn a_write_beside_a_buffer_is_found_with_its_place() {
        let mut buffer = guarded(DType::Float32, 5);
        let end = buffer.offset + buffer.bytes;
        buffer.region_mut()[end + 9] = 0;
        let error = buffer.check_bands().expect_err("the band was written to");
        assert_eq!(error, MemoryError::GuardWritten { buffer: "o".into(), last: 4, element: 7 });
        let start = buffer.offset;
        buffer.region_mut()[start - 5] = 1;
        let error = buffer.check_bands().expect_err("the band was written to");
        assert_eq!(error, MemoryError::GuardWritten { buffer: "o".into(), last: 4, element: -2 });
    }

    #[test]
    fn poison_is_nan_of_every_type_and_names_its_origin() {
        for dtype in DType::ALL {
            for poison in Poison::ALL {
                let mut buffer = guarded(dtype, 9);
                buffer.poison(poison);
                let found = buffer.first_non_finite().expect("every element is NaN");
                assert_eq!((found.index, found.poison), (0, Some(poison)), "{dtype}");
                assert!(found.value.is_nan());
            }
        }
    }

    #[test]
    fn an_infinity_or_a_nan_of_the_kernel_is_no_poison() {
        let mut buffer = guarded(DType::Float32, 3);
        let ElementsMut::Float32(slice) = buffer.elements_mut() else { unreachable!("it holds float32") };
        slice.copy_from_slice(&[1.0, f32::INFINITY, f32::NAN]);
        let found = buffer.first_non_finite().expect("there is one");
        assert_eq!((found.index, found.poison), (1, None));
    }

    #[test]
    fn arithmetic_keeps_the_origin_of_a_nan() {
        let guard = f32::from_bits((Poison::Guard as u32) << 16 | Poison::Guard as u32);
        let sum = std::hint::black_box(guard) * std::hint::black_box(2.0) + std::hint::black_box(1.0);
        assert_eq!(Poison::of_bits((sum.to_bits() >> 16) as u16), Some(Poison::Guard));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_both_sizes() {
        let error = check_fit(u128::from(u64::MAX) + 1).expect_err("no host has that much");
        let Failure { kind, message, .. } = error.into();
        assert_eq!(kind, FailureKind::OutOfMemory);
        assert!(message.contains("18446744073709551616") && message.contains("are available"), "{message}");
        assert_eq!(check_fit(1), Ok(()));
    }
}
