//! Secure sums equal clear sums: for any number of clients, graph, threshold, word, order of
//! delivery, and for clients that drop out at any point.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use proptest::prelude::*;
use undertone::job::record::{Claim, Claims, Of, Place, TOLD};
use undertone::job::simulation::SimulationError;
use undertone::job::testing::PowerCut;
use undertone::kdf::Seed;
use undertone::party::{Abort, Network, PartyId, SessionId};
use undertone::sum::{Audience, Groups, Rules, Suite, Trust, Wiring, Word, wiring};
use undertone_tests::chooser;
use undertone_tests::records::on_disk;
use undertone_tests::sums::{assert_clear, contributions, rules, simulation};

/// The number of frames of a client: hello, dealing, one tile of words, signature if any, answers.
fn frames(rules: &Rules) -> usize {
    match rules.trust {
        Trust::SemiHonest => 4,
        Trust::MaliciousServer => 5,
    }
}

/// Runs a sum with dropped clients, each with its number of sent frames. The sum must be the clear
/// one. Only when too few clients are left may it end, with a named error.
fn check<W: Word>(
    rules: Rules,
    rows: &[usize],
    leavers: &BTreeMap<usize, usize>,
    order: Option<u64>,
    seed: u8,
) -> Result<(), TestCaseError> {
    let clients = contributions::<W>(&rules, rows, seed);
    let mut network = Network::new();
    for (place, after) in leavers {
        network = network.leave(PartyId::client(*place), *after);
    }
    if let Some(order) = order {
        network = network.choose(chooser(order));
    }
    let degree = rules.wiring.degree(rules.trust, rows.len());
    match simulation(rules, clients.clone()).run_over(network) {
        Ok(run) => {
            // Exactly the clients that sent all words contribute, if their whole group did.
            let sent = |place: &usize| leavers.get(place).is_none_or(|after| *after >= 3);
            let mut due: Vec<PartyId> = (0..rows.len()).filter(sent).map(PartyId::client).collect();
            if let Some(groups) = rules.groups {
                due = groups.whole(&due);
            }
            prop_assert_eq!(&run.total.contributors, &due);
            let finishes = |place: &usize| {
                !leavers.contains_key(place) && due.contains(&PartyId::client(*place))
            };
            assert_clear(&rules, &clients, &run, (0..rows.len()).filter(finishes));
            prop_assert_eq!(run.total.suspects, vec![]);
        }
        Err(SimulationError::Aborted(aborted)) => {
            prop_assert!(!leavers.is_empty(), "{}", aborted);
            let few = matches!(aborted.cause, Abort::TooFew { .. } | Abort::TooFewHolders { .. })
                // SUM-5, SUM-7, SUM-15, SUM-21, SUM-28, or a smaller roster does not fit the fixed
                // neighbours and threshold.
                || matches!(aborted.cause, Abort::Misuse(_)) && degree.is_ok();
            prop_assert!(few, "{}", aborted);
        }
        Err(stalled) => return Err(TestCaseError::fail(stalled.to_string())),
    }
    Ok(())
}

fn wirings(clients: usize, trust: Trust) -> impl Strategy<Value = Wiring> {
    let fixed = (1..clients.div_ceil(2).max(2), 0.0f64..1.0).prop_map(move |(half, share)| {
        let neighbours = 2 * half;
        let holders = neighbours.min(clients - 1) + 1;
        let fewest = wiring::fewest_shares(trust, holders);
        let threshold = fewest + (share * (holders + 1 - fewest) as f64) as usize;
        Wiring::Fixed {
            neighbours,
            threshold: threshold.min(holders),
        }
    });
    prop_oneof![Just(Wiring::default()), fixed]
}

