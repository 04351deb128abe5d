//! Pairs of rows, with all that both sides drew for them, computed again from their secrets.
//!
//! What seeds depend on is written out here as the specification has it.

use rayon::prelude::*;
use undertone_kdf::Seed;
use undertone_kernel::cdt::Tables;
use undertone_kernel::negacyclic::Eight;
use undertone_kernel::{BitMatrix, Cpu, Prg, pack};
use undertone_party::PartyId;

use super::{SESSION, SUITE, gaussians, random, seed, small_numbers, weight};
use crate::params::Params;
use crate::sample::Words;
use crate::table::Samplers;
use crate::tags::{Tags, derive};
use crate::{Decoder, Evaluator, KeyOwner, Matrix, Pads, Place, Ring, Scratch};

const EVALUATOR: PartyId = PartyId::client(5);
const OWNER: PartyId = PartyId::client(6);

/// Another owner, which drops out before its first key.
const GONE: PartyId = PartyId::client(4);

/// The second round, and the block after that of the other owner.
const PLACE: Place = Place {
    round: 1,
    column: 1,
};

/// Bytes of the secrets of the evaluator, the key owner and their pads.
const BYTES: [u8; 3] = [3, 1, 2];

/// An evaluator and a key owner with random codes.
pub(super) struct Run {
    params: &'static Params,
    pub(super) ring: Ring,
    x: BitMatrix,
    pub(super) y: BitMatrix,
}

/// All that a row of the key owner draws, and its key.
pub(super) struct Key {
    pub(super) secret: Vec<i64>,
    pub(super) error: Vec<i64>,
    pub(super) key: Vec<i64>,
}

/// All numbers of a pair of rows, and what was sent. Products are modulo 2⁶⁴.
pub(super) struct Pair {
    pub(super) distance: i64,
    weights: [i64; 2],
    /// ⟨w, e⟩, ⟨w, y⟩ and ⟨w, c⟩
    masked: [i64; 3],
    /// ⟨η, s⟩, ⟨δ, s⟩ and ⟨H, s⟩
    secret: [i64; 3],
    /// g, γ and P
    pub(super) drawn: [i64; 3],
    pub(super) answer: u64,
    pub(super) opening: u64,
    pub(super) found: u16,
}

/// `a·b`, modulo 2⁶⁴.
fn product(a: &[i64], b: &[i64]) -> i64 {
    let pairs = a.iter().zip(b);
    pairs.fold(0, |sum, (a, b)| sum.wrapping_add(a.wrapping_mul(*b)))
}

pub(super) fn bits(code: &[u64], length: usize) -> Vec<i64> {
    let bit = |at: usize| code.get(at / 64).map_or(0, |word| word >> (at % 64) & 1);
    (0..length).map(|at| bit(at) as i64).collect()
}

/// `a` modulo 2^bits, around zero.
pub(super) fn centered(bits: u32, a: i64) -> i64 {
    a << (64 - bits) >> (64 - bits)
}

fn unpack(width: u32, bytes: &[u8], count: usize) -> Vec<i64> {
    let mut out = vec![0; count];
    pack::unpack_words(width, bytes, &mut out);
    out.iter().map(|number| *number as i64).collect()
}

/// The tag of some codes under the key of the party with the secret `byte`.
fn tag<'a>(byte: u8, codes: impl IntoIterator<Item = &'a [u64]>) -> u128 {
    Tags::of_party(SESSION, &seed(byte)).codes(codes)
}

impl Run {
    pub(super) fn new(params: &'static Params, rows: usize, columns: usize) -> Self {
        let mut prg = Prg::new(&[params.q as u8; 32]);
        let bits = params.bits - 7;
        Self {
            params,
            ring: Ring::new(Cpu::detect(), SESSION, params),
            x: random(rows, bits, &mut prg),
            y: random(columns, bits, &mut prg),
        }
    }

