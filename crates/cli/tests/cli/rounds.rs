//! Secure sums and weighted means as processes.

use std::io::Cursor;
use std::path::Path;

use undertone::arrays::Arrays;
use undertone::data::{arrays_from_npz, arrays_to_npz};
use undertone::party::PartyId;
use undertone::rounds::Job;

use super::network::{LONG, Process, Trial};
use super::*;

const CLIENTS: usize = 5;

/// The contribution of client `index` to a round.
fn arrays(index: usize, round: u32) -> Arrays {
    let value = |at: usize| ((at * 31 + index * 17 + round as usize * 5) % 97) as f64 / 16.0;
    let mut arrays = Arrays::new();
    let weights: Vec<f32> = (0..1200).map(|at| value(at) as f32).collect();
    arrays.push("weights", vec![30, 40], weights).unwrap();
    arrays.push("bias", vec![], vec![value(1200)]).unwrap();
    arrays
}

fn weight(index: usize) -> f64 {
    (index + 1) as f64 * 10.0
}

fn write(path: &str, arrays: &Arrays) {
    let mut bytes = Cursor::new(Vec::new());
    arrays_to_npz(&mut bytes, arrays).unwrap();
    // The file is whole when it appears.
    std::fs::write(format!("{path}.part"), bytes.get_ref()).unwrap();
    std::fs::rename(format!("{path}.part"), path).unwrap();
}

fn read(path: &str) -> Arrays {
    arrays_from_npz(std::fs::File::open(path).unwrap()).unwrap()
}

/// The weighted mean of a round to which `contributors` contribute.
fn mean(round: u32, contributors: &[usize]) -> Arrays {
    let job = Job {
        clients: CLIENTS,
        ..Job::default()
    };
    let layout = arrays(0, round).layout();
    let mut sum = vec![0u64; job.words(layout.len())];
    for index in contributors {
        let (words, _) = job.encode(&arrays(*index, round), weight(*index)).unwrap();
        for (sum, word) in sum.iter_mut().zip(words.iter()) {
            *sum = sum.wrapping_add(*word);
        }
    }
    let ids = contributors.iter().copied().map(PartyId::client).collect();
    job.decode(round, ids, &layout, &sum).unwrap().arrays
}

struct Rounds(Trial);

impl Rounds {
    /// A job whose clients may leave one by one: its six clients would be one group.
    fn new(job: &str) -> Self {
        let job = format!("application = \"sum\"\nfree_sampling = true\n{job}");
        Self(Trial::new("wine", &job))
    }

    /// Client `index`, which reads and writes a file each round.
    fn join(&self, index: usize) -> Process {
        let data = self.0.path(&format!("{index}-update-{{round}}.npz"));
        let out = self.0.path(&format!("{index}-mean-{{round}}.npz"));
        self.join_with(index, &["--data", &data, "--out", &out])
    }

    fn join_with(&self, index: usize, more: &[&str]) -> Process {
        let agree = ["--accept", "allow_free_sampling=true"];
        self.join_for_groups(index, &[more, &agree].concat())
    }

    fn join_for_groups(&self, index: usize, more: &[&str]) -> Process {
        let server = format!("localhost:{}", self.0.port);
        let keys = self.0.path(&format!("keys/client-{index}"));
        let weight = weight(index).to_string();
        let mut arguments = vec![
            "join",
            "--accept",
            "volatile-record",
            "--server",
            &server,
            "--keys",
            &keys,
        ];
        arguments.extend(["--application", "sum", "--weight", &weight, "--json"]);
        arguments.extend(more);
        self.0.spawn(&format!("join-{index}"), &arguments)
    }

    fn give(&self, index: usize, round: u32) {
        let path = self.0.path(&format!("{index}-update-{round}.npz"));
        write(&path, &arrays(index, round));
    }

    fn mean(&self, index: usize, round: u32) -> Arrays {
        read(&self.0.path(&format!("{index}-mean-{round}.npz")))
    }

    fn has_mean(&self, index: usize, round: u32) -> bool {
        let path = self.0.path(&format!("{index}-mean-{round}.npz"));
        Path::new(&path).exists()
    }
}

