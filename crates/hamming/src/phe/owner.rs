//! The owner of a key. It encrypts its rows block by block, for all its evaluators at once, and
//! decrypts the results.

use num_bigint::BigUint;
use undertone_kernel::{BitMatrix, Prg, Wiped};
use undertone_party::{Abort, Outbox, PartyId};

use super::super::pairwise::ToServer;
use super::super::weight;
use super::{Pair, Peer, WINDOW, internal};
use undertone_paillier::SecretKey;

/// An evaluator, and the number of messages of results received from it.
#[derive(Debug)]
struct Evaluator {
    peer: Peer,
    came: usize,
}

/// The owner's side of all its pairs.
pub(super) struct Owner {
    secret: Box<SecretKey>,
    rng: Prg,
    /// The transposed codes.
    columns: BitMatrix,
    weights: Wiped<u64>,
    evaluators: Vec<Evaluator>,
    /// The block that is being sent, and the number of its ciphertexts sent.
    block: usize,
    sent: usize,
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Owner(block {}, ..)", self.block)
    }
}

impl Owner {
    pub(super) fn new(
        secret: Box<SecretKey>,
        rng: Prg,
        codes: &BitMatrix,
        evaluators: Vec<Peer>,
    ) -> Self {
        let evaluators = evaluators.into_iter();
        Self {
            secret,
            rng,
            columns: codes.transpose(),
            weights: (0..codes.rows())
                .map(|row| weight(codes, row).into())
                .collect::<Vec<u64>>()
                .into(),
            evaluators: evaluators.map(|peer| Evaluator { peer, came: 0 }).collect(),
            block: 0,
            sent: 0,
        }
    }

    /// Step 3: sends the server the modulus, once for each pair.
    pub(super) fn announce(&self, server: &mut ToServer, out: &mut Outbox) -> Result<(), Abort> {
        for evaluator in &self.evaluators {
            let mut n = self.secret.public().modulus().to_bytes_le();
            n.resize(evaluator.peer.pair.plaintext_len(), 0);
            server.send(evaluator.peer.id, &n, out)?;
        }
        Ok(())
    }

    /// The parameters of any pair. Pairs of one owner differ only in the evaluator's rows.
    fn pair(&self) -> Option<Pair> {
        Some(self.evaluators.first()?.peer.pair)
    }

