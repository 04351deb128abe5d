//! The halves of the application under every driver.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use undertone::job::record::Volatile;
use undertone::job::{Agreed, Application, Known, Record, SessionContext, offer, settle};
use undertone::kdf::{Seed, simulated};
use undertone::node::keys::{Trial, trial};
use undertone::node::server::{self, Server as Network};
use undertone::node::{Certificate, Served, client, jobs};
use undertone::party::courier::{self, Entry};
use undertone::party::{Courier, Limits, PartyId, SessionId};
use undertone::replay::{Journal, Replay, ReplayError};
use undertone::setup::identity::Identity;
use undertone_referendum::{Client, Job, Server, Simulation, Tally, Terms};

const ANSWERS: [bool; 5] = [true, false, true, true, false];
const DUE: Tally = Tally { yes: 3, answers: 5 };

fn job(more: &str, signed: bool) -> Job {
    let text = format!("application = \"referendum\"\nquestion = \"More trees?\"\n{more}");
    jobs::parse(&text, Known::new(signed)).unwrap()
}

fn clients() -> Vec<Client> {
    let client = |answer| Client::new(Terms::default(), answer);
    ANSWERS.map(client).into()
}

#[test]
fn in_memory() {
    for signed in [false, true] {
        let server = Server::new(job("", signed));
        let mut all = Simulation::new(server, clients(), Seed::from_bytes([1; 32])).unwrap();
        let ran = all.run(undertone::party::Network::new()).unwrap();
        assert_eq!(ran.report, DUE);
        assert!(ran.clients.into_iter().all(|tally| tally == Ok(DUE)));
    }
}

fn config(trial: &Trial, index: usize, address: std::net::SocketAddr) -> client::Config {
    let own = &trial.clients[index];
    let (server, authority) = (address.to_string(), trial.authority.clone());
    client::Config {
        identity: Some(Identity::from_pem(&own.key).unwrap()),
        server_name: Some("localhost".into()),
        ..client::Config::new(server, authority, own.name.clone())
    }
    .with_roster(trial.roster.clone())
}

/// A client with a key agrees to a sum that withstands the server, and declines long questions.
#[tokio::test(flavor = "multi_thread")]
async fn on_a_network() {
    let names: Vec<String> = (0..ANSWERS.len())
        .map(|who| format!("voter-{who}"))
        .collect();
    let trial = trial(&["localhost".into()], &names).unwrap();
    let certificate = Certificate::from_pem(&trial.certificate, &trial.key).unwrap();
    let config_of_server = server::Config {
        jobs: Some(1),
        ..server::Config::new(trial.roster.clone(), certificate)
    };
    let served = Served::new(Server::new(job("", trial.roster.is_signed())));
    let server = Network::bind(([127, 0, 0, 1], 0).into(), config_of_server, served);
    let server = server.await.unwrap();
    let address = server.address();
    let (tell, told) = std::sync::mpsc::channel();
    let server = tokio::spawn(server.run(std::future::pending(), move |report| {
        tell.send(report.results.clone()).unwrap();
    }));
    let strict = Terms {
        max_length: 5,
        ..Terms::default()
    };
    let mut strict = Agreed::new(Client::new(strict, true), Record::simulated());
    let never = std::future::pending();
    let declined = client::join(&config(&trial, 0, address), &mut strict, never).await;
    let declined = declined.unwrap_err().to_string();
    assert!(declined.contains("max_length"), "{declined}");
    let join = |(index, client): (usize, Client)| {
        let config = config(&trial, index, address);
        tokio::spawn(async move {
            let mut client = Agreed::new(client, Record::simulated());
            let joined = client::join(&config, &mut client, std::future::pending()).await;
            joined.map(|_| client.into_output())
        })
    };
    let tasks: Vec<_> = clients().into_iter().enumerate().map(join).collect();
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap(), Some(DUE));
    }
    server.await.unwrap().unwrap();
    assert_eq!(told.recv().unwrap()["yes"], 3);
}

