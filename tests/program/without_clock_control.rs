//! A build that cannot change clocks: it holds no code that could, and does not whatever it is told.
//!
//! The build is made beforehand, as scripts/test does; without it these tests say that they were not tried.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use object::{Object as _, ObjectSymbol as _};

use crate::clocks::never_touches;
use crate::fake_gpu::{Lab, SWEEP};

/// Names the program of a build with `--no-default-features --features cuda`.
const VARIABLE: &str = "MLARUN_WITHOUT_CLOCK_CONTROL";

/// What NVML's wrapper has for locking clocks and giving them back.
const USED: [&str; 4] =
    ["set_gpu_locked_clocks", "reset_gpu_locked_clocks", "set_mem_locked_clocks", "reset_mem_locked_clocks"];

/// What it has beside for changing clocks, which no build uses.
const UNUSED: [&str; 8] = [
    "set_applications_clocks",
    "reset_applications_clocks",
    "set_auto_boosted_clocks",
    "set_auto_boosted_clocks_default",
    "set_clock_offset",
    "set_gpc_clock_vf_offset",
    "set_mem_clock_vf_offset",
    "set_power_management_limit",
];

fn other_build() -> Option<PathBuf> {
    let program = std::env::var_os(VARIABLE).map(PathBuf::from);
    if program.is_none() {
        eprintln!("not tried: {VARIABLE} names no build without clock control");
    }
    program
}

/// Those of `names` that the program has a function of. Symbols are mangled, and hold the names as they are.
fn functions<'n>(program: &Path, names: &[&'n str]) -> BTreeSet<&'n str> {
    let bytes = std::fs::read(program).expect("the program can be read");
    let file = object::File::parse(&*bytes).expect("it is one");
    let symbols: Vec<&str> =
        file.symbols().filter_map(|symbol| symbol.name().ok()).filter(|name| name.contains("nvml_wrapper")).collect();
    assert!(symbols.iter().any(|symbol| symbol.contains("clock_info")), "it is not stripped, and reads clocks");
    names.iter().copied().filter(|name| symbols.iter().any(|symbol| symbol.contains(name))).collect()
}

#[test]
fn it_has_no_function_that_changes_a_clock() {
    let usual = assert_cmd::cargo::cargo_bin!("mlarun");
    assert_eq!(functions(usual, &USED), USED.into(), "the usual build is where they would be seen");
    assert_eq!(functions(usual, &UNUSED), BTreeSet::new());
    let Some(other) = other_build() else { return };
    assert_eq!(functions(&other, &USED), BTreeSet::new());
    assert_eq!(functions(&other, &UNUSED), BTreeSet::new());
}

#[test]
fn it_changes_none_whatever_it_is_told() {
    let Some(other) = other_build() else { return };
    let lab = Lab::of(other, false);
    never_touches(&lab, &[], &[]);
    for policy in ["lock", "prefer", "external"] {
        lab.mlarun_with(&["--clocks", policy, SWEEP, "--remeasure"], &[("MLARUN_CLOCKS", policy)]).expect(0);
    }
    lab.mlarun(&["clocks", "lock"]).expect(3).says("built without the cargo feature `clock-control`");
    assert!(lab.fake.calls().is_empty(), "{:?}", lab.fake.calls());
}
