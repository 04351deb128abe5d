//! Whole runs between an evaluator, key owners and the server.

use std::ops::Range;

use undertone_kdf::Seed;
use undertone_kernel::mask::Suite;
use undertone_kernel::{BitMatrix, Cpu, Prg};
use undertone_lwe::{CLASSES, Decoder, Dense, Evaluator, KeyOwner, Matrix, Pads, Params, Place};
use undertone_lwe::{Ring, Tile};
use undertone_party::{PartyId, SessionId};

const SESSION: SessionId = SessionId([7; 32]);
const EVALUATOR: PartyId = PartyId::client(9);

fn seed(byte: u8) -> Seed {
    Seed::from_bytes([byte; 32])
}

fn parities(codes: &BitMatrix, flip: u8) -> Vec<u8> {
    let weight = |row| -> u32 { codes.row(row).iter().map(|word| word.count_ones()).sum() };
    (0..codes.rows())
        .map(|row| weight(row) as u8 & 1 ^ flip)
        .collect()
}

/// Rows of one of several key owners.
type Block = (usize, Range<usize>);

/// An evaluator with the rows `x`, and key owners.
struct Run<'a> {
    matrix: &'a dyn Matrix,
    suite: Suite,
    x: &'a BitMatrix,
    owners: &'a [BitMatrix],
}

impl Run<'_> {
    fn pads(&self, owner: usize) -> Pads {
        Pads::new(SESSION, self.suite, seed(owner as u8 + 100))
    }

    /// Calls `take` with the distances of each block of each tile, row by row. Each of `rounds` has
    /// new masked rows.
    fn run(&self, rounds: &[Vec<Block>], mut take: impl FnMut(&Block, Range<usize>, &[u16])) {
        let params = self.matrix.params();
        let source = |(y, byte)| KeyOwner::new(self.matrix, SESSION, self.suite, &seed(byte), y);
        let sources: Vec<KeyOwner> = self.owners.iter().zip(50..).map(source).collect();
        let mut evaluator = Evaluator::new(self.matrix, SESSION, self.suite, &seed(3), self.x);
        let bits = self.x.columns();
        let decoder = Decoder { params, bits };
        for (round, blocks) in (0..).zip(rounds) {
            let mut columns = evaluator.columns(0);
            for (owner, rows) in blocks {
                let id = PartyId::client(*owner);
                columns.part(id, rows.start, self.pads(*owner));
                let keys = sources[*owner].keys(rows.clone());
                // In two messages.
                let (first, second) = keys.split_at(rows.len() / 2 * params.key_len());
                columns.push(first).expect("whole keys");
                columns.push(second).expect("whole keys");
            }
            for tile in evaluator.hint(columns) {
                let Tile {
                    rows: of_tile,
                    headers,
                    answers,
                } = tile;
                assert_eq!(answers.len(), blocks.len());
                for (column, (block, answers)) in (0..).zip(blocks.iter().zip(&answers)) {
                    let (owner, rows) = block;
                    let source = &sources[*owner];
                    let openings = source.open(
                        &source.block(rows.clone()),
                        &self.pads(*owner),
                        EVALUATOR,
                        Place { round, column },
                        of_tile.start,
                        &headers,
                    );
                    let flip = *owner as u8 & 1;
                    let left = parities(self.x, flip);
                    let right = parities(&self.owners[*owner], flip);
                    let (left, right) = (&left[of_tile.clone()], &right[rows.clone()]);
                    let (found, above) = decoder.distances(left, right, answers, &openings);
                    assert_eq!(above, 0);
                    take(block, of_tile.clone(), &found);
                }
            }
        }
    }

    /// All distances, of each owner.
    fn distances(&self, rounds: &[Vec<Block>]) -> Vec<Vec<u16>> {
        let whole = |y: &BitMatrix| vec![u16::MAX; self.x.rows() * y.rows()];
        let mut out: Vec<Vec<u16>> = self.owners.iter().map(whole).collect();
        self.run(rounds, |(owner, rows), of_tile, found| {
            let width = self.owners[*owner].rows();
            for (row, found) in of_tile.zip(found.chunks(rows.len())) {
                out[*owner][row * width..][rows.clone()].copy_from_slice(found);
            }
        });
        out
    }
}

fn distances(matrix: &dyn Matrix, x: &BitMatrix, y: &BitMatrix) -> Vec<u16> {
    let run = Run {
        matrix,
        suite: Suite::Aes128Ctr,
        x,
        owners: std::slice::from_ref(y),
    };
    run.distances(&[vec![(0, 0..y.rows())]]).remove(0)
}

fn plain(x: &BitMatrix, y: &BitMatrix) -> Vec<u16> {
    let mut out = vec![0; x.rows() * y.rows()];
    let cpu = Cpu::detect();
    undertone_kernel::hamming::distances(cpu, x, 0..x.rows(), y, 0..y.rows(), &mut out);
    out
}

fn random(rows: usize, bits: usize, prg: &mut Prg) -> BitMatrix {
    let words = (0..rows * bits.div_ceil(64)).map(|_| prg.next_u64());
    BitMatrix::from_words(rows, bits, words.collect())
}

