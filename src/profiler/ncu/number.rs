//! Numbers as Nsight Compute prints them under LC_ALL=C: thousands separated by commas, decimals by a point. Anything that
//! could be read in two ways is refused.

use crate::model::quantity::{Reading, Unit};

/// What stands in a cell, in the unit that the tool gives for it.
pub fn reading(text: &str, unit: &str) -> Reading {
    let text = text.trim();
    if let Some(reason) = absent(text) {
        return Reading::Absent { reason };
    }
    match (number(text), Unit::parse(unit)) {
        (Some(value), Some((unit, scale))) => Reading::Number { value: value * scale, unit },
        (Some(_), None) => Reading::UnknownUnit { text: text.to_owned(), unit: unit.to_owned() },
        (None, _) if unit.is_empty() && !is_numeric(text) => Reading::Text { text: text.to_owned() },
        (None, _) => Reading::Absent { reason: format!("`{text}` is no unambiguous number") },
    }
}

/// Why there is nothing in a cell.
fn absent(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    match lower.trim_start_matches("(!)").trim().trim_start_matches(['+', '-']) {
        "" => Some("empty".to_owned()),
        "n/a" => Some("n/a".to_owned()),
        "no data" => Some("no data".to_owned()),
        "nan" | "inf" | "infinity" => Some(format!("`{text}` is no number")),
        _ => None,
    }
}

/// The number that `text` spells in exactly one way: `1,234.5`, `-3`, `1.5e-05`; not `1,5`, `0,123` or `1.234.567`.
pub fn number(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).map_or((unsigned, None), |(m, e)| (m, Some(e)));
    if exponent.is_some_and(|exponent| !is_digits(exponent.trim_start_matches(['+', '-'])) || mantissa.contains(',')) {
        return None;
    }
    let (whole, decimals) = mantissa.split_once('.').map_or((mantissa, None), |(whole, rest)| (whole, Some(rest)));
    if decimals.is_some_and(|decimals| !is_digits(decimals)) || !is_whole(whole) {
        return None;
    }
    let plain: String = text.chars().filter(|&character| character != ',').collect();
    plain.parse().ok().filter(|value: &f64| value.is_finite())
}

/// The whole number that `text` spells, with or without separators.
pub fn integer(text: &str) -> Option<u64> {
    let text = text.trim();
    is_whole(text).then(|| text.replace(',', "").parse().ok())?
}

/// Digits, plain or in groups of three of which the first has one to three and does not start with 0.
fn is_whole(text: &str) -> bool {
    let mut groups = text.split(',');
    let first = groups.next().unwrap_or_default();
    let grouped = text.contains(',');
    is_digits(first)
        && (!grouped || first.len() <= 3 && !first.starts_with('0'))
        && groups.all(|group| group.len() == 3 && is_digits(group))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether `text` is made as numbers are, readable or not.
fn is_numeric(text: &str) -> bool {
    let made_so = text.chars().all(|character| character.is_ascii_digit() || ",.+-eE'".contains(character));
    made_so && text.contains(|character: char| character.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn separators_are_understood() {
        for (text, value) in [
            ("0", 0.0),
            ("458", 458.0),
            ("1,234", 1234.0),
            ("1,812,757,929.30", 1_812_757_929.3),
            ("-3.5", -3.5),
            ("1234567.25", 1_234_567.25),
            ("1.5e-05", 1.5e-5),
            ("2E+3", 2000.0),
        ] {
            assert_eq!(number(text), Some(value), "{text}");
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for text in [
            "1,5",
            "0,123",
            "12,34",
            "1,2345",
            "1234,567",
            ",123",
            "1,",
            "1.234.567",
            "1.234,5",
            "1.",
            ".5",
            "1'234",
            "--1",
            "+1",
            "1 234",
            "1,234e3",
            "1e",
            "1e999",
            "",
            "0x10",
            "１",
        ] {
            assert_eq!(number(text), None, "{text}");
            assert!(!matches!(reading(text, "%"), Reading::Number { .. }), "{text}");
        }
        let refused = Reading::Absent { reason: "`1,5` is no unambiguous number".to_owned() };
        assert_eq!(reading("1,5", "%"), refused);
        assert_eq!(reading("1,5", ""), refused, "not a text either");
    }

    #[test]
    fn units_scale_and_unknown_ones_do_not() {
        assert_eq!(reading("77.12", "us"), Reading::Number { value: 77.12 * 1e3, unit: Unit::NANOSECOND });
        assert_eq!(reading("3.5", "Ghz"), Reading::Number { value: 3.5e9, unit: Unit::HERTZ });
        let unknown = Reading::UnknownUnit { text: "1,000".to_owned(), unit: "furlong".to_owned() };
        assert_eq!(reading("1,000", "furlong"), unknown);
    }

    #[test]
    fn nothing_missing_is_a_zero() {
        for text in ["", " ", "n/a", "N/A", "(!) n/a", "nan", "-nan", "inf", "-inf", "no data"] {
            assert!(matches!(reading(text, "%"), Reading::Absent { .. }), "{text}");
            assert!(matches!(reading(text, ""), Reading::Absent { .. }), "{text}");
        }
        assert_eq!(reading("PolicySpread", ""), Reading::Text { text: "PolicySpread".to_owned() });
    }

    #[test]
    fn whole_numbers_are_no_others() {
        assert_eq!(integer("1,024"), Some(1024));
        assert_eq!(integer(" 7 "), Some(7));
        for text in ["", "-1", "1.0", "1e3", "18446744073709551616", "1,02"] {
            assert_eq!(integer(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read(value in -1_000_000_000_000_i64..1_000_000_000_000) {
            let digits = value.unsigned_abs().to_string();
            let mut grouped = String::new();
            for (index, digit) in digits.chars().enumerate() {
                if index > 0 && (digits.len() - index) % 3 == 0 {
                    grouped.push(',');
                }
                grouped.push(digit);
            }
            let sign = if value < 0 { "-" } else { "" };
            prop_assert_eq!(number(&format!("{sign}{grouped}")), Some(value as f64));
        }

        #[test]
        fn any_cell_has_a_reading(text in ".{0,20}", unit in ".{0,8}") {
            if let Reading::Number { value, .. } = reading(&text, &unit) {
                prop_assert!(value.is_finite());
            }
        }
    }
}
