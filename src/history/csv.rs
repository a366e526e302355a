//! Series as CSV: one row a point, values in the metric's own unit.

use super::{Metric, Point, Series};

const HEAD: [&str; 20] = [
    "kernel",
    "version",
    "language",
    "shape",
    "metric",
    "unit",
    "taken_at",
    "session",
    "key",
    "median",
    "lowest",
    "highest",
    "processes",
    "device",
    "uuid",
    "driver",
    "clocks",
    "compiler",
    "code",
    "in_future",
];

/// All points of `series`, those that lie in the future included and marked.
///
/// # Errors
/// None that a text in memory could meet; they are passed on as they are.
pub fn csv(series: &[Series], metric: &Metric) -> Result<String, ::csv::Error> {
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    writer.write_record(HEAD)?;
    for one in series {
        let points = one.points.iter().map(|point| (point, false)).chain(one.ahead.iter().map(|point| (point, true)));
        for (point, in_future) in points {
            writer.write_record(row(one, metric, point, in_future))?;
        }
    }
    let bytes = writer.into_inner().map_err(|error| ::csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn row(series: &Series, metric: &Metric, point: &Point, in_future: bool) -> [String; HEAD.len()] {
    let told = |value: &Option<String>| value.clone().unwrap_or_default();
    [
        series.id.kernel.clone(),
        series.id.version.to_string(),
        series.id.language.to_string(),
        series.shape.to_string(),
        metric.to_string(),
        metric.unit().to_owned(),
        point.taken_at.to_string(),
        point.session.clone(),
        point.key.to_string(),
        point.value.to_string(),
        point.lowest.to_string(),
        point.highest.to_string(),
        point.processes.to_string(),
        point.device.clone(),
        told(&point.uuid),
        told(&point.driver),
        told(&point.clocks),
        point.compiler.clone(),
        point.code.map(|code| code.to_string()).unwrap_or_default(),
        in_future.to_string(),
    ]
}
