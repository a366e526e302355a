//! Clocks that are held: noted on disk, watched by another process, locked, verified under load, and given back when the
//! guard goes, however that comes about.
//!
//! In this order, so that no end of this process leaves clocks locked for ever: the note is written and synced; a watcher
//! is started and has answered; only then are clocks changed. Giving back goes the other way. The watcher resets them when
//! this process is gone, and the next start does what a watcher that was killed as well has left undone.

use std::path::Path;

use super::note::{Locked, Note};
use super::recover::recover;
use super::watch::Watcher;
use super::{ClocksError, Load};
use crate::device::lease::Holder;
use crate::device::nvml::{Gpu, NvmlError};
use crate::failpoint;
use crate::model::clocks::{Frequencies, Reading, agrees};

/// Loads of which one must run at the clocks that are held: they need a moment to settle.
const SETTLING_LOADS: u32 = 4;

/// The clocks of one GPU, locked by this process.
#[derive(Debug)]
pub struct Guard {
    gpu: Gpu,
    frequencies: Frequencies,
    /// `None` once the clocks are given back.
    hands: Option<Hands>,
}

#[derive(Debug)]
struct Hands {
    note: Note,
    /// A lock to go back to.
    kept: Option<Locked>,
    watcher: Watcher,
}

impl Guard {
    /// Locks the clocks of `gpu`, whose note lies in `folder`; `program` is mlarun, which serves as watcher.
    ///
    /// # Errors
    /// They may not or cannot be locked, or someone else has them; they are then as before.
    pub fn lock(gpu: Gpu, asked: Frequencies, folder: &Path, program: &Path) -> Result<Guard, ClocksError> {
        let note = Note::take(folder, gpu.uuid())?;
        let kept = recover(&gpu, &note)?;
        // What cannot be reset is not locked.
        if kept.is_none() {
            gpu.reset()?;
        }
        let held = Locked { frequencies: asked, by: Holder::of_process() };
        note.write(kept.as_ref(), Some(&held))?;
        failpoint::here("clocks.noted");
        let watcher = match Watcher::start(program, &note) {
            Ok(watcher) => watcher,
            Err(error) => {
                note.write(kept.as_ref(), None)?;
                return Err(error);
            }
        };
        failpoint::here("clocks.watched");
        let mut guard = Guard { gpu, frequencies: asked, hands: Some(Hands { note, kept, watcher }) };
        guard.frequencies = guard.gpu.lock(asked)?;
        failpoint::here("clocks.locked");
        Ok(guard)
    }

    /// The clocks that are held.
    pub const fn frequencies(&self) -> Frequencies {
        self.frequencies
    }

    /// Checks that the clocks are held while the GPU works.
    ///
    /// # Errors
    /// They are not, or the load failed.
    pub fn verify(&self, load: &mut dyn Load) -> Result<(), ClocksError> {
        verify(&self.gpu, self.frequencies, load)?;
        failpoint::here("clocks.verified");
        Ok(())
    }

    /// Gives the clocks back.
    ///
    /// # Errors
    /// They could not be reset. The note stays, so that the watcher and the next start try again.
    pub fn release(mut self) -> Result<(), ClocksError> {
        self.give_back()
    }

    fn give_back(&mut self) -> Result<(), ClocksError> {
        let Some(Hands { note, kept, watcher }) = self.hands.take() else { return Ok(()) };
        failpoint::here("clocks.releasing");
        restore(&self.gpu, kept.as_ref())?;
        failpoint::here("clocks.reset");
        note.write(kept.as_ref(), None)?;
        failpoint::here("clocks.cleared");
        drop(watcher);
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // An error leaves the note, on which the watcher acts once this process has let go of it.
        let _ = self.give_back();
    }
}

/// Gives the clocks back to the GPU, or to the lock that was there before.
pub(super) fn restore(gpu: &Gpu, kept: Option<&Locked>) -> Result<(), NvmlError> {
    match kept {
        Some(kept) => gpu.lock(kept.frequencies).map(drop),
        None => gpu.reset(),
    }
}

/// Checks that the clocks of `gpu` are those of `held` while it works.
///
/// # Errors
/// They are not, or the load failed.
pub fn verify(gpu: &Gpu, held: Frequencies, load: &mut dyn Load) -> Result<(), ClocksError> {
    let mut last = None;
    for _ in 0..SETTLING_LOADS {
        let mut reading = Ok(Reading::default());
        let sm_mhz = load.run(&mut || reading = gpu.read())?;
        let reading = reading?;
        let is_held = |held| reading.mem_mhz.is_some_and(|seen| agrees(f64::from(seen), held));
        if agrees(sm_mhz, held.sm_mhz) && held.mem_mhz.is_none_or(is_held) {
            return Ok(());
        }
        last = Some((sm_mhz, reading));
    }
    let (sm_mhz, reading) = last.unwrap_or_default();
    let memory = reading.mem_mhz.filter(|_| held.mem_mhz.is_some());
    Err(ClocksError::NotHeld {
        gpu: gpu.to_string(),
        held,
        seen: Frequencies { sm_mhz: sm_mhz.round() as u32, mem_mhz: memory },
        throttle: reading.throttle,
    })
}
