//! Any text inside the seal of any message of `phe`; and any bytes as ciphertexts of a key, or as slots.
#![no_main]

use libfuzzer_sys::fuzz_target;
use num_bigint::BigUint;
use undertone::kernel::BitMatrix;
use undertone::mpc::hamming::{Backend, Phe};
use undertone::mpc::kdf::Seed;
use undertone::mpc::paillier::{PublicKey, Slots};
use undertone::mpc::sum::Suite;
use undertone::mpc::tiles::Discard;
use undertone::party::PartyId;
use undertone::simulate::DistanceSimulation;
use undertone_tests::tamper::inside;

fuzz_target!(|bytes: &[u8]| {
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
    let (a, b) = (PartyId::client(0), PartyId::client(1));
    let links = [(a, b), (b, a), (a, PartyId::SERVER), (b, PartyId::SERVER)];
    let (from, to) = links[usize::from(which & 3)];
    let link = (from, to, usize::from(which >> 2 & 3));
    let network = inside([1; 32], link, |sealed| *sealed = text.to_vec());
    let simulation = DistanceSimulation {
        backend: Backend::Phe,
        suite: Suite::Aes128Ctr,
        phe: Phe::insecure(128),
        codes: vec![BitMatrix::zero(5, 30), BitMatrix::zero(9, 30)],
        min_clients: 2,
        sink: Discard,
        seed: Seed::from_bytes([1; 32]),
    };
    let _ = simulation.run_over(network.expect("keys of a simulation"));
});
