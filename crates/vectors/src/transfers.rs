//! Oblivious transfer: base transfers, extensions, correlated vectors, chosen messages.

use schemars::JsonSchema;
use serde::Serialize;
use undertone::kdf::Seed;
use undertone::kernel::aes::Permutation;
use undertone::kernel::expand::{self, Shape};
use undertone::kernel::{BitMatrix, Cpu, Prg, parts};
use undertone::ot::extend::{Receiver, Sender, SenderSetup};
use undertone::ot::{Context, Field, OtError, Security, base, chosen};
use undertone::party::PartyId;

use crate::primitives::{SESSION, permutation_key};
use crate::{Error, File, Hex, hex};

const SEEDS: [[u8; 32]; 2] = [[32; 32], [33; 32]];

/// The seed of the extension's sender (0) or receiver (1).
fn seed(side: usize) -> Seed {
    Seed::from_bytes(SEEDS[side])
}

fn context() -> Context {
    Context::new(SESSION, "test", PartyId::client(0), PartyId::client(1))
}

/// Blocks of 16 bytes each, one after the other.
fn blocks(blocks: &[u128]) -> Hex {
    let bytes: Vec<u8> = blocks.iter().flat_map(|b| b.to_le_bytes()).collect();
    hex(&bytes)
}

fn words(words: &[u64]) -> Hex {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    hex(&bytes)
}

/// A message that must be refused.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct RefusedMessage {
    comment: String,
    /// The case that it belongs to.
    case: usize,
    /// The field of that case that it replaces. In a batch: the field of the first batch.
    field: String,
    message: Hex,
    check: String,
}

fn refused<T>(
    comment: &str,
    (case, field): (usize, &str),
    message: &[u8],
    result: Result<T, OtError>,
) -> Result<RefusedMessage, Error> {
    match result {
        Ok(_) => Err(Error::Accepted(comment.into())),
        Err(error) => Ok(RefusedMessage {
            comment: comment.into(),
            case,
            field: field.into(),
            message: hex(message),
            check: error.to_string(),
        }),
    }
}

/// 128 base transfers of the extension from client 0 to client 1. Here client 0 is the one that
/// chooses. The context has the purpose `test`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct BaseTransfers {
    session: Hex,
    /// Bit i is the choice of transfer i. Bit 0 is the lowest bit of the first byte.
    choices: Hex,
    /// The seeds of client 0 and of client 1.
    seeds: [Hex; 2],
    /// Sent by client 0: two points for each transfer.
    offer: Hex,
    /// Sent by client 1: one point.
    reply: Hex,
    /// The keys of client 1, 16 bytes each.
    zeros: Hex,
    ones: Hex,
    /// The keys of client 0.
    chosen: Hex,
}

fn base_transfers() -> Result<(BaseTransfers, Vec<RefusedMessage>), Error> {
    let choices = 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210;
    let (receiver, offer) = base::choose(context(), choices, seed(0));
    let (keys, reply) = base::respond(&context(), &offer, seed(1))?;
    let side = |side: usize| blocks(&keys.iter().map(|pair| pair[side]).collect::<Vec<_>>());
    let case = BaseTransfers {
        session: hex(&SESSION.0),
        choices: hex(&choices.to_le_bytes()),
        seeds: SEEDS.map(|seed| hex(&seed)),
        offer: hex(&offer),
        reply: hex(&reply),
        zeros: side(0),
        ones: side(1),
        chosen: blocks(&receiver.finish(&reply)?),
    };
    let mut bad = Vec::new();
    let mut not_canonical = [0xff; 32];
    (not_canonical[0], not_canonical[31]) = (0xed, 0x7f);
    let mut negative = [0; 32];
    negative[0] = 1;
    let mut no_square = [0; 32];
    no_square[0] = 2;
    let points = [
        ("p itself, for 0", not_canonical),
        ("a negative number", negative),
        ("a number that is no point's", no_square),
    ];
    for (comment, point) in points {
        let mut offer = offer.clone();
        offer[64..96].copy_from_slice(&point);
        // OT-2 and OT-4
        let result = base::respond(&context(), &offer, seed(1));
        bad.push(refused(comment, (0, "offer"), &offer, result)?);
        let (receiver, _) = base::choose(context(), choices, seed(0));
        let result = receiver.finish(&point);
        bad.push(refused(comment, (0, "reply"), &point, result)?);
    }
    // OT-5
    let (receiver, _) = base::choose(context(), choices, seed(0));
    let result = receiver.finish(&[0; 32]);
    bad.push(refused("the identity", (0, "reply"), &[0; 32], result)?);
    let cut = &offer[..offer.len() - 1]; // OT-1
    let result = base::respond(&context(), cut, seed(1));
    bad.push(refused("cut", (0, "offer"), cut, result)?);
    Ok((case, bad))
}

