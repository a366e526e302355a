//! A kernel that is ready to be run and checked: what every task does before and after its measurements.
//!
//! Order: modules loaded, inputs made, reference rows evaluated (or taken from the cache), outputs and scratch
//! poisoned, one launch, then the check: guard bands, finite outputs, compared rows. No task takes a time before this
//! check has passed.

use sha2::{Digest as _, Sha256};

use super::answer::Answer;
use super::buffers::Buffers;
use super::compare;
use super::definition;
use super::host::Host;
use super::launch::Launcher;
use super::memory;
use super::module::Module;
use super::reference::{self, ReferenceRows};
use super::{cache, rows};
use crate::model::Key;
use crate::model::pipeline::{Pipeline, Stage};
use crate::model::protocol::{Check, Failure, Launchable, Line, Phase, Verification};

/// Loads the modules of a launchable whose indices are checked here.
///
/// # Errors
/// An index without meaning, or a module that does not load.
pub fn load(answer: &mut Answer, launchable: &Launchable) -> Result<Vec<Module>, Failure> {
    answer.phase(Phase::Load, None)?;
    definition::check(&launchable.pipeline, launchable.modules.len())?;
    let stages = launchable.modules.iter().zip(&launchable.pipeline.stages);
    Ok(stages.map(|(path, stage)| Module::load(path, stage)).collect::<Result<_, _>>()?)
}

/// Buffers and expected rows of one pipeline.
pub struct Subject<'p> {
    pub pipeline: &'p Pipeline,
    pub buffers: Buffers,
    expected: Option<ReferenceRows>,
}

impl<'p> Subject<'p> {
    /// Makes buffers and expected rows.
    ///
    /// # Errors
    /// The memory does not suffice, a formula does not fit, or the reference cannot tell right from wrong.
    pub fn prepare(
        answer: &mut Answer,
        host: &Host,
        pipeline: &'p Pipeline,
        check: &Check,
    ) -> Result<Subject<'p>, Failure> {
        answer.phase(Phase::Inputs, None)?;
        let buffers = host.compute(|| Buffers::make(pipeline, None))?;
        answer.phase(Phase::Reference, None)?;
        let expected = host.compute(|| expected(pipeline, &buffers, check))?;
        Ok(Subject { pipeline, buffers, expected })
    }

    /// A launcher of all stages.
    pub fn launcher<'m>(&self, modules: &'m [Module]) -> Launcher<'m> {
        Launcher::new(&self.pipeline.stages, modules, |index| self.buffers.get(index).pointer())
    }

    /// A launcher of the stage `index` alone.
    pub fn stage_launcher<'m>(&self, modules: &'m [Module], index: usize) -> Launcher<'m> {
        let stage = Stage { after: Vec::new(), ..self.pipeline.stages[index].clone() };
        let module = &modules[index..=index];
        Launcher::new(&[stage], module, |buffer| self.buffers.get(buffer).pointer())
    }

    /// Poisons outputs and scratch, launches once and checks what came out. The answer gets the agreement, if there is
    /// a reference.
    ///
    /// # Errors
    /// The output is wrong, or memory beside a buffer was written to.
    pub fn verify(&mut self, answer: &mut Answer, host: &mut Host, launcher: &mut Launcher<'_>) -> Result<(), Failure> {
        answer.phase(Phase::Run, None)?;
        self.buffers.poison(self.pipeline);
        launcher.launch(host.team(launcher.seat_cores(&host.cores))?);
        answer.phase(Phase::Compare, None)?;
        match self.check()? {
            Some(verification) => answer.line(&Line::Verified(verification)),
            None => Ok(()),
        }
    }

    /// Checks guard bands and outputs as they are now.
    ///
    /// # Errors
    /// As [`Subject::verify`].
    pub fn check(&self) -> Result<Option<Verification>, Failure> {
        self.buffers.check_bands()?;
        self.buffers.check_finite(self.pipeline)?;
        let (Some(reference), Some(expected)) = (&self.pipeline.reference, &self.expected) else { return Ok(None) };
        let buffer = &self.pipeline.buffers[reference.output];
        let output = self.buffers.get(reference.output);
        let agreement = compare::compare(buffer, output.elements(), expected, &reference.tolerance)?;
        Ok(Some(Verification {
            relative_frobenius: agreement.relative_frobenius,
            worst_row: agreement.worst_row,
            worst_row_index: agreement.worst_row_index,
            rows_compared: expected.rows.len() as u64,
            rows_total: buffer.elements() as u64 / buffer.dims.last().copied().unwrap_or(1).max(1),
            output_sha256: hexadecimal(&Sha256::digest(output.bytes())),
        }))
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Expected rows of the output: kept ones, or evaluated and kept.
fn expected(pipeline: &Pipeline, buffers: &Buffers, check: &Check) -> Result<Option<ReferenceRows>, Failure> {
    let Some(reference) = &pipeline.reference else { return Ok(None) };
    let dims = &pipeline.buffers[reference.output].dims;
    let columns = dims.last().copied().unwrap_or(1);
    let rows = rows::sampled(dims, check.max_rows, check.seed);
    memory::check_fit(rows.len() as u128 * u128::from(columns) * size_of::<f64>() as u128)?;
    let key =
        Key::of("reference-rows/1", &(definition::reference_key(pipeline, reference)?, check.max_rows, check.seed));
    let folder = check.reference_cache.as_deref();
    let expected = match folder.and_then(|folder| cache::read(folder, key, &rows, columns as usize)) {
        Some(kept) => kept,
        None => {
            let elements = |index: usize| buffers.get(index).elements();
            let made = reference::evaluate(pipeline, &reference.formula, reference.output, rows, elements)?;
            folder.inspect(|folder| cache::write(folder, key, &made));
            made
        }
    };
    compare::check_telling(&expected, &reference.tolerance)?;
    Ok(Some(expected))
}
