//! Targets that replace a message of a protocol by any payload. The first byte says which message.

use std::sync::Arc;

use num_bigint::BigUint;
use undertone::arrays::Layout;
use undertone::hamming::tiles::Discard;
use undertone::hamming::{Backend, Phe};
use undertone::kdf::Seed;
use undertone::kernel::BitMatrix;
use undertone::label::cells::Cells;
use undertone::label::{Features, Labelling, Params, Rows, Variant};
use undertone::ot::{Field, Security};
use undertone::paillier::{PublicKey, Slots};
use undertone::party::{Network, Node, PartyId};
use undertone::rounds::{Job, Kept, MeanHeader};
use undertone::simulate::{DistanceSimulation, TransferSimulation};
use undertone::sum::{Rules, Suite, Trust};

use crate::network::Means;
use crate::tamper::{inside, set_payload};
use crate::{random_clients, rounds, simulation, sums};

/// A network in which `payload` replaces the payload of message `nth` of a link.
pub(super) fn replacing<'a>(
    (from, to): (PartyId, PartyId),
    nth: usize,
    payload: &'a [u8],
) -> Network<'a> {
    let mut left = nth;
    Network::new().intercept(move |f, t, frame| {
        if (f, t) == (from, to) {
            if left == 0 {
                set_payload(frame, payload);
            }
            left = left.wrapping_sub(1);
        }
    })
}

/// A link between client 1 and the server, in either direction.
pub(super) fn with_server(which: u8) -> (PartyId, PartyId) {
    let cheat = PartyId::client(1);
    match which & 1 {
        0 => (cheat, PartyId::SERVER),
        _ => (PartyId::SERVER, cheat),
    }
}

/// A link between clients 0 and 1, or from one of them to the server.
fn of_two(which: u8) -> (PartyId, PartyId) {
    let (a, b) = (PartyId::client(0), PartyId::client(1));
    [(a, b), (b, a), (a, PartyId::SERVER), (b, PartyId::SERVER)][usize::from(which & 3)]
}

/// Label propagation with `clear` and `sketch`, whose messages after the setup are not sealed, and
/// with `psm`.
pub fn labels(bytes: &[u8]) {
    let [which, payload @ ..] = bytes else {
        return;
    };
    let clients = random_clients(&[5, 4, 6], 40, 1).expect("labels that fit");
    let params = Params {
        bits: 40,
        neighbours: 2,
        min_clients: 2,
        backend: match which >> 6 {
            0 => Backend::Clear,
            1 => Backend::Sketch,
            _ => Backend::Psm,
        },
        variant: match which & 2 {
            0 => Variant::Balanced,
            _ => Variant::Paper,
        },
        ..Params::default()
    };
    let network = replacing(with_server(*which), usize::from(which >> 2) % 16, payload);
    let _ = simulation(params, clients).run_over(network);
}

/// Label propagation with cells: sums, sizes and cells, and what follows from them.
pub fn cells(bytes: &[u8]) {
    let [which, payload @ ..] = bytes else {
        return;
    };
    let client = |rows: usize| {
        let value = |at: usize| ((at * at) % 17) as f64 - 8.2;
        let labels = (0..rows).map(|row| (row == 0).then_some(0)).collect();
        let labelling = Labelling::new(2, labels).expect("labels that fit");
        let features = Features::new(2, (0..2 * rows).map(value).collect());
        (
            Rows::Features(features.expect("features that fit")),
            labelling,
        )
    };
    let params = Params {
        bits: 8,
        neighbours: 2,
        min_clients: 2,
        backend: match which >> 7 {
            0 => Backend::Sketch,
            _ => Backend::Psm,
        },
        cells: Some(Cells {
            cells: 2,
            probes: 1,
            epsilon: 16.0,
        }),
        ..Params::default()
    };
    let network = replacing(with_server(*which), usize::from(which >> 1) % 16, payload);
    let clients = [150, 130, 140].map(client).into();
    let _ = simulation(params, clients).run_over(network);
}

/// Secure sums, with and without signatures.
pub fn sums(bytes: &[u8]) {
    let [which, payload @ ..] = bytes else {
        return;
    };
    let rows = [1, 2, 0, 1];
    let rules = Rules {
        trust: match which & 2 {
            0 => Trust::SemiHonest,
            _ => Trust::MaliciousServer,
        },
        ..sums::rules(&rows, 2, 1)
    };
    let network = replacing(with_server(*which), usize::from(which >> 2) % 5, payload);
    let clients = sums::contributions::<u32>(&rules, &rows, 1);
    let _ = sums::simulation(rules, clients).run_over(network);
}

