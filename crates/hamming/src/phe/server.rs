//! The server's side of `phe`: it takes τ from the owner and the seed of ρ from the evaluator.

use std::collections::VecDeque;

use num_bigint::BigUint;
use undertone_party::{Abort, PartyId};

use super::super::pairwise::{self, Guest};
use super::offline::modulus;
use super::{Pair, Phe, Uniform, owns};
use crate::tiles::{self, Block, Sink};
use undertone_kdf::Seed;

/// Maximum number of messages of τ that the server holds before the seed. The evaluator sends the
/// seed before the results that lead to τ, but on another link.
const MOST_WAITING: usize = 16;

/// The parameters of all pairs.
#[derive(Debug)]
pub(in super::super) struct Shape {
    pub(in super::super) bits: usize,
    pub(in super::super) phe: Phe,
}

/// A pair.
pub(in super::super) struct Meeting<S> {
    pair: Pair,
    phe: Phe,
    owner: Guest,
    evaluator: Guest,
    modulus: Option<BigUint>,
    seed: Option<Seed>,
    masks: Option<Uniform>,
    waiting: VecDeque<Vec<u8>>,
    /// The number of messages of τ unmasked.
    done: usize,
    sink: S,
}

impl<S> std::fmt::Debug for Meeting<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Meeting({:?}, {:?}, ..)", self.owner, self.evaluator)
    }
}

impl<S: Sink> pairwise::Meeting<S> for Meeting<S> {
    type Shape = Shape;

    fn new(shape: &Shape, guests: [Guest; 2], sink: S) -> Result<Option<Self>, Abort> {
        let rows = guests.map(|guest| guest.rows);
        let Some(pair) = Pair::new(shape.bits, shape.phe.key_bits(), rows)? else {
            return Ok(None);
        };
        let [left, right] = guests;
        let (owner, evaluator) = if owns((left.id, left.rows), (right.id, right.rows)) {
            (left, right)
        } else {
            (right, left)
        };
        Ok(Some(Self {
            pair,
            phe: shape.phe,
            owner,
            evaluator,
            modulus: None,
            seed: None,
            masks: None,
            waiting: VecDeque::new(),
            done: 0,
            sink,
        }))
    }

    fn take(&mut self, place: usize, part: Vec<u8>) -> Result<(), Abort> {
        if place == self.owner.place {
            self.owners(part)?
        } else {
            self.evaluators(&part)?
        }
        if self.masks.is_none()
            && let (Some(n), Some(seed)) = (&self.modulus, &self.seed)
        {
            self.masks = Some(Uniform::new(seed, n));
        }
        while self.masks.is_some()
            && let Some(tau) = self.waiting.pop_front()
        {
            self.unmask(&tau)?;
        }
        Ok(())
    }

    fn missing(&self) -> Option<[PartyId; 2]> {
        let both = [self.owner.id, self.evaluator.id];
        (self.done < self.pair.messages()).then_some(both)
    }

    /// The seed is the evaluator's first message and depends on no other message.
    fn ahead(&self) -> Option<usize> {
        let full = self.seed.is_none() && self.waiting.len() >= MOST_WAITING;
        full.then_some(self.owner.place)
    }

    fn into_sink(self) -> S {
        self.sink
    }
}

impl<S: Sink> Meeting<S> {
    /// Takes a part from the owner: first the modulus, then τ.
    fn owners(&mut self, part: Vec<u8>) -> Result<(), Abort> {
        let from = self.owner.id;
        let malformed = |what: String| Err(Abort::Malformed { from, what });
        if self.modulus.is_none() {
            // PHE-13
            match modulus(&part, &self.phe) {
                Ok(n) => self.modulus = Some(n),
                Err(what) => return malformed(what),
            }
            return Ok(());
        }
        let number = self.done + self.waiting.len();
        // PHE-17
        if number == self.pair.messages() {
            return malformed("sums after the last".into());
        }
        let (_, rows) = self.pair.message(number);
        let due = rows.len() * self.pair.plaintext_len();
        // PHE-16
        if part.len() != due {
            return malformed(format!("sums of {} bytes, {due} are due", part.len()));
        }
        self.waiting.push_back(part);
        Ok(())
    }

