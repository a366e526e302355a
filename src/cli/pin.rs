//! `mlarun pin`: the kernels as they are now, kept to be measured beside later ones.

use super::args::{Global, PinArgs};
use super::context;
use super::exit::{CliError, Exit};
use super::output;
use crate::app::pin::{self, DEFAULT_PIN, Pin, PinError};
use crate::report::numbers::counted;

pub fn run(global: &Global, args: &PinArgs) -> Result<Exit, CliError> {
    let project = context::project_here(global)?;
    if args.list {
        let (sound, broken) = pin::pins(&project).map_err(pin_error)?;
        let listed = list(global, &sound)?;
        broken.iter().for_each(|error| output::note(&format!("mlarun: {error}")));
        return Ok(if broken.is_empty() { listed } else { Exit::HostLacks });
    }
    let name = args.name.as_deref().unwrap_or(DEFAULT_PIN);
    if args.remove {
        let removed = pin::remove(&project, name).map_err(pin_error)?;
        return match removed {
            Some(removed) => told(global, &removed, "removed"),
            None => {
                output::note(&format!("removed {name}, which could not be read"));
                Ok(Exit::Success)
            }
        };
    }
    let broken = project.catalog.diagnostics();
    output::diagnostics(&broken, global.color);
    if !broken.is_empty() {
        output::note("mlarun: what is broken is not pinned");
    }
    let machine = context::machine(global, &project, context::host_kind(global))?;
    let pinned = pin::make(&project, &machine, name, args.replace).map_err(pin_error)?;
    told(global, &pinned, "pinned")
}

fn told(global: &Global, pin: &Pin, what: &str) -> Result<Exit, CliError> {
    if global.json {
        output::json(pin)?;
    } else {
        let (files, tunings) = (counted(pin.files.len(), "file"), counted(pin.tunings.len(), "tuning"));
        output::text(&format!(
            "{what} {} ({}): {files}, {tunings}, {}\n",
            pin.name,
            pin.key.short(),
            pin.toolchain.compiler
        ))?;
    }
    Ok(Exit::Success)
}

fn list(global: &Global, pins: &[Pin]) -> Result<Exit, CliError> {
    if global.json {
        output::json(&pins)?;
        return Ok(Exit::Success);
    }
    let mut table = output::table(&["NAME", "KEY", "PINNED", "LANGUAGE", "COMPILER", "GIT", "FILES"]);
    for pin in pins {
        let dirty = if pin.git_dirty == Some(true) { "+" } else { "" };
        let git =
            pin.git_revision.as_deref().map_or("--".to_owned(), |git| format!("{}{dirty}", &git[..git.len().min(12)]));
        table.add_row([
            pin.name.clone(),
            pin.key.short(),
            pin.pinned_at.strftime("%Y-%m-%d %H:%MZ").to_string(),
            pin.language.to_string(),
            pin.toolchain.compiler.to_string(),
            git,
            pin.files.len().to_string(),
        ]);
    }
    output::text(&output::table_text(&table))?;
    Ok(Exit::Success)
}

/// Exit code of a pin that cannot be made or used.
pub fn pin_error(error: PinError) -> CliError {
    match error {
        PinError::Io { .. } | PinError::Damaged { .. } | PinError::Newer { .. } => CliError::host(error),
        error => CliError::usage(error),
    }
}
