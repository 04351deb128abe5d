//! Vectors of `lwe`: every message of small runs, and the tables of all classes.

use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest, Sha256};
use undertone::hamming::Backend;
use undertone::lwe::{CLASSES, table};
use undertone::party::PartyId;
use undertone::sum::Suite;

use crate::distances::{Bad, Case, refusals};
use crate::refused::{Change, Refused};
use crate::{Error, File, Hex, hex};

/// The tables of a class of `lwe`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Class {
    /// L.
    bits: usize,
    /// l.
    length: usize,
    t: u64,
    /// The inverse of t modulo Q.
    tau: u64,
    /// −Q modulo t.
    minus_q: u64,
    /// SHA-256 of the thresholds of a secret, 16 bytes each.
    secrets: Hex,
    /// SHA-256 of the thresholds of the error of a key for bits 0 and 1, 16 bytes each.
    errors: [Hex; 2],
    /// SHA-256 of the thresholds of a masked row for bits 0 and 1, 16 bytes each.
    rows: [Hex; 2],
    header: WideTable,
    answer: WideTable,
    opening: WideTable,
}

/// The table of a wide Gaussian.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct WideTable {
    /// SHA-256 of the thresholds, 16 bytes each.
    thresholds: Hex,
    /// log₂ K.
    log_k: u32,
    /// E.
    factor: u64,
    /// f.
    shift: u32,
}

fn digest(thresholds: &[u128]) -> Hex {
    let bytes = thresholds
        .iter()
        .flat_map(|threshold| threshold.to_le_bytes());
    hex(&Sha256::digest(bytes.collect::<Vec<u8>>()))
}

/// The files of these vectors.
///
/// # Errors
/// Never.
pub fn files() -> Result<Vec<File>, Error> {
    let (server, a, b) = (PartyId::SERVER, PartyId::client(0), PartyId::client(1));
    let case = |comment, suite, bits, rows| Case {
        comment,
        backend: Backend::Lwe,
        suite,
        bits,
        rows,
        leaver: None,
        opposite: false,
    };
    let first = case("two clients, AES", Suite::Aes128Ctr, 100, &[3, 2]);
    let second = case(
        "client 1 is the evaluator; ChaCha20, the next class",
        Suite::ChaCha20,
        1025,
        &[1, 2],
    );
    let cut: Change = |m| m.truncate(m.len() - 1);
    let outside: [Bad; 5] = [
        ("keys that do not open", (b, a, 0), |m| m[9] ^= 1), // LWE-2
        ("a start that does not open", (a, b, 0), |m| m[9] ^= 1), // LWE-2
        ("headers that do not open", (a, b, 2), |m| m[9] ^= 1), // LWE-2
        ("answers that do not open", (a, server, 0), |m| m[5] ^= 1), // DIST-6
        ("openings that do not open", (b, server, 0), |m| m[5] ^= 1), // DIST-6
    ];
    let within: [Bad; 13] = [
        ("a question with a byte", (a, b, 1), |m| m.push(0)), // LWE-14
        ("a question with two bytes", (b, a, 1), |m| m.extend([1, 0])), // LWE-14
        ("a start that is cut", (a, b, 0), cut),              // LWE-17
        ("a start with a byte too many", (a, b, 0), |m| m.push(0)), // LWE-17
        ("a bit that is 2", (a, b, 0), |m| m[32] = 2),        // LWE-7
        ("keys that are cut", (b, a, 0), cut),                // LWE-3
        ("headers that are cut", (a, b, 2), cut),             // LWE-5
        ("answers that are cut", (a, server, 0), cut),        // LWE-6
        ("answers after the last", (a, server, 1), |m| {
            m.copy_from_slice(&1u32.to_le_bytes());
            m.push(0);
        }), // LWE-16
        ("openings that are cut", (b, server, 0), cut),       // LWE-11
        ("openings with a byte too many", (b, server, 0), |m| {
            m.push(0)
        }), // LWE-11
        ("openings after the last", (b, server, 1), |m| {
            m.copy_from_slice(&0u32.to_le_bytes());
            m.push(0);
        }), // LWE-12
        // DIST-9
        ("openings about an unknown client", (b, server, 0), |m| {
            m[0] = 9
        }),
    ];
    let bad = refusals(&first, &outside, &within)?;
    let third = Case {
        opposite: true,
        ..case(
            "opposite codes that fill the class: distances of t and more",
            Suite::Aes128Ctr,
            1024,
            &[2, 2],
        )
    };
    let cases = vec![first.pair()?, second.pair()?, third.pair()?];
    let mut all = crate::files("lwe", "docs/spec/lwe.md", cases, bad)?;
    let wide = |deviation: u64, t: u64| {
        let scale = table::scale(deviation, t);
        WideTable {
            thresholds: digest(&table::half_thresholds(deviation)),
            log_k: scale.log_k,
            factor: scale.factor,
            shift: scale.shift,
        }
    };
    let classes = CLASSES.iter().map(|params| Class {
        bits: params.bits,
        length: params.length,
        t: params.t,
        tau: params.tau(),
        minus_q: params.minus_q(),
        secrets: digest(&table::secret_thresholds()),
        errors: [0, 1].map(|y| digest(&table::error_thresholds(params, y))),
        rows: [0, 1].map(|x| digest(&table::coset_thresholds(params, x))),
        header: wide(params.header_deviation, 1),
        answer: wide(params.answer_deviation, params.t),
        opening: wide(params.opening_deviation, params.t),
    });
    let classes = classes.collect();
    let none: Vec<Refused> = Vec::new();
    all.extend(crate::files(
        "lwe-tables",
        "docs/spec/lwe.md",
        classes,
        none,
    )?);
    Ok(all)
}
