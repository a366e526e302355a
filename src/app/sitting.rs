//! Gathering processes for a calibration of verdicts: sizes and spins that suit this host, then turn after turn of fresh
//! processes, each kept at once.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::clocks::{Held, HoldError};
use super::experiment::{Control, Workspace, protocols, session_name};
use crate::catalog::{LookupError, Package};
use crate::device::clocks::ClocksError;
use crate::execute::{Session, TrialsError};
use crate::manifest::{self, ClockPolicy, ProtocolOverrides};
use crate::model::calibration::HostCalibration;
use crate::model::clocks::ClockState;
use crate::model::protocol::{EventProtocol, Launchable};
use crate::model::{KernelId, Language, Shape, Version};
use crate::plan::calibration::{self, KERNELS, SLOWED, Work};
use crate::plan::{InstantiateError, Setting, instantiate, root_scope};
use crate::store::calibrations::{self, About, CalibrationsError, Kernel, Sitting, Visit, Writer};

/// Processes of one kernel that may fail one after another before the sitting is given up.
const MOST_FAILURES: u32 = 3;

/// How much is to be gathered.
#[derive(Debug, Clone, Copy)]
pub struct Gather {
    /// Processes of each kernel, as it is, in all sittings together.
    pub processes: u32,
    /// Also run kernels that are made slower.
    pub slowed: bool,
    /// Time after which no further process is started.
    pub budget: Option<Duration>,
    /// What the budget began with.
    pub started: Instant,
}

/// What happened meanwhile, for people.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    /// These kernels, by name and size, are gathered.
    Kernels(Vec<Kernel>),
    /// So many of all turns are over.
    Turn { done: u32, of: u32, processes: u32 },
    /// A process gave no time.
    Failed { kernel: String, reason: String },
}

/// How a sitting ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sat {
    /// Where it was written; `None` where nothing was left to gather.
    pub file: Option<PathBuf>,
    /// Processes of it.
    pub processes: u32,
    pub end: End,
}

/// Why a sitting ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As many processes are gathered as were asked for.
    Complete,
    OutOfTime,
    Interrupted,
}

