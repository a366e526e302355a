//! Sets of times: half-open intervals that are sorted and apart from one another.

/// Times at which something ran, in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Intervals(Vec<(u64, u64)>);

impl Intervals {
    /// The union of these intervals; those that end where they start, or before, are none.
    pub fn union(intervals: impl IntoIterator<Item = (u64, u64)>) -> Intervals {
        let mut sorted: Vec<_> = intervals.into_iter().filter(|(start, end)| start < end).collect();
        sorted.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (start, end) in sorted {
            match merged.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        Intervals(merged)
    }

    /// How long something ran.
    pub fn total_ns(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// From the first start to the last end; `None` where nothing ran.
    pub fn span(&self) -> Option<(u64, u64)> {
        Some((self.0.first()?.0, self.0.last()?.1))
    }

    /// How long both ran.
    pub fn beside_ns(&self, other: &Intervals) -> u64 {
        let (mut mine, mut theirs, mut beside) = (0, 0, 0);
        while let (Some(a), Some(b)) = (self.0.get(mine), other.0.get(theirs)) {
            beside += a.1.min(b.1).saturating_sub(a.0.max(b.0));
            if a.1 <= b.1 { mine += 1 } else { theirs += 1 }
        }
        beside
    }

    /// The times between the first start and the last end at which nothing ran.
    pub fn gaps(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.windows(2).map(|pair| (pair[0].1, pair[1].0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_touches_is_one() {
        let union = Intervals::union([(5, 9), (1, 3), (3, 4), (8, 12), (20, 20), (7, 6)]);
        assert_eq!(union, Intervals(vec![(1, 4), (5, 12)]));
        assert_eq!((union.total_ns(), union.span()), (10, Some((1, 12))));
        assert_eq!(union.gaps().collect::<Vec<_>>(), [(4, 5)]);
        assert_eq!(Intervals::default().span(), None);
    }

    fn any_set() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((0_u64..60, 0_u64..60), 0..12)
    }

    /// Whether something runs in the nanosecond from `at` on.
    fn runs(set: &[(u64, u64)], at: u64) -> bool {
        set.iter().any(|&(start, end)| start <= at && at < end)
    }

    proptest! {
        #[test]
        fn sets_are_what_counting_every_nanosecond_says(one in any_set(), other in any_set()) {
            let (a, b) = (Intervals::union(one.clone()), Intervals::union(other.clone()));
            prop_assert_eq!(a.total_ns(), (0..60).filter(|&at| runs(&one, at)).count() as u64);
            let both = (0..60).filter(|&at| runs(&one, at) && runs(&other, at)).count() as u64;
            prop_assert_eq!(a.beside_ns(&b), both);
            prop_assert_eq!(a.beside_ns(&b), b.beside_ns(&a));
            prop_assert_eq!(a.beside_ns(&a), a.total_ns());
            let gaps: u64 = a.gaps().map(|(start, end)| end - start).sum();
            prop_assert_eq!(a.span().map(|(start, end)| end - start), a.span().map(|_| a.total_ns() + gaps));
        }
    }
}
