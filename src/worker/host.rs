//! What the worker's computations besides kernels run on: threads on the given cores, and none of them while a kernel
//! is timed.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::team::Team;
use crate::model::protocol::{Failure, FailureKind};

/// Cores and helper threads of this process.
pub struct Host {
    pub cores: Vec<u32>,
    pool: rayon::ThreadPool,
    team: Option<(Vec<u32>, Team)>,
}

fn internal(message: String) -> Failure {
    Failure { kind: FailureKind::Internal, stage: None, message }
}

impl Host {
    /// Restricts the process to `cores` and starts one helper thread a core. Helpers sleep except in [`Host::compute`].
    ///
    /// # Errors
    /// No core is given, or the system refuses them.
    pub fn new(cores: &[u32]) -> Result<Host, Failure> {
        let allowed =
            sched_getaffinity(None).map_err(|error| internal(format!("the cores cannot be read: {error}")))?;
        let mut set = CpuSet::new();
        for &core in cores {
            if core as usize >= CpuSet::MAX_CPU || !allowed.is_set(core as usize) {
                return Err(internal(format!("core {core} is not one of those that this process may run on")));
            }
            set.set(core as usize);
        }
        if cores.is_empty() {
            return Err(internal("the request names no core".to_owned()));
        }
        sched_setaffinity(None, &set).map_err(|error| internal(format!("the cores {cores:?} are refused: {error}")))?;
        let pool = rayon::ThreadPoolBuilder::new().num_threads(set.count() as usize).build();
        let pool = pool.map_err(|error| internal(format!("no helper threads: {error}")))?;
        Ok(Host { cores: cores.to_vec(), pool, team: None })
    }

    /// Runs `work` on the helper threads.
    pub fn compute<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.pool.install(work)
    }

    /// A team with a seat on each of `cores`; the one of the last call when that fits.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn team(&mut self, cores: &[u32]) -> Result<&mut Team, Failure> {
        if self.team.as_ref().is_none_or(|(seated, _)| seated != cores) {
            self.team = None;
            let team = Team::new(cores).map_err(|error| internal(error.to_string()))?;
            self.team = Some((cores.to_vec(), team));
        }
        self.team.as_mut().map(|(_, team)| team).ok_or_else(|| internal("the team is gone".to_owned()))
    }
}
