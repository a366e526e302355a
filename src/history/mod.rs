//! A metric over time: one point a session, what changed between the points, and the same as text and as a picture. Pure:
//! records in, numbers and text out; what time it is now, and where, is told by the caller.

mod axis;
mod chart;
mod csv;
mod metric;
mod picture;
mod series;
mod since;
#[cfg(test)]
mod tests;

pub use chart::{chart, table};
pub use csv::csv;
pub use metric::{Metric, UnknownMetric};
pub use picture::picture;
pub use series::{AHEAD, Mark, Point, Series, What, series};
pub use since::{SinceError, since};
