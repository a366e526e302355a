//! From a package's open expressions to a pipeline of numbers, for one shape and one tiling. Pure.

use std::collections::BTreeMap;

use super::space::TuneTarget;
use crate::catalog::{self, Package, Parameter, ParameterKind, StageArg, TensorDType, TensorMapArg, TensorRole};
use crate::expr::{EvalError, Expr, Scope};
use crate::model::pipeline::{
    Arg, AsRead, Buffer, Decompressed, Distribution, Einsum, Launch, Operand, Pipeline, Reference, ReferenceFormula,
    Role, Stage, TensorMap,
};
use crate::model::{Choices, DType, Device, Shape, Tiling, Value};

/// What expressions of kernel packages are evaluated in on `device`: functions, and the device's names.
pub fn root_scope(device: &Device) -> Scope<'static> {
    let mut scope = Scope::new();
    for (name, value) in device.names() {
        scope.set(name, &value);
    }
    scope
}

/// Name of the pipeline's choices beside those of its stages.
pub const PIPELINE: &str = "pipeline";

/// A package at one shape and tiling.
#[derive(Debug, Clone, PartialEq)]
pub struct Instance {
    /// Every parameter's value, the tuned ones included.
    pub shape: Shape,
    pub pipeline: Pipeline,
    /// One entry a stage of `pipeline`, in its order.
    pub stages: Vec<StageCost>,
    /// Every choice that holds, tuned or default: of the pipeline under `pipeline`, and of each launched stage.
    pub choices: BTreeMap<String, Choices>,
}

impl Instance {
    /// FLOPs and compulsory bytes of the whole pipeline.
    pub fn total(&self) -> (f64, f64) {
        self.stages.iter().fold((0.0, 0.0), |(flops, bytes), stage| (flops + stage.flops, bytes + stage.bytes))
    }
}

/// What the compiler and the cost model need to know of a launched stage.
#[derive(Debug, Clone, PartialEq)]
pub struct StageCost {
    /// Index into [`Package::stages`].
    pub declared: usize,
    /// Macros with their values.
    pub defines: BTreeMap<String, String>,
    /// FLOPs of one launch.
    pub flops: f64,
    /// Compulsory bytes of one launch.
    pub bytes: f64,
}

/// A package has no pipeline at this shape.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InstantiateError {
    #[error("{kernel}: {place}: {source}")]
    Expression { kernel: String, place: String, source: EvalError },
    #[error("{kernel}: parameter `{parameter}` has no default; give it a value under [shapes]")]
    NoDefault { kernel: String, parameter: String },
    #[error("{kernel}: parameter `{parameter}` = {value}: {reason}")]
    OutOfRange { kernel: String, parameter: String, value: Value, reason: String },
    #[error("{kernel}: [reference.tolerance] has none for {dtype}")]
    NoTolerance { kernel: String, dtype: DType },
    #[error(
        "{kernel}: stage `{stage}`, tensor map: {reason}; change the tensor or the box, or let a constraint rule it out"
    )]
    TensorMap { kernel: String, stage: String, reason: String },
    #[error("{kernel}: a dimension of tensor `{tensor}` or its size exceeds 64 bits")]
    TooLarge { kernel: String, tensor: String },
}

/// Expressions of one package, evaluated with errors that say where they stand.
struct Evaluator<'a> {
    package: &'a Package,
}

impl Evaluator<'_> {
    fn at<T>(&self, place: impl FnOnce() -> String, result: Result<T, EvalError>) -> Result<T, InstantiateError> {
        result.map_err(|source| InstantiateError::Expression {
            kernel: self.package.id.to_string(),
            place: place(),
            source,
        })
    }

    fn counts(&self, place: &str, exprs: &[Expr], scope: &Scope<'_>) -> Result<Vec<u64>, InstantiateError> {
        exprs.iter().map(|expr| self.at(|| place.to_owned(), expr.eval_count(scope))).collect()
    }
}

/// The shape with a value for every parameter of the package that is not left to tuning.
///
/// Parameters that the package does not declare are dropped: kernels of one experiment join on what they share.
///
/// # Errors
/// A parameter without value and default, a default that does not evaluate, a value outside the declared range.
pub fn complete_shape(package: &Package, given: &Shape, root: &Scope<'_>) -> Result<Shape, InstantiateError> {
    let is_open = |parameter: &Parameter| parameter.is_tunable() && given.get(&parameter.name).is_none();
    assign(package, |parameter| given.get(&parameter.name), is_open, &mut root.inner())
}

