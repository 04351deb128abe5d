//! Graph networks over clients on loopback, with clients that leave and come back.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use undertone::fedgraph::{
    Checkpoint, Client, Cut, Job, MAX_CHECKPOINT, Matrix, Outcome, Server, Terms, Train, simulation,
};
use undertone::job::{self, Agreed, Application as _, Record, StateError, offer};
use undertone::kdf::Seed;
use undertone::node::Served;
use undertone::node::client::{JoinError, join};
use undertone::node::status::JobReport;
use undertone::party::Network;
use undertone_tests::fedgraph::{inputs, job};
use undertone_tests::network::{LONG, World};

const CLIENTS: usize = 4;
const STEPS: u32 = 40;

fn seed(byte: u8) -> Seed {
    Seed::from_bytes([byte; 32])
}

fn the_job(cut: Cut) -> Job {
    Job {
        steps: STEPS,
        ..job(CLIENTS, cut)
    }
}

fn terms() -> Terms {
    Terms {
        min_cluster: 6,
        min_network: CLIENTS,
        show_embeddings: true,
        cuts: vec![Cut::Client, Cut::Server],
        ..Terms::default()
    }
}

/// What a client has at the end.
struct Ended {
    result: Result<Outcome, JoinError>,
    votes: Option<Matrix>,
}

/// The files of a run: of the server, then of the clients.
#[derive(Clone)]
struct Files(Vec<Option<PathBuf>>);

impl Files {
    fn new(folder: &Path) -> Self {
        let name = |party: usize| Some(folder.join(format!("party-{party}")));
        Self((0..=CLIENTS).map(name).collect())
    }

    fn none() -> Self {
        Self(vec![None; CLIENTS + 1])
    }

