//! The lease: one measuring mlarun a host, or one a GPU. File locks in a folder that all users share; the kernel releases
//! them when their process ends, however it ends.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{ErrorKind, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Who holds the lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub pid: u32,
    /// Its command line.
    pub command: String,
    pub since: jiff::Timestamp,
}

impl Holder {
    /// This process.
    pub fn of_process() -> Holder {
        let command = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ");
        Holder { pid: std::process::id(), command, since: jiff::Timestamp::now() }
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} (`{}`, since {})", self.pid, self.command, self.since)
    }
}

/// The lease was not had.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error("{}: this host is already being measured on by {}; wait for it, or let mlarun wait", path.display(), named(holder.as_ref()))]
    Held { path: PathBuf, holder: Option<Holder> },
    #[error(
        "{}: the lock that keeps measurements apart cannot be had: {error}; set MLARUN_LEASE_DIR to a folder that all \
         users of this host can write to",
        path.display()
    )]
    Io { path: PathBuf, error: std::io::Error },
}

/// `holder` in words, known or not.
fn named(holder: Option<&Holder>) -> String {
    holder.map_or_else(|| "a process that gave no name".to_owned(), Holder::to_string)
}

/// What to do while another process holds the lease.
pub enum Waiting<'a> {
    /// Give up at once.
    Refuse,
    /// Ask every [`POLL`] whether to go on; the first time is the time to tell people.
    While(&'a mut dyn FnMut(Option<&Holder>) -> bool),
}

/// Time between two looks at a lease that is held.
pub const POLL: Duration = Duration::from_millis(100);

/// Variable of the environment that says what a lease is of: `host`, the default, or `gpu`.
pub const SCOPE_VARIABLE: &str = "MLARUN_LEASE";

/// What a lease is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope<'a> {
    /// The whole host: nothing else is measured on it.
    Host,
    /// One GPU, by its UUID: others may be measured on at the same time.
    Gpu(&'a str),
}

/// The environment asks for a lease that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{SCOPE_VARIABLE}: `{0}` is no scope of a lease; there are host and gpu")]
pub struct UnknownScope(String);

/// The lease that who measures on `gpu` needs here; a CPU's is always the host's.
///
/// # Errors
/// The environment asks for another one.
pub fn scope(gpu: Option<&str>) -> Result<Scope<'_>, UnknownScope> {
    let asked = std::env::var_os(SCOPE_VARIABLE).unwrap_or_default();
    match (asked.to_str(), gpu) {
        (Some("gpu"), Some(uuid)) => Ok(Scope::Gpu(uuid)),
        (Some("" | "host" | "gpu"), _) => Ok(Scope::Host),
        _ => Err(UnknownScope(asked.to_string_lossy().into_owned())),
    }
}

/// The held lease; dropping it lets the next one measure.
#[derive(Debug)]
pub struct Lease {
    /// Names the holder.
    file: File,
    /// The host's lock, shared with other holders of GPUs.
    _host: Option<File>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        // An empty file names nobody; closing the file, which follows, releases the lock whatever happens here.
        let _ = self.file.set_len(0);
    }
}

/// The folder that MLARUN_LEASE_DIR names, else the one that all users of a host share.
pub fn folder() -> PathBuf {
    std::env::var_os("MLARUN_LEASE_DIR")
        .filter(|value| !value.is_empty())
        .map_or_else(|| "/tmp/mlarun".into(), PathBuf::from)
}

/// Takes a lease, whose lock files lie in `folder`.
///
/// # Errors
/// Another process holds it and `waiting` gave up, or a file cannot be made, opened or locked.
pub fn acquire(folder: &Path, scope: Scope<'_>, mut waiting: Waiting<'_>) -> Result<Lease, LeaseError> {
    let host = folder.join(HOST_FILE);
    let (path, lease) = match scope {
        Scope::Host => {
            let file = lock(folder, &host, File::try_lock, &mut waiting)?;
            (host, Lease { file, _host: None })
        }
        Scope::Gpu(uuid) => {
            let shared = lock(folder, &host, File::try_lock_shared, &mut waiting)?;
            let own = folder.join(format!("lease-{uuid}.json"));
            let file = lock(folder, &own, File::try_lock, &mut waiting)?;
            (own, Lease { file, _host: Some(shared) })
        }
    };
    write_holder(&lease.file).map_err(|error| LeaseError::Io { path, error })?;
    Ok(lease)
}

/// Lock file of the host.
const HOST_FILE: &str = "lease.json";

/// Opens `path` and locks it with `try_lock` as soon as that can be had.
fn lock(
    folder: &Path,
    path: &Path,
    try_lock: fn(&File) -> Result<(), TryLockError>,
    waiting: &mut Waiting<'_>,
) -> Result<File, LeaseError> {
    let io = |error| LeaseError::Io { path: path.to_owned(), error };
    let mut file = open(folder, path).map_err(io)?;
    loop {
        match try_lock(&file) {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(io(error)),
        }
        let holder = read_holder(&mut file).or_else(|| holder_of_a_gpu(folder));
        let goes_on = match waiting {
            Waiting::Refuse => false,
            Waiting::While(goes_on) => goes_on(holder.as_ref()),
        };
        if !goes_on {
            return Err(LeaseError::Held { path: path.to_owned(), holder });
        }
        std::thread::sleep(POLL);
    }
}

