//! A kernel on a GPU, ready to be launched.
//!
//! Order: device opened, modules loaded, inputs made, reference rows evaluated (or taken from the cache), outputs and
//! scratch poisoned, every stage launched once by itself, so that a fault is put down to the right one. See
//! [`super::meter`] for what is timed.

use super::buffers::Buffers;
use super::driver::{Context, Graph};
use super::error::CudaError;
use super::launch::{Launcher, Loaded, Work};
use super::memory::Bands;
use super::meter::{MOST_HELD, Meter, MeterError};
use super::reference;
use super::support::Support;
use crate::model::pipeline::{Pipeline, Stage};
use crate::model::protocol::{Candidate, Check, Counters, Failure, FailureKind, Launchable, Phase, Verification};
use crate::worker::answer::Answer;
use crate::worker::definition::{self, Device};
use crate::worker::reference::ReferenceRows;
use crate::worker::rig::{self, Part, no_such_stage};
use crate::worker::subject;

/// Launches that one graph holds at most.
const MOST_LAUNCHES: u64 = 4096;

/// Loads the functions of a launchable whose indices are checked here.
///
/// # Errors
/// An index without meaning, a module that does not load, or a launch that the GPU cannot make.
pub fn load(context: &Context, launchable: &Launchable) -> Result<Vec<Loaded>, Failure> {
    definition::check(&launchable.pipeline, launchable.modules.len(), Device::Gpu)?;
    let stages = launchable.modules.iter().zip(&launchable.pipeline.stages);
    stages.map(|(path, stage)| Loaded::load(context, path, stage)).collect()
}

/// Buffers, expected rows and launches of one pipeline.
pub struct Rig<'a> {
    context: &'a Context,
    support: &'a Support,
    pipeline: &'a Pipeline,
    loaded: &'a [Loaded],
    buffers: Buffers,
    expected: Option<ReferenceRows>,
    launcher: Launcher<'a>,
    meter: Meter,
    /// What of the selected part was last made a graph of, how many launches, and the graph.
    graph: Option<(Work, u64, Graph)>,
    lost: bool,
}

impl<'a> Rig<'a> {
    /// Makes buffers and expected rows for a checked pipeline and launches every stage once.
    ///
    /// # Errors
    /// The memory does not suffice, a formula does not fit, the reference cannot tell right from wrong, or a stage
    /// fails.
    pub fn prepare(
        answer: &mut Answer,
        context: &'a Context,
        support: &'a Support,
        pipeline: &'a Pipeline,
        loaded: &'a [Loaded],
        check: &Check,
    ) -> Result<Rig<'a>, Failure> {
        answer.phase(Phase::Inputs, None)?;
        let bands = if check.without_bands { Bands::None } else { Bands::Guarded };
        let buffers = Buffers::make(context, support, pipeline, bands, None)?;
        answer.phase(Phase::Reference, None)?;
        let expected = subject::expected(pipeline, check, |reference, rows| {
            reference::evaluate(context, support, pipeline, &buffers, reference, rows)
        })?;
        let rig = Rig::new(context, support, pipeline, loaded, buffers, expected)?;
        rig.buffers.poison(context, pipeline)?;
        for (index, stage) in pipeline.stages.iter().enumerate() {
            answer.phase(Phase::Run, Some(&stage.name))?;
            rig.launcher.try_stage(index)?;
        }
        Ok(rig)
    }

    /// Makes buffers for a tuning candidate, taking over what fits from `previous`. A stage by itself finds scratch of
    /// unit scale.
    ///
    /// # Errors
    /// The memory does not suffice, or a formula does not fit.
    pub fn for_candidate(
        answer: &mut Answer,
        context: &'a Context,
        support: &'a Support,
        candidate: &'a Candidate,
        loaded: &'a [Loaded],
        previous: Option<Buffers>,
    ) -> Result<Rig<'a>, Failure> {
        let pipeline = &candidate.launchable.pipeline;
        answer.phase(Phase::Inputs, None)?;
        let buffers = Buffers::make(context, support, pipeline, Bands::Guarded, previous)?;
        if candidate.stage.is_some() {
            buffers.fill_scratch(context, support, pipeline)?;
        }
        Rig::new(context, support, pipeline, loaded, buffers, None)
    }

    fn new(
        context: &'a Context,
        support: &'a Support,
        pipeline: &'a Pipeline,
        loaded: &'a [Loaded],
        buffers: Buffers,
        expected: Option<ReferenceRows>,
    ) -> Result<Rig<'a>, Failure> {
        let launcher =
            Launcher::new(context, &pipeline.stages, loaded, &pipeline.buffers, |index| buffers.get(index).address())?;
        let meter = Meter::new()?;
        Ok(Rig { context, support, pipeline, loaded, buffers, expected, launcher, meter, graph: None, lost: false })
    }

    /// The buffers, for the next candidate.
    pub fn into_buffers(self) -> Buffers {
        self.buffers
    }

    /// A fault that shows after launches of the selected part.
    fn fault(&mut self, error: CudaError) -> Failure {
        self.lost |= error.is_fatal();
        self.launcher.failure(error)
    }

    /// Time of one launch of `work`. One of more calls than may wait behind a held stream is made as a graph.
    fn time(&mut self, work: Work) -> Result<f64, Failure> {
        if self.launcher.operations() > MOST_HELD {
            return self.time_graph(work, 1, 1);
        }
        let Rig { context, support, launcher, meter, .. } = self;
        let timed = meter.time(context, support, launcher.operations(), || launcher.queue(work));
        self.timed(timed)
    }

    /// Time of `turns` launches of a graph of `launches` launches of `work`.
    fn time_graph(&mut self, work: Work, launches: u64, turns: usize) -> Result<f64, Failure> {
        if self.graph.as_ref().is_none_or(|(of, count, _)| (*of, *count) != (work, launches)) {
            self.graph = None;
            let queue = || (0..launches).try_for_each(|_| self.launcher.queue(work));
            self.graph = Some((work, launches, self.context.stream.capture(queue)?));
        }
        let Rig { context, support, meter, graph, .. } = self;
        let timed = meter.time(context, support, turns, || match graph {
            Some((_, _, graph)) => Ok((0..turns).try_for_each(|_| graph.launch(&context.stream))?),
            None => Ok(()),
        });
        self.timed(timed)
    }

    fn timed(&mut self, timed: Result<f64, MeterError>) -> Result<f64, Failure> {
        timed.map_err(|error| match error {
            MeterError::Cuda(error) => self.fault(error),
            MeterError::Failed(failure) => self.noted(failure),
        })
    }

    /// A launch that is refused for a fault of one before it.
    fn noted(&mut self, failure: Failure) -> Failure {
        self.lost |= failure.kind == FailureKind::Crashed;
        failure
    }
}

