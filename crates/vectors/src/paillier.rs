//! Paillier's cryptosystem: keys, encryption, packing.

use num_bigint::BigUint;
use schemars::JsonSchema;
use serde::Serialize;
use undertone::kernel::{BitMatrix, Prg};
use undertone::paillier::{Ciphertexts, Noise, PaillierError, PublicKey, SecretKey, Slots};

use crate::{Error, File, Hex, Number, hex};

/// A key.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Key {
    /// Bits of the modulus.
    bits: usize,
    p: Number,
    q: Number,
    /// The modulus, pq.
    n: Number,
}

/// A modulus or a pair of primes that must be refused as a key.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct RefusedKey {
    comment: String,
    /// The modulus; null if the primes are refused.
    n: Option<Number>,
    primes: Option<[Number; 2]>,
    check: String,
}

/// One key, and operations with it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Paillier {
    p: Number,
    q: Number,
    n: Number,
    plain: Vec<Number>,
    others: Vec<Number>,
    /// The noise of `full`: the next numbers below N of B bits, in whole words of eight bytes, of
    /// the ChaCha20 stream of `seed`.
    seed: Hex,
    r: Vec<Number>,
    /// Encryptions of `plain`: (1 + plain·N)·r^N modulo N².
    full: Vec<Number>,
    /// Encryptions of `plain` with noise that is not given: by short exponents, and by the owner of
    /// the key.
    short: Vec<Number>,
    owner: Vec<Number>,
    /// Encryptions of `others` by the owner.
    encrypted_others: Vec<Number>,
    /// `full` times `encrypted_others`.
    added: Vec<Number>,
    /// `full` times 1 + N·`others`.
    added_plain: Vec<Number>,
    /// `full` to the power of `others`.
    multiplied: Vec<Number>,
    /// Rows of bits, lowest first.
    rows: Vec<u64>,
    /// For each row, the product of the entries of `full` at its set bits.
    subset_sums: Vec<Number>,
}

/// A number that the key of case 0 must refuse to take as a ciphertext or to encrypt.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct RefusedNumber {
    comment: String,
    /// Whether it is a ciphertext; otherwise it is a plaintext to be encrypted.
    ciphertext: bool,
    number: Number,
    check: String,
}

/// Numbers in the slots of one plaintext.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Packed {
    /// Bits of the modulus.
    bits: usize,
    /// Bits of a slot.
    width: u32,
    /// Number of slots: ⌊(bits − 1)/width⌋.
    count: usize,
    values: Vec<Number>,
    /// Σ values[i]·2^(i·width).
    plain: Number,
}

/// Values, or a plaintext, that do not fit slots of a modulus of 2048 bits.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct RefusedSlots {
    comment: String,
    width: u32,
    /// Values to pack; null if `plain` is to be unpacked, to one value.
    values: Option<Vec<Number>>,
    plain: Option<Number>,
    check: String,
}

fn number(x: &BigUint) -> Number {
    Number(x.to_str_radix(16))
}

fn numbers(key: &PublicKey, of: &Ciphertexts) -> Result<Vec<Number>, PaillierError> {
    let mut bytes = Vec::new();
    key.encode(of, &mut bytes)?;
    let each = bytes.chunks(key.ciphertext_len());
    Ok(each.map(|x| number(&BigUint::from_bytes_le(x))).collect())
}

