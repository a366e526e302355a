//! Packages in temporary folders: what is found, what is read, and everything that can be wrong with them.

use super::fixture::{KERNEL, project, write};
use super::*;
use crate::diagnostic::{Colour, render_all};
use crate::expr::Expr;
use crate::model::{DType, Key};

fn id(kernel: &str, version: u32) -> KernelId {
    KernelId { kernel: kernel.to_owned(), version: Version(version), language: Language::C }
}

/// What is said about the fixture with `from` replaced by `to`.
fn complaint(from: &str, to: &str) -> String {
    assert!(KERNEL.contains(from), "{from} is not in the fixture");
    let root = project(&[("c/mla/k", &KERNEL.replacen(from, to, 1))]);
    let catalog = Catalog::load(root.path());
    assert!(catalog.package(&id("k", 0)).is_err(), "{to} was accepted");
    render_all(&catalog.diagnostics(), Colour::Never)
}

fn first_lines(text: &str) -> String {
    text.lines().filter(|line| line.starts_with("error")).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_sound_package_is_read_whole() {
    let root = project(&[("c/mla/k", KERNEL)]);
    let catalog = Catalog::load(root.path());
    assert_eq!(render_all(&catalog.diagnostics(), Colour::Never), "");
    let package = catalog.package(&id("k", 0)).expect("it is sound");
    assert_eq!((package.layer.as_str(), package.folder.to_str()), ("mla", Some("kernels/c/mla/k")));
    let names: Vec<&str> = package.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
    assert_eq!(names, ["s", "t", "dtype", "causal", "alpha", "n"]);
    assert!(package.parameter("n").is_some_and(Parameter::is_tunable));
    let default = |name: &str| package.parameter(name).and_then(|p| p.default.as_ref()).map(|expr| expr.source());
    assert_eq!(
        (default("dtype"), default("alpha"), default("causal")),
        (Some("'float32'"), Some("1.5"), Some("false"))
    );
    assert_eq!(package.tensors.iter().map(|tensor| tensor.shape.len()).collect::<Vec<_>>(), [2, 1, 2, 2, 1]);
    let stage = &package.stages[0];
    assert_eq!(stage.source.to_str(), Some("kernels/c/mla/k/sum.c"));
    assert_eq!(stage.headers[0].to_str(), Some("kernels/c/common/shared.h"));
    assert_eq!(stage.hashes["sum.c"], Key::of_bytes(b"void sum(void) {}"));
    assert_eq!(stage.hashes["../../common/shared.h"], Key::of_bytes(b""));
    assert_eq!(stage.args[0], StageArg::Tensor("x".into()));
    assert_eq!(stage.args[7..], [StageArg::Block(0), StageArg::Thread]);
    let reference = package.reference.as_ref().expect("it has one");
    assert_eq!(reference.tolerance[&DType::Float32].relative_row, 1e-5);
    assert_eq!(reference.tolerance[&DType::Bfloat16].relative_frobenius, 4e-3);
}

#[test]
fn a_cuda_stage_says_how_its_blocks_are_launched() {
    let with = |extra: &str| {
        let text = KERNEL.replace("stream = 1", &format!("stream = 1\n{extra}"));
        let root = project(&[("cuda/mla/k", &text)]);
        let catalog = Catalog::load(root.path());
        let said = render_all(&catalog.diagnostics(), Colour::Never);
        catalog.package(&KernelId { language: Language::Cuda, ..id("k", 0) }).cloned().map_err(|_| said)
    };
    let package =
        with("cluster = [2]\ncooperative = true\nshared = \"min(shared_max, 8 * sms)\"").expect("it is sound");
    let Launch::Gpu { block, shared, cluster, cooperative } = &package.stages[0].launch else { panic!("a GPU stage") };
    let sources = |exprs: &[Expr]| exprs.iter().map(|expr| expr.source().to_owned()).collect::<Vec<_>>();
    assert_eq!((sources(block), shared.source()), (vec!["128".to_owned()], "min(shared_max, 8 * sms)"));
    assert_eq!((cluster.as_deref().map(sources), *cooperative), (Some(vec!["2".to_owned()]), true));
    assert!(with("threads = 2").expect_err("for a CPU").contains("no key `threads`"));
    assert!(with("shared = \"8 * cores\"").expect_err("for a CPU").contains("unknown name `cores`"));
    assert!(complaint("stream = 1", "stream = 1\nblock = [1]").contains("no key `block`"));
}

#[test]
fn a_cuda_stage_may_take_a_tensor_map() {
    let with = |map: &str| {
        let text = KERNEL.replace("args = [\"x\"", &format!("args = [{map}"));
        let root = project(&[("cuda/mla/k", &text)]);
        let catalog = Catalog::load(root.path());
        let said = render_all(&catalog.diagnostics(), Colour::Never);
        catalog.package(&KernelId { language: Language::Cuda, ..id("k", 0) }).cloned().map_err(|_| said)
    };
    let package = with(r#"{ map = "x", box = [1, "min(t, 64)"], swizzle = 128 }"#).expect("it is sound");
    let StageArg::Map(map) = &package.stages[0].args[0] else { panic!("a tensor map") };
    let sources: Vec<&str> = map.extents.iter().map(Expr::source).collect();
    assert_eq!((map.tensor.as_str(), sources), ("x", vec!["1", "min(t, 64)"]));
    assert_eq!((map.swizzle_bytes, map.promotion_bytes), (128, 128));
    let refused = |map: &str| with(map).expect_err(map);
    assert!(refused(r#"{ map = "w", box = [1] }"#).contains("which is no tensor"));
    assert!(refused(r#"{ map = "x" }"#).contains("needs the key `box`"));
    assert!(refused(r#"{ map = "x", box = [1, 0] }"#).contains("is 0"));
    assert!(refused(r#"{ map = "x", box = [1, 1], swizzle = 16 }"#).contains("allowed are 0, 32, 64, 128"));
    assert!(refused(r#"{ map = "x", box = [1, 1], swizzel = 32 }"#).contains("no key `swizzel`"));
    assert!(complaint("args = [\"x\"", r#"args = [{ map = "x", box = [1, 1] }"#).contains("an argument of"));
}

#[test]
fn windows_line_ends_and_a_byte_order_mark_are_read() {
    let root = project(&[("c/mla/k", &format!("\u{feff}{}", KERNEL.replace('\n', "\r\n")))]);
    assert!(Catalog::load(root.path()).package(&id("k", 0)).is_ok());
}

#[test]
fn versions_are_found_and_ordered() {
    let folders = ["c/mla/k_v10", "c/mla/k", "c/mla/k_v2", "cuda/mla/k", "c/mla/other_v1"];
    let root = project(&folders.map(|folder| (folder, KERNEL)));
    let catalog = Catalog::load(root.path());
    assert_eq!(catalog.versions(Language::C, "k"), [Version(0), Version(2), Version(10)]);
    assert_eq!(catalog.latest(Language::C, "k"), Some(Version(10)));
    assert_eq!(catalog.previous(&id("k", 10)), Some(Version(2)));
    assert_eq!(catalog.previous(&id("k", 5)), Some(Version(2)));
    assert_eq!(catalog.previous(&id("k", 0)), None);
    assert_eq!(catalog.kernels(Language::C).collect::<Vec<_>>(), ["k", "other"]);
    assert_eq!(catalog.kernels(Language::Cuda).collect::<Vec<_>>(), ["k"]);
    assert_eq!(catalog.packages().count(), 5);
    let unknown = catalog.package(&id("othr", 0)).expect_err("there is none").to_string();
    assert_eq!(unknown, "there is no kernel `othr` in the language c; did you mean `other`?");
    let unknown = catalog.package(&id("k", 1)).expect_err("there is none").to_string();
    assert_eq!(unknown, "k (c) has no version v1; it has v0, v2, v10");
}

#[test]
fn a_broken_package_breaks_no_other() {
    let root = project(&[("c/mla/k", KERNEL), ("c/mla/k_v1", "schema = 1\nbroken"), ("c/mla/j", KERNEL)]);
    let catalog = Catalog::load(root.path());
    assert!(catalog.package(&id("k", 0)).is_ok() && catalog.package(&id("j", 0)).is_ok());
    let Err(LookupError::Broken { diagnostics, .. }) = catalog.package(&id("k", 1)) else {
        panic!("a broken package was read");
    };
    assert_eq!(diagnostics[0].file.name(), "kernels/c/mla/k_v1/kernel.toml");
    assert_eq!(catalog.versions(Language::C, "k"), [Version(0), Version(1)]);
}

#[test]
fn stray_folders_are_named() {
    let root = project(&[
        ("c/mla/K", KERNEL),
        ("c/mla/k_v0", KERNEL),
        ("rust/mla/k", KERNEL),
        ("c/mla/k", KERNEL),
        ("c/gqa/k", KERNEL),
    ]);
    std::fs::create_dir(root.path().join("kernels/c/mla/empty")).expect("a folder");
    let shown = render_all(&Catalog::load(root.path()).diagnostics(), Colour::Never);
    insta::assert_snapshot!(shown, @r"
    error: `K` is no kernel's name: lower-case letters, digits and `_`, a letter first
    --> kernels/c/mla/K

    error: the folder has no kernel.toml
    --> kernels/c/mla/empty

    error: k v0 (c) is declared twice
    --> kernels/c/mla/k/kernel.toml
     = help: the other one is kernels/c/gqa/k

    error: `k_v0` has no version: the base version is `k`, then come `k_v1`, …
    --> kernels/c/mla/k_v0

    error: `rust` is no kernel language
    --> kernels/rust
     = help: known here: `c`, `cuda`
    ");
}

#[test]
fn no_kernels_folder_means_no_kernels() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let catalog = Catalog::load(root.path());
    assert_eq!((catalog.packages().count(), catalog.diagnostics().len()), (0, 0));
    assert_eq!(Catalog::load(&root.path().join("missing")).diagnostics().len(), 1);
}

#[test]
fn everything_wrong_is_said_at_once() {
    let text = KERNEL
        .replace("[lets]", "[let]")
        .replace("\"2 * s * t\"", "\"2 * s * \"")
        .replace("shape = [\"s\", \"t\"]", "shape = [\"s\", \"tt\"]")
        .replace("after = [\"sum\"]", "after = [\"smu\"]");
    let root = project(&[("c/mla/k", &text)]);
    let shown = render_all(&Catalog::load(root.path()).diagnostics(), Colour::Never);
    insta::assert_snapshot!(shown, @r#"
    error: kernel.toml has no key `let`
      --> kernels/c/mla/k/kernel.toml:12:2
       |
    12 | [let]
       |  ^^^ unknown key
       |
       = help: did you mean `lets`?

    error: a dimension of the tensor `x` uses the unknown name `tt`
      --> kernels/c/mla/k/kernel.toml:19:16
       |
    19 | shape = ["s", "tt"]
       |                ^^ unknown name
       |
       = help: did you mean `t`?

    error: `flops` of the stage `sum` is not an expression
      --> kernels/c/mla/k/kernel.toml:54:18
       |
    54 | flops = "2 * s * "
       |                  ^ it ends too early

    error: `bytes` of the stage `sum` uses the unknown name `row`
      --> kernels/c/mla/k/kernel.toml:55:10
       |
    55 | bytes = "row * s"
       |          ^^^ unknown name
       |
       = help: known here: `alpha`, `causal`, `cores`, `dtype`, `n`, `s`, `t`

    error: the stage `join` waits for `smu`, which is no earlier stage
      --> kernels/c/mla/k/kernel.toml:69:10
       |
    69 | after = ["smu"]
       |          ^^^^^ no earlier stage
       |
       = help: did you mean `sum`?
    "#);
}

#[test]
fn expressions_are_checked_where_they_stand() {
    insta::assert_snapshot!(complaint("tile.block <= 2 * t", "tile.blok <= 2 * t"), @r#"
    error: a constraint of the stage `sum` uses the unknown choice `tile.blok`
      --> kernels/c/mla/k/kernel.toml:60:22
       |
    60 | constraints = ["tile.blok <= 2 * t"]
       |                      ^^^^ unknown choice
       |
       = help: did you mean `block`?
    "#);
    insta::assert_snapshot!(complaint("\"row * s\"", "\"sizeof(dtype) * s\""), @r#"
    error: `bytes` of the stage `sum` calls the unknown function `sizeof`
      --> kernels/c/mla/k/kernel.toml:55:10
       |
    55 | bytes = "sizeof(dtype) * s"
       |          ^^^^^^ unknown function
       |
       = help: did you mean `size_of`?
    "#);
    insta::assert_snapshot!(complaint("\"t / 4\", candidates", "\"n / 4\", candidates"), @r#"
    error: the default of `n` uses the unknown name `n`
      --> kernels/c/mla/k/kernel.toml:10:41
       |
    10 | n = { type = "int", min = 0, default = "n / 4", candidates = [0, "t / 8", "t / 4"] }
       |                                         ^ unknown name
       |
       = help: known here: `alpha`, `causal`, `dtype`, `s`, `t`
    "#);
    insta::assert_snapshot!(complaint("\"row * s\"", "\"\""), @r#"
    error: `bytes` of the stage `sum` is empty
      --> kernels/c/mla/k/kernel.toml:55:9
       |
    55 | bytes = ""
       |         ^^ an expression is needed
    "#);
    insta::assert_snapshot!(first_lines(&complaint("w = \"size_of(dtype)\"", "w = \"row\"")), @"error: the let `w` uses the unknown name `row`");
    insta::assert_snapshot!(first_lines(&complaint("\"w * t\"", "\"tile.split\"")), @"error: the let `row` uses the unknown name `tile`");
    insta::assert_snapshot!(first_lines(&complaint("split = [1, 2]", "split = [1, \"tile.split\"]")), @"error: a value of the choice `split` uses the unknown name `tile`");
}

#[test]
fn names_are_checked() {
    insta::assert_snapshot!(complaint("args = [\"x\", \"y\"", "args = [\"x\", \"yy\""), @r#"
    error: an argument of the stage `sum` is `yy`, which is no tensor, name, `thread` or `block.x`
      --> kernels/c/mla/k/kernel.toml:50:14
       |
    50 | args = ["x", "yy", "part", "s", "tile.split", "alpha", "causal", "block.x", "thread"]
       |              ^^^^ unknown
       |
       = help: did you mean `y`?
    "#);
    insta::assert_snapshot!(first_lines(&complaint("\"block.x\"", "\"block.w\"")), @"error: an argument of the stage `sum` is `block.w`, which is no tensor, name, `thread` or `block.x`");
    insta::assert_snapshot!(first_lines(&complaint("after = [\"sum\"]", "after = [\"join\"]")), @"error: the stage `join` waits for `join`, which is no earlier stage");
    insta::assert_snapshot!(first_lines(&complaint("name = \"join\"", "name = \"sum\"")), @"error: there are two stages `sum`");
    insta::assert_snapshot!(first_lines(&complaint("name = \"join\"", "name = \"../join\"")), @"error: `../join` is no name of a stage");
    insta::assert_snapshot!(first_lines(&complaint("s = { type", "cores = { type")), @r"
    error: the parameter `cores` has a meaning of its own in expressions
    error: a dimension of the tensor `x` uses the unknown name `s`
    error: a dimension of the tensor `xt` uses the unknown name `s`
    error: a dimension of the tensor `part` uses the unknown name `s`
    error: a dimension of the tensor `o` uses the unknown name `s`
    error: an argument of the stage `sum` is `s`, which is no tensor, name, `thread` or `block.x`
    error: `grid` of the stage `sum` uses the unknown name `s`
    error: `flops` of the stage `sum` uses the unknown name `s`
    error: `bytes` of the stage `sum` uses the unknown name `s`
    ");
    insta::assert_snapshot!(first_lines(&complaint("row = \"w * t\"", "t = \"w * t\"")), @r"
    error: the let `t` is declared already
    error: `bytes` of the stage `sum` uses the unknown name `row`
    ");
    insta::assert_snapshot!(first_lines(&complaint("[tensors.y]", "[tensors.s]")), @r"
    error: the tensor `s` is declared already
    error: an argument of the stage `sum` is `y`, which is no tensor, name, `thread` or `block.x`
    error: an operand names the unknown tensor `y`
    ");
    insta::assert_snapshot!(first_lines(&complaint("output = \"o\"", "output = \"x\"")), @r"
    error: the defined tensor has 2 dimensions
    error: `x` is no output
    ");
    insta::assert_snapshot!(first_lines(&complaint("t = 67", "tt = 67")), @"error: the reduced shape gives the unknown parameter `tt`");
}

#[test]
fn types_and_ranges_are_checked() {
    insta::assert_snapshot!(first_lines(&complaint("type = \"float\"", "type = \"flaot\"")), @"error: `flaot` is no type of a parameter");
    insta::assert_snapshot!(first_lines(&complaint("min = 1, default = 1,", "min = 1, default = 0,")), @"error: the default of `s` must lie between 1 and 9223372036854775807");
    insta::assert_snapshot!(first_lines(&complaint("default = false", "default = 1")), @"error: the default of `causal` must be true, false or an expression");
    insta::assert_snapshot!(first_lines(&complaint("default = \"float32\"", "default = \"float16\"")), @"error: the default of `dtype` is not among the allowed element types");
    insta::assert_snapshot!(first_lines(&complaint("\"float32\", \"bfloat16\"", "\"float31\", \"bfloat16\"")), @r"
    error: `float31` is no element type
    error: the default of `dtype` is not among the allowed element types
    ");
    insta::assert_snapshot!(first_lines(&complaint("schema = 1", "schema = 2")), @"error: this mlarun reads kernel packages up to schema 1");
    insta::assert_snapshot!(first_lines(&complaint("stream = 1", "stream = -1")), @"error: `stream` must lie between 0 and 4294967295");
    insta::assert_snapshot!(first_lines(&complaint("grid = [1]", "grid = []")), @"error: `grid` has one to three expressions");
    insta::assert_snapshot!(first_lines(&complaint("grid = [1]", "grid = [1, 0]")), @"error: `grid` of the stage `join` is 0, which launches nothing");
    insta::assert_snapshot!(first_lines(&complaint("grid = [1]", "grid = [1]\nthreads = 0")), @"error: `threads` of the stage `join` is 0, which launches nothing");
    insta::assert_snapshot!(first_lines(&complaint("1e-6, row", "nan, row")), @"error: `frobenius` must be finite");
    insta::assert_snapshot!(first_lines(&complaint("role = \"scratch\"", "role = \"input\"")), @"error: an input needs either `normal` or `uniform`");
}

#[test]
fn spaces_are_checked() {
    insta::assert_snapshot!(complaint("block = 16, threads = \"cores\"", "block = 24, threads = \"cores\""), @r#"
    error: the default of `block` is not among its values
      --> kernels/c/mla/k/kernel.toml:61:21
       |
    61 | default = { block = 24, threads = "cores" }
       |                     ^^ not a value of the choice
       |
       = help: its values are 16, 32
    "#);
    insta::assert_snapshot!(first_lines(&complaint("block = [16, 32]", "block = []")), @"error: the choice `block` has no value");
    insta::assert_snapshot!(first_lines(&complaint("choices = { split = [1, 2] }", "choices = {}")), @r"
    error: a dimension of the tensor `part` uses the unknown name `tile`
    error: the space of the pipeline has no choice
    error: a constraint of the pipeline uses the unknown name `tile`
    error: the default of the space of the pipeline gives the unknown choice `split`
    error: an argument of the stage `sum` uses the unknown choice `tile.split`
    error: `grid` of the stage `sum` uses the unknown choice `tile.split`
    error: `when` of the stage `join` uses the unknown name `tile`
    ");
    insta::assert_snapshot!(first_lines(&complaint("block = 16, threads", "threads")), @"error: the default of the space of the stage `sum` leaves the choice `block` open");
    insta::assert_snapshot!(first_lines(&complaint("block = [16, 32]", "split = [16, 32]")), @r"
    error: the macro `BLOCK` of the stage `sum` uses the unknown choice `tile.block`
    error: the choice `split` is one of the pipeline already
    error: a constraint of the stage `sum` uses the unknown choice `tile.block`
    error: the default of the space of the stage `sum` leaves the choice `split` open
    error: the default of the space of the stage `sum` gives the unknown choice `block`
    ");
}

#[test]
fn formulas_are_checked() {
    insta::assert_snapshot!(complaint("st->ts", "st->tu"), @r#"
    error: `st->tu` is no index notation
      --> kernels/c/mla/k/kernel.toml:30:19
       |
    30 | einsum = { spec = "st->tu", of = [{ tensor = "x", start = { t = 0 } }] }
       |                   ^^^^^^^^ no operand has the letter `u` of the result
    "#);
    insta::assert_snapshot!(first_lines(&complaint("st->ts", "st->s")), @"error: the defined tensor has 2 dimensions");
    insta::assert_snapshot!(first_lines(&complaint("st->ts", "stu->ts")), @"error: `x` has 2 dimensions");
    insta::assert_snapshot!(first_lines(&complaint("st,t->s", "st->s")), @"error: the formula has 2 operands");
    insta::assert_snapshot!(first_lines(&complaint("start = { t = 0 }", "start = { u = 0 }")), @"error: the operand has no axis `u`");
    insta::assert_snapshot!(first_lines(&complaint("tensor = \"x\"", "tensor = \"xt\"")), @"error: the tensor `xt` is derived from itself");
    insta::assert_snapshot!(first_lines(&complaint("tensor = \"x\"", "tensor = \"part\"")), @"error: `part` is written by stages");
}

#[test]
fn declared_files_exist_inside_the_project() {
    insta::assert_snapshot!(complaint("../../common/shared.h", "../../common/sharde.h"), @r#"
    error: a header `../../common/sharde.h` cannot be used
      --> kernels/c/mla/k/kernel.toml:48:12
       |
    48 | headers = ["../../common/sharde.h"]
       |            ^^^^^^^^^^^^^^^^^^^^^^^ kernels/c/common/sharde.h: no such file
    "#);
    insta::assert_snapshot!(complaint("../../common/shared.h", "../../../../../shared.h"), @r#"
    error: a header `../../../../../shared.h` cannot be used
      --> kernels/c/mla/k/kernel.toml:48:12
       |
    48 | headers = ["../../../../../shared.h"]
       |            ^^^^^^^^^^^^^^^^^^^^^^^^^ the path leaves the project
    "#);
    insta::assert_snapshot!(complaint("../../common/shared.h", "/etc/hostname"), @r#"
    error: a header `/etc/hostname` cannot be used
      --> kernels/c/mla/k/kernel.toml:48:12
       |
    48 | headers = ["/etc/hostname"]
       |            ^^^^^^^^^^^^^^^ the path is absolute; paths start at the package's folder
    "#);
}

#[cfg(unix)]
#[test]
fn a_link_out_of_the_project_is_refused() {
    let root = project(&[("c/mla/k", KERNEL)]);
    let header = root.path().join("kernels/c/common/shared.h");
    std::fs::remove_file(&header).expect("it was written");
    std::os::unix::fs::symlink("/etc/passwd", &header).expect("a link");
    let shown = render_all(&Catalog::load(root.path()).diagnostics(), Colour::Never);
    assert!(shown.contains("outside the project"), "{shown}");
}

#[test]
fn a_header_changes_its_hash() {
    let root = project(&[("c/mla/k", KERNEL)]);
    let hashes = || Catalog::load(root.path()).package(&id("k", 0)).expect("it is sound").stages[0].hashes.clone();
    let before = hashes();
    write(root.path(), "kernels/c/common/shared.h", "#define X 1");
    let after = hashes();
    assert_ne!(before["../../common/shared.h"], after["../../common/shared.h"]);
    assert_eq!(before["sum.c"], after["sum.c"]);
}

#[test]
fn a_new_version_is_a_sound_clone() {
    let root = project(&[("c/mla/k", &KERNEL.replace("\"sum.c\"", "\"../k/sum.c\""))]);
    let made = new_version(root.path(), "k", Language::C, Version(0), Version(4)).expect("it is made");
    assert_eq!(made, root.path().join("kernels/c/mla/k_v4"));
    let catalog = Catalog::load(root.path());
    let package = catalog.package(&id("k", 4)).expect("it is sound");
    assert_eq!(package.stages[0].source.to_str(), Some("kernels/c/mla/k_v4/sum.c"));
}

#[test]
fn a_refused_new_version_leaves_nothing_behind() {
    let root = project(&[("c/mla/k", KERNEL), ("c/mla/k_v1", "not toml")]);
    let list = || {
        let mut names: Vec<_> = std::fs::read_dir(root.path().join("kernels/c/mla"))
            .expect("it is there")
            .map(|entry| entry.expect("readable").file_name())
            .collect();
        names.sort();
        names
    };
    let before = list();
    let make = |from, to| new_version(root.path(), "k", Language::C, Version(from), Version(to));
    assert!(matches!(make(0, 1), Err(NewVersionError::Exists(_))));
    assert!(matches!(make(7, 8), Err(NewVersionError::Missing { .. })));
    assert!(matches!(make(1, 2), Err(NewVersionError::NotToml { .. })));
    assert_eq!(list(), before);
}

#[test]
fn an_optional_parameter_has_a_default_and_is_not_tuned() {
    let alpha = "alpha = { type = \"float\", default = 1.5 }";
    let said = first_lines(&complaint(alpha, "alpha = { type = \"float\", optional = true }"));
    assert!(said.contains("`alpha` cannot be optional"), "{said}");
    let said = first_lines(&complaint("candidates = [0,", "optional = true, candidates = [0,"));
    assert!(said.contains("`n` cannot be optional"), "{said}");
    let root = project(&[("c/mla/k", &KERNEL.replace(alpha, &alpha.replace("1.5", "1.5, optional = true")))]);
    let catalog = Catalog::load(root.path());
    let package = catalog.package(&id("k", 0)).expect("it is sound");
    let optional = package.parameters.iter().filter(|parameter| parameter.optional);
    assert_eq!(optional.map(|parameter| parameter.name.as_str()).collect::<Vec<_>>(), ["alpha"]);
}

#[test]
fn what_a_reference_takes_as_it_is_read_is_checked() {
    const VAR6: &str = include_str!("../../kernels/cuda/mla/mla_var6_plus/kernel.toml");
    // The sources are not there; only what is said of the reference counts.
    let said = |from: &str, to: &str| {
        assert!(VAR6.contains(from), "{from}");
        let root = project(&[("cuda/mla/k", &VAR6.replace(from, to))]);
        first_lines(&render_all(&Catalog::load(root.path()).diagnostics(), Colour::Never))
    };
    assert!(!said("qc    = \"qc\"", "").contains("as_read"));
    assert!(said("value = \"value_new\"\n", "").contains("`key` and `value` go together"));
    assert!(said("qc    = \"qc\"\nkey   = \"key_new\"\nvalue = \"value_new\"\n", "").contains("`as_read` names no"));
    assert!(said("qc    = \"qc\"", "qc = \"z\"").contains("`qc` has 4 dimensions"));
    assert!(said("q_std > 2.0", "q_stt > 2.0").contains("unknown name `q_stt`"));
}
