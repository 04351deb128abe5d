//! Parties of a graph network over clients that break its rules: every check has its cheater.
//! Clients that leave end the run for all.
#![allow(missing_docs, clippy::unwrap_used)]

use undertone::fedgraph::{Cut, Predict};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Abort, Network, PartyId};
use undertone_tests::feature_graph::{CLASSES, ROWS, Session, WIDTH, World};
use undertone_tests::tamper::{set_payload, tampering};

const SERVER: PartyId = PartyId::SERVER;
const CLIENTS: usize = 4;

fn client(index: usize) -> PartyId {
    PartyId::client(index)
}

fn run(world: &World, network: Network<'_>) -> Session {
    world.run(network).unwrap()
}

/// The reason of the server.
fn of_server(session: &Session) -> &Abort {
    &session.server.as_ref().unwrap_err().cause
}

/// The reason of a client.
fn of_client(session: &Session, index: usize) -> &Abort {
    &session.clients[index].as_ref().unwrap_err().cause
}

fn says(abort: &Abort, culprit: Option<PartyId>, text: &str) {
    assert!(abort.to_string().contains(text), "{abort}");
    if culprit.is_some() {
        assert_eq!(abort.culprit(), culprit, "{abort}");
    }
}

/// A network in which `change` alters payloads of `len` bytes from `from` to `to`.
fn changing<'a>(
    (from, to): (PartyId, PartyId),
    len: usize,
    change: impl Fn(&mut Vec<u8>) + 'a,
) -> Network<'a> {
    Network::new().intercept(move |f, t, frame| {
        if (f, t) == (from, to) && frame.len() == HEADER_LEN + len {
            let mut payload = frame[HEADER_LEN..].to_vec();
            change(&mut payload);
            set_payload(frame, &payload);
        }
    })
}

#[test]
fn more_clients_than_the_job_has() {
    // FEDGRAPH-2.
    let world = World::new(CLIENTS, Cut::Client).with(|job| job.clients = 3);
    let session = run(&world, Network::new());
    says(
        of_server(&session),
        None,
        "4 clients are in, the job is for 3",
    );
}

#[test]
fn another_job() {
    // FEDGRAPH-4.
    let mut world = World::new(CLIENTS, Cut::Client);
    world.jobs.1[2].steps += 1;
    let session = run(&world, Network::new());
    says(of_server(&session), Some(client(2)), "its job differs");
}

#[test]
fn features_that_do_not_decode() {
    let world = World::new(CLIENTS, Cut::Client);
    // FEDGRAPH-5: tags out of order, twice, none, and half a tag.
    let changes: [fn(&mut Vec<u8>); 4] = [
        |features| features[16..].rotate_left(8),
        |features| features.copy_within(16..24, 24),
        |features| features.truncate(16),
        |features| features.truncate(20),
    ];
    for change in changes {
        let session = run(&world, changing((client(1), client(3)), 16 + 3 * 8, change));
        assert_eq!(of_client(&session, 3).culprit(), Some(client(1)));
        let session = run(&world, tampering((client(1), SERVER, 2), change));
        assert_eq!(of_server(&session).culprit(), Some(client(1)));
    }
}

#[test]
fn values_that_are_no_numbers() {
    // FEDGRAPH-6: slopes of 20 clusters from the server, embeddings from a client.
    let clusters = ROWS / 6;
    let world = World::new(CLIENTS, Cut::Server);
    let slopes = 4 * 2 * clusters * WIDTH;
    let infinite = |values: &mut Vec<u8>| {
        values[4..8].copy_from_slice(&f32::NEG_INFINITY.to_le_bytes());
    };
    let session = run(&world, changing((SERVER, client(2)), slopes, infinite));
    says(of_client(&session, 2), Some(SERVER), "not a finite number");
    let session = run(
        &world,
        changing((SERVER, client(2)), slopes, |values| values.truncate(8)),
    );
    says(of_client(&session, 2), Some(SERVER), "8 bytes of values");
    let world = World::new(CLIENTS, Cut::Embeddings);
    let embeddings = 4 * clusters * WIDTH;
    let session = run(&world, changing((client(1), SERVER), embeddings, infinite));
    says(of_server(&session), Some(client(1)), "not a finite number");
}

#[test]
fn other_labels() {
    // FEDGRAPH-7.
    let mut world = World::new(CLIENTS, Cut::Client);
    world.inputs[1].labels[5] = (world.inputs[1].labels[5] + 1) % CLASSES as u16;
    let session = run(&world, Network::new());
    let abort = of_client(&session, 0);
    says(abort, None, "their labels differ");
    let due = (client(0), client(1));
    assert!(matches!(abort, Abort::Contradicted { first, second, .. } if (*first, *second) == due));
}

/// A world whose parties have the checkpoints of a run.
fn begun(cut: Cut) -> World {
    let mut world = World::new(CLIENTS, cut);
    world.saved = run(&world, Network::new()).saved;
    world.seed = [8; 32];
    world
}

#[test]
fn checkpoints_of_another_job_or_of_other_clients() {
    // FEDGRAPH-8.
    let world = begun(Cut::Client).with(|job| job.steps = 40);
    let (who, abort) = world.run(Network::new()).unwrap_err();
    assert_eq!(who, SERVER);
    says(&abort, None, "of another job");
    // FEDGRAPH-9: another client in the place of one of them. A smaller job is another job.
    let mut world = begun(Cut::Client);
    world.ids[3] = client(7);
    let session = run(&world, Network::new());
    says(
        of_server(&session),
        None,
        "only all of them together can continue it",
    );
    world.saved[0].clear();
    let session = run(&world, Network::new());
    says(
        of_client(&session, 0),
        None,
        "only all of them together can continue it",
    );
}

