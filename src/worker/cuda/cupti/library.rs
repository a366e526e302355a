//! The functions of libcupti.so, and the callbacks that it hands its buffers to.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::sync::OnceLock;

use super::layout::{self, Fields};
use super::{Named, Traced, collected, internal, unsupported};
use crate::model::protocol::{Failure, FailureKind};

/// Words of a buffer of 1 MiB; CUPTI wants it aligned to 8 bytes.
const BUFFER_WORDS: usize = 1 << 17;
/// Of the functions: all went well; there are no more records in this buffer.
const SUCCESS: c_int = 0;
/// This user may not trace.
const INSUFFICIENT_PRIVILEGES: [c_int; 2] = [35, 40];
/// Another tool traces this process.
const MULTIPLE_SUBSCRIBERS: c_int = 39;
/// Domains of functions: the driver's, the run time's.
const DRIVER_DOMAIN: c_int = 1;
const RUNTIME_DOMAIN: c_int = 2;
/// Even buffers that are not full are handed over.
const FLUSH_FORCED: u32 = 1;

type Request = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Complete = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// CUPTI's functions, by their names without the prefix.
pub struct Library {
    get_version: unsafe extern "C" fn(*mut u32) -> c_int,
    get_result_string: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int,
    register_callbacks: unsafe extern "C" fn(Request, Complete) -> c_int,
    enable: unsafe extern "C" fn(u32) -> c_int,
    disable: unsafe extern "C" fn(u32) -> c_int,
    flush_all: unsafe extern "C" fn(u32) -> c_int,
    get_next_record: unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> c_int,
    get_dropped: unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> c_int,
    get_timestamp: unsafe extern "C" fn(*mut u64) -> c_int,
    get_callback_name: unsafe extern "C" fn(c_int, u32, *mut *const c_char) -> c_int,
}

/// The one that was loaded: callbacks are given nothing else to find it by.
static LOADED: OnceLock<Library> = OnceLock::new();

