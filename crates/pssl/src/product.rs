//! Inner products of rows of two clients, as shares of both, by correlated transfers (Gilboa, *Two
//! Party RSA Key Generation*, CRYPTO 1999).
//!
//! For bit b of value v of a row y of the receiver, the sender offers 2^b·x_v. Only 2⟨x, y⟩ modulo
//! 2^w matters, so an offer for bit b has w − 1 − b bits. `docs/spec/pssl.md`, *Products*.

use std::hint::black_box;

use undertone_kernel::Wiped;
use undertone_kernel::pack::{SLACK, pack_words, packed_len, unpack_words};
use undertone_ot::chosen;
use undertone_ot::extend::{ReceiverBatch, SenderBatch};
use undertone_ot::party::{Receiving, Sending};
use undertone_party::{Abort, Io, PartyId};
use zeroize::Zeroizing;

use crate::job::{Job, TRANSFER_BITS};

/// Most transfers of a portion. It bounds messages and memory.
const PORTION: usize = 1 << 19;

/// The sizes of products: F features, β bits of a value that choose, and w − 1 bits of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    features: usize,
    /// Bits of a value.
    bits: u32,
    /// w − 1: bits of a product.
    width: u32,
}

impl Shape {
    /// Those of a job.
    pub fn new(job: &Job) -> Self {
        Self {
            features: job.features,
            bits: job.bits().min(job.width() - 1),
            width: job.width() - 1,
        }
    }

    /// Transfers of a product.
    pub fn transfers(&self) -> usize {
        self.features * self.bits as usize
    }

    /// Bits of the offers for bit `bit` of a value.
    fn offer_bits(&self, bit: u32) -> u32 {
        self.width - bit
    }

    /// Bytes of the offers of a product.
    pub fn offers_len(&self) -> usize {
        let len = |bit| packed_len(self.offer_bits(bit), self.features);
        (0..self.bits).map(len).sum()
    }

    /// Bytes of a product, without those of a portion.
    pub(crate) fn bytes(&self) -> usize {
        self.transfers() * TRANSFER_BITS / 8 + self.offers_len()
    }

    fn mask(&self) -> u64 {
        (1 << self.width) - 1
    }

    /// The numbers of products of the portions of `count` products.
    fn portions(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        let most = (PORTION / self.transfers().max(1)).max(1);
        (0..count)
            .step_by(most)
            .map(move |first| most.min(count - first))
    }
}

/// The bits of rows that choose: bit b of value v of row p is bit p·βF + b·F + v. A missing row is
/// zeros.
pub fn choices(shape: Shape, rows: &[Option<&[u8]>]) -> Zeroizing<Vec<u64>> {
    let transfers = shape.transfers();
    let mut words = Zeroizing::new(vec![0u64; (rows.len() * transfers).div_ceil(64)]);
    for (index, row) in rows.iter().enumerate() {
        let Some(row) = row else { continue };
        for bit in 0..shape.bits {
            let first = index * transfers + bit as usize * shape.features;
            for (v, value) in row.iter().enumerate() {
                let at = first + v;
                words[at / 64] |= u64::from(value >> bit & 1) << (at % 64);
            }
        }
    }
    words
}

