//! Launches of a pipeline: which seat runs which thread of which stage, in which order, and the launch itself.
//!
//! Stages of different streams that no dependency orders get disjoint seats. Blocks of a stage are dealt out to its
//! threads by one atomic counter, x fastest. A launch allocates nothing, makes no system call unless a thread has to
//! sleep, and ends when every block of every stage has returned.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use super::module::{Caller, Module};
use super::team::{Gate, Team};
use crate::model::pipeline::{Arg, Stage};

/// Where the stages of a pipeline run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seating {
    /// Number of seats.
    pub seats: usize,
    /// For each stage, the seat of its thread 0; thread i has the i-th seat from there on, in a ring.
    first: Vec<usize>,
}

impl Seating {
    /// Seats for `stages`: as few as let every pair of stages that may run at the same time be disjoint.
    pub fn new(stages: &[Stage]) -> Seating {
        let ordered = Ordered::new(stages);
        let streams = sorted_streams(stages);
        let mut offset = 0;
        let mut offsets = Vec::new();
        for &stream in &streams {
            offsets.push(offset);
            offset += concurrent_width(stages, &ordered, stream);
        }
        let widest = stages.iter().map(|stage| stage.threads() as usize).max().unwrap_or(1);
        let seats = widest.max(offset).max(1);
        let first = stages.iter().map(|stage| offsets[position(&streams, stage.stream)]).collect();
        Seating { seats, first }
    }

    /// The thread of `stage` that `seat` runs, if it runs one.
    fn thread(&self, stage: usize, threads: u32, seat: usize) -> Option<u32> {
        let distance = (seat + self.seats - self.first[stage]) % self.seats;
        u32::try_from(distance).ok().filter(|&thread| thread < threads)
    }

    /// Core of each seat: `cores` in turn.
    ///
    /// # Panics
    /// When `cores` is empty.
    pub fn cores(&self, cores: &[u32]) -> Vec<u32> {
        (0..self.seats).map(|seat| cores[seat % cores.len()]).collect()
    }
}

fn sorted_streams(stages: &[Stage]) -> Vec<u32> {
    let mut streams: Vec<u32> = stages.iter().map(|stage| stage.stream).collect();
    streams.sort_unstable();
    streams.dedup();
    streams
}

fn position(streams: &[u32], stream: u32) -> usize {
    streams.iter().position(|&known| known == stream).expect("every stage's stream is listed")
}

/// Largest number of threads of a stage of `stream` that may run at the same time as a stage of another stream.
fn concurrent_width(stages: &[Stage], ordered: &Ordered, stream: u32) -> usize {
    let concurrent =
        |index: usize| (0..stages.len()).any(|other| stages[other].stream != stream && !ordered.are(index, other));
    let own = (0..stages.len()).filter(|&index| stages[index].stream == stream);
    own.filter(|&index| concurrent(index)).map(|index| stages[index].threads() as usize).max().unwrap_or(0)
}

/// Which stages must have ended before which others.
struct Ordered(Vec<Vec<bool>>);

impl Ordered {
    fn new(stages: &[Stage]) -> Ordered {
        let mut before = vec![vec![false; stages.len()]; stages.len()];
        for index in 0..stages.len() {
            for earlier in waits_for(stages, index) {
                before[index][earlier] = true;
                let inherited = before[earlier].clone();
                before[index].iter_mut().zip(inherited).for_each(|(known, more)| *known |= more);
            }
        }
        Ordered(before)
    }

    fn are(&self, a: usize, b: usize) -> bool {
        self.0[a][b] || self.0[b][a]
    }
}

/// Stages that the stage `index` waits for: those it names and the one before it in its stream.
fn waits_for(stages: &[Stage], index: usize) -> Vec<usize> {
    let previous = (0..index).rev().find(|&earlier| stages[earlier].stream == stages[index].stream);
    stages[index].after.iter().copied().filter(|&earlier| earlier < index).chain(previous).collect()
}

/// A value that an argument's pointer points to.
enum Value {
    Pointer(*mut c_void),
    Int(i64),
    Float(f64),
    /// The caller does not read it.
    Absent,
}

