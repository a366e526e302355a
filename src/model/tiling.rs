//! Tiling: a kernel's own choices for one shape.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Value;

/// Chosen values by name; empty for a kernel, or a stage, without a tiling space.
pub type Choices = BTreeMap<String, Value>;

/// Everything that tuning decides about a kernel at one shape.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Tiling {
    /// Choices of the pipeline as a whole (tunable parameters such as n, shares of cores).
    pub pipeline: Choices,
    /// Choices of each stage, by the stage's name.
    pub stages: BTreeMap<String, Choices>,
}

impl Tiling {
    /// No choice at all.
    pub fn is_empty(&self) -> bool {
        self.pipeline.is_empty() && self.stages.values().all(BTreeMap::is_empty)
    }
}

/// `n=64 latent{block_t=64 threads=2}`; `-` without any choice.
impl fmt::Display for Tiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("-");
        }
        let list = |choices: &Choices| {
            choices.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        let mut parts = Vec::new();
        if !self.pipeline.is_empty() {
            parts.push(list(&self.pipeline));
        }
        for (stage, choices) in self.stages.iter().filter(|(_, choices)| !choices.is_empty()) {
            parts.push(format!("{stage}{{{}}}", list(choices)));
        }
        f.write_str(&parts.join(" "))
    }
}
