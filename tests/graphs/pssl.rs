//! A graph between pairs of clients: the run under cryptography is the run in the clear.

use undertone::party::Network;
use undertone::pssl::{Job, Reveal};
use undertone_tests::pssl::{in_the_clear, simulation};

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
