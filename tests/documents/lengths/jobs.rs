//! The messages of training, co-training, graphs between pairs and graph networks.

use undertone::cotrain::{self, Consensus, Noise, Votes};
use undertone::fedgraph::{self, Cut, FEATURES, Predict};
use undertone::job::{Application as _, Record};
use undertone::kdf::Seed;
use undertone::label::Variant;
use undertone::party::{Ledger, PartyId};
use undertone::plan::lengths::{
    self, Compared, Cotraining, GraphShape, Take, Training, graph_rounds,
};
use undertone::plan::{Totals, sessions};
use undertone::pssl::clear::Direction;
use undertone::pssl::{self, EDGES, Reveal};
use undertone::sum::{Sampling, Trust};
use undertone::train::{Client, PseudoLabels, Report, Step};
use undertone_tests::cotrain::{World, votes};
use undertone_tests::fedgraph as fedgraph_runs;
use undertone_tests::lengths::{measured, predicted};
use undertone_tests::pssl as pssl_runs;
use undertone_tests::train::{self, Member, Steady, data};

use super::{hold_all_rounds, hold_ledgers, same};

/// Compares all sessions of a training job with their predictions. `rows` are those of each client,
/// and its labelled rows.
fn hold_training(job: undertone::train::Job, clients: Vec<Client>, rows: &[(usize, usize)]) {
    let first = vec![0.01; job.parameters];
    let seed = Seed::from_bytes([4; 32]);
    let server = undertone::train::Server::new(job.clone(), first);
    let mut simulation = undertone::train::Simulation::new(server, clients, seed).unwrap();
    for session in 0..job.last() + 2 {
        let members = simulation.members();
        let (run, sent) = measured(|network| simulation.run_with(network, &members).unwrap());
        assert!(run.clients.iter().all(Result::is_ok));
        let kind = match (&run.report, session) {
            (Report::Counted(census), 0) => Training::Census(census.groups.len()),
            (Report::Trained(round), _) => Training::Round(round.taken.number),
            (Report::Over, _) => Training::Over,
            other => panic!("{other:?}"),
        };
        let own: Vec<_> = members
            .iter()
            .map(|who| rows[who.index().unwrap()])
            .collect();
        let due = predicted(|take| lengths::training(&job, kind, &members, &own, take));
        assert_eq!(sent, due, "{kind:?} of {job:?}");
        let totals = Totals::of(|take| lengths::training(&job, kind, &members, &own, take));
        hold_ledgers(&totals, &run.ledgers);
        let name = match kind {
            Training::Census(_) => "census",
            Training::Round(number) if number <= job.label_rounds => "round on labels",
            Training::Round(_) => "round with pseudo-labels",
            Training::Over => "end",
        };
        let sessions = sessions::train(&job, rows);
        let session = sessions
            .iter()
            .find(|session| session.name == name)
            .unwrap();
        hold_all_rounds(session.rounds, &run.ledgers);
        let present = (session.share * rows.len() as f64).round() as usize;
        // Groups differ by a client.
        assert!(members.len().abs_diff(present) <= 1, "{kind:?} of {job:?}");
        if present == rows.len() {
            assert_eq!(session.totals, totals, "{kind:?} of {job:?}");
        }
        if let Some(Ok(Step::Over(model))) = run.clients.first() {
            assert_eq!(model.len(), job.parameters);
        }
    }
}

#[test]
fn every_message_of_a_training_job_has_its_predicted_length() {
    let sources = [
        PseudoLabels::None,
        PseudoLabels::Network,
        PseudoLabels::Local,
        PseudoLabels::Joint,
    ];
    let arms = [
        (3, Sampling::Free),
        (7, Sampling::Groups(5)),
        (11, Sampling::Groups(5)),
    ];
    for (clients, sampling) in arms {
        for pseudo in sources {
            for (trust, variant) in [
                (Trust::SemiHonest, Variant::Balanced),
                (Trust::MaliciousServer, Variant::Paper),
                (Trust::MaliciousServer, Variant::Balanced),
            ] {
                let mut job = undertone::train::Job {
                    label_rounds: 1,
                    rounds: 1,
                    pseudo,
                    sampling,
                    ..train::job()
                };
                job.propagation.trust = trust;
                job.propagation.variant = variant;
                let rows: Vec<(usize, usize)> = (0..clients)
                    .map(|place| (8 + place % 4, 3 * (1 - place % 2)))
                    .collect();
                let client = |(place, (rows, labelled)): (usize, &(usize, usize))| {
                    train::member(data(*rows, *labelled, place as u8)).client
                };
                let clients = rows.iter().enumerate().map(client).collect();
                hold_training(job, clients, &rows);
            }
        }
    }
}

