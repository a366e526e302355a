//! Axes, points and exclusions to the list of shapes. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::count::Count;
use super::typed::{At, Axis, Shapes};
use crate::catalog::{Package, Parameter, ParameterKind};
use crate::diagnostic::{Diagnostic, Place, suggestion};
use crate::expr::{Expr, Scope};
use crate::model::{DType, Shape, Value};

/// More points than this are refused before any is made.
const MOST_POINTS: usize = 1_000_000;

/// The shapes that `typed` names for the kernels of `packages`, each once. `None` after an error.
pub fn expand(typed: &At<Shapes>, packages: &[&Package], diagnostics: &mut Vec<Diagnostic>) -> Option<Vec<Shape>> {
    let errors = |diagnostics: &[Diagnostic]| diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).count();
    let before = errors(diagnostics);
    let checked = check_axes(&typed.value, packages, diagnostics);
    let sets = point_sets(&checked, &typed.at);
    check_required(&sets, packages, diagnostics);
    check_size(&sets, &typed.at, diagnostics);
    let mut exclusions = exclusions(&typed.value, packages, diagnostics);
    if errors(diagnostics) > before {
        return None;
    }
    let points = distinct(&sets, diagnostics);
    exclude(points, &mut exclusions, diagnostics)
}

/// Reports axes that no kernel declares and values that a kernel does not take; gives the shapes with every value of
/// the type that the kernels declare.
fn check_axes(shapes: &Shapes, packages: &[&Package], diagnostics: &mut Vec<Diagnostic>) -> Shapes {
    let mut checked = shapes.clone();
    let points = checked.points.iter_mut().flat_map(|point| &mut point.value);
    for axis in checked.axes.iter_mut().chain(points) {
        check_axis(axis, packages, diagnostics);
    }
    checked
}

fn check_axis(axis: &mut Axis, packages: &[&Package], diagnostics: &mut Vec<Diagnostic>) {
    let name = axis.name.value.as_str();
    let declared: Vec<(&Package, &Parameter)> =
        packages.iter().filter_map(|package| Some((*package, package.parameter(name)?))).collect();
    // Without any package the kernels are unknown, which has been said.
    if declared.is_empty() && !packages.is_empty() {
        let message = format!("no selected kernel has the parameter `{name}`");
        let known: BTreeSet<&str> = parameters(packages).collect();
        let diagnostic = Diagnostic::error(&axis.name.at, message).label("unknown parameter");
        diagnostics.push(diagnostic.maybe_help(suggestion(name, known)));
    }
    for value in &mut axis.values {
        for (package, parameter) in &declared {
            match fitting(&value.value, &parameter.kind) {
                Ok(fitting) => value.value = fitting,
                Err(problem) => {
                    let message = format!("{} does not take `{name}` = {}", package.id, value.value);
                    diagnostics.push(Diagnostic::error(&value.at, message).label(problem));
                    break;
                }
            }
        }
    }
}

fn parameters<'p>(packages: &'p [&'p Package]) -> impl Iterator<Item = &'p str> {
    packages.iter().flat_map(|package| package.parameters.iter().map(|parameter| parameter.name.as_str()))
}

/// `value` as a value of `kind`.
fn fitting(value: &Value, kind: &ParameterKind) -> Result<Value, String> {
    match (kind, value) {
        (ParameterKind::Int { min, max }, Value::Int(number)) => {
            if (min..=max).contains(&number) {
                return Ok(value.clone());
            }
            Err(match (*min, *max) {
                (i64::MIN, max) => format!("it must be at most {max}"),
                (min, i64::MAX) => format!("it must be at least {min}"),
                (min, max) => format!("it must lie between {min} and {max}"),
            })
        }
        (ParameterKind::Float, Value::Int(number)) => Ok(Value::Float(*number as f64)),
        (ParameterKind::Float, Value::Float(_)) | (ParameterKind::Bool, Value::Bool(_)) => Ok(value.clone()),
        (ParameterKind::DType { allowed }, Value::Text(name)) => match name.parse::<DType>() {
            Ok(dtype) if allowed.contains(&dtype) => Ok(value.clone()),
            _ => Err(format!("it takes {}", allowed.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(", "))),
        },
        (kind, value) => {
            let wanted = match kind {
                ParameterKind::Int { .. } => "an integer",
                ParameterKind::Float => "a number",
                ParameterKind::Bool => "true or false",
                ParameterKind::DType { .. } => "the name of an element type",
            };
            Err(format!("it takes {wanted}, this is a {}", value.kind()))
        }
    }
}

/// Points that are made together: the product of `crossed`, each with every step of the axes that advance together.
struct PointSet<'s> {
    at: Place,
    crossed: Vec<&'s Axis>,
    together: Vec<&'s Axis>,
}