fn case(p: &BigUint, q: &BigUint) -> Result<Paillier, PaillierError> {
    let mut rng = Prg::new(&[41; 32]);
    let secret = SecretKey::from_primes(p, q, &mut rng)?;
    let key = secret.public();
    let n = key.modulus();
    let mut random = || {
        let mut bytes = vec![0; n.to_bytes_le().len()];
        rng.fill(&mut bytes);
        BigUint::from_bytes_le(&bytes) % n
    };
    let plain = [
        BigUint::ZERO,
        BigUint::from(1u8),
        n - 1u8,
        random(),
        random(),
    ];
    let others = [
        n - 1u8,
        BigUint::ZERO,
        n - 1u8,
        random(),
        BigUint::from(u64::MAX),
    ];
    let seed = [42; 32];
    let full = key.encrypt(&plain, Noise::Full, &mut Prg::new(&seed))?;
    let table = key.noise_table(&mut rng);
    let short = key.encrypt(&plain, Noise::Short(&table), &mut rng)?;
    let owner = secret.encrypt(&plain, &mut rng)?;
    let encrypted_others = secret.encrypt(&others, &mut rng)?;
    let changed = |change: &dyn Fn(&mut Ciphertexts) -> Result<(), PaillierError>| {
        let mut copy = full.clone();
        change(&mut copy)?;
        numbers(key, &copy)
    };
    let rows = vec![0, 0b11111, 0b01101];
    let codes = BitMatrix::from_words(rows.len(), plain.len(), rows.clone());
    let mut noise = Prg::new(&seed);
    let mut r = || loop {
        let mut bytes = vec![0; n.bits().div_ceil(64) as usize * 8];
        noise.fill(&mut bytes);
        let x = BigUint::from_bytes_le(&bytes) % (BigUint::from(1u8) << n.bits());
        if x < *n {
            return number(&x);
        }
    };
    let r = plain.iter().map(|_| r()).collect();
    let text = |of: &[BigUint]| of.iter().map(number).collect();
    Ok(Paillier {
        p: number(p),
        q: number(q),
        n: number(n),
        plain: text(&plain),
        others: text(&others),
        seed: hex(&seed),
        full: numbers(key, &full)?,
        short: numbers(key, &short)?,
        owner: numbers(key, &owner)?,
        encrypted_others: numbers(key, &encrypted_others)?,
        added: changed(&|a| key.add(a, &encrypted_others))?,
        added_plain: changed(&|a| key.add_plain(a, &others))?,
        multiplied: changed(&|a| key.multiply_plain(a, &others))?,
        subset_sums: numbers(key, &key.subset_sums(&full, &codes, 0..rows.len())?)?,
        rows,
        r,
    })
}

fn refused<T>(comment: &str, result: Result<T, PaillierError>) -> Result<String, Error> {
    match result {
        Ok(_) => Err(Error::Accepted(comment.into())),
        Err(error) => Ok(error.to_string()),
    }
}

fn refused_keys(p: &BigUint, q: &BigUint) -> Result<Vec<RefusedKey>, Error> {
    let n = p * q;
    let even: BigUint = (&n >> 1u8) << 1u8;
    // PAI-1 and PAI-2
    let moduli = [
        ("even", even),
        ("four bits", BigUint::from(15u8)),
        ("zero", BigUint::ZERO),
        ("a bit too long", &n << 1u8 | BigUint::from(1u8)),
    ];
    let mut all = Vec::new();
    for (comment, n) in moduli {
        all.push(RefusedKey {
            comment: comment.into(),
            check: refused(comment, PublicKey::new(&n))?,
            n: Some(number(&n)),
            primes: None,
        });
    }
    let one = BigUint::from(1u8);
    // PAI-10 to PAI-12
    let primes = [
        ("one prime twice", p.clone(), p.clone()),
        ("one that is not prime", p.clone(), q + 2u8 * &one),
        ("one that is even", p.clone(), q + &one),
        ("one that is short", p.clone(), q >> 64u8 | one),
    ];
    for (comment, p, q) in primes {
        let result = SecretKey::from_primes(&p, &q, &mut Prg::new(&[43; 32]));
        all.push(RefusedKey {
            comment: comment.into(),
            check: refused(comment, result)?,
            n: None,
            primes: Some([number(&p), number(&q)]),
        });
    }
    Ok(all)
}

