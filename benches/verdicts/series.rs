//! Simulated series of nightly ratios, quiet, disturbed and shifted, and how many of them raise an alarm.

use fastrand::Rng;
use mlarun::stats::{DriftRule, Proportion, shifts};
use rayon::prelude::*;

use super::worlds::{autocorrelated, normal, normals};

/// Nights of a series.
pub const NIGHTS: usize = 90;

/// One kind of series.
pub struct Series {
    pub name: &'static str,
    /// The logarithms of the ratios.
    pub values: fn(&mut Rng) -> Vec<f64>,
    /// Whether its level shifts.
    pub has_shift: bool,
}

const fn steady(name: &'static str, values: fn(&mut Rng) -> Vec<f64>) -> Series {
    Series { name, values, has_shift: false }
}

const fn shifted(name: &'static str, values: fn(&mut Rng) -> Vec<f64>) -> Series {
    Series { name, values, has_shift: true }
}

/// Spreads are those of the ratio from night to night.
pub const SERIES: &[Series] = &[
    steady("quiet, spread 0.3%", |random| normals(random, NIGHTS, 0.003)),
    steady("quiet, spread 1%", |random| normals(random, NIGHTS, 0.01)),
    steady("autocorrelation 0.5, spread 0.5%", |random| correlated(random, 0.5, 0.005)),
    steady("autocorrelation 0.8, spread 0.5%", |random| correlated(random, 0.8, 0.005)),
    steady("autocorrelation 0.9, spread 1%", |random| correlated(random, 0.9, 0.01)),
    steady("one night in 30 5% off", |random| with_outliers(random, 30)),
    steady("one night in 15 5% off", |random| with_outliers(random, 15)),
    shifted("step of 1.5% after 60 nights, spread 0.5%", |random| {
        plus(normals(random, NIGHTS, 0.005), |night| if night >= 60 { 0.015 } else { 0.0 })
    }),
    shifted("step of 2% seven nights ago, spread 0.3%", |random| {
        plus(normals(random, NIGHTS, 0.003), |night| if night >= NIGHTS - 7 { 0.02 } else { 0.0 })
    }),
    shifted("step of 2%, autocorrelation 0.5, spread 0.3%", |random| {
        plus(correlated(random, 0.5, 0.003), |night| if night >= NIGHTS / 2 { 0.02 } else { 0.0 })
    }),
    shifted("2% for 30 nights, then back, spread 0.3%", |random| {
        plus(normals(random, NIGHTS, 0.003), |night| if (30..60).contains(&night) { 0.02 } else { 0.0 })
    }),
    shifted("slow drift of 3% over all nights, spread 0.5%", |random| {
        plus(normals(random, NIGHTS, 0.005), |night| 0.03 * night as f64 / NIGHTS as f64)
    }),
];

/// How many of `trials` series raise an alarm: at least one shift.
pub fn alarms(series: &Series, trials: u64) -> Proportion {
    let is_alarm = |trial: &u64| {
        let mut random = Rng::with_seed(trial ^ 0x005E_ED5E);
        let ratios: Vec<f64> = (series.values)(&mut random).into_iter().map(f64::exp).collect();
        !shifts(&ratios, &DriftRule::default()).expect("ratios are positive").is_empty()
    };
    let alarms = (0..trials).into_par_iter().filter(is_alarm).count();
    Proportion::new(alarms as u64, trials).expect("there are trials")
}

/// Autocorrelated values of this spread.
fn correlated(random: &mut Rng, kept: f64, spread: f64) -> Vec<f64> {
    let scale = spread / 0.005 * (1.0 - kept * kept).sqrt();
    // What comes before the first night lets the start be forgotten.
    autocorrelated(random, 2 * NIGHTS, kept).split_off(NIGHTS).into_iter().map(|value| value * scale).collect()
}

fn with_outliers(random: &mut Rng, one_in: u32) -> Vec<f64> {
    let value = |random: &mut Rng| 0.002 * normal(random) + if random.u32(..one_in) == 0 { 0.05 } else { 0.0 };
    (0..NIGHTS).map(|_| value(random)).collect()
}

fn plus(mut values: Vec<f64>, level: impl Fn(usize) -> f64) -> Vec<f64> {
    values.iter_mut().enumerate().for_each(|(night, value)| *value += level(night));
    values
}
