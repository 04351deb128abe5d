//! Whole runs between an evaluator, a key owner and the server.

use std::ops::Range;

use undertone_kdf::Seed;
use undertone_kernel::mask::Suite;
use undertone_kernel::{BitMatrix, Cpu, Prg, pack};
use undertone_lwe::{
    CLASSES, Columns, Dense, Evaluator, Headers, KeyOwner, Masks, Matrix, Params, Ring,
};
use undertone_party::SessionId;

const SESSION: SessionId = SessionId([7; 32]);

fn seed(byte: u8) -> Seed {
    Seed::from_bytes([byte; 32])
}

fn parities(codes: &BitMatrix, flip: u8) -> Vec<u8> {
    let weight = |row| -> u32 { codes.row(row).iter().map(|word| word.count_ones()).sum() };
    (0..codes.rows())
        .map(|row| weight(row) as u8 & 1 ^ flip)
        .collect()
}

fn weights(codes: &BitMatrix) -> Vec<u16> {
    let weight = |row| codes.row(row).iter().map(|word| word.count_ones() as u16);
    (0..codes.rows()).map(|row| weight(row).sum()).collect()
}

/// Rows of one of several key owners.
type Block = (usize, Range<usize>);

/// All distances of the rows of `x`, which the evaluator has, and of each of `owners`. Each of
/// `rounds` has new masked rows.
fn rounds(
    matrix: &dyn Matrix,
    suite: Suite,
    x: &BitMatrix,
    owners: &[BitMatrix],
    rounds: &[Vec<Block>],
) -> Vec<Vec<u16>> {
    let params = matrix.params();
    let masks = |at: usize| {
        let seed = seed(at as u8 + 100);
        Masks::new(params, suite, seed, owners[at].rows())
    };
    let sources: Vec<KeyOwner> = owners
        .iter()
        .zip(50..)
        .map(|(y, byte)| KeyOwner::new(params, SESSION, suite, seed(byte), y.rows()))
        .collect();
    let mut evaluator = Evaluator::new(params, SESSION, suite, seed(3));
    let mut out: Vec<Vec<u16>> = owners
        .iter()
        .map(|y| vec![u16::MAX; x.rows() * y.rows()])
        .collect();
    for blocks in rounds {
        let mut held = Columns::new(params, 0);
        for (owner, rows) in blocks {
            held.part(masks(*owner), rows.start);
            let source = &sources[*owner];
            let columns = source.columns(matrix, rows.clone());
            let keys = source.keys(&columns, &owners[*owner], rows.clone());
            // In two messages.
            let (first, second) = keys.split_at(rows.len() / 2 * params.key_len());
            held.push(first).expect("new keys");
            held.push(second).expect("new keys");
        }
        let mut hint = evaluator.hint(held);
        while let Some(tile) = hint.next(matrix, x) {
            let headers = Headers::new(params, &tile.headers);
            assert_eq!(tile.answers.len(), blocks.len());
            for ((owner, rows), bytes) in blocks.iter().zip(&tile.answers) {
                let (y, flip) = (&owners[*owner], *owner as u8 & 1);
                let mut answers = vec![0; headers.rows() * rows.len()];
                let each = pack::packed_len(params.v, rows.len());
                for (answers, bytes) in answers.chunks_mut(rows.len()).zip(bytes.chunks(each)) {
                    pack::unpack_words(params.v, bytes, answers);
                }
                let weights = &weights(y)[rows.clone()];
                let masked = sources[*owner].open(&headers, &answers, rows.clone(), weights);
                let mut packed = Vec::new();
                pack::pack(params.width(), &masked, &mut packed);
                let (left, right) = (parities(x, flip), parities(y, flip));
                let (left, right) = (&left[tile.rows.clone()], &right[rows.clone()]);
                let tile_rows = tile.rows.clone();
                let opened = masks(*owner)
                    .unmask(x.columns(), tile_rows, left, rows.start, right, &packed)
                    .expect("distances");
                for (row, opened) in tile.rows.clone().zip(opened.chunks(rows.len())) {
                    out[*owner][row * y.rows()..][rows.clone()].copy_from_slice(opened);
                }
            }
        }
    }
    out
}

fn distances(matrix: &dyn Matrix, x: &BitMatrix, y: &BitMatrix) -> Vec<u16> {
    let all = [vec![(0, 0..y.rows())]];
    let owners = std::slice::from_ref(y);
    rounds(matrix, Suite::Aes128Ctr, x, owners, &all).remove(0)
}

fn plain(x: &BitMatrix, y: &BitMatrix) -> Vec<u16> {
    let mut out = vec![0; x.rows() * y.rows()];
    undertone_kernel::hamming::distances(Cpu::portable(), x, 0..x.rows(), y, 0..y.rows(), &mut out);
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

/// Clients all of whose rows are zeros or ones: distances 0 and L.
#[test]
fn constant_codes_are_exact() {
    for params in &CLASSES {
        let ring = Ring::new(Cpu::detect(), SESSION, params);
        for bits in [params.bits, params.bits - 1] {
            let constant = |rows: usize, value: bool| {
                let mut codes = BitMatrix::zero(rows, bits);
                for row in 0..rows {
                    (0..bits).for_each(|bit| codes.set(row, bit, value));
                }
                codes
            };
            for (left, right) in [(false, false), (false, true), (true, false), (true, true)] {
                let (x, y) = (constant(9, left), constant(2, right));
                let due = if left == right { 0 } else { bits as u16 };
                assert_eq!(distances(&ring, &x, &y), [due; 18]);
            }
        }
    }
}

#[test]
fn one_row_against_one_is_exact() {
    let mut prg = Prg::new(&[3; 32]);
    for params in &CLASSES {
        let ring = Ring::new(Cpu::detect(), SESSION, params);
        let (x, y) = (
            random(1, params.bits, &mut prg),
            random(1, params.bits, &mut prg),
        );
        assert_eq!(distances(&ring, &x, &y), plain(&x, &y));
    }
}

/// Several key owners share masked rows, with blocks of their rows in several rounds.
#[test]
fn several_key_owners_and_rounds_are_exact() {
    let mut prg = Prg::new(&[4; 32]);
    for (params, suite) in [
        (&CLASSES[0], Suite::Aes128Ctr),
        (&CLASSES[0], Suite::ChaCha20),
        (&CLASSES[2], Suite::Aes128Ctr),
    ] {
        let bits = params.bits - 7;
        let ring = Ring::new(Cpu::detect(), SESSION, params);
        let x = random(67, bits, &mut prg);
        let owners = [60, 25, 1].map(|rows| random(rows, bits, &mut prg));
        let plan = [
            vec![(0, 0..23), (1, 0..25), (2, 0..1)],
            vec![(0, 23..24)],
            vec![(0, 50..60), (0, 24..50)],
        ];
        let found = rounds(&ring, suite, &x, &owners, &plan);
        for (found, y) in found.iter().zip(&owners) {
            assert!(*found == plain(&x, y));
        }
    }
}
