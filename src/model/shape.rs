//! Shape: the size of the problem, as parameter names with their values.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{DType, Value};

/// Parameters of a problem (b, s, t, dtype, …), by name. The kernel's own choices are a [`Tiling`](super::Tiling).
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shape(pub BTreeMap<String, Value>);

impl Shape {
    /// Value of the parameter `name`, if the shape has it.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// The `dtype` parameter, if the shape has one that names an element type.
    pub fn dtype(&self) -> Option<DType> {
        self.get("dtype")?.as_text()?.parse().ok()
    }
}

/// Parameters in the customary order: b, s, t first, then the rest by name, the dtype last.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.ordered().enumerate() {
            let space = if index == 0 { "" } else { " " };
            write!(f, "{space}{name}={value}")?;
        }
        Ok(())
    }
}

impl Shape {
    /// The parameters by which people tell shapes apart: those for which `is_named` holds, and b, s, t and dtype.
    pub fn label(&self, is_named: impl Fn(&str) -> bool) -> Shape {
        const ALWAYS: [&str; 4] = ["b", "s", "t", "dtype"];
        let named = self.0.iter().filter(|(name, _)| ALWAYS.contains(&name.as_str()) || is_named(name));
        Shape(named.map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    /// Parameters in the customary order: b, s, t first, then the rest by name, the dtype last.
    pub fn ordered(&self) -> impl Iterator<Item = (&str, &Value)> {
        const FIRST: [&str; 3] = ["b", "s", "t"];
        const LAST: &str = "dtype";
        let first = FIRST.into_iter();
        let rest = self.0.keys().map(String::as_str).filter(|name| !FIRST.contains(name) && *name != LAST);
        first
            .chain(rest)
            .chain([LAST])
            .filter_map(|name| self.0.get_key_value(name))
            .map(|(name, value)| (name.as_str(), value))
    }
}
