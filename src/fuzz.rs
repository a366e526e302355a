//! The readers of texts that strangers may have written, one function each, for fuzzers (fuzz/) and for the replay of what
//! those found (tests/corpora.rs). Each takes whatever bytes there are, and panics where a reader breaks a promise.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use crate::backend::Backend as _;
use crate::catalog::{Catalog, LookupError, Package};
use crate::diagnostic::{self, Colour, Diagnostic};
use crate::execute::executor::parse;
use crate::execute::{ExecuteError, Executor as _};
use crate::expr::{Expr, Scope};
use crate::manifest::{self, Source};
use crate::model::ncu::KernelNames;
use crate::model::record::Record;
use crate::model::timeline::{Rejection, StageKernel, Timeline};
use crate::model::{Choices, Device, DeviceId, DeviceKind, KernelId, Language, Shape, Tiling, Value, Version};
use crate::plan::instantiate::{complete_shape, instantiate, reduced_shape};
use crate::plan::root_scope;
use crate::plan::space::{SearchLimits, axes, search, targets};
use crate::profiler::{self, nsys};
use crate::recording::{RecordedBackend, Replayer, read_text};
use crate::store::envelope::{self, Fault};
use crate::store::{RECORD, Slot, file_name};
use crate::timeline;

/// A manifest, read and resolved against `catalog` on a host with a GPU and on one without.
pub fn manifest(text: &[u8], catalog: &Catalog) {
    let Ok(text) = str::from_utf8(text) else { return };
    let document = match manifest::parse(Source { path: "experiments/x.toml".into(), text: text.to_owned() }, &[]) {
        Ok(document) => document,
        Err(diagnostics) => return explained(&diagnostics),
    };
    for host in [DeviceKind::Cpu, DeviceKind::Gpu] {
        match manifest::resolve(&document, catalog, host) {
            Ok((experiment, warnings)) => {
                rendered(&warnings);
                assert!(is_folder_name(&experiment.name), "`{}` names a folder", experiment.name);
                assert!(
                    !experiment.kernels.is_empty() && !experiment.shapes.is_empty(),
                    "an experiment is of something"
                );
                let distinct: BTreeSet<&Shape> = experiment.shapes.iter().collect();
                assert_eq!(distinct.len(), experiment.shapes.len(), "every shape is there once");
            }
            Err(manifest::Error::Invalid(diagnostics)) => explained(&diagnostics),
            Err(manifest::Error::NoDevice { diagnostic, .. }) => explained(&[*diagnostic]),
        }
    }
}

/// A `kernel.toml` beside the sources of flash_mla in the project at `root`: read, and made into a pipeline with its
/// defaults. One that speaks of blocks of threads is CUDA's.
pub fn kernel(text: &[u8], root: &Path) {
    let is_cuda = text.windows(b"block ".len()).any(|word| word == b"block ");
    let language = if is_cuda { Language::Cuda } else { Language::C };
    let folder = format!("kernels/{language}/mla/flash_mla");
    let id = KernelId { kernel: "flash_mla".to_owned(), version: Version::BASE, language };
    let catalog = Catalog::of_one(root, Path::new(&folder), language, text.to_vec());
    match catalog.package(&id) {
        Ok(package) => launched(package),
        Err(LookupError::Broken { diagnostics, .. }) => explained(&diagnostics),
        Err(other) => panic!("the package is there: {other}"),
    }
}

/// Follows a sound package up to what is compiled and launched.
fn launched(package: &Package) {
    /// Points of a space that are looked at; each takes as long as its constraints do.
    const POINTS: u128 = 500;
    let names = package.stages.iter().flat_map(|stage| [&stage.name, &stage.entry]);
    names.for_each(|name| assert!(is_folder_name(name), "`{name}` names a folder"));
    let sources = package.stages.iter().flat_map(|stage| stage.headers.iter().chain([&stage.source]));
    sources.for_each(|source| assert!(stays(source), "{} stays in the project", source.display()));
    let root = root_scope(&device(package.id.language.device()));
    let Ok(shape) = complete_shape(package, &Shape::default(), &root) else { return };
    for target in targets(package, &shape, &root).unwrap_or_default() {
        if axes(package, &target, &shape, &root).is_ok_and(|axes| axes.total() <= POINTS) {
            let limits = SearchLimits { points: 8, seed: 1 };
            if let Ok(search) = search(package, &target, &shape, &Tiling::default(), limits, &root) {
                assert!(search.points.iter().filter(|point| point.rejected_by.is_none()).count() <= limits.points);
            }
        }
    }
    if let Ok(instance) = instantiate(package, &shape, &Tiling::default(), &root) {
        let launches = instance.pipeline.stages.iter();
        assert!(launches.clone().all(|stage| package.stages.iter().any(|declared| declared.name == stage.name)));
        assert_eq!(instance.stages.len(), launches.len(), "every launch has a cost");
        let _ = reduced_shape(package, &instance.shape, &root);
    }
}

