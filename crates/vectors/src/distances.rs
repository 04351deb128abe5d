//! Vectors of `psm`, `shade` and `phe`: every message of small runs.

use schemars::JsonSchema;
use serde::Serialize;
use undertone::hamming::{Backend, Phe};
use undertone::job::simulation::SimulationError;
use undertone::kdf::Seed;
use undertone::kdf::simulated;
use undertone::kernel::{BitMatrix, Prg};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Aborted, Network, PartyId};
use undertone::setup::seal::KeyPair;
use undertone::simulate::DistanceSimulation;
use undertone::sum::Suite;

use crate::refused::{Change, Refused, refused};
use crate::{Error, File, Hex, hex};
use undertone_tests::kept::Kept;
use undertone_tests::tamper::inside_shown;

/// The input and the messages of a client.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PsmClient {
    rows: usize,
    /// Packed codes. Bit 0 is the top bit of the first byte of a row.
    codes: Hex,
    /// The pair secret of the client and the server, for seals.
    pair_secret: Hex,
    /// The sealed payloads that the client sends, of all attempts, in order.
    messages: Vec<Hex>,
}

/// A whole run of `psm`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Psm {
    comment: String,
    session: Hex,
    /// The common seed, which all clients have and the server does not:
    /// `derive(group seed, "distances")`.
    seed: Hex,
    suite: String,
    bits: usize,
    /// The last attempt.
    attempt: u32,
    /// Numbers of the participants of the last attempt.
    set: Vec<u32>,
    clients: Vec<PsmClient>,
    /// For each pair of participants, in order, the distances row after row.
    distances: Vec<Vec<u16>>,
}

/// A message between two parties.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Sent {
    from: u32,
    to: u32,
    phase: u8,
    payload: Hex,
}

/// A client of a run.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PairClient {
    rows: usize,
    codes: Hex,
    /// The client's own secret.
    secret: Hex,
    /// The pair secret of the client and the server, for seals.
    pair_secret: Hex,
}

/// A whole run of two clients, so m is 2 in the number of chunks ahead of `shade`. There is no
/// setup, so seals count from 0.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PairRun {
    comment: String,
    session: Hex,
    /// The common seed: `derive(group seed, "distances")`.
    seed: Hex,
    bits: usize,
    /// Bits of the keys of `phe`; null for other backends.
    key_bits: Option<usize>,
    /// The cipher of the masks, with `lwe`; null for other backends.
    suite: Option<String>,
    clients: Vec<PairClient>,
    /// The pair secret of the two clients, for seals.
    pair_secret: Hex,
    /// All messages, in the order sent.
    messages: Vec<Sent>,
    /// For each row of the first client, the distances to each row of the second.
    distances: Vec<u16>,
}

/// A run of a backend.
pub(crate) struct Case<'a> {
    pub(crate) comment: &'a str,
    pub(crate) backend: Backend,
    pub(crate) suite: Suite,
    pub(crate) bits: usize,
    pub(crate) rows: &'a [usize],
    pub(crate) leaver: Option<usize>,
    /// Whether the codes of the last client are those of the first, inverted.
    pub(crate) opposite: bool,
}

const SEED: [u8; 32] = [21; 32];
const KEY_BITS: usize = 256;

fn agreed(a: PartyId, b: PartyId) -> Result<Hex, Error> {
    let seed = Seed::from_bytes(SEED);
    let session = simulated::session(&seed);
    let keys = |id| KeyPair::from_seed(&simulated::party(&seed, session, id));
    let secret = keys(a).agree(session, "pair", keys(b).public())?;
    Ok(hex(secret.expose()))
}

