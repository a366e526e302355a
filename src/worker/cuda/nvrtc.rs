//! The CUDA compiler as a library: what it is, and one translation unit compiled. Needs no GPU and no driver.

use std::ffi::{CString, c_char, c_int};
use std::path::Path;

use cudarc::nvrtc::sys::{self, nvrtcProgram, nvrtcResult};

use super::error::internal;
use super::library;
use crate::model::protocol::{CompileRequest, Failure, FailureKind, Line};
use crate::worker::answer::Answer;

/// Tells the compiler's version, file and targets.
///
/// # Errors
/// There is none.
pub fn describe(answer: &mut Answer) -> Result<(), Failure> {
    library::require_compiler()?;
    let (mut major, mut minor): (c_int, c_int) = (0, 0);
    // SAFETY: both may be written to.
    check(unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) }, "the compiler does not tell its version")?;
    let mut count: c_int = 0;
    // SAFETY: the number may be written to.
    check(unsafe { sys::nvrtcGetNumSupportedArchs(&raw mut count) }, "the compiler does not tell its targets")?;
    let mut targets: Vec<c_int> = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: there is room for as many numbers as the compiler said.
    check(unsafe { sys::nvrtcGetSupportedArchs(targets.as_mut_ptr()) }, "the compiler does not tell its targets")?;
    let number = |number: c_int| u32::try_from(number).unwrap_or(0);
    let library = library::compiler_path()
        .ok_or_else(|| internal("the file of the CUDA compiler is not among those that are loaded"))?;
    answer.line(&Line::Toolkit {
        version: (number(major), number(minor)),
        library,
        architectures: targets.into_iter().map(number).collect(),
    })
}

/// Compiles a translation unit into `module.cubin` and `module.ptx`.
///
/// # Errors
/// [`FailureKind::Build`] with the whole log where the compiler refuses; or a file cannot be written.
pub fn compile(answer: &mut Answer, request: &CompileRequest) -> Result<(), Failure> {
    library::require_compiler()?;
    let program = Program::new(&request.name, &request.source)?;
    let log = program.compile(&request.options)?;
    let cubin = program.output(sys::nvrtcGetCUBINSize, sys::nvrtcGetCUBIN)?;
    if cubin.is_empty() {
        return Err(internal(
            "the compiler made no machine code; name the GPU in --gpu-architecture as sm_90a, not as compute_90a",
        ));
    }
    let mut ptx = program.output(sys::nvrtcGetPTXSize, sys::nvrtcGetPTX)?;
    if ptx.len() <= 1 {
        let again = Program::new(&request.name, &request.source)?;
        again.compile(&virtual_target(&request.options))?;
        ptx = again.output(sys::nvrtcGetPTXSize, sys::nvrtcGetPTX)?;
    }
    // Its text ends with zero.
    while ptx.last() == Some(&0) {
        ptx.pop();
    }
    write(&request.into.join("module.cubin"), &cubin)?;
    write(&request.into.join("module.ptx"), &ptx)?;
    answer.line(&Line::Compiled { log })
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(path, bytes).map_err(|error| internal(format!("{} cannot be written: {error}", path.display())))
}

/// The same options with the virtual GPU in place of the real one.
fn virtual_target(options: &[String]) -> Vec<String> {
    options
        .iter()
        .map(|option| match option.split_once("=sm_") {
            Some((name @ ("--gpu-architecture" | "-arch"), target)) => format!("{name}=compute_{target}"),
            _ => option.clone(),
        })
        .collect()
}

/// A translation unit in the compiler.
struct Program(nvrtcProgram);

impl Program {
    fn new(name: &str, source: &str) -> Result<Program, Failure> {
        let text = |text: &str, what: &str| {
            CString::new(text).map_err(|_| build(format!("the {what} holds a zero byte, which no compiler reads")))
        };
        let (name, source) = (text(name, "name")?, text(source, "source")?);
        let mut program: nvrtcProgram = std::ptr::null_mut();
        // SAFETY: `program` may be written to, both texts end with zero and are copied, and no header is given.
        let result = unsafe {
            sys::nvrtcCreateProgram(
                &raw mut program,
                source.as_ptr(),
                name.as_ptr(),
                0,
                std::ptr::null(),
                std::ptr::null(),
            )
        };
        check(result, "the source cannot be given to the compiler")?;
        Ok(Program(program))
    }

    /// Compiles and returns the compiler's messages.
    fn compile(&self, options: &[String]) -> Result<String, Failure> {
        let options: Vec<CString> = options
            .iter()
            .map(|option| CString::new(option.as_str()))
            .collect::<Result<_, _>>()
            .map_err(|_| build("an option holds a zero byte, which no compiler reads".to_owned()))?;
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program exists, and there are as many options as said, each ended by zero.
        let result = unsafe { sys::nvrtcCompileProgram(self.0, pointers.len() as c_int, pointers.as_ptr()) };
        let mut log = self.output(sys::nvrtcGetProgramLogSize, sys::nvrtcGetProgramLog)?;
        log.retain(|byte| *byte != 0);
        let log = String::from_utf8_lossy(&log).into_owned();
        match result {
            nvrtcResult::NVRTC_SUCCESS => Ok(log),
            nvrtcResult::NVRTC_ERROR_COMPILATION if !log.trim().is_empty() => Err(build(log)),
            refused => Err(build(format!("{}{log}", describe_refusal(refused)))),
        }
    }

    /// What the compiler made, by the functions that tell its size and copy it.
    fn output(
        &self,
        size: unsafe fn(nvrtcProgram, *mut usize) -> nvrtcResult,
        copy: unsafe fn(nvrtcProgram, *mut c_char) -> nvrtcResult,
    ) -> Result<Vec<u8>, Failure> {
        let mut bytes = 0usize;
        // SAFETY: the program exists and `bytes` may be written to.
        check(unsafe { size(self.0, &raw mut bytes) }, "the compiler's output cannot be read")?;
        let mut output = vec![0u8; bytes];
        if bytes > 0 {
            // SAFETY: the program exists and there is room for as many bytes as the compiler said.
            check(unsafe { copy(self.0, output.as_mut_ptr().cast()) }, "the compiler's output cannot be read")?;
        }
        Ok(output)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program exists and is not used any more.
        let _ = unsafe { sys::nvrtcDestroyProgram(&raw mut self.0) };
    }
}

fn build(message: String) -> Failure {
    Failure { kind: FailureKind::Build, stage: None, message }
}

fn describe_refusal(result: nvrtcResult) -> String {
    format!("the compiler refuses: {result:?}\n")
}

fn check(result: nvrtcResult, doing: &str) -> Result<(), Failure> {
    match result {
        nvrtcResult::NVRTC_SUCCESS => Ok(()),
        nvrtcResult::NVRTC_ERROR_OUT_OF_MEMORY => Err(Failure {
            kind: FailureKind::OutOfMemory,
            stage: None,
            message: format!("{doing}: the host has not enough memory"),
        }),
        error => Err(internal(format!("{doing}: {error:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_virtual_gpu_takes_the_place_of_the_real_one() {
        let options = ["--std=c++17", "--gpu-architecture=sm_90a", "-DX=sm_1", "-arch=sm_80"].map(str::to_owned);
        assert_eq!(
            virtual_target(&options),
            ["--std=c++17", "--gpu-architecture=compute_90a", "-DX=sm_1", "-arch=compute_80"]
        );
    }
}
