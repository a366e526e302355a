//! `mlarun devlog`: dev logs from the records that are committed beside them.

use super::args::{DevlogArgs, Global};
use super::context;
use super::exit::{CliError, Exit};
use super::output;
use crate::app::devlogs;

pub fn run(global: &Global, args: &DevlogArgs) -> Result<Exit, CliError> {
    let project = context::project_here(global)?;
    let kernels = devlogs::recorded_kernels(&project).map_err(CliError::usage)?;
    if let Some(unknown) = args.kernels.iter().find(|kernel| !kernels.contains_key(*kernel)) {
        let known = kernels.keys().cloned().collect::<Vec<_>>().join(", ");
        return Err(CliError::usage(format!(
            "no records of `{unknown}` under docs/kernels/records; there are: {}",
            if known.is_empty() { "none" } else { &known }
        )));
    }
    let mut exit = Exit::Success;
    for (kernel, records) in &kernels {
        if !args.kernels.is_empty() && !args.kernels.contains(kernel) {
            continue;
        }
        if args.check {
            let checked = devlogs::check(&project, kernel, records).map_err(CliError::usage)?;
            for stale in &checked.stale {
                output::text(&format!("{}: {stale}\n", checked.path.display()))?;
                exit = exit.and(Exit::Stale);
            }
        } else if let Some(path) = devlogs::regenerate(&project, kernel, records).map_err(CliError::usage)? {
            output::text(&format!("{}\n", path.display()))?;
        }
    }
    if exit == Exit::Stale && global.quiet < 2 {
        output::note("mlarun: stale; `mlarun devlog` writes the blocks again from their records");
    }
    Ok(exit)
}
