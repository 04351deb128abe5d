//! `shade`: numbers of rows and bits around boundaries, and cheaters.

use undertone::hamming::{Backend, OFFLINE, PHASE, Phe};
use undertone::job::simulation::SimulationError;
use undertone::kdf::Seed;
use undertone::kernel::{BitMatrix, Prg};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Abort, Aborted, Network, PartyId};
use undertone::setup::seal::TAG_LEN;
use undertone::simulate::{DistanceRun, DistanceSimulation};
use undertone::sum::Suite;
use undertone_tests::chooser;
use undertone_tests::kept::Kept;
use undertone_tests::tamper::{self, assert_malformed, tampering};

const SERVER: PartyId = PartyId::SERVER;
const SENDER: PartyId = PartyId::client(1);
const RECEIVER: PartyId = PartyId::client(0);

fn random(rows: &[usize], bits: usize) -> Vec<BitMatrix> {
    let mut prg = Prg::new(&[5; 32]);
    let mut client = |rows: &usize| {
        let words = (0..rows * bits.div_ceil(64)).map(|_| prg.next_u64());
        BitMatrix::from_words(*rows, bits, words.collect())
    };
    rows.iter().map(&mut client).collect()
}

fn run(
    backend: Backend,
    codes: &[BitMatrix],
    network: Network<'_>,
) -> Result<DistanceRun<Kept>, SimulationError> {
    let simulation = DistanceSimulation {
        backend,
        suite: Suite::Aes128Ctr,
        phe: Phe::insecure(256),
        codes: codes.to_vec(),
        min_clients: 1,
        sink: Kept::default(),
        seed: Seed::from_bytes([8; 32]),
    };
    simulation.run_over(network)
}

/// Sizes around tiles, groups, registers, chunks and messages, and more transfers than are made
/// ahead.
#[test]
fn shapes_around_powers_of_two_are_exact() {
    for (rows, bits) in [
        (vec![1, 1], 1),
        (vec![1023, 1], 65),
        (vec![1025, 3], 31),
        (vec![3, 1024], 16),
        (vec![33, 65], 2047),
        (vec![33, 65], 2048),
        (vec![17, 16], 2049),
        (vec![2, 3], 65_535),
        (vec![40, 50, 60], 4096),
        (vec![600, 20], 4100),
        (vec![5, 0, 5, 1], 100),
        (vec![0, 0], 8),
        // Nine clients: more chunks than are made ahead. Several messages of corrections.
        (vec![9, 10, 0, 0, 0, 0, 0, 0, 0], 65_535),
        (vec![20, 21], 65_535),
    ] {
        let codes = random(&rows, bits);
        let network = Network::new().choose(chooser(bits as u64));
        let (shade, clear) = (
            run(Backend::Shade, &codes, network).unwrap(),
            run(Backend::Clear, &codes, Network::new()).unwrap(),
        );
        assert!(
            shade.collected.sink == clear.collected.sink,
            "{rows:?}, {bits} bits"
        );
    }
}

/// A run in which `change` alters one payload.
fn tampered(
    link: (PartyId, PartyId, usize),
    change: &dyn Fn(&mut Vec<u8>),
) -> Result<Kept, Aborted> {
    let codes = random(&[20, 30], 100);
    match run(Backend::Shade, &codes, tampering(link, change)) {
        Ok(run) => match run.clients.into_iter().find_map(Result::err) {
            Some(aborted) => Err(aborted),
            None => Ok(run.collected.sink),
        },
        Err(SimulationError::Aborted(aborted)) => Err(aborted),
        Err(stalled) => panic!("{stalled}"),
    }
}

