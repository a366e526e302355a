//! Clocks of a GPU: what holds while something is measured, and what is read beside them.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Clocks to be held, in MHz.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frequencies {
    pub sm_mhz: u32,
    /// `None` leaves the memory's clock alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mem_mhz: Option<u32>,
}

impl fmt::Display for Frequencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MHz", self.sm_mhz)?;
        self.mem_mhz.map_or(Ok(()), |mhz| write!(f, ", memory {mhz} MHz"))
    }
}

impl Frequencies {
    /// As a key knows them.
    fn key(self) -> String {
        let memory = self.mem_mhz.map(|mhz| format!(" mem={mhz}")).unwrap_or_default();
        format!("sm={}{memory}", self.sm_mhz)
    }
}

/// What is true of a device's clocks while something is measured; its text enters the key of the measurement, as a
/// kernel at 1500 MHz is another measurement than one at whatever clock the GPU chose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockState {
    /// A CPU: its clocks are neither locked nor part of what is measured.
    #[default]
    None,
    /// A GPU whose clocks are its own choice.
    Observed,
    /// Locked by mlarun.
    Locked(Frequencies),
    /// Locked by someone else.
    External(Frequencies),
}

impl ClockState {
    /// The clocks that are held.
    pub const fn held(&self) -> Option<Frequencies> {
        match self {
            ClockState::Locked(frequencies) | ClockState::External(frequencies) => Some(*frequencies),
            ClockState::None | ClockState::Observed => None,
        }
    }
}

impl fmt::Display for ClockState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClockState::None => f.write_str("none"),
            ClockState::Observed => f.write_str("observe"),
            ClockState::Locked(frequencies) => write!(f, "lock {}", frequencies.key()),
            ClockState::External(frequencies) => write!(f, "external {}", frequencies.key()),
        }
    }
}

/// Largest difference of a clock from the one that is held, in hundredths of it.
pub const TOLERANCE_PERCENT: f64 = 1.0;

/// Whether the clock `seen` is the one that is `held`, both in MHz.
pub fn agrees(seen: f64, held: u32) -> bool {
    (seen - f64::from(held)).abs() <= f64::from(held) * TOLERANCE_PERCENT / 100.0
}

/// A GPU at one moment. What its driver does not tell is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    pub sm_mhz: Option<u32>,
    pub mem_mhz: Option<u32>,
    pub power_w: Option<f64>,
    pub temperature_c: Option<u32>,
    /// What holds its clocks down, by the names that `nvidia-smi -q` gives the reasons.
    #[serde(default)]
    pub throttle: Vec<String>,
    /// Processes that compute on it and are none of mlarun's, by number; inside a container these are the host's numbers.
    #[serde(default)]
    pub processes: Vec<u32>,
    /// Numbers of the faults (Xid) that its driver has reported since the reading before, where it reports any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub xids: Vec<u64>,
}

/// What a GPU is beside its model; the same for a whole session. What its driver does not tell is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Board {
    pub driver: Option<String>,
    pub vbios: Option<String>,
    /// Generation and lanes of the link as it is now.
    pub pcie: Option<(u32, u32)>,
    pub mig: Option<bool>,
    pub ecc: Option<bool>,
    pub persistence: Option<bool>,
    pub power_cap_w: Option<f64>,
}

/// A GPU before and after one worker process measured on it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Telemetry {
    pub clocks: ClockState,
    pub board: Board,
    pub before: Reading,
    pub after: Reading,
    /// Causes for which the measurement is not what it should be, each a sentence.
    #[serde(default)]
    pub taints: Vec<String>,
}

/// Reasons for lower clocks that are nobody's choice.
pub const SLOWDOWNS: [&str; 5] =
    ["SW Power Cap", "HW Slowdown", "SW Thermal Slowdown", "HW Thermal Slowdown", "HW Power Brake Slowdown"];

