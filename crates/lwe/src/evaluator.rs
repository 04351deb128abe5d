//! The evaluator: it masks its rows, and answers key columns with masked inner products.

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use undertone_kdf::Seed;
use undertone_kernel::mask::Suite;
use undertone_kernel::negacyclic::{Eight, LANES};
use undertone_kernel::product52::{self, COLUMNS, Panel};
use undertone_kernel::{BitMatrix, Cpu, Wiped, pack};
use undertone_party::{PartyId, SessionId};

use crate::matrix::{Matrix, Scratch};
use crate::pads::{Pads, Place};
use crate::params::Params;
use crate::pool::Pool;
use crate::sample::{self, Gaussian, Words};
use crate::table::{Samplers, Wide};
use crate::tags::{Tags, derive};

/// Rows of the evaluator in a tile.
pub const TILE_ROWS: usize = 64;

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
}

/// The key columns that are answered under the same masked rows, of all key owners together.
pub struct Columns {
    params: &'static Params,
    count: usize,
    /// The columns of panel `p` are entries `p·l` to `(p + 1)·l − 1`.
    panels: Wiped<Panel>,
    parts: Vec<Part>,
    tags: Arc<Tags>,
    /// What all keys add to their tag.
    pieces: Wiped<u128>,
}

/// The columns of one key owner.
#[derive(Debug)]
struct Part {
    owner: PartyId,
    columns: Range<usize>,
    /// The first of these rows among those of the owner.
    first: usize,
    pads: Pads,
}

impl std::fmt::Debug for Columns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Columns({}, ..)", self.count)
    }
}

impl Columns {
    /// Starts the columns of another key owner: its rows from `first` on. `pads` are those of the
    /// pair.
    pub fn part(&mut self, owner: PartyId, first: usize, pads: Pads) {
        self.parts.push(Part {
            owner,
            columns: self.count..self.count,
            first,
            pads,
        });
    }

    /// Takes more keys of the current key owner: one message of *keys*.
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
        self.tags.add(keys, &mut self.pieces);
        let mut keys: Vec<&[u8]> = keys.chunks_exact(each).collect();
        while !keys.is_empty() {
            let (panel, column) = (self.count / COLUMNS, self.count % COLUMNS);
            if column == 0 {
                self.panels.reserve(params.length);
                let len = self.panels.len() + params.length;
                self.panels.resize(len, Panel([0; COLUMNS]));
            }
            let panel = &mut self.panels[panel * params.length..];
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

    /// The tag of all keys, with their owners and rows.
    fn tag(&self) -> u128 {
        let heads = self.parts.iter().flat_map(|part| {
            [
                part.owner.to_wire(),
                part.first as u32,
                part.columns.len() as u32,
            ]
        });
        let heads: Vec<u8> = heads.flat_map(u32::to_le_bytes).collect();
        let mut pieces = Wiped::with_capacity(1 + self.pieces.len());
        self.tags.add(&heads, &mut pieces);
        pieces.reserve(self.pieces.len());
        pieces.extend_from_slice(&self.pieces);
        self.tags.tag(&pieces)
    }
}

/// The evaluator: its codes, and what it draws masked rows from, in one session.
#[derive(Debug)]
pub struct Evaluator<'a> {
    matrix: &'a dyn Matrix,
    codes: &'a BitMatrix,
    session: SessionId,
    suite: Suite,
    rows: Seed,
    tags: Arc<Tags>,
    rounds: u32,
}