/// Gives every parameter its value or default, in declared order, and makes it a name of `scope`; parameters for which
/// `skip` holds are left out.
fn assign<'v>(
    package: &Package,
    given: impl Fn(&Parameter) -> Option<&'v Value>,
    skip: impl Fn(&Parameter) -> bool,
    scope: &mut Scope<'_>,
) -> Result<Shape, InstantiateError> {
    let evaluator = Evaluator { package };
    let mut shape = Shape::default();
    for parameter in package.parameters.iter().filter(|parameter| !skip(parameter)) {
        let value = match (given(parameter), &parameter.default) {
            (Some(value), _) => value.clone(),
            (None, Some(default)) => {
                evaluator.at(|| format!("default of parameter `{}`", parameter.name), default.eval(scope))?
            }
            (None, None) => {
                return Err(InstantiateError::NoDefault {
                    kernel: package.id.to_string(),
                    parameter: parameter.name.clone(),
                });
            }
        };
        check_range(package, parameter, &value)?;
        let is_named = !parameter.optional || !is_default(&evaluator, parameter, &value, scope)?;
        scope.set(&parameter.name, &value);
        if is_named {
            shape.0.insert(parameter.name.clone(), value);
        }
    }
    Ok(shape)
}

/// Whether `value` is what the parameter has where nothing gives it one.
fn is_default(
    evaluator: &Evaluator<'_>,
    parameter: &Parameter,
    value: &Value,
    scope: &Scope<'_>,
) -> Result<bool, InstantiateError> {
    let Some(default) = &parameter.default else { return Ok(false) };
    let default = evaluator.at(|| format!("default of parameter `{}`", parameter.name), default.eval(scope))?;
    Ok(match (value, &default) {
        // `100` and `100.0` are one number.
        (Value::Int(given), Value::Float(default)) => *given as f64 == *default,
        (Value::Float(given), Value::Int(default)) => *given == *default as f64,
        (given, default) => given == default,
    })
}

fn check_range(package: &Package, parameter: &Parameter, value: &Value) -> Result<(), InstantiateError> {
    let reason = match (&parameter.kind, value) {
        (ParameterKind::Int { min, max }, Value::Int(value)) if min <= value && value <= max => return Ok(()),
        (ParameterKind::Int { min, max }, Value::Int(_)) => format!("allowed are {min} to {max}"),
        (ParameterKind::Float, Value::Float(_) | Value::Int(_)) | (ParameterKind::Bool, Value::Bool(_)) => {
            return Ok(());
        }
        (ParameterKind::DType { allowed }, Value::Text(name)) => {
            if allowed.iter().any(|dtype| dtype.name() == name) {
                return Ok(());
            }
            format!("allowed are {}", allowed.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(", "))
        }
        (kind, value) => format!("a {} is no {}", value.kind(), kind.word()),
    };
    Err(InstantiateError::OutOfRange {
        kernel: package.id.to_string(),
        parameter: parameter.name.clone(),
        value: value.clone(),
        reason,
    })
}

/// Names and values that hold for the whole pipeline.
pub(super) struct Bound<'p> {
    /// The device's names, parameters, lets, and the pipeline's choices as `tile.*`.
    pub scope: Scope<'p>,
    /// Every parameter with its value.
    pub shape: Shape,
    /// The pipeline's choices.
    pub choices: Choices,
}

/// Gives every parameter, let and choice of the pipeline its value; `pipeline` gives the choices and the tunable
/// parameters that `shape` leaves open, else their defaults hold.
pub(super) fn bind<'p>(
    package: &Package,
    shape: &Shape,
    pipeline: &Choices,
    root: &'p Scope<'p>,
) -> Result<Bound<'p>, InstantiateError> {
    let evaluator = Evaluator { package };
    let mut scope = root.inner();
    let given = |parameter: &Parameter| shape.get(&parameter.name).or_else(|| pipeline.get(&parameter.name));
    let shape = assign(package, given, |_| false, &mut scope)?;
    for (name, expr) in &package.lets {
        let value = evaluator.at(|| format!("[lets] {name}"), expr.eval(&scope))?;
        scope.set(name, &value);
    }
    let choices = with_defaults(&evaluator, &package.space, pipeline, &scope, "[space]")?;
    scope.set_choices("tile", &choices);
    Ok(Bound { scope, shape, choices })
}