/// The sender's offers for its `rows`, and its shares of the products. `keys` are the lowest bits
/// of both hashed keys of each transfer. `changes` has a bit for each transfer: set where the
/// receiver wants the other key than it has.
///
/// # Panics
/// When there are fewer keys or changes than transfers.
pub fn offer(
    shape: Shape,
    keys: [&[u32]; 2],
    changes: &[u8],
    rows: &[Option<&[u8]>],
) -> (Vec<u8>, Wiped<u64>) {
    let each = shape.transfers();
    let mut message = Vec::with_capacity(rows.len() * shape.offers_len() + SLACK);
    let mut shares = Wiped::with_capacity(rows.len());
    let mut offers = Wiped::<u64>::with_capacity(shape.features);
    for (index, row) in rows.iter().enumerate() {
        let mut share = 0u64;
        for bit in 0..shape.bits {
            let start = index * each + bit as usize * shape.features;
            let mask = (1u64 << shape.offer_bits(bit)) - 1;
            offers.clear();
            let mut sum = 0u64;
            for v in 0..shape.features {
                let at = start + v;
                let change = 0u32.wrapping_sub((changes[at / 8] >> (at % 8) & 1).into());
                let differ = (keys[0][at] ^ keys[1][at]) & change;
                let (zero, one) = (keys[0][at] ^ differ, keys[1][at] ^ differ);
                let x = row.map_or(0, |row| u64::from(row[v]));
                let offer = u64::from(zero.wrapping_sub(one)).wrapping_add(x);
                offers.push(offer & mask);
                sum = sum.wrapping_add(u64::from(zero));
            }
            share = share.wrapping_sub(sum << bit);
            pack_words(shape.offer_bits(bit), &offers, &mut message);
        }
        shares.push(share & shape.mask());
    }
    (message, shares)
}

/// The receiver's shares of `count` products. `keys` are the lowest bits of its hashed key of each
/// transfer, `wanted` its [`choices`], `message` the sender's offers.
///
/// # Panics
/// When there are fewer keys, choices or offers than transfers.
pub fn take(
    shape: Shape,
    count: usize,
    keys: &[u32],
    wanted: &[u64],
    message: &[u8],
) -> Wiped<u64> {
    let each = shape.transfers();
    let mut shares = Wiped::with_capacity(count);
    let [mut offers, mut masks] = [(); 2].map(|()| Wiped::from(vec![0u64; shape.features]));
    let mut rest = message;
    for index in 0..count {
        let mut share = 0u64;
        for bit in 0..shape.bits {
            let width = shape.offer_bits(bit);
            let (packed, after) = rest.split_at(packed_len(width, shape.features));
            rest = after;
            unpack_words(width, packed, &mut offers);
            let start = index * each + bit as usize * shape.features;
            for (v, mask) in masks.iter_mut().enumerate() {
                let at = start + v;
                *mask = 0u64.wrapping_sub(wanted[at / 64] >> (at % 64) & 1);
            }
            // Opaque: otherwise the compiler makes branches of the masks.
            let masks = black_box(&masks[..]);
            let mut sum = 0u64;
            for ((offer, mask), key) in offers.iter().zip(masks).zip(&keys[start..]) {
                sum = sum.wrapping_add(u64::from(*key).wrapping_add(offer & mask));
            }
            share = share.wrapping_add(sum << bit);
        }
        shares.push(share & shape.mask());
    }
    shares
}

/// The sender's shares of the products of its `rows` with the receiver's. A dummy is a row of
/// zeros. A share of the sender and the receiver's add up to the product modulo 2^(w − 1).
pub(crate) async fn send(
    io: &Io,
    transfers: &mut Sending,
    shape: Shape,
    rows: &[Option<&[u8]>],
) -> Result<Wiped<u64>, Abort> {
    let peer = transfers.peer();
    let mut shares = Wiped::with_capacity(rows.len());
    let mut rest = rows;
    for count in shape.portions(rows.len()) {
        let total = count * shape.transfers();
        let mut keys = [(); 2].map(|()| Wiped::<u32>::with_capacity(total));
        let mut both = [Vec::new(), Vec::new()];
        let take = |batch: &SenderBatch| {
            batch.random(&mut both);
            for (all, batch) in keys.iter_mut().zip(&both) {
                all.extend(batch.iter().map(|key| *key as u32));
            }
        };
        transfers.make(io, total as u64, take).await?;
        both.into_iter().for_each(|keys| drop(Wiped::from(keys)));

        let changes = io.require(peer).await?;
        // PSSL-6.
        check_len(peer, "choices", &changes, 8 * total.div_ceil(64))?;
        let (rows, after) = rest.split_at(count);
        rest = after;
        let (message, own) = offer(shape, [&keys[0], &keys[1]], &changes, rows);
        shares.extend_from_slice(&own);
        io.send(peer, message);
        io.pause().await;
    }
    Ok(shares)
}

