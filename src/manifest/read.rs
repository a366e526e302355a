//! The tree of a manifest to what was typed; everything wrong with it at once. Needs no catalog.

use super::experiment::ClockPolicy;
use super::typed::{
    Annotation, At, Axis, Baseline, Clocks, Devlog, Event, Experiment, Listed, Manifest, Ncu, Nsys, Protocol, Shapes,
    Target, Targets, Tuning, VersionSelector,
};
use crate::conf::MOST_TRACED;
use crate::diagnostic::{Diagnostic, suggestion};
use crate::model::timeline::TracerKind;
use crate::model::{Language, Mode, Timing, Value};
use crate::spanned::{Entry, Fields, Kind, Node, fields};

/// Version of the format that this program reads.
const SCHEMA: u32 = 1;
/// Characters of an experiment's name.
const LONGEST_NAME: usize = 100;

/// What `document` says, as far as it can be read, and what is wrong with it.
pub fn manifest(document: &Node) -> (Manifest, Vec<Diagnostic>) {
    let mut reader = Reader { diagnostics: Vec::new() };
    let manifest = reader.manifest(document);
    (manifest, reader.diagnostics)
}

struct Reader {
    diagnostics: Vec<Diagnostic>,
}

impl Reader {
    fn error(&mut self, node: &Node, message: impl Into<String>, label: impl Into<String>) {
        self.diagnostics.push(Diagnostic::error(&node.at, message).label(label));
    }

    fn manifest(&mut self, document: &Node) -> Manifest {
        let mut manifest = Manifest {
            schema: None,
            experiment: None,
            shapes: None,
            clocks: None,
            protocol: None,
            devlog: None,
            target: None,
        };
        let Some(mut table) = Fields::of(document, "a manifest", &mut self.diagnostics) else { return manifest };
        manifest.schema = table.require("schema", &mut self.diagnostics).and_then(|node| self.schema(node));
        manifest.experiment = table.require("experiment", &mut self.diagnostics).and_then(|node| self.experiment(node));
        manifest.shapes = table.get("shapes").and_then(|node| self.shapes(node));
        manifest.clocks = table.get("clocks").and_then(|node| self.clocks(node));
        manifest.protocol = table.get("protocol").and_then(|node| self.protocol(node));
        manifest.devlog = table.get("devlog").and_then(|node| self.devlog(node));
        manifest.target = table.get("target").and_then(|node| self.targets(node));
        table.finish(&mut self.diagnostics);
        manifest
    }

    fn schema(&mut self, node: &Node) -> Option<At<u32>> {
        let newer = matches!(node.kind, Kind::Int(version) if version > i64::from(SCHEMA));
        if newer {
            let message = format!("this mlarun reads manifests up to schema {SCHEMA}");
            let diagnostic = Diagnostic::error(&node.at, message).label("newer");
            self.diagnostics
                .push(diagnostic.help(format!("use a newer mlarun, or write the manifest for schema {SCHEMA}")));
            return None;
        }
        self.integer(node, "`schema`", 1, SCHEMA)
    }

    fn experiment(&mut self, node: &Node) -> Option<Experiment> {
        let mut table = Fields::of(node, "`[experiment]`", &mut self.diagnostics)?;
        let experiment = Experiment {
            name: table.require("name", &mut self.diagnostics).and_then(|node| self.name(node)),
            description: table.get("description").and_then(|node| self.text(node, "`description`")),
            kernels: table
                .require("kernels", &mut self.diagnostics)
                .and_then(|node| self.listed(node, "`kernels`", |reader, node| reader.text(node, "a kernel"))),
            language: table.get("language").and_then(|node| self.language(node)),
            versions: table.get("versions").and_then(|node| self.versions(node)),
            modes: table.get("modes").and_then(|node| self.modes(node)),
            baselines: table.get("baselines").and_then(|node| self.baselines(node)),
            rounds: table.get("rounds").and_then(|node| self.integer(node, "`rounds`", 1, 1000)),
            time_limit_s: table.get("time_limit_s").and_then(|node| self.integer(node, "`time_limit_s`", 1, 86400)),
        };
        table.finish(&mut self.diagnostics);
        Some(experiment)
    }

