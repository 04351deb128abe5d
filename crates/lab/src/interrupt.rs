//! Interrupts: a command that is interrupted leaves no temporary file, no temporary folder and no
//! child process.
//!
//! Temporary files (`TempFile`), temporary folders (`TempFolder`) and child processes (`Process`)
//! are in one registry, behind one lock. A command makes, moves and removes them only under that
//! lock. After a signal the handler takes the lock and never releases it: everything that exists is
//! then in the registry, and the command can make nothing new.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tempfile::{NamedTempFile, TempDir, TempPath};
use tokio::sync::oneshot;

/// The exit code of an interrupted command.
pub const EXIT_CODE: u8 = 130;

/// The interval at which [`Process::wait`] checks whether the process has ended.
const POLL: Duration = Duration::from_millis(10);

/// How long the processes of a group may take to end after they were asked to.
#[cfg(unix)]
const GRACE: Duration = Duration::from_secs(2);

/// How long the system may take to end processes that were killed. Where nobody collects their exit
/// codes, as in many containers, they never seem to end.
#[cfg(unix)]
const KILLED: Duration = Duration::from_millis(500);

/// Something that must not outlive this process.
#[derive(Debug)]
enum Leftover {
    File(TempPath),
    Folder(TempDir),
    Process(Child),
    /// A process, and all that it has started.
    Group(Child),
}

/// All leftovers, and the listener that hears of the first signal.
#[derive(Debug)]
struct Registry {
    leftovers: BTreeMap<u64, Leftover>,
    next: u64,
    listener: Option<oneshot::Sender<()>>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    leftovers: BTreeMap::new(),
    next: 0,
    listener: None,
});

/// Locks the registry. Never returns once the command has been interrupted.
fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    fn add(&mut self, leftover: Leftover) -> u64 {
        self.next += 1;
        self.leftovers.insert(self.next, leftover);
        self.next
    }

    /// Ends a process that is a leftover.
    fn end(&mut self, id: u64) {
        match self.leftovers.remove(&id) {
            Some(Leftover::Process(child)) => end(child),
            Some(Leftover::Group(child)) => end_group(child),
            _ => {}
        }
    }

    /// Removes all leftovers.
    fn clear(&mut self) {
        let (mut files, mut folders) = (Vec::new(), Vec::new());
        // Processes first: they may write into the folders.
        for leftover in std::mem::take(&mut self.leftovers).into_values() {
            match leftover {
                Leftover::Process(child) => end(child),
                Leftover::Group(child) => end_group(child),
                Leftover::File(path) => files.push(path),
                Leftover::Folder(folder) => folders.push(folder),
            }
        }
        drop(files);
        folders.into_iter().for_each(remove);
    }
}