    pub(super) fn owner(&self) -> KeyOwner<'_> {
        KeyOwner::new(&self.ring, SESSION, SUITE, &seed(BYTES[1]), &self.y)
    }

    fn pads(&self) -> Pads {
        Pads::new(SESSION, SUITE, seed(BYTES[2]))
    }

    /// The stream of a key.
    fn key_words(&self, row: usize) -> Words {
        let keys = seed(BYTES[1]).derive(SESSION, "lwe keys", &[]);
        let tag = tag(BYTES[1], [self.y.row(row)]);
        let seed = derive(&keys, SESSION, "lwe key", &[row as u32], &[tag]);
        Words::new(SUITE, &seed)
    }

    /// The numbers that `tables` give for the error of a key.
    pub(super) fn error(&self, row: usize, tables: &Tables) -> Vec<i64> {
        let mut words = self.key_words(row);
        words.seek(2 * self.params.n);
        small_numbers(tables, self.y.row(row), self.params.length, &mut words)
    }

    pub(super) fn key(&self, row: usize, bytes: &[u8]) -> Key {
        let samplers = Samplers::of(self.params);
        let mut words = self.key_words(row);
        Key {
            secret: small_numbers(&samplers.secret, &[], self.params.n, &mut words),
            error: self.error(row, &samplers.error),
            key: unpack(self.params.q, bytes, self.params.length),
        }
    }

    /// The seed of the masked rows, with all keys in one message.
    pub(super) fn hint(&self, keys: &[u8]) -> Seed {
        let source = seed(BYTES[0]).derive(SESSION, "lwe rows", &[]);
        let tags = Tags::of_party(SESSION, &seed(BYTES[0]));
        let rows = self.y.rows() as u32;
        let heads = [GONE.to_wire(), 30, 0, OWNER.to_wire(), 0, rows];
        let heads: Vec<u8> = heads.into_iter().flat_map(u32::to_le_bytes).collect();
        let mut pieces = Default::default();
        tags.add(&heads, &mut pieces);
        tags.add(keys, &mut pieces);
        derive(&source, SESSION, "lwe hint", &[1], &[tags.tag(&pieces)])
    }

    /// The stream for a row of the evaluator.
    fn row_words(&self, hint: &Seed, purpose: &str, ids: &[u32]) -> Words {
        let tag = tag(BYTES[0], [self.x.row(ids[0] as usize)]);
        Words::new(SUITE, &derive(hint, SESSION, purpose, ids, &[tag]))
    }

    /// The masked row that `tables` give.
    pub(super) fn masked(&self, hint: &Seed, row: usize, tables: &Tables) -> Vec<i64> {
        let code = self.x.row(row);
        let mut words = self.row_words(hint, "lwe row", &[row as u32]);
        let steps = small_numbers(tables, code, self.params.length, &mut words);
        let bits = bits(code, self.params.length);
        let pairs = steps.iter().zip(bits);
        pairs
            .map(|(step, bit)| bit + self.params.t as i64 * step)
            .collect()
    }

    /// H″ = w·A + η
    fn whole_header(&self, w: &[i64], eta: &[i64]) -> Vec<i64> {
        let lanes: Vec<Eight> = w.iter().map(|w| Eight([*w as u64; 8])).collect();
        let mut out = vec![Eight::default(); self.params.n];
        let scratch = &mut Scratch::default();
        self.ring.row(Cpu::detect(), scratch, &lanes, &mut out);
        let pairs = out.iter().zip(eta);
        pairs
            .map(|(product, eta)| (product.0[0] as i64).wrapping_add(*eta))
            .collect()
    }
}

