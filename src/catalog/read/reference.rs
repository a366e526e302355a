//! `[reference]`: what the output must equal, and how closely.

use std::collections::BTreeMap;

use super::super::names::Names;
use super::super::package::{AsRead, Reference, ReferenceFormula, Tensor, TensorRole};
use super::{Reader, entries};
use crate::diagnostic::{Diagnostic, suggestion};
use crate::model::DType;
use crate::model::pipeline::Tolerance;
use crate::spanned::{Fields, Node, fields};

/// Relative errors that count as equal where the package says nothing. Correct kernels of two-byte types come out near
/// 1.8e-3, and at 1e-2 they are wrong.
const DEFAULTS: [(DType, Tolerance); 3] = [
    (DType::Float32, Tolerance { relative_frobenius: 1e-5, relative_row: 4e-5 }),
    (DType::Bfloat16, Tolerance { relative_frobenius: 4e-3, relative_row: 1.6e-2 }),
    (DType::Float16, Tolerance { relative_frobenius: 1e-3, relative_row: 4e-3 }),
];

impl Reader<'_> {
    pub(super) fn reference(&mut self, node: &Node, names: &Names, tensors: &[Tensor]) -> Option<Reference> {
        const KINDS: [&str; 2] = ["mla_attention", "einsum"];
        let mut table = Fields::of(node, "the reference", &mut self.diagnostics)?;
        let output = table.require("output", &mut self.diagnostics).and_then(|node| self.output(node, tensors));
        let tolerance = self.tolerance(table.get("tolerance"));
        let kind = table.require("kind", &mut self.diagnostics)?;
        let formula = match fields::text(kind, "`kind`", &mut self.diagnostics)? {
            "mla_attention" => self.mla_attention(&mut table, names, tensors),
            "einsum" => self.reference_einsum(&mut table, names, tensors, output),
            other => {
                let message = format!("`{other}` is no kind of reference");
                let help = suggestion(other, KINDS);
                self.diagnostics.push(Diagnostic::error(&kind.at, message).label("unknown kind").maybe_help(help));
                return None;
            }
        };
        table.finish(&mut self.diagnostics);
        Some(Reference { formula: formula?, output: output?.name.clone(), tolerance })
    }

    fn output<'t>(&mut self, node: &Node, tensors: &'t [Tensor]) -> Option<&'t Tensor> {
        let name = self.tensor_name(node, "`output`")?;
        let tensor = tensors.iter().find(|tensor| tensor.name == name)?;
        if !matches!(tensor.role, TensorRole::Output) {
            self.error(node, format!("`{name}` is no output"), "its role must be \"output\"");
        }
        Some(tensor)
    }

    fn mla_attention(&mut self, table: &mut Fields<'_>, names: &Names, tensors: &[Tensor]) -> Option<ReferenceFormula> {
        let mut operand = |reader: &mut Self, key: &'static str, rank: usize| {
            let node = table.require(key, &mut reader.diagnostics)?;
            reader.operand_of_rank(node, key, rank, tensors)
        };
        let (q, qpe) = (operand(self, "q", 4), operand(self, "qpe", 4));
        let (z, kpe) = (operand(self, "z", 3), operand(self, "kpe", 3));
        let (w_uk, w_uv) = (operand(self, "w_uk", 3), operand(self, "w_uv", 3));
        let scale = table.require("scale", &mut self.diagnostics);
        let scale = scale.and_then(|node| self.expression(node, "`scale`", names));
        let causal = table.require("causal", &mut self.diagnostics);
        let causal = causal.and_then(|node| self.expression(node, "`causal`", names));
        Some(ReferenceFormula::MlaAttention {
            q: q?,
            qpe: qpe?,
            z: z?,
            kpe: kpe?,
            w_uk: w_uk?,
            w_uv: w_uv?,
            scale: scale?,
            causal: causal?,
            as_read: match table.get("as_read") {
                Some(node) => Some(self.as_read(node, names, tensors)?),
                None => None,
            },
        })
    }

    /// Name of the tensor `node`, which has `rank` dimensions.
    fn operand_of_rank(&mut self, node: &Node, key: &str, rank: usize, tensors: &[Tensor]) -> Option<String> {
        let name = self.tensor_name(node, &format!("`{key}`"))?;
        let found = tensors.iter().find(|tensor| tensor.name == name).map_or(rank, |tensor| tensor.shape.len());
        if found != rank {
            self.error(node, format!("`{key}` has {rank} dimensions"), format!("`{name}` has {found}"));
        }
        Some(name.to_owned())
    }

    fn as_read(&mut self, node: &Node, names: &Names, tensors: &[Tensor]) -> Option<AsRead> {
        let mut table = Fields::of(node, "`as_read`", &mut self.diagnostics)?;
        let when = table.require("when", &mut self.diagnostics);
        let when = when.and_then(|node| self.expression(node, "`when`", names));
        let nodes = ["qc", "key", "value"].map(|key| (key, table.get(key)));
        table.finish(&mut self.diagnostics);
        let [qc, key, value] = nodes.map(|(name, node)| node.map(|node| self.operand_of_rank(node, name, 4, tensors)));
        let decompressed = match (key, value) {
            (Some(key), Some(value)) => Some((key?, value?)),
            (None, None) if qc.is_some() => None,
            (None, None) => {
                self.error(node, "`as_read` names no tensor", "give `qc`, or `key` and `value`");
                return None;
            }
            _ => {
                self.error(node, "`key` and `value` go together", "one of them is missing");
                return None;
            }
        };
        let qc = match qc {
            Some(qc) => Some(qc?),
            None => None,
        };
        Some(AsRead { when: when?, qc, decompressed })
    }

    fn reference_einsum(
        &mut self,
        table: &mut Fields<'_>,
        names: &Names,
        tensors: &[Tensor],
        output: Option<&Tensor>,
    ) -> Option<ReferenceFormula> {
        let spec = table.require("spec", &mut self.diagnostics);
        let of = table.require("of", &mut self.diagnostics);
        let outlines = tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.outline())).collect();
        let rank = output.map(|tensor| tensor.shape.len());
        self.formula(spec?, of?, names, &outlines, rank).map(ReferenceFormula::Einsum)
    }

    fn tolerance(&mut self, node: Option<&Node>) -> BTreeMap<DType, Tolerance> {
        let mut tolerance = BTreeMap::from(DEFAULTS);
        let table = node.and_then(|node| fields::table(node, "`tolerance`", &mut self.diagnostics));
        for entry in table.map_or(&[][..], entries) {
            let Ok(dtype) = entry.key.parse::<DType>() else {
                let message = format!("`{}` is no element type", entry.key);
                let help = suggestion(&entry.key, DType::ALL.map(DType::name));
                self.diagnostics.push(Diagnostic::error(&entry.key_at, message).label("unknown").maybe_help(help));
                continue;
            };
            if let Some(read) = self.bounds(&entry.value) {
                tolerance.insert(dtype, read);
            }
        }
        tolerance
    }

    fn bounds(&mut self, node: &Node) -> Option<Tolerance> {
        let mut table = Fields::of(node, "a tolerance", &mut self.diagnostics)?;
        let mut bound = |key: &'static str| {
            let node = table.require(key, &mut self.diagnostics)?;
            let value = fields::number(node, &format!("`{key}`"), &mut self.diagnostics)?;
            if value <= 0.0 || value >= 1.0 {
                let message = format!("`{key}` must lie between 0 and 1");
                self.diagnostics.push(Diagnostic::error(&node.at, message).label("a relative error"));
            }
            Some(value)
        };
        let (relative_frobenius, relative_row) = (bound("frobenius"), bound("row"));
        table.finish(&mut self.diagnostics);
        Some(Tolerance { relative_frobenius: relative_frobenius?, relative_row: relative_row? })
    }
}