/// One of those that share the host's lock.
fn holder_of_a_gpu(folder: &Path) -> Option<Holder> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let of_gpus = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("lease-"));
    of_gpus.filter_map(|entry| read_holder(&mut File::open(entry.path()).ok()?)).next()
}

/// Opens the lock file, which every user may lock and write. It is made only where it is missing, as a kernel may
/// refuse to "create" another user's file in a sticky folder; a symbolic link in its place is refused.
pub(super) fn open(folder: &Path, path: &Path) -> std::io::Result<File> {
    let no_link = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let existing = || OpenOptions::new().read(true).write(true).custom_flags(no_link).open(path);
    match existing() {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        other => return other,
    }
    if !folder.exists() {
        fs::create_dir_all(folder)?;
        fs::set_permissions(folder, Permissions::from_mode(0o1777))?;
    }
    match OpenOptions::new().read(true).write(true).create_new(true).custom_flags(no_link).open(path) {
        Ok(file) => {
            file.set_permissions(Permissions::from_mode(0o666))?;
            Ok(file)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => existing(),
        Err(error) => Err(error),
    }
}

/// The holder as it named itself; `None` while it is about to.
fn read_holder(file: &mut File) -> Option<Holder> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn write_holder(mut file: &File) -> std::io::Result<()> {
    let text = serde_json::to_vec(&Holder::of_process())?;
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    /// Names the folder to a second process that takes the lease.
    const FOLDER: &str = "MLARUN_TEST_LEASE_FOLDER";

    #[test]
    #[ignore = "is the second process of `a_process_that_dies_gives_the_lease_back`"]
    fn second_process() {
        let folder = std::env::var_os(FOLDER).expect("started by the other one");
        let _lease = acquire(Path::new(&folder), Scope::Host, Waiting::Refuse).expect("free");
        println!("\nheld");
        std::io::stdin().lines().for_each(drop);
    }

    #[test]
    fn a_process_that_dies_gives_the_lease_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "device::lease::tests::second_process", "--ignored", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        assert!(lines.any(|line| line == "held"), "the second process takes the lease");
        let error = acquire(folder.path(), Scope::Host, Waiting::Refuse).expect_err("held");
        let LeaseError::Held { holder: Some(holder), .. } = &error else { panic!("{error}") };
        assert_eq!(holder.pid, child.id());
        assert!(error.to_string().contains("second_process"), "{error}");
        child.kill().expect("killed");
        child.wait().expect("ended");
        acquire(folder.path(), Scope::Host, Waiting::Refuse).expect("free again");
    }

    #[test]
    fn the_next_one_waits_until_the_lease_is_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut held = Some(acquire(&folder.path().join("new"), Scope::Host, Waiting::Refuse).expect("free"));
        let mut named = Vec::new();
        let mut goes_on = |holder: Option<&Holder>| {
            named.push(holder.map(|holder| holder.pid));
            drop(held.take());
            true
        };
        acquire(&folder.path().join("new"), Scope::Host, Waiting::While(&mut goes_on)).expect("had in the end");
        assert_eq!(named, [Some(std::process::id())]);
    }

    #[test]
    fn waiting_may_be_given_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let _held = acquire(folder.path(), Scope::Host, Waiting::Refuse).expect("free");
        let gives_up = acquire(folder.path(), Scope::Host, Waiting::While(&mut |_| false));
        assert!(matches!(gives_up, Err(LeaseError::Held { .. })));
    }

    #[test]
    fn a_link_in_the_place_of_the_lock_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("target");
        fs::write(&target, "precious").expect("written");
        std::os::unix::fs::symlink(&target, folder.path().join("lease.json")).expect("a link");
        let error = acquire(folder.path(), Scope::Host, Waiting::Refuse).expect_err("a link");
        assert!(error.to_string().contains("MLARUN_LEASE_DIR"), "{error}");
        assert_eq!(fs::read_to_string(target).expect("text"), "precious");
    }

    #[test]
    fn gpus_are_leased_one_by_one_and_the_host_as_a_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let take = |scope| acquire(folder.path(), scope, Waiting::Refuse);
        let first = take(Scope::Gpu("GPU-1")).expect("free");
        let second = take(Scope::Gpu("GPU-2")).expect("another GPU");
        let error = take(Scope::Gpu("GPU-1")).expect_err("held");
        assert!(error.to_string().contains("lease-GPU-1.json"), "{error}");
        let LeaseError::Held { holder, .. } = take(Scope::Host).expect_err("GPUs are measured on") else {
            panic!("held")
        };
        assert_eq!(holder.map(|holder| holder.pid), Some(std::process::id()));
        // A process that another test is just starting shares the lock for a moment after it was given back.
        let started = std::time::Instant::now();
        let soon = |scope| acquire(folder.path(), scope, Waiting::While(&mut |_| started.elapsed().as_secs() < 60));
        drop((first, second));
        let host = soon(Scope::Host).expect("free");
        assert!(matches!(take(Scope::Gpu("GPU-1")), Err(LeaseError::Held { .. })));
        drop(host);
        soon(Scope::Gpu("GPU-1")).expect("free again");
    }
}
