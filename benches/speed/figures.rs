//! One row of the table: several measurements of one thing beside its goal.

use std::fmt;
use std::time::Instant;

/// What a figure should be.
#[derive(Debug, Clone, Copy)]
pub enum Goal {
    /// The median is at most this, in the figure's unit.
    AtMost(f64),
    /// Shown beside the others; nothing is promised.
    None,
}

/// Several measurements of one thing.
#[derive(Debug)]
pub struct Figure {
    what: String,
    values: Vec<f64>,
    unit: &'static str,
    goal: Goal,
}

impl Figure {
    /// # Panics
    /// Without any value: a bench that measured nothing is wrong.
    pub fn new(what: impl Into<String>, mut values: Vec<f64>, unit: &'static str, goal: Goal) -> Figure {
        let what = what.into();
        assert!(!values.is_empty(), "{what}: nothing was measured");
        values.sort_by(f64::total_cmp);
        Figure { what, values, unit, goal }
    }

    fn best(&self) -> f64 {
        self.values[0]
    }

    fn median(&self) -> f64 {
        let (low, high) = ((self.values.len() - 1) / 2, self.values.len() / 2);
        f64::midpoint(self.values[low], self.values[high])
    }
}

/// Heading of the rows that figures print as.
pub const HEADER: &str = "\
| what | best | median | of | goal | met |
|---|---:|---:|---:|---:|---|";

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figure { what, values, unit, goal } = self;
        let (best, median, count) = (self.best(), self.median(), values.len());
        let (goal, met) = match goal {
            Goal::AtMost(most) if median <= *most => (format!("{most} {unit}"), "yes"),
            Goal::AtMost(most) => (format!("{most} {unit}"), "**missed**"),
            Goal::None => ("--".to_owned(), "--"),
        };
        write!(f, "| {what} | {best:.1} {unit} | {median:.1} {unit} | {count} | {goal} | {met} |")
    }
}

/// Milliseconds of each of `times` calls of `action`.
pub fn repeat_ms(times: usize, mut action: impl FnMut()) -> Vec<f64> {
    (0..times)
        .map(|_| {
            let start = Instant::now();
            action();
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect()
}
