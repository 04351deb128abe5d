//! Base transfers: endemic OT (Masny, Rindal, *Endemic Oblivious Transfer*, CCS 2019) on Ristretto.
//!
//! 128 random transfers in one round trip, steps 1, 2 and 4 of `docs/spec/transfers.md`. With H a
//! hash to the group, for transfer i and choice c:
//!
//! 1. Receiver: draws `a` and `r_{1−c}`, computes `r_c = a·G − H(i, c, r_{1−c})`, sends
//!    `(r_0, r_1)`.
//! 2. Sender: draws `b`, sends `B = b·G`, computes `k_j = b·(r_j + H(i, j, r_{1−j}))` for both j.
//! 3. Receiver: computes `k_c = a·B`.
//!
//! `B` serves all 128 transfers. This is safe because each hash covers the number of the transfer
//! (McQuoid, Rosulek, Roy, *Batching Base Oblivious Transfers*, ASIACRYPT 2021). *Endemic* means
//! that a malicious party may choose its own keys; an extension needs no more.
//!
//! The sender learns nothing about c, because `(r_0, r_1)` is uniform for both choices. The
//! receiver learns nothing about `k_{1−c}` under computational Diffie–Hellman.

use curve25519_dalek::ristretto::{CompressedRistretto, RistrettoBasepointTable, RistrettoPoint};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::IsIdentity;
use rayon::prelude::*;
use sha2::{Digest, Sha256, Sha512};
use subtle::{Choice, ConditionallySelectable};
use zeroize::{Zeroize, Zeroizing};

use super::{Context, OtError};
use undertone_kdf::Seed;

/// Number of transfers.
pub const COUNT: usize = 128;

const POINT_LEN: usize = 32;

/// Bytes of the receiver's message: two points for each transfer.
pub const OFFER_LEN: usize = 2 * POINT_LEN * COUNT;

/// Bytes of the sender's message: one point.
pub const REPLY_LEN: usize = POINT_LEN;

type Encoding = [u8; POINT_LEN];

/// The receiver, after its message and before the sender's.
pub struct Receiver {
    context: Context,
    /// Half of `a`, for each transfer.
    halves: Vec<Scalar>,
    choices: u128,
    /// The message that was sent.
    offer: Vec<u8>,
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Receiver(..)")
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.halves.zeroize();
        self.choices.zeroize();
    }
}

/// Half of H: callers double it, as they double scalars, because encodings of doubled points come
/// in batches.
fn half_hash(context: &Context, transfer: usize, side: u8, point: &[u8]) -> RistrettoPoint {
    let hash = Sha512::new()
        .chain_update(b"undertone/v1/base transfer point")
        .chain_update(context.digest())
        .chain_update([transfer as u8, side])
        .chain_update(point);
    RistrettoPoint::from_uniform_bytes(&hash.finalize().into())
}

/// The key of one side of a transfer.
fn key(
    context: &Context,
    (transfer, side): (usize, u8),
    (pair, reply, shared): (&[u8], &[u8], &Encoding),
) -> u128 {
    let hash = Sha256::new()
        .chain_update(b"undertone/v1/base transfer key")
        .chain_update(context.digest())
        .chain_update([transfer as u8, side])
        .chain_update(pair)
        .chain_update(reply)
        .chain_update(shared);
    let mut hash: [u8; 32] = hash.finalize().into();
    let mut low = Zeroizing::new([0; 16]);
    low.copy_from_slice(&hash[..16]);
    hash.zeroize();
    u128::from_le_bytes(*low)
}

/// `count` scalars from the stream of `seed`, 64 bytes each.
fn scalars(seed: &Seed, count: usize) -> Vec<Scalar> {
    let mut prg = seed.prg();
    let mut wide = Zeroizing::new([0; 64]);
    let mut scalar = || {
        prg.fill(&mut *wide);
        Scalar::from_bytes_mod_order_wide(&wide)
    };
    (0..count).map(|_| scalar()).collect()
}

