//! Warm-up and sampling as loops over something that takes a time. The loops decide when to stop and nothing else:
//! they know neither kernels nor clocks, so that tests drive them with made-up times. What fails ends the loop.

use super::median::Series;
use crate::model::protocol::Warmup;

/// How a warm-up ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmedUp {
    pub launches: u64,
    /// Sum of the launches' times.
    pub ns: u64,
    /// The last blocks agreed.
    pub steady: bool,
}

/// Launches (`launch` returns nanoseconds) until count, time and steadiness are reached, or the longest time is.
/// Time is that of the launches themselves.
///
/// # Errors
/// Those of `launch`.
pub fn warm_up<E>(warmup: &Warmup, mut launch: impl FnMut() -> Result<f64, E>) -> Result<WarmedUp, E> {
    let (mut launches, mut total_ns) = (0u64, 0.0);
    let mut block = Series::with_capacity(1024);
    let mut block_ns = 0.0;
    let mut medians: Vec<f64> = Vec::new();
    loop {
        let ns = launch()?;
        launches += 1;
        total_ns += ns;
        block_ns += ns;
        block.push(ns);
        if block_ns >= warmup.block_ns as f64 {
            medians.push(block.median());
            block.clear();
            block_ns = 0.0;
        }
        let steady = agree(&medians, warmup);
        let enough = launches >= u64::from(warmup.min_launches) && total_ns >= warmup.min_ns as f64;
        if (enough && steady) || total_ns >= warmup.max_ns as f64 {
            return Ok(WarmedUp { launches, ns: total_ns as u64, steady });
        }
    }
}

/// Whether the medians of the last blocks agree.
fn agree(medians: &[f64], warmup: &Warmup) -> bool {
    let blocks = warmup.steady_blocks as usize;
    let Some(last) = medians.len().checked_sub(blocks).map(|start| &medians[start..]) else { return false };
    let smallest = last.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = last.iter().copied().fold(0.0, f64::max);
    last.is_empty() || largest - smallest <= smallest * f64::from(warmup.steady_permille) / 1000.0
}

/// When sampling ends.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub min_samples: u32,
    pub max_samples: u32,
    /// Stop when the interval of the median is this narrow; `None` never stops for that reason.
    pub interval_permille: Option<u32>,
    pub budget_ns: u64,
}

/// Takes samples until the interval is narrow, the budget is spent or there are enough; says whether the interval
/// became narrow. `spent_ns` tells how much time has gone into it so far. No memory is allocated after the first call
/// of `sample`.
///
/// # Errors
/// Those of `sample`.
pub fn sample<E>(
    limits: Limits,
    spent_ns: impl Fn() -> u64,
    mut sample: impl FnMut() -> Result<f64, E>,
) -> Result<(Vec<f64>, bool), E> {
    let (min, max) = (limits.min_samples.max(1) as usize, limits.max_samples.max(limits.min_samples).max(1) as usize);
    let mut series = Series::with_capacity(max);
    let mut next_look = min;
    loop {
        series.push(sample()?);
        let taken = series.len();
        if taken < min {
            continue;
        }
        let look = taken >= next_look || taken >= max;
        if look {
            // Looking costs a sort: less often as samples become many.
            next_look = taken + (taken / 10).max(1);
            if limits.interval_permille.is_some_and(|permille| series.is_narrow(permille)) {
                return Ok((series.into_samples(), true));
            }
        }
        if taken >= max || spent_ns() >= limits.budget_ns {
            let converged = limits.interval_permille.is_some_and(|permille| series.is_narrow(permille));
            return Ok((series.into_samples(), converged));
        }
    }
}

/// Tries of one batch size; the shortest counts, as what disturbs a batch only makes it longer.
const BATCH_TRIES: u32 = 3;

