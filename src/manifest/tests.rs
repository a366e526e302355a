//! Manifests against a small catalogue: what they mean, and everything that can be wrong with them.

use proptest::prelude::*;
use tempfile::TempDir;

use std::path::Path;

use super::*;
use crate::catalog::fixture::{KERNEL, project};
use crate::diagnostic::{Colour, render_all};
use crate::model::{Mode, Shape, Value, Version};

/// A sound manifest for the fixture.
const MANIFEST: &str = r#"schema = 1
[experiment]
name = "sweep"
kernels = ["plain"]
versions = ["v0", "v1"]
modes = ["event"]
baselines = ["previous", "other"]
[shapes]
s = [1, 16]
t = [64, 128]
dtype = ["float32"]
"#;

/// Two kernels in C (plain v0, v1, v3 and other v0, v2, the latter without `n`) and one in CUDA.
fn kernels() -> TempDir {
    let without_n: String =
        KERNEL.lines().filter(|line| !line.starts_with("n = ")).map(|line| format!("{line}\n")).collect();
    project(&[
        ("c/mla/plain", KERNEL),
        ("c/mla/plain_v1", KERNEL),
        ("c/mla/plain_v3", KERNEL),
        ("c/mla/other", KERNEL),
        ("c/mla/other_v2", &without_n),
        ("c/mla/broken", "schema = 1"),
        ("cuda/mla/fast", KERNEL),
    ])
}

fn document(text: &str, sets: &[&str]) -> Result<Document, Vec<Diagnostic>> {
    let sets: Vec<String> = sets.iter().map(|&set| set.to_owned()).collect();
    parse(Source { path: PathBuf::from("experiments/a.toml"), text: text.to_owned() }, &sets)
}

fn resolved_on(host: DeviceKind, text: &str, sets: &[&str]) -> Result<(Experiment, String), String> {
    let show = |diagnostics: &[Diagnostic]| render_all(diagnostics, Colour::Never);
    let document = document(text, sets).map_err(|diagnostics| show(&diagnostics))?;
    let root = kernels();
    match resolve(&document, &Catalog::load(root.path()), host) {
        Ok((experiment, warnings)) => Ok((experiment, show(&warnings))),
        Err(Error::Invalid(diagnostics)) => Err(show(&diagnostics)),
        Err(Error::NoDevice { diagnostic, .. }) => Err(show(&[*diagnostic])),
    }
}

fn resolved(text: &str, sets: &[&str]) -> Experiment {
    match resolved_on(DeviceKind::Cpu, text, sets) {
        Ok((experiment, warnings)) => {
            assert_eq!(warnings, "");
            experiment
        }
        Err(shown) => panic!("{shown}"),
    }
}

/// What is said about the manifest with `from` replaced by `to`.
fn complaint(from: &str, to: &str) -> String {
    assert!(MANIFEST.contains(from), "{from} is not in the manifest");
    resolved_on(DeviceKind::Cpu, &MANIFEST.replacen(from, to, 1), &[]).expect_err(to)
}

fn complaint_about_set(set: &str) -> String {
    resolved_on(DeviceKind::Cpu, MANIFEST, &[set]).expect_err(set)
}

fn warnings(from: &str, to: &str) -> String {
    assert!(MANIFEST.contains(from), "{from} is not in the manifest");
    match resolved_on(DeviceKind::Cpu, &MANIFEST.replacen(from, to, 1), &[]) {
        Ok((_, warnings)) => warnings,
        Err(shown) => panic!("{shown}"),
    }
}

fn first_lines(text: &str) -> String {
    text.lines().filter(|line| line.starts_with("error") || line.starts_with("warning")).collect::<Vec<_>>().join("\n")
}

fn shapes(experiment: &Experiment) -> Vec<String> {
    experiment.shapes.iter().map(Shape::to_string).collect()
}

