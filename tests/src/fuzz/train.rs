//! The target for training jobs.

use std::sync::OnceLock;

use undertone::job::Record;
use undertone::label::Params;
use undertone::party::Network;
use undertone::train::{Job, Report, Sampling, State};

use super::payloads::{replacing, with_server};
use crate::train::{Member, Small, World, data, job};

const CLIENTS: usize = 5;

/// Replaces a message of a session of a training job by any payload: of a census, of a round on
/// labels, or of a round with label propagation, with groups or with free sampling. Some inputs are
/// instead read as the server's state.
pub fn train(bytes: &[u8]) {
    let [which, payload @ ..] = bytes else {
        return;
    };
    let sampling = match which & 2 {
        0 => Sampling::Groups(5),
        _ => Sampling::Free,
    };
    let job = small(sampling);
    let nth = usize::from(which >> 2) & 15;
    let (begun, records) = census(sampling);
    let mut state = match which >> 6 {
        0 => State::new(begun.model.clone()),
        3 => return codecs(payload, &job),
        _ => begun.clone(),
    };
    let record = |record: &Record| match &state.census {
        None => Record::simulated(),
        Some(_) => record.copied().expect("a record in memory"),
    };
    let clients = records.iter().map(record).enumerate();
    let clients = clients
        .map(|(place, record)| client(place, record))
        .collect();
    // Round 1 is on labels alone, round 2 has label propagation.
    state.begun = u32::from(which >> 7);
    let mut world = World::of(job, clients, state.model.clone());
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

fn client(place: usize, record: Record) -> Member {
    let data = data(4, 2 * usize::from(place != 1), place as u8);
    Member::new(Box::new(Small::new(0)), data, record)
}

/// The server's state after a census, and each client's record.
type Begun = (State, Vec<Record>);

fn census(sampling: Sampling) -> &'static Begun {
    static BEGUN: [OnceLock<Begun>; 2] = [OnceLock::new(), OnceLock::new()];
    BEGUN[usize::from(sampling == Sampling::Free)].get_or_init(|| {
        let records: Vec<Record> = (0..CLIENTS).map(|_| Record::simulated()).collect();
        let clients = records.iter().cloned().enumerate();
        let clients = clients
            .map(|(place, record)| client(place, record))
            .collect();
        let model = crate::train::first();
        let mut world = World::of(small(sampling), clients, model);
        let all = world.all();
        let run = world.run(Network::new(), &all);
        run.server.expect("a census");
        (world.state, records)
    })
}

/// Reads `bytes` as a state. What is read is the same when written again.
fn codecs(bytes: &[u8], job: &Job) {
    if let Ok(state) = State::read(bytes, job) {
        assert_eq!(state.write(), bytes);
    }
}
