//! The evaluator of `lwe` online.

use std::collections::BTreeMap;

use undertone_kernel::Wiped;
use undertone_lwe::{Columns, Evaluator, KeyError, Masks, SEED};
use undertone_party::{Abort, PartyId};
use undertone_setup::seal::{Broadcast, Channel};

use super::client::{Own, Shared, malformed, opened};
use super::{Column, WINDOW, key_tiles, parities, rank, rounds};

/// Steps 2 to 4: answers the keys of all key owners, round by round.
pub(super) async fn evaluate(
    own: &Own,
    shared: &Shared,
    mut ends: BTreeMap<PartyId, Channel>,
) -> Result<(), Abort> {
    let params = own.params;
    let rows_of = |id: PartyId| own.clients.iter().find(|client| client.0 == id);
    let masks = |owner: PartyId| {
        let ids = [own.me.0.to_wire(), owner.to_wire()];
        let seed = own.secret.derive(own.session, "lwe masks", &ids);
        let rows = rows_of(owner).map_or(0, |client| client.1);
        Masks::new(params, own.suite, seed, rows)
    };
    let bit = |owner: PartyId| {
        let seed = own
            .secret
            .derive(own.session, "lwe bit", &[owner.to_wire()]);
        seed.expose()[0] & 1
    };
    for owner in ends.keys() {
        let mut text = Wiped::with_capacity(SEED + own.weights.len().div_ceil(8));
        text.extend_from_slice(masks(*owner).seed().expose());
        text.extend_from_slice(&parities(&own.weights, bit(*owner)));
        shared.part(*owner, &text)?;
    }
    let seed = own.secret.derive(own.session, "lwe rows", &[]);
    let mut evaluator = Evaluator::new(params, own.session, own.suite, seed);
    // The seals of keys, and the numbers of the next messages under them.
    let mut keys: BTreeMap<PartyId, (Broadcast, u64)> = ends
        .keys()
        .map(|id| (*id, (own.broadcast("lwe keys", *id, &[]), 0)))
        .collect();
    let mut parities_due: Vec<PartyId> = ends.keys().copied().collect();
    for (number, round) in rounds(params, &own.clients, own.me).into_iter().enumerate() {
        let count = round.iter().map(|column| column.rows.len()).sum();
        let mut columns = Columns::new(params, count);
        for Column { owner, rows, .. } in &round {
            columns.part(masks(*owner), rows.start);
            let tiles: Vec<_> = key_tiles(params, rows.clone()).collect();
            if let Some(channel) = ends.get_mut(owner) {
                for _ in tiles.iter().take(WINDOW) {
                    shared.ask(*owner, channel)?;
                }
            }
            for (at, tile) in tiles.iter().enumerate() {
                let (Some(channel), Some((seal, count))) =
                    (ends.get_mut(owner), keys.get_mut(owner))
                else {
                    break;
                };
                let Some(sealed) = shared.io.recv_ranked(*owner, rank::OWNER).await else {
                    ends.remove(owner);
                    break;
                };
                let text = opened(*owner, seal.open(*count, &sealed))?;
                *count += 1;
                if at + WINDOW < tiles.len() {
                    shared.ask(*owner, channel)?;
                }
                let due = tile.len() * params.key_len();
                // LWE-3
                if text.len() != due {
                    return Err(malformed(*owner, "keys", text.len(), due));
                }
                // LWE-4
                columns
                    .push(&text)
                    .map_err(|error| refused(*owner, &round, &error))?;
            }
        }
        let headers_seal = own.broadcast("lwe headers", own.me.0, &[number as u32]);
        let mut hint = evaluator.hint(columns);
        let mut sent = 0;
        while round.iter().any(|column| ends.contains_key(&column.owner))
            && let Some(tile) = hint.next(&own.matrix, &own.codes)
        {
            if sent >= WINDOW {
                asked(shared, &round, &mut ends).await?;
            }
            let owners = round.iter().map(|column| column.owner);
            let owners: Vec<PartyId> = owners.filter(|owner| ends.contains_key(owner)).collect();
            shared.send_to_all(&owners, headers_seal.seal(sent as u64, &tile.headers))?;
            sent += 1;
            for (Column { owner, .. }, mut answers) in round.iter().zip(tile.answers) {
                let Some(channel) = ends.get_mut(owner) else {
                    continue;
                };
                if let Some(at) = parities_due.iter().position(|due| due == owner) {
                    parities_due.swap_remove(at);
                    answers.push(bit(*owner));
                }
                shared.send(*owner, channel.seal(&answers))?;
            }
            shared.io.pause().await;
        }
        // So that nothing is on its way when the next round begins.
        for _ in 0..sent.min(WINDOW) {
            asked(shared, &round, &mut ends).await?;
        }
    }
    Ok(())
}

/// Waits until all key owners of a round ask for their next tile. Those that dropped out leave
/// `ends`.
async fn asked(
    shared: &Shared,
    round: &[Column],
    ends: &mut BTreeMap<PartyId, Channel>,
) -> Result<(), Abort> {
    for Column { owner, .. } in round {
        if let Some(channel) = ends.get_mut(owner)
            && !shared.asked(*owner, rank::OWNER, channel).await?
        {
            ends.remove(owner);
        }
    }
    Ok(())
}

/// The abort for keys of `from` that a round refuses.
fn refused(from: PartyId, round: &[Column], error: &KeyError) -> Abort {
    let fault = error.to_string();
    let KeyError::Repeated { part } = error else {
        return Abort::Malformed { from, what: fault };
    };
    match round.get(*part).map(|column| column.owner) {
        // Either may have copied the other's key.
        Some(other) if other != from => Abort::Contradicted {
            first: from.min(other),
            second: from.max(other),
            fault,
        },
        _ => Abort::cheated(from, fault),
    }
}