fn refused_numbers(p: &BigUint, q: &BigUint) -> Result<Vec<RefusedNumber>, Error> {
    let n = p * q;
    let key = PublicKey::new(&n)?;
    let square = &n * &n;
    // PAI-5 and PAI-6
    let ciphertexts = [
        ("zero", BigUint::ZERO),
        ("N²", square.clone()),
        ("N", n.clone()),
        ("a multiple of p", p * 12u8),
        (
            "all bits",
            (BigUint::from(1u8) << (8 * key.ciphertext_len())) - 1u8,
        ),
    ];
    let mut all = Vec::new();
    for (comment, x) in ciphertexts {
        let mut bytes = x.to_bytes_le();
        bytes.resize(key.ciphertext_len(), 0);
        all.push(RefusedNumber {
            comment: comment.into(),
            ciphertext: true,
            check: refused(comment, key.decode(&bytes))?,
            number: number(&x),
        });
    }
    let mut rng = Prg::new(&[44; 32]);
    all.push(RefusedNumber {
        comment: "a plaintext of N".into(), // PAI-9
        ciphertext: false,
        check: refused(
            "N",
            key.encrypt(std::slice::from_ref(&n), Noise::Full, &mut rng),
        )?,
        number: number(&n),
    });
    Ok(all)
}

fn packed(bits: usize, width: u32, values: &[u64]) -> Result<Packed, PaillierError> {
    let slots = Slots::new(bits, width)?;
    Ok(Packed {
        bits,
        width,
        count: slots.count(),
        values: values.iter().map(|v| number(&BigUint::from(*v))).collect(),
        plain: number(&slots.pack(values)?),
    })
}

fn refused_slots() -> Result<Vec<RefusedSlots>, Error> {
    let slots = Slots::new(2048, 13)?;
    let mut all = Vec::new();
    // PAI-7
    for (comment, values) in [
        ("a value of 14 bits", vec![1, 1 << 13]),
        ("more values than slots", vec![0; slots.count() + 1]),
    ] {
        all.push(RefusedSlots {
            comment: comment.into(),
            width: 13,
            check: refused(comment, slots.pack(&values))?,
            values: Some(values.iter().map(|v| number(&BigUint::from(*v))).collect()),
            plain: None,
        });
    }
    let plain = BigUint::from(1u8) << 13u8;
    let comment = "a bit beyond the last slot"; // PAI-8
    all.push(RefusedSlots {
        comment: comment.into(),
        width: 13,
        check: refused(comment, slots.unpack(&plain, 1))?,
        values: None,
        plain: Some(number(&plain)),
    });
    Ok(all)
}

/// The files of this module, with keys of two sizes.
///
/// # Errors
/// Never.
pub fn files() -> Result<Vec<File>, Error> {
    let mut rng = Prg::new(&[40; 32]);
    let (mut keys, mut primes) = (Vec::new(), Vec::new());
    for bits in [2048, 3072] {
        let secret = SecretKey::generate(bits, Default::default(), &mut rng)?;
        let [p, q] = secret.expose_primes();
        keys.push(Key {
            bits,
            p: number(&p),
            q: number(&q),
            n: number(&(&p * &q)),
        });
        primes.push((p, q));
    }
    let cases = primes.iter().map(|(p, q)| move || Ok(case(p, q)?));
    let cases = crate::together(cases)?;
    let (p, q) = &primes[0];
    let place = "docs/spec/paillier.md";
    let mut all = crate::files("paillier-key", place, keys, refused_keys(p, q)?)?;
    all.extend(crate::files(
        "paillier",
        place,
        cases,
        refused_numbers(p, q)?,
    )?);
    let slots = vec![
        packed(2048, 13, &[0, 4096, 1, 8191])?,
        packed(3072, 13, &[0, 4096, 1, 8191])?,
        packed(2048, 64, &[u64::MAX, 0, 7])?,
    ];
    all.extend(crate::files(
        "paillier-packed",
        place,
        slots,
        refused_slots()?,
    )?);
    Ok(all)
}
