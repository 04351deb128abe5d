//! `phe`: what the owner of the key and the server see, and what the owner would see without noise.

use num_bigint::BigUint;
use undertone::hamming::{Backend, Phe};
use undertone::kdf::Seed;
use undertone::kernel::{BitMatrix, Cpu, hamming};
use undertone::paillier::PublicKey;
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Network, PartyId};
use undertone::setup::seal::Channel;
use undertone::simulate::DistanceSimulation;
use undertone::sum::Suite;
use undertone_tests::kept::Kept;

use super::distances::{SEED, SERVER, party, session};

const OWNER: PartyId = PartyId::client(0);
const EVALUATOR: PartyId = PartyId::client(1);

/// The texts inside the seals of all messages, with sender and receiver.
fn texts(phe: Phe, codes: &[BitMatrix]) -> Vec<(PartyId, PartyId, Vec<u8>)> {
    let ends = [
        (OWNER, EVALUATOR),
        (OWNER, SERVER),
        (EVALUATOR, SERVER),
        (EVALUATOR, OWNER),
    ];
    let mut channels = ends.map(|(from, to)| {
        let channel = Channel::agree(session(), to, &party(to), from, party(from).public());
        channel.unwrap()
    });
    let mut texts = Vec::new();
    let network = Network::new().intercept(|from, to, frame| {
        let at = ends.iter().position(|ends| *ends == (from, to)).unwrap();
        let text = channels[at].open(&frame[HEADER_LEN..]).unwrap();
        texts.push((from, to, text));
    });
    let simulation = DistanceSimulation {
        backend: Backend::Phe,
        suite: Suite::ChaCha20,
        phe,
        codes: codes.to_vec(),
        min_clients: 1,
        sink: Kept::default(),
        seed: Seed::from_bytes(SEED),
    };
    simulation.run_over(network).unwrap();
    texts
}

fn between(texts: &[(PartyId, PartyId, Vec<u8>)], from: PartyId, to: PartyId) -> Vec<&[u8]> {
    let those = texts.iter().filter(|(f, t, _)| (*f, *t) == (from, to));
    those.map(|(_, _, text)| text.as_slice()).collect()
}

/// All that the server receives follows from the distances. It has N, the masks ρ and τ. τ − ρ mod
/// N holds the distances in the slots and nothing else.
#[test]
fn phe_shows_the_server_distances_alone() {
    let (bits, rows) = (200, 40);
    let codes = super::distances::halves().map(|all| {
        let words = (0..rows).flat_map(|row| all.row(row)[..4].iter().copied());
        BitMatrix::from_words(rows, bits, words.collect())
    });
    // Three rows against forty: client 0 is the owner.
    let owned = BitMatrix::from_words(
        3,
        bits,
        (0..3).flat_map(|row| codes[0].row(row).to_vec()).collect(),
    );
    let codes = [owned, codes[1].clone()];
    let texts = texts(Phe::insecure(256), &codes);
    let to_server = between(&texts, OWNER, SERVER);
    let [modulus, tau, _] = to_server[..] else {
        panic!("{} messages", to_server.len());
    };
    let from_evaluator = between(&texts, EVALUATOR, SERVER);
    let [noise, _] = from_evaluator[..] else {
        panic!("{} messages", from_evaluator.len());
    };
    let n = BigUint::from_bytes_le(&modulus[4..]);
    let mut noise = Seed::from_bytes(noise[4..].try_into().unwrap()).prg();
    let mut below_n = || {
        loop {
            let mut bytes = [0; 32];
            noise.fill(&mut bytes);
            let number = BigUint::from_bytes_le(&bytes);
            if number < n {
                return number;
            }
        }
    };
    assert_eq!(tau[4..].len(), 32 * rows);
    for (b, tau) in tau[4..].chunks_exact(32).enumerate() {
        let value = (BigUint::from_bytes_le(tau) + &n - below_n()) % &n;
        let mut distances = [0; 3];
        let all = 0..codes[0].rows();
        hamming::distances(
            Cpu::detect(),
            &codes[1],
            b..b + 1,
            &codes[0],
            all,
            &mut distances,
        );
        let simulated = distances
            .iter()
            .rev()
            .fold(BigUint::ZERO, |sum, d| (sum << 8) + *d);
        assert_eq!(value, simulated, "row {b}");
    }
}

