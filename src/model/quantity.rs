//! Numbers with units as profilers print them, brought to base units: what can be calculated with, and what cannot.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A unit in base form, such as `byte/s` or `%`: times in nanoseconds, rates a second, clocks in hertz, no prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Unit {
    of: Base,
    per: Option<Base>,
}

impl Unit {
    /// A plain count.
    pub const ONE: Unit = Unit::of(Base::One);
    pub const PERCENT: Unit = Unit::of(Base::Percent);
    pub const NANOSECOND: Unit = Unit::of(Base::Nanosecond);
    pub const HERTZ: Unit = Unit::of(Base::Hertz);
    pub const BYTE: Unit = Unit::of(Base::Byte);
    pub const BYTE_PER_SECOND: Unit = Unit { of: Base::Byte, per: Some(Base::Second) };

    const fn of(base: Base) -> Unit {
        Unit { of: base, per: None }
    }

    /// The unit that `text` spells, and how many of its base form one of it is: `Kbyte/ns` is 10^12 `byte/s`.
    /// `None` for a unit that is not known.
    pub fn parse(text: &str) -> Option<(Unit, f64)> {
        let Some((of, per)) = text.split_once('/') else {
            return base(text).map(|(base, scale)| (Unit::of(base), scale));
        };
        let ((of, scale), (per, divisor)) = (base(of)?, base(per)?);
        match (of, per) {
            (Base::Nanosecond | Base::One, _) | (_, Base::One | Base::Percent) => None,
            (Base::Cycle, Base::Nanosecond) => Some((Unit::HERTZ, scale * (NS_PER_S / divisor))),
            (of, Base::Nanosecond) => Some((Unit { of, per: Some(Base::Second) }, scale * (NS_PER_S / divisor))),
            (of, per) => Some((Unit { of, per: Some(per) }, scale / divisor)),
        }
    }
}

const NS_PER_S: f64 = 1e9;

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.of.name())?;
        self.per.map_or(Ok(()), |per| write!(f, "/{}", per.name()))
    }
}

impl From<Unit> for String {
    fn from(unit: Unit) -> String {
        unit.to_string()
    }
}

impl TryFrom<String> for Unit {
    type Error = String;

    /// Accepts base forms alone: a stored number is never scaled.
    fn try_from(text: String) -> Result<Unit, String> {
        match Unit::parse(&text) {
            Some((unit, 1.0)) => Ok(unit),
            Some((unit, _)) => Err(format!("`{text}` is not in base form; write `{unit}`")),
            None => Err(format!("`{text}` is no unit that mlarun knows")),
        }
    }
}

/// What a unit is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Base {
    One,
    Percent,
    Nanosecond,
    /// Only below the line: rates are a second, durations in nanoseconds.
    Second,
    Hertz,
    Byte,
    Cycle,
    Counted(&'static str),
}

impl Base {
    const fn name(self) -> &'static str {
        match self {
            Base::One => "",
            Base::Percent => "%",
            Base::Nanosecond => "ns",
            Base::Second => "s",
            Base::Hertz => "hz",
            Base::Byte => "byte",
            Base::Cycle => "cycle",
            Base::Counted(name) => name,
        }
    }
}

/// Things that are counted, and never have a prefix.
const COUNTED: [&str; 12] =
    ["block", "branch", "cluster", "inst", "pass", "register", "request", "sample", "sector", "SM", "thread", "warp"];

/// The base that `text` names, with its prefix or plural if it has one, and its scale. Prefixes are powers of 1000.
fn base(text: &str) -> Option<(Base, f64)> {
    let fixed = match text {
        "" => Some((Base::One, 1.0)),
        "%" => Some((Base::Percent, 1.0)),
        "s" | "second" => Some((Base::Nanosecond, NS_PER_S)),
        "ms" | "msecond" => Some((Base::Nanosecond, 1e6)),
        "us" | "usecond" => Some((Base::Nanosecond, 1e3)),
        "ns" | "nsecond" => Some((Base::Nanosecond, 1.0)),
        "cycle" | "cycles" => Some((Base::Cycle, 1.0)),
        _ => None,
    };
    if fixed.is_some() {
        return fixed;
    }
    let singular = match text {
        "branches" => "branch",
        "passes" => "pass",
        _ => text.strip_suffix('s').unwrap_or(text),
    };
    if let Some(name) = COUNTED.into_iter().find(|name| [text, singular].contains(name)) {
        return Some((Base::Counted(name), 1.0));
    }
    let (prefix, rest) = match text.split_at_checked(1)? {
        (prefix @ ("K" | "M" | "G" | "T" | "P"), rest) => (prefix, rest),
        _ => ("", text),
    };
    let base = match rest {
        "byte" | "bytes" => Base::Byte,
        "hz" | "Hz" => Base::Hertz,
        _ => return None,
    };
    let scale = match prefix {
        "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        _ => 1.0,
    };
    Some((base, scale))
}

