//! `mlarun history`: a metric over time, as plot and table, as a picture, as CSV or as JSON.

use jiff::tz::TimeZone;
use jiff::{Timestamp, ZonedDateTime};
use serde::Serialize;

use super::args::{Global, HistoryArgs};
use super::context;
use super::exit::{CliError, Exit};
use super::output;
use crate::app::{Followed, HistoryError};
use crate::atomic::{self, Durability};
use crate::history::{self, Series};

pub fn run(global: &Global, args: &HistoryArgs) -> Result<Exit, CliError> {
    let zone = TimeZone::system();
    let now = Timestamp::now();
    let version = args.version.as_deref().map(|version| version.parse().map_err(CliError::usage)).transpose()?;
    let since = args.since.as_deref().map(|text| history::since(text, &now.to_zoned_datetime(zone.clone())));
    let parameters = args.parameters.iter().map(|text| parameter(text)).collect::<Result<Vec<_>, _>>()?;
    let followed = Followed {
        kernel: &args.kernel,
        version,
        language: args.language,
        parameters: &parameters,
        metric: &args.metric,
        since: since.transpose().map_err(|error| CliError::usage(format!("--since {error}")))?,
    };
    let project = context::project_here(global)?;
    let ledger = context::ledger(&project)?;
    let records = crate::app::history(&ledger, &followed).map_err(|error| match error {
        HistoryError::Nothing(_) => CliError::usage(error),
        HistoryError::Store(error) => CliError::internal(error),
    })?;
    let series = history::series(&records, &args.metric, now);
    if series.is_empty() {
        return Err(CliError::usage(format!(
            "no record of {} has {}: its device or its mode does not tell it",
            args.kernel, args.metric
        )));
    }
    if let Some(file) = &args.svg {
        let picture = history::picture(&series, &args.metric, &zone);
        let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
        atomic::write(&file, picture.as_bytes(), Durability::Cached)
            .map_err(|error| CliError::host(format!("{}: {error}; name another file with --svg", file.display())))?;
    }
    print(global, args, &series, &now.to_zoned_datetime(zone))?;
    Ok(Exit::Success)
}

fn parameter(text: &str) -> Result<(String, String), CliError> {
    let wrong = || CliError::usage(format!("`{text}` is no parameter; write --NAME=VALUE, e.g. --s=16"));
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    Ok((name.to_owned(), value.to_owned()))
}

/// What `--json` prints.
#[derive(Serialize)]
struct Printed<'a> {
    metric: String,
    /// Of all values.
    unit: &'static str,
    series: &'a [Series],
}

fn print(global: &Global, args: &HistoryArgs, series: &[Series], now: &ZonedDateTime) -> Result<(), CliError> {
    let (metric, zone) = (&args.metric, now.time_zone());
    if global.json {
        return output::json(&Printed { metric: metric.to_string(), unit: metric.unit(), series });
    }
    if args.csv {
        return output::text(&history::csv(series, metric).map_err(CliError::internal)?);
    }
    for one in series {
        output::text(&history::chart(one, metric, zone))?;
        let (heads, rows) = history::table(one, metric, zone);
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        let mut table = output::table(&heads);
        table.add_rows(rows);
        output::text(&format!("\n{}\n", output::table_text(&table)))?;
    }
    Ok(())
}
