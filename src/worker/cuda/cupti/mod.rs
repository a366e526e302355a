//! CUPTI, loaded where a request names it: activity records of what runs between two moments, collected without making
//! kernels wait for one another.
//!
//! CUPTI calls back with full buffers from threads of its own; what they hold is kept until the end.

mod layout;
mod library;

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use self::library::Library;
use super::error::{internal, unsupported};
use crate::model::protocol::{Failure, FailureKind};
use crate::model::timeline::{Activity, ActivityKind, Note, Rejected, Rejection, Timeline};

/// What a record is of. A place is device, context and stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traced {
    /// `name` is the address of the kernel's name.
    Kernel {
        place: [u32; 3],
        name: usize,
    },
    Copy {
        place: [u32; 3],
        bytes: u64,
        kind: u8,
    },
    Fill {
        place: [u32; 3],
        bytes: u64,
    },
    Call {
        is_driver: bool,
        function: u32,
        process: u32,
        thread: u32,
    },
}

/// A record with the name of what it is of.
#[derive(Debug, Clone)]
struct Named {
    fields: layout::Fields,
    name: String,
}

/// What was collected so far.
#[derive(Debug, Default)]
struct Collected {
    records: Vec<Named>,
    /// Records that could not be read.
    unreadable: u64,
    /// Records that CUPTI had no room for.
    dropped: u64,
}

/// Filled by CUPTI's callbacks, of which there is one set a process.
static COLLECTED: Mutex<Collected> = Mutex::new(Collected { records: Vec::new(), unreadable: 0, dropped: 0 });

