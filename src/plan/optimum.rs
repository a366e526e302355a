//! The value of a tuned parameter at which the roofline of a pipeline is lowest, to be shown beside the tuned one. Pure.

use serde::Serialize;

use super::instantiate::{InstantiateError, instantiate};
use super::space::{TuneTarget, axes};
use super::{Setting, Subject, SubjectState};
use crate::catalog::{Package, Parameter, ParameterKind};
use crate::expr::Scope;
use crate::model::{Peaks, Shape, Tiling, Value};

/// Where a parameter would best be by the roofline, and where it was tuned to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Optimum {
    pub parameter: String,
    pub roofline: Placed,
    /// `None` before tuning.
    pub tuned: Option<Placed>,
}

/// A value of a parameter with the pipeline's time by the roofline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Placed {
    pub value: i64,
    /// Nanoseconds: the larger of all FLOPs by the arithmetic peak and all compulsory bytes by the bandwidth, as if
    /// the stages overlapped perfectly.
    pub floor_ns: f64,
}

/// The optimum of every integer parameter of `package` that is tuned for `subject`, between its smallest and its largest
/// candidate. None where the device has no peaks for the dtype.
///
/// Work that grows evenly with a parameter makes the roofline a maximum of straight lines, which is convex: the search
/// halves towards the minimum, and looks at the candidates too, where a stage may vanish.
///
/// # Errors
/// As [`instantiate`].
pub fn optima(setting: &Setting<'_>, package: &Package, subject: &Subject) -> Result<Vec<Optimum>, InstantiateError> {
    let root = setting.root();
    let is_open = |parameter: &&Parameter| {
        parameter.is_tunable()
            && matches!(parameter.kind, ParameterKind::Int { .. })
            && subject.shape.get(&parameter.name).is_none()
    };
    let open: Vec<&Parameter> = package.parameters.iter().filter(is_open).collect();
    let (Some(peaks), false) = (setting.peaks, open.is_empty()) else { return Ok(Vec::new()) };
    let tiling = match &subject.state {
        SubjectState::Ready(ready) => Some(&ready.tiling),
        SubjectState::AfterTune { .. } | SubjectState::Refused { .. } => None,
    };
    let axes = axes(package, &TuneTarget::Pipeline, &subject.shape, &root)?;
    let mut optima = Vec::new();
    for parameter in open {
        let candidates = axes.axes.iter().find(|(name, _)| *name == parameter.name).map(|(_, values)| values);
        let candidates: Vec<i64> = candidates.into_iter().flatten().filter_map(Value::as_int).collect();
        // Other tuned parameters stay where they are.
        let mut shape = subject.shape.clone();
        let decided = tiling.into_iter().flat_map(|tiling| &tiling.pipeline);
        shape
            .0
            .extend(decided.filter(|(name, _)| package.parameter(name).is_some()).map(|(n, v)| (n.clone(), v.clone())));
        let tuned = tiling.and_then(|tiling| tiling.pipeline.get(&parameter.name)).and_then(Value::as_int);
        let line = Line { package, peaks, root: &root, shape, parameter: &parameter.name };
        if let Some(roofline) = line.lowest(&candidates)? {
            let tuned = tuned.map(|value| line.at(value)).transpose()?.flatten();
            optima.push(Optimum { parameter: parameter.name.clone(), roofline, tuned });
        }
    }
    Ok(optima)
}

/// The roofline over one parameter.
struct Line<'a> {
    package: &'a Package,
    peaks: &'a Peaks,
    root: &'a Scope<'a>,
    shape: Shape,
    parameter: &'a str,
}

impl Line<'_> {
    fn at(&self, value: i64) -> Result<Option<Placed>, InstantiateError> {
        let mut shape = self.shape.clone();
        shape.0.insert(self.parameter.to_owned(), Value::Int(value));
        let instance = instantiate(self.package, &shape, &Tiling::default(), self.root)?;
        let flops_per_s = instance.shape.dtype().and_then(|dtype| self.peaks.flops_per_s.get(&dtype));
        let (flops, bytes) = instance.total();
        Ok(flops_per_s.map(|flops_per_s| Placed {
            value,
            floor_ns: 1e9 * (flops / flops_per_s).max(bytes / self.peaks.bytes_per_s),
        }))
    }

    /// The lowest point between the smallest and the largest of `candidates`; the smaller value of equals.
    fn lowest(&self, candidates: &[i64]) -> Result<Option<Placed>, InstantiateError> {
        let (Some(&low), Some(&high)) = (candidates.iter().min(), candidates.iter().max()) else { return Ok(None) };
        let (mut low, mut high) = (low, high);
        let mut seen = candidates.iter().map(|&value| self.at(value)).collect::<Result<Vec<_>, _>>()?;
        while low < high {
            let middle = low + (high - low) / 2;
            let (left, right) = (self.at(middle)?, self.at(middle + 1)?);
            let rises = matches!((&left, &right), (Some(left), Some(right)) if left.floor_ns <= right.floor_ns);
            if rises {
                high = middle
            } else {
                low = middle + 1
            }
            seen.extend([left, right]);
        }
        let order = |a: &Placed, b: &Placed| a.floor_ns.total_cmp(&b.floor_ns).then(a.value.cmp(&b.value));
        Ok(seen.into_iter().flatten().min_by(order))
    }
}