/// One stage, ready to be called.
struct Ready {
    caller: Caller,
    /// Pointers into `values`.
    args: Vec<*mut c_void>,
    /// Boxed so that their addresses stay.
    _values: Box<[Value]>,
    grid: [u64; 3],
    blocks: u64,
    threads: u32,
    waits_for: Vec<usize>,
    state: State,
}

/// What changes during a launch.
#[repr(align(128))]
#[derive(Default)]
struct State {
    next_block: AtomicU64,
    running: AtomicU32,
    ended: Gate,
}

impl Ready {
    fn new(stage: &Stage, module: &Module, waits_for: Vec<usize>, pointer: impl Fn(usize) -> *mut c_void) -> Ready {
        let value = |arg: &Arg| match arg {
            Arg::Buffer(index) => Value::Pointer(pointer(*index)),
            Arg::Int(value) => Value::Int(*value),
            Arg::Float(value) => Value::Float(*value),
            // Stages with tensor maps are refused before.
            Arg::Block(_) | Arg::Thread | Arg::Map(_) => Value::Absent,
        };
        let mut values: Box<[Value]> = stage.args.iter().map(value).collect();
        let address = |value: &mut Value| match value {
            Value::Pointer(value) => std::ptr::from_mut(value).cast(),
            Value::Int(value) => std::ptr::from_mut(value).cast(),
            Value::Float(value) => std::ptr::from_mut(value).cast(),
            Value::Absent => std::ptr::null_mut(),
        };
        let args = values.iter_mut().map(address).collect();
        Ready {
            caller: module.caller(),
            args,
            _values: values,
            grid: stage.grid,
            blocks: stage.grid.iter().product(),
            threads: stage.threads().max(1),
            waits_for,
            state: State::default(),
        }
    }

    /// Calls the function for blocks until none is left.
    fn run_blocks(&self, thread: u32) {
        loop {
            let block = self.state.next_block.fetch_add(1, Ordering::Relaxed);
            if block >= self.blocks {
                return;
            }
            let [x, y, _] = self.grid;
            let (block_x, block_y, block_z) = (block % x, block / x % y, block / x / y);
            // SAFETY: the module that holds the caller outlives the launcher (`Launcher::new`), the arguments point
            // to values of the declared types, and buffers are as large as declared. What a faulty kernel does
            // beyond that is what guard bands and the process boundary are for.
            unsafe {
                (self.caller)(self.args.as_ptr(), block_x as i64, block_y as i64, block_z as i64, i64::from(thread));
            }
        }
    }
}

/// A pipeline whose stages can be launched on a team.
pub struct Launcher<'m> {
    stages: Vec<Ready>,
    seating: Seating,
    launch: u32,
    _modules: std::marker::PhantomData<&'m Module>,
}

// SAFETY: the pointers inside point into boxed values of the launcher itself, read-only after construction, and to
// buffers, which kernels share between threads by design.
unsafe impl Sync for Launcher<'_> {}

