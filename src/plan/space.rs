//! The points of a tiling space: all of them up to a limit, a seeded sample beyond it. Pure.

use serde::{Deserialize, Serialize};

use super::instantiate::{Draft, InstantiateError, bind, defaults};
use crate::catalog::{Package, Parameter, Space};
use crate::expr::{Expr, Scope};
use crate::model::{Choices, Shape, Tiling, Value};

/// What one tuning decides.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TuneTarget {
    /// The tiling of one stage, timed by itself.
    Stage(String),
    /// Tunable parameters and shared choices, timed end to end.
    Pipeline,
}

impl std::fmt::Display for TuneTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TuneTarget::Stage(name) => f.pad(name),
            TuneTarget::Pipeline => f.pad("pipeline"),
        }
    }
}

/// How far a search goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchLimits {
    /// Valid points up to this number are all tried; of a larger space, this many are sampled.
    pub points: usize,
    pub seed: u64,
}

/// The points that a tuning tries.
#[derive(Debug, Clone, PartialEq)]
pub struct Search {
    pub points: Vec<Point>,
    /// Points of the whole space, rejected ones included.
    pub total: u128,
    pub exhaustive: bool,
}

/// One point of a space.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    pub choices: Choices,
    /// The constraint that rules the point out, if one does.
    pub rejected_by: Option<String>,
}

/// The axes of what `target` decides, as evaluated for one shape.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Axes {
    pub axes: Vec<(String, Vec<Value>)>,
    pub constraints: Vec<String>,
}

impl Axes {
    /// Points of the whole space, before constraints.
    pub fn total(&self) -> u128 {
        self.axes.iter().map(|(_, values)| values.len() as u128).product()
    }

    /// The point with mixed-radix number `index`; the last axis varies fastest.
    fn point(&self, mut index: u128) -> Choices {
        let mut choices = Choices::new();
        for (name, values) in self.axes.iter().rev() {
            let len = values.len() as u128;
            choices.insert(name.clone(), values[(index % len) as usize].clone());
            index /= len;
        }
        choices
    }
}

/// The targets of a package that have something to decide at `shape`, in the order in which they are tuned: stages
/// first, then the pipeline. A stage that is not launched at this shape has nothing to decide.
///
/// # Errors
/// As [`instantiate`](super::instantiate::instantiate).
pub fn targets(package: &Package, shape: &Shape, root: &Scope<'_>) -> Result<Vec<TuneTarget>, InstantiateError> {
    Ok(targets_of(package, shape, &Draft::new(package, shape, &Choices::new(), root)?))
}

/// As [`targets`]; `untuned` is the package at `shape`, before any tuning.
pub(super) fn targets_of(package: &Package, shape: &Shape, untuned: &Draft<'_>) -> Vec<TuneTarget> {
    let is_open = |parameter: &Parameter| parameter.is_tunable() && shape.get(&parameter.name).is_none();
    let stages = untuned.stages().filter(|(_, stage)| !stage.space.is_empty());
    let mut targets: Vec<_> = stages.map(|(_, stage)| TuneTarget::Stage(stage.name.clone())).collect();
    if !package.space.is_empty() || package.parameters.iter().any(is_open) {
        targets.push(TuneTarget::Pipeline);
    }
    targets
}