/// What a profiler delivered under one name. Only [`Reading::Number`] can be calculated with, and nothing missing is a zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    /// In base units.
    Number { value: f64, unit: Unit },
    /// A number in a unit that mlarun does not know, both as printed.
    UnknownUnit { text: String, unit: String },
    /// A property that is no number, such as the name of a device.
    Text { text: String },
    /// Not delivered, or not as one unambiguous number.
    Absent { reason: String },
}

impl Reading {
    /// The number, if it is one and has this unit.
    pub fn in_unit(&self, unit: Unit) -> Option<f64> {
        match self {
            Reading::Number { value, unit: own } if *own == unit => Some(*value),
            _ => None,
        }
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reading::Number { value, unit: Unit::PERCENT } => write!(f, "{value}%"),
            Reading::Number { value, unit: Unit::ONE } => write!(f, "{value}"),
            Reading::Number { value, unit } => write!(f, "{value} {unit}"),
            Reading::UnknownUnit { text, unit } => write!(f, "{text} {unit}"),
            Reading::Text { text } => f.write_str(text),
            Reading::Absent { reason } => write!(f, "absent: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Option<(String, f64)> {
        Unit::parse(text).map(|(unit, scale)| (unit.to_string(), scale))
    }

    #[test]
    fn units_come_to_their_base_form() {
        for (text, unit, scale) in [
            ("", "", 1.0),
            ("%", "%", 1.0),
            ("ns", "ns", 1.0),
            ("us", "ns", 1e3),
            ("msecond", "ns", 1e6),
            ("s", "ns", 1e9),
            ("hz", "hz", 1.0),
            ("Ghz", "hz", 1e9),
            ("cycle/nsecond", "hz", 1e9),
            ("Kbyte", "byte", 1e3),
            ("Tbyte/s", "byte/s", 1e12),
            ("Gbyte/second", "byte/s", 1e9),
            ("sector/ns", "sector/s", 1e9),
            ("Kbyte/block", "byte/block", 1e3),
            ("%/Kbyte", "%/byte", 1e-3),
            ("inst/cycle", "inst/cycle", 1.0),
            ("branches", "branch", 1.0),
            ("sectors", "sector", 1.0),
            ("SM", "SM", 1.0),
        ] {
            let (found, factor) = parsed(text).unwrap_or_else(|| panic!("`{text}` is unknown"));
            assert_eq!(found, unit, "{text}");
            assert_eq!(factor, scale, "{text}");
        }
    }

    #[test]
    fn what_is_no_unit_is_not_guessed() {
        for text in ["furlong", "kbyte", "KiB", "mbyte", "Kwarp", "byte/", "/s", "s/cycle", "byte/byte/s", "é", "B"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn a_stored_unit_is_in_base_form() {
        let reading = Reading::Number { value: 2.5, unit: Unit::BYTE_PER_SECOND };
        let text = serde_json::to_string(&reading).expect("it can be written");
        assert_eq!(text, r#"{"number":{"value":2.5,"unit":"byte/s"}}"#);
        assert_eq!(serde_json::from_str::<Reading>(&text).expect("it can be read"), reading);
        let error = serde_json::from_str::<Reading>(&text.replace("byte", "Mbyte")).expect_err("a prefix").to_string();
        assert!(error.contains("`Mbyte/s` is not in base form; write `byte/s`"), "{error}");
    }

    #[test]
    fn only_a_number_in_the_right_unit_can_be_calculated_with() {
        assert_eq!(Reading::Number { value: 2.0, unit: Unit::BYTE }.in_unit(Unit::BYTE), Some(2.0));
        assert_eq!(Reading::Number { value: 2.0, unit: Unit::BYTE }.in_unit(Unit::PERCENT), None);
        assert_eq!(Reading::UnknownUnit { text: "2".to_owned(), unit: "x".to_owned() }.in_unit(Unit::ONE), None);
        assert_eq!(Reading::Absent { reason: "n/a".to_owned() }.in_unit(Unit::ONE), None);
    }

    proptest! {
        #[test]
        fn any_text_is_a_unit_or_none(text in ".{0,12}") {
            if let Some((unit, scale)) = Unit::parse(&text) {
                prop_assert!(scale.is_finite() && scale > 0.0);
                prop_assert_eq!(Unit::parse(&unit.to_string()), Some((unit, 1.0)));
            }
        }
    }
}
