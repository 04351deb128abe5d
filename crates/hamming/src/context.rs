//! What a client needs besides its codes.

use std::collections::BTreeMap;

use undertone_kernel::BitMatrix;
use undertone_kernel::mask::Suite;
use undertone_party::{Abort, PartyId, SessionId};

use super::{Cells, Phe};
use undertone_kdf::Seed;
use undertone_setup::seal::Channel;

/// What a client needs besides its codes.
#[derive(Debug)]
pub struct ClientContext {
    /// The session id.
    pub session: SessionId,
    /// The client itself.
    pub me: PartyId,
    /// All clients and their numbers of rows, in roster order.
    pub clients: Vec<(PartyId, usize)>,
    /// Which of these rows are compared. None: all of different clients.
    pub cells: Option<Cells>,
    /// The common seed, which all clients have and the server does not.
    pub seed: Seed,
    /// The client's own secret, which nobody else has.
    pub secret: Seed,
    /// The cipher of the masks.
    pub suite: Suite,
    /// The channel to the server.
    pub server: Channel,
    /// The parameters of `phe`.
    pub phe: Phe,
    /// The channels to the other clients. Only `shade` and `phe` need them.
    pub channels: BTreeMap<PartyId, Channel>,
    /// Fewest remaining clients with which the protocol continues.
    pub min_clients: usize,
}

impl ClientContext {
    /// The client itself and its number of rows.
    pub(super) fn own(&self) -> Result<(PartyId, usize), Abort> {
        let own = self.clients.iter().find(|(id, _)| *id == self.me);
        own.copied()
            .ok_or_else(|| Abort::Misuse(format!("{} is not on the roster", self.me)))
    }

    /// Checks that `codes` are those that the client prepared for: its rows, of `bits` bits.
    pub(super) fn check_codes(&self, codes: &BitMatrix, bits: usize) -> Result<(), Abort> {
        let (me, rows) = self.own()?;
        if (codes.rows(), codes.columns()) == (rows, bits) {
            Ok(())
        } else {
            Err(Abort::Misuse(format!(
                "{me} has {} codes of {} bits, but prepared for {rows} of {bits}",
                codes.rows(),
                codes.columns()
            )))
        }
    }
}
