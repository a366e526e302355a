//! A kernel's source with what was counted on each of its lines, as Nsight Compute shows it. Part of a record, whose format
//! carries the version.

use serde::{Deserialize, Serialize};

/// One listing: a function in a file, in machine code, or in PTX.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceView {
    /// The kernel, where the listing says whose it is.
    pub function: Option<String>,
    /// Source file, for listings by line.
    pub file: Option<String>,
    /// What is counted, in the order of each row's cells; versions and kernels differ.
    pub columns: Vec<String>,
    pub rows: Vec<SourceRow>,
}

/// What a listing is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Lines of a source file, each with its instructions.
    Lines,
    /// Machine code alone.
    Sass,
    /// PTX, of a whole module.
    Ptx,
}

/// A line of source, or an instruction below it; with neither line nor address, the place of instructions of other lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceRow {
    /// Line of the source file or of the PTX, from 1; none for an instruction.
    pub line: Option<u32>,
    /// Address of an instruction; none for a line of source.
    pub address: Option<u64>,
    pub text: String,
    pub cells: Vec<Cell>,
}

/// What was counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    Number(f64),
    Text(String),
    /// Not counted here.
    Absent(()),
}

/// The column of the samples that the sampler took.
const SAMPLES: &str = "# Samples";
/// Columns of samples by what the warp waited for.
const STALL: &str = "stall_";
/// Marks the columns that count only the samples in which no instruction was issued.
const NOT_ISSUED: &str = " (Not Issued)";

impl SourceView {
    /// What it is a listing of.
    pub fn form(&self) -> Form {
        match (&self.function, &self.file) {
            _ if self.rows.iter().all(|row| row.line.is_none()) => Form::Sass,
            (None, None) => Form::Ptx,
            _ => Form::Lines,
        }
    }

    /// Where the column of exactly this name stands.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }

    /// Samples taken on a row; `None` where they were not counted.
    pub fn samples(&self, row: &SourceRow) -> Option<f64> {
        row.number(self.column(SAMPLES)?)
    }

    /// Why warps waited on a row: reason without its prefix, and samples, most first, none that is 0.
    pub fn stalls<'v>(&'v self, row: &SourceRow) -> Vec<(&'v str, f64)> {
        let columns = self.columns.iter().enumerate();
        let mut found: Vec<_> = columns
            .filter(|(_, name)| !name.ends_with(NOT_ISSUED))
            .filter_map(|(index, name)| Some((name.strip_prefix(STALL)?, row.number(index)?)))
            .filter(|(_, samples)| *samples > 0.0)
            .collect();
        found.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
        found
    }

    /// Lines of source, or instructions where the listing is of machine code alone, with samples: most first, at most `most`.
    pub fn hottest(&self, most: usize) -> Vec<(&SourceRow, f64)> {
        let lines = self.rows.iter().any(|row| row.line.is_some());
        let rows = self.rows.iter().filter(|row| row.line.is_some() == lines);
        let mut found: Vec<_> =
            rows.filter_map(|row| Some((row, self.samples(row)?))).filter(|(_, n)| *n > 0.0).collect();
        found.sort_by(|a, b| b.1.total_cmp(&a.1));
        found.truncate(most);
        found
    }
}

impl SourceRow {
    /// The number in the cell of this column; `None` if it is none.
    pub fn number(&self, column: usize) -> Option<f64> {
        match self.cells.get(column)? {
            Cell::Number(value) => Some(*value),
            Cell::Text(_) | Cell::Absent(()) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(line: Option<u32>, cells: &[f64]) -> SourceRow {
        SourceRow {
            line,
            address: None,
            text: String::new(),
            cells: cells.iter().map(|&cell| Cell::Number(cell)).collect(),
        }
    }

    fn view(rows: Vec<SourceRow>) -> SourceView {
        let columns = ["# Samples", "stall_wait", "stall_lg", "stall_wait (Not Issued)"].map(str::to_owned);
        SourceView { function: None, file: None, columns: columns.into(), rows }
    }

    #[test]
    fn listings_are_told_apart() {
        let lines = SourceView { function: Some("f".to_owned()), ..view(vec![row(Some(4), &[])]) };
        assert_eq!(lines.form(), Form::Lines);
        assert_eq!(view(vec![row(Some(4), &[])]).form(), Form::Ptx);
        assert_eq!(SourceView { rows: vec![row(None, &[])], ..lines }.form(), Form::Sass);
    }

    #[test]
    fn hot_lines_come_first() {
        let view = view(vec![row(Some(4), &[2.0]), row(None, &[9.0]), row(Some(5), &[7.0]), row(Some(6), &[0.0])]);
        let lines: Vec<_> = view.hottest(9).into_iter().map(|(row, samples)| (row.line, samples)).collect();
        assert_eq!(lines, [(Some(5), 7.0), (Some(4), 2.0)]);
        assert_eq!(view.hottest(1).len(), 1);
    }

    #[test]
    fn stalls_are_those_of_all_samples_most_first() {
        let view = view(vec![row(None, &[9.0, 3.0, 6.0, 8.0])]);
        assert_eq!(view.stalls(&view.rows[0]), [("lg", 6.0), ("wait", 3.0)]);
        assert!(view.stalls(&row(None, &[9.0])).is_empty());
    }

    #[test]
    fn cells_survive_being_stored() {
        let mut stored = row(Some(1), &[1.5]);
        stored.cells.extend([Cell::Text("Global".to_owned()), Cell::Absent(())]);
        let text = serde_json::to_string(&stored).expect("it can be written");
        assert!(text.contains(r#"[1.5,"Global",null]"#), "{text}");
        assert_eq!(serde_json::from_str::<SourceRow>(&text).expect("it can be read"), stored);
    }
}
