//! Rounds whose clients contribute in fixed groups, whole or not at all.

use std::sync::Arc;

use proptest::prelude::*;
use undertone::arrays::Arrays;
use undertone::job::simulation::SimulationError;
use undertone::job::{Agreed, Record};
use undertone::party::{Abort, Network, PartyId};
use undertone::rounds::{CONTRIBUTION, Client, Job, Kept, ROUND, Sampling, Terms};
use undertone::sum::{self, SamplingTerms, Trust};
use undertone_tests::chooser;
use undertone_tests::network::Means;
use undertone_tests::rounds::{Member, assert_mean, assert_same, due, members, reported, run};

const SERVER: PartyId = PartyId::SERVER;

/// Three groups of six: clients 0 to 5, 6 to 11 and 12 to 17.
fn kit() -> Means {
    Means {
        clients: 18,
        rounds: 2,
        values: 40,
    }
}

fn job(kit: &Means) -> Job {
    Job {
        sampling: Sampling::default(),
        ..kit.job(5)
    }
}

/// The mean is that of all clients if client 2 has uploaded, and of the other groups otherwise. The
/// others of its group are told so. They contribute to the next round.
#[test]
fn a_group_waits_for_the_next_round_when_one_of_its_clients_leaves() {
    let kit = kit();
    let all: Vec<usize> = (0..18).collect();
    for trust in [Trust::SemiHonest, Trust::MaliciousServer] {
        let job = Job { trust, ..job(&kit) };
        let phases = [ROUND, CONTRIBUTION, sum::KEYS, sum::SHARES, sum::UPLOAD];
        let (hello, uploaded) = (3, phases.len());
        for (after, order) in (0..=uploaded + 1).zip(0..) {
            let members = members(&kit);
            let network = Network::new()
                .leave(PartyId::client(2), after)
                .choose(chooser(order));
            let first = run(job, &Arc::<Kept>::default(), &members, network);
            if trust == Trust::MaliciousServer && after < hello {
                // SUM-4: of 18 keys that the clients know, 17 must be on the roster.
                let Err(SimulationError::Aborted(aborted)) = first else {
                    panic!("{first:?}");
                };
                assert!(matches!(aborted.cause, Abort::TooFew { .. }), "{aborted}");
                continue;
            }
            let first = first.unwrap();
            let is_in = after >= uploaded;
            let who = if is_in { &all[..] } else { &all[6..] };
            let finishing = who.iter().copied().filter(|index| *index != 2);
            assert_mean(&first, &due(&job, &kit, 1, who), finishing);
            for index in (0..6).filter(|index| !is_in && *index != 2) {
                let aborted = first.clients[index].as_ref().unwrap_err();
                assert_eq!(aborted.cause, Abort::Left { who: SERVER });
            }
            let network = Network::new().choose(chooser(order));
            let second = run(job, &first.kept, &members, network).unwrap();
            assert_mean(&second, &due(&job, &kit, 2, &all), 0..18);
        }
    }
}

/// With other arrays than its group a client keeps its group from contributing.
#[test]
fn a_group_with_other_arrays_does_not_contribute() {
    let kit = kit();
    let job = job(&kit);
    let mut members = members(&kit);
    let other = move |_: &_| {
        Ok(undertone::rounds::Contribution {
            arrays: Arrays::from(vec![1.0; 3]),
            weight: 1.0,
        })
    };
    members[7] = Member::new(other, true);
    let run = run(job, &Arc::<Kept>::default(), &members, Network::new()).unwrap();
    let who: Vec<usize> = (0..6).chain(12..18).collect();
    assert_mean(&run, &due(&job, &kit, 1, &who), who.iter().copied());
    let aborted = run.clients[7].as_ref().unwrap_err().to_string();
    assert!(
        aborted.contains("arrays are not those of the round"),
        "{aborted}"
    );
}

/// ROUND-11: with less than ten clients there is one group, and nobody can be absent. The only
/// round of a job has no groups.
#[test]
fn the_only_group_needs_all_of_its_clients() {
    let kit = Means {
        clients: 9,
        ..kit()
    };
    let away = || Network::new().leave(PartyId::client(4), 1);
    for rounds in [1, 2] {
        let job = Job {
            rounds,
            ..job(&kit)
        };
        let outcome = run(job, &Arc::<Kept>::default(), &members(&kit), away());
        if rounds == 1 {
            let run = outcome.unwrap();
            assert_same(
                reported(&run),
                &due(&job, &kit, 1, &[0, 1, 2, 3, 5, 6, 7, 8]),
            );
        } else {
            let Err(SimulationError::Aborted(aborted)) = outcome else {
                panic!("{outcome:?}");
            };
            assert_eq!(aborted.cause, Abort::TooFew { left: 0, need: 5 });
        }
    }
}

/// ROUND-21: a client that asks for groups declines a job of several rounds without them, and one
/// of smaller groups. The only round of a job has no groups.
#[test]
fn jobs_that_draw_freely_are_declined() {
    for (rounds, groups, asked, why) in [
        (2, None, Some(5), Some("the job draws clients freely")),
        (2, Some(5), Some(6), Some("groups of 5 clients")),
        (2, Some(6), Some(6), None),
        (2, None, None, None),
        (1, None, Some(5), None),
    ] {
        let kit = Means { rounds, ..kit() };
        let job = Job {
            sampling: groups.map_or(Sampling::Free, Sampling::Groups),
            ..kit.job(3)
        };
        let groups = |groups_at_least| SamplingTerms {
            groups_at_least,
            allow_free_sampling: false,
        };
        let terms = Terms {
            sampling: asked.map_or(SamplingTerms::anything(), groups),
            ..Means::terms()
        };
        let client = Client::new(terms, super::round_cheaters::Unasked);
        let mut client = Agreed::new(client, Record::simulated());
        let declined = client.agree_to(job, false).err();
        let told = declined.as_ref().map(|declined| declined.told());
        assert_eq!(told.is_some(), why.is_some(), "{told:?}");
        assert!(told.unwrap_or_default().contains(why.unwrap_or_default()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Whoever leaves, and whenever: the contributors are whole groups, and the mean is theirs.
    #[test]
    fn contributors_are_whole_groups(
        clients in 10usize..24, order: u64, malicious: bool,
        leavers in prop::collection::btree_map(0usize..24, 0usize..7, 0..4),
    ) {
        let kit = Means { clients, rounds: 2, values: 7 };
        let trust = if malicious { Trust::MaliciousServer } else { Trust::SemiHonest };
        let job = Job { trust, ..job(&kit) };
        let mut network = Network::new().choose(chooser(order));
        for (index, after) in &leavers {
            network = network.leave(PartyId::client(*index), *after);
        }
        match run(job, &Arc::<Kept>::default(), &members(&kit), network) {
            Ok(run) => {
                let contributors = &reported(&run).contributors;
                prop_assert!(job.fixed_groups().unwrap().are_whole(contributors));
                let who: Vec<usize> = contributors.iter().filter_map(|id| id.index()).collect();
                let stays = who.iter().copied().filter(|index| !leavers.contains_key(index));
                assert_mean(&run, &due(&job, &kit, 1, &who), stays);
            }
            Err(SimulationError::Aborted(aborted)) => {
                prop_assert!(!leavers.is_empty(), "{}", aborted);
                let few = matches!(
                    aborted.cause,
                    Abort::TooFew { .. } | Abort::TooFewHolders { .. }
                );
                prop_assert!(few, "{}", aborted);
            }
            Err(stalled) => return Err(TestCaseError::fail(stalled.to_string())),
        }
    }
}
