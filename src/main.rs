//! The command `mlarun`.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("__worker") => mlarun::worker::main(),
        _ => {
            eprintln!("mlarun: only `__worker` is served");
            ExitCode::from(2)
        }
    }
}
