//! Element types of tensors. Names are the full ones that manifests, reports and dev logs print.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Element type of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    Float32,
    Bfloat16,
    Float16,
}

impl DType {
    /// Every element type, in the order in which help texts list them.
    pub const ALL: [DType; 3] = [DType::Float32, DType::Bfloat16, DType::Float16];

    /// Full lower-case name, e.g. `bfloat16`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::Float32 => "float32",
            DType::Bfloat16 => "bfloat16",
            DType::Float16 => "float16",
        }
    }

    /// Bytes an element.
    pub const fn bytes(self) -> u64 {
        match self {
            DType::Float32 => 4,
            DType::Bfloat16 | DType::Float16 => 2,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text names no element type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an element type (float32, bfloat16, float16)")]
pub struct UnknownDType(pub String);

impl FromStr for DType {
    type Err = UnknownDType;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        DType::ALL.into_iter().find(|dtype| dtype.name() == text).ok_or_else(|| UnknownDType(text.to_owned()))
    }
}
