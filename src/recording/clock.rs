//! Time as a recording knows it: it stands still between answers.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use crate::execute::Clock;

/// Shows the time of the last answer, in the session that is recorded as in its replay.
#[derive(Debug)]
pub struct AnswerClock(Mutex<(Timestamp, Duration)>);

impl AnswerClock {
    pub fn starting_at(time: Timestamp) -> AnswerClock {
        AnswerClock(Mutex::new((time, Duration::ZERO)))
    }

    pub fn set(&self, time: Timestamp, elapsed: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (time, elapsed);
    }

    fn get(&self) -> (Timestamp, Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for AnswerClock {
    fn now(&self) -> Timestamp {
        self.get().0
    }

    fn elapsed(&self) -> Duration {
        self.get().1
    }
}
