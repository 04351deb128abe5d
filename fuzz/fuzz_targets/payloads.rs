//! Any payload in the place of any message of a run.
#![no_main]

use libfuzzer_sys::fuzz_target;
use undertone::party::{Network, PartyId};
use undertone::xclp::{Params, Variant};
use undertone_tests::tamper::set_payload;
use undertone_tests::{random_clients, simulation};

fuzz_target!(|bytes: &[u8]| {
    let [which, payload @ ..] = bytes else {
        return;
    };
    let Ok(clients) = random_clients(&[5, 4, 6], 40, 1) else {
        return;
    };
    let cheat = PartyId::client(1);
    let (from, to) = match which & 1 {
        0 => (cheat, PartyId::SERVER),
        _ => (PartyId::SERVER, cheat),
    };
    let variant = if which & 2 == 0 {
        Variant::Balanced
    } else {
        Variant::Paper
    };
    let mut left = usize::from(which >> 2) % 16;
    let network = Network::new().intercept(move |f, t, frame| {
        if (f, t) == (from, to) {
            if left == 0 {
                set_payload(frame, payload);
            }
            left = left.wrapping_sub(1);
        }
    });
    let params = Params {
        bits: 40,
        neighbours: 2,
        min_clients: 2,
        variant,
        ..Params::default()
    };
    let _ = simulation(params, clients).run_over(network);
});
