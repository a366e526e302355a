//! CUDA C++ through NVRTC: one cubin a stage, for exactly one architecture.
//!
//! The compiler is a library. It is loaded by a child process, this program's own worker, so that neither its crash nor
//! its memory is the runner's, and a build has a time limit as every other. What it may read is a copy of the files that
//! the stage declares: a file that is included and not declared does not exist for it.

mod toolkit;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::process::{self, Patience, ProcessError, text, tool};
use super::{Backend, BuildError, Compiled, Destination, Listing, code, io, ptxas};
use crate::answers::{Answers, AnswersError};
use crate::model::build::{BuildMaterial, CompilerId, Resources, StageBuild, Toolchain};
use crate::model::protocol::{CompileRequest, Failure, FailureKind, Line, PROTOCOL, Request, Task};
use crate::model::{Key, Language};

pub use toolkit::{Surroundings, Toolkit, ToolkitError, find};

/// The program `name` of a CUDA toolkit on this host.
///
/// # Errors
/// There is none.
pub fn program(name: &'static str) -> Result<PathBuf, NoProgram> {
    let searched = program_folders();
    let path = std::env::join_paths(searched.iter().filter(|folder| !folder.as_os_str().is_empty()));
    process::find(name, &path.unwrap_or_default()).ok_or(NoProgram { name, searched })
}

/// Folders that may hold programs of a CUDA toolkit on this host, then those of PATH.
pub fn program_folders() -> Vec<PathBuf> {
    toolkit::program_folders(&Surroundings::of_process())
}

/// Files that may be CUPTI's library.
pub fn cupti_libraries() -> Vec<PathBuf> {
    toolkit::cupti(&Surroundings::of_process())
}

/// The host lacks a program of the CUDA toolkit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the host has no {name}: it lies in none of {}; install it (it is part of the CUDA toolkit), or name the toolkit's \
     folder in CUDA_HOME",
    toolkit::listed(searched)
)]
pub struct NoProgram {
    pub name: &'static str,
    pub searched: Vec<PathBuf>,
}

/// Compiles CUDA with NVRTC.
#[derive(Debug)]
pub struct Cuda {
    /// The program that serves `__worker`.
    worker: PathBuf,
    toolkit: Toolkit,
    toolchain: Toolchain,
    /// Disassembler, where there is one.
    cuobjdump: Option<PathBuf>,
}

const FLAGS: [&str; 3] = ["--std=c++17", "--generate-line-info", "--ptxas-options=-v"];
const MODULE: &str = "module.cubin";
const UNIT: &str = "unit.cu";
const LISTING: &str = "listing.sass";
const RESOURCES: &str = "resources.json";
/// Folder of the files as they were compiled, in the places that they have in the project.
const SOURCES: &str = "source";

/// The host has no CUDA compiler that answers.
#[derive(Debug, thiserror::Error)]
pub enum CudaError {
    #[error(transparent)]
    Toolkit(#[from] ToolkitError),
    #[error("{}: {error}; check that the folder can be read", path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error(transparent)]
    Answers(#[from] AnswersError),
    #[error("the CUDA compiler in {}: {failure}", folder.display())]
    Compiler { folder: PathBuf, failure: Failure },
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("the CUDA compiler {version} does not compile for {architecture}; install a newer CUDA toolkit")]
    Architecture { version: String, architecture: String },
}

impl Cuda {
    /// The compiler for `architecture`, e.g. `sm_90a`. Asks it for its version unless `cache` (the project's `.cache`)
    /// holds the answer; `worker` is the program that serves `__worker`.
    ///
    /// # Errors
    /// The host has no CUDA compiler with its headers, or one that does not know the architecture.
    pub fn find(architecture: &str, cache: &Path, worker: &Path, patience: &Patience) -> Result<Cuda, CudaError> {
        let surroundings = Surroundings::of_process();
        let toolkit = find(&surroundings)?;
        let identity = identity(&toolkit)?;
        let name = toolkit.library.display().to_string();
        let ask = || ask(worker, &toolkit, patience);
        let Answer { version: (major, minor), architectures } =
            Answers::new(cache).get_or_ask(&name, &identity, ask)?;
        let version = format!("NVRTC {major}.{minor}");
        let number = architecture.trim_start_matches("sm_").trim_end_matches(|suffix: char| !suffix.is_ascii_digit());
        if !architectures.iter().any(|known| known.to_string() == number) {
            return Err(CudaError::Architecture { version, architecture: architecture.to_owned() });
        }
        let compiler = CompilerId { version, target: architecture.to_owned(), arguments: Vec::new(), native: identity };
        let mut standard_flags = vec![format!("--gpu-architecture={architecture}")];
        standard_flags.extend(FLAGS.map(str::to_owned));
        // What comes out of the compiler's own cache comes without what ptxas says of registers and spills.
        if major >= 13 {
            standard_flags.push("--no-cache".to_owned());
        }
        let programs = std::env::join_paths(&toolkit.programs).unwrap_or_default();
        let cuobjdump =
            process::find("cuobjdump", &programs).or_else(|| process::find("cuobjdump", &surroundings.path));
        let toolchain = Toolchain { compiler, standard_flags };
        Ok(Cuda { worker: worker.to_owned(), toolkit, toolchain, cuobjdump })
    }

