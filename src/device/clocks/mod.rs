//! Clocks of a GPU: what is asked for, what may be done about it, who holds them, and how they come back.

mod guard;
mod note;
mod watch;

use std::path::Path;

use crate::manifest::ClockPolicy;
use crate::model::clocks::{ClockState, Frequencies};

pub use guard::{Guard, verify};
pub use note::{Locked, Note, NoteError, Noted, boot, look};
pub use watch::{WATCH, watch};

use super::lease::Holder;
use super::nvml::{Gpu, Nvml, NvmlError};

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

/// Variable of the environment with a policy that beats every manifest's.
pub const POLICY_VARIABLE: &str = "MLARUN_CLOCKS";

/// The policy of the environment is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{POLICY_VARIABLE}: `{0}` is no clock policy; there are lock, prefer, external and observe")]
pub struct UnknownPolicy(pub String);

/// The policy that the environment asks for.
///
/// # Errors
/// It asks for one that does not exist: whoever forbids changing clocks and mistypes it is not to see them changed.
pub fn environment_policy() -> Result<Option<ClockPolicy>, UnknownPolicy> {
    let Some(text) = std::env::var_os(POLICY_VARIABLE).filter(|text| !text.is_empty()) else { return Ok(None) };
    let text = text.to_string_lossy();
    let named = ClockPolicy::ALL.into_iter().find(|policy| policy.name() == text);
    named.map(Some).ok_or_else(|| UnknownPolicy(text.into_owned()))
}

/// The policy that holds whatever a manifest says: `observe` where command line, environment or build forbid changing
/// clocks, else that of the command line, else that of the environment.
///
/// # Errors
/// See [`environment_policy`].
pub fn overriding(command_line: Option<ClockPolicy>) -> Result<Option<ClockPolicy>, UnknownPolicy> {
    Ok(stronger(command_line, environment_policy()?))
}

fn stronger(command_line: Option<ClockPolicy>, environment: Option<ClockPolicy>) -> Option<ClockPolicy> {
    let is_forbidden = !cfg!(feature = "clock-control") || environment == Some(ClockPolicy::Observe);
    if is_forbidden { Some(ClockPolicy::Observe) } else { command_line.or(environment) }
}

/// What a program that is gone has left in `note`, done away with; gives the lock that is there to stay.
fn recover(gpu: &Gpu, note: &Note) -> Result<Option<Locked>, ClocksError> {
    let Some(noted) = note.read()? else { return Ok(None) };
    // A lock does not outlive the driver, which the boot loaded anew.
    let kept = noted.kept.filter(|_| noted.boot == boot());
    if noted.held.is_some() {
        guard::restore(gpu, kept.as_ref())?;
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

/// What a run under `policy` is planned for, before anything was tried.
pub const fn hoped_for(policy: ClockPolicy, asked: Option<Frequencies>) -> ClockState {
    match (policy, asked) {
        (ClockPolicy::Observe, _) | (_, None) => ClockState::Observed,
        (ClockPolicy::Lock | ClockPolicy::Prefer, Some(frequencies)) => ClockState::Locked(frequencies),
        (ClockPolicy::External, Some(frequencies)) => ClockState::External(frequencies),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ClockPolicy::{External, Lock, Observe, Prefer};

    #[test]
    fn observe_beats_everything() {
        for other in [None, Some(Lock), Some(Prefer), Some(External), Some(Observe)] {
            assert_eq!(stronger(other, Some(Observe)), Some(Observe));
            assert_eq!(stronger(Some(Observe), other), Some(Observe));
        }
    }

    #[test]
    #[cfg(feature = "clock-control")]
    fn the_command_line_comes_before_the_environment() {
        assert_eq!(stronger(None, None), None);
        assert_eq!(stronger(None, Some(External)), Some(External));
        assert_eq!(stronger(Some(Prefer), Some(External)), Some(Prefer));
    }

    #[test]
    #[cfg(not(feature = "clock-control"))]
    fn a_build_without_clock_control_observes() {
        assert_eq!(stronger(Some(Lock), Some(Lock)), Some(Observe));
    }

    #[test]
    fn what_is_asked_of_no_frequency_is_observed() {
        let asked = Frequencies { sm_mhz: 1500, mem_mhz: None };
        assert_eq!(hoped_for(Prefer, None), ClockState::Observed);
        assert_eq!(hoped_for(Prefer, Some(asked)), ClockState::Locked(asked));
        assert_eq!(hoped_for(External, Some(asked)), ClockState::External(asked));
        assert_eq!(hoped_for(Observe, Some(asked)), ClockState::Observed);
    }
}