/// Each client lives from one message to the next, and is run again from its seed. Its record, on a
/// disk, refuses another session on the same question, also in another job.
#[test]
fn message_by_message() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(by_messages(folder.path(), 1, "").unwrap(), DUE);
    let refused = by_messages(folder.path(), 2, "min_clients = 4").unwrap_err();
    assert!(refused.contains("record does not allow it"), "{refused}");
}

fn by_messages(folder: &Path, number: u8, more: &str) -> Result<Tally, String> {
    let session = SessionId([number; 32]);
    let ids: Vec<PartyId> = (0..ANSWERS.len()).map(PartyId::client).collect();
    let at = |me: PartyId| {
        let seed = simulated::party(&Seed::from_bytes([number; 32]), session, me);
        SessionContext::new(session, me, seed)
    };
    let offered = offer(&job(more, false));
    let party = |index: usize| {
        let me = PartyId::client(index);
        let record = Record::open(folder, &format!("voter-{index}"), Volatile::Accepted);
        let client = Client::new(Terms::default(), ANSWERS[index]);
        let mut client = Agreed::new(client, record.unwrap());
        client.agree(&offered, false).unwrap();
        Courier::new(
            me,
            session,
            Limits::default(),
            client.client(at(me)).unwrap(),
        )
    };
    if number == 1 {
        for index in 0..ANSWERS.len() {
            let name = format!("voter-{index}");
            Record::create(folder, &name, Volatile::Accepted).unwrap();
        }
    }
    let server = Server::new(job(more, false)).server(at(PartyId::SERVER), ids.clone());
    let server = server.unwrap();
    let mut server = Courier::new(PartyId::SERVER, session, Limits::default(), server);
    let mut past: Vec<Vec<Vec<u8>>> = vec![Vec::new(); ids.len()];
    let mut due: BTreeMap<usize, Vec<u8>> = (0..ids.len()).map(|who| (who, Vec::new())).collect();
    while !due.is_empty() {
        for (index, message) in std::mem::take(&mut due) {
            let me = ids[index];
            let journal = Journal::new(&folder.join("journals"), session, me);
            let mut replay = Replay::new(party(index), journal, &past[index], || ())
                .map_err(|error| error.to_string())?;
            let (reply, _) = replay
                .step(&message, || Ok::<_, ReplayError>(()))
                .map_err(|error| error.to_string())?;
            past[index].push(message);
            for entry in courier::entries(&reply).unwrap() {
                if let Entry::Frame(_, frame) = entry {
                    server.push(me, frame.to_vec()).unwrap();
                }
            }
        }
        let send = |to: PartyId, frame: Vec<u8>| {
            let bundle = due.entry(to.index().unwrap()).or_default();
            courier::append(bundle, Entry::Frame(PartyId::SERVER, &frame));
        };
        server.poll(usize::MAX, send).unwrap();
    }
    Ok(server.output().unwrap())
}

#[test]
fn what_people_write_is_settled_and_checked() {
    let wrong = |text: &str| {
        let stated = settle::parse(text).unwrap();
        settle::settle::<Job>(stated, Known::new(false)).unwrap_err()
    };
    assert_eq!(wrong("").key, "question");
    assert_eq!(wrong("question = \" \"").key, "question");
    assert_eq!(
        wrong("question = \"?\"\nmin_clients = 1").key,
        "min_clients"
    );
    assert_eq!(wrong("question = \"?\"\nmin_client = 3").key, "min_client");
    let pair = |answers: usize| job(&format!("min_clients = {answers}"), false);
    let two = Simulation::new(Server::new(pair(2)), clients(), Seed::from_bytes([1; 32]));
    assert!(two.unwrap_err().to_string().contains("asks for 3"));
}

/// An application needs few words outside its own folder: here those of its package.
#[test]
fn few_files_name_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let named = Command::new("git")
        .args([
            "grep",
            "-li",
            "referendum",
            "--",
            ".",
            ":!examples/referendum",
        ])
        .current_dir(root)
        .output()
        .unwrap();
    let named = String::from_utf8(named.stdout).unwrap();
    let count = named.lines().count();
    assert!((1..=4).contains(&count), "{named}");
}
