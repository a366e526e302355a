//! `mlarun clocks`: shows, locks and resets the clocks of GPUs; and what other commands do about clocks that a dead
//! program has left locked.

use serde::Serialize;

use super::args::{ClocksArgs, ClocksCommand, Global};
use super::context;
use super::exit::{CliError, Exit};
use super::output;
use crate::conf::Conf;
use crate::device::clocks::{self, Noted, POLICY_VARIABLE, Recovered};
use crate::device::lease;
use crate::device::nvml::{Gpu, Nvml};
use crate::manifest::ClockPolicy;
use crate::model::clocks::{Frequencies, Reading};

pub fn run(global: &Global, args: &ClocksArgs) -> Result<Exit, CliError> {
    match args.command {
        ClocksCommand::Status => status(global),
        ClocksCommand::Lock { sm_mhz, mem_mhz } => lock(global, sm_mhz, mem_mhz),
        ClocksCommand::Reset { stale: true } => {
            must_not_observe(global)?;
            recover(global)?;
            Ok(Exit::Success)
        }
        ClocksCommand::Reset { stale: false } => reset(global),
    }
}

/// Gives back what runs that are gone have left locked, and says so.
pub fn recover(global: &Global) -> Result<(), CliError> {
    let policy = clocks::overriding(global.clocks).map_err(CliError::usage)?;
    for recovered in clocks::recover_all(&lease::folder(), policy != Some(ClockPolicy::Observe)) {
        match recovered {
            Recovered::Reset { gpu, by } => {
                let by = by.map_or_else(String::new, |by| format!(" of {by}"));
                output::note(&format!("clocks: {gpu}: reset; a run{by} had ended without"));
            }
            Recovered::Left { uuid, reason } => {
                output::note(&format!("warning: {uuid}: a run that is gone has left its clocks locked: {reason}"));
            }
        }
    }
    Ok(())
}

/// The GPUs that `--device` means.
fn gpus(global: &Global) -> Result<Vec<(usize, Gpu)>, CliError> {
    let gpus = Nvml::open().and_then(|nvml| nvml.gpus()).map_err(CliError::host)?;
    let all: Vec<(usize, Gpu)> = gpus.into_iter().enumerate().collect();
    let asked = match global.device.as_deref() {
        None | Some("gpu") => return Ok(all),
        Some("cpu") => return Err(CliError::usage("the clocks of a CPU are left alone; name a GPU, or none for all")),
        Some(asked) => asked,
    };
    let is_meant = |(index, gpu): &(usize, Gpu)| {
        asked.parse() == Ok(*index) || gpu.uuid() == asked || (asked.len() >= 8 && gpu.uuid().starts_with(asked))
    };
    let known = all.iter().map(|(index, gpu)| format!("{index} {gpu}")).collect::<Vec<_>>().join(", ");
    match all.into_iter().find(is_meant) {
        Some(gpu) => Ok(vec![gpu]),
        None => Err(CliError::usage(format!("no GPU `{asked}`; there are: {known}"))),
    }
}

/// What forbids changing clocks, as an error.
fn must_not_observe(global: &Global) -> Result<(), CliError> {
    if clocks::overriding(global.clocks).map_err(CliError::usage)? != Some(ClockPolicy::Observe) {
        return Ok(());
    }
    Err(CliError::host(if !cfg!(feature = "clock-control") {
        "this program was built without the cargo feature `clock-control` and changes no clock".to_owned()
    } else if global.clocks == Some(ClockPolicy::Observe) {
        "`--clocks observe` changes no clock".to_owned()
    } else {
        format!("{POLICY_VARIABLE}=observe: clocks are not to be changed on this host")
    }))
}

