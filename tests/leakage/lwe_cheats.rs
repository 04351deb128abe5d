//! `lwe`: ends of a pair that do not follow the protocol. Alone they receive nothing that depends
//! on codes but keys and headers. With what the server receives they read codes.

use undertone::kdf::Seed;
use undertone::kernel::mask::{Op, Stream};
use undertone::kernel::nh::Key;
use undertone::kernel::{BitMatrix, Cpu, Prg, Wiped, pack};
use undertone::lwe::{Decoder, Dense, Evaluator, KeyOwner, Matrix, Pads, Params, Place, Ring};
use undertone::party::{PartyId, SessionId};
use undertone::sum::Suite;

const SESSION: SessionId = SessionId([5; 32]);
const SUITE: Suite = Suite::ChaCha20;
const BITS: usize = 1000;
const EVALUATOR: PartyId = PartyId::client(0);
const OWNER: PartyId = PartyId::client(1);

fn params() -> &'static Params {
    Params::of(BITS).unwrap()
}

fn seed(byte: u8) -> Seed {
    Seed::from_bytes([byte; 32])
}

fn pads() -> Pads {
    Pads::new(SESSION, SUITE, seed(6))
}

fn random(rows: usize, byte: u8) -> BitMatrix {
    let mut prg = Prg::new(&[byte; 32]);
    let words = (0..rows * BITS.div_ceil(64)).map(|_| prg.next_u64());
    BitMatrix::from_words(rows, BITS, words.collect())
}

/// The pads of row `row` in round 0, as the specification has them. Both ends can compute them.
fn pad(row: u32, header: &[u8], count: usize) -> Vec<u64> {
    let tags = Key::new(
        Cpu::detect(),
        seed(6).derive(SESSION, "lwe pair tags", &[]).expose(),
    );
    let mut pieces = Wiped::default();
    tags.nh(header, &mut pieces);
    let tag = tags.fold(0, &pieces);
    let ids = [0, row, 0].map(u32::to_le_bytes).concat();
    let context = [&ids[..], &tag.to_le_bytes()].concat();
    let key = seed(6).expand(SESSION, "lwe pad", &context);
    let mut words = vec![0; count];
    Stream::new(SUITE, key.expose()).apply(0, Op::Add, &mut words);
    words
}

/// The numbers of a row of answers or openings before rounding and without pads, up to rounding.
/// Around 0, modulo Q.
fn unpadded(row: u32, header: &[u8], packed: &[u8], count: usize) -> Vec<i64> {
    let params = params();
    let mut values = vec![0; count];
    pack::unpack_words(params.v, packed, &mut values);
    let drop = 64 - params.q;
    let pads = pad(row, header, count);
    let numbers = values.iter().zip(pads).map(|(value, pad)| {
        let number = (value << (params.q - params.v)).wrapping_sub(pad);
        (number << drop) as i64 >> drop
    });
    numbers.collect()
}

/// Keys with errors of 2²¹ at one place each, and secrets of zero.
fn large_errors(places: usize, of_each: usize) -> Vec<u8> {
    let params = params();
    let mut keys = Vec::new();
    for place in 0..places {
        for number in 0..of_each {
            let mut key = vec![0u64; params.length];
            // Of both signs, so that what all answers of a row share falls out.
            let error = if number % 2 == 0 {
                1i64 << 21
            } else {
                -(1 << 21)
            };
            key[place] = error as u64 & params.mask();
            pack::pack_words(params.q, &key, &mut keys);
        }
    }
    keys
}

