//! `shade`: SHADE (Bringer, Chabanne, Patey 2013) from correlated transfers, batched as in GSHADE
//! (Bringer et al. 2014).
//!
//! `docs/spec/shade.md` specifies messages and steps. In short: of each two clients that have rows,
//! the one with more rows is the *sender* and the other the *receiver*. Ties go to the client with
//! the smaller number as the sender. The cost is one transfer for each bit of the receiver. All
//! numbers are modulo 2^w. With rows `x_a` of the sender and rows `y_i` of the receiver:
//!
//! 1. Transfer (i, l) gives the sender the keys K₀ and K₁. It gives the receiver `K_c` with c =
//!    `y_i[l]`. One transfer serves all rows of the sender.
//! 2. Sender → receiver: `u[a] = G(K₀)[a] + 1 − 2·x_a[l] − G(K₁)[a]`. `R[a, i]` is the sum of
//!    `G(K₀)[a] − x_a[l]` over l. The receiver adds up `G(K_c)[a] + c·u[a]` to `T[a, i]`
//!    ([`expand`]).
//! 3. Sender → server: R. Receiver → server: T. The server computes `h(a, i) = T − R`.
//!
//! The server learns h and nothing else: R is uniform to it, and T = R + h. As long as all follow
//! the protocol, clients learn nothing of each other. A client together with the server learns h.
//!
//! *Offline*, before there are codes, the two run base transfers and trees. They also exchange the
//! corrections of the random transfers whose keys fit [`AHEAD_BYTES`].
//!
//! *Online*, the receiver requests a tile of its rows: it sends the bits `d = y ⊕ u` that turn
//! random choices into its own, and the corrections of transfers that were not made ahead. It
//! requests up to [`WINDOW`] tiles before it completes the first. Transfers are numbered by the
//! receiver's bits, row after row. All messages are sealed but u: u is long, and uniform to
//! everyone who lacks one end. Instead the request has a fresh key of a universal hash ([`nh`]).
//! The sender seals the hash of the tile's u, and the receiver sends the server nothing of a tile
//! whose hash differs.
//!
//! If a client drops out, only its own pairs end. The server decides whether enough clients remain.

mod client;
mod offline;
mod server;
mod transfers;

use undertone_kernel::{expand, nh, pack};
use undertone_party::frame::TILE_BYTES;
use undertone_party::{Abort, PartyId};

pub(super) use client::Client;
pub(super) use offline::{Preparation, Prepared};
pub(super) use server::{Meeting, Shape};

use undertone_ot::Field;
use undertone_ot::extend::CHUNK;

/// Maximum number of rows of a client.
const MAX_ROWS: usize = 1 << 16;

/// Lanes in one block of an expanded key, 16 bits each.
const LANES_PER_BLOCK: usize = 8;

/// Maximum number of blocks that expand one key of every transfer of a pair. The tweaked hash of q
/// inputs falls short of a random function by q²/2¹²⁹, and both keys are expanded
/// (docs/security.md, *Assumptions*).
const MAX_BLOCKS: u64 = 1 << 40;

/// Bytes of keys that a client keeps from offline to online, for all its pairs together. They
/// suffice for 1024 rows of 4096 bits.
const AHEAD_BYTES: usize = 64 << 20;

/// Maximum bytes of u in a message.
const FRAME_BYTES: usize = 2 << 20;

/// Bytes of the seed of a tile's hash key.
const HASH_SEED_LEN: usize = 32;

/// Bytes of the hash of a tile's offers.
const DIGEST_LEN: usize = 16;

/// Tiles that a receiver has requested and not completed, at most.
const WINDOW: usize = 2;

/// Maximum bits of the receiver in a tile. A tile has at least one row.
const TILE_BITS: usize = 1 << 16;
/// Maximum sums in a tile. A tile has at least one row.
const TILE_SUMS: usize = 1 << 19;

const SERVER: PartyId = PartyId::SERVER;

/// Whether `me` is the sender to `other`. Each comes with its number of rows.
fn sends(me: (PartyId, usize), other: (PartyId, usize)) -> bool {
    (me.1, other.0) > (other.1, me.0)
}

/// The parameters of a pair, which both ends and the server know.
#[derive(Debug, Clone, Copy)]
struct Pair {
    /// Bits of a code.
    bits: usize,
    /// Rows of the sender.
    lanes: usize,
    /// Rows of the receiver.
    rows: usize,
    /// Bytes of keys that the pair may keep from offline to online.
    ahead_bytes: usize,
}