    /// Takes a part from the evaluator: the seed.
    fn evaluators(&mut self, part: &[u8]) -> Result<(), Abort> {
        let malformed = |what: String| Abort::Malformed {
            from: self.evaluator.id,
            what,
        };
        // PHE-14
        let seed: [u8; 32] = part
            .try_into()
            .map_err(|_| malformed(format!("a seed of {} bytes", part.len())))?;
        match self.seed {
            Some(_) => Err(malformed("a second seed".into())), // PHE-15
            None => {
                self.seed = Some(Seed::from_bytes(seed));
                Ok(())
            }
        }
    }

    /// Step 7: the distances of a message, τ − ρ unpacked.
    fn unmask(&mut self, tau: &[u8]) -> Result<(), Abort> {
        let (Some(n), Some(masks)) = (&self.modulus, &mut self.masks) else {
            return Err(Abort::Internal("no masks".into()));
        };
        let (block, rows) = self.pair.message(self.done);
        let mut distances = vec![0; block.len() * rows.len()];
        let numbers = tau.chunks_exact(self.pair.plaintext_len());
        for (at, number) in numbers.enumerate() {
            let tau = BigUint::from_bytes_le(number);
            // PHE-18
            if tau >= *n {
                return Err(Abort::Malformed {
                    from: self.owner.id,
                    what: "a sum that is not below its modulus".into(),
                });
            }
            let packed = (tau + n - masks.next()) % n;
            let values = self.pair.slots.unpack(&packed, block.len());
            // PHE-19
            let values = values.ok().filter(|values| {
                let most = self.pair.bits as u64;
                values.iter().all(|value| *value <= most)
            });
            let Some(values) = values else {
                return Err(Abort::Contradicted {
                    first: self.owner.id,
                    second: self.evaluator.id,
                    fault: format!("their sums give a distance above {} bits", self.pair.bits),
                });
            };
            for (row, value) in values.into_iter().enumerate() {
                distances[row * rows.len() + at] = value as u16;
            }
        }
        self.done += 1;
        self.sink.tile(&tiles::Tile {
            left: &Block {
                client: self.owner.place,
                rows: block,
            },
            right: &Block {
                client: self.evaluator.place,
                rows,
            },
            distances: &distances,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairwise::Meeting as _;
    use crate::tiles::Discard;

    fn meeting() -> Meeting<Discard> {
        let shape = Shape {
            bits: 100,
            phe: Phe::insecure(128),
        };
        let guest = |place, rows| Guest {
            place,
            id: PartyId::client(place),
            rows,
        };
        let guests = [guest(0, 1000), guest(1, 1001)];
        Meeting::new(&shape, guests, Discard).unwrap().unwrap()
    }

    fn complaint(result: Result<(), Abort>, from: usize) -> String {
        let abort = result.unwrap_err();
        assert_eq!(abort.culprit(), Some(PartyId::client(from)));
        abort.to_string()
    }

    #[test]
    fn few_sums_are_taken_without_a_seed() {
        let mut meeting = meeting();
        meeting.take(0, vec![0xff; 16]).unwrap();
        for _ in 0..MOST_WAITING {
            assert_eq!(meeting.ahead(), None);
            meeting.take(0, vec![0; 16 * 1001]).unwrap();
        }
        assert_eq!(meeting.ahead(), Some(0));
        assert!(meeting.missing().is_some());
    }

    // PHE-15
    #[test]
    fn seeds_come_once() {
        let mut meeting = meeting();
        meeting.take(1, vec![0; 32]).unwrap();
        let what = complaint(meeting.take(1, vec![0; 32]), 1);
        assert!(what.contains("second seed"), "{what}");
    }

    /// τ are the masks themselves, so all distances are zero. PHE-17
    #[test]
    fn sums_that_are_too_many_are_refused() {
        let mut meeting = meeting();
        let n = [0xff; 16];
        meeting.take(0, n.to_vec()).unwrap();
        meeting.take(1, vec![7; 32]).unwrap();
        let mut masks = Uniform::new(&Seed::from_bytes([7; 32]), &BigUint::from_bytes_le(&n));
        for _ in 0..meeting.pair.messages() {
            let tau = (0..1001).flat_map(|_| {
                let mut bytes = masks.next().to_bytes_le();
                bytes.resize(16, 0);
                bytes
            });
            meeting.take(0, tau.collect()).unwrap();
        }
        assert!(meeting.missing().is_none());
        let what = complaint(meeting.take(0, vec![0; 16 * 1001]), 0);
        assert!(what.contains("after the last"), "{what}");
    }
}
