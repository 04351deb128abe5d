//! Transfers in batches: what both sides hold of one, and the check against a receiver that cheats.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use undertone_kernel::aes::Permutation;
use undertone_kernel::universal;
use zeroize::Zeroizing;

use super::super::{Field, KAPPA, OtError, Security};
use super::{CHUNK, CHUNK_WORDS, Receiver, Row, Rows, Sender, row_words};

/// Most transfers of a batch: memory is bounded by it, and rows and keys stay in the second-level cache.
pub const BATCH: usize = 8 * CHUNK;

/// Bytes of a sender's challenge.
pub const CHALLENGE_LEN: usize = 8;

/// Bytes of a receiver's proof.
pub const PROOF_LEN: usize = 8 + 32;

/// Words of a row of a batch of `count` transfers.
fn words(count: usize, security: Security) -> usize {
    let given_up = match security {
        Security::SemiHonest => 0,
        Security::Malicious => 1,
    };
    match count {
        0 => 0,
        _ => count.div_ceil(64) + given_up,
    }
}

/// Bytes of the corrections of a batch of `count` transfers.
pub fn corrections_len(field: Field, security: Security, count: usize) -> usize {
    8 * words(count, security) * (field.blocks().len() - 1)
}

/// Most transfers of one batch: 64 fewer where as many are given up.
pub fn batch(security: Security) -> usize {
    match security {
        Security::SemiHonest => BATCH,
        Security::Malicious => BATCH - 64,
    }
}

impl Receiver {
    /// The next `count` transfers, at most [`batch`]; also its corrections, of [`corrections_len`] bytes.
    ///
    /// # Panics
    /// When there are more.
    pub fn batch(&mut self, count: usize) -> (Unproved, Vec<u8>) {
        assert!(count <= batch(self.security), "a batch of {count}");
        let words = words(count, self.security);
        let mut corrections =
            Vec::with_capacity(corrections_len(self.expander.field, self.security, count) + 16);
        let mut chunks = Vec::with_capacity(words.div_ceil(CHUNK_WORDS));
        for first in (0..words).step_by(CHUNK_WORDS) {
            let (mut choices, mut rows) = (Zeroizing::new(Row::default()), Rows::default());
            let words = CHUNK_WORDS.min(words - first);
            self.chunk(self.used, words, &mut choices, &mut rows, &mut corrections);
            self.used += 1;
            chunks.push((choices, rows));
        }
        let batch = ReceiverBatch {
            shape: Shape {
                pi: self.pi.clone(),
                security: self.security,
                first: self.transfers,
                count,
                words,
            },
            chunks,
        };
        self.transfers += count as u64;
        (Unproved(batch), corrections)
    }
}

impl Sender {
    /// The next `count` transfers, given the receiver's corrections.
    ///
    /// # Errors
    /// [`OtError::Length`].
    ///
    /// # Panics
    /// When there are more than [`batch`].
    pub fn batch(&mut self, count: usize, corrections: &[u8]) -> Result<Unchecked, OtError> {
        assert!(count <= batch(self.security), "a batch of {count}");
        let field = self.expander.field;
        let due = corrections_len(field, self.security, count);
        OtError::check_len("corrections", corrections, due)?;
        let words = words(count, self.security);
        let mut chunks = Vec::with_capacity(words.div_ceil(CHUNK_WORDS));
        let mut rest = corrections;
        for first in (0..words).step_by(CHUNK_WORDS) {
            let words = CHUNK_WORDS.min(words - first);
            let (head, tail) = rest.split_at(8 * words * (field.blocks().len() - 1));
            rest = tail;
            let mut rows = Rows::default();
            self.chunk(self.used, head, &mut rows);
            self.used += 1;
            chunks.push(rows);
        }
        let batch = SenderBatch {
            shape: Shape {
                pi: self.pi.clone(),
                security: self.security,
                first: self.transfers,
                count,
                words,
            },
            delta: self.delta.clone(),
            chunks,
        };
        self.transfers += count as u64;
        Ok(Unchecked {
            batch,
            challenge: self.challenges.next_u64().to_le_bytes(),
        })
    }
}

