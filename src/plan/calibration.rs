//! What `mlarun calibrate` measures: six kernels between 5 us and 5 ms, sizes that make them so long on a host, and the order
//! of its processes. Pure.
//!
//! Three of the kernels copy and three compute. From [`SHORTEST_SLOWED`] on a kernel is also run slower by a known part: each of
//! its blocks waits for a chain of multiply-adds (`spins`) before it begins.

use crate::model::protocol::{EventProtocol, TuneProtocol, Warmup};
use crate::model::{Shape, Timing, Value};
use crate::stats::verdict::orders;

/// A kernel of the calibration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibrated {
    /// As reports call it.
    pub name: &'static str,
    pub work: Work,
    /// Time of a launch that its size is chosen for.
    pub aim_ns: f64,
}

/// A kernel package whose time grows with one of its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Copy,
    Multiply,
}

/// In the order in which a turn runs them.
pub const KERNELS: [Calibrated; 6] = [
    Calibrated { name: "compute 10 us", work: Work::Multiply, aim_ns: 10e3 },
    Calibrated { name: "copy 30 us", work: Work::Copy, aim_ns: 30e3 },
    Calibrated { name: "copy 150 us", work: Work::Copy, aim_ns: 150e3 },
    Calibrated { name: "compute 400 us", work: Work::Multiply, aim_ns: 400e3 },
    Calibrated { name: "copy 1 ms", work: Work::Copy, aim_ns: 1e6 },
    Calibrated { name: "compute 4 ms", work: Work::Multiply, aim_ns: 4e6 },
];

/// Parts of a kernel's time by which it is made longer.
pub const SLOWED: [f64; 3] = [0.005, 0.01, 0.02];

/// A kernel that is shorter is not made slower: half a percent of it would be too few spins to be told.
pub const SHORTEST_SLOWED: f64 = 100e3;

/// Parameter of every package that makes it slower.
const SPINS: &str = "spins";

impl Work {
    pub const ALL: [Work; 2] = [Work::Copy, Work::Multiply];

    /// The package's name, in every language.
    pub const fn package(self) -> &'static str {
        match self {
            Work::Copy => "spin_copy",
            Work::Multiply => "spin_fma",
        }
    }

    const fn parameter(self) -> &'static str {
        match self {
            Work::Copy => "rows",
            Work::Multiply => "steps",
        }
    }

    /// Sizes that are tried first, ascending.
    pub fn first_sizes(self) -> Vec<i64> {
        match self {
            Work::Copy => vec![16, 256, 4096, 16_384],
            Work::Multiply => vec![64, 1024, 8192, 32_768],
        }
    }

    /// The largest size that fits a device with `memory_bytes`, of which it takes a quarter at most: two buffers of 4 KiB a row.
    pub fn largest(self, memory_bytes: u64) -> i64 {
        match self {
            Work::Copy => i64::try_from(memory_bytes / 4 / (2 * 4096)).unwrap_or(i64::MAX).max(1),
            Work::Multiply => i64::from(i32::MAX),
        }
    }

    /// The shape of this size that spins so often.
    pub fn shape(self, size: i64, spins: i64) -> Shape {
        let parameters = [(self.parameter(), size), (SPINS, spins)];
        Shape(parameters.into_iter().map(|(name, value)| (name.to_owned(), Value::Int(value))).collect())
    }

    /// `shape` with so many spins.
    pub fn with_spins(shape: &Shape, spins: i64) -> Shape {
        let mut shape = shape.clone();
        shape.0.insert(SPINS.to_owned(), Value::Int(spins));
        shape
    }
}

impl Calibrated {
    /// How its launches are timed: a short one in batches, as an isolated time has too few of the clock's steps.
    pub fn timing(&self) -> Timing {
        if self.aim_ns < SHORTEST_SLOWED { Timing::WarmBatched } else { Timing::ColdIsolated }
    }

    /// Whether it is also run slower.
    pub fn is_slowed(&self) -> bool {
        self.aim_ns >= SHORTEST_SLOWED
    }
}

/// How one process is measured, where event mode is measured by `event`: as long as a median needs and no longer, since a
/// calibration is made of many processes.
pub fn protocol(event: &EventProtocol, timing: Timing) -> EventProtocol {
    const MS: u64 = 1_000_000;
    let warmup = Warmup {
        min_launches: 10,
        min_ns: 50 * MS,
        block_ns: 10 * MS,
        steady_blocks: 3,
        steady_permille: event.warmup.steady_permille,
        max_ns: 100 * MS,
    };
    EventProtocol {
        warmup,
        timings: vec![timing],
        min_samples: event.min_samples,
        max_samples: 1000,
        interval_permille: 1,
        budget_ns: 90 * MS,
        batch_window_ns: event.batch_window_ns,
        flush_bytes: event.flush_bytes,
    }
}

/// How sizes and spins are tried: none is given up for being slower than another.
pub const TRIAL: TuneProtocol =
    TuneProtocol { min_samples: 5, max_samples: 50, budget_ns: 50_000_000, abandon_percent: u32::MAX };

/// Spins that are tried to find how long one takes: together far longer than what else a launch does at the smallest size.
pub const SPINS_TRIED: i64 = 100_000;

