//! The plan as a pure function: what it makes of packages, searches and facts, without a host, a clock or a store.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use mlarun::app::protocols;
use mlarun::catalog::{Catalog, Package};
use mlarun::conf::Conf;
use mlarun::expr::{Expr, Scope};
use mlarun::manifest::{self, Experiment, ProtocolOverrides, Source};
use mlarun::model::build::{CompilerId, Toolchain};
use mlarun::model::device::GpuTraits;
use mlarun::model::pipeline::ReferenceFormula;
use mlarun::model::{
    Choices, DType, Device, DeviceId, DeviceKind, KernelId, Key, Language, Mode, Shape, Tiling, Value, Version,
};
use mlarun::plan::instantiate::{complete_shape, instantiate, reduced_shape};
use mlarun::plan::space::{SearchLimits, TuneTarget, search, targets};
use mlarun::plan::{
    BaselineSubject, Estimate, Facts, FactsError, InstantiateError, Plan, PlanError, Protocols, Ready, RunState,
    Setting, Slot, Stale, Subject, SubjectState, Wanted, graph, optima, plan, root_scope,
};

const CORES: usize = 4;

/// Adds two matrices in one stage, and halves what it gave in another one when there is more than one column.
const PACKAGE: &str = r#"
schema = 1
description = "A fixture"

[parameters]
rows    = { type = "int", min = 1, max = 1000000000000, default = 8, doc = "rows" }
columns = { type = "int", min = 1, default = "2 * rows", doc = "columns" }
part    = { type = "int", min = 1, default = "rows / 4", candidates = [1, "rows / 4", "rows / 2", "rows / 8 + 1"], doc = "part" }
dtype   = { type = "dtype", allowed = ["float32"], default = "float32", doc = "element type" }
causal  = { type = "bool", default = false, doc = "unused" }

[lets]
elements = "rows * columns"

[tensors.x]
role   = "input"
dtype  = "dtype"
shape  = ["rows", "columns"]
normal = { std = 1.0, seed = 1 }
[tensors.half]
role  = "scratch"
dtype = "float32"
shape = ["rows", "columns"]
[tensors.y]
role  = "output"
dtype = "dtype"
shape = ["rows", "columns"]

[space]
choices     = { share = [1, 2] }
constraints = ["tile.share <= part"]
default     = { share = 1 }

[[stages]]
name    = "first"
source  = "k.c"
entry   = "first"
args    = ["x", "y", "half", "rows", "1.5 * sqrt(part * part)", "causal", "block.y", "thread"]
grid    = ["ceil_div(rows, tile.block)", "tile.share"]
threads = "tile.threads"
flops   = "elements * part"
bytes   = "4 * elements"
defines = { BLOCK = "tile.block", CAUSAL = "causal" }
[stages.space]
choices     = { block = [1, 2, 4, 8, 16], threads = [1, 2, "cores"] }
constraints = ["tile.block * tile.threads <= rows"]
default     = { block = 2, threads = 1 }

[[stages]]
name    = "second"
source  = "k.c"
entry   = "second"
args    = ["half", "y"]
grid    = [1]
after   = ["first"]
when    = "columns > 1"
flops   = 1
bytes   = 2

[reference]
kind   = "einsum"
spec   = "rc->rc"
of     = ["x"]
output = "y"

[reduced]
rows = "rows / 2"
"#;

/// Kernels in a temporary folder: `k` in versions v0 and v1, and `plain`, which has nothing to tune.
struct Fixture {
    _folder: tempfile::TempDir,
    catalog: Catalog,
    protocols: Protocols,
    device: Device,
    toolchain: Toolchain,
}

fn plain() -> String {
    let lines = PACKAGE.replace("tile.share <= part", "true");
    let without = |text: String, from: &str, to: &str| {
        let start = text.find(from).expect("it is there");
        let end = start + text[start..].find(to).expect("it ends");
        format!("{}{}", &text[..start], &text[end..])
    };
    let text = without(lines, "[space]", "[[stages]]");
    let text = without(text, "[stages.space]", "[[stages]]");
    let text = text.replace(", candidates = [1, \"rows / 4\", \"rows / 2\", \"rows / 8 + 1\"]", "");
    text.replace("tile.share", "1").replace("tile.block", "2").replace("tile.threads", "1")
}

impl Fixture {
    fn new() -> Fixture {
        Fixture::with(PACKAGE)
    }

