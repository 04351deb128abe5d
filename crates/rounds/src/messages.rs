//! The messages of a round, without those of its sum.

use crate::arrays::{Layout, MAX_LAYOUT};
use undertone_party::{Abort, DecodeError, Io, PartyId, Payload, Reader, Writer};

/// Words in a tile.
const TILE: usize = (1 << 20) / 8;

/// Most contributors in a header.
const MAX_CONTRIBUTORS: usize = 1 << 20;

/// `Opening`: the server's first message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Opening {
    /// The number of finished rounds.
    pub(super) finished: u32,
    /// Whether this session runs a round.
    pub(super) is_due: bool,
    /// Whether the mean of the last round follows.
    pub(super) mean_follows: bool,
}

impl Opening {
    pub(super) fn write(self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u32(self.finished);
        w.u8(self.is_due.into());
        w.u8(self.mean_follows.into());
        w.finish()
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let opening = Self {
            finished: r.u32("finished rounds")?,
            is_due: r.flag("whether a round is due")?,
            mean_follows: r.flag("whether a mean follows")?,
        };
        r.finish()?;
        Ok(opening)
    }
}

/// Reads the number of the last mean that a client has, 0 if it has none (ROUND-1).
pub(super) fn read_number(bytes: &[u8]) -> Result<u32, DecodeError> {
    let mut r = Reader::new(bytes);
    let number = r.u32("number of the last mean")?;
    r.finish()?;
    Ok(number)
}

/// Reads a layout that has values (ROUND-9).
pub(super) fn read_layout(bytes: &[u8]) -> Result<Layout, DecodeError> {
    let refused = |why| DecodeError::Invalid {
        what: "layout",
        why,
    };
    if bytes.len() > MAX_LAYOUT {
        return Err(refused("it is too long"));
    }
    let layout = Layout::read(bytes)?;
    if layout.is_empty() {
        return Err(refused("it has no values"));
    }
    Ok(layout)
}

/// The header of a mean, before its words.
#[derive(Debug, Clone, PartialEq)]
pub struct MeanHeader {
    /// The number of the round, from 1.
    pub round: u32,
    /// The clients whose words are in the sum.
    pub contributors: Vec<PartyId>,
    /// The layout of the mean's arrays.
    pub layout: Layout,
}

impl MeanHeader {
    /// The header in bytes.
    pub fn write(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u32(self.round);
        w.u32(self.contributors.len() as u32);
        for who in &self.contributors {
            w.u32(who.to_wire());
        }
        w.raw(&self.layout.write());
        w.finish()
    }

    /// Reads what [`MeanHeader::write`] writes (ROUND-12).
    ///
    /// # Errors
    /// A [`DecodeError`] that says what is wrong.
    pub fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let round = r.u32("round")?;
        let count = r.index(MAX_CONTRIBUTORS, "number of contributors")?;
        let ids = r.raw(4 * count, "contributors")?;
        let id = |bytes: &[u8]| {
            let mut wire = [0; 4];
            wire.copy_from_slice(bytes);
            PartyId::from_wire(u32::from_le_bytes(wire))
        };
        let contributors: Vec<PartyId> = ids.chunks_exact(4).map(id).collect();
        let is_client = |who: &PartyId| who.index().is_some();
        if !contributors.is_sorted_by(|a, b| a < b) || !contributors.iter().all(is_client) {
            return Err(DecodeError::Invalid {
                what: "contributors",
                why: "they are not clients in ascending order",
            });
        }
        let rest = r.raw(r.remaining(), "layout")?;
        Ok(Self {
            round,
            contributors,
            layout: read_layout(rest)?,
        })
    }
}

/// The tiles of `words` words.
fn tiles(words: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let starts = (0..words).step_by(TILE);
    starts.map(move |start| start..words.min(start + TILE))
}

/// Sends the header and the words of a mean to all of `to`.
pub(super) async fn send_mean(io: &Io, to: &[PartyId], header: &MeanHeader, words: &[u64]) {
    let message = header.write();
    for who in to {
        io.send(*who, &message[..]);
    }
    for tile in tiles(words.len()) {
        let mut w = Writer::with_capacity(8 * tile.len());
        w.u64s(&words[tile]);
        let message = Payload::from(w.finish());
        for who in to {
            io.send(*who, message.clone());
            io.pause().await;
        }
    }
}

/// Receives the header and the words of a mean from the server. `words_of` checks the header and
/// returns the number of words that follow. It uses memory only for what came.
pub(super) async fn receive_mean(
    io: &Io,
    words_of: impl FnOnce(&MeanHeader) -> Result<usize, Abort>,
) -> Result<(MeanHeader, Vec<u64>), Abort> {
    const SERVER: PartyId = PartyId::SERVER;
    let header = MeanHeader::read(&io.require(SERVER).await?).map_err(Abort::malformed(SERVER))?;
    let due = words_of(&header)?;
    let mut words = Vec::new();
    for tile in tiles(due) {
        let message = io.require(SERVER).await?;
        // ROUND-13.
        let mut r = Reader::new(&message);
        let read = r.u64s(tile.len(), "words of a mean");
        words.extend(read.map_err(Abort::malformed(SERVER))?);
        r.finish().map_err(Abort::malformed(SERVER))?;
    }
    Ok((header, words))
}

#[cfg(test)]
mod tests {
    use crate::arrays::Arrays;

    use super::*;

    // ROUND-12.
    #[test]
    fn messages_survive_the_wire() {
        let opening = Opening {
            finished: 7,
            is_due: true,
            mean_follows: false,
        };
        assert_eq!(Opening::read(&opening.write()), Ok(opening));
        let header = MeanHeader {
            round: 7,
            contributors: vec![PartyId::client(0), PartyId::client(3)],
            layout: Arrays::from(vec![1.0f32, 2.0]).layout(),
        };
        assert_eq!(MeanHeader::read(&header.write()), Ok(header.clone()));
        let swapped = MeanHeader {
            contributors: vec![PartyId::client(3), PartyId::client(0)],
            ..header.clone()
        };
        assert!(MeanHeader::read(&swapped.write()).is_err());
        let of_server = MeanHeader {
            contributors: vec![PartyId::SERVER],
            ..header.clone()
        };
        assert!(MeanHeader::read(&of_server.write()).is_err());
        let whole = header.write();
        for len in 0..whole.len() {
            assert!(MeanHeader::read(&whole[..len]).is_err(), "{len} bytes");
        }
    }
}