/// The size that takes `aim_ns`, by sizes whose times are known (ascending, at least one), straight between and beyond them on
/// logarithmic scales; between 1 and `largest`.
pub fn size(known: &[(i64, f64)], aim_ns: f64, largest: i64) -> i64 {
    let points: Vec<(f64, f64)> = known.iter().map(|(size, ns)| ((*size as f64).ln(), ns.ln())).collect();
    let aim = aim_ns.ln();
    let ln_size = match points.as_slice() {
        [] => 0.0,
        [(ln_size, ln_ns)] => ln_size + aim - ln_ns,
        _ => {
            // The first pair whose upper end is long enough, else the last.
            let pair = points.windows(2).find(|pair| pair[1].1 >= aim).unwrap_or(&points[points.len() - 2..]);
            let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
            // Times that hardly grow say nothing about a longer one: the size is then taken to count in full.
            let slope = ((y1 - y0) / (x1 - x0)).max(0.2);
            x1 + (aim - y1) / slope
        }
    };
    (ln_size.exp().round() as i64).clamp(1, largest)
}

/// Whether a time is so far from the one that was aimed at that another size is worth a try.
pub fn is_off(aim_ns: f64, ns: f64) -> bool {
    !(0.75..1.35).contains(&(ns / aim_ns))
}

/// Spins that make a launch of `ns` longer by the part `slower_by`, each of which takes `ns_per_spin`.
pub fn spins(ns: f64, slower_by: f64, ns_per_spin: f64) -> i64 {
    ((ns * slower_by / ns_per_spin).round() as i64).max(1)
}

/// The processes of one turn, in order: kernel by its index, and by which part it is made slower (0: not). Every kernel runs once as it is;
/// with `slowed`, in every second turn, those that are long enough run once more, slower by the part whose turn it is, directly before
/// or after, as drawn: as many processes again as identical code has would say little more for the time.
pub fn turn(number: u32, slowed: bool, seed: u64) -> Vec<(usize, f64)> {
    let slowed = slowed && number.is_multiple_of(2);
    let part = SLOWED[number as usize / 2 % SLOWED.len()];
    let mut processes = Vec::new();
    for (index, kernel) in KERNELS.iter().enumerate() {
        if !(slowed && kernel.is_slowed()) {
            processes.push((index, 0.0));
            continue;
        }
        let as_listed = orders(seed.wrapping_add(index as u64)).nth(number as usize).unwrap_or_default();
        processes.extend(if as_listed { [(index, 0.0), (index, part)] } else { [(index, part), (index, 0.0)] });
    }
    processes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_found_between_and_beyond_those_that_were_tried() {
        // 2 us, and 1 us for every ten.
        let ns = |size: i64| 2e3 + 100.0 * size as f64;
        let known: Vec<(i64, f64)> = [16, 256, 4096].map(|size| (size, ns(size))).into();
        for aim in [10e3, 150e3, 4e6] {
            let found = ns(size(&known, aim, i64::MAX));
            assert!((found / aim - 1.0).abs() < 0.25, "{found} for {aim}");
        }
        assert_eq!(size(&known, 4e6, 5000), 5000);
        assert_eq!(size(&known, 1.0, 5000), 1);
        assert_eq!(size(&[(100, 1e3)], 5e3, i64::MAX), 500);
        // Times that do not grow give no size without end.
        assert!(size(&[(16, 2e3), (256, 2e3)], 4e3, i64::MAX) < 256 * 64);
    }

    #[test]
    fn spins_are_the_part_of_the_time_and_at_least_one() {
        assert_eq!((spins(1e6, 0.01, 2.0), spins(100.0, 0.005, 2.0)), (5000, 1));
    }

    #[test]
    fn a_turn_runs_every_kernel_and_next_to_each_long_one_its_slower_self() {
        let alone = turn(7, false, 1);
        assert_eq!(alone, (0..KERNELS.len()).map(|index| (index, 0.0)).collect::<Vec<_>>());
        let mut first = 0;
        for number in 0..300 {
            let processes = turn(number, true, 1);
            assert_eq!(processes.len(), if number % 2 == 0 { 10 } else { 6 });
            for (at, &(index, part)) in processes.iter().enumerate().filter(|(_, (_, part))| *part > 0.0) {
                assert!((part - SLOWED[number as usize / 2 % 3]).abs() < 1e-12 && KERNELS[index].is_slowed());
                let before = at > 0 && processes[at - 1] == (index, 0.0);
                assert!(before || processes[at + 1] == (index, 0.0), "{processes:?}");
                first += u32::from(!before);
            }
        }
        assert!((250..350).contains(&first), "{first} of 600");
    }

    #[test]
    fn kernels_lie_between_5_us_and_5_ms_in_ascending_order() {
        assert!(KERNELS.iter().all(|kernel| (5e3..5e6).contains(&kernel.aim_ns)));
        assert!(KERNELS.windows(2).all(|pair| pair[0].aim_ns < pair[1].aim_ns));
        assert_eq!(KERNELS.iter().filter(|kernel| kernel.is_slowed()).count(), 4);
    }
}
