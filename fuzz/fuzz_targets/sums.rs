//! Any payload in the place of any message of a secure sum, with and without signatures.
#![no_main]

use libfuzzer_sys::fuzz_target;
use undertone::mpc::sum::{Rules, Trust};
use undertone::party::{Network, PartyId};
use undertone_tests::sums::{contributions, rules, simulation};
use undertone_tests::tamper::set_payload;

fuzz_target!(|bytes: &[u8]| {
    let [which, payload @ ..] = bytes else {
        return;
    };
    let cheat = PartyId::client(1);
    let (from, to) = match which & 1 {
        0 => (cheat, PartyId::SERVER),
        _ => (PartyId::SERVER, cheat),
    };
    let rows = [1, 2, 0, 1];
    let rules = Rules {
        trust: match which & 2 {
            0 => Trust::SemiHonest,
            _ => Trust::MaliciousServer,
        },
        ..rules(&rows, 2, 1)
    };
    let mut left = usize::from(which >> 2) % 5;
    let network = Network::new().intercept(move |f, t, frame| {
        if (f, t) == (from, to) {
            if left == 0 {
                set_payload(frame, payload);
            }
            left = left.wrapping_sub(1);
        }
    });
    let clients = contributions::<u32>(&rules, &rows, 1);
    let _ = simulation(rules, clients).run_over(network);
});
