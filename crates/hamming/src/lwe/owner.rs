//! The key owner of `lwe` online.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use undertone_kernel::{Wiped, pack};
use undertone_lwe::{Headers, KeyOwner};
use undertone_party::{Abort, PartyId};
use undertone_setup::seal::{Broadcast, Channel};

use super::client::{Own, Shared, malformed, opened};
use super::{Column, Pair, WINDOW, key_messages, key_tiles, parities, rank, rounds};

/// The messages of keys. All evaluators get the same, at the same time.
pub(super) struct Keys<'a> {
    owner: &'a KeyOwner,
    seal: Broadcast,
    /// The rows of each message.
    messages: Vec<Range<usize>>,
    state: Mutex<State>,
}

struct State {
    /// The columns of the first messages.
    ahead: VecDeque<Wiped<u64>>,
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
        owner: &'a KeyOwner,
        ahead: Vec<Wiped<u64>>,
        evaluators: impl Iterator<Item = PartyId>,
    ) -> Self {
        Self {
            owner,
            seal: own.broadcast("lwe keys", own.me.0, &[]),
            messages: key_messages(own.params, own.me.1).collect(),
            state: Mutex::new(State {
                ahead: ahead.into(),
                asked: evaluators.map(|id| (id, 0)).collect(),
                next: 0,
                waiting: Vec::new(),
            }),
        }
    }

    /// `evaluator` asks for one more message.
    fn asked(&self, own: &Own, shared: &Shared, evaluator: PartyId) -> Result<(), Abort> {
        let mut state = self.lock();
        if let Some(asked) = state.asked.get_mut(&evaluator) {
            *asked += 1;
        }
        self.send(own, shared, &mut state)
    }

    /// `evaluator` needs no further message: it has all, or has dropped out.
    fn leaves(&self, own: &Own, shared: &Shared, evaluator: PartyId) -> Result<(), Abort> {
        let mut state = self.lock();
        state.asked.remove(&evaluator);
        self.send(own, shared, &mut state)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the messages that all evaluators have asked for.
    fn send(&self, own: &Own, shared: &Shared, state: &mut State) -> Result<(), Abort> {
        while let Some(rows) = self.messages.get(state.next)
            && let Some(least) = state.asked.values().min()
            && *least > state.next
        {
            let ahead = state.ahead.pop_front();
            let columns = ahead.unwrap_or_else(|| self.owner.columns(&own.matrix, rows.clone()));
            let keys = self.owner.keys(&columns, &own.codes, rows.clone());
            let sealed = self.seal.seal(state.next as u64, &keys);
            let evaluators: Vec<PartyId> = state.asked.keys().copied().collect();
            shared.send_to_all(&evaluators, sealed)?;
            state.next += 1;
            state.waiting.drain(..).for_each(Waker::wake);
        }
        Ok(())
    }

    /// Waits until `evaluator` has fewer than `most` questions without an answer. Until then it
    /// owes nothing, and this client does not say that it waits for it.
    async fn answered(&self, evaluator: PartyId, most: usize) {
        let poll = |cx: &mut Context<'_>| {
            let mut state = self.lock();
            let asked = state.asked.get(&evaluator);
            if asked.is_none_or(|asked| *asked < state.next + most) {
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

/// Steps 1 and 5: notes the questions of one evaluator for keys, and decrypts its answers.
pub(super) async fn serve(
    own: &Own,
    shared: &Shared,
    keys: &Keys<'_>,
    evaluator: (PartyId, usize),
    channel: Channel,
) -> Result<(), Abort> {
    answer(own, shared, keys, evaluator, channel).await?;
    keys.leaves(own, shared, evaluator.0)
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
    let mut parities_due = true;
    for (number, round) in rounds(params, &own.clients, evaluator)
        .into_iter()
        .enumerate()
    {
        let mine = round.into_iter().find(|column| column.owner == own.me.0);
        let Some(Column { rows, .. }) = mine else {
            continue;
        };
        for _ in key_tiles(params, rows.clone()) {
            keys.answered(from, WINDOW).await;
            if !shared.asked(from, rank::QUESTION, &mut channel).await? {
                return Ok(());
            }
            keys.asked(own, shared, from)?;
        }
        keys.answered(from, 1).await;
        let rank = if keys.has_all(from) {
            rank::EVALUATOR
        } else {
            rank::QUESTION
        };
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
            let Some(sealed) = shared.io.recv_ranked(from, rank).await else {
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
