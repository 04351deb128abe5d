//! Tests of all paths against num-bigint.

use chacha20::ChaCha20Rng as StdRng;
use num_bigint::BigUint;
use proptest::prelude::*;
use rand::{Rng, RngExt, SeedableRng};

use super::products::products;
use super::{FixedBase, LANES, Modulus, RADIX, Ring, Row, Squared, number, power};
use crate::{BitMatrix, Cpu};

const SIZES: [usize; 8] = [1024, 1100, 1536, 2048, 3072, 4096, 5000, 6144];

fn value(rows: &[Row], lane: usize) -> BigUint {
    let mut bytes = vec![0; (rows.len() * RADIX as usize).div_ceil(8)];
    number::get(rows, lane, &mut bytes);
    BigUint::from_bytes_le(&bytes)
}

fn rows_of(values: &[BigUint], rows: usize) -> Vec<Row> {
    let mut out = vec![Row::ZERO; rows];
    let lanes = values.iter().enumerate();
    lanes.for_each(|(lane, value)| number::set(&mut out, lane, &value.to_bytes_le()));
    out
}

fn random(rng: &mut StdRng, bits: usize) -> BigUint {
    let mut bytes = vec![0; bits.div_ceil(8)];
    rng.fill_bytes(&mut bytes);
    BigUint::from_bytes_le(&bytes) >> (8 * bytes.len() - bits)
}

/// Operands below `below`: edges, digits of all ones and of zeros, and random ones.
fn operand(rng: &mut StdRng, below: &BigUint) -> BigUint {
    let one = BigUint::from(1u8);
    let bits = below.bits() as usize;
    let x = match rng.random_range(0..16) {
        0 => BigUint::ZERO,
        1 => one,
        2 => below - one,
        3 => (one << (bits - 1)) - 1u8,
        4 => below >> 1,
        5 => one << rng.random_range(0..bits),
        6 => (one << rng.random_range(1..bits)) - 1u8,
        7 => {
            let digits = bits / RADIX as usize;
            (0..digits).fold(BigUint::ZERO, |x, _| {
                let digit = if rng.random() { (1u64 << RADIX) - 1 } else { 0 };
                (x << RADIX) + digit
            })
        }
        _ => random(rng, bits),
    };
    x % below
}

/// Moduli of all lanes: the smallest and the largest of `bits` bits, some with long carries, and
/// random ones.
fn moduli(rng: &mut StdRng, bits: usize) -> Vec<BigUint> {
    let one = BigUint::from(1u8);
    let top = &one << (bits - 1);
    let fixed = [&top + 1u8, (&one << bits) - 1u8, &top + (&top >> 1) - 1u8];
    let mut all = fixed.to_vec();
    all.resize_with(LANES, || random(rng, bits) | &top | &one);
    all
}

