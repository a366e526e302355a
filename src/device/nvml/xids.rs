//! Faults that the driver reports of a GPU by number (Xid), as they come.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use nvml_wrapper::EventSet;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;

use super::library::open_library;

/// Faults of one GPU since it is watched.
pub struct Xids(Mutex<EventSet<'static>>);

impl fmt::Debug for Xids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Xids")
    }
}

/// Faults that are taken at a time; whatever reports more has no end.
const MOST: usize = 100;
/// The number of a fault that the driver has none for.
const UNKNOWN: u64 = 999;

impl Xids {
    /// Watches the GPU `uuid`; `None` where the driver does not tell of faults.
    pub fn watch(uuid: &str) -> Option<Xids> {
        // The set refers to the library as long as it lives, which is until the process ends.
        let nvml: &'static nvml_wrapper::Nvml = Box::leak(Box::new(open_library().ok()?));
        let set = nvml.create_event_set().ok()?;
        let device = nvml.device_by_uuid(uuid).ok()?;
        device.register_events(EventTypes::CRITICAL_XID_ERROR, set).ok().map(|set| Xids(Mutex::new(set)))
    }

    /// Those that came since the last call.
    pub fn take(&self) -> Vec<u64> {
        let set = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Nothing more, or nothing any more, ends the list alike.
        let events = std::iter::from_fn(|| set.wait(0).ok()).take(MOST);
        let number = |error| match error {
            XidError::Value(number) => number,
            XidError::Unknown => UNKNOWN,
        };
        events.filter_map(|event| event.event_data.map(number)).collect()
    }
}
