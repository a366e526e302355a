//! From when on: a date, a time, or how long ago, as people write it.

use jiff::civil::DateTime;
use jiff::{Span, Timestamp, ZonedDateTime};

/// The text says no time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SinceError {
    #[error(
        "`{0}` is no time; write a date (2026-03-01), a time (2026-03-01T04:00, or with Z or an offset behind it), or how \
         long ago (12h, 30d, 2 weeks, 3 months)"
    )]
    Unknown(String),
    #[error("`{0}` reaches beyond the times that can be told")]
    OutOfRange(String),
}

/// The moment that `text` means, seen from `now`.
///
/// A date starts when its day starts in the time zone of `now`, be it at midnight or, where the clocks are put forward just
/// then, later. Days, weeks and longer spans are those of the calendar: `1d` before 12:00 is 12:00, whether that day had 23
/// hours or 25. Hours and shorter ones are exact.
///
/// # Errors
/// It means none.
pub fn since(text: &str, now: &ZonedDateTime) -> Result<Timestamp, SinceError> {
    let text = text.trim();
    let out_of_range = |_| SinceError::OutOfRange(text.to_owned());
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    if let Ok(at) = text.parse::<DateTime>() {
        let zone = now.time_zone().clone();
        return at.to_zoned_datetime(zone).map(|at| at.timestamp()).map_err(out_of_range);
    }
    let unknown = || SinceError::Unknown(text.to_owned());
    let ago: Span = text.parse().map_err(|_| unknown())?;
    if ago.is_negative() {
        return Err(unknown());
    }
    now.checked_sub(ago).map(|at| at.timestamp()).map_err(out_of_range)
}
