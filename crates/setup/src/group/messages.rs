//! The messages of the setup beyond the hello.

use undertone_party::{Abort, PartyId, Payload, Reader, Writer};

use super::{Member, SERVER};
use crate::roster::Entry;

/// Step 2: the server's key, and the roster, still encoded.
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
        let malformed = Abort::malformed(SERVER);
        let mut r = Reader::new(bytes);
        let server_key = r.array("key of the server").map_err(&malformed)?;
        let entries = r.raw(r.remaining(), "roster").map_err(&malformed)?;
        Ok(Self {
            server_key,
            entries,
        })
    }
}

/// Step 3: a client's contributions, one for every other client of the roster, in order.
pub(super) struct Contributions {
    bytes: Payload,
    /// Bytes of one.
    len: usize,
    /// The place of its sender.
    from: usize,
}

impl Contributions {
    /// What the client `id` in place `from` sent, for a roster of `members`.
    pub(super) fn read(
        id: PartyId,
        from: usize,
        bytes: Payload,
        len: usize,
        members: usize,
    ) -> Result<Self, Abort> {
        let due = (members - 1) * len;
        if bytes.len() != due {
            return Err(Abort::Malformed {
                from: id,
                what: format!("{} bytes of contributions, {due} are due", bytes.len()),
            });
        }
        Ok(Self { bytes, len, from })
    }

    /// The one for the client in place `to`, which is another than the sender.
    fn to(&self, to: usize) -> &[u8] {
        let place = to - usize::from(self.from < to);
        &self.bytes[place * self.len..(place + 1) * self.len]
    }
}

/// Step 4: who is in, and the contributions of the others that are.
pub(super) struct Admission<'a> {
    /// A flag for each client of the roster.
    pub(super) is_in: Vec<bool>,
    /// In the order of those that are in, the receiver left out.
    contributions: Reader<'a>,
}

impl<'a> Admission<'a> {
    /// Writes the message to the client in place `to`, of what everybody sent.
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

    /// Reads it as a client of a roster of `members`.
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

    /// Checks that there are no more.
    pub(super) fn finish(self) -> Result<(), Abort> {
        self.contributions
            .finish()
            .map_err(Abort::malformed(SERVER))
    }
}
