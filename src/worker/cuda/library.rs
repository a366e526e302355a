//! Whether the libraries of CUDA are there. Asked before anything of them is called: a call that finds no library would
//! end the process.

use std::path::PathBuf;

use cudarc::{driver, nvrtc};

use super::error::unsupported;
use crate::model::protocol::Failure;

/// The driver's library, which comes with the driver.
///
/// # Errors
/// It is not there.
pub fn require_driver() -> Result<(), Failure> {
    // SAFETY: loads the library, whose initialisers run, as they would for every program that uses the GPU.
    if unsafe { driver::sys::is_culib_present() } {
        return Ok(());
    }
    Err(unsupported(
        "this host has no libcuda.so.1, the driver's library; install the driver of NVIDIA, or, in a container, start it \
         with the GPUs (for instance `--gpus all`)",
    ))
}

/// The compiler's library, which comes with the CUDA toolkit.
///
/// # Errors
/// It is not there.
pub fn require_compiler() -> Result<(), Failure> {
    // SAFETY: loads the library, whose initialisers run; it does nothing else by itself.
    if unsafe { nvrtc::sys::is_culib_present() } {
        return Ok(());
    }
    Err(unsupported(
        "libnvrtc.so, the CUDA compiler's library, is not found; install the CUDA toolkit, version 12 or 13, and name the \
         folder of the library in LD_LIBRARY_PATH",
    ))
}

/// The file that the compiler was loaded from, links resolved; `None` where the system does not tell.
pub fn compiler_path() -> Option<PathBuf> {
    // SAFETY: the library was found to be there by `require_compiler`, which every caller has called.
    let _ = unsafe { nvrtc::sys::culib() };
    mapped(&std::fs::read_to_string("/proc/self/maps").ok()?, "libnvrtc.so")
}

/// The first mapped file whose name starts with `name`, in the text of `/proc/self/maps`.
fn mapped(maps: &str, name: &str) -> Option<PathBuf> {
    let paths = maps.lines().filter_map(|line| line.find('/').map(|start| PathBuf::from(&line[start..])));
    let mut found = paths.filter(|path| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name)));
    let path = found.next()?;
    Some(path.canonicalize().unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaded_library_is_found_among_what_is_mapped() {
        let maps = "7f00-7f01 r-xp 00000000 08:01 12   /opt/cuda 13/lib/libnvrtc-builtins.so.13.0\n\
                    7f02-7f03 r-xp 00000000 08:01 13   /opt/cuda 13/lib/libnvrtc.so.13\n\
                    7f04-7f05 rw-p 00000000 00:00 0\n";
        assert_eq!(mapped(maps, "libnvrtc.so"), Some(PathBuf::from("/opt/cuda 13/lib/libnvrtc.so.13")));
        assert_eq!(mapped(maps, "libcuda.so"), None);
    }
}
