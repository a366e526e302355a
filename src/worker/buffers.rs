//! The buffers of a pipeline: made, filled with inputs and formulas, poisoned, checked. Buffers whose contents have an
//! equal definition are taken over from an earlier pipeline instead of being made again.

use std::collections::BTreeMap;

use super::definition;
use super::einsum::{self, Source};
use super::inputs;
use super::memory::{self, Guarded, NonFinite, Poison};
use crate::model::Key;
use crate::model::pipeline::{Buffer, Distribution, Einsum, Pipeline, Role};
use crate::model::protocol::{Failure, FailureKind};

/// Memory of every buffer of one pipeline, in its order.
pub struct Buffers {
    all: Vec<Guarded>,
    /// Definition of the contents of each, where they are a function of one.
    keys: Vec<Option<Key>>,
}

impl Buffers {
    /// Makes and fills the buffers of a checked pipeline: inputs generated, derived tensors computed, the rest
    /// poisoned. Takes over what fits from `previous`. Runs on the current rayon pool.
    ///
    /// # Errors
    /// The memory does not suffice, or a formula does not fit its operands.
    pub fn make(pipeline: &Pipeline, previous: Option<Buffers>) -> Result<Buffers, Failure> {
        let keys = keys(pipeline)?;
        let mut kept = previous.map(|previous| previous.keep(&keys)).unwrap_or_default();
        let needed =
            pipeline.buffers.iter().zip(&keys).filter(|(_, key)| !key.is_some_and(|key| kept.contains_key(&key)));
        memory::check_fit(needed.map(|(buffer, _)| Guarded::region_bytes(buffer)).sum())?;
        let mut all: Vec<Guarded> = Vec::with_capacity(pipeline.buffers.len());
        for (place, (buffer, key)) in pipeline.buffers.iter().zip(&keys).enumerate() {
            let taken_over = key.and_then(|key| kept.remove(&key));
            let guarded = match taken_over {
                Some(guarded) => guarded,
                None => filled(Guarded::new(buffer, place)?, buffer, pipeline, &all)?,
            };
            all.push(guarded);
        }
        Ok(Buffers { all, keys })
    }

    /// Those whose definition is among `wanted`; the rest is given back to the system.
    fn keep(self, wanted: &[Option<Key>]) -> BTreeMap<Key, Guarded> {
        let keyed = self.all.into_iter().zip(self.keys).filter_map(|(guarded, key)| Some((key?, guarded)));
        keyed.filter(|(key, _)| wanted.contains(&Some(*key))).collect()
    }

    /// The buffer `index`.
    pub fn get(&self, index: usize) -> &Guarded {
        &self.all[index]
    }

    /// Poisons scratch and outputs.
    pub fn poison(&mut self, pipeline: &Pipeline) {
        for (guarded, buffer) in self.all.iter_mut().zip(&pipeline.buffers) {
            match buffer.role {
                Role::Output => guarded.poison(Poison::Output),
                Role::Scratch => guarded.poison(Poison::Scratch),
                Role::Input(_) | Role::Derived { .. } => {}
            }
        }
    }

    /// Fills scratch with numbers of unit scale, for a stage that runs without those that write its scratch.
    pub fn fill_scratch(&mut self, pipeline: &Pipeline) {
        for (index, buffer) in pipeline.buffers.iter().enumerate() {
            if buffer.role == Role::Scratch {
                let distribution = Distribution::Normal { std: 1.0, seed: index as u64 };
                inputs::fill(self.all[index].elements_mut(), &distribution);
            }
        }
    }

    /// Checks that nothing was written beside any buffer.
    ///
    /// # Errors
    /// The first guard band that was written to.
    pub fn check_bands(&self) -> Result<(), Failure> {
        Ok(self.all.iter().try_for_each(Guarded::check_bands)?)
    }

    /// Checks that every element of every output is a finite number.
    ///
    /// # Errors
    /// The first element that is not, with what its bits tell.
    pub fn check_finite(&self, pipeline: &Pipeline) -> Result<(), Failure> {
        let outputs = self.all.iter().zip(&pipeline.buffers).filter(|(_, buffer)| buffer.role == Role::Output);
        for (guarded, buffer) in outputs {
            if let Some(found) = guarded.first_non_finite() {
                return Err(not_finite(buffer, &found));
            }
        }
        Ok(())
    }
}

/// An output has an element that is no finite number.
pub fn not_finite(buffer: &Buffer, found: &NonFinite) -> Failure {
    let place = element_name(buffer, found.index);
    let message = format!("{place} (element {}) is {}", found.index, found.explain());
    Failure { kind: FailureKind::WrongOutput, stage: None, message }
}

/// Name of an element with its indices, e.g. `o[0,3,0,17]`.
pub fn element_name(buffer: &Buffer, index: usize) -> String {
    let mut rest = index as u64;
    let mut indices: Vec<String> = Vec::new();
    for &dim in buffer.dims.iter().rev() {
        indices.push((rest % dim.max(1)).to_string());
        rest /= dim.max(1);
    }
    indices.reverse();
    format!("{}[{}]", buffer.name, indices.join(","))
}

