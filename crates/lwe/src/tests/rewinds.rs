//! A party that runs again with the same secret: on the same inputs it sends the same bytes, and on
//! others it draws all randomness again that what changed enters.

use std::collections::HashSet;
use std::ops::Range;

use undertone_kernel::negacyclic::Eight;
use undertone_kernel::{BitMatrix, Cpu, Prg, pack};
use undertone_party::{PartyId, SessionId};

use super::shape::Shape;
use super::{SESSION, SUITE, random, seed};
use crate::params::{CLASSES, Params};
use crate::{Evaluator, KeyOwner, Matrix, Pads, Place, Ring, Scratch, Tile};

/// Rows of the evaluator, in two tiles, and of the key owner.
const ROWS: usize = 70;
const COLUMNS: usize = 40;

/// All that the messages of an evaluator depend on.
#[derive(Clone)]
struct Evaluating<'a> {
    matrix: &'a dyn Matrix,
    session: SessionId,
    secret: u8,
    x: BitMatrix,
    round: usize,
    owner: usize,
    first: usize,
    pads: u8,
    keys: Vec<u8>,
}

impl Evaluating<'_> {
    /// The headers and the answers.
    fn run(&self) -> [Vec<u8>; 2] {
        let params = self.matrix.params();
        let own = seed(self.secret);
        let mut evaluator = Evaluator::new(self.matrix, self.session, SUITE, &own, &self.x);
        for _ in 0..self.round {
            let columns = evaluator.columns(0);
            evaluator.hint(columns);
        }
        let mut columns = evaluator.columns(0);
        let pads = Pads::new(self.session, SUITE, seed(self.pads));
        columns.part(PartyId::client(self.owner), self.first, pads);
        // Each message has 10 keys.
        for message in self.keys.chunks(10 * params.key_len()) {
            columns.push(message).unwrap();
        }
        let tiles: Vec<Tile> = evaluator.hint(columns).collect();
        let headers = tiles.iter().map(|tile| tile.headers.clone());
        let answers = tiles.iter().map(|tile| tile.answers[0].clone());
        [
            headers.collect::<Vec<_>>().concat(),
            answers.collect::<Vec<_>>().concat(),
        ]
    }
}

/// All that the messages of a key owner depend on.
#[derive(Clone)]
struct Owning<'a> {
    matrix: &'a dyn Matrix,
    session: SessionId,
    secret: u8,
    y: BitMatrix,
    block: Range<usize>,
    evaluator: usize,
    place: Place,
    first: usize,
    pads: u8,
    headers: Vec<u8>,
}

impl Owning<'_> {
    fn owner(&self) -> KeyOwner<'_> {
        KeyOwner::new(
            self.matrix,
            self.session,
            SUITE,
            &seed(self.secret),
            &self.y,
        )
    }

    fn keys(&self) -> Vec<u8> {
        self.owner().keys(0..self.y.rows())
    }

    /// The openings, of headers in two messages.
    fn run(&self) -> Vec<u8> {
        let owner = self.owner();
        let block = owner.block(self.block.clone());
        let pads = Pads::new(self.session, SUITE, seed(self.pads));
        let id = PartyId::client(self.evaluator);
        let tile = 64 * self.matrix.params().header_len();
        let tiles = self.headers.chunks(tile).enumerate().map(|(at, headers)| {
            let first = self.first + 64 * at;
            owner.open(&block, &pads, id, self.place, first, headers)
        });
        tiles.collect::<Vec<_>>().concat()
    }
}

fn flipped(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut out = bytes.to_vec();
    out[bit / 8] ^= 1 << (bit % 8);
    out
}

fn other_code(codes: &BitMatrix, row: usize, bit: usize) -> BitMatrix {
    let mut out = codes.clone();
    out.set(row, bit, !codes.get(row, bit));
    out
}

/// An evaluator and a key owner that follow the protocol.
fn both<'a>(matrix: &'a dyn Matrix) -> (Evaluating<'a>, Owning<'a>) {
    let bits = matrix.params().bits - 24;
    let mut prg = Prg::new(&[95; 32]);
    let mut owning = Owning {
        matrix,
        session: SESSION,
        secret: 1,
        y: random(COLUMNS, bits, &mut prg),
        block: 0..COLUMNS,
        evaluator: 5,
        place: Place {
            round: 0,
            column: 0,
        },
        first: 0,
        pads: 2,
        headers: Vec::new(),
    };
    let evaluating = Evaluating {
        matrix,
        session: SESSION,
        secret: 3,
        x: random(ROWS, bits, &mut prg),
        round: 0,
        owner: 6,
        first: 0,
        pads: 2,
        keys: owning.keys(),
    };
    owning.headers = evaluating.run()[0].clone();
    (evaluating, owning)
}