impl Case<'_> {
    fn simulation(&self) -> DistanceSimulation<Kept> {
        let mut prg = Prg::new(&[22; 32]);
        let codes = |rows: &usize| {
            let words = (0..rows * self.bits.div_ceil(64)).map(|_| prg.next_u64());
            BitMatrix::from_words(*rows, self.bits, words.collect())
        };
        let mut codes: Vec<BitMatrix> = self.rows.iter().map(codes).collect();
        if self.opposite {
            let last = codes.len() - 1;
            for (row, bit) in
                (0..codes[last].rows()).flat_map(|row| (0..self.bits).map(move |bit| (row, bit)))
            {
                let value = !codes[0].get(row, bit);
                codes[last].set(row, bit, value);
            }
        }
        DistanceSimulation {
            backend: self.backend,
            suite: self.suite,
            phe: Phe::insecure(KEY_BITS),
            codes,
            min_clients: 1,
            sink: Kept::default(),
            seed: Seed::from_bytes(SEED),
        }
    }

    fn refusal(&self, network: Network<'_>) -> Result<Option<Aborted>, Error> {
        match self.simulation().run_over(network) {
            Err(SimulationError::Aborted(aborted)) => Ok(Some(aborted)),
            Err(error) => Err(error.into()),
            Ok(run) => Ok(run.clients.into_iter().find_map(Result::err)),
        }
    }

    fn psm(&self) -> Result<Psm, Error> {
        let simulation = self.simulation();
        let codes = simulation.codes.clone();
        let mut sent = vec![Vec::new(); codes.len()];
        let mut network = Network::new().intercept(|from, _, frame| {
            if let Some(place) = from.index() {
                sent[place].push(hex(&frame[HEADER_LEN..]));
            }
        });
        if let Some(leaver) = self.leaver {
            network = network.leave(PartyId::client(leaver), 1);
        }
        let run = simulation.run_over(network)?;
        let mut clients = Vec::new();
        for ((place, codes), messages) in codes.iter().enumerate().zip(sent) {
            clients.push(PsmClient {
                rows: codes.rows(),
                codes: hex(&codes.to_packed(0..codes.rows())),
                pair_secret: agreed(PartyId::client(place), PartyId::SERVER)?,
                messages,
            });
        }
        let set: Vec<usize> = (0..codes.len())
            .filter(|place| run.collected.remains[*place])
            .collect();
        let mut distances = Vec::new();
        for (at, j) in set.iter().enumerate() {
            for k in &set[at + 1..] {
                let of_pair = |pair: &[usize; 4]| (pair[0], pair[2]) == (*j, *k);
                let kept = run.collected.sink.distances.iter();
                let values = kept.filter(|(pair, _)| of_pair(pair));
                distances.push(values.map(|(_, distance)| *distance).collect());
            }
        }
        let seed = Seed::from_bytes(SEED);
        let session = simulated::session(&seed);
        Ok(Psm {
            comment: self.comment.into(),
            session: hex(&session.0),
            seed: hex(seed.derive(session, "simulated group", &[]).expose()),
            suite: self.suite.to_string(),
            bits: self.bits,
            attempt: self.leaver.is_some().into(),
            set: set.iter().map(|place| *place as u32).collect(),
            clients,
            distances,
        })
    }

    pub(crate) fn pair(&self) -> Result<PairRun, Error> {
        let simulation = self.simulation();
        let codes = simulation.codes.clone();
        let mut messages = Vec::new();
        let network = Network::new().intercept(|from, to, frame| {
            messages.push(Sent {
                from: from.to_wire(),
                to: to.to_wire(),
                phase: frame[4],
                payload: hex(&frame[HEADER_LEN..]),
            });
        });
        let run = simulation.run_over(network)?;
        let seed = Seed::from_bytes(SEED);
        let session = simulated::session(&seed);
        let mut clients = Vec::new();
        for (place, codes) in codes.iter().enumerate() {
            let id = PartyId::client(place);
            clients.push(PairClient {
                rows: codes.rows(),
                codes: hex(&codes.to_packed(0..codes.rows())),
                secret: hex(simulated::party(&seed, session, id).expose()),
                pair_secret: agreed(id, PartyId::SERVER)?,
            });
        }
        Ok(PairRun {
            comment: self.comment.into(),
            session: hex(&session.0),
            seed: hex(seed.derive(session, "simulated group", &[]).expose()),
            bits: self.bits,
            key_bits: (self.backend == Backend::Phe).then_some(KEY_BITS),
            suite: (self.backend == Backend::Lwe).then(|| self.suite.to_string()),
            clients,
            pair_secret: agreed(PartyId::client(0), PartyId::client(1))?,
            messages,
            distances: run.collected.sink.distances.into_values().collect(),
        })
    }
}