/// One batch of an extension.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Batch {
    /// Number of transfers.
    count: usize,
    /// Sent by client 1.
    corrections: Hex,
    /// Against a malicious receiver: χ, which client 0 sends, then the proof that client 1 sends.
    /// Otherwise both are empty.
    challenge: Hex,
    proof: Hex,
    /// The choices of client 1, 64 in a word.
    choices: Hex,
    /// The correlated keys, transfer after transfer: K₀ of client 0, and `K_c` of client 1. K₁ is
    /// K₀ ⊕ Δ.
    zeros: Hex,
    chosen: Hex,
    /// The random keys: hashes of the correlated ones.
    random_zeros: Hex,
    random_ones: Hex,
    random_chosen: Hex,
}

/// An extension from client 0, the sender, to client 1. The context has the purpose `test`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Extension {
    comment: String,
    session: Hex,
    /// f: bits of Δ that a tree covers.
    field: usize,
    /// Whether the sender withstands a malicious receiver.
    malicious: bool,
    /// The seeds of the sender and of the receiver.
    seeds: [Hex; 2],
    delta: Hex,
    /// The sender's base transfer points.
    offer: Hex,
    /// The receiver's reply to the points, then its trees.
    setup: Hex,
    batches: Vec<Batch>,
}

/// Sender and receiver after the setup, and both messages.
fn set_up(f: usize, security: Security) -> Result<(Sender, Receiver, Vec<u8>, Vec<u8>), Error> {
    let (cpu, field) = (Cpu::detect(), Field::new(f).ok_or(Error::Missing("f"))?);
    let (setup, offer) = SenderSetup::new(context(), seed(0));
    let mode = (field, security);
    let (receiver, message) = Receiver::new(cpu, &context(), mode, &offer, seed(1))?;
    let sender = setup.finish(cpu, field, security, &message)?;
    Ok((sender, receiver, offer, message))
}

fn extension(f: usize, security: Security, counts: &[usize]) -> Result<Extension, Error> {
    let (mut sender, mut receiver, offer, message) = set_up(f, security)?;
    let mut batches = Vec::new();
    for count in counts {
        let (theirs, corrections) = receiver.batch(*count);
        let mine = sender.batch(*count, &corrections)?;
        let mut challenge = Vec::new();
        let mut proof = Vec::new();
        let (mine, theirs) = match security {
            Security::SemiHonest => (mine.accept()?, theirs.accept()?),
            Security::Malicious => {
                challenge = mine.challenge().to_vec();
                let proved = theirs.prove(mine.challenge());
                proof = proved.1;
                (mine.check(&proof)?, proved.0)
            }
        };
        let (mut zeros, mut keys, mut got) = (Vec::new(), Vec::new(), Vec::new());
        let mut random: [Vec<u128>; 2] = Default::default();
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
    }
    Ok(Extension {
        comment: format!("f = {f}, {security:?}, batches of {counts:?}"),
        session: hex(&SESSION.0),
        field: f,
        malicious: security == Security::Malicious,
        seeds: SEEDS.map(|seed| hex(&seed)),
        delta: blocks(&[sender.delta()]),
        offer: hex(&offer),
        setup: hex(&message),
        batches,
    })
}