/// What the owner decrypts is uniform, even for the codes furthest from random.
#[test]
fn phe_shows_the_owner_uniform_numbers() {
    let bits = 200;
    let ones = |rows: usize| BitMatrix::from_words(rows, bits, vec![u64::MAX; rows * 4]);
    for codes in [
        [ones(1), ones(4000)],
        [ones(1), BitMatrix::zero(4000, bits)],
    ] {
        let texts = texts(Phe::insecure(256), &codes);
        let to_server = between(&texts, OWNER, SERVER);
        // The first message is N and the last is the end. The highest bits are those of numbers
        // below N, so they are cut.
        let sums = to_server[1..to_server.len() - 1].iter();
        let tau: Vec<u8> = sums
            .flat_map(|text| text[4..].chunks_exact(32).flat_map(|x| x[..28].to_vec()))
            .collect();
        assert_eq!(tau.len(), 28 * 4000);
        super::assert_uniform(&tau, "τ");
    }
}

/// The rows of 12 bits that explain a result. The owner sees N-th powers modulo N, whatever is
/// added to plaintexts.
fn consistent(n: &BigUint, terms: &[BigUint], result: &BigUint) -> Vec<usize> {
    let target = result % n;
    let rows = 0..1usize << (terms.len() - 1);
    let matches = |row: &usize| {
        let set = (0..terms.len() - 1).filter(|l| row >> l & 1 == 1);
        let first = terms[terms.len() - 1].clone() % n;
        set.fold(first, |x, l| x * &terms[l] % n) == target
    };
    rows.filter(matches).collect()
}

/// The owner knows the noise of its ciphertexts and tries all rows.
#[test]
fn without_a_fresh_encryption_of_zero_the_owner_reads_codes() {
    let bits = 12;
    let secret = 0b0110_1001_1101u64;
    let codes = [
        BitMatrix::from_words(1, bits, vec![0b1010_0101_1100]),
        BitMatrix::from_words(1, bits, vec![secret]),
    ];
    let texts = texts(Phe::new(2048).unwrap(), &codes);
    let to_evaluator = between(&texts, OWNER, EVALUATOR);
    // N, the encryptions of zero, and the block.
    let [modulus, _, ciphertexts] = to_evaluator[..] else {
        panic!("{} messages", to_evaluator.len());
    };
    let [result] = between(&texts, EVALUATOR, OWNER)[..] else {
        panic!("one row, one result");
    };
    let n = BigUint::from_bytes_le(modulus);
    let key = PublicKey::new(&n).unwrap();
    let each = ciphertexts.chunks_exact(key.ciphertext_len());
    let terms: Vec<BigUint> = each.map(BigUint::from_bytes_le).collect();
    assert_eq!(terms.len(), bits + 1);

    // The result without noise: only masked.
    let decoded = key.decode(ciphertexts).unwrap();
    let row = BitMatrix::from_words(1, bits + 1, vec![secret | 1 << bits]);
    let mut bare = key.subset_sums(&decoded, &row, 0..1).unwrap();
    let mask = &n - BigUint::from(123_456_789u32);
    key.add_plain(&mut bare, &[mask]).unwrap();
    let mut bytes = Vec::new();
    key.encode(&bare, &mut bytes).unwrap();
    let bare = BigUint::from_bytes_le(&bytes);
    assert_eq!(consistent(&n, &terms, &bare), [secret as usize]);

    let fresh = BigUint::from_bytes_le(result);
    assert_eq!(consistent(&n, &terms, &fresh), [0usize; 0]);
}