impl PointSet<'_> {
    /// Steps of the axes that advance together.
    fn steps(&self) -> usize {
        self.together.iter().map(|axis| axis.values.len()).max().unwrap_or(1)
    }

    fn count(&self) -> Count {
        Count::product(self.crossed.iter().map(|axis| axis.values.len()).chain([self.steps()]))
    }

    fn names(&self, parameter: &str) -> bool {
        self.crossed.iter().chain(&self.together).any(|axis| axis.name.value == parameter)
    }

    /// Calls `each` with every point; the last axis varies fastest, the step slowest.
    fn for_each(&self, mut each: impl FnMut(Shape)) {
        for step in 0..self.steps() {
            let fixed = self.together.iter().filter_map(|axis| {
                let index = if axis.is_scalar { 0 } else { step };
                Some((axis.name.value.clone(), axis.values.get(index)?.value.clone()))
            });
            let mut point: BTreeMap<String, Value> = fixed.collect();
            self.cross(0, &mut point, &mut each);
        }
    }

    fn cross(&self, from: usize, point: &mut BTreeMap<String, Value>, each: &mut impl FnMut(Shape)) {
        let Some(axis) = self.crossed.get(from) else { return each(Shape(point.clone())) };
        for value in &axis.values {
            point.insert(axis.name.value.clone(), value.value.clone());
            self.cross(from + 1, point, each);
        }
    }
}

/// The axes' product, and a set for each point; a point is crossed with the axes that it does not name.
fn point_sets<'s>(shapes: &'s Shapes, at: &Place) -> Vec<PointSet<'s>> {
    let product = PointSet { at: at.clone(), crossed: shapes.axes.iter().collect(), together: Vec::new() };
    let points = shapes.points.iter().map(|point| {
        let named = |axis: &&Axis| point.value.iter().any(|own| own.name.value == axis.name.value);
        let crossed = shapes.axes.iter().filter(|axis| !named(axis)).collect();
        PointSet { at: point.at.clone(), crossed, together: point.value.iter().collect() }
    });
    // Without axes only the points are meant.
    let has_product = !shapes.axes.is_empty() || shapes.points.is_empty();
    has_product.then_some(product).into_iter().chain(points).collect()
}

/// Reports parameters without a default that a set of points leaves open.
fn check_required(sets: &[PointSet<'_>], packages: &[&Package], diagnostics: &mut Vec<Diagnostic>) {
    for set in sets {
        for package in packages {
            let open = |parameter: &&Parameter| parameter.default.is_none() && !parameter.is_tunable();
            for parameter in package.parameters.iter().filter(open).filter(|parameter| !set.names(&parameter.name)) {
                let message = format!("{} needs a value of `{}`", package.id, parameter.name);
                let label = format!("no `{}` here", parameter.name);
                diagnostics.push(Diagnostic::error(&set.at, message).label(label));
            }
        }
    }
}

fn check_size(sets: &[PointSet<'_>], at: &Place, diagnostics: &mut Vec<Diagnostic>) {
    let total = sets.iter().fold(Count::zero(), |total, set| total.plus(&set.count()));
    if total.at_most(MOST_POINTS).is_none() {
        let message = format!("the shapes are {total} points; at most {} are possible", Count::product([MOST_POINTS]));
        let diagnostic = Diagnostic::error(at, message).label("the product of these axes");
        diagnostics.push(diagnostic.help("shorten an axis, or name single points under [[shapes.point]]"));
    }
}

/// Every point once, in order; one warning for each set that repeats points.
fn distinct(sets: &[PointSet<'_>], diagnostics: &mut Vec<Diagnostic>) -> Vec<Shape> {
    let mut points = Vec::new();
    let mut ends = Vec::with_capacity(sets.len());
    for set in sets {
        set.for_each(|shape| points.push(shape));
        ends.push(points.len());
    }
    let mut seen: HashSet<&Shape> = HashSet::with_capacity(points.len());
    let is_new: Vec<bool> = points.iter().map(|point| seen.insert(point)).collect();
    let mut start = 0;
    for (set, end) in sets.iter().zip(ends) {
        let repeated: Vec<&Shape> = (start..end).filter(|&index| !is_new[index]).map(|index| &points[index]).collect();
        diagnostics.extend(repetition(&set.at, &repeated));
        start = end;
    }
    let mut is_new = is_new.into_iter();
    points.retain(|_| is_new.next().unwrap_or(true));
    points
}

fn repetition(at: &Place, repeated: &[&Shape]) -> Option<Diagnostic> {
    let message = match repeated {
        [] => return None,
        [point] => format!("the point {point} is listed twice"),
        [first, ..] => format!("{} points repeat earlier ones, the first is {first}", repeated.len()),
    };
    Some(Diagnostic::warning(at, message).label("kept once"))
}

/// A condition under which points are left out.
struct Exclusion<'s> {
    at: &'s Place,
    when: Expr,
    /// What it says about values of its names (in their order) that have been met.
    known: HashMap<Vec<Value>, bool>,
}

fn exclusions<'s>(shapes: &'s Shapes, packages: &[&Package], diagnostics: &mut Vec<Diagnostic>) -> Vec<Exclusion<'s>> {
    let points = shapes.points.iter().flat_map(|point| &point.value);
    let named: BTreeSet<&str> = shapes.axes.iter().chain(points).map(|axis| axis.name.value.as_str()).collect();
    let mut exclusions = Vec::new();
    for typed in &shapes.excludes {
        match typed.value.parse::<Expr>() {
            Ok(when) => {
                check_names(&when, typed, &named, packages, diagnostics);
                exclusions.push(Exclusion { at: &typed.at, when, known: HashMap::new() });
            }
            Err(error) => {
                let place = typed.at.inside_text(&typed.value, error.at, 1);
                diagnostics.push(Diagnostic::error(&place, "`when` is not an expression").label(error.reason));
            }
        }
    }
    exclusions
}

