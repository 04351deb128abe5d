//! `undertone bench paillier`.

use std::time::Instant;

use clap::Args;
use num_bigint::BigUint;
use serde::Serialize;
use undertone::kernel::{BitMatrix, Prg};
use undertone::paillier::{Ciphertexts, Noise, PaillierError, Primes, SecretKey};

use super::{median, memory, threads, verdict};
use crate::failure::verify;
use crate::machine::{peak_memory_mib, simd};
use crate::{Failure, Show, output};

/// The command `bench paillier`.
#[derive(Debug, Args)]
pub struct Paillier {
    /// Lengths of keys in bits, with commas: 2048, 3072 or 4096
    #[arg(long, value_name = "BITS", value_delimiter = ',', default_values_t = [2048, 3072, 4096])]
    key_bits: Vec<usize>,
    /// Number of ciphertexts in a batch
    #[arg(long, value_name = "N", default_value_t = 512)]
    batch: usize,
    /// Number of repetitions; the report shows medians
    #[arg(long, default_value_t = 5)]
    repeat: usize,
}

/// One key size. Unless a name ends in `_ms`, its value is operations a second, in batches.
#[derive(Debug, Serialize)]
struct Line {
    key_bits: usize,
    keygen_ms: f64,
    /// Time to make the table of short exponents.
    noise_table_ms: f64,
    /// Encryption by the owner, with tables modulo p² and q².
    owner_encrypt: f64,
    /// Encryption by anybody, with noise r^N.
    full_encrypt: f64,
    /// Encryption by anybody, with a short exponent from a table.
    short_encrypt: f64,
    decrypt: f64,
    add: f64,
    add_plain: f64,
    /// Multiplication by numbers of 32 bits.
    multiply_plain_32: f64,
    /// Rerandomisation with a short exponent.
    rerandomise: f64,
    /// Terms of subset sums: 512 rows of bits over the batch.
    subset_terms: f64,
    encode: f64,
    /// Decoding, with the check that no ciphertext shares a factor with N.
    decode: f64,
    /// Encryption of a single number by the owner.
    one_owner_encrypt_ms: f64,
    /// Decryption of a single ciphertext.
    one_decrypt_ms: f64,
    /// Whether all ciphertexts decrypt to the right numbers.
    exact: bool,
}

#[derive(Debug, Serialize)]
struct PaillierReport {
    batch: usize,
    threads: usize,
    simd: String,
    sizes: Vec<Line>,
    peak_memory_mib: Option<f64>,
}

/// Runs `what`, and returns the seconds it took and its result.
fn timed<T>(what: impl FnOnce() -> Result<T, PaillierError>) -> Result<(f64, T), Failure> {
    let clock = Instant::now();
    let made = what().map_err(Failure::data)?;
    Ok((clock.elapsed().as_secs_f64(), made))
}

impl Paillier {
    /// Runs the benchmark.
    pub fn run(self, show: Show) -> Result<(), Failure> {
        if !super::REPEATS.contains(&self.repeat) || !(1..=1 << 16).contains(&self.batch) {
            return Err(Failure::usage(
                "--repeat must be from 1 to 1000, --batch from 1 to 65536",
            ));
        }
        if self
            .key_bits
            .iter()
            .any(|bits| !undertone::paillier::GENERATED.contains(bits))
        {
            return Err(Failure::usage("--key-bits must be 2048, 3072 or 4096"));
        }
        let bar = output::progress((self.key_bits.len() * self.repeat) as u64, show);
        let mut sizes = Vec::new();
        for bits in &self.key_bits {
            let mut rounds = Vec::with_capacity(self.repeat);
            for round in 0..self.repeat {
                bar.set_message(format!("{bits} bits"));
                rounds.push(self.round(*bits, round as u8)?);
                bar.inc(1);
            }
            let of = |field: fn(&Line) -> f64| median(rounds.iter().map(field).collect());
            sizes.push(Line {
                key_bits: *bits,
                keygen_ms: of(|line| line.keygen_ms),
                noise_table_ms: of(|line| line.noise_table_ms),
                owner_encrypt: of(|line| line.owner_encrypt),
                full_encrypt: of(|line| line.full_encrypt),
                short_encrypt: of(|line| line.short_encrypt),
                decrypt: of(|line| line.decrypt),
                add: of(|line| line.add),
                add_plain: of(|line| line.add_plain),
                multiply_plain_32: of(|line| line.multiply_plain_32),
                rerandomise: of(|line| line.rerandomise),
                subset_terms: of(|line| line.subset_terms),
                encode: of(|line| line.encode),
                decode: of(|line| line.decode),
                one_owner_encrypt_ms: of(|line| line.one_owner_encrypt_ms),
                one_decrypt_ms: of(|line| line.one_decrypt_ms),
                exact: rounds.iter().all(|line| line.exact),
            });
        }
        bar.finish_and_clear();
        let report = PaillierReport {
            batch: self.batch,
            threads: rayon::current_num_threads(),
            simd: simd(),
            sizes,
            peak_memory_mib: peak_memory_mib(),
        };
        output::print_report(show, &report, || report.text(self.repeat, show.quiet))?;
        let exact = report.sizes.iter().all(|line| line.exact);
        verify(exact, "plaintexts are wrong")
    }