#[test]
fn what_is_sealed_cannot_be_changed() {
    // SHADE-2: points, a digest; reply and trees, corrections, a request. DIST-6: sums of both, the
    // end.
    for (from, to, nth, phase) in [
        (SENDER, RECEIVER, 0, OFFLINE),
        (SENDER, RECEIVER, 2, PHASE),
        (RECEIVER, SENDER, 0, OFFLINE),
        (RECEIVER, SENDER, 1, OFFLINE),
        (RECEIVER, SENDER, 2, PHASE),
        (SENDER, SERVER, 0, PHASE),
        (RECEIVER, SERVER, 0, PHASE),
        (RECEIVER, SERVER, 1, PHASE),
    ] {
        for change in [
            |m: &mut Vec<u8>| m[3] ^= 1,
            |m: &mut Vec<u8>| m.push(0),
            |m: &mut Vec<u8>| m.clear(),
        ] {
            let codes = random(&[20, 30], 100);
            let network = tampering((from, to, nth), change);
            let aborted = match run(Backend::Shade, &codes, network) {
                Err(SimulationError::Aborted(aborted)) => aborted,
                Ok(run) => run.clients.into_iter().find_map(Result::err).unwrap(),
                Err(stalled) => panic!("{stalled}"),
            };
            assert_malformed(&aborted, from, phase);
        }
    }
}

// SHADE-7
#[test]
fn offers_of_the_wrong_length_are_refused() {
    for change in [
        Vec::clear as fn(&mut Vec<u8>),
        |m| m.push(0),
        |m| m.truncate(64),
    ] {
        let aborted = tampered((SENDER, RECEIVER, 1), &change).unwrap_err();
        assert_malformed(&aborted, SENDER, PHASE);
        assert!(aborted.to_string().contains("an offer of"), "{aborted}");
    }
}

/// Asserts that the receiver refuses the offers of a tile, and blames the server or the sender.
fn assert_changed(aborted: &Aborted) {
    let Abort::Contradicted {
        first,
        second,
        fault,
    } = &aborted.cause
    else {
        panic!("{aborted}");
    };
    assert_eq!((*first, *second, aborted.phase), (SERVER, SENDER, PHASE));
    assert!(fault.contains("offers were changed"), "{fault}");
}

// SHADE-13
#[test]
fn offers_and_digests_that_do_not_fit_are_refused() {
    let aborted = tampered((SENDER, RECEIVER, 1), &|m| m[5] ^= 1).unwrap_err();
    assert_changed(&aborted);
    let codes = random(&[20, 30], 100);
    // A false digest; and a request with another key than the receiver's.
    for (link, change) in [
        (
            (SENDER, RECEIVER, 2),
            (|m| m[15] ^= 0x80) as fn(&mut Vec<u8>),
        ),
        ((RECEIVER, SENDER, 2), |m| {
            *m.last_mut().unwrap() ^= 1;
        }),
    ] {
        let aborted = match run(Backend::Shade, &codes, inside(link, change)) {
            Err(SimulationError::Aborted(aborted)) => aborted,
            Ok(run) => run.clients.into_iter().find_map(Result::err).unwrap(),
            Err(stalled) => panic!("{stalled}"),
        };
        assert_changed(&aborted);
    }
}

/// A network in which `change` alters the text inside the seal of a message: the sender, the
/// receiver and the number of `link`.
fn inside<'a>(link: (PartyId, PartyId, usize), change: impl Fn(&mut Vec<u8>) + 'a) -> Network<'a> {
    tamper::inside([8; 32], link, change).unwrap()
}

