use super::*;
use crate::extend::{SenderSetup, setup_len};
use crate::{Context, chosen};
use undertone_kdf::Seed;
use undertone_kernel::{Cpu, Prg};
use undertone_party::{PartyId, SessionId};

fn pair(f: usize, security: Security) -> (Sender, Receiver) {
    let context = Context::new(
        SessionId([1; 32]),
        "test",
        PartyId::client(0),
        PartyId::client(1),
    );
    let field = Field::new(f).unwrap();
    let (cpu, seed) = (Cpu::detect(), |byte| Seed::from_bytes([byte; 32]));
    let (setup, offer) = SenderSetup::new(context.clone(), seed(2));
    let mode = (field, security);
    let (receiver, message) = Receiver::new(cpu, &context, mode, &offer, seed(3)).unwrap();
    assert_eq!(message.len(), setup_len(field, security));
    let sender = setup.finish(cpu, field, security, &message).unwrap();
    (sender, receiver)
}

fn check(sender: &SenderBatch, receiver: &ReceiverBatch, delta: u128, count: usize) {
    let (mut zeros, mut chosen) = (vec![1], vec![2]);
    sender.correlated(&mut zeros);
    receiver.correlated(&mut chosen);
    let choices = receiver.choices();
    assert_eq!((zeros.len(), chosen.len()), (count, count));
    assert_eq!(choices.len(), count.div_ceil(64));
    let (mut both, mut got) = ([vec![3], vec![]], vec![4]);
    sender.random(&mut both);
    receiver.random(&mut got);
    let [first, second] = both;
    for t in 0..count {
        let choice = choices[t / 64] >> (t % 64) & 1 == 1;
        assert_eq!(chosen[t], zeros[t] ^ if choice { delta } else { 0 });
        assert_eq!(got[t], if choice { second[t] } else { first[t] });
        assert_ne!(first[t], second[t]);
    }
    let ones: u32 = choices.iter().map(|word| word.count_ones()).sum();
    if count > 1000 {
        let share = f64::from(ones) / count as f64;
        assert!((0.4..0.6).contains(&share), "{share}");
    }
}

#[test]
fn transfers_of_every_size_and_field() {
    let sizes = [
        0,
        1,
        63,
        64,
        65,
        1023,
        1025,
        CHUNK - 64,
        CHUNK - 1,
        CHUNK,
        CHUNK + 1,
        5000,
    ];
    for security in [Security::SemiHonest, Security::Malicious] {
        for f in 1..=8 {
            let (mut sender, mut receiver) = pair(f, security);
            for count in sizes {
                let (theirs, corrections) = receiver.batch(count);
                let due = corrections_len(Field::new(f).unwrap(), security, count);
                assert_eq!(corrections.len(), due);
                let mine = sender.batch(count, &corrections).unwrap();
                let (theirs, mine) = match security {
                    Security::SemiHonest => (theirs.accept().unwrap(), mine.accept().unwrap()),
                    Security::Malicious => {
                        let (theirs, proof) = theirs.prove(mine.challenge());
                        (theirs, mine.check(&proof).unwrap())
                    }
                };
                check(&mine, &theirs, sender.delta(), count);
            }
        }
    }
}

#[test]
fn false_corrections_are_found() {
    for f in [1, 4, 8] {
        let (mut sender, mut receiver) = pair(f, Security::Malicious);
        let (mut caught, tries) = (0, 40);
        for i in 0..tries {
            let (theirs, mut corrections) = receiver.batch(100);
            // OT-10: one transfer of one part.
            let at = i * 997 % corrections.len();
            corrections[at] ^= 1 << (i % 8);
            let mine = sender.batch(100, &corrections).unwrap();
            let (_, proof) = theirs.prove(mine.challenge());
            let error = mine.check(&proof).err();
            caught += usize::from(error == Some(OtError::Corrections));
        }
        // Not found where these bits of Δ are zero: with f = 1 half of the time.
        let least = if f == 1 { tries / 4 } else { 3 * tries / 4 };
        assert!(caught >= least, "f = {f}: {caught} of {tries}");
    }
}

