//! Co-training: all kinds of votes give the same labels, and exchanges end.
#![allow(missing_docs, clippy::unwrap_used)]

use undertone::fedct::ballots::write_labels;
use undertone::fedct::{CONSENSUS, Consensus, Job, Step, Votes};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Network, PartyId};
use undertone_tests::cotraining::{labels, next, simulation};
use undertone_tests::tamper::{assert_cheated, tampering};

const CONSENSUSES: [Consensus; 3] = [
    Consensus::Majority,
    Consensus::Qualified(600_000),
    Consensus::Qualified(1_000_000),
];

#[test]
fn all_kinds_of_votes_give_the_same_labels() {
    for (rows, classes, clients) in [(50, 4, 5), (7, 2, 3), (30, 40, 4), (101, 10, 6)] {
        for consensus in CONSENSUSES {
            let of = |votes| {
                let mut simulation = simulation((rows, classes, clients), |job| {
                    job.votes = votes;
                    job.consensus = consensus;
                })
                .allow_unanimous();
                let mut all = Vec::new();
                for _ in 0..3 {
                    if simulation.state().is_over(simulation.job()) {
                        break;
                    }
                    let run = next(&mut simulation, Network::new()).unwrap();
                    let labels = labels(&run);
                    for (_, step) in &run.clients {
                        let Ok(Step::Voted { labels: told, .. }) = step else {
                            panic!("{step:?}");
                        };
                        assert_eq!(*told, labels);
                    }
                    all.push(labels);
                }
                all
            };
            let clear = of(Votes::Clear);
            assert_eq!(of(Votes::Counts), clear, "{consensus} of {clients}");
            assert_eq!(of(Votes::Winners), clear, "{consensus} of {clients}");
        }
    }
}

/// Bytes of an opening before its labels.
fn before_labels(clients: usize) -> usize {
    1 + 4 + 4 + 4 * clients + 1
}

/// FEDCT-11: in the second exchange the server sends a client other labels than the consensus of
/// the first.
#[test]
fn a_client_notices_labels_that_are_not_the_last_consensus() {
    let victim = PartyId::client(1);
    let mut simulation = simulation((20, 4, 5), |_| {});
    next(&mut simulation, Network::new()).unwrap();
    let network = tampering((PartyId::SERVER, victim, 0), |opening| {
        opening[before_labels(5)] ^= 1;
    });
    let run = next(&mut simulation, network).unwrap();
    for (who, step) in &run.clients {
        match step {
            Err(aborted) if *who == victim => {
                assert_cheated(aborted, PartyId::SERVER, CONSENSUS, "not that of the last");
            }
            step => assert!(*who != victim && step.is_ok(), "{who}: {step:?}"),
        }
    }
}

/// A server that was killed after it sent a consensus continues from the one before.
#[test]
fn a_client_accepts_the_consensus_before_the_last() {
    let of = |job: &mut Job| {
        job.consensus = Consensus::Qualified(600_000);
        job.exchanges = 3;
    };
    let mut simulation = simulation((30, 4, 5), of);
    let first = labels(&next(&mut simulation, Network::new()).unwrap());
    let second = labels(&next(&mut simulation, Network::new()).unwrap());
    assert_ne!(first, second, "the test needs another consensus");
    let earlier = write_labels(&first, 4);
    let network = Network::new().intercept(|from, _, frame| {
        let is_opening = frame.len() == HEADER_LEN + before_labels(5) + earlier.len();
        if from == PartyId::SERVER && is_opening {
            let at = HEADER_LEN + before_labels(5);
            frame[at..].copy_from_slice(&earlier);
        }
    });
    let members = simulation.members();
    let run = simulation.run_over(network, members);
    // The server has another opening, so their keys differ; no client blames it for the labels.
    let ended = run.map_or_else(
        |error| error.to_string(),
        |run| format!("{:?}", run.clients),
    );
    assert!(!ended.contains("not that of the last"), "{ended}");
}
