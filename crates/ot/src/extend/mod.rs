//! The extension: SoftSpokenOT (Roy, *SoftSpokenOT: Quieter OT Extension from Small-Field Silent
//! VOLE in the Minicrypt Model*, CRYPTO 2022).
//!
//! Steps 6 to 11 of `docs/spec/transfers.md`.
//!
//! Both parties expand the leaves of the [trees](super::tree) of part i, of f bits (small-field
//! VOLE, sections 3.1 and 3.2). For each transfer, in GF(2^f), the receiver has `u_i = Σ r_x` and
//! `v_i = Σ x·r_x`; the sender has `w_i = Σ y·r_{y ⊕ Δ_i} = v_i + u_i·Δ_i`. All parts must have the
//! same bits u (subspace VOLE with the repetition code): the receiver sends `c_i = u_i ⊕ u_0` for
//! `i > 0`, and the sender adds `c_i·Δ_i`. Now `w = v + u_0·Δ` over all 128 bits: v is the
//! receiver's key of choice u_0; w and w ⊕ Δ are the sender's keys.
//!
//! Against a malicious receiver the sender draws a point when it has the corrections, and both hash
//! every row of bits ([`universal`](undertone_kernel::universal)). 64 transfers are given up,
//! because the hash of u_0 would tell something about the choices. The receiver sends the hash of
//! u_0, and SHA-256 of the 128 hashes of v. Corrections are false where they differ from the
//! choices that the proof commits to. A receiver with false corrections in parts i passes only if
//! it guesses all of those `Δ_i`, or with probability (words of a row)·2⁻⁶⁴, at most 2⁻⁵⁶ a batch.
//!
//! A batch is expanded once. Chunks of streams are counted, so corrections of one batch do not fit
//! another.

mod batch;

use std::hint::black_box;

use undertone_kernel::aes::Permutation;
use undertone_kernel::leaves::{self, Leaves};
use undertone_kernel::{Cpu, Prg, transpose};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::tree::{self, Seeds};
use super::{Context, Delta, Field, KAPPA, OtError, Security, base};
use undertone_kdf::Seed;

pub use batch::{
    BATCH, CHALLENGE_LEN, PROOF_LEN, ReceiverBatch, SenderBatch, Unchecked, Unproved, batch,
    corrections_len,
};
pub use undertone_kernel::leaves::Row;

/// Transfers of a chunk, the unit of expansion.
pub const CHUNK: usize = 128 * leaves::BLOCKS;

/// Words of 64 transfers in a chunk's row.
const CHUNK_WORDS: usize = CHUNK / 64;

/// The rows of a chunk, one for each bit of Δ.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Rows(Vec<Row>);

impl Default for Rows {
    /// Zeros.
    fn default() -> Self {
        Self(vec![Row::default(); KAPPA])
    }
}

impl Rows {
    /// The key of each of the chunk's transfers.
    pub fn keys(&self, cpu: Cpu, out: &mut [u128]) {
        transpose::blocks(cpu, &self.0, out);
    }
}

/// A row's words.
fn row_words(row: &Row) -> [u64; CHUNK_WORDS] {
    std::array::from_fn(|i| (row[i / 2] >> (64 * (i % 2))) as u64)
}

/// The leaves of all parts.
struct Expander {
    field: Field,
    leaves: Leaves,
}

impl Expander {
    fn new(cpu: Cpu, field: Field, seeds: &Seeds) -> Self {
        Self {
            field,
            leaves: Leaves::new(cpu, seeds),
        }
    }

    /// For each part, passes its number and the sum of its leaves' streams to `each`, and writes Σ
    /// x·r_x to its rows.
    fn expand(&self, chunk: u64, rows: &mut Rows, mut each: impl FnMut(usize, &Row, &mut [Row])) {
        let mut start = 0;
        let mut sum = Zeroizing::new(Row::default());
        for (number, block) in self.field.blocks().enumerate() {
            let end = start + (1 << block.len());
            let rows = &mut rows.0[block];
            self.leaves.sums(start..end, chunk, &mut sum, rows);
            each(number, &sum, rows);
            start = end;
        }
    }
}

/// The receiver of an extension, after it has grown its trees.
pub struct Receiver {
    expander: Expander,
    security: Security,
    pi: Permutation,
    /// Number of chunks used up.
    used: u64,
    transfers: u64,
}

/// The sender of an extension, after it has checked the trees.
pub struct Sender {
    expander: Expander,
    security: Security,
    pi: Permutation,
    delta: Zeroizing<u128>,
    /// Stream of the challenges.
    challenges: Box<Prg>,
    used: u64,
    transfers: u64,
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Receiver(..)")
    }
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sender(..)")
    }
}

/// The sender, after its first message and before the receiver's.
#[derive(Debug)]
pub struct SenderSetup {
    context: Context,
    delta: Zeroizing<u128>,
    challenges: Box<Prg>,
    base: base::Receiver,
}

/// Bytes of the receiver's setup message.
pub fn setup_len(field: Field, security: Security) -> usize {
    base::REPLY_LEN + tree::message_len(field, security)
}

impl SenderSetup {
    /// Draws Δ and chooses in the base transfers (step 1). Also returns the sender's message, of
    /// [`base::OFFER_LEN`] bytes. `seed` is all of its randomness, challenges included.
    pub fn new(context: Context, seed: Seed) -> (Self, Vec<u8>) {
        Self::with(context, Delta::Any, seed)
    }

