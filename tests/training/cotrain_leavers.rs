//! Co-training whose clients drop out, and whose messages arrive in any order. Every label is that
//! of a count in the clear over the contributors of the row's slice.

use undertone::cotrain::{Consensus, Labels, Noise, Report, Step, Terms, Votes};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Abort, Network, PartyId};
use undertone::sum::Trust;
use undertone_tests::chooser;
use undertone_tests::cotrain::{Session, World, label, votes};

const LEAVER: PartyId = PartyId::client(2);
const ROWS: usize = 130;
const CLASSES: usize = 5;
const QUORUM: Consensus = Consensus::Qualified(600_000);

/// The frames of a client of `winners` when it has sent its contributions to the setup, its masked
/// words, and word that it is ready.
const IN: usize = 3;
const MASKED: usize = 6;
const READY: usize = 8;
/// The same, and the sum of the empty plan.
const CLOSED: usize = 12;

fn given() -> Vec<Vec<u16>> {
    votes(ROWS, CLASSES, 5, 0.5, 7)
}

fn world(kind: Votes, consensus: Consensus) -> World {
    // With clear votes and counts two contributors would be a quorum of all.
    let terms = Terms {
        allow_unanimous: true,
        ..Terms::default()
    };
    World::under(&terms, &given(), CLASSES, |job| {
        job.votes = kind;
        job.consensus = consensus;
        job.min_clients = 2;
    })
}

/// The consensus of rows whose votes `contributors` have given: all clients that are not in the
/// list of `without` for the row. None if the row is lost.
fn due(world: &World, votes: &[Vec<u16>], without: impl Fn(usize) -> Option<Vec<usize>>) -> Labels {
    let row = |row| {
        let without = without(row)?;
        let others = votes.iter().enumerate();
        let others = others.filter(|(client, _)| !without.contains(client));
        let votes: Vec<u16> = others.map(|(_, votes)| votes[row]).collect();
        label(&world.job, &votes)
    };
    (0..world.job.rows).map(row).collect()
}

/// The number of frames that `who` sends in an exchange from which nobody drops out.
fn frames(world: &mut World, who: PartyId) -> usize {
    let mut count = 0;
    let network = Network::new().intercept(|from, _, _| count += usize::from(from == who));
    let all = world.all();
    let run = world.run(network, &all);
    assert!(run.server.is_ok() && run.clients.values().all(Result::is_ok));
    count
}