/// All pairs of `rows` rows of the evaluator and `columns` of the key owner. What was sent is
/// compared with what is computed again from the secrets of both.
pub(super) fn pairs(run: &Run) -> Vec<Pair> {
    let params = run.params;
    let columns = run.y.rows();
    let owner = run.owner();
    let keys = owner.keys(0..columns);
    let mut evaluator = Evaluator::new(&run.ring, SESSION, SUITE, &seed(BYTES[0]), &run.x);
    let empty = evaluator.columns(0);
    evaluator.hint(empty);
    let mut held = evaluator.columns(columns);
    held.part(GONE, 30, Pads::new(SESSION, SUITE, seed(8)));
    held.part(OWNER, 0, run.pads());
    held.push(&keys).unwrap();
    let block = owner.block(0..columns);
    let parity = |codes: &BitMatrix, row| weight(codes.row(row)) as u8 & 1;
    let right: Vec<u8> = (0..columns).map(|row| parity(&run.y, row)).collect();
    let decoder = Decoder {
        params,
        bits: run.x.columns(),
    };
    let hint = run.hint(&keys);
    let keys: Vec<Key> = keys
        .par_chunks(params.key_len())
        .enumerate()
        .map(|(row, bytes)| run.key(row, bytes))
        .collect();
    let mut out = Vec::new();
    for tile in evaluator.hint(held) {
        let openings = owner.open(
            &block,
            &run.pads(),
            EVALUATOR,
            PLACE,
            tile.rows.start,
            &tile.headers,
        );
        let left: Vec<u8> = tile.rows.clone().map(|row| parity(&run.x, row)).collect();
        let (found, _) = decoder.distances(&left, &right, &tile.answers[1], &openings);
        let each = params.answer_len(columns);
        let of = |at: usize, bytes: &[u8]| unpack(params.v, &bytes[at * each..][..each], columns);
        let rows = tile.rows.clone().into_par_iter().enumerate();
        let pairs = rows.flat_map_iter(|(at, row)| {
            let header = &tile.headers[at * params.header_len()..][..params.header_len()];
            let found = &found[at * columns..][..columns];
            let sent = [&tile.answers[1], &openings].map(|bytes| of(at, bytes));
            row_pairs(run, &hint, &keys, row, header, &sent, found)
        });
        out.extend(pairs.collect::<Vec<Pair>>());
    }
    out
}

/// The pairs of one row of the evaluator.
fn row_pairs(
    run: &Run,
    hint: &Seed,
    keys: &[Key],
    row: usize,
    header: &[u8],
    [answers, openings]: &[Vec<i64>; 2],
    found: &[u16],
) -> Vec<Pair> {
    let (params, columns) = (run.params, keys.len());
    let samplers = Samplers::of(params);
    let w = run.masked(hint, row, &samplers.coset);
    let words = run.row_words(hint, "lwe header", &[row as u32]);
    let eta = gaussians(&samplers.header, words, &vec![0; params.n]);
    let whole = run.whole_header(&w, &eta);
    let numbers = unpack(params.h, header, params.n);
    let drop = params.q - params.h;
    let delta: Vec<i64> = numbers
        .iter()
        .zip(&whole)
        .map(|(number, whole)| centered(params.q, (number << drop).wrapping_sub(*whole)))
        .collect();
    // From −2^(q−h−1) + 1 to 2^(q−h−1).
    let half = 1 << (drop - 1);
    assert!(delta.iter().all(|delta| (1 - half..=half).contains(delta)));

    let residue = |code| weight(code) % params.t;
    let words = run.row_words(hint, "lwe answer", &[row as u32, 1]);
    let g = gaussians(
        &samplers.answer,
        words,
        &vec![residue(run.x.row(row)); columns],
    );
    let opens = seed(BYTES[1]).derive(SESSION, "lwe opens", &[]);
    let tags = [
        Tags::of_party(SESSION, &seed(BYTES[1])).of(header),
        tag(BYTES[1], (0..columns).map(|row| run.y.row(row))),
    ];
    let ids = [EVALUATOR.to_wire(), 1, row as u32, 1];
    let words = Words::new(SUITE, &derive(&opens, SESSION, "lwe open", &ids, &tags));
    let residues = (0..columns).map(|row| residue(run.y.row(row)));
    let gamma = gaussians(&samplers.opening, words, &residues.collect::<Vec<_>>());
    let pad_tag = Tags::new(&seed(BYTES[2]).derive(SESSION, "lwe pair tags", &[])).of(header);
    let ids = [1, row as u32, 1];
    let pads = derive(&seed(BYTES[2]), SESSION, "lwe pad", &ids, &[pad_tag]);
    let mut pad = vec![0; columns];
    Words::new(SUITE, &pads).fill(&mut pad);

    let x = bits(run.x.row(row), params.length);
    let pair = |column: usize| {
        let key = &keys[column];
        let y = bits(run.y.row(column), params.length);
        let both = product(&x, &y);
        let weights = [product(&x, &x), product(&y, &y)];
        Pair {
            distance: weights[0] + weights[1] - 2 * both,
            weights,
            masked: [&key.error, &y, &key.key].map(|other| product(&w, other)),
            secret: [&eta, &delta, &numbers].map(|other| product(other, &key.secret)),
            drawn: [g[column], gamma[column], pad[column] as i64],
            answer: answers[column] as u64,
            opening: openings[column] as u64,
            found: found[column],
        }
    };
    (0..columns).map(pair).collect()
}

