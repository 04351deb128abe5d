//! Server and clients as processes.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

pub(crate) use undertone_lab::ports::free as free_port;

use super::*;

const CLIENTS: usize = 5;

/// Files of a trial with five clients, and an address for its server.
pub(crate) struct Trial {
    folder: TempDir,
    pub(crate) port: u16,
    pub(crate) status: u16,
}

/// A process that ends with the test.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    pub(crate) fn ends(&mut self, within: Duration) -> Option<i32> {
        let start = Instant::now();
        while start.elapsed() < within {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("still runs after {within:?}");
    }
}

pub(crate) const LONG: Duration = Duration::from_secs(300);

/// A job that takes a while.
pub(crate) const LONG_JOB: &str = "backend = \"psm\"\nbits = 32768";

/// What a client says that agrees to it.
pub(crate) const AGREE: [&str; 4] = ["--accept", "max_bits=65535", "--backends", "psm"];

impl Trial {
    pub(crate) fn new(dataset: &str, job: &str) -> Self {
        Self::with_clients(CLIENTS, dataset, job)
    }

    pub(crate) fn with_clients(clients: usize, dataset: &str, job: &str) -> Self {
        let clients = clients.to_string();
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (data, files) = (data(dataset), path("data"));
        let dealt = undertone(&["deal", &data, "--out", &files, "--clients", &clients]);
        assert!(dealt.status.success());
        let made = undertone(&["keys", "--out", &path("keys"), "--clients", &clients]);
        assert!(made.status.success());
        std::fs::write(folder.path().join("keys/job.toml"), job).unwrap();
        Self {
            folder,
            port: free_port(),
            status: free_port(),
        }
    }

