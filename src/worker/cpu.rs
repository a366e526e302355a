//! A kernel on the CPU, ready to be launched on a pinned team of threads.
//!
//! Order: modules loaded, inputs made, reference rows evaluated (or taken from the cache), outputs and scratch
//! poisoned.
//!
//! Timed: from the release of the waiting threads until the last block of the last stage has returned, by the
//! monotonic clock. In it: handing the release to the threads and ordering the stages. Not in it: waking threads (they
//! spin before an isolated sample). Batched launches are not armed one by one; their threads are awake from the launch
//! before.

use super::answer::Answer;
use super::buffers::Buffers;
use super::counters;
use super::definition::{self, Device};
use super::flush::Flush;
use super::host::Host;
use super::launch::Launcher;
use super::memory;
use super::module::Module;
use super::reference::{self, ReferenceRows};
use super::rig::{self, Part, no_such_stage};
use super::subject;
use crate::model::pipeline::{Pipeline, Stage};
use crate::model::protocol::{Candidate, Check, Counters, Failure, Launchable, Phase, Verification};

/// Launches whose counts are averaged.
const COUNTED_LAUNCHES: u32 = 5;

/// Loads the modules of a launchable whose indices are checked here.
///
/// # Errors
/// An index without meaning, or a module that does not load.
pub fn load(answer: &mut Answer, launchable: &Launchable) -> Result<Vec<Module>, Failure> {
    answer.phase(Phase::Load, None)?;
    definition::check(&launchable.pipeline, launchable.modules.len(), Device::Cpu)?;
    let stages = launchable.modules.iter().zip(&launchable.pipeline.stages);
    Ok(stages.map(|(path, stage)| Module::load(path, stage)).collect::<Result<_, _>>()?)
}

/// Buffers, expected rows and launches of one pipeline.
pub struct Rig<'a> {
    host: &'a mut Host,
    modules: &'a [Module],
    pipeline: &'a Pipeline,
    buffers: Buffers,
    expected: Option<ReferenceRows>,
    launcher: Launcher<'a>,
    /// Core of each seat that the launcher needs.
    seats: Vec<u32>,
    flush: Flush,
}

impl<'a> Rig<'a> {
    /// Makes buffers and expected rows for a checked pipeline.
    ///
    /// # Errors
    /// The memory does not suffice, a formula does not fit, or the reference cannot tell right from wrong.
    pub fn prepare(
        answer: &mut Answer,
        host: &'a mut Host,
        modules: &'a [Module],
        pipeline: &'a Pipeline,
        check: &Check,
    ) -> Result<Rig<'a>, Failure> {
        answer.phase(Phase::Inputs, None)?;
        let buffers = host.compute(|| Buffers::make(pipeline, None))?;
        answer.phase(Phase::Reference, None)?;
        let expected = host.compute(|| {
            subject::expected(pipeline, check, |reference, rows| {
                let elements = |index: usize| buffers.get(index).elements();
                reference::evaluate(pipeline, &reference.formula, reference.output, rows, elements)
            })
        })?;
        Ok(Rig::new(host, modules, pipeline, buffers, expected))
    }

    /// Makes buffers for a tuning candidate, taking over what fits from `previous`. A stage by itself finds scratch of
    /// unit scale.
    ///
    /// # Errors
    /// As [`Rig::prepare`].
    pub fn for_candidate(
        answer: &mut Answer,
        host: &'a mut Host,
        modules: &'a [Module],
        candidate: &'a Candidate,
        previous: Option<Buffers>,
    ) -> Result<Rig<'a>, Failure> {
        let pipeline = &candidate.launchable.pipeline;
        answer.phase(Phase::Inputs, None)?;
        let mut buffers = host.compute(|| Buffers::make(pipeline, previous))?;
        if candidate.stage.is_some() {
            host.compute(|| buffers.fill_scratch(pipeline));
        }
        Ok(Rig::new(host, modules, pipeline, buffers, None))
    }

    fn new(
        host: &'a mut Host,
        modules: &'a [Module],
        pipeline: &'a Pipeline,
        buffers: Buffers,
        expected: Option<ReferenceRows>,
    ) -> Rig<'a> {
        let launcher = Launcher::new(&pipeline.stages, modules, |index| buffers.get(index).pointer());
        let seats = launcher.seat_cores(&host.cores);
        Rig { host, modules, pipeline, buffers, expected, launcher, seats, flush: Flush::new(0) }
    }

    /// The buffers, for the next candidate.
    pub fn into_buffers(self) -> Buffers {
        self.buffers
    }
}

impl rig::Rig for Rig<'_> {
    fn pipeline(&self) -> &Pipeline {
        self.pipeline
    }

    fn select(&mut self, part: Part) -> Result<(), Failure> {
        let pointer = |index: usize| self.buffers.get(index).pointer();
        self.launcher = match part {
            Part::Whole => Launcher::new(&self.pipeline.stages, self.modules, pointer),
            Part::Stage(index) => {
                let stage = self.pipeline.stages.get(index).ok_or_else(|| no_such_stage(index, self.pipeline))?;
                let stage = Stage { after: Vec::new(), ..stage.clone() };
                Launcher::new(&[stage], &self.modules[index..=index], pointer)
            }
        };
        self.seats = self.launcher.seat_cores(&self.host.cores);
        Ok(())
    }

    fn poison(&mut self) -> Result<(), Failure> {
        self.buffers.poison(self.pipeline);
        Ok(())
    }

    fn launch(&mut self) -> Result<(), Failure> {
        self.launcher.launch(self.host.team(&self.seats)?);
        Ok(())
    }

    fn check(&mut self) -> Result<Option<Verification>, Failure> {
        self.check_bands()?;
        self.check_finite()?;
        let (Some(reference), Some(expected)) = (&self.pipeline.reference, &self.expected) else { return Ok(None) };
        let output = self.buffers.get(reference.output);
        subject::verification(self.pipeline, reference, expected, output.elements(), output.bytes()).map(Some)
    }

    fn check_bands(&mut self) -> Result<(), Failure> {
        self.buffers.check_bands()
    }

    fn check_finite(&mut self) -> Result<(), Failure> {
        self.buffers.check_finite(self.pipeline)
    }

    fn provide_flush(&mut self, bytes: u64) -> Result<(), Failure> {
        memory::check_fit(u128::from(bytes))?;
        self.flush = Flush::new(bytes);
        Ok(())
    }

    fn isolated(&mut self) -> Result<f64, Failure> {
        let team = self.host.team(&self.seats)?;
        team.arm();
        Ok(self.launcher.launch(team))
    }

    fn cold(&mut self) -> Result<f64, Failure> {
        let team = self.host.team(&self.seats)?;
        self.flush.evict(team);
        team.arm();
        Ok(self.launcher.launch(team))
    }

    fn batch(&mut self, launches: u64) -> Result<f64, Failure> {
        Ok(self.launcher.launch_batch(self.host.team(&self.seats)?, launches))
    }

    fn without_work(&mut self) -> Result<f64, Failure> {
        let team = self.host.team(&self.seats)?;
        team.arm();
        Ok(self.launcher.launch_without_blocks(team))
    }

    /// Averaged over a few launches.
    fn counters(&mut self) -> Result<Counters, Failure> {
        let team = self.host.team(&self.seats)?;
        let counting = counters::Counting::open(team);
        for _ in 0..COUNTED_LAUNCHES {
            self.flush.evict(team);
            team.arm();
            self.launcher.launch_inside(team, &|seat, part| counting.around(seat, part));
        }
        Ok(counting.finish(COUNTED_LAUNCHES))
    }
}
