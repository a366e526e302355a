//! Where CUDA's run-time compiler and its headers lie: an installed toolkit, or the wheels of PyPI. Reads folders alone.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of one CUDA toolkit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolkit {
    /// Folder with `libnvrtc.so.*`.
    pub library: PathBuf,
    /// Folders with the headers, in the order in which they are searched.
    pub include: Vec<PathBuf>,
    /// Folders that may hold `cuobjdump`.
    pub programs: Vec<PathBuf>,
}

/// There is no toolkit, or it lacks its headers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolkitError {
    #[error(
        "no CUDA compiler (libnvrtc.so) was found in {}; install the CUDA toolkit, or `pip install nvidia-cuda-nvrtc \
         nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl`, or name its folder in CUDA_HOME",
        listed(.0)
    )]
    NoLibrary(Vec<PathBuf>),
    #[error(
        "{} has the CUDA compiler, but its header {header} was found in none of {}; install the toolkit's headers \
         (`pip install nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl`)",
        library.display(), listed(searched)
    )]
    NoHeader { library: PathBuf, header: &'static str, searched: Vec<PathBuf> },
}

pub(super) fn listed(folders: &[PathBuf]) -> String {
    folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The variables that say where to look.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// CUDA_HOME and CUDA_PATH, where set.
    pub homes: Vec<PathBuf>,
    /// LD_LIBRARY_PATH, where set.
    pub library_path: Option<OsString>,
    /// Root of an active Python environment (VIRTUAL_ENV), where set.
    pub virtual_env: Option<PathBuf>,
    /// Home folder, for what was installed for one user.
    pub home: Option<PathBuf>,
    /// PATH.
    pub path: OsString,
}

impl Surroundings {
    /// Those of this process.
    pub fn of_process() -> Surroundings {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        Surroundings {
            homes: ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(set).map(PathBuf::from).collect(),
            library_path: set("LD_LIBRARY_PATH"),
            virtual_env: set("VIRTUAL_ENV").map(PathBuf::from),
            home: set("HOME").map(PathBuf::from),
            path: set("PATH").unwrap_or_default(),
        }
    }
}

/// Headers without which nothing compiles: of the run time, of the compiler, of the CUDA C++ core libraries.
const HEADERS: [&str; 2] = ["cuda_bf16.h", "cuda_fp16.h"];

/// The first toolkit: named by a variable, found on the library path, installed in a usual folder, from wheels.
///
/// # Errors
/// There is none, or its headers are nowhere.
pub fn find(surroundings: &Surroundings) -> Result<Toolkit, ToolkitError> {
    let candidates = candidates(surroundings);
    let found = candidates.iter().find(|candidate| has_library(&candidate.library));
    let Some(found) = found else {
        return Err(ToolkitError::NoLibrary(candidates.into_iter().map(|candidate| candidate.library).collect()));
    };
    let include: Vec<PathBuf> = found.include.iter().filter(|folder| folder.is_dir()).cloned().collect();
    for header in HEADERS {
        if !include.iter().any(|folder| folder.join(header).is_file()) {
            let (library, searched) = (found.library.clone(), found.include.clone());
            return Err(ToolkitError::NoHeader { library, header, searched });
        }
    }
    Ok(Toolkit { include, ..found.clone() })
}

/// Folders that may hold programs of a toolkit, then those of PATH.
pub fn program_folders(surroundings: &Surroundings) -> Vec<PathBuf> {
    let of_toolkits = candidates(surroundings).into_iter().flat_map(|toolkit| toolkit.programs);
    let mut folders: Vec<PathBuf> = of_toolkits.chain(std::env::split_paths(&surroundings.path)).collect();
    let mut seen = std::collections::BTreeSet::new();
    folders.retain(|folder| seen.insert(folder.clone()));
    folders
}

