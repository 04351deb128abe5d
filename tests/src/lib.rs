//! Helpers that the end-to-end tests share.
#![forbid(unsafe_code)]

pub mod as_written;
pub mod cotrain;
pub mod fedgraph;
pub mod fuzz;
pub mod kept;
pub mod label;
pub mod lengths;
pub mod network;
pub mod offers;
pub mod pssl;
pub mod records;
pub mod reference;
pub mod rounds;
pub mod scaling;
pub mod sums;
pub mod tamper;
pub mod train;

use std::path::{Path, PathBuf};

use undertone::data::{self, Dataset, Kind};
use undertone::job::simulation::credentials;
use undertone::kdf::Seed;
use undertone::kernel::{BitMatrix, Prg};
use undertone::label::{Codes, InputError, Labelling, Params, Rows};
use undertone::party::{Abort, Aborted, PartyId, SessionId};
use undertone::setup::group::PHASE;
use undertone::setup::identity::Credentials;
use undertone::sum::Trust;

/// Whether tests of many runs take them all. Else they take some, in a fraction of the time.
/// `.ci/long points` takes all.
fn is_thorough() -> bool {
    std::env::var_os("UNDERTONE_ALL_POINTS").is_some()
}

/// Points of a run at which a test lets something go wrong: all of them, or every fourth, and the
/// last.
pub fn points(all: usize) -> impl Iterator<Item = usize> {
    let step = if is_thorough() { 1 } else { 4 };
    let last = all.checked_sub(1).filter(|last| last % step != 0);
    (0..all).step_by(step).chain(last)
}

/// The points of a run at which something of each kind comes first, or all of them.
pub fn firsts<K: PartialEq>(kinds: &[K]) -> impl Iterator<Item = usize> {
    let is_first = |at: &usize| is_thorough() || !kinds[..*at].contains(&kinds[*at]);
    (0..kinds.len()).filter(is_first)
}

/// How many random cases a test tries: `all` of them, or a fourth.
pub fn cases(all: u32) -> u32 {
    if is_thorough() { all } else { all.div_ceil(4) }
}

/// A path relative to the project's root.
pub fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The data set `name` in `data/`.
///
/// # Errors
/// When the file cannot be read.
pub fn dataset(name: &str) -> Result<Dataset, data::DataError> {
    data::load(&root(&format!("data/{name}.npz")), Kind::Features, None)
}

/// A chooser for [`Network::choose`](undertone::party::Network::choose).
pub fn chooser(seed: u64) -> impl FnMut(usize) -> usize {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut prg = Prg::new(&bytes);
    move |count| (prg.next_u64() % count as u64) as usize
}

/// Clients with random codes in two clusters; one row in four is labelled.
///
/// # Errors
/// Never, for these labels.
pub fn random_clients(
    rows: &[usize],
    bits: usize,
    seed: u8,
) -> Result<Vec<(Rows, Labelling)>, InputError> {
    let mut prg = Prg::new(&[seed; 32]);
    let mut centre = || {
        (0..bits.div_ceil(64))
            .map(|_| prg.next_u64())
            .collect::<Vec<_>>()
    };
    let centres = [centre(), centre()];
    let client = |rows: &usize| {
        let mut words = Vec::new();
        let mut labels = Vec::new();
        for row in 0..*rows {
            let class = usize::from(prg.next_u64() % 2 == 1);
            // An eighth of the bits differ from the centre.
            words.extend(
                centres[class]
                    .iter()
                    .map(|word| word ^ (prg.next_u64() & prg.next_u64() & prg.next_u64())),
            );
            labels.push((row % 4 == 0).then_some(class as u16));
        }
        let codes = Codes::from_bits(BitMatrix::from_words(*rows, bits, words));
        Ok((Rows::Codes(codes), Labelling::new(2, labels)?))
    };
    rows.iter().map(client).collect()
}

/// A simulation with a fixed seed.
pub fn simulation(params: Params, clients: Vec<(Rows, Labelling)>) -> label::Simulation {
    label::Simulation {
        params,
        clients,
        seed: Seed::from_bytes([5; 32]),
    }
}

/// An identity for each of `ids`, if `trust` asks for them.
///
/// # Errors
/// Never, for the identities of a simulation.
fn identities(
    trust: Trust,
    seed: &Seed,
    session: SessionId,
    ids: &[PartyId],
) -> Result<std::vec::IntoIter<Credentials>, Aborted> {
    let made = match trust {
        Trust::SemiHonest => Vec::new(),
        Trust::MaliciousServer => credentials(seed, session, ids).map_err(|error| Aborted {
            party: error.who,
            phase: PHASE,
            cause: Abort::Misuse(error.to_string()),
        })?,
    };
    Ok(made.into_iter())
}
