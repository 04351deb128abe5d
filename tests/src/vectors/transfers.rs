//! Vectors of oblivious transfer: base transfers, extensions, chosen messages.

use serde::{Deserialize, Serialize};
use undertone::kernel::{Cpu, Prg};
use undertone::mpc::kdf::Seed;
use undertone::mpc::ot::extend::{Receiver, SenderSetup};
use undertone::mpc::ot::{Context, Field, Security, chosen};
use undertone::party::{PartyId, SessionId};

use super::hex;
use super::sums::Error;

/// One batch of an extension.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct Batch {
    count: usize,
    corrections: String,
    /// Against a malicious receiver; else empty, and so is the proof.
    challenge: String,
    proof: String,
    /// Words of 64 choices.
    choices: String,
    /// K₀ of the sender and `K_c` of the receiver, transfer after transfer.
    zeros: String,
    chosen: String,
    /// The same hashed, and K₁ hashed.
    random_zeros: String,
    random_ones: String,
    random_chosen: String,
}

/// Messages of the sender's and choices of the receiver's own, on the random transfers of the last batch.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct Chosen {
    wanted: String,
    changes: String,
    messages: String,
    offered: String,
    opened: String,
}

/// An extension of client 0, the sender, and client 1.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct Extension {
    comment: String,
    session: String,
    field: usize,
    malicious: bool,
    sender_seed: String,
    receiver_seed: String,
    delta: String,
    /// The sender's points, then the receiver's reply and trees.
    offer: String,
    setup: String,
    batches: Vec<Batch>,
    chosen: Chosen,
}

fn blocks(blocks: &[u128]) -> String {
    blocks
        .iter()
        .map(|block| hex(&block.to_le_bytes()))
        .collect()
}

fn words(words: &[u64]) -> String {
    words.iter().map(|word| hex(&word.to_le_bytes())).collect()
}

fn extension(f: usize, security: Security, counts: &[usize]) -> Result<Extension, Error> {
    let session = SessionId([31; 32]);
    let context = Context::new(session, PartyId::client(0), PartyId::client(1));
    let (cpu, mode) = (
        Cpu::detect(),
        (Field::new(f).ok_or(Error::Missing("f"))?, security),
    );
    let seeds = [[32; 32], [33; 32]];
    let (setup, offer) = SenderSetup::new(context.clone(), &Seed::from_bytes(seeds[0]));
    let seed = Seed::from_bytes(seeds[1]);
    let (mut receiver, message) = Receiver::new(cpu, &context, mode, &offer, &seed)?;
    let mut sender = setup.finish(cpu, mode.0, security, &message)?;
    let mut batches = Vec::new();
    let mut last = None;
    for count in counts {
        let (theirs, corrections) = receiver.batch(*count);
        let mine = sender.batch(*count, &corrections)?;
        let mut challenge = Vec::new();
        let mut proof = Vec::new();
        let (mine, theirs) = match security {
            Security::SemiHonest => (mine.accept()?, theirs.accept()?),
            Security::Malicious => {
                let point = [1, 2, 3, 4, 5, 6, 7, 200];
                challenge = point.to_vec();
                let proved = theirs.prove(point);
                proof = proved.1;
                (mine.check(point, &proof)?, proved.0)
            }
        };
        let (mut zeros, mut keys, mut got) = (Vec::new(), Vec::new(), Vec::new());
        let mut random = Default::default();
        mine.correlated(&mut zeros);
        theirs.correlated(&mut keys);
        mine.random(&mut random);
        theirs.random(&mut got);
        batches.push(Batch {
            count: *count,
            corrections: hex(&corrections),
            challenge: hex(&challenge),
            proof: hex(&proof),
            choices: words(&theirs.choices()),
            zeros: blocks(&zeros),
            chosen: blocks(&keys),
            random_zeros: blocks(&random[0]),
            random_ones: blocks(&random[1]),
            random_chosen: blocks(&got),
        });
        last = Some((random, got, theirs.choices()));
    }
    let (random, got, choices) = last.ok_or(Error::Missing("a batch"))?;
    let mut prg = Prg::new(&[34; 32]);
    let mut block = || u128::from(prg.next_u64()) | u128::from(prg.next_u64()) << 64;
    let messages: Vec<[u128; 2]> = got.iter().map(|_| [block(), block()]).collect();
    let wanted: Vec<u64> = choices.iter().map(|_| block() as u64).collect();
    let changes = chosen::choose(&wanted, &choices);
    let offered = chosen::offer(&changes, [&random[0], &random[1]], &messages)?;
    let opened = chosen::open(&wanted, &got, &offered)?;
    Ok(Extension {
        comment: format!("f = {f}, {security:?}, batches of {counts:?}"),
        session: hex(&session.0),
        field: f,
        malicious: security == Security::Malicious,
        sender_seed: hex(&seeds[0]),
        receiver_seed: hex(&seeds[1]),
        delta: blocks(&[sender.delta()]),
        offer: hex(&offer),
        setup: hex(&message),
        batches,
        chosen: Chosen {
            wanted: words(&wanted),
            changes: hex(&changes),
            messages: blocks(&messages.concat()),
            offered: hex(&offered),
            opened: blocks(&opened),
        },
    })
}

/// All extensions.
///
/// # Errors
/// Never.
pub fn extensions() -> Result<Vec<Extension>, Error> {
    Ok(vec![
        extension(2, Security::SemiHonest, &[5, 70])?,
        extension(3, Security::Malicious, &[66, 1])?,
        extension(8, Security::Malicious, &[3])?,
    ])
}
