//! `[tensors]` and the formulas over them.

use std::collections::BTreeMap;

use super::super::einsum::Spec;
use super::super::names::Names;
use super::super::package::{Einsum, Operand, Parameter, ParameterKind, Tensor, TensorDType, TensorRole};
use super::{Reader, entries};
use crate::diagnostic::{Diagnostic, suggestion};
use crate::model::DType;
use crate::spanned::{Entry, Fields, Kind, Node, fields};

impl Reader<'_> {
    pub(super) fn tensors(&mut self, node: Option<&Node>, names: &Names, parameters: &[Parameter]) -> Vec<Tensor> {
        let table = node.and_then(|node| fields::table(node, "`tensors`", &mut self.diagnostics));
        let declared = table.map_or(&[][..], entries);
        // Formulas may name tensors that stand further down, so outlines are collected first.
        self.tensor_names = declared.iter().map(|entry| entry.key.clone()).collect();
        let outlines: Outlines = declared.iter().map(|entry| (entry.key.as_str(), outline(&entry.value))).collect();
        let mut tensors = Vec::new();
        for entry in declared {
            self.new_name(entry, "tensor", names);
            tensors.extend(self.tensor(entry, names, parameters, &outlines));
        }
        self.circles(declared, &tensors);
        tensors
    }

    /// Reports derived tensors that can never be computed, as they wait for one another.
    fn circles(&mut self, declared: &[Entry], tensors: &[Tensor]) {
        let mut waiting: Vec<(&str, &Einsum)> = tensors.iter().filter_map(derived).collect();
        loop {
            let names: Vec<&str> = waiting.iter().map(|(name, _)| *name).collect();
            waiting
                .retain(|(_, formula)| formula.operands.iter().any(|operand| names.contains(&operand.tensor.as_str())));
            if waiting.len() == names.len() {
                break;
            }
        }
        for (name, _) in waiting {
            let entry = declared.iter().filter(|entry| entry.key == name);
            let error = |entry: &Entry| {
                let message = format!("the tensor `{name}` is derived from itself");
                Diagnostic::error(&entry.key_at, message).label("its formula leads back to it")
            };
            self.diagnostics.extend(entry.map(error));
        }
    }

    fn tensor(
        &mut self,
        entry: &Entry,
        names: &Names,
        parameters: &[Parameter],
        outlines: &Outlines<'_>,
    ) -> Option<Tensor> {
        let name = &entry.key;
        let what = format!("the tensor `{name}`");
        let mut table = Fields::of(&entry.value, what.as_str(), &mut self.diagnostics)?;
        let dtype = table.require("dtype", &mut self.diagnostics);
        let dtype = dtype.and_then(|node| self.tensor_dtype(node, parameters));
        let shape = table.require("shape", &mut self.diagnostics);
        let shape = shape.and_then(|node| self.shape(node, &what, names));
        let role = table.require("role", &mut self.diagnostics);
        let role = role.and_then(|node| self.role(node, &mut table, entry, names, outlines));
        table.finish(&mut self.diagnostics);
        Some(Tensor { name: name.clone(), dtype: dtype?, shape: shape?, role: role? })
    }

    fn tensor_dtype(&mut self, node: &Node, parameters: &[Parameter]) -> Option<TensorDType> {
        let name = fields::text(node, "`dtype`", &mut self.diagnostics)?;
        if let Ok(dtype) = name.parse() {
            return Some(TensorDType::Fixed(dtype));
        }
        let of_dtype = |parameter: &&Parameter| matches!(parameter.kind, ParameterKind::DType { .. });
        if parameters.iter().filter(of_dtype).any(|parameter| parameter.name == name) {
            return Some(TensorDType::Parameter(name.to_owned()));
        }
        let known = parameters.iter().filter(of_dtype).map(|parameter| parameter.name.as_str());
        let help = suggestion(name, known.chain(DType::ALL.map(DType::name)));
        let message = format!("`{name}` is neither an element type nor a parameter that holds one");
        self.diagnostics.push(Diagnostic::error(&node.at, message).label("unknown element type").maybe_help(help));
        None
    }

    fn shape(&mut self, node: &Node, what: &str, names: &Names) -> Option<Vec<crate::expr::Expr>> {
        let shape = self.expressions(node, &format!("a dimension of {what}"), names)?;
        if shape.is_empty() {
            self.error(node, format!("{what} has no dimension"), "empty");
        }
        Some(shape)
    }

    fn role<'n>(
        &mut self,
        node: &'n Node,
        table: &mut Fields<'n>,
        entry: &Entry,
        names: &Names,
        outlines: &Outlines<'_>,
    ) -> Option<TensorRole> {
        const ROLES: [&str; 4] = ["input", "derived", "scratch", "output"];
        match fields::text(node, "`role`", &mut self.diagnostics)? {
            "input" => self.input(node, table, names),
            "derived" => {
                let node = table.require("einsum", &mut self.diagnostics)?;
                let rank = outlines.get(entry.key.as_str()).and_then(|outline| outline.rank);
                self.einsum(node, names, outlines, rank).map(TensorRole::Derived)
            }
            "scratch" => Some(TensorRole::Scratch),
            "output" => Some(TensorRole::Output),
            other => {
                let message = format!("`{other}` is no role of a tensor");
                let help = suggestion(other, ROLES);
                self.diagnostics.push(Diagnostic::error(&node.at, message).label("unknown role").maybe_help(help));
                None
            }
        }
    }

    fn input<'n>(&mut self, role: &Node, table: &mut Fields<'n>, names: &Names) -> Option<TensorRole> {
        match (table.get("normal"), table.get("uniform")) {
            (Some(node), None) => {
                let mut table = Fields::of(node, "`normal`", &mut self.diagnostics)?;
                let std = table.require("std", &mut self.diagnostics);
                let std = std.and_then(|node| self.expression(node, "`std`", names));
                let seed = self.seed(&mut table);
                table.finish(&mut self.diagnostics);
                Some(TensorRole::Normal { std: std?, seed: seed? })
            }
            (None, Some(node)) => {
                let mut table = Fields::of(node, "`uniform`", &mut self.diagnostics)?;
                let low = table.require("low", &mut self.diagnostics);
                let low = low.and_then(|node| self.expression(node, "`low`", names));
                let high = table.require("high", &mut self.diagnostics);
                let high = high.and_then(|node| self.expression(node, "`high`", names));
                let seed = self.seed(&mut table);
                table.finish(&mut self.diagnostics);
                Some(TensorRole::Uniform { low: low?, high: high?, seed: seed? })
            }
            _ => {
                self.error(role, "an input needs either `normal` or `uniform`", "no single distribution");
                None
            }
        }
    }

    fn seed(&mut self, table: &mut Fields<'_>) -> Option<u64> {
        let node = table.require("seed", &mut self.diagnostics)?;
        let seed = fields::integer(node, "`seed`", 0, i64::MAX, &mut self.diagnostics)?;
        u64::try_from(seed).ok()
    }

    /// A formula whose result has the rank `result_rank`.
    pub(super) fn einsum(
        &mut self,
        node: &Node,
        names: &Names,
        outlines: &Outlines<'_>,
        result_rank: Option<usize>,
    ) -> Option<Einsum> {
        let mut table = Fields::of(node, "the formula", &mut self.diagnostics)?;
        let spec = table.require("spec", &mut self.diagnostics);
        let of = table.require("of", &mut self.diagnostics);
        table.finish(&mut self.diagnostics);
        self.formula(spec?, of?, names, outlines, result_rank)
    }

    /// As [`Reader::einsum`], from the values of `spec` and `of`.
    pub(super) fn formula(
        &mut self,
        spec_node: &Node,
        of: &Node,
        names: &Names,
        outlines: &Outlines<'_>,
        result_rank: Option<usize>,
    ) -> Option<Einsum> {
        let text = fields::text(spec_node, "`spec`", &mut self.diagnostics)?;
        let spec = Spec::parse(text)
            .map_err(|problem| self.error(spec_node, format!("`{text}` is no index notation"), problem))
            .ok()?;
        let nodes = fields::list(of, "`of`", &mut self.diagnostics)?;
        if nodes.len() != spec.operands.len() {
            let label = format!("`{text}` has {}", spec.operands.len());
            self.error(of, format!("the formula has {} operands", nodes.len()), label);
            return None;
        }
        if let Some(rank) = result_rank.filter(|&rank| rank != spec.result.len()) {
            let label = format!("the result has {} letters", spec.result.len());
            self.error(spec_node, format!("the defined tensor has {rank} dimensions"), label);
        }
        let operands: Vec<Option<Operand>> = nodes
            .iter()
            .zip(&spec.operands)
            .map(|(node, letters)| self.operand(node, letters, names, outlines))
            .collect();
        Some(Einsum { spec: text.to_owned(), operands: operands.into_iter().collect::<Option<_>>()? })
    }

    fn operand(&mut self, node: &Node, letters: &[char], names: &Names, outlines: &Outlines<'_>) -> Option<Operand> {
        let (tensor_node, start) = match &node.kind {
            Kind::Table(_) => {
                let mut table = Fields::of(node, "an operand", &mut self.diagnostics)?;
                let tensor = table.require("tensor", &mut self.diagnostics);
                let start = table.get("start");
                table.finish(&mut self.diagnostics);
                (tensor?, start)
            }
            _ => (node, None),
        };
        let tensor = self.tensor_name(tensor_node, "an operand")?;
        let outline = outlines.get(tensor).copied().unwrap_or_default();
        if outline.is_written {
            self.error(
                tensor_node,
                format!("`{tensor}` is written by stages"),
                "a formula reads inputs and what derives from them",
            );
        }
        if let Some(rank) = outline.rank.filter(|&rank| rank != letters.len()) {
            let letters: String = letters.iter().collect();
            self.error(tensor_node, format!("`{tensor}` has {rank} dimensions"), format!("read as `{letters}`"));
        }
        let start = start.map_or_else(|| Some(BTreeMap::new()), |node| self.start(node, letters, names))?;
        Some(Operand { tensor: tensor.to_owned(), start })
    }

    fn start(&mut self, node: &Node, letters: &[char], names: &Names) -> Option<BTreeMap<char, crate::expr::Expr>> {
        let table = fields::table(node, "`start`", &mut self.diagnostics)?;
        let mut start = BTreeMap::new();
        for entry in &table.entries {
            let letter = letters.iter().copied().find(|letter| entry.key == letter.to_string());
            let Some(letter) = letter else {
                let message = format!("the operand has no axis `{}`", entry.key);
                let help = letters.iter().map(|letter| format!("`{letter}`")).collect::<Vec<_>>().join(", ");
                let diagnostic = Diagnostic::error(&entry.key_at, message).label("unknown axis");
                self.diagnostics.push(diagnostic.help(format!("its axes are {help}")));
                continue;
            };
            start.insert(letter, self.expression(&entry.value, "`start`", names)?);
        }
        Some(start)
    }

    /// The name of a declared tensor; reports an unknown one.
    pub(super) fn tensor_name<'n>(&mut self, node: &'n Node, what: &str) -> Option<&'n str> {
        let name = fields::text(node, what, &mut self.diagnostics)?;
        if self.tensor_names.iter().any(|tensor| tensor == name) {
            return Some(name);
        }
        let message = format!("{what} names the unknown tensor `{name}`");
        let help = suggestion(name, self.tensor_names.iter().map(String::as_str));
        self.diagnostics.push(Diagnostic::error(&node.at, message).label("unknown tensor").maybe_help(help));
        None
    }
}

/// What formulas need to know of a tensor.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outline {
    /// Number of dimensions, where the declaration lists any.
    pub rank: Option<usize>,
    /// Scratch or output.
    pub is_written: bool,
}

/// Outlines by the tensor's name.
pub(super) type Outlines<'o> = BTreeMap<&'o str, Outline>;

fn outline(node: &Node) -> Outline {
    let Kind::Table(table) = &node.kind else { return Outline::default() };
    let rank = match table.get("shape").map(|entry| &entry.value.kind) {
        Some(Kind::Array(dimensions)) => Some(dimensions.len()),
        _ => None,
    };
    let role = table.get("role").map(|entry| &entry.value.kind);
    Outline { rank, is_written: matches!(role, Some(Kind::Text(role)) if role == "scratch" || role == "output") }
}

impl Tensor {
    /// What formulas need to know of it.
    pub(super) fn outline(&self) -> Outline {
        let is_written = matches!(self.role, TensorRole::Scratch | TensorRole::Output);
        Outline { rank: Some(self.shape.len()), is_written }
    }
}

fn derived(tensor: &Tensor) -> Option<(&str, &Einsum)> {
    match &tensor.role {
        TensorRole::Derived(formula) => Some((&tensor.name, formula)),
        _ => None,
    }
}