    fn name(&mut self, node: &Node) -> Option<At<String>> {
        let name = self.text(node, "`name`")?;
        let text = name.value.as_str();
        let problem = if text.is_empty() {
            "it is empty".to_owned()
        } else if text.chars().count() > LONGEST_NAME {
            format!("it has {} characters, at most {LONGEST_NAME} are allowed", text.chars().count())
        } else if let Some(odd) = text.chars().find(|c| !c.is_ascii_alphanumeric() && *c != '_' && *c != '-') {
            format!("`{}` is not allowed", odd.escape_default())
        } else if !text.starts_with(|first: char| first.is_ascii_alphanumeric()) {
            "it must start with a letter or a digit".to_owned()
        } else {
            return Some(name);
        };
        let diagnostic = Diagnostic::error(&node.at, "the experiment's name cannot name a folder").label(problem);
        self.diagnostics.push(diagnostic.help("use 1 to 100 of A-Z a-z 0-9 _ -, a letter or digit first"));
        None
    }

    fn text(&mut self, node: &Node, what: &str) -> Option<At<String>> {
        let value = fields::text(node, what, &mut self.diagnostics)?.to_owned();
        Some(At { value, at: node.at.clone() })
    }

    fn integer(&mut self, node: &Node, what: &str, low: u32, high: u32) -> Option<At<u32>> {
        let value = fields::integer(node, what, low.into(), high.into(), &mut self.diagnostics)?;
        Some(At { value: u32::try_from(value).ok()?, at: node.at.clone() })
    }

    /// A list that is not empty, or one value standing for it. What cannot be read is left out.
    fn listed<T>(
        &mut self,
        node: &Node,
        what: &str,
        mut read: impl FnMut(&mut Self, &Node) -> Option<At<T>>,
    ) -> Option<Listed<T>> {
        let nodes = match &node.kind {
            Kind::Array(nodes) => nodes.as_slice(),
            _ => std::slice::from_ref(node),
        };
        if nodes.is_empty() {
            self.error(node, format!("{what} is an empty list"), "empty");
            return None;
        }
        let values = nodes.iter().filter_map(|node| read(self, node)).collect();
        Some(Listed { values, at: node.at.clone() })
    }

    /// One of the words `known`.
    fn word<T>(&mut self, node: &Node, what: &str, known: &[&str], parse: impl Fn(&str) -> Option<T>) -> Option<At<T>> {
        let text = fields::text(node, what, &mut self.diagnostics)?;
        if let Some(value) = parse(text) {
            return Some(At { value, at: node.at.clone() });
        }
        let help = suggestion(text, known.iter().copied());
        let message = format!("`{text}` is not {what}");
        self.diagnostics.push(Diagnostic::error(&node.at, message).label("unknown").maybe_help(help));
        None
    }

    fn language(&mut self, node: &Node) -> Option<At<Language>> {
        self.word(node, "a kernel language", &Language::ALL.map(Language::name), |text| text.parse().ok())
    }

    fn versions(&mut self, node: &Node) -> Option<Listed<VersionSelector>> {
        self.listed(node, "`versions`", Self::version)
    }

    fn version(&mut self, node: &Node) -> Option<At<VersionSelector>> {
        self.word(node, "a version", &["v0", "v1", "all", "latest", "base"], version_selector)
    }

    fn modes(&mut self, node: &Node) -> Option<Listed<Mode>> {
        let known = Mode::ALL.map(Mode::name);
        self.listed(node, "`modes`", |reader, node| reader.word(node, "a mode", &known, |text| text.parse().ok()))
    }

    fn baselines(&mut self, node: &Node) -> Option<Listed<Baseline>> {
        self.listed(node, "`baselines`", Self::baseline)
    }

    fn baseline(&mut self, node: &Node) -> Option<At<Baseline>> {
        let value = match &node.kind {
            Kind::Text(text) if text.is_empty() => {
                self.error(node, "a baseline cannot be empty", "name a kernel, `previous` or a file");
                return None;
            }
            Kind::Text(text) => Baseline::Text(text.clone()),
            Kind::Table(_) => self.baseline_table(node)?,
            other => {
                let label = format!("this is {}", other.described());
                self.error(node, "a baseline must be a string or a table", label);
                return None;
            }
        };
        Some(At { value, at: node.at.clone() })
    }