/// Key of the definition of each buffer's contents, where they are a function of one.
///
/// # Errors
/// A definition makes no sense.
pub fn keys(pipeline: &Pipeline) -> Result<Vec<Option<Key>>, Failure> {
    let key = |(index, buffer): (usize, &Buffer)| match buffer.role {
        Role::Input(_) | Role::Derived { .. } => {
            Ok(Some(Key::of("tensor/1", &definition::of_buffer(pipeline, index)?)))
        }
        Role::Scratch | Role::Output => Ok(None),
    };
    pipeline.buffers.iter().enumerate().map(key).collect()
}

fn filled(mut guarded: Guarded, buffer: &Buffer, pipeline: &Pipeline, before: &[Guarded]) -> Result<Guarded, Failure> {
    match &buffer.role {
        Role::Input(distribution) => inputs::fill(guarded.elements_mut(), distribution),
        Role::Derived { formula } => {
            let sources = sources(formula, pipeline, |index| before[index].elements());
            let einsum = einsum::Einsum::new(&formula.spec, &sources, &buffer.dims)?;
            einsum::evaluate_into(&einsum, guarded.elements_mut());
        }
        Role::Output => guarded.poison(Poison::Output),
        Role::Scratch => guarded.poison(Poison::Scratch),
    }
    Ok(guarded)
}

/// Operands of a formula, with the elements of each buffer.
pub fn sources<'a>(
    formula: &'a Einsum,
    pipeline: &'a Pipeline,
    elements: impl Fn(usize) -> super::element::Elements<'a>,
) -> Vec<Source<'a>> {
    let source = |operand: &'a crate::model::pipeline::Operand| Source {
        elements: elements(operand.buffer),
        dims: &pipeline.buffers[operand.buffer].dims,
        start: &operand.start,
    };
    formula.operands.iter().map(source).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::DType;
    use crate::model::pipeline::Operand;

    fn pipeline(extent: u64, seed: u64) -> Pipeline {
        let buffer =
            |name: &str, extent, role| Buffer { name: name.into(), dtype: DType::Float32, dims: vec![extent], role };
        let operands = vec![Operand { buffer: 0, start: BTreeMap::from([('i', 8 - extent)]) }];
        let formula = Einsum { spec: "i->i".into(), operands };
        Pipeline {
            buffers: vec![
                buffer("x", 8, Role::Input(Distribution::Normal { std: 1.0, seed })),
                buffer("tail", extent, Role::Derived { formula }),
                buffer("scratch", 8, Role::Scratch),
                buffer("o", extent, Role::Output),
            ],
            stages: vec![],
            reference: None,
        }
    }

    fn numbers(buffers: &Buffers, index: usize, count: usize) -> Vec<f64> {
        (0..count).map(|element| buffers.get(index).elements().get(element)).collect()
    }

    #[test]
    fn buffers_are_filled_by_role_and_checked() {
        let pipeline = pipeline(3, 1);
        let mut buffers = Buffers::make(&pipeline, None).expect("it fits");
        assert_eq!(numbers(&buffers, 1, 3), numbers(&buffers, 0, 8)[5..]);
        assert!(numbers(&buffers, 2, 8).into_iter().chain(numbers(&buffers, 3, 3)).all(f64::is_nan));
        let failure = buffers.check_finite(&pipeline).expect_err("the output is poisoned");
        assert!(failure.message.contains("o[0] (element 0)") && failure.message.contains("never written"), "{failure}");
        assert!(buffers.check_bands().is_ok());
        buffers.fill_scratch(&pipeline);
        assert!(numbers(&buffers, 2, 8).into_iter().all(f64::is_finite));
        buffers.poison(&pipeline);
        assert!(numbers(&buffers, 2, 8).into_iter().all(f64::is_nan));
        assert!(numbers(&buffers, 0, 8).into_iter().all(f64::is_finite));
    }

    #[test]
    fn equal_definitions_are_taken_over_and_others_are_made_again() {
        let first = Buffers::make(&pipeline(3, 1), None).expect("it fits");
        let pointers = |buffers: &Buffers| [0, 1].map(|index| buffers.get(index).pointer());
        let (input, tail) = (numbers(&first, 0, 8), numbers(&first, 1, 3));
        let [kept_input, kept_tail] = pointers(&first);
        let same = Buffers::make(&pipeline(3, 1), Some(first)).expect("it fits");
        assert_eq!(pointers(&same), [kept_input, kept_tail]);
        let longer = Buffers::make(&pipeline(4, 1), Some(same)).expect("it fits");
        assert_eq!((pointers(&longer)[0], numbers(&longer, 0, 8)), (kept_input, input.clone()));
        assert_eq!(numbers(&longer, 1, 4)[1..], tail);
        let other = Buffers::make(&pipeline(4, 2), Some(longer)).expect("it fits");
        assert_ne!(numbers(&other, 0, 8), input);
        assert_eq!(numbers(&other, 1, 4), numbers(&other, 0, 8)[4..]);
    }

    #[test]
    fn elements_are_named_by_their_indices() {
        let buffer = Buffer { name: "o".into(), dtype: DType::Float32, dims: vec![2, 3, 4], role: Role::Output };
        assert_eq!(element_name(&buffer, 23), "o[1,2,3]");
        assert_eq!(element_name(&buffer, 5), "o[0,1,1]");
    }
}
