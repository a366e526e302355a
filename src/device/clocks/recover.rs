//! Clocks that programs which are gone have left locked, by their notes.

use std::path::Path;

use super::ClocksError;
use super::guard::restore;
use super::note::{self, Locked, Note, boot, look};
use crate::device::lease::Holder;
use crate::device::nvml::{Gpu, Nvml};

/// What a program that is gone has left in `note`, done away with; gives the lock that is there to stay.
pub(super) fn recover(gpu: &Gpu, note: &Note) -> Result<Option<Locked>, ClocksError> {
    let Some(noted) = note.read()? else { return Ok(None) };
    // A lock does not outlive the driver, which the boot loaded anew.
    let kept = noted.kept.filter(|_| noted.boot == boot());
    if noted.held.is_some() {
        restore(gpu, kept.as_ref())?;
        note.write(kept.as_ref(), None)?;
    }
    Ok(kept)
}

/// What became of the clocks that a program which is gone has left locked.
#[derive(Debug)]
pub enum Recovered {
    /// They are the GPU's own again.
    Reset { gpu: String, by: Option<Holder> },
    /// They are locked still.
    Left { uuid: String, reason: String },
}

/// Gives back what programs that are gone have left locked, by their notes in `folder`; where `may_change` is not set, only
/// tells. A GPU that a living program has in its hands is left alone.
pub fn recover_all(folder: &Path, may_change: bool) -> Vec<Recovered> {
    note::uuids(folder)
        .into_iter()
        .filter_map(|uuid| recover_one(folder, &uuid, may_change).transpose())
        .map(|done| done.unwrap_or_else(|(uuid, error)| Recovered::Left { uuid, reason: error.to_string() }))
        .collect()
}

fn recover_one(folder: &Path, uuid: &str, may_change: bool) -> Result<Option<Recovered>, (String, ClocksError)> {
    let failed = |error: ClocksError| (uuid.to_owned(), error);
    let (noted, is_taken) = look(folder, uuid).map_err(|error| failed(error.into()))?;
    let is_kept = noted.as_ref().is_some_and(|noted| noted.held.is_none());
    if is_taken || is_kept {
        return Ok(None);
    }
    if !may_change {
        let reason = "this program may not change clocks (`mlarun clocks reset` does)".to_owned();
        return Ok(Some(Recovered::Left { uuid: uuid.to_owned(), reason }));
    }
    let recovered = || -> Result<Recovered, ClocksError> {
        let gpu = Nvml::open()?.gpu(uuid)?;
        let note = Note::take(folder, uuid)?;
        if note.read()?.is_none() {
            // A text that is no note: whoever wrote it, the clocks may be locked.
            gpu.reset()?;
            note.write(None, None)?;
        }
        recover(&gpu, &note)?;
        Ok(Recovered::Reset { gpu: gpu.to_string(), by: noted.and_then(|noted| noted.held).map(|held| held.by) })
    };
    recovered().map(Some).map_err(failed)
}