fn collected<T>(with: impl FnOnce(&mut Collected) -> T) -> T {
    with(&mut COLLECTED.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A loaded CUPTI that collects.
pub struct Cupti(&'static Library);

/// The number by which the CUPTI in this file tells its version, if its records can be read.
///
/// # Errors
/// It cannot be loaded, does not tell, or its records are not known.
pub fn version(path: &Path) -> Result<u32, Failure> {
    let version = Library::load(path)?.version()?;
    if layout::is_known(version) {
        return Ok(version);
    }
    Err(unsupported(format!(
        "{} is of API version {version}, whose records mlarun does not know; it knows those of CUDA 12 and 13.0: install one of \
         them (`pip install nvidia-cuda-cupti==13.0.85`), or use Nsight Systems",
        path.display()
    )))
}

impl Cupti {
    /// Loads the library at `path`, which must be of `version`, and begins to collect.
    ///
    /// # Errors
    /// It is another one, its records are not known, or it refuses.
    pub fn start(path: &Path, version: u32) -> Result<Cupti, Failure> {
        let library = Library::load(path)?;
        let found = self::version(path)?;
        if found != version {
            let (file, plan) = (path.display(), "it has changed since: plan again");
            return Err(unsupported(format!("{file} is of API version {found}, and the plan of {version}; {plan}")));
        }
        library.register()?;
        layout::KINDS.iter().try_for_each(|&kind| library.enable(kind))?;
        Ok(Cupti(library))
    }

    /// What runs while `launch` does.
    ///
    /// # Errors
    /// Those of `launch`, or CUPTI refuses, or dropped records.
    pub fn trace(&self, launch: impl FnOnce() -> Result<(), Failure>) -> Result<Timeline, Failure> {
        let from_ns = self.0.now_ns()?;
        let launched = launch();
        let to_ns = self.0.now_ns()?;
        self.0.flush()?;
        layout::KINDS.iter().try_for_each(|&kind| self.0.disable(kind))?;
        launched?;
        let Collected { records, unreadable, dropped } = collected(std::mem::take);
        if dropped > 0 {
            let message =
                format!("CUPTI had no room for {dropped} records, so that its timeline is not whole; run it again");
            return Err(Failure { kind: FailureKind::NoData, stage: None, message });
        }
        Ok(timeline(records, unreadable, (from_ns, to_ns)))
    }
}

/// The records between two moments as a timeline.
fn timeline(records: Vec<Named>, unreadable: u64, (from_ns, to_ns): (u64, u64)) -> Timeline {
    let mut timeline = Timeline::default();
    for Named { fields, name } in records {
        let (start_ns, end_ns) = (fields.start_ns, fields.end_ns);
        // Before the first mark lie inputs, comparison and warm-up; 0 is a time that was not taken.
        if start_ns != 0 && (start_ns < from_ns || start_ns > to_ns) {
            continue;
        }
        let activity = activity(&fields, name);
        let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        match Rejection::of(signed(start_ns), signed(end_ns)) {
            Some(reason) => timeline.rejected.push(Rejected {
                kind: activity.kind,
                name: activity.name,
                start_ns: signed(start_ns),
                end_ns: signed(end_ns),
                reason,
            }),
            None => timeline.activities.push(activity),
        }
    }
    if unreadable > 0 {
        timeline.notes.push(Note::UnreadableRows { table: "CUPTI's records".to_owned(), rows: unreadable });
    }
    timeline.sort();
    timeline
}

fn activity(fields: &layout::Fields, name: String) -> Activity {
    let (kind, place, bytes) = match fields.traced {
        Traced::Kernel { place, .. } => (ActivityKind::Kernel, Some(place), None),
        Traced::Copy { place, bytes, .. } => (ActivityKind::Memcpy, Some(place), Some(bytes)),
        Traced::Fill { place, bytes } => (ActivityKind::Memset, Some(place), Some(bytes)),
        Traced::Call { .. } => (ActivityKind::Api, None, None),
    };
    let (process, thread) = match fields.traced {
        Traced::Call { process, thread, .. } => (process, Some(thread)),
        _ => (std::process::id(), None),
    };
    Activity {
        kind,
        name,
        start_ns: fields.start_ns,
        end_ns: fields.end_ns,
        process: Some(process.into()),
        thread: thread.map(u64::from),
        device: place.map(|[device, ..]| device),
        context: place.map(|[_, context, _]| context.into()),
        stream: place.map(|[.., stream]| stream.into()),
        correlation: Some(fields.correlation.into()),
        bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &str, start_ns: u64, end_ns: u64) -> Named {
        let traced = Traced::Kernel { place: [0, 1, 7], name: 0 };
        Named { fields: layout::Fields { traced, start_ns, end_ns, correlation: 5 }, name: name.to_owned() }
    }

    #[test]
    fn only_what_begins_between_the_marks_counts_and_times_must_be_times() {
        let traced = Traced::Call { is_driver: true, function: 307, process: 9, thread: 10 };
        let call = layout::Fields { traced, start_ns: 100, end_ns: 104, correlation: 5 };
        let records = vec![
            kernel("warm_up", 50, 99),
            kernel("a", 110, 150),
            Named { fields: call, name: "cuLaunchKernel".to_owned() },
            kernel("untimed", 0, 0),
            kernel("reversed", 120, 110),
            kernel("afterwards", 201, 210),
        ];
        let timeline = timeline(records, 2, (100, 200));
        let seen: Vec<_> = timeline.activities.iter().map(|activity| activity.name.as_str()).collect();
        assert_eq!(seen, ["cuLaunchKernel", "a"]);
        let (call, a) = (&timeline.activities[0], &timeline.activities[1]);
        assert_eq!((call.process, call.thread, call.stream), (Some(9), Some(10), None));
        assert_eq!((a.device, a.context, a.stream, a.correlation), (Some(0), Some(1), Some(7), Some(5)));
        let rejected: Vec<_> = timeline.rejected.iter().map(|row| (row.name.as_str(), row.reason)).collect();
        assert_eq!(rejected, [("untimed", Rejection::Zero), ("reversed", Rejection::Reversed)]);
        assert_eq!(timeline.notes, [Note::UnreadableRows { table: "CUPTI's records".into(), rows: 2 }]);
    }
}