/// Whether `stage` is launched with the names of `scope`.
fn is_launched(package: &Package, stage: &catalog::Stage, scope: &Scope<'_>) -> Result<bool, InstantiateError> {
    let Some(when) = &stage.when else { return Ok(true) };
    Evaluator { package }.at(|| format!("stage `{}`, when", stage.name), when.eval_bool(scope))
}

/// Pipeline, macros and cost of `package` at `shape` with the choices of `tiling`; a choice that the tiling leaves open
/// takes the default of its space. `root` is that of [`root_scope`].
///
/// # Errors
/// An expression that does not evaluate, a value outside its declared range, a size beyond 64 bits.
pub fn instantiate(
    package: &Package,
    shape: &Shape,
    tiling: &Tiling,
    root: &Scope<'_>,
) -> Result<Instance, InstantiateError> {
    Draft::new(package, shape, &tiling.pipeline, root)?.instance(&tiling.stages)
}

/// A package at one shape and one tiling of the pipeline, whatever the tilings of its stages.
pub(super) struct Draft<'p> {
    package: &'p Package,
    pub bound: Bound<'p>,
    buffers: Vec<Buffer>,
    reference: Option<Reference>,
    /// Whether each of the package's stages is launched.
    launched: Vec<bool>,
}

impl<'p> Draft<'p> {
    /// # Errors
    /// As [`instantiate`].
    pub fn new(
        package: &'p Package,
        shape: &Shape,
        pipeline: &Choices,
        root: &'p Scope<'p>,
    ) -> Result<Draft<'p>, InstantiateError> {
        let evaluator = Evaluator { package };
        let bound = bind(package, shape, pipeline, root)?;
        let buffers = package
            .tensors
            .iter()
            .map(|tensor| buffer(&evaluator, tensor, &bound.shape, &bound.scope))
            .collect::<Result<Vec<_>, _>>()?;
        let reference = match &package.reference {
            Some(declared) => Some(reference(&evaluator, declared, &buffers, &bound.scope)?),
            None => None,
        };
        let launched =
            package.stages.iter().map(|stage| is_launched(package, stage, &bound.scope)).collect::<Result<_, _>>()?;
        Ok(Draft { package, bound, buffers, reference, launched })
    }

    /// The package's stages that are launched, with their numbers.
    pub fn stages(&self) -> impl Iterator<Item = (usize, &'p catalog::Stage)> {
        self.package.stages.iter().enumerate().filter(|(declared, _)| self.launched[*declared])
    }

    /// The instance with these choices of the stages; what they leave open takes its default.
    ///
    /// # Errors
    /// As [`instantiate`].
    pub fn instance(&self, tilings: &BTreeMap<String, Choices>) -> Result<Instance, InstantiateError> {
        let Draft { package, bound, .. } = self;
        let tunable = package.parameters.iter().filter(|parameter| parameter.is_tunable());
        let mut of_pipeline = bound.choices.clone();
        of_pipeline.extend(
            tunable.filter_map(|parameter| Some((parameter.name.clone(), bound.shape.get(&parameter.name)?.clone()))),
        );
        let mut choices = BTreeMap::from([(PIPELINE.to_owned(), of_pipeline)]);
        let (mut stages, mut costs) = (Vec::new(), Vec::new());
        for (declared, stage) in self.stages() {
            let own = tilings.get(&stage.name);
            let (launched, cost, own) = self.stage(declared, stage, own.unwrap_or(&Choices::new()), &stages)?;
            choices.insert(stage.name.clone(), own);
            costs.push(cost);
            stages.push(launched);
        }
        let pipeline = Pipeline { buffers: self.buffers.clone(), stages, reference: self.reference.clone() };
        Ok(Instance { shape: bound.shape.clone(), pipeline, stages: costs, choices })
    }

    /// A stage with its choices, of which `given` are known, behind the `earlier` ones.
    fn stage(
        &self,
        declared: usize,
        stage: &catalog::Stage,
        given: &Choices,
        earlier: &[Stage],
    ) -> Result<(Stage, StageCost, Choices), InstantiateError> {
        let evaluator = Evaluator { package: self.package };
        let place = |what: &str| format!("stage `{}`, {what}", stage.name);
        let mut scope = self.bound.scope.inner();
        let own = with_defaults(&evaluator, &stage.space, given, &scope, &stage.name)?;
        let mut visible = self.bound.choices.clone();
        visible.extend(own.clone());
        scope.set_choices("tile", &visible);
        let blocks = evaluator.counts(&place("grid"), &stage.grid, &scope)?;
        if let Some((expr, _)) = stage.grid.iter().zip(&blocks).find(|(_, blocks)| **blocks == 0) {
            let reason = "it is 0, so that nothing is launched; `when` leaves a stage out, a constraint a tiling";
            let source = EvalError { source_text: expr.source().to_owned(), reason: reason.to_owned() };
            return evaluator.at(|| place("grid"), Err(source));
        }
        let args = stage.args.iter().map(|arg| argument(&evaluator, self.package, arg, &place("args"), &scope));
        let args = args.collect::<Result<Vec<Arg>, _>>()?;
        for arg in &args {
            if let Arg::Map(map) = arg {
                map.check(&self.buffers[map.buffer]).map_err(|reason| InstantiateError::TensorMap {
                    kernel: self.package.id.to_string(),
                    stage: stage.name.clone(),
                    reason,
                })?;
            }
        }
        let after = stage.after.iter().filter_map(|name| earlier.iter().position(|earlier| &earlier.name == name));
        let launched = Stage {
            name: stage.name.clone(),
            entry: stage.entry.clone(),
            args,
            grid: grid(&blocks),
            launch: launch(&evaluator, &stage.launch, &place, &scope)?,
            stream: stage.stream,
            after: after.collect(),
        };
        let defines = stage
            .defines
            .iter()
            .map(|(name, expr)| Ok((name.clone(), define(evaluator.at(|| place("defines"), expr.eval(&scope))?))));
        let cost = StageCost {
            declared,
            defines: defines.collect::<Result<_, InstantiateError>>()?,
            flops: amount(&evaluator, &stage.flops, &place("flops"), &scope)?,
            bytes: amount(&evaluator, &stage.bytes, &place("bytes"), &scope)?,
        };
        Ok((launched, cost, own))
    }
}