    /// Waits until a client has begun. Then all parties have a checkpoint.
    async fn begun(self, job: Job) {
        while !self.client(0, &job).iter().any(Checkpoint::is_begun) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn client(&self, client: usize, job: &Job) -> Vec<Checkpoint> {
        let path = self.0[client + 1].as_ref().unwrap();
        let most = 33 + 2 * (4 + MAX_CHECKPOINT);
        let opened = job::Checkpoint::open(path, "fedgraph client", &offer(job), most);
        // The client's seed, and its checkpoints.
        let kept = opened.unwrap().1.unwrap_or_default();
        kept.get(32..)
            .map(|kept| Checkpoint::read_all(kept).unwrap())
            .unwrap_or_default()
    }
}

/// What a client brings, made late.
fn train(client: usize) -> Train {
    Box::new(move |_| Ok(Arc::new(inputs(client, CLIENTS, 2.0))))
}

/// A job of all clients. `leaver` leaves when the training has begun.
async fn run(job: &Job, files: &Files, leaver: Option<usize>) -> (JobReport, Vec<Ended>) {
    let mut server = Server::new(job.clone());
    if let Some(path) = &files.0[0] {
        server.restore(path).unwrap();
    }
    let world = World::start(CLIENTS, Served::new(server), |_| {});
    let world = world.await.unwrap();
    let spawn = |client: usize| {
        let config = world.client(client).unwrap();
        let make = move |_: &Job| Ok(train(client));
        let mut member = Client::new(terms(), seed(client as u8), make);
        if let Some(path) = &files.0[client + 1] {
            member = member.with_checkpoint(path);
        }
        let mut member = Agreed::new(member, Record::simulated());
        let (leaves, files, job) = (leaver == Some(client), files.clone(), job.clone());
        let stop = async move {
            if leaves {
                files.begun(job).await;
            } else {
                std::future::pending().await
            }
        };
        tokio::spawn(async move {
            let joined = join(&config, &mut member, stop).await;
            let votes = member.part().votes();
            let result = joined.map(|_| member.into_output().unwrap());
            Ended { result, votes }
        })
    };
    let tasks: Vec<_> = (0..CLIENTS).map(spawn).collect();
    let mut ended = Vec::new();
    for task in tasks {
        let task = tokio::time::timeout(LONG, task).await;
        ended.push(task.unwrap().unwrap());
    }
    (world.ended().await.unwrap().remove(0), ended)
}

fn in_one_process(job: &Job) -> Matrix {
    let clients = (0..CLIENTS).map(|client| Arc::new(inputs(client, CLIENTS, 2.0)));
    let mut simulation = simulation(job.clone(), clients, seed(1)).unwrap();
    let run = simulation.run(Network::new()).unwrap();
    run.clients[0].as_ref().unwrap().votes.clone().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn parties_on_a_network_vote_as_in_one_process() {
    for cut in [Cut::Client, Cut::Server] {
        let job = the_job(cut);
        let due = in_one_process(&job);
        let (report, clients) = run(&job, &Files::none(), None).await;
        assert_eq!(report.result, "done");
        for (fact, value) in [("clients", 4), ("in_network", 4), ("steps", STEPS)] {
            assert_eq!(report.results[fact], value, "{fact}");
        }
        assert!(report.results["clusters"].as_u64().unwrap() > 10);
        assert_eq!(report.results.contains_key("loss"), cut == Cut::Server);
        for client in clients {
            assert_eq!(client.votes.as_ref(), Some(&due));
            let outcome = client.result.unwrap();
            assert_eq!(outcome.loss.is_some(), cut == Cut::Client);
            assert_eq!(outcome.votes, Some(due.clone()));
        }
    }
}

/// Runs the job until a client leaves it in training. All parties have checkpoints.
async fn broken_off(job: &Job, files: &Files) {
    let (report, clients) = run(job, files, Some(2)).await;
    assert!(report.result.contains("client 2"), "{}", report.result);
    assert!(report.results["steps"].as_u64() < Some(STEPS.into()));
    let due = in_one_process(job);
    for (index, client) in clients.iter().enumerate() {
        assert_eq!(client.votes.as_ref(), Some(&due), "client {index}");
        let why = client.result.as_ref().unwrap_err().to_string();
        let says = if index == 2 { "stopped" } else { "client 2" };
        assert!(why.contains(says), "client {index}: {why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_continues_with_the_checkpoints_of_all_parties() {
    let folder = tempfile::tempdir().unwrap();
    let (job, files) = (the_job(Cut::Client), Files::new(folder.path()));
    broken_off(&job, &files).await;
    let before = files.client(0, &job);
    let (report, clients) = run(&job, &files, None).await;
    assert_eq!(report.result, "done");
    assert_eq!(report.results["steps"], STEPS);
    let loss: Vec<_> = clients
        .iter()
        .map(|client| client.result.as_ref().unwrap().loss)
        .collect();
    assert!(loss.iter().all(|own| *own == loss[0] && own.is_some()));
    let after = files.client(0, &job);
    assert_eq!(after[0].step(), STEPS);
    // The same secret, so the same clusters.
    assert_eq!(after[0].seed().expose(), before[0].seed().expose());
    // Once more: nothing is left to train, and the votes are the same.
    let (report, clients) = run(&job, &files, None).await;
    assert_eq!(report.result, "done");
    assert_eq!(clients[1].votes, Some(in_one_process(&job)));
}

/// FEDGRAPH-13.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_does_not_continue_without_the_checkpoint_of_a_client() {
    let folder = tempfile::tempdir().unwrap();
    let (job, files) = (the_job(Cut::Client), Files::new(folder.path()));
    broken_off(&job, &files).await;
    for without in [0, 3] {
        let kept = files.0[without].as_ref().unwrap();
        let away = folder.path().join("away");
        std::fs::rename(kept, &away).unwrap();
        let (report, clients) = run(&job, &files, None).await;
        assert!(
            report.result.contains("the run began before"),
            "{}",
            report.result
        );
        for client in clients {
            assert_eq!(client.votes, None);
            let why = client.result.unwrap_err().to_string();
            assert!(why.contains("the run began before"), "{why}");
        }
        // A client that has no file writes its seed before it trains.
        assert_eq!(kept.exists(), without > 0);
        std::fs::rename(&away, kept).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_of_another_job_and_of_another_party_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (job, files) = (the_job(Cut::Client), Files::new(folder.path()));
    broken_off(&job, &files).await;
    let mut other = job.clone();
    other.steps += 1;
    let open = |job: &Job, party: usize| -> Result<(), StateError> {
        let path = files.0[party].as_ref().unwrap();
        Server::new(job.clone()).restore(path)
    };
    assert!(open(&job, 0).is_ok());
    for (job, party) in [(&other, 0), (&job, 1)] {
        let why = open(job, party).unwrap_err().to_string();
        assert!(why.contains("another job"), "{why}");
    }
    let agrees = |job: &Job| {
        let path = files.0[1].as_ref().unwrap();
        let member = Client::new(terms(), seed(1), |_: &Job| Ok(train(0)));
        let member = member.with_checkpoint(path);
        Agreed::new(member, Record::simulated()).agree(&offer(job), true)
    };
    assert_eq!(agrees(&job), Ok(()));
    let declined = agrees(&other).unwrap_err();
    assert!(declined.to_string().contains("another job"), "{declined}");
}

#[test]
fn a_client_that_does_not_fit_the_job_declines_it() {
    let make = |_: &Job| -> Result<Train, String> { Err("row 7 is 3.25".into()) };
    let member = Client::new(terms(), seed(1), make);
    let mut member = Agreed::new(member, Record::simulated());
    let agreed = member.agree(&offer(&the_job(Cut::Client)), true);
    let declined = agreed.unwrap_err();
    assert_eq!(declined.to_string(), "row 7 is 3.25");
    assert!(!declined.told().contains('7'), "{}", declined.told());
}

/// A client that cannot make its embeddings, or keep its votes, ends the job for all.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_cannot_train_or_keep_its_votes_leaves() {
    for keeps in [false, true] {
        let server = Served::new(Server::new(the_job(Cut::Client)));
        let world = World::start(CLIENTS, server, |_| {}).await.unwrap();
        let spawn = |client: usize| {
            let config = world.client(client).unwrap();
            let make = move |_: &Job| {
                if client == 2 && !keeps {
                    let train: Train = Box::new(|_| Err("no network today".into()));
                    return Ok(train);
                }
                Ok(train(client))
            };
            let member = Client::new(terms(), seed(client as u8), make);
            let member = member.on_votes(move |_| {
                if client == 2 {
                    return Err("no room for votes".into());
                }
                Ok(())
            });
            let mut member = Agreed::new(member, Record::simulated());
            tokio::spawn(async move {
                let joined = join(&config, &mut member, std::future::pending()).await;
                joined.map(|_| ()).unwrap_err().to_string()
            })
        };
        let tasks: Vec<_> = (0..CLIENTS).map(spawn).collect();
        let due = if keeps {
            "no room for votes"
        } else {
            "no network today"
        };
        for (client, task) in tasks.into_iter().enumerate() {
            let why = tokio::time::timeout(LONG, task).await;
            let why = why.unwrap().unwrap();
            let says = match client {
                2 => due,
                _ if keeps => "client 2",
                _ => "3 left, 4 needed",
            };
            assert!(why.contains(says), "{client}: {why}");
        }
        assert_ne!(world.ended().await.unwrap()[0].result, "done");
    }
}
