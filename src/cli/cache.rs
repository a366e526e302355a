//! `mlarun cache`: recorded results, looked after.

use std::collections::BTreeSet;

use super::args::{CacheArgs, CacheCommand, Global};
use super::context;
use super::exit::{CliError, Exit};
use super::output;
use crate::app::{Project, devlogs};
use crate::model::Key;
use crate::report::numbers::counted;
use crate::store::Policy;

pub fn run(global: &Global, args: &CacheArgs) -> Result<Exit, CliError> {
    let project = context::project_here(global)?;
    match &args.command {
        CacheCommand::Ls => list(global, &project),
        CacheCommand::Show { key } => {
            output::json(&super::show::records(&project, key)?)?;
            Ok(Exit::Success)
        }
        CacheCommand::Verify => verify(global, &project),
        CacheCommand::Gc { keep, max_size, dry_run } => {
            let policy = policy(&project, keep.as_deref(), max_size.as_deref())?;
            gc(global, &project, &policy, *dry_run)
        }
    }
}

fn list(global: &Global, project: &Project) -> Result<Exit, CliError> {
    let ledger = context::ledger(project)?;
    let entries = ledger.store().ls().map_err(CliError::internal)?;
    if global.json {
        output::json(&entries)?;
        return Ok(Exit::Success);
    }
    let mut table = output::table(&["KEY", "KIND", "RUN", "SHAPE", "TAKEN", "BYTES"]);
    for entry in &entries {
        table.add_row([
            entry.key.short(),
            entry.kind.name().to_owned(),
            entry.id.to_string(),
            entry.shape.to_string(),
            entry.taken_at.strftime("%Y-%m-%d %H:%M:%S").to_string(),
            entry.stamp.bytes.to_string(),
        ]);
    }
    output::text(&output::table_text(&table))?;
    Ok(Exit::Success)
}

fn verify(global: &Global, project: &Project) -> Result<Exit, CliError> {
    let ledger = context::ledger(project)?;
    let report = ledger.store().verify().map_err(CliError::internal)?;
    if global.json {
        output::json(&report)?;
    } else {
        output::text(&format!("{} sound, {} set aside\n", counted(report.sound, "record"), report.set_aside.len()))?;
        for file in &report.set_aside {
            output::text(&format!("{}: {}; kept as {}\n", file.from.display(), file.reason, file.to.display()))?;
        }
    }
    Ok(if report.set_aside.is_empty() { Exit::Success } else { Exit::RunsFailed })
}

fn gc(global: &Global, project: &Project, policy: &Policy, dry_run: bool) -> Result<Exit, CliError> {
    // A session that runs has planned with what is there now, and reports it when it ends.
    let _lease = match dry_run {
        true => None,
        false => Some(super::run::acquire(global, None, false, &*context::interruptible()?)?),
    };
    let ledger = context::ledger(project)?;
    let mut store = ledger.store();
    let collected = if dry_run { store.would_collect(policy) } else { store.gc(policy) };
    let collected = collected.map_err(CliError::internal)?;
    if global.json {
        output::json(&collected)?;
    } else {
        let verb = if dry_run { "would be removed" } else { "removed" };
        output::text(&format!(
            "{}, {} {verb}\n",
            counted(collected.removed.len(), "file"),
            counted(collected.bytes, "byte")
        ))?;
    }
    Ok(Exit::Success)
}

/// The policy of `--keep` and `--max-size`; what dev logs refer to is pinned.
fn policy(project: &Project, keep: Option<&str>, max_size: Option<&str>) -> Result<Policy, CliError> {
    if keep.is_none() && max_size.is_none() {
        return Err(CliError::usage("say what to keep: --keep 90d, --max-size 20G, or both"));
    }
    let records = devlogs::recorded_kernels(project).map_err(CliError::usage)?;
    let pinned: BTreeSet<Key> = records.values().flatten().map(|record| record.key).collect();
    let taken_before = keep.map(age).transpose()?.map(|age| jiff::Timestamp::now() - age);
    Ok(Policy { taken_before, max_bytes: max_size.map(size).transpose()?, pinned })
}

/// `90d`, `12h`, `2w`.
fn age(text: &str) -> Result<jiff::SignedDuration, CliError> {
    let wrong = || CliError::usage(format!("--keep {text}: an age is a number with h, d or w, e.g. 90d"));
    let hours = match text.chars().last() {
        Some('h') => 1,
        Some('d') => 24,
        Some('w') => 7 * 24,
        _ => return Err(wrong()),
    };
    let count: i64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    let hours = count.checked_mul(hours).filter(|hours| (0..=24 * 36_500).contains(hours)).ok_or_else(wrong)?;
    Ok(jiff::SignedDuration::from_hours(hours))
}

/// `20G`, `500M`, `1T`, or bytes.
fn size(text: &str) -> Result<u64, CliError> {
    let wrong = || CliError::usage(format!("--max-size {text}: a size is a number with K, M, G or T, e.g. 20G"));
    let (digits, unit) = match text.chars().last() {
        Some('K') => (&text[..text.len() - 1], 1 << 10),
        Some('M') => (&text[..text.len() - 1], 1 << 20),
        Some('G') => (&text[..text.len() - 1], 1 << 30),
        Some('T') => (&text[..text.len() - 1], 1 << 40),
        _ => (text, 1),
    };
    let count: u64 = digits.parse().map_err(|_| wrong())?;
    count.checked_mul(unit).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_sizes_have_units() {
        assert_eq!(age("90d").ok(), Some(jiff::SignedDuration::from_hours(90 * 24)));
        assert_eq!(size("20G").ok(), Some(20 << 30));
        assert_eq!(size("17").ok(), Some(17));
        for wrong in ["", "d", "90", "-1d", "9999999999999999d", "1µ"] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "G", "-1G", "99999999999999999T"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