/// What both sides know of a batch.
#[derive(Debug, Clone)]
struct Shape {
    pi: Permutation,
    security: Security,
    /// The number of its first transfer.
    first: u64,
    count: usize,
    words: usize,
}

impl Shape {
    /// The factors of the words of a row: powers of the point, and 1 for the word that is given up.
    fn powers(&self, challenge: [u8; CHALLENGE_LEN]) -> Vec<u64> {
        let count = self.words.saturating_sub(1);
        let mut powers = universal::powers(self.pi.cpu(), u64::from_le_bytes(challenge), count);
        powers.push(1);
        powers.resize(self.words.next_multiple_of(CHUNK_WORDS), 0);
        powers
    }

    /// The hash of one row, given piece by piece.
    fn hash<'a>(&self, powers: &[u64], row: impl Iterator<Item = &'a Row>) -> u64 {
        let pieces = powers.chunks_exact(CHUNK_WORDS).zip(row);
        pieces.fold(0, |sum, (powers, row)| {
            sum ^ universal::hash(self.pi.cpu(), powers, &row_words(row))
        })
    }

    /// SHA-256 of the hashes of all rows.
    fn digest(&self, hashes: impl Iterator<Item = u64>) -> [u8; 32] {
        let mut digest = Sha256::new()
            .chain_update(b"undertone/v1/transfer check")
            .chain_update(self.first.to_le_bytes());
        for hash in hashes {
            digest.update(hash.to_le_bytes());
        }
        digest.finalize().into()
    }

    /// Hashes keys in place.
    fn randomise(&self, keys: &mut [u128]) {
        match self.security {
            Security::SemiHonest => self.pi.mmo(keys),
            Security::Malicious => self.pi.tmmo(self.first, keys),
        }
    }

    fn keys<'a>(&self, chunks: impl ExactSizeIterator<Item = &'a Rows>, keys: &mut Vec<u128>) {
        keys.resize(chunks.len() * CHUNK, 0);
        for (rows, keys) in chunks.zip(keys.chunks_exact_mut(CHUNK)) {
            rows.keys(self.pi.cpu(), keys);
        }
        keys.truncate(self.count);
    }
}

/// The receiver's side of a batch.
pub struct ReceiverBatch {
    shape: Shape,
    chunks: Vec<(Zeroizing<Row>, Rows)>,
}

/// A [`ReceiverBatch`] that is to be proved. One proof tells nothing, two would tell of the choices.
#[derive(Debug)]
#[must_use = "the sender waits for the proof, or neither side accepts the batch"]
pub struct Unproved(ReceiverBatch);

/// A [`SenderBatch`] that is to be checked: against a malicious receiver its keys are not to be used before.
#[derive(Debug)]
#[must_use = "against a malicious receiver keys are usable after their check alone"]
pub struct Unchecked {
    batch: SenderBatch,
    challenge: [u8; CHALLENGE_LEN],
}

impl Unproved {
    /// The batch, and the proof that the corrections were true, [`PROOF_LEN`] bytes.
    pub fn prove(self, challenge: [u8; CHALLENGE_LEN]) -> (ReceiverBatch, Vec<u8>) {
        let proof = self.0.prove(challenge);
        (self.0, proof)
    }

    /// The batch, where the sender asks for no proof.
    ///
    /// # Errors
    /// [`OtError::Unproved`] where it does.
    pub fn accept(self) -> Result<ReceiverBatch, OtError> {
        match self.0.shape.security {
            Security::SemiHonest => Ok(self.0),
            Security::Malicious => Err(OtError::Unproved),
        }
    }
}

impl Unchecked {
    /// The point the receiver must answer for. It was drawn after the corrections came, from the
    /// sender's seed and the context.
    pub fn challenge(&self) -> [u8; CHALLENGE_LEN] {
        self.challenge
    }

    /// The batch, if `proof` answers the [`challenge`](Self::challenge).
    ///
    /// # Errors
    /// [`OtError::Length`], or [`OtError::Corrections`] when the receiver has cheated.
    pub fn check(self, proof: &[u8]) -> Result<SenderBatch, OtError> {
        self.batch.check(self.challenge, proof)?;
        Ok(self.batch)
    }

