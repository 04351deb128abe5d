//! A graph between pairs of clients: the run under cryptography is the run in the clear.

use undertone::job::record::TOLD;
use undertone::job::simulation::SimulationError;
use undertone::job::{
    Agreed, Application as _, Record, SessionContext, Terms as _, Unwilling, offer,
};
use undertone::kdf::Seed;
use undertone::party::{Abort, Network, PartyId, SessionId};
use undertone::pssl::{self, Client, Job, Reveal, Server, Simulation, Terms};
use undertone_tests::pssl::{data, in_the_clear, job, simulation};

fn same_as_clear(clients: usize, change: impl FnOnce(&mut Job)) -> usize {
    let mut simulation = simulation(clients, change);
    let clear = in_the_clear(&simulation);
    let run = simulation.run(Network::new()).unwrap();
    let mut edges = 0;
    for (client, outcome) in run.clients.iter().enumerate() {
        let outcome = outcome.as_ref().unwrap();
        assert_eq!(
            outcome.edges, clear.edges[client],
            "edges of client {client}"
        );
        edges += outcome
            .edges
            .iter()
            .map(|(_, edges)| edges.len())
            .sum::<usize>();
        let pairs = outcome.scores.iter().zip(&clear.scores[client]);
        for (secure, clear) in pairs {
            assert!((secure - clear).abs() < 1e-9, "{secure} {clear}");
        }
    }
    edges
}

#[test]
fn edges_and_scores_are_those_in_the_clear() {
    for reveal in [Reveal::Bucket, Reveal::Distance, Reveal::Accept] {
        assert!(same_as_clear(4, |job| job.reveal = reveal) > 100);
    }
    assert!(same_as_clear(3, |job| job.local_start = true) > 30);
    assert!(same_as_clear(3, |job| job.allow_single = true) > 30);
    assert!(same_as_clear(3, |job| job.clusters = 1) > 10);
    assert!(same_as_clear(3, |job| job.clusters = 7) > 30);
}

/// Clients in memory have one record from session to session.
#[test]
fn rows_of_a_simulation_take_part_once() {
    let mut simulation = simulation(3, |_| ());
    assert!(simulation.run(Network::new()).is_ok());
    assert_eq!(simulation.server().results()["contributors"], 3);
    // The same session with the same seeds is no second answer.
    assert!(simulation.run(Network::new()).is_ok());
    let others = |number: u8| {
        let server = Server::new(job());
        let clients = (0..3).map(|c| Client::of(Terms::anything(), data(c, 30)));
        let seed = Seed::from_bytes([number; 32]);
        Simulation::new(server, clients.collect(), seed).unwrap()
    };
    let record = Record::simulated();
    let all: Vec<PartyId> = (0..3).map(PartyId::client).collect();
    for (number, is_allowed) in [(1, true), (2, false)] {
        let mut parties = others(number).parties(&all).unwrap();
        let session = parties.session;
        let at = PartyId::client(0);
        let own = Client::of(Terms::anything(), data(0, 30));
        let mut own = Agreed::new(own, record.clone());
        own.agree_to(job(), false).unwrap();
        let seed = Seed::from_bytes([number; 32]);
        let own = own.client(SessionContext::new(session, at, seed));
        parties.clients[0].1 = own.unwrap();
        let outcome = &parties.outcomes(Network::new()).clients[0].1;
        match outcome {
            Ok(_) => assert!(is_allowed),
            Err(aborted) => {
                assert!(!is_allowed, "{aborted}");
                assert_eq!(aborted.cause, Abort::Misuse(TOLD.into()));
            }
        }
    }
}

#[test]
fn a_client_declines_and_says_why() {
    let short = vec![data(0, 30), data(1, 30), data(2, 30)];
    let narrow = Job {
        features: 5,
        ..job()
    };
    let refused = pssl::simulation(narrow, short, Seed::from_bytes([1; 32])).unwrap_err();
    let SimulationError::Declined { client, why } = refused else {
        panic!("{refused}");
    };
    assert_eq!(client, PartyId::client(0));
    assert!(why.to_string().contains("features"), "{why}");
    assert!(!why.told().contains("features"), "{}", why.told());

    let clients = (0..3).map(|c| Client::of(Terms::default(), data(c, 30)));
    let server = Server::new(job());
    let refused = Simulation::new(server, clients.collect(), Seed::from_bytes([1; 32]));
    let why = refused.unwrap_err().to_string();
    assert!(why.contains("(term d_min)"), "{why}");

    let mut one = Agreed::new(
        Client::of(Terms::anything(), data(0, 30)),
        Record::simulated(),
    );
    let at = || {
        SessionContext::new(
            SessionId([1; 32]),
            PartyId::client(0),
            Seed::from_bytes([1; 32]),
        )
    };
    assert!(matches!(one.client(at()), Err(Unwilling::Skips(_))));
    assert_eq!(one.agree(&offer(&job()), false), Ok(()));
    assert_eq!(one.agree(&offer(&job()), false), Ok(()));
    let other = Job { rounds: 3, ..job() };
    let why = one.agree(&offer(&other), false).unwrap_err().to_string();
    assert!(why.contains("another job"), "{why}");
    assert!(one.client(at()).is_ok());
}
