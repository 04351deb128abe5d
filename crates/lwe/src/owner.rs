//! The key owner: it encrypts its rows under keys of their own, and opens masked inner products for
//! the server.

use std::ops::Range;

use rayon::prelude::*;
use undertone_kdf::Seed;
use undertone_kernel::mask::Suite;
use undertone_kernel::negacyclic::{Eight, LANES};
use undertone_kernel::signed::{self, Rows, Small};
use undertone_kernel::{BitMatrix, Cpu, Wiped, pack, product52};
use undertone_party::{PartyId, SessionId};

use crate::evaluator::round;
use crate::matrix::{Matrix, Scratch};
use crate::pads::{Pads, Place};
use crate::params::Params;
use crate::pool::Pool;
use crate::sample::{self, Gaussian, Words};
use crate::table::Samplers;
use crate::tags::{Tags, derive};

/// A key owner: its codes and their secrets, in one session.
#[derive(Debug)]
pub struct KeyOwner<'a> {
    matrix: &'a dyn Matrix,
    codes: &'a BitMatrix,
    session: SessionId,
    suite: Suite,
    keys: Seed,
    opens: Seed,
    tags: Tags,
    secrets: Small,
    pool: Pool<Workspace>,
}

/// Rows of a key owner that are answered together.
#[derive(Debug, Clone)]
pub struct Block {
    rows: Range<usize>,
    /// The residues of the weights.
    residues: Wiped<u64>,
    tag: Wiped<u128>,
}

/// Memory of a thread that computes keys.
#[derive(Debug, Default)]
struct Workspace {
    scratch: Scratch,
    secrets: Wiped<Eight>,
    products: Wiped<Eight>,
}

impl<'a> KeyOwner<'a> {
    /// The owner of `codes`, which draws from `own`, its secret.
    ///
    /// # Panics
    /// When a code is longer than L.
    pub fn new(
        matrix: &'a dyn Matrix,
        session: SessionId,
        suite: Suite,
        own: &Seed,
        codes: &'a BitMatrix,
    ) -> Self {
        let params = matrix.params();
        assert!(codes.columns() <= params.bits, "codes");
        let mut owner = Self {
            matrix,
            codes,
            session,
            suite,
            keys: own.derive(session, "lwe keys", &[]),
            opens: own.derive(session, "lwe opens", &[]),
            tags: Tags::of_party(session, own),
            secrets: Small::zero(0, params.n),
            pool: Pool::new(),
        };
        let mut secrets = Small::zero(codes.rows(), params.n);
        let each: Vec<&mut [u8]> = secrets.rows_mut().collect();
        each.into_par_iter().enumerate().for_each(|(row, secret)| {
            sample::secret(Cpu::detect(), params, &mut owner.words(row), secret);
        });
        owner.secrets = secrets;
        owner
    }

