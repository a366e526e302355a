//! The tables that `nsys stats --format csv` prints, one a report, read by the names of their columns.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::model::quantity::Unit;
use crate::model::timeline::{Activity, ActivityKind, Rejected, Rejection, Timeline};

/// One table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatsTable {
    /// Name of the report, such as `cuda_gpu_trace`, where the output says it.
    pub report: Option<String>,
    /// Line of the header, from 1.
    line: usize,
    columns: Vec<String>,
    rows: Vec<(usize, Vec<String>)>,
}

/// The output of `nsys stats` cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatsError {
    #[error("line {line}: the table has no column `{column}`")]
    MissingColumn { line: usize, column: String },
    #[error("line {line}: {what}")]
    Malformed { line: usize, what: String },
    #[error("line {line}: the output ends in the middle of a row; run `nsys stats` again")]
    Truncated { line: usize },
}

/// Every table in `text`; reports that were skipped, for want of data, have none.
///
/// # Errors
/// A row does not fit its header, or the text ends inside one.
pub fn read_stats(text: &str) -> Result<Vec<StatsTable>, StatsError> {
    let mut tables: Vec<StatsTable> = Vec::new();
    let (mut report, mut within) = (None, false);
    for (index, whole) in text.split_inclusive('\n').enumerate() {
        let (line, content) = (index + 1, whole.trim_end());
        if content.is_empty() || content.starts_with("SKIPPED:") {
            within = false;
        } else if let Some(name) = announced(content) {
            (report, within) = (Some(name.to_owned()), false);
        } else if !whole.ends_with('\n') && (within || heads(content)) {
            return Err(StatsError::Truncated { line });
        } else if within {
            let Some(table) = tables.last_mut() else { continue };
            let fields = fields(content, line)?;
            if fields.len() != table.columns.len() {
                let what = format!("the row has {} fields and its header {}", fields.len(), table.columns.len());
                return Err(StatsError::Malformed { line, what });
            }
            table.rows.push((line, fields));
        } else if heads(content) {
            let columns = fields(content, line)?;
            tables.push(StatsTable { report: report.take(), line, columns, rows: Vec::new() });
            within = true;
        }
    }
    Ok(tables)
}

/// Whether a line is a header: columns with their units.
fn heads(line: &str) -> bool {
    line.contains(',') && ["(ns)", "(us)", "(ms)", "(s)"].iter().any(|unit| line.contains(unit))
}

/// The report of a line such as `Processing [a.sqlite] with [/folder/cuda_gpu_trace.py]... `.
fn announced(line: &str) -> Option<&str> {
    let script = line.strip_prefix("Processing [")?.split_once("] with [")?.1.split_once(']')?.0;
    let name = script.rsplit('/').next()?;
    Some(name.split_once(".py").map_or(name, |(name, _)| name))
}

fn fields(line: &str, number: usize) -> Result<Vec<String>, StatsError> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line.as_bytes());
    let record = reader.records().next().and_then(Result::ok);
    let record = record.ok_or_else(|| StatsError::Malformed { line: number, what: "it is no row".to_owned() })?;
    Ok(record.iter().map(str::to_owned).collect())
}

/// One line of a summary: a kernel, a call or a range over all of its instances.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub name: String,
    pub instances: u64,
    pub total_ns: f64,
    pub average_ns: f64,
    pub median_ns: f64,
    pub min_ns: f64,
    pub max_ns: f64,
}

impl StatsTable {
    /// The rows of a summary (`cuda_gpu_kern_sum`, `cuda_api_sum`, `nvtx_pushpop_sum`).
    ///
    /// # Errors
    /// It is none: a column is missing, or a cell holds no number.
    pub fn summary(&self) -> Result<Vec<Summary>, StatsError> {
        let name = self.column(&["Name", "Range", "Operation"])?;
        let instances = self.column(&["Instances", "Num Calls", "Count"])?;
        let times = ["Total Time", "Avg", "Med", "Min", "Max"].map(|column| self.time_column(column));
        let [total, average, median, min, max] = times;
        let (total, average, median, min, max) = (total?, average?, median?, min?, max?);
        let row = |(line, fields): &(usize, Vec<String>)| {
            Ok(Summary {
                name: fields[name].clone(),
                instances: whole(&fields[instances], *line)?,
                total_ns: total.ns(fields, *line)?,
                average_ns: average.ns(fields, *line)?,
                median_ns: median.ns(fields, *line)?,
                min_ns: min.ns(fields, *line)?,
                max_ns: max.ns(fields, *line)?,
            })
        };
        self.rows.iter().map(row).collect()
    }

    /// The activities of a trace (`cuda_gpu_trace`). It does not tell processes apart.
    ///
    /// # Errors
    /// It is none: a column is missing, or a cell holds no number.
    pub fn trace(&self) -> Result<Timeline, StatsError> {
        let (start, duration) = (self.time_column("Start")?, self.time_column("Duration")?);
        let name = self.column(&["Name"])?;
        let optional: HashMap<&str, usize> = ["CorrId", "Device", "Ctx", "Strm"]
            .into_iter()
            .filter_map(|column| Some((column, self.columns.iter().position(|own| own == column)?)))
            .collect();
        let mut timeline = Timeline::default();
        for (line, fields) in &self.rows {
            let cell = |column: &str| optional.get(column).map_or("", |&index| fields[index].trim());
            let number = |column: &str| match cell(column) {
                "" => Ok(None),
                text => whole(text, *line).map(Some),
            };
            let start_ns = start.ns(fields, *line)?.round() as i64;
            let end_ns = start_ns.saturating_add(duration.ns(fields, *line)?.round() as i64);
            let (kind, name) = (kind(&fields[name]), fields[name].clone());
            if let Some(reason) = Rejection::of(start_ns, end_ns) {
                timeline.rejected.push(Rejected { kind, name, start_ns, end_ns, reason });
                continue;
            }
            timeline.activities.push(Activity {
                kind,
                name,
                start_ns: start_ns.unsigned_abs(),
                end_ns: end_ns.unsigned_abs(),
                process: None,
                thread: None,
                device: device(cell("Device")),
                context: number("Ctx")?,
                stream: number("Strm")?,
                correlation: number("CorrId")?,
                bytes: None,
            });
        }
        timeline.sort();
        Ok(timeline)
    }

