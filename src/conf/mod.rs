//! Configuration: device peaks, metric names, thresholds and the measuring protocol. Reads a project's `conf/` folder; the defaults are
//! embedded in the program. Knows nothing of devices, runs or reports.

mod devices;
mod metrics;
mod protocol;
mod thresholds;

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

pub use devices::{DevicePeaks, Devices, Rate};
pub use metrics::{CounterName, CounterRule, Metrics, Named};
pub use protocol::{Annotation, Event, Flush, Limits, MOST_TRACED, Nsys, Protocol, Tune, WarmupConf};
pub use thresholds::{
    Certainty, Decision, Focus, Healthy, Level, MetricName, MetricRule, RooflineRule, Thresholds, Unit, Verdict,
};

/// Version of the format of every file in `conf/`.
const SCHEMA: u32 = 1;

/// Everything that `conf/` configures.
#[derive(Debug, Clone)]
pub struct Conf {
    pub devices: Devices,
    pub metrics: Metrics,
    pub thresholds: Thresholds,
    pub protocol: Protocol,
}

impl Conf {
    /// The embedded defaults, each replaced as a whole by the file of its name in the folder `conf`, where there is one.
    ///
    /// # Errors
    /// A file that cannot be read, is no TOML, has an unknown or missing key, or a value that is not allowed.
    pub fn load(folder: &Path) -> Result<Conf, ConfError> {
        Ok(Conf {
            devices: read(folder, devices::FILE, devices::DEFAULT, devices::parse)?,
            metrics: read(folder, metrics::FILE, metrics::DEFAULT, metrics::parse)?,
            thresholds: read(folder, thresholds::FILE, thresholds::DEFAULT, thresholds::parse)?,
            protocol: read(folder, protocol::FILE, protocol::DEFAULT, protocol::parse)?,
        })
    }
}

/// The configuration as text: for each file its name, and the text that [`Conf::load`] reads.
///
/// # Errors
/// A file of the folder `conf` cannot be read.
pub fn texts(folder: &Path) -> Result<Vec<(&'static str, String)>, ConfError> {
    let files = [
        (devices::FILE, devices::DEFAULT),
        (metrics::FILE, metrics::DEFAULT),
        (thresholds::FILE, thresholds::DEFAULT),
        (protocol::FILE, protocol::DEFAULT),
    ];
    files
        .into_iter()
        .map(|(name, default)| Ok((name, text(folder, name)?.unwrap_or_else(|| default.to_owned()))))
        .collect()
}

impl Default for Conf {
    /// The embedded defaults.
    fn default() -> Self {
        let valid = "the embedded configuration is valid";
        Conf {
            devices: devices::parse(Path::new(devices::FILE), devices::DEFAULT).expect(valid),
            metrics: metrics::parse(Path::new(metrics::FILE), metrics::DEFAULT).expect(valid),
            thresholds: thresholds::parse(Path::new(thresholds::FILE), thresholds::DEFAULT).expect(valid),
            protocol: protocol::parse(Path::new(protocol::FILE), protocol::DEFAULT).expect(valid),
        }
    }
}

/// A configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfError {
    #[error("cannot read {}: {source}; make it readable, or remove it to use the default", file.display())]
    Read { file: PathBuf, source: std::io::Error },
    /// The message of the TOML parser shows line, key and the keys that are allowed.
    #[error("{} is no valid configuration: {source}", file.display())]
    Parse { file: PathBuf, source: Box<toml::de::Error> },
    #[error("{}: `{key}` is {value}; allowed is {allowed}", file.display())]
    Value { file: PathBuf, key: String, value: String, allowed: String },
}

/// A value that the file's types admit and its meaning does not.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Invalid {
    key: String,
    value: String,
    allowed: String,
}

impl Invalid {
    fn new(key: impl Into<String>, value: impl std::fmt::Display, allowed: impl Into<String>) -> Invalid {
        Invalid { key: key.into(), value: value.to_string(), allowed: allowed.into() }
    }
}

type Parse<T> = fn(&Path, &str) -> Result<T, ConfError>;

fn read<T>(folder: &Path, name: &str, default: &str, parse: Parse<T>) -> Result<T, ConfError> {
    match text(folder, name)? {
        Some(text) => parse(&folder.join(name), &text),
        None => parse(Path::new(name), default),
    }
}