#[test]
fn distances_are_exact() {
    let mut prg = Prg::new(&[1; 32]);
    for params in &CLASSES {
        let ring = Ring::new(Cpu::detect(), SESSION, params);
        for (bits, rows) in [
            (params.bits, [70, 31]),
            (params.bits - 1, [1, 1]),
            (params.bits - 63, [9, 49]),
        ] {
            let mut x = random(rows[0], bits, &mut prg);
            let mut y = random(rows[1], bits, &mut prg);
            for bit in 0..bits {
                // All ones, all zeros, equal and complementary rows.
                x.set(0, bit, true);
                let value = x.get(rows[0] - 1, bit);
                y.set(0, bit, !value);
                if rows[1] > 2 {
                    y.set(1, bit, value);
                    y.set(2, bit, false);
                }
            }
            assert!(distances(&ring, &x, &y) == plain(&x, &y), "{bits} bits");
        }
    }
}

#[test]
fn a_matrix_without_structure_gives_the_same_distances() {
    let mut prg = Prg::new(&[1; 32]);
    let params = Params::of(700).unwrap();
    let (x, y) = (random(10, 700, &mut prg), random(5, 700, &mut prg));
    assert_eq!(
        distances(&Dense::new(SESSION, params), &x, &y),
        plain(&x, &y)
    );
}

/// Codes of the ends of each class, and of lengths around words.
#[test]
fn all_lengths_are_exact() {
    let mut prg = Prg::new(&[2; 32]);
    let mut shortest = 1;
    for params in &CLASSES {
        let ring = Ring::new(Cpu::detect(), SESSION, params);
        for bits in [
            shortest,
            shortest + 1,
            params.bits - 65,
            params.bits - 64,
            params.bits - 1,
            params.bits,
        ] {
            assert_eq!(Params::of(bits).unwrap().bits, params.bits);
            let (x, y) = (random(3, bits, &mut prg), random(2, bits, &mut prg));
            assert!(distances(&ring, &x, &y) == plain(&x, &y), "{bits} bits");
        }
        shortest = params.bits + 1;
    }
    let ring = Ring::new(Cpu::detect(), SESSION, &CLASSES[0]);
    for bits in [3, 63, 64, 65, 127, 128, 129, 511, 513] {
        let (x, y) = (random(2, bits, &mut prg), random(1, bits, &mut prg));
        assert!(distances(&ring, &x, &y) == plain(&x, &y), "{bits} bits");
    }
}

fn constant(rows: usize, bits: usize, value: bool) -> BitMatrix {
    let mut codes = BitMatrix::zero(rows, bits);
    for row in 0..rows {
        (0..bits).for_each(|bit| codes.set(row, bit, value));
    }
    codes
}

/// Clients all of whose rows are zeros or ones: distances 0 and L.
#[test]
fn constant_codes_are_exact() {
    for params in &CLASSES {
        let ring = Ring::new(Cpu::detect(), SESSION, params);
        for bits in [params.bits, params.bits - 1] {
            for (left, right) in [(false, false), (false, true), (true, false), (true, true)] {
                let (x, y) = (constant(9, bits, left), constant(2, bits, right));
                let due = if left == right { 0 } else { bits as u16 };
                assert_eq!(distances(&ring, &x, &y), [due; 18]);
            }
        }
    }
}

/// Where l is larger than L, codes between the two are refused.
#[test]
#[should_panic(expected = "codes")]
fn codes_longer_than_the_class_are_refused_by_evaluators() {
    let ring = Ring::new(Cpu::detect(), SESSION, &CLASSES[0]);
    let codes = BitMatrix::zero(1, 1025);
    Evaluator::new(&ring, SESSION, Suite::Aes128Ctr, &seed(1), &codes);
}

#[test]
#[should_panic(expected = "codes")]
fn codes_longer_than_the_class_are_refused_by_key_owners() {
    let ring = Ring::new(Cpu::detect(), SESSION, &CLASSES[0]);
    let codes = BitMatrix::zero(1, 1025);
    KeyOwner::new(&ring, SESSION, Suite::Aes128Ctr, &seed(1), &codes);
}

/// Several key owners share masked rows, with blocks of their rows in several rounds.
#[test]
fn several_key_owners_and_rounds_are_exact() {
    let mut prg = Prg::new(&[4; 32]);
    for (params, suite) in [
        (&CLASSES[0], Suite::Aes128Ctr),
        (&CLASSES[0], Suite::ChaCha20),
        (&CLASSES[2], Suite::ChaCha20),
        (&CLASSES[3], Suite::Aes128Ctr),
    ] {
        let bits = params.bits - 7;
        let matrix = &Ring::new(Cpu::detect(), SESSION, params);
        let x = &random(67, bits, &mut prg);
        let owners = &[60, 25, 1].map(|rows| random(rows, bits, &mut prg));
        let run = Run {
            matrix,
            suite,
            x,
            owners,
        };
        let found = run.distances(&[
            vec![(0, 0..23), (1, 0..25), (2, 0..1)],
            vec![(0, 23..24)],
            vec![(0, 50..60), (0, 24..50)],
        ]);
        for (found, y) in found.iter().zip(owners) {
            assert!(*found == plain(x, y));
        }
    }
}
