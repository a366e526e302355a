//! Records as series: one a kernel and shape, one point a session, and what changed from point to point.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::Metric;
use crate::model::clocks::ClockState;
use crate::model::record::{Environment, Record};
use crate::model::{KernelId, Key, Shape};
use crate::stats;

/// How far ahead of now a record may be taken to be of now: clocks of hosts differ a little. One further ahead was written
/// while its host's clock was wrong, and would make every other point one dot at the left of a picture.
pub const AHEAD: SignedDuration = SignedDuration::from_hours(24);

/// What one session measured of one key.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// When its first process was measured.
    pub taken_at: Timestamp,
    pub session: String,
    pub key: Key,
    /// Median over its processes.
    pub value: f64,
    pub lowest: f64,
    pub highest: f64,
    pub processes: u32,
    pub device: String,
    /// UUID of the GPU; a CPU has none.
    pub uuid: Option<String>,
    /// `None` on a CPU, and where no record says it.
    pub driver: Option<String>,
    /// Which clocks were held; `None` where no record says it.
    pub clocks: Option<String>,
    pub compiler: String,
    /// Hash of the machine code of all stages; `None` in what was recorded before it was kept.
    pub code: Option<Key>,
}

/// What is different from the point before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    Gpu,
    Driver,
    Clocks,
    Compiler,
    Code,
}

impl What {
    /// Every kind, the one that explains most first.
    pub const ALL: [What; 5] = [What::Gpu, What::Driver, What::Clocks, What::Compiler, What::Code];

    /// Its word in texts.
    pub const fn name(self) -> &'static str {
        match self {
            What::Gpu => "device",
            What::Driver => "driver",
            What::Clocks => "clocks",
            What::Compiler => "compiler",
            What::Code => "code",
        }
    }

    /// Its letter below a plot.
    pub const fn letter(self) -> char {
        match self {
            What::Gpu => 'G',
            What::Driver => 'D',
            What::Clocks => 'C',
            What::Compiler => 'T',
            What::Code => 'K',
        }
    }

    /// What `point` says of it.
    fn of(self, point: &Point) -> Option<String> {
        match self {
            What::Gpu => Some(match &point.uuid {
                Some(uuid) => format!("{} ({uuid})", point.device),
                None => point.device.clone(),
            }),
            What::Driver => point.driver.clone(),
            What::Clocks => point.clocks.clone(),
            What::Compiler => Some(point.compiler.clone()),
            What::Code => point.code.map(|code| code.short()),
        }
    }
}

/// A change at a point of a series.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mark {
    /// When the first point after it was measured.
    pub at: Timestamp,
    pub what: What,
    pub from: String,
    pub to: String,
}

/// One kernel at one shape.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    #[serde(flatten)]
    pub id: KernelId,
    pub shape: Shape,
    /// In the order of time, none ahead of now.
    pub points: Vec<Point>,
    pub marks: Vec<Mark>,
    /// Points whose time lies in the future: they are told, and enter neither plots nor marks.
    pub ahead: Vec<Point>,
}

/// The records of a series with their values, by session and key.
type Sessions<'a> = BTreeMap<(&'a str, Key), Vec<(&'a Record, f64)>>;

/// The series of `metric` that `records` hold, by kernel, version and shape. Records without the metric make no point.
pub fn series(records: &[Record], metric: &Metric, now: Timestamp) -> Vec<Series> {
    let mut groups: BTreeMap<(&KernelId, &Shape), Sessions<'_>> = BTreeMap::new();
    for record in records {
        let Some(value) = metric.of(record) else { continue };
        let series = groups.entry((&record.labels.id, &record.labels.shape)).or_default();
        series.entry((&record.position.session, record.key)).or_default().push((record, value));
    }
    let made = groups.into_iter().map(|((id, shape), sessions)| {
        let mut points: Vec<Point> = sessions.into_values().filter_map(point).collect();
        points.sort_by(|one, other| {
            (one.taken_at, &one.session, one.key).cmp(&(other.taken_at, &other.session, other.key))
        });
        let limit = now.checked_add(AHEAD).unwrap_or(Timestamp::MAX);
        let (points, ahead): (Vec<_>, Vec<_>) = points.into_iter().partition(|point| point.taken_at <= limit);
        let marks = marks(&points);
        Series { id: id.clone(), shape: shape.clone(), points, marks, ahead }
    });
    made.collect()
}

/// The point of the records of one session and key.
fn point(records: Vec<(&Record, f64)>) -> Option<Point> {
    let values: Vec<f64> = records.iter().map(|(_, value)| *value).collect();
    let (first, _) = records.iter().min_by_key(|(record, _)| record.position.taken_at)?;
    let environment = &first.environment;
    Some(Point {
        taken_at: first.position.taken_at,
        session: first.position.session.clone(),
        key: first.key,
        value: stats::median(&values).ok()?,
        lowest: values.iter().copied().fold(f64::INFINITY, f64::min),
        highest: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        processes: values.len() as u32,
        device: environment.device.id.name.clone(),
        uuid: environment.device.id.uuid.clone(),
        driver: driver(environment),
        clocks: clocks(environment),
        compiler: environment.compiler.clone(),
        code: code(first),
    })
}

/// The driver as NVML told it for the session, else as the GPU was found.
fn driver(environment: &Environment) -> Option<String> {
    let told = environment.telemetry.as_ref().and_then(|telemetry| telemetry.board.driver.clone());
    told.or_else(|| environment.device.gpu.as_ref().map(|gpu| gpu.driver.clone()))
}

fn clocks(environment: &Environment) -> Option<String> {
    let state = environment.telemetry.as_ref().map(|telemetry| telemetry.clocks)?;
    (state != ClockState::None).then(|| state.to_string())
}

fn code(record: &Record) -> Option<Key> {
    let stages: Vec<_> = record.code.iter().map(|stage| (&stage.stage, stage.code_sha256)).collect();
    (!stages.is_empty()).then(|| Key::of("history-code/1", &stages))
}

/// What differs between each point and the one before it, where both say it.
fn marks(points: &[Point]) -> Vec<Mark> {
    let mut marks = Vec::new();
    // What was said last: a session that did not say it is no change.
    let mut said: BTreeMap<What, String> = BTreeMap::new();
    for point in points {
        for what in What::ALL {
            let Some(to) = what.of(point) else { continue };
            if let Some(from) = said.insert(what, to.clone())
                && from != to
            {
                marks.push(Mark { at: point.taken_at, what, from, to });
            }
        }
    }
    marks
}