#[test]
fn replays_and_false_proofs_are_found() {
    let (mut sender, mut receiver) = pair(4, Security::Malicious);
    let (Unproved(first), corrections) = receiver.batch(300);
    let Unchecked {
        batch: mine,
        challenge,
    } = sender.batch(300, &corrections).unwrap();
    let proof = first.prove(challenge);
    for at in 0..PROOF_LEN {
        let mut changed = proof.clone();
        changed[at] ^= 0x10;
        let error = mine.check(challenge, &changed).unwrap_err(); // OT-10
        assert_eq!(error, OtError::Corrections);
    }
    // OT-9
    assert!(matches!(
        mine.check(challenge, &proof[1..]),
        Err(OtError::Length { .. })
    ));
    let other = first.prove([1; 8]);
    assert_eq!(mine.check(challenge, &other), Err(OtError::Corrections));
    mine.check(challenge, &proof).unwrap();
    // OT-10: the corrections of one batch for the next.
    let (Unproved(second), _) = receiver.batch(300);
    let Unchecked {
        batch: mine,
        challenge,
    } = sender.batch(300, &corrections).unwrap();
    for theirs in [first, second] {
        let proof = theirs.prove(challenge);
        assert_eq!(mine.check(challenge, &proof), Err(OtError::Corrections));
    }
    // OT-7
    assert!(matches!(
        sender.batch(300, &corrections[8..]),
        Err(OtError::Length { .. })
    ));
    // Without a proof there are no keys.
    let (theirs, corrections) = receiver.batch(10);
    let mine = sender.batch(10, &corrections).unwrap();
    assert_eq!(mine.accept().err(), Some(OtError::Unproved));
    assert_eq!(theirs.accept().err(), Some(OtError::Unproved));
}

/// One seed for two receivers or purposes gives unrelated challenges.
#[test]
fn challenges_are_their_contexts_own() {
    let challenge = |purpose, receiver| {
        let receiver_id = PartyId::client(receiver);
        let context = Context::new(SessionId([1; 32]), purpose, PartyId::client(0), receiver_id);
        let field = Field::new(4).unwrap();
        let mode = (field, Security::Malicious);
        let (cpu, seed) = (Cpu::detect(), |byte| Seed::from_bytes([byte; 32]));
        let (setup, offer) = SenderSetup::new(context.clone(), seed(2));
        let made = Receiver::new(cpu, &context, mode, &offer, seed(3));
        let (mut theirs, message) = made.unwrap();
        let mut mine = setup.finish(cpu, mode.0, mode.1, &message).unwrap();
        let mut next = || {
            let (_unproved, corrections) = theirs.batch(10);
            mine.batch(10, &corrections).unwrap().challenge()
        };
        [next(), next()]
    };
    let all = [challenge("a", 1), challenge("a", 2), challenge("b", 1)];
    let mut all = all.as_flattened().to_vec();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 6);
}

#[test]
fn chosen_messages_arrive() {
    let (mut sender, mut receiver) = pair(2, Security::SemiHonest);
    for count in [0, 1, 100, 3000] {
        let (theirs, corrections) = receiver.batch(count);
        let mine = sender.batch(count, &corrections).unwrap().accept().unwrap();
        let theirs = theirs.accept().unwrap();
        let mut prg = Prg::new(&[9; 32]);
        let wanted: Vec<u64> = (0..count.div_ceil(64)).map(|_| prg.next_u64()).collect();
        let messages: Vec<[u128; 2]> = (0..count as u128).map(|t| [2 * t, 2 * t + 1]).collect();
        let choices = chosen::choose(&wanted, &theirs.choices());
        let (mut both, mut keys) = (Default::default(), Vec::new());
        mine.random(&mut both);
        theirs.random(&mut keys);
        let [zeros, ones] = both;
        let offered = chosen::offer(&choices, [&zeros, &ones], &messages).unwrap();
        let opened = chosen::open(&wanted, &keys, &offered).unwrap();
        for (t, message) in opened.iter().enumerate() {
            assert_eq!(
                *message,
                messages[t][(wanted[t / 64] >> (t % 64) & 1) as usize]
            );
        }
        if count > 0 {
            assert!(chosen::offer(&choices[1..], [&zeros, &ones], &messages).is_err()); // OT-11
            assert!(chosen::open(&wanted, &keys, &offered[1..]).is_err()); // OT-12
        }
    }
}
