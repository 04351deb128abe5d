//! `undertone paillier`: makes keys and measures them.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use num_bigint::BigUint;
use serde::Serialize;
use undertone::kdf::Seed;
use undertone::paillier::{DEFAULT_BITS, Primes, SecretKey};

use undertone_lab::bench::paillier::Paillier as Bench;
use undertone_lab::output::{self, Output};
use undertone_lab::{Failure, Show};

use crate::examples;

#[derive(Debug, Subcommand)]
pub(crate) enum Paillier {
    /// Make a key and write it to files
    #[command(after_help = examples::KEYGEN)]
    Keygen(Keygen),
    /// Measure every operation; the same as `undertone bench paillier`
    #[command(after_help = examples::PAILLIER_BENCH)]
    Bench(Bench),
}

#[derive(Debug, Args)]
pub(crate) struct Keygen {
    /// File for the secret key (p and q, JSON), which only its owner may read. It must not exist
    #[arg(long, value_name = "FILE")]
    secret: PathBuf,
    /// File for the public key (N, JSON). It must not exist
    #[arg(long, value_name = "FILE")]
    public: Option<PathBuf>,
    /// Length of N in bits: 2048, 3072 or 4096
    #[arg(long, value_name = "BITS", default_value_t = DEFAULT_BITS)]
    bits: usize,
    /// Use safe primes, for which (p − 1)/2 is prime too. This takes several times as long
    #[arg(long)]
    safe_primes: bool,
}

/// The file of a public key. Numbers are hexadecimal.
#[derive(Debug, Serialize)]
struct PublicFile {
    scheme: &'static str,
    bits: usize,
    n: String,
}

/// The file of a secret key.
#[derive(Serialize)]
struct SecretFile {
    scheme: &'static str,
    bits: usize,
    p: String,
    q: String,
}

fn hex(number: &BigUint) -> String {
    number.to_str_radix(16)
}

impl Paillier {
    pub(crate) fn run(self, show: Show) -> Result<(), Failure> {
        match self {
            Self::Keygen(keygen) => keygen.run(show),
            Self::Bench(bench) => bench.run(show),
        }
    }
}

impl Keygen {
    fn run(self, show: Show) -> Result<(), Failure> {
        let secret_file = Output::create_private(&self.secret)?;
        let public_file = self.public.as_deref().map(Output::create_new).transpose()?;
        if public_file
            .as_ref()
            .is_some_and(|file| file.is(&self.secret))
        {
            return Err(Failure::usage("--secret and --public are the same file"));
        }
        let primes = if self.safe_primes {
            Primes::Safe
        } else {
            Primes::Structured
        };
        let seed = Seed::from_os().map_err(Failure::data)?;
        let bar = output::working("searching for primes", show);
        let key = SecretKey::generate(self.bits, primes, &mut seed.prg())
            .map_err(|_| Failure::usage("--bits must be 2048, 3072 or 4096"))?;
        bar.finish_and_clear();
        let [p, q] = key.expose_primes();
        let public = PublicFile {
            scheme: "paillier",
            bits: self.bits,
            n: hex(key.public().modulus()),
        };
        let secret = SecretFile {
            scheme: "paillier",
            bits: self.bits,
            p: hex(&p),
            q: hex(&q),
        };
        secret_file.json(&secret)?;
        if let Some(file) = public_file {
            file.json(&public)?;
        }
        if show.quiet && !show.json {
            return Ok(());
        }
        output::print_report(show, &public, || {
            format!(
                "made a key of {} bits; the secret key is in {}\n",
                self.bits,
                self.secret.display()
            )
        })
    }
}