#[test]
fn what_is_inside_the_seals_is_checked() {
    let codes = random(&[20, 30], 100);
    let aborted = |network| match run(Backend::Shade, &codes, network) {
        Err(SimulationError::Aborted(aborted)) => aborted,
        Ok(run) => run.clients.into_iter().find_map(Result::err).unwrap(),
        Err(stalled) => panic!("{stalled}"),
    };
    // SHADE-3, SHADE-4, SHADE-5, SHADE-6, SHADE-14, SHADE-9
    for (from, to, nth, phase, what) in [
        (SENDER, RECEIVER, 0, OFFLINE, "base transfer points"),
        (RECEIVER, SENDER, 0, OFFLINE, "the setup"),
        (RECEIVER, SENDER, 1, OFFLINE, "corrections"),
        (RECEIVER, SENDER, 2, PHASE, "a request"),
        (SENDER, RECEIVER, 2, PHASE, "a digest of"),
        (SENDER, SERVER, 0, PHASE, "sums of"),
    ] {
        for change in [|m: &mut Vec<u8>| m.truncate(8), |m: &mut Vec<u8>| m.push(0)] {
            let aborted = aborted(inside((from, to, nth), change));
            assert_malformed(&aborted, from, phase);
            assert!(aborted.to_string().contains(what), "{aborted}");
        }
    }
    // SHADE-3: not a point.
    let aborted_ = aborted(inside((SENDER, RECEIVER, 0), |m| m[..32].fill(0xff)));
    assert_malformed(&aborted_, SENDER, OFFLINE);
    // DIST-7: too short for the number of a peer.
    let short = aborted(inside((SENDER, SERVER, 0), |m| m.truncate(3)));
    assert_malformed(&short, SENDER, PHASE);
    assert!(short.to_string().contains("a part of 3 bytes"), "{short}");
    // DIST-8: sums about the client itself.
    let mine = |m: &mut Vec<u8>| m[..4].copy_from_slice(&SENDER.to_wire().to_le_bytes());
    let aborted_ = aborted(inside((SENDER, SERVER, 0), mine));
    assert_malformed(&aborted_, SENDER, PHASE);
    // DIST-9: an early end, and sums about an unknown client.
    let early = |m: &mut Vec<u8>| *m = SERVER.to_wire().to_le_bytes().to_vec();
    let unknown = |m: &mut Vec<u8>| m[..4].copy_from_slice(&[9, 0, 0, 0]);
    for network in [
        inside((SENDER, SERVER, 0), early),
        inside((SENDER, SERVER, 0), unknown),
    ] {
        let aborted_ = aborted(network);
        assert!(
            matches!(aborted_.cause, Abort::Contradicted { .. }),
            "{aborted_}"
        );
        assert!(
            aborted_.to_string().contains("sums are missing"),
            "{aborted_}"
        );
    }
    // SHADE-12: random sums. Numbers have 7 bits, and distances are at most 100.
    let noise = |m: &mut Vec<u8>| Prg::new(&[3; 32]).fill(&mut m[4..]);
    let aborted_ = aborted(inside((RECEIVER, SERVER, 0), noise));
    let Abort::Contradicted { fault, .. } = &aborted_.cause else {
        panic!("{aborted_}");
    };
    assert!(fault.contains("above 100 bits"), "{fault}");
}

#[test]
fn what_is_not_possible_is_refused() {
    for bits in [0, 65_536] {
        let codes = [BitMatrix::zero(1, bits), BitMatrix::zero(1, bits)];
        let error = run(Backend::Shade, &codes, Network::new()).unwrap_err();
        assert!(error.to_string().contains("1 to 65535"), "{error}");
    }
    // SHADE-1
    let codes = [BitMatrix::zero(65_537, 1), BitMatrix::zero(1, 1)];
    let error = run(Backend::Shade, &codes, Network::new()).unwrap_err();
    assert!(error.to_string().contains("at most 65536"), "{error}");
}

/// Two runs with the same seed send the same messages. With different seeds every message differs.
#[test]
fn a_seed_fixes_the_transcript() {
    let codes = random(&[20, 30], 100);
    let transcript = |seed: u8| {
        let mut frames = Vec::new();
        let simulation = DistanceSimulation {
            backend: Backend::Shade,
            suite: Suite::Aes128Ctr,
            phe: Phe::insecure(256),
            codes: codes.clone(),
            min_clients: 1,
            sink: Kept::default(),
            seed: Seed::from_bytes([seed; 32]),
        };
        let network =
            Network::new().intercept(|_, _, frame| frames.push(frame[HEADER_LEN..].to_vec()));
        simulation.run_over(network).unwrap();
        frames
    };
    let (one, again, other) = (transcript(1), transcript(1), transcript(2));
    assert_eq!(one, again);
    assert_eq!(one.len(), other.len());
    for (one, other) in one.iter().zip(&other) {
        assert_eq!(one.len(), other.len());
        assert!(one.len() < TAG_LEN || one != other);
    }
}
