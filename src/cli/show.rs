//! `mlarun show`: everything that is recorded of a run, or of a subject in all its modes.

use std::collections::BTreeMap;

use super::args::{Global, ShowArgs};
use super::context;
use super::exit::{CliError, Exit};
use super::output;
use crate::app::{Ledger, Project};
use crate::model::Key;
use crate::model::clocks::Telemetry;
use crate::model::record::{Body, Environment, Record, StageCode, TimelineRun};
use crate::report::numbers::{counted, duration};
use crate::report::{timeline_agreement, timeline_summary};
use crate::stats;

pub fn run(global: &Global, args: &ShowArgs) -> Result<Exit, CliError> {
    let project = context::project_here(global)?;
    let records = records(&project, &args.key)?;
    if global.json {
        output::json(&records)?;
    } else {
        records.iter().try_for_each(|record| output::text(&text(record)))?;
        for agreement in agreements(&records) {
            output::text(&agreement)?;
        }
    }
    Ok(Exit::Success)
}

/// The records whose own key, or whose subject's, starts with `prefix`.
pub fn records(project: &Project, prefix: &str) -> Result<Vec<Record>, CliError> {
    let is_prefix = !prefix.is_empty() && prefix.len() <= 64 && prefix.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_prefix {
        return Err(CliError::usage(format!(
            "`{prefix}` is no key; `mlarun cache ls` and `mlarun plan --json` show keys"
        )));
    }
    let ledger: Ledger = context::ledger(project)?;
    let entries = ledger.store().ls().map_err(CliError::internal)?;
    let starts = |key: &Key| key.to_string().starts_with(&prefix.to_lowercase());
    let mut keys: Vec<_> = entries
        .iter()
        .filter(|entry| starts(&entry.key) || starts(&entry.subject))
        .map(|entry| (entry.kind, entry.key))
        .collect();
    keys.sort();
    keys.dedup();
    let mut records = Vec::new();
    for (kind, key) in keys {
        records.extend(ledger.store().get(kind, &key).map_err(CliError::internal)?);
    }
    if records.is_empty() {
        return Err(CliError::usage(format!("nothing is recorded under `{prefix}`; `mlarun cache ls` shows what is")));
    }
    Ok(records)
}

/// Of each subject that two tools have traced, how they agree.
fn agreements(records: &[Record]) -> Vec<String> {
    let mut timelines: BTreeMap<Key, Vec<&TimelineRun>> = BTreeMap::new();
    for record in records {
        if let Body::Timeline(run) = &record.body {
            timelines.entry(record.subject).or_default().push(run);
        }
    }
    let line = |(subject, runs): (Key, Vec<&TimelineRun>)| {
        Some(format!("subject {}: {}\n", subject.short(), timeline_agreement(runs)?))
    };
    timelines.into_iter().filter_map(line).collect()
}

fn text(record: &Record) -> String {
    let environment = &record.environment;
    let clocks = if environment.clocks_locked { "locked clocks" } else { "unlocked clocks" };
    let git = environment.git_revision.as_deref().map_or("unknown".to_owned(), |revision| {
        let dirty = if environment.git_dirty == Some(true) { ", with local changes" } else { "" };
        format!("{}{dirty}", &revision[..revision.len().min(12)])
    });
    let mut text = format!(
        "{} {}\n  {} {}, subject {}\n  taken {} in session {}, round {} position {}\n  tiling {}\n  \
         device {} ({}), {clocks}; host {}; {}\n  compiler {}; mlarun {}; git {git}\n",
        record.labels.id,
        record.labels.shape,
        record.kind.name(),
        record.key,
        record.subject.short(),
        record.position.taken_at,
        record.position.session,
        record.position.round,
        record.position.position,
        record.tiling,
        environment.device.id.name,
        counted(environment.device.id.units, "unit"),
        host_with(environment),
        environment.os,
        environment.compiler,
        environment.mlarun,
    );
    text.extend(record.code.iter().map(code));
    text.push_str(&body(&record.body));
    if let Some(seen) = &environment.telemetry {
        text.push_str(&telemetry(seen));
    }
    text.push('\n');
    text
}