/// The reduced shape on which the whole output is compared: `shape` with the package's overrides.
///
/// # Errors
/// As [`instantiate`].
pub fn reduced_shape(package: &Package, full: &Shape, root: &Scope<'_>) -> Result<Shape, InstantiateError> {
    let evaluator = Evaluator { package };
    let mut scope = root.inner();
    for (name, value) in &full.0 {
        scope.set(name, value);
    }
    let mut reduced = full.clone();
    // A tuned parameter was chosen for the full shape; at the reduced one its default holds unless overridden.
    for parameter in package.parameters.iter().filter(|parameter| parameter.is_tunable()) {
        reduced.0.remove(&parameter.name);
    }
    for (name, expr) in &package.reduced {
        let value = evaluator.at(|| format!("[reduced] {name}"), expr.eval(&scope))?;
        reduced.0.insert(name.clone(), value);
    }
    Ok(reduced)
}

/// The default choices of a stage's space.
pub(super) fn defaults(package: &Package, target: &TuneTarget, scope: &Scope<'_>) -> Result<Choices, InstantiateError> {
    let space = super::space::of(package, target);
    with_defaults(&Evaluator { package }, space, &Choices::new(), scope, &target.to_string())
}

/// A space's choices: those given, the default's for the rest.
fn with_defaults(
    evaluator: &Evaluator<'_>,
    space: &catalog::Space,
    given: &Choices,
    scope: &Scope<'_>,
    place: &str,
) -> Result<Choices, InstantiateError> {
    let mut choices = Choices::new();
    for (name, _) in &space.choices {
        let value = match (given.get(name), space.default.get(name)) {
            (Some(value), _) => value.clone(),
            (None, Some(default)) => evaluator.at(|| format!("{place}: default of `{name}`"), default.eval(scope))?,
            (None, None) => continue,
        };
        choices.insert(name.clone(), value);
    }
    Ok(choices)
}

