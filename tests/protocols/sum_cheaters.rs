//! Secure sums against cheating parties: each check catches its cheater.

use undertone::job::simulation::SimulationError;
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Abort, Aborted, Network, PartyId};
use undertone::simulate::SumRun;
use undertone::sum::{Groups, KEYS, Rules, SHARES, Trust, UNMASK, Wiring};
use undertone_tests::sums::{assert_clear, contributions, rules, simulation};
use undertone_tests::tamper::{assert_cheated, assert_malformed, set_payload, tampering};

const SERVER: PartyId = PartyId::SERVER;
const VICTIM: PartyId = PartyId::client(1);
const ROWS: [usize; 5] = [1, 2, 0, 3, 1];

fn semi_honest() -> Rules {
    rules(&ROWS, 2, 3)
}

fn malicious() -> Rules {
    Rules {
        trust: Trust::MaliciousServer,
        ..semi_honest()
    }
}

/// Runs a sum with a changed payload: of the frame with the given sender, receiver and number.
fn tampered(
    rules: Rules,
    frame: (PartyId, PartyId, usize),
    change: impl Fn(&mut Vec<u8>),
) -> Result<SumRun<u64>, SimulationError> {
    let network = tampering(frame, change);
    simulation(rules, contributions(&rules, &ROWS, 1)).run_over(network)
}

fn client_error(run: Result<SumRun<u64>, SimulationError>) -> Aborted {
    match run {
        Ok(run) => run.clients[1].clone().unwrap_err(),
        Err(SimulationError::Aborted(aborted)) => aborted,
        Err(stalled) => panic!("{stalled}"),
    }
}

/// The victim's error when the server's `nth` frame to it is changed.
fn server_cheats(rules: Rules, nth: usize, change: impl Fn(&mut Vec<u8>)) -> Aborted {
    client_error(tampered(rules, (SERVER, VICTIM, nth), change))
}

/// The server's error when the client's `nth` frame is changed.
fn client_cheats(rules: Rules, nth: usize, change: impl Fn(&mut Vec<u8>)) -> Aborted {
    match tampered(rules, (VICTIM, SERVER, nth), change) {
        Err(SimulationError::Aborted(aborted)) => aborted,
        other => panic!("{other:?}"),
    }
}

/// Bytes of an entry of the roster: number, two keys, advertisement, flag without a signature.
const ENTRY: usize = 4 + 64 + 1 + 32 + 1;

fn entry(place: usize) -> usize {
    4 + place * ENTRY
}

#[test]
fn rosters_that_cannot_be() {
    let rules = semi_honest();
    let cheat = |change: fn(&mut Vec<u8>)| server_cheats(rules, 0, change);
    let swapped = cheat(|roster| {
        let (a, b) = (entry(2) + 4, entry(3) + 4);
        for i in 0..32 {
            roster.swap(a + i, b + i);
        }
    });
    // SUM-12: the roster itself is consistent. But the others cannot open shares dealt under it.
    assert_cheated(&swapped, VICTIM, SHARES, "its shares do not open");
    // SETUP-8.
    let mine = cheat(|roster| roster[entry(1) + 4] ^= 1);
    assert_cheated(&mine, SERVER, KEYS, "this client's keys");
    // SETUP-9.
    let twice = cheat(|roster| roster.copy_within(entry(2) + 4..entry(2) + 36, entry(3) + 4));
    assert_cheated(&twice, SERVER, KEYS, "the same key");
    let own_twice = cheat(|roster| roster.copy_within(entry(2) + 4..entry(2) + 36, entry(2) + 36));
    assert_cheated(&own_twice, SERVER, KEYS, "the same key");
    // SETUP-3.
    for key in [4, 36] {
        let low = server_cheats(rules, 0, |roster| {
            roster[entry(3) + key..entry(3) + key + 32].fill(0);
        });
        assert_malformed(&low, SERVER, KEYS);
        assert!(low.to_string().contains("low order"), "{low}");
    }
    // SETUP-7.
    let order = cheat(|roster| roster[entry(2)] = 0);
    assert_cheated(&order, SERVER, KEYS, "repeats a client");
    // SUM-2.
    let other_rules = cheat(|roster| roster[entry(3) + 69] ^= 1);
    assert_cheated(&other_rules, PartyId::client(3), KEYS, "its rules differ");
    // SUM-3.
    let overlapping = cheat(|roster| roster[entry(3) + 69 + 16] -= 1);
    assert_cheated(&overlapping, PartyId::client(3), KEYS, "its rows");
    let beyond = cheat(|roster| roster[entry(4) + 69 + 24] += 1);
    assert_cheated(&beyond, PartyId::client(4), KEYS, "its rows");
    let endless = cheat(|roster| roster[entry(4) + 69 + 24..entry(4) + 69 + 32].fill(0xff));
    assert_cheated(&endless, PartyId::client(4), KEYS, "its rows");
    // SETUP-6.
    let many = cheat(|roster| roster[..4].fill(0xff));
    assert_malformed(&many, SERVER, KEYS);
}

