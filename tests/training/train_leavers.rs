//! Training jobs whose clients drop out, and whose messages arrive in any order.

use undertone::label::Variant;
use undertone::party::{Abort, Network, PartyId};
use undertone::train::{Job, PseudoLabels, Report, Sampling, State, Step};
use undertone_tests::chooser;
use undertone_tests::train::{Session, World, job};

const SERVER: PartyId = PartyId::SERVER;
const LEAVER: PartyId = PartyId::client(2);

/// A job that is never over in these tests.
fn long(sampling: Sampling, pseudo: PseudoLabels) -> Job {
    Job {
        label_rounds: 0,
        rounds: 1000,
        pseudo,
        sampling,
        ..job()
    }
}

/// The number of frames that `who` sends in the next session of `world`, which runs.
fn frames(world: &mut World, members: &[PartyId], who: PartyId) -> usize {
    let mut count = 0;
    let network = Network::new().intercept(|from, _, _| count += usize::from(from == who));
    let run = world.run(network, members);
    assert!(run.server.is_ok() && run.clients.values().all(Result::is_ok));
    count
}

fn contributors(run: &Session) -> Option<Vec<PartyId>> {
    match &run.server {
        Ok(Report::Trained(round)) => Some(round.taken.contributors.clone()),
        Ok(other) => panic!("{other:?}"),
        Err(_) => None,
    }
}

/// A client drops out of a census. Before its contribution to the seed the job begins without it.
/// After that nothing of the census is kept at the server, and it begins again.
#[test]
fn a_census_that_a_client_leaves() {
    for sampling in [Sampling::Groups(5), Sampling::Free] {
        let job = long(sampling, PseudoLabels::Joint);
        let mut world = World::new(job.clone(), 10);
        let (all, first) = (world.all(), world.state.clone());
        let last = frames(&mut world, &all, LEAVER);
        assert_eq!(last, if sampling == Sampling::Free { 7 } else { 3 });
        for frames in 0..=last {
            let mut world = World::new(job.clone(), 10);
            let run = world.run(Network::new().leave(LEAVER, frames), &all);
            let census = world.state.census.clone();
            if frames < 2 || frames == last {
                let due = if frames < 2 { 9 } else { 10 };
                assert_eq!(census.unwrap().clients.len(), due, "{frames} frames");
                let others = run.clients.iter().filter(|(who, _)| **who != LEAVER);
                assert!(
                    others
                        .into_iter()
                        .all(|(_, step)| *step == Ok(Step::Counted))
                );
            } else {
                assert!(run.server.is_err(), "{frames} frames");
                assert!(world.state == first);
                // The same clients count again, or those that are left, if they have not yet
                // helped to unmask counts.
                assert!(world.run(Network::new(), &all).server.is_ok());
            }
        }
    }
}

/// With groups a round that one client leaves is lost, at every frame before its masked update. The
/// model stays as it was, and rounds of other groups go on. Once all masked updates have come, the
/// others unmask them.
#[test]
fn a_round_of_a_group_that_a_client_leaves() {
    for pseudo in [PseudoLabels::None, PseudoLabels::Joint] {
        let mut world = World::begun(long(Sampling::Groups(5), pseudo), 10);
        let group = world.group_of(LEAVER);
        let other: Vec<PartyId> = world
            .groups()
            .iter()
            .find(|g| **g != group)
            .unwrap()
            .clone();
        let last = frames(&mut world, &group, LEAVER);
        assert!(last >= 5, "{last} frames");
        for frames in 0..=last {
            let before = world.state.clone();
            let run = world.run(Network::new().leave(LEAVER, frames), &group);
            if frames + 1 < last {
                assert_eq!(
                    contributors(&run),
                    None,
                    "{pseudo}, {frames} of {last} frames"
                );
                let survivors = run.clients.iter().filter(|(who, _)| **who != LEAVER);
                for (who, step) in survivors {
                    assert!(step.is_err(), "{who}, {frames} frames");
                }
                // Only the number of the round has changed.
                let number = before.begun + 1;
                assert!(
                    world.state
                        == State {
                            begun: number,
                            ..before
                        }
                );
            } else {
                assert_eq!(contributors(&run), Some(group.clone()), "{frames} frames");
            }
            if frames % 5 == 0 {
                let run = world.run(Network::new(), &other);
                assert_eq!(contributors(&run), Some(other.clone()));
            }
        }
        // The client that came and went takes part again.
        let run = world.run(Network::new(), &group);
        assert_eq!(contributors(&run), Some(group));
    }
}

