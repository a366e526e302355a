//! Launches of a pipeline: functions with their arguments, and the order of stages over several streams.
//!
//! The first stream is the context's; what is queued to it before a launch comes before all stages, and what is queued
//! after it comes after all. Other streams wait for it at the start and it waits for them at the end.

use std::ffi::c_void;
use std::path::Path;

use cudarc::driver::sys::{self, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchConfig, CUtensorMap};

use super::driver::{Context, Event, Stream};
use super::error::{CudaError, check};
use super::limits::{self, Configuration, PORTABLE_CLUSTER_BLOCKS, SHARED_BYTES_BY_DEFAULT};
use super::module::{Function, Module, check_parameters};
use super::{tensor_map, tools};
use crate::model::pipeline::{Arg, Buffer, Stage};
use crate::model::protocol::{Failure, FailureKind};

/// A function with everything that one launch of it needs.
pub struct Launched<'a> {
    pub function: Function,
    pub configuration: Configuration,
    /// Addresses of the arguments, as many and of the types that the function takes.
    pub parameters: &'a [*mut c_void],
}

/// Queues one launch.
///
/// # Errors
/// The driver refuses.
pub fn launch(launched: &Launched<'_>, stream: &Stream) -> Result<(), CudaError> {
    let Configuration { grid, block, shared_bytes, cluster, cooperative } = launched.configuration;
    // SAFETY: numbers and pointers alone, for which zero is a value.
    let mut attributes: [CUlaunchAttribute; 2] = unsafe { std::mem::zeroed() };
    let mut count = 0;
    if let Some([x, y, z]) = cluster {
        attributes[count].id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attributes[count].value.clusterDim.x = x;
        attributes[count].value.clusterDim.y = y;
        attributes[count].value.clusterDim.z = z;
        count += 1;
    }
    if cooperative {
        attributes[count].id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        attributes[count].value.cooperative = 1;
        count += 1;
    }
    let config = CUlaunchConfig {
        gridDimX: grid[0],
        gridDimY: grid[1],
        gridDimZ: grid[2],
        blockDimX: block[0],
        blockDimY: block[1],
        blockDimZ: block[2],
        sharedMemBytes: shared_bytes,
        hStream: stream.handle(),
        attrs: attributes.as_mut_ptr(),
        numAttrs: count as u32,
    };
    // SAFETY: function and stream exist, the attributes are as many as said, and the parameters are as many and as large
    // as the function's (`Loaded::load` and support.rs). The driver copies them before it returns. What a faulty kernel
    // does with them is what guard bands and the process boundary are for.
    let result = unsafe {
        sys::cuLaunchKernelEx(
            &raw const config,
            launched.function.handle(),
            launched.parameters.as_ptr().cast_mut(),
            std::ptr::null_mut(),
        )
    };
    check(result, "the launch is refused")
}

/// The function of a stage, within the limits of the device.
#[derive(Clone, Copy)]
pub struct Loaded {
    function: Function,
    configuration: Configuration,
}

impl Loaded {
    /// Loads the cubin at `path` and checks that it has the function of `stage`, that this takes the declared arguments,
    /// and that the GPU can launch it.
    ///
    /// # Errors
    /// One of that is not so.
    pub fn load(context: &Context, path: &Path, stage: &Stage) -> Result<Loaded, Failure> {
        let of_stage = |failure: Failure| Failure { stage: Some(stage.name.clone()), ..failure };
        let load = |message: String| Failure { kind: FailureKind::Load, stage: Some(stage.name.clone()), message };
        let module = Module::load(path).map_err(of_stage)?;
        let function = module.function(&stage.entry).map_err(|error| match error.kind() {
            FailureKind::Load => load(format!(
                "{} has no `{}`; declare the stage's `entry` as the function that its source defines, extern \"C\"",
                path.display(),
                stage.entry
            )),
            _ => of_stage(error.into()),
        })?;
        // A sanitizer reports the error that tells the number of parameters, as it would one of the kernel.
        let asked = tools::are_attached(std::env::vars_os()).then_some(stage.args.len());
        let parameters = function.parameter_bytes(asked)?;
        check_parameters(&stage.entry, &parameters, &stage.args)
            .map_err(|reason| load(format!("{reason}; make `args` in kernel.toml and the function agree")))?;
        let limits = function.limits()?;
        let configuration = limits::configure(stage, &context.limits, &limits);
        let configuration = configuration.map_err(|error| error.of_stage(&stage.name))?;
        let described = |error: CudaError| error.of_stage(&stage.name, &configuration.to_string());
        if u64::from(configuration.shared_bytes) + limits.static_shared_bytes > SHARED_BYTES_BY_DEFAULT {
            function.allow_shared(configuration.shared_bytes).map_err(described)?;
        }
        if configuration.cluster.is_some_and(|cluster| blocks(cluster) > PORTABLE_CLUSTER_BLOCKS) {
            function.allow_large_clusters().map_err(described)?;
        }
        if configuration.cooperative {
            let resident = function.resident_blocks(blocks(configuration.block), configuration.shared_bytes)?;
            limits::check_resident(&configuration, &context.limits, resident)
                .map_err(|error| error.of_stage(&stage.name))?;
        }
        Ok(Loaded { function, configuration })
    }
}