fn check_size(bits: usize, times: usize) {
    let mut rng = StdRng::seed_from_u64(bits as u64);
    let m = moduli(&mut rng, bits);
    let rows = Modulus::rows_for(bits);
    let paths: Vec<_> = Cpu::all()
        .map(|cpu| Squared::new(Modulus::new(cpu, bits, &rows_of(&m, rows))))
        .collect();
    for _ in 0..times {
        let pick = |rng: &mut StdRng, squared: bool| -> Vec<BigUint> {
            let below = m.iter().map(|m| if squared { m * m } else { m.clone() });
            below.map(|below| operand(rng, &below)).collect()
        };
        let (a, b) = (pick(&mut rng, false), pick(&mut rng, false));
        let (c, d) = (pick(&mut rng, true), pick(&mut rng, true));
        let mut first: Option<[Vec<Row>; 8]> = None;
        for squared in &paths {
            let base = squared.base();
            let [x, y] = [&a, &b].map(|x| base.enter(&rows_of(x, rows)));
            let [v, w] = [&c, &d].map(|x| squared.enter(&rows_of(x, 2 * rows)));
            let mut out = [&x, &x, &v, &v, &v, &x, &v, &v].map(|x| vec![Row::ZERO; x.len()]);
            base.multiply(&x, &y, &mut out[0]);
            base.square(&x, &mut out[1]);
            squared.multiply(&v, &w, &mut out[2]);
            squared.square(&v, &mut out[3]);
            out[4].copy_from_slice(&w);
            squared.multiply_by_one_plus(&mut out[4], &x);
            out[5].copy_from_slice(&x);
            base.add(&mut out[5], &y);
            out[6].copy_from_slice(&v);
            squared.subtract(&mut out[6], &w);
            let long = [rows_of(&c, 2 * rows), rows_of(&d, 2 * rows)].concat();
            out[7] = squared.enter(&long).to_vec();
            let plain = [
                base.leave(&out[0]),
                base.leave(&out[1]),
                squared.leave(&out[2]),
                squared.leave(&out[3]),
                squared.leave(&out[4]),
                base.leave(&out[5]),
                squared.leave(&out[6]),
                squared.leave(&out[7]),
            ];
            for lane in 0..LANES {
                let (a, b, c, d, m) = (&a[lane], &b[lane], &c[lane], &d[lane], &m[lane]);
                let (two, one) = (m * m, BigUint::from(1u8));
                let wanted = [
                    a * b % m,
                    a * a % m,
                    c * d % &two,
                    c * c % &two,
                    d * (one + a * m) % &two,
                    (a + b) % m,
                    (c + &two - d) % &two,
                    (c + (d << (2 * rows * RADIX as usize))) % &two,
                ];
                for (i, wanted) in wanted.iter().enumerate() {
                    assert_eq!(
                        value(&plain[i], lane),
                        *wanted,
                        "{bits} bits, operation {i}"
                    );
                }
            }
            match &first {
                Some(first) => assert!(*first == out, "paths differ at {bits} bits"),
                None => first = Some(out),
            }
        }
    }
}

#[test]
fn products_are_those_of_big_integers() {
    SIZES.into_iter().for_each(|bits| check_size(bits, 12));
}

#[test]
#[ignore = "tens of thousands of operands, as many of every size"]
fn products_are_those_of_big_integers_at_length() {
    SIZES.into_iter().for_each(|bits| check_size(bits, 400));
}

/// Factors that are not settled: products up to 2M − 1.
#[test]
fn factors_may_be_twice_the_modulus() {
    for bits in SIZES {
        let m = (BigUint::from(1u8) << bits) - 1u8;
        let rows = Modulus::rows_for(bits);
        let most = (&m << 1) - 1u8;
        let all = |x: &BigUint| rows_of(&vec![x.clone(); LANES], rows);
        for cpu in Cpu::all() {
            let squared = Squared::new(Modulus::new(cpu, bits, &all(&m)));
            let (low, pair) = (all(&most), [all(&most), all(&most)].concat());
            let mut out = vec![Row::ZERO; rows];
            squared.base().multiply(&low, &low, &mut out);
            assert!(value(&out, 0) < (&m << 1));
            let r = BigUint::from(1u8) << (RADIX as usize * rows);
            let wanted = (&most * &most) % &m;
            assert_eq!(value(&out, 5) * &r % &m, wanted);
            let mut out = vec![Row::ZERO; 2 * rows];
            for square in [false, true] {
                if square {
                    squared.square(&pair, &mut out)
                } else {
                    squared.multiply(&pair, &pair.clone(), &mut out)
                }
                assert!(value(&out[..rows], 0) < (&m << 1) && value(&out[rows..], 0) < (&m << 1));
                let whole = |x: &[Row]| value(&x[..rows], 3) + value(&x[rows..], 3) * &m;
                let two = &m * &m;
                assert_eq!(whole(&out) * &r % &two, whole(&pair) * whole(&pair) % &two);
            }
        }
    }
}