#[test]
fn sets_of_sharers_and_shares_that_cannot_be() {
    let rules = semi_honest();
    let cheat = |change: fn(&mut Vec<u8>)| server_cheats(rules, 1, change);
    // SUM-10.
    assert_cheated(
        &cheat(|m| m[0] ^= 0b10),
        SERVER,
        SHARES,
        "leaves this client out",
    );
    // SUM-9.
    assert_malformed(&cheat(|m| m[0] ^= 0b10_0000), SERVER, SHARES);
    // SUM-5.
    let few = cheat(|m| {
        m[0] = 0b10;
        m.truncate(1);
    });
    assert_eq!(few.cause, Abort::TooFew { left: 1, need: 2 });
    // SUM-11.
    let below = cheat(|m| {
        m[0] = 0b11;
        m.truncate(1 + 80);
    });
    assert_eq!(below.cause, Abort::TooFewHolders { left: 2, need: 3 });
    // SUM-12.
    let changed = cheat(|m| m[1 + 80] ^= 1);
    assert_cheated(
        &changed,
        PartyId::client(2),
        SHARES,
        "its shares do not open",
    );
    let moved = cheat(|m| m.copy_within(1..81, 81));
    assert_cheated(&moved, PartyId::client(2), SHARES, "its shares do not open");
}

#[test]
fn sets_of_contributors_that_cannot_be() {
    for rules in [semi_honest(), malicious()] {
        let cheat = |change: fn(&mut Vec<u8>)| server_cheats(rules, 2, change);
        // SUM-18.
        assert_cheated(
            &cheat(|m| m[0] ^= 0b10),
            SERVER,
            UNMASK,
            "leaves this client out",
        );
        // SUM-9.
        assert_malformed(&cheat(|m| m[0] ^= 0b1000_0000), SERVER, UNMASK);
        // SUM-5.
        let few = cheat(|m| m[0] = 0b10);
        assert!(matches!(few.cause, Abort::TooFew { left: 1, .. }), "{few}");
        // SUM-11.
        let below = cheat(|m| m[0] = 0b11);
        assert!(
            matches!(below.cause, Abort::TooFewHolders { left: 2, .. }),
            "{below}"
        );
        // SUM-16.
        for change in [Vec::clear as fn(&mut Vec<u8>), |m| m.push(0)] {
            assert_malformed(&server_cheats(rules, 2, change), SERVER, UNMASK);
        }
    }
    // SUM-17: client 3 never shared, so it cannot contribute.
    let rules = semi_honest();
    let network = Network::new()
        .leave(PartyId::client(3), 1)
        .intercept(|from, to, frame| {
            if (from, to) == (SERVER, VICTIM)
                && frame[4] == UNMASK.id
                && frame.len() == HEADER_LEN + 1
            {
                frame[HEADER_LEN] |= 0b1000;
            }
        });
    let clients = contributions::<u64>(&rules, &ROWS, 1);
    let run = simulation(rules, clients).run_over(network).unwrap();
    let aborted = run.clients[1].clone().unwrap_err();
    assert_cheated(&aborted, SERVER, UNMASK, "did not share");
}

/// SUM-34: sums over whole groups and over parts of them would differ by single clients.
#[test]
fn a_group_without_one_of_its_clients() {
    let rows = [1; 12];
    let clean = rules(&rows, 2, 3);
    for trust in [Trust::SemiHonest, Trust::MaliciousServer] {
        let rules = Rules {
            trust,
            groups: Some(Groups::new(12, 5)),
            ..clean
        };
        let contributors = |change: u16| {
            let clients = contributions::<u64>(&rules, &rows, 1);
            let network = tampering((SERVER, VICTIM, 2), |set: &mut Vec<u8>| {
                assert_eq!(set[..], 0xfffu16.to_le_bytes());
                set.copy_from_slice(&(0xfff ^ change).to_le_bytes());
            });
            simulation(rules, clients)
                .run_over(network)
                .unwrap()
                .clients
        };
        // Groups of six, of which the victim is in the first.
        for change in [1, 1 << 5, 1 << 6, 1 << 11, 0b11_1101, 0b1111_1000_0000] {
            let aborted = contributors(change)[1].clone().unwrap_err();
            assert_cheated(&aborted, SERVER, UNMASK, "not whole groups");
        }
        // A whole group may be absent: the victim continues until what it adds does not fit.
        let aborted = contributors(0b1111_1100_0000)[1].clone().err();
        let found = aborted.is_some_and(|aborted| aborted.to_string().contains("whole groups"));
        assert!(!found);
    }
}

