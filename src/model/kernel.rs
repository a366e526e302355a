//! Identity of a kernel: language, design name and version.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::DeviceKind;

/// Language that a kernel package is written in; the first folder below `kernels/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// C, compiled by the system's `cc`, run on the CPU.
    C,
    /// CUDA C++, compiled by NVRTC, run on an NVIDIA GPU.
    Cuda,
}

impl Language {
    /// Every language, in the order in which help texts list them.
    pub const ALL: [Language; 2] = [Language::C, Language::Cuda];

    /// Folder and manifest name, e.g. `cuda`.
    pub const fn name(self) -> &'static str {
        match self {
            Language::C => "c",
            Language::Cuda => "cuda",
        }
    }

    /// What its kernels run on.
    pub const fn device(self) -> DeviceKind {
        match self {
            Language::C => DeviceKind::Cpu,
            Language::Cuda => DeviceKind::Gpu,
        }
    }

    /// Names that expressions of its packages may use for what the device has: cores that kernels may use; or
    /// multiprocessors, and the largest dynamic shared memory of a block in bytes.
    pub const fn device_names(self) -> &'static [&'static str] {
        match self {
            Language::C => &["cores"],
            Language::Cuda => &["sms", "shared_max"],
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text names no language.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a kernel language (c, cuda)")]
pub struct UnknownLanguage(pub String);

impl FromStr for Language {
    type Err = UnknownLanguage;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Language::ALL
            .into_iter()
            .find(|language| language.name() == text)
            .ok_or_else(|| UnknownLanguage(text.to_owned()))
    }
}

/// Version of a kernel design; `v0` is the base version, whose folder has no suffix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u32);

impl Version {
    /// The base version.
    pub const BASE: Version = Version(0);
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("v{}", self.0))
    }
}

/// The text is not `v` followed by a decimal number without leading zeros.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a version (v0, v1, v2, …)")]
pub struct InvalidVersion(pub String);

impl FromStr for Version {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidVersion(text.to_owned());
        let digits = text.strip_prefix('v').ok_or_else(invalid)?;
        let canonical = digits == "0" || !digits.starts_with('0');
        if !canonical || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(invalid());
        }
        digits.parse().map(Version).map_err(|_| invalid())
    }
}

impl Serialize for Version {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// One version of one kernel design in one language.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KernelId {
    /// Design name, e.g. `mla_var6_plus`.
    pub kernel: String,
    pub version: Version,
    pub language: Language,
}

impl fmt::Display for KernelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({})", self.kernel, self.version, self.language)
    }
}
