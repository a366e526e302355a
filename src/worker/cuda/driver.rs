//! The driver's objects that everything else is built of: the context on one GPU, streams, events, graphs. Knows
//! neither kernels nor buffers.
//!
//! Nothing is released but streams, events and graphs: the process has one context and ends with its task.

use std::ffi::{CStr, c_int, c_uint};

use cudarc::driver::sys::{
    self, CUcontext, CUctx_flags_enum, CUdevice, CUdevice_attribute, CUevent, CUevent_flags_enum, CUgraph, CUgraphExec,
    CUstream, CUstream_flags_enum, CUstreamCaptureMode, CUuuid,
};

use super::error::{CudaError, check, unsupported};
use super::library;
use super::limits::DeviceLimits;
use crate::model::protocol::Failure;

/// Oldest driver that has every function called here, by the CUDA that it serves.
const OLDEST: u32 = 12_080;

/// Starts the driver.
///
/// # Errors
/// The library is missing, or the driver does not start or is too old.
pub fn start() -> Result<(), Failure> {
    library::require_driver()?;
    // SAFETY: the library is there, as just found.
    check(unsafe { sys::cuInit(0) }, "the driver of the GPU does not start")?;
    let version = version()?;
    if version < OLDEST {
        return Err(unsupported(format!(
            "the driver serves CUDA {} and mlarun needs {}; install a newer driver",
            version_text(version),
            version_text(OLDEST)
        )));
    }
    Ok(())
}