/// SUM-19: a client of a sparse graph has enough neighbours left, and learns from the set that
/// others have none. Their rows would have no mask.
#[test]
fn sets_that_leave_others_without_neighbours() {
    let rows = [1; 12];
    let rules = Rules {
        wiring: Wiring::Fixed {
            neighbours: 2,
            threshold: 2,
        },
        ..rules(&rows, 2, 3)
    };
    let clients = contributions::<u64>(&rules, &rows, 1);
    let mut left = Vec::new();
    for other in (0..12).filter(|other| *other != 1) {
        // The victim and one other are said to contribute.
        let set = 1u16 << other | 0b10;
        let change = |m: &mut Vec<u8>| m.copy_from_slice(&set.to_le_bytes());
        let network = tampering((SERVER, VICTIM, 2), change);
        let run = simulation(rules, clients.clone())
            .run_over(network)
            .unwrap();
        let aborted = run.clients[1].clone().unwrap_err();
        match aborted.cause {
            Abort::TooFewHolders { left: found, need } => {
                assert_eq!((aborted.phase, need), (UNMASK, 2));
                left.push(found);
            }
            _ => panic!("{aborted}"),
        }
    }
    // SUM-11 alone refuses sets without a neighbour of the victim. It counts the victim itself.
    let without: Vec<usize> = left.iter().copied().filter(|left| *left == 0).collect();
    assert_eq!(without.len(), 2, "{left:?}");
}

/// A server tells one client that another one dropped out, to get both shares of it. It gets
/// neither: the signatures do not fit.
#[test]
fn clients_that_are_told_different_sets_reveal_nothing() {
    let lie = |m: &mut Vec<u8>| m[0] &= !0b1_0000;
    // Against a semi-honest server the victim reveals a share of the mask key (SUM-27).
    let naive = client_error(tampered(semi_honest(), (SERVER, VICTIM, 2), lie));
    assert_cheated(&naive, VICTIM, UNMASK, "a share of the wrong kind");
    // SUM-23: with signatures it does not answer, as the others signed another set.
    let told = client_error(tampered(malicious(), (SERVER, VICTIM, 2), lie));
    assert_eq!(told.party, VICTIM);
    assert_cheated(
        &told,
        SERVER,
        UNMASK,
        "its set of signers names a client that did not contribute",
    );
    // SUM-24: nor does it answer when the server withholds the signatures that differ.
    let mut seen = 0;
    let network = Network::new().intercept(|from, to, frame| {
        let without = |frame: &mut Vec<u8>, place: usize| {
            frame[HEADER_LEN] &= !(1 << place);
            let at = HEADER_LEN + 1 + 64 * place;
            frame.drain(at..at + 64);
            let len = (frame.len() - HEADER_LEN) as u64;
            frame[24..32].copy_from_slice(&len.to_le_bytes());
        };
        let signatures = frame.len() == HEADER_LEN + 1 + 5 * 64 && frame[4] == UNMASK.id;
        if (from, to) == (SERVER, VICTIM) {
            if seen == 2 {
                frame[HEADER_LEN] &= !0b1_0000;
            }
            seen += 1;
            if signatures {
                without(frame, 4);
            }
        } else if from == SERVER && signatures {
            without(frame, 1);
        }
    });
    let rules = malicious();
    let clients = contributions::<u64>(&rules, &ROWS, 1);
    let run = simulation(rules, clients.clone())
        .run_over(network)
        .unwrap();
    let deceived = run.clients[1].clone().unwrap_err();
    assert_cheated(&deceived, SERVER, UNMASK, "1 signatures fit");
    assert_clear(&rules, &clients, &run, [0, 2, 3, 4]);
}