/// An expression, evaluated with names of every type.
pub fn expression(text: &[u8]) {
    let Ok(text) = str::from_utf8(text) else { return };
    let expr = match text.parse::<Expr>() {
        Ok(expr) => expr,
        Err(error) => {
            assert!(text.is_char_boundary(error.at) && !error.reason.is_empty(), "{error:?} points into the text");
            return;
        }
    };
    assert_eq!(expr.source(), text);
    let mut scope = Scope::new();
    scope.set("b", &Value::Int(-3));
    scope.set("t", &Value::Int(i64::MAX));
    scope.set("scale", &Value::Float(1e300));
    scope.set("causal", &Value::Bool(true));
    scope.set("dtype", &Value::Text("bfloat16".to_owned()));
    let mut scope = scope.inner();
    scope.set("s", &Value::Int(16));
    scope.set_choices("tile", &Choices::from([("block".to_owned(), Value::Int(64))]));
    match expr.eval(&scope) {
        Ok(value) => {
            assert_eq!(expr.eval(&scope), Ok(value.clone()), "one scope gives one value");
            assert!(!matches!(value, Value::Float(number) if !number.is_finite()), "a value is finite");
        }
        Err(error) => assert!(error.to_string().contains(text), "{error}"),
    }
}

/// The lines of a worker's answer.
pub fn worker_lines(text: &[u8]) {
    let Ok(text) = str::from_utf8(text) else { return };
    let mut lines = Vec::new();
    for line in text.lines() {
        match parse(line) {
            Ok(line) => {
                let again = serde_json::to_string(&line).expect("a line serialises to JSON");
                assert_eq!(parse(&again).as_ref(), Ok(&line), "a line is what it was written as");
                lines.push(line);
            }
            Err(failure) => assert!(!failure.message.is_empty()),
        }
    }
    if let Ok(set) = profiler::event::collect(&lines) {
        assert!(set.samples.iter().all(|samples| !samples.ns.is_empty()), "a sample set has samples");
    }
    if let Ok(pass) = profiler::annotation::collect(&lines) {
        assert!(!pass.stages.is_empty(), "an annotation is of something");
    }
}

/// A record's file: as it is, and with the checksum that its body should have.
pub fn record(text: &[u8]) {
    let read = envelope::decode::<Record>(RECORD, text);
    if let Err(Fault::Checksum { expected, actual }) = &read {
        assert_ne!(expected, actual);
        let mut file: serde_json::Value = serde_json::from_slice(text).expect("it has a checksum");
        let mended = envelope::encode(RECORD, &file[RECORD].take()).expect("it was JSON");
        if let Ok(record) = envelope::decode(RECORD, &mended) {
            kept(&record);
        }
    }
    if let Ok(record) = read {
        kept(&record);
    }
}

/// Follows a record that is trusted to where it is kept and found.
fn kept(record: &Record) {
    let text = envelope::encode(RECORD, record).expect("a record serialises to JSON");
    assert_eq!(envelope::decode(RECORD, &text).as_ref(), Ok(record), "a record is what it was written as");
    let name = file_name(record, 1);
    assert!(name.starts_with(&format!("{}-", record.key)) && stays(Path::new(&name)), "`{name}` names a file");
    Slot::of(record).key();
}

