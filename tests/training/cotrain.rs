//! Co-training: all kinds of votes give the same labels, and exchanges end.

use undertone::cotrain::{Consensus, Step, Votes};
use undertone::party::Network;
use undertone_tests::cotrain::{labels, simulation};

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
                });
                let mut all = Vec::new();
                for _ in 0..3 {
                    if simulation.server().is_over() {
                        break;
                    }
                    let run = simulation.run(Network::new()).unwrap();
                    let labels = labels(&run);
                    for step in &run.clients {
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
