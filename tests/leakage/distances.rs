//! Distances: what the key owner of the published PHE protocol sees, what the server sees with
//! `sketch` and `psm`, and what it sees together with one client.

use num_bigint::BigUint;
use undertone::hamming::{Backend, Phe};
use undertone::kdf::Seed;
use undertone::kernel::mask::{Op, Stream, Suite};
use undertone::kernel::{BitMatrix, Cpu, Prg, hamming, pack};
use undertone::label::{Codes, Features, Rows};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Network, PartyId, SessionId};
use undertone::setup::seal::{Channel, KeyPair};
use undertone::simulate::DistanceSimulation;
use undertone_tests::as_written::phe::{Key, Mask};
use undertone_tests::dataset;
use undertone_tests::kept::Kept;

pub(crate) const SERVER: PartyId = PartyId::SERVER;

/// Codes of the centred digits, and their classes.
pub(crate) fn digits(bits: usize) -> (BitMatrix, Vec<u16>) {
    let data = dataset("digits").unwrap();
    let Rows::Features(features) = &data.rows else {
        panic!("features");
    };
    let (rows, dim) = (features.rows(), features.dim());
    let mean = |column| {
        features
            .values()
            .iter()
            .skip(column)
            .step_by(dim)
            .sum::<f64>()
            / rows as f64
    };
    let means: Vec<f64> = (0..dim).map(mean).collect();
    let centred = features
        .values()
        .iter()
        .enumerate()
        .map(|(at, value)| value - means[at % dim]);
    let features = Features::new(dim, centred.collect()).unwrap();
    let codes = Codes::hash(&features, &Seed::from_bytes([1; 32]), bits);
    let labels = data.labels.iter().map(|label| label.unwrap()).collect();
    (codes.into_bits(), labels)
}

/// The share of the evaluator's rows for which the key owner guesses the class from what it
/// decrypts. It guesses the class of its own rows with the smallest average.
fn predicted(mask: Option<Mask>) -> f64 {
    let (codes, classes) = digits(1024);
    let key = Key::toy();
    let mut prg = Prg::new(&[2; 32]);
    let (own, n) = (1300, codes.rows());
    let mut right = 0;
    for row in own..n {
        let mut distances = vec![0; own];
        hamming::distances(
            Cpu::detect(),
            &codes,
            row..row + 1,
            &codes,
            0..own,
            &mut distances,
        );
        let mut sums = [(0.0, 0.0); 10];
        for (distance, class) in distances.iter().zip(&classes) {
            let mut tau = BigUint::from(*distance);
            if let Some(mask) = mask {
                tau += mask.draw(codes.columns(), &key.n, &mut prg);
            }
            let tau = tau % &key.n;
            let tau = tau.iter_u64_digits().next().unwrap_or(0) as f64;
            let sum = &mut sums[usize::from(*class)];
            *sum = (sum.0 + tau, sum.1 + 1.0);
        }
        let mean = |class: &usize| sums[*class].0 / sums[*class].1;
        let guess = (0..10).min_by(|a, b| mean(a).total_cmp(&mean(b))).unwrap();
        right += usize::from(guess == usize::from(classes[row]));
    }
    right as f64 / (n - own) as f64
}

/// The published mask hides next to nothing: the owner guesses classes nearly as well as without a
/// mask.
#[test]
fn a_mask_below_l_lets_the_key_owner_predict_classes() {
    let open = predicted(None);
    let published = predicted(Some(Mask::BelowL));
    assert!(
        published > 0.7 && published > 0.85 * open,
        "{published} of {open}"
    );
    let ours = predicted(Some(Mask::Uniform));
    assert!(ours < 0.16, "{ours}: chance is 0.1");
}

pub(crate) const SEED: [u8; 32] = [8; 32];

pub(crate) fn session() -> SessionId {
    let id = Seed::from_bytes(SEED).derive(SessionId([0; 32]), "simulated session", &[]);
    SessionId(*id.expose())
}

pub(crate) fn party(id: PartyId) -> KeyPair {
    let seed = Seed::from_bytes(SEED);
    KeyPair::from_seed(&seed.derive(session(), "simulated client", &[id.to_wire()]))
}

/// The server's view: the messages of each client, opened where they are sealed.
fn view(
    backend: Backend,
    codes: &[BitMatrix],
    leaver: Option<(usize, usize)>,
) -> (Vec<Vec<Vec<u8>>>, Kept) {
    let mut view = vec![Vec::new(); codes.len()];
    let channel = |place| {
        let id = PartyId::client(place);
        Channel::agree(session(), SERVER, &party(SERVER), id, party(id).public()).unwrap()
    };
    let mut channels: Vec<Channel> = (0..codes.len()).map(channel).collect();
    let mut network = Network::new().intercept(|from, _, frame| {
        if let Some(place) = from.index() {
            let payload = &frame[HEADER_LEN..];
            view[place].push(match backend {
                Backend::Psm => channels[place].open(payload).unwrap(),
                _ => payload.to_vec(),
            });
        }
    });
    if let Some((place, frames)) = leaver {
        network = network.leave(PartyId::client(place), frames);
    }
    let simulation = DistanceSimulation {
        backend,
        suite: Suite::ChaCha20,
        phe: Phe::insecure(256),
        codes: codes.to_vec(),
        min_clients: 1,
        sink: Kept::default(),
        seed: Seed::from_bytes(SEED),
    };
    let run = simulation.run_over(network).unwrap();
    (view, run.collected.sink)
}

