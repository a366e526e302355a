//! `mlarun check`: everything that can be said about manifests without running anything.

use super::args::{CheckArgs, Global};
use super::context;
use super::exit::{CliError, Exit};
use super::output;
use crate::model::DeviceKind;

pub fn run(global: &Global, args: &CheckArgs) -> Result<Exit, CliError> {
    let mut exit = Exit::Success;
    for manifest in &args.manifests {
        let project = context::project(global, manifest)?;
        match context::experiment(global, manifest, &args.sets, &project, DeviceKind::Cpu) {
            Ok(experiment) => {
                let runs: usize = experiment.kernels.iter().map(|kernel| kernel.versions.len()).sum::<usize>()
                    * experiment.shapes.len()
                    * experiment.modes.len();
                if global.quiet == 0 {
                    output::note(&format!(
                        "{}: sound, {} runs on this host beside baselines",
                        manifest.display(),
                        runs
                    ));
                }
            }
            Err(error) => exit = exit.and(output::report_error(&error, global.color)),
        }
    }
    Ok(exit)
}
