//! A manifest as it was typed: every value with its place, nothing resolved. The JSON Schema is made from these types,
//! and reading fills them key by key, so that what one knows the other knows.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::experiment::ClockPolicy;
use crate::diagnostic::Place;
use crate::model::timeline::TracerKind;
use crate::model::{Language, Mode, Timing, Value, Version};

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct At<T> {
    pub value: T,
    pub at: Place,
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// A list that is not empty; one value alone stands for a list of one.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed<T> {
    pub values: Vec<At<T>>,
    pub at: Place,
}

impl<T: JsonSchema> JsonSchema for Listed<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("ListOf{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
    }
}

/// An experiment: which kernels are measured, on which shapes, in which modes, against what.
#[derive(Debug, Clone, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the manifest's format.
    #[schemars(required, range(min = 1, max = 1))]
    pub schema: Option<At<u32>>,
    #[schemars(required)]
    pub experiment: Option<Experiment>,
    pub shapes: Option<At<Shapes>>,
    pub clocks: Option<Clocks>,
    pub protocol: Option<Protocol>,
    pub devlog: Option<Devlog>,
    pub target: Option<Targets>,
}

/// What is measured.
#[derive(Debug, Clone, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Experiment {
    /// Names the folder of the experiment's report.
    #[schemars(required, regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$"))]
    pub name: Option<At<String>>,
    /// One line for people.
    pub description: Option<At<String>>,
    /// Kernel designs.
    #[schemars(required)]
    pub kernels: Option<Listed<String>>,
    /// Default: c on a CPU, cuda on a GPU.
    pub language: Option<At<Language>>,
    /// Default: the base version.
    pub versions: Option<Listed<VersionSelector>>,
    /// Default: annotation.
    pub modes: Option<Listed<Mode>>,
    /// What the kernels are compared with; the order is that of the tables. Default: nothing.
    pub baselines: Option<Listed<Baseline>>,
    /// Rounds of fresh processes a comparison runs at least. Default: 8.
    #[schemars(range(min = 1, max = 1000))]
    pub rounds: Option<At<u32>>,
    /// Seconds after which one run counts as hung. Default: 600.
    #[schemars(range(min = 1, max = 86400))]
    pub time_limit_s: Option<At<u32>>,
}

/// Which versions of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionSelector {
    All,
    Latest,
    Base,
    Exact(Version),
}

impl JsonSchema for VersionSelector {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Version".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A version (v0, v1, …), or all, latest or base",
            "pattern": "^(all|latest|base|v(0|[1-9][0-9]{0,8}))$"
        })
    }
}

/// What kernels are compared with.
#[derive(Debug, Clone, PartialEq)]
pub enum Baseline {
    /// `previous`, `flash_mla`, `flash_mla@v1` or the path of a recorded results.json.
    Text(String),
    Kernel {
        kernel: At<String>,
        version: Option<At<VersionSelector>>,
    },
    File(At<String>),
}

impl JsonSchema for Baseline {
    fn schema_name() -> Cow<'static, str> {
        "Baseline".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let version = generator.subschema_for::<VersionSelector>();
        json_schema!({
            "anyOf": [
                {
                    "type": "string",
                    "minLength": 1,
                    "description": "`previous`, a kernel (its latest version), kernel@version, or the path of a recorded results.json"
                },
                {
                    "type": "object",
                    "properties": { "kernel": { "type": "string" }, "version": version },
                    "required": ["kernel"],
                    "additionalProperties": false
                },
                {
                    "type": "object",
                    "properties": { "file": { "type": "string" } },
                    "required": ["file"],
                    "additionalProperties": false
                }
            ]
        })
    }
}

/// Problem sizes: every key but `point` and `exclude` is an axis, a parameter of a kernel with its values. The axes
/// make a cross product.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shapes {
    pub axes: Vec<Axis>,
    pub points: Vec<At<Vec<Axis>>>,
    pub excludes: Vec<At<String>>,
}

/// A parameter with its values.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    pub name: At<String>,
    pub values: Vec<At<Value>>,
    /// A single value that was not written as a list: in a point it goes with every value of the others.
    pub is_scalar: bool,
}