/// One client is killed after it has begun: the mean is that of the others, bit for bit.
#[test]
fn six_processes_of_which_one_is_killed_have_the_mean_of_the_others() {
    let rounds = Rounds::new("rounds = 2");
    let means = rounds.0.path("means");
    let mut server = rounds
        .0
        .serve("serve", &["--jobs", "1", "--grace", "1", "--means", &means]);
    for index in 0..CLIENTS {
        rounds.give(index, 1);
    }
    let mut clients: Vec<Process> = (0..CLIENTS).map(|index| rounds.join(index)).collect();
    rounds
        .0
        .until(|status| status["number"] == 1 && status["phase"] == "contribution");
    // All others have made their contributions to the second round when it is killed.
    (0..CLIENTS - 1).for_each(|index| rounds.give(index, 2));
    rounds
        .0
        .until(|status| status["waits_for"].as_array().unwrap().len() == 1);
    drop(clients.pop());
    rounds.0.come_home(&mut clients);
    assert_eq!(server.ends(LONG), Some(0), "{}", rounds.0.text("serve.err"));
    let all: Vec<usize> = (0..CLIENTS).collect();
    for index in 0..CLIENTS - 1 {
        assert_eq!(rounds.mean(index, 1), mean(1, &all));
        assert_eq!(rounds.mean(index, 2), mean(2, &all[..CLIENTS - 1]));
    }
    for round in 1..=2 {
        let servers = read(&format!("{means}/mean-{round}.npz"));
        assert_eq!(servers, rounds.mean(0, round));
    }
    let report = rounds.0.report();
    assert_eq!(report["results"]["rounds"], 2);
    assert_eq!(report["results"]["contributors"], CLIENTS - 1);
    let mine: Value = serde_json::from_str(&rounds.0.text("join-0.out")).unwrap();
    assert_eq!((&mine["rounds"], &mine["sessions"]), (&2.into(), &2.into()));
}

/// The server is killed in round 8 of twenty, and started again with its checkpoint: it continues
/// with that round, and every client has twenty means.
#[test]
fn twenty_rounds_with_a_server_that_is_killed_and_started_again() {
    const ROUNDS: u32 = 20;
    let rounds = Rounds::new("rounds = 20");
    let kept = rounds.0.path("kept");
    let options = ["--jobs", "1", "--checkpoint", &kept];
    let mut first = rounds.0.serve("first", &options);
    let mut clients: Vec<Process> = (0..CLIENTS).map(|index| rounds.join(index)).collect();
    for round in 1..=7 {
        (0..CLIENTS).for_each(|index| rounds.give(index, round));
    }
    rounds
        .0
        .until(|status| status["number"] == 7 && status["phase"] == "contribution");
    // Some have made their contributions.
    (0..2).for_each(|index| rounds.give(index, 8));
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    let mut second = rounds.0.serve("serve", &options);
    for round in 8..=ROUNDS {
        (0..CLIENTS).for_each(|index| rounds.give(index, round));
    }
    rounds.0.come_home(&mut clients);
    assert_eq!(second.ends(LONG), Some(0), "{}", rounds.0.text("serve.err"));
    let all: Vec<usize> = (0..CLIENTS).collect();
    for round in 1..=ROUNDS {
        for index in 0..CLIENTS {
            assert_eq!(
                rounds.mean(index, round),
                mean(round, &all),
                "round {round}"
            );
        }
    }
    // The second server ran the remaining rounds, and has removed its checkpoint.
    let report = rounds.0.report();
    assert_eq!(report["sessions"], ROUNDS - 7);
    assert!(!Path::new(&kept).exists());
}

/// A client is killed in the second round and comes back as a new process in the third: it gets
/// that round's mean, and contributes to the fourth.
#[test]
fn a_client_that_comes_back_gets_the_last_mean() {
    const BACK: usize = CLIENTS - 1;
    let rounds = Rounds::new("rounds = 4");
    let mut server = rounds.0.serve("serve", &["--jobs", "1", "--grace", "1"]);
    let in_round = |number: u32| {
        rounds
            .0
            .until(|status| status["number"] == number && status["phase"] == "contribution");
    };
    (0..CLIENTS).for_each(|index| rounds.give(index, 1));
    let mut clients: Vec<Process> = (0..CLIENTS).map(|index| rounds.join(index)).collect();
    in_round(1);
    drop(clients.pop());
    (0..BACK).for_each(|index| rounds.give(index, 2));
    in_round(2);
    clients.push(rounds.join(BACK));
    rounds
        .0
        .until(|status| status["clients"][BACK]["state"] == "waiting");
    (0..BACK).for_each(|index| rounds.give(index, 3));
    in_round(3);
    (0..CLIENTS).for_each(|index| rounds.give(index, 4));
    rounds.0.come_home(&mut clients);
    assert_eq!(server.ends(LONG), Some(0), "{}", rounds.0.text("serve.err"));
    let all: Vec<usize> = (0..CLIENTS).collect();
    assert!(!rounds.has_mean(BACK, 2));
    for index in [0, BACK] {
        assert_eq!(rounds.mean(index, 3), mean(3, &all[..BACK]));
        assert_eq!(rounds.mean(index, 4), mean(4, &all));
    }
}

