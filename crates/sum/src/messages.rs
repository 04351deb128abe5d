//! The messages of a sum beyond hello and roster.

use undertone_party::frame::TILE_BYTES;
use undertone_party::{Abort, DecodeError, PartyId, Payload, Reader};
use zeroize::Zeroizing;

use super::Word;
use undertone_setup::seal::TAG_LEN;

/// Bytes of a share of a seed.
pub(super) const SHARE_LEN: usize = 32;
/// Bytes of what a dealer seals for a neighbour: a share of its self mask, one of its mask key.
pub(super) const DEALT_LEN: usize = 2 * SHARE_LEN;
/// The same, sealed.
pub(super) const SEALED_LEN: usize = DEALT_LEN + TAG_LEN;
/// Bytes of the commitment to a self mask.
pub(super) const COMMITMENT_LEN: usize = 32;

/// A share of one secret.
pub(super) type Share = Zeroizing<[u8; SHARE_LEN]>;

/// What a holder reveals of a dealer's secrets: one, never both.
pub(super) enum Answer {
    /// Of the self mask of one that contributed.
    SelfMask(Share),
    /// Of the mask key of one that did not.
    MaskKey(Share),
}

impl Answer {
    pub(super) const LEN: usize = 1 + SHARE_LEN;

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let (kind, share) = match self {
            Self::SelfMask(share) => (0, share),
            Self::MaskKey(share) => (1, share),
        };
        out.push(kind);
        out.extend_from_slice(&**share);
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = r.u8("kind of share")?;
        let share = Zeroizing::new(r.array("share")?);
        match kind {
            0 => Ok(Self::SelfMask(share)),
            1 => Ok(Self::MaskKey(share)),
            kind => Err(DecodeError::OutOfRange {
                what: "kind of share",
                value: kind.into(),
                bound: "0..2".into(),
            }),
        }
    }
}

/// Words of the next message of an array of `len` words of which `done` are sent.
pub(super) fn tile<W: Word>(done: usize, len: usize) -> std::ops::Range<usize> {
    done..len.min(done + TILE_BYTES / W::BYTES)
}

/// An array of words that comes in messages, kept as bytes. Memory follows what has come.
#[derive(Default)]
pub(super) struct Incoming {
    pub(super) payloads: Vec<Payload>,
    words: usize,
}

impl Incoming {
    /// Takes the next message of an array of `len` words.
    pub(super) fn take<W: Word>(
        &mut self,
        from: PartyId,
        payload: Payload,
        len: usize,
    ) -> Result<(), Abort> {
        let due = tile::<W>(self.words, len);
        if payload.len() != due.len() * W::BYTES {
            return Err(Abort::Malformed {
                from,
                what: format!(
                    "{} bytes of words, {} are due",
                    payload.len(),
                    due.len() * W::BYTES
                ),
            });
        }
        self.words = due.end;
        self.payloads.push(payload);
        Ok(())
    }

    pub(super) fn is_whole(&self, len: usize) -> bool {
        !self.payloads.is_empty() && self.words == len
    }
}