impl<'a> Evaluator<'a> {
    /// An evaluator of `codes` that draws from `own`, its secret.
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
        assert!(codes.columns() <= matrix.params().bits, "codes");
        Self {
            matrix,
            codes,
            session,
            suite,
            rows: own.derive(session, "lwe rows", &[]),
            tags: Arc::new(Tags::of_party(session, own)),
            rounds: 0,
        }
    }

    /// No columns, with room for `capacity`, for the next round.
    pub fn columns(&self, capacity: usize) -> Columns {
        let params = self.matrix.params();
        let capacity = capacity.min(params.max_columns());
        Columns {
            params,
            count: 0,
            panels: Wiped::with_capacity(capacity.div_ceil(COLUMNS) * params.length),
            parts: Vec::new(),
            tags: Arc::clone(&self.tags),
            pieces: Wiped::default(),
        }
    }

    /// The next round: new masked rows, which answer `columns`.
    pub fn hint(&mut self, columns: Columns) -> Hint<'a> {
        let round = self.rounds;
        self.rounds += 1;
        let tag = columns.tag();
        Hint {
            matrix: self.matrix,
            codes: self.codes,
            session: self.session,
            suite: self.suite,
            seed: derive(&self.rows, self.session, "lwe hint", &[round], &[tag]),
            tags: Arc::clone(&self.tags),
            round,
            columns,
            next: 0,
            masked: Wiped::default(),
            products: Vec::new(),
            pool: Pool::new(),
        }
    }
}

/// The masked rows of a round, and the columns that they answer. Each row answers each column once.
#[derive(Debug)]
pub struct Hint<'a> {
    matrix: &'a dyn Matrix,
    codes: &'a BitMatrix,
    session: SessionId,
    suite: Suite,
    seed: Seed,
    tags: Arc<Tags>,
    round: u32,
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
    /// The answers for each key owner, in the order of their parts: for the server.
    pub answers: Vec<Vec<u8>>,
}

/// Memory of a thread that computes headers.
#[derive(Debug, Default)]
struct Workspace {
    scratch: Scratch,
    products: Wiped<Eight>,
}

