//! Which rows of an output are compared. A row is a vector along the last dimension. Pure.

use std::collections::BTreeSet;

use super::inputs::counter;

/// Indices of the rows to compare, ascending, for an output of the dimensions `dims`.
///
/// All rows when `max_rows` is `None` or not smaller than their number. Otherwise the first and the last row, for
/// three or more dimensions a random row of every index of the second one, and then random rows until there are
/// `max_rows`; what must be included is even where that makes more.
pub fn sampled(dims: &[u64], max_rows: Option<u64>, seed: u64) -> Vec<u64> {
    let total: u64 = if dims.contains(&0) { 0 } else { dims.iter().rev().skip(1).product() };
    let Some(max_rows) = max_rows.filter(|&max_rows| max_rows < total) else {
        return (0..total).collect();
    };
    let mut draws = (0..).map(|index| counter(seed, index));
    let mut draw = |below: u64| draws.next().map_or(0, |number| number % below);
    let mut rows = BTreeSet::from([0, total - 1]);
    if let [first, second, rest @ .., _] = dims {
        let inner: u64 = rest.iter().product();
        if dims.len() >= 3 {
            rows.extend((0..*second).map(|index| (draw(*first) * second + index) * inner + draw(inner)));
        }
    }
    while (rows.len() as u64) < max_rows {
        rows.insert(draw(total));
    }
    rows.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn all_rows_when_they_are_few() {
        assert_eq!(sampled(&[2, 3, 4], None, 1), [0, 1, 2, 3, 4, 5]);
        assert_eq!(sampled(&[2, 3, 4], Some(6), 1), [0, 1, 2, 3, 4, 5]);
        assert_eq!(sampled(&[7], Some(1), 1), [0]);
        assert!(sampled(&[2, 0, 4], Some(1), 1).is_empty());
    }

    proptest! {
        #[test]
        fn the_sample_holds_both_ends_and_every_head(
            dims in proptest::collection::vec(1u64..9, 3..5), max in 1u64..300, seed: u64,
        ) {
            let total: u64 = dims[..dims.len() - 1].iter().product();
            let rows = sampled(&dims, Some(max), seed);
            prop_assert!(rows.is_sorted_by(|a, b| a < b));
            prop_assert!(rows.first() == Some(&0) && rows.last() == Some(&(total - 1)));
            let inner: u64 = dims[2..dims.len() - 1].iter().product();
            let heads: BTreeSet<u64> = rows.iter().map(|row| row / inner % dims[1]).collect();
            prop_assert_eq!(heads.len() as u64, dims[1]);
            prop_assert!(rows.len() as u64 <= max.min(total).max(2 + dims[1]));
            prop_assert!(rows.len() as u64 >= max.min(total));
            prop_assert_eq!(&rows, &sampled(&dims, Some(max), seed));
        }
    }
}
