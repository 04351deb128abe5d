//! The offline phase between the server and each client. They make trees before anybody has codes.
//! The client gets all leaves but those of its labels. The steps are those of
//! `docs/spec/labels.md`; [`transfers`](crate::transfers) takes them for one client.

use rayon::prelude::*;
use undertone_kdf::Seed;
use undertone_kernel::Wiped;
use undertone_party::{Abort, Io, PartyId, Payload, Reader, SessionId, Writer};

use crate::input::Labelling;
use crate::messages::Clients;
use crate::transfers::{Choosing, Grown, Heard, Punctured, Receiver, Setup, trees_per_message};

const SERVER: PartyId = PartyId::SERVER;

/// Number of clients that the server works on before it pauses.
const CLIENTS_PER_STEP: usize = 64;

/// The client's steps 4 and 5.
pub(crate) async fn choose(
    io: &Io,
    session: SessionId,
    me: PartyId,
    labelling: &Labelling,
    seed: Seed,
) -> Result<Choosing, Abort> {
    let mut labels = Wiped::with_capacity(labelling.rows());
    labels.extend(labelling.labels().iter().flatten());
    let offer = io.require(SERVER).await?;
    let (receiver, reply) = Receiver::new(session, me, &offer, seed)?;
    let mut w = Writer::default();
    w.u32(labels.len() as u32);
    w.raw(&reply);
    io.send(SERVER, w.finish());
    let (choosing, messages) = receiver.choose(labelling.classes(), labels)?;
    for message in messages {
        io.send(SERVER, message);
    }
    Ok(choosing)
}

/// The client's step 7, and what it receives in step 8.
pub(crate) async fn puncture(io: &Io, choosing: Choosing) -> Result<Punctured, Abort> {
    let len = choosing.challenges_len();
    let chosen = if len == 0 {
        choosing.prove(&[]).0
    } else {
        let challenges = io.require(SERVER).await?;
        due("challenges", &challenges, len)?; // LABEL-5
        let (chosen, proofs) = choosing.prove(&challenges);
        io.send(SERVER, proofs);
        chosen
    };
    let of_tree = chosen.message_len();
    let mut corrections = Vec::new();
    let mut left = if of_tree == 0 { 0 } else { chosen.len() };
    while left > 0 {
        let trees = left.min(trees_per_message(of_tree));
        let message = io.require(SERVER).await?;
        due("corrections of trees", &message, trees * of_tree)?; // LABEL-7
        corrections.extend_from_slice(&message);
        left -= trees;
    }
    Ok(chosen.finish(corrections))
}

fn due(what: &str, message: &[u8], len: usize) -> Result<(), Abort> {
    if message.len() == len {
        return Ok(());
    }
    Err(Abort::Malformed {
        from: SERVER,
        what: format!("{what} of {} bytes, {len} are due", message.len()),
    })
}

