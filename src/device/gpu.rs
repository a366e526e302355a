//! GPUs of this host: whether there is any, which one is meant, and what it is to the rest of the program. Loads no
//! driver: a worker process that has asked it says what there is.

use std::fs;
use std::path::Path;

use crate::model::protocol::GpuInfo;
use crate::model::{Device, DeviceId, DeviceKind, GpuTraits, Key};

/// The GPU that was asked for is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    #[error("no GPU `{asked}`; there are: {known}; name one by its number or its UUID, or `cpu`")]
    Unknown { asked: String, known: String },
    #[error("the driver shows no GPU to this process; check `nvidia-smi -L` and CUDA_VISIBLE_DEVICES")]
    None,
}

/// Memory that the driver keeps for itself and for the contexts of a worker and of the process that keeps the GPU open.
const KEPT_BYTES: u64 = 3 << 29;

/// The system has a driver for NVIDIA's GPUs, so that it is worth asking which there are. `root` is `/`.
pub fn may_be_present(root: &Path) -> bool {
    ["dev/nvidiactl", "dev/dxg", "proc/driver/nvidia/version"].iter().any(|path| root.join(path).exists())
}

/// What an answer about GPUs holds for: driver, boot, GPUs, and which of them this process may see. `root` is `/`.
pub fn state(root: &Path, visible: Option<&str>) -> Key {
    let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let entries = fs::read_dir(root.join("proc/driver/nvidia/gpus")).into_iter().flatten().flatten();
    let mut gpus: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    gpus.sort();
    let boot = text("proc/sys/kernel/random/boot_id");
    Key::of("gpus/1", &(text("proc/driver/nvidia/version"), boot, gpus, visible))
}

/// The GPU that `choice` names, by number or UUID (or its beginning); the first one where nothing is asked for.
///
/// # Errors
/// There is none, or none of that name.
pub fn choose<'g>(gpus: &'g [GpuInfo], choice: Option<&str>) -> Result<&'g GpuInfo, GpuError> {
    let first = gpus.first().ok_or(GpuError::None)?;
    let Some(asked) = choice else { return Ok(first) };
    let is_meant = |gpu: &&GpuInfo| {
        asked.parse() == Ok(gpu.index) || gpu.uuid == asked || (asked.len() >= 8 && gpu.uuid.starts_with(asked))
    };
    gpus.iter().find(is_meant).ok_or_else(|| {
        let known = gpus.iter().map(|gpu| format!("{} {} ({})", gpu.index, gpu.name, gpu.uuid));
        GpuError::Unknown { asked: asked.to_owned(), known: known.collect::<Vec<_>>().join(", ") }
    })
}

/// `gpu` as the device of a run, with the CPU cores that its worker may use.
pub fn device(gpu: &GpuInfo, driver: &str, cores: Vec<u32>) -> Device {
    // Drivers name a slice by its profile (`NVIDIA H200 MIG 1g.18gb`); one that does not must not pass for the whole.
    let slice = if gpu.mig && !gpu.name.contains("MIG") { " MIG" } else { "" };
    Device {
        id: DeviceId {
            kind: DeviceKind::Gpu,
            name: format!("{}{slice}", gpu.name),
            uuid: Some(gpu.uuid.clone()),
            units: gpu.multiprocessors,
        },
        memory_bytes: gpu.memory_bytes.saturating_sub(KEPT_BYTES),
        last_level_cache_bytes: gpu.l2_bytes,
        cores,
        gpu: Some(GpuTraits {
            compute_capability: gpu.compute_capability,
            shared_bytes_max: gpu.shared_bytes_per_block_max,
            driver: driver.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(index: u32, uuid: &str) -> GpuInfo {
        GpuInfo {
            index,
            uuid: uuid.to_owned(),
            name: "NVIDIA H200".to_owned(),
            compute_capability: (9, 0),
            multiprocessors: 132,
            memory_bytes: 1 << 37,
            free_bytes: 1 << 36,
            l2_bytes: 62_914_560,
            shared_bytes_per_block_max: 232_448,
            sm_clock_khz: 1_980_000,
            memory_clock_khz: 3_201_000,
            mig: false,
        }
    }

    #[test]
    fn a_gpu_is_chosen_by_number_or_uuid() {
        let gpus = [gpu(0, "GPU-11111111-a"), gpu(1, "GPU-22222222-b")];
        let chosen = |choice| choose(&gpus, choice).map(|gpu| gpu.index);
        assert_eq!(chosen(None), Ok(0));
        assert_eq!(chosen(Some("1")), Ok(1));
        assert_eq!(chosen(Some("GPU-22222222-b")), Ok(1));
        assert_eq!(chosen(Some("GPU-2222")), Ok(1));
        let error = chosen(Some("2")).expect_err("there are two");
        assert!(error.to_string().contains("1 NVIDIA H200 (GPU-22222222-b)"), "{error}");
        assert_eq!(choose(&[], None).map(|gpu| gpu.index), Err(GpuError::None));
    }

    #[test]
    fn a_device_knows_its_architecture_and_the_names_for_expressions() {
        let device = device(&gpu(0, "GPU-1"), "580.1", vec![0, 1]);
        assert_eq!(device.gpu.as_ref().map(GpuTraits::architecture).as_deref(), Some("sm_90a"));
        let names: Vec<_> = device.names().into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(names, ["sms=132", "shared_max=232448"]);
        let older = GpuTraits { compute_capability: (8, 9), shared_bytes_max: 0, driver: String::new() };
        assert_eq!(older.architecture(), "sm_89");
    }

    #[test]
    fn a_slice_of_a_gpu_is_named_as_one() {
        let named =
            |name: &str, mig| device(&GpuInfo { name: name.into(), mig, ..gpu(0, "MIG-1") }, "580", vec![]).id.name;
        assert_eq!(named("NVIDIA H200", false), "NVIDIA H200");
        assert_eq!(named("NVIDIA H200", true), "NVIDIA H200 MIG");
        assert_eq!(named("NVIDIA H200 MIG 1g.18gb", true), "NVIDIA H200 MIG 1g.18gb");
    }

    #[test]
    fn an_answer_holds_for_one_driver_boot_and_choice() {
        let root = tempfile::tempdir().expect("a folder");
        assert!(!may_be_present(root.path()));
        let folder = root.path().join("proc/driver/nvidia");
        fs::create_dir_all(folder.join("gpus/0000:01:00.0")).expect("folders");
        fs::write(folder.join("version"), "NVRM version: 580.1\n").expect("a file");
        assert!(may_be_present(root.path()));
        let before = state(root.path(), None);
        assert_eq!(state(root.path(), None), before);
        assert_ne!(state(root.path(), Some("0")), before);
        fs::write(folder.join("version"), "NVRM version: 590.1\n").expect("a file");
        assert_ne!(state(root.path(), None), before);
    }
}
