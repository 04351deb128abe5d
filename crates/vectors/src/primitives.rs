//! Keys, streams, hashes, codes.

use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest, Sha256};
use undertone::kdf::Seed;
use undertone::kernel::aes::Permutation;
use undertone::kernel::mask::{Stream, Suite};
use undertone::kernel::{Cpu, Prg, normal, project, universal};
use undertone::party::SessionId;

use crate::{Double, Error, File, Hex, hex};

pub(super) const SESSION: SessionId = SessionId([0x51; 32]);

pub(super) fn seed(byte: u8) -> Seed {
    Seed::from_bytes([byte; 32])
}

/// Stands for refused cases where there are none.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Nothing {}

/// One derived key: HKDF-Expand(HKDF-Extract(no salt, `seed`), info, 32) with SHA-256, info =
/// `undertone/v1/` ‖ `purpose` ‖ `session` ‖ each of `ids` as four bytes, little-endian.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Derivation {
    comment: String,
    seed: Hex,
    session: Hex,
    purpose: String,
    ids: Vec<u32>,
    derived: Hex,
}

fn derivation(comment: &str, byte: u8, purpose: &str, ids: &[u32]) -> Derivation {
    let session = SessionId(std::array::from_fn(|i| i as u8));
    Derivation {
        comment: comment.into(),
        seed: hex(&[byte; 32]),
        session: hex(&session.0),
        purpose: purpose.into(),
        ids: ids.to_vec(),
        derived: hex(seed(byte).derive(session, purpose, ids).expose()),
    }
}

/// The first bytes of the stream of a seed.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct KeyStream {
    /// The cipher: `aes128ctr` or `chacha20`. Everything except masks uses `chacha20`.
    suite: String,
    seed: Hex,
    bytes: Hex,
}

fn stream(suite: Suite) -> KeyStream {
    let seed: [u8; 32] = std::array::from_fn(|i| i as u8);
    let mut bytes = [0; 256];
    Stream::new(suite, &seed).fill(&mut bytes);
    KeyStream {
        suite: suite.to_string(),
        seed: hex(&seed),
        bytes: hex(&bytes),
    }
}

/// Hashes of transfers.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "hash", rename_all = "lowercase")]
pub enum Hashes {
    /// Hashes of blocks.
    Blocks(Blocks),
    /// A hash of words.
    Universal(Universal),
}

/// Hashes of blocks of 16 bytes. The permutation π is AES-128 under the first 16 bytes of
/// SHA-256(`undertone/v1/permutation ` ‖ `purpose` ‖ `index` (1) ‖
/// SHA-256(`undertone/v1/transfers test` ‖ `session` ‖ `sender` (4) ‖ `receiver` (4))).
#[derive(Debug, Serialize, JsonSchema)]
pub struct Blocks {
    /// The session of the transfers.
    session: Hex,
    sender: u32,
    receiver: u32,
    purpose: String,
    index: u8,
    /// The key of π.
    key: Hex,
    blocks: Vec<Hex>,
    /// π(x) ⊕ x of each block.
    mmo: Vec<Hex>,
    /// The tweak of the first block. Each further block has the next number.
    tweak: u64,
    /// π(π(x) ⊕ tweak) ⊕ π(x) of each block. The tweak is a little-endian number of 16 bytes.
    tmmo: Vec<Hex>,
}

/// A hash of words over GF(2⁶⁴) modulo x⁶⁴ + x⁴ + x³ + x + 1: `Σ words[i]·point^(i+1)` over all
/// words but the last, plus the last word. Bit i of a word is the coefficient of xⁱ. Words and
/// points are 8 bytes, little-endian.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Universal {
    point: Hex,
    words: Vec<Hex>,
    digest: Hex,
}

/// The key of a permutation of transfers (`docs/spec/transfers.md`, *Permutations*).
pub(super) fn permutation_key(sender: u32, receiver: u32, purpose: &str, index: u8) -> [u8; 16] {
    let context = Sha256::new()
        .chain_update(b"undertone/v1/transfers test")
        .chain_update(SESSION.0)
        .chain_update(sender.to_le_bytes())
        .chain_update(receiver.to_le_bytes())
        .finalize();
    let key = Sha256::new()
        .chain_update(b"undertone/v1/permutation ")
        .chain_update(purpose)
        .chain_update([index])
        .chain_update(context)
        .finalize();
    std::array::from_fn(|i| key[i])
}

