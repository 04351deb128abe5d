//! Oblivious transfers between two parties: sizes, orders, cheaters.

use std::sync::Mutex;

use proptest::prelude::*;
use undertone::kdf::Seed;
use undertone::ot::extend::{self, CHUNK, ReceiverBatch, SenderBatch};
use undertone::ot::party::{BASE, EXTENSION};
use undertone::ot::{Field, Security, base};
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Aborted, Ledger, Network, Node};
use undertone::simulate::TransferSimulation;
use undertone::simulate::transfers::{RECEIVER, SENDER};
use undertone_tests::chooser;
use undertone_tests::tamper::{assert_cheated, assert_malformed, tampering};

/// The keys and choices of both parties at the end.
#[derive(Debug, Default, PartialEq)]
struct Held {
    zeros: Vec<u128>,
    ones: Vec<u128>,
    choices: Vec<bool>,
    keys: Vec<u128>,
}

fn simulation(f: usize, security: Security, count: u64, seed: u8) -> TransferSimulation {
    TransferSimulation {
        field: Field::new(f).unwrap(),
        security,
        count,
        seed: Seed::from_bytes([seed; 32]),
    }
}

fn run(
    simulation: TransferSimulation,
    mut network: Network<'_>,
) -> (Held, Result<Ledger, Aborted>, Result<Ledger, Aborted>) {
    let held = Mutex::new(Held::default());
    let sent = |batch: &SenderBatch| {
        let mut both = [Vec::new(), Vec::new()];
        batch.random(&mut both);
        let mut held = held.lock().unwrap();
        held.zeros.extend(&both[0]);
        held.ones.extend(&both[1]);
    };
    let received = |batch: &ReceiverBatch| {
        let (mut keys, choices) = (Vec::new(), batch.choices());
        batch.random(&mut keys);
        let mut held = held.lock().unwrap();
        let bits = (0..keys.len()).map(|t| choices[t / 64] >> (t % 64) & 1 == 1);
        held.choices.extend(bits);
        held.keys.extend(keys);
    };
    let (mut sender, mut receiver) = simulation.parties(sent, received);
    network
        .run(&mut [&mut sender as &mut dyn Node, &mut receiver])
        .unwrap();
    let ends = (
        sender.finish().map(|(_, ledger)| ledger),
        receiver.finish().map(|(_, ledger)| ledger),
    );
    (held.into_inner().unwrap(), ends.0, ends.1)
}

fn assert_right(held: &Held, count: usize) {
    assert_eq!((held.keys.len(), held.zeros.len()), (count, count));
    for (t, key) in held.keys.iter().enumerate() {
        let pair = [held.zeros[t], held.ones[t]];
        assert_eq!(*key, pair[usize::from(held.choices[t])], "transfer {t}");
        assert_ne!(pair[0], pair[1]);
    }
}

