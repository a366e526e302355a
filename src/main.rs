//! The command `mlarun`.

use std::process::ExitCode;

/// Planning is thousands of small allocations on every thread, which the system's allocator is slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    mlarun::cli::main()
}
