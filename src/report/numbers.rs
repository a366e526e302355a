//! Numbers as text: the only place where values are rounded, scaled to a unit or compared in words. Pure.
//!
//! - A value that was not measured, or is no number, prints [`ABSENT`], never 0.
//! - Rounding comes first, then the unit is chosen: 999.996 us is 1.00 ms.
//! - Zero has no sign.
//! - A change is the change of speed, `previous time / current time - 1` (and for a rate, which is speed already,
//!   `current / previous - 1`): "25.0% faster" and "+25.0%" say the same. It is [`change`] alone that computes one.
//!   Nothing is relative to zero.

use crate::diagnostic::plain;

/// What stands where nothing was measured.
pub const ABSENT: &str = "--";

/// The change between two sides that are one subject under two names.
pub const SAME_CODE: &str = "same code";

const NS_PER_US: f64 = 1e3;

/// `value` with `decimals` digits behind the point.
pub fn fixed(value: Option<f64>, decimals: usize) -> String {
    match value {
        Some(value) if value.is_finite() => unsigned_zero(format!("{value:.decimals$}")),
        _ => ABSENT.to_owned(),
    }
}

/// `value` with two decimals, or as many as show three digits of a smaller one (0.0123; at most 9 decimals), which are counted
/// after rounding: 0.09996 is 0.100.
pub fn three_digits(value: Option<f64>) -> String {
    // Rounded to three digits, as text, so that the exponent is that of what will be read.
    let exponent = value.filter(|value| value.is_finite() && *value != 0.0).and_then(|value| {
        let text = format!("{value:.2e}");
        text.split_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok())
    });
    fixed(value, (2 - exponent.unwrap_or(0).min(0)).min(9).unsigned_abs() as usize)
}

/// A time in microseconds, two decimals.
pub fn microseconds(ns: Option<f64>) -> String {
    fixed(ns.map(|ns| ns / NS_PER_US), 2)
}

/// FLOP/s as TFLOP/s, two decimals.
pub fn tflops(flops_per_s: Option<f64>) -> String {
    fixed(flops_per_s.map(|rate| rate / 1e12), 2)
}

/// Byte/s as GB/s (10^9), two decimals.
pub fn gb_per_s(bytes_per_s: Option<f64>) -> String {
    fixed(bytes_per_s.map(|rate| rate / 1e9), 2)
}

/// A fraction as a whole percentage, e.g. `41%`.
pub fn percent_of(fraction: Option<f64>) -> String {
    percent(fraction.map(|fraction| fraction * 100.0))
}

/// A percentage without decimals, e.g. `41%`.
pub fn percent(value: Option<f64>) -> String {
    match fixed(value, 0) {
        absent if absent == ABSENT => absent,
        number => format!("{number}%"),
    }
}

/// Change of a time: `Y% faster`, `Y% slower`, or `0.0%`.
pub fn change_of_time(previous: Option<f64>, current: Option<f64>) -> String {
    change_of_speed(change(current, previous))
}

/// A change of speed as a fraction (0.25 is a quarter faster), such as a verdict is made from: `Y% faster`, `Y% slower`,
/// or `0.0%`.
pub fn change_of_speed(fraction: Option<f64>) -> String {
    let Some(percent) = percent_number(fraction) else { return ABSENT.to_owned() };
    let magnitude = fixed(Some(percent.abs()), 1);
    match () {
        () if magnitude == "0.0" => "0.0%".to_owned(),
        () if percent > 0.0 => format!("{magnitude}% faster"),
        () => format!("{magnitude}% slower"),
    }
}

/// Change of a rate or a percentage: `+Z%`, `-Z%`, or `0.0%`.
pub fn change_of_rate(previous: Option<f64>, current: Option<f64>) -> String {
    signed_percent(change(previous, current))
}

/// A change as a fraction, with its sign: `+Z%`, `-Z%`, or `0.0%`.
pub fn signed_percent(fraction: Option<f64>) -> String {
    let Some(percent) = percent_number(fraction) else { return ABSENT.to_owned() };
    let number = fixed(Some(percent), 1);
    match () {
        () if number == "0.0" => "0.0%".to_owned(),
        () if percent > 0.0 => format!("+{number}%"),
        () => format!("{number}%"),
    }
}

/// `to / from - 1`; `None` where either is missing or not positive.
pub(super) fn change(from: Option<f64>, to: Option<f64>) -> Option<f64> {
    let (from, to) = (from.filter(|value| *value > 0.0)?, to.filter(|value| *value > 0.0)?);
    Some(to / from - 1.0)
}

fn percent_number(fraction: Option<f64>) -> Option<f64> {
    fraction.map(|fraction| fraction * 100.0).filter(|percent| percent.is_finite())
}

