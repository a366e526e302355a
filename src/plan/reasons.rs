//! Why a run is stale: the differences between two keys' materials, with old and new value. Pure.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// One difference between what was measured and what would be measured now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// Where in the material, e.g. `subject.builds.latent.sources.latent.c`.
    pub path: String,
    /// `None`: it was not there.
    pub old: Option<Value>,
    /// `None`: it is no longer there.
    pub new: Option<Value>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Option<Value>| match value {
            None => "(nothing)".to_owned(),
            Some(Value::String(text)) if is_hash(text) => text[..12].to_owned(),
            Some(Value::String(text)) => shorten(text),
            Some(other) => shorten(&other.to_string()),
        };
        write!(f, "{}: {} → {}", self.path, text(&self.old), text(&self.new))
    }
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn shorten(text: &str) -> String {
    const MOST: usize = 60;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Every difference between two materials, in the order of their paths.
pub fn changes(old: &Value, new: &Value) -> Vec<Change> {
    let mut found = Vec::new();
    compare("", old, new, &mut found);
    found
}

fn compare(path: &str, old: &Value, new: &Value, found: &mut Vec<Change>) {
    let child = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for name in names {
                visit(child(name), old.get(name), new.get(name), found);
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            for index in 0..old.len().max(new.len()) {
                let name = label(old.get(index).or(new.get(index)), index);
                visit(child(&name), old.get(index), new.get(index), found);
            }
        }
        (old, new) if old == new => {}
        (old, new) => {
            found.push(Change { path: path.to_owned(), old: Some(old.clone()), new: Some(new.clone()) });
        }
    }
}

fn visit(path: String, old: Option<&Value>, new: Option<&Value>, found: &mut Vec<Change>) {
    match (old, new) {
        (Some(old), Some(new)) => compare(&path, old, new, found),
        (old, new) => found.push(Change { path, old: old.cloned(), new: new.cloned() }),
    }
}

/// Stages and buffers are known by name; what has none, by number.
fn label(item: Option<&Value>, index: usize) -> String {
    match item.and_then(|item| item.get("name")).and_then(Value::as_str) {
        Some(name) => name.to_owned(),
        None => index.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn changes_name_path_old_and_new_value() {
        let old = json!({"a": {"x": 1, "gone": true}, "stages": [{"name": "latent", "grid": [1, 2]}]});
        let new = json!({"a": {"x": 2, "came": "v"}, "stages": [{"name": "latent", "grid": [1, 3]}]});
        let lines: Vec<String> = changes(&old, &new).iter().map(Change::to_string).collect();
        assert_eq!(
            lines,
            ["a.came: (nothing) → v", "a.gone: true → (nothing)", "a.x: 1 → 2", "stages.latent.grid.1: 2 → 3",]
        );
    }

    #[test]
    fn equal_materials_differ_in_nothing() {
        let value = json!({"a": [1, {"b": null}]});
        assert!(changes(&value, &value).is_empty());
    }

    #[test]
    fn hashes_are_shortened() {
        let change = Change { path: "f".into(), old: Some(json!("a".repeat(64))), new: Some(json!("b".repeat(64))) };
        assert_eq!(change.to_string(), format!("f: {} → {}", "a".repeat(12), "b".repeat(12)));
    }
}