/// `13.0` for 13000.
pub fn version_text(version: u32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// Newest CUDA that the driver serves: 13000 is 13.0.
///
/// # Errors
/// The driver does not say.
pub fn version() -> Result<u32, CudaError> {
    let mut version: c_int = 0;
    // SAFETY: the driver was started; `version` may be written to.
    check(unsafe { sys::cuDriverGetVersion(&raw mut version) }, "the driver does not tell its version")?;
    Ok(u32::try_from(version).unwrap_or(0))
}

/// A GPU that this process sees.
#[derive(Clone, Copy)]
pub struct Device {
    pub index: u32,
    handle: CUdevice,
}

impl Device {
    /// All of them.
    ///
    /// # Errors
    /// The driver does not say.
    pub fn all() -> Result<Vec<Device>, CudaError> {
        let mut count: c_int = 0;
        // SAFETY: the driver was started; `count` may be written to.
        check(unsafe { sys::cuDeviceGetCount(&raw mut count) }, "the GPUs cannot be counted")?;
        let device = |index: c_int| {
            let mut handle: CUdevice = 0;
            // SAFETY: `handle` may be written to, and `index` is below the count.
            check(unsafe { sys::cuDeviceGet(&raw mut handle, index) }, "a GPU cannot be opened")?;
            Ok(Device { index: index as u32, handle })
        };
        (0..count).map(device).collect()
    }

    /// Its name, e.g. `NVIDIA H200`.
    ///
    /// # Errors
    /// The driver does not say.
    pub fn name(self) -> Result<String, CudaError> {
        let mut name = [0u8; 256];
        // SAFETY: `name` has room for as many bytes as said, of which the last stays zero.
        let result = unsafe { sys::cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as c_int - 1, self.handle) };
        check(result, "a GPU does not tell its name")?;
        Ok(CStr::from_bytes_until_nul(&name).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default())
    }

    /// `GPU-…` or, for a part of one, `MIG-…`.
    ///
    /// # Errors
    /// The driver does not say.
    pub fn uuid(self) -> Result<String, CudaError> {
        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: `uuid` may be written to.
        check(unsafe { sys::cuDeviceGetUuid_v2(&raw mut uuid, self.handle) }, "a GPU does not tell its UUID")?;
        Ok(uuid_text(uuid.bytes.map(|byte| byte as u8), self.is_mig()?))
    }

    /// It is a part of a GPU.
    ///
    /// # Errors
    /// The driver does not say.
    pub fn is_mig(self) -> Result<bool, CudaError> {
        Ok(self.name()?.contains(" MIG "))
    }

    /// All of its memory, in bytes.
    ///
    /// # Errors
    /// The driver does not say.
    pub fn memory_bytes(self) -> Result<u64, CudaError> {
        let mut bytes = 0usize;
        // SAFETY: `bytes` may be written to.
        check(unsafe { sys::cuDeviceTotalMem_v2(&raw mut bytes, self.handle) }, "a GPU does not tell its memory")?;
        Ok(bytes as u64)
    }

    /// A number about it; 0 where the driver gives a negative one.
    ///
    /// # Errors
    /// The driver does not say.
    pub fn attribute(self, attribute: CUdevice_attribute) -> Result<u32, CudaError> {
        let mut value: c_int = 0;
        // SAFETY: `value` may be written to.
        let result = unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, self.handle) };
        check(result, "a GPU does not tell an attribute")?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// Major and minor number.
    ///
    /// # Errors
    /// The driver does not say.
    pub fn compute_capability(self) -> Result<(u32, u32), CudaError> {
        Ok((
            self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ))
    }

    /// What it can launch.
    ///
    /// # Errors
    /// The driver does not say.
    pub fn limits(self) -> Result<DeviceLimits, CudaError> {
        use CUdevice_attribute as A;
        let number = |attribute: CUdevice_attribute| self.attribute(attribute).map(u64::from);
        Ok(DeviceLimits {
            compute_capability: self.compute_capability()?,
            multiprocessors: self.attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            grid: [
                number(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)?,
                number(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
                number(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)?,
            ],
            block: [
                number(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)?,
                number(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)?,
                number(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?,
            ],
            threads_per_block: number(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            shared_bytes_per_block: number(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            cooperative: self.attribute(A::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)? != 0,
        })
    }
}

fn uuid_text(bytes: [u8; 16], mig: bool) -> String {
    let hexadecimal: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts =
        [&hexadecimal[..8], &hexadecimal[8..12], &hexadecimal[12..16], &hexadecimal[16..20], &hexadecimal[20..]];
    format!("{}-{}", if mig { "MIG" } else { "GPU" }, parts.join("-"))
}

/// The primary context of a GPU, current on the calling thread.
pub struct Context {
    pub limits: DeviceLimits,
    /// The stream that everything but stages of other streams runs on.
    pub stream: Stream,
}

impl Context {
    /// Opens the GPU with this UUID.
    ///
    /// # Errors
    /// There is none, or it cannot be used.
    pub fn open(uuid: &str) -> Result<Context, Failure> {
        start()?;
        let mut seen = Vec::new();
        for device in Device::all()? {
            let found = device.uuid()?;
            if found.eq_ignore_ascii_case(uuid) {
                return Ok(Context::on(device)?);
            }
            seen.push(found);
        }
        let seen = if seen.is_empty() { "none".to_owned() } else { seen.join(", ") };
        Err(unsupported(format!(
            "the GPU {uuid} is not one of those that this process sees ({seen}); check CUDA_VISIBLE_DEVICES and `nvidia-smi -L`"
        )))
    }

    fn on(device: Device) -> Result<Context, CudaError> {
        make_current(device)?;
        Ok(Context { limits: device.limits()?, stream: Stream::new()? })
    }
}

/// Makes the primary context of `device` current on the calling thread. Waiting for the GPU spins.
///
/// # Errors
/// The GPU cannot be used.
pub fn make_current(device: Device) -> Result<(), CudaError> {
    let mut context: CUcontext = std::ptr::null_mut();
    let spin = CUctx_flags_enum::CU_CTX_SCHED_SPIN as c_uint;
    // SAFETY: the device is one of the driver's; flags that cannot be changed any more only cost time.
    let _ = unsafe { sys::cuDevicePrimaryCtxSetFlags_v2(device.handle, spin) };
    // SAFETY: the device is one of the driver's; `context` may be written to.
    check(unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, device.handle) }, "the GPU cannot be used")?;
    // SAFETY: the context was just retained and is not released before the process ends.
    check(unsafe { sys::cuCtxSetCurrent(context) }, "the GPU cannot be used")
}

/// Opens the GPU `uuid` for as long as the process lives, without waiting for anything there.
///
/// # Errors
/// It cannot be used, or is set to be used by one process at a time, which is to be another one.
pub fn hold(uuid: &str) -> Result<(), Failure> {
    start()?;
    let mut devices = Device::all()?.into_iter();
    let device = devices.find(|device| device.uuid().is_ok_and(|found| found.eq_ignore_ascii_case(uuid)));
    let device =
        device.ok_or_else(|| unsupported(format!("the GPU {uuid} is not one of those that this process sees")))?;
    if device.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE)? != 0 {
        return Err(unsupported("the GPU is set to be used by one process alone".to_owned()));
    }
    Ok(make_current(device)?)
}

/// Gives up the primary context of `device` after [`make_current`], with all that it holds.
pub fn release(device: Device) {
    // SAFETY: the device is one of the driver's and was retained once; nothing made in the context is used later.
    let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(device.handle) };
}

/// Free and total memory of the current context's GPU, in bytes.
///
/// # Errors
/// The driver does not say.
pub fn memory_bytes() -> Result<(u64, u64), CudaError> {
    let (mut free, mut total) = (0usize, 0usize);
    // SAFETY: both may be written to; a context is current.
    check(unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) }, "the GPU does not tell its free memory")?;
    Ok((free as u64, total as u64))
}

/// A stream that waits for no other.
pub struct Stream(CUstream);