impl Pair {
    /// V″ and G″, modulo 2⁶⁴.
    pub(super) fn whole(&self, params: &Params) -> [i64; 2] {
        let [_, _, key] = self.masked;
        let [_, _, header] = self.secret;
        let [g, gamma, _] = self.drawn;
        let tau = params.tau() as i64;
        let [x, y] = self.weights.map(|weight| weight % params.t as i64);
        let up = params.q - params.h;
        [
            key.wrapping_add(tau.wrapping_mul(x)).wrapping_add(g),
            (header << up)
                .wrapping_sub(tau.wrapping_mul(y))
                .wrapping_sub(gamma),
        ]
    }

    /// What is sent for V″ or G″.
    pub(super) fn rounded(&self, params: &Params, whole: i64) -> u64 {
        let drop = params.q - params.v;
        let sum = whole.wrapping_add(self.drawn[2]) as u64;
        sum.wrapping_add(1 << (drop - 1)) >> drop & ((1 << params.v) - 1)
    }

    /// What noise is without its share of c̄·d: `⟨w, e'⟩ + (ρ − m)/t`, where m is a number that
    /// makes this whole.
    fn inner(&self, params: &Params, weights: i64, m: i64) -> i64 {
        let [error, code, _] = self.masked;
        let rest = weights - 2 * code - m;
        assert_eq!(rest % params.t as i64, 0);
        error + rest / params.t as i64
    }

    /// The identities (1), (2) and (3). `gamma` is the noise of the opening.
    pub(super) fn identities(&self, params: &Params, gamma: i64) -> [bool; 3] {
        let [v, g] = self.whole(params);
        let [_, _, key] = self.masked;
        let [eta, delta, header] = self.secret;
        let tau = params.tau() as i64;
        let t = params.t as i64;
        let [x, y] = self.weights;
        let [rho_x, rho_y] = self.weights.map(|weight| weight % t);
        let d = self.distance;
        // c̄·a is τ·a − a/t. The second part is in `inner`.
        let noise = self.inner(params, rho_x + rho_y, d) - eta - delta + self.drawn[0] + gamma;
        let first = v
            .wrapping_sub(g)
            .wrapping_sub(tau.wrapping_mul(d))
            .wrapping_sub(noise);
        // ⟨H″, s⟩
        let whole = (header << (params.q - params.h)).wrapping_sub(delta);
        let noise = self.inner(params, rho_x, d - y) - eta + self.drawn[0];
        let second = v.wrapping_sub(whole);
        let second = second
            .wrapping_sub(tau.wrapping_mul(d - y))
            .wrapping_sub(noise);
        let noise = self.inner(params, rho_y, d - x) - eta - delta + gamma;
        let third = g.wrapping_sub(key);
        let third = third
            .wrapping_sub(tau.wrapping_mul(x - d))
            .wrapping_add(noise);
        [first, second, third].map(|rest| centered(params.q, rest) == 0)
    }

    /// The terms of the noise that the server meets, and this noise from what was sent.
    pub(super) fn terms(&self, params: &Params) -> ([i64; 7], i64) {
        let [v, g] = self.whole(params);
        let drop = params.q - params.v;
        let rounding = |sent: u64, whole: i64| {
            let exact = whole.wrapping_add(self.drawn[2]);
            centered(params.q, ((sent << drop) as i64).wrapping_sub(exact))
        };
        let [x, y] = self.weights.map(|weight| weight % params.t as i64);
        let terms = [
            self.inner(params, x + y, self.distance),
            -self.secret[0],
            -self.secret[1],
            self.drawn[0],
            self.drawn[1],
            rounding(self.answer, v),
            -rounding(self.opening, g),
        ];
        let z = (self.answer.wrapping_sub(self.opening) << drop) as i64;
        let due = (params.tau() as i64).wrapping_mul(self.distance);
        (terms, centered(params.q, z.wrapping_sub(due)))
    }
}