#[test]
fn a_run_that_began_is_not_begun_anew() {
    let world = begun(Cut::Client);
    for (start, text) in [
        // FEDGRAPH-10.
        (u32::MAX, "it starts the run anew"),
        // FEDGRAPH-11.
        (7, "continues after step 7, which not all clients have"),
    ] {
        let change = move |message: &mut Vec<u8>| message.copy_from_slice(&start.to_le_bytes());
        let session = run(&world, tampering((SERVER, client(1), 2), change));
        says(of_client(&session, 1), Some(SERVER), text);
    }
    // FEDGRAPH-13: a client that lost its checkpoints, and a server that did.
    let mut world = begun(Cut::Server);
    let server = std::mem::take(&mut world.saved[0]);
    let session = run(&world, Network::new());
    says(of_server(&session), None, "clients without one: none");
    world.saved[0] = server;
    world.saved[3].clear();
    let session = run(&world, Network::new());
    says(of_server(&session), None, "clients without one: client 2");
}

#[test]
fn clients_with_one_neighbour_only() {
    // FEDGRAPH-12: a path of features.
    let mut world = World::new(CLIENTS, Cut::Client);
    for (index, inputs) in world.inputs.iter_mut().enumerate() {
        inputs.columns = vec![format!("{index}"), format!("{}", index + 1)];
    }
    let session = run(&world, Network::new());
    says(
        of_server(&session),
        None,
        "no three clients have features in common",
    );
    // The votes were kept before.
    assert!(session.votes.iter().all(Option::is_some));
}

#[test]
fn clients_that_sit_out_follow_the_network() {
    let mut world = World::new(CLIENTS, Cut::Client).with(|job| job.predict = Predict::Graph);
    world.inputs[3].columns = vec!["alone".into()];
    let session = run(&world, Network::new());
    let outcomes: Vec<_> = session
        .clients
        .iter()
        .map(|c| c.as_ref().unwrap())
        .collect();
    assert_eq!(outcomes[0].clients.members().collect::<Vec<_>>(), [0, 1, 2]);
    assert!(outcomes.iter().all(|own| own.graph == outcomes[3].graph));
}

#[test]
fn numbers_of_clusters_that_cannot_be() {
    // FEDGRAPH-14.
    let world = World::new(CLIENTS, Cut::Client);
    for (count, text) in [(0u32, "no clusters"), (41, "number of clusters")] {
        let change = move |message: &mut Vec<u8>| message.copy_from_slice(&count.to_le_bytes());
        let session = run(&world, changing((client(0), SERVER), 4, change));
        says(of_server(&session), Some(client(0)), text);
    }
}

#[test]
fn a_server_that_sends_the_sums_of_an_earlier_step() {
    // SERIES-2, in a whole run: the slopes of step 1 again.
    let world = World::new(CLIENTS, Cut::Server);
    let replay = |message: &mut Vec<u8>| {
        if message[..5] == [2, 0, 0, 0, 6] {
            message[0] = 1;
        }
    };
    let len = 5 + 8 * 2 * WIDTH * WIDTH;
    let session = run(&world, changing((SERVER, client(1)), len, replay));
    says(
        of_client(&session, 1),
        Some(SERVER),
        "it sent step 1, kind 6, due is step 2, kind 6",
    );
}

/// The number of frames that a client sends in a run.
fn frames(world: &World, who: PartyId) -> usize {
    let count = std::cell::Cell::new(0);
    let network =
        Network::new().intercept(|from, _, _| count.set(count.get() + usize::from(from == who)));
    run(world, network);
    count.get()
}

#[test]
fn a_client_that_leaves_ends_the_run_and_all_together_continue_it() {
    for cut in [Cut::Server, Cut::Client] {
        let small = World::new(CLIENTS, cut).with(|job| (job.steps, job.every) = (4, 1));
        let whole = run(&small, Network::new());
        let who = client(2);
        for after in 0..frames(&small, who) {
            let session = run(&small, Network::new().leave(who, after));
            let why = of_server(&session);
            let names = matches!(why, Abort::Left { who: left } if *left == who);
            assert!(
                names || matches!(why, Abort::TooFew { .. }),
                "{cut}, {after}: {why}"
            );
            for other in [0, 1, 3] {
                assert!(session.clients[other].is_err(), "{cut}, {after}");
            }
            // Whatever the others kept, a step is common to all, and the run continues from it.
            let kept = session
                .saved
                .iter()
                .filter(|saved| !saved.is_empty())
                .count();
            if kept == CLIENTS + 1 && after % 5 == 0 {
                let mut again =
                    World::new(CLIENTS, cut).with(|job| (job.steps, job.every) = (4, 1));
                (again.saved, again.seed) = (session.saved, [9; 32]);
                let continued = run(&again, Network::new());
                for place in 0..=CLIENTS {
                    let [last, due] = [&continued, &whole].map(|run| &run.saved[place]);
                    let first = last.first().unwrap_or(&again.saved[place][0]);
                    assert!(first.step() == 4 && first.weights().len() == due[0].weights().len());
                }
            }
        }
    }
}