/// With free sampling a round goes on without a client that drops out, whatever it has sent.
#[test]
fn a_free_round_that_a_client_leaves() {
    for pseudo in [PseudoLabels::None, PseudoLabels::Joint] {
        let mut world = World::begun(long(Sampling::Free, pseudo), 6);
        let members = world.all()[..5].to_vec();
        let last = frames(&mut world, &members, LEAVER);
        for frames in 0..=last {
            let before = world.state.model.clone();
            let run = world.run(Network::new().leave(LEAVER, frames), &members);
            let is_in = frames + 1 >= last;
            let due = members
                .iter()
                .copied()
                .filter(|who| is_in || *who != LEAVER);
            assert_eq!(
                contributors(&run),
                Some(due.collect()),
                "{pseudo}, {frames} frames"
            );
            for (who, step) in &run.clients {
                assert!(*who == LEAVER || step.is_ok(), "{who}, {frames} frames");
            }
            assert!(world.state.model != before);
        }
    }
}

/// With free sampling two of five clients may go, and not three.
#[test]
fn a_free_round_needs_its_fewest_clients() {
    let mut world = World::begun(long(Sampling::Free, PseudoLabels::Joint), 6);
    let members = world.all()[..5].to_vec();
    for count in [2, 3] {
        let mut network = Network::new();
        for who in &members[..count] {
            network = network.leave(*who, 1);
        }
        let run = world.run(network, &members);
        let left = contributors(&run).map(|left| left.len());
        assert_eq!(left, (count == 2).then_some(3));
        if count == 3 {
            let aborted = run.server.unwrap_err();
            assert_eq!(aborted.cause, Abort::TooFew { left: 2, need: 3 });
        }
    }
}

/// A server that drops out loses the round, and goes on with the next number.
#[test]
fn a_round_that_the_server_leaves() {
    let mut world = World::begun(long(Sampling::Groups(5), PseudoLabels::Joint), 5);
    let all = world.all();
    let last = frames(&mut world, &all, SERVER);
    for frames in (0..last).step_by(7) {
        let before = world.state.clone();
        let run = world.run(Network::new().leave(SERVER, frames), &all);
        assert!(run.server.is_err());
        assert!(run.clients.values().any(Result::is_err), "{frames} frames");
        assert_eq!(world.state.model, before.model);
        let run = world.run(Network::new(), &all);
        assert_eq!(contributors(&run), Some(all.clone()));
    }
}

/// Any order of delivery gives the same models and the same results of clients.
#[test]
fn any_order_gives_the_same_job() {
    for (pseudo, sampling, variant) in [
        (PseudoLabels::None, Sampling::Groups(5), Variant::Balanced),
        (PseudoLabels::Network, Sampling::Free, Variant::Balanced),
        (PseudoLabels::Local, Sampling::Groups(5), Variant::Balanced),
        (PseudoLabels::Joint, Sampling::Groups(5), Variant::Balanced),
        (PseudoLabels::Joint, Sampling::Groups(5), Variant::Paper),
        (PseudoLabels::Joint, Sampling::Free, Variant::Balanced),
    ] {
        let mut job = Job {
            label_rounds: 1,
            rounds: 2,
            pseudo,
            sampling,
            ..job()
        };
        job.propagation.variant = variant;
        let whole = |order: Option<u64>| {
            let mut world = World::new(job.clone(), 6);
            let all = world.all();
            let mut steps = Vec::new();
            for session in 0..5 {
                let network = match order {
                    Some(order) => Network::new().choose(chooser(10 * order + session)),
                    None => Network::new(),
                };
                let run = world.run(network, &all);
                assert!(run.server.is_ok());
                steps.push(run.clients);
            }
            assert!(steps.iter().flatten().all(|(_, step)| step.is_ok()));
            (world.state, steps)
        };
        let (straight, steps) = whole(None);
        assert_eq!(straight.taken.len(), 3);
        for order in 0..2 {
            let (shuffled, others) = whole(Some(order));
            assert!(straight == shuffled, "{job:?}");
            assert_eq!(steps, others);
        }
    }
}
