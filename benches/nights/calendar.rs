//! Ninety nights on a simulated host: nights that are missed, reboots, kills at any place, a new driver, a new GPU.

use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};

use mlarun::model::Key;
use mlarun::nightly::{Alert, Circumstances, Host, Measured, Offer, Report, Situation, State, begin, finish, run};
use mlarun::stats::DriftRule;
use mlarun::stats::verdict::Rule;

use super::world::{LIVES, NEW_DRIVER, NIGHTS, offers, session, subject};

/// Nights in which nothing runs.
pub const MISSED: [u32; 4] = [20, 21, 22, 65];
/// A night in which the host is rebooted.
pub const REBOOTED: u32 = 30;
/// A night in which the program is killed.
pub const KILLED: u32 = 35;
/// The night from which on another GPU is in the host.
pub const NEW_GPU: u32 = 75;
const BUDGET: SignedDuration = SignedDuration::from_hours(3);

/// An alarm that was told, with the night that it was told in.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    pub life: usize,
    pub night: u32,
    pub alert: Alert,
}

/// What became of ninety nights.
#[derive(Debug, Default)]
pub struct Lived {
    pub told: Vec<Told>,
    /// By night that was not missed.
    pub reports: Vec<(u32, Report)>,
    pub state: State,
    /// Sessions that were measured, and those of them that a kill took away.
    pub sessions: u32,
    pub lost: u32,
}

/// The process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Killed;

/// A process on the host: what it keeps is all that the next one finds.
struct Process<'a> {
    now: Timestamp,
    night: u32,
    disk: &'a mut State,
    random: &'a mut Rng,
    sessions: &'a mut u32,
    lost: &'a mut u32,
    /// Steps until it is killed; `None` where it is not.
    lives_for: Option<u32>,
}

impl Process<'_> {
    /// Killed here, if that is where it ends.
    fn step(&mut self) -> Result<(), Killed> {
        match &mut self.lives_for {
            Some(0) => Err(Killed),
            Some(steps) => {
                *steps -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Host for Process<'_> {
    type Error = Killed;

    fn now(&self) -> Timestamp {
        self.now
    }

    fn keep(&mut self, state: &State) -> Result<(), Killed> {
        self.step()?;
        *self.disk = state.clone();
        self.step()
    }

    fn measure(&mut self, offer: &Offer) -> Result<Measured, Killed> {
        let index = (0..LIVES.len()).find(|index| subject(*index) == offer.subject).expect("a subject of the world");
        *self.sessions += 1;
        let (outcome, seconds) = session(index, self.night, self.random);
        // Killed in its middle, or when it is over and not kept yet.
        if let Err(killed) = self.step().and_then(|()| self.step()) {
            *self.lost += 1;
            self.now += SignedDuration::from_secs_f64(seconds / 2.0);
            return Err(killed);
        }
        self.now += SignedDuration::from_secs_f64(seconds);
        Ok(Measured {
            session: format!("{}-{}", self.now, *self.sessions),
            outcome,
            threshold: Rule::LOCKED_THRESHOLD,
            candidate: None,
        })
    }

    fn is_interrupted(&self) -> bool {
        false
    }
}

fn situation(night: u32, boot: u32) -> Situation {
    Situation {
        device: if night < NEW_GPU { "GPU X (GPU-1)" } else { "GPU X (GPU-2)" }.to_owned(),
        pin_name: "reference".to_owned(),
        pin: Key::of_bytes(b"pin"),
        boot: format!("boot-{boot}"),
        circumstances: Circumstances {
            driver: Some(if night < NEW_DRIVER { "570.1" } else { "580.2" }.to_owned()),
            compiler: "nvrtc 13.0".to_owned(),
            clocks: "lock sm=1500".to_owned(),
        },
    }
}

/// Lives through ninety nights. `deaths` is the chance of a night to have its program killed somewhere, and gone on with.
pub fn live(seed: u64, deaths: f64) -> Lived {
    let mut random = Rng::with_seed(seed);
    let mut lived = Lived::default();
    let mut boot = 0;
    for night in (0..NIGHTS).filter(|night| !MISSED.contains(night)) {
        // Two o'clock, and a little later where the host was busy.
        let start: Timestamp = "2026-01-01T02:00:00Z".parse().expect("a time");
        let mut now =
            start + SignedDuration::from_hours(24 * i64::from(night)) + SignedDuration::from_secs(random.i64(0..600));
        let mut ends = match night {
            REBOOTED | KILLED => vec![25 + random.u32(..40)],
            _ if random.f64() < deaths => (0..random.u32(1..4)).map(|_| random.u32(..60)).collect(),
            _ => Vec::new(),
        };
        loop {
            let lives_for = ends.pop();
            match process(&mut lived, &mut random, night, boot, &mut now, lives_for) {
                Ok(report) => {
                    lived.reports.push((night, report));
                    break;
                }
                Err(Killed) => {
                    boot += u32::from(night == REBOOTED || random.bool());
                    now += SignedDuration::from_secs(300);
                }
            }
        }
    }
    lived
}

/// One process of a night.
fn process(
    lived: &mut Lived,
    random: &mut Rng,
    night: u32,
    boot: u32,
    now: &mut Timestamp,
    lives_for: Option<u32>,
) -> Result<Report, Killed> {
    let (situation, offers) = (situation(night, boot), offers(night));
    let mut state = lived.state.clone();
    let begun = begin(&mut state, &situation, BUDGET, *now);
    let (sessions, lost) = (&mut lived.sessions, &mut lived.lost);
    let mut host = Process { now: *now, night, disk: &mut lived.state, random, sessions, lost, lives_for };
    let ended = run(&mut host, &offers, &situation, begun.until, &DriftRule::default(), &mut state);
    *now = host.now;
    ended?;
    let report = Report::of(&state, &offers, &situation, *now).expect("a night has begun");
    for alert in std::mem::take(&mut state.untold) {
        let life = (0..LIVES.len()).find(|index| subject(*index) == alert.subject).expect("a subject of the world");
        let told = Told { life, night, alert };
        // Killed between the telling and the keeping, it is told again: that is one alarm still.
        host.step().inspect_err(|_| lived.told.push(told.clone()))?;
        if !lived.told.iter().any(|before| before.alert == told.alert) {
            lived.told.push(told);
        }
    }
    finish(&mut state);
    host.keep(&state)?;
    Ok(report)
}
