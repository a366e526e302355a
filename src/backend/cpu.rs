//! The system's C compiler: one shared library a stage.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::process::{self, text, tool};
use super::{Backend, BuildError, Compiled, Destination, Listing, ProbeError, code, depfile, io, probe};
use crate::model::Language;
use crate::model::build::{BuildMaterial, StageBuild, Toolchain, normalised};

/// Compiles C with the system's `cc`.
#[derive(Debug)]
pub struct Cpu {
    pub(super) compiler: probe::Probe,
    pub(super) toolchain: Toolchain,
    /// Disassembler, where the host has one.
    pub(super) objdump: Option<PathBuf>,
}

const FLAGS: [&str; 8] =
    ["-std=gnu11", "-O3", "-march=native", "-fPIC", "-shared", "-Wall", "-Wl,--no-undefined", "-lm"];
const MODULE: &str = "module.so";
const CALLER: &str = "caller.c";
const LISTING: &str = "listing.s";
const DEPENDENCIES: &str = "dependencies.d";

impl Cpu {
    /// The compiler that the variable CC names, else `cc`; asks it for its identity unless `cache` (the project's
    /// `.cache`) holds the answer.
    ///
    /// # Errors
    /// The host has no such compiler, or it does not answer as gcc and clang do.
    pub fn find(cache: &Path) -> Result<Cpu, ProbeError> {
        let command = std::env::var("CC").ok().filter(|value| !value.trim().is_empty());
        let path = std::env::var_os("PATH").unwrap_or_default();
        let compiler = probe::probe(command.as_deref().unwrap_or("cc"), &path, cache)?;
        let standard_flags = FLAGS.map(str::to_owned).to_vec();
        let toolchain = Toolchain { compiler: compiler.id.clone(), standard_flags };
        Ok(Cpu { compiler, toolchain, objdump: process::find("objdump", &path) })
    }

    /// The compiler's command for `stage`, to be run in the project's root.
    fn command(&self, stage: &StageBuild, material: &BuildMaterial, into: &Destination<'_>) -> Command {
        let (root, folder) = (into.root, into.folder);
        let mut command = tool(&self.compiler.program);
        command.current_dir(root).args(&self.compiler.id.arguments).arg(folder.join(CALLER));
        command.arg("-iquote").arg(&stage.package);
        command.args(material.defines.iter().map(|(name, value)| format!("-D{name}={value}")));
        command.args(&material.flags);
        // Neither __FILE__ nor a line table may hold a place: equal keys give equal artifacts. The compiler sees the
        // root as its working directory, with symbolic links resolved.
        let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        for place in [root.as_path(), &stage.package, folder] {
            command.arg(format!("-ffile-prefix-map={}=.", place.display()));
        }
        command.arg("-MD").arg("-MF").arg(folder.join(DEPENDENCIES));
        command
    }

    /// Compiles to the module and returns the compiler's messages.
    fn module(
        &self,
        stage: &StageBuild,
        material: &BuildMaterial,
        into: &Destination<'_>,
    ) -> Result<String, BuildError> {
        let mut command = self.command(stage, material, into);
        command.arg("-o").arg(into.folder.join(MODULE));
        let repeatable = self.repeatable(&command, into);
        fs::write(into.folder.join("command.txt"), repeatable).map_err(io(into.folder))?;
        let done = process::output_within(&mut command, into.patience)?;
        let log = text(&done.stderr).replace(&format!("{}/", into.folder.display()), "");
        if done.status.success() {
            return Ok(log);
        }
        Err(BuildError::Refused {
            stage_source: stage.source.clone(),
            compiler: self.compiler.id.to_string(),
            message: first_error(&log).unwrap_or_else(|| format!("the compiler ended with {}", done.status)),
            log,
        })
    }

    /// The command as it can be repeated in the project's root, without temporary or absolute paths of the project.
    fn repeatable(&self, command: &Command, into: &Destination<'_>) -> String {
        let published = into.published.strip_prefix(into.root).unwrap_or(into.published);
        let words = process::words(command.get_args());
        let words = words.replace(&into.folder.display().to_string(), &published.display().to_string());
        let root = into.root.canonicalize().unwrap_or_else(|_| into.root.to_owned());
        let words = words.replace(&format!("={}=", root.display()), "=$PWD=");
        format!("{} {words}\n", self.compiler.command.split_whitespace().next().unwrap_or("cc"))
    }