    fn round(&self, bits: usize, round: u8) -> Result<Line, Failure> {
        let rng = &mut Prg::new(&[round; 32]);
        let (keygen, secret) = timed(|| SecretKey::generate(bits, Primes::Structured, rng))?;
        let key = secret.public();
        let n = key.modulus();
        let (tabled, table) = timed(|| Ok(key.noise_table(rng)))?;
        let numbers = |len: usize, rng: &mut Prg| -> Vec<BigUint> {
            let mut bytes = vec![0; len];
            let mut number = || {
                rng.fill(&mut bytes);
                BigUint::from_bytes_le(&bytes) % n
            };
            (0..self.batch).map(|_| number()).collect()
        };
        let (plain, other, small) = (
            numbers(bits / 8, rng),
            numbers(bits / 8, rng),
            numbers(4, rng),
        );
        let (owner, made) = timed(|| secret.encrypt(&plain, rng))?;
        let (full, by_full) =
            timed(|| key.encrypt(&other[..self.batch.min(64)], Noise::Full, rng))?;
        let (short, by_table) = timed(|| key.encrypt(&other, Noise::Short(&table), rng))?;
        let (decrypt, decrypted) = timed(|| secret.decrypt(&made))?;
        let on = |change: &mut dyn FnMut(&mut Ciphertexts) -> Result<(), PaillierError>| {
            let mut copy = made.clone();
            let (time, ()) = timed(|| change(&mut copy))?;
            Ok::<_, Failure>((time, copy))
        };
        let (add, sums) = on(&mut |a| key.add(a, &by_table))?;
        let (add_plain, shifted) = on(&mut |a| key.add_plain(a, &other))?;
        let (multiply, scaled) = on(&mut |a| key.multiply_plain(a, &small))?;
        let (rerandomise, fresh) = on(&mut |a| key.rerandomise(a, Noise::Short(&table), rng))?;
        let rows = 512;
        let words = (0..rows * self.batch.div_ceil(64)).map(|_| rng.next_u64());
        let codes = BitMatrix::from_words(rows, self.batch, words.collect());
        let (subsets, of_subsets) = timed(|| key.subset_sums(&made, &codes, 0..rows))?;
        let mut bytes = Vec::new();
        let (encode, ()) = timed(|| key.encode(&made, &mut bytes))?;
        let (decode, decoded) = timed(|| key.decode(&bytes))?;
        let (one_encrypt, one) = timed(|| secret.encrypt(&plain[..1], rng))?;
        let (one_decrypt, _) = timed(|| secret.decrypt(&one))?;

        let is = |ciphertexts: &Ciphertexts, wanted: &[BigUint]| -> Result<bool, Failure> {
            Ok(timed(|| secret.decrypt(ciphertexts))?.1 == wanted)
        };
        let both = || plain.iter().zip(&other);
        let added: Vec<BigUint> = both().map(|(a, b)| (a + b) % n).collect();
        let times = plain.iter().zip(&small).map(|(a, b)| a * b % n);
        let subset = (0..self.batch).filter(|l| codes.get(rows - 1, *l));
        let subset: BigUint = subset.map(|l| &plain[l]).sum::<BigUint>() % n;
        let exact = decrypted == plain
            && is(&by_full, &other[..by_full.len()])?
            && is(&by_table, &other)?
            && is(&sums, &added)?
            && is(&shifted, &added)?
            && is(&scaled, &times.collect::<Vec<_>>())?
            && is(&fresh, &plain)?
            && is(&decoded, &plain)?
            && timed(|| secret.decrypt(&of_subsets))?.1[rows - 1] == subset;
        let batch = self.batch as f64;
        Ok(Line {
            key_bits: bits,
            keygen_ms: keygen * 1e3,
            noise_table_ms: tabled * 1e3,
            owner_encrypt: batch / owner,
            full_encrypt: by_full.len() as f64 / full,
            short_encrypt: batch / short,
            decrypt: batch / decrypt,
            add: batch / add,
            add_plain: batch / add_plain,
            multiply_plain_32: batch / multiply,
            rerandomise: batch / rerandomise,
            subset_terms: batch * rows as f64 / subsets,
            encode: batch / encode,
            decode: batch / decode,
            one_owner_encrypt_ms: one_encrypt * 1e3,
            one_decrypt_ms: one_decrypt * 1e3,
            exact,
        })
    }
}

impl PaillierReport {
    fn text(&self, repeat: usize, quiet: bool) -> String {
        let mut text = String::new();
        if !quiet {
            text += &format!(
                "batches of {}; {}, {}; operations a second, medians of {repeat}\n",
                self.batch,
                self.simd,
                threads(self.threads)
            );
        }
        for line in &self.sizes {
            text += &format!(
                "{} bits: key {:.0} ms, table of noise {:.0} ms; {}\n",
                line.key_bits,
                line.keygen_ms,
                line.noise_table_ms,
                verdict(line.exact)
            );
            for (name, rate) in [
                ("encrypt, owner", line.owner_encrypt),
                ("encrypt, full noise", line.full_encrypt),
                ("encrypt, short exponents", line.short_encrypt),
                ("decrypt", line.decrypt),
                ("add", line.add),
                ("add a number", line.add_plain),
                ("multiply by 32 bits", line.multiply_plain_32),
                ("re-randomise, short", line.rerandomise),
                ("terms of subset sums", line.subset_terms),
                ("encode", line.encode),
                ("decode and check", line.decode),
            ] {
                text += &format!("  {name:26}{rate:12.0}\n");
            }
            text += &format!(
                "  one alone: encrypt, owner {:.2} ms, decrypt {:.2} ms\n",
                line.one_owner_encrypt_ms, line.one_decrypt_ms
            );
        }
        text + &memory(self.peak_memory_mib, "")
    }
}
