//! Tests of all operations against their formulae, in big integers.

use num_bigint::BigUint;
use proptest::prelude::*;
use undertone_kernel::{BitMatrix, Prg};

use super::{Noise, PaillierError, Primes, PublicKey, SecretKey, Slots};

fn rng(seed: u8) -> Prg {
    Prg::new(&[seed; 32])
}

fn random(bits: usize, rng: &mut Prg) -> BigUint {
    let mut bytes = vec![0; bits.div_ceil(8)];
    rng.fill(&mut bytes);
    BigUint::from_bytes_le(&bytes) >> (8 * bytes.len() - bits)
}

/// The plaintext m of `(1 + mN)·r^N`, by λ = (p − 1)(q − 1).
fn by_definition(secret: &SecretKey, ciphertext: &BigUint) -> BigUint {
    let n = secret.public().modulus();
    let [p, q] = secret.expose_primes();
    let lambda = (p - 1u8) * (q - 1u8);
    let residue = ciphertext.modpow(&lambda, &(n * n));
    assert_eq!(&residue % n, BigUint::from(1u8));
    (residue / n) * lambda.modinv(n).unwrap() % n
}

fn encoded(key: &PublicKey, of: &super::Ciphertexts) -> Vec<BigUint> {
    let mut bytes = Vec::new();
    key.encode(of, &mut bytes).unwrap();
    let each = bytes.chunks(key.ciphertext_len());
    each.map(BigUint::from_bytes_le).collect()
}

#[test]
fn every_operation_is_what_its_formula_says() {
    for (bits, seed) in [(512, 1), (2048, 2)] {
        let mut rng = rng(seed);
        let secret = SecretKey::insecure(bits, Primes::Structured, &mut rng);
        let public = secret.public().clone();
        assert_eq!(public.bits(), bits);
        let n = public.modulus().clone();
        let one = BigUint::from(1u8);
        let mut plain = vec![BigUint::ZERO, one.clone(), &n - 1u8, &n >> 1];
        plain.extend((0..7).map(|_| random(bits, &mut rng) % &n));
        let table = public.noise_table(&mut rng);
        let mut all = vec![secret.encrypt(&plain, &mut rng).unwrap()];
        for noise in [Noise::Full, Noise::Short(&table)] {
            all.push(public.encrypt(&plain, noise, &mut rng).unwrap());
        }
        let others: Vec<_> = plain.iter().rev().cloned().collect();
        for ciphertexts in &all {
            let numbers = encoded(&public, ciphertexts);
            for (c, m) in numbers.iter().zip(&plain) {
                assert_eq!(by_definition(&secret, c), *m);
            }
            assert_eq!(secret.decrypt(ciphertexts).unwrap(), plain);
            let mut bytes = Vec::new();
            public.encode(ciphertexts, &mut bytes).unwrap();
            let again = public.decode(&bytes).unwrap();
            assert_eq!(secret.decrypt(&again).unwrap(), plain);

            let mut sums = ciphertexts.clone();
            let other = secret.encrypt(&others, &mut rng).unwrap();
            public.add(&mut sums, &other).unwrap();
            let mut shifted = ciphertexts.clone();
            public.add_plain(&mut shifted, &others).unwrap();
            let both = plain.iter().zip(&others);
            let wanted: Vec<_> = both.clone().map(|(a, b)| (a + b) % &n).collect();
            assert_eq!(secret.decrypt(&sums).unwrap(), wanted);
            assert_eq!(secret.decrypt(&shifted).unwrap(), wanted);
            let mut scaled = ciphertexts.clone();
            public.multiply_plain(&mut scaled, &others).unwrap();
            let wanted: Vec<_> = both.map(|(a, b)| a * b % &n).collect();
            assert_eq!(secret.decrypt(&scaled).unwrap(), wanted);
            let mut fresh = ciphertexts.clone();
            public
                .rerandomise(&mut fresh, Noise::Short(&table), &mut rng)
                .unwrap();
            assert_eq!(secret.decrypt(&fresh).unwrap(), plain);
            assert!(
                encoded(&public, &fresh)
                    .iter()
                    .all(|c| !numbers.contains(c))
            );
            let codes = BitMatrix::from_words(3, plain.len(), vec![0, 0x7ff, 0b101_0010_0110]);
            let sums = public.subset_sums(ciphertexts, &codes, 0..3).unwrap();
            let wanted: Vec<BigUint> = (0..3)
                .map(|row| {
                    let set = (0..plain.len()).filter(|l| codes.get(row, *l));
                    set.map(|l| &plain[l]).sum::<BigUint>() % &n
                })
                .collect();
            assert_eq!(secret.decrypt(&sums).unwrap(), wanted);
        }
    }
}