#[test]
fn signatures_that_do_not_fit() {
    let rules = malicious();
    // SUM-24: of five signatures one may be false. Four are needed.
    let one = tampered(rules, (SERVER, VICTIM, 3), |m| m[1 + 2 * 64] ^= 1).unwrap();
    assert!(one.clients.iter().all(Result::is_ok));
    let two = server_cheats(rules, 3, |m| {
        m[1 + 2 * 64] ^= 1;
        m[1 + 4 * 64] ^= 1;
    });
    assert_cheated(
        &two,
        SERVER,
        UNMASK,
        "3 signatures fit the contributors this client was told, 4 are needed",
    );
    let copied = server_cheats(rules, 3, |m| {
        m.copy_within(1..65, 65);
        m.copy_within(1..65, 129);
    });
    assert_cheated(&copied, SERVER, UNMASK, "3 signatures fit");
    // A client's false signature does not stop the others.
    let clients = contributions::<u64>(&rules, &ROWS, 1);
    let run = tampered(rules, (VICTIM, SERVER, 3), |m| m[5] ^= 1).unwrap();
    assert_clear(&rules, &clients, &run, 0..5);
    let few = server_cheats(rules, 3, |m| {
        m[0] = 0b111;
        m.truncate(1 + 3 * 64);
    });
    assert_cheated(&few, SERVER, UNMASK, "3 signatures fit");
    // SUM-22.
    assert_malformed(&server_cheats(rules, 3, |m| m.push(0)), SERVER, UNMASK);
    // SUM-20.
    assert_malformed(&client_cheats(rules, 3, |m| m.push(0)), VICTIM, UNMASK);
    assert_malformed(&client_cheats(rules, 3, Vec::clear), VICTIM, UNMASK);
    // SETUP-10: keys that their owner did not sign, and keys without a signature.
    const SIGNED: usize = ENTRY + 64;
    let exchanged = server_cheats(rules, 0, |roster| roster[4 + 3 * SIGNED + 4] ^= 1);
    assert_cheated(&exchanged, SERVER, KEYS, "keys for client 3 are not signed");
    let unsigned = server_cheats(rules, 0, |roster| {
        let flag = 4 + 3 * SIGNED + ENTRY - 1;
        roster[flag] = 0;
        roster.drain(flag + 1..flag + 65);
    });
    assert_cheated(&unsigned, SERVER, KEYS, "keys for client 3 are not signed");
}

#[test]
fn hellos_that_cannot_be() {
    let rules = semi_honest();
    let cheat = |change: fn(&mut Vec<u8>)| client_cheats(rules, 0, change);
    // SUM-1.
    let digest = cheat(|hello| hello[65] ^= 1);
    assert_cheated(&digest, VICTIM, KEYS, "differ from the server's");
    let rows = cheat(|hello| hello[65 + 24] += 1);
    assert_cheated(&rows, VICTIM, KEYS, "differ from the server's");
    // SETUP-4.
    let own_twice = cheat(|hello| hello.copy_within(0..32, 32));
    assert_cheated(&own_twice, VICTIM, KEYS, "occurs twice");
    // SETUP-3: a sealing key or mask key of low order. The server itself detects it.
    for key in [0..32, 32..64] {
        let low = client_cheats(rules, 0, |hello| hello[key.clone()].fill(0));
        assert_malformed(&low, VICTIM, KEYS);
        assert_eq!(low.party, SERVER);
        assert!(low.to_string().contains("low order"), "{low}");
    }
    // SETUP-1.
    assert_malformed(&cheat(|hello| hello[97] = 2), VICTIM, KEYS);
    assert_malformed(&cheat(|hello| hello[64] = 200), VICTIM, KEYS);
}

/// Shares dealt under one roster open under no other. So no lie about the roster brings shares of
/// two stories together.
#[test]
fn shares_dealt_under_one_roster_open_under_no_other() {
    let rules = Rules {
        trust: Trust::MaliciousServer,
        ..rules(&ROWS, 2, 3)
    };
    const SIGNED: usize = ENTRY + 64;
    // SUM-6: the victim gets a roster without client 4, and its shares go to the usual places.
    let without = server_cheats(rules, 0, |roster| {
        roster[0] = 4;
        roster.truncate(4 + 4 * SIGNED);
    });
    let Abort::Malformed { from, .. } = &without.cause else {
        panic!("{without}");
    };
    assert_eq!(
        (*from, without.party),
        (VICTIM, SERVER),
        "it deals to three"
    );
    let mut seen = 0;
    let network = Network::new().intercept(|from, to, frame| {
        if (from, to) == (SERVER, VICTIM) {
            if seen == 0 {
                let mut roster = frame[HEADER_LEN..].to_vec();
                roster[0] = 4;
                roster.truncate(4 + 4 * SIGNED);
                set_payload(frame, &roster);
            }
            seen += 1;
        } else if from == VICTIM && frame[4] == SHARES.id && frame.len() > HEADER_LEN {
            let mut shares = frame[HEADER_LEN..].to_vec();
            let commitment = shares.split_off(3 * 80);
            shares.extend([0; 80]);
            shares.extend(commitment);
            set_payload(frame, &shares);
        }
    });
    let clients = contributions::<u64>(&rules, &ROWS, 1);
    let error = simulation(rules, clients).run_over(network).unwrap_err();
    assert!(
        error.to_string().contains("its shares do not open"),
        "{error}"
    );
    // SUM-4: two of five pinned clients are missing, more than may drop out.
    let small = server_cheats(rules, 0, |roster| {
        roster[0] = 3;
        roster.truncate(4 + 3 * SIGNED);
    });
    assert_eq!(small.cause, Abort::TooFew { left: 3, need: 4 });
}