fn check_names(
    when: &Expr,
    typed: &At<String>,
    named: &BTreeSet<&str>,
    packages: &[&Package],
    diagnostics: &mut Vec<Diagnostic>,
) {
    for name in when.variables().iter().filter(|name| !named.contains(name.as_str())) {
        let help = if parameters(packages).any(|parameter| parameter == name) {
            Some(format!("it is a parameter, but no axis: give its values under [shapes], `{name} = […]`"))
        } else {
            suggestion(name, named.iter().copied())
        };
        let place = typed.at.word_inside_text(&typed.value, name);
        let message = format!("the exclusion uses the unknown name `{name}`");
        diagnostics.push(Diagnostic::error(&place, message).label("no axis").maybe_help(help));
    }
    for function in when.functions().iter().filter(|name| !Expr::callable().any(|known| known == name.as_str())) {
        let place = typed.at.word_inside_text(&typed.value, function);
        let message = format!("the exclusion calls the unknown function `{function}`");
        let help = suggestion(function, Expr::callable());
        diagnostics.push(Diagnostic::error(&place, message).label("unknown function").maybe_help(help));
    }
}

/// The points without those for which an exclusion holds. An exclusion says nothing about a point that lacks one of
/// its names.
fn exclude(
    points: Vec<Shape>,
    exclusions: &mut [Exclusion<'_>],
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<Vec<Shape>> {
    if exclusions.is_empty() {
        return Some(points);
    }
    let functions = Scope::new();
    let mut matched = vec![0usize; exclusions.len()];
    let mut kept = Vec::with_capacity(points.len());
    let total = points.len();
    for point in points {
        let mut is_kept = true;
        for (exclusion, matched) in exclusions.iter_mut().zip(&mut matched) {
            match exclusion.holds(&functions, &point) {
                Ok(holds) => {
                    *matched += usize::from(holds);
                    is_kept &= !holds;
                }
                Err(diagnostic) => {
                    diagnostics.push(*diagnostic);
                    return None;
                }
            }
        }
        if is_kept {
            kept.push(point);
        }
    }
    for (exclusion, _) in exclusions.iter().zip(&matched).filter(|(_, matched)| **matched == 0) {
        let message = "the exclusion matches no point";
        diagnostics.push(Diagnostic::warning(exclusion.at, message).label("leaves nothing out"));
    }
    if kept.is_empty() {
        let most = exclusions.iter().zip(&matched).max_by_key(|(_, matched)| **matched);
        let message = format!("the exclusions leave none of the {total} points");
        diagnostics.extend(most.map(|(most, _)| Diagnostic::error(most.at, message).label("nothing remains")));
        return None;
    }
    Some(kept)
}

impl Exclusion<'_> {
    fn holds(&mut self, functions: &Scope<'_>, point: &Shape) -> Result<bool, Box<Diagnostic>> {
        let names = self.when.variables();
        let values: Option<Vec<Value>> = names.iter().map(|name| point.get(name).cloned()).collect();
        let Some(values) = values else { return Ok(false) };
        if let Some(&holds) = self.known.get(&values) {
            return Ok(holds);
        }
        let mut scope = functions.inner();
        names.iter().zip(&values).for_each(|(name, value)| scope.set(name, value));
        let holds = self.when.eval_bool(&scope).map_err(|error| {
            let message = format!("the exclusion has no value of true or false at {point}");
            Box::new(Diagnostic::error(self.at, message).label(error.reason))
        })?;
        self.known.insert(values, holds);
        Ok(holds)
    }
}
