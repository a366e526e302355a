//! `mlarun report`: the experiment's files again, from the store alone.

use super::args::{Global, ReportArgs};
use super::carry_out::publish_error;
use super::context::{self, Opened};
use super::exit::{CliError, Exit};
use super::output;
use super::run::bench_error;
use crate::app;
use crate::plan::Wanted;

pub fn run(global: &Global, args: &ReportArgs) -> Result<Exit, CliError> {
    for manifest in &args.manifests {
        let project = context::project(global, manifest)?;
        let experiment = context::experiment(global, manifest, &args.sets, &project)?;
        let opened = Opened::of(global, project, experiment.device)?;
        let workspace = opened.workspace();
        let bench = workspace.plan(experiment, Wanted { dev_logs: true, ..Wanted::default() }).map_err(bench_error)?;
        let published = app::publish_experiment(&workspace, &bench, &[], |_, _| false, false).map_err(publish_error)?;
        if global.json {
            output::json(&serde_json::json!({ "report": published.report, "devlogs": published.devlogs }))?;
        } else {
            output::text(&format!("{}\n", published.report.display()))?;
            for devlog in &published.devlogs {
                output::text(&format!("{}\n", devlog.display()))?;
            }
        }
    }
    Ok(Exit::Success)
}