    fn baseline_table(&mut self, node: &Node) -> Option<Baseline> {
        let mut table = Fields::of(node, "a baseline", &mut self.diagnostics)?;
        let file = table.get("file");
        let kernel = table.get("kernel");
        let version = table.get("version");
        table.finish(&mut self.diagnostics);
        match (kernel, version, file) {
            (None, None, Some(file)) => self.text(file, "`file`").map(Baseline::File),
            (Some(kernel), version, None) => {
                let kernel = self.text(kernel, "`kernel`");
                let version = version.map(|node| self.version(node));
                Some(Baseline::Kernel { kernel: kernel?, version: version.flatten() })
            }
            _ => {
                self.error(
                    node,
                    "a baseline is either a `kernel`, with a `version` if need be, or a `file`",
                    "neither",
                );
                None
            }
        }
    }

    fn shapes(&mut self, node: &Node) -> Option<At<Shapes>> {
        let table = fields::table(node, "`shapes`", &mut self.diagnostics)?;
        let mut shapes = Shapes::default();
        for entry in &table.entries {
            match entry.key.as_str() {
                "point" => shapes.points = self.points(&entry.value),
                "exclude" => shapes.excludes = self.excludes(&entry.value),
                _ => shapes.axes.extend(self.axis(entry)),
            }
        }
        Some(At { value: shapes, at: node.at.clone() })
    }

    fn points(&mut self, node: &Node) -> Vec<At<Vec<Axis>>> {
        let nodes = fields::list(node, "`shapes.point`", &mut self.diagnostics).unwrap_or_default();
        nodes.iter().filter_map(|node| self.point(node)).collect()
    }

    fn point(&mut self, node: &Node) -> Option<At<Vec<Axis>>> {
        let table = fields::table(node, "a point", &mut self.diagnostics)?;
        if table.entries.is_empty() {
            self.error(node, "a point must name a parameter", "empty");
            return None;
        }
        let axes: Vec<Axis> = table.entries.iter().filter_map(|entry| self.axis(entry)).collect();
        if let Some(first) = axes.iter().find(|axis| !axis.is_scalar) {
            for other in axes.iter().filter(|axis| !axis.is_scalar && axis.values.len() != first.values.len()) {
                let message = format!(
                    "lists of one point advance together: `{}` has {} values, `{}` has {}",
                    other.name.value,
                    other.values.len(),
                    first.name.value,
                    first.values.len()
                );
                self.diagnostics.push(Diagnostic::error(&other.name.at, message).label("another length"));
            }
        }
        Some(At { value: axes, at: node.at.clone() })
    }

    fn excludes(&mut self, node: &Node) -> Vec<At<String>> {
        let nodes = fields::list(node, "`shapes.exclude`", &mut self.diagnostics).unwrap_or_default();
        let mut excludes = Vec::new();
        for node in nodes {
            let Some(mut table) = Fields::of(node, "an exclusion", &mut self.diagnostics) else { continue };
            let when = table.require("when", &mut self.diagnostics);
            table.finish(&mut self.diagnostics);
            excludes.extend(when.and_then(|node| self.text(node, "`when`")));
        }
        excludes
    }

    fn axis(&mut self, entry: &Entry) -> Option<Axis> {
        let what = format!("the axis `{}`", entry.key);
        let node = &entry.value;
        let (nodes, is_scalar) = match &node.kind {
            Kind::Array(nodes) => (nodes.as_slice(), false),
            _ => (std::slice::from_ref(node), true),
        };
        if nodes.is_empty() {
            self.error(node, format!("{what} has no value"), "empty");
        }
        let values: Vec<At<Value>> = nodes.iter().filter_map(|node| self.value(node, &what)).collect();
        if let Some(first) = values.first()
            && let Some(other) = values.iter().find(|other| family(&other.value) != family(&first.value))
        {
            {
                let message = format!("{what} mixes types");
                let label = format!("{} here, {} before", other.value.kind(), first.value.kind());
                self.diagnostics.push(Diagnostic::error(&other.at, message).label(label));
                return None;
            }
        }
        let complete = values.len() == nodes.len() && !values.is_empty();
        let name = At { value: entry.key.clone(), at: entry.key_at.clone() };
        complete.then_some(Axis { name, values, is_scalar })
    }