/// A key owner that cheats finds masked rows in answers, and with them codes. But answers go to the
/// server. What the owner receives, headers, does not depend on its keys at all but for the fresh
/// masked rows, and the same computation on headers alone tells nothing.
#[test]
fn a_key_owner_that_cheats_reads_codes_only_from_answers() {
    let (params, places, of_each, rows) = (params(), 24, 128, 20);
    let matrix = Ring::new(Cpu::detect(), SESSION, params);
    let x = random(rows, 1);
    let mut evaluator = Evaluator::new(&matrix, SESSION, SUITE, &seed(3), &x);
    let mut held = evaluator.columns(places * of_each);
    held.part(OWNER, 0, pads());
    held.push(&large_errors(places, of_each)).unwrap();
    let tile = evaluator.hint(held).next().unwrap();
    let count = places * of_each;
    let t = params.t as i64;
    let right = |numbers: &dyn Fn(usize) -> Vec<i64>| -> f64 {
        let mut right = 0;
        for row in 0..rows {
            let numbers = numbers(row);
            for place in 0..places {
                let of = &numbers[place * of_each..(place + 1) * of_each];
                let drop = 64 - params.q;
                let pairs = of
                    .as_chunks::<2>()
                    .0
                    .iter()
                    .map(|[plus, minus]| (plus.wrapping_sub(*minus) << drop >> drop) as f64);
                let mean = pairs.sum::<f64>() / (of_each / 2) as f64;
                let w = (mean / f64::from(1 << 22)).round() as i64;
                // The code is w modulo t, 0 or 1.
                let near = (w.rem_euclid(t) + 1).rem_euclid(t);
                right += usize::from((near == 2) == x.get(row, place));
            }
        }
        right as f64 / (rows * places) as f64
    };
    let header = |row: usize| &tile.headers[row * params.header_len()..][..params.header_len()];
    let each = params.answer_len(count);
    let with_server = right(&|row| {
        let packed = &tile.answers[0][row * each..][..each];
        unpadded(row as u32, header(row), packed, count)
    });
    // The owner's best guess of an answer without one is 0.
    let alone = right(&|row| {
        let pads = pad(row as u32, header(row), count);
        let drop = 64 - params.q;
        pads.iter()
            .map(|pad| (pad.wrapping_neg() << drop) as i64 >> drop)
            .collect()
    });
    println!("with the server {with_server}, alone {alone}");
    assert!(with_server > 0.95, "{with_server}");
    assert!((0.4..0.6).contains(&alone), "{alone}");
}

/// Headers are the same numbers whatever keys the round has, but that other keys mean other masked
/// rows: so keys choose nothing in what their owner receives.
#[test]
fn headers_depend_on_keys_through_fresh_randomness_alone() {
    let params = params();
    let matrix = Ring::new(Cpu::detect(), SESSION, params);
    let x = random(64, 1);
    let headers = |keys: &[u8]| {
        let mut evaluator = Evaluator::new(&matrix, SESSION, SUITE, &seed(3), &x);
        let mut held = evaluator.columns(1000);
        held.part(OWNER, 0, pads());
        held.push(keys).unwrap();
        evaluator.hint(held).next().unwrap().headers
    };
    let honest = KeyOwner::new(&matrix, SESSION, SUITE, &seed(4), &random(24, 2)).keys(0..24);
    let (one, other) = (headers(&honest), headers(&large_errors(24, 1)));
    super::assert_uniform(&one, "headers of honest keys");
    super::assert_uniform(&other, "headers of false keys");
    let sums: Vec<u8> = one
        .iter()
        .zip(&other)
        .map(|(a, b)| a.wrapping_sub(*b))
        .collect();
    super::assert_uniform(&sums, "differences of headers");
}

