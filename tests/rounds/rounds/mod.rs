//! Rounds of secure means and sums: with any order of delivery, clients that drop out, come back or
//! have other arrays, and failed attempts.

mod inputs;
mod runs;

use std::sync::Arc;

use undertone::arrays::Arrays;
use undertone::job::simulation::SimulationError;
use undertone::party::{Aborted, Ledger, Network, PartyId};
use undertone::rounds::{CONTRIBUTION, Contribution, Job, Kept, ROUND, Round};
use undertone::sum;
use undertone_tests::network::Means;
use undertone_tests::rounds::Run;
use undertone_tests::rounds::{Member, members, run};

const SERVER: PartyId = PartyId::SERVER;

fn kit() -> Means {
    Means {
        clients: 5,
        rounds: 3,
        values: 40,
    }
}

fn job(kit: &Means) -> Job {
    kit.job(3)
}

fn new() -> Arc<Kept> {
    Arc::default()
}

/// The error of a run that fails.
fn failure(run: Result<Run, SimulationError>) -> Aborted {
    match run {
        Err(SimulationError::Aborted(aborted)) => aborted,
        other => panic!("{other:?}"),
    }
}

fn messages(ledger: &Ledger) -> usize {
    ledger
        .phases()
        .map(|(_, cost)| cost.messages as usize)
        .sum()
}

/// The number of frames that a client sends up to the end of its upload, and in all, if nobody
/// drops out.
fn frames(job: Job, kit: &Means, kept: &Arc<Kept>, index: usize) -> (usize, usize) {
    let run = run(job, kept, &members(kit), Network::new()).unwrap();
    let ledger = &run.ledgers[index + 1].1;
    let through = [ROUND, CONTRIBUTION, sum::KEYS, sum::SHARES, sum::UPLOAD];
    let sent = |phase| ledger.phase(phase).map_or(0, |cost| cost.messages as usize);
    (through.map(sent).iter().sum(), messages(ledger))
}

fn constant(arrays: Arrays, weight: f64) -> Member {
    let give = move |_: &Round| {
        Ok(Contribution {
            arrays: arrays.clone(),
            weight,
        })
    };
    Member::new(give, true)
}

/// Spoils a round: the server drops out after `frames` frames.
fn spoilt(job: Job, members: &[Member], frames: usize) {
    let network = Network::new().leave(SERVER, frames);
    let run = run(job, &new(), members, network);
    assert!(run.is_err() || run.is_ok_and(|run| run.clients.iter().all(Result::is_err)));
}
