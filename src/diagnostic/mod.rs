//! Diagnostics that point into a text: collected, never raised one by one, and rendered with the text underlined.
//! Knows nothing of manifests or packages.

mod nearest;
mod plain;
mod render;

use std::ops::Range;
use std::sync::Arc;

pub use nearest::{nearest, suggestion};
pub use plain::{plain, spelt_out};
pub use render::{Colour, render, render_all};

/// A text that diagnostics point into, with the name that people know it by.
#[derive(Debug, PartialEq, Eq)]
pub struct SourceFile {
    name: String,
    text: String,
}

impl SourceFile {
    /// A text called `name` (a path, or what stands for one). A byte-order mark at its start is dropped, so that it
    /// shifts no column.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Arc<SourceFile> {
        let mut text = text.into();
        if text.starts_with('\u{feff}') {
            text.drain(..'\u{feff}'.len_utf8());
        }
        Arc::new(SourceFile { name: name.into(), text })
    }

    /// Path, or what stands for one.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text, without byte-order mark.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Line and column, both from 1, of a byte; the column counts characters.
    pub fn position(&self, byte: usize) -> (usize, usize) {
        let before = &self.text[..floor_boundary(&self.text, byte)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}

/// The last character boundary of `text` at or before `byte`.
fn floor_boundary(text: &str, byte: usize) -> usize {
    let byte = byte.min(text.len());
    (0..=byte).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// A range of bytes in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub file: Arc<SourceFile>,
    pub span: Range<usize>,
}

impl Place {
    /// The range `span` of `file`.
    pub fn new(file: &Arc<SourceFile>, span: Range<usize>) -> Place {
        Place { file: Arc::clone(file), span }
    }

    /// The text between the ends.
    pub fn text(&self) -> &str {
        self.file.text().get(self.span.clone()).unwrap_or_default()
    }

    /// Where this is the place of a string that holds `value`: the place of `length` bytes of the value from byte
    /// `start` on. The whole string where it is written with escapes; the closing quote where the value has ended.
    pub fn inside_text(&self, value: &str, start: usize, length: usize) -> Place {
        let written = self.text();
        let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| written.starts_with(quote)).unwrap_or("");
        let inner = written.len().checked_sub(quote.len()).and_then(|end| written.get(quote.len()..end));
        if inner != Some(value) {
            return self.clone();
        }
        let from = self.span.start + quote.len() + start;
        Place::new(&self.file, from..(from + length).min(self.span.end).max(from))
    }

    /// As [`Place::inside_text`], the first place of `word` standing alone in `value`.
    pub fn word_inside_text(&self, value: &str, word: &str) -> Place {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let found = value.match_indices(word).find(|(start, _)| {
            let before = start.checked_sub(1).map(|at| value.as_bytes()[at]);
            let after = value.as_bytes().get(start + word.len()).copied();
            !before.is_some_and(letter) && !after.is_some_and(letter)
        });
        found.map_or_else(|| self.clone(), |(start, _)| self.inside_text(value, start, word.len()))
    }
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Nothing is run.
    Error,
    /// Said once; the run goes on.
    Warning,
}

/// One thing that is wrong, where, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    pub file: Arc<SourceFile>,
    /// Bytes that are underlined; `None` where the whole file is meant.
    pub span: Option<Range<usize>>,
    /// What is wrong.
    pub message: String,
    /// Text beside the underlined bytes.
    pub label: Option<String>,
    /// What to do.
    pub help: Option<String>,
}

impl Diagnostic {
    /// An error at `place`.
    pub fn error(place: &Place, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            file: Arc::clone(&place.file),
            span: Some(place.span.clone()),
            message: message.into(),
            label: None,
            help: None,
        }
    }

    /// A warning at `place`.
    pub fn warning(place: &Place, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(place, message) }
    }

    /// An error about all of `file`.
    pub fn of_file(file: &Arc<SourceFile>, message: impl Into<String>) -> Diagnostic {
        Diagnostic { span: None, ..Diagnostic::error(&Place::new(file, 0..0), message) }
    }

    /// With a text beside the underlined bytes.
    pub fn label(self, label: impl Into<String>) -> Diagnostic {
        Diagnostic { label: Some(label.into()), ..self }
    }

    /// With what to do.
    pub fn help(self, help: impl Into<String>) -> Diagnostic {
        Diagnostic { help: Some(help.into()), ..self }
    }

    /// With what to do, if anything is known.
    pub fn maybe_help(self, help: Option<String>) -> Diagnostic {
        Diagnostic { help: help.or(self.help.clone()), ..self }
    }

    /// Nothing is run because of it.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// Sorts by file (in order of their names), then by position; what is equal stays once.
pub fn sort(diagnostics: &mut Vec<Diagnostic>) {
    diagnostics.sort_by(|a, b| {
        let start = |diagnostic: &Diagnostic| diagnostic.span.as_ref().map_or((0, 0), |span| (span.start, span.end));
        (a.file.name(), start(a)).cmp(&(b.file.name(), start(b)))
    });
    diagnostics.dedup();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters() {
        let file = SourceFile::new("a.toml", "\u{feff}a = 1\r\nµ = 2\n");
        assert_eq!(file.position(0), (1, 1));
        assert_eq!(file.position(7), (2, 1));
        assert_eq!(file.position(9), (2, 2));
        assert_eq!(file.position(8), (2, 1), "the middle of a character counts as its start");
        assert_eq!(file.position(1000), (3, 1));
    }

    #[test]
    fn diagnostics_sort_by_position_and_stay_once() {
        let file = SourceFile::new("a.toml", "abc");
        let at = |start: usize| Diagnostic::error(&Place::new(&file, start..start + 1), "wrong");
        let mut diagnostics = vec![at(2), at(0), at(2), Diagnostic::of_file(&file, "all of it")];
        sort(&mut diagnostics);
        let starts: Vec<_> = diagnostics.iter().map(|diagnostic| diagnostic.span.clone()).collect();
        assert_eq!(starts, [None, Some(0..1), Some(2..3)]);
    }
}
