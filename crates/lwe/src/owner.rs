//! The key owner: it encrypts its rows under its own keys, and opens masked inner products.

use rayon::prelude::*;
use undertone_kdf::Seed;
use undertone_kernel::mask::Suite;
use undertone_kernel::negacyclic::{Eight, LANES};
use undertone_kernel::ternary::{self, Rows24, Ternary};
use undertone_kernel::{BitMatrix, Cpu, Wiped, pack, product52};
use undertone_party::SessionId;

use std::ops::Range;

use crate::matrix::{Matrix, Scratch};
use crate::params::Params;
use crate::pool::Pool;
use crate::sample::{self, Words};

/// The secrets of a key owner's rows.
#[derive(Debug)]
pub struct KeyOwner {
    params: &'static Params,
    session: SessionId,
    suite: Suite,
    seed: Seed,
    secrets: Ternary,
    pool: Pool<Workspace>,
}

impl KeyOwner {
    /// Draws the secrets of `rows` rows from `seed`. They serve one session.
    pub fn new(
        params: &'static Params,
        session: SessionId,
        suite: Suite,
        seed: Seed,
        rows: usize,
    ) -> Self {
        let mut owner = Self {
            params,
            session,
            suite,
            seed,
            secrets: Ternary::zero(rows, params.n),
            pool: Pool::new(),
        };
        for row in 0..rows {
            let mut words = owner.words(row);
            sample::ternary(&mut words, owner.secrets.row_mut(row));
        }
        owner
    }

    /// The stream of a row: its secret, then its errors.
    fn words(&self, row: usize) -> Words {
        let seed = self.seed.derive(self.session, "lwe key", &[row as u32]);
        Words::new(self.suite, &seed)
    }

    /// `A·s + e` modulo 2⁵² for rows `rows`, L numbers each: what keys need before there are codes.
    ///
    /// # Panics
    /// When there are no such rows.
    pub fn columns(&self, matrix: &dyn Matrix, rows: Range<usize>) -> Wiped<u64> {
        let params = self.params;
        let mut out = Wiped::from(vec![0; rows.len() * params.bits]);
        out.par_chunks_mut(LANES * params.bits)
            .enumerate()
            .for_each(|(block, out)| {
                let first = rows.start + block * LANES;
                self.pool
                    .with(|work| self.eight_columns(matrix, work, first, out));
            });
        out
    }

    /// The columns of up to eight rows.
    fn eight_columns(
        &self,
        matrix: &dyn Matrix,
        work: &mut Workspace,
        first: usize,
        out: &mut [u64],
    ) {
        let params = self.params;
        let Workspace {
            scratch,
            secrets,
            products,
        } = work;
        secrets.clear();
        secrets.resize(params.n, Eight::default());
        products.resize(params.bits, Eight::default());
        for lane in 0..out.len() / params.bits {
            let row = self.secrets.row(first + lane).iter();
            for (secrets, secret) in secrets.iter_mut().zip(row) {
                secrets.0[lane] = i64::from(*secret as i8) as u64;
            }
        }
        matrix.column(Cpu::detect(), scratch, secrets, products);
        for (lane, out) in out.chunks_exact_mut(params.bits).enumerate() {
            let mut words = self.words(first + lane);
            words.seek(params.n.div_ceil(32));
            sample::binomial(&mut words, out);
            for (out, product) in out.iter_mut().zip(products.iter()) {
                *out = out.wrapping_add(product.0[lane]);
            }
        }
    }

    /// Step 1: the keys of rows `rows` of `codes`, `c = A·s + e − 2τ·y` modulo Q, packed row by
    /// row. `columns` are those of the same rows.
    ///
    /// # Panics
    /// When `columns` are of other rows, or a code is longer than L.
    pub fn keys(&self, columns: &[u64], codes: &BitMatrix, rows: Range<usize>) -> Vec<u8> {
        let params = self.params;
        assert_eq!(columns.len(), rows.len() * params.bits, "columns");
        assert!(codes.columns() <= params.bits, "codes");
        let step = params.tau().wrapping_mul(2);
        let packed: Vec<Vec<u8>> = columns
            .par_chunks_exact(params.bits)
            .enumerate()
            .map(|(at, column)| {
                let mut key = Wiped::from(column.to_vec());
                let row = codes.row(rows.start + at);
                product52::subtract_where(Cpu::detect(), row, step, &mut key);
                let mut out = Vec::with_capacity(params.key_len() + 8);
                pack::pack_words(params.q, &key, &mut out);
                out
            })
            .collect();
        packed.concat()
    }

    /// Step 5: the masked distances of each row of `headers` to the rows `rows` of the owner, whose
    /// numbers of ones are `weights`. `answers` has an answer for each pair, row of the evaluator
    /// after row.
    ///
    /// # Panics
    /// When lengths differ.
    pub fn open(
        &self,
        headers: &Headers,
        answers: &[u64],
        rows: Range<usize>,
        weights: &[u16],
    ) -> Wiped<u16> {
        let params = self.params;
        assert_eq!(weights.len(), rows.len(), "weights");
        assert_eq!(answers.len(), headers.0.rows() * rows.len(), "answers");
        let mut products = Wiped::from(vec![0u32; answers.len()]);
        let cpu = Cpu::detect();
        ternary::products(cpu, &headers.0, &self.secrets, rows.clone(), &mut products);
        let mut out = Wiped::with_capacity(answers.len());
        let minus_q = params.minus_q();
        for (answers, products) in answers
            .chunks_exact(rows.len())
            .zip(products.chunks_exact(rows.len()))
        {
            let pairs = answers.iter().zip(products).zip(weights);
            out.extend(pairs.map(|((answer, product), weight)| {
                let z = (answer << (params.h - params.v)).wrapping_sub(u64::from(*product));
                let z = z & ((1 << params.h) - 1);
                let a = (z * params.t + (1 << (params.h - 1))) >> params.h;
                params.modulo_t(minus_q * a + u64::from(*weight)) as u16
            }));
        }
        out
    }
}

/// Memory of a thread that computes columns.
#[derive(Default)]
struct Workspace {
    scratch: Scratch,
    secrets: Wiped<Eight>,
    products: Wiped<Eight>,
}

/// The headers of rows of an evaluator.
#[derive(Debug)]
pub struct Headers(Rows24);

impl Headers {
    /// Reads the headers of whole rows.
    ///
    /// # Panics
    /// When `bytes` are not whole headers.
    pub fn new(params: &Params, bytes: &[u8]) -> Self {
        let rows = bytes.len() / params.header_len();
        assert_eq!(bytes.len(), rows * params.header_len(), "whole headers");
        let mut values = vec![0; rows * params.n];
        pack::unpack_words(params.h, bytes, &mut values);
        let values: Vec<u32> = values.into_iter().map(|value| value as u32).collect();
        Self(Rows24::new(params.n, &values))
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.0.rows()
    }
}