/// Number of launches that make a batch at least `window_ns` long, found by trying (`batch` runs that many and
/// returns nanoseconds). A tenth more is asked for, as batches vary.
///
/// # Errors
/// Those of `batch`.
pub fn batch_size<E>(window_ns: u64, mut batch: impl FnMut(u64) -> Result<f64, E>) -> Result<u64, E> {
    let wanted = window_ns as f64 * 1.1;
    let mut count = 1u64;
    loop {
        let mut ns = f64::INFINITY;
        for _ in 0..BATCH_TRIES {
            ns = ns.min(batch(count)?);
        }
        let ns = ns.max(1.0);
        if ns >= wanted {
            return Ok(count);
        }
        let estimate = (count as f64 * wanted / ns).ceil() as u64;
        count = estimate.clamp(count + 1, count.saturating_mul(16));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::convert::Infallible;

    fn warm_up(warmup: &Warmup, mut launch: impl FnMut() -> f64) -> WarmedUp {
        let Ok(warmed) = super::warm_up(warmup, || Ok::<_, Infallible>(launch()));
        warmed
    }

    fn sample(limits: Limits, spent_ns: impl Fn() -> u64, mut sample: impl FnMut() -> f64) -> (Vec<f64>, bool) {
        let Ok(sampled) = super::sample(limits, spent_ns, || Ok::<_, Infallible>(sample()));
        sampled
    }

    fn batch_size(window_ns: u64, mut batch: impl FnMut(u64) -> f64) -> u64 {
        let Ok(count) = super::batch_size(window_ns, |count| Ok::<_, Infallible>(batch(count)));
        count
    }

    const WARMUP: Warmup = Warmup {
        min_launches: 10,
        min_ns: 5_000,
        block_ns: 1_000,
        steady_blocks: 3,
        steady_permille: 5,
        max_ns: 100_000,
    };

    #[test]
    fn warm_up_reaches_count_and_time_and_steadiness() {
        assert_eq!(warm_up(&WARMUP, || 100.0), WarmedUp { launches: 50, ns: 5_000, steady: true });
        assert_eq!(warm_up(&WARMUP, || 2_000.0), WarmedUp { launches: 10, ns: 20_000, steady: true });
        let mut time = 2_000.0;
        let slowing_down = warm_up(&WARMUP, || {
            time = if time > 1_000.0 { time * 0.97 } else { time };
            time
        });
        assert!(slowing_down.steady && slowing_down.launches > 20, "{slowing_down:?}");
    }

    #[test]
    fn warm_up_ends_unsteady_and_says_so() {
        let mut turn = 0;
        let warmed = warm_up(&WARMUP, || {
            turn += 1;
            if turn % 2 == 0 { 1_000.0 } else { 2_000.0 }
        });
        assert!(!warmed.steady && warmed.ns >= WARMUP.max_ns);
    }

    #[test]
    fn sampling_ends_when_narrow_or_spent_or_enough() {
        let limits = Limits { min_samples: 10, max_samples: 200, interval_permille: Some(5), budget_ns: 1_000_000 };
        let (samples, converged) = sample(limits, || 0, || 100.0);
        assert!(converged && samples.len() >= 10 && samples.len() < 20);
        let turn = Cell::new(0u64);
        let noisy = || {
            turn.set(turn.get() + 1);
            100.0 + 50.0 * (turn.get() % 7) as f64
        };
        let (samples, converged) = sample(limits, || 0, noisy);
        assert_eq!((samples.len(), converged), (200, false));
        turn.set(0);
        let (samples, converged) = sample(limits, || turn.get() * 20_000, noisy);
        assert_eq!((samples.len(), converged), (50, false));
        assert_eq!(samples[..3], [150.0, 200.0, 250.0]);
        let (samples, _) = sample(limits, || u64::MAX, || 100.0);
        assert!(samples.len() >= 10);
    }

    #[test]
    fn what_fails_ends_the_loop() {
        let limits = Limits { min_samples: 3, max_samples: 9, interval_permille: None, budget_ns: 1 };
        assert_eq!(super::sample(limits, || 0, || Err("gone")), Err("gone"));
        assert_eq!(super::warm_up(&WARMUP, || Err("gone")), Err("gone"));
        assert_eq!(super::batch_size(1, |_| Err("gone")), Err("gone"));
    }

    #[test]
    fn a_batch_is_as_long_as_its_window() {
        let mut turn = 0;
        let disturbed = batch_size(500_000, |count| {
            turn += 1;
            count as f64 * 1_000.0 + if turn % 3 == 0 { 0.0 } else { 1e7 }
        });
        assert_eq!(disturbed, 550);
        for launch_ns in [0.3, 7.0, 900.0, 1e6] {
            let count = batch_size(500_000, |count| 1_000.0 + count as f64 * launch_ns);
            assert!(1_000.0 + count as f64 * launch_ns >= 550_000.0);
            assert!(count == 1 || (count as f64) * launch_ns < 1.2e6, "{count}");
        }
    }
}
