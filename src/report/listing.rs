//! Annotated source: what was sampled on each line, hot lines first, as text and as CSV. Pure.

use std::fmt::Write;

use serde::Serialize;

use super::numbers::percent_of;
use crate::model::source_view::{Cell, Form, SourceRow, SourceView};

/// A line of source, or an instruction, with the samples that fell on it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HotLine {
    pub function: Option<String>,
    pub file: Option<String>,
    /// Line of the file; none for an instruction.
    pub line: Option<u32>,
    pub address: Option<u64>,
    pub text: String,
    pub samples: f64,
    /// Of all samples of the function, from 0 to 1.
    pub share: f64,
    /// What warps waited for, with samples, most first.
    pub stalls: Vec<(String, f64)>,
}

/// The lines that hold most samples, over the listings of one kernel: lines of source where there are any, else instructions; at most
/// `most`.
pub fn hot_lines(views: &[&SourceView], most: usize) -> Vec<HotLine> {
    let form = if views.iter().any(|view| view.form() == Form::Lines) { Form::Lines } else { Form::Sass };
    let own = || views.iter().filter(|view| view.form() == form);
    let total: f64 = own().map(|view| samples_of(view)).sum();
    let mut lines: Vec<HotLine> = own()
        .flat_map(|view| view.hottest(most).into_iter().map(move |(row, samples)| (view, row, samples)))
        .map(|(view, row, samples)| HotLine {
            function: view.function.clone(),
            file: view.file.clone(),
            line: row.line,
            address: row.address,
            text: row.text.trim().to_owned(),
            samples,
            share: samples / total,
            stalls: view.stalls(row).into_iter().map(|(reason, samples)| (reason.to_owned(), samples)).collect(),
        })
        .collect();
    lines.sort_by(|a, b| b.samples.total_cmp(&a.samples));
    lines.truncate(most);
    lines
}

/// Samples of one listing, those of instructions not counted again where their lines are there.
fn samples_of(view: &SourceView) -> f64 {
    let lines = view.rows.iter().any(|row| row.line.is_some());
    view.rows.iter().filter(|row| row.line.is_some() == lines).filter_map(|row| view.samples(row)).sum()
}

/// The listings as text: one after another, each row with its samples, their share of the listing's, and the two reasons that
/// warps waited for most.
pub fn annotated(views: &[&SourceView]) -> String {
    let mut text = String::new();
    for view in views {
        let total = samples_of(view);
        let title: Vec<&str> = [&view.function, &view.file].into_iter().flatten().map(String::as_str).collect();
        write(&mut text, format_args!("{}: {total} samples\n", title.join(", ")));
        write(&mut text, format_args!("{:>9} {:>6} {:>14}  source", "samples", "share", "line"));
        for row in &view.rows {
            let samples = view.samples(row).filter(|samples| *samples > 0.0);
            let share = samples.filter(|_| total > 0.0).map(|samples| samples / total);
            let stalls: Vec<String> =
                view.stalls(row).iter().take(2).map(|(reason, samples)| format!("{reason} {samples}")).collect();
            let stalls = if stalls.is_empty() { String::new() } else { format!("    <- {}", stalls.join(", ")) };
            write(
                &mut text,
                format_args!(
                    "{:>9} {:>6} {:>14}  {}{stalls}",
                    samples.map(|samples| samples.to_string()).unwrap_or_default(),
                    share.map(|share| percent_of(Some(share))).unwrap_or_default(),
                    place(row),
                    row.text
                ),
            );
        }
        text.push('\n');
    }
    text
}

fn write(text: &mut String, line: std::fmt::Arguments<'_>) {
    text.write_fmt(line).expect("a string takes every text");
    text.truncate(text.trim_end_matches(' ').len());
    text.push('\n');
}

/// Line of the source, or address of the instruction.
fn place(row: &SourceRow) -> String {
    match (row.line, row.address) {
        (Some(line), _) => line.to_string(),
        (None, Some(address)) => format!("{address:#x}"),
        (None, None) => String::new(),
    }
}

