//! Simulated subjects over ninety nights: how fast each is against the pinned build, and how its processes scatter. Seeded.

use fastrand::Rng;

use mlarun::model::{KernelId, Key, Language, Shape, Value, Version};
use mlarun::nightly::{Offer, Outcome, Subject};
use mlarun::stats::verdict::{Process, Round, Rule, judge, orders};

/// Logarithms of the times of so many processes of identical code, in their order.
pub type Noise = fn(&mut Rng, usize) -> Vec<f64>;

/// Nights that are simulated.
pub const NIGHTS: u32 = 90;
/// The night from which on the driver is another one.
pub const NEW_DRIVER: u32 = 40;

/// What happens to a subject, by the night it happens in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Story {
    /// Its speed stays as it is.
    Nothing,
    /// A change of its code makes it slower (above 0) or faster by this, for good.
    Step { night: u32, slower: f64 },
    /// A change of its code makes it slower, and is taken back.
    Passing { from: u32, to: u32, slower: f64 },
    /// It gets slower bit by bit, over these nights.
    Drift { from: u32, to: u32, slower: f64 },
    /// Its code does not take the new driver well; the pinned build does.
    Driver { slower: f64 },
}

impl Story {
    /// The logarithm of its time against the pinned build's in this night.
    pub fn ln_slower(self, night: u32) -> f64 {
        match self {
            Story::Nothing => 0.0,
            Story::Step { night: at, slower } => {
                if night >= at {
                    slower.ln_1p()
                } else {
                    0.0
                }
            }
            Story::Passing { from, to, slower } => {
                if (from..to).contains(&night) {
                    slower.ln_1p()
                } else {
                    0.0
                }
            }
            Story::Drift { from, to, slower } => {
                let part = f64::from(night.saturating_sub(from)) / f64::from(to - from);
                slower.ln_1p() * part.min(1.0)
            }
            Story::Driver { slower } => {
                if night >= NEW_DRIVER {
                    slower.ln_1p()
                } else {
                    0.0
                }
            }
        }
    }

    /// The first night in which it is slower than the pinned build.
    pub fn slower_from(self) -> Option<u32> {
        (0..NIGHTS).find(|night| self.ln_slower(*night) > 1e-9)
    }

    /// Whether a new source is measured in this night.
    fn source(self, night: u32) -> u32 {
        match self {
            Story::Step { night: at, .. } => u32::from(night >= at),
            Story::Passing { from, to, .. } => u32::from(night >= from) + u32::from(night >= to),
            Story::Drift { from, to, .. } => night.clamp(from, to) - from,
            Story::Nothing | Story::Driver { .. } => 0,
        }
    }
}

/// One subject's life.
#[derive(Debug, Clone, Copy)]
pub struct Life {
    pub name: &'static str,
    pub story: Story,
    pub noise: Noise,
}

const fn life(name: &'static str, noise: Noise, story: Story) -> Life {
    Life { name, story, noise }
}

const QUIET: Noise = |random, count| super::worlds::normals(random, count, 0.003);
const USUAL: Noise = |random, count| super::worlds::normals(random, count, 0.005);
const NOISY: Noise = |random, count| super::worlds::normals(random, count, 0.02);
const CORRELATED: Noise = |random, count| super::worlds::autocorrelated(random, count, 0.8);
/// One process in twenty is late by up to a fifth.
const LATE: Noise = |random, count| {
    let mut noise = super::worlds::normals(random, count, 0.003);
    noise.iter_mut().for_each(|value| *value += if random.f64() < 0.05 { 0.2 * random.f64() } else { 0.0 });
    noise
};
/// Two kinds of processes, three hundredths apart.
const TWO_KINDS: Noise = |random, count| {
    let mut noise = super::worlds::normals(random, count, 0.002);
    noise.iter_mut().for_each(|value| *value += if random.bool() { 0.03 } else { 0.0 });
    noise
};

