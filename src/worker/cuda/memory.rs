//! Memory of the GPU: plain regions, and buffers between guard bands of NaN. Copies go through one stream and are over
//! when a function returns.

use std::ffi::c_uint;

use cudarc::driver::sys::{self, CUdeviceptr};

use super::driver::{self, Stream};
use super::error::{CudaError, check};
use crate::model::DType;
use crate::model::pipeline::Buffer;
use crate::model::protocol::{Failure, FailureKind};
use crate::worker::element::Elements;
use crate::worker::memory::{self, MemoryError, Poison};

/// Bytes of each guard band, at least; behind an input it is longer, see [`memory::bytes_behind`]. Buffers start at a
/// multiple of it from the start of their region, which the driver aligns to 256 bytes at least.
pub const GUARD_BYTES: usize = 64 * 1024;

/// What lies around buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bands {
    /// NaN on either side, which no kernel may change.
    Guarded,
    /// Nothing of ours: a tool watches for accesses there.
    None,
}

impl Bands {
    /// Bytes before `buffer` and behind it.
    fn around(self, buffer: &Buffer) -> (usize, usize) {
        match self {
            Bands::Guarded => (GUARD_BYTES, memory::bytes_behind(buffer, GUARD_BYTES)),
            Bands::None => (0, 0),
        }
    }
}

/// What the driver keeps for itself, e.g. for the local memory of kernels.
const RESERVE_BYTES: u64 = 64 << 20;

/// Refuses what does not fit into the memory that is free, with both sizes.
///
/// # Errors
/// It does not fit, or the driver does not say what is free.
pub fn check_fit(needed_bytes: u128) -> Result<(), Failure> {
    let (free, total) = driver::memory_bytes()?;
    match too_large(needed_bytes, free, total) {
        None => Ok(()),
        Some(message) => Err(Failure { kind: FailureKind::OutOfMemory, stage: None, message }),
    }
}

fn too_large(needed_bytes: u128, free: u64, total: u64) -> Option<String> {
    let available = free.saturating_sub(RESERVE_BYTES);
    (needed_bytes > u128::from(available)).then(|| {
        format!(
            "the buffers need {needed_bytes} bytes of the GPU's memory and {available} of {total} are available; use a \
             smaller shape, or end what else uses the GPU"
        )
    })
}

/// A region of the GPU's memory.
pub struct Region {
    address: CUdeviceptr,
    bytes: usize,
}

impl Region {
    /// A region of `bytes`, at least one.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn new(bytes: usize) -> Result<Region, CudaError> {
        let mut address: CUdeviceptr = 0;
        // SAFETY: `address` may be written to; a context is current.
        let result = unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes.max(1)) };
        check(result, &format!("the GPU refuses {bytes} bytes of memory"))?;
        Ok(Region { address, bytes })
    }

    /// A region that holds `values`.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn holding<T: Plain>(values: &[T], stream: &Stream) -> Result<Region, CudaError> {
        let region = Region::new(size_of_val(values))?;
        if !values.is_empty() {
            // SAFETY: the region is as large as `values`, which stay where they are until the copy is over.
            let result = unsafe {
                sys::cuMemcpyHtoDAsync_v2(region.address, values.as_ptr().cast(), size_of_val(values), stream.handle())
            };
            check(result, "values cannot be copied to the GPU")?;
            stream.synchronize()?;
        }
        Ok(region)
    }

    /// Address of the first byte, for kernels.
    pub const fn address(&self) -> CUdeviceptr {
        self.address
    }

    /// Its size.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies as many values as `to` has, from the byte `start` on, when everything queued to `stream` has ended.
    ///
    /// # Errors
    /// A kernel before it failed, or the driver refuses.
    ///
    /// # Panics
    /// When the region ends before.
    pub fn download<T: Plain>(&self, start: usize, to: &mut [T], stream: &Stream) -> Result<(), CudaError> {
        let bytes = size_of_val(to);
        assert!(start.checked_add(bytes).is_some_and(|end| end <= self.bytes), "{bytes} bytes from {start} on");
        if bytes > 0 {
            let from = self.address + start as CUdeviceptr;
            // SAFETY: the region holds that many bytes from there on, and `to` has room for them until the copy is
            // over; every bit pattern is a value of `T`.
            let result = unsafe { sys::cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from, bytes, stream.handle()) };
            check(result, "values cannot be copied from the GPU")?;
        }
        stream.synchronize()
    }

    /// Queues a fill of `bytes` bytes from `start` on with a 16-bit pattern.
    ///
    /// # Errors
    /// The driver refuses.
    ///
    /// # Panics
    /// When the region ends before, or a number is odd.
    pub fn fill(&self, start: usize, bytes: usize, pattern: u16, stream: &Stream) -> Result<(), CudaError> {
        assert!(start.checked_add(bytes).is_some_and(|end| end <= self.bytes), "{bytes} bytes from {start} on");
        assert!(start.is_multiple_of(2) && bytes.is_multiple_of(2), "{bytes} bytes from {start} on");
        if bytes == 0 {
            return Ok(());
        }
        let to = self.address + start as CUdeviceptr;
        // SAFETY: the region holds that many bytes from there on.
        let result = unsafe { sys::cuMemsetD16Async(to, pattern, bytes / 2, stream.handle()) };
        check(result, "memory of the GPU cannot be filled")
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the region exists and nothing refers to it any more: every function that queues work on it waits for
        // the end. After a fault of a kernel this fails, to no harm.
        let _ = unsafe { sys::cuMemFree_v2(self.address) };
    }
}

