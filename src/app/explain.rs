//! Why a run is stale: its material beside that of the newest result under the same name.

use super::experiment::{Bench, Workspace};
use super::gather::GatherError;
use super::record_kind;
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
    let Some(kind) = record_kind(run.mode) else { return Ok(Vec::new()) };
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
