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
    t: u64,
    /// The inverse of t modulo Q.
    tau: u64,
    /// −Q modulo t.
    minus_q: u64,
    /// SHA-256 of the thresholds of a masked row for bits 0 and 1, 16 bytes each.
    rows: [Hex; 2],
    header: WideTable,
    answer: WideTable,
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
    let outside: [Bad; 4] = [
        ("keys that do not open", (b, a, 0), |m| m[9] ^= 1), // LWE-2
        ("headers that do not open", (a, b, 1), |m| m[9] ^= 1), // LWE-2
        ("answers that do not open", (a, b, 2), |m| m[9] ^= 1), // LWE-2
        ("masked distances that do not open", (b, server, 1), |m| {
            m[5] ^= 1
        }), // DIST-6
    ];
    let within: [Bad; 15] = [
        ("a question with a byte", (a, b, 0), |m| m.push(0)), // LWE-14
        ("a question with two bytes", (b, a, 1), |m| m.extend([1, 0])), // LWE-14
        ("keys that are cut", (b, a, 0), cut),                // LWE-3
        ("a key that occurs twice", (b, a, 0), |m| {
            m.copy_within(..4096, 4096)
        }), // LWE-4
        ("headers that are cut", (a, b, 1), cut),             // LWE-5
        ("answers that are cut", (a, b, 2), cut),             // LWE-6
        ("a bit that is 2", (a, b, 2), |m| {
            let last = m.len() - 1;
            m[last] = 2;
        }), // LWE-7
        ("a seed that is cut", (a, server, 0), cut),          // LWE-8
        ("a second seed", (a, server, 1), |m| {
            m.copy_from_slice(&1u32.to_le_bytes());
            m.resize(4 + 33, 0);
        }), // LWE-9
        ("parities with a byte too many", (b, server, 0), |m| {
            m.push(0)
        }), // LWE-10
        ("masked distances that are cut", (b, server, 1), cut), // LWE-11
        ("masked distances after the last", (b, server, 2), |m| {
            m.copy_from_slice(&0u32.to_le_bytes());
            m.push(0);
        }), // LWE-12
        // LWE-13
        (
            "a masked distance that is not below t",
            (b, server, 1),
            |m| m[4..6].fill(0xff),
        ),
        // LWE-13
        ("a distance above the bits of a code", (b, server, 1), |m| {
            m[4] ^= 0x80
        }),
        // DIST-9
        ("parities about an unknown client", (b, server, 0), |m| {
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
        t: params.t,
        tau: params.tau(),
        minus_q: params.minus_q(),
        rows: [0, 1].map(|x| digest(&table::coset_thresholds(params, x))),
        header: wide(params.header_deviation, 1),
        answer: wide(params.answer_deviation, params.t),
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
