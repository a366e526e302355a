//! `mlarun device`: the active device and its peaks.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::args::{DeviceArgs, DeviceCommand, Global};
use super::context::{self, Opened};
use super::exit::{CliError, Exit};
use super::output;
use super::progress::Progress;
use crate::app::{self, CalibrateError, Control};
use crate::execute::TrialsError;
use crate::model::device::PeakSource;
use crate::model::{DType, Device, Peaks};
use crate::report::calibration;
use crate::report::numbers::counted;

pub fn run(global: &Global, args: &DeviceArgs) -> Result<Exit, CliError> {
    let mut opened = Opened::of(global, context::project_here(global)?, context::host_kind(global))?;
    if args.command == DeviceCommand::Calibrate {
        if opened.machine.gpu.is_some() {
            let message = "the peaks of a GPU are those of conf/devices.toml; `--device cpu` measures those of the CPU";
            return Err(CliError::usage(message));
        }
        warn_if_busy(global);
        let interrupted = context::interruptible()?;
        let lease = super::run::acquire(global, None, false, &interrupted)?;
        let peaks = calibrate(global, &opened, &interrupted).map_err(calibrate_error)?;
        drop(lease);
        opened.machine.peaks = Some(peaks);
    }
    let (device, peaks) = (&opened.machine.host.device, opened.machine.peaks.as_ref());
    let workspace = opened.workspace();
    let clocks = workspace.calibration_clocks().map_err(super::calibrate::sitting_error)?;
    let verdicts = workspace.host_calibration(&clocks).map_err(CliError::host)?;
    if global.json {
        output::json(&serde_json::json!({ "device": device, "peaks": peaks, "verdicts": verdicts }))?;
    } else {
        let verdicts = match &verdicts {
            Some(host) => format!("verdicts: {}\n", calibration::sentence(host)),
            None => "verdicts: not calibrated; run `mlarun calibrate`\n".to_owned(),
        };
        output::text(&(text(device, peaks) + &verdicts))?;
    }
    Ok(Exit::Success)
}

/// Says that what else runs on this host lowers its measured peaks.
pub fn warn_if_busy(global: &Global) {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: Option<f64> = load.split(' ').next().and_then(|first| first.parse().ok());
    if let Some(load) = load.filter(|load| *load > 0.5 && global.quiet == 0) {
        output::note(&format!(
            "warning: this host is busy (load {load:.1}), so that its peaks may come out too low; repeat \
             `mlarun device calibrate` when it is quiet"
        ));
    }
}

/// Measures this host's peaks.
pub fn calibrate(global: &Global, opened: &Opened, interrupted: &Arc<AtomicBool>) -> Result<Peaks, CalibrateError> {
    let mut progress = Progress::new(global, 0.0);
    let mut control = Control {
        observer: &mut progress,
        interrupted: Arc::clone(interrupted),
        fail_fast: true,
        worker: std::env::current_exe().unwrap_or_else(|_| "mlarun".into()),
        tape: None,
    };
    app::calibrate(&opened.project, &opened.machine, &opened.ledger, &mut control)
}

/// Exit code of a calibration that failed.
pub fn calibrate_error(error: CalibrateError) -> CliError {
    match error {
        CalibrateError::Trials { error: TrialsError::Interrupted, .. } => {
            CliError::Message(Exit::Interrupted, "interrupted".to_owned())
        }
        CalibrateError::Trials { error: TrialsError::Failed(failure), kernel } => {
            CliError::Message(Exit::RunsFailed, format!("{kernel}: {failure}"))
        }
        CalibrateError::Package(_) | CalibrateError::Instantiate(_) => CliError::usage(error),
        error => CliError::host(error),
    }
}

fn text(device: &Device, peaks: Option<&Peaks>) -> String {
    let gib = device.memory_bytes as f64 / f64::from(1 << 30);
    let mut text = format!("{}, {}, {gib:.1} GiB for buffers\n", device.id.name, counted(device.id.units, "core"));
    let Some(peaks) = peaks else {
        return text + "peaks: not measured; run `mlarun device calibrate`\n";
    };
    let source = match &peaks.source {
        PeakSource::Measured { taken_at } => format!("measured {}", taken_at.strftime("%Y-%m-%d %H:%M UTC")),
        PeakSource::Datasheet { source } => format!("theoretical, {source}"),
    };
    text.push_str(&format!("peaks ({source}):\n  memory    {:9.2} GB/s\n", peaks.bytes_per_s / 1e9));
    for dtype in DType::ALL {
        if let (Some(flops), Some(ridge)) = (peaks.flops_per_s.get(&dtype), peaks.ridge_point(dtype)) {
            text.push_str(&format!("  {dtype:<9} {:9.2} GFLOP/s, ridge point {ridge:.2} FLOP/byte\n", flops / 1e9));
        }
    }
    text
}
