//! What Nsight Compute prints about a hundred kernels, read and rendered: report.md and everything beside it.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use mlarun::conf::{Conf, CounterName};
use mlarun::model::Mode;
use mlarun::model::ncu::{Capability, KernelNames, Launch, LaunchId};
use mlarun::model::protocol::Counters;
use mlarun::model::quantity::Reading;
use mlarun::model::record::{AnnotationPass, Body, NcuRun, Record, RecordKind, StageMeasurement};
use mlarun::profiler::ncu::{counters, join, read_details, read_raw};
use mlarun::report::{Input, Outcome, Renderer, Report, Run};

use crate::Result;
use crate::figures::{Figure, Goal, repeat_ms};
use crate::project::{REPOSITORY, Temporary};
use crate::rendering;

const KERNELS: usize = 100;

pub fn hundred_kernels() -> Result<Vec<Figure>> {
    let project = Temporary::new()?;
    let conf = Conf::load(&project.root().join("conf"))?;
    let renderer = Renderer::load(&Path::new(REPOSITORY).join("templates"))?;
    let mut runs = rendering::runs(project.root())?;
    runs.truncate(1);
    let (raw, details) = (repeated("ncu-raw.csv", 2)?, repeated("ncu-details.csv", 1)?);
    let mut failure = None;
    let times = repeat_ms(5, || {
        failure = rendered(&raw, &details, &runs[0], &conf, &renderer).err().or(failure.take());
    });
    if let Some(failure) = failure {
        return Err(failure);
    }
    let what =
        format!("read and render {KERNELS} kernels of a full ncu report, {} MB", (raw.len() + details.len()) >> 20);
    Ok(vec![Figure::new(what, times, "ms", Goal::AtMost(1000.0))])
}

/// A captured page with its launches again and again, until there are as many as kernels; numbers of launches count on.
fn repeated(name: &str, header: usize) -> Result<String> {
    let file = Path::new(REPOSITORY).join("tests/captures").join(format!("{name}.gz"));
    let mut page = String::new();
    GzDecoder::new(std::fs::File::open(file)?).read_to_string(&mut page)?;
    let lines: Vec<&str> = page.lines().collect();
    let (head, rows) = lines.split_at(header);
    let mut text = head.join("\n");
    for number in 0..KERNELS {
        let (of, new) = (format!("\"{}\",", number % 3), format!("\"{number}\","));
        for row in rows.iter().filter_map(|row| row.strip_prefix(&of)) {
            text.push('\n');
            text.push_str(&new);
            text.push_str(row);
        }
    }
    text.push('\n');
    Ok(text)
}

fn rendered(raw: &str, details: &str, like: &Run, conf: &Conf, renderer: &Renderer) -> Result<()> {
    let raw = read_raw(raw, KernelNames::Function)?;
    let details = read_details(details, KernelNames::Function)?;
    let launches = join(raw, details)?.launches;
    if launches.len() != KERNELS {
        return Err(format!("{} launches", launches.len()).into());
    }
    let Outcome::Measured(records) = &like.outcome else { return Err("it is measured".into()) };
    let record = records.first().ok_or("a record")?;
    let stages = launches.into_iter().map(|launch| measured(launch, conf)).collect::<Result<_>>()?;
    let run = NcuRun { version: "2025.3.1".into(), asked: Vec::new(), sources: Vec::new(), report: None };
    let verification = record.body.verification().clone();
    let body = Body::Ncu(AnnotationPass { ncu: Some(run), stages, verification });
    let record = Record { kind: RecordKind::Ncu, body, ..record.clone() };
    let run = Run { mode: Mode::Ncu, outcome: Outcome::Measured(vec![record]), ..like.clone() };
    let input = Input { experiment: "many".into(), runs: vec![run], comparisons: vec![], gone: vec![], host: None };
    let report = Report::new(&input, &conf.thresholds)?;
    std::hint::black_box((report.profile(renderer, 0)?, report.files(0)?));
    Ok(())
}

fn measured(launch: Launch, conf: &Conf) -> Result<StageMeasurement> {
    let LaunchId { number, .. } = launch.id;
    let counted: BTreeMap<String, f64> = counters(&launch, Capability { major: 9, minor: 0 }, &conf.metrics)
        .into_iter()
        .filter_map(|(name, reading)| match reading {
            Reading::Number { value, .. } => Some((name.key().to_owned(), value)),
            _ => None,
        })
        .collect();
    let ns = *counted.get(CounterName::Duration.key()).ok_or("a duration")?;
    Ok(StageMeasurement {
        stage: format!("stage_{number}"),
        ns: vec![ns],
        counters: Counters::Counted(counted),
        launch: Some(launch),
    })
}
