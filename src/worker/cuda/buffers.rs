//! The buffers of a pipeline on the GPU: made, filled with inputs and formulas, poisoned, checked. Buffers whose contents
//! have an equal definition are taken over from an earlier pipeline instead of being made again.

use std::collections::BTreeMap;

use super::driver::Context;
use super::memory::{self, Bands, Guarded};
use super::support::Support;
use crate::model::Key;
use crate::model::pipeline::{Buffer, Distribution, Einsum, Pipeline, Role};
use crate::model::protocol::Failure;
use crate::worker::buffers::{keys, not_finite};
use crate::worker::einsum::{Axes, Contraction};
use crate::worker::inputs::Generator;
use crate::worker::memory::{Poison, first_non_finite};

/// Memory of every buffer of one pipeline, in its order.
pub struct Buffers {
    all: Vec<Guarded>,
    /// Definition of the contents of each, where they are a function of one.
    keys: Vec<Option<Key>>,
}

impl Buffers {
    /// Makes and fills the buffers of a checked pipeline: inputs generated, derived tensors computed, the rest
    /// poisoned. Takes over what fits from `previous`, which has the same bands.
    ///
    /// # Errors
    /// The memory does not suffice, or a formula does not fit its operands.
    pub fn make(
        context: &Context,
        support: &Support,
        pipeline: &Pipeline,
        bands: Bands,
        previous: Option<Buffers>,
    ) -> Result<Buffers, Failure> {
        let keys = keys(pipeline)?;
        let mut kept = previous.map(|previous| previous.keep(&keys)).unwrap_or_default();
        let needed =
            pipeline.buffers.iter().zip(&keys).filter(|(_, key)| !key.is_some_and(|key| kept.contains_key(&key)));
        memory::check_fit(needed.map(|(buffer, _)| Guarded::region_bytes(buffer, bands)).sum())?;
        let mut all: Vec<Guarded> = Vec::with_capacity(pipeline.buffers.len());
        for (buffer, key) in pipeline.buffers.iter().zip(&keys) {
            let guarded = match key.and_then(|key| kept.remove(&key)) {
                Some(guarded) => guarded,
                None => {
                    let guarded = Guarded::new(buffer, bands, &context.stream)?;
                    fill(context, support, &guarded, buffer, pipeline, &all)?;
                    guarded
                }
            };
            all.push(guarded);
        }
        context.stream.synchronize()?;
        Ok(Buffers { all, keys })
    }

    /// Those whose definition is among `wanted`; the rest is given back to the driver.
    fn keep(self, wanted: &[Option<Key>]) -> BTreeMap<Key, Guarded> {
        let keyed = self.all.into_iter().zip(self.keys).filter_map(|(guarded, key)| Some((key?, guarded)));
        keyed.filter(|(key, _)| wanted.contains(&Some(*key))).collect()
    }

    /// The buffer `index`.
    pub fn get(&self, index: usize) -> &Guarded {
        &self.all[index]
    }

    /// Poisons scratch and outputs.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn poison(&self, context: &Context, pipeline: &Pipeline) -> Result<(), Failure> {
        for (guarded, buffer) in self.all.iter().zip(&pipeline.buffers) {
            match buffer.role {
                Role::Output => guarded.poison(Poison::Output, &context.stream)?,
                Role::Scratch => guarded.poison(Poison::Scratch, &context.stream)?,
                Role::Input(_) | Role::Derived { .. } => {}
            }
        }
        Ok(())
    }

    /// Fills scratch with numbers of unit scale, for a stage that runs without those that write its scratch.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn fill_scratch(&self, context: &Context, support: &Support, pipeline: &Pipeline) -> Result<(), Failure> {
        for (index, buffer) in pipeline.buffers.iter().enumerate() {
            if buffer.role == Role::Scratch {
                let generator = Generator::new(&Distribution::Normal { std: 1.0, seed: index as u64 });
                support.fill(context, &self.all[index], &generator)?;
            }
        }
        Ok(())
    }

    /// Checks that nothing was written beside any buffer.
    ///
    /// # Errors
    /// The first guard band that was written to.
    pub fn check_bands(&self, context: &Context) -> Result<(), Failure> {
        self.all.iter().try_for_each(|guarded| guarded.check_bands(&context.stream))
    }

    /// Checks that every element of every output is a finite number.
    ///
    /// # Errors
    /// The first element that is not, with what its bits tell.
    pub fn check_finite(&self, context: &Context, support: &Support, pipeline: &Pipeline) -> Result<(), Failure> {
        for (guarded, buffer) in self.all.iter().zip(&pipeline.buffers) {
            if buffer.role != Role::Output {
                continue;
            }
            if let Some(index) = support.first_non_finite(context, guarded)? {
                let element = guarded.download(index, 1, &context.stream)?;
                if let Some(found) = first_non_finite(element.elements()) {
                    return Err(not_finite(buffer, &crate::worker::memory::NonFinite { index, ..found }));
                }
            }
        }
        Ok(())
    }
}

fn fill(
    context: &Context,
    support: &Support,
    guarded: &Guarded,
    buffer: &Buffer,
    pipeline: &Pipeline,
    before: &[Guarded],
) -> Result<(), Failure> {
    match &buffer.role {
        Role::Input(distribution) => support.fill(context, guarded, &Generator::new(distribution))?,
        Role::Derived { formula } => {
            let contraction = contraction(formula, pipeline, &buffer.dims)?;
            let operands: Vec<&Guarded> = formula.operands.iter().map(|operand| &before[operand.buffer]).collect();
            support.contract(context, &contraction, &operands, guarded)?;
        }
        Role::Output => guarded.poison(Poison::Output, &context.stream)?,
        Role::Scratch => guarded.poison(Poison::Scratch, &context.stream)?,
    }
    Ok(())
}

/// What a formula means for the buffers of a pipeline.
///
/// # Errors
/// It does not fit them.
pub fn contraction(formula: &Einsum, pipeline: &Pipeline, result_dims: &[u64]) -> Result<Contraction, Failure> {
    let axes: Vec<Axes<'_>> = formula
        .operands
        .iter()
        .map(|operand| Axes { dims: &pipeline.buffers[operand.buffer].dims, start: &operand.start })
        .collect();
    Ok(Contraction::new(&formula.spec, &axes, result_dims)?)
}
