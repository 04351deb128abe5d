//! Oblivious transfers between two parties of one process.

use undertone_kdf::Seed;
use undertone_ot::extend::{ReceiverBatch, SenderBatch};
use undertone_ot::party::{Rules, receiver, sender};
use undertone_ot::{Context, Delta, Field, Security};
use undertone_party::{Aborted, Endpoint, Ledger, Limits, PartyId, Script, SessionId};

use super::{duplex, party_seed, session};

/// A run of transfers.
#[derive(Debug)]
pub struct TransferSimulation {
    /// The parameter f.
    pub field: Field,
    /// The receivers against which the sender is safe.
    pub security: Security,
    /// Number of transfers.
    pub count: u64,
    /// Fixes the whole transcript.
    pub seed: Seed,
}

/// The sender.
pub const SENDER: PartyId = PartyId::client(0);

/// The receiver.
pub const RECEIVER: PartyId = PartyId::client(1);

impl TransferSimulation {
    /// The two parties. They pass their batches to `sent` and `received`.
    pub fn parties<'a, S, R>(
        self,
        sent: S,
        received: R,
    ) -> (Endpoint<Script<'a, S>>, Endpoint<Script<'a, R>>)
    where
        S: FnMut(&SenderBatch) + Send + 'a,
        R: FnMut(&ReceiverBatch) + Send + 'a,
    {
        let session: SessionId = session(&self.seed);
        let rules = Rules {
            context: Context::new(session, "transfers", SENDER, RECEIVER),
            field: self.field,
            security: self.security,
            delta: Delta::Any,
            count: self.count,
        };
        let seed = |id| party_seed(&self.seed, session, id);
        let sender = sender(rules.clone(), RECEIVER, seed(SENDER), sent);
        let receiver = receiver(rules, SENDER, seed(RECEIVER), received);
        (
            Endpoint::new(SENDER, session, Limits::default(), sender),
            Endpoint::new(RECEIVER, session, Limits::default(), receiver),
        )
    }

    /// Runs both parties, each on a thread of its own. Returns what they spent.
    ///
    /// # Errors
    /// [`Aborted`] of the party that aborted first.
    pub fn run<S, R>(self, sent: S, received: R) -> Result<[Ledger; 2], Aborted>
    where
        S: FnMut(&SenderBatch) + Send,
        R: FnMut(&ReceiverBatch) + Send,
    {
        let (sender, receiver) = self.parties(sent, received);
        let ends = duplex::run(sender, receiver);
        let (_, sender) = ends.0?;
        let (_, receiver) = ends.1?;
        Ok([sender, receiver])
    }
}