/// A model whose parameters take two messages.
#[test]
fn long_models_have_their_predicted_lengths() {
    let parameters = (1 << 18) + 1;
    let job = undertone::train::Job {
        label_rounds: 0,
        rounds: 1,
        pseudo: PseudoLabels::None,
        parameters,
        ..train::job()
    };
    let client = |place| {
        let model = Steady {
            params: vec![0.0; parameters],
            change: vec![0.01; parameters],
            noise: 0.0,
        };
        Member::new(Box::new(model), data(8, 3, place), Record::simulated()).client
    };
    hold_training(job, (0..5).map(client).collect(), &[(8, 3); 5]);
}

/// Compares sessions of a co-training job with their predictions: two exchanges and the end.
fn hold_cotraining(
    (rows, classes, clients): (usize, usize, usize),
    change: impl Fn(&mut cotrain::Job),
) {
    let mut world = World::voting(&votes(rows, classes, clients, 0.7, 4), classes, |job| {
        job.exchanges = 2;
        change(job);
    });
    if world.job.trust == Trust::MaliciousServer {
        world = world.pinned();
    }
    let all = world.all();
    for session in [Cotraining::Exchange, Cotraining::Exchange, Cotraining::Over] {
        let has_labels = world.state.labels.is_some();
        let (run, sent) = measured(|network| world.run(network, &all));
        assert!(run.server.is_ok() && run.clients.values().all(Result::is_ok));
        let job = &world.job;
        let due =
            |take: &mut Take<'_>| lengths::cotraining(job, session, clients, has_labels, take);
        let totals = Totals::of(due);
        let due = predicted(due);
        assert_eq!(
            sent, due,
            "{session:?} of {:?}, {clients} clients",
            world.job
        );
        let ledgers: Vec<_> = run.ledgers.into_iter().collect();
        hold_ledgers(&totals, &ledgers);
        let place = match session {
            Cotraining::Over => 2,
            Cotraining::Exchange => usize::from(has_labels),
        };
        let planned = &sessions::cotrain(job, clients)[place];
        hold_all_rounds(planned.rounds, &ledgers);
        assert_eq!(planned.totals, totals);
    }
}

/// Rows of several to a word and of several words; fewer blocks than clients; votes and noise of
/// all kinds.
#[test]
fn every_message_of_a_cotraining_job_has_its_predicted_length() {
    let xor = Noise::Xor {
        epsilon: 2.0,
        sensitivity: 1.0,
    };
    for shape in [(1, 2, 3), (41, 3, 4), (23, 30, 5), (9, 7, 8), (5, 300, 3)] {
        for votes in Votes::ALL {
            for (trust, noise, consensus) in [
                (Trust::SemiHonest, Noise::None, Consensus::Majority),
                (Trust::MaliciousServer, xor, Consensus::Qualified(600_000)),
                (
                    Trust::SemiHonest,
                    Noise::Krr { epsilon: 1.0 },
                    Consensus::Qualified(900_000),
                ),
            ] {
                hold_cotraining(shape, |job| {
                    job.votes = votes;
                    job.trust = trust;
                    job.noise = noise;
                    job.consensus = consensus;
                });
            }
        }
    }
}

/// Words of two messages, transfers of several batches, circuits in tiles of eight instances.
#[test]
fn long_messages_of_cotraining_have_their_predicted_lengths() {
    let kind = |votes| move |job: &mut cotrain::Job| job.votes = votes;
    hold_cotraining((400_000, 10, 3), kind(Votes::Counts));
    hold_cotraining((2600, 10, 3), kind(Votes::Winners));
    hold_cotraining((30, 1024, 3), kind(Votes::Winners));
    hold_cotraining((30, 1024, 32), kind(Votes::Winners));
}

