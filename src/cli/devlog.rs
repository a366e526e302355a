//! `mlarun devlog`: dev logs from the records that are committed beside them.

use super::args::{DevlogArgs, Global};
use super::context;
use super::exit::{CliError, Exit};
use super::output;
use crate::app::devlogs;
use crate::diagnostic::suggestion;

pub fn run(global: &Global, args: &DevlogArgs) -> Result<Exit, CliError> {
    let project = context::project_here(global)?;
    let mut kernels = devlogs::recorded_kernels(&project).map_err(CliError::usage)?;
    if let Some(unknown) = args.kernels.iter().find(|kernel| !kernels.contains_key(*kernel)) {
        let near = suggestion(unknown, kernels.keys().map(String::as_str));
        return Err(CliError::usage(format!(
            "no records of `{unknown}` under docs/kernels/records; {}",
            near.unwrap_or_else(|| "`mlarun MANIFEST --devlog-add` makes them".to_owned())
        )));
    }
    kernels.retain(|kernel, _| args.kernels.is_empty() || args.kernels.contains(kernel));
    let mut exit = Exit::Success;
    let mut logs = Vec::new();
    for (kernel, records) in &kernels {
        if args.check {
            let checked = devlogs::check(&project, kernel, records).map_err(CliError::usage)?;
            let stale: Vec<String> = checked.stale.iter().map(ToString::to_string).collect();
            if !stale.is_empty() {
                exit = exit.and(Exit::Stale);
            }
            if global.json {
                logs.push(serde_json::json!({ "kernel": kernel, "path": checked.path, "stale": stale }));
            } else {
                stale.iter().try_for_each(|line| output::text(&format!("{}: {line}\n", checked.path.display())))?;
            }
        } else {
            let written = devlogs::regenerate(&project, kernel, records).map_err(CliError::usage)?;
            match &written {
                _ if global.json => logs.push(serde_json::json!({ "kernel": kernel, "written": written })),
                Some(path) => output::text(&format!("{}\n", path.display()))?,
                None => {}
            }
        }
    }
    if global.json {
        output::json(&logs)?;
    }
    if exit == Exit::Stale && global.quiet < 2 {
        output::note(
            "mlarun: stale; `mlarun devlog` writes blocks again from their records; a block without a record is written by a \
             run with --devlog-add, or is to be deleted",
        );
    }
    Ok(exit)
}