    fn with(package: &str) -> Fixture {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in [("k", package), ("k_v1", package), ("plain", &plain())] {
            let path = folder.path().join("kernels/c/mla").join(name);
            std::fs::create_dir_all(&path).expect("folders");
            std::fs::write(path.join("kernel.toml"), text).expect("a file");
            std::fs::write(path.join("k.c"), "void first(void) {}").expect("a file");
        }
        let catalog = Catalog::load(folder.path());
        assert!(catalog.diagnostics().is_empty(), "{:#?}", catalog.diagnostics());
        let id = DeviceId { kind: DeviceKind::Cpu, name: "A CPU".into(), uuid: None, units: CORES as u32 };
        let device = Device {
            id,
            memory_bytes: 1 << 30,
            last_level_cache_bytes: 1 << 20,
            cores: (0..CORES as u32).collect(),
            gpu: None,
        };
        let conf = Conf::load(&folder.path().join("conf")).expect("the defaults");
        let protocols = protocols(&conf, &ProtocolOverrides::default(), &device, 2);
        let compiler = CompilerId {
            version: "12".into(),
            target: "x86_64-linux-gnu".into(),
            arguments: vec![],
            native: Key::of_bytes(b"native"),
        };
        let toolchain = Toolchain { compiler, standard_flags: vec!["-O3".into()] };
        Fixture { _folder: folder, catalog, protocols, device, toolchain }
    }

    fn package(&self) -> &Package {
        self.catalog.package(&id("k", 0)).expect("it is sound")
    }

    fn root(&self) -> Scope<'static> {
        root_scope(&self.device)
    }

    fn setting(&self) -> Setting<'_> {
        Setting { device: &self.device, toolchain: &self.toolchain, peaks: None, protocols: &self.protocols }
    }

    fn experiment(&self, rest: &str) -> Experiment {
        let text = format!("schema = 1\n[experiment]\nname = \"e\"\nmodes = [\"event\"]\n{rest}");
        let document = manifest::parse(Source { path: PathBuf::from("e.toml"), text }, &[]).expect("TOML");
        let resolved = manifest::resolve(&document, &self.catalog, DeviceKind::Cpu);
        resolved.unwrap_or_else(|error| panic!("{error:#?}")).0
    }

    fn plan(&self, rest: &str, facts: &Memory, wanted: Wanted<'_>) -> Result<Plan, PlanError> {
        plan(&self.experiment(rest), &self.catalog, &self.setting(), facts, wanted)
    }

    fn estimate(&self, rest: &str, facts: &Memory) -> Estimate {
        self.planned(rest, facts).estimate(&self.catalog, &self.setting())
    }

    fn planned(&self, rest: &str, facts: &Memory) -> Plan {
        self.plan(rest, facts, Wanted::default()).expect("a plan")
    }
}

fn id(kernel: &str, version: u32) -> KernelId {
    KernelId { kernel: kernel.into(), version: Version(version), language: Language::C }
}

fn shape(values: &[(&str, i64)]) -> Shape {
    Shape(values.iter().map(|(name, value)| ((*name).to_owned(), Value::Int(*value))).collect())
}

fn choices(values: &[(&str, i64)]) -> Choices {
    shape(values).0
}

/// Facts in memory.
#[derive(Default)]
struct Memory {
    sets: HashMap<Key, u32>,
    tunings: BTreeMap<TuneTarget, Choices>,
    latest: Option<Key>,
}

impl Facts for Memory {
    fn sample_sets(&self, _: Mode, measurement: &Key) -> u32 {
        self.sets.get(measurement).copied().unwrap_or(0)
    }

    fn is_verified(&self, _: &Key) -> bool {
        false
    }

    fn tuning(&self, _: &KernelId, target: &TuneTarget, _: &Key) -> Result<Option<Choices>, FactsError> {
        Ok(self.tunings.get(target).cloned())
    }

    fn latest(&self, _: &Slot<'_>) -> Option<Key> {
        self.latest
    }
}

fn first() -> TuneTarget {
    TuneTarget::Stage("first".into())
}

#[test]
fn a_shape_is_completed_by_defaults_in_order_and_tunable_parameters_stay_open() {
    let fixture = Fixture::new();
    let complete = |given: &[(&str, i64)]| complete_shape(fixture.package(), &shape(given), &fixture.root());
    let full = complete(&[("rows", 6), ("foreign", 1)]).expect("a shape");
    assert_eq!(full.to_string(), "causal=false columns=12 rows=6 dtype=float32");
    assert_eq!(complete(&[("part", 3)]).expect("a shape").get("part"), Some(&Value::Int(3)), "a pinned one is kept");
    let error = complete(&[("rows", 0)]).expect_err("out of range");
    assert!(matches!(&error, InstantiateError::OutOfRange { parameter, .. } if parameter == "rows"), "{error}");
    let wrong = Shape(BTreeMap::from([("dtype".to_owned(), Value::Text("float16".into()))]));
    let error = complete_shape(fixture.package(), &wrong, &fixture.root()).expect_err("not allowed");
    assert!(error.to_string().contains("allowed are float32"), "{error}");
}

