//! `mlarun explain`: what identifies a run, and why it is fresh or stale.

use std::path::Path;

use super::args::{ExplainArgs, Global, PlanArgs};
use super::context;
use super::exit::{CliError, Exit};
use super::output;

/// A manifest explains its plan in full; a key shows what it is the hash of.
pub fn run(global: &Global, args: &ExplainArgs) -> Result<Exit, CliError> {
    let path = Path::new(&args.run);
    if path.extension().is_some() || path.exists() {
        let plan = PlanArgs { manifests: vec![path.to_owned()], selection: args.selection.clone(), dot: false };
        let verbose = Global { verbose: global.verbose.max(1), quiet: 0, ..global.clone() };
        return super::plan::run(&verbose, &plan);
    }
    let project = context::project_here(global)?;
    let records = super::show::records(&project, &args.run)?;
    let mut seen = Vec::new();
    let explained = records.iter().filter(|record| {
        let is_new = !seen.contains(&record.key);
        seen.push(record.key);
        is_new
    });
    let explained: Vec<_> = explained
        .map(|record| {
            serde_json::json!({
                "kind": record.kind,
                "key": record.key,
                "subject": record.subject,
                "labels": record.labels,
                "tiling": record.tiling,
                "depends_on": record.material,
            })
        })
        .collect();
    output::json(&explained)?;
    Ok(Exit::Success)
}