/// One listing as CSV with all that was counted; what was not is empty.
///
/// # Errors
/// A row has another number of cells than the listing has columns.
pub fn listing_csv(view: &SourceView) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(["line", "address", "source"].into_iter().chain(view.columns.iter().map(String::as_str)))?;
    for row in &view.rows {
        let line = row.line.map(|line| line.to_string()).unwrap_or_default();
        let address = row.address.map(|address| format!("{address:#x}")).unwrap_or_default();
        let cells = row.cells.iter().map(|cell| match cell {
            Cell::Number(value) => value.to_string(),
            Cell::Text(text) => text.clone(),
            Cell::Absent(()) => String::new(),
        });
        writer.write_record([line, address, row.text.clone()].into_iter().chain(cells))?;
    }
    let bytes = writer.into_inner().map_err(csv::IntoInnerError::into_error)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(line: Option<u32>, address: Option<u64>, text: &str, cells: [f64; 3]) -> SourceRow {
        SourceRow { line, address, text: text.to_owned(), cells: cells.map(Cell::Number).into() }
    }

    fn views() -> Vec<SourceView> {
        let view = |file: &str, rows| SourceView {
            function: Some("f".to_owned()),
            file: Some(file.to_owned()),
            columns: ["# Samples", "stall_wait", "stall_lg"].map(str::to_owned).into(),
            rows,
        };
        vec![
            view(
                "a.cu",
                vec![
                    row(Some(4), None, "  x = \"1\";", [30.0, 10.0, 20.0]),
                    row(None, Some(0x7f10), "LDG.E R1", [30.0, 10.0, 20.0]),
                    SourceRow { cells: vec![Cell::Absent(()); 3], ..row(None, None, "...", [0.0; 3]) },
                    row(Some(5), None, "}", [0.0, 0.0, 0.0]),
                ],
            ),
            view("b.h", vec![row(Some(9), None, "y();", [70.0, 70.0, 0.0])]),
        ]
    }

    fn instructions() -> SourceView {
        let rows = vec![
            row(None, Some(0x7f10), "LDG.E R1", [30.0, 10.0, 20.0]),
            row(None, Some(0x7f20), "STG.E R1", [10.0, 10.0, 0.0]),
        ];
        SourceView { file: None, rows, ..views().remove(0) }
    }

    #[test]
    fn hot_lines_are_those_of_all_files() {
        let (views, sass) = (views(), instructions());
        let own: Vec<&SourceView> = views.iter().chain([&sass]).collect();
        let lines = hot_lines(&own, 5);
        let found: Vec<_> = lines.iter().map(|line| (line.file.as_deref(), line.line, line.share)).collect();
        assert_eq!(found, [(Some("b.h"), Some(9), 0.7), (Some("a.cu"), Some(4), 0.3)]);
        assert_eq!(lines[1].stalls, [("lg".to_owned(), 20.0), ("wait".to_owned(), 10.0)]);
        assert!(hot_lines(&[], 5).is_empty());
        assert_eq!(hot_lines(&own, 1).len(), 1);
        let found: Vec<_> = hot_lines(&[&sass], 5).iter().map(|line| (line.address, line.share)).collect();
        assert_eq!(found, [(Some(0x7f10), 0.75), (Some(0x7f20), 0.25)], "without lines they are instructions");
    }

    #[test]
    fn each_line_says_what_it_waited_for() {
        insta::assert_snapshot!(annotated(&views().iter().collect::<Vec<_>>()), @r#"
        f, a.cu: 30 samples

          samples  share           line  source
               30   100%              4    x = "1";    <- lg 20, wait 10
               30   100%         0x7f10  LDG.E R1    <- lg 20, wait 10
                                         ...
                                      5  }

        f, b.h: 70 samples

          samples  share           line  source
               70   100%              9  y();    <- wait 70
        "#);
    }

    #[test]
    fn everything_counted_is_in_the_table() {
        insta::assert_snapshot!(listing_csv(&views()[0]).expect("its rows fit"), @r#"
        line,address,source,# Samples,stall_wait,stall_lg
        4,,"  x = ""1"";",30,10,20
        ,0x7f10,LDG.E R1,30,10,20
        ,,...,,,
        5,,},0,0,0
        "#);
        let mut odd = views().remove(0);
        odd.rows[0].cells.pop();
        assert!(listing_csv(&odd).is_err());
    }
}