    fn column(&self, names: &[&str]) -> Result<usize, StatsError> {
        let found = self.columns.iter().position(|own| names.contains(&own.as_str()));
        found.ok_or_else(|| StatsError::MissingColumn { line: self.line, column: names.join("` or `") })
    }

    /// A column whose header ends with its unit: `Start (ns)`.
    fn time_column(&self, name: &str) -> Result<TimeColumn, StatsError> {
        let found = self.columns.iter().enumerate().find_map(|(index, own)| {
            let unit = own.strip_prefix(name)?.strip_prefix(" (")?.strip_suffix(')')?;
            let (unit, scale) = Unit::parse(unit)?;
            (unit == Unit::NANOSECOND).then_some(TimeColumn { index, scale })
        });
        found.ok_or_else(|| StatsError::MissingColumn { line: self.line, column: format!("{name} (ns)") })
    }
}

struct TimeColumn {
    index: usize,
    /// Nanoseconds of one of its unit.
    scale: f64,
}

impl TimeColumn {
    fn ns(&self, fields: &[String], line: usize) -> Result<f64, StatsError> {
        let text = fields[self.index].trim();
        let plain = text.bytes().all(|byte| byte.is_ascii_digit() || b".-".contains(&byte));
        let value = text.parse().ok().filter(|value: &f64| plain && value.is_finite());
        Ok(value.ok_or_else(|| StatsError::Malformed { line, what: format!("`{text}` is no time") })? * self.scale)
    }
}

fn whole(text: &str, line: usize) -> Result<u64, StatsError> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let value = text.parse().ok().filter(|_| digits);
    value.ok_or_else(|| StatsError::Malformed { line, what: format!("`{text}` is no whole number") })
}

fn kind(name: &str) -> ActivityKind {
    if name.starts_with("[CUDA memcpy") {
        ActivityKind::Memcpy
    } else if name.starts_with("[CUDA memset") {
        ActivityKind::Memset
    } else {
        ActivityKind::Kernel
    }
}

/// `NVIDIA H200 (0)`.
fn device(text: &str) -> Option<u32> {
    text.strip_suffix(')')?.rsplit_once('(')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TRACE: &str = "\
Generating SQLite file a.sqlite from a.nsys-rep
Processing [a.sqlite] with [/opt/reports/cuda_api_sum.py]... 
SKIPPED: a.sqlite does not contain CUDA trace data.

Processing [a.sqlite] with [/opt/reports/cuda_gpu_trace.py:base]... 
Start (us),Duration (us),Device,Ctx,Strm,Name
10.5,2.25,NVIDIA H200 (3),1,7,\"void f<int, \"\"a\"\">(float *, int)\"
11.0,0.0,NVIDIA H200 (3),1,7,empty
-1.0,5.0,NVIDIA H200 (3),1,7,early
12.0,1.0,NVIDIA H200 (3),1,,[CUDA memset]
";

    #[test]
    fn columns_are_found_by_name_and_times_by_their_unit() {
        let tables = read_stats(TRACE).expect("it can be read");
        let [table] = &tables[..] else { panic!("one report was skipped") };
        assert_eq!(table.report.as_deref(), Some("cuda_gpu_trace"));
        let timeline = table.trace().expect("it is a trace");
        let [kernel, fill] = &timeline.activities[..] else { panic!("two are believable") };
        assert_eq!((kernel.start_ns, kernel.end_ns, kernel.device), (10_500, 12_750, Some(3)));
        assert_eq!(kernel.name, "void f<int, \"a\">(float *, int)");
        assert_eq!((fill.kind, fill.stream), (ActivityKind::Memset, None));
        let reasons: Vec<_> =
            timeline.rejected.iter().map(|rejected| (rejected.name.as_str(), rejected.reason)).collect();
        assert_eq!(reasons, [("empty", Rejection::Empty), ("early", Rejection::Negative)]);
    }

    #[test]
    fn rows_that_do_not_fit_are_refused_by_line() {
        let short = TRACE.replace("12.0,1.0,", "12.0,");
        let what = "the row has 5 fields and its header 6".to_owned();
        assert_eq!(read_stats(&short), Err(StatsError::Malformed { line: 10, what }));
        assert_eq!(read_stats(TRACE.trim_end()), Err(StatsError::Truncated { line: 10 }));
        let odd = TRACE.replace("2.25", "2e3");
        let error = read_stats(&odd).expect("it has rows")[0].trace().expect_err("no such number").to_string();
        assert_eq!(error, "line 7: `2e3` is no time");
        let error = read_stats(TRACE).expect("it can be read")[0].summary().expect_err("it is a trace").to_string();
        assert_eq!(error, "line 6: the table has no column `Instances` or `Num Calls` or `Count`");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(Start \\(ns\\),Duration \\(ns\\),Name\n)?([\"\\n\\r,0-9a.é-]{0,6}){0,12}\n?") {
            for table in read_stats(&text).unwrap_or_default() {
                drop(table.trace());
                drop(table.summary());
            }
        }
    }
}
