//! Why a run is stale: its material beside that of the newest result under the same name, or of a record.

use super::experiment::{Bench, Workspace, protocols};
use super::gather::GatherError;
use crate::manifest::ProtocolOverrides;
use crate::model::record::{Record, RecordKind};
use crate::plan::{
    BuildKeys, Change, Facts as _, PlanError, Prepared, Run, RunState, Slot, Stale, SubjectState, changes,
};

/// Differences between what was measured and what would be measured now; none for a run that is fresh or new.
///
/// # Errors
/// A record cannot be read.
pub fn reasons(
    workspace: &Workspace<'_>,
    bench: &Bench,
    subject: usize,
    run: &Run,
) -> Result<Vec<Change>, GatherError> {
    let subject = &bench.plan.subjects[subject];
    let Some(kind) = RecordKind::of_mode(run.mode) else { return Ok(Vec::new()) };
    let setting = workspace.setting(&bench.protocols);
    let (previous, tiling) = match (&run.state, &subject.state) {
        (RunState::Stale(Stale::Changed { previous }), SubjectState::Ready(ready)) => {
            (Some(*previous), Some(ready.tiling.clone()))
        }
        // What is tuned anew has no tiling yet: with that of the newest result, only what has led to it differs.
        (RunState::AfterTune, _) => {
            let device = &setting.device.id.name;
            let slot = Slot { id: &subject.id, shape: &subject.shape, mode: run.mode, device };
            (workspace.ledger.latest(&slot), None)
        }
        _ => (None, None),
    };
    let Some(previous) = previous else { return Ok(Vec::new()) };
    let records = workspace.ledger.store().get(kind, &previous)?;
    let Some(old) = records.last() else { return Ok(Vec::new()) };
    let tiling = tiling.unwrap_or_else(|| old.tiling.clone());
    let package = workspace.project.catalog.package(&subject.id).map_err(PlanError::from)?;
    let (root, builds) = (setting.root(), BuildKeys::default());
    let prepared = Prepared::new(&setting, package, &subject.shape, &tiling, &root, &builds)?;
    Ok(changes(&old.material, &prepared.explanation(&setting, run.mode)))
}

/// What has become of what a record measured.
#[derive(Debug, Clone, PartialEq)]
pub enum Since {
    /// The same would be measured now.
    Unchanged,
    Changed {
        changes: Vec<Change>,
        /// An experiment may measure with a protocol of its own, which a record does not name.
        in_protocol_alone: bool,
    },
    /// Its kernel or version is not there any more, or cannot be used at its shape.
    Gone { reason: String },
}

/// Compares what `record` measured with what the same kernel, shape, mode and tiling would measure now, with the
/// protocol of conf/.
pub fn since(workspace: &Workspace<'_>, record: &Record) -> Since {
    let package = match workspace.project.catalog.package(&record.labels.id) {
        Ok(package) => package,
        Err(error) => return Since::Gone { reason: error.to_string() },
    };
    // A verification keeps no material; what it verified is told by its subject's measurements.
    let Some(mode) = record.labels.mode else { return Since::Unchanged };
    let mut protocols =
        protocols(&workspace.project.conf, &ProtocolOverrides::default(), &workspace.machine.host.device, 1);
    // Which clocks would be held is an experiment's matter, not the kernel's.
    protocols.clocks = record.environment.telemetry.as_ref().map(|seen| seen.clocks).unwrap_or_default();
    let setting = workspace.setting(&protocols);
    let (root, builds) = (setting.root(), BuildKeys::default());
    let now = match Prepared::new(&setting, package, &record.labels.shape, &record.tiling, &root, &builds) {
        Ok(prepared) => prepared.explanation(&setting, mode),
        Err(error) => return Since::Gone { reason: error.to_string() },
    };
    let changes = changes(&record.material, &now);
    if changes.is_empty() {
        return Since::Unchanged;
    }
    let in_protocol_alone = changes.iter().all(|change| change.path.starts_with("protocol"));
    Since::Changed { changes, in_protocol_alone }
}
