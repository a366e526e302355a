//! Text from views: Handlebars templates, embedded, each replaceable by a project's own. No arithmetic.
//!
//! Markdown is not HTML-escaped, and a name that a template uses and the view lacks is an error.

use std::path::{Path, PathBuf};

use handlebars::{Handlebars, RenderErrorReason, no_escape};
use serde::Serialize;

use super::bounded;

/// A template's file name, below `templates/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Template {
    Profile,
    Timeline,
    Experiment,
    DevlogPerformance,
    DevlogSection,
    DevlogNotes,
    Verification,
}

impl Template {
    const ALL: [Template; 7] = [
        Template::Profile,
        Template::Timeline,
        Template::Experiment,
        Template::DevlogPerformance,
        Template::DevlogSection,
        Template::DevlogNotes,
        Template::Verification,
    ];

    const fn file(self) -> &'static str {
        match self {
            Template::Profile => "profile.md.hbs",
            Template::Timeline => "timeline.md.hbs",
            Template::Experiment => "experiment.md.hbs",
            Template::DevlogPerformance => "devlog_performance.md.hbs",
            Template::DevlogSection => "devlog_section.md.hbs",
            Template::DevlogNotes => "devlog_notes.md.hbs",
            Template::Verification => "verification.md.hbs",
        }
    }

    /// The file of its name in `folder`, else the embedded one.
    fn text(self, folder: &Path) -> Result<String, RenderError> {
        let file = folder.join(self.file());
        match std::fs::read_to_string(&file) {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(self.default_text().to_owned()),
            Err(source) => Err(RenderError::Read { file, source }),
        }
    }

    const fn default_text(self) -> &'static str {
        match self {
            Template::Profile => include_str!("../../templates/profile.md.hbs"),
            Template::Timeline => include_str!("../../templates/timeline.md.hbs"),
            Template::Experiment => include_str!("../../templates/experiment.md.hbs"),
            Template::DevlogPerformance => include_str!("../../templates/devlog_performance.md.hbs"),
            Template::DevlogSection => include_str!("../../templates/devlog_section.md.hbs"),
            Template::DevlogNotes => include_str!("../../templates/devlog_notes.md.hbs"),
            Template::Verification => include_str!("../../templates/verification.md.hbs"),
        }
    }
}

/// The templates as text: for each file its name, and the text that [`Renderer::load`] reads.
///
/// # Errors
/// A template of the folder `templates` cannot be read.
pub fn template_texts(folder: &Path) -> Result<Vec<(&'static str, String)>, RenderError> {
    Template::ALL.into_iter().map(|template| Ok((template.file(), template.text(folder)?))).collect()
}

/// The parsed templates.
#[derive(Debug)]
pub struct Renderer {
    registry: Handlebars<'static>,
    folder: PathBuf,
}

impl Renderer {
    /// The embedded templates, each replaced by the file of its name in the folder `templates`, where there is one.
    ///
    /// # Errors
    /// A template that cannot be read or does not parse.
    pub fn load(folder: &Path) -> Result<Renderer, RenderError> {
        let mut registry = Handlebars::new();
        registry.set_strict_mode(true);
        registry.register_escape_fn(no_escape);
        for template in Template::ALL {
            let text = template.text(folder)?;
            let parsed = bounded::parse(&text).map_err(|(line, reason)| RenderError::Template {
                file: folder.join(template.file()),
                line,
                reason,
            })?;
            registry.register_template(template.file(), parsed);
        }
        Ok(Renderer { registry, folder: folder.to_owned() })
    }

    pub(super) fn render<V: Serialize>(&self, template: Template, view: &V) -> Result<String, RenderError> {
        self.registry.render(template.file(), view).map_err(|error| RenderError::Template {
            file: self.folder.join(template.file()),
            line: error.line_no.unwrap_or(0),
            reason: match error.reason() {
                RenderErrorReason::MissingVariable(Some(name)) => {
                    format!("`{name}` is no name that it can use; the default template shows those there are")
                }
                other => other.to_string(),
            },
        })
    }
}

/// A template does not make a text.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    #[error("cannot read the template {}: {source}; make it readable, or remove it to use the default", file.display())]
    Read { file: PathBuf, source: std::io::Error },
    #[error("{}:{line}: {reason}", file.display())]
    Template { file: PathBuf, line: usize, reason: String },
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn with(template: &str) -> (tempfile::TempDir, Result<Renderer, RenderError>) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("devlog_notes.md.hbs"), template).expect("it is written");
        let renderer = Renderer::load(folder.path());
        (folder, renderer)
    }

    #[test]
    fn a_projects_template_replaces_its_namesake() {
        let (_folder, renderer) = with("<b>{{name}}</b>\n");
        let view = BTreeMap::from([("name", "a < b & c")]);
        let text = renderer.expect("it parses").render(Template::DevlogNotes, &view).expect("it renders");
        assert_eq!(text, "<b>a < b & c</b>\n");
    }

    #[test]
    fn an_unknown_name_is_an_error_with_file_and_line() {
        let (folder, renderer) = with("first\n\n{{nonsense}}\n");
        let view = BTreeMap::from([("name", "x")]);
        let error = renderer.expect("it parses").render(Template::DevlogNotes, &view).expect_err("no such name");
        let message = error.to_string().replace(&folder.path().display().to_string(), "templates");
        assert!(message.starts_with("templates/devlog_notes.md.hbs:3: `nonsense` is no name"), "{message}");
    }

    #[test]
    fn a_template_that_does_not_parse_is_an_error_with_file_and_line() {
        let (folder, renderer) = with("first\n{{#if x}}\n");
        let message = renderer.expect_err("it is not closed").to_string();
        let message = message.replace(&folder.path().display().to_string(), "templates");
        assert!(message.starts_with("templates/devlog_notes.md.hbs:"), "{message}");
    }
}