#[test]
fn a_pipeline_holds_numbers_alone() {
    let fixture = Fixture::new();
    let tiling = Tiling { stages: BTreeMap::from([("first".into(), choices(&[("block", 4)]))]), ..Tiling::default() };
    let made = instantiate(fixture.package(), &shape(&[("rows", 10)]), &tiling, &fixture.root()).expect("one");
    let stage = &made.pipeline.stages[0];
    assert_eq!((stage.grid, stage.threads()), ([3, 1, 1], 1), "10 rows in blocks of 4; the other choices by default");
    assert_eq!(made.pipeline.stages[1].after, [0]);
    assert_eq!(made.stages[0].defines, BTreeMap::from([("BLOCK".into(), "4".into()), ("CAUSAL".into(), "0".into())]));
    assert_eq!((made.stages[0].flops, made.stages[0].bytes), (200.0 * 2.0, 800.0));
    assert_eq!(made.total(), (401.0, 802.0));
    assert_eq!(made.choices["pipeline"], choices(&[("part", 2), ("share", 1)]));
    assert_eq!(made.choices["first"], choices(&[("block", 4), ("threads", 1)]));
    insta::assert_debug_snapshot!(stage.args, @r"
    [
        Buffer(
            0,
        ),
        Buffer(
            2,
        ),
        Buffer(
            1,
        ),
        Int(
            10,
        ),
        Float(
            3.0,
        ),
        Int(
            0,
        ),
        Block(
            1,
        ),
        Thread,
    ]
    ");
}

#[test]
fn a_stage_that_is_not_launched_is_not_there() {
    let fixture = Fixture::new();
    let shape = shape(&[("rows", 8), ("columns", 1)]);
    let made = instantiate(fixture.package(), &shape, &Tiling::default(), &fixture.root()).expect("one");
    assert_eq!(made.pipeline.stages.len(), 1);
}

#[test]
fn what_does_not_evaluate_says_where_it_stands() {
    let fixture = Fixture::with(&PACKAGE.replace("grid    = [1]", "grid = [\"1 / (rows - 8)\"]"));
    let made = |rows| instantiate(fixture.package(), &shape(&[("rows", rows)]), &Tiling::default(), &fixture.root());
    let error = made(8).expect_err("a division by zero").to_string();
    assert!(error.contains("k v0 (c): stage `second`, grid") && error.contains("1 / (rows - 8)"), "{error}");
    assert!(made(9).is_ok());
}

#[test]
fn sizes_beyond_64_bits_are_refused() {
    let fixture = Fixture::new();
    let shape = shape(&[("rows", 1_000_000_000_000), ("columns", 1_000_000_000_000), ("part", 1)]);
    let error = instantiate(fixture.package(), &shape, &Tiling::default(), &fixture.root()).expect_err("too large");
    assert!(matches!(error, InstantiateError::TooLarge { .. } | InstantiateError::Expression { .. }), "{error}");
}

#[test]
fn the_reduced_shape_overrides_and_leaves_tuned_parameters_to_their_defaults() {
    let fixture = Fixture::new();
    let reduced =
        reduced_shape(fixture.package(), &shape(&[("rows", 8), ("columns", 5), ("part", 4)]), &fixture.root());
    assert_eq!(reduced.expect("a shape"), shape(&[("rows", 4), ("columns", 5)]));
}

#[test]
fn stages_are_tuned_before_the_pipeline() {
    let fixture = Fixture::new();
    let of = |kernel: &str, given: &[(&str, i64)]| {
        targets(fixture.catalog.package(&id(kernel, 0)).expect("sound"), &shape(given), &fixture.root())
            .expect("targets")
    };
    assert_eq!(of("k", &[("rows", 8)]), [first(), TuneTarget::Pipeline]);
    assert_eq!(of("plain", &[("rows", 8)]), []);
}

fn searched(fixture: &Fixture, target: &TuneTarget, rows: i64, points: usize, seed: u64) -> Vec<(Choices, bool)> {
    let limits = SearchLimits { points, seed };
    let (shape, tiling) = (shape(&[("rows", rows), ("columns", 4)]), Tiling::default());
    let found = search(fixture.package(), target, &shape, &tiling, limits, &fixture.root()).expect("points");
    found.points.into_iter().map(|point| (point.choices, point.rejected_by.is_none())).collect()
}

#[test]
fn a_small_space_is_searched_whole_and_keeps_what_is_ruled_out() {
    let fixture = Fixture::new();
    let limits = SearchLimits { points: 15, seed: 1 };
    let shape = shape(&[("rows", 8), ("columns", 4)]);
    let found = search(fixture.package(), &first(), &shape, &Tiling::default(), limits, &fixture.root());
    let found = found.expect("points");
    assert_eq!((found.total, found.points.len(), found.exhaustive), (15, 15, true));
    let rejected: Vec<_> = found.points.iter().filter_map(|point| point.rejected_by.as_deref()).collect();
    assert_eq!(rejected, ["tile.block * tile.threads <= rows"; 6], "8*2, 8*4, 4*4, 16*1, 16*2, 16*4");
}

#[test]
fn values_that_coincide_are_tried_once() {
    let fixture = Fixture::new();
    // rows / 4 = rows / 8 + 1 = 2, rows / 2 = 4, and 1; each with both shares.
    let found = searched(&fixture, &TuneTarget::Pipeline, 8, 100, 1);
    assert_eq!(found.len(), 6);
    assert_eq!(found.iter().filter(|(_, valid)| !valid).count(), 1, "part = 1 with share = 2");
}

#[test]
fn a_sampled_search_always_holds_the_default_and_follows_the_seed() {
    let fixture = Fixture::new();
    let default = choices(&[("block", 2), ("threads", 1)]);
    let mut distinct = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let found = searched(&fixture, &first(), 8, 3, seed);
        let valid: Vec<&Choices> = found.iter().filter(|(_, valid)| *valid).map(|(choices, _)| choices).collect();
        assert_eq!(valid.len(), 3);
        assert!(valid.contains(&&default), "{valid:?}");
        assert_eq!(found.iter().filter(|(_, valid)| !valid).count(), 6, "rejections are kept");
        assert_eq!(found, searched(&fixture, &first(), 8, 3, seed), "the same seed gives the same points");
        distinct.insert(format!("{valid:?}"));
    }
    assert!(distinct.len() > 1, "another seed gives other points");
}

