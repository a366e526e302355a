//! Why a run is stale: its material beside that of the newest result under the same name.

use super::experiment::{Bench, Workspace};
use super::gather::GatherError;
use super::record_kind;
use crate::expr::Scope;
use crate::plan::{BuildKeys, Change, PlanError, Prepared, Run, RunState, Stale, SubjectState, changes};

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
    let (RunState::Stale(Stale::Changed { previous }), SubjectState::Ready(ready), Some(kind)) =
        (&run.state, &subject.state, record_kind(run.mode))
    else {
        return Ok(Vec::new());
    };
    let records = workspace.ledger.store().get(kind, previous)?;
    let Some(old) = records.last() else { return Ok(Vec::new()) };
    let setting = workspace.setting(&bench.protocols);
    let package = workspace.project.catalog.package(&subject.id).map_err(PlanError::from)?;
    let (root, builds) = (Scope::new(), BuildKeys::default());
    let prepared = Prepared::new(&setting, package, &subject.shape, &ready.tiling, &root, &builds)?;
    Ok(changes(&old.material, &prepared.explanation(&setting, run.mode)))
}
