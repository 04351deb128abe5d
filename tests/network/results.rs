//! Runs over the network give the same results as runs in one process.

use std::sync::Arc;

use undertone::hamming::Backend;
use undertone::job::terms::Insist;
use undertone::job::{Agreed, Record};
use undertone::kdf::Seed;
use undertone::kernel::Prg;
use undertone::label::{
    Client, Features, Job, Labelling, Outcome, PeerRows, PropagationTerms, Rows, Server, Terms,
    phases, run,
};
use undertone::node::client::{self, JoinError, Joined};
use undertone::node::status::JobReport;
use undertone::node::{Randomness, Served};
use undertone::sum::Trust;
use undertone_tests::network::{LONG, Labels, Task, World, labelled};
use undertone_tests::{dataset, random_clients};

fn terms() -> Terms {
    Terms {
        max_cells_epsilon: 4.0,
        propagation: PropagationTerms::anything(),
        ..Terms::default()
    }
}

fn spawn(
    config: client::Config,
    (rows, labelling): (Rows, Labelling),
    terms: Terms,
) -> Task<Outcome> {
    tokio::spawn(labelled(config, Client::new(terms, rows, labelling)))
}

/// Runs these clients over the network and in one process, and compares outcomes and costs. Returns
/// the server's report.
async fn compare(job: Job, clients: Vec<(Rows, Labelling)>) -> JobReport {
    let seed = [7; 32];
    let trust = job.params.trust;
    let (own_job, own_clients) = (job.clone(), clients.clone());
    let fixed = || Randomness::Fixed(Arc::new(Seed::from_bytes(seed)));
    let world = World::start(clients.len(), Served::new(Server::new(job)), |config| {
        config.randomness = fixed();
    })
    .await
    .unwrap();
    let mut tasks = Vec::new();
    for (index, data) in clients.into_iter().enumerate() {
        let mut config = world.client(index).unwrap();
        config.randomness = fixed();
        if trust == Trust::SemiHonest {
            // As in one process, where semi-honest clients sign nothing.
            config.roster = None;
        }
        tasks.push(spawn(config, data, terms()));
    }
    let one_process = move || {
        let seed = Seed::from_bytes(seed);
        run(own_job, own_clients, None, seed, |_| {}).unwrap()
    };
    let expected = tokio::task::spawn_blocking(one_process).await.unwrap();
    let mut of_clients = undertone::party::Ledger::default();
    for (index, task) in tasks.into_iter().enumerate() {
        let joined = tokio::time::timeout(LONG, task).await;
        let (outcome, joined): (Outcome, Joined) = joined.unwrap().unwrap().unwrap();
        assert_eq!(outcome, expected.clients[index]);
        assert_eq!((joined.sessions, joined.returned), (1, 0));
        of_clients.add(&joined.ledger);
        // A client sends and receives the same bytes as in one process.
        let due = &expected.ledgers[index + 1].1;
        for ((phase, cost), (_, due)) in joined.ledger.phases().zip(due.phases()) {
            let own = (cost.bytes_sent, cost.messages, cost.bytes_received);
            let due = (due.bytes_sent, due.messages, due.bytes_received);
            assert_eq!(own, due, "{phase}");
        }
    }
    let reports = world.ended().await.unwrap();
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0].result, "done");
    let contributors = expected.report.contributors.len();
    assert_eq!(reports[0].results["contributors"], contributors);
    let sent: u64 = of_clients.phases().map(|(_, cost)| cost.bytes_sent).sum();
    let report = reports[0].clone();
    let came = report.bytes_received + report.relayed_bytes - report.spared_bytes;
    assert_eq!(came, sent);
    report
}

/// NET-35: clients whose columns are not those of most others are refused before anything is sent.
/// Where as many have others, those of the first client count. Data without names fit to any.
#[tokio::test(flavor = "multi_thread")]
async fn clients_with_other_columns_are_refused() {
    for (names, refused) in [
        (["ab", "ab", "ab", "ba", "ab"], vec![3]),
        (["ab", "ba", "ba", "", "ba"], vec![0]),
        (["ab", "ba", "", "ba", "ab"], vec![1, 3]),
        (["ab", "abc", "ab", "ab", ""], vec![1]),
        (["", "", "ab", "", ""], vec![]),
    ] {
        let clients = random_clients(&[9, 12, 8, 7, 6], 40, 1).unwrap();
        let job = Served::new(Server::new(Labels::job(Backend::Psm, 40, 3)));
        let world = World::start(5, job, |config| {
            config.wait = Some(std::time::Duration::from_secs(1));
        });
        let world = world.await.unwrap();
        let mut tasks = Vec::new();
        for (index, data) in clients.into_iter().enumerate() {
            let columns: Vec<String> = names[index].chars().map(String::from).collect();
            let config = world.client(index).unwrap().with_columns(&columns);
            let terms = Terms {
                malicious_server: Insist::Never,
                ..terms()
            };
            tasks.push(spawn(config, data, terms));
        }
        for (index, task) in tasks.into_iter().enumerate() {
            let ended = tokio::time::timeout(LONG, task).await.unwrap().unwrap();
            match ended {
                Ok(_) => assert!(!refused.contains(&index), "{names:?}"),
                Err(JoinError::Refused(why)) => {
                    assert!(refused.contains(&index), "{names:?}: {why}");
                    let most =
                        (0..5).filter(|who| !names[*who].is_empty() && !refused.contains(who));
                    let most: Vec<String> = most.map(|who| format!("client-{who}")).collect();
                    let expected = format!("are not those of {};", most.join(", "));
                    assert!(why.contains(&expected), "{why}");
                }
                Err(other) => panic!("{names:?}: {other}"),
            }
        }
        let reports = world.ended().await.unwrap();
        assert_eq!(reports[0].results["contributors"], 5 - refused.len());
    }
}

