//! What a GPU can launch, and whether a stage is within it. Pure: numbers in, verdict out.

use crate::model::pipeline::{Launch, Stage};
use crate::model::protocol::{Failure, FailureKind};

/// Dynamic shared memory that a function gets without being asked for more.
pub const SHARED_BYTES_BY_DEFAULT: u64 = 48 * 1024;
/// Blocks of a cluster that every GPU with clusters can launch.
pub const PORTABLE_CLUSTER_BLOCKS: u64 = 8;

/// Limits of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceLimits {
    pub compute_capability: (u32, u32),
    pub multiprocessors: u32,
    pub grid: [u64; 3],
    pub block: [u64; 3],
    pub threads_per_block: u64,
    /// Static and dynamic shared memory of a block together, after it was asked for.
    pub shared_bytes_per_block: u64,
    pub cooperative: bool,
}

/// What a compiled function needs and allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionLimits {
    /// Fewer than the device's when the function uses many registers.
    pub threads_per_block: u64,
    pub static_shared_bytes: u64,
    pub registers: u64,
}

/// A launch, as the driver takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Configuration {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub cluster: Option<[u32; 3]>,
    pub cooperative: bool,
}

impl Configuration {
    /// Nothing is launched.
    pub const fn is_empty(&self) -> bool {
        self.grid[0] == 0 || self.grid[1] == 0 || self.grid[2] == 0
    }
}

impl std::fmt::Display for Configuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "grid {}, block {}", dims(self.grid), dims(self.block))?;
        write!(f, ", {} bytes of dynamic shared memory", self.shared_bytes)?;
        if let Some(cluster) = self.cluster {
            write!(f, ", clusters of {}", dims(cluster))?;
        }
        f.write_str(if self.cooperative { ", cooperative" } else { "" })
    }
}

fn dims<T: std::fmt::Display>(dims: [T; 3]) -> String {
    let [x, y, z] = dims;
    format!("{x} x {y} x {z}")
}

/// The device cannot launch a stage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    #[error(
        "the grid has {found} blocks along {axis} and this GPU launches at most {limit}; use larger blocks of work"
    )]
    Grid { axis: char, found: u64, limit: u64 },
    #[error("the block has {found} threads along {axis} and this GPU launches 1 to {limit}")]
    Block { axis: char, found: u64, limit: u64 },
    #[error("the block has {found} threads and this GPU launches at most {limit}")]
    Threads { found: u64, limit: u64 },
    #[error(
        "the block has {found} threads and the function, with its {registers} registers a thread, launches at most \
         {limit}; use fewer, or say __launch_bounds__({found})"
    )]
    Registers { found: u64, registers: u64, limit: u64 },
    #[error(
        "a block needs {dynamic} bytes of dynamic and {fixed} bytes of static shared memory and this GPU has {limit} for \
         one; use smaller tiles"
    )]
    Shared { dynamic: u64, fixed: u64, limit: u64 },
    #[error("thread block clusters need compute capability 9.0 and this GPU has {0}.{1}")]
    NoClusters(u32, u32),
    #[error("clusters of {cluster} do not divide the grid of {grid}")]
    Cluster { cluster: String, grid: String },
    #[error("this GPU launches nothing cooperatively")]
    NotCooperative,
    #[error(
        "a cooperative launch of {blocks} blocks needs all of them resident and this GPU holds {resident} of this size; \
         use a smaller grid"
    )]
    TooManyCooperative { blocks: u64, resident: u64 },
}

impl LimitError {
    /// The failure of a stage.
    pub fn of_stage(&self, stage: &str) -> Failure {
        let message = format!("stage `{stage}` cannot be launched: {self}");
        Failure { kind: FailureKind::Launch, stage: Some(stage.to_owned()), message }
    }
}

/// The launch of a stage, where device and function allow it. An empty grid is within every limit.
///
/// # Errors
/// The first limit that is exceeded.
pub fn configure(stage: &Stage, device: &DeviceLimits, function: &FunctionLimits) -> Result<Configuration, LimitError> {
    // Stages for a CPU are refused before.
    let Launch::Gpu { block, shared_bytes, cluster, cooperative } = stage.launch else {
        return Err(LimitError::Threads { found: 0, limit: device.threads_per_block });
    };
    let mut grid = [0u32; 3];
    for (axis, name) in ['x', 'y', 'z'].into_iter().enumerate() {
        let (found, limit) = (stage.grid[axis], device.grid[axis]);
        grid[axis] = u32::try_from(found).ok().filter(|_| found <= limit).ok_or(LimitError::Grid {
            axis: name,
            found,
            limit,
        })?;
        let (found, limit) = (u64::from(block[axis]), device.block[axis]);
        if found == 0 || found > limit {
            return Err(LimitError::Block { axis: name, found, limit });
        }
    }
    let threads = block.iter().map(|&threads| u64::from(threads)).product();
    if threads > device.threads_per_block {
        return Err(LimitError::Threads { found: threads, limit: device.threads_per_block });
    }
    if threads > function.threads_per_block {
        let (registers, limit) = (function.registers, function.threads_per_block);
        return Err(LimitError::Registers { found: threads, registers, limit });
    }
    let (dynamic, fixed, limit) = (shared_bytes, function.static_shared_bytes, device.shared_bytes_per_block);
    let too_much = || LimitError::Shared { dynamic, fixed, limit };
    let shared_bytes = u32::try_from(dynamic).map_err(|_| too_much())?;
    if dynamic + fixed > limit {
        return Err(too_much());
    }
    if let Some(cluster) = cluster {
        let (major, minor) = device.compute_capability;
        if major < 9 {
            return Err(LimitError::NoClusters(major, minor));
        }
        if (0..3).any(|axis| cluster[axis] == 0 || grid[axis] % cluster[axis] != 0) {
            return Err(LimitError::Cluster { cluster: dims(cluster), grid: dims(grid) });
        }
    }
    if cooperative && !device.cooperative {
        return Err(LimitError::NotCooperative);
    }
    Ok(Configuration { grid, block, shared_bytes, cluster, cooperative })
}

