//! `mlarun new-version`: a version's folder cloned as the next one.

use super::args::{Global, NewVersionArgs};
use super::context;
use super::exit::{CliError, Exit};
use super::output;
use crate::catalog::{self, LookupError};
use crate::model::KernelId;

pub fn run(global: &Global, args: &NewVersionArgs) -> Result<Exit, CliError> {
    let project = context::project_here(global)?;
    let from = args.from.parse().map_err(CliError::usage)?;
    let to = args.to.parse().map_err(CliError::usage)?;
    let id = KernelId { kernel: args.kernel.clone(), version: from, language: args.language };
    match project.catalog.package(&id) {
        // A broken package can be cloned all the same.
        Ok(_) | Err(LookupError::Broken { .. }) => {}
        Err(error) => return Err(CliError::usage(error)),
    }
    let folder = catalog::new_version(&project.root, &args.kernel, args.language, from, to).map_err(CliError::usage)?;
    if global.json {
        output::json(&serde_json::json!({ "folder": folder }))?;
    } else {
        output::text(&format!("{}\n", folder.display()))?;
    }
    Ok(Exit::Success)
}
