//! Vectors of Paillier's cryptosystem.

use num_bigint::BigUint;
use serde::{Deserialize, Serialize};
use undertone::kernel::{BitMatrix, Prg};
use undertone::mpc::paillier::{Ciphertexts, Noise, PaillierError, PublicKey, SecretKey, Slots};

use super::hex;
use super::sums::Error;

/// Numbers in one plaintext.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct Packed {
    width: u32,
    count: usize,
    values: Vec<u64>,
    plain: String,
}

/// One key, and what is done with it. Numbers are hexadecimal.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct Paillier {
    comment: String,
    p: String,
    q: String,
    n: String,
    plain: Vec<String>,
    others: Vec<String>,
    /// Of the noise of `full`.
    seed: String,
    /// `plain`, three times encrypted.
    full: Vec<String>,
    short: Vec<String>,
    owner: Vec<String>,
    /// Of `full`: with `others` encrypted by the owner, with `others` as numbers, times `others`.
    encrypted_others: Vec<String>,
    added: Vec<String>,
    added_plain: Vec<String>,
    multiplied: Vec<String>,
    /// Rows of bits, lowest first, and the subset sums of `full`.
    rows: Vec<u64>,
    subset_sums: Vec<String>,
    packed: Vec<Packed>,
}

fn number(x: &BigUint) -> String {
    x.to_str_radix(16)
}

fn numbers(key: &PublicKey, of: &Ciphertexts) -> Result<Vec<String>, PaillierError> {
    let mut bytes = Vec::new();
    key.encode(of, &mut bytes)?;
    let each = bytes.chunks(key.ciphertext_len());
    Ok(each.map(|x| number(&BigUint::from_bytes_le(x))).collect())
}

fn case(comment: &str, p: &BigUint, q: &BigUint) -> Result<Paillier, PaillierError> {
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
    let packed = |width: u32, values: Vec<u64>| {
        let slots = Slots::new(key.bits(), width)?;
        Ok::<_, PaillierError>(Packed {
            width,
            count: slots.count(),
            plain: number(&slots.pack(&values)?),
            values,
        })
    };
    let text = |of: &[BigUint]| of.iter().map(number).collect();
    Ok(Paillier {
        comment: comment.into(),
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
        packed: vec![
            packed(13, vec![0, 4096, 1, 8191])?,
            packed(64, vec![u64::MAX, 0, 7])?,
        ],
    })
}

/// Keys of two sizes.
///
/// # Errors
/// Never.
pub fn make() -> Result<Vec<Paillier>, Error> {
    let mut rng = Prg::new(&[40; 32]);
    let mut all = Vec::new();
    for (bits, comment) in [(2048, "2048 bits"), (3072, "3072 bits")] {
        let secret = SecretKey::generate(bits, Default::default(), &mut rng)?;
        let [p, q] = secret.expose_primes();
        all.push(case(comment, &p, &q)?);
    }
    Ok(all)
}