fn rings() -> [Ring; 2] {
    [&CLASSES[0], &CLASSES[1]].map(|params| Ring::new(Cpu::detect(), SESSION, params))
}

const OTHER: SessionId = SessionId([10; 32]);

#[test]
fn the_same_inputs_give_the_same_bytes() {
    for ring in &rings() {
        let (evaluating, owning) = both(ring);
        assert!(evaluating.run() == evaluating.run());
        assert!(owning.keys() == owning.keys());
        assert!(owning.run() == owning.run());
        // However keys are asked for, and headers come.
        let owner = owning.owner();
        let apart = [0..7, 7..8, 8..COLUMNS].map(|rows| owner.keys(rows));
        assert!(apart.concat() == owning.keys());
        let (params, all) = (ring.params(), owning.run());
        let one = Owning {
            first: 67,
            headers: owning.headers[67 * params.header_len()..].to_vec(),
            ..owning.clone()
        };
        assert!(one.run() == all[67 * params.answer_len(COLUMNS)..]);
    }
}

/// `s` and `e` change with the code of the row, the secret and the session.
#[test]
fn other_codes_have_other_keys() {
    for ring in &rings() {
        let (_, owning) = both(ring);
        let shape = Shape::keys(ring.params());
        let keys = owning.keys();
        for (row, bit) in [(0, 0), (17, 500), (COLUMNS - 1, owning.y.columns() - 1)] {
            let y = other_code(&owning.y, row, bit);
            let other = Owning {
                y,
                ..owning.clone()
            };
            shape.one_is_new(&keys, &other.keys(), row);
        }
        // The same code as another row has another key.
        let mut y = owning.y.clone();
        let bits = owning.y.columns();
        (0..bits).for_each(|bit| y.set(1, bit, owning.y.get(0, bit)));
        let other = Owning {
            y,
            ..owning.clone()
        }
        .keys();
        shape.are_new(shape.rows(&other)[0], shape.rows(&other)[1]);
        let secret = Owning {
            secret: 11,
            ..owning.clone()
        };
        shape.are_new(&keys, &secret.keys());
        // With the same matrix, so that only secrets and errors are of the other session.
        let session = Owning {
            session: OTHER,
            ..owning.clone()
        };
        shape.are_new(&keys, &session.keys());
        // Keys do not depend on evaluators.
        let evaluator = Owning {
            evaluator: 7,
            pads: 8,
            ..owning.clone()
        };
        assert!(keys == evaluator.keys());
    }
}

/// `w`, `η` and `g` change with every bit of the keys of the round, their owner and number, the
/// round, the secret and the session; and for a row with its code.
#[test]
fn other_keys_have_other_masked_rows() {
    for ring in &rings() {
        let (evaluating, _) = both(ring);
        let params = ring.params();
        let [headers, answers] = evaluating.run();
        let of_header = Shape::headers(params);
        let of_answer = Shape::sums(params, COLUMNS);
        for (row, bit) in [(0, 0), (63, 64), (ROWS - 1, evaluating.x.columns() - 1)] {
            let x = other_code(&evaluating.x, row, bit);
            let [other_headers, other_answers] = Evaluating {
                x,
                ..evaluating.clone()
            }
            .run();
            of_header.one_is_new(&headers, &other_headers, row);
            of_answer.one_is_new(&answers, &other_answers, row);
        }
        let bits = 8 * evaluating.keys.len();
        let same = || evaluating.clone();
        let mut moved = evaluating.keys.clone();
        moved.rotate_left(params.key_len());
        for other in [
            Evaluating {
                keys: flipped(&evaluating.keys, 0),
                ..same()
            },
            Evaluating {
                keys: flipped(&evaluating.keys, bits / 2),
                ..same()
            },
            Evaluating {
                keys: flipped(&evaluating.keys, bits - 1),
                ..same()
            },
            Evaluating {
                keys: moved,
                ..same()
            },
            Evaluating { round: 1, ..same() },
            Evaluating { owner: 7, ..same() },
            Evaluating {
                first: 40,
                ..same()
            },
            Evaluating {
                secret: 11,
                ..same()
            },
            Evaluating {
                session: OTHER,
                ..same()
            },
        ] {
            let [other_headers, other_answers] = other.run();
            of_header.are_new(&headers, &other_headers);
            of_answer.are_new(&answers, &other_answers);
        }
        // Fewer keys: the owner dropped out.
        for rows in [COLUMNS - 1, COLUMNS - 10, 0] {
            let keys = evaluating.keys[..rows * params.key_len()].to_vec();
            let [other_headers, other_answers] = Evaluating { keys, ..same() }.run();
            of_header.are_new(&headers, &other_headers);
            if rows > 0 {
                let shape = Shape::sums(params, rows);
                let cut = of_answer.rows(&answers).into_iter().map(|row| {
                    let mut out = Vec::new();
                    let numbers = of_answer.numbers(row);
                    pack::pack_words(params.v, &numbers[..rows], &mut out);
                    out
                });
                shape.are_new(&cut.collect::<Vec<_>>().concat(), &other_answers);
            }
        }
        // Other pads: the rows are the same, and what the server sees of them is not.
        let [other_headers, other_answers] = Evaluating { pads: 12, ..same() }.run();
        assert!(headers == other_headers);
        of_answer.are_new(&answers, &other_answers);
    }
}

