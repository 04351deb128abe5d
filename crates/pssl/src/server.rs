//! The server's script. It relays sealed messages, and adds up masked words.

use std::collections::VecDeque;

use undertone_kdf::Seed;
use undertone_party::{Abort, Io, Lockstep, PartyId, Script, SessionId};
use undertone_setup::group::{self, Secrecy};
use undertone_setup::roster::enough;
use undertone_sum as sum;

use crate::EDGES;
use crate::job::Job;
use crate::messages::Hello;

/// What the server has at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The clients, each with its number of rows.
    pub clients: Vec<(PartyId, usize)>,
    /// The clients whose scores are in the last round.
    pub contributors: Vec<PartyId>,
    /// Clients that revealed a false share of a secret in some round, or were dealt one.
    pub suspects: Vec<PartyId>,
}

/// The script of the server, with the invited clients `members`. `seed` is its randomness.
///
/// # Errors
/// [`Abort::Misuse`] when the job is impossible, or `members` repeats a client or names the server.
pub fn server(
    job: Job,
    session: SessionId,
    members: Vec<PartyId>,
    seed: Seed,
) -> Result<Script<'static, Report>, Abort> {
    job.check().map_err(Abort::Misuse)?;
    let members = undertone_setup::roster::invited(members)?;
    Ok(Script::new(group::PHASE, move |io| {
        run(io, job, session, members, seed)
    }))
}

async fn run(
    io: Io,
    job: Job,
    session: SessionId,
    members: Vec<PartyId>,
    seed: Seed,
) -> Result<Report, Abort> {
    let context = job.context(session);

    // docs/spec/pssl.md, step 1: the clients' pair channels.
    let rules = group::Rules {
        session: context,
        secrecy: Secrecy::Sealed,
        min_clients: job.min_clients,
    };
    let group = group::server(rules, members, seed.derive(context, "group", &[]))?;
    let group = io.run(group).await?;
    let slots = Hello::slots(&job, &group.members)?;

    // Step 7: who has all its edges.
    io.phase(EDGES).await;
    let mut present = Vec::new();
    let all: Vec<PartyId> = slots.keys().copied().collect();
    for (who, message) in io.recv_all(&all).await {
        let Some(message) = message else { continue };
        // PSSL-13.
        if !message.is_empty() {
            let what = "a message that is not empty after the edges".into();
            return Err(Abort::Malformed { from: who, what });
        }
        present.push(who);
    }
    enough(present.len(), job.min_clients)?;

    // Step 9: the sums of all rounds.
    let total = slots.values().map(|range| range.end).max().unwrap_or(0);
    let (mut suspects, mut made) = (Vec::new(), 0);
    let mut ahead = VecDeque::new();
    let mut first: Option<Vec<PartyId>> = None;
    for round in 0..job.rounds {
        let changed = first.as_ref().is_some_and(|first| *first != present);
        if ahead.is_empty() || changed {
            // Every client counts those of the last sum, or at first all of the setup.
            let clients = if round == 0 {
                slots.len()
            } else {
                present.len()
            };
            let numbers = made..made + Job::sums_at_once(clients, job.rounds - round);
            made = numbers.end;
            let owners: Vec<_> = present
                .iter()
                .map(|who| (*who, slots[who].clone()))
                .collect();
            let sum = |number| {
                let rules = job.sum(context, number, total);
                sum::server::<u64>(rules, owners.clone())
            };
            let sums = numbers.map(sum).collect::<Result<Vec<_>, Abort>>()?;
            ahead = io.run(Lockstep::new(sums, sum::UPLOAD)?).await?.into();
            first = None;
        }
        let none = || Abort::Internal("a sum without keys".into());
        let sums = io.run(ahead.pop_front().ok_or_else(none)?).await?;
        present = sums.contributors;
        first.get_or_insert_with(|| present.clone());
        suspects.extend(sums.suspects);
    }
    suspects.sort_unstable();
    suspects.dedup();
    Ok(Report {
        clients: slots
            .into_iter()
            .map(|(who, rows)| (who, rows.len()))
            .collect(),
        contributors: present,
        suspects,
    })
}
