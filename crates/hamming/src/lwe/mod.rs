//! `lwe`: distances from module learning with errors, which the server opens.
//!
//! `docs/spec/lwe.md` specifies messages and steps, and has the proof. In short: of each two
//! clients that have rows, the one with more rows is the *evaluator* and the other the *key owner*.
//! Ties go to the client with the smaller number as the evaluator. Q = 2^q, t is odd and τ·t = 1
//! modulo Q. All clients know the public matrix A.
//!
//! 1. Key owner → its evaluators: a *key* for each row y, `c = A·s + e − 2τ·y`.
//! 2. Evaluator → its key owners: a *header* H for each row x, `wA + η` rounded, where the *masked
//!    row* `w` is a wide Gaussian on `x + t·ℤ^l`.
//! 3. Evaluator → server: an *answer* for each pair of rows, `w·c + τ|x| + noise + P` rounded, with
//!    a pad P that the two clients share.
//! 4. Key owner → server: an *opening* for each pair of rows, `H·s − τ|y| − noise + P` rounded.
//! 5. The difference of the two gives the server `h(x, y)` modulo t. The parities of |x| and |y|,
//!    masked by a bit that the two clients share, fix the rest.
//!
//! The server learns h, and clients receive keys and headers only. Any clients and the server
//! together learn no more of the others' rows than h, as long as all follow the protocol: noise
//! drowns what answers and openings tell of w and s.
//!
//! Keys go to all evaluators and headers to all key owners of a *round*: key owners whose columns
//! together are few enough for one masked row. Each round has new masked rows.
//!
//! *Offline*, clients compute A. If a client drops out, only its own pairs end. The server decides
//! whether enough clients remain.

mod client;
mod evaluator;
mod offline;
mod own;
mod owner;
mod server;

use std::ops::Range;

use undertone_lwe::{MAX_EVALUATED, Params, TILE_ROWS};
use undertone_party::frame::{HEADER_LEN, TILE_BYTES};
use undertone_party::{Abort, PartyId};
use undertone_setup::seal::TAG_LEN;

pub(super) use client::Client;
pub(super) use offline::{Prepared, prepare};
pub(super) use server::{Meeting, Shape};

/// Bytes of keys, in frames, that an evaluator has asked for and not received. They fit a link, and
/// so do [`TILES_AHEAD`] tiles. So no client ever waits for another to take its messages: three
/// clients could wait for each other.
const BYTES_AHEAD: usize = 1 << 22;
/// Tiles for which an evaluator needs no question.
const TILES_AHEAD: usize = 2;

/// In which order a client names the clients that it waits for: those that owe it a question for
/// its own keys, then its key owners, then evaluators that have all its keys. `docs/spec/lwe.md`
/// has the reason.
mod rank {
    pub(super) const QUESTION: u8 = 0;
    pub(super) const OWNER: u8 = 1;
    pub(super) const EVALUATOR: u8 = 2;
}

/// The parameters for codes of `bits` bits. The caller has checked them.
fn params(bits: usize) -> Result<&'static Params, Abort> {
    Params::of(bits).ok_or_else(|| Abort::Internal(format!("no parameters for {bits} bits")))
}

/// LWE-15: the noise of openings is made for so many rows of all evaluators of a key owner.
pub(super) fn check_rows(clients: &[(PartyId, usize)]) -> Result<(), Abort> {
    for owner in clients.iter().filter(|owner| owner.1 > 0) {
        let evaluators = clients.iter().filter(|other| other.0 != owner.0);
        let rows = evaluators.filter(|other| evaluates(**other, *owner));
        let rows: usize = rows.map(|(_, rows)| rows).sum();
        if rows > MAX_EVALUATED {
            return Err(Abort::Misuse(format!(
                "{rows} rows of other clients would meet the keys of {}; with lwe at most \
                 {MAX_EVALUATED} can. Take another backend, such as --backend psm",
                owner.0
            )));
        }
    }
    Ok(())
}

/// Whether `me` is the evaluator to `other`. Each comes with its number of rows.
fn evaluates(me: (PartyId, usize), other: (PartyId, usize)) -> bool {
    (me.1, other.0) > (other.1, me.0)
}

/// The parameters of a pair, which both ends and the server know.
#[derive(Debug, Clone, Copy)]
struct Pair {
    params: &'static Params,
    /// Rows of the evaluator and of the key owner.
    rows: usize,
    owned: usize,
}

impl Pair {
    fn blocks(&self) -> usize {
        self.owned.div_ceil(self.params.max_columns())
    }

    /// Rows of the key owner in a block.
    fn block(&self, number: usize) -> Range<usize> {
        block(self.params, self.owned, number)
    }

    /// Rows of the evaluator in each tile.
    fn tiles(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let rows = self.rows;
        let first = (0..rows).step_by(TILE_ROWS);
        first.map(move |first| first..rows.min(first + TILE_ROWS))
    }

    /// Messages of answers, and of openings.
    fn messages(&self) -> usize {
        self.blocks() * self.rows.div_ceil(TILE_ROWS)
    }

    /// The rows of the evaluator and of the key owner in message `number` of answers and of
    /// openings.
    fn message(&self, number: usize) -> (Range<usize>, Range<usize>) {
        let tiles = self.rows.div_ceil(TILE_ROWS);
        let first = number % tiles * TILE_ROWS;
        let rows = first..self.rows.min(first + TILE_ROWS);
        (rows, self.block(number / tiles))
    }
}

/// Rows `number · max_columns` and following of a key owner with `rows` rows.
fn block(params: &Params, rows: usize, number: usize) -> Range<usize> {
    let most = params.max_columns();
    (number * most).min(rows)..rows.min((number + 1) * most)
}

