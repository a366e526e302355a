//! Times of launches on the GPU, and the clock at which it ran them.
//!
//! Timed: between two events on the context's stream, the first recorded before the first stage and the second after
//! the last one of every stream. A kernel of mlarun's own holds the stream until everything is queued, so that the host's
//! part of launching is not in the interval. In it: the GPU's part of starting each stage and of ordering streams, which
//! the launch overhead reports. The clock is read around that interval: cycles over time of every multiprocessor, from just
//! before the first event to just after the second.
//!
//! Before a cold sample, what evicts the caches has come to its end, so that no launch shares the GPU with it.
//!
//! Where launches are made one after the other (profilers and sanitizers do that, and CUDA_LAUNCH_BLOCKING=1), holding a
//! stream would wait for ever: it is then left out, as well as where MLARUN_NO_BLOCKING=1 says so. The holding kernel
//! ends by itself after a while in any case, and the sample with it.

use super::driver::{Context, Event};
use super::error::{CudaError, internal};
use super::memory::{self, Region, Shared};
use super::support::{MARKS_BYTES, Support};
use super::tools;
use crate::model::protocol::Failure;
use crate::worker::median::Series;

/// Calls that may wait behind a held stream. More could fill the driver's queue, which then waits for the GPU.
pub const MOST_HELD: usize = 24;
/// A held stream goes on by itself after this long.
const HOLD_LIMIT_NS: u64 = 2_000_000_000;
/// Readings that are kept; later ones take the place of the earliest.
const READINGS: usize = 1024;

/// Numbers that host and GPU share.
const TICKET: usize = 0;
const EXPIRED: usize = 1;

/// What takes times on one GPU.
pub struct Meter {
    start: Event,
    end: Event,
    shared: Shared,
    /// Launches of the holding kernel so far.
    ticket: u32,
    may_hold: bool,
    flush: Option<Region>,
    flushes: u32,
    /// Marks of the multiprocessors before and after a sample.
    marks: [Region; 2],
    readings: Region,
    /// Samples so far, and since the readings were last taken.
    samples: u64,
    read: usize,
}

impl Meter {
    /// One with no memory to flush yet.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn new() -> Result<Meter, CudaError> {
        Ok(Meter {
            start: Event::timed()?,
            end: Event::timed()?,
            shared: Shared::new()?,
            ticket: 0,
            may_hold: !tools::serialise_launches(std::env::vars_os()),
            flush: None,
            flushes: 0,
            marks: [Region::new(MARKS_BYTES)?, Region::new(MARKS_BYTES)?],
            readings: Region::new(READINGS * size_of::<f64>())?,
            samples: 0,
            read: 0,
        })
    }

    /// Makes the memory that is written to evict the caches.
    ///
    /// # Errors
    /// There is not enough.
    pub fn provide_flush(&mut self, bytes: u64) -> Result<(), Failure> {
        self.flush = None;
        memory::check_fit(u128::from(bytes))?;
        let bytes = usize::try_from(bytes).map_err(|error| internal(format!("{bytes} bytes to flush: {error}")))?;
        self.flush = Some(Region::new(bytes)?);
        Ok(())
    }

    /// Evicts the caches, and waits until that is over.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn evict(&mut self, context: &Context, support: &Support) -> Result<(), CudaError> {
        self.flushes = self.flushes.wrapping_add(1);
        let Some(region) = &self.flush else { return Ok(()) };
        support.flush(context, region, self.flushes)?;
        context.stream.synchronize()
    }

    /// Nanoseconds that what `queue` queues takes; it makes `operations` calls, [`MOST_HELD`] at most for the stream to
    /// be held. What is queued already comes before.
    ///
    /// # Errors
    /// Those of `queue`, or a fault of what ran.
    pub fn time(
        &mut self,
        context: &Context,
        support: &Support,
        operations: usize,
        queue: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<f64, MeterError> {
        let hold = self.may_hold && operations <= MOST_HELD;
        if hold {
            self.ticket = self.ticket.wrapping_add(1);
            let (ticket, expired) = (self.shared.address(TICKET), self.shared.address(EXPIRED));
            support.hold(context, ticket, self.ticket, expired, HOLD_LIMIT_NS)?;
        }
        let queued = self.queue(context, support, queue);
        // Whatever happened: a held stream goes on.
        self.shared.set(TICKET, self.ticket);
        queued?;
        context.stream.synchronize()?;
        if self.shared.get(EXPIRED) != 0 {
            return Err(MeterError::Failed(internal(
                "the launches were not queued while their stream was held, as under a profiler that makes them one after \
                 the other; set MLARUN_NO_BLOCKING=1",
            )));
        }
        Ok(self.start.nanoseconds_to(&self.end)?)
    }

    fn queue(
        &mut self,
        context: &Context,
        support: &Support,
        queue: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), MeterError> {
        // No mark of this turn may be there yet: the first turn is 1.
        self.samples += 1;
        let [before, after] = &self.marks;
        support.mark(context, before, self.samples)?;
        self.start.record(&context.stream)?;
        queue().map_err(MeterError::Failed)?;
        self.end.record(&context.stream)?;
        support.mark(context, after, self.samples)?;
        support.clock(context, [before, after], self.samples, &self.readings, self.read % READINGS)?;
        self.read += 1;
        Ok(())
    }

    /// Median of the clock's readings since the last call, in MHz.
    ///
    /// # Errors
    /// A kernel before failed, or the driver refuses.
    pub fn sm_mhz(&mut self, context: &Context) -> Result<Option<f64>, CudaError> {
        let mut readings = vec![0.0f64; self.read.min(READINGS)];
        self.read = 0;
        self.readings.download(0, &mut readings, &context.stream)?;
        let mut series = Series::with_capacity(readings.len());
        // Nothing was read where no multiprocessor ran a block of both marks.
        readings.iter().filter(|reading| **reading > 0.0).for_each(|reading| series.push(*reading));
        Ok((series.len() > 0).then(|| series.median()))
    }
}

/// Why there is no time.
pub enum MeterError {
    /// What was timed failed, or something around it.
    Cuda(CudaError),
    Failed(Failure),
}

impl From<CudaError> for MeterError {
    fn from(error: CudaError) -> MeterError {
        MeterError::Cuda(error)
    }
}