    fn value(&mut self, node: &Node, what: &str) -> Option<At<Value>> {
        let value = match &node.kind {
            Kind::Bool(value) => Value::Bool(*value),
            Kind::Int(value) => Value::Int(*value),
            Kind::Float(value) if value.is_finite() => Value::Float(*value),
            Kind::Float(value) => {
                self.error(node, format!("{what} holds {value}"), "not a finite number");
                return None;
            }
            Kind::Text(text) => Value::Text(text.clone()),
            other => {
                let message = format!("a value of {what} must be a number, a string, true or false");
                self.error(node, message, format!("this is {}", other.described()));
                return None;
            }
        };
        Some(At { value, at: node.at.clone() })
    }

    fn clocks(&mut self, node: &Node) -> Option<Clocks> {
        let mut table = Fields::of(node, "`[clocks]`", &mut self.diagnostics)?;
        let policies = ClockPolicy::ALL;
        let clocks = Clocks {
            policy: table.get("policy").and_then(|node| {
                self.word(node, "a clock policy", &policies.map(ClockPolicy::name), |text| {
                    policies.into_iter().find(|policy| policy.name() == text)
                })
            }),
            sm_mhz: table.get("sm_mhz").and_then(|node| self.integer(node, "`sm_mhz`", 1, 100_000)),
            mem_mhz: table.get("mem_mhz").and_then(|node| self.integer(node, "`mem_mhz`", 1, 100_000)),
        };
        table.finish(&mut self.diagnostics);
        Some(clocks)
    }

    fn protocol(&mut self, node: &Node) -> Option<Protocol> {
        let mut table = Fields::of(node, "`[protocol]`", &mut self.diagnostics)?;
        let protocol = Protocol {
            event: table.get("event").and_then(|node| self.event(node)),
            annotation: table.get("annotation").and_then(|node| self.annotation(node)),
            ncu: table.get("ncu").and_then(|node| self.ncu(node)),
            tuning: table.get("tuning").and_then(|node| self.tuning(node)),
            nsys: table.get("nsys").and_then(|node| self.nsys(node)),
        };
        table.finish(&mut self.diagnostics);
        Some(protocol)
    }

    fn event(&mut self, node: &Node) -> Option<Event> {
        let mut table = Fields::of(node, "`[protocol.event]`", &mut self.diagnostics)?;
        let known = Timing::ALL.map(Timing::name);
        let timings = table.get("timings").and_then(|node| {
            self.listed(node, "`timings`", |reader, node| {
                let parse = |text: &str| Timing::ALL.into_iter().find(|timing| timing.name() == text);
                reader.word(node, "a timing", &known, parse)
            })
        });
        let event = Event {
            timings,
            budget_ms: table.get("budget_ms").and_then(|node| self.integer(node, "`budget_ms`", 1, 3_600_000)),
            min_samples: self.samples(&mut table, "min_samples"),
            max_samples: self.samples(&mut table, "max_samples"),
            warmup_ms: table.get("warmup_ms").and_then(|node| self.integer(node, "`warmup_ms`", 0, 3_600_000)),
        };
        table.finish(&mut self.diagnostics);
        self.ordered(event.min_samples.as_ref(), event.max_samples.as_ref());
        Some(event)
    }

    fn annotation(&mut self, node: &Node) -> Option<Annotation> {
        let mut table = Fields::of(node, "`[protocol.annotation]`", &mut self.diagnostics)?;
        let annotation = Annotation {
            budget_ms: table.get("budget_ms").and_then(|node| self.integer(node, "`budget_ms`", 1, 3_600_000)),
            min_samples: self.samples(&mut table, "min_samples"),
            max_samples: self.samples(&mut table, "max_samples"),
        };
        table.finish(&mut self.diagnostics);
        self.ordered(annotation.min_samples.as_ref(), annotation.max_samples.as_ref());
        Some(annotation)
    }