/// The owner's noise modulo p² is a p-th power of order p − 1 at most. All of them occur, about
/// equally often.
#[test]
fn the_owners_noise_is_uniform() {
    let mut rng = rng(3);
    for kind in [Primes::Structured, Primes::Safe] {
        let secret = SecretKey::insecure(128, kind, &mut rng);
        let n = secret.public().modulus().clone();
        let zeros = vec![BigUint::ZERO; 2000];
        let made = secret.encrypt(&zeros, &mut rng).unwrap();
        let numbers = encoded(secret.public(), &made);
        let [p, q] = secret.expose_primes();
        for s in [&p, &q] {
            // x^((s−1)/2) is 1 for half the residues. Noise of squares only would fail here.
            let half = (s - 1u8) / 2u8;
            let squares = numbers
                .iter()
                .filter(|c| c.modpow(&half, s) == BigUint::from(1u8));
            let count = squares.count();
            assert!((850..1150).contains(&count), "{count} squares of 2000");
        }
        for c in numbers.iter().take(20) {
            assert_eq!(by_definition(&secret, c), BigUint::ZERO);
        }
        let mut distinct = numbers.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), numbers.len());
        assert!(numbers.iter().all(|c| *c < &n * &n));
    }
}

#[test]
fn zeros_are_encryptions_of_zero_that_are_given_numbers_modulo_n() {
    let mut rng = rng(10);
    for bits in [256, 2048] {
        let secret = SecretKey::insecure(bits, Primes::Structured, &mut rng);
        let public = secret.public();
        let mut numbers = vec![BigUint::from(1u8), public.modulus() - 1u8];
        numbers.extend((0..9).map(|_| random(bits, &mut rng) % public.modulus()));
        let zeros = secret.zeros(&numbers).unwrap();
        for (c, number) in encoded(public, &zeros).iter().zip(&numbers) {
            assert_eq!(c % public.modulus(), *number);
            assert_eq!(by_definition(&secret, c), BigUint::ZERO);
        }
        let large = [public.modulus().clone()];
        assert_eq!(
            secret.zeros(&large).unwrap_err(),
            PaillierError::TooLarge(0)
        );
    }
}

#[test]
fn keys_come_back_from_their_primes() {
    let mut rng = rng(4);
    let secret = SecretKey::generate(2048, Primes::Structured, &mut rng).unwrap();
    let [p, q] = secret.expose_primes();
    let again = SecretKey::from_primes(&p, &q, &mut rng).unwrap();
    assert_eq!(again.public(), secret.public());
    let plain = vec![BigUint::from(77u8)];
    let made = again.encrypt(&plain, &mut rng).unwrap();
    assert_eq!(secret.decrypt(&made).unwrap(), plain);
    assert!(PublicKey::new(secret.public().modulus()).is_ok());
    assert_eq!(format!("{secret:?}"), "SecretKey(2048 bits, ..)");
}

/// Primes without the structure of p − 1: noise is x^p instead of a table's.
#[test]
fn other_primes_do_too() {
    // The first primes from 2^1024 and from 7·2^1021 downwards. p − 1 has other large factors.
    let mut rng = rng(5);
    let prime = |start: BigUint| {
        let mut x = start | BigUint::from(1u8);
        while !super::prime::is_prime(
            &super::natural::Natural::from_bytes(&x.to_bytes_le()),
            &mut Prg::new(&[9; 32]),
        ) {
            x -= 2u8;
        }
        x
    };
    let p = prime((BigUint::from(1u8) << 1024) - 1u8);
    let q = prime(BigUint::from(7u8) << 1021);
    let secret = SecretKey::from_primes(&p, &q, &mut rng).unwrap();
    let plain: Vec<_> = (0..3).map(|_| random(2040, &mut rng)).collect();
    let made = secret.encrypt(&plain, &mut rng).unwrap();
    assert_eq!(secret.decrypt(&made).unwrap(), plain);
    for (c, m) in encoded(secret.public(), &made).iter().zip(&plain) {
        assert_eq!(by_definition(&secret, c), *m);
    }
}

#[test]
fn bad_moduli_are_refused() {
    let one = BigUint::from(1u8);
    let refused = |n: &BigUint| match PublicKey::new(n) {
        Err(PaillierError::Modulus(what)) => what,
        other => panic!("{other:?}"),
    };
    let mut rng = rng(6);
    let secret = SecretKey::insecure(2048, Primes::Structured, &mut rng);
    let [p, q] = secret.expose_primes();
    // PAI-1
    assert!(refused(&(&one << 2000)).contains("2001 bits"));
    assert!(refused(&((&one << 4097) - 1u8)).contains("4097 bits"));
    // PAI-2
    assert!(refused(&((&p * &q) - 1u8)).contains("divisible by 2"));
    assert!(refused(&(&p * 65_521u32 * 65_519u32 * &q)).contains("divisible by 65519"));
    // PAI-3
    assert!(refused(&(&p * &p)).contains("power"));
    // A Mersenne prime.
    assert!(refused(&((&one << 2203) - 1u8)).contains("power"));
    let rng = &mut rng;
    // PAI-11, PAI-12, PAI-10
    for (p, q) in [(&p, &p), (&p, &(&q - 2u8)), (&p, &(&q >> 1))] {
        assert!(matches!(
            SecretKey::from_primes(p, q, rng),
            Err(PaillierError::Modulus(_))
        ));
    }
    assert!(SecretKey::generate(1024, Primes::Structured, rng).is_err());
}