/// A command makes the update of each round from the last mean.
#[test]
#[cfg(unix)]
fn a_command_makes_each_update() {
    let rounds = Rounds::new("rounds = 2\nmean = false");
    let mut server = rounds.0.serve("serve", &["--jobs", "1"]);
    for index in 0..CLIENTS {
        rounds.give(index, 1);
    }
    let mut clients: Vec<Process> = (0..CLIENTS)
        .map(|index| {
            let (data, out) = (
                rounds.0.path(&format!("{index}-own.npz")),
                rounds.0.path(&format!("{index}-sum.npz")),
            );
            let first = rounds.0.path(&format!("{index}-update-1.npz"));
            // The second round adds up the sums of the first.
            let each = format!(
                "if [ $UNDERTONE_ROUND = 1 ]; then cp {first} {data}; \
                 else cp $UNDERTONE_MEAN {data}; fi"
            );
            rounds.join_with(index, &["--data", &data, "--out", &out, "--each", &each])
        })
        .collect();
    rounds.0.come_home(&mut clients);
    assert_eq!(server.ends(LONG), Some(0), "{}", rounds.0.text("serve.err"));
    let sum = |at: usize| -> f64 {
        let own = (0..CLIENTS).map(|index| arrays(index, 1).to_doubles()[at]);
        own.sum()
    };
    let last = read(&rounds.0.path("2-sum.npz")).to_doubles();
    for at in [0, 7, 1200] {
        assert!((last[at] - CLIENTS as f64 * sum(at)).abs() < 1e-3);
    }
}

/// Clients whose commands never end, with the ids of the processes that the commands start.
#[cfg(target_os = "linux")]
struct Commands {
    rounds: Rounds,
    data: String,
}

#[cfg(target_os = "linux")]
impl Commands {
    fn new(job: &str) -> Self {
        let rounds = Rounds::new(job);
        let data = rounds.0.path("own.npz");
        Self { rounds, data }
    }

    /// One process of the command is a child of the shell, the other ignores requests to end.
    fn join(&self, index: usize) -> Process {
        let data = &self.data;
        let out = self.rounds.0.path("mean.npz");
        let each = format!(
            "sleep 300 & echo $! > {data}-{index}; \
             (trap '' TERM INT; sleep 300; :) & echo $! '' >> {data}-{index}; wait"
        );
        let options = [
            "--data", data, "--out", &out, "--each", &each, "--retry", "1",
        ];
        self.rounds.join_with(index, &options)
    }

