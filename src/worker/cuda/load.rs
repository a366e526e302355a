//! Keeps a GPU busy, so that its clock can be seen under load: writes much memory, again and again.

use std::time::{Duration, Instant};

use super::driver::Context;
use super::meter::{Meter, MeterError};
use super::support::Support;
use crate::model::protocol::{Failure, Line, Phase};
use crate::worker::answer::Answer;

/// Memory that is written at a time.
const BYTES: u64 = 256 << 20;

/// Works for `ns` and tells the median clock of the second half, at whose start it says [`Phase::Sampling`].
///
/// # Errors
/// There is not enough memory, or the driver refuses.
pub fn run(answer: &mut Answer, context: &Context, support: &Support, ns: u64) -> Result<(), Failure> {
    let mut meter = Meter::new()?;
    meter.provide_flush(BYTES)?;
    let half = Duration::from_nanos(ns / 2);
    answer.phase(Phase::Warmup, None)?;
    work(&mut meter, context, support, half)?;
    meter.sm_mhz(context)?;
    answer.phase(Phase::Sampling, None)?;
    work(&mut meter, context, support, half)?;
    meter.sm_mhz(context)?.map_or(Ok(()), |mhz| answer.line(&Line::SmClock { mhz }))
}

fn work(meter: &mut Meter, context: &Context, support: &Support, time: Duration) -> Result<(), Failure> {
    let started = Instant::now();
    loop {
        meter.evict(context, support)?;
        meter.time(context, support, 0, || Ok(())).map_err(|error| match error {
            MeterError::Cuda(error) => error.into(),
            MeterError::Failed(failure) => failure,
        })?;
        if started.elapsed() >= time {
            return Ok(());
        }
    }
}
