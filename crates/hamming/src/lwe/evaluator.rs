//! The evaluator of `lwe` online.

use std::collections::BTreeMap;
use std::ops::Range;

use undertone_kernel::Wiped;
use undertone_lwe::{Evaluator, Pads, SEED};
use undertone_party::{Abort, PartyId};
use undertone_setup::seal::{Broadcast, Channel};

use super::own::{Own, Shared, malformed, opened};
use super::{BYTES_AHEAD, Column, TILES_AHEAD, key_frame, key_tiles, parities, rank, rounds};

/// Steps 1 and 3 to 5: answers the keys of all key owners, round by round.
pub(super) async fn evaluate(
    own: &Own,
    shared: &Shared,
    mut ends: BTreeMap<PartyId, Channel>,
) -> Result<(), Abort> {
    let params = own.params;
    for (owner, channel) in &mut ends {
        let mut text = Wiped::with_capacity(SEED + 1);
        text.extend_from_slice(pads(own, *owner).seed().expose());
        text.push(bit(own, *owner));
        shared.send(*owner, channel.seal(&text))?;
    }
    let (suite, codes) = (own.suite, &own.codes);
    let mut evaluator = Evaluator::new(&own.matrix, own.session, suite, &own.secret, codes);
    // The seals of keys, and the numbers of the next messages under them.
    let mut keys: BTreeMap<PartyId, (Broadcast, u64)> = ends
        .keys()
        .map(|id| (*id, (own.broadcast("lwe keys", *id, &[]), 0)))
        .collect();
    let mut parities_due: Vec<PartyId> = ends.keys().copied().collect();
    for (number, round) in rounds(params, &own.clients, own.me).into_iter().enumerate() {
        let count = round.iter().map(|column| column.rows.len()).sum();
        let mut columns = evaluator.columns(count);
        let due: Vec<Message<'_>> = round
            .iter()
            .flat_map(|column| {
                key_tiles(params, column.rows.clone()).map(move |tile| (column, tile))
            })
            .collect();
        let mut next = 0;
        for (at, (Column { owner, rows, .. }, tile)) in due.iter().enumerate() {
            next = ask_ahead(own, shared, &mut ends, &due, at..next.max(at))?;
            if tile.start == rows.start {
                columns.part(*owner, rows.start, pads(own, *owner));
            }
            let Some((seal, count)) = keys.get_mut(owner).filter(|_| ends.contains_key(owner))
            else {
                continue;
            };
            let Some(sealed) = shared.io.recv_ranked(*owner, rank::OWNER).await else {
                ends.remove(owner);
                continue;
            };
            let text = opened(*owner, seal.open(*count, &sealed))?;
            *count += 1;
            let due = tile.len() * params.key_len();
            // LWE-3
            if text.len() != due {
                return Err(malformed(*owner, "keys", text.len(), due));
            }
            columns.push(&text).map_err(|error| Abort::Malformed {
                from: *owner,
                what: error.to_string(),
            })?;
        }
        let headers_seal = own.broadcast("lwe headers", own.me.0, &[number as u32]);
        let mut hint = evaluator.hint(columns);
        let mut sent = 0;
        while round.iter().any(|column| ends.contains_key(&column.owner))
            && let Some(tile) = hint.next()
        {
            if sent >= TILES_AHEAD {
                asked(shared, &round, &mut ends).await?;
            }
            for (Column { owner, .. }, answers) in round.iter().zip(tile.answers) {
                if !ends.contains_key(owner) {
                    continue;
                }
                match parities_due.iter().position(|due| due == owner) {
                    Some(at) => {
                        parities_due.swap_remove(at);
                        let parities = parities(&own.weights, bit(own, *owner));
                        shared.part(*owner, &[parities, answers].concat())?;
                    }
                    None => shared.part(*owner, &answers)?,
                }
            }
            let owners = round.iter().map(|column| column.owner);
            let owners: Vec<PartyId> = owners.filter(|owner| ends.contains_key(owner)).collect();
            shared.send_to_all(&owners, headers_seal.seal(sent as u64, &tile.headers))?;
            sent += 1;
            shared.io.pause().await;
        }
        // So that nothing is on its way when the next round begins.
        for _ in 0..sent.min(TILES_AHEAD) {
            asked(shared, &round, &mut ends).await?;
        }
    }
    Ok(())
}

/// A message of keys: the rows of it, in a block.
type Message<'a> = (&'a Column, Range<usize>);

/// Asks for the messages of keys after those in `asked`, in order, as long as few bytes are on
/// their way. None of `asked` has come yet. Returns how many have been asked for.
fn ask_ahead(
    own: &Own,
    shared: &Shared,
    ends: &mut BTreeMap<PartyId, Channel>,
    due: &[Message<'_>],
    asked: Range<usize>,
) -> Result<usize, Abort> {
    let bytes = |(_, tile): &Message<'_>| key_frame(own.params, tile.len());
    let coming = due[asked.clone()].iter();
    let coming = coming.filter(|(column, _)| ends.contains_key(&column.owner));
    let mut ahead: usize = coming.map(bytes).sum();
    let mut next = asked.end;
    while let Some(message) = due.get(next) {
        if let Some(channel) = ends.get_mut(&message.0.owner) {
            ahead += bytes(message);
            if ahead > BYTES_AHEAD {
                break;
            }
            shared.ask(message.0.owner, channel)?;
        }
        next += 1;
    }
    Ok(next)
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

/// The pads with `owner`, which are those of this session.
fn pads(own: &Own, owner: PartyId) -> Pads {
    let ids = [owner.to_wire()];
    own.pads(own.secret.derive(own.session, "lwe pads", &ids))
}

/// The bit that masks the parities of the pair with `owner`.
fn bit(own: &Own, owner: PartyId) -> u8 {
    let ids = [owner.to_wire()];
    own.secret.derive(own.session, "lwe bit", &ids).expose()[0] & 1
}
