//! Commands that are interrupted leave no files and no processes. The tests find processes in
//! /proc.

use std::process::Stdio;
use std::time::{Duration, Instant};

use super::network::{LONG, LONG_JOB, Process, Trial, free_port};
use super::*;

/// A command with a folder of its own for temporary files.
struct Running {
    temporary: TempDir,
    process: Process,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_undertone"));
        command.args(arguments);
        Self::start_as(command)
    }

    fn start_as(mut command: Command) -> Self {
        let temporary = TempDir::new().unwrap();
        command.env("TMPDIR", temporary.path());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let process = Process(command.stderr(Stdio::null()).spawn().unwrap());
        Self { temporary, process }
    }

    fn signal(&self, name: &str) {
        let id = self.process.0.id().to_string();
        let sent = Command::new("kill").args([name, &id]).status().unwrap();
        assert!(sent.success());
    }

    /// Sends SIGINT. The command must end with 130, and leave no temporary file.
    fn interrupt(self) {
        self.end_by("-INT");
    }

    fn end_by(mut self, signal: &str) {
        self.signal(signal);
        assert_eq!(self.process.ends(LONG), Some(130), "{signal}");
        assert_eq!(names(self.temporary.path()), Vec::<String>::new());
    }

    /// Its child processes.
    fn children(&self) -> Vec<u32> {
        let me = self.process.0.id();
        let processes = names(Path::new("/proc")).into_iter();
        let ids = processes.filter_map(|name| name.parse::<u32>().ok());
        ids.filter(|id| parent(*id) == Some(me)).collect()
    }
}

/// The parent of a process that has not ended.
fn parent(id: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name of the program, in parentheses, may contain any characters.
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    words.nth(1)?.parse().ok()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.collect()
}

fn until(what: &str, is: impl Fn() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until `folder` holds at least `files` temporary files.
fn until_files(folder: &Path, files: usize) {
    let temporary = |name: &String| name.starts_with(".undertone-");
    until("no temporary file", || {
        names(folder).iter().filter(|name| temporary(name)).count() >= files
    });
}

/// Whether this process ignores SIGHUP, as under `nohup`.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.unwrap().trim(), 16).unwrap();
    ignored & 1 == 1
}

#[test]
fn a_command_that_is_interrupted_leaves_no_file() {
    let digits = data("digits");
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (out, report, page) = (path("labels.csv"), path("report.json"), path("costs.html"));
    let (secret, public) = (path("secret.json"), path("public.json"));
    let label = [
        "label", &digits, "--runs", "100000", "--out", &out, "--report", &report,
    ];
    let keygen = [
        "paillier",
        "keygen",
        "--secret",
        &secret,
        "--public",
        &public,
        "--safe-primes",
        "--bits",
        "4096",
    ];
    let costs = ["costs", "--out", &page];
    for (arguments, files) in [(&label[..], 2), (&keygen, 2), (&costs, 4)] {
        for signal in ["-INT", "-TERM", "-HUP"] {
            if signal == "-HUP" && is_hangup_ignored() {
                // The test's own parent ignores the signal, and commands inherit that.
                continue;
            }
            let running = Running::start(arguments);
            until_files(folder.path(), files);
            running.end_by(signal);
            assert_eq!(names(folder.path()), Vec::<String>::new(), "{arguments:?}");
        }
    }
}

/// The signal comes before, while and after files are opened and written.
#[test]
fn a_signal_at_any_time_leaves_no_temporary_file() {
    let wine = data("wine");
    for step in 0..40 {
        let folder = TempDir::new().unwrap();
        let out = folder.path().join("dealt").to_str().unwrap().to_owned();
        let mut running = Running::start(&["deal", &wine, "--out", &out, "--clients", "20"]);
        std::thread::sleep(Duration::from_micros(500 * step));
        running.signal("-INT");
        let code = running.process.ends(LONG);
        // There is no exit code if the signal came before the command handled signals.
        assert!([None, Some(0), Some(130)].contains(&code), "{code:?}");
        if let Ok(dealt) = std::fs::read_dir(&out) {
            for file in dealt.flatten() {
                let name = file.file_name().to_string_lossy().into_owned();
                assert!(name.starts_with("client-"), "{name}");
                assert!(file.metadata().unwrap().len() > 0);
            }
        }
    }
}

#[test]
fn a_benchmark_over_the_network_leaves_no_key_and_no_process() {
    let digits = data("digits");
    let arguments = [
        "bench",
        "network",
        &digits,
        "--clients",
        "3",
        "--repeat",
        "1000",
    ];
    // The server and its clients run.
    let running = Running::start(&arguments);
    until("no children", || running.children().len() == 4);
    let children = running.children();
    let folders = names(running.temporary.path());
    assert_eq!(folders.len(), 1);
    let keys = running.temporary.path().join(&folders[0]).join("keys");
    assert!(keys.join("server.key").exists());
    let me = running.process.0.id();
    running.interrupt();
    for child in children {
        assert_ne!(parent(child), Some(me));
        assert!(!is_undertone(child), "process {child} still runs");
    }
    // The folder is being filled.
    for step in 0..10 {
        let running = Running::start(&arguments);
        until("no folder", || !names(running.temporary.path()).is_empty());
        std::thread::sleep(Duration::from_millis(3 * step));
        running.interrupt();
    }
}

fn is_undertone(id: u32) -> bool {
    let program = std::fs::read_link(format!("/proc/{id}/exe"));
    program.is_ok_and(|program| program == Path::new(env!("CARGO_BIN_EXE_undertone")))
}

#[test]
fn a_client_that_is_interrupted_leaves_no_file() {
    let trial = Trial::new("wine", "");
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("labels.csv");
    let (keys, rows) = (trial.path("keys/client-0"), trial.path("data/client-0.npz"));
    let server = format!("127.0.0.1:{}", trial.port);
    let nobody = format!("127.0.0.1:{}", free_port());
    let _server = trial.serve("serve", &[]);
    // In the lobby, and while it tries to reach a server.
    for server in [&server, &nobody] {
        let running = Running::start(&[
            "join",
            "--accept",
            "volatile-record",
            "--server",
            server,
            "--keys",
            &keys,
            "--data",
            &rows,
            "--out",
            out.to_str().unwrap(),
        ]);
        until_files(folder.path(), 1);
        if *server != nobody {
            trial.until(|status| status["clients"][0]["state"] == "waiting");
        }
        running.interrupt();
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }
}

#[test]
fn the_second_signal_ends_a_server_at_once() {
    let trial = Trial::new("digits", LONG_JOB);
    let mut server = trial.serve("serve", &["--drain", "600"]);
    let _clients = trial.in_distances();
    let id = server.0.id().to_string();
    for _ in 0..2 {
        assert!(
            Command::new("kill")
                .args(["-INT", &id])
                .status()
                .unwrap()
                .success()
        );
        std::thread::sleep(Duration::from_millis(300));
    }
    assert_eq!(server.ends(LONG), Some(130));
}

/// As under `nohup`.
#[test]
fn a_hangup_that_is_ignored_stays_ignored() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("labels.csv");
    let mut shell = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_undertone");
    let ignoring = "trap '' HUP; exec \"$0\" \"$@\"";
    shell.args([
        "-c",
        ignoring,
        program,
        "label",
        &data("digits"),
        "--runs",
        "100000",
        "--out",
    ]);
    shell.arg(&out);
    let mut running = Running::start_as(shell);
    until_files(folder.path(), 1);
    running.signal("-HUP");
    std::thread::sleep(Duration::from_millis(300));
    assert!(running.process.0.try_wait().unwrap().is_none());
    running.interrupt();
}