/// A database as Nsight Systems exports it, whatever tables it has.
pub fn nsys_export(bytes: &[u8]) {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::io::Write::write_all(&mut file, bytes).expect("it is written");
    for names in [KernelNames::Mangled, KernelNames::Function] {
        match nsys::read_export(file.path(), names) {
            Ok(timeline) => traced(&timeline),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// Tables of `nsys stats`, or what `nsys profile` says.
pub fn nsys_text(text: &[u8]) {
    let Ok(text) = str::from_utf8(text) else { return };
    let log = nsys::read_log(text);
    assert!(log.report.is_none() || log.unimported().is_none(), "what has become a report was imported");
    let tables = match nsys::read_stats(text) {
        Ok(tables) => tables,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    for table in tables {
        if let Ok(timeline) = table.trace() {
            traced(&timeline);
        }
        let _ = table.summary();
    }
}

/// Follows a timeline to all that is made of it.
fn traced(timeline: &Timeline) {
    /// Drawing and comparing take longer than reading.
    const ACTIVITIES: usize = 64;
    for activity in &timeline.activities {
        assert!(activity.start_ns > 0 && activity.start_ns < activity.end_ns, "{activity:?} takes time");
    }
    for row in &timeline.rejected {
        assert_eq!(Rejection::of(row.start_ns, row.end_ns), Some(row.reason), "{row:?} is rejected for its reason");
    }
    shown(&Timeline { activities: timeline.activities.iter().take(ACTIVITIES).cloned().collect(), ..timeline.clone() });
}

/// A timeline, be its times what they may, as tables and pictures.
fn shown(timeline: &Timeline) {
    let kernels: BTreeSet<&str> = timeline.on_gpu().map(|activity| activity.name.as_str()).take(4).collect();
    let stage = |kernel: &&str| StageKernel { stage: format!("of {kernel}"), kernel: (*kernel).to_owned() };
    let stages: Vec<StageKernel> = kernels.iter().map(stage).collect();
    if let Ok(runs) = timeline::iterations(timeline, &stages) {
        let analyses: Vec<_> = runs.iter().filter_map(|run| timeline::Analysis::of(&run.by_stage())).collect();
        for run in &analyses {
            assert!(
                run.busy_ns <= run.span_ns && run.overlap_efficiency().is_none_or(|share| (0.0..=1.0).contains(&share))
            );
        }
        let _ = timeline::Medians::of(&analyses);
    }
    let drawn: Vec<_> = timeline.on_gpu().map(|activity| timeline::Drawn { activity, stage: None }).collect();
    let picture = timeline::picture("fuzzed", &[], &drawn);
    assert!(!picture.contains("NaN") && !picture.contains("inf"), "a picture has numbers");
    let trace = timeline::perfetto_trace(timeline);
    assert!(serde_json::from_str::<serde_json::Value>(&trace).is_ok(), "a trace is JSON");
    let _ = timeline::latencies_csv(&timeline::launch_latencies(timeline));
    let _ = (timeline::activities_csv(timeline), timeline::streams_csv(timeline));
}

/// The text of a recording, and what a replay looks up in it.
pub fn recording(text: &[u8]) {
    let recording = match read_text(text, Path::new("x.recording")) {
        Ok(recording) => recording,
        Err(error) => {
            assert!(error.to_string().starts_with("x.recording: "), "{error}");
            return;
        }
    };
    for file in &recording.files {
        if let Ok(path) = file.below(Path::new("/out")) {
            let below = path.strip_prefix("/out").expect("it begins with its folder");
            assert!(stays(below), "{} stays below its folder", path.display());
        }
    }
    assert_eq!(RecordedBackend::new(&recording).language(), recording.host.language);
    let replayer = Replayer::new(&recording, None, "reference".into());
    for answer in &recording.answers {
        let given = replayer.execute(&answer.request, &mut |_| {});
        match (given, &answer.failure) {
            (Ok(lines), None) => assert_eq!(lines, answer.lines, "an answer is found by its request"),
            (Err(ExecuteError::Failed(given)), Some(failure)) => assert_eq!(given, *failure),
            (given, _) => panic!("{given:?} is not what was recorded"),
        }
    }
}

/// Something is wrong, and each finding can be shown.
fn explained(diagnostics: &[Diagnostic]) {
    assert!(diagnostics.iter().any(Diagnostic::is_error), "what is refused is refused for a reason");
    rendered(diagnostics);
}

fn rendered(diagnostics: &[Diagnostic]) {
    assert!(diagnostics.iter().all(|diagnostic| !diagnostic.message.is_empty()));
    // Rendering takes longer than reading.
    let first = &diagnostics[..diagnostics.len().min(2)];
    let text = diagnostic::render_all(first, Colour::Never);
    assert_eq!(diagnostic::plain(&text), text, "what is shown changes no terminal");
}

/// `name` is one component of a path.
fn is_folder_name(name: &str) -> bool {
    stays(Path::new(name)) && Path::new(name).components().count() == 1
}

/// `path` does not leave the folder that it is relative to.
fn stays(path: &Path) -> bool {
    !path.as_os_str().is_empty() && path.components().all(|part| matches!(part, Component::Normal(_)))
}

fn device(kind: DeviceKind) -> Device {
    use crate::model::GpuTraits;
    let gpu = (kind == DeviceKind::Gpu).then(|| GpuTraits {
        compute_capability: (9, 0),
        shared_bytes_max: 232_448,
        driver: String::new(),
    });
    Device {
        id: DeviceId { kind, name: "fuzzed".to_owned(), uuid: None, units: 4 },
        memory_bytes: 1 << 33,
        last_level_cache_bytes: 1 << 25,
        cores: vec![0, 1, 2, 3],
        gpu,
    }
}