/// If a code changes in one bit, the difference of the headers is not the row of the matrix for
/// this bit. With the same masks and noise it would be, up to rounding.
#[test]
fn headers_of_two_codes_do_not_show_a_bit() {
    for ring in &rings() {
        let (evaluating, _) = both(ring);
        let (params, bit) = (ring.params(), 77);
        let shape = Shape::headers(params);
        let mut unit = vec![Eight::default(); params.length];
        unit[bit].0[0] = 1;
        let mut row = vec![Eight::default(); params.n];
        ring.row(Cpu::detect(), &mut Scratch::default(), &unit, &mut row);
        let x = other_code(&evaluating.x, 0, bit);
        let headers = |evaluating: &Evaluating| {
            let [headers, _] = evaluating.run();
            headers[..params.header_len()].to_vec()
        };
        let (one, other) = (
            headers(&evaluating),
            headers(&Evaluating { x, ..evaluating }),
        );
        // How many numbers of A's row, or of its opposite, are near the difference.
        let near = |one: &[u8], other: &[u8]| {
            let of_sign = |sign: u64| {
                let pairs = shape.differences(one, other).into_iter().zip(&row);
                let rests = pairs.map(|(found, row)| {
                    let due = row.0[0].wrapping_mul(sign) << (64 - params.q);
                    (found << (64 - params.h))
                        .wrapping_sub(due as i64)
                        .unsigned_abs()
                });
                rests.filter(|rest| *rest <= 2 << (64 - params.h)).count()
            };
            of_sign(1).max(of_sign(u64::MAX))
        };
        let found = near(&one, &other);
        assert!(found <= 2, "{found}");
        // Numbers that do differ by the row are found.
        let mut sum = shape.numbers(&one);
        for (sum, row) in sum.iter_mut().zip(&row) {
            *sum += (row.0[0] & params.mask()) >> (params.q - params.h);
        }
        let mut like = Vec::new();
        pack::pack_words(params.h, &sum, &mut like);
        assert_eq!(near(&like, &one), params.n);
    }
}

/// The openings differ by new noise alone: by the difference of two γ.
fn only_noise_is_new(params: &Params, one: &[u8], other: &[u8]) {
    let shape = Shape::sums(params, COLUMNS);
    let rows: HashSet<&[u8]> = shape.rows(one).into_iter().collect();
    assert!(shape.rows(other).iter().all(|row| !rows.contains(row)));
    let differences = shape.differences(one, other);
    let step = 2f64.powi((params.q - params.v) as i32);
    let due = 2f64.sqrt() * params.opening_deviation as f64 / step;
    // Rounding of both adds 1/12 each.
    let due = (due * due + 1.0 / 6.0).sqrt();
    let count = differences.len() as f64;
    let squares = differences.iter().map(|rest| (*rest * *rest) as f64);
    let found = (squares.sum::<f64>() / count).sqrt();
    assert!(
        (found / due - 1.0).abs() < 5.0 / (2.0 * count).sqrt(),
        "{found}, {due}"
    );
    let equal = differences.iter().filter(|rest| **rest == 0).count() as f64 / count;
    let chance = 1.0 / (due * (2.0 * std::f64::consts::PI).sqrt());
    let spread = (chance / count).sqrt();
    assert!((equal - chance).abs() < 5.0 * spread, "{equal}, {chance}");
}