/// Files that may be CUPTI's library, those of the first toolkit first.
pub fn cupti(surroundings: &Surroundings) -> Vec<PathBuf> {
    let on_path = surroundings.library_path.iter().flat_map(std::env::split_paths);
    let of_toolkits = candidates(surroundings).into_iter().flat_map(|toolkit| {
        let beside = toolkit.library.parent().map(|home| home.join("extras/CUPTI/lib64"));
        beside.into_iter().chain([toolkit.library])
    });
    let wheels = site_packages(surroundings).into_iter().map(|site| site.join("nvidia/cuda_cupti/lib"));
    let mut files: Vec<PathBuf> = Vec::new();
    for folder in on_path.chain(of_toolkits).chain(wheels) {
        let name = names(&folder).find(|name| name.starts_with("libcupti.so"));
        let file = name.and_then(|name| folder.join(name).canonicalize().ok());
        files.extend(file.filter(|file| !files.contains(file)));
    }
    files
}

fn has_library(folder: &Path) -> bool {
    names(folder).any(|name| name.starts_with("libnvrtc.so"))
}

/// Names in a folder, sorted; none where it cannot be read.
fn names(folder: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names.into_iter()
}

fn candidates(surroundings: &Surroundings) -> Vec<Toolkit> {
    let mut all = Vec::new();
    surroundings.homes.iter().for_each(|home| all.extend(installed(home)));
    for library in surroundings.library_path.iter().flat_map(std::env::split_paths) {
        if has_library(&library) {
            all.push(beside(&library));
        }
    }
    all.extend(installed(Path::new("/usr/local/cuda")));
    let versions = names(Path::new("/usr/local")).filter(|name| name.starts_with("cuda-"));
    versions
        .collect::<Vec<_>>()
        .iter()
        .rev()
        .for_each(|name| all.extend(installed(&Path::new("/usr/local").join(name))));
    all.extend(installed(Path::new("/opt/cuda")));
    for library in ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"] {
        let (library, include, programs) = (library.into(), vec!["/usr/include".into()], vec!["/usr/bin".into()]);
        all.push(Toolkit { library, include, programs });
    }
    site_packages(surroundings).iter().for_each(|site| all.extend(wheels(site)));
    all
}

/// A toolkit as NVIDIA's installer lays it out.
fn installed(home: &Path) -> Vec<Toolkit> {
    let toolkit = |library: &str| Toolkit {
        library: home.join(library),
        include: vec![home.join("include"), home.join("include/cccl")],
        programs: vec![home.join("bin")],
    };
    vec![toolkit("lib64"), toolkit("lib")]
}

/// The toolkit that a library folder belongs to.
fn beside(library: &Path) -> Toolkit {
    let home = library.parent().unwrap_or(library);
    let site = wheels_of_library(library);
    let include = [home.join("include"), home.join("include/cccl")].into_iter().chain(site).collect();
    Toolkit { library: library.to_owned(), include, programs: vec![home.join("bin")] }
}

/// Headers of the wheels beside that of the compiler, in the layout of CUDA 12: a folder for each wheel.
fn wheels_of_library(library: &Path) -> Vec<PathBuf> {
    let nvidia = library.parent().and_then(Path::parent);
    nvidia.filter(|nvidia| nvidia.ends_with("nvidia")).map(cuda_12_headers).unwrap_or_default()
}

fn cuda_12_headers(nvidia: &Path) -> Vec<PathBuf> {
    ["cuda_runtime", "cuda_nvrtc", "cuda_nvcc", "cuda_cccl"]
        .into_iter()
        .map(|wheel| nvidia.join(wheel).join("include"))
        .collect()
}

