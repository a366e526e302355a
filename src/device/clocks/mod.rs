//! Clocks of a GPU: what may be done about them, who holds them, and how they come back. Locked here for a run ([`Guard`]), or
//! until somebody resets them ([`lock`], [`reset`]).

mod guard;
mod note;
mod policy;
mod recover;
mod watch;

use std::path::Path;

use crate::model::clocks::Frequencies;

pub use guard::{Guard, verify};
pub use note::{Locked, Note, NoteError, Noted, boot, look};
pub use policy::{POLICY_VARIABLE, UnknownPolicy, hoped_for, overriding};
pub use recover::{Recovered, recover_all};
pub use watch::{WATCH, watch};

use super::lease::Holder;
use super::nvml::{Gpu, NvmlError};
use recover::recover;

/// Clocks could not be locked, held or given back.
#[derive(Debug, thiserror::Error)]
pub enum ClocksError {
    #[error(transparent)]
    Nvml(#[from] NvmlError),
    #[error(transparent)]
    Note(#[from] NoteError),
    #[error("the process that would give the clocks back does not run: {0}")]
    Watcher(String),
    #[error(
        "{gpu}: no clock is asked for and conf/devices.toml has no `lock_sm_mhz` for it; set `clocks.sm_mhz` in the manifest"
    )]
    NoFrequency { gpu: String },
    #[error("{gpu}: does not hold its clocks under load: {seen} instead of {held}{}; choose others", because(throttle))]
    NotHeld { gpu: String, held: Frequencies, seen: Frequencies, throttle: Vec<String> },
    #[error("the GPU could not be given something to do, to see its clock under load: {0}")]
    Load(String),
    #[error("interrupted")]
    Interrupted,
}

fn because(throttle: &[String]) -> String {
    if throttle.is_empty() { String::new() } else { format!(" ({})", throttle.join(", ")) }
}

/// Something that keeps a GPU busy.
pub trait Load {
    /// Keeps the GPU busy for a moment, calls `during` meanwhile, and tells the SM clock in MHz as the GPU itself counted
    /// it.
    ///
    /// # Errors
    /// The GPU does nothing.
    fn run(&mut self, during: &mut dyn FnMut()) -> Result<f64, ClocksError>;
}

/// Locks the clocks of `gpu` until somebody resets them.
///
/// # Errors
/// They may not or cannot be locked, or a program is measuring at clocks of its own; they are then as before.
pub fn lock(gpu: &Gpu, asked: Frequencies, folder: &Path) -> Result<Frequencies, ClocksError> {
    let note = Note::take(folder, gpu.uuid())?;
    recover(gpu, &note)?;
    gpu.reset()?;
    let locked = |frequencies| Locked { frequencies, by: Holder::of_process() };
    // Until the lock is made it is one that goes with this process.
    note.write(None, Some(&locked(asked)))?;
    match gpu.lock(asked) {
        Ok(frequencies) => {
            note.write(Some(&locked(frequencies)), None)?;
            Ok(frequencies)
        }
        Err(error) => {
            gpu.reset()?;
            note.write(None, None)?;
            Err(error.into())
        }
    }
}

/// Gives the clocks of `gpu` back, whoever has locked them, unless a living program measures at them.
///
/// # Errors
/// They may not or cannot be reset, or are in a program's hands.
pub fn reset(gpu: &Gpu, folder: &Path) -> Result<(), ClocksError> {
    let note = Note::take(folder, gpu.uuid())?;
    gpu.reset()?;
    Ok(note.write(None, None)?)
}
