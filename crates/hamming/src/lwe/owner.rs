//! The key owner of `lwe` online.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use undertone_kernel::{Wiped, pack};
use undertone_lwe::{Headers, KeyOwner};
use undertone_party::{Abort, PartyId};
use undertone_setup::seal::{Broadcast, Channel, SealError};

use super::client::{Own, Shared, malformed, opened};
use super::{AHEAD_BYTES, Column, Pair, key_tiles, parities, rounds};

/// The messages of keys. All evaluators get the same.
pub(super) struct Keys<'a> {
    owner: &'a KeyOwner,
    seal: Broadcast,
    evaluators: usize,
    kept: Mutex<Kept>,
}

/// What is kept of messages of keys.
struct Kept {
    /// The columns of the first messages.
    columns: Vec<Option<Wiped<u64>>>,
    /// Sealed messages, and how many evaluators still need them. [`AHEAD_BYTES`] at most.
    sealed: Vec<Option<(Vec<u8>, usize)>>,
    bytes: usize,
}

impl<'a> Keys<'a> {
    pub(super) fn new(
        owner: &'a KeyOwner,
        ahead: Vec<Wiped<u64>>,
        seal: Broadcast,
        evaluators: usize,
    ) -> Self {
        Self {
            owner,
            seal,
            evaluators,
            kept: Mutex::new(Kept {
                columns: ahead.into_iter().map(Some).collect(),
                sealed: Vec::new(),
                bytes: 0,
            }),
        }
    }

    /// Message `number`, with the keys of `rows`. It is computed again if it was not kept: the same
    /// bytes.
    fn message(&self, own: &Own, number: usize, rows: Range<usize>) -> Result<Vec<u8>, SealError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = kept.sealed.get_mut(number)
            && let Some((sealed, left)) = place
        {
            *left -= 1;
            if *left > 0 {
                return Ok(sealed.clone());
            }
            let sealed = std::mem::take(sealed);
            *place = None;
            kept.bytes -= sealed.len();
            return Ok(sealed);
        }
        let ahead = kept.columns.get_mut(number).and_then(Option::take);
        let columns = ahead.unwrap_or_else(|| self.owner.columns(&own.matrix, rows.clone()));
        let keys = self.owner.keys(&columns, &own.codes, rows);
        let sealed = self.seal.seal(number as u64, &keys)?;
        // Only the first evaluator that asks has the message kept for the others.
        if kept.sealed.len() <= number {
            kept.sealed.resize_with(number + 1, || None);
            if self.evaluators > 1 && kept.bytes + sealed.len() <= AHEAD_BYTES {
                kept.bytes += sealed.len();
                kept.sealed[number] = Some((sealed.clone(), self.evaluators - 1));
            }
        }
        Ok(sealed)
    }
}

/// Steps 1 and 5: sends one evaluator the keys of each block when it asks for them, and decrypts
/// its answers.
pub(super) async fn serve(
    own: &Own,
    shared: &Shared,
    keys: &Keys<'_>,
    evaluator: (PartyId, usize),
    mut channel: Channel,
) -> Result<(), Abort> {
    let (params, from) = (own.params, evaluator.0);
    let pair = Pair {
        params,
        rows: evaluator.1,
        owned: own.me.1,
    };
    let mut parities_due = true;
    let mut sent = 0;
    for (number, round) in rounds(params, &own.clients, evaluator)
        .into_iter()
        .enumerate()
    {
        let mine = round.into_iter().find(|column| column.owner == own.me.0);
        let Some(Column { rows, .. }) = mine else {
            continue;
        };
        for rows in key_tiles(params, rows.clone()) {
            if !shared.asked(from, &mut channel).await? {
                return Ok(());
            }
            shared.send(from, keys.message(own, sent, rows))?;
            sent += 1;
        }
        let headers_seal = own.broadcast("lwe headers", from, &[number as u32]);
        for (at, tile) in pair.tiles().enumerate() {
            let Some(sealed) = shared.io.recv(from).await else {
                return Ok(());
            };
            let headers = opened(from, headers_seal.open(at as u64, &sealed))?;
            let due = tile.len() * params.header_len();
            // LWE-5
            if headers.len() != due {
                return Err(malformed(from, "headers", headers.len(), due));
            }
            let Some(sealed) = shared.io.recv(from).await else {
                return Ok(());
            };
            let mut answers = opened(from, channel.open(&sealed))?;
            let each = pair.answer_len(rows.len());
            let due = tile.len() * each + usize::from(parities_due);
            // LWE-6
            if answers.len() != due {
                return Err(malformed(from, "answers", answers.len(), due));
            }
            if parities_due {
                let bit = answers.pop().unwrap_or(0);
                // LWE-7
                if bit > 1 {
                    return Err(Abort::Malformed {
                        from,
                        what: "a masking bit that is neither 0 nor 1".into(),
                    });
                }
                shared.part(from, &parities(&own.weights, bit))?;
                parities_due = false;
            }
            let mut values = vec![0; tile.len() * rows.len()];
            for (values, bytes) in values
                .chunks_exact_mut(rows.len())
                .zip(answers.chunks_exact(each))
            {
                pack::unpack_words(params.v, bytes, values);
            }
            let weights = &own.weights[rows.clone()];
            let headers = Headers::new(params, &headers);
            let masked = keys.owner.open(&headers, &values, rows.clone(), weights);
            let mut packed =
                Wiped::with_capacity(pack::packed_len(params.width(), masked.len()) + pack::SLACK);
            pack::pack(params.width(), &masked, &mut packed);
            shared.part(from, &packed)?;
            shared.ask(from, &mut channel)?;
            shared.io.pause().await;
        }
    }
    Ok(())
}
