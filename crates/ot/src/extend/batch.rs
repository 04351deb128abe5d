//! Batches of transfers: what each party holds of one, and the check against a malicious receiver.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use undertone_kernel::aes::Permutation;
use undertone_kernel::universal;
use zeroize::Zeroizing;

use super::super::{Field, KAPPA, OtError, Security};
use super::{CHUNK, CHUNK_WORDS, Receiver, Row, Rows, Sender, row_words};

/// Most transfers of a batch. It bounds memory, and keeps rows and keys in the second-level cache.
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

/// Most transfers of one batch: 64 fewer against a malicious receiver, because 64 are given up.
pub fn batch(security: Security) -> usize {
    match security {
        Security::SemiHonest => BATCH,
        Security::Malicious => BATCH - 64,
    }
}

impl Receiver {
    /// The next `count` transfers, at most [`batch`], and the message with their corrections, of
    /// [`corrections_len`] bytes.
    ///
    /// # Panics
    /// When `count` is larger than [`batch`].
    pub fn batch(&mut self, count: usize) -> (Unproved, Vec<u8>) {
        assert!(
            count <= batch(self.security),
            "{count} transfers are too many"
        );
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
    /// The next `count` transfers, given the receiver's corrections (step 7).
    ///
    /// # Errors
    /// [`OtError::Length`].
    ///
    /// # Panics
    /// When `count` is larger than [`batch`].
    pub fn batch(&mut self, count: usize, corrections: &[u8]) -> Result<Unchecked, OtError> {
        assert!(
            count <= batch(self.security),
            "{count} transfers are too many"
        );
        let field = self.expander.field;
        let due = corrections_len(field, self.security, count);
        OtError::check_len("corrections", corrections, due)?; // OT-7
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

/// What both parties know about a batch.
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

    /// The hash of one row, which is given in pieces.
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

/// A batch at the receiver.
pub struct ReceiverBatch {
    shape: Shape,
    chunks: Vec<(Zeroizing<Row>, Rows)>,
}

/// A [`ReceiverBatch`] before its proof. One proof tells nothing about the choices; two would.
#[derive(Debug)]
#[must_use = "prove or accept the batch: the sender waits for it"]
pub struct Unproved(ReceiverBatch);

/// A [`SenderBatch`] before its check. Against a malicious receiver its keys must not be used
/// before.
#[derive(Debug)]
#[must_use = "check or accept the batch: its keys are usable only then"]
pub struct Unchecked {
    batch: SenderBatch,
    challenge: [u8; CHALLENGE_LEN],
}

impl Unproved {
    /// The batch, and the proof that its corrections are right, [`PROOF_LEN`] bytes (step 9).
    pub fn prove(self, challenge: [u8; CHALLENGE_LEN]) -> (ReceiverBatch, Vec<u8>) {
        let proof = self.0.prove(challenge);
        (self.0, proof)
    }

    /// The batch without a proof, for a sender that asks for none.
    ///
    /// # Errors
    /// [`OtError::Unproved`] against a malicious receiver.
    pub fn accept(self) -> Result<ReceiverBatch, OtError> {
        match self.0.shape.security {
            Security::SemiHonest => Ok(self.0),
            Security::Malicious => Err(OtError::Unproved),
        }
    }
}

impl Unchecked {
    /// The challenge (step 8). It was drawn after the corrections arrived, from the sender's seed
    /// and the context.
    pub fn challenge(&self) -> [u8; CHALLENGE_LEN] {
        self.challenge
    }

    /// The batch, if `proof` answers the [`challenge`](Self::challenge) (step 10).
    ///
    /// # Errors
    /// [`OtError::Length`], or [`OtError::Corrections`] when the corrections or the proof are
    /// false.
    pub fn check(self, proof: &[u8]) -> Result<SenderBatch, OtError> {
        self.batch.check(self.challenge, proof)?;
        Ok(self.batch)
    }

    /// The batch without a check, for a receiver that is trusted to follow the protocol.
    ///
    /// # Errors
    /// [`OtError::Unproved`] against a malicious receiver.
    pub fn accept(self) -> Result<SenderBatch, OtError> {
        match self.batch.shape.security {
            Security::SemiHonest => Ok(self.batch),
            Security::Malicious => Err(OtError::Unproved),
        }
    }
}

/// A batch at the sender.
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

    /// The choices. That of transfer t is bit t mod 64 of word ⌊t/64⌋.
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

    /// Fills `keys` with `K_c` of every transfer.
    pub fn correlated(&self, keys: &mut Vec<u128>) {
        let chunks = self.chunks.iter().map(|(_, rows)| rows);
        self.shape.keys(chunks, keys);
    }

    /// Fills `keys` with the hash of `K_c` of every transfer.
    pub fn random(&self, keys: &mut Vec<u128>) {
        self.correlated(keys);
        self.shape.randomise(keys);
    }
}

impl SenderBatch {
    fn check(&self, challenge: [u8; CHALLENGE_LEN], proof: &[u8]) -> Result<(), OtError> {
        OtError::check_len("a proof", proof, PROOF_LEN)?; // OT-9
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
        // OT-10
        if bool::from(found.as_slice().ct_eq(digest)) {
            Ok(())
        } else {
            Err(OtError::Corrections)
        }
    }

    /// Δ.
    pub fn delta(&self) -> u128 {
        *self.delta
    }

    /// Fills `zeros` with `K₀` of every transfer; `K₁` is `K₀ ⊕ Δ`.
    pub fn correlated(&self, zeros: &mut Vec<u128>) {
        self.shape.keys(self.chunks.iter(), zeros);
    }

    /// Fills `zeros` and `ones` with the hashes of `K₀` and `K₁` of every transfer.
    pub fn random(&self, [zeros, ones]: &mut [Vec<u128>; 2]) {
        self.correlated(zeros);
        ones.clear();
        ones.extend(zeros.iter().map(|key| key ^ *self.delta));
        self.shape.randomise(zeros);
        self.shape.randomise(ones);
    }
}

#[cfg(test)]
mod tests;
