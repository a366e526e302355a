//! Simulated hosts: process times of identical code under the disturbances that real hosts have. Seeded.

use std::f64::consts::TAU;

use fastrand::Rng;

/// Makes the logarithms of one session's process times, in the order in which the processes run; identical code throughout.
pub type Noise = fn(&mut Rng, usize) -> Vec<f64>;

/// A host to judge on.
pub struct World {
    pub kind: Kind,
    pub name: &'static str,
    pub noise: Noise,
    /// Logarithm of the clock's part in each process, where it is free to move: time is shorter by it.
    pub clock: Option<Noise>,
    /// Share of the rounds that are dropped, whatever their times.
    pub dropped: f64,
}

/// What disturbs a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Nothing,
    Drift,
    Autocorrelation,
    HeavyTails,
    Modes,
    Order,
    Clock,
    /// A period that keeps step with the processes. The rule does not promise to stand it: its rate is told all the same.
    InStep,
}

const fn world(kind: Kind, name: &'static str, noise: Noise) -> World {
    World { kind, name, noise, clock: None, dropped: 0.0 }
}

/// Every disturbance, around a process spread between 0.2% and 0.5% unless it says otherwise.
pub const WORLDS: &[World] = &[
    world(Kind::Nothing, "quiet, spread 0.3%", |random, count| normals(random, count, 0.003)),
    world(Kind::Nothing, "quiet, spread 0.5%", |random, count| normals(random, count, 0.005)),
    world(Kind::Nothing, "noisy, spread 2%", |random, count| normals(random, count, 0.02)),
    world(Kind::Drift, "ramp of 1.5% over a session", |random, count| ramp(random, count, 0.015)),
    world(Kind::Drift, "ramp of 10% over a session", |random, count| ramp(random, count, 0.10)),
    world(Kind::Drift, "step of 3% at any time", step),
    world(Kind::Drift, "random walk, 0.5% a process", |random, count| autocorrelated(random, count, 1.0)),
    world(Kind::Autocorrelation, "autocorrelation 0.9", |random, count| autocorrelated(random, count, 0.9)),
    world(Kind::Autocorrelation, "autocorrelation 0.5", |random, count| autocorrelated(random, count, 0.5)),
    world(Kind::Autocorrelation, "autocorrelation -0.5", |random, count| autocorrelated(random, count, -0.5)),
    world(Kind::HeavyTails, "heavy tails, t with 2 degrees of freedom", |random, count| {
        each(random, count, |r| 0.003 * student(r, 2))
    }),
    world(Kind::HeavyTails, "heavy tails, Cauchy", |random, count| each(random, count, |r| 0.003 * student(r, 1))),
    world(Kind::HeavyTails, "one process in 20 slower by up to 20%", |random, count| each(random, count, hiccup)),
    world(Kind::HeavyTails, "skewed, exponential with a mean of 1%", |random, count| {
        each(random, count, |r| 0.01 * exponential(r))
    }),
    world(Kind::Modes, "two modes 3% apart, even odds", |random, count| modes(random, count, 0.5)),
    world(Kind::Modes, "two modes 3% apart, one in 10 slow", |random, count| modes(random, count, 0.1)),
    world(Kind::Modes, "two modes 3% apart that last for 5 processes", sticky),
    world(Kind::Order, "second process of a round 1% slower", second_slower),
    World { dropped: 0.15, ..world(Kind::Order, "second process 1% slower, 15% of the rounds dropped", second_slower) },
    world(Kind::Clock, "clock that counts in steps of 0.4%", stepped),
    World {
        clock: Some(wandering),
        ..world(Kind::Clock, "unlocked, clock wanders by 0.5% a process", |random, count| normals(random, count, 0.003))
    },
    world(Kind::InStep, "wave of 2%, any period from 2 to 32 processes", wave),
    world(Kind::InStep, "wave of 2% with a period of just 4 processes", wave_of_four),
];

/// The change of speed that should be found in a world: twice its threshold.
pub fn change(world: &World) -> f64 {
    if world.clock.is_some() { 0.04 } else { 0.01 }
}

/// A normal deviate (Box and Muller 1958).
pub fn normal(random: &mut Rng) -> f64 {
    (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (TAU * random.f64()).cos()
}

fn exponential(random: &mut Rng) -> f64 {
    -(1.0 - random.f64()).ln()
}

/// A deviate of Student's t.
fn student(random: &mut Rng, degrees: u32) -> f64 {
    let squares: f64 = (0..degrees).map(|_| normal(random).powi(2)).sum();
    normal(random) / (squares / f64::from(degrees)).sqrt()
}

fn each(random: &mut Rng, count: usize, mut deviate: impl FnMut(&mut Rng) -> f64) -> Vec<f64> {
    (0..count).map(|_| deviate(random)).collect()
}

/// Independent normal deviates of this spread.
pub fn normals(random: &mut Rng, count: usize, spread: f64) -> Vec<f64> {
    each(random, count, |random| spread * normal(random))
}

fn with(mut noise: Vec<f64>, disturbance: impl Fn(usize) -> f64) -> Vec<f64> {
    noise.iter_mut().enumerate().for_each(|(index, value)| *value += disturbance(index));
    noise
}

fn ramp(random: &mut Rng, count: usize, height: f64) -> Vec<f64> {
    with(normals(random, count, 0.005), |index| height * index as f64 / count as f64)
}

fn step(random: &mut Rng, count: usize) -> Vec<f64> {
    let at = random.usize(..count);
    with(normals(random, count, 0.005), |index| if index >= at { 0.03 } else { 0.0 })
}

fn wave(random: &mut Rng, count: usize) -> Vec<f64> {
    let (period, phase) = (2.0 + 30.0 * random.f64(), random.f64());
    with(normals(random, count, 0.003), |index| 0.02 * (TAU * (index as f64 / period + phase)).sin())
}

fn wave_of_four(random: &mut Rng, count: usize) -> Vec<f64> {
    let phase = random.f64();
    with(normals(random, count, 0.003), |index| 0.02 * (TAU * (index as f64 / 4.0 + phase)).sin())
}

fn hiccup(random: &mut Rng) -> f64 {
    let late = if random.f64() < 0.05 { 0.2 * random.f64() } else { 0.0 };
    0.003 * normal(random) + late
}

fn modes(random: &mut Rng, count: usize, slow: f64) -> Vec<f64> {
    each(random, count, |random| 0.002 * normal(random) + if random.f64() < slow { 0.03 } else { 0.0 })
}

fn sticky(random: &mut Rng, count: usize) -> Vec<f64> {
    let mut is_slow = random.bool();
    each(random, count, |random| {
        is_slow ^= random.f64() < 0.2;
        0.002 * normal(random) + if is_slow { 0.03 } else { 0.0 }
    })
}

/// Each deviate keeps this part of the one before; the spread within a session is 0.5% of what is new in each.
pub fn autocorrelated(random: &mut Rng, count: usize, kept: f64) -> Vec<f64> {
    let mut value = 0.0;
    each(random, count, |random| {
        value = kept * value + 0.005 * normal(random);
        value
    })
}

fn wandering(random: &mut Rng, count: usize) -> Vec<f64> {
    autocorrelated(random, count, 0.95)
}

fn second_slower(random: &mut Rng, count: usize) -> Vec<f64> {
    with(normals(random, count, 0.003), |index| if index % 2 == 1 { 0.01 } else { 0.0 })
}

fn stepped(random: &mut Rng, count: usize) -> Vec<f64> {
    let noise = normals(random, count, 0.003);
    noise.into_iter().map(|value| (value / 0.004).round() * 0.004).collect()
}