/// Types without padding of which every bit pattern is a value.
///
/// # Safety
/// As said.
pub unsafe trait Plain: Copy {}

// SAFETY: numbers, every bit pattern of which is a value.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: as above.
unsafe impl Plain for f32 {}
// SAFETY: as above.
unsafe impl Plain for f64 {}
// SAFETY: one `u16` inside.
unsafe impl Plain for half::bf16 {}
// SAFETY: one `u16` inside.
unsafe impl Plain for half::f16 {}

/// Elements of a buffer in the host's memory.
pub enum Downloaded {
    Float32(Vec<f32>),
    Bfloat16(Vec<half::bf16>),
    Float16(Vec<half::f16>),
}

impl Downloaded {
    /// The elements.
    pub fn elements(&self) -> Elements<'_> {
        match self {
            Downloaded::Float32(values) => Elements::Float32(values),
            Downloaded::Bfloat16(values) => Elements::Bfloat16(values),
            Downloaded::Float16(values) => Elements::Float16(values),
        }
    }

    /// Their bytes in memory.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Downloaded::Float32(values) => bytes_of(values),
            Downloaded::Bfloat16(values) => bytes_of(values),
            Downloaded::Float16(values) => bytes_of(values),
        }
    }
}

fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: `Plain` types have no padding, so that all bytes are initialised.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// One buffer of a pipeline between its guard bands.
pub struct Guarded {
    name: String,
    dtype: DType,
    region: Region,
    /// Bytes before the first element.
    offset: usize,
    bytes: usize,
}

impl Guarded {
    /// Bytes of the region that `buffer` gets.
    pub fn region_bytes(buffer: &Buffer, bands: Bands) -> u128 {
        let (before, behind) = bands.around(buffer);
        buffer.bytes() + (before + behind) as u128
    }

