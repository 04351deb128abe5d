//! `phe`: numbers of rows and bits around boundaries, slots, and cheaters.

use undertone::hamming::{Backend, OFFLINE, PHASE, Phe};
use undertone::job::simulation::SimulationError;
use undertone::kdf::Seed;
use undertone::kernel::{BitMatrix, Prg};
use undertone::party::{Abort, Aborted, Network, PartyId};
use undertone::simulate::{DistanceRun, DistanceSimulation};
use undertone::sum::Suite;
use undertone_tests::chooser;
use undertone_tests::kept::Kept;
use undertone_tests::tamper::{self, assert_cheated, assert_malformed, tampering};

const SERVER: PartyId = PartyId::SERVER;
const OWNER: PartyId = PartyId::client(0);
const EVALUATOR: PartyId = PartyId::client(1);

/// Bytes of N.
const LEN: usize = 32;

fn random(rows: &[usize], bits: usize) -> Vec<BitMatrix> {
    let mut prg = Prg::new(&[5; 32]);
    let mut client = |rows: &usize| {
        let words = (0..rows * bits.div_ceil(64)).map(|_| prg.next_u64());
        BitMatrix::from_words(*rows, bits, words.collect())
    };
    rows.iter().map(&mut client).collect()
}

fn run_with(
    backend: Backend,
    phe: Phe,
    codes: &[BitMatrix],
    network: Network<'_>,
) -> Result<DistanceRun<Kept>, SimulationError> {
    let simulation = DistanceSimulation {
        backend,
        suite: Suite::Aes128Ctr,
        phe,
        codes: codes.to_vec(),
        min_clients: 1,
        sink: Kept::default(),
        seed: Seed::from_bytes([8; 32]),
    };
    simulation.run_over(network)
}

fn assert_exact(phe: Phe, codes: &[BitMatrix], order: u64) {
    let network = Network::new().choose(chooser(order));
    let ours = run_with(Backend::Phe, phe, codes, network).unwrap();
    let clear = run_with(Backend::Clear, phe, codes, Network::new()).unwrap();
    let rows: Vec<usize> = codes.iter().map(BitMatrix::rows).collect();
    let bits = codes[0].columns();
    assert!(
        ours.collected.sink == clear.collected.sink,
        "{rows:?}, {bits} bits"
    );
}

/// Sizes around blocks, multiples of eight, messages and the evaluator's tiles, and more blocks
/// than are sent ahead.
#[test]
fn shapes_around_boundaries_are_exact() {
    for (rows, bits) in [
        (vec![1, 1], 1),
        // 255 slots of one bit.
        (vec![255, 256], 1),
        // 127 slots of two bits.
        (vec![127, 1], 2),
        (vec![128, 200], 3),
        // 36 slots of seven bits. One to nine blocks.
        (vec![35, 36, 37], 64),
        (vec![72, 73], 127),
        (vec![300, 310], 100),
        // Tiles of 1024 rows.
        (vec![40, 1023], 65),
        (vec![3, 1024], 65),
        (vec![37, 2049], 20),
        // Several messages in a block.
        (vec![2, 3], 65_535),
        (vec![5, 0, 5, 1], 100),
        (vec![0, 0], 8),
    ] {
        assert_exact(Phe::insecure(256), &random(&rows, bits), bits as u64);
    }
}

/// Moduli with lengths around whole bytes, and around rows and tiles of the digits of the
/// arithmetic.
#[test]
fn keys_of_odd_sizes_are_exact() {
    for key_bits in [128, 130, 190, 254, 256, 258, 258 + 260, 1032] {
        assert_exact(Phe::insecure(key_bits), &random(&[40, 20], 90), 1);
    }
}

/// Distances 0 and L next to each other, in every slot. Nothing carries.
#[test]
fn extremes_in_every_slot_are_exact() {
    for bits in [1usize, 2, 3, 7, 8, 63, 64, 127, 128, 255] {
        let slots = 255 / (usize::BITS - bits.leading_zeros()) as usize;
        let rows = slots + slots / 2;
        let words = bits.div_ceil(64);
        let mut owner = vec![0; rows * words];
        // All ones in every other row.
        let odd = owner.chunks_exact_mut(words).skip(1).step_by(2);
        odd.for_each(|row| row.fill(u64::MAX));
        let evaluator = [
            vec![0; rows.div_ceil(2) * words],
            vec![u64::MAX; (rows / 2 + 1) * words],
        ];
        let codes = [
            BitMatrix::from_words(rows, bits, owner),
            BitMatrix::from_words(evaluator.concat().len() / words, bits, evaluator.concat()),
        ];
        assert_exact(Phe::insecure(256), &codes, 1);
    }
}

#[test]
fn keys_of_full_size_are_exact() {
    for bits in [2048, 3072] {
        assert_exact(Phe::new(bits).unwrap(), &random(&[20, 9, 160], 10), 1);
    }
    assert!(Phe::new(1024).is_err());
}

fn aborted(network: Network<'_>) -> Aborted {
    match run_with(
        Backend::Phe,
        Phe::insecure(8 * LEN),
        &random(&[20, 30], 100),
        network,
    ) {
        Err(SimulationError::Aborted(aborted)) => aborted,
        Ok(run) => run.clients.into_iter().find_map(Result::err).unwrap(),
        Err(stalled) => panic!("{stalled}"),
    }
}