impl Hint<'_> {
    fn params(&self) -> &'static Params {
        self.matrix.params()
    }

    /// The stream for a row, whose code has the tag `tag`.
    fn words(&self, purpose: &str, ids: &[u32], tag: u128) -> Words {
        let seed = derive(&self.seed, self.session, purpose, ids, &[tag]);
        Words::new(self.suite, &seed)
    }

    /// Steps 4 and 5 for the next rows: at most [`TILE_ROWS`].
    fn tile(&mut self) -> Option<Tile> {
        let rows = self.next..self.codes.rows().min(self.next + TILE_ROWS);
        if rows.is_empty() {
            return None;
        }
        self.next = rows.end;
        let length = self.params().length;
        let blocks = rows.len().div_ceil(LANES);
        let mut masked = std::mem::take(&mut self.masked);
        masked.resize(blocks * length, Eight::default());
        let tags = rows
            .clone()
            .map(|row| self.tags.codes([self.codes.row(row)]));
        let tags = Wiped::from(tags.collect::<Vec<u128>>());
        let headers: Vec<Vec<u8>> = masked
            .par_chunks_exact_mut(length)
            .enumerate()
            .map(|(block, masked)| {
                let first = rows.start + block * LANES;
                let tags = &tags[block * LANES..];
                let rows = first..rows.end.min(first + LANES);
                self.mask(rows.clone(), tags, masked);
                self.pool
                    .with(|work| self.headers(work, rows, tags, masked))
            })
            .collect();
        let headers = headers.concat();
        let mut products = std::mem::take(&mut self.products);
        products.resize_with(self.columns.panels.len() / length, Wiped::default);
        let panels = self.columns.panels.par_chunks_exact(length);
        panels.zip(&mut products).for_each(|(panel, out)| {
            out.resize(blocks * LANES, Panel([0; COLUMNS]));
            product52::products(Cpu::detect(), &masked, panel, out);
        });
        let answers: Vec<Vec<Vec<u8>>> = rows
            .clone()
            .into_par_iter()
            .map(|row| {
                let place = row - rows.start;
                let header = &headers[place * self.params().header_len()..];
                let header = &header[..self.params().header_len()];
                let parts = self.columns.parts.iter().enumerate();
                parts
                    .map(|(at, part)| {
                        let columns = part.columns.clone();
                        let product =
                            |column: usize| products[column / COLUMNS][place].0[column % COLUMNS];
                        let mut values = Wiped::from(columns.map(product).collect::<Vec<_>>());
                        self.answers(at, row, tags[place], header, &mut values)
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
            headers,
            answers,
        })
    }

    /// Step 4: w for up to eight rows, whose codes have these tags.
    fn mask(&self, rows: Range<usize>, tags: &[u128], masked: &mut [Eight]) {
        let mut padded = Wiped::from(vec![0; self.params().length / 64]);
        for (lane, (row, tag)) in rows.zip(tags).enumerate() {
            let code = self.codes.row(row);
            padded[..code.len()].copy_from_slice(code);
            let words = self.words("lwe row", &[row as u32], *tag);
            sample::coset(Cpu::detect(), self.params(), &padded, words, lane, masked);
        }
    }

    /// Step 4: the headers of up to eight rows.
    fn headers(
        &self,
        work: &mut Workspace,
        rows: Range<usize>,
        tags: &[u128],
        masked: &[Eight],
    ) -> Vec<u8> {
        let (params, cpu) = (self.params(), Cpu::detect());
        let Workspace { scratch, products } = work;
        products.resize(params.n, Eight::default());
        self.matrix.row(cpu, scratch, masked, products);
        let wide = &Samplers::of(params).header;
        let (drop, mask) = (params.q - params.h, (1 << params.h) - 1);
        let mut out = Vec::with_capacity(rows.len() * params.header_len() + pack::SLACK);
        for (lane, (row, tag)) in rows.zip(tags).enumerate() {
            let mut values = Wiped::from(vec![0; params.n]);
            let words = self.words("lwe header", &[row as u32], *tag);
            Gaussian::new(wide, words).replace(cpu, &mut values);
            for (value, product) in values.iter_mut().zip(products.iter()) {
                let sum = value.wrapping_add(product.0[lane]);
                *value = sum.wrapping_add(1 << (drop - 1)) >> drop & mask;
            }
            pack::pack_words(params.h, &values, &mut out);
        }
        out
    }

    /// Step 5: the answers of a row for the block of a part, packed, from its inner products
    /// `values` with the columns.
    fn answers(
        &self,
        part: usize,
        row: usize,
        tag: u128,
        header: &[u8],
        values: &mut [u64],
    ) -> Vec<u8> {
        let params = self.params();
        let weight = self.codes.row(row).iter().map(|word| word.count_ones());
        let residue = params.modulo_t(u64::from(weight.sum::<u32>()));
        // Not `vec![residue; …]`, which branches on a residue of 0.
        let mut residues = Wiped::from(vec![0; values.len()]);
        residues.fill(residue);
        let ids = [row as u32, part as u32];
        let words = self.words("lwe answer", &ids, tag);
        hide(
            params,
            &Samplers::of(params).answer,
            words,
            &mut residues,
            values,
        );
        let place = Place {
            round: self.round,
            column: part as u32,
        };
        self.columns.parts[part]
            .pads
            .add(place, row, header, values);
        round(params, values)
    }
}

impl Iterator for Hint<'_> {
    type Item = Tile;

    fn next(&mut self) -> Option<Tile> {
        self.tile()
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

/// Rounds numbers modulo Q to their highest v bits, and packs them.
pub(crate) fn round(params: &Params, values: &mut [u64]) -> Vec<u8> {
    let (drop, mask) = (params.q - params.v, (1 << params.v) - 1);
    for value in values.iter_mut() {
        *value = value.wrapping_add(1 << (drop - 1)) >> drop & mask;
    }
    let mut out = Vec::with_capacity(params.answer_len(values.len()) + pack::SLACK);
    pack::pack_words(params.v, values, &mut out);
    out
}
