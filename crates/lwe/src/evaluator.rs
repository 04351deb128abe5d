//! The evaluator: it masks its rows, and answers key columns with masked inner products.

use std::collections::HashMap;
use std::ops::Range;

use rayon::prelude::*;
use undertone_kdf::Seed;
use undertone_kernel::mask::Suite;
use undertone_kernel::negacyclic::{Eight, LANES};
use undertone_kernel::product52::{self, COLUMNS, Panel};
use undertone_kernel::{BitMatrix, Cpu, Wiped, pack};
use undertone_party::SessionId;

use crate::masks::Masks;
use crate::matrix::{Matrix, Scratch};
use crate::params::Params;
use crate::pool::Pool;
use crate::sample::{self, Gaussian, Words};
use crate::table::{Samplers, Wide};

/// Rows of the evaluator in a tile.
pub const TILE_ROWS: usize = 64;

/// Bytes at the start of a key that tell it from all others.
const PREFIX: usize = 32;

/// Why key columns were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The bytes are not whole keys.
    #[error("keys of {have} bytes; whole keys of {each} bytes are due")]
    Length {
        /// The bytes there are.
        have: usize,
        /// The bytes of a key.
        each: usize,
    },
    /// There would be more columns than may be answered under one masked row.
    #[error("more than {most} key columns")]
    TooMany {
        /// The most there may be.
        most: usize,
    },
    /// A key occurs twice. A second answer to it would tell more about a row than the first.
    #[error("a key that was there before")]
    Repeated {
        /// The number of the part in which it was, in the order of [`Columns::part`].
        part: usize,
    },
}

/// The key columns that are answered under the same masked rows, of all key owners together.
pub struct Columns {
    params: &'static Params,
    count: usize,
    /// The columns of panel `p` are entries `p·L` to `(p + 1)·L − 1`.
    panels: Wiped<Panel>,
    /// The part of each key.
    seen: HashMap<[u8; PREFIX], usize>,
    parts: Vec<Part>,
}

/// The columns of one key owner.
#[derive(Debug)]
struct Part {
    columns: Range<usize>,
    /// The first of these rows among those of the owner.
    first: usize,
    masks: Masks,
}

impl std::fmt::Debug for Columns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Columns({}, ..)", self.count)
    }
}

impl Columns {
    /// No columns, with room for `capacity`.
    pub fn new(params: &'static Params, capacity: usize) -> Self {
        let capacity = capacity.min(params.max_columns());
        Self {
            params,
            count: 0,
            panels: Wiped::with_capacity(capacity.div_ceil(COLUMNS) * params.bits),
            seen: HashMap::with_capacity(capacity),
            parts: Vec::new(),
        }
    }

    /// Starts the columns of another key owner: its rows from `first` on. `masks` are those of the
    /// pair.
    pub fn part(&mut self, masks: Masks, first: usize) {
        self.parts.push(Part {
            columns: self.count..self.count,
            first,
            masks,
        });
    }

    /// Takes more keys of the current key owner.
    ///
    /// # Errors
    /// [`KeyError`].
    ///
    /// # Panics
    /// Before the first [`part`](Self::part).
    pub fn push(&mut self, keys: &[u8]) -> Result<(), KeyError> {
        let (params, each) = (self.params, self.params.key_len());
        if !keys.len().is_multiple_of(each) {
            let have = keys.len();
            return Err(KeyError::Length { have, each });
        }
        let most = params.max_columns();
        if self.count + keys.len() / each > most {
            return Err(KeyError::TooMany { most });
        }
        let mut keys: Vec<&[u8]> = keys.chunks_exact(each).collect();
        for key in &keys {
            let mut prefix = [0; PREFIX];
            prefix.copy_from_slice(&key[..PREFIX]);
            let own = self.parts.len() - 1;
            if let Some(part) = self.seen.insert(prefix, own) {
                return Err(KeyError::Repeated { part });
            }
        }
        while !keys.is_empty() {
            let (panel, column) = (self.count / COLUMNS, self.count % COLUMNS);
            if column == 0 {
                self.panels.reserve(params.bits);
                let len = self.panels.len() + params.bits;
                self.panels.resize(len, Panel([0; COLUMNS]));
            }
            let panel = &mut self.panels[panel * params.bits..];
            // Up to the end of a register, so that whole cache lines are written.
            let some = keys.len().min(LANES - column % LANES);
            let rest = keys.split_off(some);
            pack::unpack_columns(params.q, &keys, column, panel);
            self.count += some;
            keys = rest;
        }
        let part = self.parts.last_mut();
        part.expect("a part was started").columns.end = self.count;
        Ok(())
    }