fn buffer(
    evaluator: &Evaluator<'_>,
    tensor: &catalog::Tensor,
    full: &Shape,
    scope: &Scope<'_>,
) -> Result<Buffer, InstantiateError> {
    let place = || format!("tensor `{}`", tensor.name);
    let role = match &tensor.role {
        TensorRole::Normal { std, seed } => {
            Role::Input(Distribution::Normal { std: evaluator.at(place, std.eval_f64(scope))?, seed: *seed })
        }
        TensorRole::Uniform { low, high, seed } => Role::Input(Distribution::Uniform {
            low: evaluator.at(place, low.eval_f64(scope))?,
            high: evaluator.at(place, high.eval_f64(scope))?,
            seed: *seed,
        }),
        TensorRole::Derived(formula) => Role::Derived { formula: einsum(evaluator, formula, scope)? },
        TensorRole::Scratch => Role::Scratch,
        TensorRole::Output => Role::Output,
    };
    let dims = evaluator.counts(&place(), &tensor.shape, scope)?;
    let too_large =
        || InstantiateError::TooLarge { kernel: evaluator.package.id.to_string(), tensor: tensor.name.clone() };
    let dtype = tensor_dtype(&tensor.dtype, full);
    dims.iter()
        .try_fold(dtype.bytes(), |product, &dim| product.checked_mul(dim))
        .filter(|&bytes| i64::try_from(bytes).is_ok())
        .ok_or_else(too_large)?;
    Ok(Buffer { name: tensor.name.clone(), dtype, dims, role })
}

/// The catalogue has checked that the parameter exists and is of kind dtype.
fn tensor_dtype(dtype: &TensorDType, full: &Shape) -> DType {
    match dtype {
        TensorDType::Fixed(dtype) => *dtype,
        TensorDType::Parameter(name) => full
            .get(name)
            .and_then(Value::as_text)
            .and_then(|text| text.parse().ok())
            .expect("a dtype parameter's value was checked against the allowed ones"),
    }
}

fn einsum(evaluator: &Evaluator<'_>, formula: &catalog::Einsum, scope: &Scope<'_>) -> Result<Einsum, InstantiateError> {
    let operands = formula
        .operands
        .iter()
        .map(|operand| {
            let start = operand
                .start
                .iter()
                .map(|(axis, expr)| {
                    Ok((*axis, evaluator.at(|| format!("einsum `{}`", formula.spec), expr.eval_count(scope))?))
                })
                .collect::<Result<_, InstantiateError>>()?;
            Ok(Operand { buffer: tensor_index(evaluator.package, &operand.tensor), start })
        })
        .collect::<Result<_, InstantiateError>>()?;
    Ok(Einsum { spec: formula.spec.clone(), operands })
}

/// The catalogue has checked that the tensor exists.
fn tensor_index(package: &Package, name: &str) -> usize {
    package.tensors.iter().position(|tensor| tensor.name == name).expect("names of tensors were checked")
}

fn argument(
    evaluator: &Evaluator<'_>,
    package: &Package,
    arg: &StageArg,
    place: &str,
    scope: &Scope<'_>,
) -> Result<Arg, InstantiateError> {
    Ok(match arg {
        StageArg::Tensor(name) => Arg::Buffer(tensor_index(package, name)),
        StageArg::Block(axis) => Arg::Block(*axis),
        StageArg::Thread => Arg::Thread,
        StageArg::Map(map) => Arg::Map(tensor_map(evaluator, package, map, place, scope)?),
        StageArg::Scalar(expr) => match evaluator.at(|| place.to_owned(), expr.eval(scope))? {
            Value::Int(value) => Arg::Int(value),
            Value::Bool(value) => Arg::Int(i64::from(value)),
            Value::Float(value) => Arg::Float(value),
            Value::Text(text) => {
                let reason = format!("its value is the text `{text}`, which a kernel cannot take");
                let source = EvalError { source_text: expr.source().to_owned(), reason };
                return Err(InstantiateError::Expression {
                    kernel: package.id.to_string(),
                    place: place.to_owned(),
                    source,
                });
            }
        },
    })
}

fn tensor_map(
    evaluator: &Evaluator<'_>,
    package: &Package,
    map: &TensorMapArg,
    place: &str,
    scope: &Scope<'_>,
) -> Result<TensorMap, InstantiateError> {
    let extents = evaluator.counts(place, &map.extents, scope)?;
    Ok(TensorMap {
        buffer: tensor_index(package, &map.tensor),
        // What exceeds 32 bits exceeds what a box may have, which is checked with the buffer.
        extents: extents.into_iter().map(|extent| u32::try_from(extent).unwrap_or(u32::MAX)).collect(),
        swizzle_bytes: map.swizzle_bytes,
        promotion_bytes: map.promotion_bytes,
    })
}