fn blocks(dims: [u32; 3]) -> u64 {
    dims.iter().map(|&dim| u64::from(dim)).product()
}

/// One stage, ready to be queued.
struct Ready {
    name: String,
    loaded: Loaded,
    /// Addresses of `values`.
    parameters: Vec<*mut c_void>,
    _values: Vec<Value>,
    /// Which of the launcher's streams it runs on.
    stream: usize,
    /// Stages of other streams that must have ended.
    waits_for: Vec<usize>,
    /// Recorded when it has ended, where another stream waits for that.
    ended: Option<Event>,
}

/// An argument; boxed so that its address stays.
enum Value {
    Bits(Box<u64>),
    Map(Box<CUtensorMap>),
}

impl Value {
    fn new(arg: &Arg, buffers: &[Buffer], address: impl Fn(usize) -> u64) -> Result<Value, CudaError> {
        Ok(Value::Bits(Box::new(match arg {
            Arg::Buffer(buffer) => address(*buffer),
            Arg::Int(value) => *value as u64,
            // The four bytes that a float has come first on every host that CUDA knows.
            Arg::Float(value) => u64::from((*value as f32).to_bits()),
            Arg::Block(_) | Arg::Thread => 0,
            Arg::Map(map) => {
                let encoded = tensor_map::encode(map, &buffers[map.buffer], address(map.buffer))?;
                return Ok(Value::Map(Box::new(encoded)));
            }
        })))
    }

    fn address(&mut self) -> *mut c_void {
        match self {
            Value::Bits(bits) => std::ptr::from_mut(&mut **bits).cast(),
            Value::Map(map) => std::ptr::from_mut(&mut **map).cast(),
        }
    }
}

/// What is queued in place of the stages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Themselves.
    Stages,
    /// This function with a single thread each, on the same streams in the same order.
    Nothing(Function),
}

/// The stages of a pipeline on their streams.
pub struct Launcher<'c> {
    context: &'c Context,
    stages: Vec<Ready>,
    /// Streams beside the context's.
    streams: Vec<Stream>,
    /// Recorded on the context's stream before the first stage; others wait for it.
    begun: Option<Event>,
    /// Recorded on each other stream after its last stage.
    joins: Vec<Event>,
}

impl<'c> Launcher<'c> {
    /// A launcher of `stages` with the functions of each, and the address of each of `buffers`.
    ///
    /// # Errors
    /// The driver refuses streams, events or tensor maps.
    pub fn new(
        context: &'c Context,
        stages: &[Stage],
        loaded: &[Loaded],
        buffers: &[Buffer],
        address: impl Fn(usize) -> u64,
    ) -> Result<Launcher<'c>, CudaError> {
        let order = Order::new(stages);
        let mut ready = Vec::new();
        for (index, (stage, loaded)) in stages.iter().zip(loaded).enumerate() {
            let value = |arg| Value::new(arg, buffers, &address);
            let mut values = stage.args.iter().map(value).collect::<Result<Vec<Value>, _>>()?;
            ready.push(Ready {
                name: stage.name.clone(),
                loaded: *loaded,
                parameters: values.iter_mut().map(Value::address).collect(),
                _values: values,
                stream: order.streams[index],
                waits_for: order.waits_for[index].clone(),
                ended: order.is_waited_for(index).then(Event::untimed).transpose()?,
            });
        }
        let others = order.count.saturating_sub(1);
        Ok(Launcher {
            context,
            stages: ready,
            streams: (0..others).map(|_| Stream::new()).collect::<Result<_, _>>()?,
            begun: (others > 0).then(Event::untimed).transpose()?,
            joins: (0..others).map(|_| Event::untimed()).collect::<Result<_, _>>()?,
        })
    }

    fn stream(&self, index: usize) -> &Stream {
        index.checked_sub(1).map_or(&self.context.stream, |other| &self.streams[other])
    }

    /// Queues one launch of everything.
    ///
    /// # Errors
    /// The driver refuses; the failure names the stage.
    pub fn queue(&self, work: Work) -> Result<(), Failure> {
        if let Some(begun) = &self.begun {
            begun.record(&self.context.stream)?;
            self.streams.iter().try_for_each(|stream| stream.wait_for(begun))?;
        }
        for stage in &self.stages {
            let stream = self.stream(stage.stream);
            let awaited = stage.waits_for.iter().filter_map(|&earlier| self.stages[earlier].ended.as_ref());
            awaited.into_iter().try_for_each(|event| stream.wait_for(event))?;
            stage.queue(work, stream)?;
            if let Some(ended) = &stage.ended {
                ended.record(stream)?;
            }
        }
        for (stream, join) in self.streams.iter().zip(&self.joins) {
            join.record(stream)?;
            self.context.stream.wait_for(join)?;
        }
        Ok(())
    }

    /// Launches one stage by itself and waits for its end.
    ///
    /// # Errors
    /// It fails; the failure names it.
    pub fn try_stage(&self, index: usize) -> Result<(), Failure> {
        let stage = &self.stages[index];
        stage.queue(Work::Stages, &self.context.stream)?;
        self.context.stream.synchronize().map_err(|error| stage.failure(error))
    }

    /// Calls of the driver that queue one launch.
    pub fn operations(&self) -> usize {
        let stages = self.stages.iter().map(|stage| 1 + stage.waits_for.len() + usize::from(stage.ended.is_some()));
        stages.sum::<usize>() + 3 * self.streams.len() + usize::from(self.begun.is_some())
    }

    /// A fault that shows after launches of all stages, any of which may have caused it.
    pub fn failure(&self, error: CudaError) -> Failure {
        match &self.stages[..] {
            [only] => only.failure(error),
            all => {
                let launches: Vec<String> =
                    all.iter().map(|stage| format!("`{}` ({})", stage.name, stage.loaded.configuration)).collect();
                let failure = Failure::from(error);
                Failure {
                    message: format!("one of the stages {}: {}", launches.join(", "), failure.message),
                    ..failure
                }
            }
        }
    }
}