    fn ncu(&mut self, node: &Node) -> Option<Ncu> {
        let mut table = Fields::of(node, "`[protocol.ncu]`", &mut self.diagnostics)?;
        let ncu = Ncu { stage: table.get("stage").and_then(|node| self.text(node, "`stage`")) };
        table.finish(&mut self.diagnostics);
        Some(ncu)
    }

    fn samples(&mut self, table: &mut Fields<'_>, key: &'static str) -> Option<At<u32>> {
        table.get(key).and_then(|node| self.integer(node, &format!("`{key}`"), 3, 1_000_000))
    }

    fn ordered(&mut self, min: Option<&At<u32>>, max: Option<&At<u32>>) {
        if let (Some(min), Some(max)) = (min, max)
            && min.value > max.value
        {
            {
                let message = "`max_samples` must not be smaller than `min_samples`";
                let label = format!("{} < {}", max.value, min.value);
                self.diagnostics.push(Diagnostic::error(&max.at, message).label(label));
            }
        }
    }

    fn tuning(&mut self, node: &Node) -> Option<Tuning> {
        let mut table = Fields::of(node, "`[protocol.tuning]`", &mut self.diagnostics)?;
        let tuning = Tuning {
            budget_s: table.get("budget_s").and_then(|node| self.integer(node, "`budget_s`", 1, 86400)),
            limit: table.get("limit").and_then(|node| self.integer(node, "`limit`", 1, 1_000_000)),
            seed: table.get("seed").and_then(|node| self.integer(node, "`seed`", 0, u32::MAX)),
        };
        table.finish(&mut self.diagnostics);
        Some(tuning)
    }

    fn nsys(&mut self, node: &Node) -> Option<Nsys> {
        let mut table = Fields::of(node, "`[protocol.nsys]`", &mut self.diagnostics)?;
        let known = TracerKind::ALL.map(TracerKind::name);
        let tool = table.get("tool").and_then(|node| self.word(node, "a tracer", &known, |text| text.parse().ok()));
        let launches = table.get("launches").and_then(|node| self.integer(node, "`launches`", 1, MOST_TRACED));
        table.finish(&mut self.diagnostics);
        Some(Nsys { tool, launches })
    }

    fn devlog(&mut self, node: &Node) -> Option<Devlog> {
        let mut table = Fields::of(node, "`[devlog]`", &mut self.diagnostics)?;
        let devices = table.get("devices");
        table.finish(&mut self.diagnostics);
        let read = |reader: &mut Self, node: &Node| reader.text(node, "a device");
        Some(Devlog { devices: devices.and_then(|node| self.listed(node, "`devices`", read)) })
    }

    fn targets(&mut self, node: &Node) -> Option<Targets> {
        let mut table = Fields::of(node, "`[target]`", &mut self.diagnostics)?;
        let targets = Targets {
            cpu: table.get("cpu").and_then(|node| self.target(node, "`[target.cpu]`")),
            gpu: table.get("gpu").and_then(|node| self.target(node, "`[target.gpu]`")),
        };
        table.finish(&mut self.diagnostics);
        Some(targets)
    }

    fn target(&mut self, node: &Node, what: &str) -> Option<Target> {
        let mut table = Fields::of(node, what, &mut self.diagnostics)?;
        let target = Target {
            language: table.get("language").and_then(|node| self.language(node)),
            versions: table.get("versions").and_then(|node| self.versions(node)),
            modes: table.get("modes").and_then(|node| self.modes(node)),
            baselines: table.get("baselines").and_then(|node| self.baselines(node)),
            shapes: table.get("shapes").and_then(|node| self.shapes(node)),
        };
        table.finish(&mut self.diagnostics);
        Some(target)
    }
}

/// The version selector that `text` is.
pub(super) fn version_selector(text: &str) -> Option<VersionSelector> {
    match text {
        "all" => Some(VersionSelector::All),
        "latest" => Some(VersionSelector::Latest),
        "base" => Some(VersionSelector::Base),
        exact if exact.len() <= 10 => exact.parse().ok().map(VersionSelector::Exact),
        _ => None,
    }
}

/// Values of one family may share an axis: integers and floats are both numbers.
fn family(value: &Value) -> u8 {
    match value {
        Value::Bool(_) => 0,
        Value::Int(_) | Value::Float(_) => 1,
        Value::Text(_) => 2,
    }
}
