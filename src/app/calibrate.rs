//! Measuring this host's peaks with the packages kernels/c/device/peak_fma and peak_stream.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::clocks::Held;
use super::experiment::{Control, Workspace, protocols};
use super::{Ledger, Machine, Project};
use crate::catalog::LookupError;
use crate::device::peaks::{self, PeaksError};
use crate::execute::{Trial, TrialsError};
use crate::manifest::ProtocolOverrides;
use crate::model::device::PeakSource;
use crate::model::{DType, KernelId, Language, Peaks, Shape, Version};
use crate::plan::{InstantiateError, Setting, instantiate, root_scope};

/// Package that multiplies and adds as fast as it can.
const FMA: &str = "peak_fma";
/// Package that streams through memory as fast as it can.
const STREAM: &str = "peak_stream";

/// The peaks could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    #[error("{0}; calibration needs kernels/c/device/{FMA} and kernels/c/device/{STREAM}")]
    Package(#[from] LookupError),
    #[error(transparent)]
    Instantiate(#[from] InstantiateError),
    #[error("{kernel}: {error}")]
    Trials { kernel: &'static str, error: TrialsError },
    #[error(transparent)]
    Peaks(#[from] PeaksError),
}

/// Measures the peaks of this host's CPU and keeps them for its compiler: the best of every variant that the packages
/// offer, on all cores. 16-bit types are computed in float32 by C kernels, so that one arithmetic peak holds for all.
///
/// # Errors
/// A package is missing or fails, or the result cannot be kept.
pub fn calibrate(
    project: &Project,
    machine: &Machine,
    ledger: &Ledger,
    control: &mut Control<'_>,
) -> Result<Peaks, CalibrateError> {
    let flops_per_s = best(project, machine, ledger, control, FMA, |flops, _| flops)?;
    let bytes_per_s = best(project, machine, ledger, control, STREAM, |_, bytes| bytes)?;
    let peaks = Peaks {
        flops_per_s: DType::ALL.into_iter().map(|dtype| (dtype, flops_per_s)).collect::<BTreeMap<_, _>>(),
        bytes_per_s,
        at_sm_mhz: BTreeMap::new(),
        source: PeakSource::Measured { taken_at: Timestamp::now() },
    };
    let toolchain = machine.backend.toolchain();
    peaks::save_measured(&project.cache(), &machine.host.device.id, toolchain, &peaks)?;
    Ok(peaks)
}

/// The highest rate of `kernel`'s variants: FLOPs or bytes a second, as `work` says.
fn best(
    project: &Project,
    machine: &Machine,
    ledger: &Ledger,
    control: &mut Control<'_>,
    kernel: &'static str,
    work: fn(f64, f64) -> f64,
) -> Result<f64, CalibrateError> {
    let id = KernelId { kernel: kernel.to_owned(), version: Version::BASE, language: Language::C };
    let package = project.catalog.package(&id)?;
    let shape = instantiate::complete_shape(package, &Shape::default(), &root_scope(&machine.host.device))?;
    let protocols = protocols(&project.conf, &ProtocolOverrides::default(), &machine.host.device, 1);
    let workspace = Workspace { project, machine, ledger };
    let setting = Setting { peaks: None, ..workspace.setting(&protocols) };
    let limit = project.conf.protocol.limits.run();
    let trials = workspace
        .with_session(setting, control, limit, &Held::default(), |mut session| session.trials(package, &shape))
        .map_err(|error| CalibrateError::Trials { kernel, error })?;
    let rate = |trial: &Trial| 1e9 * work(trial.flops, trial.bytes) / trial.median_ns;
    Ok(trials.iter().map(rate).fold(0.0, f64::max))
}
