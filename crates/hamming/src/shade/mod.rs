//! `shade`: SHADE (Bringer, Chabanne, Patey 2013) from correlated transfers, batched as in GSHADE (Bringer et al. 2014).
//!
//! Of every two clients that have rows, the one with more is the *sender* (of two with as many the first), as the cost is one transfer for
//! every bit of the other, the *receiver*. All numbers are modulo 2^w. With n rows `x_a` of the sender and rows `y_i` of the receiver:
//!
//! 1. Transfer (i, l) gives the sender the keys K₀ and K₁, the receiver `K_c` with c = `y_i[l]`: one transfer a bit
//!    of the receiver, which serves all rows of the sender.
//! 2. Sender → receiver: `u[a] = G(K₀)[a] + 1 − 2·x_a[l] − G(K₁)[a]`. `R[a, i]` is the sum of `G(K₀)[a] − x_a[l]`; the receiver adds
//!    up `G(K_c)[a] + c·u[a]` to `T[a, i]` ([`expand`]).
//! 3. Sender → server: R; receiver → server: T; `h(a, i) = T − R`.
//!
//! The server learns h, and that T − R is h and no more: R is uniform. Clients learn nothing of each other,
//! also together with the server, but for h: as long as all follow the protocol.
//!
//! *Offline*, before there are codes: base transfers, trees, and the corrections of random transfers, as many as have keys that fit
//! [`AHEAD_BYTES`]. *Online*: the receiver asks for a tile of its rows by the bits that make random choices its own, `d = y ⊕ u`, with the
//! corrections of transfers that were not made ahead; it asks for two tiles ahead of what it has received. Transfers are numbered by the receiver's bits,
//! row after row. All is sealed for the peer but u, which is long, and uniform to whoever has not both ends.
//!
//! Messages, all between the two clients of a pair but the last two:
//!
//! | phase | from | what |
//! |---|---|---|
//! | offline | sender | points of base transfers |
//! | offline | receiver | reply, trees |
//! | offline | receiver | corrections, whole chunks, as many as fit 2²⁰ bytes, until all are ahead |
//! | online | receiver | for each tile: corrections of the chunks it needs that were not ahead, then d, whole words a row |
//! | online | sender | for each tile: u, groups of 16 transfers, as many as fit 2²¹ bytes, until the tile is complete |
//! | online | both, to the server | for each tile: the peer's number (4), then R or T, row after row of the receiver, packed |
//! | online | both, to the server | 2³² − 1 (4): that was all |
//!
//! A client that leaves is missing in its own pairs alone. Whether enough are left is for the server to say.

mod client;
mod offline;
mod server;
mod transfers;

use undertone_kernel::{expand, pack};
use undertone_party::frame::TILE_BYTES;
use undertone_party::{Abort, PartyId};

pub(super) use client::Client;
pub(super) use offline::{Preparation, Prepared};
pub(super) use server::{Meeting, Shape};

use undertone_ot::Field;
use undertone_ot::extend::CHUNK;

/// Most rows of a client.
const MAX_ROWS: usize = 1 << 16;

/// Lanes of one block of an expanded key: 16 bits each.
const LANES_PER_BLOCK: usize = 8;

/// Most blocks that expand one key of every transfer of a pair: the tweaked hash of q inputs falls
/// short of a random function by q²/2¹²⁹, and both keys are expanded (SECURITY.md, *Assumptions*).
const MAX_BLOCKS: u64 = 1 << 40;

/// Keys that a client keeps of all its pairs, from offline to online: of 1024 rows of 4096 bits.
const AHEAD_BYTES: usize = 64 << 20;

/// Bytes of u in a message.
const FRAME_BYTES: usize = 2 << 20;

/// Tiles a receiver asks for before it has received the first of them.
const WINDOW: usize = 2;

/// Bits of the receiver in a tile, and sums in a tile, at most; one row at least.
const TILE_BITS: usize = 1 << 16;
const TILE_SUMS: usize = 1 << 19;

const SERVER: PartyId = PartyId::SERVER;

/// Whether `me`, with its rows, is the sender to `other`, with its.
fn sends(me: (PartyId, usize), other: (PartyId, usize)) -> bool {
    (me.1, other.0) > (other.1, me.0)
}

/// What both ends of a pair know.
#[derive(Debug, Clone, Copy)]
struct Pair {
    /// Bits of a code.
    bits: usize,
    /// Rows of the sender: lanes.
    lanes: usize,
    /// Rows of the receiver.
    rows: usize,
    /// Of its keys this much is kept.
    ahead_bytes: usize,
}

impl Pair {
    /// The pair of two of `clients` clients, or nothing where there is nothing to do.
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

    /// f = 4 costs 4 bytes a transfer, f = 8 costs 2, and seven times the computation: it is for where f = 4 would add
    /// more than 17 bytes to a distance.
    fn field(&self) -> Field {
        let f = if 4 * self.bits <= 17 * self.lanes {
            4
        } else {
            8
        };
        Field::new(f).unwrap_or_else(|| unreachable!("f is 4 or 8"))
    }

    /// Corrections of a chunk.
    fn chunk_len(&self) -> usize {
        CHUNK / 8 * (self.field().blocks().len() - 1)
    }

    /// Chunks whose corrections are exchanged ahead.
    fn ahead(&self) -> u64 {
        let all = (self.rows * self.bits).div_ceil(CHUNK);
        all.min(self.ahead_bytes / (size_of::<u128>() * CHUNK)) as u64
    }

    /// Chunks of one offline message.
    fn chunks_per_message(&self) -> u64 {
        (TILE_BYTES / self.chunk_len()) as u64
    }

    /// Words of d for a row.
    fn words(&self) -> usize {
        self.bits.div_ceil(64)
    }

    /// Sums of a row, filled up to whole registers.
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

    /// Bytes of u of some transfers of one row.
    fn message_len(&self, transfers: usize) -> usize {
        expand::message_len(self.width(), transfers, self.lanes)
    }

    /// Blocks of the permutation that expand one key of every transfer.
    fn blocks(&self) -> u64 {
        let bits = self.rows as u64 * self.bits as u64;
        bits * self.lanes.div_ceil(LANES_PER_BLOCK) as u64
    }

    fn check(&self) -> Result<(), Abort> {
        if self.lanes > MAX_ROWS {
            return Err(Abort::Misuse(format!(
                "a client of {} rows; with shade at most {MAX_ROWS} are possible",
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
