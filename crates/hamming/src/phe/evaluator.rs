//! The evaluator's side of one pair: it computes on the owner's ciphertexts.

use std::collections::VecDeque;
use std::ops::Range;

use num_bigint::BigUint;
use undertone_kernel::{BitMatrix, Prg};
use undertone_party::{Abort, Outbox, PartyId};

use super::super::pairwise::ToServer;
use super::offline::Key;
use super::{Peer, Uniform, WINDOW, internal};
use undertone_kdf::Seed;
use undertone_paillier::Ciphertexts;

/// The evaluator of one pair.
pub(super) struct Evaluator {
    peer: Peer,
    key: Key,
    masks: Uniform,
    rng: Prg,
    /// Blocks of ciphertexts, each after the encryptions of zero. The last block may be incomplete.
    blocks: VecDeque<Ciphertexts>,
    /// The number of messages of results sent.
    sent: usize,
}

impl std::fmt::Debug for Evaluator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Evaluator({:?}, ..)", self.peer)
    }
}

impl Evaluator {
    /// Step 3: sends the server the seed of the masks.
    pub(super) fn new(
        (peer, key): (Peer, Key),
        masks: &Seed,
        rng: Prg,
        server: &mut ToServer,
        out: &mut Outbox,
    ) -> Result<Self, Abort> {
        server.send(peer.id, masks.expose(), out)?;
        Ok(Self {
            masks: Uniform::new(masks, key.public.modulus()),
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

    /// The number of the first block in `blocks`.
    fn first(&self) -> usize {
        self.sent / self.peer.pair.tiles()
    }

    fn is_whole(&self, block: &Ciphertexts) -> bool {
        block.len() > self.key.bases.len() + self.peer.pair.bits
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

    /// Step 4: takes ciphertexts.
    pub(super) fn receive(&mut self, sealed: &[u8]) -> Result<(), Abort> {
        let text = self.peer.open(sealed)?;
        let pair = self.peer.pair;
        let begun = self.blocks.back().filter(|block| !self.is_whole(block));
        let more = self.first() + self.blocks.len() < pair.blocks();
        // PHE-8, PHE-9
        if begun.is_none() && (self.blocks.len() == WINDOW || !more) {
            let what = if more {
                "ciphertexts too far ahead"
            } else {
                "ciphertexts after the last"
            };
            return Err(self.peer.malformed(what.into()));
        }
        let come = begun.map_or(0, |block| block.len() - self.key.bases.len());
        let chunk = pair.chunk(come);
        let due = chunk.len() * pair.ciphertext_len();
        // PHE-6
        if text.len() != due {
            let what = format!("ciphertexts of {} bytes, {due} are due", text.len());
            return Err(self.peer.malformed(what));
        }
        // PHE-7
        let decoded = self.key.public.decode(&text);
        let some = decoded.map_err(|error| self.peer.malformed(error.to_string()))?;
        if chunk.start == 0 {
            self.blocks.push_back(self.key.bases.clone());
        }
        let last = self.blocks.back_mut();
        last.map_or(Ok(()), |block| block.append(some).map_err(internal))
    }

    /// The rows, each after fresh random bits. The random bits are the exponents of the encryptions
    /// of zero.
    fn with_noise(&mut self, codes: &BitMatrix, rows: Range<usize>) -> BitMatrix {
        let bases = self.key.bases.len();
        let width = bases.div_ceil(64) + codes.columns().div_ceil(64);
        let mut words = Vec::with_capacity(rows.len() * width);
        for row in rows.clone() {
            words.extend((0..bases.div_ceil(64)).map(|_| self.rng.next_u64()));
            words.extend(codes.row(row));
        }
        BitMatrix::from_words(rows.len(), bases + codes.columns(), words)
    }

    /// Step 5: sends the next results. `codes` have one more bit than the rows; it is set.
    pub(super) fn work(&mut self, codes: &BitMatrix, out: &mut Outbox) -> Result<(), Abort> {
        let pair = self.peer.pair;
        let (block, rows) = pair.message(self.sent);
        let noisy = self.with_noise(codes, rows.clone());
        let Some(terms) = self.blocks.front() else {
            return Ok(());
        };
        let public = &self.key.public;
        let n = public.modulus();
        let sums = public.subset_sums(terms, &noisy, 0..rows.len());
        let mut results = sums.map_err(internal)?;
        drop(noisy);
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
    use super::super::{Pair, Phe, SERVER};
    use super::*;
    use undertone_paillier::{Noise, Primes, SecretKey};
    use undertone_party::SessionId;
    use undertone_setup::seal::Channel;

    const ME: PartyId = PartyId::client(0);
    const OWNER: PartyId = PartyId::client(1);

    fn channel(me: PartyId, peer: PartyId) -> Channel {
        let secret = Seed::from_bytes([1; 32]);
        Channel::new(SessionId([1; 32]), &secret, me, peer)
    }

    /// An evaluator with rows of 10 bits, an owner's key, and the owner's encryptions of a block of
    /// zeros.
    fn pair(key_bits: usize, rows: usize) -> (Evaluator, SecretKey, Vec<u8>) {
        let mut rng = Prg::new(&[1; 32]);
        let secret = SecretKey::insecure(key_bits, Primes::Structured, &mut rng);
        let public = secret.public().clone();
        let mut residues = Uniform::new(&Seed::from_bytes([4; 32]), public.modulus());
        let count = Phe::insecure(key_bits).bases();
        let residues: Vec<BigUint> = (0..count).map(|_| residues.next()).collect();
        let mut key = Key {
            bases: secret.zeros(&residues).unwrap(),
            public: public.clone(),
        };
        key.square_bases().unwrap();
        let peer = Peer {
            id: OWNER,
            pair: Pair::new(10, key_bits, [rows, rows]).unwrap().unwrap(),
            channel: channel(ME, OWNER),
        };
        let mut server = ToServer::new(channel(ME, SERVER));
        let masks = Seed::from_bytes([2; 32]);
        let out = &mut Outbox::new();
        let noise = Prg::new(&[5; 32]);
        let evaluator = Evaluator::new((peer, key), &masks, noise, &mut server, out).unwrap();
        let block = secret.encrypt(&vec![BigUint::ZERO; 11], &mut rng).unwrap();
        let mut text = Vec::new();
        public.encode(&block, &mut text).unwrap();
        (evaluator, secret, text)
    }

    // PHE-8
    #[test]
    fn blocks_too_far_ahead_are_refused() {
        let (mut evaluator, _, text) = pair(128, 1000);
        let mut writer = channel(OWNER, ME);
        for _ in 0..WINDOW {
            assert!(evaluator.waits());
            evaluator.receive(&writer.seal(&text).unwrap()).unwrap();
        }
        let abort = evaluator.receive(&writer.seal(&text).unwrap()).unwrap_err();
        assert_eq!(abort.culprit(), Some(OWNER));
        assert!(abort.to_string().contains("too far ahead"), "{abort}");
        // When the first block is done there is room for another.
        let codes = BitMatrix::from_words(1000, 11, vec![1 << 10; 1000]);
        evaluator.work(&codes, &mut Outbox::new()).unwrap();
        evaluator.receive(&writer.seal(&text).unwrap()).unwrap();
    }

    // PHE-9
    #[test]
    fn blocks_after_the_last_are_refused() {
        let (mut evaluator, _, text) = pair(128, 20);
        let mut writer = channel(OWNER, ME);
        assert_eq!(evaluator.peer.pair.blocks(), 1);
        evaluator.receive(&writer.seal(&text).unwrap()).unwrap();
        assert!(!evaluator.waits());
        let abort = evaluator.receive(&writer.seal(&text).unwrap()).unwrap_err();
        assert!(abort.to_string().contains("after the last"), "{abort}");
    }

    /// The owner computes three quadratic characters of the noise in each result, that is of the
    /// result divided by the product of what the owner sent. For powers of one residue at least one
    /// of the three is always the same, for every exponent or for every even one. For the noise of
    /// this protocol none is.
    #[test]
    fn noise_hides_characters_from_the_owner() {
        let rows = 60;
        let (mut evaluator, secret, text) = pair(256, rows);
        let mut writer = channel(OWNER, ME);
        evaluator.receive(&writer.seal(&text).unwrap()).unwrap();
        let codes =
            BitMatrix::from_words(rows, 11, (0..rows as u64).map(|i| i | 1 << 10).collect());
        let mut out = Outbox::new();
        evaluator.work(&codes, &mut out).unwrap();
        let (_, message) = out.into_iter().next().unwrap();
        let results = channel(OWNER, ME).open(&message).unwrap();

        let public = secret.public();
        let len = public.ciphertext_len();
        let numbers = |bytes: &[u8]| -> Vec<BigUint> {
            bytes.chunks(len).map(BigUint::from_bytes_le).collect()
        };
        let terms = numbers(&text);
        let bare = |row: usize| {
            let set = (0..11).filter(|l| codes.get(row, *l));
            set.fold(BigUint::from(1u8), |x, l| x * &terms[l] % public.modulus())
        };
        let [p, q] = secret.expose_primes();
        let is_square =
            |x: &BigUint, p: &BigUint| x.modpow(&((p - 1u8) / 2u8), p) == BigUint::from(1u8);
        // For each of the three characters, how often result and product agree.
        let agree = |results: &[BigUint]| {
            let mut counts = [0; 3];
            for (row, c) in results.iter().enumerate() {
                let [at_p, at_q] = [&p, &q].map(|s| is_square(c, s) == is_square(&bare(row), s));
                counts[0] += usize::from(at_p);
                counts[1] += usize::from(at_q);
                counts[2] += usize::from(at_p == at_q);
            }
            counts
        };
        let ours = agree(&numbers(&results));
        assert!(
            ours.iter().all(|count| (15..45).contains(count)),
            "{ours:?}"
        );

        let mut rng = Prg::new(&[6; 32]);
        let table = public.noise_table(&mut rng);
        let block = public.decode(&text).unwrap();
        let mut short = public.subset_sums(&block, &codes, 0..rows).unwrap();
        public
            .rerandomise(&mut short, Noise::Short(&table), &mut rng)
            .unwrap();
        let mut bytes = Vec::new();
        public.encode(&short, &mut bytes).unwrap();
        let short = agree(&numbers(&bytes));
        assert!(short.contains(&rows), "{short:?}");
    }
}
