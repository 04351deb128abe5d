//! Graph networks over clients that drop out: the run ends for all, what was kept stays, and all
//! together continue it. Messages arrive in any order.

use std::collections::BTreeSet;

use undertone::fedgraph::{Checkpoint, Cut, Predict};
use undertone::job::Record;
use undertone::job::record::TOLD;
use undertone::party::{Abort, Network, PartyId};
use undertone_tests::chooser;
use undertone_tests::fedgraph::{Session, World};

const SERVER: PartyId = PartyId::SERVER;
const CLIENTS: usize = 4;
const CUTS: [Cut; 3] = [Cut::Embeddings, Cut::Server, Cut::Client];

/// A few steps with a checkpoint after each.
fn world(cut: Cut) -> World {
    World::new(CLIENTS, cut).with(|job| {
        (job.steps, job.every) = (4, 1);
        (job.predict, job.reveal_embeddings) = (Predict::Graph, true);
    })
}

fn run(world: &World, network: Network<'_>) -> Session {
    world.run(network).unwrap()
}

/// A run from which nobody drops out, and the number of frames that `who` sends in it.
fn whole(world: &World, who: PartyId) -> (Session, usize) {
    let mut count = 0;
    let network = Network::new().intercept(|from, _, _| count += usize::from(from == who));
    let session = run(world, network);
    assert!(session.server.is_ok() && session.clients.iter().all(Result::is_ok));
    (session, count)
}

/// The steps of which all parties have a checkpoint. With the cut `embeddings` clients have that of
/// the start only.
fn common(cut: Cut, session: &Session) -> BTreeSet<u32> {
    let steps = |place: usize| -> BTreeSet<u32> {
        let saved = session.saved[place].iter();
        saved.map(|saved| saved.step()).collect()
    };
    let clients = match cut {
        Cut::Embeddings => 1..1,
        _ => 1..CLIENTS + 1,
    };
    let own = steps(0);
    clients.fold(own, |common, place| &common & &steps(place))
}

fn is_same(a: &Session, b: &Session) {
    assert_eq!(a.server.as_ref().unwrap(), b.server.as_ref().unwrap());
    for (a, b) in a.clients.iter().zip(&b.clients) {
        assert_eq!(a.as_ref().unwrap(), b.as_ref().unwrap());
    }
    assert_eq!(a.saved, b.saved);
    assert_eq!(a.votes, b.votes);
}

/// Continues a run that ended early, with all of its clients. If a client had begun, it ends as
/// `whole` does; else it begins anew.
fn continues(world: &World, cut: Cut, ended: Session, whole: &Session) {
    for (kept, due) in ended.votes.iter().zip(&whole.votes) {
        assert!(kept.is_none() || kept == due);
    }
    let mut of_clients = ended.saved[1..].iter().flatten();
    let has_begun = of_clients.any(Checkpoint::is_begun);
    if has_begun {
        assert!(!common(cut, &ended).is_empty(), "{:?}", ended.saved);
    }
    let again = world.again(ended.saved, 9);
    let continued = run(&again, Network::new());
    assert_eq!(continued.votes, whole.votes);
    for (have, due) in continued.saved.iter().zip(&whole.saved) {
        assert_eq!(have[0].step(), due[0].step());
        assert_eq!(have[0] == due[0], has_begun);
    }
    for (have, due) in continued.clients.iter().zip(&whole.clients) {
        let (have, due) = (have.as_ref().unwrap(), due.as_ref().unwrap());
        assert_eq!(have.graph == due.graph, has_begun);
    }
}

/// The run ends at all parties and names the leaver, or says that there are too few.
#[test]
fn a_client_that_leaves_after_any_frame() {
    for cut in CUTS {
        let world = world(cut);
        for who in [0, 2].map(PartyId::client) {
            let (whole, frames) = whole(&world, who);
            for after in 0..frames {
                let session = run(&world, Network::new().leave(who, after));
                let why = &session.server.as_ref().unwrap_err().cause;
                let due = match after {
                    0 | 1 => Abort::TooFew { left: 3, need: 4 },
                    _ => Abort::Left { who },
                };
                assert_eq!(*why, due, "{cut}, {after} of {frames}");
                let others = session.clients.iter().enumerate();
                for (other, client) in others.filter(|(other, _)| PartyId::client(*other) != who) {
                    let why = &client.as_ref().unwrap_err().cause;
                    let is_clear = match why {
                        Abort::Left { who: left } => *left == who || *left == SERVER,
                        _ => false,
                    };
                    assert!(
                        is_clear,
                        "{cut}, {after} of {frames}, client {other}: {why}"
                    );
                }
                continues(&world, cut, session, &whole);
            }
            // It has given all that the others need.
            let session = run(&world, Network::new().leave(who, frames));
            assert_eq!(session.votes, whole.votes);
            continues(&world, cut, session, &whole);
        }
    }
}

#[test]
fn a_server_that_leaves_after_any_frame() {
    for cut in CUTS {
        let world = world(cut);
        let (whole, frames) = whole(&world, SERVER);
        for after in 0..frames {
            let session = run(&world, Network::new().leave(SERVER, after));
            let mut reasons = session.clients.iter().filter_map(|c| c.as_ref().err());
            let left = Abort::Left { who: SERVER };
            let count = reasons.clone().count();
            assert!(count > 0, "{cut}, {after} of {frames}");
            assert!(reasons.any(|why| why.cause == left), "{cut}, {after}");
            continues(&world, cut, session, &whole);
        }
    }
}

