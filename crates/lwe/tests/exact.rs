//! Whole runs between an evaluator, a key owner and the server.

use undertone_kdf::Seed;
use undertone_kernel::mask::Suite;
use undertone_kernel::{BitMatrix, Cpu, Prg};
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

/// All distances of the rows of `x`, which the evaluator has, and of `y`.
fn distances(matrix: &dyn Matrix, x: &BitMatrix, y: &BitMatrix) -> Vec<u16> {
    let params = matrix.params();
    let owner = KeyOwner::new(params, SESSION, Suite::Aes128Ctr, seed(1), y.rows());
    let columns = owner.columns(matrix, 0..y.rows());
    let keys = owner.keys(&columns, y, 0..y.rows());
    let masks = || Masks::new(params, Suite::Aes128Ctr, seed(2), y.rows());
    let mut held = Columns::new(params, y.rows());
    held.part(masks(), 0);
    held.push(&keys).unwrap();
    let mut hint = Evaluator::new(params, SESSION, Suite::Aes128Ctr, seed(3)).hint(held);
    let weights: Vec<u16> = (0..y.rows())
        .map(|row| y.row(row).iter().map(|word| word.count_ones() as u16).sum())
        .collect();
    let mut out = Vec::new();
    while let Some(tile) = hint.next(matrix, x) {
        let headers = Headers::new(params, &tile.headers);
        let mut answers = vec![0; headers.rows() * y.rows()];
        let each = undertone_kernel::pack::packed_len(params.v, y.rows());
        for (answers, bytes) in answers
            .chunks_mut(y.rows())
            .zip(tile.answers[0].chunks(each))
        {
            undertone_kernel::pack::unpack_words(params.v, bytes, answers);
        }
        let masked = owner.open(&headers, &answers, 0..y.rows(), &weights);
        let mut packed = Vec::new();
        undertone_kernel::pack::pack(params.width(), &masked, &mut packed);
        let (left, right) = (parities(x, 1), parities(y, 1));
        let left = &left[tile.rows.clone()];
        let opened = masks().unmask(x.columns(), tile.rows, left, 0, &right, &packed);
        out.extend(opened.unwrap());
    }
    out
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