/// In the setup a client learns the other clients' numbers of rows. If one has more rows than it
/// allows, it sends nothing more.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_refuses_others_with_too_many_rows() {
    for (limit, refuses) in [
        (PeerRows::Rows(11), true),
        (PeerRows::Rows(12), false),
        (PeerRows::default(), false),
    ] {
        let clients = random_clients(&[9, 12, 8, 7], 40, 1).unwrap();
        let mut job = Labels::job(Backend::Phe, 40, 3);
        job.params.trust = Trust::MaliciousServer;
        let world = World::start(clients.len(), Served::new(Server::new(job)), |_| {})
            .await
            .unwrap();
        let mut tasks = Vec::new();
        for (index, data) in clients.into_iter().enumerate() {
            let mut terms = terms();
            if index == 3 {
                terms.propagation.max_peer_rows = limit;
            }
            tasks.push(spawn(world.client(index).unwrap(), data, terms));
        }
        let mut joined = Vec::new();
        for task in tasks {
            let ended = tokio::time::timeout(LONG, task).await;
            joined.push(ended.unwrap().unwrap());
        }
        let last = joined.pop().unwrap();
        assert!(joined.iter().all(Result::is_ok), "{joined:?}");
        if refuses {
            let Err(JoinError::Aborted(aborted)) = last else {
                panic!("{last:?}");
            };
            assert_eq!(aborted.phase, phases::SETUP);
            assert!(aborted.to_string().contains("brings 12 rows"), "{aborted}");
        } else {
            last.unwrap();
        }
        let report = &world.ended().await.unwrap()[0];
        assert_eq!(report.results["contributors"], if refuses { 3 } else { 4 });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_backend() {
    for backend in Backend::ALL {
        let clients = random_clients(&[12, 7, 9], 200, 3).unwrap();
        compare(Labels::job(backend, 200, 3), clients).await;
    }
}

/// A client uploads its keys once for all evaluators, and its headers once for all key owners.
#[tokio::test(flavor = "multi_thread")]
async fn what_goes_to_many_clients_is_uploaded_once() {
    let rows = [70, 40, 65, 50, 60];
    let clients = random_clients(&rows, 1000, 3).unwrap();
    let report = compare(Labels::job(Backend::Lwe, 1000, 3), clients).await;
    let (key, header, seal) = (1280 * 37 / 8, 1792 * 24 / 8, 16);
    // In the order of their rows, each is key owner to those before and evaluates for those after.
    let [keys, headers] = [60 + 2 * 50 + 3 * 40, 3 * 70 + 2 * 65 + 60];
    let seals = 1 + 2 + 3 + 2 * 3 + 2 * 2 + 1;
    let spared = keys * key + headers * header + seals * seal;
    assert_eq!(report.spared_bytes, spared);
    // Sockets carry little besides.
    let whole = report.bytes_received + report.relayed_bytes;
    assert!(report.socket_received < whole - spared * 9 / 10);
    assert!(report.socket_sent > report.bytes_sent + report.relayed_bytes);
    let peak = report.peak_memory_bytes;
    assert_eq!(peak.is_some(), cfg!(target_os = "linux"));
    assert!(peak.is_none_or(|bytes| bytes > 1 << 20), "{peak:?}");
}

/// The rows of digits. Rows are compared within cells.
#[tokio::test(flavor = "multi_thread")]
async fn with_cells() {
    let digits = dataset("digits").unwrap();
    let Rows::Features(features) = &digits.rows else {
        panic!("features");
    };
    let clients = (0..3).map(|client| {
        let rows: Vec<usize> = (client..features.rows()).step_by(3).collect();
        let label = |row: &usize| digits.labels[*row].filter(|_| row.is_multiple_of(5));
        let labels = rows.iter().map(label).collect();
        (
            Rows::Features(features.select(&rows)),
            Labelling::new(10, labels).unwrap(),
        )
    });
    let clients: Vec<_> = clients.collect();
    for backend in [Backend::Psm, Backend::Lwe] {
        let job = Job {
            cells: 6,
            probes: 2,
            classes: Some(10),
            ..Labels::job(backend, 200, 3)
        };
        compare(job, clients.clone()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_signatures() {
    let mut job = Labels::job(Backend::Psm, 200, 3);
    job.params.trust = Trust::MaliciousServer;
    compare(job, random_clients(&[12, 7, 9, 4], 200, 3).unwrap()).await;
}

/// Sixty-four clients with two or three rows each.
#[tokio::test(flavor = "multi_thread")]
async fn with_many_clients() {
    const CLIENTS: usize = 64;
    let wine = dataset("wine").unwrap();
    let Rows::Features(features) = &wine.rows else {
        panic!("features");
    };
    let clients = (0..CLIENTS).map(|client| {
        let rows: Vec<usize> = (client..features.rows()).step_by(CLIENTS).collect();
        let label = |(place, row): (usize, &usize)| wine.labels[*row].filter(|_| place == 0);
        let labels = rows.iter().enumerate().map(label).collect();
        (
            Rows::Features(features.select(&rows)),
            Labelling::new(3, labels).unwrap(),
        )
    });
    compare(Labels::job(Backend::Psm, 1024, 10), clients.collect()).await;
}

const CLASSES: [&str; 2] = ["benign", "malignant"];

/// Four clients with 40 rows of two classes. Three small columns tell the class, a large one says
/// nothing. Every fifth row is labelled. The true class of every row comes along.
fn unequal_columns() -> Vec<(Features, Vec<u16>)> {
    let mut prg = Prg::new(&[8; 32]);
    let mut uniform = || (prg.next_u64() >> 11) as f64 * 2f64.powi(-52) - 1.0;
    let mut client = || {
        let (mut values, mut classes) = (Vec::new(), Vec::new());
        for row in 0..40u16 {
            let class = row % 2;
            for _ in 0..3 {
                values.push(0.01 * (2.0 * f64::from(class) - 1.0 + 0.8 * uniform()) + 0.5);
            }
            values.push(1e6 * uniform());
            classes.push(class);
        }
        (Features::new(4, values).unwrap(), classes)
    };
    (0..4).map(|_| client()).collect()
}

/// Runs a job on these clients. Returns how many rows without a label got the right one.
async fn right(standardise: bool) -> usize {
    let mut job = Labels::job(Backend::Psm, 512, 5);
    job.params.trust = Trust::MaliciousServer;
    job.standardise = standardise;
    job.classes = Some(2);
    job.class_names = CLASSES.map(str::to_owned).to_vec();
    let tables = unequal_columns();
    let world = World::start(tables.len(), Served::new(Server::new(job)), |_| {})
        .await
        .unwrap();
    let mut tasks = Vec::new();
    for (index, (features, classes)) in tables.into_iter().enumerate() {
        // Client 1 has the names in another order. Client 2 has numbers.
        let given = |(row, class): (usize, &u16)| {
            let own = if index == 1 { 1 - class } else { *class };
            (row % 5 == 0).then_some(own)
        };
        let given = classes.iter().enumerate().map(given).collect();
        let mut labelling = Labelling::new(2, given).unwrap();
        if index != 2 {
            let mut names = CLASSES.map(str::to_owned).to_vec();
            if index == 1 {
                names.reverse();
            }
            labelling = labelling.with_names(names).unwrap();
        }
        let config = world.client(index).unwrap();
        tasks.push(tokio::spawn(async move {
            let client = Client::new(terms(), Rows::Features(features), labelling);
            let mut owner = Agreed::new(client, Record::simulated());
            let joined = client::join(&config, &mut owner, std::future::pending()).await;
            let joined = joined.unwrap();
            assert_eq!(joined.sessions, 1 + u32::from(standardise));
            assert_eq!(owner.part().labelling().names(), CLASSES);
            let outcome = owner.into_output().unwrap().outcome().unwrap();
            let found = outcome.labels.classes().iter().zip(&classes).enumerate();
            found
                .filter(|(row, (found, class))| row % 5 != 0 && **found == Some(**class))
                .count()
        }));
    }
    let mut right = 0;
    for task in tasks {
        let ended = tokio::time::timeout(LONG, task).await;
        right += ended.unwrap().unwrap();
    }
    let report = &world.ended().await.unwrap()[0];
    assert_eq!(report.results["contributors"], 4);
    right
}

/// A job that standardises features labels rows in columns of very different size. Without it the
/// largest column drowns the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_standardises_features() {
    let (with, without) = (right(true).await, right(false).await);
    assert!(with >= 122, "{with} of 128");
    assert!(without <= 100, "{without} of 128");
}
