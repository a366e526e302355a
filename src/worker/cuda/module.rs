//! Compiled modules on the GPU: loads cubins and finds functions, with what they need and take.

use std::ffi::{CString, c_int};
use std::path::Path;

use cudarc::driver::sys::{self, CUfunction, CUfunction_attribute, CUmodule, CUresult, CUtensorMap};

use super::error::{CudaError, check};
use super::limits::FunctionLimits;
use crate::model::pipeline::Arg;
use crate::model::protocol::{Failure, FailureKind};

/// A loaded module. It stays loaded as long as the process.
#[derive(Clone, Copy)]
pub struct Module(CUmodule);

/// A function of a loaded module.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Function(CUfunction);

impl Module {
    /// Loads the cubin at `path`.
    ///
    /// # Errors
    /// It cannot be read, or is none for this GPU.
    pub fn load(path: &Path) -> Result<Module, Failure> {
        let refused = |reason: String| Failure {
            kind: FailureKind::Load,
            stage: None,
            message: format!("{} does not load: {reason}; build it again", path.display()),
        };
        let mut image = std::fs::read(path).map_err(|error| refused(error.to_string()))?;
        // The driver reads the size from the file's own headers; a truncated one would lead it beyond the end.
        if !image.starts_with(b"\x7fELF") || elf_bytes(&image).is_none_or(|bytes| bytes > image.len() as u64) {
            return Err(refused("it is no cubin".to_owned()));
        }
        image.push(0);
        let mut module: CUmodule = std::ptr::null_mut();
        // SAFETY: `module` may be written to; the image is a complete file, as just checked; a context is current.
        let result = unsafe { sys::cuModuleLoadData(&raw mut module, image.as_ptr().cast()) };
        match check(result, "the driver refuses it") {
            Ok(()) => Ok(Module(module)),
            Err(error) if error.kind() == FailureKind::Internal => Err(refused(error.to_string())),
            Err(error) => {
                let failure = Failure::from(error);
                Err(Failure { message: format!("{} does not load: {}", path.display(), failure.message), ..failure })
            }
        }
    }

    /// The function `name`, all of its code loaded.
    ///
    /// # Errors
    /// The module has none of that name.
    pub fn function(self, name: &str) -> Result<Function, CudaError> {
        let mut function: CUfunction = std::ptr::null_mut();
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: `function` may be written to; the module is never unloaded; the name ends with zero.
        let result = unsafe { sys::cuModuleGetFunction(&raw mut function, self.0, name.as_ptr()) };
        check(result, "the function is not found")?;
        Ok(Function(function))
    }
}

