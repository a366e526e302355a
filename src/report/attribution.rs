//! What may have made a candidate slower: everything in which two records differ, and the metrics that moved between two
//! annotations. It names suspects and claims nothing. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::differences::differences;
use super::numbers::{cell, change_of_time, fixed};
use crate::model::protocol::Counters;
use crate::model::record::{AnnotationPass, Body, Record, StageCode};
use crate::stats::median;

/// Names that one line lists at most.
const MOST_NAMES: usize = 6;

/// Smallest change of a stage's time, as a fraction, and of a percentage, in points, that is worth a line.
const LEAST_CHANGE: f64 = 0.02;
const LEAST_POINTS: f64 = 2.0;

/// In what `candidate` differs from `baseline`: sources, flags, macros, launches, tiling, machine code and what it takes of a
/// multiprocessor, compiler, driver, clocks, revision.
pub fn attribution(baseline: &Record, candidate: &Record) -> Vec<String> {
    let mut found = builds(baseline, candidate);
    found.extend(launches(baseline, candidate));
    let (old, new) = (baseline.tiling.to_string(), candidate.tiling.to_string());
    if old != new {
        found.push(format!("tiling ({} → {})", cell(&old), cell(&new)));
    }
    found.extend(code(&baseline.code, &candidate.code));
    found.extend(differences(baseline, candidate));
    let (old, new) = (&baseline.environment.git_revision, &candidate.environment.git_revision);
    if let (Some(old), Some(new)) = (old, new)
        && old != new
    {
        let short = |revision: &str| cell(&revision.chars().take(12).collect::<String>());
        found.push(format!("revision ({} → {})", short(old), short(new)));
    }
    found
}

/// What the builds of two records are made of, by stage.
fn builds_of(record: &Record) -> BTreeMap<&str, &Value> {
    let builds = record.material.get("subject").and_then(|subject| subject.get("builds")).and_then(Value::as_object);
    builds.into_iter().flatten().map(|(stage, build)| (stage.as_str(), build)).collect()
}

fn builds(baseline: &Record, candidate: &Record) -> Vec<String> {
    let (old, new) = (builds_of(baseline), builds_of(candidate));
    let mut found = Vec::new();
    let only = |of: &BTreeMap<&str, &Value>, other: &BTreeMap<&str, &Value>| {
        listed(of.keys().filter(|stage| !other.contains_key(*stage)).map(|stage| (*stage).to_owned()))
    };
    found.extend(only(&old, &new).map(|stages| format!("stages of the baseline alone ({stages})")));
    found.extend(only(&new, &old).map(|stages| format!("stages of the candidate alone ({stages})")));
    let both = || old.iter().filter_map(|(stage, old)| Some((*stage, *old, *new.get(stage)?)));
    let sources: BTreeSet<String> =
        both().flat_map(|(_, old, new)| differing(&old["sources"], &new["sources"])).collect();
    found.extend(listed(sources.into_iter()).map(|files| format!("source ({files})")));
    for (part, name) in [("flags", "flags"), ("defines", "macros")] {
        let stages = both().filter(|(_, old, new)| old[part] != new[part]).map(|(stage, ..)| stage.to_owned());
        found.extend(listed(stages).map(|stages| format!("{name} of {stages}")));
    }
    found
}

fn launches(baseline: &Record, candidate: &Record) -> Option<String> {
    let of = |record: &Record| -> BTreeMap<String, Value> {
        let launches = record.material.get("subject").and_then(|subject| subject.get("launches"));
        let stages = launches.and_then(Value::as_array).into_iter().flatten();
        stages.filter_map(|stage| Some((stage.get("name")?.as_str()?.to_owned(), stage.clone()))).collect()
    };
    let (old, new) = (of(baseline), of(candidate));
    let differ = old.into_iter().filter(|(name, stage)| new.get(name).is_some_and(|other| other != stage));
    listed(differ.map(|(name, _)| name)).map(|stages| format!("launch of {stages}"))
}

/// Keys at which two objects differ.
fn differing(old: &Value, new: &Value) -> Vec<String> {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return Vec::new() };
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    keys.into_iter().filter(|key| old.get(*key) != new.get(*key)).cloned().collect()
}

fn code(old: &[StageCode], new: &[StageCode]) -> Vec<String> {
    let both = || old.iter().filter_map(|old| Some((old, new.iter().find(|new| new.stage == old.stage)?)));
    let other = both().filter(|(old, new)| old.code_sha256 != new.code_sha256).map(|(old, _)| old.stage.clone());
    let mut found: Vec<String> = listed(other).map(|stages| format!("machine code of {stages}")).into_iter().collect();
    for (old, new) in both() {
        let (Some(had), Some(has)) = (old.resources, new.resources) else { continue };
        let rows = [
            ("registers", u64::from(had.registers), u64::from(has.registers)),
            ("static shared bytes", had.shared_bytes, has.shared_bytes),
            ("spilled bytes", had.spill_store_bytes, has.spill_store_bytes),
        ];
        let stage = cell(&new.stage);
        let changed = rows.into_iter().filter(|(_, had, has)| had != has);
        found.extend(changed.map(|(what, had, has)| format!("{what} of {stage} ({had} → {has})")));
    }
    found
}

/// Names in a row, the last ones counted; `None` without any.
fn listed(names: impl Iterator<Item = String>) -> Option<String> {
    let names: Vec<String> = names.map(|name| cell(&name)).collect();
    let further = names.len().saturating_sub(MOST_NAMES);
    let mut text = names.iter().take(MOST_NAMES).cloned().collect::<Vec<_>>().join(", ");
    if further > 0 {
        text.push_str(&format!(" and {further} more"));
    }
    (!names.is_empty()).then_some(text)
}

/// The metrics that moved between the annotations of two sides: times of stages, and counters that are percentages.
pub fn moved(baseline: &Record, candidate: &Record) -> Vec<String> {
    let (Some(old), Some(new)) = (pass(baseline), pass(candidate)) else { return Vec::new() };
    let mut found = Vec::new();
    for now in &new.stages {
        let Some(before) = old.stages.iter().find(|before| before.stage == now.stage) else { continue };
        let stage = cell(&now.stage);
        if let (Ok(was), Ok(is)) = (median(&before.ns), median(&now.ns))
            && (is / was - 1.0).abs() >= LEAST_CHANGE
        {
            found.push(format!("time of {stage} ({})", change_of_time(Some(was), Some(is))));
        }
        let (Counters::Counted(was), Counters::Counted(is)) = (&before.counters, &now.counters) else { continue };
        for (name, is) in is {
            let Some(was) = was.get(name) else { continue };
            let is_percentage = (0.0..=100.0).contains(was) && (0.0..=100.0).contains(is);
            let has_moved =
                if is_percentage { (is - was).abs() >= LEAST_POINTS } else { (is / was - 1.0).abs() >= LEAST_CHANGE };
            if has_moved && was.is_finite() && is.is_finite() {
                let text = |value: f64| fixed(Some(value), if is_percentage { 1 } else { 0 });
                found.push(format!("{} of {stage} ({} → {})", cell(name), text(*was), text(*is)));
            }
        }
    }
    found
}

fn pass(record: &Record) -> Option<&AnnotationPass> {
    match &record.body {
        Body::Annotation(pass) | Body::Ncu(pass) => Some(pass),
        Body::Event(_) | Body::Timeline(_) | Body::Verification { .. } => None,
    }
}
