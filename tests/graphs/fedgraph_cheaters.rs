//! Parties of a graph network over clients that break its rules: every check has its cheater.

use std::sync::Arc;

use undertone::fedgraph::{self, Cut, Matrix, Outcome, Place, Predict};
use undertone::job::Job as _;
use undertone::job::Record;
use undertone::kdf::Seed;
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Abort, Aborted, Network, PartyId, Script, SessionId};
use undertone::setup::group;
use undertone::setup::identity::{Credentials, Identity, Pins};
use undertone_tests::fedgraph::{CLASSES, QUERIES, ROWS, Session, WIDTH, World, inputs, job};
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

/// FEDGRAPH-18. With a job of three of its five clients a server could sum the votes of several
/// subsets, and compare the sums.
#[test]
fn a_job_of_other_clients_than_those_with_keys() {
    let made = |pinned: usize, show_embeddings: bool| {
        let identity = |index: usize| Identity::from_seed(&Seed::from_bytes([index as u8; 32]));
        let pins = (0..pinned).map(|index| (client(index), identity(index).public()));
        let place = Place {
            session: SessionId([1; 32]),
            me: client(0),
            seed: Seed::from_bytes([2; 32]),
            credentials: Some(Credentials {
                identity: identity(0),
                pins: Pins::new(pins).unwrap(),
            }),
            record: Record::simulated(),
            saved: Vec::new(),
            min_network: 3,
            show_embeddings,
            keep: Box::new(|_| Ok(())),
        };
        let inputs = Arc::new(inputs(0, CLIENTS, 2.0));
        fedgraph::client(job(CLIENTS, Cut::Client), inputs, place)
    };
    assert!(made(CLIENTS, true).is_ok());
    // FEDGRAPH-19.
    says(
        &made(CLIENTS, false).unwrap_err(),
        None,
        "to its neighbours",
    );
    for pinned in [CLIENTS - 1, CLIENTS + 1] {
        says(
            &made(pinned, true).unwrap_err(),
            None,
            "the job has 4 clients, and this client knows",
        );
    }
}

#[test]
fn predictions_that_would_reveal_embeddings() {
    // FEDGRAPH-1, at the server and at a client.
    for cut in [Cut::Embeddings, Cut::Server] {
        let world = World::new(CLIENTS, cut).with(|job| job.predict = Predict::Graph);
        let (who, abort) = world.run(Network::new()).unwrap_err();
        assert_eq!(who, SERVER);
        says(&abort, None, "allow it with reveal_embeddings");
        let mut world = World::new(CLIENTS, cut);
        world.jobs.1[1].predict = Predict::Graph;
        let (who, abort) = world.run(Network::new()).unwrap_err();
        assert_eq!(who, client(1));
        says(&abort, None, "allow it with reveal_embeddings");
    }
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
    // At clients whose server checks nothing.
    let session = lenient(&world, |_| None);
    for index in 0..CLIENTS {
        let text = "4 clients are in, the job is for 3";
        says(of_client(&session, index), None, text);
    }
}

/// A run whose server relays the setup, and then waits.
fn lenient(
    world: &World,
    instead: impl Fn(PartyId) -> Option<Script<'static, Outcome>>,
) -> Session {
    let (rules, seed) = (world.group(), world.party_seed(SERVER));
    let setup = group::server(rules, world.ids.clone(), seed).unwrap();
    let server = Script::new(group::PHASE, move |io| async move {
        io.run(setup).await?;
        io.require(client(1)).await?;
        Err(Abort::Internal("it waits only".into()))
    });
    let run = world.run_with(Network::new(), Some(server), instead);
    run.unwrap()
}

/// Client 1, which says `hello` in the setup and nothing else.
fn saying(world: &World, hello: &[u8]) -> Script<'static, Outcome> {
    let (who, rules) = (client(1), world.group());
    let setup = group::client(rules, who, hello.to_vec(), None, world.party_seed(who)).unwrap();
    Script::new(group::PHASE, move |io| async move {
        io.run(setup).await?;
        io.require(SERVER).await?;
        Err(Abort::Internal("it says nothing".into()))
    })
}

