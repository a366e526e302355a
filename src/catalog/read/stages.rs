//! `[[stages]]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::super::flags::is_allowed;
use super::super::names::Names;
use super::super::package::{Launch, Stage, StageArg, TensorMapArg};
use super::Reader;
use super::parameters::is_identifier;
use crate::diagnostic::{Diagnostic, suggestion};
use crate::expr::Expr;
use crate::model::pipeline::TensorMap;
use crate::model::{Key, Language};
use crate::spanned::{Fields, Kind, Node, fields};

/// Arguments that say which block along x, y, z a call computes, and which thread calls.
const PLACES: [&str; 4] = ["block.x", "block.y", "block.z", "thread"];
/// Axes of grids, blocks and clusters.
const AXES: usize = 3;

impl Reader<'_> {
    pub(super) fn stages(&mut self, node: Option<&Node>, names: &Names) -> Vec<Stage> {
        let Some(node) = node else { return Vec::new() };
        let nodes = fields::list(node, "`stages`", &mut self.diagnostics).unwrap_or_default();
        if matches!(&node.kind, Kind::Array(stages) if stages.is_empty()) {
            self.error(node, "a kernel needs at least one stage", "empty");
        }
        let mut earlier: Vec<&str> = Vec::new();
        let mut stages = Vec::new();
        for node in nodes {
            stages.extend(self.stage(node, names, &mut earlier));
        }
        stages
    }

    fn stage<'n>(&mut self, node: &'n Node, names: &Names, earlier: &mut Vec<&'n str>) -> Option<Stage> {
        let mut table = Fields::of(node, "a stage", &mut self.diagnostics)?;
        let name_node = table.require("name", &mut self.diagnostics);
        let name = name_node.and_then(|node| self.stage_name(node, earlier));
        let owner = name.map_or_else(|| "a stage".to_owned(), |name| format!("the stage `{name}`"));
        let after = table.get("after").map(|node| self.after(node, &owner, earlier)).unwrap_or_default();
        earlier.extend(name);
        let (space, names) = self.space(table.get("space"), &owner, names);
        let mut hashes = BTreeMap::new();
        let source = table.require("source", &mut self.diagnostics);
        let source = source.and_then(|node| self.file(node, "`source`", &mut hashes));
        let headers = table.get("headers").map(|node| self.headers(node, &mut hashes)).unwrap_or_default();
        let entry = table.require("entry", &mut self.diagnostics).and_then(|node| self.entry(node));
        let args = table.require("args", &mut self.diagnostics);
        let args = args.and_then(|node| self.args(node, &owner, &names));
        let grid = table.require("grid", &mut self.diagnostics);
        let grid = grid.and_then(|node| self.extents(node, "grid", &owner, &names));
        let when = table.get("when").map(|node| self.expression(node, &format!("`when` of {owner}"), &names));
        let launch = self.launch(&mut table, &owner, &names);
        let mut cost = |reader: &mut Self, key: &'static str| {
            let node = table.require(key, &mut reader.diagnostics)?;
            reader.expression(node, &format!("`{key}` of {owner}"), &names)
        };
        let (flops, bytes) = (cost(self, "flops"), cost(self, "bytes"));
        let stream = table.get("stream").map_or(Some(0), |node| self.stream(node));
        let defines = table.get("defines").map(|node| self.defines(node, &owner, &names)).unwrap_or_default();
        let flags = table.get("flags").map(|node| self.flags(node)).unwrap_or_default();
        table.finish(&mut self.diagnostics);
        Some(Stage {
            name: name?.to_owned(),
            source: source?,
            headers,
            hashes,
            entry: entry?,
            defines,
            flags,
            args: args?,
            grid: grid?,
            launch: launch?,
            stream: stream?,
            after,
            when: match when {
                Some(when) => Some(when?),
                None => None,
            },
            flops: flops?,
            bytes: bytes?,
            space,
        })
    }

    fn stage_name<'n>(&mut self, node: &'n Node, earlier: &[&str]) -> Option<&'n str> {
        let name = fields::text(node, "`name`", &mut self.diagnostics)?;
        if !is_identifier(name) {
            // Stages name files and folders.
            self.error(node, format!("`{name}` is no name of a stage"), "letters, digits and `_`, a letter first");
        } else if earlier.contains(&name) {
            self.error(node, format!("there are two stages `{name}`"), "choose another name");
        }
        Some(name)
    }

    fn after(&mut self, node: &Node, owner: &str, earlier: &[&str]) -> Vec<String> {
        let mut after = Vec::new();
        for (node, name) in self.strings(node, "`after`") {
            if earlier.contains(&name) {
                after.push(name.to_owned());
                continue;
            }
            let message = format!("{owner} waits for `{name}`, which is no earlier stage");
            let help = suggestion(name, earlier.iter().copied());
            self.diagnostics.push(Diagnostic::error(&node.at, message).label("no earlier stage").maybe_help(help));
        }
        after
    }

    fn headers(&mut self, node: &Node, hashes: &mut BTreeMap<String, Key>) -> Vec<PathBuf> {
        let nodes = fields::list(node, "`headers`", &mut self.diagnostics).unwrap_or_default();
        nodes.iter().filter_map(|node| self.file(node, "a header", hashes)).collect()
    }

    /// The declared file, relative to the root; its hash is added under its declared path.
    fn file(&mut self, node: &Node, what: &str, hashes: &mut BTreeMap<String, Key>) -> Option<PathBuf> {
        let declared = fields::text(node, what, &mut self.diagnostics)?;
        match self.location.files.declared(self.location.folder, declared) {
            Ok(file) => {
                if hashes.insert(declared.to_owned(), file.hash).is_some() {
                    self.error(node, format!("`{declared}` is listed twice"), "leave it out here");
                }
                Some(file.path)
            }
            Err(problem) => {
                self.error(node, format!("{what} `{declared}` cannot be used"), problem);
                None
            }
        }
    }

    fn entry(&mut self, node: &Node) -> Option<String> {
        let entry = fields::text(node, "`entry`", &mut self.diagnostics)?;
        if !is_identifier(entry) {
            self.error(node, format!("`{entry}` is no name of a function"), "letters, digits and `_`, a letter first");
            return None;
        }
        Some(entry.to_owned())
    }

    fn args(&mut self, node: &Node, owner: &str, names: &Names) -> Option<Vec<StageArg>> {
        let what = format!("an argument of {owner}");
        let nodes = fields::list(node, &what, &mut self.diagnostics)?;
        let args: Vec<Option<StageArg>> = nodes.iter().map(|node| self.arg(node, &what, names)).collect();
        args.into_iter().collect()
    }

    fn arg(&mut self, node: &Node, what: &str, names: &Names) -> Option<StageArg> {
        if matches!(node.kind, Kind::Table(_)) && self.location.id.language == Language::Cuda {
            return self.tensor_map(node, what, names).map(StageArg::Map);
        }
        if let Kind::Text(text) = &node.kind {
            if let Some(place) = self.places().iter().position(|place| place == text) {
                return Some(if place < AXES { StageArg::Block(place as u8) } else { StageArg::Thread });
            }
            if self.tensor_names.contains(text) {
                return Some(StageArg::Tensor(text.clone()));
            }
            if (is_identifier(text) && !names.variables.contains(text)) || text.starts_with("block.") {
                self.unknown_arg(node, what, text, names);
                return None;
            }
        }
        self.expression(node, what, names).map(StageArg::Scalar)
    }

    /// `{ map = "z", box = [1, 64, 64], swizzle = 128, promotion = 256 }`
    fn tensor_map(&mut self, node: &Node, what: &str, names: &Names) -> Option<TensorMapArg> {
        let mut table = Fields::of(node, format!("{what}, a tensor map,"), &mut self.diagnostics)?;
        let tensor = table.require("map", &mut self.diagnostics).and_then(|node| {
            let name = fields::text(node, "`map`", &mut self.diagnostics)?;
            if !self.tensor_names.iter().any(|tensor| tensor == name) {
                self.unknown_arg(node, what, name, names);
                return None;
            }
            Some(name.to_owned())
        });
        let extents = table.require("box", &mut self.diagnostics).and_then(|node| {
            let what = format!("an extent of {what}");
            let nodes = fields::list(node, &what, &mut self.diagnostics)?;
            let extents: Vec<Option<Expr>> = nodes.iter().map(|node| self.count(node, &what, names)).collect();
            extents.into_iter().collect::<Option<Vec<Expr>>>()
        });
        let swizzle = self.one_of(table.get("swizzle"), "`swizzle`", &TensorMap::SWIZZLES, 0);
        let promotion = self.one_of(table.get("promotion"), "`promotion`", &TensorMap::PROMOTIONS, 128);
        table.finish(&mut self.diagnostics);
        Some(TensorMapArg { tensor: tensor?, extents: extents?, swizzle_bytes: swizzle?, promotion_bytes: promotion? })
    }

    /// A number of bytes, one of `allowed`.
    fn one_of(&mut self, node: Option<&Node>, what: &str, allowed: &[u32], default: u32) -> Option<u32> {
        let Some(node) = node else { return Some(default) };
        let value = fields::integer(node, what, 0, i64::from(u32::MAX), &mut self.diagnostics)?;
        let found = allowed.iter().copied().find(|&allowed| i64::from(allowed) == value);
        if found.is_none() {
            let allowed: Vec<String> = allowed.iter().map(u32::to_string).collect();
            self.error(node, format!("{what} is {value} bytes"), format!("allowed are {}", allowed.join(", ")));
        }
        found
    }

    /// Arguments of their own meaning; a CUDA kernel has variables for them.
    fn places(&self) -> &'static [&'static str] {
        match self.location.id.language {
            Language::C => &PLACES,
            Language::Cuda => &[],
        }
    }

    fn unknown_arg(&mut self, node: &Node, what: &str, name: &str, names: &Names) {
        let tensors = self.tensor_names.iter().map(String::as_str);
        let known = tensors.chain(names.variables.iter().map(String::as_str)).chain(self.places().iter().copied());
        let message = match self.location.id.language {
            Language::C => format!("{what} is `{name}`, which is no tensor, name, `thread` or `block.x`"),
            Language::Cuda => format!("{what} is `{name}`, which is no tensor and no name"),
        };
        let help = suggestion(name, known);
        self.diagnostics.push(Diagnostic::error(&node.at, message).label("unknown").maybe_help(help));
    }

    /// The keys by which the package's language says how blocks are run.
    fn launch(&mut self, table: &mut Fields<'_>, owner: &str, names: &Names) -> Option<Launch> {
        match self.location.id.language {
            Language::C => {
                let threads = table.get("threads");
                let threads = threads.map(|node| self.count(node, &format!("`threads` of {owner}"), names));
                Some(Launch::Cpu { threads: threads.unwrap_or_else(|| Some(Expr::literal(1)))? })
            }
            Language::Cuda => {
                let shared = table.get("shared");
                let shared = shared.map(|node| self.expression(node, &format!("`shared` of {owner}"), names));
                let block = table.require("block", &mut self.diagnostics);
                let block = block.and_then(|node| self.extents(node, "block", owner, names));
                let cluster = table.get("cluster").map(|node| self.extents(node, "cluster", owner, names));
                let cooperative = table.get("cooperative");
                let cooperative = cooperative.map(|node| fields::boolean(node, "`cooperative`", &mut self.diagnostics));
                Some(Launch::Gpu {
                    block: block?,
                    shared: shared.unwrap_or_else(|| Some(Expr::literal(0)))?,
                    cluster: match cluster {
                        Some(cluster) => Some(cluster?),
                        None => None,
                    },
                    cooperative: cooperative.unwrap_or(Some(false))?,
                })
            }
        }
    }

    /// Extents along x, y, z.
    fn extents(&mut self, node: &Node, key: &str, owner: &str, names: &Names) -> Option<Vec<Expr>> {
        let what = format!("`{key}` of {owner}");
        let nodes = fields::list(node, &what, &mut self.diagnostics)?;
        let counts: Vec<Option<Expr>> = nodes.iter().map(|node| self.count(node, &what, names)).collect();
        let extents = counts.into_iter().collect::<Option<Vec<Expr>>>()?;
        if extents.is_empty() || extents.len() > AXES {
            self.error(node, format!("`{key}` has one to three expressions"), format!("this has {}", extents.len()));
            return None;
        }
        Some(extents)
    }

    /// A number of blocks or threads.
    fn count(&mut self, node: &Node, what: &str, names: &Names) -> Option<Expr> {
        let expr = self.expression(node, what, names)?;
        if expr.source() == "0" {
            self.error(node, format!("{what} is 0, which launches nothing"), "at least 1; `when` leaves a stage out");
            return None;
        }
        Some(expr)
    }

    fn stream(&mut self, node: &Node) -> Option<u32> {
        let stream = fields::integer(node, "`stream`", 0, i64::from(u32::MAX), &mut self.diagnostics)?;
        u32::try_from(stream).ok()
    }

    fn flags(&mut self, node: &Node) -> Vec<String> {
        let mut flags = Vec::new();
        for (node, flag) in self.strings(node, "a flag") {
            if is_allowed(flag, self.location.id.language) {
                flags.push(flag.to_owned());
            } else {
                let message = format!("the flag `{flag}` is none that a package may give its compiler");
                let label = "allowed is what changes the code that is made, without a file of its own";
                self.error(node, message, label);
            }
        }
        flags
    }

    fn defines(&mut self, node: &Node, owner: &str, names: &Names) -> BTreeMap<String, Expr> {
        let table = fields::table(node, "`defines`", &mut self.diagnostics);
        let mut defines = BTreeMap::new();
        for entry in table.map_or(&[][..], super::entries) {
            if !is_identifier(&entry.key) {
                let message = format!("`{}` is no name of a macro", entry.key);
                let label = "letters, digits and `_`, a letter first";
                self.diagnostics.push(Diagnostic::error(&entry.key_at, message).label(label));
            }
            let what = format!("the macro `{}` of {owner}", entry.key);
            if let Some(expr) = self.expression(&entry.value, &what, names) {
                defines.insert(entry.key.clone(), expr);
            }
        }
        defines
    }
}
