//! The server's side of `lwe`: it takes masked distances from the key owner and the seed of the
//! masks from the evaluator.

use std::collections::VecDeque;

use undertone_kdf::Seed;
use undertone_kernel::mask::Suite;
use undertone_kernel::pack;
use undertone_lwe::{Masks, Params, SEED};
use undertone_party::{Abort, PartyId};

use super::super::pairwise::{self, Guest};
use super::{Pair, evaluates};
use crate::tiles::{self, Block, Sink};

/// Messages of masked distances that the server holds before the seed. The evaluator sends the
/// seed first of all, but on another link.
const MOST_WAITING: usize = 16;

/// The parameters of all pairs.
#[derive(Debug)]
pub(in super::super) struct Shape {
    pub(in super::super) bits: usize,
    pub(in super::super) suite: Suite,
    pub(in super::super) params: &'static Params,
}

impl Shape {
    pub(in super::super) fn new(bits: usize, suite: Suite) -> Result<Self, Abort> {
        let params = super::params(bits)?;
        Ok(Self {
            bits,
            suite,
            params,
        })
    }
}

/// A pair.
pub(in super::super) struct Meeting<S> {
    pair: Pair,
    bits: usize,
    suite: Suite,
    owner: Guest,
    evaluator: Guest,
    masks: Option<Masks>,
    /// The masked parities of the rows of the evaluator, and of the key owner.
    left: Vec<u8>,
    right: Option<Vec<u8>>,
    waiting: VecDeque<Vec<u8>>,
    /// The number of messages unmasked.
    done: usize,
    sink: S,
}

impl<S> std::fmt::Debug for Meeting<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Meeting({:?}, {:?}, ..)", self.owner, self.evaluator)
    }
}

/// One bit in each byte.
fn bits(packed: &[u8], count: usize) -> Vec<u8> {
    let bit = |at: usize| packed[at / 8] >> (at % 8) & 1;
    (0..count).map(bit).collect()
}

impl<S: Sink> pairwise::Meeting<S> for Meeting<S> {
    type Shape = Shape;

    fn new(shape: &Shape, guests: [Guest; 2], sink: S) -> Result<Option<Self>, Abort> {
        let [left, right] = guests;
        let (evaluator, owner) = if evaluates((left.id, left.rows), (right.id, right.rows)) {
            (left, right)
        } else {
            (right, left)
        };
        if owner.rows == 0 {
            return Ok(None);
        }
        Ok(Some(Self {
            pair: Pair {
                params: shape.params,
                rows: evaluator.rows,
                owned: owner.rows,
            },
            bits: shape.bits,
            suite: shape.suite,
            owner,
            evaluator,
            masks: None,
            left: Vec::new(),
            right: None,
            waiting: VecDeque::new(),
            done: 0,
            sink,
        }))
    }

    fn take(&mut self, place: usize, part: Vec<u8>) -> Result<(), Abort> {
        if place == self.owner.place {
            self.owners(part)?;
        } else {
            self.evaluators(&part)?;
        }
        while self.masks.is_some()
            && let Some(masked) = self.waiting.pop_front()
        {
            self.unmask(&masked)?;
        }
        Ok(())
    }

    fn missing(&self) -> Option<[PartyId; 2]> {
        let both = [self.owner.id, self.evaluator.id];
        (self.done < self.pair.messages()).then_some(both)
    }

    /// The seed is the evaluator's first message and depends on no other message.
    fn waits_for(&self) -> Option<usize> {
        let full = self.masks.is_none() && self.waiting.len() >= MOST_WAITING;
        full.then_some(self.evaluator.place)
    }

    fn into_sink(self) -> S {
        self.sink
    }
}

impl<S: Sink> Meeting<S> {
    /// Takes a part from the key owner: first its parities, then masked distances.
    fn owners(&mut self, part: Vec<u8>) -> Result<(), Abort> {
        let from = self.owner.id;
        let malformed = |what: String| Err(Abort::Malformed { from, what });
        if self.right.is_none() {
            let due = self.owner.rows.div_ceil(8);
            // LWE-10
            if part.len() != due {
                return malformed(format!("parities of {} bytes, {due} are due", part.len()));
            }
            self.right = Some(bits(&part, self.owner.rows));
            return Ok(());
        }
        let number = self.done + self.waiting.len();
        // LWE-12
        if number == self.pair.messages() {
            return malformed("masked distances after the last".into());
        }
        let (rows, columns) = self.pair.message(number);
        let width = self.pair.params.width();
        let due = pack::packed_len(width, rows.len() * columns.len());
        // LWE-11
        if part.len() != due {
            return malformed(format!(
                "masked distances of {} bytes, {due} are due",
                part.len()
            ));
        }
        self.waiting.push_back(part);
        Ok(())
    }

    /// Takes the part from the evaluator: the seed and its parities.
    fn evaluators(&mut self, part: &[u8]) -> Result<(), Abort> {
        let malformed = |what: String| Abort::Malformed {
            from: self.evaluator.id,
            what,
        };
        // LWE-9
        if self.masks.is_some() {
            return Err(malformed("a second seed".into()));
        }
        let due = SEED + self.evaluator.rows.div_ceil(8);
        // LWE-8
        let Some((seed, parities)) = part.split_first_chunk().filter(|_| part.len() == due) else {
            return Err(malformed(format!(
                "a seed and parities of {} bytes, {due} are due",
                part.len()
            )));
        };
        let seed = Seed::from_bytes(*seed);
        self.left = bits(parities, self.evaluator.rows);
        let pair = &self.pair;
        self.masks = Some(Masks::new(pair.params, self.suite, seed, pair.owned));
        Ok(())
    }

    /// Step 6: the distances of a message.
    fn unmask(&mut self, masked: &[u8]) -> Result<(), Abort> {
        let (Some(masks), Some(right)) = (&self.masks, &self.right) else {
            return Err(Abort::Internal("no masks".into()));
        };
        let (rows, columns) = self.pair.message(self.done);
        let left = &self.left[rows.clone()];
        let right = &right[columns.clone()];
        let distances = masks.unmask(self.bits, rows.clone(), left, columns.start, right, masked);
        // LWE-13
        let Some(distances) = distances else {
            let both = [self.owner.id, self.evaluator.id];
            return Err(Abort::Contradicted {
                first: both[0].min(both[1]),
                second: both[0].max(both[1]),
                fault: format!("their numbers give a distance above {} bits", self.bits),
            });
        };
        self.done += 1;
        self.sink.tile(&tiles::Tile {
            left: &Block {
                client: self.evaluator.place,
                rows,
            },
            right: &Block {
                client: self.owner.place,
                rows: columns,
            },
            distances: &distances,
        });
        Ok(())
    }
}