fn unsigned_zero(text: String) -> String {
    match text.strip_prefix('-') {
        Some(rest) if rest.bytes().all(|byte| matches!(byte, b'0' | b'.')) => rest.to_owned(),
        _ => text,
    }
}

/// Unit of time of one column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    Ns,
    Us,
    Ms,
    S,
}

impl TimeUnit {
    const LARGEST_FIRST: [TimeUnit; 4] = [TimeUnit::S, TimeUnit::Ms, TimeUnit::Us, TimeUnit::Ns];

    /// The largest unit in which the smallest positive value of the column, rounded, is at least 1.
    pub fn of_column(ns: impl IntoIterator<Item = f64>) -> TimeUnit {
        let smallest = ns.into_iter().filter(|ns| ns.is_finite() && *ns > 0.0).fold(f64::INFINITY, f64::min);
        // The text decides, as no other rounding is sure to be its own.
        let reaches_one = |unit: &TimeUnit| !unit.text(Some(smallest)).starts_with('0');
        Self::LARGEST_FIRST.into_iter().filter(|_| smallest.is_finite()).find(reaches_one).unwrap_or(TimeUnit::Ns)
    }

    /// Symbol in column heads.
    pub const fn symbol(self) -> &'static str {
        match self {
            TimeUnit::Ns => "ns",
            TimeUnit::Us => "us",
            TimeUnit::Ms => "ms",
            TimeUnit::S => "s",
        }
    }

    /// A time in this unit, two decimals, without the symbol.
    pub fn text(self, ns: Option<f64>) -> String {
        fixed(ns.map(|ns| ns / self.ns()), 2)
    }

    const fn ns(self) -> f64 {
        match self {
            TimeUnit::Ns => 1.0,
            TimeUnit::Us => 1e3,
            TimeUnit::Ms => 1e6,
            TimeUnit::S => 1e9,
        }
    }
}

/// A time by itself, with its unit: two decimals below a minute, minutes and seconds from what is rounded to one.
pub fn duration(ns: f64) -> String {
    if !ns.is_finite() {
        return ABSENT.to_owned();
    }
    let unit = TimeUnit::of_column([ns]);
    let text = unit.text(Some(ns));
    if unit != TimeUnit::S || ns < 59e9 || text.starts_with("59.") {
        return format!("{text} {}", unit.symbol());
    }
    let seconds = (ns / 1e9).round();
    format!("{:.0} min {:.0} s", (seconds / 60.0).floor(), seconds % 60.0)
}

/// A number of things: `1 run`, `2 runs`, `3 processes`.
pub fn counted(count: impl std::fmt::Display, noun: &str) -> String {
    let count = count.to_string();
    let ending = match () {
        () if count == "1" => "",
        () if noun.ends_with('s') || noun.ends_with("ch") => "es",
        () => "s",
    };
    format!("{count} {noun}{ending}")
}

