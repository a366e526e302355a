//! Expressions of a package: parsed once for each text, every name in them checked. Evaluates nothing.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use crate::diagnostic::{Diagnostic, Place, nearest, suggestion};
use crate::expr::{Expr, ParseError};
use crate::spanned::{Kind, Node};

/// Expressions by their text: the versions of a design share most of theirs.
#[derive(Debug, Default)]
pub struct Interner(Mutex<HashMap<String, Result<Expr, ParseError>>>);

impl Interner {
    /// The expression of `text`.
    pub fn parse(&self, text: &str) -> Result<Expr, ParseError> {
        // Nothing is left half done in the table when a holder panics.
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known().get(text) {
            return known.clone();
        }
        let parsed: Result<Expr, ParseError> = text.parse();
        known().insert(text.to_owned(), parsed.clone());
        parsed
    }
}

/// The names that an expression may use where it stands.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// Parameters, lets and `cores`.
    pub variables: BTreeSet<String>,
    /// Choices, as `tile.<choice>`.
    pub choices: BTreeSet<String>,
}

/// The expression that `node`, which is `what`, holds: a text, or a number or boolean standing for one.
pub fn expression(
    node: &Node,
    what: &str,
    names: &Names,
    interner: &Interner,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<Expr> {
    let text = match &node.kind {
        Kind::Text(text) => text.clone(),
        Kind::Int(value) => value.to_string(),
        Kind::Float(value) if value.is_finite() => format!("{value:?}"),
        Kind::Bool(value) => value.to_string(),
        other => {
            let label = format!("this is {}", other.described());
            diagnostics.push(Diagnostic::error(&node.at, format!("{what} must be an expression")).label(label));
            return None;
        }
    };
    let expr = match interner.parse(&text) {
        Ok(expr) => expr,
        Err(error) => {
            diagnostics.push(syntax_error(node, what, &error));
            return None;
        }
    };
    let before = diagnostics.len();
    check_names(node, what, &expr, names, diagnostics);
    (diagnostics.len() == before).then_some(expr)
}

fn syntax_error(node: &Node, what: &str, error: &ParseError) -> Diagnostic {
    if error.source_text.trim().is_empty() {
        return Diagnostic::error(&node.at, format!("{what} is empty")).label("an expression is needed");
    }
    let place = node.at.inside_text(&error.source_text, error.at, 1);
    Diagnostic::error(&place, format!("{what} is not an expression")).label(error.reason.clone())
}

/// Reports every variable, choice and function that `expr`, standing in `node`, may not use.
pub fn check_names(node: &Node, what: &str, expr: &Expr, names: &Names, diagnostics: &mut Vec<Diagnostic>) {
    for variable in expr.variables() {
        if variable == "tile" && !names.choices.is_empty() || names.variables.contains(variable) {
            continue;
        }
        let place = word(node, variable);
        let message = format!("{what} uses the unknown name `{variable}`");
        let help = if variable == "tile" {
            Some("there is no choice that it could use here".to_owned())
        } else {
            suggestion(variable, names.variables.iter().map(String::as_str))
        };
        diagnostics.push(Diagnostic::error(&place, message).label("unknown name").maybe_help(help));
    }
    if !names.choices.is_empty() {
        for choice in expr.fields_of("tile").filter(|choice| !names.choices.contains(*choice)) {
            let message = format!("{what} uses the unknown choice `tile.{choice}`");
            let help = suggestion(choice, names.choices.iter().map(String::as_str));
            diagnostics.push(Diagnostic::error(&word(node, choice), message).label("unknown choice").maybe_help(help));
        }
    }
    for function in expr.functions() {
        if !Expr::callable().any(|known| known == function) {
            let message = format!("{what} calls the unknown function `{function}`");
            let help = nearest(function, Expr::callable()).map(|near| format!("did you mean `{near}`?"));
            diagnostics
                .push(Diagnostic::error(&word(node, function), message).label("unknown function").maybe_help(help));
        }
    }
}

/// The place of the word `name` in the text that `node` holds; all of the text where it cannot be told.
fn word(node: &Node, name: &str) -> Place {
    match &node.kind {
        Kind::Text(text) => node.at.word_inside_text(text, name),
        _ => node.at.clone(),
    }
}