/// The number of rows that have lost their helper, and the number of contributors.
fn lost(run: &Session) -> (usize, usize) {
    match &run.server {
        Ok(Report::Voted(exchange, labels)) => {
            assert_eq!(exchange.covered, labels.iter().flatten().count());
            (exchange.lost, exchange.contributors.len())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_that_leaves_after_any_frame() {
    for consensus in [Consensus::Majority, QUORUM] {
        for kind in Votes::ALL {
            let all = frames(&mut world(kind, consensus), LEAVER);
            let least = match kind {
                Votes::Clear => 1,
                Votes::Counts => 5,
                Votes::Winners => READY + 4,
            };
            assert!(all >= least, "{all} frames");
            for frames in 0..=all {
                let mut world = world(kind, consensus);
                let members = world.all();
                let run = world.run(Network::new().leave(LEAVER, frames), &members);
                let others: Vec<PartyId> = members.into_iter().filter(|id| *id != LEAVER).collect();
                let labels = run.labels(&others);
                let slices = world.slices(5, if frames < IN { 4 } else { 5 });
                let without = |row: usize| match kind {
                    Votes::Clear => Some(vec![2; usize::from(frames < 1)]),
                    Votes::Counts => Some(vec![2; usize::from(frames < 4)]),
                    Votes::Winners if frames < MASKED => Some(vec![2]),
                    // Its slice goes to the next client, and is summed again without it.
                    Votes::Winners if slices[row] != 2 => Some(vec![]),
                    Votes::Winners if frames < READY => Some(vec![2]),
                    Votes::Winners => (frames == all).then(Vec::new),
                };
                let due = due(&world, &given(), without);
                assert_eq!(
                    *labels, due,
                    "{kind}, {consensus}, {frames} of {all} frames"
                );
                let rows = (0..ROWS).filter(|row| without(*row).is_none()).count();
                let counted = match kind {
                    Votes::Clear => 4 + usize::from(frames >= 1),
                    Votes::Counts => 4 + usize::from(frames >= 4),
                    Votes::Winners => 4 + usize::from(frames >= MASKED),
                };
                assert_eq!(lost(&run), (rows, counted), "{kind}, {frames} frames");
                // It takes part in the next exchange.
                if frames % 4 == 3 {
                    let all = world.all();
                    world.state.settled = false;
                    let run = world.run(Network::new(), &all);
                    let due = all_due(&world);
                    assert_eq!(*run.labels(&all), due);
                }
            }
        }
    }
}

/// The consensus of all votes.
fn all_due(world: &World) -> Labels {
    due(world, &given(), |_| Some(vec![]))
}

/// Client 2 is no longer there when its slice is summed. Client 3 takes it over, and drops out as
/// well: client 4 takes it over. Client 3 was ready for its own slice, which is lost.
#[test]
fn a_slice_whose_helpers_leave_one_after_another() {
    let votes = votes(ROWS, CLASSES, 7, 0.5, 8);
    let world = || {
        World::voting(&votes, CLASSES, |job| {
            job.consensus = QUORUM;
            job.min_clients = 3;
        })
    };
    for frames in READY + 1..READY + 6 {
        let mut world = world();
        let all = world.all();
        let network = Network::new()
            .leave(LEAVER, IN)
            .leave(PartyId::client(3), frames);
        let run = world.run(network, &all);
        let others: Vec<PartyId> = [0, 1, 4, 5, 6].map(PartyId::client).into();
        let slices = world.slices(7, 7);
        // The slice of client 2 is summed a third time, without both.
        let due = due(&world, &votes, |row| match slices[row] {
            2 if frames < READY + 5 => Some(vec![2, 3]),
            3 => None,
            // It was ready a second time.
            2 => None,
            _ => Some(vec![2]),
        });
        assert_eq!(*run.labels(&others), due, "{frames} frames");
    }
}

/// Several helpers at once: neighbours, the last one, most of them.
#[test]
fn several_helpers_that_leave_together() {
    let votes = votes(ROWS, CLASSES, 7, 0.5, 9);
    for (leavers, frames) in [
        (vec![0, 1], IN),
        (vec![6], MASKED),
        (vec![5, 6], READY - 1),
        (vec![0, 2, 3, 6], MASKED),
        (vec![1, 4], READY),
        (vec![0, 1, 2, 3], READY + 2),
        (vec![0, 1, 2, 3], CLOSED + 2),
    ] {
        for trust in [Trust::SemiHonest, Trust::MaliciousServer] {
            if trust == Trust::MaliciousServer && leavers.len() > 1 && frames < CLOSED {
                // More than a malicious server's sum of seven clients can do without.
                continue;
            }
            let mut world = World::voting(&votes, CLASSES, |job| job.trust = trust);
            // Signatures are a frame more, after the masked words of a sum.
            let sums = usize::from(frames > MASKED) + usize::from(frames > CLOSED);
            let more = if trust == Trust::MaliciousServer {
                sums
            } else {
                0
            };
            if trust == Trust::MaliciousServer {
                world = world.pinned();
            }
            let all = world.all();
            let mut network = Network::new();
            for who in &leavers {
                network = network.leave(PartyId::client(*who), frames + more);
            }
            let run = world.run(network, &all);
            if leavers.len() > 2 && frames < CLOSED {
                // Fewer are left than can unmask the sum.
                assert!(run.server.is_err());
                continue;
            }
            let others = (0..7).filter(|who| !leavers.contains(who));
            let others: Vec<PartyId> = others.map(PartyId::client).collect();
            let slices = world.slices(7, 7);
            let due = due(&world, &votes, |row| {
                let is_theirs = leavers.contains(&slices[row]);
                match frames {
                    frames if frames < MASKED => Some(leavers.clone()),
                    frames if frames < READY && is_theirs => Some(leavers.clone()),
                    _ if frames >= READY && is_theirs => None,
                    _ => Some(vec![]),
                }
            });
            assert_eq!(*run.labels(&others), due, "{leavers:?}, {frames} frames");
        }
    }
}

/// With too few clients the exchange fails at every party. It is over, and the next one succeeds.
#[test]
fn too_few_clients_end_an_exchange() {
    for kind in Votes::ALL {
        for frames in 0..READY {
            let mut world = world(kind, Consensus::Majority);
            world.job.min_clients = 4;
            let members = world.all();
            let network = Network::new()
                .leave(LEAVER, frames)
                .leave(PartyId::client(4), frames);
            let run = world.run(network, &members);
            let is_counted = match kind {
                Votes::Clear => frames >= 1,
                Votes::Counts => frames >= 4,
                Votes::Winners => false,
            };
            if is_counted {
                assert!(run.server.is_ok(), "{kind}, {frames} frames");
                continue;
            }
            let error = run.server.as_ref().unwrap_err();
            let is_few =
                |cause: &Abort| matches!(cause, Abort::TooFew { .. } | Abort::TooFewHolders { .. });
            assert!(is_few(&error.cause), "{kind}, {frames} frames: {error}");
            assert!(run.clients.values().all(Result::is_err));
            assert_eq!((world.state.begun, &world.state.labels), (1, &None));
            if frames % 3 == 0 {
                let all = world.all();
                let run = world.run(Network::new(), &all);
                assert_eq!(*run.labels(&all), all_due(&world));
                assert!(matches!(
                    run.clients[&LEAVER],
                    Ok(Step::Voted { number: 2, .. })
                ));
            }
        }
    }
}

/// A server that leaves ends all clients.
#[test]
fn a_server_that_leaves_ends_all() {
    for kind in Votes::ALL {
        let server = PartyId::SERVER;
        let all = frames(&mut world(kind, Consensus::Majority), server);
        for frames in (0..all).step_by(13) {
            let mut world = world(kind, Consensus::Majority);
            let members = world.all();
            let run = world.run(Network::new().leave(server, frames), &members);
            let is_late = frames + 5 > all;
            let failed = run.clients.values().filter(|step| step.is_err()).count();
            assert!(
                failed > 0 && (is_late || failed == 5),
                "{kind}, {frames} frames"
            );
        }
    }
}

/// Any order of messages gives the same labels, also if a client drops out, and with noise.
#[test]
fn any_order_gives_the_same_labels() {
    for kind in Votes::ALL {
        for noise in [Noise::None, Noise::Krr { epsilon: 1.0 }] {
            for leaves in [None, Some(4), Some(MASKED + 1), Some(READY + 2)] {
                let run = |order: Option<u64>| {
                    let mut world = world(kind, QUORUM);
                    world.job.noise = noise;
                    let mut network = Network::new();
                    if let Some(frames) = leaves {
                        network = network.leave(LEAVER, frames);
                    }
                    if let Some(order) = order {
                        network = network.choose(chooser(order));
                    }
                    let members = world.all();
                    let run = world.run(network, &members);
                    let others = members.into_iter().filter(|id| *id != LEAVER);
                    run.labels(&others.collect::<Vec<_>>()).clone()
                };
                let straight = run(None);
                for order in 0..1 {
                    assert_eq!(run(Some(order)), straight, "{kind}, {noise}, {leaves:?}");
                }
            }
        }
    }
}

/// Once tables of a slice have gone out, no client gets a plan: a slice is never summed twice then.
#[test]
fn no_slice_is_summed_after_its_circuits_began() {
    for frames in 0..READY + 5 {
        let mut world = world(Votes::Winners, Consensus::Majority);
        let all = world.all();
        let mut phases = Vec::new();
        let network = Network::new()
            .leave(LEAVER, frames)
            .intercept(|_, _, frame| {
                if frame[3] == 0 && frame.len() >= HEADER_LEN {
                    phases.push(frame[4]);
                }
            });
        assert!(world.run(network, &all).server.is_ok());
        let first = phases.iter().position(|phase| *phase == 19).unwrap();
        let late = &phases[first..];
        assert!(
            late.iter().all(|phase| [19, 20, 22].contains(phase)),
            "{late:?}"
        );
        // Plans are of phase 22: those that were on their way to other clients are empty.
        assert!(late.iter().filter(|phase| **phase == 22).count() <= 5);
    }
}