#[test]
fn what_is_sealed_cannot_be_changed() {
    // PHE-1: N, encryptions of zero, ciphertexts, results. DIST-6: N, τ and the end; the seed.
    for (from, to, nth, phase) in [
        (OWNER, EVALUATOR, 0, OFFLINE),
        (OWNER, EVALUATOR, 1, OFFLINE),
        (OWNER, EVALUATOR, 2, PHASE),
        (EVALUATOR, OWNER, 0, PHASE),
        (OWNER, SERVER, 0, PHASE),
        (OWNER, SERVER, 1, PHASE),
        (OWNER, SERVER, 2, PHASE),
        (EVALUATOR, SERVER, 0, PHASE),
    ] {
        for change in [
            |m: &mut Vec<u8>| m[3] ^= 1,
            |m: &mut Vec<u8>| m.push(0),
            |m: &mut Vec<u8>| m.clear(),
        ] {
            let aborted = aborted(tampering((from, to, nth), change));
            assert_malformed(&aborted, from, phase);
        }
    }
}

/// A network in which `change` alters the text inside the seal of a message: the sender, the
/// receiver and the number of `link`.
fn inside<'a>(link: (PartyId, PartyId, usize), change: impl Fn(&mut Vec<u8>) + 'a) -> Network<'a> {
    tamper::inside([8; 32], link, change).unwrap()
}

#[test]
fn lengths_inside_the_seals_are_checked() {
    for (from, to, nth, phase, what) in [
        (OWNER, EVALUATOR, 0, OFFLINE, "a modulus of"), // PHE-2
        (OWNER, EVALUATOR, 1, OFFLINE, "encryptions of zero of"), // PHE-4
        (OWNER, EVALUATOR, 2, PHASE, "ciphertexts of"), // PHE-6
        (EVALUATOR, OWNER, 0, PHASE, "results of"),     // PHE-10
        (OWNER, SERVER, 0, PHASE, "a modulus of"),      // PHE-13
        (OWNER, SERVER, 1, PHASE, "sums of"),           // PHE-16
        (EVALUATOR, SERVER, 0, PHASE, "a seed of"),     // PHE-14
    ] {
        for change in [|m: &mut Vec<u8>| m.truncate(8), |m: &mut Vec<u8>| m.push(0)] {
            let aborted = aborted(inside((from, to, nth), change));
            assert_malformed(&aborted, from, phase);
            assert!(aborted.to_string().contains(what), "{aborted}");
        }
    }
}

#[test]
fn moduli_that_make_no_key_are_refused() {
    let modulus =
        |change: &'static dyn Fn(&mut Vec<u8>)| aborted(inside((OWNER, EVALUATOR, 0), change));
    // PHE-2
    let short = modulus(&|m| m[LEN - 1] = 0);
    assert_malformed(&short, OWNER, OFFLINE);
    // PHE-3
    let even = modulus(&|m| m[0] &= !1);
    assert_cheated(&even, OWNER, OFFLINE, "divisible by 2");
    // 2^255 + 95 is prime.
    let prime = modulus(&|m| {
        m.fill(0);
        m[0] = 95;
        m[LEN - 1] = 0x80;
    });
    assert_cheated(&prime, OWNER, OFFLINE, "a prime, or a power of one");
}

/// A sender of a multiple of a factor of N in place of a ciphertext would see a bit through all
/// masks. No party accepts such a number.
#[test]
fn ciphertexts_that_are_none_are_refused() {
    // PHE-5
    let above = |m: &mut Vec<u8>| m[..LEN].fill(0xff);
    let refused = aborted(inside((OWNER, EVALUATOR, 1), above));
    assert_malformed(&refused, OWNER, OFFLINE);
    // PHE-7, PHE-12
    for (from, to, nth) in [(OWNER, EVALUATOR, 2), (EVALUATOR, OWNER, 0)] {
        for (byte, what) in [(0, "shares a factor"), (0xff, "not below N²")] {
            let change = |m: &mut Vec<u8>| m[5 * 2 * LEN..6 * 2 * LEN].fill(byte);
            let aborted = aborted(inside((from, to, nth), change));
            assert_malformed(&aborted, from, PHASE);
            assert!(aborted.to_string().contains(what), "{aborted}");
        }
    }
}

#[test]
fn the_server_checks_what_it_is_told() {
    // PHE-18
    let too_large = aborted(inside((OWNER, SERVER, 1), |m| m[4..4 + LEN].fill(0xff)));
    assert_malformed(&too_large, OWNER, PHASE);
    assert!(too_large.to_string().contains("not below its modulus"));
    // PHE-19: another seed, and other sums. Numbers have 7 bits, and distances are at most 100.
    for network in [
        inside((EVALUATOR, SERVER, 0), |m| m[4] ^= 1),
        inside((OWNER, SERVER, 1), |m| {
            Prg::new(&[3; 32]).fill(&mut m[4..LEN])
        }),
    ] {
        let aborted = aborted(network);
        let Abort::Contradicted { fault, .. } = &aborted.cause else {
            panic!("{aborted}");
        };
        assert!(fault.contains("above 100 bits"), "{fault}");
    }
    // DIST-9: an early end. DIST-8: sums about the client itself.
    let early = |m: &mut Vec<u8>| *m = SERVER.to_wire().to_le_bytes().to_vec();
    let mine = |m: &mut Vec<u8>| m[..4].copy_from_slice(&OWNER.to_wire().to_le_bytes());
    let early = aborted(inside((OWNER, SERVER, 1), early));
    assert!(early.to_string().contains("sums are missing"), "{early}");
    assert_malformed(&aborted(inside((OWNER, SERVER, 1), mine)), OWNER, PHASE);
}