impl<'m> Launcher<'m> {
    /// A launcher of `stages`, with their `modules` in the same order and the address of each buffer.
    pub fn new(stages: &[Stage], modules: &'m [Module], pointer: impl Fn(usize) -> *mut c_void) -> Launcher<'m> {
        let ready = |(index, (stage, module))| Ready::new(stage, module, waits_for(stages, index), &pointer);
        Launcher {
            stages: stages.iter().zip(modules).enumerate().map(ready).collect(),
            seating: Seating::new(stages),
            launch: 0,
            _modules: std::marker::PhantomData,
        }
    }

    /// One launch of the whole pipeline; returns its time in nanoseconds. Threads that sleep are woken within it:
    /// arm the team before for a time without that.
    pub fn launch(&mut self, team: &mut Team) -> f64 {
        self.reset();
        let this = &*self;
        let start = Instant::now();
        team.run(&|seat| this.take_part(seat));
        nanoseconds(start)
    }

    /// `count` launches, one directly after the other; returns their time together in nanoseconds.
    pub fn launch_batch(&mut self, team: &mut Team, count: u64) -> f64 {
        let start = Instant::now();
        for _ in 0..count {
            self.reset();
            let this = &*self;
            team.run(&|seat| this.take_part(seat));
        }
        nanoseconds(start)
    }

    /// One launch in which every seat does its part inside `around`.
    pub fn launch_inside(&mut self, team: &mut Team, around: &(dyn Fn(usize, &dyn Fn()) + Sync)) {
        self.reset();
        let this = &*self;
        team.run(&|seat| around(seat, &|| this.take_part(seat)));
    }

    /// A launch in which no stage has a block; returns its time in nanoseconds. It is what a launch costs beside its
    /// blocks: starting the seats, ordering the stages, waiting for the last.
    pub fn launch_without_blocks(&mut self, team: &mut Team) -> f64 {
        self.reset();
        self.stages.iter().for_each(|stage| stage.state.next_block.store(stage.blocks, Ordering::Relaxed));
        let this = &*self;
        let start = Instant::now();
        team.run(&|seat| this.take_part(seat));
        nanoseconds(start)
    }

    /// Core of each seat that the stages need: `cores` in turn.
    ///
    /// # Panics
    /// When `cores` is empty.
    pub fn seat_cores(&self, cores: &[u32]) -> Vec<u32> {
        self.seating.cores(cores)
    }

    fn reset(&mut self) {
        self.launch = self.launch.wrapping_add(1);
        for stage in &self.stages {
            stage.state.next_block.store(0, Ordering::Relaxed);
            stage.state.running.store(stage.threads, Ordering::Relaxed);
        }
    }

    /// What one seat does in a launch: its threads of the stages, in order.
    fn take_part(&self, seat: usize) {
        for (index, stage) in self.stages.iter().enumerate() {
            let Some(thread) = self.seating.thread(index, stage.threads, seat) else { continue };
            for &earlier in &stage.waits_for {
                self.stages[earlier].state.ended.wait_until(|launch| launch == self.launch);
            }
            stage.run_blocks(thread);
            if stage.state.running.fetch_sub(1, Ordering::AcqRel) == 1 {
                stage.state.ended.open(self.launch);
            }
        }
    }
}

fn nanoseconds(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pipeline::Launch;

    fn stage(threads: u32, stream: u32, after: &[usize]) -> Stage {
        Stage {
            name: format!("s{stream}"),
            entry: "f".into(),
            args: vec![],
            grid: [1; 3],
            launch: Launch::Cpu { threads },
            stream,
            after: after.to_vec(),
        }
    }

    fn seats(seating: &Seating, stage: usize, threads: u32) -> Vec<usize> {
        let mut seats: Vec<(u32, usize)> = (0..seating.seats)
            .filter_map(|seat| seating.thread(stage, threads, seat).map(|thread| (thread, seat)))
            .collect();
        seats.sort_unstable();
        assert!(seats.iter().map(|(thread, _)| *thread).eq(0..threads));
        seats.into_iter().map(|(_, seat)| seat).collect()
    }

    #[test]
    fn stages_of_one_stream_share_seats() {
        let stages = [stage(1, 0, &[]), stage(4, 0, &[]), stage(2, 0, &[])];
        let seating = Seating::new(&stages);
        assert_eq!(seating.seats, 4);
        assert_eq!(seats(&seating, 1, 4), [0, 1, 2, 3]);
        assert_eq!(seating.cores(&[7, 9]), [7, 9, 7, 9]);
    }

    #[test]
    fn stages_at_the_same_time_are_apart_and_what_follows_uses_all_seats() {
        let stages = [stage(3, 0, &[]), stage(1, 1, &[]), stage(4, 0, &[0, 1])];
        let seating = Seating::new(&stages);
        assert_eq!(seating.seats, 4);
        assert_eq!(seats(&seating, 0, 3), [0, 1, 2]);
        assert_eq!(seats(&seating, 1, 1), [3]);
        assert_eq!(seats(&seating, 2, 4), [0, 1, 2, 3]);
    }

    #[test]
    fn streams_that_a_dependency_orders_share_seats() {
        let stages = [stage(2, 0, &[]), stage(2, 1, &[0])];
        assert_eq!(Seating::new(&stages).seats, 2);
        assert_eq!(Seating::new(&[stage(2, 0, &[]), stage(2, 1, &[])]).seats, 4);
    }

    #[test]
    fn no_stage_still_has_a_seat() {
        assert_eq!(Seating::new(&[]).seats, 1);
    }
}