/// The file of the project's own, where there is one.
fn text(folder: &Path, name: &str) -> Result<Option<String>, ConfError> {
    let file = folder.join(name);
    match std::fs::read_to_string(&file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ConfError::Read { file, source }),
    }
}

/// Reads the types, then asks `check` about what they do not say.
fn parse<T: DeserializeOwned>(
    file: &Path,
    text: &str,
    check: impl FnOnce(&T) -> Result<(), Invalid>,
) -> Result<T, ConfError> {
    let value: T =
        toml::from_str(text).map_err(|source| ConfError::Parse { file: file.to_owned(), source: Box::new(source) })?;
    check(&value).map_err(|Invalid { key, value, allowed }| ConfError::Value {
        file: file.to_owned(),
        key,
        value,
        allowed,
    })?;
    Ok(value)
}

fn check_schema(schema: u32) -> Result<(), Invalid> {
    if schema == SCHEMA { Ok(()) } else { Err(Invalid::new("schema", schema, SCHEMA.to_string())) }
}

fn check_positive(key: &str, value: f64) -> Result<(), Invalid> {
    let positive = value.is_finite() && value > 0.0;
    if positive { Ok(()) } else { Err(Invalid::new(key, value, "a finite number above 0")) }
}

fn check_range(key: &str, value: u64, low: u64, high: u64) -> Result<(), Invalid> {
    if (low..=high).contains(&value) { Ok(()) } else { Err(Invalid::new(key, value, format!("{low} to {high}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(name: &str, text: &str) -> String {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join(name), text).expect("it is written");
        let error = Conf::load(folder.path()).expect_err("the file is bad").to_string();
        error.replace(&folder.path().display().to_string(), "conf")
    }

    #[test]
    fn a_missing_folder_means_the_defaults() {
        let loaded = Conf::load(Path::new("no/such/folder")).expect("defaults");
        assert_eq!(loaded.protocol, Conf::default().protocol);
        assert_eq!(loaded.thresholds, Conf::default().thresholds);
        assert_eq!(loaded.devices, Conf::default().devices);
    }

    #[test]
    fn a_projects_file_replaces_its_namesake_alone() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let text = protocol::DEFAULT.replace("max_samples = 400", "max_samples = 401");
        std::fs::write(folder.path().join("protocol.toml"), text).expect("it is written");
        let loaded = Conf::load(folder.path()).expect("it is valid");
        assert_eq!(loaded.protocol.event.max_samples, 401);
        assert_eq!(loaded.devices, Conf::default().devices);
    }

    #[test]
    fn an_unknown_key_names_file_line_key_and_what_is_allowed() {
        let message = error("protocol.toml", &protocol::DEFAULT.replace("budget_ms = 400", "budget_mss = 400"));
        for part in ["conf/protocol.toml", "line", "budget_mss", "budget_ms"] {
            assert!(message.contains(part), "{part} is missing: {message}");
        }
    }

    #[test]
    fn a_value_out_of_range_names_file_key_and_what_is_allowed() {
        let message = error("protocol.toml", &protocol::DEFAULT.replace("steady_blocks = 3", "steady_blocks = 1"));
        assert_eq!(message, "conf/protocol.toml: `warmup.steady_blocks` is 1; allowed is 2 to 1000");
        let message = error("devices.toml", &devices::DEFAULT.replace("tflops = 66.9", "tflops = 0.0"));
        assert_eq!(message, "conf/devices.toml: `device.H200.float32.tflops` is 0; allowed is a finite number above 0");
        let message = error("thresholds.toml", &thresholds::DEFAULT.replace("weak_below = 0.40", "weak_below = nan"));
        assert_eq!(message, "conf/thresholds.toml: `roofline.weak_below` is NaN; allowed is latency_below (0.1) to 1");
    }

    #[test]
    fn another_schema_is_refused() {
        for (name, text) in [
            ("devices.toml", devices::DEFAULT),
            ("metrics.toml", metrics::DEFAULT),
            ("thresholds.toml", thresholds::DEFAULT),
            ("protocol.toml", protocol::DEFAULT),
        ] {
            let message = error(name, &text.replace("schema = 1", "schema = 2"));
            assert_eq!(message, format!("conf/{name}: `schema` is 2; allowed is 1"));
        }
    }
}
