//! The build cache as the session's compiler.

use crate::backend::{Backend, BuildCache, BuildError, Origin};
use crate::execute::{Builder, Built};
use crate::model::build::StageBuild;
use crate::model::protocol::{Failure, FailureKind};

/// Builds with one backend into one cache.
pub(super) struct CachedBuilder<'a> {
    pub backend: &'a dyn Backend,
    pub cache: &'a BuildCache,
}

impl Builder for CachedBuilder<'_> {
    fn build(&self, stage: &StageBuild) -> Result<Built, Failure> {
        let artifact = self.cache.build(self.backend, stage).map_err(|error| failure(&error))?;
        let cached = artifact.origin == Origin::Cached;
        Ok(Built { key: artifact.info.key, module: artifact.module(), cached })
    }
}

fn failure(error: &BuildError) -> Failure {
    let log = error.log().map(|log| format!("\n{}", log.trim_end())).unwrap_or_default();
    Failure { kind: FailureKind::Build, stage: None, message: format!("{error}{log}") }
}