/// `γ` changes with the header as received, the codes of the block, the evaluator, the round, the
/// place, the row, the secret and the session. The pad changes with the header, the round, the
/// place and the row.
#[test]
fn other_headers_have_other_openings() {
    for ring in &rings() {
        let (_, owning) = both(ring);
        let params = ring.params();
        let openings = owning.run();
        let shape = Shape::sums(params, COLUMNS);
        let each = 8 * params.header_len();
        for (row, bit) in [(0, 0), (63, each - 1), (64, 0), (ROWS - 1, 4711)] {
            let headers = flipped(&owning.headers, row * each + bit);
            let other = Owning {
                headers,
                ..owning.clone()
            };
            shape.one_is_new(&openings, &other.run(), row);
        }
        let same = || owning.clone();
        let place = |round, column| Place { round, column };
        for other in [
            Owning {
                place: place(1, 0),
                ..same()
            },
            Owning {
                place: place(0, 1),
                ..same()
            },
            Owning { first: 1, ..same() },
            Owning {
                session: OTHER,
                ..same()
            },
            Owning { pads: 12, ..same() },
        ] {
            shape.are_new(&openings, &other.run());
        }
        // Another secret has other secrets of keys, too.
        shape.are_new(
            &openings,
            &Owning {
                secret: 11,
                ..same()
            }
            .run(),
        );
        // In the protocol another evaluator has other pads. Even with the same pads and headers
        // the noise is new.
        only_noise_is_new(
            params,
            &openings,
            &Owning {
                evaluator: 7,
                ..same()
            }
            .run(),
        );
    }
}

/// If one code of a block changes, its own openings are new, and the others have new noise.
#[test]
fn other_codes_of_a_block_have_other_openings() {
    for ring in &rings() {
        let (_, owning) = both(ring);
        let params = ring.params();
        let openings = owning.run();
        let shape = Shape::sums(params, COLUMNS);
        for (row, bit) in [(0, 0), (COLUMNS - 1, owning.y.columns() - 1)] {
            let y = other_code(&owning.y, row, bit);
            let other = Owning {
                y,
                ..owning.clone()
            }
            .run();
            // The changed column, and the others in the place of all.
            let parts = |bytes: &[u8]| -> [Vec<u8>; 2] {
                let mut out = [Vec::new(), Vec::new()];
                for packed in shape.rows(bytes) {
                    let mut numbers = shape.numbers(packed);
                    let own = numbers[row];
                    pack::pack_words(params.v, &[own], &mut out[0]);
                    // A neighbour takes its place.
                    numbers[row] = numbers[row.abs_diff(1)];
                    pack::pack_words(params.v, &numbers, &mut out[1]);
                }
                out
            };
            let ([own, rest], [other_own, other_rest]) = (parts(&openings), parts(&other));
            let one = Shape::sums(params, 1);
            let differences = one.differences(&own, &other_own);
            assert!(differences.iter().filter(|rest| **rest == 0).count() < 2);
            let half = 2f64.powi(params.v as i32 - 1);
            let sizes = differences
                .iter()
                .map(|rest| rest.unsigned_abs() as f64 / half);
            // The mean size of uniform numbers, to five deviations.
            assert!((sizes.sum::<f64>() / ROWS as f64 - 0.5).abs() < 0.18);
            only_noise_is_new(params, &rest, &other_rest);
        }
        // A block of fewer rows has new noise, too.
        let part = Owning {
            block: 0..COLUMNS - 1,
            ..owning.clone()
        }
        .run();
        let fewer = Shape::sums(params, COLUMNS - 1);
        let pairs = shape.rows(&openings).into_iter().zip(fewer.rows(&part));
        let equal = pairs.map(|(one, other)| {
            let (one, other) = (shape.numbers(one), fewer.numbers(other));
            let pairs = one.iter().zip(&other);
            pairs.filter(|(one, other)| one == other).count()
        });
        assert!(equal.sum::<usize>() < ROWS * COLUMNS / 4);
    }
}
