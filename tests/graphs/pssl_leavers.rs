//! Pairwise graphs whose clients drop out, and whose messages arrive in any order.

use undertone::party::{Abort, Network, PartyId};
use undertone::pssl::{Outcome, clear};
use undertone_tests::pssl::{Session, World};
use undertone_tests::{chooser, points};

const SERVER: PartyId = PartyId::SERVER;
const ROUNDS: u32 = 3;

fn world(clients: usize) -> World {
    World::new(clients, |job| job.rounds = ROUNDS)
}

/// The number of frames that `who` sends in a run from which nobody drops out.
fn frames(world: &World, who: PartyId) -> usize {
    let mut count = 0;
    let run = world.run(Network::new().intercept(|from, _, _| count += usize::from(from == who)));
    assert!(run.server.is_ok() && run.clients.values().all(Result::is_ok));
    count
}

fn others(world: &World, leaver: PartyId) -> Vec<PartyId> {
    let all = world.all().into_iter();
    all.filter(|who| *who != leaver).collect()
}

fn outcomes<'a>(run: &'a Session, clients: &[PartyId]) -> Vec<&'a Outcome> {
    let outcome = |who| run.clients[who].as_ref().unwrap();
    clients.iter().map(outcome).collect()
}

/// Whether the clients have the scores of a run in the clear.
fn is_clear(outcomes: &[&Outcome], clear: &[Vec<f64>]) -> bool {
    let close = |(outcome, clear): (&&Outcome, &Vec<f64>)| {
        let mut pairs = outcome.scores.iter().zip(clear);
        pairs.all(|(secure, clear)| (secure - clear).abs() < 1e-9)
    };
    outcomes.iter().zip(clear).all(close)
}

/// The clients that stay have their edges to each other.
fn assert_edges(outcomes: &[&Outcome], clear: &clear::Outcome, leaver: PartyId) {
    for (outcome, clear) in outcomes.iter().zip(&clear.edges) {
        let edges = outcome.edges.iter().filter(|(peer, _)| *peer != leaver);
        assert_eq!(edges.cloned().collect::<Vec<_>>(), *clear);
    }
}

/// The others have the scores of a run without the leaver, or those of a run that it left after
/// some round. The later it leaves, the more rounds it was in.
#[test]
fn a_client_that_leaves_after_any_frame() {
    let world = world(4);
    for leaver in [0, 2, 3].map(PartyId::client) {
        let stay = others(&world, leaver);
        let without = world.clear(&stay);
        let mut with = world.clear(&world.all()).scores;
        with.remove(leaver.index().unwrap());
        let all = frames(&world, leaver);
        let mut seen: Vec<Vec<Vec<f64>>> = Vec::new();
        let rounds = all.saturating_sub(20);
        // Every fourth frame before the last rounds.
        for frames in points(rounds.div_ceil(4))
            .map(|at| 4 * at)
            .chain(rounds..=all)
        {
            let run = world.run(Network::new().leave(leaver, frames));
            let outcomes = outcomes(&run, &stay);
            assert_edges(&outcomes, &without, leaver);
            let report = run.server.as_ref().unwrap();
            for outcome in &outcomes {
                assert_eq!(outcome.contributors, report.contributors, "{frames}");
            }
            let scores: Vec<_> = outcomes.iter().map(|o| o.scores.clone()).collect();
            let is_new = seen.last().is_none_or(|last| !is_clear(&outcomes, last));
            if is_new {
                let is_without = is_clear(&outcomes, &without.scores);
                assert_eq!(is_without, seen.is_empty(), "{frames} of {all} frames");
                seen.push(scores);
            }
            if report.contributors.contains(&leaver) {
                assert!(is_clear(&outcomes, &with), "{frames} of {all} frames");
            }
        }
        assert_eq!(seen.len(), ROUNDS as usize + 1);
    }
}

#[test]
fn two_clients_that_leave_together_or_one_after_the_other() {
    let world = world(5);
    let leavers = [PartyId::client(1), PartyId::client(4)];
    let stay: Vec<PartyId> = [0, 2, 3].map(PartyId::client).into();
    let without = world.clear(&stay);
    let least = leavers.map(|who| frames(&world, who)).into_iter().min();
    let least = least.unwrap();
    for (first, second) in [(0, 0), (1, 2), (3, 9), (20, 20), (30, 11), (least / 2, 40)] {
        let network = Network::new()
            .leave(leavers[0], first)
            .leave(leavers[1], second);
        let run = world.run(network);
        let outcomes = outcomes(&run, &stay);
        assert!(is_clear(&outcomes, &without.scores), "{first} {second}");
        for (outcome, clear) in outcomes.iter().zip(&without.edges) {
            let edges = outcome
                .edges
                .iter()
                .filter(|(peer, _)| !leavers.contains(peer));
            assert_eq!(edges.cloned().collect::<Vec<_>>(), *clear);
            assert_eq!(outcome.contributors, stay);
        }
    }
}

/// With fewer clients than the job asks for the run ends, at every party, and says so.
#[test]
fn too_few_clients_end_a_run() {
    let world = world(3);
    let leaver = PartyId::client(1);
    let all = frames(&world, leaver);
    let mut finished = 0;
    for frames in (0..all).step_by(2) {
        let run = world.run(Network::new().leave(leaver, frames));
        let Err(error) = &run.server else {
            // It has given all that the last sum needs of it.
            finished += 1;
            assert!(frames + 4 > all, "{frames} of {all} frames");
            continue;
        };
        let is_few =
            |cause: &Abort| matches!(cause, Abort::TooFew { .. } | Abort::TooFewHolders { .. });
        assert!(is_few(&error.cause), "{frames} of {all} frames: {error}");
        assert!(run.clients.values().all(Result::is_err), "{frames} frames");
    }
    assert!(finished <= 2);
}

#[test]
fn a_server_that_leaves_ends_all() {
    let world = world(3);
    let all = frames(&world, SERVER);
    for frames in 0..all {
        let run = world.run(Network::new().leave(SERVER, frames));
        let failed = run.clients.values().filter(|run| run.is_err()).count();
        assert!(failed > 0 && (failed == 3 || frames + 3 > all), "{frames}");
    }
}

/// Any order of messages gives the same result, also if a client drops out.
#[test]
fn any_order_gives_the_same_scores() {
    let world = world(4);
    let leaver = PartyId::client(2);
    let stay = others(&world, leaver);
    let all = frames(&world, leaver);
    for leaves in [None, Some(2), Some(25)] {
        let due = match leaves {
            None => world.clear(&world.all()),
            Some(_) => world.clear(&stay),
        };
        let clients = leaves.map_or_else(|| world.all(), |_| stay.clone());
        assert!(leaves.is_none_or(|frames| frames < all));
        for order in 0..6 {
            let mut network = Network::new().choose(chooser(order));
            if let Some(frames) = leaves {
                network = network.leave(leaver, frames);
            }
            let run = world.run(network);
            let outcomes = outcomes(&run, &clients);
            assert!(is_clear(&outcomes, &due.scores), "{leaves:?}, {order}");
        }
    }
}

#[test]
fn a_seed_fixes_the_transcript() {
    let transcript = || {
        let mut frames = Vec::new();
        let network =
            Network::new().intercept(|from, to, frame| frames.push((from, to, frame.clone())));
        assert!(world(3).run(network).server.is_ok());
        frames
    };
    assert!(transcript() == transcript());
}
