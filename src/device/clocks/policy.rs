//! Which clock policy holds: what manifest, command line, environment and build say about it, weighed. Touches no clock.

use crate::manifest::ClockPolicy;
use crate::model::clocks::{ClockState, Frequencies};

/// Variable of the environment with a policy that beats every manifest's.
pub const POLICY_VARIABLE: &str = "MLARUN_CLOCKS";

/// The policy of the environment is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{POLICY_VARIABLE}: `{0}` is no clock policy; there are lock, prefer, external and observe")]
pub struct UnknownPolicy(pub String);

/// The policy that the environment asks for.
///
/// # Errors
/// It asks for one that does not exist: whoever forbids changing clocks and mistypes it is not to see them changed.
pub fn environment_policy() -> Result<Option<ClockPolicy>, UnknownPolicy> {
    let Some(text) = std::env::var_os(POLICY_VARIABLE).filter(|text| !text.is_empty()) else { return Ok(None) };
    let text = text.to_string_lossy();
    let named = ClockPolicy::ALL.into_iter().find(|policy| policy.name() == text);
    named.map(Some).ok_or_else(|| UnknownPolicy(text.into_owned()))
}

/// The policy that holds whatever a manifest says: `observe` where command line, environment or build forbid changing
/// clocks, else that of the command line, else that of the environment.
///
/// # Errors
/// See [`environment_policy`].
pub fn overriding(command_line: Option<ClockPolicy>) -> Result<Option<ClockPolicy>, UnknownPolicy> {
    Ok(stronger(command_line, environment_policy()?))
}

fn stronger(command_line: Option<ClockPolicy>, environment: Option<ClockPolicy>) -> Option<ClockPolicy> {
    let is_forbidden = !cfg!(feature = "clock-control") || environment == Some(ClockPolicy::Observe);
    if is_forbidden { Some(ClockPolicy::Observe) } else { command_line.or(environment) }
}

/// What a run under `policy` is planned for, before anything was tried.
pub const fn hoped_for(policy: ClockPolicy, asked: Option<Frequencies>) -> ClockState {
    match (policy, asked) {
        (ClockPolicy::Observe, _) | (_, None) => ClockState::Observed,
        (ClockPolicy::Lock | ClockPolicy::Prefer, Some(frequencies)) => ClockState::Locked(frequencies),
        (ClockPolicy::External, Some(frequencies)) => ClockState::External(frequencies),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ClockPolicy::{External, Lock, Observe, Prefer};

    #[test]
    fn observe_beats_everything() {
        for other in [None, Some(Lock), Some(Prefer), Some(External), Some(Observe)] {
            assert_eq!(stronger(other, Some(Observe)), Some(Observe));
            assert_eq!(stronger(Some(Observe), other), Some(Observe));
        }
    }

    #[test]
    #[cfg(feature = "clock-control")]
    fn the_command_line_comes_before_the_environment() {
        assert_eq!(stronger(None, None), None);
        assert_eq!(stronger(None, Some(External)), Some(External));
        assert_eq!(stronger(Some(Prefer), Some(External)), Some(Prefer));
    }

    #[test]
    #[cfg(not(feature = "clock-control"))]
    fn a_build_without_clock_control_observes() {
        assert_eq!(stronger(Some(Lock), Some(Lock)), Some(Observe));
    }

    #[test]
    fn what_is_asked_of_no_frequency_is_observed() {
        let asked = Frequencies { sm_mhz: 1500, mem_mhz: None };
        assert_eq!(hoped_for(Prefer, None), ClockState::Observed);
        assert_eq!(hoped_for(Prefer, Some(asked)), ClockState::Locked(asked));
        assert_eq!(hoped_for(External, Some(asked)), ClockState::External(asked));
        assert_eq!(hoped_for(Observe, Some(asked)), ClockState::Observed);
    }
}
