//! The target for training jobs.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use undertone::party::Network;
use undertone::training::{Client, Job, Memory, Report, Sampling, State};
use undertone::xclp::Params;

use super::payloads::{replacing, with_server};
use crate::training::{Small, World, data, job};

const CLIENTS: usize = 5;

/// Replaces a message of a session of a training job by any payload: of a census, of a round on
/// labels, or of a round with label propagation, with groups or with free sampling. Some inputs are
/// instead read as a client's memory and as the server's state.
pub fn training(bytes: &[u8]) {
    let [which, payload @ ..] = bytes else {
        return;
    };
    let sampling = match which & 2 {
        0 => Sampling::Groups(5),
        _ => Sampling::Free,
    };
    let job = small(sampling);
    let nth = usize::from(which >> 2) & 15;
    let (begun, memories) = census(sampling);
    let (mut state, memories): (State, Vec<Option<Memory>>) = match which >> 6 {
        0 => (State::new(begun.model.clone()), vec![None; CLIENTS]),
        3 => return codecs(payload, &job),
        _ => (
            begun.clone(),
            memories.iter().map(|m| Memory::read(m).ok()).collect(),
        ),
    };
    // Round 1 is on labels alone, round 2 has label propagation.
    state.begun = u32::from(which >> 7);
    let clients = memories.into_iter().enumerate();
    let clients = clients.map(|(place, memory)| client(place, memory, |_| ()));
    let mut world = World::of(job, clients.collect(), state.model.clone());
    world.state = state;
    let all = world.all();
    let run = world.run(replacing(with_server(*which), nth, payload), &all);
    match run.server {
        Ok(Report::Trained(round)) => {
            assert!(round.model.iter().all(|value| value.is_finite()));
            assert!(round.taken.contributors.len() >= 3);
            if sampling == Sampling::Groups(5) {
                assert_eq!(round.taken.contributors, all);
            }
        }
        Ok(Report::Counted(census)) => {
            let due = match sampling {
                Sampling::Groups(_) => census.clients.len(),
                Sampling::Free => 0,
            };
            assert_eq!(census.groups.concat().len(), due);
        }
        Ok(Report::Over) => panic!("rounds are left"),
        Err(_) => {}
    }
}

/// A small job of five clients.
pub fn small(sampling: Sampling) -> Job {
    Job {
        label_rounds: 1,
        rounds: 1,
        epochs: 1,
        sampling,
        propagation: Params {
            bits: 32,
            neighbours: 2,
            ..job().propagation
        },
        ..job()
    }
}

fn client(
    place: usize,
    memory: Option<Memory>,
    heard: impl Fn(&Memory) + Send + 'static,
) -> Client {
    let data = data(4, 2 * usize::from(place != 1), place as u8);
    let keep = move |memory: &Memory| {
        heard(memory);
        Ok(())
    };
    Client::new(Box::new(Small::new(0)), data, memory, Box::new(keep))
}

/// The server's state after a census, and each client's memory.
type Begun = (State, Vec<Vec<u8>>);

fn census(sampling: Sampling) -> &'static Begun {
    static BEGUN: [OnceLock<Begun>; 2] = [OnceLock::new(), OnceLock::new()];
    BEGUN[usize::from(sampling == Sampling::Free)].get_or_init(|| {
        let kept = Arc::new(Mutex::new(vec![Vec::new(); CLIENTS]));
        let one = |place: usize| {
            let kept = Arc::clone(&kept);
            client(place, None, move |memory| {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept[place] = memory.write();
            })
        };
        let clients = (0..CLIENTS).map(one).collect();
        let model = crate::training::first();
        let mut world = World::of(small(sampling), clients, model);
        let all = world.all();
        let run = world.run(Network::new(), &all);
        run.server.expect("a census");
        let kept = kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (world.state, kept)
    })
}

/// Reads `bytes` as each type. What is read is the same when written again.
fn codecs(bytes: &[u8], job: &Job) {
    if let Ok(memory) = Memory::read(bytes) {
        assert_eq!(memory.write(), bytes);
    }
    if let Ok(state) = State::read(bytes, job) {
        assert_eq!(state.write(), bytes);
    }
}