/// Cheating receivers against case 1.
fn refused_extensions() -> Result<Vec<RefusedMessage>, Error> {
    let mut bad = Vec::new();
    let (field, security) = (
        Field::new(3).ok_or(Error::Missing("f"))?,
        Security::Malicious,
    );
    let (_, _, _, message) = set_up(3, security)?;
    let finish = |message: &[u8]| {
        let (setup, _) = SenderSetup::new(context(), seed(0));
        setup.finish(Cpu::detect(), field, security, message)
    };
    let mut tree = message.clone();
    // OT-6. Two corrections are changed: a change of one alone may go unnoticed, as it guesses a
    // bit of Δ.
    tree[32] ^= 1;
    tree[48] ^= 1;
    let result = finish(&tree);
    bad.push(refused(
        "false corrections in the first tree",
        (1, "setup"),
        &tree,
        result,
    )?);
    let mut check = message.clone(); // OT-6
    *check.last_mut().ok_or(Error::Missing("a tree"))? ^= 1;
    let result = finish(&check);
    bad.push(refused(
        "a false digest of the last tree",
        (1, "setup"),
        &check,
        result,
    )?);
    let cut = &message[..message.len() - 32]; // OT-3
    bad.push(refused("a tree too few", (1, "setup"), cut, finish(cut))?);

    let (mut sender, mut receiver, _, _) = set_up(3, security)?;
    let (theirs, corrections) = receiver.batch(66);
    let (mut twin, ..) = set_up(3, security)?;
    let (_, proof) = theirs.prove(twin.batch(66, &corrections)?.challenge());
    let cut = &corrections[..corrections.len() - 8]; // OT-7
    let result = sender.batch(66, cut);
    bad.push(refused("a word too few", (1, "corrections"), cut, result)?);
    let mut other = corrections.clone(); // OT-10
    other[0] ^= 1;
    let result = sender
        .batch(66, &other)
        .and_then(|batch| batch.check(&proof));
    let comment = "another choice in one transfer for the second part of Δ";
    bad.push(refused(comment, (1, "corrections"), &other, result)?);
    let (mut sender, ..) = set_up(3, security)?;
    let mut other = proof.clone(); // OT-10
    other[39] ^= 0x80;
    let batch = sender.batch(66, &corrections)?;
    let result = batch.check(&other);
    bad.push(refused("a false digest", (1, "proof"), &other, result)?);
    Ok(bad)
}

/// Correlated transfers of vectors over Z_{2^width}, as `shade` uses them. The receiver's sums
/// minus the sender's are Σ c·(1 − 2x) over the transfers.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Correlated {
    session: Hex,
    sender: u32,
    receiver: u32,
    /// Bits of a number.
    width: u32,
    /// Numbers of a transfer.
    lanes: usize,
    /// The number of the first transfer.
    first: u64,
    delta: Hex,
    /// K₀ of each transfer.
    zeros: Hex,
    /// The sender's bit of each lane, for each transfer.
    bits: Vec<Vec<u8>>,
    /// The receiver's choice in each transfer.
    choices: Vec<u8>,
    /// The message of all transfers, which belong to one row of the receiver, in groups of 16.
    offers: Hex,
    /// For each lane, modulo 2^width: Σ G(K₀), and Σ (G(K_c) + c·u). `shade` subtracts the sender's
    /// bits from the former.
    sender_sums: Vec<u16>,
    receiver_sums: Vec<u16>,
}

fn correlated(width: u32, lanes: usize, count: usize) -> Correlated {
    let cpu = Cpu::detect();
    let key = permutation_key(0, 1, "vectors", 0);
    let pi = Permutation::new(cpu, u128::from_le_bytes(key));
    let mut prg = Prg::new(&[37; 32]);
    let mut block = || u128::from(prg.next_u64()) | u128::from(prg.next_u64()) << 64;
    let delta = block();
    let zeros: Vec<u128> = (0..count).map(|_| block()).collect();
    let row: Vec<u64> = (0..count * lanes.div_ceil(64))
        .map(|_| block() as u64)
        .collect();
    let x = BitMatrix::from_words(count, lanes, row);
    let choices: Vec<u64> = (0..count.div_ceil(64)).map(|_| block() as u64).collect();
    let chosen = |t: usize| choices[t / 64] >> (t % 64) & 1;
    let keys: Vec<u128> = (0..count)
        .map(|t| zeros[t] ^ if chosen(t) == 1 { delta } else { 0 })
        .collect();
    let shape = Shape {
        width,
        lanes,
        first: 5,
    };
    let padded = lanes.next_multiple_of(expand::LANES);
    let len = expand::message_len(width, count, lanes);
    let (offers, sums) = parts::message(0, vec![((), len)], |(), slot| {
        let (mine, mut sums) = ((&zeros[..], delta), vec![0; padded]);
        (
            expand::send(&pi, shape, mine, (&x, 0..count), &mut sums, slot, |_| ()),
            sums,
        )
    });
    let mut got = vec![0; padded];
    let wanted = (&choices[..], 0..count);
    expand::receive(&pi, shape, &keys, wanted, &mut got, &offers, |_| ());
    let modulo = |sums: &[u16]| {
        sums[..lanes]
            .iter()
            .map(|s| (u32::from(*s) % (1 << width)) as u16)
            .collect()
    };
    Correlated {
        session: hex(&SESSION.0),
        sender: 0,
        receiver: 1,
        width,
        lanes,
        first: 5,
        delta: blocks(&[delta]),
        zeros: blocks(&zeros),
        bits: (0..count)
            .map(|t| (0..lanes).map(|a| x.get(t, a).into()).collect())
            .collect(),
        choices: (0..count).map(|t| chosen(t) as u8).collect(),
        offers: hex(&offers),
        sender_sums: modulo(&sums[0]),
        receiver_sums: modulo(&got),
    }
}

