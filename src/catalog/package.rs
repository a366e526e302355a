//! A kernel package as its `kernel.toml` declares it, checked but with every expression still open.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::expr::Expr;
use crate::model::pipeline::Tolerance;
use crate::model::{DType, KernelId, Key};

/// One version of one kernel in one language.
#[derive(Debug, Clone)]
pub struct Package {
    pub id: KernelId,
    /// Folder between language and design, e.g. `mla`.
    pub layer: String,
    /// Folder of the package, relative to the project's root, with `/`.
    pub folder: PathBuf,
    /// One line for people.
    pub description: String,
    /// SHA-256 of kernel.toml as it is: what reports show of a package follows from it.
    pub declaration: Key,
    /// In declared order, which is also the order in which defaults may refer to one another.
    pub parameters: Vec<Parameter>,
    /// Named expressions, in declared order; later ones may use earlier ones.
    pub lets: Vec<(String, Expr)>,
    /// In declared order.
    pub tensors: Vec<Tensor>,
    /// In launch order.
    pub stages: Vec<Stage>,
    /// Choices of the pipeline as a whole, beside its tunable parameters.
    pub space: Space,
    pub reference: Option<Reference>,
    /// Parameters that a reduced shape overrides, for comparing the whole output.
    pub reduced: BTreeMap<String, Expr>,
}

impl Package {
    /// The parameter `name`.
    pub fn parameter(&self, name: &str) -> Option<&Parameter> {
        self.parameters.iter().find(|parameter| parameter.name == name)
    }
}

/// One parameter of a kernel's shape.
#[derive(Debug, Clone)]
pub struct Parameter {
    pub name: String,
    pub kind: ParameterKind,
    /// Value where a manifest gives none; may refer to parameters declared before it. `None`: the manifest must.
    pub default: Option<Expr>,
    /// Values tried by tuning where a shape does not pin the parameter; empty: it is not tunable.
    pub candidates: Vec<Expr>,
    /// It belongs to a shape only where it differs from its default, as if the kernel had no such parameter otherwise.
    pub optional: bool,
    pub doc: String,
}

impl Parameter {
    /// Tuning chooses it unless a shape pins it.
    pub fn is_tunable(&self) -> bool {
        !self.candidates.is_empty()
    }
}

/// Type and range of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum ParameterKind {
    Int {
        min: i64,
        max: i64,
    },
    Float,
    Bool,
    /// An element type, one of those listed.
    DType {
        allowed: Vec<DType>,
    },
}

impl ParameterKind {
    /// Word for the kind, for messages.
    pub fn word(&self) -> &'static str {
        match self {
            ParameterKind::Int { .. } => "integer",
            ParameterKind::Float => "number",
            ParameterKind::Bool => "boolean",
            ParameterKind::DType { .. } => "element type",
        }
    }
}

/// A buffer of the pipeline.
#[derive(Debug, Clone)]
pub struct Tensor {
    pub name: String,
    pub dtype: TensorDType,
    pub shape: Vec<Expr>,
    pub role: TensorRole,
}

/// Element type of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub enum TensorDType {
    Fixed(DType),
    /// The value of a parameter of kind dtype.
    Parameter(String),
}

/// Where a tensor's contents come from; see [`crate::model::pipeline::Role`].
#[derive(Debug, Clone)]
pub enum TensorRole {
    Normal { std: Expr, seed: u64 },
    Uniform { low: Expr, high: Expr, seed: u64 },
    Derived(Einsum),
    Scratch,
    Output,
}

/// Tensor formula over tensors of the package.
#[derive(Debug, Clone)]
pub struct Einsum {
    /// Index notation, e.g. `btk,hkd->bthd`.
    pub spec: String,
    pub operands: Vec<Operand>,
}

/// A tensor read by a formula, from `start` on along the named axes.
#[derive(Debug, Clone)]
pub struct Operand {
    pub tensor: String,
    pub start: BTreeMap<char, Expr>,
}

