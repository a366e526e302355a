//! Imports go one way: a module may use what stands before it in `LAYERS`, never its siblings or what stands after.

use std::collections::BTreeSet;
use std::path::Path;

use syn::visit::Visit;
use walkdir::WalkDir;

/// Modules from the bottom up; those of one row are siblings and do not know one another.
const LAYERS: &[&[&str]] = &[
    &["failpoint", "model"],
    &["atomic", "diagnostic", "expr", "roofline", "stats"],
    &["answers", "pairs", "spanned", "timeline"],
    &["catalog", "conf"],
    &["manifest"],
    &["plan"],
    &["backend", "device", "profiler", "store", "worker"],
    &["execute", "report"],
    &["history", "nightly", "recording"],
    &["app", "fuzz"],
    &["cli"],
];

/// Crates that only the named files may use: what touches the outside stays where it is looked for.
const CONFINED: &[(&str, &[&str])] = &[
    ("cudarc", &["worker/"]),
    ("libloading", &["worker/"]),
    ("nvml_wrapper", &["device/nvml/"]),
    ("matrixmultiply", &["worker/"]),
    ("perf_event", &["worker/"]),
    ("rusqlite", &["profiler/nsys/", "store/"]),
    ("handlebars", &["report/"]),
    ("indicatif", &["cli/"]),
    ("clap", &["cli/", "main.rs"]),
    ("annotate_snippets", &["diagnostic/"]),
    ("cel", &["expr/"]),
    ("flate2", &["recording/"]),
    ("quick_junit", &["nightly/"]),
];

/// Modules that do no I/O and know no clock and no environment.
const PURE: &[&str] = &["expr", "history", "model", "nightly", "pairs", "plan", "roofline", "stats", "timeline"];

/// Names of `std` that a pure module has no business with.
const IMPURE: &[&str] =
    &["std::fs", "std::env", "std::process", "std::net", "std::thread", "std::time::Instant", "std::time::SystemTime"];

#[derive(Default)]
struct Paths(BTreeSet<String>);

impl<'ast> Visit<'ast> for Paths {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.0.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect::<Vec<_>>().join("::"));
        syn::visit::visit_path(self, path);
    }

    fn visit_use_tree(&mut self, tree: &'ast syn::UseTree) {
        collect(tree, String::new(), &mut self.0);
    }
}

fn collect(tree: &syn::UseTree, before: String, into: &mut BTreeSet<String>) {
    let join = |name: &dyn std::fmt::Display| {
        if before.is_empty() { name.to_string() } else { format!("{before}::{name}") }
    };
    match tree {
        syn::UseTree::Path(path) => collect(&path.tree, join(&path.ident), into),
        syn::UseTree::Name(name) => drop(into.insert(join(&name.ident))),
        syn::UseTree::Rename(rename) => drop(into.insert(join(&rename.ident))),
        syn::UseTree::Glob(_) => drop(into.insert(before)),
        syn::UseTree::Group(group) => group.items.iter().for_each(|item| collect(item, before.clone(), into)),
    }
}

/// Source files below src/, by path relative to it, with the paths that each mentions outside its tests.
fn sources() -> Vec<(String, BTreeSet<String>)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = WalkDir::new(&src).sort_by_file_name().into_iter().map(|entry| entry.expect("src/ can be walked"));
    files
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "rs"))
        .filter(|entry| !entry.path().ends_with("tests.rs"))
        .map(|entry| {
            let name = entry.path().strip_prefix(&src).expect("it lies in src/").to_string_lossy().into_owned();
            let text = std::fs::read_to_string(entry.path()).expect("a source file can be read");
            (name, paths(&text))
        })
        .collect()
}

fn paths(text: &str) -> BTreeSet<String> {
    let file = syn::parse_file(text).expect("a source file parses");
    let mut found = Paths::default();
    file.items.iter().filter(|item| !is_tests(item)).for_each(|item| found.visit_item(item));
    found.0
}

fn is_tests(item: &syn::Item) -> bool {
    matches!(item, syn::Item::Mod(module) if module.ident.to_string().ends_with("tests"))
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|row| row.contains(&module))
}

/// What is wrong with a file of `module` that mentions `path`.
fn wrong_way(module: &str, path: &str) -> Option<String> {
    let used = path.strip_prefix("crate::")?.split("::").next()?;
    if used == module {
        return None;
    }
    let (from, to) = (layer(module)?, layer(used)?);
    (to >= from).then(|| format!("{module} uses {used} ({path})"))
}

#[test]
fn every_module_has_a_layer() {
    let modules: BTreeSet<String> = sources()
        .iter()
        .filter_map(|(name, _)| {
            Some(name.split_once('/').map_or(name.strip_suffix(".rs")?, |(module, _)| module).to_owned())
        })
        .filter(|module| !["lib", "main"].contains(&module.as_str()))
        .collect();
    let unknown: Vec<_> = modules.iter().filter(|module| layer(module).is_none()).collect();
    assert!(unknown.is_empty(), "give these modules a place in LAYERS: {unknown:?}");
    let gone: Vec<_> = LAYERS.concat().into_iter().filter(|name| !modules.contains(*name)).collect();
    assert!(gone.is_empty(), "these layers have no module: {gone:?}");
}

#[test]
fn imports_go_one_way() {
    let mut wrong = Vec::new();
    for (name, paths) in sources() {
        let module = name.split_once('/').map_or(name.trim_end_matches(".rs"), |(module, _)| module);
        wrong.extend(paths.iter().filter_map(|path| wrong_way(module, path)).map(|what| format!("src/{name}: {what}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn crates_that_touch_the_outside_are_confined() {
    let mut wrong = Vec::new();
    for (name, paths) in sources() {
        for (krate, places) in CONFINED {
            let used = paths.iter().any(|path| path.split("::").next() == Some(krate));
            if used && !places.iter().any(|place| name.starts_with(place)) {
                wrong.push(format!("src/{name} uses {krate}, which belongs into {places:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pure_modules_touch_nothing() {
    let mut wrong = Vec::new();
    for (name, paths) in sources() {
        let module = name.split_once('/').map_or(name.trim_end_matches(".rs"), |(module, _)| module);
        if PURE.contains(&module) {
            let found = paths.iter().filter(|path| IMPURE.iter().any(|impure| path.starts_with(impure)));
            wrong.extend(found.map(|path| format!("src/{name} uses {path}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn unsafe_code_stands_in_the_worker_alone() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for (name, _) in sources() {
        let text = std::fs::read_to_string(src.join(&name)).expect("a source file can be read");
        let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
        let found = code.enumerate().find(|(_, line)| line.contains("unsafe {") || line.contains("unsafe fn"));
        if let Some((line, _)) = found {
            assert!(name.starts_with("worker/"), "src/{name}:{}: unsafe code outside the worker", line + 1);
        }
    }
}

#[test]
fn the_check_itself_notices() {
    assert!(wrong_way("plan", "crate::store::Store").is_some());
    assert!(wrong_way("store", "crate::backend::Cpu").is_some());
    assert!(wrong_way("store", "crate::model::Key").is_none());
    assert!(paths("use crate::{a::b, c};").contains("crate::a::b"));
    assert!(paths("fn f() { crate::x::y(); }").contains("crate::x::y"));
}