impl Ready {
    fn queue(&self, work: Work, stream: &Stream) -> Result<(), Failure> {
        let Loaded { function, configuration } = self.loaded;
        if configuration.is_empty() {
            return Ok(());
        }
        let launched = match work {
            Work::Stages => Launched { function, configuration, parameters: &self.parameters },
            Work::Nothing(function) => {
                let configuration =
                    Configuration { grid: [1; 3], block: [1; 3], shared_bytes: 0, cluster: None, cooperative: false };
                Launched { function, configuration, parameters: &[] }
            }
        };
        launch(&launched, stream).map_err(|error| {
            // An invalid value, in a launch, is one of its numbers.
            let is_invalid = error.code() == sys::CUresult::CUDA_ERROR_INVALID_VALUE as u32;
            let failure = self.failure(error);
            Failure { kind: if is_invalid { FailureKind::Launch } else { failure.kind }, ..failure }
        })
    }

    fn failure(&self, error: CudaError) -> Failure {
        error.of_stage(&self.name, &self.loaded.configuration.to_string())
    }
}

/// Streams of stages and what they wait for. Pure.
struct Order {
    /// Stream of each stage: 0 is the lowest number that is declared.
    streams: Vec<usize>,
    /// Number of streams.
    count: usize,
    /// Stages of other streams that each stage waits for.
    waits_for: Vec<Vec<usize>>,
}

impl Order {
    fn new(stages: &[Stage]) -> Order {
        let mut numbers: Vec<u32> = stages.iter().map(|stage| stage.stream).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let stream = |stage: &Stage| numbers.iter().position(|&number| number == stage.stream).unwrap_or(0);
        let waits_for = |stage: &Stage| {
            let mut waits: Vec<usize> = stage.after.clone();
            waits.retain(|&earlier| stages[earlier].stream != stage.stream);
            waits.sort_unstable();
            waits.dedup();
            waits
        };
        Order {
            streams: stages.iter().map(stream).collect(),
            count: numbers.len(),
            waits_for: stages.iter().map(waits_for).collect(),
        }
    }

    fn is_waited_for(&self, index: usize) -> bool {
        self.waits_for.iter().any(|waits| waits.contains(&index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pipeline::Launch;

    fn stage(stream: u32, after: &[usize]) -> Stage {
        Stage {
            name: "s".into(),
            entry: "f".into(),
            args: vec![],
            grid: [1; 3],
            launch: Launch::Gpu { block: [32, 1, 1], shared_bytes: 0, cluster: None, cooperative: false },
            stream,
            after: after.to_vec(),
        }
    }

    #[test]
    fn stages_of_one_stream_wait_for_nothing_else() {
        let order = Order::new(&[stage(3, &[]), stage(3, &[0]), stage(3, &[0, 1])]);
        assert_eq!((order.count, &order.streams[..]), (1, &[0, 0, 0][..]));
        assert!(order.waits_for.iter().all(Vec::is_empty));
    }

    #[test]
    fn streams_wait_for_the_stages_of_others_alone() {
        let order = Order::new(&[stage(5, &[]), stage(2, &[]), stage(5, &[1, 0, 1]), stage(2, &[0])]);
        assert_eq!((order.count, &order.streams[..]), (2, &[1, 0, 1, 0][..]));
        assert_eq!(order.waits_for, [vec![], vec![], vec![1], vec![0]]);
        assert!([0, 1].iter().all(|&index| order.is_waited_for(index)) && !order.is_waited_for(2));
    }
}