    /// Number of columns.
    pub fn count(&self) -> usize {
        self.count
    }
}

/// The masked rows of an evaluator, and the columns that they answer. Each row answers each column
/// once.
#[derive(Debug)]
pub struct Hint {
    params: &'static Params,
    session: SessionId,
    suite: Suite,
    seed: Seed,
    columns: Columns,
    /// The first row that has not answered.
    next: usize,
    masked: Wiped<Eight>,
    products: Vec<Wiped<Panel>>,
    pool: Pool<Workspace>,
}

/// The evaluator's messages for some of its rows.
#[derive(Debug)]
pub struct Tile {
    /// The rows.
    pub rows: Range<usize>,
    /// Their headers, for every key owner.
    pub headers: Vec<u8>,
    /// The answers to each key owner, in the order of their parts.
    pub answers: Vec<Vec<u8>>,
}

/// Memory of a thread that computes headers.
#[derive(Debug, Default)]
struct Workspace {
    scratch: Scratch,
    products: Wiped<Eight>,
}

/// Draws masked rows, a new one for every [`Hint`].
#[derive(Debug)]
pub struct Evaluator {
    params: &'static Params,
    session: SessionId,
    suite: Suite,
    seed: Seed,
    hints: u32,
}

impl Evaluator {
    /// An evaluator that draws from `seed`, in one session.
    pub fn new(params: &'static Params, session: SessionId, suite: Suite, seed: Seed) -> Self {
        Self {
            params,
            session,
            suite,
            seed,
            hints: 0,
        }
    }

    /// New masked rows, which answer `columns`.
    pub fn hint(&mut self, columns: Columns) -> Hint {
        let seed = self.seed.derive(self.session, "lwe hint", &[self.hints]);
        self.hints += 1;
        Hint {
            params: self.params,
            session: self.session,
            suite: self.suite,
            seed,
            columns,
            next: 0,
            masked: Wiped::default(),
            products: Vec::new(),
            pool: Pool::new(),
        }
    }
}

impl Hint {
    fn words(&self, purpose: &str, ids: &[u32]) -> Words {
        let seed = self.seed.derive(self.session, purpose, ids);
        Words::new(self.suite, &seed)
    }

    /// Steps 3 and 4 for the next rows of `codes`: at most [`TILE_ROWS`]. `None` after the last.
    ///
    /// # Panics
    /// When a code is longer than L, or `matrix` is of another class.
    pub fn next(&mut self, matrix: &dyn Matrix, codes: &BitMatrix) -> Option<Tile> {
        assert_eq!(matrix.params(), self.params, "classes");
        let rows = self.next..codes.rows().min(self.next + TILE_ROWS);
        if rows.is_empty() {
            return None;
        }
        self.next = rows.end;
        let bits = self.params.bits;
        let blocks = rows.len().div_ceil(LANES);
        let mut masked = std::mem::take(&mut self.masked);
        masked.resize(blocks * bits, Eight::default());
        let headers: Vec<Vec<u8>> = masked
            .par_chunks_exact_mut(bits)
            .enumerate()
            .map(|(block, masked)| {
                let first = rows.start + block * LANES;
                let rows = first..rows.end.min(first + LANES);
                self.mask(codes, rows.clone(), masked);
                self.pool
                    .with(|work| self.headers(matrix, work, rows, masked))
            })
            .collect();
        let mut products = std::mem::take(&mut self.products);
        products.resize_with(self.columns.panels.len() / bits, Wiped::default);
        let panels = self.columns.panels.par_chunks_exact(bits);
        panels.zip(&mut products).for_each(|(panel, out)| {
            out.resize(blocks * LANES, Panel([0; COLUMNS]));
            product52::products(Cpu::detect(), &masked, panel, out);
        });
        let answers: Vec<Vec<Vec<u8>>> = rows
            .clone()
            .into_par_iter()
            .map(|row| {
                let weight: u32 = codes.row(row).iter().map(|word| word.count_ones()).sum();
                let place = row - rows.start;
                let parts = self.columns.parts.iter().enumerate();
                parts
                    .map(|(at, part)| {
                        let columns = part.columns.clone();
                        let product =
                            |column: usize| products[column / COLUMNS][place].0[column % COLUMNS];
                        let mut values = Wiped::from(columns.map(product).collect::<Vec<_>>());
                        self.answers(at, row, u64::from(weight), &mut values);
                        let mut out = Vec::with_capacity(values.len() * 3 + 8);
                        pack::pack_words(self.params.v, &values, &mut out);
                        out
                    })
                    .collect()
            })
            .collect();
        let part = |part: usize| {
            let rows = answers.iter();
            rows.flat_map(|parts| &parts[part]).copied().collect()
        };
        let answers = (0..self.columns.parts.len()).map(part).collect();
        (self.masked, self.products) = (masked, products);
        Some(Tile {
            rows,
            headers: headers.concat(),
            answers,
        })
    }

