//! `lwe`: what the server sees, and what the two ends of a pair see of each other.

use undertone::hamming::{Backend, Phe};
use undertone::kdf::Seed;
use undertone::kernel::mask::{Op, Stream};
use undertone::kernel::{BitMatrix, pack};
use undertone::lwe::Params;
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Network, PartyId, SessionId};
use undertone::setup::seal::{Broadcast, Channel};
use undertone::simulate::{DistanceRun, DistanceSimulation};
use undertone::sum::Suite;
use undertone_tests::kept::Kept;

use super::distances::{SEED, SERVER, halves, party, session};

const ROWS: usize = 60;
const BITS: usize = 4080;
const EVALUATOR: PartyId = PartyId::client(0);
const OWNER: PartyId = PartyId::client(1);

fn run(codes: &[BitMatrix], seed: [u8; 32], network: Network<'_>) -> DistanceRun<Kept> {
    let simulation = DistanceSimulation {
        backend: Backend::Lwe,
        suite: Suite::ChaCha20,
        phe: Phe::insecure(256),
        codes: codes.to_vec(),
        min_clients: 1,
        sink: Kept::default(),
        seed: Seed::from_bytes(seed),
    };
    simulation.run_over(network).unwrap()
}

/// The codes furthest from random: all ones, and all zeros.
fn extremes() -> [BitMatrix; 2] {
    let ones = BitMatrix::from_words(ROWS, BITS, vec![u64::MAX; ROWS * BITS.div_ceil(64)]);
    [ones, BitMatrix::zero(ROWS, BITS)]
}

fn cut(codes: BitMatrix) -> BitMatrix {
    let words = (0..codes.rows()).flat_map(|row| codes.row(row)[..BITS.div_ceil(64)].to_vec());
    BitMatrix::from_words(codes.rows(), BITS, words.collect())
}

/// What each party opens of what it receives.
#[derive(Default)]
struct Opened {
    seed: Vec<u8>,
    parities: Vec<Vec<u8>>,
    masked: Vec<u16>,
    keys: Vec<u8>,
    headers: Vec<u8>,
    answers: Vec<u8>,
}

fn opened(codes: &[BitMatrix]) -> (Opened, Kept) {
    let channel =
        |from, to| Channel::agree(session(), to, &party(to), from, party(from).public()).unwrap();
    let common = Seed::from_bytes(SEED).derive(session(), "simulated group", &[]);
    let shared = |purpose, from: PartyId, ids: &[u32]| {
        Broadcast::new(session(), &common.derive(session(), purpose, ids), from)
    };
    let mut to_server = [EVALUATOR, OWNER].map(|from| channel(from, SERVER));
    let mut answers = channel(EVALUATOR, OWNER);
    let keys = shared("lwe keys", OWNER, &[1]);
    let headers = shared("lwe headers", EVALUATOR, &[0, 0]);
    let mut messages = 0;
    let mut seen = Opened::default();
    let mut parts = 0;
    let network = Network::new().intercept(|from, to, frame| {
        let payload = &frame[HEADER_LEN..];
        if to == SERVER {
            let text = to_server[from.index().unwrap()].open(payload).unwrap();
            let part = &text[4..];
            match (from, part.len()) {
                (_, 0) => {}
                (EVALUATOR, _) => {
                    seen.seed = part[..32].to_vec();
                    seen.parities.push(part[32..].to_vec());
                }
                (_, _) if parts == 0 => {
                    seen.parities.push(part.to_vec());
                    parts += 1;
                }
                (_, _) => {
                    let mut values = vec![0; ROWS * ROWS];
                    pack::unpack(12, part, &mut values);
                    seen.masked = values;
                }
            }
        } else if from == OWNER {
            if let Ok(text) = keys.open(messages, payload) {
                messages += 1;
                seen.keys.extend(text);
            }
        } else if let Ok(text) = answers.open(payload) {
            // Questions are empty. The last byte is the bit.
            seen.answers.extend(&text[..text.len().saturating_sub(1)]);
        } else {
            seen.headers.extend(headers.open(0, payload).unwrap());
        }
    });
    let kept = run(codes, SEED, network).collected.sink;
    (seen, kept)
}

/// Numbers below t as bytes.
fn as_bytes(values: &[u16], t: u64) -> Vec<u8> {
    values
        .iter()
        .map(|value| (u64::from(*value) * 256 / t) as u8)
        .collect()
}

/// The masks are uniform, and a masked distance is the mask plus the distance. So all that the
/// server receives follows from the distances. So does all that the key owner receives: masked
/// distances are uniform to it, and so are headers and answers. Keys are uniform to the evaluator.
#[test]
fn lwe_shows_the_server_distances_alone_and_clients_nothing() {
    let params = Params::of(BITS).unwrap();
    for codes in [halves().map(cut), extremes()] {
        let (seen, kept) = opened(&codes);
        let mut words = vec![0u64; 2 * ROWS * ROWS];
        let seed: [u8; 32] = seen.seed.clone().try_into().unwrap();
        Stream::new(Suite::ChaCha20, &seed).apply(0, Op::Add, &mut words);
        let masks: Vec<u16> = words
            .chunks(2)
            .map(|two| {
                let number = u128::from(two[1]) << 64 | u128::from(two[0]);
                let t = u128::from(params.t);
                let low = (number & u128::from(u64::MAX)) * t;
                let high = (number >> 64) * t + (low >> 64);
                (high >> 64) as u16
            })
            .collect();
        for ([_, i, _, r], distance) in &kept.distances {
            let at = i * ROWS + r;
            let simulated = (u64::from(masks[at]) + u64::from(*distance)) % params.t;
            assert_eq!(u64::from(seen.masked[at]), simulated);
            let bit = |of: &[u8], row: usize| of[row / 8] >> (row % 8) & 1;
            let parity = bit(&seen.parities[0], *i) ^ bit(&seen.parities[1], *r);
            assert_eq!(u16::from(parity), distance & 1);
        }
        super::assert_uniform(&as_bytes(&masks, params.t), "masks");
        super::assert_uniform(&as_bytes(&seen.masked, params.t), "masked distances");
        super::assert_uniform(&seen.headers, "headers");
        super::assert_uniform(&seen.answers, "answers");
        super::assert_uniform(&seen.keys, "keys");
    }
}

/// The bit of a pair hides the parities: for the same codes the server sees them as they are in
/// some runs, and inverted in others.
#[test]
fn parities_are_those_of_distances_alone() {
    let codes = extremes();
    let mut seen = [0; 2];
    for byte in 0..32 {
        let seed = [byte; 32];
        let session = Seed::from_bytes(seed).derive(SessionId([0; 32]), "simulated session", &[]);
        let session = SessionId(*session.expose());
        let key = |id: PartyId| {
            undertone::setup::seal::KeyPair::from_seed(&undertone::kdf::simulated::party(
                &Seed::from_bytes(seed),
                session,
                id,
            ))
        };
        let public = key(EVALUATOR).public();
        let mut channel = Channel::agree(session, SERVER, &key(SERVER), EVALUATOR, public).unwrap();
        let mut first = None;
        let network = Network::new().intercept(|from, to, frame| {
            if (from, to) == (EVALUATOR, SERVER) && first.is_none() {
                first = Some(channel.open(&frame[HEADER_LEN..]).unwrap()[36]);
            }
        });
        run(&codes, seed, network);
        let byte = first.unwrap();
        assert!([0, 0xff].contains(&byte), "{byte:x}");
        seen[usize::from(byte & 1)] += 1;
    }
    assert!(seen.iter().all(|count| *count >= 4), "{seen:?}");
}
