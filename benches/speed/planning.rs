//! Planning what is recorded: in a fresh process, as `mlarun plan` does; and the unchanged sweep by the command itself.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use mlarun::app;

use crate::figures::{Figure, Goal};
use crate::project::{Opened, Temporary, record_everything};
use crate::{PLAN_ONCE, Result};

/// Runs of the large plans.
pub const SIZES: [usize; 2] = [10_000, 100_000];

const REPETITIONS: usize = 7;

/// `runs` runs of a kernel without tiling spaces, each with one sample set.
pub fn plain(runs: usize) -> Result<Vec<Figure>> {
    let project = Temporary::new()?;
    let manifest = project.write("experiments/many.toml", &many("flash_mla", "v0", runs / 100))?;
    record_everything(project.root(), &manifest)?;
    let (ms, mib) = plan_in_children(project.root(), &manifest, runs)?;
    let (limit_ms, limit_mib) = if runs <= 10_000 { (500.0, Goal::AtMost(200.0)) } else { (5000.0, Goal::None) };
    Ok(vec![
        Figure::new(format!("plan {runs} recorded runs"), ms, "ms", Goal::AtMost(limit_ms)),
        Figure::new(format!("memory of planning {runs} runs"), mib, "MiB", limit_mib),
    ])
}

/// A hundred runs of a kernel whose stages are tuned each by itself and then together.
pub fn tuned() -> Result<Vec<Figure>> {
    const RUNS: usize = 100;
    let project = Temporary::new()?;
    let manifest = project.write("experiments/many.toml", &many("mla_var6_plus", "v2", RUNS / 100))?;
    record_everything(project.root(), &manifest)?;
    let (ms, _) = plan_in_children(project.root(), &manifest, RUNS)?;
    Ok(vec![Figure::new(format!("plan {RUNS} recorded runs, four tunings each"), ms, "ms", Goal::None)])
}

/// A manifest of `100 · lengths` shapes in event mode, one round each.
fn many(kernel: &str, version: &str, lengths: usize) -> String {
    let list =
        |values: &mut dyn Iterator<Item = usize>| values.map(|value| value.to_string()).collect::<Vec<_>>().join(", ");
    let (s, t) = (list(&mut (1..=100)), list(&mut (0..lengths).map(|step| 256 + 4 * step)));
    format!(
        "schema = 1\n[experiment]\nname = \"many\"\nkernels = [\"{kernel}\"]\nversions = [\"{version}\"]\n\
         modes = [\"event\"]\nrounds = 1\n[shapes]\ns = [{s}]\nt = [{t}]\nh = [2]\nd = [16]\nk = [16]\np = [16]\n"
    )
}

/// Milliseconds and peak MiB of fresh processes that plan once.
fn plan_in_children(root: &Path, manifest: &Path, runs: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let (mut ms, mut mib) = (Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        let mut command = Command::new(std::env::current_exe()?);
        let done = command.arg(PLAN_ONCE).arg(root).arg(manifest).output()?;
        let text = String::from_utf8(done.stdout)?;
        let numbers: Vec<f64> = text.split_whitespace().map(str::parse).collect::<std::result::Result<_, _>>()?;
        let [fresh, others, took_ms, peak_kib] = numbers[..] else {
            return Err(format!("the planning process said {text:?} {}", String::from_utf8_lossy(&done.stderr)).into());
        };
        if fresh != runs as f64 || others != 0.0 {
            return Err(format!("{fresh} runs are fresh and {others} are not, of {runs}").into());
        }
        ms.push(took_ms);
        mib.push(peak_kib / 1024.0);
    }
    Ok((ms, mib))
}

/// The planning process: prints runs that are fresh, runs that are not, milliseconds and peak KiB.
pub fn child(arguments: &[String]) -> Result<()> {
    let [root, manifest] = arguments else { return Err("a project and a manifest are needed".into()) };
    let start = Instant::now();
    let opened = Opened::new(Path::new(root))?;
    let bench = opened.plan(Path::new(manifest))?;
    let counts = bench.plan.counts();
    let ms = start.elapsed().as_secs_f64() * 1e3;
    println!("{} {} {ms} {}", counts.fresh, counts.total() - counts.fresh, peak_kib()?);
    Ok(())
}

/// Highest amount of memory that this process had, in KiB.
fn peak_kib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("/proc/self/status lacks VmHWM")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}

/// The repository's main sweep, recorded and published, by the command itself: from start to end of its process.
pub fn unchanged_sweep() -> Result<Vec<Figure>> {
    let project = Temporary::new()?;
    let manifest = project.root().join("experiments/var6_sweep.toml");
    record_everything(project.root(), &manifest)?;
    let opened = Opened::new(project.root())?;
    let bench = opened.plan(&manifest)?;
    app::publish_experiment(&opened.workspace(), &bench, &[], |_, _| false, false)?;
    drop(opened);
    let mut ms = Vec::new();
    for _ in 0..21 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mlarun"));
        command.arg(&manifest).env("MLARUN_LEASE_DIR", project.root());
        let start = Instant::now();
        let done = command.output()?;
        ms.push(start.elapsed().as_secs_f64() * 1e3);
        let said = String::from_utf8_lossy(&done.stderr);
        if !done.status.success() || !said.contains("nothing to do") {
            return Err(format!("the sweep is not unchanged: {said}").into());
        }
    }
    Ok(vec![Figure::new("unchanged var6_sweep, whole process", ms, "ms", Goal::AtMost(100.0))])
}