#[test]
fn a_huge_space_is_sampled_too() {
    let values: Vec<String> = (1..=400).map(|value| value.to_string()).collect();
    let package = PACKAGE.replace("[1, 2, 4, 8, 16]", &format!("[{}]", values.join(", ")));
    let package = package.replace("[1, 2, \"cores\"]", &format!("[{}]", values.join(", ")));
    let fixture = Fixture::with(&package);
    let found = searched(&fixture, &first(), 1000, 5, 7);
    assert!(found.contains(&(choices(&[("block", 2), ("threads", 1)]), true)), "{found:?}");
    let valid = found.iter().filter(|(_, valid)| *valid).count();
    assert!((5..=6).contains(&valid), "{valid}");
    assert_eq!(found, searched(&fixture, &first(), 1000, 5, 7));
}

const PLAIN: &str = "kernels = [\"plain\"]\n";

#[test]
fn a_run_goes_from_never_measured_over_incomplete_to_fresh() {
    let fixture = Fixture::new();
    let state = |facts: &Memory| fixture.planned(PLAIN, facts).subjects[0].runs[0].state.clone();
    let mut facts = Memory::default();
    assert_eq!(state(&facts), RunState::Stale(Stale::NeverMeasured));
    let other = Key::of_bytes(b"other");
    facts.latest = Some(other);
    assert_eq!(state(&facts), RunState::Stale(Stale::Changed { previous: other }));
    let key = fixture.planned(PLAIN, &facts).subjects[0].runs[0].key.expect("a key");
    facts.sets.insert(key, 1);
    assert_eq!(state(&facts), RunState::Stale(Stale::Incomplete { have: 1, want: 2 }));
    assert_eq!(fixture.planned(PLAIN, &facts).subjects[0].sets_to_take(Mode::Event, 2), Some(1));
    facts.sets.insert(key, 2);
    assert_eq!(state(&facts), RunState::Fresh);
    assert_eq!(fixture.estimate(PLAIN, &facts), Estimate::default());
    let again = fixture.plan(PLAIN, &facts, Wanted { remeasure: true, ..Wanted::default() }).expect("a plan");
    assert_eq!(again.subjects[0].runs[0].state, RunState::Stale(Stale::Remeasure));
}