/// One launch of one function.
#[derive(Debug, Clone)]
pub struct Stage {
    pub name: String,
    /// Source file, relative to the project's root.
    pub source: PathBuf,
    /// Files that the source includes, relative to the project's root, declared so that they enter the key.
    pub headers: Vec<PathBuf>,
    /// SHA-256 of the bytes of source and headers, by path relative to the package's folder.
    pub hashes: BTreeMap<String, Key>,
    pub entry: String,
    /// Macros given to the compiler.
    pub defines: BTreeMap<String, Expr>,
    /// Further compiler flags.
    pub flags: Vec<String>,
    pub args: Vec<StageArg>,
    /// One to three expressions: blocks along x, y, z.
    pub grid: Vec<Expr>,
    pub launch: Launch,
    pub stream: u32,
    /// Names of earlier stages that must have ended.
    pub after: Vec<String>,
    /// The stage is launched only where this holds (e.g. `n > 0`).
    pub when: Option<Expr>,
    /// FLOPs of one launch, by the cost model.
    pub flops: Expr,
    /// Compulsory bytes of one launch, each tensor once.
    pub bytes: Expr,
    pub space: Space,
}

/// How the blocks of a stage are run; see [`crate::model::pipeline::Launch`].
#[derive(Debug, Clone)]
pub enum Launch {
    /// Threads that the blocks are dealt out to.
    Cpu { threads: Expr },
    Gpu {
        /// One to three expressions: threads of a block along x, y, z.
        block: Vec<Expr>,
        /// Dynamic shared memory of a block, in bytes.
        shared: Expr,
        /// One to three expressions: blocks of a cluster along x, y, z.
        cluster: Option<Vec<Expr>>,
        /// All blocks run at the same time.
        cooperative: bool,
    },
}

/// One argument of a stage's function.
#[derive(Debug, Clone, PartialEq)]
pub enum StageArg {
    Tensor(String),
    /// Index of the block along an axis (0: x, 1: y, 2: z).
    Block(u8),
    Thread,
    /// A number: `int64_t` for an integer, `double` for a float.
    Scalar(Expr),
    /// A tensor map; see [`crate::model::pipeline::TensorMap`].
    Map(TensorMapArg),
}

/// A tensor map with the extents of its boxes still open.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorMapArg {
    pub tensor: String,
    /// One a dimension of the tensor.
    pub extents: Vec<Expr>,
    pub swizzle_bytes: u32,
    pub promotion_bytes: u32,
}

/// Tiling space: named lists of values, the product of which is searched.
#[derive(Debug, Clone, Default)]
pub struct Space {
    /// Values of each choice, in declared order. An expression may use parameters, lets and `cores`.
    pub choices: Vec<(String, Vec<Expr>)>,
    /// Conditions that a point must satisfy, over parameters, lets, `cores` and `tile.<choice>`.
    pub constraints: Vec<Expr>,
    /// The point that is used where nothing has been tuned.
    pub default: BTreeMap<String, Expr>,
}

impl Space {
    /// Nothing to choose.
    pub fn is_empty(&self) -> bool {
        self.choices.is_empty()
    }
}

/// What the output must equal.
#[derive(Debug, Clone)]
pub struct Reference {
    pub formula: ReferenceFormula,
    /// Name of the compared tensor.
    pub output: String,
    /// By dtype of the output.
    pub tolerance: BTreeMap<DType, Tolerance>,
}

/// See [`crate::model::pipeline::ReferenceFormula`].
#[derive(Debug, Clone)]
pub enum ReferenceFormula {
    MlaAttention {
        q: String,
        qpe: String,
        z: String,
        kpe: String,
        w_uk: String,
        w_uv: String,
        scale: Expr,
        causal: Expr,
        as_read: Option<AsRead>,
    },
    Einsum(Einsum),
}

/// Tensors that the reference takes as the kernel reads them where a condition holds; see
/// [`crate::model::pipeline::AsRead`].
#[derive(Debug, Clone)]
pub struct AsRead {
    pub when: Expr,
    pub qc: Option<String>,
    /// Key and value.
    pub decompressed: Option<(String, String)>,
}