    /// The batch, where the receiver is trusted to follow the protocol.
    ///
    /// # Errors
    /// [`OtError::Unproved`] where it is not.
    pub fn accept(self) -> Result<SenderBatch, OtError> {
        match self.batch.shape.security {
            Security::SemiHonest => Ok(self.batch),
            Security::Malicious => Err(OtError::Unproved),
        }
    }
}

/// The sender's side of a batch.
pub struct SenderBatch {
    shape: Shape,
    delta: Zeroizing<u128>,
    chunks: Vec<Rows>,
}

impl std::fmt::Debug for ReceiverBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReceiverBatch(..)")
    }
}

impl std::fmt::Debug for SenderBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SenderBatch(..)")
    }
}

impl ReceiverBatch {
    fn prove(&self, challenge: [u8; CHALLENGE_LEN]) -> Vec<u8> {
        let powers = self.shape.powers(challenge);
        let choices = self.chunks.iter().map(|(choices, _)| &**choices);
        let mut proof = self.shape.hash(&powers, choices).to_le_bytes().to_vec();
        let hashes = (0..KAPPA).map(|r| {
            let row = self.chunks.iter().map(|(_, rows)| &rows.0[r]);
            self.shape.hash(&powers, row)
        });
        proof.extend(self.shape.digest(hashes));
        proof
    }

    /// The choices: that of transfer t is bit t mod 64 of word ⌊t/64⌋.
    pub fn choices(&self) -> Zeroizing<Vec<u64>> {
        let words = self
            .chunks
            .iter()
            .flat_map(|(choices, _)| row_words(choices));
        let mut words: Zeroizing<Vec<u64>> =
            Zeroizing::new(words.take(self.shape.count.div_ceil(64)).collect());
        if let Some(last) = words.last_mut() {
            *last &= u64::MAX >> (self.shape.count.wrapping_neg() % 64);
        }
        words
    }

    /// Makes `keys` those of the batch: `K_c` of every transfer.
    pub fn correlated(&self, keys: &mut Vec<u128>) {
        let chunks = self.chunks.iter().map(|(_, rows)| rows);
        self.shape.keys(chunks, keys);
    }

    /// Makes `keys` those of the batch, hashed: the hash of `K_c` of every transfer.
    pub fn random(&self, keys: &mut Vec<u128>) {
        self.correlated(keys);
        self.shape.randomise(keys);
    }
}

impl SenderBatch {
    fn check(&self, challenge: [u8; CHALLENGE_LEN], proof: &[u8]) -> Result<(), OtError> {
        OtError::check_len("a proof", proof, PROOF_LEN)?;
        let powers = self.shape.powers(challenge);
        let (hash, digest) = proof.split_at(8);
        let mut choices = [0; 8];
        choices.copy_from_slice(hash);
        let choices = u64::from_le_bytes(choices);
        let hashes = (0..KAPPA).map(|r| {
            let row = self.chunks.iter().map(|rows| &rows.0[r]);
            let mask = 0u64.wrapping_sub((*self.delta >> r & 1) as u64);
            self.shape.hash(&powers, row) ^ choices & mask
        });
        let found = self.shape.digest(hashes);
        if bool::from(found.as_slice().ct_eq(digest)) {
            Ok(())
        } else {
            Err(OtError::Corrections)
        }
    }

    /// Makes `zeros` the `K₀` of every transfer; `K₁` is `K₀ ⊕ Δ`.
    pub fn correlated(&self, zeros: &mut Vec<u128>) {
        self.shape.keys(self.chunks.iter(), zeros);
    }

    /// Makes `zeros` and `ones` the hashes of `K₀` and `K₁` of every transfer.
    pub fn random(&self, [zeros, ones]: &mut [Vec<u128>; 2]) {
        self.correlated(zeros);
        ones.clear();
        ones.extend(zeros.iter().map(|key| key ^ *self.delta));
        self.shape.randomise(zeros);
        self.shape.randomise(ones);
    }
}
#[cfg(test)]
mod tests {
    use super::super::{SenderSetup, setup_len};
    use super::*;
    use crate::{Context, chosen};
    use undertone_kdf::Seed;
    use undertone_kernel::{Cpu, Prg};
    use undertone_party::{PartyId, SessionId};