#[test]
fn an_estimate_counts_tuning_and_compiling_and_what_is_recorded() {
    let fixture = Fixture::new();
    let mut facts = Memory::default();
    let nothing = fixture.estimate(PLAIN, &facts);
    assert_eq!(nothing.tuning_ns, 0.0);
    assert!(nothing.compiling_ns > 0.0);
    let key = fixture.planned(PLAIN, &facts).subjects[0].runs[0].key.expect("a key");
    facts.sets.insert(key, 1);
    let half = fixture.estimate(PLAIN, &facts);
    assert_eq!(half.compiling_ns, 0.0, "it was compiled for the set that is recorded");
    assert!(half.measuring_ns > 0.0 && half.measuring_ns <= nothing.measuring_ns / 2.0, "{half:?} of {nothing:?}");

    let text = "kernels = [\"k\"]\n";
    let untuned = fixture.estimate(text, &Memory::default());
    assert!(untuned.tuning_ns > 0.0, "{untuned:?}");
    let mut facts = Memory::default();
    facts.tunings.insert(first(), choices(&[("block", 4), ("threads", 2)]));
    let stage_known = fixture.estimate(text, &facts);
    assert!(0.0 < stage_known.tuning_ns && stage_known.tuning_ns < untuned.tuning_ns, "{stage_known:?}");
    facts.tunings.insert(TuneTarget::Pipeline, choices(&[("part", 4), ("share", 2)]));
    assert_eq!(fixture.estimate(text, &facts).tuning_ns, 0.0);
}

#[test]
fn a_search_is_estimated_within_its_limits() {
    let text = "kernels = [\"k\"]\n";
    let mut fixture = Fixture::new();
    let whole = fixture.estimate(text, &Memory::default()).tuning_ns;
    fixture.protocols.search.points = 2;
    let sampled = fixture.estimate(text, &Memory::default()).tuning_ns;
    assert!(sampled < whole, "{sampled} {whole}");
    fixture.protocols.tuning_budget = std::time::Duration::from_nanos(10);
    assert_eq!(fixture.estimate(text, &Memory::default()).tuning_ns, 20.0, "two searches of ten nanoseconds");
}

#[test]
fn what_is_not_tuned_waits_and_has_a_key_afterwards() {
    let fixture = Fixture::new();
    let text = "kernels = [\"k\"]\n";
    let waiting = fixture.planned(text, &Memory::default());
    let SubjectState::AfterTune { tunings, .. } = &waiting.subjects[0].state else { panic!("{waiting:#?}") };
    let seen: Vec<_> =
        tunings.iter().map(|tuning| (tuning.target.to_string(), tuning.points, tuning.key.is_some())).collect();
    assert_eq!(seen, [("first".to_owned(), 15, true), ("pipeline".to_owned(), 6, false)]);
    assert_eq!(waiting.counts().after_tune, 1);

    let mut facts = Memory::default();
    facts.tunings.insert(first(), choices(&[("block", 4), ("threads", 2)]));
    facts.tunings.insert(TuneTarget::Pipeline, choices(&[("part", 4), ("share", 2)]));
    let ready = fixture.planned(text, &facts);
    let SubjectState::Ready(state) = &ready.subjects[0].state else { panic!("{ready:#?}") };
    assert_eq!(state.tiling.stages["first"], facts.tunings[&first()]);
    let before = state.key;
    facts.tunings.insert(first(), choices(&[("block", 8), ("threads", 1)]));
    let SubjectState::Ready(state) = &fixture.planned(text, &facts).subjects[0].state else { panic!("not ready") };
    assert_ne!(state.key, before, "the tiling is part of the subject");
}

#[test]
fn profilers_of_gpus_are_skipped_and_too_large_tensors_refused() {
    let fixture = Fixture::new();
    let skipped =
        fixture.planned("kernels = [\"plain\"]\n[target.cpu]\nmodes = [\"ncu\", \"nsys\"]\n", &Memory::default());
    assert_eq!(skipped.counts().skipped, 2);
    let refused = fixture.planned("kernels = [\"plain\"]\n[shapes]\nrows = [1000000]\n", &Memory::default());
    let RunState::Refused { reason } = &refused.subjects[0].runs[0].state else { panic!("{refused:#?}") };
    assert!(reason.contains("GiB and A CPU offers 1.0 GiB"), "{reason}");
    let beyond = fixture.planned(
        "kernels = [\"plain\"]\n[shapes]\nrows = [8]\ncolumns = [8, 1000000000000000000]\n",
        &Memory::default(),
    );
    assert_eq!((beyond.counts().refused, beyond.counts().stale), (1, 1), "{beyond:#?}");
    let RunState::Refused { reason } = &beyond.subjects[1].runs[0].state else { panic!("{beyond:#?}") };
    assert!(reason.contains("exceeds 64 bits"), "{reason}");
}

