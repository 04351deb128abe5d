//! What a client needs to know of the others.

use std::collections::BTreeMap;

use undertone_kernel::BitMatrix;
use undertone_kernel::mask::Suite;
use undertone_party::{Abort, PartyId, SessionId};

use super::Phe;
use undertone_kdf::Seed;
use undertone_setup::seal::Channel;

/// What a client needs besides its codes.
#[derive(Debug)]
pub struct ClientContext {
    /// The session.
    pub session: SessionId,
    /// The client itself.
    pub me: PartyId,
    /// All clients and their rows, in order.
    pub clients: Vec<(PartyId, usize)>,
    /// A seed that all clients have and the server has not.
    pub seed: Seed,
    /// The client's own randomness, which nobody else has.
    pub secret: Seed,
    /// The cipher of the masks.
    pub suite: Suite,
    /// What only the server is to read.
    pub server: Channel,
    /// How `phe` encrypts.
    pub phe: Phe,
    /// What only one other client is to read. `shade` and `phe` need them.
    pub channels: BTreeMap<PartyId, Channel>,
    /// Fewest clients with which the protocol goes on.
    pub min_clients: usize,
}

impl ClientContext {
    /// The client itself and its rows.
    pub(super) fn own(&self) -> Result<(PartyId, usize), Abort> {
        let own = self.clients.iter().find(|(id, _)| *id == self.me);
        own.copied()
            .ok_or_else(|| Abort::Misuse(format!("{} is not on the roster", self.me)))
    }

    /// Holds codes to what the client prepared for: its rows, and so many bits.
    pub(super) fn check_codes(&self, codes: &BitMatrix, bits: usize) -> Result<(), Abort> {
        let (me, rows) = self.own()?;
        if (codes.rows(), codes.columns()) == (rows, bits) {
            Ok(())
        } else {
            Err(Abort::Misuse(format!(
                "{me} has {} codes of {} bits, it prepared {rows} of {bits}",
                codes.rows(),
                codes.columns()
            )))
        }
    }
}
