//! The tree.

use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeFloat, DeInteger, DeTable, DeValue};

use crate::diagnostic::{self, Diagnostic, Place, SourceFile};

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub at: Place,
    pub kind: Kind,
}

/// A TOML value.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    Bool(bool),
    Int(i64),
    /// May be NaN or infinite, as TOML allows both.
    Float(f64),
    Text(String),
    /// A date or a time, which no schema here uses.
    Date,
    Array(Vec<Node>),
    Table(Table),
}

impl Kind {
    /// The type with its article, for messages.
    pub fn described(&self) -> &'static str {
        match self {
            Kind::Bool(_) => "a boolean",
            Kind::Int(_) => "an integer",
            Kind::Float(_) => "a float",
            Kind::Text(_) => "a string",
            Kind::Date => "a date",
            Kind::Array(_) => "a list",
            Kind::Table(_) => "a table",
        }
    }
}

/// Entries in the order of the text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    pub entries: Vec<Entry>,
}

/// One key of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub key: String,
    pub key_at: Place,
    pub value: Node,
}

impl Table {
    /// The entry of `key`.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// The entry of `key`, to be changed.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.key == key)
    }
}

/// The tree of `file`.
///
/// # Errors
/// Every syntax error (the first one only, if a list is never closed), and every integer that exceeds 64 bits.
pub fn parse(file: &Arc<SourceFile>) -> Result<Node, Vec<Diagnostic>> {
    let (table, errors) = DeTable::parse_recoverable(file.text());
    let mut builder = Builder { file, offset: 0, diagnostics: Vec::new() };
    builder.syntax(&errors);
    let at = builder.place(table.span());
    let kind = Kind::Table(builder.table(table.get_ref()));
    builder.finish(Node { at, kind })
}

/// The single value (no document) that `file` holds from the byte `offset` to its end.
///
/// # Errors
/// As [`parse`].
pub fn parse_value(file: &Arc<SourceFile>, offset: usize) -> Result<Node, Vec<Diagnostic>> {
    let (value, errors) = DeValue::parse_recoverable(file.text().get(offset..).unwrap_or_default());
    let mut builder = Builder { file, offset, diagnostics: Vec::new() };
    builder.syntax(&errors);
    let node = builder.node(&value);
    builder.finish(node)
}

struct Builder<'f> {
    file: &'f Arc<SourceFile>,
    /// Byte at which the parsed text starts in the file.
    offset: usize,
    diagnostics: Vec<Diagnostic>,
}

impl Builder<'_> {
    fn place(&self, span: Range<usize>) -> Place {
        Place::new(self.file, span.start + self.offset..span.end + self.offset)
    }

    fn syntax(&mut self, errors: &[toml::de::Error]) {
        // What follows a list or inline table that is never closed was meant for something else.
        let is_open = |error: &toml::de::Error| {
            ["unclosed array", "unclosed inline table"].iter().any(|open| error.message().starts_with(open))
        };
        let told = if errors.iter().any(is_open) { 1 } else { errors.len() };
        for error in &errors[..told] {
            let end = self.file.text().len() - self.offset;
            let place = self.place(error.span().unwrap_or(end..end));
            self.diagnostics.push(Diagnostic::error(&place, format!("not TOML: {}", error.message())));
        }
    }

    fn finish(mut self, node: Node) -> Result<Node, Vec<Diagnostic>> {
        if self.diagnostics.is_empty() {
            return Ok(node);
        }
        diagnostic::sort(&mut self.diagnostics);
        Err(self.diagnostics)
    }

    fn table(&mut self, table: &DeTable<'_>) -> Table {
        let mut entries: Vec<Entry> = table
            .iter()
            .map(|(key, value)| Entry {
                key: key.get_ref().to_string(),
                key_at: self.place(key.span()),
                value: self.node(value),
            })
            .collect();
        entries.sort_by_key(|entry| entry.key_at.span.start);
        Table { entries }
    }

    fn node(&mut self, value: &Spanned<DeValue<'_>>) -> Node {
        let at = self.place(value.span());
        let kind = match value.get_ref() {
            DeValue::Boolean(value) => Kind::Bool(*value),
            DeValue::Integer(value) => Kind::Int(self.integer(&at, value)),
            DeValue::Float(value) => Kind::Float(self.float(&at, value)),
            DeValue::String(value) => Kind::Text(value.to_string()),
            DeValue::Datetime(_) => Kind::Date,
            DeValue::Array(values) => Kind::Array(values.iter().map(|value| self.node(value)).collect()),
            DeValue::Table(table) => Kind::Table(self.table(table)),
        };
        Node { at, kind }
    }

    fn integer(&mut self, at: &Place, value: &DeInteger<'_>) -> i64 {
        i64::from_str_radix(value.as_str(), value.radix()).unwrap_or_else(|_| {
            self.diagnostics.push(Diagnostic::error(at, "the integer exceeds 64 bits"));
            0
        })
    }

    fn float(&mut self, at: &Place, value: &DeFloat<'_>) -> f64 {
        value.as_str().parse().unwrap_or_else(|_| {
            self.diagnostics.push(Diagnostic::error(at, "not a number"));
            0.0
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::diagnostic::{Colour, render_all};

    fn tree(text: &str) -> Result<Table, String> {
        match parse(&SourceFile::new("a.toml", text)) {
            Ok(Node { kind: Kind::Table(table), .. }) => Ok(table),
            Ok(other) => panic!("a document is a table, not {}", other.kind.described()),
            Err(diagnostics) => Err(render_all(&diagnostics, Colour::Never)),
        }
    }

    #[test]
    fn keys_keep_the_order_of_the_text_and_every_place_is_right() {
        let table = tree("z = 1\na = [1.5, 'x']\n[m.k]\nb = true\n").expect("it is TOML");
        let keys: Vec<&str> = table.entries.iter().map(|entry| entry.key.as_str()).collect();
        assert_eq!(keys, ["z", "a", "m"]);
        let a = table.get("a").expect("a is there");
        assert_eq!((a.key_at.text(), a.value.at.text()), ("a", "[1.5, 'x']"));
    }

    #[test]
    fn every_syntax_error_is_shown() {
        insta::assert_snapshot!(tree("a = \nb = 99999999999999999999\na = 2\n[c\n").expect_err("it is not TOML"), @r"
        error: not TOML: string values must be quoted, expected literal string
         --> a.toml:1:5
          |
        1 | a = 
          |     ^

        error: the integer exceeds 64 bits
         --> a.toml:2:5
          |
        2 | b = 99999999999999999999
          |     ^^^^^^^^^^^^^^^^^^^^

        error: not TOML: duplicate key
         --> a.toml:3:1
          |
        3 | a = 2
          | ^

        error: not TOML: unclosed table, expected `]`
         --> a.toml:4:3
          |
        4 | [c
          |   ^
        ");
    }

    #[test]
    fn a_value_inside_a_text_has_places_of_that_text() {
        let file = SourceFile::new("--set", "shapes.s=[1, 99999999999999999999]");
        let diagnostics = parse_value(&file, 9).expect_err("it exceeds 64 bits");
        assert_eq!(diagnostics[0].span, Some(13..33));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-c\\[\\]{}=\"'.,0-9#\r\n \u{feff}µ-]{0,60}") {
            if let Err(shown) = tree(&text) {
                prop_assert!(shown.contains("error"));
            }
        }
    }
}