#[test]
fn a_manifest_resolves_to_what_it_means() {
    let experiment = resolved(MANIFEST, &[]);
    insta::assert_json_snapshot!(experiment, @r#"
    {
      "name": "sweep",
      "description": "",
      "language": "c",
      "device": "cpu",
      "kernels": [
        {
          "kernel": "plain",
          "versions": [
            "v0",
            "v1"
          ]
        }
      ],
      "modes": [
        "event"
      ],
      "baselines": [
        "previous",
        {
          "kernel": {
            "kernel": "other",
            "version": "v2"
          }
        }
      ],
      "shapes": [
        {
          "dtype": "float32",
          "s": 1,
          "t": 64
        },
        {
          "dtype": "float32",
          "s": 1,
          "t": 128
        },
        {
          "dtype": "float32",
          "s": 16,
          "t": 64
        },
        {
          "dtype": "float32",
          "s": 16,
          "t": 128
        }
      ],
      "clocks": {
        "policy": "lock",
        "sm_mhz": null,
        "mem_mhz": null
      },
      "rounds": 8,
      "protocol": {
        "event": {
          "timings": null,
          "budget_ns": null,
          "min_samples": null,
          "max_samples": null,
          "warmup_ns": null
        },
        "annotation": {
          "budget_ns": null,
          "min_samples": null,
          "max_samples": null
        },
        "ncu_stage": null,
        "tuning": {
          "budget_ns": null,
          "limit": null,
          "seed": null
        },
        "nsys": {
          "tool": null,
          "launches": null
        }
      },
      "time_limit_s": 600,
      "devlog": {
        "devices": []
      }
    }
    "#);
}

#[test]
fn defaults_are_filled_in() {
    let experiment = resolved("schema = 1\n[experiment]\nname = \"a\"\nkernels = \"plain\"\n", &[]);
    assert_eq!((experiment.language, experiment.device), (Language::C, DeviceKind::Cpu));
    assert_eq!(experiment.kernels, [Selection { kernel: "plain".into(), versions: vec![Version(0)] }]);
    assert_eq!(experiment.modes, [Mode::Annotation]);
    assert_eq!(experiment.shapes, [Shape::default()]);
    assert_eq!((experiment.rounds, experiment.time_limit_s), (8, 600));
    assert_eq!(experiment.clocks.policy, ClockPolicy::Lock);
}

#[test]
fn versions_are_named_or_described() {
    let versions = |text: &str| -> Vec<u32> {
        let experiment = resolved(&MANIFEST.replace("[\"v0\", \"v1\"]", text), &[]);
        experiment.kernels[0].versions.iter().map(|version| version.0).collect()
    };
    assert_eq!(versions("\"all\""), [0, 1, 3]);
    assert_eq!(versions("\"latest\""), [3]);
    assert_eq!(versions("\"base\""), [0]);
    assert_eq!(versions("[\"v3\", \"v0\", \"latest\"]"), [3, 0]);
}

#[test]
fn baselines_are_kernels_files_or_the_previous_version() {
    let root = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(root.path().join("old.json"), "{}").expect("a file");
    let baselines = "[\"previous\", \"other\", \"plain@v1\", \"plain@base\", { kernel = \"other\", version = \"v0\" }, \"old.json\"]";
    let text = MANIFEST.replace("[\"previous\", \"other\"]", baselines);
    let source = Source { path: root.path().join("a.toml"), text };
    let document = parse(source, &[]).expect("it is TOML");
    let kernels = kernels();
    let (experiment, _) = resolve(&document, &Catalog::load(kernels.path()), DeviceKind::Cpu).expect("it is sound");
    let kernel = |kernel: &str, version| Baseline::Kernel { kernel: kernel.into(), version: Version(version) };
    let expected = [
        Baseline::Previous,
        kernel("other", 2),
        kernel("plain", 1),
        kernel("plain", 0),
        kernel("other", 0),
        Baseline::File(root.path().join("old.json")),
    ];
    assert_eq!(experiment.baselines, expected);
}

#[test]
fn a_point_is_crossed_with_the_axes_that_it_does_not_name() {
    let text = format!("{MANIFEST}[[shapes.point]]\ns = [2, 4]\nt = [8, 9]\n[[shapes.point]]\ns = 3\n");
    let expected = [
        "s=1 t=64 dtype=float32",
        "s=1 t=128 dtype=float32",
        "s=16 t=64 dtype=float32",
        "s=16 t=128 dtype=float32",
        "s=2 t=8 dtype=float32",
        "s=4 t=9 dtype=float32",
        "s=3 t=64 dtype=float32",
        "s=3 t=128 dtype=float32",
    ];
    assert_eq!(shapes(&resolved(&text, &[])), expected);
}

#[test]
fn points_alone_are_shapes() {
    let text = MANIFEST.split("[shapes]").next().expect("it has shapes").to_owned();
    let text = text + "[[shapes.point]]\ns = [2, 4]\nt = 8\n";
    assert_eq!(shapes(&resolved(&text, &[])), ["s=2 t=8", "s=4 t=8"]);
}

#[test]
fn exclusions_leave_points_out() {
    let text = format!("{MANIFEST}[[shapes.exclude]]\nwhen = \"s == 16 && t > 64\"\n");
    assert_eq!(shapes(&resolved(&text, &[])).len(), 3);
    // An exclusion over a name that only some points have leaves the others alone.
    let text = format!("{MANIFEST}[[shapes.point]]\nn = [0, 1]\ns = 2\nt = 9\n[[shapes.exclude]]\nwhen = \"n == 0\"\n");
    assert_eq!(shapes(&resolved(&text, &[])).len(), 5);
}

#[test]
fn a_float_parameter_takes_integers() {
    let experiment = resolved(&MANIFEST.replace("s = [1, 16]", "alpha = [1, 2.5]"), &[]);
    assert_eq!(experiment.shapes[0].get("alpha"), Some(&Value::Float(1.0)));
}

const TARGET: &str = "[target.cpu]\nversions = \"latest\"\nmodes = [\"annotation\"]\n[target.cpu.shapes]\ns = [7]\n[target.gpu]\nlanguage = \"cuda\"\n";

#[test]
fn a_target_replaces_wholesale() {
    let text = format!("{MANIFEST}{TARGET}");
    let experiment = resolved(&text, &[]);
    assert_eq!(shapes(&experiment), ["s=7"]);
    assert_eq!(experiment.modes, [Mode::Annotation]);
    assert_eq!(experiment.kernels[0].versions, [Version(3)]);
    let on_gpu =
        MANIFEST.replace("\"plain\"", "\"fast\"").replace("\"v0\", \"v1\"", "\"v0\"").replace(", \"other\"", "");
    let (experiment, _) = resolved_on(DeviceKind::Gpu, &format!("{on_gpu}{TARGET}"), &[]).expect("it is sound");
    assert_eq!((experiment.language, experiment.device), (Language::Cuda, DeviceKind::Gpu));
    assert_eq!(experiment.shapes.len(), 4);
}

#[test]
fn c_runs_on_the_cpu_of_any_host() {
    let text = MANIFEST.replace("modes =", "language = \"c\"\nmodes =");
    let (experiment, _) = resolved_on(DeviceKind::Gpu, &text, &[]).expect("it is sound");
    assert_eq!(experiment.device, DeviceKind::Cpu);
}

#[test]
fn a_language_without_device_is_an_error_of_its_own() {
    let text = "schema = 1\n[experiment]\nname = \"a\"\nkernels = [\"fast\"]\nlanguage = \"cuda\"\n";
    let document = document(text, &[]).expect("it is TOML");
    let root = kernels();
    let error = resolve(&document, &Catalog::load(root.path()), DeviceKind::Cpu).expect_err("there is no GPU");
    assert!(matches!(error, Error::NoDevice { language: Language::Cuda, .. }));
    insta::assert_snapshot!(resolved_on(DeviceKind::Cpu, text, &[]).expect_err("there is no GPU"), @r#"
    error: kernels in cuda need a GPU
     --> experiments/a.toml:5:12
      |
    5 | language = "cuda"
      |            ^^^^^^ none on this host
      |
      = help: say in a table `[target.cpu]` what runs instead, for example language = "c"
    "#);
}

#[test]
fn the_command_line_overrides_the_manifest_and_its_targets() {
    let sets = ["shapes.s=[2,3]", "modes=event", "versions=v1", "clocks.policy=observe", "shapes.t=5"];
    let experiment = resolved(&format!("{MANIFEST}{TARGET}"), &sets);
    assert_eq!(shapes(&experiment), ["s=2 t=5", "s=3 t=5"]);
    assert_eq!(experiment.modes, [Mode::Event]);
    assert_eq!(experiment.kernels[0].versions, [Version(1)]);
    assert_eq!(experiment.clocks.policy, ClockPolicy::Observe);
    assert_eq!(resolved(MANIFEST, &["rounds=12", "protocol.tuning.seed=7", "rounds=9"]).rounds, 9);
}

#[test]
fn a_wrong_override_names_the_command_line() {
    insta::assert_snapshot!(complaint_about_set("shapes.s=[1,"), @r"
    error: not TOML: unclosed array, expected `]`
     --> --set:1:13
      |
    1 | shapes.s=[1,
      |             ^
    ");
    insta::assert_snapshot!(complaint_about_set("modes=evnt"), @r"
    error: `evnt` is not a mode
     --> --set:1:7
      |
    1 | modes=evnt
      |       ^^^^ unknown
      |
      = help: did you mean `event`?
    ");
    insta::assert_snapshot!(complaint_about_set("shapes.s"), @r"
    error: an override has the form key=value
     --> --set:1:1
      |
    1 | shapes.s
      | ^^^^^^^^ no `=` here
      |
      = help: for example --set shapes.s=[1,4]
    ");
    insta::assert_snapshot!(complaint_about_set("shapes..s=1"), @r"
    error: `shapes..s` is not a key: names of letters, digits, `_` and `-`, joined by dots
     --> --set:1:8
      |
    1 | shapes..s=1
      |        ^ not a name
    ");
    insta::assert_snapshot!(complaint_about_set("experiment.name.x=1"), @r"
    error: `x` cannot be set: what it would stand in is a string
     --> --set:1:17
      |
    1 | experiment.name.x=1
      |                 ^ no table to set it in
    ");
    insta::assert_snapshot!(first_lines(&complaint_about_set("rounds=0")), @"error: `rounds` must lie between 1 and 1000");
    insta::assert_snapshot!(first_lines(&complaint_about_set("shape.s=1")), @"error: `[experiment]` has no key `shape`");
}

#[test]
fn everything_wrong_is_said_at_once() {
    let text = r#"schema = 1
[experiment]
name = "../sweep"
kernels = ["plan", "plain"]
verions = ["v0"]
modes = ["event", "evnt"]
baselines = ["previuos", "plain@v7", "missing.json"]
[shapes]
s = [0, 1]
q = [1]
dtype = ["float16"]
[clocks]
policy = "look"
"#;
    insta::assert_snapshot!(resolved_on(DeviceKind::Cpu, text, &[]).expect_err("it is wrong"), @r#"
    error: the experiment's name cannot name a folder
     --> experiments/a.toml:3:8
      |
    3 | name = "../sweep"
      |        ^^^^^^^^^^ `.` is not allowed
      |
      = help: use 1 to 100 of A-Z a-z 0-9 _ -, a letter or digit first

    error: there is no kernel `plan` in c
     --> experiments/a.toml:4:12
      |
    4 | kernels = ["plan", "plain"]
      |            ^^^^^^ unknown kernel
      |
      = help: did you mean `plain`?

    error: `[experiment]` has no key `verions`
     --> experiments/a.toml:5:1
      |
    5 | verions = ["v0"]
      | ^^^^^^^ unknown key
      |
      = help: did you mean `versions`?

    error: `evnt` is not a mode
     --> experiments/a.toml:6:19
      |
    6 | modes = ["event", "evnt"]
      |                   ^^^^^^ unknown
      |
      = help: did you mean `event`?

    error: `previuos` is neither `previous` nor a kernel in c
     --> experiments/a.toml:7:14
      |
    7 | baselines = ["previuos", "plain@v7", "missing.json"]
      |              ^^^^^^^^^^ unknown baseline
      |
      = help: did you mean `previous`?

    error: plain has no version v7 in c
     --> experiments/a.toml:7:26
      |
    7 | baselines = ["previuos", "plain@v7", "missing.json"]
      |                          ^^^^^^^^^^ unknown version
      |
      = help: its versions are v0, v1, v3; its latest is v3

    error: there is no recorded result experiments/missing.json
     --> experiments/a.toml:7:38
      |
    7 | baselines = ["previuos", "plain@v7", "missing.json"]
      |                                      ^^^^^^^^^^^^^^ no such file
      |
      = help: paths start at the manifest's folder

    error: plain v0 (c) does not take `s` = 0
     --> experiments/a.toml:9:6
      |
    9 | s = [0, 1]
      |      ^ it must be at least 1

    error: no selected kernel has the parameter `q`
      --> experiments/a.toml:10:1
       |
    10 | q = [1]
       | ^ unknown parameter
       |
       = help: known here: `alpha`, `causal`, `dtype`, `n`, `s`, `t`

    error: plain v0 (c) does not take `dtype` = float16
      --> experiments/a.toml:11:10
       |
    11 | dtype = ["float16"]
       |          ^^^^^^^^^ it takes float32, bfloat16

    error: `look` is not a clock policy
      --> experiments/a.toml:13:10
       |
    13 | policy = "look"
       |          ^^^^^^ unknown
       |
       = help: did you mean `lock`?
    "#);
}

#[test]
fn syntax_errors_are_underlined() {
    insta::assert_snapshot!(complaint("kernels = [\"plain\"]", "kernels = [\"plain\""), @r#"
    error: not TOML: missing comma between array elements, expected `,`
     --> experiments/a.toml:5:1
      |
    5 | versions = ["v0", "v1"]
      | ^
    "#);
    insta::assert_snapshot!(complaint("s = [1, 16]", "s = [1, 99999999999999999999]"), @r"
    error: the integer exceeds 64 bits
     --> experiments/a.toml:9:9
      |
    9 | s = [1, 99999999999999999999]
      |         ^^^^^^^^^^^^^^^^^^^^
    ");
}

#[test]
fn keys_and_types_are_checked() {
    insta::assert_snapshot!(complaint("schema = 1", "schema = 2"), @r"
    error: this mlarun reads manifests up to schema 1
     --> experiments/a.toml:1:10
      |
    1 | schema = 2
      |          ^ newer
      |
      = help: use a newer mlarun, or write the manifest for schema 1
    ");
    insta::assert_snapshot!(complaint("name = \"sweep\"\n", ""), @r"
    error: `[experiment]` needs the key `name`
     --> experiments/a.toml:2:1
      |
    2 | [experiment]
      | ^^^^^^^^^^^^ no `name` here
    ");
    insta::assert_snapshot!(complaint("versions = [\"v0\", \"v1\"]", "versions = 3"), @r"
    error: a version must be a string
     --> experiments/a.toml:5:12
      |
    5 | versions = 3
      |            ^ this is an integer
    ");
    insta::assert_snapshot!(first_lines(&complaint("schema = 1", "")), @"error: a manifest needs the key `schema`");
    insta::assert_snapshot!(first_lines(&complaint("schema = 1", "schema = \"1\"")), @"error: `schema` must be an integer");
    insta::assert_snapshot!(first_lines(&complaint("[\"plain\"]", "[]")), @"error: `kernels` is an empty list");
    insta::assert_snapshot!(first_lines(&complaint("[\"plain\"]", "[1]")), @"error: a kernel must be a string");
    insta::assert_snapshot!(first_lines(&complaint("\"other\"]", "{ kernel = \"other\", file = \"x\" }]")), @"error: a baseline is either a `kernel`, with a `version` if need be, or a `file`");
    insta::assert_snapshot!(first_lines(&complaint("\"other\"]", "{ krenel = \"other\" }]")), @r"
    error: a baseline is either a `kernel`, with a `version` if need be, or a `file`
    error: a baseline has no key `krenel`
    ");
    insta::assert_snapshot!(first_lines(&complaint("[shapes]", "[protocol.event]\nmin_samples = 9\nmax_samples = 8\n[shapes]")), @"error: `max_samples` must not be smaller than `min_samples`");
    insta::assert_snapshot!(first_lines(&complaint("[shapes]", "[target.tpu]\n[shapes]")), @"error: `[target]` has no key `tpu`");
    assert!(resolved_on(DeviceKind::Cpu, "", &[]).is_err());
}

#[test]
fn names_of_experiments_are_names_of_folders() {
    let with_name = |name: &str| complaint("\"sweep\"", &format!("{name:?}"));
    insta::assert_snapshot!(with_name("a/b"), @r#"
    error: the experiment's name cannot name a folder
     --> experiments/a.toml:3:8
      |
    3 | name = "a/b"
      |        ^^^^^ `/` is not allowed
      |
      = help: use 1 to 100 of A-Z a-z 0-9 _ -, a letter or digit first
    "#);
    for (name, reason) in [
        ("..", "`.` is not allowed"),
        ("", "it is empty"),
        ("-a", "it must start with a letter or a digit"),
        ("µ", "is not allowed"),
        ("a b", "` ` is not allowed"),
    ] {
        assert!(with_name(name).contains(reason), "{}", with_name(name));
    }
    assert!(with_name(&"a".repeat(300)).contains("it has 300 characters, at most 100 are allowed"));
    resolved(&MANIFEST.replace("sweep", &"a".repeat(100)), &[]);
}

#[test]
fn kernels_and_versions_are_found() {
    insta::assert_snapshot!(complaint("\"plain\"", "\"plian\""), @r#"
    error: there is no kernel `plian` in c
     --> experiments/a.toml:4:12
      |
    4 | kernels = ["plian"]
      |            ^^^^^^^ unknown kernel
      |
      = help: did you mean `plain`?
    "#);
    insta::assert_snapshot!(complaint("\"plain\"", "\"fast\""), @r#"
    error: there is no kernel `fast` in c
     --> experiments/a.toml:4:12
      |
    4 | kernels = ["fast"]
      |            ^^^^^^ unknown kernel
      |
      = help: there is one in cuda: set language = "cuda"
    "#);
    insta::assert_snapshot!(complaint("\"v1\"", "\"v2\""), @r#"
    error: plain has no version v2 in c
     --> experiments/a.toml:5:19
      |
    5 | versions = ["v0", "v2"]
      |                   ^^^^ unknown version
      |
      = help: its versions are v0, v1, v3; its latest is v3
    "#);
    insta::assert_snapshot!(first_lines(&complaint("\"v1\"", "\"v01\"")), @"error: `v01` is not a version");
    insta::assert_snapshot!(first_lines(&complaint("\"other\"", "\"othr\"")), @"error: `othr` is neither `previous` nor a kernel in c");
    insta::assert_snapshot!(first_lines(&complaint("\"other\"", "\"other@v1\"")), @"error: other has no version v1 in c");
    insta::assert_snapshot!(first_lines(&complaint("\"other\"", "\"other@all\"")), @"error: a baseline is one version of a kernel");
    insta::assert_snapshot!(first_lines(&complaint("\"other\"", "\"out/missing.json\"")), @"error: there is no recorded result experiments/out/missing.json");
}

#[test]
fn a_broken_package_is_shown_to_those_who_use_it() {
    let shown = complaint("\"other\"", "\"broken\"");
    assert!(shown.contains("the package of broken v0 (c) is broken"), "{shown}");
    assert!(shown.contains("kernels/c/mla/broken/kernel.toml:1:1"), "{shown}");
}

#[test]
fn axes_are_checked() {
    insta::assert_snapshot!(complaint("s = [1, 16]", "s = [1, \"16\"]"), @r#"
    error: the axis `s` mixes types
     --> experiments/a.toml:9:9
      |
    9 | s = [1, "16"]
      |         ^^^^ string here, integer before
    "#);
    insta::assert_snapshot!(complaint("s = [1, 16]", "s = []"), @r"
    error: the axis `s` has no value
     --> experiments/a.toml:9:5
      |
    9 | s = []
      |     ^^ empty
    ");
    insta::assert_snapshot!(complaint("s = [1, 16]", "alpha = [1.0, nan]"), @r"
    error: the axis `alpha` holds NaN
     --> experiments/a.toml:9:15
      |
    9 | alpha = [1.0, nan]
      |               ^^^ not a finite number
    ");
    insta::assert_snapshot!(complaint("s = [1, 16]", "s = [1, 0]"), @r"
    error: plain v0 (c) does not take `s` = 0
     --> experiments/a.toml:9:9
      |
    9 | s = [1, 0]
      |         ^ it must be at least 1
    ");
    insta::assert_snapshot!(complaint("\"float32\"", "\"float16\""), @r#"
    error: plain v0 (c) does not take `dtype` = float16
      --> experiments/a.toml:11:10
       |
    11 | dtype = ["float16"]
       |          ^^^^^^^^^ it takes float32, bfloat16
    "#);
    insta::assert_snapshot!(complaint("s = [1, 16]", "casual = [true]"), @r"
    error: no selected kernel has the parameter `casual`
     --> experiments/a.toml:9:1
      |
    9 | casual = [true]
      | ^^^^^^ unknown parameter
      |
      = help: did you mean `causal`?
    ");
    insta::assert_snapshot!(first_lines(&complaint("s = [1, 16]", "alpha = [-inf]")), @"error: the axis `alpha` holds -inf");
    insta::assert_snapshot!(first_lines(&complaint("s = [1, 16]", "s = [1.5]")), @"error: plain v0 (c) does not take `s` = 1.5");
    insta::assert_snapshot!(first_lines(&complaint("s = [1, 16]", "s = [[1]]")), @"error: a value of the axis `s` must be a number, a string, true or false");
    insta::assert_snapshot!(first_lines(&complaint("s = [1, 16]", "s = [1979-05-27]")), @"error: a value of the axis `s` must be a number, a string, true or false");
    insta::assert_snapshot!(first_lines(&complaint("t = [64", "t = [1000001")), @"error: plain v0 (c) does not take `t` = 1000001");
    insta::assert_snapshot!(first_lines(&complaint("[shapes]", "[[shapes.point]]\ns = [1, 2]\nt = [1, 2, 3]\n[shapes]")), @"error: lists of one point advance together: `t` has 3 values, `s` has 2");
}

#[test]
fn a_parameter_of_some_kernels_is_fine() {
    let text = MANIFEST.replace("[\"plain\"]", "[\"plain\", \"other\"]").replace("[\"v0\", \"v1\"]", "\"latest\"");
    assert_eq!(shapes(&resolved(&text.replace("s = [1, 16]", "n = [1, 16]"), &[])).len(), 4);
}

#[test]
fn a_parameter_without_default_must_be_given() {
    let kernel = KERNEL.replace("max = 1000000, default = 256,", "max = 1000000,");
    let root = project(&[("c/mla/plain", &kernel)]);
    let text = "schema = 1\n[experiment]\nname = \"a\"\nkernels = [\"plain\"]\n[shapes]\ns = [1]\n";
    let document = document(text, &[]).expect("it is TOML");
    let Err(Error::Invalid(diagnostics)) = resolve(&document, &Catalog::load(root.path()), DeviceKind::Cpu) else {
        panic!("a shape without t was accepted");
    };
    assert_eq!(diagnostics[0].message, "plain v0 (c) needs a value of `t`");
}

#[test]
fn repeated_points_are_warned_of_once_for_each_set() {
    insta::assert_snapshot!(warnings("s = [1, 16]", "s = [1, 16, 1, 1]"), @r"
    warning: 4 points repeat earlier ones, the first is s=1 t=64 dtype=float32
     --> experiments/a.toml:8:1
      |
    8 | [shapes]
      | ^^^^^^^^ kept once
    ");
    let point = "[[shapes.point]]\ns = 1\nt = 64\n[shapes]";
    insta::assert_snapshot!(first_lines(&warnings("[shapes]", point)), @"warning: the point s=1 t=64 dtype=float32 is listed twice");
    insta::assert_snapshot!(first_lines(&warnings("[\"event\"]", "[\"event\", \"event\"]")), @"warning: the mode event is listed twice");
}

#[test]
fn exclusions_are_checked() {
    let with = |when: &str| format!("[[shapes.exclude]]\nwhen = {when:?}\n[shapes]");
    insta::assert_snapshot!(complaint("[shapes]", &with("s == 16 && tt > 64")), @r#"
    error: the exclusion uses the unknown name `tt`
     --> experiments/a.toml:9:20
      |
    9 | when = "s == 16 && tt > 64"
      |                    ^^ no axis
      |
      = help: did you mean `t`?
    "#);
    insta::assert_snapshot!(complaint("[shapes]", &with("causal")), @r#"
    error: the exclusion uses the unknown name `causal`
     --> experiments/a.toml:9:9
      |
    9 | when = "causal"
      |         ^^^^^^ no axis
      |
      = help: it is a parameter, but no axis: give its values under [shapes], `causal = […]`
    "#);
    insta::assert_snapshot!(complaint("[shapes]", &with("s == ")), @r#"
    error: `when` is not an expression
     --> experiments/a.toml:9:14
      |
    9 | when = "s == "
      |              ^ it ends too early
    "#);
    insta::assert_snapshot!(complaint("[shapes]", &with("s > 0")), @r#"
    error: the exclusions leave none of the 4 points
     --> experiments/a.toml:9:8
      |
    9 | when = "s > 0"
      |        ^^^^^^^ nothing remains
    "#);
    insta::assert_snapshot!(complaint("[shapes]", &with("s + t")), @r#"
    error: the exclusion has no value of true or false at s=1 t=64 dtype=float32
     --> experiments/a.toml:9:8
      |
    9 | when = "s + t"
      |        ^^^^^^^ its value is the integer 65, where true or false is needed
    "#);
    insta::assert_snapshot!(complaint("[shapes]", &with("s / (t - 64) > 1")), @r#"
    error: the exclusion has no value of true or false at s=1 t=64 dtype=float32
     --> experiments/a.toml:9:8
      |
    9 | when = "s / (t - 64) > 1"
      |        ^^^^^^^^^^^^^^^^^^ Division by zero of Int(1)
    "#);
    insta::assert_snapshot!(warnings("[shapes]", &with("s > 99")), @r#"
    warning: the exclusion matches no point
     --> experiments/a.toml:9:8
      |
    9 | when = "s > 99"
      |        ^^^^^^^^ leaves nothing out
    "#);
}

#[test]
fn too_many_points_are_counted_exactly_and_refused() {
    let axis = |length: usize| format!("{:?}", (1..=length).collect::<Vec<_>>());
    let text = MANIFEST.replace("[1, 16]", &axis(1001)).replace("[64, 128]", &axis(1000));
    let shown = resolved_on(DeviceKind::Cpu, &text, &[]).expect_err("they are too many");
    assert!(shown.contains("the shapes are 1,001,000 points; at most 1,000,000 are possible"), "{shown}");
    // 2^64 is about 1.8e19: five axes of ten thousand are 1e20 points.
    let kernel =
        KERNEL.replace("[lets]", "u = { type = \"int\", default = 1 }\nv = { type = \"int\", default = 1 }\n[lets]");
    let root = project(&[("c/mla/plain", &kernel)]);
    let long = axis(10_000);
    let text = format!(
        "schema = 1\n[experiment]\nname = \"a\"\nkernels = [\"plain\"]\n[shapes]\ns = {long}\nt = {long}\nn = {long}\nu = {long}\nv = {long}\n[[shapes.point]]\ns = 1\nt = 1\nn = 1\nu = 1\nv = 1\n"
    );
    let document = document(&text, &[]).expect("it is TOML");
    let Err(Error::Invalid(diagnostics)) = resolve(&document, &Catalog::load(root.path()), DeviceKind::Cpu) else {
        panic!("they are too many");
    };
    assert!(diagnostics[0].message.contains("100,000,000,000,000,000,001 points"), "{}", diagnostics[0].message);
}

#[test]
fn windows_line_ends_and_a_byte_order_mark_change_nothing() {
    let text = format!("\u{feff}{}", MANIFEST.replace('\n', "\r\n"));
    assert_eq!(resolved(&text, &[]), resolved(MANIFEST, &[]));
    let plain = complaint("\"event\"", "\"evnt\"");
    let text = text.replace("\"event\"", "\"evnt\"");
    assert_eq!(resolved_on(DeviceKind::Cpu, &text, &[]).expect_err("it is wrong"), plain);
}

/// Structure alone, as the schema knows no catalog.
fn parser_accepts(text: &str) -> bool {
    document(text, &[]).expect("the corpus is TOML").diagnostics.is_empty()
}

/// Sound and unsound manifests: `MANIFEST` with one part replaced.
const CORPUS: [(&str, &str, bool); 44] = [
    ("", "", true),
    ("schema = 1", "schema = 2", false),
    ("schema = 1", "schema = 0", false),
    ("schema = 1", "", false),
    ("schema = 1", "schema = true", false),
    ("name = \"sweep\"", "", false),
    ("\"sweep\"", "\"a/b\"", false),
    ("\"sweep\"", "\"\"", false),
    ("\"sweep\"", "\"_a\"", false),
    ("\"sweep\"", "3", false),
    ("[\"plain\"]", "\"plain\"", true),
    ("[\"plain\"]", "[]", false),
    ("[\"plain\"]", "[1]", false),
    ("kernels", "kernel", false),
    ("[\"v0\", \"v1\"]", "\"all\"", true),
    ("[\"v0\", \"v1\"]", "[\"latest\", \"base\"]", true),
    ("[\"v0\", \"v1\"]", "\"v01\"", false),
    ("[\"v0\", \"v1\"]", "\"newest\"", false),
    ("[\"v0\", \"v1\"]", "\"v9999999999\"", false),
    ("[\"event\"]", "\"nsys\"", true),
    ("[\"event\"]", "[\"events\"]", false),
    ("\"other\"", "{ kernel = \"other\" }", true),
    ("\"other\"", "{ kernel = \"other\", version = \"v1\" }", true),
    ("\"other\"", "{ file = \"a.json\" }", true),
    ("\"other\"", "{ file = \"a.json\", version = \"v1\" }", false),
    ("\"other\"", "{}", false),
    ("\"other\"", "\"\"", false),
    ("\"other\"", "7", false),
    ("s = [1, 16]", "s = 1", true),
    ("s = [1, 16]", "s = [1, 2.5]", true),
    ("s = [1, 16]", "s = []", false),
    ("s = [1, 16]", "s = [1, true]", false),
    ("s = [1, 16]", "s = [[1]]", false),
    ("s = [1, 16]", "s = { a = 1 }", false),
    ("[shapes]", "[[shapes.point]]\ns = [1]\n[shapes]", true),
    ("[shapes]", "[[shapes.point]]\n[shapes]", false),
    ("[shapes]", "[[shapes.exclude]]\nwhen = \"s > 1\"\n[shapes]", true),
    ("[shapes]", "[[shapes.exclude]]\nif = \"s > 1\"\n[shapes]", false),
    ("[shapes]", "[clocks]\npolicy = \"prefer\"\nsm_mhz = 1500\n[shapes]", true),
    ("[shapes]", "[clocks]\npolicy = \"never\"\n[shapes]", false),
    ("[shapes]", "[clocks]\nsm_mhz = 0\n[shapes]", false),
    (
        "[shapes]",
        "[protocol.event]\ntimings = [\"warm_batched\"]\nbudget_ms = 5\n[protocol.tuning]\nseed = 0\n[shapes]",
        true,
    ),
    ("[shapes]", "[protocol.event]\nmin_samples = 2\n[shapes]", false),
    ("[shapes]", "[target.tpu]\nmodes = \"event\"\n[target.cpu]\nkernels = []\n[shapes]", false),
];

#[test]
fn schema_and_parser_accept_and_refuse_the_same() {
    let schema = jsonschema::validator_for(&json_schema()).expect("the schema is one");
    for (from, to, sound) in CORPUS {
        assert!(MANIFEST.contains(from), "{from} is not in the manifest");
        let text = MANIFEST.replacen(from, to, 1);
        let value: toml::Value = toml::from_str(&text).expect("the corpus is TOML");
        let json = serde_json::to_value(value).expect("it has no dates");
        assert_eq!(parser_accepts(&text), sound, "the parser about {to}");
        assert_eq!(schema.is_valid(&json), sound, "the schema about {to}");
    }
}

/// A manifest in which every key occurs.
const EVERY_KEY: &str = r#"schema = 1
[experiment]
name = "a"
description = "b"
kernels = ["c"]
language = "c"
versions = ["v0"]
modes = ["event"]
baselines = ["previous"]
rounds = 8
time_limit_s = 60
[shapes]
s = [1]
[[shapes.point]]
s = 2
[[shapes.exclude]]
when = "s == 1"
[clocks]
policy = "lock"
sm_mhz = 1
mem_mhz = 1
[protocol.event]
timings = ["cold_isolated"]
budget_ms = 1
min_samples = 3
max_samples = 3
warmup_ms = 0
[protocol.annotation]
budget_ms = 1
min_samples = 3
max_samples = 3
[protocol.tuning]
budget_s = 1
limit = 1
seed = 1
[protocol.ncu]
stage = "a"
[protocol.nsys]
tool = "cupti"
launches = 1
[devlog]
devices = ["d"]
[target.cpu]
language = "c"
versions = "all"
modes = "event"
baselines = "previous"
[target.cpu.shapes]
s = 1
[target.gpu]
language = "cuda"
"#;

/// Every property of every object that the schema describes.
fn properties(schema: &serde_json::Value, found: &mut std::collections::BTreeSet<String>) {
    match schema {
        serde_json::Value::Object(object) => {
            if let Some(serde_json::Value::Object(named)) = object.get("properties") {
                found.extend(named.keys().cloned());
            }
            object.values().for_each(|value| properties(value, found));
        }
        serde_json::Value::Array(values) => values.iter().for_each(|value| properties(value, found)),
        _ => {}
    }
}

#[test]
fn the_schema_knows_exactly_the_keys_that_the_parser_knows() {
    assert!(parser_accepts(EVERY_KEY));
    let value: toml::Value = toml::from_str(EVERY_KEY).expect("it is TOML");
    let json = serde_json::to_value(value).expect("it has no dates");
    let validator = jsonschema::validator_for(&json_schema()).expect("the schema is one");
    assert!(validator.is_valid(&json));
    let mut known = std::collections::BTreeSet::new();
    properties(&json_schema(), &mut known);
    for key in known.iter().filter(|key| !["kernel", "version", "file"].contains(&key.as_str())) {
        assert!(EVERY_KEY.contains(key.as_str()), "the schema knows `{key}`, this manifest does not have it");
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,80}") {
        let _ = document(&text, &[]).map(|document| resolve(&document, &Catalog::load(Path::new("/dev")), DeviceKind::Cpu));
    }

    #[test]
    fn no_damaged_manifest_panics(at in 0..MANIFEST.len(), length in 0usize..20, with in "[\\[\\]{}=\"'.,a0\\n-]{0,5}") {
        let mut text = MANIFEST.to_owned();
        text.replace_range(at..(at + length).min(MANIFEST.len()), &with);
        if let Ok(document) = document(&text, &[])
            && let Err(Error::Invalid(diagnostics)) = resolve(&document, &Catalog::load(Path::new("/dev")), DeviceKind::Cpu) {
            prop_assert!(!diagnostics.is_empty());
            render_all(&diagnostics, Colour::Never);
        }
    }

    #[test]
    fn no_override_panics(set in "\\PC{0,30}") {
        let _ = document(MANIFEST, &[&set]);
    }
}