    /// As [`new`](Self::new), with a Δ of this kind.
    pub fn with(context: Context, kind: Delta, seed: Seed) -> (Self, Vec<u8>) {
        let mut prg = context.derive(&seed, "delta").prg();
        let mut delta = u128::from(prg.next_u64()) | u128::from(prg.next_u64()) << 64;
        if kind == Delta::Odd {
            delta |= 1;
        }
        let challenges = Box::new(context.derive(&seed, "transfer challenge").prg());
        let (base, offer) = base::choose(context.clone(), !delta, seed);
        let delta = Zeroizing::new(delta);
        let setup = Self {
            context,
            delta,
            challenges,
            base,
        };
        (setup, offer)
    }

    /// The sender, given the receiver's message (steps 4 and 5).
    ///
    /// # Errors
    /// [`OtError`]: the receiver is to blame.
    pub fn finish(
        self,
        cpu: Cpu,
        field: Field,
        security: Security,
        message: &[u8],
    ) -> Result<Sender, OtError> {
        OtError::check_len("the setup", message, setup_len(field, security))?; // OT-3
        let (reply, trees) = message.split_at(base::REPLY_LEN);
        let keys = Zeroizing::new(self.base.finish(reply)?);
        let mine = (&keys[..], *self.delta);
        let seeds = tree::puncture(cpu, &self.context, field, security, mine, trees)?;
        Ok(Sender {
            expander: Expander::new(cpu, field, &seeds),
            security,
            pi: self.context.permutation(cpu, "extension", 0),
            delta: self.delta,
            challenges: self.challenges,
            used: 0,
            transfers: 0,
        })
    }
}

impl Receiver {
    /// The receiver and its message of [`setup_len`] bytes, given the sender's first message (steps
    /// 2 and 3). `seed` is the receiver's randomness.
    ///
    /// # Errors
    /// [`OtError`]: the sender is to blame.
    pub fn new(
        cpu: Cpu,
        context: &Context,
        (field, security): (Field, Security),
        offer: &[u8],
        seed: Seed,
    ) -> Result<(Self, Vec<u8>), OtError> {
        let (keys, mut message) = base::respond(context, offer, seed)?;
        let keys = Zeroizing::new(keys);
        let (seeds, trees) = tree::grow(cpu, context, field, security, &keys);
        message.extend(trees);
        let receiver = Self {
            expander: Expander::new(cpu, field, &seeds),
            security,
            pi: context.permutation(cpu, "extension", 0),
            used: 0,
            transfers: 0,
        };
        Ok((receiver, message))
    }

    /// Writes choices and rows of chunk number `chunk`, and appends the corrections of its first
    /// `words` words.
    pub fn chunk(
        &self,
        chunk: u64,
        words: usize,
        choices: &mut Row,
        rows: &mut Rows,
        corrections: &mut Vec<u8>,
    ) {
        self.expander.expand(chunk, rows, |number, sum, _| {
            if number == 0 {
                choices.copy_from_slice(sum);
                return;
            }
            let bytes = corrections.len() + 8 * words;
            for (u, first) in sum.iter().zip(&*choices).take(words.div_ceil(2)) {
                corrections.extend((u ^ first).to_le_bytes());
            }
            corrections.truncate(bytes);
        });
    }
}

impl Sender {
    /// Δ.
    pub fn delta(&self) -> u128 {
        *self.delta
    }

    /// Writes the rows of chunk number `chunk`, given the receiver's `corrections` for it.
    pub fn chunk(&self, chunk: u64, corrections: &[u8], rows: &mut Rows) {
        let delta = *self.delta;
        let row_len = corrections.len() / (self.expander.field.blocks().len() - 1).max(1);
        let mut bit = 0;
        self.expander.expand(chunk, rows, |number, _, rows| {
            let mut correction = Row::default();
            if number > 0 {
                let bytes = &corrections[(number - 1) * row_len..number * row_len];
                for (to, bytes) in correction.iter_mut().zip(bytes.chunks(16)) {
                    let mut block = [0; 16];
                    block[..bytes.len()].copy_from_slice(bytes);
                    *to = u128::from_le_bytes(block);
                }
            }
            for row in rows {
                // Opaque: otherwise the compiler makes a branch of it.
                let mask = black_box(0u128.wrapping_sub(delta >> bit & 1));
                let pairs = row.iter_mut().zip(&correction);
                pairs.for_each(|(w, c)| *w ^= c & mask);
                bit += 1;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition at the top of the module, bit by bit.
    #[test]
    #[allow(clippy::needless_range_loop)]
    fn an_expansion_is_the_definition() {
        let field = Field::new(3).unwrap();
        let seeds: Vec<u128> = (1..=field.blocks().map(|b| 1 << b.len()).sum::<u128>()).collect();
        let expander = Expander::new(Cpu::detect(), field, &Zeroizing::new(seeds.clone()));
        let mut rows = Rows::default();
        let mut sums = Vec::new();
        expander.expand(5, &mut rows, |_, sum, _| sums.push(*sum));
        let stream = |seed: u128, n: u128| {
            let mut block = [n];
            Permutation::new(Cpu::portable(), seed).apply(&mut block);
            block[0]
        };
        let mut first = 0;
        for (number, block) in field.blocks().enumerate() {
            for n in 0..leaves::BLOCKS {
                let leaf = |x: usize| stream(seeds[first + x], (5 * leaves::BLOCKS + n) as u128);
                let q = 1 << block.len();
                assert_eq!(sums[number][n], (0..q).fold(0, |sum, x| sum ^ leaf(x)));
                for (b, row) in block.clone().enumerate() {
                    let with = (0..q).filter(|x| x >> b & 1 == 1);
                    assert_eq!(rows.0[row][n], with.fold(0, |sum, x| sum ^ leaf(x)));
                }
            }
            first += 1 << block.len();
        }
    }
}