    fn params(&self) -> &'static Params {
        self.matrix.params()
    }

    /// The stream of the key of a row: its secret, then its error.
    fn words(&self, row: usize) -> Words {
        let tag = self.tags.codes([self.codes.row(row)]);
        let seed = derive(&self.keys, self.session, "lwe key", &[row as u32], &[tag]);
        Words::new(self.suite, &seed)
    }

    /// Step 2: the keys of rows `rows`, `c = A·s + e − 2τ·y` modulo Q, packed row by row.
    ///
    /// # Panics
    /// When there are no such rows.
    pub fn keys(&self, rows: Range<usize>) -> Vec<u8> {
        let firsts: Vec<usize> = rows.clone().step_by(LANES).collect();
        let keys: Vec<Vec<u8>> = firsts
            .into_par_iter()
            .map(|first| {
                let rows = first..rows.end.min(first + LANES);
                self.pool.with(|work| self.eight_keys(work, rows))
            })
            .collect();
        keys.concat()
    }

    /// The keys of up to eight rows.
    fn eight_keys(&self, work: &mut Workspace, rows: Range<usize>) -> Vec<u8> {
        let (params, cpu) = (self.params(), Cpu::detect());
        let Workspace {
            scratch,
            secrets,
            products,
        } = work;
        secrets.clear();
        secrets.resize(params.n, Eight::default());
        products.resize(params.length, Eight::default());
        for (lane, row) in rows.clone().enumerate() {
            for (secrets, secret) in secrets.iter_mut().zip(self.secrets.row(row)) {
                secrets.0[lane] = i64::from(*secret as i8) as u64;
            }
        }
        self.matrix.column(cpu, scratch, secrets, products);
        let step = params.tau().wrapping_mul(2);
        let mut out = Vec::with_capacity(rows.len() * params.key_len() + pack::SLACK);
        let mut padded = Wiped::from(vec![0; params.length / 64]);
        let mut key = Wiped::from(vec![0; params.length]);
        for (lane, row) in rows.enumerate() {
            let code = self.codes.row(row);
            let mut words = self.words(row);
            // Two words for each number of the secret.
            words.seek(2 * params.n);
            padded[..code.len()].copy_from_slice(code);
            sample::error(cpu, params, &padded, &mut words, &mut key);
            for (key, product) in key.iter_mut().zip(products.iter()) {
                *key = key.wrapping_add(product.0[lane]);
            }
            product52::subtract_where(cpu, &padded, step, &mut key);
            pack::pack_words(params.q, &key, &mut out);
        }
        out
    }

    /// The rows `rows` as a block.
    ///
    /// # Panics
    /// When there are no such rows.
    pub fn block(&self, rows: Range<usize>) -> Block {
        let codes = rows.clone().map(|row| self.codes.row(row));
        let weight = |code: &[u64]| code.iter().map(|word| u64::from(word.count_ones())).sum();
        let residues = codes
            .clone()
            .map(|code| self.params().modulo_t(weight(code)));
        Block {
            residues: residues.collect::<Vec<u64>>().into(),
            tag: vec![self.tags.codes(codes)].into(),
            rows,
        }
    }

    /// Step 6: the openings of the rows of `evaluator` from `first` on, whose headers are
    /// `headers`, for the rows of a block: for the server, packed row by row.
    ///
    /// # Panics
    /// When `headers` are not whole headers.
    pub fn open(
        &self,
        block: &Block,
        pads: &Pads,
        evaluator: PartyId,
        place: Place,
        first: usize,
        headers: &[u8],
    ) -> Vec<u8> {
        let (params, cpu) = (self.params(), Cpu::detect());
        let count = headers.len() / params.header_len();
        assert_eq!(headers.len(), count * params.header_len(), "whole headers");
        let mut values = vec![0; count * params.n];
        pack::unpack_words(params.h, headers, &mut values);
        let values: Vec<u32> = values.into_iter().map(|value| value as u32).collect();
        let rows = Rows::new(params.n, params.h, &values);
        let mut products = Wiped::from(vec![0u32; count * block.rows.len()]);
        signed::products(cpu, &rows, &self.secrets, block.rows.clone(), &mut products);
        let openings: Vec<Vec<u8>> = products
            .par_chunks_exact(block.rows.len())
            .zip(headers.par_chunks_exact(params.header_len()))
            .enumerate()
            .map(|(at, (products, header))| {
                let row = first + at;
                let ids = [evaluator.to_wire(), place.round, row as u32, place.column];
                let tags = [self.tags.of(header), block.tag[0]];
                let seed = derive(&self.opens, self.session, "lwe open", &ids, &tags);
                let words = Words::new(self.suite, &seed);
                let mut values = Wiped::from(vec![0u64; products.len()]);
                self.show(&block.residues, words, products, &mut values);
                pads.add(place, row, header, &mut values);
                round(params, &mut values)
            })
            .collect();
        openings.concat()
    }

    /// `2^(q−h)·⟨H, s⟩ − τρ − γ` for each product, where γ is noise of centre −ρ/t.
    fn show(&self, residues: &[u64], words: Words, products: &[u32], values: &mut [u64]) {
        let params = self.params();
        values.copy_from_slice(residues);
        Gaussian::new(&Samplers::of(params).opening, words).replace(Cpu::detect(), values);
        let (tau, up) = (params.tau(), params.q - params.h);
        for ((value, residue), product) in values.iter_mut().zip(residues).zip(products) {
            let hidden = value.wrapping_add(tau.wrapping_mul(*residue));
            *value = (u64::from(*product) << up).wrapping_sub(hidden);
        }
    }
}