    /// mlarun's own device code, compiled for the same architecture: the path of its cubin below `cache`, the project's
    /// `.cache`.
    ///
    /// # Errors
    /// The compiler does not run, or the cache cannot be written to.
    pub fn support(&self, source: &str, cache: &Path, patience: &Patience) -> Result<PathBuf, BuildError> {
        let key = Key::of("support/1", &(&self.toolchain, source));
        let folder = cache.join("support");
        let published = folder.join(format!("{key}.cubin"));
        if published.is_file() {
            return Ok(published);
        }
        fs::create_dir_all(&folder).map_err(io(&folder))?;
        let temporary = tempfile::tempdir_in(&folder).map_err(io(&folder))?;
        let name = Path::new("support.cu");
        self.nvrtc(name, name, source, &self.toolchain.standard_flags, temporary.path(), patience)?;
        fs::rename(temporary.path().join(MODULE), &published).map_err(io(&published))?;
        Ok(published)
    }

    /// Compiles the text `unit`, which messages call `name`, into module and PTX of `folder`, and returns the compiler's
    /// messages. What is refused is the fault of the file `source`.
    fn nvrtc(
        &self,
        source: &Path,
        name: &Path,
        unit: &str,
        options: &[String],
        folder: &Path,
        patience: &Patience,
    ) -> Result<String, BuildError> {
        let system = self.toolkit.include.iter().map(|include| format!("--include-path={}", include.display()));
        let request = CompileRequest {
            name: name.display().to_string(),
            source: unit.to_owned(),
            options: options.iter().cloned().chain(system).collect(),
            into: folder.to_owned(),
        };
        let lines = serve(&self.worker, &self.toolkit, Task::Compile(request), Some(folder), patience)?;
        let answer = lines.into_iter().find_map(|line| match line {
            Line::Compiled { log } => Some(Ok(log)),
            Line::Failed(failure) => Some(Err(failure)),
            _ => None,
        });
        answer.unwrap_or_else(|| Err(silent())).map_err(|failure| refused(source, &self.toolchain.compiler, failure))
    }

    /// The compiler's options for `stage`, as they are recorded: headers of the toolkit are named by `$CUDA`.
    fn options(&self, stage: &StageBuild, material: &BuildMaterial) -> Vec<String> {
        let mut options = material.flags.clone();
        options.extend(material.defines.iter().map(|(name, value)| format!("--define-macro={name}={value}")));
        options.push(format!("--include-path={SOURCES}/{}", stage.package.display()));
        options
    }