/// Transfers of chosen messages, on random transfers.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ChosenMessages {
    /// The random transfers: both keys of the sender, and the receiver's choices, 64 in a word.
    random_zeros: Hex,
    random_ones: Hex,
    random_choices: Hex,
    /// The choices that the receiver wants, and the message that it sends.
    wanted: Hex,
    changes: Hex,
    /// The sender's messages, two of 16 bytes for each transfer, and the message that it sends.
    messages: Hex,
    offered: Hex,
    opened: Hex,
}

fn chosen_messages(count: usize) -> Result<ChosenMessages, Error> {
    let mut prg = Prg::new(&[34; 32]);
    let mut block = || u128::from(prg.next_u64()) | u128::from(prg.next_u64()) << 64;
    let random: [Vec<u128>; 2] = std::array::from_fn(|_| (0..count).map(|_| block()).collect());
    let messages: Vec<[u128; 2]> = (0..count).map(|_| [block(), block()]).collect();
    let mut choices = || {
        (0..count.div_ceil(64))
            .map(|_| block() as u64)
            .collect::<Vec<u64>>()
    };
    let (own, wanted) = (choices(), choices());
    let bit = |words: &[u64], t: usize| (words[t / 64] >> (t % 64) & 1) as usize;
    let keys: Vec<u128> = (0..count).map(|t| random[bit(&own, t)][t]).collect();
    let changes = chosen::choose(&wanted, &own);
    let offered = chosen::offer(&changes, [&random[0], &random[1]], &messages)?;
    Ok(ChosenMessages {
        random_zeros: blocks(&random[0]),
        random_ones: blocks(&random[1]),
        random_choices: words(&own),
        wanted: words(&wanted),
        changes: hex(&changes),
        messages: blocks(&messages.concat()),
        opened: blocks(&chosen::open(&wanted, &keys, &offered)?),
        offered: hex(&offered),
    })
}

fn refused_chosen() -> Result<Vec<RefusedMessage>, Error> {
    let keys = vec![1; 70];
    let offer = |changes: &[u8]| chosen::offer(changes, [&keys, &keys], &[[0; 2]; 70]);
    let result = offer(&[0; 15]); // OT-11
    let changes = refused("changes that are cut", (0, "changes"), &[0; 15], result)?;
    let result = chosen::open(&[0; 2], &keys, &[0; 70 * 32 + 1]); // OT-12
    let offered = refused("too long", (0, "offered"), &[0; 70 * 32 + 1], result)?;
    Ok(vec![changes, offered])
}

/// The files of this module.
///
/// # Errors
/// Never.
pub fn files() -> Result<Vec<File>, Error> {
    let place = "docs/spec/transfers.md";
    let (case, bad) = base_transfers()?;
    let mut all = crate::files("base-transfer", place, vec![case], bad)?;
    let extensions = vec![
        extension(2, Security::SemiHonest, &[5, 70])?,
        extension(3, Security::Malicious, &[66, 1])?,
        extension(8, Security::Malicious, &[3])?,
    ];
    all.extend(crate::files(
        "extension",
        place,
        extensions,
        refused_extensions()?,
    )?);
    let vectors = vec![
        correlated(5, 3, 20),
        correlated(13, 40, 33),
        correlated(16, 9, 16),
    ];
    let none = Vec::<crate::primitives::Nothing>::new();
    all.extend(crate::files(
        "correlated-transfer",
        "docs/spec/transfers.md, steps 15 and 16",
        vectors,
        none,
    )?);
    let chosen = vec![chosen_messages(70)?];
    all.extend(crate::files(
        "chosen-transfer",
        place,
        chosen,
        refused_chosen()?,
    )?);
    Ok(all)
}