/// The server's side of all clients. A client that drops out meanwhile has no trees.
pub(crate) async fn grow(
    io: &Io,
    session: SessionId,
    clients: &Clients,
    seed: &Seed,
) -> Result<Vec<(PartyId, Option<Grown>)>, Abort> {
    let ids: Vec<PartyId> = clients.rows.iter().map(|(id, _)| *id).collect();

    // Step 3: points.
    let mut setups = Vec::with_capacity(ids.len());
    for ids in ids.chunks(CLIENTS_PER_STEP) {
        let begin = |id: &PartyId| {
            let own = seed.derive(session, "influence", &[id.to_wire()]);
            Setup::new(session, *id, own)
        };
        let begun: Vec<_> = ids.par_iter().map(begin).collect();
        for (id, (setup, offer)) in ids.iter().zip(begun) {
            setups.push(setup);
            io.send(*id, offer);
        }
        io.pause().await;
    }

    // Step 4: replies.
    let mut all: Vec<Option<Heard>> = Vec::with_capacity(ids.len());
    let mut setups = setups.into_iter();
    let heard = io.recv_all(&ids).await;
    for (heard, rows) in heard
        .chunks(CLIENTS_PER_STEP)
        .zip(clients.rows.chunks(CLIENTS_PER_STEP))
    {
        let rows = rows.iter().map(|(_, rows)| *rows);
        let some: Vec<(usize, Setup)> = rows.zip(setups.by_ref()).collect();
        type Replied<'a> = ((usize, Setup), &'a (PartyId, Option<Payload>));
        let finish = |((rows, setup), (id, reply)): Replied<'_>| {
            let reply = reply.as_ref();
            let begin = |reply| begin(*id, setup, reply, rows, clients.classes);
            reply.map(|reply| begin(reply)).transpose()
        };
        let some: Result<Vec<_>, Abort> = some.into_par_iter().zip(heard).map(finish).collect();
        all.extend(some?);
        io.pause().await;
    }

    // Step 5: corrections, batch by batch.
    loop {
        let is_due = |heard: &Option<Heard>| heard.as_ref().is_some_and(Heard::is_due);
        let due: Vec<usize> = (0..all.len()).filter(|at| is_due(&all[*at])).collect();
        if due.is_empty() {
            break;
        }
        let from: Vec<PartyId> = due.iter().map(|at| ids[*at]).collect();
        for (at, (_, message)) in due.iter().zip(io.recv_all(&from).await) {
            match (message, &mut all[*at]) {
                (Some(message), Some(heard)) => heard.take(&message)?,
                (_, gone) => *gone = None,
            }
        }
        io.pause().await;
    }

    // Step 6: challenges.
    let mut proving = Vec::new();
    for (id, heard) in ids.iter().zip(&all) {
        let challenges = heard.as_ref().map(Heard::challenges).unwrap_or_default();
        if !challenges.is_empty() {
            io.send(*id, challenges);
            proving.push(*id);
        }
    }

    // Steps 7 and 8: proofs and choices; trees and their corrections.
    let mut messages = io.recv_all(&proving).await.into_iter().peekable();
    let mut out = Vec::with_capacity(ids.len());
    let mut all = ids.into_iter().zip(all);
    loop {
        let some: Vec<_> = all.by_ref().take(CLIENTS_PER_STEP).collect();
        if some.is_empty() {
            return Ok(out);
        }
        let with_proof = some.into_iter().map(|(id, heard)| {
            let proof = messages.next_if(|(from, _)| *from == id);
            (id, heard, proof.map(|(_, message)| message))
        });
        let with_proof: Vec<_> = with_proof.collect();
        let grown: Result<Vec<_>, Abort> = with_proof.into_par_iter().map(check).collect();
        for (id, grown) in grown? {
            let grown = grown.map(|(grown, corrections)| {
                let of_tree = corrections.len() / grown.len().max(1);
                let per_message = (of_tree * trees_per_message(of_tree)).max(1);
                for message in corrections.chunks(per_message) {
                    io.send(id, message);
                }
                grown
            });
            out.push((id, grown));
        }
        io.pause().await;
    }
}

/// Step 4 of one client, which has `rows` rows.
fn begin(
    id: PartyId,
    setup: Setup,
    reply: &[u8],
    rows: usize,
    classes: usize,
) -> Result<Heard, Abort> {
    let malformed = Abort::malformed(id);
    let mut r = Reader::new(reply);
    let labelled = r.index(rows + 1, "labelled rows").map_err(&malformed)?; // LABEL-3
    let reply = r.raw(r.remaining(), "reply").map_err(&malformed)?;
    setup.finish(reply)?.begin(classes, labelled)
}

type Checked = (PartyId, Option<(Grown, Vec<u8>)>);

/// Steps 7 and 8 of one client. Without labelled rows it has nothing to prove.
fn check(
    (id, heard, proof): (PartyId, Option<Heard>, Option<Option<Payload>>),
) -> Result<Checked, Abort> {
    let message = match &proof {
        Some(None) => return Ok((id, None)),
        Some(Some(message)) => &message[..],
        None => &[],
    };
    let grown = heard.map(|heard| heard.check(message)).transpose()?;
    Ok((id, grown))
}
