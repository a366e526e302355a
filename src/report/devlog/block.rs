//! A Performance block as text, with its borders. Rounding comes from `numbers`; no I/O.

use serde::Serialize;

use super::{CompactRecord, Identity};
use crate::report::numbers::{
    ABSENT, SAME_CODE, cell, change_of_rate, change_of_time, gb_per_s, microseconds, percent, tflops,
};
use crate::report::render::{RenderError, Renderer, Template};
use crate::report::view::clocks;
use crate::roofline::Cost;

/// What a new section says about its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// One line, from the kernel's package.
    pub description: String,
    /// Folder of the package, relative to the project's root.
    pub location: String,
}

/// A block ready to be put into a log. Lines end with `\n`; a log's own line endings replace them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub identity: Identity,
    /// What stands between the borders.
    pub(super) body: String,
    /// Heading and text of the version's section, for a log without one.
    pub(super) section: String,
    /// Issues and Insights, for a log without this block.
    pub(super) notes: String,
}

#[derive(Serialize)]
struct BlockView {
    device: String,
    clocks: &'static str,
    dtype: String,
    shape: String,
    head: Row,
    rule: Row,
    rows: Vec<Row>,
    bottleneck: &'static str,
}

#[derive(Serialize)]
struct Row {
    metric: String,
    value: String,
    previous: String,
}

#[derive(Serialize)]
struct SectionView {
    number: u32,
    description: String,
    location: String,
}

impl Block {
    /// Renders the block of `record`.
    ///
    /// # Errors
    /// A template that does not render.
    pub fn render(renderer: &Renderer, record: &CompactRecord, about: &About) -> Result<Block, RenderError> {
        let section = SectionView {
            number: record.identity.version.0,
            description: one_line(&about.description),
            location: one_line(&about.location).replace('`', "'"),
        };
        let lines = |text: String| text.replace("\r\n", "\n");
        Ok(Block {
            identity: record.identity.clone(),
            body: renderer.render(Template::DevlogPerformance, &view(record)).map(lines)?,
            section: renderer.render(Template::DevlogSection, &section).map(lines)?,
            notes: renderer.render(Template::DevlogNotes, &section).map(lines)?,
        })
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn view(record: &CompactRecord) -> BlockView {
    let shape = &record.identity.shape;
    let named = |name: &str| ["b", "s", "t"].contains(&name) || record.shown.iter().any(|shown| shown == name);
    let parameters = shape.ordered().filter(|(name, _)| named(name) && *name != "dtype");
    let mut rows = vec![row("Metric", "Value", "vs Previous")];
    rows.extend(metrics(record));
    let widths = [width(&rows, |row| &row.metric), width(&rows, |row| &row.value), width(&rows, |row| &row.previous)];
    let mut padded = rows.iter().map(|row| pad(row, widths));
    BlockView {
        device: cell(&record.identity.device),
        clocks: clocks(record.clocks_locked),
        dtype: shape.get("dtype").map_or(ABSENT.to_owned(), |dtype| cell(&dtype.to_string())),
        shape: parameters.map(|(name, value)| cell(&format!("{name}={value}"))).collect::<Vec<_>>().join(", "),
        head: padded.next().expect("the head is the first row"),
        rule: row(&"-".repeat(widths[0]), &"-".repeat(widths[1]), &"-".repeat(widths[2])),
        rows: padded.collect(),
        bottleneck: record.bottleneck.map_or(ABSENT, |bottleneck| bottleneck.label()),
    }
}

fn metrics(record: &CompactRecord) -> [Row; 5] {
    let previous = record.previous.as_ref();
    let same_code = previous.is_some_and(|previous| previous.same_code);
    let change = |change: String| if same_code { SAME_CODE.to_owned() } else { change };
    let now = Some(record.duration_ns);
    let then = previous.map(|previous| previous.duration_ns);
    let rate = |of: fn(Cost, f64) -> Option<f64>| {
        let current = record.cost.and_then(|cost| of(cost, record.duration_ns));
        let before = previous.and_then(|previous| of(previous.cost?, previous.duration_ns));
        (current, change(change_of_rate(before, current)))
    };
    let (flops, flops_change) = rate(|cost, ns| cost.flops_per_s(ns));
    let (bytes, bytes_change) = rate(|cost, ns| cost.bytes_per_s(ns));
    [
        row("Duration", &format!("{} μs", microseconds(now)), &change(change_of_time(then, now))),
        row("Achieved TFLOPs/s", &tflops(flops), &flops_change),
        row("Achieved GB/s", &gb_per_s(bytes), &bytes_change),
        row("Occupancy", &percent(record.achieved_occupancy_percent), ABSENT),
        row("TC Util", &percent(record.tensor_core_percent), ABSENT),
    ]
}

fn row(metric: &str, value: &str, previous: &str) -> Row {
    Row { metric: metric.to_owned(), value: value.to_owned(), previous: previous.to_owned() }
}

fn width(rows: &[Row], column: fn(&Row) -> &String) -> usize {
    rows.iter().map(|row| column(row).chars().count()).max().unwrap_or(0)
}

fn pad(row: &Row, widths: [usize; 3]) -> Row {
    let padded = |text: &str, width: usize| format!("{text:<width$}");
    Row {
        metric: padded(&row.metric, widths[0]),
        value: padded(&row.value, widths[1]),
        previous: padded(&row.previous, widths[2]),
    }
}