/// SUM-29: a holder's false share is found and left out. The sum is right, and the holder is named.
#[test]
fn a_false_share_is_found_and_does_not_harm() {
    let rules = semi_honest();
    let clients = contributions::<u64>(&rules, &ROWS, 1);
    // The client's own share, then for each of four neighbours a kind and a share.
    for at in [0, 31, 33, 64, 32 + 33 * 3 + 5] {
        let run = tampered(rules, (VICTIM, SERVER, 3), |m| m[at] ^= 4).unwrap();
        assert_clear(&rules, &clients, &run, 0..5);
        assert_eq!(run.total.suspects, [VICTIM], "byte {at}");
    }
    // SUM-27.
    let kind = client_cheats(rules, 3, |m| m[32] ^= 1);
    assert_cheated(&kind, VICTIM, UNMASK, "a share of the wrong kind");
    // SUM-26.
    assert_malformed(&client_cheats(rules, 3, |m| m[32] = 2), VICTIM, UNMASK);
}

/// SUM-30: the mask key of a dropped client is reconstructed without the false share.
#[test]
fn a_false_share_of_a_mask_key_is_found() {
    let rules = semi_honest();
    let clients = contributions::<u64>(&rules, &ROWS, 1);
    let mut seen = 0;
    let network = Network::new()
        .leave(PartyId::client(0), 2)
        .intercept(move |from, to, frame| {
            if (from, to) == (VICTIM, SERVER) {
                if seen == 3 {
                    assert_eq!(frame[HEADER_LEN + 32], 1, "a share of a mask key");
                    frame[HEADER_LEN + 40] ^= 1;
                }
                seen += 1;
            }
        });
    let run = simulation(rules, clients.clone())
        .run_over(network)
        .unwrap();
    assert_clear(&rules, &clients, &run, 1..5);
    assert_eq!(run.total.suspects, [VICTIM]);
}

/// SUM-29: the server names a dealer of shares that do not fit its commitment.
#[test]
fn a_false_commitment_is_the_dealers() {
    let rules = semi_honest();
    let aborted = client_cheats(rules, 1, |m| {
        let last = m.len() - 1;
        m[last] ^= 1;
    });
    assert_cheated(&aborted, VICTIM, UNMASK, "what it committed to");
}

#[test]
fn the_rules_need_what_they_need() {
    use undertone::kdf::Seed;
    use undertone::sum::{Input, Shape, client, server};
    let seed = || Seed::from_bytes([1; 32]);
    let client = |rules, words, own| {
        client::<u64>(rules, VICTIM, Input::with_rows(vec![0; words], own), seed())
    };
    let rules = semi_honest();
    assert!(client(rules, 17, 1..3).is_ok());
    assert!(client(rules, 16, 1..3).is_err());
    assert!(client(rules, 17, 6..8).is_err());
    let backwards = std::ops::Range { start: 3, end: 1 };
    assert!(client(rules, 17, backwards).is_err());
    assert!(client(malicious(), 17, 1..3).is_err(), "no credentials");
    let lonely = Rules {
        min_clients: 1,
        ..rules
    };
    assert!(client(lonely, 17, 1..3).is_err());
    let huge = Rules {
        shape: Shape {
            rows: usize::MAX,
            width: 2,
            shared: 0,
        },
        ..rules
    };
    assert!(server::<u64>(huge, vec![(VICTIM, 0..0)]).is_err());
    assert!(server::<u64>(rules, vec![(VICTIM, 0..0), (VICTIM, 0..1)]).is_err());
    assert!(server::<u64>(rules, vec![(SERVER, 0..0)]).is_err());
}