/// Kills a process and waits for its end.
fn end(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Asks a process and all others of its group to end, and kills those that are left after
/// [`GRACE`].
/// The process may have ended already.
#[cfg(unix)]
fn end_group(mut child: Child) {
    use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
    let group = Pid::from_child(&child);
    for (signal, time) in [(Signal::TERM, GRACE), (Signal::KILL, KILLED)] {
        let _ = kill_process_group(group, signal);
        let start = std::time::Instant::now();
        while start.elapsed() < time {
            let _ = child.try_wait();
            // The system gives the number of a group that has a member to no other process.
            if test_kill_process_group(group).is_err() {
                return;
            }
            std::thread::sleep(POLL);
        }
    }
}

/// Kills a process and all that it has started.
#[cfg(not(unix))]
fn end_group(child: Child) {
    let mut kill = Command::new("taskkill");
    kill.args(["/T", "/F", "/PID", &child.id().to_string()])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let _ = kill.status();
    end(child);
}

/// Removes a folder. Tries again if another thread of this process has just put a file in it.
fn remove(folder: TempDir) {
    let path = folder.keep();
    for _ in 0..100 {
        let _ = std::fs::remove_dir_all(&path);
        if !path.exists() {
            return;
        }
        std::thread::sleep(POLL);
    }
}

/// A temporary file. Deleted when dropped, and when the command is interrupted.
#[derive(Debug)]
pub(crate) struct TempFile {
    file: File,
    id: u64,
}

impl TempFile {
    /// The file that `make` creates.
    pub(crate) fn new(make: impl FnOnce() -> io::Result<NamedTempFile>) -> io::Result<Self> {
        let mut registry = registry();
        let (file, path) = make()?.into_parts();
        let id = registry.add(Leftover::File(path));
        Ok(Self { file, id })
    }

    pub(crate) fn as_file_mut(&mut self) -> &mut File {
        &mut self.file
    }

    /// Moves the file to `path`, where it stays. It takes the place of another file only with
    /// `replace`.
    pub(crate) fn persist(self, path: &Path, replace: bool) -> io::Result<()> {
        let mut registry = registry();
        let held = registry.leftovers.remove(&self.id);
        let moved = match held {
            Some(Leftover::File(held)) => {
                let moved = if replace {
                    held.persist(path)
                } else {
                    held.persist_noclobber(path)
                };
                moved.map_err(|error| error.error)
            }
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        // Dropping `self` takes the lock.
        drop(registry);
        moved
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        registry().leftovers.remove(&self.id);
    }
}

/// A folder in the system's folder for temporary files. Deleted when dropped, and when the command
/// is interrupted.
#[derive(Debug)]
pub(crate) struct TempFolder {
    path: PathBuf,
    id: u64,
}

impl TempFolder {
    pub(crate) fn new() -> io::Result<Self> {
        let mut registry = registry();
        let folder = tempfile::Builder::new().prefix("undertone-").tempdir()?;
        let path = folder.path().to_owned();
        let id = registry.add(Leftover::Folder(folder));
        Ok(Self { path, id })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        registry().leftovers.remove(&self.id);
    }
}

/// A child process. Ended when dropped, and when the command is interrupted.
#[derive(Debug)]
pub struct Process {
    id: u64,
}

impl Process {
    /// Starts a process.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let mut registry = registry();
        let child = command.spawn()?;
        let id = registry.add(Leftover::Process(child));
        Ok(Self { id })
    }

    /// Starts a process that takes all processes that it starts with it when it ends or is ended.
    /// Unix: they first get SIGTERM. Those that have left its process group are not found.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_group(command: &mut Command) -> io::Result<Self> {
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(command, 0);
        let mut registry = registry();
        let child = command.spawn()?;
        let id = registry.add(Leftover::Group(child));
        Ok(Self { id })
    }

    /// Waits for the end of the process.
    ///
    /// # Errors
    /// When it cannot be waited for, or was ended ([`Process::end`]).
    pub fn wait(&self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            std::thread::sleep(POLL);
        }
    }

    /// How the process ended, if it has. It is then no longer known.
    ///
    /// # Errors
    /// As [`Process::wait`].
    pub fn ended(&self) -> io::Result<Option<ExitStatus>> {
        let mut registry = registry();
        let status = match registry.leftovers.get_mut(&self.id) {
            Some(Leftover::Process(child) | Leftover::Group(child)) => child.try_wait()?,
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        if status.is_some() {
            // Later the number of its group may be that of other processes.
            registry.end(self.id);
        }
        Ok(status)
    }

    /// Ends the process, if it has not ended.
    pub fn end(&self) {
        registry().end(self.id);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Handles SIGINT (Ctrl-C), SIGTERM and SIGHUP from now on. A signal removes what the command holds
/// and ends the process with [`EXIT_CODE`], unless the command listens for it ([`requested`]).
///
/// SIGHUP stays ignored if it is ignored (`nohup`).
///
/// # Errors
/// When the operating system refuses signal handlers.
pub fn install() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let entered = runtime.enter();
    let mut signals = Signals::new()?;
    drop(entered);
    let watch = move || {
        runtime.block_on(async {
            loop {
                signals.next().await;
                arrived();
            }
        });
    };
    std::thread::Builder::new()
        .name("interrupt".into())
        .spawn(watch)?;
    Ok(())
}

/// Handles a signal.
fn arrived() {
    let mut registry = registry();
    if let Some(listener) = registry.listener.take()
        && listener.send(()).is_ok()
    {
        return;
    }
    registry.clear();
    // Standard error may be closed.
    let _ = writeln!(io::stderr(), "undertone: stopped");
    std::process::exit(EXIT_CODE.into());
}

/// Removes what the command still holds: its files and folders, and child processes that detached
/// threads wait for. The command calls this at its end.
pub fn clear() {
    registry().clear();
}

/// Resolves at the next signal, which then does not end the process. A further signal ends it, and
/// so does any signal after the future has been dropped.
pub fn requested() -> impl Future<Output = ()> + Send {
    let (sender, receiver) = oneshot::channel();
    registry().listener = Some(sender);
    async {
        if receiver.await.is_err() {
            // Another call has taken the place of this one.
            std::future::pending().await
        }
    }
}

/// The signals that end a command.
#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let hangup = SignalKind::hangup();
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: is_default(hangup.as_raw_value())
                .then(|| signal(hangup))
                .transpose()?,
        })
    }

    async fn next(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = hangup => {}
        }
    }
}

