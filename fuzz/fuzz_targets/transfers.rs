//! Any payload in the place of any message of transfers, or of `shade`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use undertone::kernel::BitMatrix;
use undertone::mpc::hamming::{Backend, Phe};
use undertone::mpc::kdf::Seed;
use undertone::mpc::ot::{Field, Security};
use undertone::mpc::sum::Suite;
use undertone::mpc::tiles::Discard;
use undertone::party::{Network, Node, PartyId};
use undertone::simulate::{DistanceSimulation, TransferSimulation};
use undertone_tests::tamper::set_payload;

fuzz_target!(|bytes: &[u8]| {
    let [which, payload @ ..] = bytes else {
        return;
    };
    let (a, b) = (PartyId::client(0), PartyId::client(1));
    let links = [(a, b), (b, a), (a, PartyId::SERVER), (b, PartyId::SERVER)];
    let link = links[usize::from(which & 3)];
    let mut left = usize::from(which >> 4);
    let mut network = Network::new().intercept(move |from, to, frame| {
        if (from, to) == link {
            if left == 0 {
                set_payload(frame, payload);
            }
            left = left.wrapping_sub(1);
        }
    });
    let seed = Seed::from_bytes([1; 32]);
    match which & 12 {
        0 | 4 => {
            let simulation = TransferSimulation {
                field: Field::new(2).expect("from 1 to 8"),
                security: match which & 4 {
                    0 => Security::SemiHonest,
                    _ => Security::Malicious,
                },
                count: 40_000,
                seed,
            };
            let (mut sender, mut receiver) = simulation.parties(|_| (), |_| ());
            let _ = network.run(&mut [&mut sender as &mut dyn Node, &mut receiver]);
        }
        _ => {
            let simulation = DistanceSimulation {
                backend: Backend::Shade,
                suite: Suite::Aes128Ctr,
                phe: Phe::default(),
                codes: vec![BitMatrix::zero(9, 30), BitMatrix::zero(5, 30)],
                min_clients: 2,
                sink: Discard,
                seed,
            };
            let _ = simulation.run_over(network);
        }
    }
});
