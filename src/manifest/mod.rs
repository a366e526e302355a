//! Experiment manifests: read as typed, then resolved against the catalog into what they mean. Everything wrong is
//! reported at once. Plans nothing.

mod count;
mod experiment;
mod overrides;
mod read;
mod resolve;
mod shapes;
#[cfg(test)]
mod tests;
mod typed;

use std::path::PathBuf;
use std::sync::Arc;

use crate::catalog::Catalog;
use crate::diagnostic::{self, Diagnostic, SourceFile};
use crate::model::{DeviceKind, Language};

pub use experiment::{
    AnnotationOverrides, Baseline, ClockPolicy, Clocks, Devlog, EventOverrides, Experiment, NsysOverrides,
    ProtocolOverrides, Selection, TuningOverrides,
};

/// The text of a manifest, and where it is from.
#[derive(Debug, Clone)]
pub struct Source {
    /// Shown in messages; files that the manifest names are found from its folder.
    pub path: PathBuf,
    pub text: String,
}

/// A manifest as it was typed, with what is wrong with it so far: [`resolve()`] reports that with everything else.
#[derive(Debug, Clone)]
pub struct Document {
    file: Arc<SourceFile>,
    path: PathBuf,
    typed: typed::Manifest,
    diagnostics: Vec<Diagnostic>,
}

impl Document {
    /// Name of the experiment, if it has one.
    pub fn name(&self) -> Option<&str> {
        Some(self.typed.experiment.as_ref()?.name.as_ref()?.value.as_str())
    }
}

/// Why a manifest has no meaning here.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// The manifest, or a package that it uses, is wrong; warnings are among the diagnostics.
    #[error("the manifest is wrong: {} errors", .0.iter().filter(|diagnostic| diagnostic.is_error()).count())]
    Invalid(Vec<Diagnostic>),
    /// The manifest is sound, but the host lacks what it needs.
    #[error(
        "kernels in {language} need a GPU, which this host lacks; a table `[target.cpu]` can say what runs instead"
    )]
    NoDevice { language: Language, diagnostic: Box<Diagnostic> },
}

/// Reads a manifest after putting the overrides `sets`, each a `key=value`, into it.
///
/// # Errors
/// Text that is no TOML, in the manifest or in an override. Anything else that is wrong is kept in the document.
pub fn parse(source: Source, sets: &[String]) -> Result<Document, Vec<Diagnostic>> {
    let file = SourceFile::new(source.path.display().to_string(), source.text);
    let mut diagnostics = Vec::new();
    let mut tree = crate::spanned::parse(&file)?;
    for set in sets {
        overrides::apply(&mut tree, set, &mut diagnostics);
    }
    if !diagnostics.is_empty() {
        diagnostic::sort(&mut diagnostics);
        return Err(diagnostics);
    }
    let (typed, diagnostics) = read::manifest(&tree);
    Ok(Document { file, path: source.path, typed, diagnostics })
}

/// What `document` means on a host whose device is of the kind `host`, and warnings.
///
/// # Errors
/// Everything that is wrong with the document, with the names that it uses and with the packages behind them; or a
/// language for which the host has no device.
pub fn resolve(
    document: &Document,
    catalog: &Catalog,
    host: DeviceKind,
) -> Result<(Experiment, Vec<Diagnostic>), Error> {
    resolve::resolve(document, catalog, host)
}

/// The JSON Schema (draft 2020-12) of manifests, for editors.
pub fn json_schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(typed::Manifest);
    schema.insert("title".to_owned(), "mlarun manifest".into());
    schema.to_value()
}
