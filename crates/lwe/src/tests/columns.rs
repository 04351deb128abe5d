//! Each masked row answers each key once.

use undertone_kernel::{BitMatrix, Cpu, Prg};
use undertone_party::PartyId;

use super::{SESSION, SUITE, random, seed};
use crate::params::CLASSES;
use crate::{Columns, Evaluator, Hint, KeyError, KeyOwner, Matrix, Pads, Params, Ring, Tile};

fn pads(byte: u8) -> Pads {
    Pads::new(SESSION, SUITE, seed(byte))
}

/// Keys of random bytes.
fn keys(params: &Params, count: usize, prg: &mut Prg) -> Vec<u8> {
    let mut out = vec![0; count * params.key_len()];
    prg.fill(&mut out);
    out
}

/// Columns with room for `capacity`.
fn columns(params: &'static Params, capacity: usize) -> Columns {
    let ring = Ring::new(Cpu::detect(), SESSION, params);
    let codes = BitMatrix::zero(0, params.bits);
    Evaluator::new(&ring, SESSION, SUITE, &seed(3), &codes).columns(capacity)
}

/// LWE-3
#[test]
fn incomplete_keys_are_refused() {
    for params in &CLASSES {
        let each = params.key_len();
        let mut columns = columns(params, 2);
        columns.part(PartyId::client(1), 0, pads(1));
        for have in [1, each - 1, each + 1] {
            let refused = columns.push(&vec![7; have]);
            assert_eq!(refused, Err(KeyError::Length { have, each }));
        }
        assert_eq!(columns.count(), 0);
        columns.push(&[]).unwrap();
        // Nothing of what was refused stays.
        columns.push(&vec![7; each]).unwrap();
        assert_eq!(columns.count(), 1);
    }
}

/// The columns of all key owners together are counted.
#[test]
fn too_many_columns_are_refused() {
    let mut prg = Prg::new(&[1; 32]);
    for params in [&CLASSES[0], &CLASSES[4]] {
        let most = params.max_columns();
        assert_eq!(most, [8192, 2048][usize::from(params.bits > 1024)]);
        let mut columns = columns(params, usize::MAX);
        for owner in 0..2 {
            columns.part(PartyId::client(owner), 0, pads(1));
            for _ in 0..most / 2 / 64 {
                columns.push(&keys(params, 64, &mut prg)).unwrap();
            }
        }
        assert_eq!(columns.count(), most);
        columns.part(PartyId::client(2), 0, pads(1));
        let one = keys(params, 1, &mut prg);
        assert_eq!(columns.push(&one), Err(KeyError::TooMany { most }));
        assert_eq!(columns.count(), most);
    }
    let mut columns = columns(&CLASSES[0], 0);
    columns.part(PartyId::client(1), 0, pads(1));
    let over = vec![0; 8193 * CLASSES[0].key_len()];
    let most = 8192;
    assert_eq!(columns.push(&over), Err(KeyError::TooMany { most }));
}

/// `Once<_>` is ambiguous, and so does not compile, for a type that can be cloned.
trait Once<Marker> {
    fn holds() {}
}
struct Cloneable;
impl<T: ?Sized> Once<()> for T {}
impl<T: Clone> Once<Cloneable> for T {}

/// Neither masked rows nor their source can be copied, a row is answered once, and a new hint has
/// new masked rows.
#[test]
fn a_row_answers_once() {
    <Hint as Once<_>>::holds();
    <Columns as Once<_>>::holds();
    <Evaluator as Once<_>>::holds();

    let params = &CLASSES[0];
    let ring = Ring::new(Cpu::detect(), SESSION, params);
    let mut prg = Prg::new(&[1; 32]);
    let (x, y) = (random(130, 1000, &mut prg), random(3, 1000, &mut prg));
    let keys = KeyOwner::new(&ring, SESSION, SUITE, &seed(1), &y).keys(0..3);
    let mut evaluator = Evaluator::new(&ring, SESSION, SUITE, &seed(3), &x);
    let [mut first, mut second] = [(); 2].map(|()| {
        let mut columns = evaluator.columns(3);
        columns.part(PartyId::client(1), 0, pads(2));
        columns.push(&keys).unwrap();
        evaluator.hint(columns)
    });
    let [first_tiles, second_tiles] =
        [&mut first, &mut second].map(|hint| hint.collect::<Vec<Tile>>());
    let rows: Vec<_> = first_tiles.iter().map(|tile| tile.rows.clone()).collect();
    assert_eq!(rows, [0..64, 64..128, 128..130]);
    assert!(first.next().is_none() && first.next().is_none());
    let (each, answer) = (params.header_len(), params.answer_len(3));
    for (one, other) in first_tiles.iter().zip(&second_tiles) {
        assert_eq!(one.headers.len(), one.rows.len() * each);
        let [one_rows, other_rows] = [one, other].map(|tile| tile.headers.chunks(each));
        assert!(one_rows.zip(other_rows).all(|(one, other)| one != other));
        assert_eq!(one.answers.len(), 1);
        assert_eq!(one.answers[0].len(), one.rows.len() * answer);
        let [one_rows, other_rows] = [one, other].map(|tile| tile.answers[0].chunks(answer));
        assert!(one_rows.zip(other_rows).all(|(one, other)| one != other));
    }
}

/// A key owner that drops out before its first row leaves a block of no columns.
#[test]
fn a_round_without_keys_sends_headers_alone() {
    let ring: &dyn Matrix = &Ring::new(Cpu::detect(), SESSION, &CLASSES[1]);
    let x = random(3, 2000, &mut Prg::new(&[2; 32]));
    let mut evaluator = Evaluator::new(ring, SESSION, SUITE, &seed(3), &x);
    let mut columns = evaluator.columns(0);
    columns.part(PartyId::client(1), 0, pads(2));
    let tiles: Vec<Tile> = evaluator.hint(columns).collect();
    assert_eq!(tiles.len(), 1);
    assert_eq!(tiles[0].headers.len(), 3 * CLASSES[1].header_len());
    assert_eq!(tiles[0].answers, [[0u8; 0]]);
}
