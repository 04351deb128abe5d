//! The target for graph networks over clients.

use std::sync::OnceLock;

use undertone::fedgraph::{Checkpoint, Cut, Matrix, Outcome, Predict};
use undertone::party::{Network, PartyId, Script};
use undertone::setup::group;

use super::payloads::{replacing, with_server};
use crate::fedgraph::{CLASSES, QUERIES, World};

const CLIENTS: usize = 3;
const CUTS: [Cut; 3] = [Cut::Embeddings, Cut::Server, Cut::Client];

/// Replaces a message of a run by any payload: one between client 1 and the server, the features
/// that client 1 sends to client 0, or what client 1 says in the setup. Some inputs are instead
/// read as checkpoints. The first byte chooses the run, the second the message.
///
/// Whatever the payload is, parties end, and clients that finish have probabilities.
pub fn fedgraph(bytes: &[u8]) {
    let [how, which, payload @ ..] = bytes else {
        return;
    };
    let Some(cut) = CUTS.get(usize::from(how & 3)) else {
        return codecs(payload);
    };
    let world = if how & 4 == 0 {
        world(*cut)
    } else {
        begun(*cut)
    };
    let cheat = PartyId::client(1);
    let (network, hello) = match how >> 3 & 3 {
        0 | 1 => {
            let nth = usize::from(which >> 1);
            (replacing(with_server(*which), nth, payload), None)
        }
        2 => {
            let link = (cheat, PartyId::client(0));
            (replacing(link, 0, payload), None)
        }
        _ => (Network::new(), Some(payload)),
    };
    let instead = |who| {
        let hello = hello.filter(|_| who == cheat)?;
        Some(saying(&world, hello))
    };
    let run = world.run_with(network, None, instead);
    let run = run.expect("a job and checkpoints that fit");
    for outcome in run.clients.iter().flatten() {
        outcome.votes.as_ref().inspect(|votes| probable(votes));
        outcome.graph.as_ref().inspect(|votes| probable(votes));
    }
    for saved in run.saved.iter().flatten() {
        assert!(saved.weights().iter().all(|weight| weight.is_finite()));
        let again = Checkpoint::read(&saved.write());
        assert_eq!(again.as_ref(), Ok(saved));
    }
}

/// Values for all rows and classes. Who lies decides what they are.
fn probable(values: &Matrix) {
    assert_eq!((values.rows(), values.columns()), (QUERIES, CLASSES));
    assert!(values.values().iter().all(|value| value.is_finite()));
}

/// A client that says `hello` in the setup, and nothing else.
fn saying(world: &World, hello: &[u8]) -> Script<'static, Outcome> {
    let (me, hello) = (PartyId::client(1), hello.to_vec());
    let rules = world.group();
    let seed = world.party_seed(me);
    Script::new(group::PHASE, move |io| async move {
        let setup = group::client(rules, me, hello, None, seed)?;
        io.run(setup).await?;
        io.require(PartyId::SERVER).await?;
        Err(undertone::party::Abort::Internal("it says no more".into()))
    })
}

/// Three clients and two steps.
fn world(cut: Cut) -> World {
    World::new(CLIENTS, cut).with(|job| {
        (job.steps, job.every, job.cluster) = (2, 1, 30);
        (job.predict, job.reveal_embeddings) = (Predict::Graph, true);
    })
}

/// The same with the checkpoints of the start.
fn begun(cut: Cut) -> World {
    static SAVED: OnceLock<Vec<Vec<Vec<Checkpoint>>>> = OnceLock::new();
    let saved = SAVED.get_or_init(|| {
        let saved = |cut| {
            let run = world(cut).run(Network::new());
            let mut saved = run.expect("a job that fits").saved;
            // Step 1, or that of the start where there are no others.
            saved.iter_mut().for_each(|saved| {
                saved.drain(..saved.len() - 1);
            });
            saved
        };
        CUTS.map(saved).into()
    });
    let place = CUTS.iter().position(|own| *own == cut).unwrap_or_default();
    world(cut).again(saved[place].clone(), 8)
}

/// What can be read is written as it was.
fn codecs(bytes: &[u8]) {
    if let Ok(saved) = Checkpoint::read(bytes) {
        assert_eq!(saved.write(), bytes);
    }
    if let Ok(saved) = Checkpoint::read_all(bytes) {
        assert_eq!(Checkpoint::write_all(&saved), bytes);
        // Parties refuse checkpoints of other jobs and of other clients.
        let mut world = world(Cut::Client);
        world.saved[1] = saved;
        let is_anew = world.saved[1].is_empty();
        if let Ok(run) = world.run(Network::new()) {
            assert!(is_anew || run.server.is_err());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use undertone::party::frame::HEADER_LEN;

    /// Writes honest messages as seeds.
    #[test]
    #[ignore = "writes files"]
    fn seeds() {
        let folder = crate::root("fuzz/seeds/fedgraph");
        std::fs::create_dir_all(&folder).expect("a folder");
        let write = |how: u8, which: u8, payload: &[u8]| {
            let bytes = [&[how, which], payload].concat();
            let name = format!("{how:02x}{which:02x}");
            std::fs::write(folder.join(name), bytes).expect("a seed");
        };
        let cheat = PartyId::client(1);
        for (place, cut) in CUTS.into_iter().enumerate() {
            for how in [place as u8, place as u8 | 4] {
                let world = if how & 4 == 0 { world(cut) } else { begun(cut) };
                let mut seen = BTreeMap::new();
                let mut hello = Vec::new();
                let network = Network::new().intercept(|from, to, frame| {
                    let payload = &frame[HEADER_LEN..];
                    let side = match (from, to) {
                        (who, PartyId::SERVER) if who == cheat => 0,
                        (PartyId::SERVER, who) if who == cheat => 1,
                        (who, to) if who == cheat && to == PartyId::client(0) => {
                            write(how | 16, 0, payload);
                            return;
                        }
                        _ => return,
                    };
                    let nth: &mut u8 = seen.entry(side).or_default();
                    if (side, *nth) == (0, 0) {
                        hello = payload[33..payload.len() - 1].to_vec();
                    }
                    // Later steps are like the first.
                    if *nth < 12 {
                        write(how, *nth << 1 | side, payload);
                    }
                    *nth += 1;
                });
                let run = world.run(network).expect("a job that fits");
                assert!(run.server.is_ok());
                write(how | 24, 0, &hello);
                if how & 4 != 0 {
                    let saved = &world.saved[1];
                    write(3, 2 * place as u8, &saved[0].write());
                    write(3, 2 * place as u8 + 1, &Checkpoint::write_all(saved));
                }
            }
        }
    }
}
