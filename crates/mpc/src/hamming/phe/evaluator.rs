//! The evaluator of one owner's ciphertexts.

use std::collections::VecDeque;

use num_bigint::BigUint;
use undertone_kernel::{BitMatrix, Prg};
use undertone_party::{Abort, Outbox, PartyId};

use super::client::ToServer;
use super::offline::Key;
use super::{Masks, Peer, WINDOW, internal};
use crate::kdf::Seed;
use crate::paillier::{Ciphertexts, Noise};

/// The evaluator's side of one pair.
pub(super) struct Evaluator {
    peer: Peer,
    key: Key,
    masks: Masks,
    rng: Prg,
    /// Blocks whose ciphertexts are there, all of them but perhaps of the last.
    blocks: VecDeque<Ciphertexts>,
    /// How many messages of results have been sent.
    sent: usize,
}

impl std::fmt::Debug for Evaluator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Evaluator({:?}, ..)", self.peer)
    }
}

impl Evaluator {
    /// Tells the server the seed of the masks.
    pub(super) fn new(
        (peer, key): (Peer, Key),
        masks: &Seed,
        rng: Prg,
        server: &mut ToServer,
        out: &mut Outbox,
    ) -> Result<Self, Abort> {
        server.send(peer.id, masks.expose(), out)?;
        Ok(Self {
            masks: Masks::new(masks, key.public.modulus()),
            peer,
            key,
            rng,
            blocks: VecDeque::new(),
            sent: 0,
        })
    }

    pub(super) fn id(&self) -> PartyId {
        self.peer.id
    }

    /// The number of the first block that is there.
    fn first(&self) -> usize {
        self.sent / self.peer.pair.tiles()
    }

    fn is_whole(&self, block: &Ciphertexts) -> bool {
        block.len() > self.peer.pair.bits
    }

    pub(super) fn is_done(&self) -> bool {
        self.sent == self.peer.pair.messages()
    }

    pub(super) fn has_work(&self) -> bool {
        self.blocks
            .front()
            .is_some_and(|block| self.is_whole(block))
    }

    /// Whether ciphertexts are due.
    pub(super) fn waits(&self) -> bool {
        let come = self.first() + self.blocks.len();
        let last_is_whole = self.blocks.back().is_none_or(|block| self.is_whole(block));
        !last_is_whole || come < self.peer.pair.blocks()
    }

    /// Takes ciphertexts.
    pub(super) fn receive(&mut self, sealed: &[u8]) -> Result<(), Abort> {
        let text = self.peer.open(sealed)?;
        let pair = self.peer.pair;
        let begun = self.blocks.back().filter(|block| !self.is_whole(block));
        if begun.is_none() && self.blocks.len() == WINDOW {
            return Err(self.peer.malformed("ciphertexts too far ahead".into()));
        }
        let chunk = pair.chunk(begun.map_or(0, Ciphertexts::len));
        let due = chunk.len() * pair.ciphertext_len();
        if text.len() != due {
            let what = format!("ciphertexts of {} bytes, {due} are due", text.len());
            return Err(self.peer.malformed(what));
        }
        let decoded = self.key.public.decode(&text);
        let some = decoded.map_err(|error| self.peer.malformed(error.to_string()))?;
        match self.blocks.back_mut() {
            Some(block) if chunk.start > 0 => block.append(some).map_err(internal),
            _ => {
                self.blocks.push_back(some);
                Ok(())
            }
        }
    }

    /// Sends the next results. `codes` have one bit more than there are, which is set.
    pub(super) fn work(&mut self, codes: &BitMatrix, out: &mut Outbox) -> Result<(), Abort> {
        let pair = self.peer.pair;
        let (block, rows) = pair.message(self.sent);
        let Some(terms) = self.blocks.front() else {
            return Ok(());
        };
        let public = &self.key.public;
        let n = public.modulus();
        let sums = public.subset_sums(terms, codes, rows.clone());
        let mut results = sums.map_err(internal)?;
        let ones = pair.slots.pack(&vec![1; block.len()]).map_err(internal)?;
        let added: Vec<BigUint> = rows
            .clone()
            .map(|row| {
                let weight = codes.row(row).iter().map(|word| word.count_ones());
                let weight = weight.sum::<u32>() - 1;
                (&ones * weight + self.masks.next()) % n
            })
            .collect();
        public.add_plain(&mut results, &added).map_err(internal)?;
        let noise = self.key.table.as_ref().map_or(Noise::Full, Noise::Short);
        let fresh = public.rerandomise(&mut results, noise, &mut self.rng);
        fresh.map_err(internal)?;
        let mut text = Vec::new();
        public.encode(&results, &mut text).map_err(internal)?;
        out.extend([self.peer.seal(&text)?]);
        self.sent += 1;
        if self.sent.is_multiple_of(pair.tiles()) {
            self.blocks.pop_front();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Pair, SERVER};
    use super::*;
    use crate::paillier::{Primes, SecretKey};
    use crate::seal::Channel;
    use undertone_party::SessionId;

    #[test]
    fn blocks_too_far_ahead_are_refused() {
        let [me, owner] = [0, 1].map(PartyId::client);
        let ends = |me, peer| {
            let secret = Seed::from_bytes([1; 32]);
            Channel::new(SessionId([1; 32]), &secret, me, peer)
        };
        let mut rng = Prg::new(&[1; 32]);
        let secret = SecretKey::of_size(128, Primes::Structured, &mut rng);
        let pair = Pair::new(10, 128, [1000, 1000]).unwrap().unwrap();
        let peer = Peer {
            id: owner,
            pair,
            channel: ends(me, owner),
        };
        let key = Key {
            public: secret.public().clone(),
            table: None,
        };
        let mut server = ToServer::new(ends(me, SERVER));
        let masks = Seed::from_bytes([2; 32]);
        let out = &mut Outbox::new();
        let mut evaluator = Evaluator::new((peer, key), &masks, rng, &mut server, out).unwrap();
        let mut rng = Prg::new(&[3; 32]);
        let block = secret.encrypt(&vec![BigUint::ZERO; 11], &mut rng).unwrap();
        let mut text = Vec::new();
        secret.public().encode(&block, &mut text).unwrap();
        let mut writer = ends(owner, me);
        for _ in 0..WINDOW {
            assert!(evaluator.waits());
            evaluator.receive(&writer.seal(&text).unwrap()).unwrap();
        }
        let abort = evaluator.receive(&writer.seal(&text).unwrap()).unwrap_err();
        assert_eq!(abort.culprit(), Some(owner));
        assert!(abort.to_string().contains("too far ahead"), "{abort}");
        // As soon as one is done there is room again.
        let codes = BitMatrix::from_words(1000, 11, vec![1 << 10; 1000]);
        evaluator.work(&codes, out).unwrap();
        evaluator.receive(&writer.seal(&text).unwrap()).unwrap();
    }
}