impl Stream {
    /// A new one in the current context.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn new() -> Result<Stream, CudaError> {
        let mut stream: CUstream = std::ptr::null_mut();
        let flags = CUstream_flags_enum::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: `stream` may be written to; a context is current.
        check(unsafe { sys::cuStreamCreate(&raw mut stream, flags) }, "no stream can be made")?;
        Ok(Stream(stream))
    }

    /// For calls of the driver; valid as long as this value.
    pub const fn handle(&self) -> CUstream {
        self.0
    }

    /// Waits until everything queued has ended.
    ///
    /// # Errors
    /// What went wrong in it.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: the stream exists.
        check(unsafe { sys::cuStreamSynchronize(self.0) }, "the GPU reports a fault")
    }

    /// Lets what is queued from now on wait for `event`.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn wait_for(&self, event: &Event) -> Result<(), CudaError> {
        // SAFETY: stream and event exist.
        check(unsafe { sys::cuStreamWaitEvent(self.0, event.0, 0) }, "a stream cannot wait for another")
    }

    /// Captures what `queue` queues to this stream, and to streams that wait for it, as a graph.
    ///
    /// # Errors
    /// Those of `queue`, or the driver refuses.
    pub fn capture(&self, queue: impl FnOnce() -> Result<(), Failure>) -> Result<Graph, Failure> {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream exists and captures nothing yet.
        check(unsafe { sys::cuStreamBeginCapture_v2(self.0, mode) }, "launches cannot be captured")?;
        let queued = queue();
        let mut graph: CUgraph = std::ptr::null_mut();
        // SAFETY: the stream captures; `graph` may be written to. This also ends a capture that failed.
        let ended = check(unsafe { sys::cuStreamEndCapture(self.0, &raw mut graph) }, "launches cannot be captured");
        queued?;
        ended?;
        let mut executable: CUgraphExec = std::ptr::null_mut();
        // SAFETY: the graph was just captured; `executable` may be written to.
        let made = unsafe { sys::cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) };
        // SAFETY: the graph is not used any more; what was made of it is independent.
        let _ = unsafe { sys::cuGraphDestroy(graph) };
        check(made, "a graph of launches cannot be made")?;
        let made = Graph(executable);
        // SAFETY: graph and stream exist.
        check(unsafe { sys::cuGraphUpload(made.0, self.0) }, "a graph of launches cannot be made ready")?;
        self.synchronize()?;
        Ok(made)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the stream exists and is not used any more. After a fault of a kernel this fails, to no harm.
        let _ = unsafe { sys::cuStreamDestroy_v2(self.0) };
    }
}

/// A point in a stream, with its time.
pub struct Event(CUevent);

impl Event {
    /// One that takes the time.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn timed() -> Result<Event, CudaError> {
        Event::new(CUevent_flags_enum::CU_EVENT_DEFAULT)
    }

    /// One that others wait for.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn untimed() -> Result<Event, CudaError> {
        Event::new(CUevent_flags_enum::CU_EVENT_DISABLE_TIMING)
    }

    fn new(flags: CUevent_flags_enum) -> Result<Event, CudaError> {
        let mut event: CUevent = std::ptr::null_mut();
        // SAFETY: `event` may be written to; a context is current.
        check(unsafe { sys::cuEventCreate(&raw mut event, flags as c_uint) }, "no event can be made")?;
        Ok(Event(event))
    }

    /// Queues it to `stream`.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: event and stream exist.
        check(unsafe { sys::cuEventRecord(self.0, stream.0) }, "an event cannot be recorded")
    }

    /// Nanoseconds from this event, which is over, to a later one that is over too.
    ///
    /// # Errors
    /// One of them is not over.
    pub fn nanoseconds_to(&self, later: &Event) -> Result<f64, CudaError> {
        let mut milliseconds = 0f32;
        // SAFETY: both events exist; `milliseconds` may be written to.
        let result = unsafe { sys::cuEventElapsedTime_v2(&raw mut milliseconds, self.0, later.0) };
        check(result, "the time between two events cannot be read")?;
        Ok(f64::from(milliseconds) * 1e6)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event exists and is not used any more. After a fault of a kernel this fails, to no harm.
        let _ = unsafe { sys::cuEventDestroy_v2(self.0) };
    }
}

/// Launches that are queued with one call.
pub struct Graph(CUgraphExec);

impl Graph {
    /// Queues them.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: graph and stream exist.
        check(unsafe { sys::cuGraphLaunch(self.0, stream.0) }, "a graph cannot be launched")
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the graph exists and is not used any more. After a fault of a kernel this fails, to no harm.
        let _ = unsafe { sys::cuGraphExecDestroy(self.0) };
    }
}

/// Marks the start of what a profiler around this process is to look at.
///
/// # Errors
/// The driver refuses.
pub fn profiler_start() -> Result<(), CudaError> {
    // SAFETY: a context is current, and no pointer is passed.
    check(unsafe { sys::cuProfilerStart() }, "the profiled range cannot be begun")
}

/// Marks its end.
///
/// # Errors
/// The driver refuses.
pub fn profiler_stop() -> Result<(), CudaError> {
    // SAFETY: a context is current, and no pointer is passed.
    check(unsafe { sys::cuProfilerStop() }, "the profiled range cannot be ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_people_write_them() {
        assert_eq!([12_080, 13_000].map(version_text), ["12.8", "13.0"]);
    }

    #[test]
    fn a_uuid_reads_as_every_tool_of_the_vendor_prints_it() {
        let bytes = std::array::from_fn(|index| index as u8 * 16 + 1);
        assert_eq!(uuid_text(bytes, false), "GPU-01112131-4151-6171-8191-a1b1c1d1e1f1");
        assert!(uuid_text(bytes, true).starts_with("MIG-01112131-"));
    }
}
