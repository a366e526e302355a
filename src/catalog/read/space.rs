//! Tiling spaces: `[space]` and `[stages.space]`.

use super::super::names::Names;
use super::super::package::Space;
use super::parameters::is_identifier;
use super::{Reader, entries};
use crate::diagnostic::{Diagnostic, suggestion};
use crate::expr::Expr;
use crate::spanned::{Fields, Node, fields};

impl Reader<'_> {
    /// The space of `owner`, and `names` with its choices.
    pub(super) fn space(&mut self, node: Option<&Node>, owner: &str, names: &Names) -> (Space, Names) {
        let what = format!("the space of {owner}");
        let Some(node) = node else { return (Space::default(), names.clone()) };
        let Some(mut table) = Fields::of(node, what.as_str(), &mut self.diagnostics) else {
            return (Space::default(), names.clone());
        };
        let outer = Names { choices: Default::default(), ..names.clone() };
        let mut space = Space::default();
        let mut declared = names.clone();
        if let Some(node) = table.require("choices", &mut self.diagnostics) {
            self.choices(node, &what, &outer, &mut declared, &mut space);
        }
        if let Some(node) = table.get("constraints") {
            let what = format!("a constraint of {owner}");
            space.constraints = self.expressions(node, &what, &declared).unwrap_or_default();
        }
        if let Some(node) = table.require("default", &mut self.diagnostics) {
            self.default(node, &what, &outer, &mut space);
        }
        table.finish(&mut self.diagnostics);
        (space, declared)
    }

    fn choices(&mut self, node: &Node, what: &str, outer: &Names, declared: &mut Names, space: &mut Space) {
        let Some(table) = fields::table(node, "`choices`", &mut self.diagnostics) else { return };
        if table.entries.is_empty() {
            self.error(node, format!("{what} has no choice"), "leave the space out");
        }
        for entry in &table.entries {
            let choice = format!("the choice `{}`", entry.key);
            if !is_identifier(&entry.key) {
                let message = format!("{choice} is no name: letters, digits and `_`, a letter first");
                self.diagnostics.push(Diagnostic::error(&entry.key_at, message).label("choose another name"));
            }
            if !declared.choices.insert(entry.key.clone()) {
                let message = format!("{choice} is one of the pipeline already");
                self.diagnostics.push(Diagnostic::error(&entry.key_at, message).label("choose another name"));
            }
            let values = self.expressions(&entry.value, &format!("a value of {choice}"), outer).unwrap_or_default();
            if fields_are_empty(&entry.value) {
                self.error(&entry.value, format!("{choice} has no value"), "empty");
            }
            space.choices.push((entry.key.clone(), values));
        }
    }

    fn default(&mut self, node: &Node, what: &str, outer: &Names, space: &mut Space) {
        let Some(table) = fields::table(node, "`default`", &mut self.diagnostics) else { return };
        for entry in entries(table) {
            let name = entry.key.as_str();
            let Some((_, values)) = space.choices.iter().find(|(choice, _)| choice == name) else {
                let message = format!("the default of {what} gives the unknown choice `{name}`");
                let help = suggestion(name, space.choices.iter().map(|(choice, _)| choice.as_str()));
                self.diagnostics.push(Diagnostic::error(&entry.key_at, message).label("unknown").maybe_help(help));
                continue;
            };
            let values = values.clone();
            let Some(expr) = self.expression(&entry.value, &format!("the default of `{name}`"), outer) else {
                continue;
            };
            if is_literal(&expr) && values.iter().all(is_literal) && !values.contains(&expr) && !values.is_empty() {
                let listed = values.iter().map(Expr::source).collect::<Vec<_>>().join(", ");
                let message = format!("the default of `{name}` is not among its values");
                let diagnostic = Diagnostic::error(&entry.value.at, message).label("not a value of the choice");
                self.diagnostics.push(diagnostic.help(format!("its values are {listed}")));
            }
            space.default.insert(name.to_owned(), expr);
        }
        for (choice, _) in space.choices.iter().filter(|(choice, _)| table.get(choice).is_none()) {
            let message = format!("the default of {what} leaves the choice `{choice}` open");
            self.diagnostics.push(Diagnostic::error(&node.at, message).label(format!("no `{choice}` here")));
        }
    }
}

fn fields_are_empty(node: &Node) -> bool {
    matches!(&node.kind, crate::spanned::Kind::Array(values) if values.is_empty())
}

/// The expression reads no name and calls no function, and so has one value everywhere.
fn is_literal(expr: &Expr) -> bool {
    expr.variables().is_empty() && expr.functions().is_empty()
}