/// The GPU as NVML saw it, `--` for what it did not tell.
fn telemetry(seen: &Telemetry) -> String {
    fn told<T: ToString>(value: Option<T>) -> String {
        value.map_or_else(|| "--".to_owned(), |value| value.to_string())
    }
    let yes_no = |value: Option<bool>| told(value.map(|value| if value { "on" } else { "off" }));
    let asked = seen.clocks.held().map_or_else(|| "none held".to_owned(), |held| format!("{held} held"));
    let board = &seen.board;
    let mut text = format!(
        "  clocks: {asked}\n  board: driver {}, VBIOS {}, PCIe {}, MIG {}, ECC {}, persistence {}, power cap {} W\n",
        told(board.driver.as_ref()),
        told(board.vbios.as_ref()),
        told(board.pcie.map(|(generation, lanes)| format!("generation {generation} x{lanes}"))),
        yes_no(board.mig),
        yes_no(board.ecc),
        yes_no(board.persistence),
        told(board.power_cap_w),
    );
    for (when, reading) in [("before", &seen.before), ("after", &seen.after)] {
        text.push_str(&format!(
            "  {when}: SM {} MHz, memory {} MHz, {} W, {} °C{}\n",
            told(reading.sm_mhz),
            told(reading.mem_mhz),
            told(reading.power_w),
            told(reading.temperature_c),
            if reading.throttle.is_empty() { String::new() } else { format!("; {}", reading.throttle.join(", ")) },
        ));
    }
    for taint in &seen.taints {
        text.push_str(&format!("  tainted: {taint}\n"));
    }
    text
}

/// The host, with its CPU where the device is another one.
fn host_with(environment: &Environment) -> String {
    let cpu = environment.cpu.as_ref().map(|cpu| format!(" ({cpu})")).unwrap_or_default();
    format!("{}{cpu}", environment.host)
}

/// The machine code of a stage.
fn code(code: &StageCode) -> String {
    let resources = code.resources.map(|resources| {
        format!(
            ", {}, {} B shared, {} B stack, spills {} B stored, {} B loaded",
            counted(resources.registers, "register"),
            resources.shared_bytes,
            resources.stack_bytes,
            resources.spill_store_bytes,
            resources.spill_load_bytes
        )
    });
    format!("  code of {} {}{}\n", code.stage, code.code_sha256.short(), resources.unwrap_or_default())
}

fn body(body: &Body) -> String {
    match body {
        Body::Event(set) => {
            let mut text = format!(
                "  warm-up {}, {}{}\n",
                counted(set.warmup_launches, "launch"),
                duration(set.warmup_ns as f64),
                if set.steady { "" } else { ", not steady" }
            );
            for samples in &set.samples {
                text.push_str(&format!(
                    "  {:<14} {} ({} of {}{})\n",
                    samples.timing,
                    median(&samples.ns),
                    counted(samples.ns.len(), "sample"),
                    counted(samples.launches_per_sample, "launch"),
                    if samples.converged { "" } else { ", budget spent" }
                ));
            }
            text + &verification("timed launches", &set.verification)
        }
        Body::Annotation(pass) | Body::Ncu(pass) => {
            let stages = pass.stages.iter().map(|stage| {
                format!("  stage {:<12} {} ({})\n", stage.stage, median(&stage.ns), counted(stage.ns.len(), "sample"))
            });
            stages.collect::<String>() + &verification("output", &pass.verification)
        }
        Body::Timeline(run) => {
            let files: String = run.files.iter().map(|file| format!("  file {}\n", file.name)).collect();
            format!("  {}\n{files}", timeline_summary(run)) + &verification("traced launches", &run.verification)
        }
        Body::Verification { whole, own_shape } => {
            verification("reduced shape", whole) + &verification("own shape", own_shape)
        }
    }
}

fn median(ns: &[f64]) -> String {
    stats::median(ns).map_or("--".to_owned(), duration)
}

fn verification(of: &str, verification: &crate::model::protocol::Verification) -> String {
    format!(
        "  {of}: relative error {:.2e}, worst row {:.2e}, {} of {} rows compared, output {}{}\n",
        verification.relative_frobenius,
        verification.worst_row,
        verification.rows_compared,
        verification.rows_total,
        verification.output_sha256.get(..12).unwrap_or_default(),
        match verification.same_bits {
            Some(true) => ", the same bits twice",
            Some(false) => ", not deterministic: two launches left different bits",
            None => "",
        }
    )
}
