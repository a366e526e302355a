//! A GPU that is kept open: while one process has it, the driver starts and ends every other one on it in a fraction of the
//! time.

use std::cell::OnceCell;

use super::executor::Worker;
use super::{ExecuteError, Executor, ProcessExecutor};
use crate::model::protocol::{GpuRequest, Line, PROTOCOL, Request, Task};

/// Answers requests in fresh processes; from the first one for a GPU on, a further process keeps that GPU open, and does
/// nothing else. It ends with this.
#[derive(Debug)]
pub struct Holding<'a> {
    inner: &'a ProcessExecutor,
    /// `None` inside: it cannot be kept open (as where only one process may use it), which only costs time.
    held: OnceCell<Option<Worker>>,
}

impl<'a> Holding<'a> {
    pub fn new(inner: &'a ProcessExecutor) -> Holding<'a> {
        Holding { inner, held: OnceCell::new() }
    }

    fn hold(&self, gpu: &GpuRequest) -> Option<Worker> {
        let request = Request { protocol: PROTOCOL, task: Task::Hold, cores: Vec::new(), gpu: Some(gpu.clone()) };
        self.inner.keep(&request, &Line::Held).ok()
    }
}

impl Executor for Holding<'_> {
    fn execute(&self, request: &Request, watch: &mut dyn FnMut(&Line)) -> Result<Vec<Line>, ExecuteError> {
        if let Some(gpu) = &request.gpu {
            self.held.get_or_init(|| self.hold(gpu));
        }
        self.inner.execute(request, watch)
    }
}