#[test]
fn every_size_around_chunks_and_batches() {
    for security in [Security::SemiHonest, Security::Malicious] {
        let batch = extend::batch(security);
        let sizes = [
            0,
            1,
            1023,
            1025,
            CHUNK - 1,
            CHUNK + 1,
            batch - 1,
            batch,
            batch + 1,
            3 * batch,
        ];
        for count in sizes {
            let (held, sender, receiver) =
                run(simulation(4, security, count as u64, 1), Network::new());
            assert_right(&held, count);
            // The formulae give the number of bytes.
            let (sender, receiver) = (sender.unwrap(), receiver.unwrap());
            let field = Field::new(4).unwrap();
            let sent = |ledger: &Ledger, phase| ledger.phase(phase).map_or(0, |c| c.bytes_sent);
            assert_eq!(sent(&sender, BASE), (HEADER_LEN + base::OFFER_LEN) as u64);
            let setup = HEADER_LEN + extend::setup_len(field, security);
            assert_eq!(sent(&receiver, BASE), setup as u64);
            let mut due = 0;
            let proof = match security {
                Security::SemiHonest => 0,
                Security::Malicious => HEADER_LEN + extend::PROOF_LEN,
            };
            let mut left = count;
            while left > 0 {
                let next = left.min(batch);
                due += HEADER_LEN + extend::corrections_len(field, security, next) + proof;
                left -= next;
            }
            assert_eq!(sent(&receiver, EXTENSION), due as u64);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn any_order_gives_the_same_keys(
        f in 1usize..=8, malicious: bool, count in 0u64..60_000, order: u64, seed: u8,
    ) {
        let security = if malicious { Security::Malicious } else { Security::SemiHonest };
        let (straight, ..) = run(simulation(f, security, count, seed), Network::new());
        let network = Network::new().choose(chooser(order));
        let (shuffled, sender, receiver) = run(simulation(f, security, count, seed), network);
        prop_assert!(sender.is_ok() && receiver.is_ok());
        assert_right(&shuffled, count as usize);
        prop_assert_eq!(straight, shuffled);
    }
}

/// The receiver's messages: setup, two corrections, then proofs and corrections in turn.
#[test]
fn a_receiver_that_cheats_is_caught() {
    let count = 3 * extend::batch(Security::Malicious) as u64;
    let cheat = |nth, change: &dyn Fn(&mut Vec<u8>)| {
        let network = tampering((RECEIVER, SENDER, nth), change);
        let (held, sender, _) = run(simulation(8, Security::Malicious, count, 2), network);
        (held, sender.unwrap_err())
    };
    let trees = "the trees of seeds are inconsistent";
    let corrections = "the corrections of two parts of Δ have different choices";
    // OT-6: a false digest of the last tree; a false correction on both sides.
    let (held, aborted) = cheat(0, &|m| *m.last_mut().unwrap() ^= 1);
    assert_cheated(&aborted, RECEIVER, BASE, trees);
    assert_eq!(held.zeros.len(), 0);
    let (_, aborted) = cheat(0, &|m| {
        m[base::REPLY_LEN] ^= 1;
        m[base::REPLY_LEN + 16] ^= 1;
    });
    assert_cheated(&aborted, RECEIVER, BASE, trees);
    // OT-10: one flipped bit of one correction, which the proof shows. No key of the batch is
    // released.
    let (held, aborted) = cheat(2, &|m| m[1000] ^= 4);
    assert_cheated(&aborted, RECEIVER, EXTENSION, corrections);
    assert_eq!(held.zeros.len(), extend::batch(Security::Malicious));
    // OT-10: one choice flipped in a whole row.
    let (held, aborted) = cheat(1, &|m| m[..256].iter_mut().for_each(|byte| *byte = !*byte));
    assert_cheated(&aborted, RECEIVER, EXTENSION, corrections);
    assert_eq!(held.zeros.len(), 0);
    // OT-10: a false proof. OT-3, OT-7, OT-9: messages of the wrong length.
    let (_, aborted) = cheat(3, &|m| m[0] ^= 1);
    assert_cheated(&aborted, RECEIVER, EXTENSION, corrections);
    for (nth, phase) in [(0, BASE), (1, EXTENSION), (3, EXTENSION)] {
        for change in [
            Vec::clear as fn(&mut Vec<u8>),
            |m| m.push(0),
            |m| m.truncate(9),
        ] {
            let (_, aborted) = cheat(nth, &change);
            assert_malformed(&aborted, RECEIVER, phase);
        }
    }
    // OT-4: B is not a point.
    let (_, aborted) = cheat(0, &|m| m[..32].fill(0xff));
    assert_malformed(&aborted, RECEIVER, BASE);
}

/// OT-10: the corrections of one batch in place of those of the next.
#[test]
fn replayed_corrections_are_caught() {
    let count = 2 * extend::batch(Security::Malicious) as u64;
    let first = Mutex::new(Vec::new());
    let mut seen = 0;
    let network = Network::new().intercept(|from, _, frame| {
        if from == RECEIVER {
            match seen {
                1 => *first.lock().unwrap() = frame[HEADER_LEN..].to_vec(),
                2 => frame[HEADER_LEN..].copy_from_slice(&first.lock().unwrap()),
                _ => {}
            }
            seen += 1;
        }
    });
    let (held, sender, _) = run(simulation(4, Security::Malicious, count, 3), network);
    let expected = "the corrections of two parts of Δ have different choices";
    assert_cheated(&sender.unwrap_err(), RECEIVER, EXTENSION, expected);
    assert_eq!(held.zeros.len(), extend::batch(Security::Malicious));
}

#[test]
fn a_sender_that_cheats_is_caught() {
    let count = 100;
    // OT-1 and OT-8
    for (nth, phase) in [(0, BASE), (1, EXTENSION)] {
        for change in [Vec::clear as fn(&mut Vec<u8>), |m| m.push(0)] {
            let network = tampering((SENDER, RECEIVER, nth), change);
            let (_, _, receiver) = run(simulation(4, Security::Malicious, count, 2), network);
            assert_malformed(&receiver.unwrap_err(), SENDER, phase);
        }
    }
    // OT-2
    let network = tampering((SENDER, RECEIVER, 0), |m: &mut Vec<u8>| m[31] |= 0x80);
    let (_, _, receiver) = run(simulation(4, Security::SemiHonest, count, 2), network);
    assert_malformed(&receiver.unwrap_err(), SENDER, BASE);
}

#[test]
fn a_party_that_leaves_ends_the_other() {
    for (who, frames) in [
        (SENDER, 0),
        (SENDER, 1),
        (RECEIVER, 0),
        (RECEIVER, 1),
        (RECEIVER, 2),
    ] {
        let network = Network::new().leave(who, frames);
        let (_, sender, receiver) = run(simulation(4, Security::Malicious, 100_000, 2), network);
        let other = if who == SENDER { receiver } else { sender };
        let error = other.unwrap_err().to_string();
        assert!(error.contains("left before the protocol ended"), "{error}");
    }
}
