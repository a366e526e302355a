//! Compares an output with reference rows. Pure: numbers in, verdict out.

use super::buffers::element_name;
use super::element::Elements;
use super::reference::ReferenceRows;
use crate::model::pipeline::{Buffer, Tolerance};
use crate::model::protocol::{Failure, FailureKind};

/// How far an accepted output is from the reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Agreement {
    pub relative_frobenius: f64,
    pub worst_row: f64,
    pub worst_row_index: u64,
}

/// Checks that the reference can tell a right output from a trivial one.
///
/// # Errors
/// [`FailureKind::CannotTell`] when the reference is not finite, has no row, is zero, or is so close to one constant
/// that this constant would pass.
pub fn check_telling(reference: &ReferenceRows, tolerance: &Tolerance) -> Result<(), Failure> {
    let cannot_tell = |why: &str| Failure {
        kind: FailureKind::CannotTell,
        stage: None,
        message: format!(
            "the check cannot tell a right output from a wrong one: {why}; change the inputs or the shape"
        ),
    };
    if reference.values.is_empty() {
        return Err(cannot_tell("no row is compared"));
    }
    if !reference.values.iter().all(|value| value.is_finite()) {
        return Err(cannot_tell("the reference is not finite"));
    }
    let mean = reference.values.iter().sum::<f64>() / reference.values.len() as f64;
    for (constant, what) in [(0.0, "an output of zeros"), (mean, "a constant output")] {
        if Errors::new(reference, |_| constant).within(tolerance) {
            return Err(cannot_tell(&format!("{what} would pass")));
        }
    }
    Ok(())
}

/// Compares the rows of `output` with the reference.
///
/// # Errors
/// [`FailureKind::WrongOutput`] with the errors, the rows that exceed their limit, and the first element that differs.
pub fn compare(
    buffer: &Buffer,
    output: Elements<'_>,
    reference: &ReferenceRows,
    tolerance: &Tolerance,
) -> Result<Agreement, Failure> {
    let errors = Errors::new(reference, |index| output.get(index));
    if errors.within(tolerance) {
        let (position, worst_row) = errors.worst();
        let worst_row_index = reference.rows.get(position).copied().unwrap_or(0);
        return Ok(Agreement { relative_frobenius: errors.frobenius, worst_row, worst_row_index });
    }
    let message = describe(buffer, output, reference, tolerance, &errors);
    Err(Failure { kind: FailureKind::WrongOutput, stage: None, message })
}

/// Relative errors of an output.
struct Errors {
    /// ‖out − ref‖₂ / ‖ref‖₂ over all compared rows; 0/0 counts as 0.
    frobenius: f64,
    /// Of each compared row; see [`Tolerance::relative_row`].
    rows: Vec<f64>,
}

impl Errors {
    fn new(reference: &ReferenceRows, output: impl Fn(usize) -> f64) -> Errors {
        let square = |value: f64| value * value;
        let sums: Vec<(f64, f64)> = reference
            .iter()
            .map(|(row, values)| {
                let first = row as usize * reference.columns;
                values.iter().zip(first..).fold((0.0, 0.0), |(difference, norm), (value, index)| {
                    (difference + square(output(index) - value), norm + square(*value))
                })
            })
            .collect();
        let total = |part: fn(&(f64, f64)) -> f64| sums.iter().map(part).sum::<f64>();
        let (difference, norm) = (total(|sum| sum.0), total(|sum| sum.1));
        let floor = 0.1 * (norm / sums.len().max(1) as f64).sqrt();
        let rows = sums.iter().map(|(difference, norm)| ratio(difference.sqrt(), norm.sqrt().max(floor))).collect();
        Errors { frobenius: ratio(difference.sqrt(), norm.sqrt()), rows }
    }

    /// NaN is within no limit.
    fn within(&self, tolerance: &Tolerance) -> bool {
        self.frobenius <= tolerance.relative_frobenius && self.rows.iter().all(|error| *error <= tolerance.relative_row)
    }

    /// Position and error of the worst row.
    fn worst(&self) -> (usize, f64) {
        let order = |a: &(usize, &f64), b: &(usize, &f64)| a.1.total_cmp(b.1);
        self.rows.iter().enumerate().max_by(order).map_or((0, 0.0), |(position, error)| (position, *error))
    }
}

fn ratio(error: f64, norm: f64) -> f64 {
    if error == 0.0 { 0.0 } else { error / norm }
}