impl Pair {
    /// A pair of two of `clients` clients. `None` if one of the two has no rows.
    fn new(bits: usize, rows: [usize; 2], clients: usize) -> Option<Self> {
        let pair = Self {
            bits,
            lanes: rows[0].max(rows[1]),
            rows: rows[0].min(rows[1]),
            ahead_bytes: AHEAD_BYTES / clients.saturating_sub(1).max(1),
        };
        (pair.rows > 0).then_some(pair)
    }

    fn width(&self) -> u32 {
        usize::BITS - self.bits.leading_zeros()
    }

    /// The field of the extension. f = 4 costs 4 bytes for each transfer. f = 8 costs 2 bytes and
    /// seven times the computation; it is used where f = 4 would add more than 17 bytes to a
    /// distance.
    fn field(&self) -> Field {
        let f = if 4 * self.bits <= 17 * self.lanes {
            4
        } else {
            8
        };
        Field::new(f).unwrap_or_else(|| unreachable!("f is 4 or 8"))
    }

    /// Bytes of the corrections of a chunk.
    fn chunk_len(&self) -> usize {
        CHUNK / 8 * (self.field().blocks().len() - 1)
    }

    /// Chunks whose corrections are exchanged offline.
    fn ahead(&self) -> u64 {
        let all = (self.rows * self.bits).div_ceil(CHUNK);
        all.min(self.ahead_bytes / (size_of::<u128>() * CHUNK)) as u64
    }

    /// Chunks of one offline message.
    fn chunks_per_message(&self) -> u64 {
        (TILE_BYTES / self.chunk_len()) as u64
    }

    /// Words of d in a row.
    fn words(&self) -> usize {
        self.bits.div_ceil(64)
    }

    /// Bytes of a request of a tile of `rows` rows, after the corrections.
    fn request_len(&self, rows: usize) -> usize {
        8 * self.words() * rows + HASH_SEED_LEN
    }

    /// Sums of a row, rounded up to whole registers.
    fn stride(&self) -> usize {
        self.lanes.next_multiple_of(expand::LANES)
    }

    /// Rows of a tile.
    fn tile_rows(&self) -> usize {
        (TILE_BITS / self.bits).min(TILE_SUMS / self.lanes).max(1)
    }

    /// The rows of each tile.
    fn tile(&self, number: usize) -> std::ops::Range<usize> {
        let first = number * self.tile_rows();
        first.min(self.rows)..self.rows.min(first + self.tile_rows())
    }

    fn tiles(&self) -> usize {
        self.rows.div_ceil(self.tile_rows())
    }

    /// Bytes of R or T of a tile of `rows` rows.
    fn sums_len(&self, rows: usize) -> usize {
        pack::packed_len(self.width(), rows * self.lanes)
    }

    /// Bytes of u of `transfers` transfers of one row.
    fn message_len(&self, transfers: usize) -> usize {
        expand::message_len(self.width(), transfers, self.lanes)
    }

    /// Pieces of the hash of u of `transfers` transfers of one row.
    fn pieces(&self, transfers: usize) -> usize {
        let group = nh::Key::pieces(self.message_len(expand::GROUP));
        transfers.div_ceil(expand::GROUP) * group
    }

    /// Blocks of the permutation that expand one key of every transfer of the pair.
    fn blocks(&self) -> u64 {
        let bits = self.rows as u64 * self.bits as u64;
        bits * self.lanes.div_ceil(LANES_PER_BLOCK) as u64
    }

    /// Checks the limits of a pair: SHADE-1.
    fn check(&self) -> Result<(), Abort> {
        if self.lanes > MAX_ROWS {
            return Err(Abort::Misuse(format!(
                "a client has {} rows; with shade at most {MAX_ROWS} are possible",
                self.lanes
            )));
        }
        if self.blocks() > MAX_BLOCKS {
            return Err(Abort::Misuse(format!(
                "{} and {} rows of {} bits are too many for one pair of clients with shade: take \
                 fewer rows or shorter codes",
                self.lanes, self.rows, self.bits
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // SHADE-1
    #[test]
    fn pairs_that_would_hash_too_much_are_refused() {
        let check = |bits, rows| Pair::new(bits, rows, 2).map(|pair| pair.check());
        assert_eq!(check(4096, [1 << 15, 1 << 16]), Some(Ok(())));
        assert!(matches!(
            check(4096, [(1 << 15) + 1, 1 << 16]),
            Some(Err(Abort::Misuse(_)))
        ));
        assert!(matches!(
            check(65_535, [1 << 16; 2]),
            Some(Err(Abort::Misuse(_)))
        ));
        assert!(matches!(
            check(1, [1, (1 << 16) + 1]),
            Some(Err(Abort::Misuse(_)))
        ));
        assert_eq!(check(4096, [0, 5]), None);
    }
}