/// Rounds of means, with and without signatures: the first round, or a second round whose clients
/// lack the first mean. Some inputs are instead read as a layout, as the header of a mean and as a
/// server's kept state.
pub fn rounds(bytes: &[u8]) {
    let [which, payload @ ..] = bytes else {
        return;
    };
    let kit = Means {
        clients: 4,
        rounds: 2,
        values: 3,
    };
    let job = Job {
        trust: match which & 2 {
            0 => Trust::SemiHonest,
            _ => Trust::MaliciousServer,
        },
        ..kit.job(2)
    };
    if which & 0xc0 == 0xc0 {
        codecs(payload, &job);
        return;
    }
    let kept = if which & 0x40 == 0 {
        Kept::default()
    } else {
        let header = MeanHeader {
            round: 1,
            contributors: (0..3).map(PartyId::client).collect(),
            layout: kit.contribution(0, 1).arrays.layout(),
        };
        let header = header.write();
        let mut kept = (header.len() as u64).to_le_bytes().to_vec();
        kept.extend(header);
        kept.extend((1..=4u64).flat_map(|word| (word << 40).to_le_bytes()));
        Kept::read(&kept, &job).expect("a mean that fits")
    };
    let network = replacing(with_server(*which), usize::from(which >> 2) & 15, payload);
    let members = rounds::members(&kit);
    if let Ok(run) = rounds::run(job, &Arc::new(kept), &members, network) {
        for index in [0, 2, 3] {
            if let Some(mean) = rounds::learnt(&run, index) {
                rounds::assert_same(mean, rounds::reported(&run));
            }
        }
    }
}

/// Reads `bytes` as each type. What is read is the same when written again.
fn codecs(bytes: &[u8], job: &Job) {
    if let Ok(layout) = Layout::read(bytes) {
        assert_eq!(layout.write(), bytes);
        assert_eq!(layout.differs(&layout), None);
        if layout.len() < 1 << 16 {
            let filled = layout.fill(std::iter::repeat_n(0.0, layout.len()));
            assert_eq!(filled.map(|arrays| arrays.layout()), Some(layout));
        }
    }
    if let Ok(header) = MeanHeader::read(bytes) {
        assert_eq!(header.write(), bytes);
    }
    if let Ok(kept) = Kept::read(bytes, job) {
        assert_eq!(kept.write(), bytes);
        if let Some(mean) = kept.mean(job) {
            assert_eq!(mean.round, kept.finished());
        }
    }
}

/// Transfers.
pub fn transfers(bytes: &[u8]) {
    let [which, payload @ ..] = bytes else {
        return;
    };
    let simulation = TransferSimulation {
        field: Field::new(2).expect("from 1 to 8"),
        security: match which & 4 {
            0 => Security::SemiHonest,
            _ => Security::Malicious,
        },
        count: 40_000,
        seed: Seed::from_bytes([1; 32]),
    };
    let mut network = replacing(of_two(which & 1), usize::from(which >> 4), payload);
    let (mut sender, mut receiver) = simulation.parties(|_| (), |_| ());
    let _ = network.run(&mut [&mut sender as &mut dyn Node, &mut receiver]);
}

fn distances(backend: Backend, rows: [usize; 2]) -> DistanceSimulation<Discard> {
    DistanceSimulation {
        backend,
        suite: Suite::Aes128Ctr,
        phe: Phe::insecure(128),
        codes: rows.map(|rows| BitMatrix::zero(rows, 30)).into(),
        min_clients: 2,
        sink: Discard,
        seed: Seed::from_bytes([1; 32]),
    }
}

/// `shade` and `psm`. The input replaces a payload, or the text inside a seal.
pub fn shade(bytes: &[u8]) {
    let [which, payload @ ..] = bytes else {
        return;
    };
    let (from, to) = of_two(*which);
    let backend = match which & 8 {
        0 => Backend::Shade,
        _ => Backend::Psm,
    };
    let network = match which & 6 {
        2 | 4 => inside([1; 32], (from, to, usize::from(which >> 4)), |text| {
            *text = payload.to_vec()
        })
        .expect("keys of a simulation"),
        _ => replacing((from, to), usize::from(which >> 4), payload),
    };
    let _ = distances(backend, [9, 5]).run_over(network);
}

/// `lwe`. The input replaces a payload, or the text inside a seal.
pub fn lwe(bytes: &[u8]) {
    let [which, payload @ ..] = bytes else {
        return;
    };
    let (from, to) = of_two(*which);
    let link = (from, to, usize::from(which >> 3 & 3));
    let network = match which & 4 {
        0 => inside([1; 32], link, |text| *text = payload.to_vec()).expect("keys of a simulation"),
        _ => replacing((from, to), link.2, payload),
    };
    let _ = distances(Backend::Lwe, [9, 5]).run_over(network);
}

/// `phe`. The input replaces the text inside the seal of a message, or is read as a modulus and as
/// slots.
pub fn phe(bytes: &[u8]) {
    let [which, text @ ..] = bytes else {
        return;
    };
    if which & 0xc0 == 0xc0 {
        let number = BigUint::from_bytes_le(text);
        let _ = PublicKey::new(&number);
        let slots = Slots::new(2048, u32::from(which & 0x3f) + 1).expect("from 1 to 64 bits");
        if let Ok(values) = slots.unpack(&number, slots.count()) {
            assert_eq!(slots.pack(&values).as_ref(), Ok(&number));
        }
        return;
    }
    let (from, to) = of_two(*which);
    let link = (from, to, usize::from(which >> 2 & 3));
    let network = inside([1; 32], link, |sealed| *sealed = text.to_vec());
    let _ = distances(Backend::Phe, [5, 9]).run_over(network.expect("keys of a simulation"));
}
