//! The child side: the only place that loads compiled kernels, calls them, and times them.
//!
//! A worker process reads one [`Request`](crate::model::protocol::Request) from its standard input, does its one task
//! and answers with JSON [`Line`](crate::model::protocol::Line)s. Whatever a kernel does to the process (a wild write,
//! an abort, an endless loop) ends this process at worst; the runner sees which phase it was in. Unsafe code of the
//! whole program lives below this folder.
//!
//! Each task in a file, written over a [`rig`]: [`verify`], [`event`], [`annotation`], [`tune`]. A rig is a kernel that
//! is ready on a device: [`cpu`], with [`launch`] on a pinned [`team`] of threads, or [`cuda`]. What both share:
//! [`subject`] (expected rows, agreement), [`buffers`] and [`memory`] (guard bands and poison), [`inputs`] (the
//! generator), [`einsum`] and [`reference`](mod@reference) (float64 definitions), [`compare`], [`sampling`].

mod annotation;
mod answer;
mod buffers;
mod cache;
mod compare;
mod counters;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "without_cuda.rs"]
mod cuda;
mod definition;
mod einsum;
mod element;
mod event;
mod flush;
mod host;
mod inputs;
mod launch;
mod measurement;
mod median;
mod memory;
mod module;
mod reference;
mod rig;
mod rows;
mod sampling;
mod serve;
mod subject;
mod team;
mod tune;
mod verify;

use std::process::ExitCode;

/// Serves one request. Exit code 0 when the protocol was followed, whatever the outcome of the task.
pub fn main() -> ExitCode {
    match serve::serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