    /// Memory for `buffer`, its bands filled.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn new(buffer: &Buffer, bands: Bands, stream: &Stream) -> Result<Guarded, Failure> {
        let too_large = |_| Failure {
            kind: FailureKind::OutOfMemory,
            stage: None,
            message: format!("`{}` has {} bytes, more than there are addresses", buffer.name, buffer.bytes()),
        };
        let bytes = usize::try_from(buffer.bytes()).map_err(too_large)?;
        let region = Region::new(usize::try_from(Guarded::region_bytes(buffer, bands)).map_err(too_large)?)?;
        let (before, behind) = bands.around(buffer);
        region.fill(0, before, Poison::Guard as u16, stream)?;
        region.fill(before + bytes, behind, Poison::Guard as u16, stream)?;
        Ok(Guarded { name: buffer.name.clone(), dtype: buffer.dtype, region, offset: before, bytes })
    }

    /// Address of the first element, for kernels.
    pub const fn address(&self) -> CUdeviceptr {
        self.region.address() + self.offset as CUdeviceptr
    }

    /// Type of its elements.
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// Number of elements.
    pub const fn len(&self) -> usize {
        self.bytes / self.dtype.bytes() as usize
    }

    /// Queues that every element becomes NaN of the given origin.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn poison(&self, poison: Poison, stream: &Stream) -> Result<(), CudaError> {
        self.region.fill(self.offset, self.bytes, poison as u16, stream)
    }

    /// Checks that nothing was written beside the buffer, up to [`GUARD_BYTES`] away.
    ///
    /// # Errors
    /// Something was, or a kernel before failed.
    pub fn check_bands(&self, stream: &Stream) -> Result<(), Failure> {
        let end = self.offset + self.bytes;
        let mut before = vec![0u8; self.offset];
        let mut after = vec![0u8; GUARD_BYTES.min(self.region.bytes() - end)];
        self.region.download(0, &mut before, stream)?;
        self.region.download(end, &mut after, stream)?;
        let checked: Result<(), MemoryError> = memory::check_bands(&self.name, self.dtype, self.bytes, &before, &after);
        Ok(checked?)
    }

    /// `count` elements from `first` on.
    ///
    /// # Errors
    /// A kernel before failed, or the driver refuses.
    pub fn download(&self, first: usize, count: usize, stream: &Stream) -> Result<Downloaded, CudaError> {
        let start = self.offset + first * self.dtype.bytes() as usize;
        match self.dtype {
            DType::Float32 => {
                let mut values = vec![0.0f32; count];
                self.region.download(start, &mut values, stream)?;
                Ok(Downloaded::Float32(values))
            }
            DType::Bfloat16 => {
                let mut values = vec![half::bf16::ZERO; count];
                self.region.download(start, &mut values, stream)?;
                Ok(Downloaded::Bfloat16(values))
            }
            DType::Float16 => {
                let mut values = vec![half::f16::ZERO; count];
                self.region.download(start, &mut values, stream)?;
                Ok(Downloaded::Float16(values))
            }
        }
    }
}

/// A number that host and GPU share: the host raises it, kernels wait for it.
pub struct Shared {
    word: *mut u32,
}

impl Shared {
    /// Two numbers, both zero.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn new() -> Result<Shared, CudaError> {
        let mut word = std::ptr::null_mut();
        let flags: c_uint = sys::CU_MEMHOSTALLOC_DEVICEMAP | sys::CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: `word` may be written to; a context is current.
        let result = unsafe { sys::cuMemHostAlloc(&raw mut word, 2 * size_of::<u32>(), flags) };
        check(result, "the host's memory cannot be shared with the GPU")?;
        let shared = Shared { word: word.cast() };
        shared.set(0, 0);
        shared.set(1, 0);
        Ok(shared)
    }

    /// Address of the number `index` for kernels: with unified addressing, which every GPU since 2010 has, the host's.
    pub fn address(&self, index: usize) -> CUdeviceptr {
        assert!(index < 2, "there are two");
        // SAFETY: one of the two numbers.
        unsafe { self.word.add(index) as CUdeviceptr }
    }

    /// Sets the number `index`; the GPU sees it soon.
    pub fn set(&self, index: usize, value: u32) {
        assert!(index < 2, "there are two");
        // SAFETY: one of the two numbers, aligned; kernels read it as volatile.
        unsafe { std::ptr::write_volatile(self.word.add(index), value) };
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// The number `index` as it is now.
    pub fn get(&self, index: usize) -> u32 {
        assert!(index < 2, "there are two");
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        // SAFETY: one of the two numbers, aligned.
        unsafe { std::ptr::read_volatile(self.word.add(index)) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the memory was given by cuMemHostAlloc; no kernel that reads it runs any more.
        let _ = unsafe { sys::cuMemFreeHost(self.word.cast()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_both_sizes() {
        let message = too_large(100 << 30, 80 << 30, 141 << 30).expect("it does not fit");
        for number in [100u64 << 30, (80 << 30) - RESERVE_BYTES, 141 << 30] {
            assert!(message.contains(&number.to_string()), "{message}");
        }
        assert_eq!(too_large(1 << 30, 80 << 30, 141 << 30), None);
        assert!(too_large(1, 0, 141 << 30).is_some());
    }
}
