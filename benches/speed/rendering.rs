//! Everything that a thousand records are rendered to: the experiment's report and results, and a report each.

use std::collections::BTreeMap;
use std::path::Path;

use mlarun::conf::Conf;
use mlarun::model::device::PeakSource;
use mlarun::model::record::{Body, Environment, Labels, Record, RecordKind};
use mlarun::model::{DType, KernelId, Key, Language, Mode, Peaks, Shape, Tiling, Value, Version};
use mlarun::pairs::{Standing, Unjudged};
use mlarun::report::{Baseline, Comparison, Input, Outcome, Renderer, Report, Run, StageCost};
use mlarun::roofline::Cost;

use crate::Result;
use crate::figures::{Figure, Goal, repeat_ms};
use crate::project::{Opened, REPOSITORY, Temporary, position, sample_set};

const RECORDS: usize = 1000;

pub fn thousand_records() -> Result<Vec<Figure>> {
    let project = Temporary::new()?;
    let input = input(&Opened::new(project.root())?);
    let conf = Conf::load(&project.root().join("conf"))?;
    let renderer = Renderer::load(&Path::new(REPOSITORY).join("templates"))?;
    let mut failure = None;
    let times = repeat_ms(9, || failure = render(&input, &conf, &renderer).err().or(failure.take()));
    if let Some(failure) = failure {
        return Err(failure);
    }
    Ok(vec![Figure::new(format!("render {RECORDS} records, with a profile each"), times, "ms", Goal::AtMost(500.0))])
}

fn render(input: &Input, conf: &Conf, renderer: &Renderer) -> Result<()> {
    let report = Report::new(input, &conf.thresholds)?;
    let texts = [report.experiment(renderer)?, report.results_json(), report.results_csv()?];
    std::hint::black_box(texts);
    for index in 0..input.runs.len() {
        let text = report.profile(renderer, index)?.ok_or("a measured run without a report")?;
        std::hint::black_box(text);
    }
    Ok(())
}

/// The runs of [`thousand_records`].
pub fn runs(root: &Path) -> Result<Vec<Run>> {
    Ok(input(&Opened::new(root)?).runs)
}

/// Runs of three versions, each with one record, versions beside their predecessors.
fn input(opened: &Opened) -> Input {
    let position = position(0);
    let peaks = Peaks {
        flops_per_s: BTreeMap::from([(DType::Float32, 100e9)]),
        bytes_per_s: 10e9,
        at_sm_mhz: BTreeMap::new(),
        source: PeakSource::Measured { taken_at: position.taken_at },
    };
    let environment = Environment { peaks: Some(peaks), ..opened.machine.environment(&opened.project) };
    let runs: Vec<Run> = (0..RECORDS).map(|index| run(&environment, index)).collect();
    let baseline = |index: usize| match index % 3 {
        0 => Baseline::Missing { reason: "v0 is the first version".into() },
        _ => Baseline::Run(index - 1),
    };
    let comparisons = (0..RECORDS)
        .map(|index| Comparison {
            run: index,
            name: "previous".into(),
            baseline: baseline(index),
            standing: Standing::Unjudged(Unjudged::OtherSession),
        })
        .collect();
    Input { experiment: "many".into(), runs, comparisons, gone: Vec::new(), host: None }
}

fn run(environment: &Environment, index: usize) -> Run {
    let id = KernelId { kernel: "mla_var6_plus".into(), version: Version(index as u32 % 3), language: Language::C };
    let of = |name: &str, value: Value| (name.to_owned(), value);
    let t = 256 + 4 * (index as i64 / 3);
    let shape = Shape([of("b", 1.into()), of("s", 4.into()), of("t", t.into()), of("dtype", "float32".into())].into());
    let subject = Key::of("example/1", &index);
    let record = Record {
        kind: RecordKind::Event,
        key: subject,
        subject,
        material: serde_json::Value::Null,
        labels: Labels { id: id.clone(), shape: shape.clone(), mode: Some(Mode::Event), origin: None },
        tiling: Tiling::default(),
        code: Vec::new(),
        position: position(0),
        environment: environment.clone(),
        body: Body::Event(sample_set(1e6 + index as f64)),
    };
    let stage = |stage: &str, flops, bytes| StageCost { stage: stage.to_owned(), cost: Cost { flops, bytes } };
    Run {
        id,
        label: shape.clone(),
        shape,
        mode: Mode::Event,
        tiling: Tiling::default(),
        device: environment.device.id.clone(),
        costs: vec![stage("latent", 30e6, 2e6), stage("decompressed", 6e6, 4e6), stage("combine", 8e6, 4e6)],
        peaks: environment.peaks.clone(),
        outcome: Outcome::Measured(vec![record]),
        left_out: None,
    }
}