    /// Step 3: w for up to eight rows.
    fn mask(&self, codes: &BitMatrix, rows: Range<usize>, masked: &mut [Eight]) {
        let table = &Samplers::of(self.params).coset;
        let mut padded = Wiped::from(vec![0; self.params.bits / 64]);
        for (lane, row) in rows.enumerate() {
            let code = codes.row(row);
            padded[..code.len()].copy_from_slice(code);
            let words = self.words("lwe row", &[row as u32]);
            let cpu = Cpu::detect();
            sample::coset(cpu, self.params, table, &padded, words, lane, masked);
        }
    }

    /// Step 3: the headers of up to eight rows.
    fn headers(
        &self,
        matrix: &dyn Matrix,
        work: &mut Workspace,
        rows: Range<usize>,
        masked: &[Eight],
    ) -> Vec<u8> {
        let (params, cpu) = (self.params, Cpu::detect());
        let Workspace { scratch, products } = work;
        products.resize(params.n, Eight::default());
        matrix.row(cpu, scratch, masked, products);
        let wide = &Samplers::of(params).header;
        let (drop, mask) = (params.q - params.h, (1 << params.h) - 1);
        let mut out = Vec::with_capacity(rows.len() * params.header_len() + 8);
        for (lane, row) in rows.enumerate() {
            let mut values = Wiped::from(vec![0; params.n]);
            let words = self.words("lwe header", &[row as u32]);
            Gaussian::new(wide, words).replace(cpu, &mut values);
            for (value, product) in values.iter_mut().zip(products.iter()) {
                let sum = value.wrapping_add(product.0[lane]);
                *value = sum.wrapping_add(1 << (drop - 1)) >> drop & mask;
            }
            pack::pack_words(params.h, &values, &mut out);
        }
        out
    }

    /// Step 4: turns the inner products of a row, of `weight` ones, with the columns of a part into
    /// answers.
    fn answers(&self, part: usize, row: usize, weight: u64, values: &mut [u64]) {
        let params = self.params;
        let of = &self.columns.parts[part];
        let mut residues = Wiped::from(vec![0; values.len()]);
        of.masks.fill(row, of.first, &mut residues);
        for residue in residues.iter_mut() {
            *residue = params.modulo_t(*residue + weight);
        }
        let wide = &Samplers::of(params).answer;
        let words = self.words("lwe answer", &[row as u32, part as u32]);
        hide(params, wide, words, &mut residues, values);
        let (drop, mask) = (params.q - params.v, (1 << params.v) - 1);
        for value in values {
            *value = value.wrapping_add(1 << (drop - 1)) >> drop & mask;
        }
    }
}

/// Adds τρ, and noise of centre −ρ/t, to each of `values`. The ρ are `residues`, which the noise
/// overwrites.
pub(crate) fn hide(
    params: &Params,
    wide: &Wide,
    words: Words,
    residues: &mut [u64],
    values: &mut [u64],
) {
    let tau = params.tau();
    for (value, residue) in values.iter_mut().zip(&*residues) {
        *value = value.wrapping_add(tau.wrapping_mul(*residue));
    }
    Gaussian::new(wide, words).replace(Cpu::detect(), residues);
    for (value, noise) in values.iter_mut().zip(residues) {
        *value = value.wrapping_add(*noise);
    }
}
