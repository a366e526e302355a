//! Profiles one kernel from a program: `flash_attention` v0 at a small shape, in event mode.
//!
//! Run it in the project's folder, or anywhere below it:
//!
//! ```sh
//! cargo build --bin mlarun           # the worker that kernels run in
//! cargo run --example profile
//! ```
//!
//! It prints the folder of the artifacts and the median duration. The second run measures nothing: the result is recorded.

use std::error::Error;
use std::path::PathBuf;

use mlarun::app::modes::{ProfilePlan, Profiler, event_profile_plan};
use mlarun::model::{Language, Shape, Value};
use mlarun::report::numbers::duration;

/// Sample sets, each taken by a fresh process.
const BENCH_RUNS: u32 = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let profiler = Profiler::open(&std::env::current_dir()?, worker()?)?;
    let shape = Shape([("s".to_owned(), Value::Int(2)), ("t".to_owned(), Value::Int(64))].into());
    let plan = ProfilePlan::new("flash_attention", Language::C, shape);
    let profile = event_profile_plan(&profiler, &plan, None, None, Some(BENCH_RUNS))?;
    println!("{}", profile.folder.display());
    println!("end to end, caches cold: {}", duration(profile.duration_ns));
    Ok(())
}

/// The `mlarun` binary: examples lie in target/<profile>/examples/, it lies in target/<profile>/.
fn worker() -> Result<PathBuf, Box<dyn Error>> {
    let example = std::env::current_exe()?;
    let folder = example.parent().and_then(std::path::Path::parent).ok_or("this example lies in no folder")?;
    let worker = folder.join("mlarun");
    if !worker.is_file() {
        return Err(format!("{}: there is no worker; run `cargo build --bin mlarun` first", worker.display()).into());
    }
    Ok(worker)
}
