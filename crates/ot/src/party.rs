//! An extension as two scripts. They make any number of transfers, and pass each batch to a sink.
//!
//! | message | from | when |
//! |---|---|---|
//! | points of the base transfers | sender | first |
//! | reply and trees | receiver | then |
//! | corrections | receiver | for every batch |
//! | challenge | sender | for every batch, against a malicious receiver |
//! | proof | receiver | after the challenge |
//!
//! At most two batches are open: the receiver sends the corrections of a batch before the proof of
//! the previous one. The specification is `docs/spec/transfers.md`.

use std::collections::VecDeque;

use undertone_kdf::Seed;
use undertone_kernel::Cpu;
use undertone_party::{Abort, Io, PartyId, Phase, Script};

use super::extend::{self, CHALLENGE_LEN, ReceiverBatch, Sender, SenderBatch, SenderSetup};
use super::{Context, Delta, Field, OtError, Security};

/// Base transfers and trees.
pub const BASE: Phase = Phase {
    id: 12,
    name: "base transfers",
};

/// The extension.
pub const EXTENSION: Phase = Phase {
    id: 13,
    name: "extension",
};

/// Batches that may be open at the same time.
const OPEN: usize = 2;

/// What both parties agree on.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The context.
    pub context: Context,
    /// f.
    pub field: Field,
    /// What the receiver may do.
    pub security: Security,
    /// The kind of Δ.
    pub delta: Delta,
    /// Number of transfers. If they are made in portions: the most that may be made.
    pub count: u64,
}

/// Most transfers of one extension: as many keys as TMMO hashes without loss of security
/// (SECURITY.md, *Assumptions*).
pub const MAX_COUNT: u64 = 1 << 40;

impl Rules {
    fn check(&self) -> Result<(), Abort> {
        // OT-13
        if self.count > MAX_COUNT {
            return Err(Abort::Misuse(format!(
                "{} transfers; one extension makes at most 2^40",
                self.count
            )));
        }
        Ok(())
    }

    /// Takes `count` transfers off those that are left.
    fn take(&mut self, count: u64) -> Result<(), Abort> {
        self.count = self.count.checked_sub(count).ok_or_else(|| {
            Abort::Misuse(format!(
                "{count} transfers of an extension that has {} left",
                self.count
            ))
        })?;
        Ok(())
    }

    /// The size of the next batch when `left` transfers are left.
    fn next(&self, left: u64) -> usize {
        let most = extend::batch(self.security);
        usize::try_from(left).map_or(most, |left| left.min(most))
    }
}

/// The sender's side with `peer`. It passes every checked batch to `sink`, which is its output.
/// `seed` is its randomness.
pub fn sender<'a, S>(rules: Rules, peer: PartyId, seed: Seed, sink: S) -> Script<'a, S>
where
    S: FnMut(&SenderBatch) + Send + 'a,
{
    Script::new(BASE, move |io| async move {
        send(&io, EXTENSION, rules, peer, seed, sink).await
    })
}

/// [`sender`] inside another script. It enters the phase `extension` after the base transfers.
///
/// # Errors
/// As the script: `peer` has dropped out or is to blame, or there are too many transfers.
pub async fn send<S>(
    io: &Io,
    extension: Phase,
    rules: Rules,
    peer: PartyId,
    seed: Seed,
    mut sink: S,
) -> Result<S, Abort>
where
    S: FnMut(&SenderBatch) + Send,
{
    let count = rules.count;
    let mut sending = Sending::begin(io, rules, peer, seed).await?;
    io.phase(extension).await;
    sending.make(io, count, &mut sink).await?;
    Ok(sink)
}

/// The sender of an extension that makes its transfers in portions, inside another script.
#[derive(Debug)]
pub struct Sending {
    sender: Box<Sender>,
    rules: Rules,
    peer: PartyId,
}

impl Sending {
    /// The base transfers and trees with `peer`, in the phase of the script.
    ///
    /// # Errors
    /// As [`send`].
    pub async fn begin(io: &Io, rules: Rules, peer: PartyId, seed: Seed) -> Result<Self, Abort> {
        rules.check()?;

        // Step 1: the points.
        let (setup, offer) = SenderSetup::with(rules.context.clone(), rules.delta, seed);
        io.send(peer, offer);

        // Steps 4 and 5: the receiver's reply and trees.
        let message = io.require(peer).await?;
        let sender = setup.finish(Cpu::detect(), rules.field, rules.security, &message);
        Ok(Self {
            sender: Box::new(sender.map_err(OtError::blame(peer))?),
            rules,
            peer,
        })
    }

    /// The peer.
    pub fn peer(&self) -> PartyId {
        self.peer
    }

    /// What both parties agree on. `count` is the number of transfers that are left.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Makes the next `count` transfers. Every checked batch goes to `sink`.
    ///
    /// # Errors
    /// As [`send`]; [`Abort::Misuse`] when more are made than the rules allow for.
    pub async fn make(
        &mut self,
        io: &Io,
        count: u64,
        mut sink: impl FnMut(&SenderBatch) + Send,
    ) -> Result<(), Abort> {
        self.rules.take(count)?;
        let (peer, blame) = (self.peer, OtError::blame(self.peer));

        // Steps 7, 8 and 10: corrections, and against a malicious receiver a challenge and a proof.
        let mut left = count;
        let mut open = VecDeque::new();
        while left > 0 || !open.is_empty() {
            let message = io.require(peer).await?;
            if left > 0 && open.len() < OPEN {
                let count = self.rules.next(left);
                let batch = self.sender.batch(count, &message).map_err(&blame)?;
                left -= count as u64;
                match self.rules.security {
                    Security::SemiHonest => sink(&batch.accept().map_err(&blame)?),
                    Security::Malicious => {
                        io.send(peer, &batch.challenge());
                        open.push_back(batch);
                    }
                }
            } else if let Some(batch) = open.pop_front() {
                sink(&batch.check(&message).map_err(&blame)?);
            }
        }
        Ok(())
    }
}