/// A run that breaks off again and again, also while it is behind where some clients were.
#[test]
fn a_run_that_breaks_off_again_and_again() {
    for cut in [Cut::Server, Cut::Client] {
        let world = world(cut);
        let (whole, frames) = whole(&world, PartyId::client(2));
        let (_, of_server) = self::whole(&world, SERVER);
        for first in (frames / 2..frames).step_by(2) {
            let network = Network::new().leave(PartyId::client(2), first);
            let mut saved = run(&world, network).saved;
            for (seed, after) in [(9, of_server / 3), (10, of_server / 2), (11, 23), (12, 31)] {
                let again = world.again(saved, seed);
                let session = run(&again, Network::new().leave(SERVER, after));
                assert!(!common(cut, &session).is_empty(), "{cut}, {first}, {after}");
                saved = session.saved;
            }
            let last = run(&world.again(saved, 13), Network::new());
            for (have, due) in last.saved.iter().zip(&whole.saved) {
                assert_eq!(have[0], due[0], "{cut}, {first}");
            }
        }
    }
}

/// The votes are there before the training begins, and stay when it breaks off.
#[test]
fn votes_that_were_kept_stay() {
    for cut in CUTS {
        let world = world(cut);
        let who = PartyId::client(3);
        let (whole, frames) = whole(&world, who);
        let kept = |after| {
            let session = run(&world, Network::new().leave(who, after));
            let kept = session.votes.iter().flatten().count();
            // Whatever is kept is whole.
            let mut votes = session.votes.into_iter().flatten();
            assert!(votes.all(|votes| Some(votes) == whole.votes[0]));
            kept
        };
        let counts: Vec<usize> = (0..=frames).map(kept).collect();
        assert!(counts.is_sorted(), "{cut}: {counts:?}");
        // Two frames of the setup, features for three clients and the server, words of the vote.
        assert_eq!(counts[..7], [0, 0, 0, 0, 0, 0, 0]);
        assert!(counts[7] >= 3, "{cut}: {counts:?}");
        assert_eq!(counts.last(), Some(&CLIENTS));
    }
}

/// Any order of messages gives the same results and checkpoints.
#[test]
fn any_order_gives_the_same_run() {
    for cut in CUTS {
        let world = world(cut);
        let (whole, frames) = whole(&world, PartyId::client(1));
        for order in 0..5 {
            let session = run(&world, Network::new().choose(chooser(order)));
            is_same(&session, &whole);
        }
        // Also of a run that breaks off: whoever is named, all can go on.
        for order in 0..5 {
            let after = 8 + (order as usize * 5) % (frames - 8);
            let network = Network::new().choose(chooser(order));
            let session = run(&world, network.leave(PartyId::client(1), after));
            let why = &session.server.as_ref().unwrap_err().cause;
            assert!(matches!(why, Abort::Left { .. }), "{cut}, {order}: {why}");
            continues(&world, cut, session, &whole);
        }
    }
}

#[test]
fn a_seed_fixes_the_transcript() {
    for cut in CUTS {
        let transcript = |seed: u8| {
            let mut frames = Vec::new();
            let network =
                Network::new().intercept(|from, to, frame| frames.push((from, to, frame.clone())));
            let world = world(cut).again(vec![Vec::new(); CLIENTS + 1], seed);
            assert!(run(&world, network).server.is_ok());
            frames
        };
        assert!(transcript(7) == transcript(7), "{cut}");
        assert!(transcript(7) != transcript(8), "{cut}");
    }
}

/// No client contributes to the training before all of them have a checkpoint.
#[test]
fn a_client_that_cannot_keep_its_first_checkpoint_holds_up_all() {
    for cut in CUTS {
        let world = world(cut);
        let (whole, frames) = whole(&world, PartyId::client(2));
        let has_begun = |session: &Session| {
            let of_clients = session.saved[1..].iter().flatten();
            of_clients.filter(|saved| saved.is_begun()).count()
        };
        assert!(has_begun(&whole) > 0);
        // Its frames up to the words of the vote. The next would say that it is ready.
        let session = run(&world, Network::new().leave(PartyId::client(2), 7));
        assert!(frames > 8 && has_begun(&session) == 0, "{cut}");
        let prepared = session.saved.iter().filter(|saved| !saved.is_empty());
        assert!(prepared.count() >= 3, "{cut}: {:?}", session.saved);
        // Nobody has contributed, so the client can be replaced.
        let mut other = world.again(session.saved.clone(), 9);
        other.ids[3] = PartyId::client(CLIENTS);
        other.saved[4].clear();
        assert!(run(&other, Network::new()).server.is_ok(), "{cut}");
        continues(&world, cut, session, &whole);
    }
}

/// RECORD-12: a run in which nobody has begun may begin anew. A run that has begun may not, also if
/// its checkpoints are lost.
#[test]
fn a_run_begins_anew_until_all_are_ready() {
    for cut in CUTS {
        let mut world = world(cut);
        world.records = (0..CLIENTS).map(|_| Record::simulated()).collect();
        let lost = || vec![Vec::new(); CLIENTS + 1];
        // Its frames up to the words of the vote. The next would say that it is ready.
        let session = run(&world, Network::new().leave(PartyId::client(2), 7));
        assert!(session.server.is_err(), "{cut}");
        assert!(
            run(&world.again(lost(), 9), Network::new()).server.is_ok(),
            "{cut}"
        );
        let session = run(&world.again(lost(), 10), Network::new());
        for client in session.clients {
            let aborted = client.unwrap_err();
            assert!(aborted.to_string().contains(TOLD), "{cut}: {aborted}");
        }
    }
}
