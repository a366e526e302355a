//! Reading a table key by key: what is missing, of the wrong type or unknown becomes a diagnostic, all of it at once.

use super::{Entry, Kind, Node, Table};
use crate::diagnostic::{Diagnostic, Place, suggestion};

/// A table being read. Every key asked for is a known key; [`Fields::finish`] reports the others.
pub struct Fields<'n> {
    table: &'n Table,
    /// Place that a missing key is reported at.
    at: Place,
    /// What the table is, for messages, e.g. `a stage`.
    what: String,
    known: Vec<&'static str>,
}

impl<'n> Fields<'n> {
    /// Starts reading `node`, which is `what`; reports a node that is no table.
    pub fn of(node: &'n Node, what: impl Into<String>, diagnostics: &mut Vec<Diagnostic>) -> Option<Fields<'n>> {
        let what = what.into();
        let table = table(node, &what, diagnostics)?;
        Some(Fields { table, at: node.at.clone(), what, known: Vec::new() })
    }

    /// The entry of `key`, if the table has it.
    pub fn entry(&mut self, key: &'static str) -> Option<&'n Entry> {
        self.known.push(key);
        self.table.get(key)
    }

    /// The value of `key`, if the table has it.
    pub fn get(&mut self, key: &'static str) -> Option<&'n Node> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// The value of `key`; reports its absence.
    pub fn require(&mut self, key: &'static str, diagnostics: &mut Vec<Diagnostic>) -> Option<&'n Node> {
        let value = self.get(key);
        if value.is_none() {
            let message = format!("{} needs the key `{key}`", self.what);
            diagnostics.push(Diagnostic::error(&self.at, message).label(format!("no `{key}` here")));
        }
        value
    }

    /// Reports every key that was never asked for.
    pub fn finish(self, diagnostics: &mut Vec<Diagnostic>) {
        for entry in &self.table.entries {
            if !self.known.contains(&entry.key.as_str()) {
                let message = format!("{} has no key `{}`", self.what, entry.key);
                let help = suggestion(&entry.key, self.known.iter().copied());
                diagnostics.push(Diagnostic::error(&entry.key_at, message).label("unknown key").maybe_help(help));
            }
        }
    }
}

fn wrong(node: &Node, what: &str, wanted: &str, diagnostics: &mut Vec<Diagnostic>) {
    let label = format!("this is {}", node.kind.described());
    diagnostics.push(Diagnostic::error(&node.at, format!("{what} must be {wanted}")).label(label));
}

/// The table that `node`, which is `what`, holds; reports anything else.
pub fn table<'n>(node: &'n Node, what: &str, diagnostics: &mut Vec<Diagnostic>) -> Option<&'n Table> {
    match &node.kind {
        Kind::Table(table) => Some(table),
        _ => {
            wrong(node, what, "a table", diagnostics);
            None
        }
    }
}

/// The list that `node`, which is `what`, holds; reports anything else.
pub fn list<'n>(node: &'n Node, what: &str, diagnostics: &mut Vec<Diagnostic>) -> Option<&'n [Node]> {
    match &node.kind {
        Kind::Array(values) => Some(values),
        _ => {
            wrong(node, what, "a list", diagnostics);
            None
        }
    }
}

/// The text that `node`, which is `what`, holds; reports anything else.
pub fn text<'n>(node: &'n Node, what: &str, diagnostics: &mut Vec<Diagnostic>) -> Option<&'n str> {
    match &node.kind {
        Kind::Text(text) => Some(text),
        _ => {
            wrong(node, what, "a string", diagnostics);
            None
        }
    }
}

/// The boolean that `node`, which is `what`, holds; reports anything else.
pub fn boolean(node: &Node, what: &str, diagnostics: &mut Vec<Diagnostic>) -> Option<bool> {
    match node.kind {
        Kind::Bool(value) => Some(value),
        _ => {
            wrong(node, what, "true or false", diagnostics);
            None
        }
    }
}

/// The integer of `low..=high` that `node`, which is `what`, holds; reports anything else.
pub fn integer(node: &Node, what: &str, low: i64, high: i64, diagnostics: &mut Vec<Diagnostic>) -> Option<i64> {
    match node.kind {
        Kind::Int(value) if (low..=high).contains(&value) => Some(value),
        Kind::Int(value) => {
            let message = format!("{what} must lie between {low} and {high}");
            diagnostics.push(Diagnostic::error(&node.at, message).label(format!("{value} does not")));
            None
        }
        _ => {
            wrong(node, what, "an integer", diagnostics);
            None
        }
    }
}

/// The finite number that `node`, which is `what`, holds, integers converted; reports anything else.
pub fn number(node: &Node, what: &str, diagnostics: &mut Vec<Diagnostic>) -> Option<f64> {
    match node.kind {
        Kind::Int(value) => Some(value as f64),
        Kind::Float(value) if value.is_finite() => Some(value),
        Kind::Float(value) => {
            diagnostics
                .push(Diagnostic::error(&node.at, format!("{what} must be finite")).label(format!("{value} is not")));
            None
        }
        _ => {
            wrong(node, what, "a number", diagnostics);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use crate::diagnostic::{Colour, SourceFile, render_all};

    #[test]
    fn everything_wrong_is_reported_at_once() {
        let file = SourceFile::new("a.toml", "nmae = 'x'\ncount = 'y'\nratio = nan\nlimit = 9\n");
        let node = parse(&file).expect("it is TOML");
        let mut diagnostics = Vec::new();
        let mut fields = Fields::of(&node, "the example", &mut diagnostics).expect("it is a table");
        fields.require("name", &mut diagnostics);
        integer(fields.get("count").expect("it is there"), "`count`", 0, 5, &mut diagnostics);
        number(fields.get("ratio").expect("it is there"), "`ratio`", &mut diagnostics);
        integer(fields.get("limit").expect("it is there"), "`limit`", 0, 5, &mut diagnostics);
        fields.finish(&mut diagnostics);
        crate::diagnostic::sort(&mut diagnostics);
        insta::assert_snapshot!(render_all(&diagnostics, Colour::Never), @r"
        error: the example needs the key `name`
         --> a.toml:1:1
          |
        1 | nmae = 'x'
          | ^ no `name` here

        error: the example has no key `nmae`
         --> a.toml:1:1
          |
        1 | nmae = 'x'
          | ^^^^ unknown key
          |
          = help: did you mean `name`?

        error: `count` must be an integer
         --> a.toml:2:9
          |
        2 | count = 'y'
          |         ^^^ this is a string

        error: `ratio` must be finite
         --> a.toml:3:9
          |
        3 | ratio = nan
          |         ^^^ NaN is not

        error: `limit` must lie between 0 and 5
         --> a.toml:4:9
          |
        4 | limit = 9
          |         ^ 9 does not
        ");
    }
}
