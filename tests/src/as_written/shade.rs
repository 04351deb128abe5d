//! SHADE (Bringer, Chabanne, Patey 2013): one transfer for every bit of every pair of rows, on
//! ideal or real oblivious transfers.
//!
//! Correction to the published protocol: sums are modulo 2^w with 2^w > L. Modulo L distances 0 and
//! L would be the same.

use undertone::kdf::Seed;
use undertone::kernel::{BitMatrix, Cpu, Prg};
use undertone::ot::extend::{self, SenderSetup};
use undertone::ot::{Context, Field, OtError, Security, chosen};
use undertone::party::{PartyId, SessionId};

use super::Outcome;

/// Transfers one message of each pair, chosen by the receiver. The sender does not learn the
/// choice.
type Transfers<'a> = dyn FnMut(&[[u64; 2]], &[bool]) -> Result<Vec<u64>, OtError> + 'a;

/// Distances between the rows of a sender and those of a receiver, on an ideal transfer.
///
/// # Panics
/// Never.
#[allow(clippy::unwrap_used)]
pub fn run(x: &BitMatrix, y: &BitMatrix, prg: &mut Prg) -> Outcome {
    let mut ideal = |messages: &[[u64; 2]], choices: &[bool]| {
        let both = messages.iter().zip(choices);
        Ok(both
            .map(|(pair, choice)| pair[usize::from(*choice)])
            .collect())
    };
    distances(x, y, prg, &mut ideal).unwrap()
}

/// [`run`] on real transfers: those of this project, with f = 4, chosen messages and chosen
/// choices.
///
/// # Errors
/// Never.
pub fn run_on_transfers(x: &BitMatrix, y: &BitMatrix, prg: &mut Prg) -> Result<Outcome, OtError> {
    let context = Context::new(
        SessionId([1; 32]),
        "test",
        PartyId::client(0),
        PartyId::client(1),
    );
    let mode = (
        Field::new(4).unwrap_or_else(|| unreachable!()),
        Security::SemiHonest,
    );
    let (setup, offer) = SenderSetup::new(context.clone(), Seed::from_bytes([2; 32]));
    let seed = Seed::from_bytes([3; 32]);
    let cpu = Cpu::detect();
    let (mut receiver, message) = extend::Receiver::new(cpu, &context, mode, &offer, seed)?;
    let mut sender = setup.finish(cpu, mode.0, mode.1, &message)?;
    let mut real = |messages: &[[u64; 2]], choices: &[bool]| {
        let mut out = Vec::with_capacity(messages.len());
        let batch = extend::batch(Security::SemiHonest);
        for (messages, choices) in messages.chunks(batch).zip(choices.chunks(batch)) {
            let (theirs, corrections) = receiver.batch(messages.len());
            let mine = sender.batch(messages.len(), &corrections)?.accept()?;
            let theirs = theirs.accept()?;
            let (mut keys, mut both) = (Vec::new(), Default::default());
            theirs.random(&mut keys);
            mine.random(&mut both);
            let mut wanted = vec![0; messages.len().div_ceil(64)];
            for (t, choice) in choices.iter().enumerate() {
                wanted[t / 64] |= u64::from(*choice) << (t % 64);
            }
            let messages: Vec<[u128; 2]> = messages.iter().map(|m| m.map(u128::from)).collect();
            let changes = chosen::choose(&wanted, &theirs.choices());
            let offered = chosen::offer(&changes, [&both[0], &both[1]], &messages)?;
            let opened = chosen::open(&wanted, &keys, &offered)?;
            out.extend(opened.iter().map(|message| *message as u64));
        }
        Ok(out)
    };
    distances(x, y, prg, &mut real)
}

fn distances(
    x: &BitMatrix,
    y: &BitMatrix,
    prg: &mut Prg,
    transfers: &mut Transfers<'_>,
) -> Result<Outcome, OtError> {
    let width = usize::BITS - x.columns().leading_zeros();
    let modulus = 1u64 << width;
    let mut bits = 0;
    let mut distances = vec![vec![0; y.rows()]; x.rows()];
    for (a, distances) in distances.iter_mut().enumerate() {
        for (i, distance) in distances.iter_mut().enumerate() {
            // R is the sender's sum, T the receiver's.
            let mut r = 0;
            let mut messages = Vec::with_capacity(x.columns());
            for l in 0..x.columns() {
                let mask = prg.next_u64() % modulus;
                let bit = u64::from(x.get(a, l));
                messages.push([mask + bit, mask + 1 - bit].map(|message| message % modulus));
                r = (r + mask) % modulus;
                bits += 2 * u64::from(width);
            }
            let choices: Vec<bool> = (0..x.columns()).map(|l| y.get(i, l)).collect();
            let chosen = transfers(&messages, &choices)?;
            let t = chosen.iter().fold(0, |t, message| (t + message) % modulus);
            *distance = (t + modulus - r) % modulus;
            bits += 2 * u64::from(width);
        }
    }
    Ok(Outcome { distances, bits })
}