    fn pair(f: usize, security: Security) -> (Sender, Receiver) {
        let context = Context::new(
            SessionId([1; 32]),
            "test",
            PartyId::client(0),
            PartyId::client(1),
        );
        let field = Field::new(f).unwrap();
        let (cpu, seed) = (Cpu::detect(), |byte| Seed::from_bytes([byte; 32]));
        let (setup, offer) = SenderSetup::new(context.clone(), seed(2));
        let mode = (field, security);
        let (receiver, message) = Receiver::new(cpu, &context, mode, &offer, seed(3)).unwrap();
        assert_eq!(message.len(), setup_len(field, security));
        let sender = setup.finish(cpu, field, security, &message).unwrap();
        (sender, receiver)
    }

    fn check(sender: &SenderBatch, receiver: &ReceiverBatch, delta: u128, count: usize) {
        let (mut zeros, mut chosen) = (vec![1], vec![2]);
        sender.correlated(&mut zeros);
        receiver.correlated(&mut chosen);
        let choices = receiver.choices();
        assert_eq!((zeros.len(), chosen.len()), (count, count));
        assert_eq!(choices.len(), count.div_ceil(64));
        let (mut both, mut got) = ([vec![3], vec![]], vec![4]);
        sender.random(&mut both);
        receiver.random(&mut got);
        let [first, second] = both;
        for t in 0..count {
            let choice = choices[t / 64] >> (t % 64) & 1 == 1;
            assert_eq!(chosen[t], zeros[t] ^ if choice { delta } else { 0 });
            assert_eq!(got[t], if choice { second[t] } else { first[t] });
            assert_ne!(first[t], second[t]);
        }
        let ones: u32 = choices.iter().map(|word| word.count_ones()).sum();
        if count > 1000 {
            let share = f64::from(ones) / count as f64;
            assert!((0.4..0.6).contains(&share), "{share}");
        }
    }

    #[test]
    fn transfers_of_every_size_and_field() {
        let sizes = [
            0,
            1,
            63,
            64,
            65,
            1023,
            1025,
            CHUNK - 64,
            CHUNK - 1,
            CHUNK,
            CHUNK + 1,
            5000,
        ];
        for security in [Security::SemiHonest, Security::Malicious] {
            for f in 1..=8 {
                let (mut sender, mut receiver) = pair(f, security);
                for count in sizes {
                    let (theirs, corrections) = receiver.batch(count);
                    let due = corrections_len(Field::new(f).unwrap(), security, count);
                    assert_eq!(corrections.len(), due);
                    let mine = sender.batch(count, &corrections).unwrap();
                    let (theirs, mine) = match security {
                        Security::SemiHonest => (theirs.accept().unwrap(), mine.accept().unwrap()),
                        Security::Malicious => {
                            let (theirs, proof) = theirs.prove(mine.challenge());
                            (theirs, mine.check(&proof).unwrap())
                        }
                    };
                    check(&mine, &theirs, sender.delta(), count);
                }
            }
        }
    }

    #[test]
    fn false_corrections_are_found() {
        for f in [1, 4, 8] {
            let (mut sender, mut receiver) = pair(f, Security::Malicious);
            let (mut caught, tries) = (0, 40);
            for i in 0..tries {
                let (theirs, mut corrections) = receiver.batch(100);
                // One transfer of one block.
                let at = i * 997 % corrections.len();
                corrections[at] ^= 1 << (i % 8);
                let mine = sender.batch(100, &corrections).unwrap();
                let (_, proof) = theirs.prove(mine.challenge());
                let error = mine.check(&proof).err();
                caught += usize::from(error == Some(OtError::Corrections));
            }
            // Not found where the block's part of Δ is zero: with f = 1 half of the time.
            let least = if f == 1 { tries / 4 } else { 3 * tries / 4 };
            assert!(caught >= least, "f = {f}: {caught} of {tries}");
        }
    }

