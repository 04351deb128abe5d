//! What the tasks of a client share: its own side of all pairs, and the way out.

use std::sync::{Mutex, PoisonError};

use undertone_kdf::Seed;
use undertone_kernel::mask::Suite;
use undertone_kernel::{BitMatrix, Wiped};
use undertone_lwe::{Pads, Params, Ring};
use undertone_party::{Abort, Io, Outbox, PartyId, SessionId};
use undertone_setup::seal::{Broadcast, Channel, SealError};

use super::super::pairwise::ToServer;

/// What all pairs of a client use.
pub(super) struct Own {
    pub(super) codes: BitMatrix,
    pub(super) weights: Wiped<u16>,
    pub(super) session: SessionId,
    pub(super) suite: Suite,
    /// The client itself and its number of rows.
    pub(super) me: (PartyId, usize),
    pub(super) clients: Vec<(PartyId, usize)>,
    /// What all clients share.
    pub(super) seed: Seed,
    pub(super) secret: Seed,
    pub(super) params: &'static Params,
    pub(super) matrix: Ring,
}

impl Own {
    /// The pads of a pair, from their seed.
    pub(super) fn pads(&self, seed: Seed) -> Pads {
        Pads::new(self.session, self.suite, seed)
    }

    /// The messages that `from` sends to many clients, all under one key.
    pub(super) fn broadcast(&self, purpose: &str, from: PartyId, ids: &[u32]) -> Broadcast {
        let ids = [&[from.to_wire()], ids].concat();
        let secret = self.seed.derive(self.session, purpose, &ids);
        Broadcast::new(self.session, &secret, from)
    }
}

/// What all tasks use.
pub(super) struct Shared {
    pub(super) io: Io,
    pub(super) server: Mutex<ToServer>,
}

impl Shared {
    /// Sends the server a part about the pair with `peer`.
    pub(super) fn part(&self, peer: PartyId, text: &[u8]) -> Result<(), Abort> {
        let mut out = Outbox::new();
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        server.send(peer, text, &mut out)?;
        self.io.send_all(out);
        Ok(())
    }

    /// Tells the server that all pairs are finished.
    pub(super) fn done(&self) -> Result<(), Abort> {
        let mut out = Outbox::new();
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        server.done(&mut out)?;
        self.io.send_all(out);
        Ok(())
    }

    /// Asks `peer` for its next message, or its next tile.
    pub(super) fn ask(&self, peer: PartyId, channel: &mut Channel) -> Result<(), Abort> {
        self.send(peer, channel.seal(&[]))
    }

    /// Waits until `peer` asks for the next message or tile. Returns whether it is still there.
    pub(super) async fn asked(
        &self,
        peer: PartyId,
        rank: u8,
        channel: &mut Channel,
    ) -> Result<bool, Abort> {
        let Some(sealed) = self.io.recv_ranked(peer, rank).await else {
            return Ok(false);
        };
        let text = opened(peer, channel.open(&sealed))?;
        // LWE-14
        match text.len() {
            0 => Ok(true),
            have => Err(malformed(peer, "a question", have, 0)),
        }
    }

    /// Sends `peer` a sealed message.
    pub(super) fn send(
        &self,
        peer: PartyId,
        sealed: Result<Vec<u8>, SealError>,
    ) -> Result<(), Abort> {
        let sealed = sealed.map_err(|error| Abort::Internal(error.to_string()))?;
        self.io.send(peer, sealed);
        Ok(())
    }

    /// Sends each of `peers` the same sealed message, one right after another.
    pub(super) fn send_to_all(
        &self,
        peers: &[PartyId],
        sealed: Result<Vec<u8>, SealError>,
    ) -> Result<(), Abort> {
        let sealed = sealed.map_err(|error| Abort::Internal(error.to_string()))?;
        self.io.send_to_all(peers, sealed);
        Ok(())
    }
}

/// What `from` sent, opened: LWE-2.
pub(super) fn opened(from: PartyId, opened: Result<Vec<u8>, SealError>) -> Result<Vec<u8>, Abort> {
    opened.map_err(|error| Abort::Malformed {
        from,
        what: error.to_string(),
    })
}

pub(super) fn malformed(from: PartyId, what: &str, have: usize, due: usize) -> Abort {
    Abort::Malformed {
        from,
        what: format!("{what} of {have} bytes, {due} are due"),
    }
}