impl Library {
    /// Loads it; a process has one.
    ///
    /// # Errors
    /// There is no such file, or it is no CUPTI.
    pub fn load(path: &Path) -> Result<&'static Library, Failure> {
        if let Some(loaded) = LOADED.get() {
            return Ok(loaded);
        }
        let failed = |error: libloading::Error| {
            // The error itself says no more than that it failed.
            let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            unsupported(format!("{} cannot be loaded: {reason}", path.display()))
        };
        // SAFETY: loads the library, whose initialisers run; it does nothing else by itself.
        let library = unsafe { libloading::Library::new(path) }.map_err(failed)?;
        macro_rules! function {
            ($name:literal) => {{
                // SAFETY: the function has this type in every version of CUPTI since CUDA 11; the library stays loaded.
                *unsafe { library.get($name) }.map_err(failed)?
            }};
        }
        let functions = Library {
            get_version: function!(b"cuptiGetVersion\0"),
            get_result_string: function!(b"cuptiGetResultString\0"),
            register_callbacks: function!(b"cuptiActivityRegisterCallbacks\0"),
            enable: function!(b"cuptiActivityEnable\0"),
            disable: function!(b"cuptiActivityDisable\0"),
            flush_all: function!(b"cuptiActivityFlushAll\0"),
            get_next_record: function!(b"cuptiActivityGetNextRecord\0"),
            get_dropped: function!(b"cuptiActivityGetNumDroppedRecords\0"),
            get_timestamp: function!(b"cuptiGetTimestamp\0"),
            get_callback_name: function!(b"cuptiGetCallbackName\0"),
        };
        // Its functions are called until the process ends.
        std::mem::forget(library);
        Ok(LOADED.get_or_init(|| functions))
    }

    /// The number by which it tells its version.
    ///
    /// # Errors
    /// It does not tell.
    pub fn version(&self) -> Result<u32, Failure> {
        let mut version = 0;
        // SAFETY: `version` may be written to.
        self.check(unsafe { (self.get_version)(&raw mut version) }, "CUPTI does not tell its version")?;
        Ok(version)
    }

    /// Has it call back for buffers.
    ///
    /// # Errors
    /// It refuses.
    pub fn register(&self) -> Result<(), Failure> {
        // SAFETY: both functions live as long as the process.
        self.check(unsafe { (self.register_callbacks)(request, complete) }, "CUPTI cannot be given buffers")
    }

    /// Collects activities of `kind` from now on.
    ///
    /// # Errors
    /// It refuses.
    pub fn enable(&self, kind: u32) -> Result<(), Failure> {
        // SAFETY: any number may be asked for.
        self.check(unsafe { (self.enable)(kind) }, "CUPTI does not trace")
    }

    /// Collects none of `kind` any more.
    ///
    /// # Errors
    /// It refuses.
    pub fn disable(&self, kind: u32) -> Result<(), Failure> {
        // SAFETY: any number may be asked for.
        self.check(unsafe { (self.disable)(kind) }, "CUPTI does not end its trace")
    }

    /// Has all buffers handed over.
    ///
    /// # Errors
    /// It refuses.
    pub fn flush(&self) -> Result<(), Failure> {
        // SAFETY: no pointer is passed; callbacks run before it returns.
        self.check(unsafe { (self.flush_all)(FLUSH_FORCED) }, "CUPTI does not hand over its records")
    }

    /// Time in nanoseconds, by the clock of the records.
    ///
    /// # Errors
    /// It does not tell.
    pub fn now_ns(&self) -> Result<u64, Failure> {
        let mut ns = 0;
        // SAFETY: `ns` may be written to.
        self.check(unsafe { (self.get_timestamp)(&raw mut ns) }, "CUPTI does not tell the time")?;
        Ok(ns)
    }

    fn check(&self, result: c_int, doing: &str) -> Result<(), Failure> {
        if result == SUCCESS {
            return Ok(());
        }
        let mut text = std::ptr::null();
        // SAFETY: `text` may be written to; it gets a string that is never freed, or stays.
        let described = unsafe { (self.get_result_string)(result, &raw mut text) } == SUCCESS;
        // SAFETY: a string of CUPTI, or none.
        let name = if described { unsafe { string(text) } } else { None };
        let message = format!("{doing}: {} (error {result})", name.unwrap_or_else(|| "no description".to_owned()));
        Err(match result {
            MULTIPLE_SUBSCRIBERS => unsupported(format!(
                "{message}; another tool traces this process: run without it, or with `--tool=nsys`"
            )),
            denied if INSUFFICIENT_PRIVILEGES.contains(&denied) => Failure {
                kind: FailureKind::NotPermitted,
                stage: None,
                message: format!(
                    "{message}; let users trace: `options nvidia NVreg_RestrictProfilingToAdminUsers=0` in \
                     /etc/modprobe.d/nvidia.conf and a restart, or, in a container, start it with --cap-add=SYS_ADMIN"
                ),
            },
            _ => internal(message),
        })
    }

    /// Takes over the records of a buffer.
    ///
    /// # Safety
    /// CUPTI has filled the first `valid` bytes of `buffer`.
    unsafe fn take(&self, buffer: *mut u8, valid: usize) {
        let mut record: *mut u8 = std::ptr::null_mut();
        // SAFETY: as promised by the caller; `record` is null or the record before.
        while unsafe { (self.get_next_record)(buffer, valid, &raw mut record) } == SUCCESS && !record.is_null() {
            // SAFETY: every record begins with its kind.
            let kind = unsafe { record.cast::<u32>().read_unaligned() };
            let Some(bytes) = layout::bytes_of(kind) else { continue };
            // SAFETY: a record of this kind has at least so many bytes in every version that is let in.
            let fields = layout::read(kind, unsafe { std::slice::from_raw_parts(record, bytes) });
            // SAFETY: a record that CUPTI has just given.
            let named = fields.and_then(|fields| unsafe { self.named(fields) });
            collected(|collected| match named {
                Some(named) => collected.records.push(named),
                None => collected.unreadable += 1,
            });
        }
    }

    /// The record with its name.
    ///
    /// # Safety
    /// It is CUPTI's, and its name's address is as CUPTI has set it.
    unsafe fn named(&self, fields: Fields) -> Option<Named> {
        let name = match fields.traced {
            // SAFETY: as promised by the caller; the string lives as long as the module.
            Traced::Kernel { name, .. } => unsafe { string(name as *const c_char) }?,
            Traced::Copy { kind, .. } => layout::copy_name(kind).to_owned(),
            Traced::Fill { .. } => "fill".to_owned(),
            Traced::Call { is_driver, function, .. } => {
                let domain = if is_driver { DRIVER_DOMAIN } else { RUNTIME_DOMAIN };
                let mut text = std::ptr::null();
                // SAFETY: `text` may be written to; it gets a string that is never freed, or stays.
                let known = unsafe { (self.get_callback_name)(domain, function, &raw mut text) } == SUCCESS;
                // SAFETY: a string of CUPTI, or none.
                let name = if known { unsafe { string(text) } } else { None };
                name.unwrap_or_else(|| format!("function {function}"))
            }
        };
        Some(Named { fields, name })
    }
}

/// A string of C; `None` for a null pointer.
///
/// # Safety
/// It is null, or a string that ends with zero.
unsafe fn string(text: *const c_char) -> Option<String> {
    // SAFETY: as promised by the caller.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Gives CUPTI a buffer.
extern "C" fn request(buffer: *mut *mut u8, bytes: *mut usize, most_records: *mut usize) {
    let memory = Box::into_raw(vec![0_u64; BUFFER_WORDS].into_boxed_slice()).cast::<u8>();
    // SAFETY: CUPTI passes three places to write to. It may put as many records there as fit.
    unsafe {
        buffer.write(memory);
        bytes.write(BUFFER_WORDS * size_of::<u64>());
        most_records.write(0);
    }
}

/// Takes a buffer back, with what is in it.
extern "C" fn complete(context: *mut c_void, stream: u32, buffer: *mut u8, _bytes: usize, valid: usize) {
    if buffer.is_null() {
        return;
    }
    if let Some(library) = LOADED.get() {
        // SAFETY: CUPTI has filled so many bytes of the buffer, and does not use it any more.
        unsafe { library.take(buffer, valid) };
        let mut dropped = 0;
        // SAFETY: context and stream are those that CUPTI has named; `dropped` may be written to.
        if unsafe { (library.get_dropped)(context, stream, &raw mut dropped) } == SUCCESS {
            collected(|collected| collected.dropped += dropped as u64);
        }
    }
    // SAFETY: made by `request`, with so many words, and used by nobody any more.
    drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(buffer.cast::<u64>(), BUFFER_WORDS)) });
}