/// Toolkits from wheels: `nvidia/cu13` for all of CUDA 13, a folder for each wheel before.
fn wheels(site: &Path) -> Vec<Toolkit> {
    let nvidia = site.join("nvidia");
    let newest = names(&nvidia).filter(|name| name.strip_prefix("cu").is_some_and(is_number)).map(|name| {
        let home = nvidia.join(name);
        let include = vec![home.join("include"), home.join("include/cccl")];
        Toolkit { library: home.join("lib"), include, programs: vec![home.join("bin")] }
    });
    let mut all: Vec<Toolkit> = newest.collect();
    all.reverse();
    let include = cuda_12_headers(&nvidia);
    all.push(Toolkit { library: nvidia.join("cuda_nvrtc/lib"), include, programs: vec![nvidia.join("cuda_nvcc/bin")] });
    all
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Folders that Python installs packages into: of the active environment, of the Python on the path, of the user, of
/// the system.
fn site_packages(surroundings: &Surroundings) -> Vec<PathBuf> {
    let on_path = std::env::split_paths(&surroundings.path).filter(|folder| folder.join("python3").exists());
    let python = on_path.filter_map(|folder| folder.parent().map(Path::to_owned));
    let user = surroundings.home.iter().map(|home| home.join(".local"));
    let roots = surroundings.virtual_env.iter().cloned().chain(python).chain(user);
    let mut sites = Vec::new();
    for root in roots.chain([PathBuf::from("/usr/local"), PathBuf::from("/usr")]) {
        let lib = root.join("lib");
        for python in names(&lib).filter(|name| name.starts_with("python3")) {
            sites.extend(["site-packages", "dist-packages"].map(|packages| lib.join(&python).join(packages)));
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    sites.retain(|site| seen.insert(site.clone()));
    sites
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: PathBuf) {
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(path, "").expect("a file");
    }

    fn headers(folder: &Path) {
        HEADERS.iter().for_each(|header| write(folder.join(header)));
    }

    #[test]
    fn a_named_home_comes_first_and_needs_its_headers() {
        let home = tempfile::tempdir().expect("a folder");
        write(home.path().join("lib64/libnvrtc.so.13"));
        let surroundings = Surroundings { homes: vec![home.path().to_owned()], ..Surroundings::default() };
        let error = find(&surroundings).expect_err("no header");
        assert!(matches!(&error, ToolkitError::NoHeader { header: "cuda_bf16.h", .. }), "{error}");
        headers(&home.path().join("include"));
        let found = find(&surroundings).expect("a toolkit");
        assert_eq!(found.library, home.path().join("lib64"));
        assert_eq!(found.include, [home.path().join("include")]);
    }

    #[test]
    fn wheels_of_both_layouts_are_found() {
        for (library, include) in
            [("cu13/lib", vec!["cu13/include"]), ("cuda_nvrtc/lib", vec!["cuda_runtime/include", "cuda_nvcc/include"])]
        {
            let env = tempfile::tempdir().expect("a folder");
            let nvidia = env.path().join("lib/python3.12/site-packages/nvidia");
            write(nvidia.join(library).join("libnvrtc.so.13"));
            headers(&nvidia.join(include[0]));
            include.iter().for_each(|folder| write(nvidia.join(folder).join("other.h")));
            let surroundings = Surroundings { virtual_env: Some(env.path().to_owned()), ..Surroundings::default() };
            let found = candidates(&surroundings).into_iter().find(|toolkit| has_library(&toolkit.library));
            assert_eq!(found.expect("a toolkit").library, nvidia.join(library));
            let on_path =
                Surroundings { library_path: Some(nvidia.join(library).into_os_string()), ..Surroundings::default() };
            let found = find(&on_path).expect("a toolkit");
            assert_eq!(found.include, include.iter().map(|folder| nvidia.join(folder)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn cupti_is_found_in_a_toolkit_on_the_library_path_and_in_wheels() {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path().canonicalize().expect("a folder");
        let path = |path: &str| root.join(path);
        let site = "env/lib/python3.12/site-packages/nvidia";
        let files = [
            path("own/libcupti.so.13"),
            path("home/extras/CUPTI/lib64/libcupti.so.12"),
            path(&format!("{site}/cu13/lib/libcupti.so.13")),
            path(&format!("{site}/cuda_cupti/lib/libcupti.so.12")),
        ];
        files.iter().for_each(|file| write(file.clone()));
        std::os::unix::fs::symlink(&files[1], files[1].with_file_name("libcupti.so")).expect("a link");
        let surroundings = Surroundings {
            homes: vec![path("home")],
            library_path: Some(path("own").into_os_string()),
            virtual_env: Some(path("env")),
            ..Surroundings::default()
        };
        let mut found = cupti(&surroundings);
        found.retain(|file| file.starts_with(&root));
        assert_eq!(found, files);
    }

    #[test]
    fn a_host_without_a_toolkit_is_told_where_was_looked() {
        let home = tempfile::tempdir().expect("a folder");
        let surroundings = Surroundings { homes: vec![home.path().to_owned()], ..Surroundings::default() };
        if let Err(error) = find(&surroundings) {
            let text = error.to_string();
            assert!(text.contains(&home.path().join("lib64").display().to_string()) && text.contains("pip install"));
        }
    }
}