fn decode(bytes: &[u8], what: &'static str) -> Result<RistrettoPoint, OtError> {
    let compressed = CompressedRistretto::from_slice(bytes).map_err(|_| OtError::Point { what })?;
    compressed.decompress().ok_or(OtError::Point { what })
}

/// Step 1: the receiver and its message. Bit i of `choices` is the choice of transfer i. `seed` is
/// the receiver's randomness.
pub fn choose(context: Context, choices: u128, seed: Seed) -> (Receiver, Vec<u8>) {
    let halves = scalars(&context.derive(&seed, "base transfer scalar"), COUNT);
    let mut prg = context.derive(&seed, "base transfer point").prg();
    let random = (0..COUNT).map(|_| {
        let mut wide = Zeroizing::new([0; 64]);
        prg.fill(&mut *wide);
        RistrettoPoint::from_uniform_bytes(&wide)
    });
    let random = Zeroizing::new(random.collect::<Vec<_>>());
    // Secret: it tells which of the two points was drawn, and so the choice.
    let other = Zeroizing::new(RistrettoPoint::double_and_compress_batch(&*random));
    let chosen: Vec<RistrettoPoint> = (0..COUNT)
        .into_par_iter()
        .map(|i| {
            let side = (choices >> i & 1) as u8;
            RistrettoPoint::mul_base(&halves[i]) - half_hash(&context, i, side, other[i].as_bytes())
        })
        .collect();
    let chosen = Zeroizing::new(chosen);
    let chosen = Zeroizing::new(RistrettoPoint::double_and_compress_batch(&*chosen));
    let mut offer = Vec::with_capacity(OFFER_LEN);
    for (i, (mine, other)) in chosen.iter().zip(other.iter()).enumerate() {
        let (mut zero, mut one) = (mine.to_bytes(), other.to_bytes());
        let choice = Choice::from((choices >> i & 1) as u8);
        Encoding::conditional_swap(&mut zero, &mut one, choice);
        offer.extend(zero);
        offer.extend(one);
    }
    let receiver = Receiver {
        context,
        halves,
        choices,
        offer: offer.clone(),
    };
    (receiver, offer)
}

/// Step 2: both keys of every transfer, and the sender's message. `seed` is the sender's
/// randomness.
///
/// # Errors
/// [`OtError::Length`] or [`OtError::Point`].
pub fn respond(
    context: &Context,
    offer: &[u8],
    seed: Seed,
) -> Result<(Vec<[u128; 2]>, Vec<u8>), OtError> {
    OtError::check_len("base transfer points", offer, OFFER_LEN)?; // OT-1
    let half = Zeroizing::new(scalars(&context.derive(&seed, "base transfer scalar"), 1));
    let half = &half[0];
    let reply = RistrettoPoint::double_and_compress_batch([&RistrettoPoint::mul_base(half)]);
    let reply = reply[0].to_bytes();
    let mut shared = Zeroizing::new(vec![[RistrettoPoint::default(); 2]; COUNT]);
    let made: Result<(), OtError> = offer
        .par_chunks_exact(2 * POINT_LEN)
        .zip(shared.par_iter_mut())
        .enumerate()
        .try_for_each(|(i, (pair, shared))| {
            let bytes = pair.split_at(POINT_LEN);
            let what = "a base transfer point";
            let (zero, one) = (decode(bytes.0, what)?, decode(bytes.1, what)?); // OT-2
            let side = |side, point, other| {
                let hash = half_hash(context, i, side, other);
                (point + hash + hash) * half
            };
            *shared = [side(0, zero, bytes.1), side(1, one, bytes.0)];
            Ok(())
        });
    made?;
    let shared = shared.as_flattened();
    let encodings = Zeroizing::new(RistrettoPoint::double_and_compress_batch(shared));
    let pairs = offer.chunks_exact(2 * POINT_LEN).enumerate();
    let keys = pairs.zip(encodings.chunks_exact(2));
    let keys = keys.map(|((i, pair), shared)| {
        [0, 1].map(|side: u8| {
            let shared = shared[usize::from(side)].as_bytes();
            key(context, (i, side), (pair, &reply, shared))
        })
    });
    Ok((keys.collect(), reply.to_vec()))
}

