//! The store and the tunings as the plan's facts and the session's journal.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Project;
use crate::execute::{Journal, JournalError, TriedOutcome, TuningResult};
use crate::model::protocol::CandidateOutcome;
use crate::model::record::{Record, RecordKind};
use crate::model::{Choices, KernelId, Key, Mode};
use crate::plan::space::TuneTarget;
use crate::plan::{Facts, FactsError, Slot};
use crate::store::tuning::{Lookup, Outcome, Tried, Tuning, Tunings};
use crate::store::{self, Store, StoreError};

/// Everything recorded: results below out/, tunings below .cache/.
#[derive(Debug)]
pub struct Ledger {
    store: Mutex<Store>,
    tunings: Tunings,
    warnings: Mutex<Vec<String>>,
}

impl Ledger {
    /// Opens (or makes) the project's store.
    ///
    /// # Errors
    /// out/ cannot be written to, or a newer mlarun wrote to it.
    pub fn open(project: &Project) -> Result<Ledger, StoreError> {
        let store = Store::open(&project.out)?;
        let warnings = store
            .set_aside()
            .iter()
            .map(|file| format!("{}: {}; kept as {}", file.from.display(), file.reason, file.to.display()))
            .collect();
        Ok(Ledger { store: Mutex::new(store), tunings: Tunings::new(&project.cache()), warnings: Mutex::new(warnings) })
    }

    /// The store itself.
    pub fn store(&self) -> MutexGuard<'_, Store> {
        // Nothing is left half done in the store when a holder panics: every change is one file or one transaction.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that were found damaged and set aside, each said once.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// File of a tuning's history.
    pub fn tuning_path(&self, id: &KernelId, target: &TuneTarget, key: &Key) -> PathBuf {
        self.tunings.path(id, &target.to_string(), key)
    }

    fn warn(&self, text: String) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }
}

impl Facts for Ledger {
    fn sample_sets(&self, mode: Mode, measurement: &Key) -> u32 {
        let sets = RecordKind::of_mode(mode).and_then(|kind| self.store().facts().sets(kind, measurement));
        sets.map_or(0, |sets| sets.count)
    }

    fn is_verified(&self, verification: &Key) -> bool {
        self.store().facts().sets(RecordKind::Verification, verification).is_some()
    }

    fn tuning(&self, id: &KernelId, target: &TuneTarget, tuning: &Key) -> Result<Option<Choices>, FactsError> {
        match self.tunings.chosen(id, &target.to_string(), tuning) {
            Ok(Lookup::Found(chosen)) => Ok(Some(chosen)),
            Ok(Lookup::Absent) => Ok(None),
            Ok(Lookup::SetAside { warning }) => {
                self.warn(warning);
                Ok(None)
            }
            Err(error) => Err(FactsError(error.to_string())),
        }
    }

    fn latest(&self, slot: &Slot<'_>) -> Option<Key> {
        let kind = RecordKind::of_mode(slot.mode)?;
        let slot = store::Slot { kind, id: slot.id, shape: slot.shape, mode: Some(slot.mode), device: slot.device };
        self.store().facts().latest(&slot)
    }
}

impl Journal for &Ledger {
    fn append(&mut self, record: &Record) -> Result<(), JournalError> {
        self.store().append(record).map(drop).map_err(|error| JournalError(error.to_string()))
    }

    fn append_tuning(&mut self, tuning: &TuningResult) -> Result<(), JournalError> {
        let history = tuning.history.iter().enumerate().map(|(number, tried)| Tried {
            number,
            choices: tried.choices.clone(),
            outcome: outcome(&tried.outcome),
        });
        let stored = Tuning {
            key: tuning.key,
            material: tuning.material.clone(),
            chosen: tuning.chosen.clone(),
            history: history.collect(),
        };
        let saved = self.tunings.save(&tuning.id, &tuning.target.to_string(), &stored);
        saved.map(drop).map_err(|error| JournalError(error.to_string()))
    }
}

fn outcome(tried: &TriedOutcome) -> Outcome {
    match tried {
        TriedOutcome::Rejected { constraint } => Outcome::Rejected { constraint: constraint.clone() },
        TriedOutcome::Tried(CandidateOutcome::Timed { median_ns, samples }) => {
            Outcome::Timed { median_ns: *median_ns, samples: *samples }
        }
        TriedOutcome::Tried(CandidateOutcome::Abandoned { ns }) => Outcome::Abandoned { ns: *ns },
        TriedOutcome::Tried(CandidateOutcome::Failed(failure)) => Outcome::Failed { message: failure.message.clone() },
        TriedOutcome::NotReached => Outcome::Failed { message: "not tried: the time budget was spent".to_owned() },
    }
}