fn cases() -> impl Strategy<Value = (Vec<usize>, Trust, Wiring, BTreeMap<usize, usize>)> {
    let trust = prop_oneof![Just(Trust::SemiHonest), Just(Trust::MaliciousServer)];
    let rows = prop::collection::vec(0usize..4, 2..14);
    (rows, trust).prop_flat_map(|(rows, trust)| {
        let p = rows.len();
        let leavers = prop::collection::btree_map(0..p, 0usize..6, 0..p.div_ceil(2));
        (Just(rows), Just(trust), wirings(p, trust), leavers)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]
    #[test]
    fn secure_sums_are_clear_sums(
        (rows, trust, wiring, mut leavers) in cases(), width in 0usize..4, shared in 0usize..5,
        grouped in prop::option::of(1usize..6), order: Option<u64>, aes: bool, narrow: bool,
        for_server: bool, seed: u8,
    ) {
        let rules = Rules {
            wiring,
            trust,
            suite: if aes { Suite::Aes128Ctr } else { Suite::ChaCha20 },
            audience: if for_server { Audience::Server } else { Audience::Everybody },
            groups: grouped.map(|least| Groups::new(rows.len(), least)),
            ..rules(&rows, width, shared)
        };
        // After its last frame a client only listens.
        leavers.retain(|_, after| *after < frames(&rules));
        if narrow {
            check::<u32>(rules, &rows, &leavers, order, seed)?;
        } else {
            check::<u64>(rules, &rows, &leavers, order, seed)?;
        }
    }
}

/// One of five clients drops out at any point: the others finish.
#[test]
fn one_of_five_may_leave_at_any_point() {
    for trust in [Trust::SemiHonest, Trust::MaliciousServer] {
        let rows = [2, 0, 3, 1, 1];
        let rules = Rules {
            trust,
            ..rules(&rows, 2, 3)
        };
        for after in 0..frames(&rules) {
            let clients = contributions::<u64>(&rules, &rows, 1);
            let network = Network::new().leave(PartyId::client(2), after);
            let run = simulation(rules, clients.clone())
                .run_over(network)
                .unwrap();
            assert_clear(&rules, &clients, &run, [0, 1, 3, 4]);
            let contributes = run.total.contributors.contains(&PartyId::client(2));
            assert_eq!(contributes, after >= 3, "{trust:?} after {after}");
        }
    }
}

/// Ten of sixty clients on a sparse graph drop out, in all phases.
#[test]
fn a_sparse_graph_survives_leavers() {
    let rows = [1; 60];
    for trust in [Trust::SemiHonest, Trust::MaliciousServer] {
        let wiring = Wiring::For(wiring::Target {
            dropout: 0.2,
            failure_bits: 10,
            ..wiring::Target::default()
        });
        let rules = Rules {
            trust,
            wiring,
            ..rules(&rows, 3, 7)
        };
        let degree = wiring.degree(trust, 60).unwrap();
        assert!(degree.neighbours < 59, "{degree:?}");
        let leavers = (0..10).map(|i| (6 * i, i % frames(&rules))).collect();
        check::<u64>(rules, &rows, &leavers, Some(3), 9).unwrap();
        let clients = contributions::<u64>(&rules, &rows, 1);
        let mut network = Network::new();
        for (place, after) in leavers {
            network = network.leave(PartyId::client(place), after);
        }
        let run = simulation(rules, clients).run_over(network).unwrap();
        assert_eq!(
            run.total.contributors.len(),
            60 - if trust == Trust::SemiHonest { 8 } else { 6 }
        );
    }
}

#[test]
fn arrays_of_several_messages_and_a_leaver_between_them() {
    let rows = [70_000, 10, 30_000];
    for after in [None, Some(2), Some(3)] {
        let rules = rules(&rows, 2, 5);
        let clients = contributions::<u64>(&rules, &rows, 1);
        let mut network = Network::new();
        if let Some(after) = after {
            network = network.leave(PartyId::client(1), after);
        }
        let run = simulation(rules, clients.clone())
            .run_over(network)
            .unwrap();
        assert_clear(&rules, &clients, &run, [0, 2]);
        assert_eq!(
            run.total.contributors.len(),
            3 - usize::from(after.is_some())
        );
    }
}

/// Rows without an owner on the roster are not sent: no mask would hide them.
#[test]
fn rows_without_an_owner_stay_at_home() {
    let rows = [3, 4, 2, 5];
    let rules = rules(&rows, 3, 2);
    let mut clients = contributions::<u64>(&rules, &rows, 1);
    clients[1].own = 3..3;
    let run = simulation(rules, clients.clone())
        .run_over(Network::new())
        .unwrap();
    assert_clear(&rules, &clients, &run, 0..4);
    let upload = |place: usize| {
        let ledger = &run.ledgers[place + 1].1;
        ledger.phase(undertone::sum::UPLOAD).unwrap().bytes_sent
    };
    assert_eq!(upload(1), 64 + 8 * (10 * 3 + 2));
    assert_eq!(upload(3), 64 + 8 * (5 * 3 + 2));
}

/// SUM-13: a client that has sent its words before drops out, whatever process sent them.
#[test]
fn words_that_have_been_sent_are_not_sent_again() {
    let rows = [1, 2, 0, 1];
    let rules = rules(&rows, 2, 1);
    let mut clients = contributions::<u64>(&rules, &rows, 1);
    let disks: Vec<PowerCut> = rows.iter().map(|_| PowerCut::default()).collect();
    let session = |disk: &PowerCut, byte: u8| {
        on_disk(disk).session(&Place {
            session: SessionId([byte; 32]),
            seed: &Seed::from_bytes([byte; 32]),
            job: [0; 32],
        })
    };
    for (client, disk) in clients.iter_mut().zip(&disks) {
        let values = Of::Values(Arc::new(OnceLock::from([5; 32])));
        client.claims = Claims::Record(session(disk, 1), values);
    }
    session(&disks[1], 2).claim(Claim::Send([5; 32])).unwrap();
    let run = simulation(rules, clients.clone())
        .run_over(Network::new())
        .unwrap();
    let error = run.clients[1].as_ref().unwrap_err().to_string();
    assert!(error.contains(TOLD), "{error}");
    assert_clear(&rules, &clients, &run, [0, 2, 3]);
    for disk in &disks {
        assert!(on_disk(disk).was_sent(&[5; 32]).unwrap());
    }
}

// SUM-5.
#[test]
fn two_clients_only_where_they_are_allowed() {
    let rows = [1, 2];
    let rules = rules(&rows, 2, 1);
    let clients = contributions::<u64>(&rules, &rows, 1);
    let run = simulation(rules, clients.clone())
        .run_over(Network::new())
        .unwrap();
    assert_clear(&rules, &clients, &run, 0..2);
    let strict = Rules {
        min_clients: 3,
        ..rules
    };
    let clients = contributions::<u64>(&strict, &rows, 1);
    let error = simulation(strict, clients)
        .run_over(Network::new())
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("too few clients: 2 left, 3 needed"),
        "{error}"
    );
}