/// Every subject of a world.
pub const LIVES: &[Life] = &[
    life("quiet, 1", QUIET, Story::Nothing),
    life("quiet, 2", QUIET, Story::Nothing),
    life("quiet, 3", QUIET, Story::Nothing),
    life("usual spread, 1", USUAL, Story::Nothing),
    life("usual spread, 2", USUAL, Story::Nothing),
    life("usual spread, 3", USUAL, Story::Nothing),
    life("noisy", NOISY, Story::Nothing),
    life("autocorrelated", CORRELATED, Story::Nothing),
    life("late processes", LATE, Story::Nothing),
    life("two kinds of processes", TWO_KINDS, Story::Nothing),
    life("3% faster from night 25 on", USUAL, Story::Step { night: 25, slower: -0.03 }),
    life("0.4% slower from night 12 on, less than a verdict counts", USUAL, Story::Step { night: 12, slower: 0.004 }),
    life("1% slower from night 18 on, noisy", NOISY, Story::Step { night: 18, slower: 0.01 }),
    life("1% slower from night 15 on", USUAL, Story::Step { night: 15, slower: 0.01 }),
    life("2% slower from night 21 on, of which nights are missed", USUAL, Story::Step { night: 21, slower: 0.02 }),
    life("5% slower from night 30 on", USUAL, Story::Step { night: 30, slower: 0.05 }),
    life("5% slower from night 33 on, noisy", NOISY, Story::Step { night: 33, slower: 0.05 }),
    life("2% slower from night 50 on, autocorrelated", CORRELATED, Story::Step { night: 50, slower: 0.02 }),
    life("20% slower from night 60 on, late processes", LATE, Story::Step { night: 60, slower: 0.20 }),
    life("10% slower from night 45 on, two kinds of processes", TWO_KINDS, Story::Step { night: 45, slower: 0.10 }),
    life("3% slower in the nights 28 to 35, then taken back", USUAL, Story::Passing { from: 28, to: 36, slower: 0.03 }),
    life("2% slower with the new driver, 1", QUIET, Story::Driver { slower: 0.02 }),
    life("2% slower with the new driver, 2", USUAL, Story::Driver { slower: 0.02 }),
    life("3% slower bit by bit, nights 10 to 70", USUAL, Story::Drift { from: 10, to: 70, slower: 0.03 }),
    life("4% slower bit by bit, nights 10 to 60, noisy", NOISY, Story::Drift { from: 10, to: 60, slower: 0.04 }),
    life(
        "6% slower bit by bit, nights 20 to 80, two kinds of processes",
        TWO_KINDS,
        Story::Drift { from: 20, to: 80, slower: 0.06 },
    ),
];

/// The subject of the life at `index`.
pub fn subject(index: usize) -> Subject {
    Subject {
        id: KernelId { kernel: format!("kernel_{index:02}"), version: Version(0), language: Language::Cuda },
        shape: Shape([("s".to_owned(), Value::Int(1))].into()),
    }
}

/// What could be measured in this night.
pub fn offers(night: u32) -> Vec<Offer> {
    let offer = |(index, life): (usize, &Life)| Offer {
        subject: subject(index),
        candidate: Key::of("candidate/1", &(index, life.story.source(night))),
        estimate_s: 240.0,
    };
    LIVES.iter().enumerate().map(offer).collect()
}

/// A session of the life at `index`: rounds until its rule stops, and how long that takes, in seconds.
pub fn session(index: usize, night: u32, random: &mut Rng) -> (Outcome, f64) {
    /// Of a process, and of what surrounds a session.
    const PROCESS_S: f64 = 6.0;
    const AROUND_S: f64 = 20.0;
    let life = &LIVES[index];
    let rule = Rule::new(mlarun::stats::verdict::Clocks::Locked, 1);
    let most = *rule.looks.last().expect("a rule has looks") as usize;
    let noise = (life.noise)(random, 2 * most);
    let candidate_slower = life.story.ln_slower(night);
    let time = |ln: f64| Process { ns: Some(1e5 * ln.exp()), sm_mhz: None, taints: Vec::new() };
    let rounds: Vec<Round> = orders(random.u64(..))
        .zip(noise.chunks_exact(2))
        .map(|(candidate_first, pair)| {
            let (candidate, baseline) = if candidate_first { (pair[0], pair[1]) } else { (pair[1], pair[0]) };
            Round { candidate: time(candidate + candidate_slower), baseline: time(baseline), candidate_first }
        })
        .collect();
    let judgement = judge(&rounds, &rule).expect("rounds and a rule");
    let interval = judgement.interval();
    let outcome = Outcome::Judged {
        verdict: judgement.verdict,
        change: judgement.effect.map(|effect| effect.change()),
        low: interval.map(|(low, _)| low),
        high: interval.map(|(_, high)| high),
        rounds: judgement.rounds,
    };
    (outcome, AROUND_S + 2.0 * PROCESS_S * f64::from(judgement.rounds))
}
