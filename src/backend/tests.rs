//! Builds with the system's compiler, in projects of one small package.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use super::*;
use crate::model::calling::ArgType;
use crate::model::{DType, Language};

const SOURCE: &str = r#"#include "../common/scale.h"
#include <stdint.h>
void latent(const float *x, float *y, int64_t n, double factor, int64_t block, int64_t thread) {
    (void)thread;
    for (int64_t i = block; i < n; ++i) y[i] = x[i] * (float)factor * SCALE * TILE;
}
"#;

const ARGS: [ArgType; 6] = [
    ArgType::Tensor(DType::Float32),
    ArgType::Tensor(DType::Float32),
    ArgType::Int,
    ArgType::Float,
    ArgType::Block(0),
    ArgType::Thread,
];

/// A project with one package, its source and the header that it includes.
struct Project {
    folder: tempfile::TempDir,
}

impl Project {
    fn new() -> Project {
        let project = Project { folder: tempfile::tempdir().expect("a folder") };
        project.write("kernels/c/mla/design/latent.c", SOURCE);
        project.write("kernels/c/mla/common/scale.h", "#define SCALE 2.0f\n");
        project
    }

    fn root(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(path, text).expect("written");
    }

    /// The stage as the catalogue would hash it now.
    fn stage(&self) -> StageBuild {
        stage_in(&self.root(), &["latent.c", "../common/scale.h"])
    }

    fn cache(&self) -> BuildCache {
        BuildCache::new(&self.root(), &self.root().join(".cache"))
    }

    fn build(&self, stage: &StageBuild) -> Result<Artifact, BuildError> {
        self.cache().build(&cpu(&self.root()), stage)
    }
}

fn stage_in(root: &Path, files: &[&str]) -> StageBuild {
    let package = PathBuf::from("kernels/c/mla/design");
    let hash = |path: &str| Key::of_bytes(&fs::read(root.join(&package).join(path)).expect("a file"));
    StageBuild {
        language: Language::C,
        source: package.join("latent.c"),
        hashes: files.iter().map(|path| ((*path).to_owned(), hash(path))).collect(),
        package,
        entry: "latent".into(),
        args: ARGS.to_vec(),
        defines: BTreeMap::from([("TILE".into(), "4".into())]),
        flags: vec![],
        dtype: Some(DType::Float32),
    }
}

fn cpu(root: &Path) -> Cpu {
    Cpu::find(&root.join(".cache")).expect("a host that builds Rust has a C compiler")
}

fn key_of(stage: &StageBuild) -> Key {
    let project = Project::new();
    stage.material(cpu(&project.root()).toolchain()).key()
}

/// Key of the project's stage after `change`, which must differ from the unchanged one's.
fn assert_changes(what: &str, change: impl FnOnce(&mut StageBuild)) {
    let project = Project::new();
    let (stage, mut changed) = (project.stage(), project.stage());
    change(&mut changed);
    assert_ne!(key_of(&stage), key_of(&changed), "{what} must change the key");
}

#[test]
fn every_field_of_a_stage_changes_the_key() {
    assert_changes("the source", |stage| {
        stage.hashes.insert("latent.c".into(), Key::of_bytes(b"other"));
    });
    assert_changes("a header", |stage| {
        stage.hashes.insert("../common/scale.h".into(), Key::of_bytes(b"other"));
    });
    assert_changes("a further header", |stage| {
        stage.hashes.insert("../common/more.h".into(), Key::of_bytes(b"more"));
    });
    assert_changes("the entry", |stage| stage.entry = "project".into());
    assert_changes("an argument's type", |stage| stage.args[2] = ArgType::Float);
    assert_changes("the order of arguments", |stage| stage.args.swap(1, 2));
    assert_changes("a macro's value", |stage| {
        stage.defines.insert("TILE".into(), "8".into());
    });
    assert_changes("a macro's name", |stage| {
        stage.defines.insert("OTHER".into(), "4".into());
    });
    assert_changes("a flag", |stage| stage.flags.push("-ffast-math".into()));
    assert_changes("the dtype", |stage| stage.dtype = Some(DType::Bfloat16));
}