/// A run takes no more than was planned.
fn hold_most(job: &pssl::Job, rows: &[usize], have: &Totals, ledgers: &[(PartyId, Ledger)]) {
    let most = &sessions::pssl(job, rows)[0];
    hold_all_rounds(most.rounds, ledgers);
    for who in have.parties() {
        let (have, most) = (have.party(who), most.totals.party(who));
        assert!(
            have.sent <= most.sent && have.received <= most.received,
            "{who}"
        );
        assert!(most.sent < 20 * have.sent, "{who}");
    }
}

/// What a pair compares in one direction.
fn compared(direction: &Direction) -> Compared {
    let told = direction.attempts.iter().flatten();
    Compared {
        attempts: direction.attempts.iter().map(Vec::len).collect(),
        edges: told.filter(|one| one.told.is_some()).count(),
    }
}

/// Clusters of all kinds, one cluster, one round; slots of no edges.
#[test]
fn every_message_of_a_graph_between_pairs_has_its_predicted_length() {
    let changes: [fn(&mut pssl::Job); 5] = [
        |_| (),
        |job| job.clusters = 1,
        |job| (job.reveal, job.rounds) = (Reveal::Distance, 1),
        |job| (job.reveal, job.trust) = (Reveal::Accept, Trust::MaliciousServer),
        |job| (job.d_min, job.asked) = (0.79, 2),
    ];
    for change in changes {
        let mut simulation = pssl_runs::simulation(4, |job| {
            job.rounds = 2;
            change(job);
        });
        let (run, sent) = measured(|network| simulation.run(network).unwrap());
        assert!(run.clients.iter().all(Result::is_ok));
        let rows: Vec<usize> = run.report.clients.iter().map(|(_, rows)| *rows).collect();
        let job = simulation.server().job().clone();
        let pairs: Vec<_> = pssl_runs::in_the_clear(&simulation).pairs;
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(ends, both)| (*ends, both.each_ref().map(compared)))
            .collect();
        let due = predicted(|take| lengths::pairwise(&job, &rows, &pairs, take));
        same(&sent, &due, &format!("{job:?}"));
        let totals = Totals::of(|take| lengths::pairwise(&job, &rows, &pairs, take));
        hold_ledgers(&totals, &run.ledgers);
        hold_most(&job, &rows, &totals, &run.ledgers);
        // The estimate that is printed before a run.
        let most = job.pair_bytes(job.most_comparisons());
        let fixed = 20_000 + 12 * 30_000;
        for pair in [(0, 1), (1, 3)] {
            let [a, b] = [pair.0, pair.1].map(PartyId::client);
            let links = [(a, b, EDGES.id), (b, a, EDGES.id)];
            let bytes: usize = links.iter().flat_map(|link| &due[link]).sum();
            assert!(bytes < most + fixed, "{bytes} {most}");
        }
    }
}

/// Compares a run of a graph network, and one that continues it, with their predictions. `columns`
/// are the features of each client.
fn hold_graph(cut: Cut, columns: &[&[&str]], change: impl Fn(&mut fedgraph::Job)) {
    let clients = columns.len();
    let mut world = fedgraph_runs::World::new(clients, cut).with(|job| {
        (job.steps, job.every) = (3, 2);
        change(job);
    });
    let job = world.jobs.0.clone();
    for (inputs, columns) in world.inputs.iter_mut().zip(columns) {
        inputs.columns = columns.iter().map(|name| (*name).to_owned()).collect();
    }
    // It continues after step 2, of which all have the second but last checkpoint.
    for step in [0, 2] {
        let last = &mut world.saved[2];
        if step > 0 && last.len() == 2 {
            last.remove(0);
        }
        let counts: Vec<usize> = world.saved[1..].iter().map(Vec::len).collect();
        let (run, sent) = measured(|network| world.run(network).unwrap());
        let report = run.server.unwrap();
        assert!(run.clients.iter().all(Result::is_ok));
        let shape = GraphShape {
            columns: columns.iter().map(|columns| columns.len()).collect(),
            graph: report.graph,
            clusters: report.clusters,
            saved: counts,
            step: if job.steps == 0 { 0 } else { step },
            trust: Trust::SemiHonest,
        };
        let due = predicted(|take| lengths::fedgraph(&job, &shape, take));
        same(&sent, &due, &format!("{job:?}, {step}"));
        let totals = Totals::of(|take| lengths::fedgraph(&job, &shape, take));
        hold_ledgers(&totals, &run.ledgers);
        hold_rounds(&job, &shape, &run.ledgers);
        if step == 0 && shape.graph.members().count() == columns.len() {
            let planned = &sessions::fedgraph(&job, 2, Trust::SemiHonest)[0];
            hold_all_rounds(planned.rounds, &run.ledgers);
            if columns.iter().all(|own| own == &columns[0]) {
                assert_eq!(planned.totals, totals, "{job:?}");
            }
        }
        world = world.again(run.saved, 8);
    }
}