#[test]
fn misuse_and_bad_bytes_are_errors() {
    let mut rng = rng(7);
    let secret = SecretKey::insecure(512, Primes::Structured, &mut rng);
    let other = SecretKey::insecure(512, Primes::Structured, &mut rng);
    let public = secret.public();
    let n = public.modulus();
    let two = [BigUint::from(1u8), BigUint::from(2u8)];
    let mut a = secret.encrypt(&two, &mut rng).unwrap();
    let b = secret.encrypt(&two[..1], &mut rng).unwrap();
    let length = PaillierError::Length { have: 1, due: 2 };
    let codes = BitMatrix::zero(1, 2);
    assert_eq!(public.subset_sums(&a, &codes, 0..2).unwrap_err(), length);
    let none = public.decode(&[]).unwrap();
    let ones = public
        .subset_sums(&none, &BitMatrix::zero(3, 0), 0..3)
        .unwrap();
    assert_eq!(secret.decrypt(&ones).unwrap(), vec![BigUint::ZERO; 3]);
    assert_eq!(public.add(&mut a, &b).unwrap_err(), length);
    assert_eq!(public.add_plain(&mut a, &two[..1]).unwrap_err(), length);
    assert_eq!(other.decrypt(&a).unwrap_err(), PaillierError::OtherKey);
    let table = other.public().noise_table(&mut rng);
    let encrypted = public.encrypt(&two, Noise::Short(&table), &mut rng);
    assert_eq!(encrypted.unwrap_err(), PaillierError::OtherKey);
    let large = [BigUint::ZERO, n.clone()]; // PAI-9
    assert_eq!(
        secret.encrypt(&large, &mut rng).unwrap_err(),
        PaillierError::TooLarge(1)
    );

    let len = public.ciphertext_len();
    let bytes = |x: &BigUint| {
        let mut bytes = x.to_bytes_le();
        bytes.resize(len, 0);
        bytes
    };
    assert!(public.decode(&bytes(&(n * n - 1u8))).is_ok());
    let [p, _] = secret.expose_primes();
    // PAI-5, then PAI-6
    for (x, what) in [
        (n * n, "not below"),
        (BigUint::ZERO, "factor"),
        (p * 5u8, "factor"),
    ] {
        let mut all = bytes(&BigUint::from(5u8)).repeat(11);
        all.extend(bytes(&x));
        let error = public.decode(&all).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
    // PAI-4
    assert!(
        public
            .decode(&[1; 3])
            .unwrap_err()
            .to_string()
            .contains("multiple")
    );
    assert!(public.decode(&[]).unwrap().is_empty());
}

#[test]
fn safe_primes_of_full_size() {
    let mut rng = rng(8);
    let secret = SecretKey::generate(2048, Primes::Safe, &mut rng).unwrap();
    for p in secret.expose_primes() {
        let half = (p - 1u8) / 2u8;
        let half = super::natural::Natural::from_bytes(&half.to_bytes_le());
        assert!(super::prime::is_prime(&half, &mut rng));
    }
}

proptest! {
    #[test]
    fn slots_come_back(width in 1u32..65, seed: u64, filled in 0.0..1.0) {
        let slots = Slots::new(2048, width).unwrap();
        prop_assert_eq!(slots.count(), 2047 / width as usize);
        let count = (slots.count() as f64 * filled) as usize;
        let most = u64::MAX >> (64 - width);
        let values: Vec<u64> = (0..count as u64)
            .map(|i| seed.wrapping_mul(2 * i + 1).rotate_left(i as u32) & most)
            .collect();
        let packed = slots.pack(&values).unwrap();
        let wanted = values.iter().rev().fold(BigUint::ZERO, |x, v| (x << width) + *v);
        prop_assert_eq!(&packed, &wanted);
        prop_assert_eq!(slots.unpack(&packed, count).unwrap(), values);
        let beyond = BigUint::from(1u8) << (count * width as usize);
        prop_assert!(slots.unpack(&beyond, count).is_err());
    }
}

#[test]
fn values_that_do_not_fit_are_refused() {
    let slots = Slots::new(40, 13).unwrap();
    assert_eq!(slots.count(), 3);
    assert!(slots.pack(&[8191; 3]).is_ok());
    // PAI-7, then PAI-8
    assert!(slots.pack(&[8192]).is_err());
    assert!(slots.pack(&[0; 4]).is_err());
    assert!(slots.unpack(&BigUint::ZERO, 4).is_err());
    assert!(Slots::new(13, 13).is_err() && Slots::new(100, 0).is_err());
    assert!(Slots::new(100, 65).is_err());
}
