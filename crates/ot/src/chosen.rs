//! Transfers of chosen messages, from random transfers (Beaver, *Precomputing Oblivious Transfer*,
//! 1995).
//!
//! 1. Receiver, with choices b and random choices c: sends `d = b ⊕ c`.
//! 2. Sender, with messages m₀, m₁: sends `m₀ ⊕ K_d` and `m₁ ⊕ K_{1 ⊕ d}`.
//! 3. Receiver: `m_b` is the b-th of them ⊕ `K_c`.
//!
//! These are steps 12 to 14 of `docs/spec/transfers.md`.

use subtle::{Choice, ConditionallySelectable};
use zeroize::Zeroizing;

use super::OtError;

/// Step 12: the receiver's message, which turns the random choices `random` into the `wanted` ones.
/// Bits are counted as in [`choices`](super::extend::ReceiverBatch::choices).
///
/// # Panics
/// When `wanted` and `random` differ in length.
pub fn choose(wanted: &[u64], random: &[u64]) -> Vec<u8> {
    assert_eq!(
        wanted.len(),
        random.len(),
        "wanted and random choices differ in length"
    );
    let pairs = wanted.iter().zip(random);
    pairs.flat_map(|(b, c)| (b ^ c).to_le_bytes()).collect()
}

fn bit(bytes: &[u8], transfer: usize) -> Choice {
    Choice::from(bytes[transfer / 8] >> (transfer % 8) & 1)
}

/// Both keys of each transfer in the receiver's order: it holds the key of the side that it wanted.
/// `keys` are those of [`random`](super::extend::SenderBatch::random).
///
/// # Errors
/// [`OtError::Length`]: the receiver is to blame.
///
/// # Panics
/// When the two sides have different numbers of keys.
pub fn ordered(
    choices: &[u8],
    [zeros, ones]: [&[u128]; 2],
) -> Result<Zeroizing<Vec<[u128; 2]>>, OtError> {
    OtError::check_len("choices", choices, 8 * zeros.len().div_ceil(64))?; // OT-11
    assert_eq!(
        zeros.len(),
        ones.len(),
        "the sides have different numbers of keys"
    );
    let pairs = zeros.iter().zip(ones).enumerate();
    let pairs = pairs.map(|(t, (zero, one))| {
        let (mut first, mut second) = (*zero, *one);
        u128::conditional_swap(&mut first, &mut second, bit(choices, t));
        [first, second]
    });
    Ok(Zeroizing::new(pairs.collect()))
}

/// Step 13: the sender's message, 32 bytes for each transfer. `keys` are those of
/// [`random`](super::extend::SenderBatch::random).
///
/// # Errors
/// [`OtError::Length`]: the receiver is to blame.
///
/// # Panics
/// When the numbers of messages and of keys of each side differ.
pub fn offer(
    choices: &[u8],
    keys: [&[u128]; 2],
    messages: &[[u128; 2]],
) -> Result<Vec<u8>, OtError> {
    assert_eq!(
        keys[0].len(),
        messages.len(),
        "the numbers of keys and messages differ"
    );
    let keys = ordered(choices, keys)?;
    let mut out = Vec::with_capacity(32 * messages.len());
    for (message, keys) in messages.iter().zip(keys.iter()) {
        for (message, key) in message.iter().zip(keys) {
            out.extend((message ^ key).to_le_bytes());
        }
    }
    Ok(out)
}

/// Step 14: the chosen messages. `keys` are those of
/// [`random`](super::extend::ReceiverBatch::random).
///
/// # Errors
/// [`OtError::Length`]: the sender is to blame.
///
/// # Panics
/// When there are fewer choices than keys.
pub fn open(
    wanted: &[u64],
    keys: &[u128],
    offered: &[u8],
) -> Result<Zeroizing<Vec<u128>>, OtError> {
    OtError::check_len("messages", offered, 32 * keys.len())?; // OT-12
    let (blocks, _) = offered.as_chunks::<16>();
    let pairs = keys.iter().zip(blocks.chunks_exact(2));
    let open = |(t, (key, pair)): (usize, (&u128, &[[u8; 16]]))| {
        let [zero, one] = [0, 1].map(|side| u128::from_le_bytes(pair[side]));
        let choice = Choice::from((wanted[t / 64] >> (t % 64) & 1) as u8);
        key ^ u128::conditional_select(&zero, &one, choice)
    };
    Ok(Zeroizing::new(pairs.enumerate().map(open).collect()))
}