/// An evaluator that cheats finds secrets of keys in openings, one number for each header, and with
/// all of them the code. But openings go to the server, and the evaluator receives keys alone.
#[test]
fn an_evaluator_that_cheats_reads_codes_only_from_openings() {
    let params = params();
    let y = random(1, 2);
    let matrix = Ring::new(Cpu::detect(), SESSION, params);
    let owner = KeyOwner::new(&matrix, SESSION, SUITE, &seed(4), &y);
    let keys = owner.keys(0..1);
    // Unit vectors, so large that the noise of an opening does not matter.
    let large = 1u64 << (params.h - 6);
    let mut headers = Vec::new();
    for place in 0..params.n {
        let mut header = vec![0; params.n];
        header[place] = large;
        pack::pack_words(params.h, &header, &mut headers);
    }
    let place = Place::default();
    let openings = owner.open(&owner.block(0..1), &pads(), EVALUATOR, place, 0, &headers);
    let unit = f64::from(1u32 << 31);
    let code = |secret: &[i64]| -> Vec<bool> {
        let dense = Dense::of_ring(SESSION, params);
        let s: Vec<_> = secret
            .iter()
            .map(|s| undertone::kernel::negacyclic::Eight([*s as u64; 8]))
            .collect();
        let mut product = vec![Default::default(); params.length];
        dense.column(Cpu::portable(), &mut Default::default(), &s, &mut product);
        let mut key = vec![0; params.length];
        pack::unpack_words(params.q, &keys, &mut key);
        let rest = key.iter().zip(&product).map(|(key, product)| {
            // e − 2τy: near 0 for a bit 0, and near −2τ for a bit 1.
            let rest = key.wrapping_sub(product.0[0]) & params.mask();
            let moved = rest.wrapping_add(2 * params.tau()) & params.mask();
            let near = |value: u64| value.min((1 << params.q) - value);
            near(moved) < near(rest)
        });
        rest.take(BITS).collect()
    };
    let right = |found: &[bool]| {
        let right = found
            .iter()
            .enumerate()
            .filter(|(bit, found)| y.get(0, *bit) == **found);
        right.count() as f64 / BITS as f64
    };
    let each = params.answer_len(1);
    let secret: Vec<i64> = (0..params.n)
        .map(|row| {
            let header = &headers[row * params.header_len()..][..params.header_len()];
            let packed = &openings[row * each..][..each];
            unpadded(row as u32, header, packed, 1)[0]
        })
        .collect();
    // All openings of a key share −τρ, that of a header of zeros.
    // Most numbers of a secret are near 0, so it is the middle of all openings.
    let modulus = (1u64 << params.q) as f64;
    let turns: (f64, f64) = secret.iter().fold((0.0, 0.0), |sum, number| {
        let angle = *number as f64 / modulus * std::f64::consts::TAU;
        (sum.0 + angle.cos(), sum.1 + angle.sin())
    });
    let shared = turns.1.atan2(turns.0) / std::f64::consts::TAU * modulus;
    let found: Vec<i64> = secret
        .iter()
        .map(|number| {
            let off = *number as f64 - shared;
            let off = off - (off / modulus).round() * modulus;
            (off / unit).round() as i64
        })
        .collect();
    let with_server = right(&code(&found));
    let alone = right(&code(&vec![0; params.n]));
    println!("with the server {with_server}, alone {alone}");
    assert!(with_server > 0.999, "{with_server}");
    assert!((0.4..0.6).contains(&alone), "{alone}");
}

/// A key owner chooses what the distances of a row say: here 200 for each row of the evaluator
/// whose bit `place` is 1, and 0 for each other row, up to t. The server cannot tell. Results that
/// are computed from such distances bring bits back to the owner.
#[test]
fn a_key_owner_that_cheats_chooses_what_distances_say() {
    let params = params();
    let (rows, t) = (64, params.t);
    let matrix = Ring::new(Cpu::detect(), SESSION, params);
    let x = random(rows, 1);
    // −2τ·u without secret and error, where 2u is 1 at all places, which takes |x| off, and 1 − 200
    // at one of them.
    let half = t.div_ceil(2);
    for place in [0, 7, 500, BITS - 1] {
        let key: Vec<u64> = (0..params.length)
            .map(|at| {
                let twice = if at == place { 1 + t - 200 } else { 1 };
                let u = twice * half % t;
                (2 * u).wrapping_mul(params.tau()).wrapping_neg() & params.mask()
            })
            .collect();
        let mut bytes = Vec::new();
        pack::pack_words(params.q, &key, &mut bytes);
        let mut evaluator = Evaluator::new(&matrix, SESSION, SUITE, &seed(3), &x);
        let mut held = evaluator.columns(1);
        held.part(OWNER, 0, pads());
        held.push(&bytes).unwrap();
        let tile = evaluator.hint(held).next().unwrap();
        // The opening of a secret of zeros, without noise: the pad alone.
        let mut openings = Vec::new();
        for (row, header) in tile.headers.chunks(params.header_len()).enumerate() {
            let pad = pad(row as u32, header, 1)[0] & params.mask();
            let number = pad >> (params.q - params.v);
            pack::pack_words(params.v, &[number], &mut openings);
        }
        let parity = |row: usize| x.row(row).iter().map(|word| word.count_ones()).sum::<u32>() & 1;
        let left: Vec<u8> = (0..rows).map(|row| parity(row) as u8).collect();
        let decoder = Decoder { params, bits: BITS };
        let (distances, above) = decoder.distances(&left, &[0], &tile.answers[0], &openings);
        assert_eq!(above, 0);
        for (row, distance) in distances.iter().enumerate() {
            let due = 200 * u64::from(x.get(row, place));
            assert_eq!(u64::from(*distance) % t, due, "{place}, {row}");
        }
    }
}