    fn listing(
        &self,
        stage: &StageBuild,
        material: &BuildMaterial,
        into: &Destination<'_>,
    ) -> Result<Listing, BuildError> {
        let folder = into.folder;
        let Some(objdump) = &self.objdump else {
            return self.assembly(stage, material, into);
        };
        let done = process::output_within(
            tool(objdump).current_dir(folder).args(["-d", "--no-show-raw-insn", MODULE]),
            into.patience,
        )?;
        if !done.status.success() {
            return Ok(Listing::Absent { reason: format!("objdump failed: {}", text(&done.stderr).trim()) });
        }
        fs::write(folder.join(LISTING), done.stdout).map_err(io(folder))?;
        Ok(Listing::Written { tool: "objdump -d".into() })
    }

    /// The listing of a host without a disassembler: the compiler's own assembly text.
    fn assembly(
        &self,
        stage: &StageBuild,
        material: &BuildMaterial,
        into: &Destination<'_>,
    ) -> Result<Listing, BuildError> {
        let (mut command, folder) = (self.command(stage, material, into), into.folder);
        let done = process::output_within(command.arg("-S").arg("-o").arg(folder.join(LISTING)), into.patience)?;
        if done.status.success() {
            return Ok(Listing::Written { tool: "cc -S".into() });
        }
        let reason = format!("the host has no objdump, and `cc -S` failed: {}", text(&done.stderr).trim());
        Ok(Listing::Absent { reason })
    }

    /// Every file that the compiler read is declared, or belongs to the system.
    fn check_dependencies(&self, stage: &StageBuild, into: &Destination<'_>) -> Result<(), BuildError> {
        let folder = into.folder;
        let path = folder.join(DEPENDENCIES);
        let files = depfile::parse(&fs::read_to_string(&path).map_err(io(&path))?)?;
        let resolved = |path: &Path| path.canonicalize().map_err(io(path));
        let root = resolved(into.root)?;
        let declared =
            stage.files().map(|(path, _)| resolved(&into.root.join(path))).collect::<Result<BTreeSet<_>, _>>()?;
        for file in files.into_iter().filter(|file| !file.starts_with(folder)) {
            let place = resolved(&into.root.join(&file))?;
            if declared.contains(&place) {
                continue;
            }
            let stage_source = stage.source.clone();
            if let Ok(inside) = place.strip_prefix(&root) {
                let declare = relative(&stage.package, inside).display().to_string();
                return Err(BuildError::Undeclared { stage_source, file: inside.to_owned(), declare });
            }
            if !self.compiler.include_folders.iter().any(|system| place.starts_with(system)) {
                return Err(BuildError::Outside { stage_source, file: place });
            }
        }
        fs::remove_file(&path).map_err(io(&path))
    }
}

impl Backend for Cpu {
    fn language(&self) -> Language {
        Language::C
    }

    fn toolchain(&self) -> &Toolchain {
        &self.toolchain
    }

    fn compile(
        &self,
        stage: &StageBuild,
        material: &BuildMaterial,
        into: &Destination<'_>,
    ) -> Result<Compiled, BuildError> {
        let caller = into.folder.join(CALLER);
        fs::write(&caller, &material.caller).map_err(io(&caller))?;
        let log = self.module(stage, material, into)?;
        let listing = self.listing(stage, material, into)?;
        self.check_dependencies(stage, into)?;
        let module = into.folder.join(MODULE);
        let bytes = fs::read(&module).map_err(io(&module))?;
        Ok(Compiled {
            module: MODULE.to_owned(),
            code_sha256: code::code_sha256(&bytes, &module)?,
            listing,
            log,
            resources: None,
        })
    }
}

/// The first error in the messages of compiler and linker; one in the generated caller comes from the declaration.
fn first_error(log: &str) -> Option<String> {
    let line = log
        .lines()
        .find(|line| ["error:", "undefined reference"].iter().any(|mark| line.contains(mark)))
        .or_else(|| log.lines().find(|line| !line.trim().is_empty()))?;
    // The linker, which speaks of no error, names the unit too.
    let declared = line.starts_with(CALLER) && line.contains("error:");
    let hint = "; the `args` that kernel.toml declares do not fit the function's parameters";
    Some(format!("{line}{}", if declared { hint } else { "" }))
}

/// Path of `to` as seen from the folder `from`, both relative to the same folder.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let (from, to) = (normalised(from), normalised(to));
    let shared = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(shared).map(|_| "..");
    up.map(PathBuf::from).chain(to.components().skip(shared).map(|part| PathBuf::from(part.as_os_str()))).collect()
}
