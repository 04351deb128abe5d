//! `lwe`: what the server sees, and what the two ends of a pair see of each other.

use undertone::hamming::{Backend, Phe};
use undertone::kdf::Seed;
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
    /// Of the evaluator and of the key owner.
    parities: [Vec<u8>; 2],
    answers: Vec<u64>,
    openings: Vec<u64>,
    keys: Vec<u8>,
    headers: Vec<u8>,
    /// Bytes of all else that clients receive of clients: the start, and questions.
    rest: usize,
}

fn opened(codes: &[BitMatrix]) -> (Opened, Kept) {
    let params = Params::of(BITS).unwrap();
    let channel =
        |from, to| Channel::agree(session(), to, &party(to), from, party(from).public()).unwrap();
    let common = Seed::from_bytes(SEED).derive(session(), "simulated group", &[]);
    let shared = |purpose, from: PartyId, ids: &[u32]| {
        Broadcast::new(session(), &common.derive(session(), purpose, ids), from)
    };
    let mut to_server = [EVALUATOR, OWNER].map(|from| channel(from, SERVER));
    let keys = shared("lwe keys", OWNER, &[1]);
    let headers = shared("lwe headers", EVALUATOR, &[0, 0]);
    let mut messages = 0;
    let mut seen = Opened::default();
    let network = Network::new().intercept(|from, to, frame| {
        let payload = &frame[HEADER_LEN..];
        let place = from.index().unwrap();
        if to == SERVER {
            let text = to_server[place].open(payload).unwrap();
            let part = &text[4..];
            if part.is_empty() {
                return;
            }
            let (parities, numbers) = part.split_at(ROWS.div_ceil(8));
            seen.parities[place] = parities.to_vec();
            let to = if from == EVALUATOR {
                &mut seen.answers
            } else {
                &mut seen.openings
            };
            for row in numbers.chunks(params.answer_len(ROWS)) {
                let mut values = vec![0; ROWS];
                pack::unpack_words(params.v, row, &mut values);
                to.extend(values);
            }
        } else if let Ok(text) = keys.open(messages, payload) {
            assert_eq!(from, OWNER);
            messages += 1;
            seen.keys.extend(text);
        } else if let Ok(text) = headers.open(0, payload) {
            assert_eq!(from, EVALUATOR);
            seen.headers.extend(text);
        } else {
            seen.rest += payload.len();
        }
    });
    let kept = run(codes, SEED, network).collected.sink;
    (seen, kept)
}

/// The lowest eight bits of each number.
fn low(values: &[u64]) -> Vec<u8> {
    values.iter().map(|value| *value as u8).collect()
}

/// Answers and openings alone are uniform to the server: only their differences, which hold a
/// distance and noise, tell it anything. So what it receives follows from distances, and so do the
/// parities. Clients receive keys and headers, which are uniform, and nothing else but what they
/// agree on before there is a distance.
#[test]
fn lwe_shows_the_server_distances_alone_and_clients_nothing() {
    let params = Params::of(BITS).unwrap();
    for codes in [halves().map(cut), extremes()] {
        let (seen, kept) = opened(&codes);
        for ([_, i, _, r], distance) in &kept.distances {
            let bit = |of: &[u8], row: usize| of[row / 8] >> (row % 8) & 1;
            let parity = bit(&seen.parities[0], *i) ^ bit(&seen.parities[1], *r);
            assert_eq!(u16::from(parity), distance & 1);
        }
        super::assert_uniform(&low(&seen.answers), "answers");
        super::assert_uniform(&low(&seen.openings), "openings");
        let high = |values: &[u64]| -> Vec<u8> {
            values
                .iter()
                .map(|value| (value >> (params.v - 8)) as u8)
                .collect()
        };
        super::assert_uniform(&high(&seen.answers), "answers");
        super::assert_uniform(&high(&seen.openings), "openings");
        super::assert_uniform(&seen.headers, "headers");
        super::assert_uniform(&seen.keys, "keys");
        // The start has 33 bytes, and four questions have none; seals have 16.
        assert_eq!(seen.rest, 33 + 16 + seals(&seen) * 16);
    }
}

/// The questions of a run: one for each message of keys and one for each tile.
fn seals(seen: &Opened) -> usize {
    let params = Params::of(BITS).unwrap();
    let rows = (1 << 20) / params.key_len();
    assert_eq!(seen.keys.len(), ROWS * params.key_len());
    ROWS.div_ceil(rows) + 1
}

/// The noise of differences has the deviation of the specification, and does not tell the codes:
/// those furthest from random show no more than random ones.
#[test]
fn differences_hold_a_distance_and_noise() {
    let params = Params::of(BITS).unwrap();
    let (modulus, v) = (1u64 << params.q, params.v);
    let mut deviations = Vec::new();
    for codes in [halves().map(cut), extremes()] {
        let (seen, kept) = opened(&codes);
        let noise: Vec<f64> = kept
            .distances
            .iter()
            .map(|([_, i, _, r], distance)| {
                let at = i * ROWS + r;
                let z = seen.answers[at].wrapping_sub(seen.openings[at]) & ((1 << v) - 1);
                // c̄·d in units of the rounding, where c̄·t = 0 modulo Q.
                let u = (u128::from(params.tau()) * u128::from(params.t)) >> params.q;
                let whole = (u as u64 * u64::from(*distance)) % params.t;
                let due = whole as f64 / params.t as f64 * f64::from(1u32 << v);
                let off = z as f64 - due;
                let all = f64::from(1u32 << v);
                let off = off - (off / all).round() * all;
                off * (modulus >> v) as f64
            })
            .collect();
        let squares: f64 = noise.iter().map(|noise| noise * noise).sum();
        let mean: f64 = noise.iter().sum::<f64>() / noise.len() as f64;
        let deviation = (squares / noise.len() as f64).sqrt();
        assert!(
            mean.abs() < 4.0 * deviation / (noise.len() as f64).sqrt(),
            "{mean}"
        );
        let log = deviation.log2();
        assert!((24.5..24.9).contains(&log), "2^{log}");
        deviations.push(deviation);
    }
    let ratio = deviations[0] / deviations[1];
    assert!((0.93..1.07).contains(&ratio), "{ratio}");
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
                first = Some(channel.open(&frame[HEADER_LEN..]).unwrap()[4]);
            }
        });
        run(&codes, seed, network);
        let byte = first.unwrap();
        assert!([0, 0xff].contains(&byte), "{byte:x}");
        seen[usize::from(byte & 1)] += 1;
    }
    assert!(seen.iter().all(|count| *count >= 4), "{seen:?}");
}