#[test]
fn baselines_join_and_share_subjects() {
    let fixture = Fixture::new();
    let text = "kernels = [\"k\"]\nversions = \"all\"\nbaselines = [\"previous\", \"plain\"]\n";
    let plan = fixture.plan(text, &Memory::default(), Wanted { dev_logs: true, ..Wanted::default() }).expect("a plan");
    let subjects: Vec<String> = plan.subjects.iter().map(|subject| subject.id.to_string()).collect();
    assert_eq!(subjects, ["k v0 (c)", "k v1 (c)", "plain v0 (c)"], "each once");
    let listed: Vec<bool> = plan.subjects.iter().map(|subject| subject.listed).collect();
    assert_eq!(listed, [true, true, false]);
    let found: Vec<_> = plan.comparisons.iter().map(|one| (one.candidate, one.name.as_str(), &one.baseline)).collect();
    assert!(matches!(found[0], (0, "previous", BaselineSubject::None { .. })), "{found:?}");
    assert_eq!(
        found[1..],
        [
            (0, "plain v0", &BaselineSubject::Subject(2)),
            (1, "previous", &BaselineSubject::Subject(0)),
            (1, "plain v0", &BaselineSubject::Subject(2)),
        ]
    );
    assert_eq!(plan.subjects[1].previous, Some(0));
}

#[test]
fn a_filter_picks_runs() {
    let fixture = Fixture::new();
    let text = "kernels = [\"k\"]\nversions = \"all\"\n[shapes]\nrows = [8, 16]\n";
    let only = |text: &str| text.parse::<Expr>().expect("an expression");
    let condition = only("version == 'v1' && rows == 16 && part == 4 && mode == 'event'");
    let plan =
        fixture.plan(text, &Memory::default(), Wanted { only: Some(&condition), ..Wanted::default() }).expect("a plan");
    let listed = plan.subjects.iter().filter(|subject| subject.listed).count();
    assert_eq!(listed, 1, "part is 4 by default where rows is 16");
    let nothing = only("version == 'v7'");
    let plan = fixture.plan(text, &Memory::default(), Wanted { only: Some(&nothing), ..Wanted::default() });
    assert_eq!(plan.expect("a plan").counts().total(), 0);
    let message = |filter: &str| {
        let wrong = only(filter);
        let error = fixture.plan(text, &Memory::default(), Wanted { only: Some(&wrong), ..Wanted::default() });
        let error = error.expect_err(filter);
        assert!(matches!(error, PlanError::Only { .. }), "{error:?}");
        error.to_string()
    };
    let unlike = message("zzzzzz == 1");
    assert!(unlike.contains("`zzzzzz`") && unlike.contains("`rows`") && unlike.contains("`mode`"), "{unlike}");
    let near = message("verison == 'v1'");
    assert!(near.contains("k v0 (c) has no `verison`; did you mean `version`?"), "{near}");
    let near = message("row == 8");
    assert!(near.contains("did you mean `rows`?"), "{near}");
    assert!(message("rows + 1").contains("names are kernel, version"), "no name is wrong");
}

#[test]
fn the_same_inputs_give_the_same_plan() {
    let text = "kernels = [\"k\", \"plain\"]\nbaselines = [\"plain\"]\n[shapes]\nrows = [8, 9, 10]\ncolumns = [2, 3]\n";
    let (one, two) = (Fixture::new(), Fixture::new());
    assert_eq!(
        one.planned(text, &Memory::default()),
        two.planned(text, &Memory::default()),
        "wherever the project lies"
    );
}