/// A false message: a comment, the message, and the change of its payload or of the text inside its
/// seal.
pub(crate) type Bad = (&'static str, (PartyId, PartyId, usize), Change);

pub(crate) fn refusals(
    case: &Case<'_>,
    outside: &[Bad],
    within: &[Bad],
) -> Result<Vec<Refused>, Error> {
    let mut all = Vec::new();
    for (comment, link, change) in outside {
        all.push(refused(comment, 0, *link, *change, |network| {
            case.refusal(network)
        })?);
    }
    for (comment, link, change) in within {
        // The changed text is sealed again. Recording the new payload makes the case like the
        // others.
        let recorded = std::cell::RefCell::new(Vec::new());
        let show = |payload: &[u8]| *recorded.borrow_mut() = payload.to_vec();
        let network = inside_shown(SEED, *link, *change, show)?;
        drop(case.refusal(network)?);
        let payload = recorded.into_inner();
        let put = |m: &mut Vec<u8>| m.clone_from(&payload);
        all.push(refused(comment, 0, *link, put, |network| {
            case.refusal(network)
        })?);
    }
    Ok(all)
}

/// The files of these vectors.
///
/// # Errors
/// Never.
pub fn files() -> Result<Vec<File>, Error> {
    let (server, a, b) = (PartyId::SERVER, PartyId::client(0), PartyId::client(1));
    let case = |comment, suite, bits, rows, leaver| Case {
        comment,
        backend: Backend::Psm,
        suite,
        bits,
        rows,
        leaver,
        opposite: false,
    };
    let first = case(
        "three clients, ChaCha20",
        Suite::ChaCha20,
        12,
        &[2, 1, 3],
        None,
    );
    let cases = vec![
        first.psm()?,
        case("AES, more bits", Suite::Aes128Ctr, 100, &[3, 2], None).psm()?,
        case(
            "client 1 drops out after its masked codes: a second attempt",
            Suite::ChaCha20,
            31,
            &[1, 2, 2],
            Some(1),
        )
        .psm()?,
    ];
    let cut: Change = |m| m.truncate(m.len() - 1);
    let outside: [Bad; 4] = [
        (
            // PSM-6
            "a bit of the masked codes is changed",
            (a, server, 0),
            |m| m[0] ^= 1,
        ),
        ("sealed halves that are cut", (a, server, 1), cut), // PSM-6
        // PSM-3
        ("a set without the client", (server, a, 0), |m| {
            drop(m.drain(..4))
        }),
        ("a set whose last number is cut", (server, a, 0), cut), // PSM-1
    ];
    let within: [Bad; 3] = [
        ("masked codes that are cut", (a, server, 0), cut), // PSM-7
        // PSM-8
        ("halves of distances that are 8 off", (a, server, 2), |m| {
            m.iter_mut().for_each(|byte| *byte ^= 0x88)
        }),
        ("halves with a byte too many", (a, server, 1), |m| m.push(0)), // PSM-7
    ];
    let bad = refusals(&first, &outside, &within)?;
    let mut all = crate::files("psm", "docs/spec/psm.md", cases, bad)?;

    let shade = Case {
        backend: Backend::Shade,
        ..case("two clients", Suite::ChaCha20, 17, &[4, 2], None)
    };
    let outside: [Bad; 6] = [
        // SHADE-2
        ("base transfer points that do not open", (a, b, 0), |m| {
            m[0] ^= 1
        }),
        ("offers that are cut", (a, b, 1), cut), // SHADE-7
        ("offers that are changed", (a, b, 1), |m| m[3] ^= 4), // SHADE-13
        ("a digest that does not open", (a, b, 2), |m| m[0] ^= 1), // SHADE-2
        // SHADE-2
        ("a sealed request of another length", (b, a, 2), |m| {
            drop(m.drain(..8))
        }),
        ("sums that do not open", (b, server, 0), |m| m[5] ^= 1), // DIST-6
    ];
    let within: [Bad; 7] = [
        ("a false digest", (a, b, 2), |m| m[0] ^= 1), // SHADE-13
        ("a digest that is cut", (a, b, 2), cut),     // SHADE-14
        ("trees that are cut", (b, a, 0), cut),       // SHADE-4
        ("corrections that are cut", (b, a, 1), cut), // SHADE-5
        // DIST-9
        (
            "sums about an unknown client, so sums are missing",
            (a, server, 0),
            |m| m[0] = 9,
        ),
        ("sums about the client itself", (a, server, 0), |m| m[0] = 0), // DIST-8
        // SHADE-12
        ("sums that make distances above L", (a, server, 0), |m| {
            m[4] ^= 16
        }),
    ];
    let bad = refusals(&shade, &outside, &within)?;
    let place = "docs/spec/shade.md, docs/spec/transfers.md";
    all.extend(crate::files("shade", place, vec![shade.pair()?], bad)?);

    // 51 slots: two blocks.
    let phe = Case {
        backend: Backend::Phe,
        ..case("two clients", Suite::ChaCha20, 17, &[53, 54], None)
    };
    // PHE-1
    let outside: [Bad; 1] = [("a key that does not open", (a, b, 0), |m| m[0] ^= 1)];
    let within: [Bad; 7] = [
        ("an even modulus", (a, b, 0), |m| m[0] &= 0xfe), // PHE-3
        ("a short modulus", (a, b, 0), |m| m[31] = 0),    // PHE-2
        ("a ciphertext that is zero", (a, b, 2), |m| {
            m[64..128].fill(0)
        }), // PHE-7
        // PHE-7
        ("a ciphertext above N²", (a, b, 2), |m| {
            m[64..128].fill(0xff)
        }),
        ("ciphertexts that are cut", (a, b, 2), cut), // PHE-6
        ("a result that is zero", (b, a, 0), |m| m[..64].fill(0)), // PHE-12
        ("a seed that is cut", (b, server, 0), cut),  // PHE-14
    ];
    let bad = refusals(&phe, &outside, &within)?;
    all.extend(crate::files(
        "phe",
        "docs/spec/phe.md",
        vec![phe.pair()?],
        bad,
    )?);
    Ok(all)
}