    fn listing(&self, into: &Destination<'_>) -> Result<Listing, BuildError> {
        let folder = into.folder;
        let Some(cuobjdump) = &self.cuobjdump else {
            let reason =
                "the host has no cuobjdump; it comes with the CUDA toolkit (`pip install nvidia-cuda-cuobjdump`)";
            return Ok(Listing::Absent { reason: reason.to_owned() });
        };
        let mut command = tool(cuobjdump);
        let done = process::output_within(command.current_dir(folder).args(["-sass", MODULE]), into.patience)?;
        if !done.status.success() {
            return Ok(Listing::Absent { reason: format!("cuobjdump failed: {}", text(&done.stderr).trim()) });
        }
        fs::write(folder.join(LISTING), done.stdout).map_err(io(folder))?;
        Ok(Listing::Written { tool: "cuobjdump -sass".into() })
    }
}

impl Backend for Cuda {
    fn language(&self) -> Language {
        Language::Cuda
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
        let folder = into.folder;
        for (path, _) in stage.files() {
            let to = folder.join(SOURCES).join(&path);
            fs::create_dir_all(to.parent().unwrap_or(folder)).map_err(io(&to))?;
            fs::copy(into.root.join(&path), &to).map_err(io(&into.root.join(&path)))?;
        }
        let unit = folder.join(UNIT);
        fs::write(&unit, &material.caller).map_err(io(&unit))?;
        let options = self.options(stage, material);
        let command =
            format!("nvrtc {} --include-path=$CUDA/include {UNIT}\n", process::words(options.iter().map(OsStr::new)));
        fs::write(folder.join("command.txt"), command).map_err(io(folder))?;
        let name = Path::new(UNIT);
        let log = self.nvrtc(&stage.source, name, &material.caller, &options, folder, into.patience)?;
        let resources: BTreeMap<String, Resources> = ptxas::resources(&log);
        let path = folder.join(RESOURCES);
        let json =
            serde_json::to_vec_pretty(&resources).map_err(|error| BuildError::Json { path: path.clone(), error })?;
        fs::write(&path, json).map_err(io(&path))?;
        let listing = self.listing(into)?;
        let module = folder.join(MODULE);
        let bytes = fs::read(&module).map_err(io(&module))?;
        Ok(Compiled {
            module: MODULE.to_owned(),
            code_sha256: code::code_sha256(&bytes, &module)?,
            listing,
            log,
            resources: resources.get(&stage.entry).copied(),
        })
    }
}

/// What the compiler is asked.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
struct Answer {
    /// Of NVRTC: major, minor.
    version: (u32, u32),
    /// Compute capabilities: 90 is 9.0.
    architectures: Vec<u32>,
}

fn ask(worker: &Path, toolkit: &Toolkit, patience: &Patience) -> Result<Answer, CudaError> {
    let failed = |failure| CudaError::Compiler { folder: toolkit.library.clone(), failure };
    for line in serve(worker, toolkit, Task::Toolkit, None, patience)? {
        match line {
            Line::Toolkit { version, architectures, .. } => return Ok(Answer { version, architectures }),
            Line::Failed(failure) => return Err(failed(failure)),
            _ => {}
        }
    }
    Err(failed(silent()))
}

/// Identity of library and headers by names and sizes: what a toolkit makes, it makes from these.
fn identity(toolkit: &Toolkit) -> Result<Key, CudaError> {
    let failed = |folder: &Path| {
        let path = folder.to_owned();
        move |error| CudaError::Io { path, error }
    };
    let mut files = Vec::new();
    for folder in std::iter::once(&toolkit.library).chain(&toolkit.include) {
        let is_library = folder == &toolkit.library;
        let entries = fs::read_dir(folder).map_err(failed(folder))?;
        for entry in entries {
            let entry = entry.map_err(failed(folder))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !is_library || name.starts_with("libnvrtc") {
                let meta = fs::metadata(entry.path()).map_err(failed(folder))?;
                files.push((name, if meta.is_file() { meta.len() } else { 0 }));
            }
        }
    }
    files.sort();
    Ok(Key::of("toolkit/1", &files))
}

/// Every line that a worker answers to `task`; the toolkit's library is the one that it loads.
fn serve(
    worker: &Path,
    toolkit: &Toolkit,
    task: Task,
    folder: Option<&Path>,
    patience: &Patience,
) -> Result<Vec<Line>, ProcessError> {
    let start = |error: std::io::Error| ProcessError::Start { program: worker.to_owned(), error };
    let request = Request { protocol: PROTOCOL, task, cores: Vec::new(), gpu: None };
    let request = serde_json::to_string(&request).map_err(|error| start(error.into()))?;
    let mut command = tool(worker);
    command.arg("__worker").env("LD_LIBRARY_PATH", &toolkit.library).stdin(process::input(&request).map_err(start)?);
    if let Some(folder) = folder {
        command.current_dir(folder);
    }
    // The worker ends with this program by itself, and reads what a guard would not pass on.
    let done = process::output_within(&mut command, &Patience { guard: None, ..patience.clone() })?;
    let lines: Vec<Line> = text(&done.stdout).lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if lines.iter().any(|line| matches!(line, Line::Done | Line::Failed(_))) {
        return Ok(lines);
    }
    let message = text(&done.stderr).trim().to_owned();
    Err(ProcessError::Failed { command: "mlarun __worker".to_owned(), status: done.status, message })
}

fn silent() -> Failure {
    Failure { kind: FailureKind::Internal, stage: None, message: "the worker ended without an answer".to_owned() }
}

fn refused(source: &Path, compiler: &CompilerId, failure: Failure) -> BuildError {
    let log = failure.message;
    let line = log.lines().find(|line| line.contains("error")).or_else(|| log.lines().next()).unwrap_or_default();
    let hint = if line.contains("could not open source file") || line.contains("cannot open source file") {
        "; every file of the project that a stage includes must be listed in its `headers`"
    } else {
        ""
    };
    BuildError::Refused {
        stage_source: source.to_owned(),
        compiler: compiler.to_string(),
        message: format!("{line}{hint}"),
        log,
    }
}