#[test]
fn the_graph_shows_steps_in_order() {
    let fixture = Fixture::new();
    let plan =
        fixture.planned("kernels = [\"k\"]\nbaselines = [\"plain\"]\n[shapes]\nrows = [8]\n", &Memory::default());
    insta::assert_snapshot!(graph::dot("a \"name\"", &plan), @r##"
    digraph "a \"name\"" {
      rankdir=LR;
      node [shape=box];
      s0t0 [label="tune first\nk v0 (c)\ncausal=false columns=16 rows=8 dtype=float32", color=orange];
      s0t1 [label="tune pipeline\nk v0 (c)\ncausal=false columns=16 rows=8 dtype=float32", color=orange];
      s0t0 -> s0t1;
      s0c [label="compile\nk v0 (c)\ncausal=false columns=16 rows=8 dtype=float32", color=orange];
      s0t1 -> s0c;
      s0v [label="verify\nk v0 (c)\ncausal=false columns=16 rows=8 dtype=float32", color=orange];
      s0c -> s0v;
      s0r0 [label="measure event\nk v0 (c)\ncausal=false columns=16 rows=8 dtype=float32", color=orange];
      s0v -> s0r0;
      s1c [label="compile\nplain v0 (c)\ncausal=false columns=16 part=2 rows=8 dtype=float32", color=orange];
      s1v [label="verify\nplain v0 (c)\ncausal=false columns=16 part=2 rows=8 dtype=float32", color=orange];
      s1c -> s1v;
      s1r0 [label="measure event\nplain v0 (c)\ncausal=false columns=16 part=2 rows=8 dtype=float32", color=orange];
      s1v -> s1r0;
      c0 [label="compare with plain v0", shape=ellipse];
      s0r0 -> c0;
      s1r0 -> c0;
    }
    "##);
}

#[test]
fn an_optional_parameter_belongs_to_a_shape_only_where_it_differs() {
    let causal = "causal  = { type = \"bool\"";
    let fixture = Fixture::with(
        &PACKAGE
            .replace(causal, &format!("scale = {{ type = \"float\", default = 1.0, optional = true }}\n{causal}"))
            .replace("std = 1.0", "std = \"scale\""),
    );
    let complete = |value: Value| {
        let given = Shape([("scale".to_owned(), value)].into());
        complete_shape(fixture.package(), &given, &fixture.root()).expect("a shape")
    };
    let without = complete_shape(fixture.package(), &Shape::default(), &fixture.root()).expect("a shape");
    assert_eq!(without.get("scale"), None);
    assert_eq!([complete(Value::Int(1)), complete(Value::Float(1.0))], [without.clone(), without.clone()]);
    let scaled = complete(Value::Int(100));
    assert_eq!(scaled.get("scale"), Some(&Value::Int(100)));
    let buffers = |shape: &Shape| {
        let instance = instantiate(fixture.package(), shape, &Tiling::default(), &fixture.root()).expect("an instance");
        serde_json::to_string(&instance.pipeline.buffers).expect("JSON")
    };
    assert!(buffers(&scaled).contains("\"std\":100.0"), "{}", buffers(&scaled));
    // The kernel's own key does not know that there is such a parameter.
    let plain = Fixture::new();
    let of_plain = instantiate(plain.package(), &shape(&[]), &Tiling::default(), &plain.root()).expect("an instance");
    assert_eq!(buffers(&without), serde_json::to_string(&of_plain.pipeline.buffers).expect("JSON"));
    let reduced = reduced_shape(fixture.package(), &scaled, &fixture.root()).expect("a shape");
    assert_eq!(reduced.get("scale"), Some(&Value::Int(100)));
}

#[test]
fn without_tuning_the_defaults_hold_and_pinned_choices_come_first() {
    let fixture = Fixture::new();
    let text = "kernels = [\"k\"]\n";
    let wanted = Wanted { untuned: true, ..Wanted::default() };
    let of = |text: &str, facts: &Memory, wanted: Wanted<'_>| {
        fixture.plan(text, facts, wanted).expect("a plan").subjects[0].state.clone()
    };
    let ready = |state: SubjectState| match state {
        SubjectState::Ready(ready) => ready,
        other => panic!("{other:?}"),
    };
    let nothing = Memory::default();
    assert!(matches!(of(text, &nothing, Wanted::default()), SubjectState::AfterTune { .. }));
    assert_eq!(ready(of(text, &nothing, wanted)).tiling, Tiling::default());
    // What is tuned counts, as far as it is.
    let stage = Memory { tunings: [(first(), choices(&[("block", 4), ("threads", 2)]))].into(), ..Memory::default() };
    assert_eq!(ready(of(text, &stage, wanted)).tiling.stages["first"], choices(&[("block", 4), ("threads", 2)]));
    let both = [(TuneTarget::Pipeline, choices(&[("part", 2), ("share", 1)]))];
    let tuned = Memory { tunings: stage.tunings.clone().into_iter().chain(both).collect(), ..Memory::default() };
    let pins = choices(&[("share", 2), ("foreign", 3)]);
    let pinned = Wanted { tile: Some(&pins), ..wanted };
    assert_eq!(ready(of(text, &tuned, pinned)).tiling.pipeline, choices(&[("part", 2), ("share", 2)]));
    let pins = choices(&[("share", 100)]);
    match of(text, &nothing, Wanted { tile: Some(&pins), ..wanted }) {
        SubjectState::Refused { reason } => assert!(reason.contains("`tile.share <= part`"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

/// The references of this project's kernels start from what a kernel reads where its rounding alone would show.
#[test]
fn large_logits_are_compared_with_what_a_kernel_reads() {
    let catalog = Catalog::load(std::path::Path::new(env!("CARGO_MANIFEST_DIR")));
    let root = root_scope(&h200());
    for (kernel, names) in [
        ("flash_attention", ["", "key", "value"]),
        ("flash_mla", ["qc", "", ""]),
        ("mla_var6_plus", ["qc", "key_new", "value_new"]),
    ] {
        for version in (0..3).map(Version) {
            let id = KernelId { kernel: kernel.into(), version, language: Language::Cuda };
            let package = catalog.package(&id).expect("it is sound");
            let as_read = |q_std: f64| {
                let shape = Shape([("q_std".to_owned(), Value::Float(q_std))].into());
                let pipeline = instantiate(package, &shape, &Tiling::default(), &root).expect("an instance").pipeline;
                let Some(ReferenceFormula::MlaAttention { as_read, .. }) = pipeline.reference.map(|of| of.formula)
                else {
                    panic!("{id} has another reference")
                };
                let decompressed = as_read.decompressed.map(|of| (of.key, of.value)).unzip();
                let name = |index: Option<usize>| index.map_or("", |index| &pipeline.buffers[index].name).to_owned();
                [as_read.qc, decompressed.0, decompressed.1].map(name)
            };
            assert_eq!(as_read(1.0), ["", "", ""], "{id}");
            assert_eq!(as_read(100.0), names, "{id}");
        }
    }
}

/// An H200 for the repository's own CUDA kernels.
fn h200() -> Device {
    Device {
        id: DeviceId { kind: DeviceKind::Gpu, name: "NVIDIA H200".into(), uuid: Some("GPU-1".into()), units: 132 },
        memory_bytes: 150_000_000_000,
        last_level_cache_bytes: 62_914_560,
        cores: vec![0],
        gpu: Some(GpuTraits { compute_capability: (9, 0), shared_bytes_max: 232_448, driver: "580".into() }),
    }
}

#[test]
fn the_roofline_of_a_tuned_parameter_is_lowest_where_all_of_its_values_say() {
    let catalog = Catalog::load(std::path::Path::new(env!("CARGO_MANIFEST_DIR")));
    let fixture = Fixture::new();
    let device = h200();
    let peaks = Conf::default().devices.peaks("NVIDIA H200").expect("it is configured");
    let setting = Setting { device: &device, peaks: Some(&peaks), ..fixture.setting() };
    let kernel = KernelId { kernel: "mla_var6_plus".into(), version: Version(2), language: Language::Cuda };
    let package = catalog.package(&kernel).expect("it is there");
    for (s, tuned) in [(1, None), (4, Some(0)), (16, Some(512)), (32, None)] {
        let given = shape(&[("b", 2), ("s", s), ("t", 1024)]);
        let mut pinned = given.clone();
        let floor = |n: i64, pinned: &mut Shape| {
            pinned.0.insert("n".into(), Value::Int(n));
            let instance = instantiate(package, pinned, &Tiling::default(), &root_scope(&device)).expect("a shape");
            let (flops, bytes) = instance.total();
            1e9 * (flops / peaks.flops_per_s[&DType::Bfloat16]).max(bytes / peaks.bytes_per_s)
        };
        let lowest = (0..=1024).map(|n| floor(n, &mut pinned)).fold(f64::INFINITY, f64::min);
        let mut tiling = Tiling::default();
        tiling.pipeline.extend(tuned.map(|n| ("n".to_owned(), Value::Int(n))));
        let state = SubjectState::Ready(Ready { key: Key::of_bytes(b""), tiling, floor_ns: None });
        let subject = Subject {
            id: kernel.clone(),
            label: given.clone(),
            shape: complete_shape(package, &given, &root_scope(&device)).expect("a shape"),
            listed: true,
            group: 0,
            previous: None,
            state,
            runs: vec![],
        };
        let found = optima(&setting, package, &subject).expect("its cost is known");
        let [optimum] = &found[..] else { panic!("{found:?}") };
        assert_eq!(optimum.parameter, "n");
        assert_eq!(optimum.roofline.floor_ns, lowest, "s={s}");
        assert_eq!(floor(optimum.roofline.value, &mut pinned), lowest, "s={s}");
        assert_eq!(optimum.tuned.map(|tuned| (tuned.value, tuned.floor_ns)), tuned.map(|n| (n, floor(n, &mut pinned))));
    }
}
