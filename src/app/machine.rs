//! The host as one session sees it: device, compiler, peaks, and what every record states about them.

use std::time::Duration;

use super::{CacheError, Project};
use crate::backend::{Backend as _, Cpu, ProbeError};
use crate::device::peaks::{self, PeaksError};
use crate::device::{Host, HostError, git, probe};
use crate::model::Peaks;
use crate::model::record::Environment;

/// Device, compiler and peaks of this host.
#[derive(Debug)]
pub struct Machine {
    pub host: Host,
    pub backend: Cpu,
    /// Measured peaks, once `mlarun device calibrate` has been run with this compiler.
    pub peaks: Option<Peaks>,
}

/// The host lacks something.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Compiler(#[from] ProbeError),
    #[error(transparent)]
    Peaks(#[from] PeaksError),
}

impl Machine {
    /// Looks at the host; the compiler's answers are cached.
    ///
    /// # Errors
    /// .cache/ cannot be written to, no C compiler, or a host that does not say what it is.
    pub fn probe(project: &Project) -> Result<Machine, MachineError> {
        project.check_cache()?;
        let host = probe::host()?;
        let backend = Cpu::find(&project.cache())?;
        let peaks = peaks::load_measured(&project.cache(), &host.device.id, backend.toolchain())?;
        Ok(Machine { host, backend, peaks })
    }

    /// What every record of a session states. Asks git for the state of the project's folder.
    pub fn environment(&self, project: &Project) -> Environment {
        const GIT_LIMIT: Duration = Duration::from_secs(5);
        let tree = git::tree(&project.root, GIT_LIMIT).ok();
        Environment {
            device: self.host.device.clone(),
            peaks: self.peaks.clone(),
            clocks_hz: self.host.clocks_hz.clone(),
            clocks_locked: false,
            host: self.host.name.clone(),
            os: self.host.os.clone(),
            compiler: self.backend.toolchain().compiler.to_string(),
            mlarun: env!("CARGO_PKG_VERSION").to_owned(),
            git_revision: tree.as_ref().and_then(|tree| tree.revision.clone()),
            git_dirty: tree.map(|tree| tree.dirty),
        }
    }
}