    #[test]
    fn replays_and_false_proofs_are_found() {
        let (mut sender, mut receiver) = pair(4, Security::Malicious);
        let (Unproved(first), corrections) = receiver.batch(300);
        let Unchecked {
            batch: mine,
            challenge,
        } = sender.batch(300, &corrections).unwrap();
        let proof = first.prove(challenge);
        for at in 0..PROOF_LEN {
            let mut changed = proof.clone();
            changed[at] ^= 0x10;
            let error = mine.check(challenge, &changed).unwrap_err();
            assert_eq!(error, OtError::Corrections);
        }
        assert!(matches!(
            mine.check(challenge, &proof[1..]),
            Err(OtError::Length { .. })
        ));
        let other = first.prove([1; 8]);
        assert_eq!(mine.check(challenge, &other), Err(OtError::Corrections));
        mine.check(challenge, &proof).unwrap();
        // The corrections of one batch for the next.
        let (Unproved(second), _) = receiver.batch(300);
        let Unchecked {
            batch: mine,
            challenge,
        } = sender.batch(300, &corrections).unwrap();
        for theirs in [first, second] {
            let proof = theirs.prove(challenge);
            assert_eq!(mine.check(challenge, &proof), Err(OtError::Corrections));
        }
        assert!(matches!(
            sender.batch(300, &corrections[8..]),
            Err(OtError::Length { .. })
        ));
        // Without a proof there are no keys.
        let (theirs, corrections) = receiver.batch(10);
        let mine = sender.batch(10, &corrections).unwrap();
        assert_eq!(mine.accept().err(), Some(OtError::Unproved));
        assert_eq!(theirs.accept().err(), Some(OtError::Unproved));
    }

    /// One seed for two receivers: neither challenge tells the other.
    #[test]
    fn challenges_are_their_contexts_own() {
        let challenge = |purpose, receiver| {
            let receiver_id = PartyId::client(receiver);
            let context =
                Context::new(SessionId([1; 32]), purpose, PartyId::client(0), receiver_id);
            let field = Field::new(4).unwrap();
            let mode = (field, Security::Malicious);
            let (cpu, seed) = (Cpu::detect(), |byte| Seed::from_bytes([byte; 32]));
            let (setup, offer) = SenderSetup::new(context.clone(), seed(2));
            let made = Receiver::new(cpu, &context, mode, &offer, seed(3));
            let (mut theirs, message) = made.unwrap();
            let mut mine = setup.finish(cpu, mode.0, mode.1, &message).unwrap();
            let mut next = || {
                let (_unproved, corrections) = theirs.batch(10);
                mine.batch(10, &corrections).unwrap().challenge()
            };
            [next(), next()]
        };
        let all = [challenge("a", 1), challenge("a", 2), challenge("b", 1)];
        let mut all = all.as_flattened().to_vec();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 6);
    }

    #[test]
    fn chosen_messages_arrive() {
        let (mut sender, mut receiver) = pair(2, Security::SemiHonest);
        for count in [0, 1, 100, 3000] {
            let (theirs, corrections) = receiver.batch(count);
            let mine = sender.batch(count, &corrections).unwrap().accept().unwrap();
            let theirs = theirs.accept().unwrap();
            let mut prg = Prg::new(&[9; 32]);
            let wanted: Vec<u64> = (0..count.div_ceil(64)).map(|_| prg.next_u64()).collect();
            let messages: Vec<[u128; 2]> = (0..count as u128).map(|t| [2 * t, 2 * t + 1]).collect();
            let choices = chosen::choose(&wanted, &theirs.choices());
            let (mut both, mut keys) = (Default::default(), Vec::new());
            mine.random(&mut both);
            theirs.random(&mut keys);
            let [zeros, ones] = both;
            let offered = chosen::offer(&choices, [&zeros, &ones], &messages).unwrap();
            let opened = chosen::open(&wanted, &keys, &offered).unwrap();
            for (t, message) in opened.iter().enumerate() {
                assert_eq!(
                    *message,
                    messages[t][(wanted[t / 64] >> (t % 64) & 1) as usize]
                );
            }
            if count > 0 {
                assert!(chosen::offer(&choices[1..], [&zeros, &ones], &messages).is_err());
                assert!(chosen::open(&wanted, &keys, &offered[1..]).is_err());
            }
        }
    }
}