    /// The processes of a command that has started.
    fn of(&self, index: usize) -> Vec<String> {
        let start = std::time::Instant::now();
        loop {
            let names = format!("{}-{index}", self.data);
            let text = std::fs::read_to_string(names).unwrap_or_default();
            if text.ends_with(" \n") {
                let pids = text.split_whitespace();
                return pids.map(|pid| format!("/proc/{pid}/stat")).collect();
            }
            let log = self.rounds.0.text(&format!("join-{index}.err"));
            assert!(start.elapsed() < LONG, "{log}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// Whether a process runs. Whether somebody has collected its exit code does not matter.
#[cfg(target_os = "linux")]
fn runs(stat: &String) -> bool {
    let state = std::fs::read_to_string(stat).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

/// A client that is interrupted while its command runs takes the command with it.
#[test]
#[cfg(target_os = "linux")]
fn a_client_that_is_interrupted_ends_its_command() {
    let commands = Commands::new("rounds = 1");
    let _server = commands.rounds.0.serve("serve", &[]);
    let mut clients: Vec<Process> = (0..CLIENTS).map(|index| commands.join(index)).collect();
    let processes: Vec<Vec<String>> = (0..CLIENTS).map(|index| commands.of(index)).collect();
    for (index, client) in clients.iter().enumerate() {
        assert!(processes[index].len() == 2 && processes[index].iter().all(runs));
        let id = client.0.id().to_string();
        let signal = ["-INT", "-TERM"][index % 2];
        let killed = Command::new("kill").args([signal, &id]).status();
        assert!(killed.unwrap().success());
    }
    for (client, processes) in clients.iter_mut().zip(&processes) {
        assert_eq!(client.ends(LONG), Some(130));
        assert!(!processes.iter().any(runs), "{processes:?}");
    }
}

/// One client is expelled at the deadline of the round, another loses its server.
#[test]
#[cfg(target_os = "linux")]
fn a_client_that_is_expelled_ends_its_command() {
    let commands = Commands::new("rounds = 2\n[deadlines]\ncontribution = 2");
    let rounds = &commands.rounds;
    let mut server = rounds.0.serve("serve", &["--grace", "1"]);
    let mut slow = commands.join(0);
    let others: Vec<Process> = (1..CLIENTS).map(|index| rounds.join(index)).collect();
    (1..CLIENTS).for_each(|index| rounds.give(index, 1));
    let processes = commands.of(0);
    assert!(processes.iter().all(runs));
    assert_eq!(slow.ends(LONG), Some(70), "{}", rounds.0.text("join-0.err"));
    assert!(!processes.iter().any(runs), "{processes:?}");
    drop(others);

    server.0.kill().unwrap();
    server.0.wait().unwrap();
    std::fs::remove_file(format!("{}-0", commands.data)).unwrap();
    let mut server = rounds.0.serve("again", &[]);
    let mut clients: Vec<Process> = (0..CLIENTS).map(|index| commands.join(index)).collect();
    let processes = commands.of(0);
    assert!(processes.iter().all(runs));
    server.0.kill().unwrap();
    server.0.wait().unwrap();
    for client in &mut clients {
        assert_eq!(client.ends(LONG), Some(69));
    }
    assert!(!processes.iter().any(runs), "{processes:?}");
}

#[test]
fn what_cannot_be_run_is_said_at_once() {
    let rounds = Rounds::new("rounds = 2");
    let roster = rounds.0.path("keys/roster.toml");
    let serve = |job: &str| {
        std::fs::write(rounds.0.path("keys/job.toml"), job).unwrap();
        ["serve".to_owned(), "--roster".into(), roster.clone()]
    };
    for (job, why) in [
        ("application = \"lunch\"", "application is \"lunch\""),
        ("application = \"sum\"\nbackend = \"psm\"", "backend"),
        ("application = \"sum\"\nrounds = 0", "rounds: is 0"),
        ("application = \"sum\"\nbound = -1.0", "bound is -1"),
        ("application = \"sum\"\nsample = 2", "sample: is 2"),
        (
            "application = \"sum\"\n[deadlines]\nsetup = 3",
            "contribution",
        ),
    ] {
        let arguments = serve(job);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        assert_fails(&arguments, 65, why);
    }
}

/// Outputs are tried before anybody uploads.
#[test]
fn what_cannot_be_written_is_said_at_once() {
    let rounds = Rounds::new("rounds = 1");
    let roster = rounds.0.path("keys/roster.toml");
    let missing = rounds.0.path("missing/state");
    let file = rounds.0.path("file");
    std::fs::write(&file, "text").unwrap();
    let in_file = format!("{file}/state");
    let serve = |option, path: &str, expected: &str| {
        assert_fails(&["serve", "--roster", &roster, option, path], 73, expected);
    };
    serve("--checkpoint", &missing, "--checkpoint: cannot write");
    serve("--checkpoint", &missing, "its folder does not exist");
    serve("--checkpoint", &rounds.0.path("keys"), "it is a folder");
    serve("--means", &in_file, "--means: ");
    serve("--means", &file, "--means: ");
    serve("--reports", &in_file, "--reports: ");
    // Its entries are what the system says they are: no file can be made there.
    if cfg!(target_os = "linux") {
        serve(
            "--checkpoint",
            "/proc/self/state",
            "--checkpoint: cannot write",
        );
        serve("--means", "/proc/self", "--means: cannot write");
        serve("--reports", "/proc/self", "--reports: cannot write");
    }
}

/// What no repetition cures ends the job at once, with its own reason at all parties.
#[test]
fn a_hopeless_round_is_not_repeated() {
    let rounds = Rounds::new("rounds = 1");
    let state = rounds.0.path("kept/state");
    std::fs::create_dir(rounds.0.path("kept")).unwrap();
    for (weight, expected) in [
        ("0", "no contributor has a weight"),
        ("1", "the checkpoint cannot be written"),
    ] {
        let log = format!("serve-{weight}");
        let mut server = rounds.0.serve(
            &log,
            &["--jobs", "1", "--grace", "1", "--checkpoint", &state],
        );
        let ready = |status: &Value| status["state"] == "waiting";
        rounds.0.until(ready);
        if weight == "1" {
            std::fs::remove_dir(rounds.0.path("kept")).unwrap();
            std::fs::write(rounds.0.path("kept"), "no folder any more").unwrap();
        }
        let mut clients: Vec<Process> = (0..CLIENTS)
            .map(|index| {
                rounds.give(index, 1);
                let server = format!("localhost:{}", rounds.0.port);
                let keys = rounds.0.path(&format!("keys/client-{index}"));
                let data = rounds.0.path(&format!("{index}-update-1.npz"));
                let out = rounds.0.path(&format!("{index}-mean.npz"));
                let arguments = [
                    "join",
                    "--accept",
                    "volatile-record",
                    "--server",
                    &server,
                    "--keys",
                    &keys,
                    "--data",
                    &data,
                    "--out",
                    &out,
                    "--application",
                    "sum",
                    "--weight",
                    weight,
                ];
                rounds.0.spawn(&format!("join-{index}"), &arguments)
            })
            .collect();
        let last = |log: &str| {
            let text = rounds.0.text(&format!("{log}.err"));
            text.lines().last().unwrap_or_default().to_owned()
        };
        let text = || rounds.0.text(&format!("{log}.err"));
        for (index, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.ends(LONG), Some(70), "{}", text());
            let last = last(&format!("join-{index}"));
            assert!(last.contains(expected), "{last}");
        }
        assert_eq!(server.ends(LONG), Some(70));
        assert!(last(&log).contains(expected), "{}", last(&log));
        assert_eq!(text().matches("session starts").count(), 1, "{}", text());
    }
}

/// Every round would read the same file, so the clients agree to only one round. All parties are
/// told why a client declines.
#[test]
fn a_client_that_declines_tells_the_others_why() {
    let rounds = Rounds::new("rounds = 2");
    let _server = rounds.0.serve("serve", &[]);
    let _others: Vec<Process> = (1..CLIENTS).map(|index| rounds.join(index)).collect();
    rounds
        .0
        .until(|status| status["clients"][4]["state"] == "waiting");
    rounds.give(0, 1);
    let (data, out) = (rounds.0.path("0-update-1.npz"), rounds.0.path("out.npz"));
    let mut one = rounds.join_with(0, &["--data", &data, "--out", &out]);
    assert_eq!(one.ends(LONG), Some(77));
    // ROUND-21.
    assert!(
        rounds
            .0
            .text("join-0.err")
            .contains("--accept max_rounds=VALUE")
    );
    rounds
        .0
        .until(|status| status["clients"][0]["state"] == "declined");
    let start = std::time::Instant::now();
    while !rounds
        .0
        .text("join-3.err")
        .contains("client-0 declined the job: the job has 2 rounds")
    {
        assert!(start.elapsed() < LONG, "{}", rounds.0.text("join-3.err"));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(!rounds.has_mean(3, 1));
}

/// A client asks for groups unless its owner says that it need not.
#[test]
fn rounds_without_groups_need_consent() {
    let rounds = Rounds::new("rounds = 2");
    let _server = rounds.0.serve("serve", &[]);
    rounds.0.until(|status| status["state"] == "waiting");
    let files = [
        rounds.0.path("update-{round}.npz"),
        rounds.0.path("mean-{round}.npz"),
    ];
    let mut one = rounds.join_for_groups(0, &["--data", &files[0], "--out", &files[1]]);
    assert_eq!(one.ends(LONG), Some(77));
    let why = rounds.0.text("join-0.err");
    assert!(
        why.contains("the job draws clients freely")
            && why.contains("--accept allow_free_sampling=VALUE"),
        "{why}"
    );
}