/// The receiver's shares of the products of its `rows` with the sender's.
pub(crate) async fn receive(
    io: &Io,
    transfers: &mut Receiving,
    shape: Shape,
    rows: &[Option<&[u8]>],
) -> Result<Wiped<u64>, Abort> {
    let peer = transfers.peer();
    let mut shares = Wiped::with_capacity(rows.len());
    let mut rest = rows;
    for count in shape.portions(rows.len()) {
        let total = count * shape.transfers();
        let mut keys = Wiped::<u32>::with_capacity(total);
        let mut random = Zeroizing::new(Vec::with_capacity(total.div_ceil(64)));
        let mut batch_keys = Vec::new();
        let collect = |batch: &ReceiverBatch| {
            batch.random(&mut batch_keys);
            keys.extend(batch_keys.iter().map(|key| *key as u32));
            random.extend_from_slice(&batch.choices());
        };
        transfers.make(io, total as u64, collect).await?;
        drop(Wiped::from(batch_keys));

        let (rows, after) = rest.split_at(count);
        rest = after;
        let wanted = choices(shape, rows);
        io.send(peer, chosen::choose(&wanted, &random));
        let message = io.require(peer).await?;
        // PSSL-7.
        check_len(peer, "offers", &message, count * shape.offers_len())?;
        shares.extend_from_slice(&take(shape, count, &keys, &wanted, &message));
        io.pause().await;
    }
    Ok(shares)
}

fn check_len(from: PartyId, what: &'static str, bytes: &[u8], due: usize) -> Result<(), Abort> {
    if bytes.len() == due {
        return Ok(());
    }
    Err(Abort::Malformed {
        from,
        what: format!("{what} of {} bytes, {due} are due", bytes.len()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Both shares add up to the product, modulo 2^(w − 1).
        #[test]
        fn shares_add_up_to_products(
            features in 1usize..30,
            scale in 1u8..=255,
            seed: [u8; 32],
            count in 1usize..4,
        ) {
            let shape = Shape::new(&Job::new(features, scale, 2, 1));
            let mut prg = undertone_kernel::Prg::new(&seed);
            let mut row = |_| -> Vec<u8> {
                let value = |_| (prg.next_u64() % (u64::from(scale) + 1)) as u8;
                (0..features).map(value).collect()
            };
            let [xs, ys] = [0, 1].map(|_| (0..count).map(&mut row).collect::<Vec<_>>());
            let total = count * shape.transfers();
            let mut words = || -> Vec<u32> { (0..total).map(|_| prg.next_u64() as u32).collect() };
            let (zeros, ones) = (words(), words());
            let random: Vec<u64> = (0..total.div_ceil(64)).map(|_| prg.next_u64()).collect();
            let bit = |t: usize| random[t / 64] >> (t % 64) & 1 == 1;
            let held: Vec<u32> =
                (0..total).map(|t| if bit(t) { ones[t] } else { zeros[t] }).collect();
            let [own, other] = [&xs, &ys].map(|rows| {
                let mut rows: Vec<Option<&[u8]>> = rows.iter().map(|row| Some(&row[..])).collect();
                rows[0] = rows[0].filter(|_| features != 7);
                rows
            });
            let wanted = choices(shape, &other);
            let changes = chosen::choose(&wanted, &random);
            let (message, first) = offer(shape, [&zeros, &ones], &changes, &own);
            prop_assert_eq!(message.len(), count * shape.offers_len());
            let second = take(shape, count, &held, &wanted, &message);
            for (index, (a, b)) in first.iter().zip(second.iter()).enumerate() {
                let product = match (own[index], other[index]) {
                    (Some(x), Some(y)) => {
                        x.iter().zip(y).map(|(x, y)| u64::from(*x) * u64::from(*y)).sum()
                    }
                    _ => 0,
                };
                prop_assert_eq!((a + b) & shape.mask(), product & shape.mask());
            }
        }
    }
}
