//! A thousand oblivious transfers. The sender has two messages for each transfer. The receiver
//! chooses one and gets it. The sender does not learn the choice. The receiver learns nothing about
//! the other message, even if it deviates from the protocol.
//!
//! `cargo run --release -p undertone-ot --example transfers` prints:
//!
//! ```text
//! 1000 of 1000 chosen messages arrived
//! sender    base transfers    8256 bytes sent
//! sender    extension           72 bytes sent
//! sender    chosen messages  32064 bytes sent
//! receiver  base transfers    5216 bytes sent
//! receiver  extension         4384 bytes sent
//! receiver  chosen messages    192 bytes sent
//! ```

use undertone_kdf::Seed;
use undertone_ot::extend::{ReceiverBatch, SenderBatch};
use undertone_ot::party::{BASE, Rules, receiver, sender};
use undertone_ot::{Context, Delta, Field, OtError, Security, chosen};
use undertone_party::{Abort, Endpoint, Io, Limits, Network, PartyId, Phase, Script, SessionId};
use zeroize::Zeroizing;

const SENDER: PartyId = PartyId::client(0);
const RECEIVER: PartyId = PartyId::client(1);

/// Number of transfers.
const COUNT: usize = 1000;

/// The phase after the base transfers and the extension, which have phases of their own.
const CHOSEN: Phase = Phase {
    id: 100,
    name: "chosen messages",
};

async fn send(io: Io, rules: Rules, seed: Seed, messages: Vec<[u128; 2]>) -> Result<(), Abort> {
    // Random transfers give two random keys each. `keep` receives a batch after its check.
    let (mut zeros, mut ones) = (Vec::new(), Vec::new());
    let keep = |batch: &SenderBatch| {
        let mut keys = [Vec::new(), Vec::new()];
        batch.random(&mut keys);
        zeros.extend_from_slice(&keys[0]);
        ones.extend_from_slice(&keys[1]);
    };
    let _ = io.run(sender(rules, RECEIVER, seed, keep)).await?;

    // Chosen messages: send both, each encrypted under one key. The receiver has one of the keys.
    io.phase(CHOSEN).await;
    let choices = io.require(RECEIVER).await?;
    let offer = chosen::offer(&choices, [&zeros, &ones], &messages);
    io.send(RECEIVER, offer.map_err(OtError::blame(RECEIVER))?);
    Ok(())
}

async fn receive(
    io: Io,
    rules: Rules,
    seed: Seed,
    wanted: Vec<u64>,
) -> Result<Zeroizing<Vec<u128>>, Abort> {
    // Random transfers give a random choice and its key each.
    let (mut random, mut keys) = (Vec::new(), Vec::new());
    let keep = |batch: &ReceiverBatch| {
        let mut chosen = Vec::new();
        batch.random(&mut chosen);
        random.extend_from_slice(&batch.choices());
        keys.extend_from_slice(&chosen);
    };
    let _ = io.run(receiver(rules, SENDER, seed, keep)).await?;

    // Chosen messages: say where the random choices differ from the wanted ones, then decrypt.
    io.phase(CHOSEN).await;
    io.send(SENDER, chosen::choose(&wanted, &random));
    let offer = io.require(SENDER).await?;
    chosen::open(&wanted, &keys, &offer).map_err(OtError::blame(SENDER))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Both parties agree on the rules beforehand. The field trades bytes for computation.
    let session = SessionId::random()?;
    let rules = Rules {
        context: Context::new(session, "a thousand messages", SENDER, RECEIVER),
        field: Field::new(4).ok_or("f is 1 to 8")?,
        security: Security::Malicious,
        delta: Delta::Any,
        count: COUNT as u64,
    };

    // The messages of transfer t are 2t and 2t + 1. The choices are random bits, 64 a word.
    let messages: Vec<[u128; 2]> = (0..COUNT as u128).map(|t| [2 * t, 2 * t + 1]).collect();
    let mut bits = Seed::from_os()?.prg();
    let wanted: Vec<u64> = (0..COUNT.div_ceil(64)).map(|_| bits.next_u64()).collect();

    // Two parties, and a network in memory between them.
    let (mine, its) = (Seed::from_os()?, Seed::from_os()?);
    let script = Script::new(BASE, |io| send(io, rules.clone(), mine, messages.clone()));
    let mut sender = Endpoint::new(SENDER, session, Limits::default(), script);
    let script = Script::new(BASE, |io| receive(io, rules, its, wanted.clone()));
    let mut receiver = Endpoint::new(RECEIVER, session, Limits::default(), script);
    Network::new().run(&mut [&mut sender, &mut receiver])?;

    let ledgers = [sender.finish()?.1, receiver.ledger().clone()];
    let (received, _) = receiver.finish()?;
    let choice = |t: usize| (wanted[t / 64] >> (t % 64) & 1) as usize;
    let right = (0..COUNT).filter(|t| received[*t] == messages[*t][choice(*t)]);
    println!("{} of {COUNT} chosen messages arrived", right.count());
    for (who, ledger) in ["sender", "receiver"].iter().zip(ledgers) {
        for (phase, cost) in ledger.phases() {
            let (phase, bytes) = (phase.name, cost.bytes_sent);
            println!("{who:<8}  {phase:<15}  {bytes:>5} bytes sent");
        }
    }
    Ok(())
}
