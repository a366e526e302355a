//! The command `mlarun`.

use std::process::ExitCode;

fn main() -> ExitCode {
    mlarun::cli::main()
}
