//! Vectors of oblivious transfer: base transfers, extensions, chosen messages; and a whole run of `shade`.

use serde::{Deserialize, Serialize};
use undertone::kernel::{BitMatrix, Cpu, Prg};
use undertone::mpc::hamming::{Backend, Phe};
use undertone::mpc::kdf::Seed;
use undertone::mpc::ot::extend::{Receiver, SenderSetup};
use undertone::mpc::ot::{Context, Field, Security, chosen};
use undertone::mpc::seal::KeyPair;
use undertone::mpc::sum::Suite;
use undertone::party::frame::HEADER_LEN;
use undertone::party::{Network, PartyId, SessionId};
use undertone::simulate::DistanceSimulation;

use super::hex;
use super::sums::Error;
use crate::kept::Kept;

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

/// A message between any two parties.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct Sent {
    from: u32,
    to: u32,
    phase: u8,
    payload: String,
}

/// A client of a run of `shade`.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct ShadeClient {
    rows: usize,
    codes: String,
    /// Its own randomness.
    secret: String,
    /// What it shares with the server, from which seals are made.
    pair_secret: String,
}

/// A run of `shade` between two clients.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct Shade {
    comment: String,
    session: String,
    bits: usize,
    clients: Vec<ShadeClient>,
    /// What the two clients share.
    pair_secret: String,
    /// In the order they were sent.
    messages: Vec<Sent>,
    /// For each row of the first client those to each of the second.
    distances: Vec<u16>,
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

/// Runs of `shade`.
///
/// # Errors
/// Never.
pub fn shade() -> Result<Vec<Shade>, Error> {
    const SEED: [u8; 32] = [35; 32];
    let of_run = || Seed::from_bytes(SEED);
    let session = of_run().derive(SessionId([0; 32]), "simulated session", &[]);
    let session = SessionId(*session.expose());
    let secret = |id: PartyId| of_run().derive(session, "simulated client", &[id.to_wire()]);
    let agree = |a: PartyId, b: PartyId| {
        let peer = KeyPair::from_seed(&secret(b)).public();
        KeyPair::from_seed(&secret(a)).agree(session, "pair", peer)
    };
    let (bits, rows) = (17, [4, 2]);
    let mut prg = Prg::new(&[36; 32]);
    let codes: Vec<BitMatrix> = rows
        .iter()
        .map(|rows| {
            let words = (0..*rows).map(|_| prg.next_u64()).collect();
            BitMatrix::from_words(*rows, bits, words)
        })
        .collect();
    let mut messages = Vec::new();
    let network = Network::new().intercept(|from, to, frame| {
        messages.push(Sent {
            from: from.to_wire(),
            to: to.to_wire(),
            phase: frame[4],
            payload: hex(&frame[HEADER_LEN..]),
        });
    });
    let simulation = DistanceSimulation {
        backend: Backend::Shade,
        suite: Suite::ChaCha20,
        phe: Phe::insecure(192),
        codes: codes.clone(),
        min_clients: 2,
        sink: Kept::default(),
        seed: of_run(),
    };
    let run = simulation.run_over(network)?;
    let mut clients = Vec::new();
    for (place, codes) in codes.iter().enumerate() {
        let id = PartyId::client(place);
        clients.push(ShadeClient {
            rows: codes.rows(),
            codes: hex(&codes.to_packed(0..codes.rows())),
            secret: hex(secret(id).expose()),
            pair_secret: hex(agree(id, PartyId::SERVER)?.expose()),
        });
    }
    Ok(vec![Shade {
        comment: "two clients".into(),
        session: hex(&session.0),
        bits,
        clients,
        pair_secret: hex(agree(PartyId::client(0), PartyId::client(1))?.expose()),
        messages,
        distances: run.collected.sink.distances.into_values().collect(),
    }])
}
