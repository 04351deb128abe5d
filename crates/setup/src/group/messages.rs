//! The messages of the setup beyond the hello.

use undertone_party::{Abort, PartyId, Payload, Reader, Writer};

use super::{Member, SERVER};
use crate::roster::Entry;

/// `Roster`: the server's key and the roster, still encoded.
pub(super) struct Roster<'a> {
    pub(super) server_key: [u8; 32],
    pub(super) entries: &'a [u8],
}

impl<'a> Roster<'a> {
    pub(super) fn write(server_key: [u8; 32], members: &[Member]) -> Vec<u8> {
        let mut bytes = server_key.to_vec();
        bytes.extend(Entry::write_roster(members));
        bytes
    }

    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, Abort> {
        let malformed = Abort::malformed(SERVER); // SETUP-6
        let mut r = Reader::new(bytes);
        let server_key = r.array("key of the server").map_err(&malformed)?;
        let entries = r.raw(r.remaining(), "roster").map_err(&malformed)?;
        Ok(Self {
            server_key,
            entries,
        })
    }
}

/// `Contributions`: one for every other client of the roster, in order.
pub(super) struct Contributions {
    bytes: Payload,
    /// Bytes of one contribution.
    len: usize,
    /// The place of its sender.
    from: usize,
}

impl Contributions {
    /// Reads what client `id` in place `from` of a roster of `members` sent.
    pub(super) fn read(
        id: PartyId,
        from: usize,
        bytes: Payload,
        len: usize,
        members: usize,
    ) -> Result<Self, Abort> {
        let due = (members - 1) * len;
        // SETUP-12.
        if bytes.len() != due {
            return Err(Abort::Malformed {
                from: id,
                what: format!("{} bytes of contributions, {due} are due", bytes.len()),
            });
        }
        Ok(Self { bytes, len, from })
    }

    /// The contribution to the client in place `to`, not the sender's place.
    fn to(&self, to: usize) -> &[u8] {
        let place = to - usize::from(self.from < to);
        &self.bytes[place * self.len..(place + 1) * self.len]
    }
}

/// `Admission`: who is in, and the contributions of the other clients that are in.
pub(super) struct Admission<'a> {
    /// A flag for each client of the roster.
    pub(super) is_in: Vec<bool>,
    /// Of the clients that are in, in order, without the receiver.
    contributions: Reader<'a>,
}

impl<'a> Admission<'a> {
    /// Writes the message to the client in place `to` from what all clients sent.
    pub(super) fn write(to: usize, sent: &[Option<Contributions>]) -> Vec<u8> {
        let mut w = Writer::default();
        for sent in sent {
            w.u8(sent.is_some().into());
        }
        for sent in sent.iter().flatten().filter(|sent| sent.from != to) {
            w.raw(sent.to(to));
        }
        w.finish()
    }

    /// Reads the message as a client of a roster of `members` (SETUP-13).
    pub(super) fn read(bytes: &'a [u8], members: usize) -> Result<Self, Abort> {
        let mut r = Reader::new(bytes);
        let mut is_in = Vec::with_capacity(members);
        for _ in 0..members {
            is_in.push(r.flag("membership").map_err(Abort::malformed(SERVER))?);
        }
        Ok(Self {
            is_in,
            contributions: r,
        })
    }

    /// The next contribution, of `len` bytes.
    pub(super) fn next(&mut self, len: usize) -> Result<&'a [u8], Abort> {
        let next = self.contributions.raw(len, "contribution");
        next.map_err(Abort::malformed(SERVER))
    }

    /// Checks that no bytes are left.
    pub(super) fn finish(self) -> Result<(), Abort> {
        self.contributions
            .finish()
            .map_err(Abort::malformed(SERVER))
    }
}