/// A number that is not negative.
fn amount(evaluator: &Evaluator<'_>, expr: &Expr, place: &str, scope: &Scope<'_>) -> Result<f64, InstantiateError> {
    let value = evaluator.at(|| place.to_owned(), expr.eval_f64(scope))?;
    if value >= 0.0 {
        return Ok(value);
    }
    let source = EvalError { source_text: expr.source().to_owned(), reason: format!("its value is {value}, below 0") };
    evaluator.at(|| place.to_owned(), Err(source))
}

fn grid(counts: &[u64]) -> [u64; 3] {
    std::array::from_fn(|axis| counts.get(axis).copied().unwrap_or(1))
}

/// How a stage is launched; a number too large for a device is kept as large as a number can be, and refused there.
fn launch(
    evaluator: &Evaluator<'_>,
    launch: &catalog::Launch,
    place: &impl Fn(&str) -> String,
    scope: &Scope<'_>,
) -> Result<Launch, InstantiateError> {
    let small = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let extents = |key: &str, exprs: &[Expr]| -> Result<[u32; 3], InstantiateError> {
        Ok(grid(&evaluator.counts(&place(key), exprs, scope)?).map(small))
    };
    Ok(match launch {
        catalog::Launch::Cpu { threads } => {
            let threads = evaluator.at(|| place("threads"), threads.eval_count(scope))?;
            Launch::Cpu { threads: small(threads.max(1)) }
        }
        catalog::Launch::Gpu { block, shared, cluster, cooperative } => Launch::Gpu {
            block: extents("block", block)?,
            shared_bytes: evaluator.at(|| place("shared"), shared.eval_count(scope))?,
            cluster: cluster.as_deref().map(|cluster| extents("cluster", cluster)).transpose()?,
            cooperative: *cooperative,
        },
    })
}

fn define(value: Value) -> String {
    match value {
        Value::Bool(value) => i64::from(value).to_string(),
        other => other.to_string(),
    }
}

fn as_read_where_it_holds(
    evaluator: &Evaluator<'_>,
    declared: &catalog::AsRead,
    scope: &Scope<'_>,
) -> Result<AsRead, InstantiateError> {
    let holds = evaluator.at(|| "[reference.as_read] when".to_owned(), declared.when.eval_bool(scope))?;
    let index = |name: &String| tensor_index(evaluator.package, name);
    let decompressed = |(key, value): &(String, String)| Decompressed { key: index(key), value: index(value) };
    Ok(match holds {
        true => AsRead {
            qc: declared.qc.as_ref().map(index),
            decompressed: declared.decompressed.as_ref().map(decompressed),
        },
        false => AsRead::default(),
    })
}

fn reference(
    evaluator: &Evaluator<'_>,
    declared: &catalog::Reference,
    buffers: &[Buffer],
    scope: &Scope<'_>,
) -> Result<Reference, InstantiateError> {
    let package = evaluator.package;
    let index = |name: &String| tensor_index(package, name);
    let formula = match &declared.formula {
        catalog::ReferenceFormula::MlaAttention { q, qpe, z, kpe, w_uk, w_uv, scale, causal, as_read } => {
            ReferenceFormula::MlaAttention {
                q: index(q),
                qpe: index(qpe),
                z: index(z),
                kpe: index(kpe),
                w_uk: index(w_uk),
                w_uv: index(w_uv),
                scale: evaluator.at(|| "[reference] scale".to_owned(), scale.eval_f64(scope))?,
                causal: evaluator.at(|| "[reference] causal".to_owned(), causal.eval_bool(scope))?,
                as_read: match as_read {
                    Some(declared) => as_read_where_it_holds(evaluator, declared, scope)?,
                    None => AsRead::default(),
                },
            }
        }
        catalog::ReferenceFormula::Einsum(formula) => {
            ReferenceFormula::Einsum { formula: einsum(evaluator, formula, scope)? }
        }
    };
    let output = index(&declared.output);
    let dtype = buffers[output].dtype;
    let tolerance = declared
        .tolerance
        .get(&dtype)
        .copied()
        .ok_or_else(|| InstantiateError::NoTolerance { kernel: package.id.to_string(), dtype })?;
    Ok(Reference { formula, output, tolerance })
}
