//! `[parameters]` and `[reduced]`.

use std::collections::BTreeMap;

use super::super::names::Names;
use super::super::package::{Parameter, ParameterKind};
use super::{Reader, entries};
use crate::diagnostic::{Diagnostic, suggestion};
use crate::expr::{Expr, FUNCTIONS};
use crate::model::DType;
use crate::spanned::{Entry, Fields, Kind, Node, fields};

/// Names with a meaning of their own in expressions, arguments, manifests or selections.
const RESERVED: [&str; 15] = [
    "block",
    "cores",
    "exclude",
    "false",
    "in",
    "kernel",
    "language",
    "mode",
    "null",
    "point",
    "shared_max",
    "sms",
    "thread",
    "tile",
    "true",
];
/// Words that the expression language keeps for itself.
const KEYWORDS: [&str; 16] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "namespace",
    "package",
    "return",
    "var",
    "while",
];

/// `name` may be used in expressions: letters, digits and `_`, not starting with a digit.
pub fn is_identifier(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl Reader<'_> {
    /// The parameters, and the names that later expressions may use.
    pub(super) fn parameters(&mut self, node: Option<&Node>) -> (Vec<Parameter>, Names) {
        let mut names = Names::default();
        let table = node.and_then(|node| fields::table(node, "`parameters`", &mut self.diagnostics));
        let mut parameters = Vec::new();
        for entry in table.map_or(&[][..], entries) {
            self.new_name(entry, "parameter", &names);
            parameters.extend(self.parameter(entry, &names));
            names.variables.insert(entry.key.clone());
        }
        self.add_device_names(&mut names);
        (parameters, names)
    }

    fn add_device_names(&self, names: &mut Names) {
        names.variables.extend(self.location.id.language.device_names().iter().map(|&name| name.to_owned()));
    }

    /// Reports a name that is no identifier, is reserved or is taken already.
    pub(super) fn new_name(&mut self, entry: &Entry, what: &str, taken: &Names) {
        let name = entry.key.as_str();
        let problem = if !is_identifier(name) {
            Some("is no name: letters, digits and `_`, a letter first")
        } else if RESERVED.contains(&name) || KEYWORDS.contains(&name) || FUNCTIONS.contains(&name) {
            Some("has a meaning of its own in expressions")
        } else if taken.variables.contains(name) {
            Some("is declared already")
        } else {
            None
        };
        if let Some(problem) = problem {
            let message = format!("the {what} `{name}` {problem}");
            self.diagnostics.push(Diagnostic::error(&entry.key_at, message).label("choose another name"));
        }
    }

    fn parameter(&mut self, entry: &Entry, earlier: &Names) -> Option<Parameter> {
        let what = format!("the parameter `{}`", entry.key);
        let mut table = Fields::of(&entry.value, what.as_str(), &mut self.diagnostics)?;
        let kind = table.require("type", &mut self.diagnostics).and_then(|node| self.kind(node, &mut table));
        let default = table.get("default");
        let candidates = table.get("candidates");
        let doc = table.get("doc").and_then(|node| fields::text(node, "`doc`", &mut self.diagnostics)).unwrap_or("");
        let optional = table.get("optional");
        let optional =
            optional.and_then(|node| fields::boolean(node, "`optional`", &mut self.diagnostics).zip(Some(node)));
        table.finish(&mut self.diagnostics);
        let kind = kind?;
        if entry.key == "dtype" && !matches!(kind, ParameterKind::DType { .. }) {
            self.error(&entry.value, "the parameter `dtype` must be of type \"dtype\"", "it is another type");
        }
        let default = match default {
            Some(node) => {
                Some(self.parameter_value(node, &format!("the default of `{}`", entry.key), &kind, earlier)?)
            }
            None => None,
        };
        let candidates = match candidates {
            Some(node) => self.candidates(node, &entry.key, &kind, earlier)?,
            None => Vec::new(),
        };
        let optional = match optional {
            Some((true, node)) if default.is_none() || !candidates.is_empty() => {
                self.error(node, format!("`{}` cannot be optional", entry.key), "it needs a default, and is not tuned");
                false
            }
            other => other.is_some_and(|(optional, _)| optional),
        };
        Some(Parameter { name: entry.key.clone(), kind, default, candidates, optional, doc: doc.to_owned() })
    }

    fn kind<'n>(&mut self, node: &'n Node, table: &mut Fields<'n>) -> Option<ParameterKind> {
        const KINDS: [&str; 4] = ["int", "float", "bool", "dtype"];
        match fields::text(node, "`type`", &mut self.diagnostics)? {
            "int" => {
                let mut bound = |key, otherwise| match table.get(key) {
                    Some(node) => fields::integer(node, &format!("`{key}`"), i64::MIN, i64::MAX, &mut self.diagnostics),
                    None => Some(otherwise),
                };
                let (min, max) = (bound("min", i64::MIN)?, bound("max", i64::MAX)?);
                if min > max {
                    self.error(node, format!("no integer lies between {min} and {max}"), "this parameter has no value");
                }
                Some(ParameterKind::Int { min, max })
            }
            "float" => Some(ParameterKind::Float),
            "bool" => Some(ParameterKind::Bool),
            "dtype" => {
                let allowed = table.require("allowed", &mut self.diagnostics)?;
                let names = self.strings(allowed, "`allowed`");
                if names.is_empty() {
                    self.error(allowed, "`allowed` must list at least one element type", "empty");
                }
                let allowed = names.into_iter().filter_map(|(node, name)| self.dtype(node, name)).collect();
                Some(ParameterKind::DType { allowed })
            }
            other => {
                let message = format!("`{other}` is no type of a parameter");
                let help = suggestion(other, KINDS);
                self.diagnostics.push(Diagnostic::error(&node.at, message).label("unknown type").maybe_help(help));
                None
            }
        }
    }

    /// The element type called `name`; reports an unknown one.
    pub(super) fn dtype(&mut self, node: &Node, name: &str) -> Option<DType> {
        let dtype = name.parse().ok();
        if dtype.is_none() {
            let help = suggestion(name, DType::ALL.map(DType::name));
            let message = format!("`{name}` is no element type");
            self.diagnostics.push(Diagnostic::error(&node.at, message).label("unknown element type").maybe_help(help));
        }
        dtype
    }

    fn candidates(&mut self, node: &Node, name: &str, kind: &ParameterKind, earlier: &Names) -> Option<Vec<Expr>> {
        let what = format!("a candidate of `{name}`");
        let nodes = fields::list(node, &what, &mut self.diagnostics)?;
        if nodes.is_empty() {
            self.error(node, format!("`{name}` has no candidate"), "leave the key out: then it is not tunable");
        }
        let mut names = earlier.clone();
        self.add_device_names(&mut names);
        nodes.iter().map(|node| self.parameter_value(node, &what, kind, &names)).collect()
    }

    /// A value of `kind`: an element type by its name, anything else by an expression; a literal is checked at once.
    fn parameter_value(&mut self, node: &Node, what: &str, kind: &ParameterKind, names: &Names) -> Option<Expr> {
        match (kind, &node.kind) {
            (ParameterKind::DType { allowed }, Kind::Text(name)) => {
                let dtype = self.dtype(node, name)?;
                if !allowed.contains(&dtype) {
                    self.error(node, format!("{what} is not among the allowed element types"), "not allowed");
                }
                self.interner.parse(&format!("'{dtype}'")).ok()
            }
            (ParameterKind::Int { min, max }, Kind::Int(value)) if !(min..=max).contains(&value) => {
                self.error(node, format!("{what} must lie between {min} and {max}"), format!("{value} does not"));
                None
            }
            (ParameterKind::Bool, Kind::Bool(_) | Kind::Text(_))
            | (ParameterKind::Int { .. }, Kind::Int(_) | Kind::Text(_))
            | (ParameterKind::Float, Kind::Int(_) | Kind::Float(_) | Kind::Text(_)) => {
                self.expression(node, what, names)
            }
            (kind, other) => {
                self.error(
                    node,
                    format!("{what} must be {}", described(kind)),
                    format!("this is {}", other.described()),
                );
                None
            }
        }
    }

    pub(super) fn reduced(&mut self, node: Option<&Node>, parameters: &[Parameter]) -> BTreeMap<String, Expr> {
        let table = node.and_then(|node| fields::table(node, "`reduced`", &mut self.diagnostics));
        let known: Vec<&str> = parameters.iter().map(|parameter| parameter.name.as_str()).collect();
        let names = Names { variables: known.iter().map(|&name| name.to_owned()).collect(), ..Names::default() };
        let mut reduced = BTreeMap::new();
        for entry in table.map_or(&[][..], entries) {
            let Some(parameter) = parameters.iter().find(|parameter| parameter.name == entry.key) else {
                let message = format!("the reduced shape gives the unknown parameter `{}`", entry.key);
                let help = suggestion(&entry.key, known.iter().copied());
                self.diagnostics.push(Diagnostic::error(&entry.key_at, message).label("unknown").maybe_help(help));
                continue;
            };
            let what = format!("`{}` of the reduced shape", entry.key);
            if let Some(expr) = self.parameter_value(&entry.value, &what, &parameter.kind, &names) {
                reduced.insert(entry.key.clone(), expr);
            }
        }
        reduced
    }
}

fn described(kind: &ParameterKind) -> &'static str {
    match kind {
        ParameterKind::Int { .. } => "an integer or an expression",
        ParameterKind::Float => "a number or an expression",
        ParameterKind::Bool => "true, false or an expression",
        ParameterKind::DType { .. } => "the name of an element type",
    }
}
