//! What decides the compiler's output for one stage. Pure: reads no file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::calling::{ArgType, unit_source};
use super::{DType, Key, Language};

/// What identifies a compiler: not where it lies, but what it makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompilerId {
    /// First line of its version text, without the name that it was called by.
    pub version: String,
    /// Target triple, e.g. `x86_64-linux-gnu`.
    pub target: String,
    /// Arguments that are part of the compiler's command (`CC="gcc -m32"`).
    pub arguments: Vec<String>,
    /// Hash of what "native" resolves to on this machine: instruction sets, tuning, caches and predefined macros.
    pub native: Key,
}

impl std::fmt::Display for CompilerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} for {}", self.version, self.target)
    }
}

/// A compiler with the flags that it gets for every stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Toolchain {
    pub compiler: CompilerId,
    pub standard_flags: Vec<String>,
}

/// Everything that compiling one stage needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StageBuild {
    pub language: Language,
    /// Folder of the package, relative to the project's root.
    pub package: PathBuf,
    /// Source file, relative to the root.
    pub source: PathBuf,
    /// SHA-256 of the source and of every declared header, by path relative to the package's folder.
    pub hashes: BTreeMap<String, Key>,
    /// Function that the stage launches.
    pub entry: String,
    /// Types of its declared arguments, in order.
    pub args: Vec<ArgType>,
    /// Macros, by name.
    pub defines: BTreeMap<String, String>,
    /// The stage's own compiler flags; their order matters.
    pub flags: Vec<String>,
    /// Element type of the shape, if it has one; defines `DTYPE_<NAME>`.
    pub dtype: Option<DType>,
}

impl StageBuild {
    /// Material of the build's key, for the compiler of `toolchain`.
    ///
    /// # Panics
    /// When the source is not among the hashed files; the catalogue hashes every source.
    pub fn material(&self, toolchain: &Toolchain) -> BuildMaterial {
        let mut defines = self.defines.clone();
        if let Some(dtype) = self.dtype {
            defines.insert(format!("DTYPE_{}", dtype.name().to_uppercase()), "1".to_owned());
        }
        let include = self.include().expect("the catalogue hashes every source");
        BuildMaterial {
            compiler: toolchain.compiler.clone(),
            sources: self.hashes.clone(),
            caller: unit_source(self.language, include, &self.entry, &self.args),
            defines,
            flags: toolchain.standard_flags.iter().chain(&self.flags).cloned().collect(),
        }
    }

    /// Path of the source relative to the package's folder, as it is hashed and included.
    fn include(&self) -> Option<&str> {
        let found = self.hashes.keys().find(|path| normalised(&self.package.join(path)) == normalised(&self.source));
        found.map(String::as_str)
    }

    /// The hashed files, relative to the project's root, with their hashes.
    pub fn files(&self) -> impl Iterator<Item = (PathBuf, &Key)> {
        self.hashes.iter().map(|(path, key)| (normalised(&self.package.join(path)), key))
    }
}

/// A path with `.` and `..` resolved by name alone.
pub fn normalised(path: &Path) -> PathBuf {
    use std::path::Component;
    path.components().fold(PathBuf::new(), |mut done, component| {
        match component {
            Component::CurDir => {}
            Component::ParentDir if done.file_name().is_some() => {
                done.pop();
            }
            other => done.push(other),
        }
        done
    })
}

/// A compiled stage: what a worker loads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Shared library (CPU) or cubin (GPU).
    pub path: PathBuf,
    /// Hash over the code sections alone: equal for equal machine code.
    pub code_sha256: Key,
    /// Of the stage's function, where the compiler tells: on a GPU.
    pub resources: Option<Resources>,
}

/// What one kernel takes of a GPU's multiprocessor, as ptxas tells it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Of a thread.
    pub registers: u32,
    /// Static shared memory of a block, in bytes.
    pub shared_bytes: u64,
    /// Of a thread, in bytes.
    pub stack_bytes: u64,
    /// Stores of a thread into local memory because of too few registers, in bytes.
    pub spill_store_bytes: u64,
    /// Loads of a thread from there, in bytes.
    pub spill_load_bytes: u64,
}

/// The one definition of what a build depends on. Holds no absolute path, no time stamp and no label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildMaterial {
    pub compiler: CompilerId,
    /// SHA-256 of source and headers, by path relative to the package's folder.
    pub sources: BTreeMap<String, Key>,
    /// Text of the translation unit: includes the source and holds its entry to the declared arguments.
    pub caller: String,
    pub defines: BTreeMap<String, String>,
    /// All flags in order, the compiler's standard ones first.
    pub flags: Vec<String>,
}

impl BuildMaterial {
    /// Key of the build: names the artifact's folder and enters every subject's key.
    pub fn key(&self) -> Key {
        Key::of("build/1", self)
    }
}
