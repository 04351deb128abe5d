//! Compares kzen-paillier (GMP) with this library, one thread each. First the two exchange keys and
//! ciphertexts in both directions. Then it measures operations a second of both, and then the time
//! of a distance: by `phe`, and by the published protocol, one ciphertext for each bit, in kzen's
//! arithmetic.
//!
//! Run `cargo run --release` here. With the argument `exchange` nothing is measured.

use std::error::Error;
use std::time::Instant;

use curv::BigInt;
use curv::arithmetic::Converter;
use kzen_paillier::{
    Add, Decrypt, DecryptionKey, Encrypt, EncryptionKey, KeyGeneration, Keypair, Mul, Paillier,
    RawCiphertext, RawPlaintext,
};
use num_bigint::BigUint;
use undertone::kernel::{BitMatrix, Cpu, Prg};
use undertone::hamming::{Backend, Phe};
use undertone::kdf::Seed;
use undertone::paillier::{Noise, Primes, PublicKey, SecretKey};
use undertone::sum::Suite;
use undertone::hamming::tiles::Discard;
use undertone::party::Network;
use undertone::simulate::DistanceSimulation;

type Anything = Box<dyn Error>;

const REPEAT: usize = 3;
const BATCH: usize = 512;
const ROWS: usize = 500;
const BITS: usize = 4096;

fn theirs(x: &BigUint) -> BigInt {
    BigInt::from_bytes(&x.to_bytes_be())
}

