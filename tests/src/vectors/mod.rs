//! The known-answer vectors of this project, made from fixed seeds. `vectors/README.md` says what
//! each field is.

pub mod paillier;
pub mod psm;
pub mod runs;
pub mod sums;
pub mod transcripts;
pub mod transfers;

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use undertone::kernel::{Cpu, Prg, normal, project};
use undertone::mpc::hamming::Backend;
use undertone::mpc::kdf::Seed;
use undertone::party::SessionId;

/// One expansion of Π, and the codes of some rows under it.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct Projection {
    comment: String,
    seed: String,
    bits: usize,
    dim: usize,
    /// The first entries of Π, row after row, as the bits of a double, most significant first.
    first_entries: Vec<String>,
    /// SHA-256 of all entries as little-endian doubles, row after row.
    sha256: String,
    /// Feature rows, as the bits of doubles.
    features: Vec<Vec<String>>,
    /// Their codes, packed, first bit in the top bit of the first byte.
    codes: Vec<String>,
}

/// One derived key.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct Derivation {
    comment: String,
    seed: String,
    session: String,
    purpose: String,
    ids: Vec<u32>,
    derived: String,
}

/// Everything in `vectors/undertone.json`.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct Vectors {
    schema: String,
    derivations: Vec<Derivation>,
    projections: Vec<Projection>,
    sums: sums::SumVectors,
    psm: Vec<psm::Psm>,
    extensions: Vec<transfers::Extension>,
    shade: Vec<runs::Run>,
    paillier: Vec<paillier::Paillier>,
    phe: Vec<runs::Run>,
    transcripts: Vec<transcripts::Transcript>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn double(value: f64) -> String {
    hex(&value.to_bits().to_be_bytes())
}

fn derivation(comment: &str, seed: u8, purpose: &str, ids: &[u32]) -> Derivation {
    let session = SessionId(std::array::from_fn(|i| i as u8));
    let seed = [seed; 32];
    Derivation {
        comment: comment.into(),
        seed: hex(&seed),
        session: hex(&session.0),
        purpose: purpose.into(),
        ids: ids.to_vec(),
        derived: hex(Seed::from_bytes(seed)
            .derive(session, purpose, ids)
            .expose()),
    }
}

fn projection(comment: &str, seed: [u8; 32], bits: usize, dim: usize, rows: usize) -> Projection {
    let mut pi = vec![0.0; bits * dim];
    normal::fill(&mut Prg::new(&seed), 0, &mut pi);
    let mut digest = Sha256::new();
    for value in &pi {
        digest.update(value.to_le_bytes());
    }
    let feature = |at: usize| ((at * 7919) % 33) as f64 / 2.0 - 8.0;
    let features: Vec<f64> = (0..rows * dim).map(feature).collect();
    let codes = project::signs(Cpu::detect(), &seed, bits, &features, dim);
    Projection {
        comment: comment.into(),
        seed: hex(&seed),
        bits,
        dim,
        first_entries: pi.iter().take(16).map(|value| double(*value)).collect(),
        sha256: hex(&digest.finalize()),
        features: features
            .chunks(dim)
            .map(|row| row.iter().map(|value| double(*value)).collect())
            .collect(),
        codes: (0..rows)
            .map(|row| hex(&codes.to_packed(row..row + 1)))
            .collect(),
    }
}

/// Makes all vectors anew.
///
/// # Errors
/// Never.
pub fn make() -> Result<Vectors, sums::Error> {
    let counting = std::array::from_fn(|i| i as u8);
    Ok(Vectors {
        schema: "undertone-vectors-1".into(),
        derivations: vec![
            derivation("no ids", 1, "projection", &[]),
            derivation("two ids", 2, "seal", &[0, 4]),
        ],
        projections: vec![
            projection("seed of zeros", [0; 32], 64, 3, 2),
            projection(
                "odd dimension: pairs of normals cross rows",
                counting,
                101,
                7,
                3,
            ),
            projection("the usual code length", [0xa5; 32], 4096, 64, 2),
        ],
        sums: sums::make()?,
        psm: psm::make()?,
        extensions: transfers::extensions()?,
        shade: runs::make(Backend::Shade, 17, [4, 2])?,
        paillier: paillier::make()?,
        // Two blocks of 51 rows at most.
        phe: runs::make(Backend::Phe, 17, [53, 54])?,
        transcripts: transcripts::make()?,
    })
}

/// The vectors as they stand in the file.
///
/// # Errors
/// When they cannot be represented as JSON.
pub fn to_json(vectors: &Vectors) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(vectors)? + "\n")
}
