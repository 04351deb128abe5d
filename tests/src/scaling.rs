//! Means and deviations in the clear, and the words of their sums, from `docs/spec/scaling.md`.

mod simulation;

use num_bigint::{BigInt, Sign};
use sha2::{Digest, Sha256};
use undertone::kdf::{Seed, simulated};
use undertone::label::{Features, Params};
use undertone::party::{PartyId, SessionId};
use undertone::setup::seal::KeyPair;

pub use simulation::{Run, Simulation};

/// Words of a column.
pub const WORDS: usize = 28;
/// Digits of a sum and of a sum of squares.
const DIGITS: [usize; 2] = [10, 18];

/// A simulation with a fixed seed.
pub fn simulation(params: Params, clients: Vec<Features>, seed: u8) -> Simulation {
    Simulation {
        params,
        clients,
        seed: Seed::from_bytes([seed; 32]),
    }
}

/// The sum and the sum of squares of each column over all rows, in units of 2⁻⁶⁴ and 2⁻¹²⁸.
pub fn sums<'a>(dim: usize, parts: impl IntoIterator<Item = &'a Features>) -> Vec<[BigInt; 2]> {
    let mut sums = vec![[BigInt::ZERO, BigInt::ZERO]; dim];
    for part in parts {
        for row in part.values().chunks_exact(dim) {
            for ([sum, squares], value) in sums.iter_mut().zip(row) {
                let places = BigInt::from((value * 2f64.powi(64)).round() as i128);
                *squares += &places * &places;
                *sum += places;
            }
        }
    }
    sums
}

/// Mean and deviation of each column, as 64 bits each.
pub fn moments(sums: &[[BigInt; 2]], rows: usize) -> Vec<(u64, u64)> {
    // Parsing rounds to the nearest double, ties to even.
    let double = |number: &BigInt| number.to_string().parse().unwrap_or(f64::NAN);
    let moments = |[sum, squares]: &[BigInt; 2]| {
        let spread = BigInt::from(rows) * squares - sum * sum;
        let unit = 2f64.powi(-64);
        let mean: f64 = double(sum) / rows as f64 * unit;
        let deviation: f64 = double(&spread).sqrt() / rows as f64 * unit;
        (mean.to_bits(), deviation.to_bits())
    };
    sums.iter().map(moments).collect()
}

/// The digits of all columns, before the carries are hidden.
pub fn digits(sums: &[[BigInt; 2]]) -> Vec<u64> {
    let mut words = Vec::with_capacity(sums.len() * WORDS);
    for (number, count) in sums.iter().flat_map(|column| column.iter().zip(DIGITS)) {
        for at in 0..count {
            let rest: BigInt = number >> (16 * at);
            let digit = if at + 1 < count {
                rest & BigInt::from(0xffff)
            } else {
                rest
            };
            words.push(i64::try_from(digit).unwrap_or(i64::MAX) as u64);
        }
    }
    words
}

/// The numbers that the words of a column stand for.
pub fn numbers(words: &[u64]) -> [BigInt; 2] {
    let (sum, squares) = words.split_at(DIGITS[0]);
    [sum, squares].map(|words| {
        let mut number = BigInt::ZERO;
        for word in words.iter().rev() {
            number = (number << 16) + BigInt::from(*word as i64);
        }
        number
    })
}

/// Whether `rows` values can have these sums.
pub fn is_possible([sum, squares]: &[BigInt; 2], rows: usize) -> bool {
    let rows = BigInt::from(rows);
    let spread = &rows * squares - sum * sum;
    spread.sign() != Sign::Minus && *squares <= rows << 254
}

/// Hides the carries between the digits of a client with this later seed.
pub fn hide(words: &mut [u64], later: &Seed, session: SessionId) {
    let mut prg = later.derive(session, "carries", &[]).prg();
    for column in words.chunks_exact_mut(WORDS) {
        let (sum, squares) = column.split_at_mut(DIGITS[0]);
        for digits in [sum, squares] {
            for at in 1..digits.len() {
                let random = prg.next_u64() >> 28;
                digits[at - 1] = digits[at - 1].wrapping_add(random << 16);
                digits[at] = digits[at].wrapping_sub(random);
            }
        }
    }
}

/// The group seed of the clients `admitted` of a simulation from `seed`.
pub fn group_seed(seed: &Seed, admitted: impl IntoIterator<Item = PartyId>) -> Seed {
    let session = simulated::session(seed);
    let mut material = Vec::new();
    for id in admitted {
        let own = simulated::party(seed, session, id);
        let contribution = own.derive(session, "contribution", &[id.to_wire()]);
        material.extend(contribution.expose());
    }
    Seed::extract(session, "group seed", &material)
}

/// The seeds of a session in which all clients are in.
pub struct Seeds {
    /// The later seed of each client.
    pub later: Vec<Seed>,
    /// The bound seed.
    pub bound: Seed,
}

/// The seeds of a simulation from `seed`, with a table for each client.
pub fn seeds(seed: &Seed, params: &Params, tables: &[Features]) -> Seeds {
    let session = simulated::session(seed);
    let ids = || (0..tables.len()).map(PartyId::client);
    let tied = ids().zip(tables).map(|(id, features)| {
        let mut text = b"undertone/v1/own input".to_vec();
        text.extend(params.digest());
        text.extend((features.dim() as u32).to_le_bytes());
        text.extend((features.rows() as u32).to_le_bytes());
        let values = features.values().iter().map(|value| value + 0.0);
        text.extend(values.flat_map(f64::to_le_bytes));
        let own = simulated::party(seed, session, id);
        own.expand(session, "own input", &Sha256::digest(text))
    });
    let tied: Vec<Seed> = tied.collect();
    let keys = ids().zip(&tied).flat_map(|(id, tied)| {
        KeyPair::from_seed(&tied.derive(session, "key pair", &[id.to_wire()])).public()
    });
    let keys: Vec<u8> = keys.collect();
    let bind = |seed: &Seed| seed.expand(session, "bound to keys", &keys);
    let later = ids()
        .zip(&tied)
        .map(|(id, tied)| bind(&tied.derive(session, "after the setup", &[id.to_wire()])));
    Seeds {
        later: later.collect(),
        bound: bind(&group_seed(seed, ids())),
    }
}

/// The pad of a client on `count` words, from the bound seed.
pub fn pad(bound: &Seed, session: SessionId, client: PartyId, count: usize) -> Vec<u64> {
    let seed = bound.derive(session, "scaling", &[client.to_wire()]);
    let mut prg = seed.prg();
    (0..count).map(|_| prg.next_u64()).collect()
}
