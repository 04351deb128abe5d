//! The key owner of `lwe` online.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use undertone_kdf::Seed;
use undertone_kernel::Wiped;
use undertone_lwe::{KeyOwner, Pads, Place, SEED};
use undertone_party::{Abort, PartyId};
use undertone_setup::seal::{Broadcast, Channel};

use super::own::{Own, Shared, malformed, opened};
use super::{Column, Pair, key_messages, key_tiles, parities, rank, rounds};

/// The messages of keys. All evaluators get the same, at the same time.
pub(super) struct Keys<'a> {
    owner: KeyOwner<'a>,
    seal: Broadcast,
    /// The rows of each message.
    messages: Vec<Range<usize>>,
    state: Mutex<State>,
}

struct State {
    /// How many messages each evaluator has asked for. Those that dropped out are not among them.
    asked: BTreeMap<PartyId, usize>,
    /// The number of the next message.
    next: usize,
    /// Tasks that wait until the next message is sent.
    waiting: Vec<Waker>,
}

impl<'a> Keys<'a> {
    pub(super) fn new(
        own: &Own,
        owner: KeyOwner<'a>,
        evaluators: impl Iterator<Item = PartyId>,
    ) -> Self {
        Self {
            owner,
            seal: own.broadcast("lwe keys", own.me.0, &[]),
            messages: key_messages(own.params, own.me.1).collect(),
            state: Mutex::new(State {
                asked: evaluators.map(|id| (id, 0)).collect(),
                next: 0,
                waiting: Vec::new(),
            }),
        }
    }

    /// `evaluator` asks for one more message.
    fn asked(&self, shared: &Shared, evaluator: PartyId) -> Result<(), Abort> {
        let mut state = self.lock();
        if let Some(asked) = state.asked.get_mut(&evaluator) {
            *asked += 1;
        }
        self.send(shared, &mut state)
    }

    /// `evaluator` needs no further message: it has all, or has dropped out.
    fn leaves(&self, shared: &Shared, evaluator: PartyId) -> Result<(), Abort> {
        let mut state = self.lock();
        state.asked.remove(&evaluator);
        self.send(shared, &mut state)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the messages that all evaluators have asked for.
    fn send(&self, shared: &Shared, state: &mut State) -> Result<(), Abort> {
        while let Some(rows) = self.messages.get(state.next)
            && let Some(least) = state.asked.values().min()
            && *least > state.next
        {
            let keys = self.owner.keys(rows.clone());
            let sealed = self.seal.seal(state.next as u64, &keys);
            let evaluators: Vec<PartyId> = state.asked.keys().copied().collect();
            shared.send_to_all(&evaluators, sealed)?;
            state.next += 1;
            state.waiting.drain(..).for_each(Waker::wake);
        }
        Ok(())
    }

    /// Waits until `evaluator` has no question without an answer. Until then it owes nothing, and
    /// this client does not say that it waits for it. Its further questions wait on the link.
    async fn answered(&self, evaluator: PartyId) {
        let poll = |cx: &mut Context<'_>| {
            let mut state = self.lock();
            let asked = state.asked.get(&evaluator);
            if asked.is_none_or(|asked| *asked <= state.next) {
                return Poll::Ready(());
            }
            state.waiting.push(cx.waker().clone());
            Poll::Pending
        };
        poll_fn(poll).await;
    }

    /// Whether `evaluator` has asked for all messages.
    fn has_all(&self, evaluator: PartyId) -> bool {
        let asked = self.lock().asked.get(&evaluator).copied();
        asked == Some(self.messages.len())
    }
}

/// Steps 2 and 6: notes the questions of one evaluator for keys, and opens its headers for the
/// server.
pub(super) async fn serve(
    own: &Own,
    shared: &Shared,
    keys: &Keys<'_>,
    evaluator: (PartyId, usize),
    channel: Channel,
) -> Result<(), Abort> {
    answer(own, shared, keys, evaluator, channel).await?;
    keys.leaves(shared, evaluator.0)
}

/// Ends early if the evaluator drops out.
async fn answer(
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
    let Some(sealed) = shared.io.recv_ranked(from, rank::QUESTION).await else {
        return Ok(());
    };
    let (pads, bit) = start(own, from, opened(from, channel.open(&sealed))?)?;
    let mut parities_due = true;
    for (number, round) in rounds(params, &own.clients, evaluator)
        .into_iter()
        .enumerate()
    {
        let mut columns = (0u32..).zip(round);
        let mine = columns.find(|(_, column)| column.owner == own.me.0);
        let Some((column, Column { rows, .. })) = mine else {
            continue;
        };
        let place = Place {
            round: number as u32,
            column,
        };
        for _ in key_tiles(params, rows.clone()) {
            keys.answered(from).await;
            if !shared.asked(from, rank::QUESTION, &mut channel).await? {
                return Ok(());
            }
            keys.asked(shared, from)?;
        }
        keys.answered(from).await;
        let rank = if keys.has_all(from) {
            rank::EVALUATOR
        } else {
            rank::QUESTION
        };
        let block = keys.owner.block(rows);
        let headers_seal = own.broadcast("lwe headers", from, &[number as u32]);
        for (at, tile) in pair.tiles().enumerate() {
            let Some(sealed) = shared.io.recv_ranked(from, rank).await else {
                return Ok(());
            };
            let headers = opened(from, headers_seal.open(at as u64, &sealed))?;
            let due = tile.len() * params.header_len();
            // LWE-5
            if headers.len() != due {
                return Err(malformed(from, "headers", headers.len(), due));
            }
            let openings = keys
                .owner
                .open(&block, &pads, from, place, tile.start, &headers);
            if parities_due {
                let parities = parities(&own.weights, bit);
                shared.part(from, &[parities, openings].concat())?;
                parities_due = false;
            } else {
                shared.part(from, &openings)?;
            }
            shared.ask(from, &mut channel)?;
            shared.io.pause().await;
        }
    }
    Ok(())
}

/// Reads what an evaluator starts with: the seed of the pads and the bit of the pair.
fn start(own: &Own, from: PartyId, text: Vec<u8>) -> Result<(Pads, u8), Abort> {
    let text = Wiped::from(text);
    // LWE-17
    let Some((seed, [bit])) = text.split_first_chunk::<SEED>() else {
        return Err(malformed(from, "a start", text.len(), SEED + 1));
    };
    // LWE-7
    if *bit > 1 {
        return Err(Abort::Malformed {
            from,
            what: "a masking bit that is neither 0 nor 1".into(),
        });
    }
    Ok((own.pads(Seed::from_bytes(*seed)), *bit))
}