/// Whether this process is known not to ignore the signal. Only Linux reports this.
#[cfg(unix)]
fn is_default(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = line.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    ignored.is_some_and(|ignored| ignored >> (signal - 1) & 1 == 0)
}

/// The signals that end a command.
#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn dropping_removes() {
        let folder = TempFolder::new().unwrap();
        let file = TempFile::new(|| NamedTempFile::new_in(folder.path())).unwrap();
        let kept = TempFile::new(|| NamedTempFile::new_in(folder.path())).unwrap();
        let [path, other] = ["kept", "other"].map(|name| folder.path().join(name));
        kept.persist(&path, false).unwrap();
        std::fs::write(&other, "other").unwrap();
        let late = TempFile::new(|| NamedTempFile::new_in(folder.path())).unwrap();
        assert!(late.persist(&other, false).is_err());
        assert_eq!(std::fs::read(&other).unwrap(), b"other");
        let late = TempFile::new(|| NamedTempFile::new_in(folder.path())).unwrap();
        late.persist(&other, true).unwrap();
        assert_eq!(std::fs::read(&other).unwrap(), b"");
        std::fs::remove_file(&other).unwrap();
        let names = || std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names(), 2);
        drop(file);
        assert_eq!(names(), 1);
        let path = folder.path().to_owned();
        drop(folder);
        assert!(!path.exists());
    }

    /// One of the processes ignores the request to end.
    #[test]
    #[cfg(unix)]
    fn a_group_ends_with_its_process() {
        let folder = TempFolder::new().unwrap();
        let runs = |pid: &i32| {
            let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // Whether somebody has collected its exit code does not matter.
            !state.is_empty() && !state.contains(") Z ")
        };
        let start = |name: &str, trap: &str, then: &str| {
            let names = folder.path().join(name);
            let script = format!(
                "sleep 300 & echo $! > {0}; ({trap} sleep 300; :) & \
                 echo $! >> {0}; echo >> {0}; {then}",
                names.display()
            );
            let process = Process::start_group(Command::new("sh").args(["-c", &script])).unwrap();
            let pids = loop {
                let text = std::fs::read_to_string(&names).unwrap_or_default();
                if text.ends_with("\n\n") {
                    let pids = text.split_whitespace().map(|pid| pid.parse().unwrap());
                    break pids.collect::<Vec<i32>>();
                }
                std::thread::sleep(POLL);
            };
            assert_eq!(pids.len(), 2);
            (process, pids)
        };
        let (process, pids) = start("dropped", "trap '' TERM;", "wait");
        assert!(pids.iter().all(runs));
        drop(process);
        assert!(!pids.iter().any(runs), "{pids:?}");
        let (process, pids) = start("over", "", "exit 3");
        assert_eq!(process.wait().unwrap().code(), Some(3));
        assert!(!pids.iter().any(runs), "{pids:?}");
        process.wait().unwrap_err();
    }

    /// Does not use the registry of the process, which other tests use at the same time.
    #[test]
    fn everything_is_cleared() {
        let mut registry = Registry {
            leftovers: BTreeMap::new(),
            next: 0,
            listener: None,
        };
        let folder = TempDir::new().unwrap();
        let path = folder.path().to_owned();
        let (_, file) = NamedTempFile::new().unwrap().into_parts();
        let file_path = file.to_path_buf();
        std::fs::write(path.join("key"), "secret").unwrap();
        registry.add(Leftover::Folder(folder));
        registry.add(Leftover::File(file));
        registry.clear();
        assert!(!path.exists() && !file_path.exists() && registry.leftovers.is_empty());
    }
}