impl rig::Rig for Rig<'_> {
    fn pipeline(&self) -> &Pipeline {
        self.pipeline
    }

    fn select(&mut self, part: Part) -> Result<(), Failure> {
        let address = |index: usize| self.buffers.get(index).address();
        let buffers = &self.pipeline.buffers;
        self.graph = None;
        self.launcher = match part {
            Part::Whole => Launcher::new(self.context, &self.pipeline.stages, self.loaded, buffers, address)?,
            Part::Stage(index) => {
                let stage = self.pipeline.stages.get(index).ok_or_else(|| no_such_stage(index, self.pipeline))?;
                let stage = Stage { after: Vec::new(), ..stage.clone() };
                Launcher::new(self.context, &[stage], &self.loaded[index..=index], buffers, address)?
            }
        };
        Ok(())
    }

    fn poison(&mut self) -> Result<(), Failure> {
        self.buffers.poison(self.context, self.pipeline)
    }

    fn launch(&mut self) -> Result<(), Failure> {
        let queued = self.launcher.queue(Work::Stages);
        queued.map_err(|failure| self.noted(failure))?;
        let ended = self.context.stream.synchronize();
        ended.map_err(|error| self.fault(error))
    }

    fn check(&mut self) -> Result<Option<Verification>, Failure> {
        self.check_bands()?;
        self.check_finite()?;
        let (Some(reference), Some(expected)) = (&self.pipeline.reference, &self.expected) else { return Ok(None) };
        let output = self.buffers.get(reference.output);
        let output = output.download(0, output.len(), &self.context.stream)?;
        subject::verification(self.pipeline, reference, expected, output.elements(), output.bytes()).map(Some)
    }

    fn check_bands(&mut self) -> Result<(), Failure> {
        self.buffers.check_bands(self.context)
    }

    fn check_finite(&mut self) -> Result<(), Failure> {
        self.buffers.check_finite(self.context, self.support, self.pipeline)
    }

    fn provide_flush(&mut self, bytes: u64) -> Result<(), Failure> {
        self.meter.provide_flush(bytes)
    }

    fn isolated(&mut self) -> Result<f64, Failure> {
        self.time(Work::Stages)
    }

    fn cold(&mut self) -> Result<f64, Failure> {
        self.meter.evict(self.context, self.support)?;
        self.time(Work::Stages)
    }

    /// A graph of all launches; where that would be too large, several times one graph.
    fn batch(&mut self, launches: u64) -> Result<f64, Failure> {
        let held = launches.clamp(1, MOST_LAUNCHES);
        let turns = launches.div_ceil(held);
        let ns = self.time_graph(Work::Stages, held, turns as usize)?;
        // The last turn may launch more than was asked for.
        Ok(ns * launches as f64 / (turns * held) as f64)
    }

    fn without_work(&mut self) -> Result<f64, Failure> {
        self.time(Work::Nothing(self.support.empty))
    }

    fn counters(&mut self) -> Result<Counters, Failure> {
        let reason = "a GPU's hardware counters are read by Nsight Compute, which was not used".to_owned();
        Ok(Counters::Absent { reason })
    }

    fn sm_mhz(&mut self) -> Result<Option<f64>, Failure> {
        Ok(self.meter.sm_mhz(self.context)?)
    }

    fn is_lost(&self) -> bool {
        self.lost
    }
}
