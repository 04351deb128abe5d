//! Each masked row answers each key once.

use undertone_kernel::{BitMatrix, Cpu, Prg, pack};

use super::{SESSION, SUITE, random, seed};
use crate::params::CLASSES;
use crate::{Columns, Evaluator, Hint, KeyError, KeyOwner, Masks, Matrix, Params, Ring, Tile};

fn masks(params: &'static Params, byte: u8) -> Masks {
    Masks::new(params, SUITE, seed(byte), 10_000)
}

/// Keys of random bytes.
fn keys(params: &Params, count: usize, prg: &mut Prg) -> Vec<u8> {
    let mut out = vec![0; count * params.key_len()];
    prg.fill(&mut out);
    out
}

/// LWE-4: a key is refused the second time, from the same owner or another, in one message or two.
#[test]
fn repeated_keys_are_refused() {
    let params = &CLASSES[0];
    let some = keys(params, 3, &mut Prg::new(&[1; 32]));
    let each = params.key_len();
    let start = || {
        let mut columns = Columns::new(params, 10);
        columns.part(masks(params, 1), 0);
        columns
    };
    let mut columns = start();
    columns.push(&some).unwrap();
    assert_eq!(
        columns.push(&some[each..2 * each]),
        Err(KeyError::Repeated { part: 0 })
    );

    let mut columns = start();
    let twice = [&some[..], &some[..each]].concat();
    assert_eq!(columns.push(&twice), Err(KeyError::Repeated { part: 0 }));

    let mut columns = start();
    columns.push(&some).unwrap();
    columns.part(masks(params, 2), 5);
    assert_eq!(
        columns.push(&some[2 * each..]),
        Err(KeyError::Repeated { part: 0 })
    );

    // The first 32 bytes alone count.
    let mut columns = start();
    columns.push(&some[..each]).unwrap();
    let mut like = some[..each].to_vec();
    like[32] ^= 1;
    assert_eq!(columns.push(&like), Err(KeyError::Repeated { part: 0 }));
    like[31] ^= 1;
    assert_eq!(columns.push(&like), Ok(()));
    assert_eq!(columns.count(), 2);

    // Other masked rows answer the same keys.
    start().push(&some).unwrap();
}

/// LWE-3
#[test]
fn incomplete_keys_are_refused() {
    for params in &CLASSES {
        let each = params.key_len();
        let mut columns = Columns::new(params, 2);
        columns.part(masks(params, 1), 0);
        for have in [1, each - 1, each + 1] {
            let refused = columns.push(&vec![7; have]);
            assert_eq!(refused, Err(KeyError::Length { have, each }));
        }
        assert_eq!(columns.count(), 0);
        columns.push(&[]).unwrap();
    }
}

/// The columns of all key owners together are counted.
#[test]
fn too_many_columns_are_refused() {
    let mut prg = Prg::new(&[1; 32]);
    for params in [&CLASSES[0], &CLASSES[4]] {
        let most = params.max_columns();
        assert_eq!(most, [8192, 2048][usize::from(params.bits > 1024)]);
        let mut columns = Columns::new(params, usize::MAX);
        for owner in 0..2 {
            columns.part(masks(params, owner), 0);
            for _ in 0..most / 2 / 64 {
                columns.push(&keys(params, 64, &mut prg)).unwrap();
            }
        }
        assert_eq!(columns.count(), most);
        columns.part(masks(params, 2), 0);
        let one = keys(params, 1, &mut prg);
        assert_eq!(columns.push(&one), Err(KeyError::TooMany { most }));
        assert_eq!(columns.count(), most);
    }
    let params = &CLASSES[0];
    let mut columns = Columns::new(params, 0);
    columns.part(masks(params, 1), 0);
    let over = keys(params, 8193, &mut prg);
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

fn tiles(hint: &mut Hint, matrix: &dyn Matrix, codes: &BitMatrix) -> Vec<Tile> {
    std::iter::from_fn(|| hint.next(matrix, codes)).collect()
}

/// Neither masked rows nor their source can be copied, a row is answered once, and a new hint has
/// new masked rows.
#[test]
fn a_row_answers_once() {
    <Hint as Once<_>>::holds();
    <Evaluator as Once<_>>::holds();

    let params = &CLASSES[0];
    let ring = Ring::new(Cpu::detect(), SESSION, params);
    let mut prg = Prg::new(&[1; 32]);
    let (x, y) = (random(130, 1000, &mut prg), random(3, 1000, &mut prg));
    let owner = KeyOwner::new(params, SESSION, SUITE, seed(1), 3);
    let keys = owner.keys(&owner.columns(&ring, 0..3), &y, 0..3);
    let columns = || {
        let mut columns = Columns::new(params, 3);
        columns.part(Masks::new(params, SUITE, seed(2), 3), 0);
        columns.push(&keys).unwrap();
        columns
    };
    let mut evaluator = Evaluator::new(params, SESSION, SUITE, seed(3));
    let [mut first, mut second] = [(); 2].map(|()| evaluator.hint(columns()));
    let [first_tiles, second_tiles] = [&mut first, &mut second].map(|hint| tiles(hint, &ring, &x));
    let rows: Vec<_> = first_tiles.iter().map(|tile| tile.rows.clone()).collect();
    assert_eq!(rows, [0..64, 64..128, 128..130]);
    assert!(first.next(&ring, &x).is_none() && first.next(&ring, &x).is_none());
    let each = params.header_len();
    let answer = pack::packed_len(params.v, 3);
    for (one, other) in first_tiles.iter().zip(&second_tiles) {
        assert_eq!(one.headers.len(), one.rows.len() * each);
        let [one_rows, other_rows] = [one, other].map(|tile| tile.headers.chunks(each));
        assert!(one_rows.zip(other_rows).all(|(one, other)| one != other));
        let [one_rows, other_rows] = [one, other].map(|tile| tile.answers[0].chunks(answer));
        assert!(one_rows.zip(other_rows).all(|(one, other)| one != other));
    }
    // The same source gives the same bytes: what is sent again is no second answer.
    let mut again = Evaluator::new(params, SESSION, SUITE, seed(3)).hint(columns());
    for (one, other) in first_tiles.iter().zip(tiles(&mut again, &ring, &x)) {
        assert!(one.headers == other.headers && one.answers == other.answers);
    }
}