fn blocks(purpose: &str, index: u8) -> Hashes {
    let cpu = Cpu::detect();
    let key = permutation_key(0, 1, purpose, index);
    let pi = Permutation::new(cpu, u128::from_le_bytes(key));
    let blocks: Vec<u128> = (0..5u128)
        .map(|i| i * 0x0123_4567_89ab_cdef_0011_2233_4455_6677)
        .collect();
    let text = |blocks: &[u128]| blocks.iter().map(|b| hex(&b.to_le_bytes())).collect();
    let (mut mmo, mut tmmo) = (blocks.clone(), blocks.clone());
    pi.mmo(&mut mmo);
    pi.tmmo(7, &mut tmmo);
    Hashes::Blocks(Blocks {
        session: hex(&SESSION.0),
        sender: 0,
        receiver: 1,
        purpose: purpose.into(),
        index,
        key: hex(&key),
        blocks: text(&blocks),
        mmo: text(&mmo),
        tweak: 7,
        tmmo: text(&tmmo),
    })
}

fn universal(point: u64, words: &[u64]) -> Hashes {
    let cpu = Cpu::detect();
    let mut powers = universal::powers(cpu, point, words.len() - 1);
    powers.push(1);
    let digest = universal::hash(cpu, &powers, words);
    let text = |word: u64| hex(&word.to_le_bytes());
    Hashes::Universal(Universal {
        point: text(point),
        words: words.iter().map(|word| text(*word)).collect(),
        digest: text(digest),
    })
}

/// One expansion of Π, and the codes of some rows under it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Projection {
    comment: String,
    /// The seed of the stream that the normals come from.
    seed: Hex,
    /// Rows of Π.
    bits: usize,
    /// Features, the columns of Π.
    dim: usize,
    /// The first entries of Π, row after row.
    first_entries: Vec<Double>,
    /// SHA-256 of all entries as little-endian doubles, row after row.
    sha256: Hex,
    features: Vec<Vec<Double>>,
    /// The code of each row of features. Bit l is `1[Σ_t Π[l,t]·v[t] ≥ 0]`, with products and sums
    /// rounded to double, t ascending. Packed: the first bit is the top bit of the first byte.
    codes: Vec<Hex>,
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
        first_entries: crate::doubles(&pi[..16]),
        sha256: hex(&digest.finalize()),
        features: features.chunks(dim).map(crate::doubles).collect(),
        codes: (0..rows)
            .map(|row| hex(&codes.to_packed(row..row + 1)))
            .collect(),
    }
}

/// The files of this module.
///
/// # Errors
/// Never.
pub fn files() -> Result<Vec<File>, Error> {
    let counting = std::array::from_fn(|i| i as u8);
    let none = Vec::<Nothing>::new;
    let mut all = Vec::new();
    let derivations = vec![
        derivation("no ids", 1, "projection", &[]),
        derivation("two ids", 2, "seal", &[0, 4]),
    ];
    all.extend(crate::files(
        "derivation",
        "docs/spec/conventions.md",
        derivations,
        none(),
    )?);
    let streams = Suite::ALL.map(stream).into();
    all.extend(crate::files(
        "stream",
        "docs/spec/conventions.md; docs/spec/sums.md",
        streams,
        none(),
    )?);
    let hashes = vec![
        blocks("tree", 2),
        blocks("extension", 0),
        blocks("vectors", 0),
        universal(2, &[1 << 63, 0]),
        universal(
            0xc807_0605_0403_0201,
            &[u64::MAX, 0, 0x0123_4567_89ab_cdef, 77],
        ),
    ];
    all.extend(crate::files(
        "hash",
        "docs/spec/transfers.md",
        hashes,
        none(),
    )?);
    let projections = vec![
        projection("seed of zeros", [0; 32], 64, 3, 2),
        projection(
            "odd dimension: pairs of normals cross rows",
            counting,
            101,
            7,
            3,
        ),
        projection("the usual code length", [0xa5; 32], 4096, 64, 2),
    ];
    all.extend(crate::files(
        "projection",
        "docs/spec/codes.md",
        projections,
        none(),
    )?);
    Ok(all)
}
