//! The differently measured times of one pipeline. They never share a column.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What exactly a time in event mode is the time of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Timing {
    /// One launch, caches flushed before it. The primary one: reports and dev logs print it as Duration.
    ColdIsolated,
    /// One launch, caches as the previous launch left them.
    WarmIsolated,
    /// Back-to-back launches, their time divided by their number.
    WarmBatched,
}

impl Timing {
    /// Every timing, the primary one first.
    pub const ALL: [Timing; 3] = [Timing::ColdIsolated, Timing::WarmIsolated, Timing::WarmBatched];

    /// Name in records and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Timing::ColdIsolated => "cold_isolated",
            Timing::WarmIsolated => "warm_isolated",
            Timing::WarmBatched => "warm_batched",
        }
    }
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