/// The ledgers show the rounds that are due.
fn hold_rounds(job: &fedgraph::Job, shape: &GraphShape, ledgers: &[(PartyId, Ledger)]) {
    for (who, ledger) in ledgers {
        if who.index().is_some_and(|client| !shape.graph.is_in(client)) {
            continue;
        }
        for (phase, rounds) in graph_rounds(job, shape) {
            let have = ledger.phase(phase).map(|cost| cost.rounds());
            assert_eq!(have, Some(rounds), "{who}, {phase} of {job:?}");
        }
    }
    assert!(ledgers.iter().all(|(_, own)| own.phase(FEATURES).is_some()));
}

/// All cuts; clients with all, some and no features in common; votes alone; sums of several tiles.
#[test]
fn every_message_of_a_graph_network_has_its_predicted_length() {
    let same: &[&[&str]] = &[&["a", "b"], &["a", "b"], &["a", "b"]];
    let all: &[&[&str]] = &[&["a", "b"], &["a"], &["a", "c"]];
    let some: &[&[&str]] = &[&["a"], &["a", "b"], &["a", "b", "c", "x"], &["c"], &["d"]];
    for cut in [Cut::Embeddings, Cut::Server, Cut::Client] {
        for columns in [same, all, some] {
            hold_graph(cut, columns, |_| ());
            hold_graph(cut, columns, |job| {
                (job.predict, job.reveal_embeddings) = (Predict::Graph, true);
            });
        }
        hold_graph(cut, all, |job| job.steps = 0);
        hold_graph(cut, same, |job| job.cluster = 3);
    }
}

/// Sums and floats of several tiles.
#[test]
fn long_messages_of_a_graph_network_have_their_predicted_lengths() {
    let (width, rows, queries) = (16, 20_000, 70_000);
    let columns = ["a", "b", "c"].map(|name| vec![name.to_owned(), "all".into()]);
    for cut in [Cut::Embeddings, Cut::Server, Cut::Client] {
        let mut job = fedgraph_runs::job(3, cut);
        (job.width, job.cluster, job.steps) = (width, 1, 1);
        (job.rows, job.queries, job.classes) = (rows, queries, 3);
        let inputs = |client: usize| {
            let values = vec![0.25; rows * width];
            let shares = vec![1.0 / 3.0; queries * 3];
            std::sync::Arc::new(fedgraph::Inputs {
                columns: columns[client].clone(),
                labels: (0..rows).map(|row| (row % 3) as u16).collect(),
                embeddings: fedgraph::Matrix::new(rows, width, values).unwrap(),
                probabilities: fedgraph::Matrix::new(queries, 3, shares).unwrap(),
                queries: fedgraph::Matrix::zeros(0, width),
            })
        };
        let clients = (0..3).map(inputs);
        let simulation = fedgraph::simulation(job.clone(), clients, Seed::from_bytes([7; 32]));
        let mut simulation = simulation.unwrap();
        let (run, sent) = measured(|network| simulation.run(network).unwrap());
        let shape = GraphShape {
            columns: vec![2; 3],
            graph: run.report.graph.clone(),
            clusters: rows,
            saved: vec![0; 3],
            step: 0,
            trust: Trust::SemiHonest,
        };
        assert_eq!(run.report.clusters, rows);
        let due = predicted(|take| lengths::fedgraph(&job, &shape, take));
        assert!(due == sent, "{cut}");
    }
}
