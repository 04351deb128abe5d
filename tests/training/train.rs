//! Training jobs with all parties in one process.

use undertone::label::Variant;
use undertone::party::{Network, PartyId};
use undertone::train::{Job, PseudoLabels, Report, Sampling, Step};
use undertone_tests::train::{accuracy, job, simulation};

fn arms() -> Vec<Job> {
    let job = job();
    let mut arms = Vec::new();
    for pseudo in [
        PseudoLabels::None,
        PseudoLabels::Network,
        PseudoLabels::Local,
        PseudoLabels::Joint,
    ] {
        for sampling in [Sampling::Groups(5), Sampling::Free] {
            arms.push(Job {
                pseudo,
                sampling,
                ..job.clone()
            });
        }
    }
    let mut paper = job;
    paper.propagation.variant = Variant::Paper;
    arms.push(paper);
    arms
}

/// Every arm, with groups and with free sampling, from the census to the final model.
#[test]
fn jobs_train_models() {
    for job in arms() {
        let mut simulation = simulation(job.clone(), 10);
        let before = accuracy(&simulation.server().state().model);
        let mut rounds = 0;
        loop {
            let members = simulation.members();
            let run = simulation.run_with(Network::new(), &members).unwrap();
            for (who, step) in members.iter().zip(&run.clients) {
                let step = step.as_ref().unwrap();
                match (&run.report, step) {
                    (Report::Counted(_), Step::Counted) => {}
                    (Report::Trained(round), Step::Trained(trained)) => {
                        assert_eq!(trained.number, round.taken.number);
                        assert!(!trained.diverged);
                        let has_labels = who.index().unwrap() % 2 == 0;
                        let has_pseudo = match job.pseudo {
                            PseudoLabels::None => false,
                            PseudoLabels::Local => has_labels,
                            _ => true,
                        };
                        let has_pseudo = has_pseudo && trained.number > 2;
                        assert_eq!(trained.pseudo > 0, has_pseudo, "{job:?}");
                        // All clients have more rows than embeddings have values.
                        let joint = job.pseudo_in(trained.number) == PseudoLabels::Joint;
                        for warning in [&trained.warning, &round.warning] {
                            assert_eq!(warning.is_some(), joint);
                            let what = |text: &String| text.contains("more than 6 features");
                            assert!(warning.as_ref().is_none_or(what), "{warning:?}");
                        }
                    }
                    (Report::Over, Step::Over(model)) => {
                        assert_eq!(*model, simulation.server().state().model);
                    }
                    other => panic!("{who}: {other:?}"),
                }
            }
            match run.report {
                Report::Counted(census) => {
                    assert_eq!(members.len(), 10);
                    let groups = match job.sampling {
                        Sampling::Groups(_) => 2,
                        Sampling::Free => 0,
                    };
                    assert_eq!(census.groups.len(), groups);
                }
                Report::Trained(round) => {
                    rounds += 1;
                    assert_eq!(round.taken.number, rounds);
                    assert_eq!(round.taken.contributors, members);
                    assert_eq!(members.len(), 5);
                }
                Report::Over => break,
            }
        }
        assert_eq!(rounds, 6);
        let after = accuracy(&simulation.server().state().model);
        assert!(after > before.max(0.8), "{before} to {after}: {job:?}");
    }
}

/// The census counts labels, and the server's sums add up whole groups.
#[test]
fn the_census_finds_groups_with_their_share_of_labels() {
    let mut simulation = simulation(job(), 12);
    let members = simulation.members();
    simulation.run_with(Network::new(), &members).unwrap();
    let census = simulation.server().state().census.clone().unwrap();
    assert_eq!(census.clients.len(), 12);
    for (place, client) in census.clients.iter().enumerate() {
        assert_eq!(client.id, PartyId::client(place));
        assert_eq!(
            (client.rows, client.labelled),
            (24, 6 * (1 - place as u32 % 2))
        );
    }
    assert_eq!(census.groups.len(), 2);
    for group in &census.groups {
        assert_eq!(group.len(), 6);
        let labelled = group.iter().filter(|id| id.index().unwrap() % 2 == 0);
        assert_eq!(labelled.count(), 3);
    }
}