impl Receiver {
    /// Step 4: the chosen key of every transfer.
    ///
    /// # Errors
    /// [`OtError::Length`] or [`OtError::Point`].
    pub fn finish(self, reply: &[u8]) -> Result<Vec<u128>, OtError> {
        OtError::check_len("a base transfer reply", reply, REPLY_LEN)?; // OT-3
        let what = "a base transfer reply";
        let point = decode(reply, what)?; // OT-4
        // OT-5
        if point.is_identity() {
            return Err(OtError::Point { what });
        }
        let table = RistrettoBasepointTable::create(&point);
        let shared = self.halves.par_iter().map(|half| &table * half);
        let shared = Zeroizing::new(shared.collect::<Vec<_>>());
        let encodings = Zeroizing::new(RistrettoPoint::double_and_compress_batch(&*shared));
        let pairs = self.offer.chunks_exact(2 * POINT_LEN).zip(encodings.iter());
        let keys = pairs.enumerate().map(|(i, (pair, shared))| {
            let side = (self.choices >> i & 1) as u8;
            key(&self.context, (i, side), (pair, reply, shared.as_bytes()))
        });
        Ok(keys.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_party::{PartyId, SessionId};

    fn context() -> Context {
        Context::new(
            SessionId([1; 32]),
            "test",
            PartyId::client(0),
            PartyId::client(1),
        )
    }

    fn seed(byte: u8) -> Seed {
        Seed::from_bytes([byte; 32])
    }

    #[test]
    fn the_receiver_gets_the_keys_it_chose() {
        let choices = 0x0123_4567_89ab_cdef_1111_eeee_5a5a_0000;
        let (receiver, offer) = choose(context(), choices, seed(2));
        assert_eq!(offer.len(), OFFER_LEN);
        let (keys, reply) = respond(&context(), &offer, seed(3)).unwrap();
        let chosen = receiver.finish(&reply).unwrap();
        for (i, (pair, chosen)) in keys.iter().zip(chosen).enumerate() {
            assert_eq!(pair[(choices >> i & 1) as usize], chosen);
            assert_ne!(pair[0], pair[1]);
        }
        let mut all: Vec<u128> = keys.into_iter().flatten().collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 2 * COUNT);
    }

    /// The same points under another number, side or context give unrelated keys.
    #[test]
    fn repeated_points_give_other_keys() {
        let (_, mut offer) = choose(context(), 0, seed(2));
        let first = offer[..2 * POINT_LEN].to_vec();
        offer[2 * POINT_LEN..4 * POINT_LEN].copy_from_slice(&first);
        let (keys, _) = respond(&context(), &offer, seed(3)).unwrap();
        assert_ne!(keys[0], keys[1]);
        let other = Context::new(
            SessionId([1; 32]),
            "test",
            PartyId::client(1),
            PartyId::client(0),
        );
        let (others, _) = respond(&other, &offer, seed(3)).unwrap();
        assert_ne!(keys[0], others[0]);
    }

    #[test]
    fn what_is_not_a_point_is_refused() {
        let (receiver, mut offer) = choose(context(), 5, seed(2));
        // OT-1
        assert!(matches!(
            respond(&context(), &offer[1..], seed(3)),
            Err(OtError::Length { .. })
        ));
        // OT-2
        offer[31] |= 0x80;
        assert!(matches!(
            respond(&context(), &offer, seed(3)),
            Err(OtError::Point { .. })
        ));
        // OT-5, then OT-3
        let (again, _) = choose(context(), 5, seed(2));
        assert!(matches!(again.finish(&[0; 32]), Err(OtError::Point { .. })));
        assert!(matches!(receiver.finish(&[]), Err(OtError::Length { .. })));
    }
}