fn describe(
    buffer: &Buffer,
    output: Elements<'_>,
    reference: &ReferenceRows,
    tolerance: &Tolerance,
    errors: &Errors,
) -> String {
    let exceeds = |error: &f64| error.is_nan() || *error > tolerance.relative_row;
    let wrong: Vec<usize> = (0..errors.rows.len()).filter(|&position| exceeds(&errors.rows[position])).collect();
    let compared = reference.rows.len();
    let (worst, worst_error) = errors.worst();
    let first = wrong.first().copied().unwrap_or(worst);
    let row = reference.rows[first] as usize;
    let expected = &reference.values[first * reference.columns..(first + 1) * reference.columns];
    let distance = |column: usize| (output.get(row * reference.columns + column) - expected[column]).abs();
    let largest = (0..reference.columns).map(distance).fold(0.0, f64::max);
    let column = (0..reference.columns).find(|&column| distance(column) >= 0.5 * largest).unwrap_or(0);
    let index = row * reference.columns + column;
    format!(
        "`{name}` differs from the reference: relative Frobenius error {frobenius:.3e} (limit {limit:.1e}), {count} of \
         {compared} compared rows beyond the row limit {row_limit:.1e}{rows}, worst {worst_error:.3e} in row {worst_row}; \
         the first element that differs much is {element} (element {index}): {value:e} where {wanted:e} is expected",
        name = buffer.name,
        frobenius = errors.frobenius,
        limit = tolerance.relative_frobenius,
        count = wrong.len(),
        row_limit = tolerance.relative_row,
        rows = row_list(&wrong, reference),
        worst_row = reference.rows[worst],
        element = element_name(buffer, index),
        value = output.get(index),
        wanted = expected[column],
    )
}

/// The first few wrong rows, for people.
fn row_list(wrong: &[usize], reference: &ReferenceRows) -> String {
    const SHOWN: usize = 5;
    if wrong.is_empty() {
        return String::new();
    }
    let shown: Vec<String> = wrong.iter().take(SHOWN).map(|&position| reference.rows[position].to_string()).collect();
    let more = if wrong.len() > SHOWN { ", …" } else { "" };
    format!(" ({}{more})", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::DType;
    use crate::model::pipeline::Role;

    const TOLERANCE: Tolerance = Tolerance { relative_frobenius: 1e-3, relative_row: 4e-3 };

    fn buffer() -> Buffer {
        Buffer { name: "o".into(), dtype: DType::Float32, dims: vec![100, 4], role: Role::Output }
    }

    fn reference() -> ReferenceRows {
        let values = (0..400).map(|index| f64::from((index * 37 + 5) % 11) - 5.0).collect();
        ReferenceRows { rows: (0..100).collect(), columns: 4, values }
    }

    fn output(reference: &ReferenceRows) -> Vec<f32> {
        reference.values.iter().map(|value| *value as f32).collect()
    }

    fn compared(output: &[f32]) -> Result<Agreement, Failure> {
        compare(&buffer(), Elements::Float32(output), &reference(), &TOLERANCE)
    }

    #[test]
    fn an_equal_output_agrees_exactly() {
        let agreement = compared(&output(&reference())).expect("it is equal");
        assert_eq!((agreement.relative_frobenius, agreement.worst_row), (0.0, 0.0));
    }

    #[test]
    fn a_small_error_is_measured() {
        let mut output = output(&reference());
        output[14] *= 1.0 + 1e-3;
        let agreement = compared(&output).expect("it is within the limits");
        assert_eq!(agreement.worst_row_index, 3);
        let row: f64 = reference().values[12..16].iter().map(|v| v * v).sum::<f64>().sqrt();
        let expected = (f64::from(output[14]) - reference().values[14]).abs() / row;
        assert!((agreement.worst_row - expected).abs() < 1e-12 && expected > 0.0);
    }

    #[test]
    fn one_wrong_row_fails_though_the_whole_hides_it() {
        let mut output = output(&reference());
        output[200] += 0.05;
        let lenient = Tolerance { relative_frobenius: 1.0, relative_row: TOLERANCE.relative_row };
        let failure = compare(&buffer(), Elements::Float32(&output), &reference(), &lenient).expect_err("row 50");
        assert_eq!(failure.kind, FailureKind::WrongOutput);
        assert!(failure.message.contains("1 of 100 compared rows") && failure.message.contains("o[50,0]"), "{failure}");
    }

    #[test]
    fn nan_is_within_no_limit() {
        let mut output = output(&reference());
        output[7] = f32::NAN;
        assert!(compared(&output).is_err());
    }

    #[test]
    fn a_reference_that_tells_nothing_is_refused() {
        let refused = |values: Vec<f64>| {
            let rows = (0..values.len() as u64 / 4).collect();
            let failure = check_telling(&ReferenceRows { rows, columns: 4, values }, &TOLERANCE).expect_err("telling");
            assert_eq!(failure.kind, FailureKind::CannotTell);
            failure.message
        };
        assert!(refused(vec![0.0; 8]).contains("zeros"));
        assert!(refused(vec![3.0; 8]).contains("constant"));
        assert!(refused(vec![3.0, 3.0001, 3.0, 2.9999]).contains("constant"));
        assert!(refused(vec![]).contains("no row"));
        assert!(refused(vec![1.0, f64::NAN, 2.0, 3.0]).contains("not finite"));
        assert_eq!(check_telling(&reference(), &TOLERANCE), Ok(()));
    }
}