    pub(super) fn waits_for(&self) -> impl Iterator<Item = PartyId> + '_ {
        let due = self.evaluators.iter();
        due.map(|evaluator| evaluator.peer.id)
    }

    /// Whether ciphertexts may be sent: every evaluator is within [`WINDOW`] blocks.
    pub(super) fn has_work(&self) -> bool {
        self.pair().is_some_and(|pair| self.block < pair.blocks())
            && self.evaluators.iter().all(|evaluator| {
                let done = evaluator.came / evaluator.peer.pair.tiles();
                self.block < done + WINDOW
            })
    }

    /// Step 4: sends the next ciphertexts of a block.
    pub(super) fn work(&mut self, out: &mut Outbox) -> Result<(), Abort> {
        let Some(pair) = self.pair() else {
            return Ok(());
        };
        let chunk = pair.chunk(self.sent);
        let plain: Result<Vec<BigUint>, Abort> =
            chunk.clone().map(|l| self.plaintext(&pair, l)).collect();
        let made = self.secret.encrypt(&plain?, &mut self.rng);
        let mut text = Vec::new();
        let public = self.secret.public();
        public
            .encode(&made.map_err(internal)?, &mut text)
            .map_err(internal)?;
        for evaluator in &mut self.evaluators {
            out.extend([evaluator.peer.seal(&text)?]);
        }
        self.sent = chunk.end;
        if self.sent > pair.bits {
            (self.block, self.sent) = (self.block + 1, 0);
        }
        Ok(())
    }

    /// The plaintext of E of bit l, or of F if l is the number of bits.
    fn plaintext(&self, pair: &Pair, l: usize) -> Result<BigUint, Abort> {
        let rows = pair.block(self.block);
        if l == pair.bits {
            return pair.slots.pack(&self.weights[rows]).map_err(internal);
        }
        let set = rows.map(|row| u64::from(self.columns.get(l, row)));
        let set = Wiped::from(set.collect::<Vec<u64>>());
        // Doubled after packing, as a slot of one bit has no room for a 2.
        let packed = pair.slots.pack(&set).map_err(internal)? << 1u8;
        let n = self.secret.public().modulus();
        Ok((n - packed % n) % n)
    }

    /// Step 6: takes results and sends the server τ.
    pub(super) fn receive(
        &mut self,
        from: PartyId,
        sealed: &[u8],
        server: &mut ToServer,
        out: &mut Outbox,
    ) -> Result<(), Abort> {
        let Some(at) = self.position(from) else {
            return Ok(());
        };
        let evaluator = &mut self.evaluators[at];
        let text = evaluator.peer.open(sealed)?;
        let pair = evaluator.peer.pair;
        let (block, rows) = pair.message(evaluator.came);
        let due = rows.len() * pair.ciphertext_len();
        let sent = pair.block(self.block).start;
        // PHE-10, PHE-11
        if text.len() != due || block.start >= sent {
            let what = if text.len() == due {
                "results of a block that was not sent".into()
            } else {
                format!("results of {} bytes, {due} are due", text.len())
            };
            return Err(evaluator.peer.malformed(what));
        }
        let bad = |error| evaluator.peer.malformed(format!("{error}"));
        // PHE-12
        let results = self.secret.public().decode(&text).map_err(bad)?;
        let plain = self.secret.decrypt(&results).map_err(bad)?;
        let len = pair.plaintext_len();
        let mut tau = Wiped::with_capacity(plain.len() * len);
        for number in plain {
            let end = tau.len() + len;
            tau.extend_from_slice(&Wiped::from(number.to_bytes_le()));
            tau.resize(end, 0);
        }
        server.send(from, &tau, out)?;
        evaluator.came += 1;
        if evaluator.came == pair.messages() {
            self.evaluators.remove(at);
        }
        Ok(())
    }

    fn position(&self, id: PartyId) -> Option<usize> {
        let mut all = self.evaluators.iter();
        all.position(|evaluator| evaluator.peer.id == id)
    }

    pub(super) fn knows(&self, id: PartyId) -> bool {
        self.position(id).is_some()
    }

    pub(super) fn gone(&mut self, id: PartyId) {
        self.evaluators.retain(|evaluator| evaluator.peer.id != id);
    }

    pub(super) fn is_done(&self) -> bool {
        self.evaluators.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::SERVER;
    use super::*;
    use undertone_kdf::Seed;
    use undertone_paillier::{Noise, Primes};
    use undertone_party::SessionId;
    use undertone_setup::seal::Channel;

    const ME: PartyId = PartyId::client(0);
    const EVALUATOR: PartyId = PartyId::client(1);

    fn channel(me: PartyId, peer: PartyId) -> Channel {
        let secret = Seed::from_bytes([1; 32]);
        Channel::new(SessionId([1; 32]), &secret, me, peer)
    }

    /// PHE-11: an evaluator sends results of a block before the owner has sent the block.
    #[test]
    fn results_of_a_block_that_was_not_sent_are_refused() {
        let mut rng = Prg::new(&[1; 32]);
        let secret = SecretKey::insecure(128, Primes::Structured, &mut rng);
        let public = secret.public().clone();
        // Slots have 4 bits: 31 rows are in a block, and 40 rows in two.
        let pair = Pair::new(10, 128, [40, 50]).unwrap().unwrap();
        assert_eq!((pair.blocks(), pair.messages()), (2, 2));
        let peer = Peer {
            id: EVALUATOR,
            pair,
            channel: channel(ME, EVALUATOR),
        };
        let codes = BitMatrix::from_words(40, 10, vec![1; 40]);
        let own = Box::new(secret);
        let mut owner = Owner::new(own, Prg::new(&[2; 32]), &codes, vec![peer]);
        let mut server = ToServer::new(channel(ME, SERVER));
        let mut writer = channel(EVALUATOR, ME);
        let mut results = |owner: &mut Owner| {
            let numbers = vec![BigUint::ZERO; 50];
            let sums = public.encrypt(&numbers, Noise::Full, &mut rng).unwrap();
            let mut text = Vec::new();
            public.encode(&sums, &mut text).unwrap();
            let sealed = writer.seal(&text).unwrap();
            owner.receive(EVALUATOR, &sealed, &mut server, &mut Outbox::new())
        };
        let assert_refused = |received: Result<(), Abort>| {
            let abort = received.unwrap_err();
            assert_eq!(abort.culprit(), Some(EVALUATOR));
            assert!(abort.to_string().contains("was not sent"), "{abort}");
        };
        assert_refused(results(&mut owner));
        owner.work(&mut Outbox::new()).unwrap();
        results(&mut owner).unwrap();
        assert_refused(results(&mut owner));
    }
}