/// Text for a cell of a Markdown table: on one line, with `|`, backticks and backslashes escaped.
pub fn cell(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in plain(&text.replace('\r', "")).chars() {
        match character {
            '|' | '`' | '\\' => escaped.extend(['\\', character]),
            '\n' | '\t' => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_number_is_absent() {
        for value in [None, Some(f64::NAN), Some(f64::INFINITY)] {
            assert_eq!(fixed(value, 2), "--");
            assert_eq!(percent(value), "--");
            assert_eq!(change_of_time(value, Some(1.0)), "--");
            assert_eq!(change_of_rate(Some(1.0), value), "--");
        }
    }

    #[test]
    fn zero_has_no_sign() {
        assert_eq!(fixed(Some(-0.001), 2), "0.00");
        assert_eq!(fixed(Some(-0.0), 0), "0");
        assert_eq!(fixed(Some(-0.01), 2), "-0.01");
        assert_eq!(change_of_rate(Some(1000.0), Some(999.9)), "0.0%");
        assert_eq!(change_of_time(Some(1000.0), Some(1000.1)), "0.0%");
    }

    #[test]
    fn a_change_is_one_of_speed() {
        assert_eq!(change_of_time(Some(125.0), Some(100.0)), "25.0% faster");
        assert_eq!(change_of_time(Some(100.0), Some(125.0)), "20.0% slower");
        assert_eq!(change_of_rate(Some(100.0), Some(125.0)), "+25.0%");
        assert_eq!(change_of_rate(Some(125.0), Some(100.0)), "-20.0%");
    }

    #[test]
    fn nothing_is_relative_to_zero() {
        assert_eq!(change_of_rate(Some(0.0), Some(1.0)), "--");
        assert_eq!(change_of_time(Some(1.0), Some(0.0)), "--");
    }

    #[test]
    fn rounding_comes_before_the_unit() {
        assert_eq!(TimeUnit::of_column([999_996.0]), TimeUnit::Ms);
        assert_eq!(TimeUnit::Ms.text(Some(999_996.0)), "1.00");
        assert_eq!(TimeUnit::of_column([994_000.0]), TimeUnit::Us);
        assert_eq!(TimeUnit::of_column([5e9, 2e3]), TimeUnit::Us);
        assert_eq!(TimeUnit::of_column([]), TimeUnit::Ns);
        assert_eq!(TimeUnit::of_column([f64::NAN, 0.0]), TimeUnit::Ns);
    }

    /// Half a unit of the last digit: what the text shows decides, not another way to round.
    #[test]
    fn the_unit_never_shows_less_than_one_of_itself() {
        assert_eq!(TimeUnit::of_column([995_000.0]).text(Some(995_000.0)), "995.00");
        assert_eq!(duration(994_900.0), "994.90 us");
        assert_eq!(duration(999_600.0), "1.00 ms");
        assert_eq!(duration(999.6), "1.00 us");
        assert_eq!(duration(0.4), "0.40 ns");
    }

    #[test]
    fn minutes_begin_where_seconds_are_rounded_to_sixty() {
        assert_eq!(duration(59_994_000_000.0), "59.99 s");
        assert_eq!(duration(59_996_000_000.0), "1 min 0 s");
        assert_eq!(duration(60e9), "1 min 0 s");
        assert_eq!(duration(119.6e9), "2 min 0 s");
        assert_eq!(duration(f64::INFINITY), "--");
        assert_eq!(duration(f64::NAN), "--");
    }

    #[test]
    fn a_verdicts_effect_reads_like_the_change_of_its_times() {
        assert_eq!(change_of_speed(Some(125.0 / 100.0 - 1.0)), change_of_time(Some(125.0), Some(100.0)));
        assert_eq!(change_of_speed(Some(-0.2)), "20.0% slower");
        assert_eq!(change_of_speed(Some(0.0004)), "0.0%");
        assert_eq!(change_of_speed(Some(-0.0004)), "0.0%");
        assert_eq!(change_of_speed(None), "--");
        assert_eq!(change_of_speed(Some(f64::NAN)), "--");
    }

    #[test]
    fn small_values_keep_three_digits() {
        assert_eq!(three_digits(Some(0.099_96)), "0.100");
        assert_eq!(three_digits(Some(0.999_6)), "1.00");
        assert_eq!(three_digits(Some(-0.001)), "-0.00100");
        assert_eq!(three_digits(Some(1e-30)), "0.000000000");
        assert_eq!(three_digits(Some(1234.5)), "1234.50");
        assert_eq!(three_digits(Some(0.012_345)), "0.0123");
        assert_eq!(three_digits(Some(12.345)), "12.35");
        assert_eq!(three_digits(Some(0.0)), "0.00");
    }

    #[test]
    fn one_thing_has_no_plural() {
        assert_eq!(counted(1, "run"), "1 run");
        assert_eq!(counted(0, "run"), "0 runs");
        assert_eq!(counted(2, "process"), "2 processes");
        assert_eq!(counted(21_u64, "launch"), "21 launches");
    }

    #[test]
    fn cells_stay_on_one_line() {
        assert_eq!(cell("a|b `c`\r\nd\\"), "a\\|b \\`c\\` d\\\\");
    }

    proptest! {
        #[test]
        fn a_time_is_shown_in_the_largest_unit_that_it_reaches(ns in 1e-3..1e13_f64) {
            let text = duration(ns);
            let (number, unit) = text.split_once(' ').unwrap();
            let number: f64 = number.parse().unwrap();
            prop_assert!(number >= 1.0 || unit == "ns", "{text}");
            prop_assert!(number < 1000.0 || unit.starts_with("min"), "{text}");
        }

        #[test]
        fn no_text_shows_nan_or_minus_zero(value in prop::num::f64::ANY, other in prop::num::f64::ANY) {
            for text in [
                fixed(Some(value), 2),
                three_digits(Some(value)),
                percent_of(Some(value)),
                duration(value),
                change_of_speed(Some(value)),
                change_of_time(Some(value), Some(other)),
                change_of_rate(Some(value), Some(other)),
            ] {
                prop_assert!(!text.contains("NaN") && !text.contains("inf"), "{}", text);
                let is_signed_zero = text.starts_with('-') && text != ABSENT && !text.contains(|c| matches!(c, '1'..='9'));
                prop_assert!(!is_signed_zero, "{}", text);
            }
        }
    }
}
