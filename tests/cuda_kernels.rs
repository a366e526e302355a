//! Every CUDA kernel of the catalogue compiles for every architecture that is promised, with default tilings that fit it
//! and without spills. Needs NVRTC and no GPU; `scripts/test` installs it, and without it the test says so and fails
//! where `MLARUN_NEED_NVRTC` is set.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mlarun::backend::cuda::{Cuda, CudaError};
use mlarun::backend::{Backend as _, BuildCache, Patience};
use mlarun::catalog::{Catalog, Package, ParameterKind};
use mlarun::model::pipeline::Launch;
use mlarun::model::{DType, Device, DeviceId, DeviceKind, GpuTraits, Language, Shape, Tiling, Value};
use mlarun::plan::instantiate::{complete_shape, instantiate};
use mlarun::plan::{BuildKeys, Prepared, Protocols, Setting, root_scope};
use rayon::prelude::*;

const REPOSITORY: &str = env!("CARGO_MANIFEST_DIR");

/// Compute capability, multiprocessors, largest dynamic shared memory of a block.
const ARCHITECTURES: [((u32, u32), u32, u64); 4] =
    [((8, 0), 108, 166_912), ((9, 0), 132, 232_448), ((10, 0), 148, 232_448), ((12, 0), 170, 101_376)];

fn device(compute_capability: (u32, u32), units: u32, shared_bytes_max: u64) -> Device {
    Device {
        id: DeviceId { kind: DeviceKind::Gpu, name: "A GPU".into(), uuid: None, units },
        memory_bytes: 1 << 37,
        last_level_cache_bytes: 1 << 26,
        cores: vec![0],
        gpu: Some(GpuTraits { compute_capability, shared_bytes_max, driver: "none".into() }),
    }
}

/// The shapes that kernels are made for, in every element type that the package has.
fn shapes(package: &Package) -> Vec<Shape> {
    let dtypes = package.parameters.iter().find_map(|parameter| match &parameter.kind {
        ParameterKind::DType { allowed } => Some((parameter.name.clone(), allowed.clone())),
        _ => None,
    });
    let (name, allowed) = dtypes.unwrap_or_default();
    let given = |dtype: DType, s: i64| {
        let mut shape = Shape::default();
        for (key, value) in [("b", 32), ("s", s), ("t", 4096)] {
            if package.parameter(key).is_some() {
                shape.0.insert(key.to_owned(), Value::Int(value));
            }
        }
        shape.0.insert(name.clone(), Value::Text(dtype.name().to_owned()));
        shape
    };
    allowed.into_iter().flat_map(|dtype| [1, 16].map(|s| given(dtype, s))).collect()
}

#[test]
fn every_kernel_compiles_for_every_architecture_without_spills() {
    let scratch = tempfile::tempdir().expect("a folder");
    let worker = Path::new(env!("CARGO_BIN_EXE_mlarun"));
    let patience = Patience { limit: Duration::from_secs(600), interrupted: Arc::default(), guard: None };
    let catalog = Catalog::load(Path::new(REPOSITORY));
    let packages: Vec<&Package> = catalog.packages().filter(|package| package.id.language == Language::Cuda).collect();
    assert!(packages.len() >= 9, "{} packages", packages.len());
    let cache = BuildCache::new(Path::new(REPOSITORY), &scratch.path().join("cache"));
    for (capability, units, shared) in ARCHITECTURES {
        let device = device(capability, units, shared);
        let architecture = device.gpu.as_ref().map(GpuTraits::architecture).unwrap_or_default();
        let backend = match Cuda::find(&architecture, &scratch.path().join("cache"), worker, &patience) {
            Ok(backend) => backend,
            Err(CudaError::Toolkit(error)) if std::env::var_os("MLARUN_NEED_NVRTC").is_none() => {
                eprintln!("not compiled: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let support = backend.support(mlarun::model::protocol::SUPPORT_SOURCE, scratch.path(), &patience);
        assert!(support.expect("mlarun's own code compiles").is_file());
        let root = root_scope(&device);
        let mut builds = std::collections::BTreeMap::new();
        for package in &packages {
            for given in shapes(package) {
                let shape = complete_shape(package, &given, &root).expect("a shape");
                let instance = instantiate(package, &shape, &Tiling::default(), &root).expect("an instance");
                for stage in &instance.pipeline.stages {
                    let Launch::Gpu { shared_bytes, .. } = stage.launch else {
                        panic!("{} is no GPU stage", stage.name)
                    };
                    assert!(
                        shared_bytes <= shared,
                        "{} {} asks for {shared_bytes} bytes of shared memory, {architecture} has {shared}",
                        package.id,
                        stage.name
                    );
                }
                for (stage, build) in instance.pipeline.stages.iter().zip(stage_builds(package, &shape, &device)) {
                    let name = format!("{} {} {given}", package.id, stage.name);
                    builds.entry(build.material(backend.toolchain()).key()).or_insert((name, build));
                }
            }
        }
        let problems: Vec<String> = builds
            .into_par_iter()
            .filter_map(|(_, (name, build))| match cache.build(&backend, &build) {
                Err(error) => Some(format!("{name} for {architecture}: {error}")),
                Ok(artifact) => {
                    let resources = artifact.info.resources;
                    let spills = resources.is_none_or(|found| found.spill_store_bytes + found.spill_load_bytes > 0);
                    spills.then(|| format!("{name} for {architecture} spills or tells nothing: {resources:?}"))
                }
            })
            .collect();
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}

/// What the compiler makes of each stage.
fn stage_builds(package: &Package, shape: &Shape, device: &Device) -> Vec<mlarun::model::build::StageBuild> {
    let toolchain = mlarun::model::build::Toolchain {
        compiler: mlarun::model::build::CompilerId {
            version: String::new(),
            target: String::new(),
            arguments: Vec::new(),
            native: mlarun::model::Key::of_bytes(b""),
        },
        standard_flags: Vec::new(),
    };
    let conf = mlarun::conf::Conf::load(&Path::new(REPOSITORY).join("conf")).expect("sound");
    let protocols: Protocols =
        mlarun::app::protocols(&conf, &mlarun::manifest::ProtocolOverrides::default(), device, 1);
    let setting = Setting { device, toolchain: &toolchain, peaks: None, protocols: &protocols };
    let root = root_scope(device);
    let prepared = Prepared::new(&setting, package, shape, &Tiling::default(), &root, &BuildKeys::default());
    prepared.expect("it can be prepared").builds
}
