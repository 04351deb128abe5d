//! The server's side of `lwe`: it takes answers from the evaluator and openings from the key owner,
//! and finds the distances from both.

use std::collections::VecDeque;

use undertone_lwe::{Decoder, Params};
use undertone_party::{Abort, PartyId};

use super::super::pairwise::{self, Guest};
use super::{Pair, evaluates};
use crate::tiles::{self, Block, Sink};

/// Messages of one end of a pair that the server holds before it takes no more from this end.
const MOST_WAITING: usize = 16;

/// The parameters of all pairs.
#[derive(Debug)]
pub(in super::super) struct Shape {
    bits: usize,
    params: &'static Params,
}

impl Shape {
    pub(in super::super) fn new(bits: usize) -> Result<Self, Abort> {
        let params = super::params(bits)?;
        Ok(Self { bits, params })
    }
}

/// What one end of a pair has sent.
struct End {
    guest: Guest,
    /// What its messages are called, and the checks of their lengths and their number.
    kind: &'static str,
    /// The masked parities of its rows. They come with the first message.
    parities: Option<Vec<u8>>,
    /// Messages without a counterpart.
    waiting: VecDeque<Vec<u8>>,
}

impl End {
    fn new(guest: Guest, kind: &'static str) -> Self {
        Self {
            guest,
            kind,
            parities: None,
            waiting: VecDeque::new(),
        }
    }

    /// Takes message `number` of the end.
    fn take(&mut self, pair: &Pair, number: usize, mut part: Vec<u8>) -> Result<(), Abort> {
        let (from, kind) = (self.guest.id, self.kind);
        let malformed = |what: String| Err(Abort::Malformed { from, what });
        // LWE-16 of the evaluator, LWE-12 of the key owner.
        if number == pair.messages() {
            return malformed(format!("{kind} after the last"));
        }
        let (rows, columns) = pair.message(number);
        let parities = match self.parities {
            None => self.guest.rows.div_ceil(8),
            Some(_) => 0,
        };
        let due = parities + rows.len() * pair.params.answer_len(columns.len());
        // LWE-6 of the evaluator, LWE-11 of the key owner.
        if part.len() != due {
            return malformed(format!("{kind} of {} bytes, {due} are due", part.len()));
        }
        if self.parities.is_none() {
            let numbers = part.split_off(parities);
            self.parities = Some(bits(&part, self.guest.rows));
            part = numbers;
        }
        self.waiting.push_back(part);
        Ok(())
    }
}

/// A pair.
pub(in super::super) struct Meeting<S> {
    pair: Pair,
    decoder: Decoder,
    evaluator: End,
    owner: End,
    /// The number of messages of both ends that became distances.
    done: usize,
    above: u64,
    sink: S,
}

impl<S> std::fmt::Debug for Meeting<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (owner, evaluator) = (self.owner.guest, self.evaluator.guest);
        write!(f, "Meeting({owner:?}, {evaluator:?}, ..)")
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
        let (params, bits) = (shape.params, shape.bits);
        Ok(Some(Self {
            pair: Pair {
                params,
                rows: evaluator.rows,
                owned: owner.rows,
            },
            decoder: Decoder { params, bits },
            evaluator: End::new(evaluator, "answers"),
            owner: End::new(owner, "openings"),
            done: 0,
            above: 0,
            sink,
        }))
    }

    fn take(&mut self, place: usize, part: Vec<u8>) -> Result<(), Abort> {
        let end = if place == self.owner.guest.place {
            &mut self.owner
        } else {
            &mut self.evaluator
        };
        end.take(&self.pair, self.done + end.waiting.len(), part)?;
        self.decode();
        Ok(())
    }

    fn missing(&self) -> Option<[PartyId; 2]> {
        let both = [self.owner.guest.id, self.evaluator.guest.id];
        (self.done < self.pair.messages()).then_some(both)
    }

    fn ahead(&self) -> Option<usize> {
        let ends = [&self.owner, &self.evaluator].into_iter();
        let mut full = ends.filter(|end| end.waiting.len() >= MOST_WAITING);
        full.next().map(|end| end.guest.place)
    }

    fn above(&self) -> u64 {
        self.above
    }

    fn into_sink(self) -> S {
        self.sink
    }
}

impl<S: Sink> Meeting<S> {
    /// Step 7: the distances of a message of both ends, if there is one.
    fn decode(&mut self) {
        let [evaluator, owner] = [&mut self.evaluator, &mut self.owner];
        if evaluator.waiting.is_empty() || owner.waiting.is_empty() {
            return;
        }
        let (Some(answers), Some(openings), Some(left), Some(right)) = (
            evaluator.waiting.pop_front(),
            owner.waiting.pop_front(),
            &evaluator.parities,
            &owner.parities,
        ) else {
            return;
        };
        let (rows, columns) = self.pair.message(self.done);
        let (distances, above) = self.decoder.distances(
            &left[rows.clone()],
            &right[columns.clone()],
            &answers,
            &openings,
        );
        self.done += 1;
        // LWE-13
        self.above += above;
        self.sink.tile(&tiles::Tile {
            left: &Block {
                client: self.evaluator.guest.place,
                rows,
            },
            right: &Block {
                client: self.owner.guest.place,
                rows: columns,
            },
            distances: &distances,
        });
    }
}