impl JsonSchema for Shapes {
    fn schema_name() -> Cow<'static, str> {
        "Shapes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let scalars = ["integer", "number", "boolean", "string"];
        let lists =
            scalars.map(|kind| serde_json::json!({ "type": "array", "items": { "type": kind }, "minItems": 1 }));
        let axis: Vec<serde_json::Value> =
            std::iter::once(serde_json::json!({ "type": scalars })).chain(lists).collect();
        let axis = serde_json::json!({
            "description": "Values of a parameter: one, or a list of one type",
            "anyOf": axis
        });
        json_schema!({
            "type": "object",
            "description": "Problem sizes: the cross product of the axes, united with the points, without what is excluded",
            "properties": {
                "point": {
                    "type": "array",
                    "description": "Further points; lists advance together",
                    "items": { "type": "object", "additionalProperties": axis, "minProperties": 1 }
                },
                "exclude": {
                    "type": "array",
                    "description": "Points for which `when` holds are left out",
                    "items": {
                        "type": "object",
                        "properties": { "when": { "type": "string" } },
                        "required": ["when"],
                        "additionalProperties": false
                    }
                }
            },
            "additionalProperties": axis
        })
    }
}

/// What is done about the clocks of a GPU; a CPU's are left alone.
#[derive(Debug, Clone, Default, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Clocks {
    /// Default: lock.
    pub policy: Option<At<ClockPolicy>>,
    /// SM clock that is asked for, in MHz.
    #[schemars(range(min = 1, max = 100000))]
    pub sm_mhz: Option<At<u32>>,
    /// Memory clock that is asked for, in MHz.
    #[schemars(range(min = 1, max = 100000))]
    pub mem_mhz: Option<At<u32>>,
}

/// Departures from the usual sampling.
#[derive(Debug, Clone, Default, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Protocol {
    pub event: Option<Event>,
    pub annotation: Option<Annotation>,
    pub ncu: Option<Ncu>,
    pub tuning: Option<Tuning>,
    pub nsys: Option<Nsys>,
}

/// The timeline of nsys mode.
#[derive(Debug, Clone, Default, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Nsys {
    /// What traces; by default what is there, Nsight Systems before CUPTI.
    pub tool: Option<At<TracerKind>>,
    /// Launches of the whole pipeline.
    #[schemars(range(min = 1, max = 1000))]
    pub launches: Option<At<u32>>,
}

/// Sampling of event mode.
#[derive(Debug, Clone, Default, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Event {
    /// Timings taken, in this order.
    pub timings: Option<Listed<Timing>>,
    /// Milliseconds that go into one timing of one process at most.
    #[schemars(range(min = 1, max = 3600000))]
    pub budget_ms: Option<At<u32>>,
    #[schemars(range(min = 3, max = 1000000))]
    pub min_samples: Option<At<u32>>,
    #[schemars(range(min = 3, max = 1000000))]
    pub max_samples: Option<At<u32>>,
    /// Milliseconds of warm-up at least.
    #[schemars(range(min = 0, max = 3600000))]
    pub warmup_ms: Option<At<u32>>,
}

/// Sampling of annotation mode.
#[derive(Debug, Clone, Default, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Annotation {
    /// Milliseconds that go into one stage at most.
    #[schemars(range(min = 1, max = 3600000))]
    pub budget_ms: Option<At<u32>>,
    #[schemars(range(min = 3, max = 1000000))]
    pub min_samples: Option<At<u32>>,
    #[schemars(range(min = 3, max = 1000000))]
    pub max_samples: Option<At<u32>>,
}

/// Nsight Compute in its own mode.
#[derive(Debug, Clone, Default, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Ncu {
    /// The stage that alone is profiled.
    pub stage: Option<At<String>>,
}

/// Search for the best tiling.
#[derive(Debug, Clone, Default, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Tuning {
    /// Seconds that go into one search at most.
    #[schemars(range(min = 1, max = 86400))]
    pub budget_s: Option<At<u32>>,
    /// A space of at most this many points is searched whole, a larger one by this many random points.
    #[schemars(range(min = 1, max = 1000000))]
    pub limit: Option<At<u32>>,
    /// Seed of the random points.
    #[schemars(range(min = 0, max = 4294967295u32))]
    pub seed: Option<At<u32>>,
}

/// The dev logs.
#[derive(Debug, Clone, Default, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Devlog {
    /// Devices, by name, for which a log without a block gets one.
    pub devices: Option<Listed<String>>,
}

/// Overrides by kind of device.
#[derive(Debug, Clone, Default, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Targets {
    pub cpu: Option<Target>,
    pub gpu: Option<Target>,
}

/// What holds on one kind of device; each key replaces the experiment's wholesale.
#[derive(Debug, Clone, Default, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Target {
    pub language: Option<At<Language>>,
    pub versions: Option<Listed<VersionSelector>>,
    pub modes: Option<Listed<Mode>>,
    pub baselines: Option<Listed<Baseline>>,
    pub shapes: Option<At<Shapes>>,
}
