//! Where points lie: a linear axis of time with ticks of the calendar, and one of values with round ticks.

use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan as _, ZonedDateTime};

use super::{Metric, Series};
use crate::report::numbers::{TimeUnit, three_digits};

/// Lowest and highest number of an axis, the one above the other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    pub from: f64,
    pub to: f64,
}

impl Range {
    /// What holds all of these numbers, with a margin; `None` where there are none.
    pub fn around(values: impl Iterator<Item = f64>) -> Option<Range> {
        let (from, to) =
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        // Values that are all one still want room: a hundredth of them, or 1 around zero.
        let room = match () {
            () if !(from.is_finite() && to.is_finite()) => return None,
            () if to > from => (to - from) * 0.08,
            () if from == 0.0 => 1.0,
            () => from.abs() * 0.01,
        };
        Some(Range { from: from - room, to: to + room })
    }

    /// 0 at the lower end, 1 at the upper one.
    pub fn place(&self, value: f64) -> f64 {
        ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0)
    }
}

/// The time that all of these series cover.
#[derive(Debug, Clone, PartialEq)]
pub struct Period {
    pub from: Timestamp,
    pub to: Timestamp,
}

impl Period {
    /// `None` without a point.
    pub fn of<'s>(series: impl Iterator<Item = &'s Series>) -> Option<Period> {
        let times: Vec<Timestamp> =
            series.flat_map(|series| series.points.iter().map(|point| point.taken_at)).collect();
        Some(Period { from: times.iter().copied().min()?, to: times.iter().copied().max()? })
    }

    /// 0 at its start, 1 at its end; a single moment lies in the middle.
    pub fn place(&self, at: Timestamp) -> f64 {
        let seconds = |from: Timestamp, to: Timestamp| to.duration_since(from).as_secs_f64();
        let whole = seconds(self.from, self.to);
        if whole > 0.0 { (seconds(self.from, at) / whole).clamp(0.0, 1.0) } else { 0.5 }
    }

    /// Round moments of the calendar in it, at most `most` of them, with their texts. Steps are of the calendar, so that days
    /// of 23 and of 25 hours have their ticks at midnight like any other.
    pub fn ticks(&self, zone: &TimeZone, most: usize) -> Vec<(Timestamp, String)> {
        let from = self.from.to_zoned_datetime(zone.clone());
        steps()
            .map(|(step, form)| self.ticks_of(&from, step, form))
            .find(|ticks| ticks.len() <= most)
            .unwrap_or_default()
    }

    fn ticks_of(&self, from: &ZonedDateTime, step: Span, form: &str) -> Vec<(Timestamp, String)> {
        /// More than any axis has room for: a finer step is not looked at further.
        const MANY: usize = 100;
        let start = from.start_of_day();
        let ticks = (0_i64..).map_while(|number| {
            // From the start each time: adding months one by one would stick to the shortest one's last day.
            let at = start.as_ref().ok()?.checked_add(step.checked_mul(number).ok()?).ok()?;
            (at.timestamp() <= self.to).then_some(at)
        });
        let within = ticks.skip_while(|at| at.timestamp() < self.from).take(MANY);
        within.map(|at| (at.timestamp(), at.strftime(form).to_string())).collect()
    }
}

/// Steps between ticks, the smallest first, with the form of their texts.
fn steps() -> impl Iterator<Item = (Span, &'static str)> {
    let hours = [1, 3, 6].map(|hours| (hours.hours(), "%m-%d %H:%M"));
    let days = [1, 2, 7, 14].map(|days| (days.days(), "%Y-%m-%d"));
    let months = [1, 3, 6, 12, 60, 240, 1200].map(|months| (months.months(), "%Y-%m-%d"));
    hours.into_iter().chain(days).chain(months)
}

/// Round numbers in `range`, at most ten.
pub fn value_ticks(range: &Range) -> Vec<f64> {
    let step = crate::timeline::step(range.to - range.from);
    let first = (range.from / step).ceil();
    let ticks = (0..=10).map(|number| (first + f64::from(number)) * step);
    ticks.take_while(|tick| *tick <= range.to).collect()
}

/// How values of one plot are written: all in one unit.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    /// `None` for what is no time.
    time: Option<TimeUnit>,
    symbol: &'static str,
}

impl Form {
    /// The form that suits these numbers of `metric`.
    pub fn of(metric: &Metric, values: impl IntoIterator<Item = f64>) -> Form {
        let time = metric.is_time().then(|| TimeUnit::of_column(values));
        Form { time, symbol: time.map_or(metric.unit(), TimeUnit::symbol) }
    }

    /// The unit; nothing where there is none.
    pub const fn symbol(&self) -> &'static str {
        self.symbol
    }

    /// `value` without its unit.
    pub fn text(&self, value: f64) -> String {
        match self.time {
            Some(unit) => unit.text(Some(value)),
            None if value != 0.0 && value.abs() < 1e-3 => format!("{value:.2e}"),
            None => three_digits(Some(value)),
        }
    }
}
