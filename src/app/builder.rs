//! The build cache as the session's compiler.

use crate::backend::{Backend, BuildCache, BuildError};
use crate::execute::Builder;
use crate::model::build::{Module, StageBuild};
use crate::model::protocol::{Failure, FailureKind};

/// Builds with one backend into one cache.
pub(super) struct CachedBuilder<'a> {
    pub backend: &'a dyn Backend,
    pub cache: &'a BuildCache,
}

impl Builder for CachedBuilder<'_> {
    fn find(&self, stage: &StageBuild) -> Result<Option<Module>, Failure> {
        let key = stage.material(self.backend.toolchain()).key();
        let found = self.cache.get(&key).map_err(|error| failure(&error))?;
        Ok(found.map(|artifact| artifact.module()))
    }

    fn build(&self, stage: &StageBuild) -> Result<Module, Failure> {
        self.cache.build(self.backend, stage).map(|artifact| artifact.module()).map_err(|error| failure(&error))
    }
}

fn failure(error: &BuildError) -> Failure {
    let log = error.log().map(|log| format!("\n{}", log.trim_end())).unwrap_or_default();
    Failure { kind: FailureKind::Build, stage: None, message: format!("{error}{log}") }
}