/// Nothing can be gathered.
#[derive(Debug, thiserror::Error)]
pub enum SittingError {
    #[error("{0}; a calibration of verdicts needs the packages spin_copy and spin_fma of kernels/<language>/device")]
    Package(#[from] LookupError),
    #[error(transparent)]
    Instantiate(#[from] InstantiateError),
    #[error("{kernel}: {error}")]
    Trials { kernel: String, error: Box<TrialsError> },
    #[error("{kernel}: no time: {reason}")]
    Untimed { kernel: String, reason: String },
    #[error("{kernel}: {MOST_FAILURES} processes in a row gave no time, the last: {reason}; what was gathered is kept")]
    Failing { kernel: String, reason: String },
    #[error(transparent)]
    Calibrations(#[from] CalibrationsError),
    #[error(transparent)]
    Clocks(#[from] HoldError),
    #[error("interrupted")]
    Interrupted,
}

/// One of the kernels, ready to run.
struct Ready {
    name: &'static str,
    protocol: EventProtocol,
    as_it_is: Launchable,
    /// By which part, and the launch that is slower by it.
    slowed: Vec<(f64, Launchable)>,
}

impl Ready {
    fn launchable(&self, slower_by: f64) -> &Launchable {
        let slowed = self.slowed.iter().find(|(part, _)| *part == slower_by);
        slowed.map_or(&self.as_it_is, |(_, launchable)| launchable)
    }
}

impl Workspace<'_> {
    /// Where this host's sittings are, at the clocks `state`.
    pub fn sittings_folder(&self, state: &ClockState) -> PathBuf {
        let device = &self.machine.host.device;
        let driver = device.gpu.as_ref().map(|gpu| gpu.driver.as_str());
        calibrations::folder(&self.project.out, &device.id, driver, state)
    }

    /// The clocks at which a calibration can count on running.
    ///
    /// # Errors
    /// What was tried before cannot be read.
    pub fn calibration_clocks(&self) -> Result<ClockState, SittingError> {
        Ok(self.planned_clocks(&CLOCKS).map_err(HoldError::from)?)
    }

    /// What this host's verdicts are worth at the clocks `state`; `None` where that was never judged.
    ///
    /// # Errors
    /// It was, and cannot be read.
    pub fn host_calibration(&self, state: &ClockState) -> Result<Option<HostCalibration>, CalibrationsError> {
        let judged = calibrations::judged(&self.sittings_folder(state))?;
        Ok(judged.filter(HostCalibration::says_something))
    }

    /// Gathers what is missing, in one sitting.
    ///
    /// # Errors
    /// See [`SittingError`]; processes that have run are kept.
    pub fn gather(
        &self,
        gather: &Gather,
        control: &mut Control<'_>,
        tell: &mut dyn FnMut(Told),
    ) -> Result<Sat, SittingError> {
        let held = match self.hold_clocks(&CLOCKS, control) {
            Err(HoldError::Clocks(ClocksError::Interrupted)) => return Err(SittingError::Interrupted),
            held => held?,
        };
        let folder = self.sittings_folder(&held.state);
        let before = calibrations::sittings(&folder)?;
        let turns = gather.processes.saturating_sub(fewest(&before));
        if turns == 0 {
            return Ok(Sat { file: None, processes: 0, end: End::Complete });
        }
        let device = &self.machine.host.device;
        let protocols = protocols(&self.project.conf, &ProtocolOverrides::default(), device, 1);
        let setting = self.setting(&protocols);
        let limit = self.project.conf.protocol.limits.run();
        let sat = self.with_session(setting, control, limit, &held, |mut session| {
            let mut sitting = Sitter { workspace: self, setting, session: &mut session, tell };
            let sizes = before.iter().rev().find(|sitting| are_ours(&sitting.about.kernels));
            let kernels = match sizes {
                Some(sitting) => sitting.about.kernels.clone(),
                None => sitting.sizes()?,
            };
            let ready = sitting.ready(&kernels)?;
            (sitting.tell)(Told::Kernels(kernels.clone()));
            let about = self.about(kernels, &held);
            let writer = Writer::begin(&self.project.out, &folder, &about)?;
            sitting.sit(gather, turns, &ready, writer, about.taken_at.as_millisecond().cast_unsigned())
        });
        // Clocks that cannot be given back now are given back by the next mlarun, which says so.
        let _ = held.release();
        sat
    }

    fn about(&self, kernels: Vec<Kernel>, held: &Held) -> About {
        let taken_at = Timestamp::now();
        let device = &self.machine.host.device;
        About {
            taken_at,
            session: session_name(taken_at),
            device: device.id.clone(),
            driver: device.gpu.as_ref().map(|gpu| gpu.driver.clone()),
            clocks: held.state,
            compiler: self.machine.backend.toolchain().compiler.to_string(),
            mlarun: env!("CARGO_PKG_VERSION").to_owned(),
            kernels,
        }
    }
}

/// As a single shot has them.
const CLOCKS: manifest::Clocks = manifest::Clocks { policy: ClockPolicy::Prefer, sm_mhz: None, mem_mhz: None };

/// Processes with a time of that kernel which has the fewest.
fn fewest(sittings: &[Sitting]) -> u32 {
    let count = |name: &str| {
        let visits = sittings.iter().flat_map(|sitting| {
            let is_meant = |visit: &&Visit| sitting.about.kernels[visit.kernel].name == name && visit.slower_by == 0.0;
            sitting.visits.iter().filter(is_meant)
        });
        visits.filter(|visit| visit.process.ns.is_some()).count()
    };
    let fewest = KERNELS.iter().map(|kernel| count(kernel.name)).min().unwrap_or_default();
    u32::try_from(fewest).unwrap_or(u32::MAX)
}

/// Whether a sitting ran what one runs now.
fn are_ours(kernels: &[Kernel]) -> bool {
    let names = kernels.iter().map(|kernel| (kernel.name.as_str(), kernel.timing));
    names.eq(KERNELS.iter().map(|kernel| (kernel.name, kernel.timing())))
}

/// A session with what it works for.
struct Sitter<'a, 'b, 's> {
    workspace: &'a Workspace<'a>,
    setting: Setting<'a>,
    session: &'b mut Session<'s>,
    tell: &'b mut dyn FnMut(Told),
}

impl<'a> Sitter<'a, '_, '_> {
    fn id(&self, work: Work) -> KernelId {
        let language = if self.workspace.machine.gpu.is_some() { Language::Cuda } else { Language::C };
        KernelId { kernel: work.package().to_owned(), version: Version::BASE, language }
    }

    fn package(&self, work: Work) -> Result<&'a Package, SittingError> {
        Ok(self.workspace.project.catalog.package(&self.id(work))?)
    }

    fn launchable(&mut self, work: Work, shape: &Shape) -> Result<Launchable, SittingError> {
        let package = self.package(work)?;
        let shape = instantiate::complete_shape(package, shape, &root_scope(self.setting.device))?;
        self.session.ready(package, &shape).map_err(|error| trials(work.package(), error))
    }

    fn protocol(&self, kernel: &calibration::Calibrated) -> EventProtocol {
        calibration::protocol(&self.setting.protocols.event, kernel.timing())
    }

    /// Times of `work` at these sizes and spins, in one process.
    fn times(&mut self, work: Work, points: &[(i64, i64)]) -> Result<Vec<f64>, SittingError> {
        let launchables = points.iter().map(|(size, spins)| self.launchable(work, &work.shape(*size, *spins)));
        let launchables = launchables.collect::<Result<Vec<_>, _>>()?;
        self.session.times(&launchables, calibration::TRIAL).map_err(|error| trials(work.package(), error))
    }

    /// Finds the sizes and spins that suit this host.
    fn sizes(&mut self) -> Result<Vec<Kernel>, SittingError> {
        let largest = |work: Work| work.largest(self.setting.device.memory_bytes);
        let largest = Work::ALL.map(|work| (work, largest(work)));
        let mut kernels: Vec<(usize, Kernel)> = Vec::new();
        for (work, largest) in largest {
            let first: Vec<i64> = work.first_sizes().into_iter().filter(|size| *size <= largest).collect();
            let mut points: Vec<(i64, i64)> = first.iter().map(|size| (*size, 0)).collect();
            points.extend([(first[0], calibration::SPINS_TRIED), (first[0], 0)]);
            let times = self.times(work, &points)?;
            let [.., with_spins, without] = times[..] else { unreachable!("as many times as points") };
            let ns_per_spin = ((with_spins - without) / calibration::SPINS_TRIED as f64).max(1e-3);
            let known: Vec<(i64, f64)> = first.into_iter().zip(times).collect();

            let of_work: Vec<(usize, &calibration::Calibrated)> =
                KERNELS.iter().enumerate().filter(|(_, kernel)| kernel.work == work).collect();
            let guesses: Vec<i64> =
                of_work.iter().map(|(_, kernel)| calibration::size(&known, kernel.aim_ns, largest)).collect();
            let tried = self.times(work, &guesses.iter().map(|size| (*size, 0)).collect::<Vec<_>>())?;
            for ((index, kernel), guess) in of_work.into_iter().zip(guesses.into_iter().zip(tried)) {
                let size = calibration::size(&[guess], kernel.aim_ns, largest);
                kernels.push((index, self.kernel(kernel, size, largest, ns_per_spin)?));
            }
        }
        kernels.sort_unstable_by_key(|(index, _)| *index);
        Ok(kernels.into_iter().map(|(_, kernel)| kernel).collect())
    }

    /// `kernel` at about this size, with the spins that make it slower by each part, as processes of it show.
    fn kernel(
        &mut self,
        kernel: &calibration::Calibrated,
        mut size: i64,
        largest: i64,
        ns_per_spin: f64,
    ) -> Result<Kernel, SittingError> {
        let mut slowed = Vec::new();
        if kernel.is_slowed() {
            let mut ns = self.time(kernel, size)?;
            // Evicted caches may make it far longer than the warm launches by which its size was chosen.
            if calibration::is_off(kernel.aim_ns, ns) {
                size = calibration::size(&[(size, ns)], kernel.aim_ns, largest);
                ns = self.time(kernel, size)?;
            }
            slowed = SLOWED.map(|part| (part, calibration::spins(ns, part, ns_per_spin))).into();
        }
        let (id, shape) = (self.id(kernel.work), kernel.work.shape(size, 0));
        Ok(Kernel { name: kernel.name.to_owned(), id, shape, timing: kernel.timing(), slowed })
    }

    /// Time of one process of `kernel` at this size, in nanoseconds.
    fn time(&mut self, kernel: &calibration::Calibrated, size: i64) -> Result<f64, SittingError> {
        let launchable = self.launchable(kernel.work, &kernel.work.shape(size, 0))?;
        let process = self.session.process(&launchable, &self.protocol(kernel));
        let (process, failure) = process.map_err(|error| trials(kernel.name, error))?;
        process.ns.ok_or_else(|| SittingError::Untimed {
            kernel: kernel.name.to_owned(),
            reason: failure.map(|failure| failure.message).unwrap_or_default(),
        })
    }

    /// Compiles everything that will run.
    fn ready(&mut self, kernels: &[Kernel]) -> Result<Vec<Ready>, SittingError> {
        let mut all = Vec::new();
        for (calibrated, kernel) in KERNELS.iter().zip(kernels) {
            let as_it_is = self.launchable(calibrated.work, &kernel.shape)?;
            let mut slowed = Vec::new();
            for (part, spins) in &kernel.slowed {
                let shape = Work::with_spins(&kernel.shape, *spins);
                slowed.push((*part, self.launchable(calibrated.work, &shape)?));
            }
            all.push(Ready { name: calibrated.name, protocol: self.protocol(calibrated), as_it_is, slowed });
        }
        Ok(all)
    }

    /// Turn after turn, each process kept at once.
    fn sit(
        &mut self,
        gather: &Gather,
        turns: u32,
        kernels: &[Ready],
        mut writer: Writer,
        seed: u64,
    ) -> Result<Sat, SittingError> {
        let file = Some(writer.path().to_owned());
        let mut processes = 0;
        let mut longest = Duration::ZERO;
        let mut failures = vec![0; kernels.len()];
        let mut end = End::Complete;
        'turns: for turn in 0..turns {
            for (kernel, slower_by) in calibration::turn(turn, gather.slowed, seed) {
                let begun = Instant::now();
                if gather.budget.is_some_and(|budget| begun.duration_since(gather.started) + longest > budget) {
                    end = End::OutOfTime;
                    break 'turns;
                }
                let ready = &kernels[kernel];
                let (process, failure) = match self.session.process(ready.launchable(slower_by), &ready.protocol) {
                    Err(TrialsError::Interrupted) => {
                        end = End::Interrupted;
                        break 'turns;
                    }
                    process => process.map_err(|error| trials(ready.name, error))?,
                };
                let failure = failure.map(|failure| failure.message);
                writer.append(&Visit { kernel, turn, slower_by, process, failure: failure.clone() })?;
                processes += 1;
                longest = longest.max(begun.elapsed());
                failures[kernel] = if failure.is_some() { failures[kernel] + 1 } else { 0 };
                if let Some(reason) = failure {
                    let kernel_name = ready.name.to_owned();
                    if failures[kernel] >= MOST_FAILURES {
                        writer.finish()?;
                        return Err(SittingError::Failing { kernel: kernel_name, reason });
                    }
                    (self.tell)(Told::Failed { kernel: kernel_name, reason });
                }
            }
            (self.tell)(Told::Turn { done: turn + 1, of: turns, processes });
        }
        writer.finish()?;
        Ok(Sat { file, processes, end })
    }
}

fn trials(kernel: &str, error: TrialsError) -> SittingError {
    match error {
        TrialsError::Interrupted => SittingError::Interrupted,
        error => SittingError::Trials { kernel: kernel.to_owned(), error: Box::new(error) },
    }
}