fn lock(global: &Global, sm_mhz: Option<u32>, mem_mhz: Option<u32>) -> Result<Exit, CliError> {
    must_not_observe(global)?;
    // Outside a project, what is built in is known of devices.
    let conf = context::project_here(global).map_or_else(|_| Conf::default(), |project| project.conf);
    for (_, gpu) in gpus(global)? {
        let known = conf.devices.device(gpu.name());
        let Some(sm_mhz) = sm_mhz.or(known.and_then(|device| device.lock_sm_mhz)) else {
            return Err(CliError::usage(format!("{gpu}: no clock is known that it holds; name one with --sm-mhz")));
        };
        let mem_mhz = mem_mhz.or(known.and_then(|device| device.lock_mem_mhz));
        let asked = Frequencies { sm_mhz, mem_mhz };
        let locked = clocks::lock(&gpu, asked, &lease::folder()).map_err(CliError::host)?;
        output::note(&format!(
            "{gpu}: locked at {locked} until `mlarun clocks reset`{}",
            if locked == asked { "" } else { "; its memory clock cannot be locked" }
        ));
    }
    Ok(Exit::Success)
}

fn reset(global: &Global) -> Result<Exit, CliError> {
    must_not_observe(global)?;
    for (_, gpu) in gpus(global)? {
        clocks::reset(&gpu, &lease::folder()).map_err(CliError::host)?;
        output::note(&format!("{gpu}: clocks reset"));
    }
    Ok(Exit::Success)
}

/// The clocks of one GPU, for people and programs.
#[derive(Serialize)]
struct Status {
    /// Number in `nvidia-smi`.
    index: usize,
    uuid: String,
    name: String,
    #[serde(flatten)]
    reading: Reading,
    /// What mlarun knows to be locked; a lock that someone else made shows in the clock alone.
    locked: Option<LockStatus>,
}

#[derive(Serialize)]
struct LockStatus {
    #[serde(flatten)]
    frequencies: Frequencies,
    pid: u32,
    command: String,
    since: jiff::Timestamp,
    /// `command`, `run`, or `stale`: of a run that is gone.
    kind: &'static str,
}

fn status(global: &Global) -> Result<Exit, CliError> {
    let mut all = Vec::new();
    for (index, gpu) in gpus(global)? {
        let reading = gpu.read().map_err(CliError::host)?;
        let (noted, is_taken) = clocks::look(&lease::folder(), gpu.uuid()).map_err(CliError::host)?;
        let locked = noted.and_then(|noted| lock_status(noted, is_taken));
        all.push(Status { index, uuid: gpu.uuid().to_owned(), name: gpu.name().to_owned(), reading, locked });
    }
    if global.json {
        output::json(&all)?;
    } else {
        all.iter().try_for_each(|status| output::text(&text(status)))?;
    }
    Ok(Exit::Success)
}

fn lock_status(noted: Noted, is_taken: bool) -> Option<LockStatus> {
    let (locked, kind) = match (noted.held, noted.kept) {
        (Some(held), _) => (held, if is_taken { "run" } else { "stale" }),
        (None, Some(kept)) if noted.boot == clocks::boot() => (kept, "command"),
        (None, _) => return None,
    };
    let lease::Holder { pid, command, since } = locked.by;
    Some(LockStatus { frequencies: locked.frequencies, pid, command, since, kind })
}

fn text(status: &Status) -> String {
    let Status { index, uuid, name, reading, locked } = status;
    let told = |value: Option<String>| value.unwrap_or_else(|| "--".to_owned());
    let mut text = format!(
        "{index} {name} ({uuid})\n  SM {} MHz, memory {} MHz, {} W, {} °C\n",
        told(reading.sm_mhz.map(|mhz| mhz.to_string())),
        told(reading.mem_mhz.map(|mhz| mhz.to_string())),
        told(reading.power_w.map(|watts| format!("{watts:.0}"))),
        told(reading.temperature_c.map(|degrees| degrees.to_string())),
    );
    if !reading.throttle.is_empty() {
        text.push_str(&format!("  held down by: {}\n", reading.throttle.join(", ")));
    }
    if !reading.processes.is_empty() {
        let numbers: Vec<String> = reading.processes.iter().map(u32::to_string).collect();
        text.push_str(&format!("  processes: {}\n", numbers.join(", ")));
    }
    text.push_str(&match locked {
        None => "  not locked by mlarun\n".to_owned(),
        Some(LockStatus { frequencies, pid, command, since, kind }) => {
            let by = format!("process {pid} (`{command}`, since {since})");
            match *kind {
                "stale" => format!("  left locked at {frequencies} by {by}, which is gone; `mlarun clocks reset`\n"),
                _ => format!("  locked at {frequencies} by {by}\n"),
            }
        }
    });
    text
}
