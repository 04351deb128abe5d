//! A job over a network: a server, and clients as processes or in this one.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use undertone::node::client::{Config, JoinError};
use undertone::node::roster::Roster;
use undertone::node::status::JobReport;
use undertone::setup::identity::Identity;

use super::broken;
use super::trial::Trial;
use crate::bench::link::{self, Link};
use crate::interrupt::Process;
use crate::keys::Keys;
use crate::{Failure, connections, ports, program};

/// The interval at which it is checked whether processes have ended.
const POLL: Duration = Duration::from_millis(20);

/// Writes new keys, new records and the job into `folder`: the records of one job would refuse the
/// same data in the next.
pub(super) fn prepare(
    folder: &Path,
    trial: &Trial,
    clients: usize,
    own: &Keys,
) -> Result<(), Failure> {
    let keys = folder.join("keys");
    if keys.exists() {
        std::fs::remove_dir_all(&keys).map_err(broken)?;
    }
    let mut command = program::again().map_err(broken)?;
    command
        .args(["keys", "--quiet", "--out"])
        .arg(&keys)
        .args(["--clients", &clients.to_string()]);
    // An interrupt ends it before the folder is removed: it would make it again.
    let made = Process::start(&mut command).and_then(|process| process.wait());
    if !made.map_err(broken)?.success() {
        return Err(broken("`undertone keys` failed"));
    }
    std::fs::write(keys.join("job.toml"), trial.job(own)).map_err(broken)
}

/// Runs one job of so many clients, the first `processes` of which are a process each: starts the
/// server and the clients, and waits for them.
pub(super) fn run(
    folder: &Path,
    trial: &Trial,
    clients: usize,
    processes: usize,
    link: Option<Link>,
) -> Result<JobReport, Failure> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(broken)?;
    let reports = folder.join("reports");
    let _ = std::fs::remove_dir_all(&reports);
    let server = Process::start(
        program::again()
            .map_err(broken)?
            .args(["serve", "--quiet", "--jobs", "1", "--roster"])
            .arg(folder.join("keys/roster.toml"))
            .args(["--listen", &address.to_string(), "--reports"])
            .arg(&reports)
            .stdout(Stdio::null()),
    )
    .map_err(broken)?;
    // A link has a listener, and a connection at each end.
    let of_links = if link.is_some() { 3 * clients } else { 0 };
    connections::allow(clients - processes + of_links)?;
    let way = |link: Option<Link>| match link {
        None => Ok(address),
        Some(link) => runtime.block_on(link::start(link, address)).map_err(broken),
    };
    let mut own = Vec::new();
    for client in 0..processes {
        let child = Process::start(
            program::again()
                .map_err(broken)?
                // The records go with the folder.
                .args(["join", "--quiet", "--accept", "volatile-record", "--server"])
                .args([&way(link)?.to_string(), "--keys"])
                .arg(folder.join(format!("keys/client-{client}")))
                .arg("--data")
                .arg(folder.join(format!("{client}.npz")))
                .arg("--out")
                .arg(folder.join(trial.out(client)))
                .args(trial.options())
                .stdout(Stdio::null()),
        );
        own.push((format!("client {client}"), child.map_err(broken)?));
    }
    let others = (processes..clients).map(|client| Ok((client, way(link)?)));
    let others = others.collect::<Result<Vec<_>, Failure>>()?;
    let joining = join(folder, trial, &runtime, others)?;
    own.push(("the server".to_owned(), server));
    finish(&runtime, own, joining)?;
    runtime.shutdown_background();
    let report = std::fs::read_dir(&reports)
        .map_err(broken)?
        .flatten()
        .next();
    let report = report.ok_or_else(|| broken("the server wrote no report"))?;
    let text = std::fs::read_to_string(report.path()).map_err(broken)?;
    serde_json::from_str(&text).map_err(broken)
}

/// Lets the server and connections go before this thread, which computes for a client. Otherwise
/// thousands of such threads leave them no time, and connections are lost.
fn give_way() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, 19);
}

/// Clients that take part in this process, each with its number.
type Tasks = JoinSet<(usize, Result<(), JoinError>)>;

/// Takes part in this process, as each client of `clients` at its server's address.
fn join(
    folder: &Path,
    trial: &Trial,
    runtime: &Runtime,
    clients: Vec<(usize, SocketAddr)>,
) -> Result<Tasks, Failure> {
    if clients.is_empty() {
        return Ok(Tasks::new());
    }
    let read = |name: &str| std::fs::read_to_string(folder.join("keys").join(name));
    let roster = read("roster.toml").map_err(broken)?;
    let roster = Roster::parse(&roster).map_err(broken)?;
    let mut tasks = Tasks::new();
    for (client, server) in clients {
        let name = roster.entries()[client].name.clone();
        let key = read(&format!("client-{client}/client.key")).map_err(broken)?;
        let authorities = read(&format!("client-{client}/ca.pem")).map_err(broken)?;
        let config = Config {
            identity: Some(Identity::from_pem(&key).map_err(broken)?),
            observer: Some(Arc::new(|_| give_way())),
            ..Config::new(server.to_string(), authorities, name)
        }
        .with_roster(roster.clone());
        let joining = trial.join(client, config);
        let joining = async move { (client, joining.await) };
        tasks.spawn_on(joining, runtime.handle());
    }
    Ok(tasks)
}

/// Waits for the end of all clients and of the server. The first that fails ends the others.
fn finish(
    runtime: &Runtime,
    mut processes: Vec<(String, Process)>,
    mut joining: Tasks,
) -> Result<(), Failure> {
    // Without clients here a timer waits.
    let next = |joining: &mut Tasks| {
        runtime.block_on(async {
            tokio::select! {
                Some(ended) = joining.join_next() => Some(ended),
                () = tokio::time::sleep(POLL) => None,
            }
        })
    };
    while !processes.is_empty() || !joining.is_empty() {
        if let Some(ended) = next(&mut joining) {
            let (client, joined) = ended.map_err(broken)?;
            joined.map_err(|error| broken(format!("client {client}: {error}")))?;
        }
        let mut left = Vec::new();
        for (name, process) in processes {
            match process.ended().map_err(broken)? {
                None => left.push((name, process)),
                Some(status) if status.success() => {}
                Some(status) => return Err(broken(format!("{name} ended with {status}"))),
            }
        }
        processes = left;
    }
    Ok(())
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::process::Command;

    fn start(program: &str, argument: &str) -> (String, Process) {
        let process = Process::start(Command::new(program).arg(argument)).unwrap();
        (program.to_owned(), process)
    }

    #[test]
    fn the_first_that_fails_ends_the_others() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let waits = || {
            let mut tasks = Tasks::new();
            tasks.spawn_on(std::future::pending(), runtime.handle());
            tasks
        };
        let processes = vec![start("sleep", "600"), start("test", "")];
        let error = finish(&runtime, processes, waits()).unwrap_err();
        assert!(error.message.contains("test ended with"), "{error:?}");
        let mut failing = waits();
        let failed = async { (7, Err(JoinError::Stopped)) };
        failing.spawn_on(failed, runtime.handle());
        let error = finish(&runtime, vec![start("sleep", "600")], failing).unwrap_err();
        assert!(error.message.contains("client 7"), "{error:?}");
        finish(&runtime, vec![start("test", "-n")], Tasks::new()).unwrap();
    }
}