#[test]
fn the_order_of_flags_matters_and_that_of_macros_does_not() {
    let stage = Project::new().stage();
    let with = |flags: [&str; 2]| StageBuild { flags: flags.map(str::to_owned).to_vec(), ..stage.clone() };
    assert_ne!(key_of(&with(["-O1", "-O2"])), key_of(&with(["-O2", "-O1"])));
    let defines = |names: [&str; 2]| {
        let defines = names.map(|name| (name.to_owned(), "1".to_owned())).into_iter().collect();
        StageBuild { defines, ..stage.clone() }
    };
    assert_eq!(key_of(&defines(["A", "B"])), key_of(&defines(["B", "A"])));
}

#[test]
fn every_field_of_the_compiler_and_the_standard_flags_change_the_key() {
    let project = Project::new();
    let material = project.stage().material(cpu(&project.root()).toolchain());
    let with = |change: fn(&mut BuildMaterial)| {
        let mut changed = material.clone();
        change(&mut changed);
        changed.key()
    };
    let keys = [
        material.key(),
        with(|material| material.compiler.version.push('1')),
        with(|material| material.compiler.target.push('1')),
        with(|material| material.compiler.arguments.push("-m32".into())),
        with(|material| material.compiler.native = Key::of_bytes(b"other")),
        with(|material| material.flags[0] = "-std=c99".into()),
    ];
    assert_eq!(BTreeSet::from(keys).len(), keys.len());
}

#[test]
fn place_link_and_time_of_change_do_not_change_the_key() {
    let (one, other) = (Project::new(), Project::new());
    assert_eq!(key_of(&one.stage()), key_of(&other.stage()));
    let link = one.root().join("link");
    std::os::unix::fs::symlink(other.root(), &link).expect("a link");
    assert_eq!(key_of(&one.stage()), key_of(&stage_in(&link, &["latent.c", "../common/scale.h"])));
    let file = fs::File::options().write(true).open(one.root().join("kernels/c/mla/design/latent.c")).expect("a file");
    file.set_modified(std::time::UNIX_EPOCH).expect("set");
    assert_eq!(key_of(&one.stage()), key_of(&other.stage()));
}

#[test]
fn equal_keys_make_equal_files_wherever_the_project_lies() {
    let (one, other) = (Project::new(), Project::new());
    let link = one.root().join("link");
    std::os::unix::fs::symlink(other.root(), &link).expect("a link");
    let mut first = one.stage();
    first.flags.push("-g".into());
    let mut second = stage_in(&link, &["latent.c", "../common/scale.h"]);
    second.flags.push("-g".into());
    let first = one.build(&first).expect("built");
    let second = BuildCache::new(&link, &link.join(".cache")).build(&cpu(&link), &second).expect("built");
    assert_eq!(first.info, second.info);
    for file in ["module.so", "listing.s", "command.txt", "caller.c", "log.txt", "build.json"] {
        let read = |artifact: &Artifact| fs::read(artifact.folder.join(file)).expect("readable");
        assert!(read(&first) == read(&second), "{file} differs");
    }
}