#[test]
fn powers_are_those_of_big_integers() {
    let mut rng = StdRng::seed_from_u64(5);
    for bits in [1024, 2048] {
        let m = random(&mut rng, bits) | (BigUint::from(1u8) << (bits - 1)) | BigUint::from(1u8);
        let rows = Modulus::rows_for(bits);
        let two = &m * &m;
        for cpu in Cpu::all() {
            let all = vec![m.clone(); LANES];
            let ring = Squared::new(Modulus::new(cpu, bits, &rows_of(&all, rows)));
            let bases: Vec<_> = (0..LANES).map(|_| operand(&mut rng, &two)).collect();
            let mut exponents: Vec<_> = (0..LANES).map(|_| random(&mut rng, 150)).collect();
            exponents[..2].clone_from_slice(&[BigUint::ZERO, (BigUint::from(1u8) << 150) - 1u8]);
            let base = ring.enter(&rows_of(&bases, 2 * rows));
            let exponent = rows_of(&exponents, 5);
            let out = ring.leave(&power(&ring, &base, &exponent));
            let fixed = FixedBase::new(&ring, &number::spread(&base, 3), 150);
            let both = [&exponent[..], &exponent].concat();
            let tabled = fixed.power(&ring, &both, 5);
            let tabled = tabled.chunks(2 * rows).map(|x| ring.leave(x));
            for (lane, exponent) in exponents.iter().enumerate() {
                let wanted = bases[lane].modpow(exponent, &two);
                assert_eq!(value(&out, lane), wanted);
                let wanted = bases[3].modpow(exponent, &two);
                for x in tabled.clone() {
                    assert_eq!(value(&x, lane), wanted);
                }
            }
        }
    }
}

#[test]
fn inverses_modulo_primes() {
    // 2^1279 − 1 is prime.
    let p: BigUint = (BigUint::from(1u8) << 1279) - 1u8;
    let mut rng = StdRng::seed_from_u64(6);
    let rows = Modulus::rows_for(1279);
    let all = vec![p.clone(); LANES];
    let modulus = Modulus::new(Cpu::detect(), 1279, &rows_of(&all, rows));
    let x: Vec<_> = (0..LANES).map(|_| random(&mut rng, 1200) + 1u8).collect();
    let inverse = modulus.leave(&modulus.invert(&modulus.enter(&rows_of(&x, rows))));
    for (lane, x) in x.iter().enumerate() {
        assert_eq!(value(&inverse, lane) * x % &p, BigUint::from(1u8));
    }
}

#[test]
#[should_panic(expected = "even")]
fn even_moduli_are_refused() {
    Modulus::new(Cpu::detect(), 1024, &vec![Row::splat(2); 20]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn multi_products_are_products_of_the_bases(
        rows in 0usize..40, skipped in 0usize..3, bits in 1usize..100, seed: u64,
    ) {
        let mut rng = StdRng::seed_from_u64(seed);
        let m: BigUint = random(&mut rng, 1024) | (BigUint::from(1u8) << 1023) | BigUint::from(1u8);
        let two = &m * &m;
        let len = 2 * Modulus::rows_for(1024);
        let bases: Vec<_> = (0..bits).map(|_| operand(&mut rng, &two)).collect();
        let words = (0..(rows + skipped) * bits.div_ceil(64)).map(|_| rng.random());
        let codes = BitMatrix::from_words(rows + skipped, bits, words.collect());
        for cpu in Cpu::all() {
            let all = vec![m.clone(); LANES];
            let ring = Squared::new(Modulus::new(cpu, 1024, &rows_of(&all, len / 2)));
            let entered: Vec<Row> = bases
                .chunks(LANES)
                .flat_map(|bases| ring.enter(&rows_of(bases, len)).to_vec())
                .collect();
            let out = products(&ring, &entered, &codes, skipped..skipped + rows);
            prop_assert_eq!(out.len(), rows.div_ceil(LANES) * len);
            for row in 0..rows {
                let wanted = (0..bits)
                    .filter(|l| codes.get(skipped + row, *l))
                    .fold(BigUint::from(1u8), |x, l| x * &bases[l] % &two);
                let out = ring.leave(&out[row / LANES * len..][..len]);
                prop_assert_eq!(value(&out, row % LANES), wanted);
            }
        }
    }

    #[test]
    fn numbers_come_back(
        bytes in proptest::collection::vec(any::<u8>(), 0..100),
        lane in 0usize..8,
    ) {
        let mut rows = vec![Row::splat(7); number::rows(8 * bytes.len())];
        number::set(&mut rows, lane, &bytes);
        let mut back = vec![1; bytes.len()];
        number::get(&rows, lane, &mut back);
        prop_assert_eq!(back, bytes);
    }
}
