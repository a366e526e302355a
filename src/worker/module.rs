//! Compiled modules of stages: loads shared libraries and finds the generated callers. What it returns can be called;
//! calling it is the launcher's part.

use std::ffi::c_void;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::model::calling::caller_symbol;
use crate::model::pipeline::Stage;
use crate::model::protocol::{Failure, FailureKind};

/// The generated caller of a stage's function; see [`crate::model::calling`].
pub type Caller = unsafe extern "C" fn(*const *mut c_void, i64, i64, i64, i64);

/// A loaded module with the caller of one stage.
pub struct Module {
    caller: Caller,
    /// Kept loaded as long as the caller may be called.
    _library: Library,
}

/// A module does not load.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    #[error("{path} does not load: {reason}; build it again", path = path.display())]
    Load { stage: String, path: PathBuf, reason: String },
    #[error("{path} has no `{symbol}`; declare the stage's `entry` as the function that its source defines", path = path.display())]
    Symbol { stage: String, path: PathBuf, symbol: String },
}

impl From<ModuleError> for Failure {
    fn from(error: ModuleError) -> Failure {
        let message = error.to_string();
        let (ModuleError::Load { stage, .. } | ModuleError::Symbol { stage, .. }) = error;
        Failure { kind: FailureKind::Load, stage: Some(stage), message }
    }
}

impl Module {
    /// Loads the shared library at `path` and finds the caller of `stage`. All symbols are bound now, none later.
    ///
    /// # Errors
    /// The library does not load or lacks the caller.
    pub fn load(path: &Path, stage: &Stage) -> Result<Module, ModuleError> {
        // SAFETY: initialisers of the library run. It is a kernel's code, which this process exists to run: whatever
        // it does ends this process at worst.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(|reason| ModuleError::Load {
            stage: stage.name.clone(),
            path: path.to_owned(),
            reason: with_sources(&reason),
        })?;
        let symbol = caller_symbol(&stage.entry);
        // SAFETY: the symbol is made by `model::calling` with exactly this type.
        let found = unsafe { library.get::<Caller>(symbol.as_bytes()) };
        let caller = match found {
            Ok(caller) => *caller,
            Err(_) => {
                return Err(ModuleError::Symbol { stage: stage.name.clone(), path: path.to_owned(), symbol });
            }
        };
        Ok(Module { caller, _library: library })
    }

    /// The caller. It must not be called after the module is dropped.
    pub fn caller(&self) -> Caller {
        self.caller
    }
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pipeline::Launch;

    fn stage() -> Stage {
        Stage {
            name: "latent".into(),
            entry: "f".into(),
            args: vec![],
            grid: [1; 3],
            launch: Launch::Cpu { threads: 1 },
            stream: 0,
            after: vec![],
        }
    }

    #[test]
    fn a_missing_library_is_named_with_its_stage() {
        let error = Module::load(Path::new("/nowhere/k.so"), &stage()).err().expect("there is no such file");
        let failure = Failure::from(error);
        assert_eq!((failure.kind, failure.stage.as_deref()), (FailureKind::Load, Some("latent")));
        assert!(failure.message.contains("/nowhere/k.so"), "{failure}");
    }

    #[test]
    fn a_library_without_the_caller_is_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("k.so");
        std::fs::write(folder.path().join("k.c"), "void g(void) {}").expect("it is written");
        let mut cc = std::process::Command::new("cc");
        let status = cc.args(["-shared", "-fPIC", "-o"]).arg(&path).arg(folder.path().join("k.c")).status();
        assert!(status.expect("cc runs").success());
        let failure = Failure::from(Module::load(&path, &stage()).err().expect("it has no caller"));
        assert!(failure.message.contains("mlarun_call_f"), "{failure}");
    }
}
