//! `kernel.toml` to [`Package`]: everything wrong with it at once. Reads the declared source files and nothing else.

mod parameters;
mod reference;
mod space;
mod stages;
mod tensors;

use std::path::Path;
use std::sync::Arc;

use super::files::Files;
use super::names::{Interner, Names, expression};
use super::package::Package;
use crate::diagnostic::{self, Diagnostic, SourceFile};
use crate::expr::Expr;
use crate::model::{KernelId, Key};
use crate::spanned::{Fields, Node, Table, fields};

/// Version of the format that this program reads.
const SCHEMA: i64 = 1;

/// Where a package lies and who it is, as its folder says.
pub struct Location<'l> {
    pub id: KernelId,
    pub layer: String,
    pub files: &'l Files,
    /// The package's folder, relative to the root.
    pub folder: &'l Path,
}

/// What every part of the reader needs.
struct Reader<'r> {
    location: &'r Location<'r>,
    interner: &'r Interner,
    /// Every declared tensor, also those that could not be read, so that one mistake is reported once.
    tensor_names: Vec<String>,
    diagnostics: Vec<Diagnostic>,
}

impl Reader<'_> {
    fn expression(&mut self, node: &Node, what: &str, names: &Names) -> Option<Expr> {
        expression(node, what, names, self.interner, &mut self.diagnostics)
    }

    fn expressions(&mut self, node: &Node, what: &str, names: &Names) -> Option<Vec<Expr>> {
        let nodes = fields::list(node, what, &mut self.diagnostics)?;
        let read: Vec<Option<Expr>> = nodes.iter().map(|node| self.expression(node, what, names)).collect();
        read.into_iter().collect()
    }

    fn strings<'n>(&mut self, node: &'n Node, what: &str) -> Vec<(&'n Node, &'n str)> {
        let nodes = fields::list(node, what, &mut self.diagnostics).unwrap_or_default();
        let text = |node| fields::text(node, what, &mut self.diagnostics).map(|text| (node, text));
        nodes.iter().filter_map(text).collect()
    }

    fn error(&mut self, node: &Node, message: impl Into<String>, label: impl Into<String>) {
        self.diagnostics.push(Diagnostic::error(&node.at, message).label(label));
    }
}

/// The package that `file` declares.
///
/// # Errors
/// Everything that is wrong with it, in the order of the text.
pub fn package(
    file: &Arc<SourceFile>,
    location: &Location<'_>,
    interner: &Interner,
) -> Result<Package, Vec<Diagnostic>> {
    let document = crate::spanned::parse(file)?;
    let mut reader = Reader { location, interner, tensor_names: Vec::new(), diagnostics: Vec::new() };
    let declaration = Key::of_bytes(file.text().as_bytes());
    let package = reader.package(&document, declaration);
    let mut diagnostics = reader.diagnostics;
    diagnostic::sort(&mut diagnostics);
    match package {
        Some(package) if diagnostics.is_empty() => Ok(package),
        _ => Err(diagnostics),
    }
}

impl Reader<'_> {
    /// `None` only after a diagnostic.
    fn package(&mut self, document: &Node, declaration: Key) -> Option<Package> {
        let mut top = Fields::of(document, "kernel.toml", &mut self.diagnostics)?;
        if let Some(node) = top.require("schema", &mut self.diagnostics) {
            self.schema(node);
        }
        let description = top.require("description", &mut self.diagnostics);
        let description = description.and_then(|node| fields::text(node, "`description`", &mut self.diagnostics));
        let parameters = top.require("parameters", &mut self.diagnostics);
        let tensors = top.require("tensors", &mut self.diagnostics);
        let stages = top.require("stages", &mut self.diagnostics);
        let (parameters, mut names) = self.parameters(parameters);
        let lets = self.lets(top.get("lets"), &mut names);
        let (space, names) = self.space(top.get("space"), "the pipeline", &names);
        let tensors = self.tensors(tensors, &names, &parameters);
        let stages = self.stages(stages, &names);
        let reference = top.get("reference").map(|node| self.reference(node, &names, &tensors));
        let reduced = self.reduced(top.get("reduced"), &parameters);
        top.finish(&mut self.diagnostics);
        Some(Package {
            id: self.location.id.clone(),
            layer: self.location.layer.clone(),
            folder: self.location.folder.to_path_buf(),
            description: description?.to_owned(),
            declaration,
            parameters,
            lets,
            tensors,
            stages,
            space,
            reference: reference.flatten(),
            reduced,
        })
    }

    fn schema(&mut self, node: &Node) {
        match fields::integer(node, "`schema`", 1, i64::MAX, &mut self.diagnostics) {
            Some(newer) if newer > SCHEMA => {
                let message = format!("this mlarun reads kernel packages up to schema {SCHEMA}");
                let diagnostic = Diagnostic::error(&node.at, message).label("newer").help("use a newer mlarun");
                self.diagnostics.push(diagnostic);
            }
            _ => {}
        }
    }

    fn lets(&mut self, node: Option<&Node>, names: &mut Names) -> Vec<(String, Expr)> {
        let table = node.and_then(|node| fields::table(node, "`lets`", &mut self.diagnostics));
        let mut lets = Vec::new();
        for entry in table.map_or(&[][..], entries) {
            self.new_name(entry, "let", names);
            if let Some(expr) = self.expression(&entry.value, &format!("the let `{}`", entry.key), names) {
                lets.push((entry.key.clone(), expr));
            }
            names.variables.insert(entry.key.clone());
        }
        lets
    }
}

fn entries(table: &Table) -> &[crate::spanned::Entry] {
    &table.entries
}