/// Checks that all blocks of a cooperative launch can be resident at once.
///
/// # Errors
/// They cannot.
pub fn check_resident(
    configuration: &Configuration,
    device: &DeviceLimits,
    blocks_per_multiprocessor: u64,
) -> Result<(), LimitError> {
    let blocks = configuration.grid.iter().map(|&blocks| u64::from(blocks)).product();
    let resident = blocks_per_multiprocessor * u64::from(device.multiprocessors);
    if configuration.cooperative && blocks > resident {
        return Err(LimitError::TooManyCooperative { blocks, resident });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: DeviceLimits = DeviceLimits {
        compute_capability: (9, 0),
        multiprocessors: 132,
        grid: [2_147_483_647, 65_535, 65_535],
        block: [1024, 1024, 64],
        threads_per_block: 1024,
        shared_bytes_per_block: 232_448,
        cooperative: true,
    };
    const FUNCTION: FunctionLimits =
        FunctionLimits { threads_per_block: 512, static_shared_bytes: 1024, registers: 128 };

    fn stage(grid: [u64; 3], block: [u32; 3], shared_bytes: u64, cluster: Option<[u32; 3]>) -> Stage {
        Stage {
            name: "latent".into(),
            entry: "f".into(),
            args: vec![],
            grid,
            launch: Launch::Gpu { block, shared_bytes, cluster, cooperative: false },
            stream: 0,
            after: vec![],
        }
    }

    #[test]
    fn what_fits_is_launched_as_declared() {
        let made = configure(&stage([132, 2, 1], [128, 4, 1], 231_424, Some([2, 1, 1])), &DEVICE, &FUNCTION);
        let made = made.expect("it fits");
        assert_eq!(
            made.to_string(),
            "grid 132 x 2 x 1, block 128 x 4 x 1, 231424 bytes of dynamic shared memory, clusters of 2 x 1 x 1"
        );
        assert!(!made.is_empty());
        let nothing = configure(&stage([0, 1, 1], [128, 1, 1], 0, None), &DEVICE, &FUNCTION).expect("nothing fits");
        assert!(nothing.is_empty());
    }

    #[test]
    fn every_limit_is_named_with_both_numbers() {
        let refused = |stage: Stage, device: &DeviceLimits| {
            let error = configure(&stage, device, &FUNCTION).expect_err("beyond a limit");
            let failure = error.of_stage(&stage.name);
            assert_eq!((failure.kind, failure.stage.as_deref()), (FailureKind::Launch, Some("latent")));
            failure.message
        };
        let block = [128, 1, 1];
        let message = refused(stage([1, 65_536, 1], block, 0, None), &DEVICE);
        assert!(message.contains("65536 blocks along y") && message.contains("at most 65535"), "{message}");
        let message = refused(stage([1 << 40, 1, 1], block, 0, None), &DEVICE);
        assert!(message.contains("along x"), "{message}");
        let message = refused(stage([1; 3], [0, 1, 1], 0, None), &DEVICE);
        assert!(message.contains("0 threads along x"), "{message}");
        let message = refused(stage([1; 3], [1, 1, 65], 0, None), &DEVICE);
        assert!(message.contains("65 threads along z"), "{message}");
        let message = refused(stage([1; 3], [512, 4, 1], 0, None), &DEVICE);
        assert!(message.contains("2048 threads and this GPU launches at most 1024"), "{message}");
        let message = refused(stage([1; 3], [1024, 1, 1], 0, None), &DEVICE);
        assert!(message.contains("128 registers") && message.contains("at most 512"), "{message}");
        let message = refused(stage([1; 3], block, 231_425, None), &DEVICE);
        assert!(message.contains("231425 bytes of dynamic and 1024 bytes of static"), "{message}");
        let message = refused(stage([1; 3], block, u64::MAX, None), &DEVICE);
        assert!(message.contains("shared memory"), "{message}");
        let message = refused(stage([3, 1, 1], block, 0, Some([2, 1, 1])), &DEVICE);
        assert!(message.contains("clusters of 2 x 1 x 1 do not divide"), "{message}");
        let older = DeviceLimits { compute_capability: (8, 0), ..DEVICE };
        let message = refused(stage([2, 1, 1], block, 0, Some([2, 1, 1])), &older);
        assert!(message.contains("8.0"), "{message}");
    }

    #[test]
    fn cooperative_blocks_are_resident_together() {
        let mut all = stage([264, 1, 1], [128, 1, 1], 0, None);
        all.launch = Launch::Gpu { block: [128, 1, 1], shared_bytes: 0, cluster: None, cooperative: true };
        let made = configure(&all, &DEVICE, &FUNCTION).expect("it fits");
        assert_eq!(check_resident(&made, &DEVICE, 2), Ok(()));
        let error = check_resident(&made, &DEVICE, 1).expect_err("half of them");
        assert!(error.to_string().contains("264 blocks") && error.to_string().contains("holds 132"), "{error}");
        let not = DeviceLimits { cooperative: false, ..DEVICE };
        assert_eq!(configure(&all, &not, &FUNCTION), Err(LimitError::NotCooperative));
    }
}
