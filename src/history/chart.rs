//! A series for a terminal: a plot of characters, and the table of its points.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::axis::{Form, Period, Range};
use super::{Mark, Metric, Point, Series, What};
use crate::report::numbers::counted;

/// Columns and rows of a plot.
const COLUMNS: usize = 64;
const ROWS: usize = 9;

/// The series as a plot, with what changed below it, in the time zone `zone`.
pub fn chart(series: &Series, metric: &Metric, zone: &TimeZone) -> String {
    let mut text = title(series, metric);
    let period = Period::of([series].into_iter());
    let range = Range::around(series.points.iter().flat_map(|point| [point.lowest, point.highest]));
    if let (Some(period), Some(range)) = (period, range) {
        text += &plot(series, metric, &period, range);
        text += &axis_line(&series.marks, &period);
        text += &ends(&period, zone);
        text.extend(series.marks.iter().map(|mark| marked(mark, zone)));
    }
    text.extend(series.ahead.iter().map(|point| {
        format!("  left out: {} lies in the future; the host's clock was wrong then\n", moment(point.taken_at, zone))
    }));
    text
}

fn title(series: &Series, metric: &Metric) -> String {
    let form = form(series, metric);
    let unit = if form.symbol().is_empty() { String::new() } else { format!(" in {}", form.symbol()) };
    let sessions = counted(series.points.len(), "session");
    format!("{} {}\n  {metric}{unit}, {sessions}\n", series.id, series.shape)
}

fn form(series: &Series, metric: &Metric) -> Form {
    Form::of(metric, series.points.iter().map(|point| point.value))
}

fn column(at: Timestamp, period: &Period) -> usize {
    (period.place(at) * (COLUMNS - 1) as f64).round() as usize
}

/// Dots for the sessions' medians; a stroke reaches from the lowest process to the highest.
fn plot(series: &Series, metric: &Metric, period: &Period, range: Range) -> String {
    let row = |value: f64| ROWS - 1 - (range.place(value) * (ROWS - 1) as f64).round() as usize;
    let mut cells = vec![vec![' '; COLUMNS]; ROWS];
    for point in &series.points {
        let column = column(point.taken_at, period);
        for cells in &mut cells[row(point.highest)..=row(point.lowest)] {
            if cells[column] == ' ' {
                cells[column] = '│';
            }
        }
    }
    for point in &series.points {
        cells[row(point.value)][column(point.taken_at, period)] = '●';
    }
    let form = form(series, metric);
    let label = |index: usize| match index % (ROWS / 2) {
        0 => form.text(range.from + (range.to - range.from) * (ROWS - 1 - index) as f64 / (ROWS - 1) as f64),
        _ => String::new(),
    };
    let lines = cells.iter().enumerate().map(|(index, cells)| {
        let tick = if index % (ROWS / 2) == 0 { '┤' } else { '│' };
        let cells: String = cells.iter().collect();
        format!("{}\n", format!("{:>12} {tick}{cells}", label(index)).trim_end())
    });
    lines.collect()
}

/// The axis of time, with a letter where something changed.
fn axis_line(marks: &[Mark], period: &Period) -> String {
    let mut letters = vec![' '; COLUMNS];
    // Where several things changed at once, the first of them in the order of their kinds is shown; all are listed below.
    for mark in marks.iter().rev() {
        letters[column(mark.at, period)] = mark.what.letter();
    }
    let letters: String = letters.iter().collect();
    let letters = if marks.is_empty() { String::new() } else { format!("{:14}{}\n", "", letters.trim_end()) };
    format!("{:>13}└{}\n{letters}", "", "─".repeat(COLUMNS))
}

fn ends(period: &Period, zone: &TimeZone) -> String {
    let (from, to) = (moment(period.from, zone), moment(period.to, zone));
    match period.from == period.to {
        true => format!("{:14}{from:^COLUMNS$}", "").trim_end().to_owned() + "\n",
        false => format!("{:14}{from}{to:>width$}\n", "", width = COLUMNS - from.chars().count()),
    }
}

fn marked(mark: &Mark, zone: &TimeZone) -> String {
    let Mark { at, what, from, to } = mark;
    format!("  {} {}  {}: {from} → {to}\n", what.letter(), moment(*at, zone), what.name())
}

/// A moment with the offset of the zone then: in the hour that clocks are put back, the same time comes twice.
fn moment(at: Timestamp, zone: &TimeZone) -> String {
    at.to_zoned_datetime(zone.clone()).strftime("%Y-%m-%d %H:%M %:z").to_string()
}

/// Heads and rows of the table of the points, the oldest first.
pub fn table(series: &Series, metric: &Metric, zone: &TimeZone) -> (Vec<String>, Vec<Vec<String>>) {
    let form = form(series, metric);
    let head =
        |name: &str| if form.symbol().is_empty() { name.to_owned() } else { format!("{name} ({})", form.symbol()) };
    let heads = [
        "TAKEN".to_owned(),
        head("MEDIAN"),
        head("LOWEST"),
        head("HIGHEST"),
        "PROCESSES".to_owned(),
        "CHANGED".to_owned(),
    ];
    let row = |point: &Point| {
        let changed: Vec<&str> =
            What::ALL.into_iter().filter(|what| is_marked(series, point, *what)).map(What::name).collect();
        let numbers = [point.value, point.lowest, point.highest].map(|value| form.text(value));
        let [value, lowest, highest] = numbers;
        vec![moment(point.taken_at, zone), value, lowest, highest, point.processes.to_string(), changed.join(", ")]
    };
    (heads.into(), series.points.iter().map(row).collect())
}

fn is_marked(series: &Series, point: &Point, what: What) -> bool {
    series.marks.iter().any(|mark| mark.at == point.taken_at && mark.what == what)
}