const BITS: usize = 4095;
const WIDTH: u32 = 12;
const ROWS: usize = 60;

pub(crate) fn halves() -> [BitMatrix; 2] {
    let (codes, _) = digits(BITS);
    [0, 1].map(|part: usize| codes.select(&(part * ROWS..(part + 1) * ROWS).collect::<Vec<_>>()))
}

fn numbers(bytes: &[u8], count: usize) -> Vec<u16> {
    let mut out = vec![0; count];
    pack::unpack(WIDTH, bytes, &mut out);
    out
}

fn masked_rows(message: &[u8]) -> Vec<Vec<u16>> {
    let len = pack::packed_len(WIDTH, BITS);
    message.chunks(len).map(|row| numbers(row, BITS)).collect()
}

/// With `sketch` the server has the codes, and so the distances inside a client too.
#[test]
fn sketch_shows_the_server_the_codes() {
    let codes = halves();
    let (view, _) = view(Backend::Sketch, &codes, None);
    for (codes, view) in codes.iter().zip(&view) {
        let seen = BitMatrix::from_packed(ROWS, BITS, &view.concat());
        assert!(seen == *codes);
    }
}

/// With `psm` all that the server sees follows from the distances. Masked codes and first halves
/// are uniform, although the codes are not. Second halves follow from these and the distances.
#[test]
fn psm_shows_the_server_distances_alone() {
    // The codes furthest from random: all ones, and all zeros.
    let ones = BitMatrix::from_words(ROWS, BITS, vec![u64::MAX; ROWS * BITS.div_ceil(64)]);
    for codes in [halves(), [ones, BitMatrix::zero(ROWS, BITS)]] {
        let (view, kept) = view(Backend::Psm, &codes, None);
        let [left, right] = &view[..] else {
            panic!("two clients");
        };
        assert_eq!((left.len(), right.len()), (2, 2));
        super::assert_uniform(&left[0], "masked codes of the first");
        super::assert_uniform(&right[0], "masked codes of the second");
        super::assert_uniform(&left[1], "halves of the first");
        let (x, y) = (masked_rows(&left[0]), masked_rows(&right[0]));
        let (u, v) = (
            numbers(&left[1], ROWS * ROWS),
            numbers(&right[1], ROWS * ROWS),
        );
        for ([_, a, _, i], distance) in kept.distances {
            let products = x[a].iter().zip(&y[i]);
            let product = products.fold(0u16, |sum, (x, y)| sum.wrapping_add(x.wrapping_mul(*y)));
            let simulated = distance
                .wrapping_sub(u[a * ROWS + i])
                .wrapping_add(product.wrapping_mul(2));
            assert_eq!(v[a * ROWS + i], simulated % (1 << WIDTH));
        }
    }
}

/// No mask is used twice over clients, pairs and attempts: differences of masked messages are
/// uniform.
#[test]
fn psm_masks_are_used_once() {
    let zero = || BitMatrix::zero(ROWS, BITS);
    // Client 2 drops out after its masked codes and one tile, so there are two attempts.
    let (view, _) = view(Backend::Psm, &[zero(), zero(), zero()], Some((2, 2)));
    let difference = |a: &[u8], b: &[u8], what: &str| {
        assert_eq!(a.len(), b.len(), "{what}");
        let count = a.len() * 8 / WIDTH as usize;
        let pairs = numbers(a, count).into_iter().zip(numbers(b, count));
        let differences: Vec<u16> = pairs.map(|(a, b)| a.wrapping_sub(b)).collect();
        let mut bytes = Vec::new();
        pack::pack(WIDTH, &differences, &mut bytes);
        super::assert_uniform(&bytes, what);
    };
    // A row of codes has 4095 numbers of 12 bits and half a byte of zeros. The last two bytes are
    // cut.
    let codes = |client: usize, message: usize| {
        let len = pack::packed_len(WIDTH, BITS);
        let rows = view[client][message].chunks(len);
        rows.flat_map(|row| row[..len - 2].to_vec())
            .collect::<Vec<u8>>()
    };
    // Client 0: X', U with 1, U with 2; second attempt X', U with 1. Client 1: X', V, U with 2; X',
    // V.
    assert_eq!([view[0].len(), view[1].len()], [5, 5]);
    difference(&codes(0, 0), &codes(1, 0), "codes of two clients");
    difference(&codes(0, 0), &codes(0, 3), "codes of two attempts");
    difference(&view[0][1], &view[0][2], "halves of two pairs");
    difference(&view[0][1], &view[0][4], "halves of two attempts");
    difference(&view[0][2], &view[1][2], "halves of two clients");
}

/// The server and one client together have every code: any client's group seed removes the masks.
#[test]
fn psm_shows_the_server_and_a_client_every_code() {
    let codes = halves();
    let (view, _) = view(Backend::Psm, &codes, None);
    let group = Seed::from_bytes(SEED).derive(session(), "simulated group", &[]);
    let mask = group.derive(session(), "code mask", &[0, PartyId::client(0).to_wire()]);
    let mut stream = Stream::new(Suite::ChaCha20, mask.expose());
    for (a, mut row) in masked_rows(&view[0][0]).into_iter().enumerate() {
        stream.apply(a * BITS, Op::Subtract, &mut row);
        for (l, bit) in row.into_iter().enumerate() {
            assert_eq!(bit % (1 << WIDTH), u16::from(codes[0].get(a, l)));
        }
    }
}
