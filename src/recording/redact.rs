//! Leaves out of texts what says whose host it was.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;

/// What is replaced wherever it stands in a text, and by what; the first that fits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Redactions(Vec<(String, &'static str)>);

/// Stands for the name of the host.
pub const HOST: &str = "host";

impl Redactions {
    /// The project's folder becomes `.`, the user's `~`; the root of the file system stays.
    pub fn new(project: &Path, home: Option<&Path>) -> Redactions {
        let of = |path: &Path, by| (path.parent().is_some()).then(|| (path.display().to_string(), by));
        Redactions([of(project, "."), home.and_then(|home| of(home, "~"))].into_iter().flatten().collect())
    }

    /// `text` without them.
    pub fn text(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (what, by)| text.replace(what, by))
    }

    /// `value` as JSON, with every text in it redacted.
    ///
    /// # Errors
    /// It does not serialise.
    pub fn json(&self, value: &impl Serialize) -> Result<Value, serde_json::Error> {
        let mut json = serde_json::to_value(value)?;
        self.walk(&mut json);
        Ok(json)
    }

    fn walk(&self, json: &mut Value) {
        match json {
            Value::String(text) => *text = self.text(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.walk(value)),
            Value::Object(fields) => fields.values_mut().for_each(|value| self.walk(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}