/// End of the last part that the headers of a 64-bit ELF file name: where its section headers end.
fn elf_bytes(image: &[u8]) -> Option<u64> {
    let number = |start: usize, bytes: usize| -> Option<u64> {
        let field = image.get(start..start + bytes)?;
        Some(field.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    let (start, entry_bytes, entries) = (number(0x28, 8)?, number(0x3A, 2)?, number(0x3C, 2)?);
    start.checked_add(entry_bytes * entries)
}

impl Function {
    /// For calls of the driver.
    pub const fn handle(self) -> CUfunction {
        self.0
    }

    /// What it needs and allows.
    ///
    /// # Errors
    /// The driver does not say.
    pub fn limits(self) -> Result<FunctionLimits, CudaError> {
        use CUfunction_attribute as A;
        let number = |attribute: CUfunction_attribute| -> Result<u64, CudaError> {
            let mut value: c_int = 0;
            // SAFETY: `value` may be written to; the function's module is never unloaded.
            let result = unsafe { sys::cuFuncGetAttribute(&raw mut value, attribute, self.0) };
            check(result, "a function does not tell an attribute")?;
            Ok(u64::try_from(value).unwrap_or(0))
        };
        Ok(FunctionLimits {
            threads_per_block: number(A::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            static_shared_bytes: number(A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            registers: number(A::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
        })
    }

    /// Allows launches with this much dynamic shared memory.
    ///
    /// # Errors
    /// It is too much.
    pub fn allow_shared(self, bytes: u32) -> Result<(), CudaError> {
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        self.set(CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes)
    }

    /// Allows clusters of more blocks than every GPU can launch.
    ///
    /// # Errors
    /// This GPU has none.
    pub fn allow_large_clusters(self) -> Result<(), CudaError> {
        self.set(CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
    }

    fn set(self, attribute: CUfunction_attribute, value: c_int) -> Result<(), CudaError> {
        // SAFETY: the function's module is never unloaded.
        check(unsafe { sys::cuFuncSetAttribute(self.0, attribute, value) }, "a function refuses an attribute")
    }

    /// Blocks of one multiprocessor that run at the same time.
    ///
    /// # Errors
    /// The driver does not say.
    pub fn resident_blocks(self, threads: u64, shared_bytes: u32) -> Result<u64, CudaError> {
        let mut blocks: c_int = 0;
        let threads = c_int::try_from(threads).unwrap_or(c_int::MAX);
        // SAFETY: `blocks` may be written to; the function's module is never unloaded.
        let result = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, self.0, threads, shared_bytes as usize)
        };
        check(result, "the blocks that fit cannot be counted")?;
        Ok(u64::try_from(blocks).unwrap_or(0))
    }

    /// Size in bytes of each parameter; of the first `most` alone where that is given. The driver tells their number only
    /// by an error for the one after the last.
    ///
    /// # Errors
    /// The driver does not say.
    pub fn parameter_bytes(self, most: Option<usize>) -> Result<Vec<usize>, CudaError> {
        let mut sizes = Vec::new();
        while most.is_none_or(|most| sizes.len() < most) {
            let (mut offset, mut bytes) = (0usize, 0usize);
            // SAFETY: both may be written to; the function's module is never unloaded.
            let result = unsafe { sys::cuFuncGetParamInfo(self.0, sizes.len(), &raw mut offset, &raw mut bytes) };
            // The first index beyond the last parameter.
            if result == CUresult::CUDA_ERROR_INVALID_VALUE {
                return Ok(sizes);
            }
            check(result, "a function does not tell its parameters")?;
            sizes.push(bytes);
        }
        Ok(sizes)
    }
}

/// Compares the parameters that a function takes with the arguments that a stage declares, by number and size: what
/// differs would be read from memory that holds something else.
///
/// # Errors
/// They differ; the sentence says how.
pub fn check_parameters(entry: &str, parameters: &[usize], args: &[Arg]) -> Result<(), String> {
    if parameters.len() != args.len() {
        return Err(format!(
            "`{entry}` takes {} parameters and the stage declares {} arguments",
            parameters.len(),
            args.len()
        ));
    }
    for (index, (&bytes, arg)) in parameters.iter().zip(args).enumerate() {
        let (wanted, what) = match arg {
            Arg::Buffer(_) => (8, "a pointer"),
            Arg::Map(_) => (size_of::<CUtensorMap>(), "a tensor map"),
            Arg::Float(_) => (4, "a float"),
            Arg::Int(_) | Arg::Block(_) | Arg::Thread => (8, "a long long"),
        };
        if bytes != wanted {
            return Err(format!(
                "parameter {} of `{entry}` has {bytes} bytes and the stage declares {what}, which has {wanted}",
                index + 1
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_that_differ_from_the_declaration_are_named() {
        let args = [Arg::Buffer(0), Arg::Int(3), Arg::Float(0.5)];
        assert_eq!(check_parameters("f", &[8, 8, 4], &args), Ok(()));
        let differs = |parameters: &[usize]| check_parameters("f", parameters, &args).expect_err("they differ");
        assert!(differs(&[8, 8]).contains("takes 2 parameters and the stage declares 3"));
        assert!(differs(&[8, 4, 4]).contains("parameter 2 of `f` has 4 bytes and the stage declares a long long"));
        assert!(differs(&[8, 8, 8]).contains("a float"));
    }

    #[test]
    fn the_end_of_a_file_is_read_from_its_headers() {
        let mut image = vec![0u8; 0x40];
        image[0x28..0x30].copy_from_slice(&1000u64.to_le_bytes());
        image[0x3A..0x3C].copy_from_slice(&64u16.to_le_bytes());
        image[0x3C..0x3E].copy_from_slice(&10u16.to_le_bytes());
        assert_eq!(elf_bytes(&image), Some(1640));
        assert_eq!(elf_bytes(&image[..0x3D]), None);
    }

    #[test]
    fn what_is_no_cubin_is_refused_without_a_gpu() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("k.cubin");
        let message = |path: &Path| Module::load(path).err().expect("it is none").message;
        assert!(message(&path).contains("k.cubin does not load"));
        std::fs::write(&path, b"\x7fELF and no more").expect("it is written");
        assert!(message(&path).contains("it is no cubin"));
    }
}