/// The receiver's side with `peer`. It passes every batch to `sink`, which is its output. `seed` is
/// its randomness.
pub fn receiver<'a, S>(rules: Rules, peer: PartyId, seed: Seed, sink: S) -> Script<'a, S>
where
    S: FnMut(&ReceiverBatch) + Send + 'a,
{
    Script::new(BASE, move |io| async move {
        receive(&io, EXTENSION, rules, peer, seed, sink).await
    })
}

/// [`receiver`] inside another script. It enters the phase `extension` after the base transfers.
///
/// # Errors
/// As [`send`].
pub async fn receive<S>(
    io: &Io,
    extension: Phase,
    rules: Rules,
    peer: PartyId,
    seed: Seed,
    mut sink: S,
) -> Result<S, Abort>
where
    S: FnMut(&ReceiverBatch) + Send,
{
    let count = rules.count;
    let mut receiving = Receiving::begin(io, rules, peer, seed).await?;
    io.phase(extension).await;
    receiving.make(io, count, &mut sink).await?;
    Ok(sink)
}

/// The receiver of an extension that makes its transfers in portions, inside another script.
#[derive(Debug)]
pub struct Receiving {
    receiver: Box<extend::Receiver>,
    rules: Rules,
    peer: PartyId,
}

impl Receiving {
    /// The base transfers and trees with `peer`, in the phase of the script.
    ///
    /// # Errors
    /// As [`send`].
    pub async fn begin(io: &Io, rules: Rules, peer: PartyId, seed: Seed) -> Result<Self, Abort> {
        rules.check()?;

        // Steps 2 and 3: the reply to the points, and the trees.
        let offer = io.require(peer).await?;
        let mode = (rules.field, rules.security);
        let made = extend::Receiver::new(Cpu::detect(), &rules.context, mode, &offer, seed);
        let (receiver, message) = made.map_err(OtError::blame(peer))?;
        io.send(peer, message);
        Ok(Self {
            receiver: Box::new(receiver),
            rules,
            peer,
        })
    }

    /// The peer.
    pub fn peer(&self) -> PartyId {
        self.peer
    }

    /// What both parties agree on. `count` is the number of transfers that are left.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Makes the next `count` transfers. Every batch goes to `sink`.
    ///
    /// # Errors
    /// As [`Sending::make`].
    pub async fn make(
        &mut self,
        io: &Io,
        count: u64,
        mut sink: impl FnMut(&ReceiverBatch) + Send,
    ) -> Result<(), Abort> {
        self.rules.take(count)?;
        let (peer, blame) = (self.peer, OtError::blame(self.peer));

        // Steps 6 and 9: corrections of a batch, then the proof of the previous batch.
        let mut left = count;
        let mut open = VecDeque::new();
        loop {
            if left > 0 && open.len() < OPEN {
                let count = self.rules.next(left);
                let (batch, corrections) = self.receiver.batch(count);
                left -= count as u64;
                io.send(peer, corrections);
                match self.rules.security {
                    Security::SemiHonest => sink(&batch.accept().map_err(&blame)?),
                    Security::Malicious => open.push_back(batch),
                }
                io.pause().await;
            } else if let Some(batch) = open.pop_front() {
                let message = io.require(peer).await?;
                // OT-8
                let challenge = <[u8; CHALLENGE_LEN]>::try_from(&message[..]).map_err(|_| {
                    blame(OtError::Length {
                        what: "a challenge",
                        have: message.len(),
                        due: CHALLENGE_LEN,
                    })
                })?;
                let (batch, proof) = batch.prove(challenge);
                io.send(peer, proof);
                sink(&batch);
            } else {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_party::{Inbox, Party, SessionId};

    #[test]
    fn more_transfers_than_the_hash_withstands_are_refused() {
        let (a, b) = (PartyId::client(0), PartyId::client(1));
        let refused = |count| {
            let rules = Rules {
                context: Context::new(SessionId([1; 32]), "test", a, b),
                field: Field::new(4).unwrap(),
                security: Security::Malicious,
                delta: Delta::Any,
                count,
            };
            let seed = || Seed::from_bytes([1; 32]);
            let sender = sender(rules.clone(), b, seed(), |_: &SenderBatch| ());
            let receiver = receiver(rules, a, seed(), |_: &ReceiverBatch| ());
            let misuse = |abort: Option<Abort>| matches!(abort, Some(Abort::Misuse(_)));
            [
                misuse(sender.step(Inbox::default()).err()),
                misuse(receiver.step(Inbox::default()).err()),
            ]
        };
        assert_eq!(refused(MAX_COUNT), [false, false]);
        assert_eq!(refused(MAX_COUNT + 1), [true, true]); // OT-13
    }
}
