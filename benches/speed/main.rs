//! How fast mlarun itself is, as a table of figures and goals: `cargo bench --bench speed`, with words of the rows that
//! are wanted behind `--`. A missed goal is marked and is no failure, as the figures are the host's too.

mod figures;
mod overhead;
mod planning;
mod profiling;
mod project;
mod rendering;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use figures::{Figure, Goal};

/// As in the program itself.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Argument by which this program, started by itself, plans once and says how long that took.
const PLAN_ONCE: &str = "__plan";

fn main() -> ExitCode {
    // Cargo adds `--bench`; what else begins with a dash is for the harness that this is not.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let done = match arguments.split_first() {
        Some((first, rest)) if first == PLAN_ONCE => planning::child(rest),
        _ => benches(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("speed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn benches(wanted: &[String]) -> Result<()> {
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| name.contains(word.as_str()));
    println!("{}", figures::HEADER);
    let show = |figures: Vec<Figure>| figures.iter().for_each(|figure| println!("{figure}"));
    if is_wanted("catalogue") {
        show(vec![catalogue()]);
    }
    for runs in planning::SIZES {
        if is_wanted(&format!("plan-{runs}")) {
            show(planning::plain(runs)?);
        }
    }
    if is_wanted("plan-tuned") {
        show(planning::tuned()?);
    }
    if is_wanted("unchanged") {
        show(planning::unchanged_sweep()?);
    }
    if is_wanted("rendering") {
        show(rendering::thousand_records()?);
    }
    if is_wanted("profiling") {
        show(profiling::hundred_kernels()?);
    }
    if is_wanted("overhead") {
        show(overhead::sample_set()?);
    }
    Ok(())
}

/// Loading the repository's own packages.
fn catalogue() -> Figure {
    let root = Path::new(project::REPOSITORY);
    let packages = mlarun::catalog::Catalog::load(root).packages().count();
    let times = figures::repeat_ms(30, || {
        std::hint::black_box(mlarun::catalog::Catalog::load(root));
    });
    Figure::new(format!("load {packages} kernel packages"), times, "ms", Goal::AtMost(10.0))
}
