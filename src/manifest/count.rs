//! How many points a product of axes has, exactly, however many. Pure.

use std::fmt;

/// A natural number of any size: base 10^9, least significant digit first, without leading zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count(Vec<u32>);

const BASE: u64 = 1_000_000_000;

impl Count {
    /// Zero.
    pub fn zero() -> Count {
        Count(Vec::new())
    }

    /// The product of `lengths`; 1 without any.
    pub fn product(lengths: impl IntoIterator<Item = usize>) -> Count {
        lengths.into_iter().fold(Count(vec![1]), |count, length| count.times(length as u64))
    }

    fn times(self, factor: u64) -> Count {
        let mut carry = 0u128;
        let mut digits = Vec::with_capacity(self.0.len() + 2);
        for digit in self.0 {
            carry += u128::from(digit) * u128::from(factor);
            digits.push((carry % u128::from(BASE)) as u32);
            carry /= u128::from(BASE);
        }
        while carry > 0 {
            digits.push((carry % u128::from(BASE)) as u32);
            carry /= u128::from(BASE);
        }
        while digits.last() == Some(&0) {
            digits.pop();
        }
        Count(digits)
    }

    /// The sum of both.
    pub fn plus(self, other: &Count) -> Count {
        let mut carry = 0u64;
        let mut digits = Vec::with_capacity(self.0.len().max(other.0.len()) + 1);
        for index in 0..self.0.len().max(other.0.len()) {
            let digit = |count: &Count| u64::from(count.0.get(index).copied().unwrap_or(0));
            carry += digit(&self) + digit(other);
            digits.push((carry % BASE) as u32);
            carry /= BASE;
        }
        if carry > 0 {
            digits.push(carry as u32);
        }
        Count(digits)
    }

    /// The number, if it is at most `limit`.
    pub fn at_most(&self, limit: usize) -> Option<usize> {
        let number = self.0.iter().rev().try_fold(0u128, |number, &digit| {
            number.checked_mul(u128::from(BASE)).map(|number| number + u128::from(digit))
        });
        number.and_then(|number| usize::try_from(number).ok()).filter(|&number| number <= limit)
    }
}

/// Groups of three digits: `1,234,567`.
impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = |&digit: &u32| [digit / 1_000_000, digit / 1000 % 1000, digit % 1000];
        let groups: Vec<u32> = self.0.iter().rev().flat_map(parts).skip_while(|&group| group == 0).collect();
        let Some((first, rest)) = groups.split_first() else { return f.write_str("0") };
        write!(f, "{first}")?;
        rest.iter().try_for_each(|group| write!(f, ",{group:03}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn products_are_exact_beyond_128_bits() {
        assert_eq!(Count::product([10; 40]).to_string(), format!("10{}", ",000".repeat(13)));
        assert_eq!(Count::product([]).to_string(), "1");
        assert_eq!(Count::product([3, 0, 7]).to_string(), "0");
        assert_eq!(Count::product([1_000_000_001, 2]).to_string(), "2,000,000,002");
        assert_eq!(Count::product([usize::MAX, 1]).to_string(), "18,446,744,073,709,551,615");
        assert_eq!(Count::product([usize::MAX, usize::MAX]).at_most(usize::MAX), None);
        assert_eq!(Count::product([1000, 1000]).at_most(1_000_000), Some(1_000_000));
        assert_eq!(Count::product([1000, 1001]).at_most(1_000_000), None);
    }

    proptest! {
        #[test]
        fn small_numbers_agree_with_the_machine(a in 0usize..1 << 31, b in 0usize..1 << 31, c in 0usize..1 << 31) {
            let count = Count::product([a, b]).plus(&Count::product([c]));
            let expected = a as u128 * b as u128 + c as u128;
            prop_assert_eq!(count.to_string().replace(',', ""), expected.to_string());
            prop_assert_eq!(count.at_most(usize::MAX).map(|n| n as u128), Some(expected));
        }
    }
}