impl Telemetry {
    /// Why the clocks were not those that were to be held, each a sentence; nothing where none were. `counted_sm_mhz` is
    /// the SM clock as the GPU itself counted it while it was measured on.
    pub fn slips(&self, counted_sm_mhz: Option<f64>) -> Vec<String> {
        let Some(held) = self.clocks.held() else { return Vec::new() };
        let counted = counted_sm_mhz.filter(|mhz| !agrees(*mhz, held.sm_mhz));
        let clock = counted.map(|mhz| format!("the SM clock was {mhz:.0} MHz, not {}", held.sm_mhz));
        let was_seen = |reason: &&str| [&self.before, &self.after].iter().any(|reading| reading.has_reason(reason));
        let reasons = SLOWDOWNS.iter().filter(|reason| was_seen(reason));
        clock.into_iter().chain(reasons.map(|reason| format!("clocks were held down ({reason})"))).collect()
    }

    /// That the driver reported faults while it was measured, where it did.
    pub fn faults(&self) -> Option<String> {
        let numbers = self.after.xids.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        (!numbers.is_empty()).then(|| format!("the driver reported a fault of the GPU (Xid {numbers})"))
    }

    /// That the GPU was shared, where it was.
    pub fn company(&self) -> Option<String> {
        let others: BTreeSet<u32> = self.before.processes.iter().chain(&self.after.processes).copied().collect();
        let numbers = others.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        (!others.is_empty()).then(|| format!("other processes computed on the GPU ({numbers})"))
    }
}

impl Reading {
    fn has_reason(&self, reason: &str) -> bool {
        self.throttle.iter().any(|seen| seen == reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: Frequencies = Frequencies { sm_mhz: 1500, mem_mhz: Some(3201) };

    #[test]
    fn states_are_told_apart_by_their_texts() {
        let states = [
            ClockState::None,
            ClockState::Observed,
            ClockState::Locked(HELD),
            ClockState::Locked(Frequencies { mem_mhz: None, ..HELD }),
            ClockState::External(HELD),
        ];
        let texts = states.map(|state| state.to_string());
        assert_eq!(texts, ["none", "observe", "lock sm=1500 mem=3201", "lock sm=1500", "external sm=1500 mem=3201"]);
    }

    #[test]
    fn a_clock_agrees_within_one_percent() {
        assert!(agrees(1500.0, 1500) && agrees(1485.0, 1500) && agrees(1515.0, 1500));
        assert!(!agrees(1484.0, 1500) && !agrees(1516.0, 1500));
    }

    #[test]
    fn only_a_lock_is_broken_by_a_slowdown() {
        let slow = Reading { throttle: vec!["SW Power Cap".into(), "Idle".into()], ..Reading::default() };
        let observed = Telemetry { after: slow.clone(), clocks: ClockState::Observed, ..Telemetry::default() };
        assert!(observed.slips(Some(1980.0)).is_empty());
        let quiet = Telemetry { clocks: ClockState::Locked(HELD), ..Telemetry::default() };
        assert!(quiet.slips(Some(1501.0)).is_empty() && quiet.slips(None).is_empty());
        let found = Telemetry { after: slow, ..quiet }.slips(Some(1400.0));
        assert_eq!(found, ["the SM clock was 1400 MHz, not 1500", "clocks were held down (SW Power Cap)"]);
    }

    #[test]
    fn a_fault_between_two_measurements_marks_neither() {
        let faulty = Reading { xids: vec![79, 48], ..Reading::default() };
        let seen = Telemetry { after: faulty.clone(), ..Telemetry::default() };
        assert_eq!(seen.faults().as_deref(), Some("the driver reported a fault of the GPU (Xid 79, 48)"));
        assert_eq!(Telemetry { before: faulty, ..Telemetry::default() }.faults(), None);
    }

    #[test]
    fn another_process_is_company_whatever_the_clocks() {
        let shared = Reading { processes: vec![9, 7], ..Reading::default() };
        let seen = Telemetry { before: shared.clone(), after: shared, ..Telemetry::default() };
        assert_eq!(seen.company().as_deref(), Some("other processes computed on the GPU (7, 9)"));
        assert_eq!(Telemetry::default().company(), None);
    }
}
