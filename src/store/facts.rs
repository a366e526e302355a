//! What the plan may know about the store: how many sets a key has, and which key was last measured in a slot. Pure.

use std::collections::HashMap;

use jiff::Timestamp;
use serde::Serialize;

use super::Entry;
use crate::model::record::{Record, RecordKind};
use crate::model::{KernelId, Key, Mode, Shape};

/// The place of a measurement as people name it, whatever its code, tiling or compiler: two keys of one slot are two
/// states of the same thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Slot<'a> {
    pub kind: RecordKind,
    pub id: &'a KernelId,
    pub shape: &'a Shape,
    pub mode: Option<Mode>,
    /// Name of the device.
    pub device: &'a str,
}

impl Slot<'_> {
    /// The slot that `record` is in.
    pub fn of(record: &Record) -> Slot<'_> {
        Slot {
            kind: record.kind,
            id: &record.labels.id,
            shape: &record.labels.shape,
            mode: record.labels.mode,
            device: &record.environment.device.id.name,
        }
    }

    /// Hash by which slots are compared.
    pub fn key(&self) -> Key {
        Key::of("slot/1", self)
    }
}

/// The records of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sets {
    pub count: u32,
    /// When the newest was taken.
    pub latest: Timestamp,
}

/// What is stored, without its contents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    sets: HashMap<(RecordKind, Key), Sets>,
    latest: HashMap<Key, (Timestamp, Key)>,
}

impl Facts {
    /// The records of `key`; `None` where there are none.
    pub fn sets(&self, kind: RecordKind, key: &Key) -> Option<Sets> {
        self.sets.get(&(kind, *key)).copied()
    }

    /// Key of the newest record in `slot`: what a key that has no records replaces.
    pub fn latest(&self, slot: &Slot<'_>) -> Option<Key> {
        self.latest.get(&slot.key()).map(|(_, key)| *key)
    }

    /// Number of keys with records.
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// Nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    pub(super) fn add(&mut self, entry: &Entry) {
        self.add_row(entry.kind, entry.key, entry.slot, entry.taken_at);
    }

    pub(super) fn add_row(&mut self, kind: RecordKind, key: Key, slot: Key, taken_at: Timestamp) {
        let sets = self.sets.entry((kind, key)).or_insert(Sets { count: 0, latest: taken_at });
        sets.count += 1;
        sets.latest = sets.latest.max(taken_at);
        // Of two records of one instant, the greater key: the order of rows must not matter.
        let latest = self.latest.entry(slot).or_insert((taken_at, key));
        *latest = (*latest).max((taken_at, key));
    }
}