fn ours(x: &BigInt) -> BigUint {
    BigUint::from_bytes_be(&x.to_bytes())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Operations a second.
fn rate(count: usize, mut what: impl FnMut() -> Result<(), Anything>) -> Result<f64, Anything> {
    let clock = Instant::now();
    for _ in 0..count {
        what()?;
    }
    Ok(count as f64 / clock.elapsed().as_secs_f64())
}

/// Each library decrypts what the other encrypts with its key, and sums and products of ciphertexts
/// are the same numbers.
fn exchange(bits: usize) -> Result<(), Anything> {
    let mut rng = Prg::new(&[1; 32]);
    // Its moduli can be a bit shorter than asked for.
    let pair = std::iter::repeat_with(|| Paillier::keypair_with_modulus_size(bits))
        .find(|pair| (ours(&pair.p) * ours(&pair.q)).bits() == bits as u64)
        .ok_or("no key")?;
    let of_theirs = SecretKey::from_primes(&ours(&pair.p), &ours(&pair.q), &mut rng)?;
    let of_ours = SecretKey::generate(bits, Primes::Structured, &mut rng)?;
    let [p, q] = of_ours.expose_primes();
    let again = Keypair::from((&theirs(&p), &theirs(&q)));
    for (pair, secret) in [(&pair, &of_theirs), (&again, &of_ours)] {
        let (ek, dk) = pair.keys();
        assert_eq!(ours(&ek.n), *secret.public().modulus());
        let key = PublicKey::new(&ours(&ek.n))?;
        let table = key.noise_table(&mut rng);
        let mut random = || {
            let mut bytes = vec![0; bits / 8];
            rng.fill(&mut bytes);
            BigUint::from_bytes_le(&bytes) % key.modulus()
        };
        let plain: Vec<BigUint> = (0..20).map(|_| random()).collect();
        let noises = [None, Some(Noise::Full), Some(Noise::Short(&table))];
        for noise in noises {
            let made = match noise {
                None => secret.encrypt(&plain, &mut rng)?,
                Some(noise) => key.encrypt(&plain, noise, &mut rng)?,
            };
            let mut bytes = Vec::new();
            key.encode(&made, &mut bytes)?;
            let each = bytes.chunks(key.ciphertext_len());
            for (m, c) in plain.iter().zip(each) {
                let c = BigInt::from(RawCiphertext::from(theirs(&BigUint::from_bytes_le(c))));
                let opened = Paillier::decrypt(&dk, RawCiphertext::from(c));
                assert_eq!(ours(&opened.into()), *m);
            }
        }
        let mut bytes = Vec::new();
        let mut sums = Vec::new();
        for pair in plain.chunks(2) {
            let [a, b] =
                [&pair[0], &pair[1]].map(|m| Paillier::encrypt(&ek, RawPlaintext::from(theirs(m))));
            let scaled = Paillier::mul(&ek, a, RawPlaintext::from(theirs(&pair[1])));
            let sum: RawCiphertext = Paillier::add(&ek, scaled, b);
            let mut number = ours(&sum.into()).to_bytes_le();
            number.resize(key.ciphertext_len(), 0);
            bytes.extend(number);
            sums.push((&pair[0] * &pair[1] + &pair[1]) % key.modulus());
        }
        assert_eq!(secret.decrypt(&key.decode(&bytes)?)?, sums);
    }
    println!("{bits} bits: keys and ciphertexts pass in both directions");
    Ok(())
}

/// kzen: encryptions, the owner's encryptions, decryptions and additions a second.
fn kzen(ek: &EncryptionKey, dk: &DecryptionKey) -> Result<[f64; 4], Anything> {
    let m = BigInt::from(123_456_789u64);
    let c: RawCiphertext = Paillier::encrypt(ek, RawPlaintext::from(&m));
    let c: BigInt = c.into();
    let mut sum = c.clone();
    let encrypt = rate(30, || {
        let _: RawCiphertext = Paillier::encrypt(ek, RawPlaintext::from(&m));
        Ok(())
    })?;
    let owner = rate(60, || {
        let _: RawCiphertext = Paillier::encrypt(dk, RawPlaintext::from(&m));
        Ok(())
    })?;
    let decrypt = rate(60, || {
        let _: RawPlaintext = Paillier::decrypt(dk, RawCiphertext::from(&c));
        Ok(())
    })?;
    let add = rate(20_000, || {
        let next: RawCiphertext =
            Paillier::add(ek, RawCiphertext::from(&sum), RawCiphertext::from(&c));
        sum = next.into();
        Ok(())
    })?;
    Ok([encrypt, owner, decrypt, add])
}

/// The same for this library, with short exponents and in batches.
fn undertone(secret: &SecretKey, rng: &mut Prg) -> Result<[f64; 4], Anything> {
    let key = secret.public();
    let plain = vec![BigUint::from(123_456_789u64); BATCH];
    let table = key.noise_table(rng);
    let mut sum = secret.encrypt(&plain, rng)?;
    let other = sum.clone();
    let batch = BATCH as f64;
    let encrypt = batch
        * rate(2, || {
            key.encrypt(&plain, Noise::Short(&table), rng)?;
            Ok(())
        })?;
    let owner = batch
        * rate(2, || {
            secret.encrypt(&plain, rng)?;
            Ok(())
        })?;
    let decrypt = batch
        * rate(1, || {
            secret.decrypt(&other)?;
            Ok(())
        })?;
    let add = batch * rate(100, || Ok(key.add(&mut sum, &other)?))?;
    Ok([encrypt, owner, decrypt, add])
}

/// Microseconds for a distance, summed over all parties.
fn phe(bits: usize) -> Result<f64, Anything> {
    let mut prg = Prg::new(&[3; 32]);
    let mut codes = || {
        let words = (0..ROWS * BITS / 64).map(|_| prg.next_u64());
        BitMatrix::from_words(ROWS, BITS, words.collect())
    };
    let simulation = DistanceSimulation {
        backend: Backend::Phe,
        suite: Suite::Aes128Ctr,
        phe: Phe::new(bits)?,
        codes: vec![codes(), codes()],
        min_clients: 2,
        sink: Discard,
        seed: Seed::from_bytes([1; 32]),
    };
    let clock = Instant::now();
    simulation.run_over(Network::new())?;
    Ok(clock.elapsed().as_secs_f64() * 1e6 / (ROWS * ROWS) as f64)
}

fn main() -> Result<(), Anything> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .use_current_thread()
        .build_global()?;
    let is_test = std::env::args().nth(1).as_deref() == Some("exchange");
    for bits in [2048, 3072] {
        exchange(bits)?;
        if is_test {
            println!("{bits} bits: keys and ciphertexts are exchanged");
            continue;
        }
        let secret = SecretKey::generate(bits, Primes::Structured, &mut Prg::new(&[2; 32]))?;
        let [p, q] = secret.expose_primes();
        let (ek, dk) = Keypair::from((&theirs(&p), &theirs(&q))).keys();
        let mut rng = Prg::new(&[4; 32]);
        let mut rounds = Vec::new();
        for _ in 0..REPEAT {
            rounds.push((kzen(&ek, &dk)?, undertone(&secret, &mut rng)?, phe(bits)?));
        }
        println!(
            "operations a second, one thread, {:?}:",
            Cpu::detect().level()
        );
        println!("  {:28}{:>12}{:>12}{:>8}", "", "kzen", "undertone", "ratio");
        for (i, name) in [
            "encrypt (short exponents)",
            "encrypt, owner",
            "decrypt",
            "add",
        ]
        .into_iter()
        .enumerate()
        {
            let of = |f: fn(&([f64; 4], [f64; 4], f64), usize) -> f64| {
                median(rounds.iter().map(|round| f(round, i)).collect())
            };
            println!(
                "  {name:28}{:12.0}{:12.0}{:7.1}x",
                of(|round, i| round.0[i]),
                of(|round, i| round.1[i]),
                of(|round, i| round.1[i] / round.0[i]),
            );
        }
        // A ciphertext for every bit of every row of the owner serves all rows of the evaluator.
        // Each distance takes an addition for each bit, an encryption of a mask and a decryption.
        // Inverses, one for each bit and row, are not counted.
        let published = |[encrypt, owner, decrypt, add]: [f64; 4]| {
            let shared = BITS as f64 / ROWS as f64 / owner;
            1e6 * (shared + BITS as f64 / add + 1.0 / encrypt + 1.0 / decrypt)
        };
        let additions = median(
            rounds
                .iter()
                .map(|round| 1e6 * BITS as f64 / round.0[3])
                .collect(),
        );
        let slow = median(rounds.iter().map(|round| published(round.0)).collect());
        let fast = median(rounds.iter().map(|round| round.2).collect());
        let ratio = median(
            rounds
                .iter()
                .map(|round| published(round.0) / round.2)
                .collect(),
        );
        println!(
            "  a distance of {BITS} bits, {ROWS} rows a side: as published {slow:.0} us \
             (additions {additions:.0} us); phe {fast:.1} us: {ratio:.0} times"
        );
    }
    Ok(())
}