/// The rows of the messages of keys of a block.
fn key_tiles(params: &Params, block: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
    let most = (TILE_BYTES / params.key_len()).max(1);
    let first = block.clone().step_by(most);
    first.map(move |first| first..block.end.min(first + most))
}

/// The bytes of a frame with keys of `rows` rows.
fn key_frame(params: &Params, rows: usize) -> usize {
    HEADER_LEN + rows * params.key_len() + TAG_LEN
}

/// The rows of all messages of keys of a key owner with `rows` rows.
fn key_messages(params: &Params, rows: usize) -> impl Iterator<Item = Range<usize>> {
    let blocks = 0..rows.div_ceil(params.max_columns());
    blocks.flat_map(move |number| key_tiles(params, block(params, rows, number)))
}

/// A block of a key owner in a round.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Column {
    owner: PartyId,
    rows: Range<usize>,
    /// The number of the block among those of its owner.
    number: usize,
}

/// The rounds of the evaluator `me`: in each, the blocks that the same masked rows answer. Key
/// owners with more rows come first, of these with as many rows those with smaller numbers.
fn rounds(params: &Params, clients: &[(PartyId, usize)], me: (PartyId, usize)) -> Vec<Vec<Column>> {
    let owners = clients.iter().copied();
    let mut owners: Vec<(PartyId, usize)> = owners
        .filter(|owner| owner.1 > 0 && owner.0 != me.0 && evaluates(me, *owner))
        .collect();
    owners.sort_unstable_by_key(|(id, rows)| (usize::MAX - rows, *id));
    let mut rounds: Vec<Vec<Column>> = Vec::new();
    let mut room = 0;
    for (owner, owned) in owners {
        for number in 0..owned.div_ceil(params.max_columns()) {
            let rows = block(params, owned, number);
            if rows.len() > room {
                rounds.push(Vec::new());
                room = params.max_columns();
            }
            room -= rows.len();
            if let Some(round) = rounds.last_mut() {
                round.push(Column {
                    owner,
                    rows,
                    number,
                });
            }
        }
    }
    rounds
}

/// The last bits of the weights of rows, masked with `bit`: eight to a byte, the first lowest.
fn parities(weights: &[u16], bit: u8) -> Vec<u8> {
    let eight = weights.chunks(8);
    eight
        .map(|eight| {
            let bits = eight.iter().enumerate();
            bits.fold(0, |byte, (i, weight)| {
                byte | (*weight as u8 & 1 ^ bit & 1) << i
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_party::Limits;

    #[test]
    fn what_a_client_may_send_ahead_fits_a_link() {
        let link = Limits::default();
        for bits in [1024, 2048, 4096, 8192, 16_384] {
            let params = params(bits).unwrap();
            let most = key_tiles(params, 0..1000).map(|tile| tile.len()).max();
            let keys = key_frame(params, most.unwrap());
            // Four messages come one right after another.
            assert_eq!(BYTES_AHEAD / keys, 4, "{bits}: {keys}");
            let headers = HEADER_LEN + TILE_ROWS * params.header_len() + TAG_LEN;
            let ahead = BYTES_AHEAD.max(TILES_AHEAD * headers);
            assert!(ahead <= link.max_early_bytes, "{bits}: {headers}");
        }
    }

    #[test]
    fn rounds_hold_as_many_columns_as_one_masked_row_answers() {
        let params = params(4096).unwrap();
        let id = PartyId::client;
        let clients: Vec<_> = [9000, 4000, 20_000, 0, 4000, 9000]
            .iter()
            .enumerate()
            .map(|(at, rows)| (id(at), *rows))
            .collect();
        let of = |me: usize| -> Vec<Vec<(usize, Range<usize>)>> {
            let column = |column: &Column| (column.owner.index().unwrap(), column.rows.clone());
            let rounds = rounds(params, &clients, clients[me]);
            rounds
                .iter()
                .map(|round| round.iter().map(column).collect())
                .collect()
        };
        assert_eq!(
            of(2),
            [
                vec![(0, 0..8192)],
                vec![(0, 8192..9000)],
                vec![(5, 0..8192)],
                vec![(5, 8192..9000), (1, 0..4000)],
                vec![(4, 0..4000)],
            ]
        );
        assert_eq!(of(1), [[(4, 0..4000)]]);
        assert_eq!(of(4), Vec::<Vec<_>>::new());
        assert_eq!(of(3), Vec::<Vec<_>>::new());
    }

    #[test]
    fn more_rows_than_keys_may_meet_are_refused() {
        let id = PartyId::client;
        let clients = |rows: &[usize]| -> Vec<_> {
            rows.iter()
                .enumerate()
                .map(|(at, rows)| (id(at), *rows))
                .collect()
        };
        let most = MAX_EVALUATED;
        check_rows(&clients(&[most, 5, 0])).unwrap();
        check_rows(&clients(&[most + 1])).unwrap();
        check_rows(&clients(&[most / 2, most / 2, 7])).unwrap();
        let error = check_rows(&clients(&[most / 2, most / 2 + 1, 7])).unwrap_err();
        assert!(error.to_string().contains("--backend psm"), "{error}");
        assert!(check_rows(&clients(&[most + 1, 1])).is_err());
    }

    #[test]
    fn of_two_clients_one_is_the_evaluator() {
        let id = PartyId::client;
        assert!(evaluates((id(0), 5), (id(1), 5)) && !evaluates((id(1), 5), (id(0), 5)));
        assert!(evaluates((id(1), 6), (id(0), 5)) && !evaluates((id(0), 5), (id(1), 6)));
    }
}
