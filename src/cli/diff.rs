//! `mlarun diff`: two recorded results, field by field.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::args::{DiffArgs, Global};
use super::context;
use super::exit::{CliError, Exit};
use super::output;
use crate::app::Project;
use crate::model::record::{Body, Record, RecordKind};
use crate::plan::{Change, changes};
use crate::report::numbers::counted;
use crate::stats;

pub fn run(global: &Global, args: &DiffArgs) -> Result<Exit, CliError> {
    let project = context::project_here(global)?;
    let (old, new) = (newest(&project, &args.a)?, newest(&project, &args.b)?);
    let mut compared = Vec::new();
    for (kind, (old, of_old)) in &old {
        if let Some((new, of_new)) = new.get(kind) {
            // What was measured comes first: it is what most people look for.
            let (mut changes, rest): (Vec<Change>, Vec<Change>) =
                changes(&fields(old), &fields(new)).into_iter().partition(|change| change.path.starts_with("measured"));
            changes.extend(rest);
            compared.push(Compared { old, of_old: *of_old, new, of_new: *of_new, changes });
        }
    }
    if compared.is_empty() {
        return Err(CliError::usage(format!(
            "`{}` and `{}` have no kind of result in common; `mlarun show` says what is recorded of each",
            args.a, args.b
        )));
    }
    if global.json {
        output::json(&compared.iter().map(Compared::json).collect::<Vec<_>>())?;
    } else {
        compared.iter().try_for_each(|compared| output::text(&compared.text()))?;
    }
    Ok(Exit::Success)
}

/// The newest record of each kind under `prefix`, with the number of records of its key.
fn newest(project: &Project, prefix: &str) -> Result<BTreeMap<RecordKind, (Record, usize)>, CliError> {
    let records = super::show::records(project, prefix)?;
    let mut newest: BTreeMap<RecordKind, (Record, usize)> = BTreeMap::new();
    for record in &records {
        let is_older = |(known, _): &(Record, usize)| known.position.taken_at <= record.position.taken_at;
        if newest.get(&record.kind).is_none_or(is_older) {
            let of_key = records.iter().filter(|other| other.kind == record.kind && other.key == record.key).count();
            newest.insert(record.kind, (record.clone(), of_key));
        }
    }
    Ok(newest)
}

/// Two records with what differs.
struct Compared<'a> {
    old: &'a Record,
    /// Records of its key.
    of_old: usize,
    new: &'a Record,
    of_new: usize,
    changes: Vec<Change>,
}

impl Compared<'_> {
    fn json(&self) -> Value {
        json!({ "kind": self.old.kind, "a": self.old.key, "b": self.new.key, "changes": self.changes })
    }

    fn text(&self) -> String {
        let side = |name: &str, record: &Record, count: usize| {
            format!(
                "  {name}: {} {}, {}, the newest of {}, taken {}\n",
                record.labels.id,
                record.labels.shape,
                record.key.short(),
                counted(count, "record"),
                record.position.taken_at
            )
        };
        let mut text = format!("{}\n", self.old.kind.name());
        text.push_str(&side("a", self.old, self.of_old));
        text.push_str(&side("b", self.new, self.of_new));
        self.changes.iter().for_each(|change| text.push_str(&format!("    {change}\n")));
        if self.changes.is_empty() {
            text.push_str("    nothing differs\n");
        }
        text.push('\n');
        text
    }
}

/// Everything of a record but its key and its samples, of which the medians stand.
fn fields(record: &Record) -> Value {
    let medians = |samples: &mut dyn Iterator<Item = (String, &[f64])>| -> Value {
        samples
            .map(|(name, ns)| (name, stats::median(ns).map_or(Value::Null, Value::from)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let (measured, verification) = match &record.body {
        Body::Event(set) => {
            let mut samples = set.samples.iter().map(|samples| (samples.timing.to_string(), &samples.ns[..]));
            let warmup = json!({ "launches": set.warmup_launches, "ns": set.warmup_ns, "steady": set.steady });
            let measured = json!({ "median_ns": medians(&mut samples), "sm_mhz": set.sm_mhz, "warmup": warmup });
            (measured, json!(set.verification))
        }
        Body::Annotation(pass) | Body::Ncu(pass) => {
            let mut samples = pass.stages.iter().map(|stage| (stage.stage.clone(), &stage.ns[..]));
            let counters: serde_json::Map<String, Value> =
                pass.stages.iter().map(|stage| (stage.stage.clone(), json!(stage.counters))).collect();
            (json!({ "median_ns": medians(&mut samples), "counters": counters }), json!(pass.verification))
        }
        // Its times are not clean, and none is put beside another one.
        Body::Timeline(run) => {
            (json!({ "tracer": run.tracer, "launches": run.launches, "stages": run.stages }), json!(run.verification))
        }
        Body::Verification { whole, own_shape } => (Value::Null, json!({ "reduced": whole, "own_shape": own_shape })),
    };
    json!({
        "labels": record.labels,
        "tiling": record.tiling,
        "code": record.code.iter().map(|code| (code.stage.clone(), json!(code))).collect::<serde_json::Map<_, _>>(),
        "environment": record.environment,
        "position": record.position,
        "depends_on": record.material,
        "measured": measured,
        "verification": verification,
    })
}
