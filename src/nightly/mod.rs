//! Nights: what is measured next, within which budget, when a slower kernel becomes an alarm, and what a night's report says.
//! Pure: measuring, keeping and telling the time are a [`Host`]'s; docs/nightly.md explains the rules.

mod alarm;
mod drift;
mod night;
mod order;
mod report;
mod state;
#[cfg(test)]
mod tests;

pub use alarm::{Alarm, Alert, MOST_UNDECIDED};
pub use drift::Drift;
pub use night::{Begun, Host, Measured, begin, finish, run};
pub use order::{Choice, Offer, Rank, Why, queue};
pub use report::{Report, Row};
pub use state::{Circumstances, Observation, Outcome, Situation, State, Subject, Tonight, Track, VERSION};
