//! What is the same for all jobs: a client takes part, and says what it cost.

use std::path::Path;

use serde::Serialize;
use undertone::job::{Agreed, Participant, Record};
use undertone::node::client::{Config, JoinError, Joined, join};
use undertone::party::PartyId;
use undertone_lab::output::Output;
use undertone_lab::report::{PhaseCost, phase_costs};
use undertone_lab::{Failure, interrupt};

use super::super::block_on;

/// The end of the JSON object of `join`.
#[derive(Debug, Serialize)]
pub(super) struct Costs {
    sessions: u32,
    connections_lost: u32,
    seconds: f64,
    socket_received: u64,
    socket_sent: u64,
    phases: Vec<PhaseCost>,
}

impl Costs {
    pub(super) fn of(joined: &Joined) -> Self {
        let me = (PartyId::client(0), joined.ledger.clone());
        let mut phases = phase_costs(&[me], None);
        phases.iter_mut().for_each(|cost| cost.party = "me".into());
        Self {
            sessions: joined.sessions,
            connections_lost: joined.returned,
            seconds: joined.time.as_secs_f64(),
            socket_received: joined.socket.0,
            socket_sent: joined.socket.1,
            phases,
        }
    }
}

/// Takes part in a job, until it ends, the user interrupts it, or the record refuses an answer.
pub(super) fn take_part(
    config: &Config,
    participant: &mut Agreed<impl Participant>,
    record: &Record,
) -> Result<Joined, Failure> {
    let mut joined = Joined::default();
    let ended = block_on(Box::pin(async {
        let stop = interrupt::requested();
        joined = join(config, participant, stop).await.map_err(failure)?;
        Ok(())
    }));
    // Peers read less.
    let refused = |failure| record.refused().map_or(failure, Failure::declined);
    ended.map_err(refused)?;
    Ok(joined)
}

fn failure(error: JoinError) -> Failure {
    let code = match error {
        JoinError::Config(_) => 2,
        JoinError::Unreachable { .. } => 69,
        JoinError::Untrusted { .. } | JoinError::Refused(_) | JoinError::Declined(_) => 77,
        JoinError::Stopped => interrupt::EXIT_CODE,
        _ => 70,
    };
    let failure = Failure::new(code, &error);
    match &error {
        JoinError::Declined(decline) => match decline.term() {
            None => failure,
            Some(term) => Failure {
                message: format!(
                    "{}; --accept {term}=VALUE states another term",
                    failure.message
                ),
                ..failure
            },
        },
        _ => failure,
    }
}

/// The file `out`, which must replace none of `inputs`.
pub(super) fn own_output(out: &Path, inputs: &[&Path]) -> Result<Output, Failure> {
    let file = Output::create_own(out)?;
    if inputs.iter().any(|input| file.is(input)) {
        return Err(Failure::usage(format!(
            "{} is an input; name another file",
            out.display()
        )));
    }
    Ok(file)
}