#[test]
fn hellos_that_do_not_decode_or_are_of_another_job() {
    let world = World::new(CLIENTS, Cut::Client);
    let digest = world.jobs.0.digest().to_vec();
    let hello = |count: u8, saved: usize| [&digest[..], &[count], &vec![0; saved][..]].concat();
    let mut other = hello(0, 0);
    other[31] ^= 1;
    for (bytes, text) in [
        // FEDGRAPH-3.
        (Vec::new(), "digest of the job"),
        (digest.clone(), "number of checkpoints"),
        (hello(3, 60), "number of checkpoints"),
        (hello(255, 60), "number of checkpoints"),
        (hello(2, 20), "step"),
        (hello(1, 19), "digest of a checkpoint"),
        (hello(1, 21), "malformed"),
        // FEDGRAPH-4.
        (other, "its job differs"),
    ] {
        let instead = |who| (who == client(1)).then(|| saying(&world, &bytes));
        let session = world.run_with(Network::new(), None, instead).unwrap();
        says(of_server(&session), Some(client(1)), text);
        let session = lenient(&world, instead);
        for index in [0, 2, 3] {
            says(of_client(&session, index), Some(client(1)), text);
        }
    }
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
    // More than a client may have.
    let changes: [fn(&mut Vec<u8>); 6] = [
        |features| {
            features.truncate(16);
            (0..4097u64).for_each(|tag| features.extend(tag.to_be_bytes()));
        },
        Vec::clear,
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
    // Targets of the first client, and predictions of the server.
    let nan = |values: &mut Vec<u8>| {
        let end = values.len() - 4;
        values[end..].copy_from_slice(&f32::NAN.to_le_bytes());
    };
    let targets = 4 * clusters * CLASSES;
    let session = run(&world, changing((client(0), SERVER), targets, nan));
    says(of_server(&session), Some(client(0)), "not a finite number");
    for cut in [Cut::Embeddings, Cut::Server] {
        let world = World::new(CLIENTS, cut).with(|job| {
            (job.predict, job.reveal_embeddings, job.steps) = (Predict::Graph, true, 1);
        });
        let predicted = 4 * QUERIES * CLASSES;
        let session = run(&world, changing((SERVER, client(3)), predicted, nan));
        says(of_client(&session, 3), Some(SERVER), "not a finite number");
        let longer = |values: &mut Vec<u8>| values.push(0);
        let session = run(&world, changing((SERVER, client(3)), predicted, longer));
        says(of_client(&session, 3), Some(SERVER), "109 bytes of values");
        assert!(session.clients[..3].iter().all(Result::is_ok));
    }
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
fn features_that_changed_since_the_checkpoint() {
    // FEDGRAPH-15: one more column; as many columns of all clients as before, and other neighbours;
    // and other labels of all clients.
    let changes: [fn(&mut World); 3] = [
        |world| world.inputs[1].columns.push("new".into()),
        |world| world.inputs[1].columns[0] = "feature 0".into(),
        |world| {
            world
                .inputs
                .iter_mut()
                .for_each(|own| own.labels.swap(0, 1))
        },
    ];
    for cut in [Cut::Embeddings, Cut::Server, Cut::Client] {
        for change in changes {
            let mut world = begun(cut);
            change(&mut world);
            let session = run(&world, Network::new());
            let text = "are not those that the run began with";
            says(of_server(&session), None, text);
            // Each client finds it by itself, too.
            assert!(session.clients.iter().all(Result::is_err));
            assert!(session.votes.iter().all(Option::is_none));
        }
    }
}

#[test]
fn features_that_need_too_many_weights() {
    let mut world = World::new(8, Cut::Client).with(|job| (job.width, job.steps) = (256, 1));
    for (place, inputs) in world.inputs.iter_mut().enumerate() {
        inputs.embeddings = Matrix::zeros(ROWS, 256);
        inputs.queries = Matrix::zeros(QUERIES, 256);
        inputs.columns = (0..4096).map(|name| format!("{place} {name}")).collect();
    }
    let session = run(&world, Network::new());
    says(
        of_server(&session),
        None,
        "32768 different features: the network would have too many weights",
    );
    assert!(session.clients.iter().all(Result::is_err));
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
fn networks_that_are_too_small_for_a_client() {
    // FEDGRAPH-17: two triangles, and six clients in one network.
    let text = "as much as in a network of 3 clients, and asks for one of 4";
    let mut world = World::new(6, Cut::Client);
    world.min_network = 4;
    assert!(run(&world, Network::new()).server.is_ok());
    for (place, inputs) in world.inputs.iter_mut().enumerate() {
        inputs.columns = vec![format!("of {}", place / 3)];
    }
    let session = run(&world, Network::new());
    says(of_client(&session, 0), None, text);
    assert!(session.votes.iter().all(Option::is_some));
    assert!(session.saved.iter().all(Vec::is_empty));
    world.min_network = 3;
    assert!(run(&world, Network::new()).server.is_ok());
    // Other cuts, and clients that sit out, do not ask.
    world.min_network = 7;
    for (place, inputs) in world.inputs.iter_mut().enumerate().skip(3) {
        inputs.columns = vec![format!("of {place} alone")];
    }
    let session = run(&world, Network::new());
    says(
        of_client(&session, 0),
        None,
        "in a network of 3 clients, and asks for one of 7",
    );
    let left = |client: &Aborted| matches!(client.cause, Abort::Left { .. });
    assert!(
        session.clients[3..]
            .iter()
            .all(|own| own.as_ref().is_err_and(left))
    );
    let mut world = World::new(3, Cut::Server);
    world.min_network = 7;
    assert!(run(&world, Network::new()).server.is_ok());
}

#[test]
fn signals_that_say_something() {
    // FEDGRAPH-16. A client sends the setup, its features and words of the vote before.
    let world = World::new(CLIENTS, Cut::Client);
    let session = run(
        &world,
        tampering((client(1), SERVER, 4), |ready| ready.push(0)),
    );
    says(of_server(&session), Some(client(1)), "");
    let session = run(&world, tampering((SERVER, client(2), 4), |go| go.push(0)));
    says(of_client(&session, 2), Some(SERVER), "");
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
    // SERIES-3 finds a number that could be, but is not that of the words that follow.
    for (count, text) in [
        (0u32, "no clusters"),
        (41, "number of clusters"),
        (u32::MAX, "number of clusters"),
        (40, "bytes of words"),
        (19, "bytes of words"),
    ] {
        let change = move |message: &mut Vec<u8>| message.copy_from_slice(&count.to_le_bytes());
        let session = run(&world, changing((client(0), SERVER), 4, change));
        says(of_server(&session), Some(client(0)), text);
    }
    let changes: [fn(&mut Vec<u8>); 2] = [|count| count.truncate(3), |count| count.push(0)];
    for change in changes {
        let session = run(&world, changing((client(0), SERVER), 4, change));
        assert_eq!(of_server(&session).culprit(), Some(client(0)));
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