    /// Gives a client another name in the rosters of all parties.
    pub(crate) fn rename(&self, from: &str, to: &str) {
        let clients = (0..CLIENTS).map(|client| format!("keys/client-{client}/roster.toml"));
        for file in clients.chain(["keys/roster.toml".into()]) {
            let path = self.path(&file);
            let roster = std::fs::read_to_string(&path).unwrap();
            let renamed =
                roster.replace(&format!("name = \"{from}\""), &format!("name = \"{to}\""));
            assert_ne!(roster, renamed);
            std::fs::write(&path, renamed).unwrap();
        }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn spawn(&self, log: &str, arguments: &[&str]) -> Process {
        let file = |end: &str| std::fs::File::create(self.path(&format!("{log}.{end}"))).unwrap();
        let child = Command::new(PROGRAM)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(file("out"))
            .stderr(file("err"))
            .spawn();
        Process(child.unwrap())
    }

    pub(crate) fn serve(&self, log: &str, more: &[&str]) -> Process {
        let (listen, status) = (
            format!("127.0.0.1:{}", self.port),
            format!("127.0.0.1:{}", self.status),
        );
        let roster = self.path("keys/roster.toml");
        let mut arguments = vec!["serve", "--roster", &roster, "--listen", &listen];
        arguments.extend(["--status", &status, "--insecure-seed", "4", "--json"]);
        arguments.extend(more);
        self.spawn(log, &arguments)
    }

    pub(crate) fn join(&self, client: usize, more: &[&str]) -> Process {
        self.join_with(client, &format!("data/client-{client}.npz"), more)
    }

    /// A client with this data file.
    pub(crate) fn join_with(&self, client: usize, data: &str, more: &[&str]) -> Process {
        let server = format!("localhost:{}", self.port);
        let keys = self.path(&format!("keys/client-{client}"));
        let data = self.path(data);
        let out = self.path(&format!("{client}.csv"));
        let mut arguments = vec![
            "join",
            "--accept",
            "volatile-record",
            "--server",
            &server,
            "--keys",
            &keys,
            "--data",
            &data,
        ];
        arguments.extend(["--out", &out, "--insecure-seed", "4", "--json"]);
        arguments.extend(more);
        self.spawn(&format!("join-{client}"), &arguments)
    }

    /// Labels of the same clients in one process.
    fn in_one_process(&self, backend: &str, bits: &str) -> Vec<String> {
        let files: Vec<String> = (0..CLIENTS)
            .map(|client| self.path(&format!("data/client-{client}.npz")))
            .collect();
        let out = self.path("one");
        let mut arguments = vec!["label", "--seed", "4", "--out", &out, "--backend", backend];
        arguments.extend(["--bits", bits]);
        arguments.extend(files.iter().flat_map(|file| ["--client", file]));
        assert!(undertone(&arguments).status.success());
        let read = |client| {
            let path = format!("{out}/client-{client}.labels.csv");
            std::fs::read_to_string(path).unwrap()
        };
        (0..CLIENTS).map(read).collect()
    }

    fn labels(&self, client: usize) -> String {
        std::fs::read_to_string(self.path(&format!("{client}.csv"))).unwrap()
    }

    pub(crate) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Waits until the server reports this state.
    pub(crate) fn until(&self, is: impl Fn(&Value) -> bool) {
        let address = format!("127.0.0.1:{}", self.status);
        let start = Instant::now();
        while start.elapsed() < LONG {
            let output = undertone(&["status", &address, "--json"]);
            if output.status.success() && is(&json(&output)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{}", self.text("serve.err"));
    }

    /// These clients end with a result.
    pub(crate) fn come_home(&self, clients: &mut [Process]) {
        for (client, process) in clients.iter_mut().enumerate() {
            let code = process.ends(LONG);
            let log = self.text(&format!("join-{client}.err"));
            assert_eq!(code, Some(0), "{log}");
        }
    }

    /// The server's report on its job.
    pub(crate) fn report(&self) -> Value {
        serde_json::from_str(&self.text("serve.out")).unwrap()
    }

    /// Clients of a job that takes a while, in its longest phase.
    pub(crate) fn in_distances(&self) -> Vec<Process> {
        let clients = (0..CLIENTS).map(|c| self.join(c, &AGREE)).collect();
        self.until(|status| status["phase"] == "distances");
        clients
    }

    /// Six processes have exactly the result of one process.
    fn compare(&self, backend: &str, bits: &str) {
        let mut server = self.serve(
            "serve",
            &["--jobs", "1", "--reports", &self.path("reports")],
        );
        let mut clients: Vec<Process> = (0..CLIENTS).map(|client| self.join(client, &[])).collect();
        self.come_home(&mut clients);
        assert_eq!(server.ends(LONG), Some(0), "{}", self.text("serve.err"));
        for (client, expected) in self.in_one_process(backend, bits).iter().enumerate() {
            assert_eq!(&self.labels(client), expected, "client {client}");
        }
        let report = self.report();
        let number = |name: &str| report[name].as_u64().unwrap() as f64;
        assert_eq!(report["results"]["contributors"], CLIENTS);
        // Sockets carry little besides frames: TLS, HTTP/2, acknowledgements, and the hellos.
        let relayed = number("relayed_bytes");
        let overhead = |socket: &str, frames: &str| number(socket) / (number(frames) + relayed);
        assert!(overhead("socket_received", "bytes_received") < 1.03);
        assert!(overhead("socket_sent", "bytes_sent") < 1.03);
        let kept = std::fs::read_dir(self.path("reports")).unwrap().next();
        let kept = std::fs::read_to_string(kept.unwrap().unwrap().path()).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&kept).unwrap(), report);
        let mine: Value = serde_json::from_str(&self.text("join-2.out")).unwrap();
        assert_eq!(mine["backend"], backend);
        assert_eq!(mine["sessions"], 1);
    }
}

#[test]
fn six_processes_label_digits_as_one_does() {
    Trial::new("digits", "").compare("lwe", "4096");
}

#[test]
fn six_processes_label_wine_by_transfers_as_one_does() {
    Trial::new("wine", "backend = \"shade\"\nbits = 512").compare("shade", "512");
}

/// This test sends gigabytes.
#[test]
#[ignore = "takes half a minute; .ci/run runs it"]
fn six_processes_label_digits_by_transfers_as_one_does() {
    Trial::new("digits", "backend = \"shade\"").compare("shade", "4096");
}

/// The server is killed while a job runs, and started again: the clients try again, and get a
/// result.
#[test]
fn a_server_that_is_killed_and_started_again() {
    let trial = Trial::new("digits", LONG_JOB);
    let mut first = trial.serve("first", &["--jobs", "1"]);
    let mut clients = trial.in_distances();
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    let mut second = trial.serve("serve", &["--jobs", "1"]);
    trial.come_home(&mut clients);
    assert_eq!(second.ends(LONG), Some(0));
    for (client, expected) in trial.in_one_process("psm", "32768").iter().enumerate() {
        assert_eq!(&trial.labels(client), expected, "client {client}");
    }
    let mine: Value = serde_json::from_str(&trial.text("join-0.out")).unwrap();
    assert_eq!(mine["sessions"], 2);
}

#[test]
fn a_client_that_is_killed_is_missed_by_nobody() {
    let trial = Trial::new("digits", LONG_JOB);
    let mut server = trial.serve("serve", &["--jobs", "1", "--grace", "1"]);
    let mut clients = trial.in_distances();
    clients.remove(4);
    trial.come_home(&mut clients);
    for client in 0..clients.len() {
        assert!(trial.labels(client).lines().count() > 300);
    }
    assert_eq!(server.ends(LONG), Some(0));
    let report = trial.report();
    assert_eq!(report["results"]["contributors"], 4);
}

/// A client that is asked to stop tells the server, so that no party waits for its return.
#[test]
fn a_client_that_is_terminated_says_goodbye() {
    let trial = Trial::new("digits", LONG_JOB);
    let mut server = trial.serve("serve", &["--jobs", "1", "--grace", "600"]);
    let mut clients = trial.in_distances();
    let mut leaver = clients.remove(4);
    let id = leaver.0.id().to_string();
    assert!(Command::new("kill").arg(id).status().unwrap().success());
    assert_eq!(leaver.ends(LONG), Some(130));
    trial.come_home(&mut clients);
    assert_eq!(server.ends(LONG), Some(0));
    let report = trial.report();
    assert_eq!(report["results"]["contributors"], 4);
}

#[test]
fn a_server_ends_when_it_is_terminated() {
    let trial = Trial::new("wine", "");
    let mut server = trial.serve("serve", &[]);
    let mut client = trial.join(0, &[]);
    trial.until(|status| status["clients"][0]["state"] == "waiting");
    for process in [&server, &client] {
        let id = process.0.id().to_string();
        assert!(Command::new("kill").arg(id).status().unwrap().success());
    }
    assert_eq!(client.ends(LONG), Some(130));
    assert_eq!(server.ends(LONG), Some(0));
    assert!(!Path::new(&trial.path("0.csv")).exists());
}

/// NET-8
#[test]
fn terms_that_are_not_met_end_the_client() {
    let trial = Trial::new("wine", "backend = \"sketch\"");
    let _server = trial.serve("serve", &[]);
    let mut client = trial.join(0, &[]);
    assert_eq!(client.ends(LONG), Some(77));
    assert!(trial.text("join-0.err").contains("--accept backends=VALUE"));
}

#[test]
fn files_of_keys_are_private_and_never_overwritten() {
    let trial = Trial::new("wine", "");
    #[cfg(unix)]
    for key in ["server.key", "client-3/client.key"] {
        use std::os::unix::fs::PermissionsExt;
        let path = trial.path(&format!("keys/{key}"));
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    assert_fails(
        &["keys", "--out", &trial.path("keys")],
        73,
        "not overwritten",
    );
    let roster = trial.path("keys/roster.toml");
    let text = trial.text("keys/roster.toml");
    std::fs::write(&roster, text.replace("[[client]]", "[client]")).unwrap();
    assert_fails(&["serve", "--roster", &roster], 65, "roster");
    let nowhere = trial.path("nowhere.toml");
    assert_fails(&["serve", "--roster", &nowhere], 66, "nowhere.toml");
    assert_fails(&["status", "127.0.0.1:1"], 69, "127.0.0.1:1");
}

#[test]
fn what_was_dealt_is_labelled_as_from_one_file() {
    let trial = Trial::new("wine", "");
    let labelled = trial.in_one_process("clear", "4096");
    assert_eq!(labelled.len(), CLIENTS);
    let rows: usize = labelled.iter().map(|text| text.lines().count() - 1).sum();
    assert_eq!(rows, 178);
    assert_fails(
        &["deal", &data("wine"), "--out", "x", "--labelled", "1"],
        2,
        "--labelled",
    );
}