#[test]
fn an_artifact_is_complete_and_reused() {
    let project = Project::new();
    let built = project.build(&project.stage()).expect("built");
    assert_eq!(built.origin, Origin::Built);
    let mut names: Vec<_> = fs::read_dir(&built.folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    assert_eq!(names, ["build.json", "caller.c", "command.txt", "listing.s", "log.txt", "module.so"]);
    let again = project.build(&project.stage()).expect("cached");
    assert_eq!(again, Artifact { origin: Origin::Cached, ..built.clone() });
    assert_eq!(project.cache().get(&built.info.key).expect("readable"), Some(again));
}

#[test]
fn the_written_command_makes_the_same_module() {
    let project = Project::new();
    let built = project.build(&project.stage()).expect("built");
    let command = fs::read_to_string(built.folder.join("command.txt")).expect("a command");
    assert!(!command.contains(&project.root().display().to_string()), "{command}");
    let before = fs::read(built.module().path).expect("a module");
    fs::remove_file(built.module().path).expect("removed");
    let done = std::process::Command::new("sh").arg("-c").arg(&command).current_dir(project.root()).status();
    assert!(done.expect("a shell").success(), "{command}");
    assert!(before == fs::read(built.module().path).expect("made again"), "the module differs");
}

#[test]
fn code_hashes_agree_where_only_names_and_places_differ() {
    let project = Project::new();
    let plain = project.build(&project.stage()).expect("built");
    project.write("kernels/c/mla/design/latent.c", &format!("// a comment\n\n{SOURCE}"));
    let mut commented = project.stage();
    commented.flags.push("-g".into());
    let commented = project.build(&commented).expect("built");
    assert_ne!(plain.info.key, commented.info.key);
    assert_ne!(plain.info.module_sha256, commented.info.module_sha256);
    assert_eq!(plain.info.code_sha256, commented.info.code_sha256);
    project.write("kernels/c/mla/common/scale.h", "#define SCALE n\n");
    assert_ne!(plain.info.code_sha256, project.build(&project.stage()).expect("built").info.code_sha256);
}

#[test]
fn a_failed_build_names_file_and_line_and_is_tried_again() {
    let project = Project::new();
    project.write("kernels/c/mla/design/latent.c", "#include \"../common/scale.h\"\nint broken = ;\n");
    let broken = project.stage();
    for _ in 0..2 {
        let error = project.build(&broken).expect_err("broken");
        let message = error.to_string();
        assert!(message.starts_with("kernels/c/mla/design/latent.c:2:"), "{message}");
        assert!(error.log().is_some_and(|log| log.contains("broken")), "{error:?}");
    }
    assert!(!project.cache().folder_of(&broken.material(cpu(&project.root()).toolchain()).key()).exists());
    project.write("kernels/c/mla/design/latent.c", SOURCE);
    assert_eq!(project.build(&project.stage()).expect("repaired").origin, Origin::Built);
    let left = fs::read_dir(project.root().join(".cache/builds")).expect("a folder").count();
    assert_eq!(left, 1, "failed builds leave no folder behind");
}

#[test]
fn a_fault_outside_the_source_does_not_stay_either() {
    let project = Project::new();
    let stage = project.stage();
    let header = project.root().join("kernels/c/mla/common/scale.h");
    fs::remove_file(&header).expect("removed");
    let error = project.build(&stage).expect_err("a header is missing");
    assert!(matches!(&error, BuildError::SourceChanged { path } if *path == header), "{error}");
    project.write("kernels/c/mla/common/scale.h", "#define SCALE 2.0f\n");
    project.build(&stage).expect("the same key builds now");
}

#[test]
fn an_undefined_function_is_a_build_error() {
    let project = Project::new();
    project.write("kernels/c/mla/design/latent.c", "void missing(void);\nvoid latent(void) { missing(); }\n");
    let stage = StageBuild { args: vec![], ..stage_in(&project.root(), &["latent.c"]) };
    let error = project.build(&stage).expect_err("does not link");
    assert!(error.to_string().contains("undefined reference to `missing'"), "{error}");
}

#[test]
fn arguments_that_do_not_fit_the_function_are_build_errors() {
    let project = Project::new();
    let with = |index: usize, arg: ArgType| {
        let mut stage = project.stage();
        stage.args[index] = arg;
        project.build(&stage).expect_err("does not fit").to_string()
    };
    for message in [
        with(0, ArgType::Tensor(DType::Bfloat16)),
        with(0, ArgType::Int),
        with(2, ArgType::Tensor(DType::Float32)),
        with(2, ArgType::Float),
        with(3, ArgType::Int),
    ] {
        assert!(message.contains("caller.c") && message.contains("do not fit"), "{message}");
    }
    let mut short = project.stage();
    short.args.pop();
    let message = project.build(&short).expect_err("too few").to_string();
    assert!(message.contains("too few arguments") && message.contains("do not fit"), "{message}");
}

#[test]
fn a_warning_is_kept_in_the_log() {
    let project = Project::new();
    project.write("kernels/c/mla/design/latent.c", "void latent(void) { int unread; }\n");
    let stage = StageBuild { args: vec![], ..stage_in(&project.root(), &["latent.c"]) };
    let built = project.build(&stage).expect("only a warning");
    let log = fs::read_to_string(built.folder.join("log.txt")).expect("a log");
    assert!(log.contains("kernels/c/mla/design/latent.c:1:") && log.contains("unread"), "{log}");
}

#[test]
fn an_undeclared_header_is_named_with_the_fix() {
    let project = Project::new();
    let stage = stage_in(&project.root(), &["latent.c"]);
    let message = project.build(&stage).expect_err("scale.h is undeclared").to_string();
    assert!(message.contains("kernels/c/mla/common/scale.h"), "{message}");
    assert!(message.contains("add \"../common/scale.h\" to its `headers`"), "{message}");
}

#[test]
fn a_header_outside_the_project_is_refused_by_name() {
    let (project, outside) = (Project::new(), tempfile::tempdir().expect("a folder"));
    let header = outside.path().canonicalize().expect("a folder").join("scale.h");
    fs::write(&header, "#define SCALE 2.0f\n").expect("written");
    let include = format!("#include \"{}\"", header.display());
    project.write("kernels/c/mla/design/latent.c", &SOURCE.replace("#include \"../common/scale.h\"", &include));
    let error = project.build(&stage_in(&project.root(), &["latent.c"])).expect_err("outside");
    assert!(matches!(&error, BuildError::Outside { file, .. } if *file == header), "{error}");
}

#[test]
fn a_damaged_artifact_is_built_anew_and_says_so() {
    let project = Project::new();
    let built = project.build(&project.stage()).expect("built");
    let damage: [(&str, &[u8]); 3] = [("module.so", b"not a module"), ("build.json", b"{"), ("build.json", b"")];
    for (file, bytes) in damage {
        fs::write(built.folder.join(file), bytes).expect("damaged");
        assert_eq!(project.cache().get(&built.info.key).expect("readable"), None);
        let again = project.build(&project.stage()).expect("built anew");
        assert!(matches!(&again.origin, Origin::Rebuilt { reason } if reason.contains(file)), "{:?}", again.origin);
        assert_eq!(again.info, built.info);
    }
}

#[test]
fn two_builders_of_one_stage_agree() {
    let project = Project::new();
    let (stage, cpu, cache) = (project.stage(), cpu(&project.root()), project.cache());
    let built: Vec<Artifact> = std::thread::scope(|scope| {
        let start = || scope.spawn(|| cache.build(&cpu, &stage).expect("built"));
        let threads = [start(), start(), start()];
        threads.map(|thread| thread.join().expect("no panic")).into()
    });
    assert!(built.iter().all(|artifact| artifact.info == built[0].info));
    assert_eq!(fs::read_dir(project.root().join(".cache/builds")).expect("a folder").count(), 1);
}

#[test]
fn only_folders_without_a_living_builder_are_swept() {
    let project = Project::new();
    let builds = project.root().join(".cache/builds");
    let [dead, living] = [".building-dead", ".building-living"].map(|name| builds.join(name));
    for folder in [&dead, &living] {
        fs::create_dir_all(folder).expect("a folder");
        fs::write(folder.join("module.so"), "half").expect("a file");
    }
    let lock = fs::File::open(&living).expect("a folder");
    lock.lock().expect("locked");
    project.build(&project.stage()).expect("built");
    project.cache().sweep();
    assert!(!dead.exists() && living.exists());
    assert_eq!(project.build(&project.stage()).expect("still there").origin, Origin::Cached);
    drop(lock);
    // A program that another test is just starting still shares the lock until its own code runs.
    let started = std::time::Instant::now();
    while living.exists() {
        project.cache().sweep();
        assert!(started.elapsed().as_secs() < 60, "the folder of a builder that is gone stays");
        std::thread::yield_now();
    }
}

#[test]
fn without_a_disassembler_the_compiler_lists() {
    let project = Project::new();
    let mut cpu = cpu(&project.root());
    cpu.objdump = None;
    let built = project.cache().build(&cpu, &project.stage()).expect("built");
    assert_eq!(built.info.listing, Listing::Written { tool: "cc -S".into() });
    let listing = fs::read_to_string(built.folder.join("listing.s")).expect("a listing");
    assert!(listing.contains("mlarun_call_latent"), "{listing}");
}

#[test]
fn a_failing_disassembler_is_a_named_absence() {
    let project = Project::new();
    let mut cpu = cpu(&project.root());
    cpu.objdump = Some("/bin/false".into());
    let built = project.cache().build(&cpu, &project.stage()).expect("built");
    assert!(matches!(&built.info.listing, Listing::Absent { reason } if reason.contains("objdump failed")));
    assert!(!built.folder.join("listing.s").exists());
}