/// Those of `choices` that the pipeline of `package` has.
pub fn pinned(package: &Package, choices: Option<&Choices>) -> Choices {
    let has = |name: &str| package.space.choices.iter().any(|(of_space, _)| of_space == name);
    let chosen = choices.into_iter().flatten().filter(|(name, _)| has(name));
    chosen.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The constraint of the pipeline's space that rules out the pinned ones of `choices` at `shape`.
///
/// # Errors
/// A constraint that does not evaluate.
pub(super) fn ruled_out(
    package: &Package,
    shape: &Shape,
    choices: Option<&Choices>,
    root: &Scope<'_>,
) -> Result<Option<String>, InstantiateError> {
    let pinned = pinned(package, choices);
    if pinned.is_empty() {
        return Ok(None);
    }
    let scope = bind(package, shape, &pinned, root)?.scope;
    for constraint in &package.space.constraints {
        let place = || format!("constraint of the tiling space of {}", TuneTarget::Pipeline);
        let holds = constraint.eval_bool(&scope).map_err(|source| InstantiateError::Expression {
            kernel: package.id.to_string(),
            place: place(),
            source,
        })?;
        if !holds {
            return Ok(Some(constraint.source().to_owned()));
        }
    }
    Ok(None)
}

/// The axes of `target` with their values at `shape`, values that coincide named once.
///
/// # Errors
/// A value that does not evaluate.
pub fn axes(package: &Package, target: &TuneTarget, shape: &Shape, root: &Scope<'_>) -> Result<Axes, InstantiateError> {
    axes_in(package, target, shape, &bind(package, shape, &Choices::new(), root)?.scope)
}

/// As [`axes`], with the names that hold before any tuning.
pub(super) fn axes_in(
    package: &Package,
    target: &TuneTarget,
    shape: &Shape,
    scope: &Scope<'_>,
) -> Result<Axes, InstantiateError> {
    let place = format!("tiling space of {target}");
    let values = |exprs: &[Expr]| -> Result<Vec<Value>, InstantiateError> {
        let mut values = Vec::new();
        for expr in exprs {
            let value = expr.eval(scope).map_err(|source| InstantiateError::Expression {
                kernel: package.id.to_string(),
                place: place.clone(),
                source,
            })?;
            if !values.contains(&value) {
                values.push(value);
            }
        }
        Ok(values)
    };
    let space = of(package, target);
    let mut axes = Vec::new();
    if *target == TuneTarget::Pipeline {
        for parameter in &package.parameters {
            if parameter.is_tunable() && shape.get(&parameter.name).is_none() {
                axes.push((parameter.name.clone(), values(&parameter.candidates)?));
            }
        }
    }
    for (name, exprs) in &space.choices {
        axes.push((name.clone(), values(exprs)?));
    }
    Ok(Axes { axes, constraints: space.constraints.iter().map(|expr| expr.source().to_owned()).collect() })
}

/// The points that tuning `target` tries at `shape`; `tiling` holds what has been decided before.
///
/// # Errors
/// A value or a constraint that does not evaluate.
pub fn search(
    package: &Package,
    target: &TuneTarget,
    shape: &Shape,
    tiling: &Tiling,
    limits: SearchLimits,
    root: &Scope<'_>,
) -> Result<Search, InstantiateError> {
    let axes = axes(package, target, shape, root)?;
    let total = axes.total();
    let constraints = &of(package, target).constraints;
    let examine = |index: u128| -> Result<Point, InstantiateError> {
        let choices = axes.point(index);
        let pipeline = if *target == TuneTarget::Pipeline { &choices } else { &tiling.pipeline };
        let bound = bind(package, shape, pipeline, root)?;
        let mut scope = bound.scope;
        let mut visible = bound.choices;
        visible.extend(choices.iter().map(|(name, value)| (name.clone(), value.clone())));
        scope.set_choices("tile", &visible);
        for constraint in constraints {
            let holds = constraint.eval_bool(&scope).map_err(|source| InstantiateError::Expression {
                kernel: package.id.to_string(),
                place: format!("constraint of the tiling space of {target}"),
                source,
            })?;
            if !holds {
                return Ok(Point { choices, rejected_by: Some(constraint.source().to_owned()) });
            }
        }
        Ok(Point { choices, rejected_by: None })
    };

    // Small enough to look at every point, even when not all can be tried.
    const ENUMERABLE: u128 = 100_000;
    let mut random = fastrand::Rng::with_seed(limits.seed);
    let first = default_point(package, target, shape, root)?;
    if total <= ENUMERABLE {
        let points = (0..total).map(examine).collect::<Result<Vec<_>, _>>()?;
        let valid = points.iter().filter(|point| point.rejected_by.is_none()).count();
        if valid <= limits.points {
            return Ok(Search { points, total, exhaustive: true });
        }
        let points = sample(points, valid, limits.points, &first, &mut random);
        return Ok(Search { points, total, exhaustive: false });
    }
    let mut seen = std::collections::BTreeSet::new();
    let mut points = Vec::new();
    let mut valid = 0;
    for _ in 0..limits.points.saturating_mul(100) {
        let index = random.u128(0..total);
        if valid == limits.points {
            break;
        }
        if seen.insert(index) {
            let point = examine(index)?;
            valid += usize::from(point.rejected_by.is_none());
            points.push(point);
        }
    }
    if points.iter().all(|point| point.choices != first) {
        points.push(Point { choices: first, rejected_by: None });
    }
    Ok(Search { points, total, exhaustive: false })
}

/// The point that holds where nothing has been tuned: a sampled search always tries it, so that tuning never loses to
/// not tuning.
fn default_point(
    package: &Package,
    target: &TuneTarget,
    shape: &Shape,
    root: &Scope<'_>,
) -> Result<Choices, InstantiateError> {
    let bound = bind(package, shape, &Choices::new(), root)?;
    if *target != TuneTarget::Pipeline {
        return defaults(package, target, &bound.scope);
    }
    let open =
        package.parameters.iter().filter(|parameter| parameter.is_tunable() && shape.get(&parameter.name).is_none());
    let mut choices = bound.choices;
    choices
        .extend(open.filter_map(|parameter| Some((parameter.name.clone(), bound.shape.get(&parameter.name)?.clone()))));
    Ok(choices)
}

/// `wanted` of the `valid` points, `first` among them, by selection sampling; rejected points stay, as the history shows
/// them.
fn sample(points: Vec<Point>, valid: usize, wanted: usize, first: &Choices, random: &mut fastrand::Rng) -> Vec<Point> {
    let has_first = points.iter().any(|point| point.rejected_by.is_none() && point.choices == *first);
    let (mut left, mut needed) = (valid - usize::from(has_first), wanted - usize::from(has_first));
    let mut keep = |point: &Point| {
        if point.rejected_by.is_some() || point.choices == *first {
            return true;
        }
        let chosen = random.usize(0..left) < needed;
        left -= 1;
        needed -= usize::from(chosen);
        chosen
    };
    points.into_iter().filter(|point| keep(point)).collect()
}

/// The space of what `target` decides.
pub(super) fn of<'a>(package: &'a Package, target: &TuneTarget) -> &'a Space {
    match target {
        TuneTarget::Pipeline => &package.space,
        TuneTarget::Stage(name) => {
            &package.stages.iter().find(|stage| &stage.name == name).expect("targets name stages of the package").space
        }
    }
}
