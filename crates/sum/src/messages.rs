//! The messages of a sum beyond hello and roster.

use undertone_kdf::Seed;
use undertone_party::frame::{HEADER_LEN, TILE_BYTES};
use undertone_party::{Abort, DecodeError, PartyId, Payload, Reader, Writer};
use undertone_setup::identity::SIGNATURE_LEN;
use zeroize::Zeroizing;

use super::{Set, Table, Word};
use undertone_setup::seal::TAG_LEN;

/// Bytes of a share of a seed.
pub(super) const SHARE_LEN: usize = 32;
/// Bytes that a dealer seals for a neighbour: a share of its self mask and one of its mask key.
pub(super) const DEALT_LEN: usize = 2 * SHARE_LEN;
/// The same bytes, sealed.
pub(super) const SEALED_LEN: usize = DEALT_LEN + TAG_LEN;
/// Bytes of the commitment to a self mask.
pub(super) const COMMITMENT_LEN: usize = 32;

/// A share of one secret.
pub(super) type Share = Zeroizing<[u8; SHARE_LEN]>;

/// A share that a holder reveals: of one of the dealer's two secrets, never of both.
pub(super) enum Answer {
    /// Of the self mask of a contributor.
    SelfMask(Share),
    /// Of the mask key of a client that shared and does not contribute.
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

/// `Dealing`, step 2d: the sealed shares for each neighbour, in order, and the commitment to the
/// dealer's self mask.
pub(super) struct Dealing {
    bytes: Payload,
    /// The dealer's neighbours, in order.
    neighbours: Vec<usize>,
}

impl Dealing {
    pub(super) fn write(sealed: &[Vec<u8>], commitment: &Seed) -> Vec<u8> {
        let mut w = Writer::with_capacity(sealed.len() * SEALED_LEN + COMMITMENT_LEN);
        for sealed in sealed {
            w.raw(sealed);
        }
        w.raw(commitment.expose());
        w.finish()
    }

    /// Reads what `from` sent, which has these neighbours (SUM-6).
    pub(super) fn read(
        from: PartyId,
        bytes: Payload,
        neighbours: Vec<usize>,
    ) -> Result<Self, Abort> {
        let due = neighbours.len() * SEALED_LEN + COMMITMENT_LEN;
        if bytes.len() != due {
            return Err(Abort::Malformed {
                from,
                what: format!("{} bytes of shares, {due} are due", bytes.len()),
            });
        }
        Ok(Self { bytes, neighbours })
    }

    /// The sealed shares for the neighbour in place `to`.
    fn sealed(&self, to: usize) -> &[u8] {
        let rank = self.neighbours.partition_point(|other| *other < to);
        &self.bytes[rank * SEALED_LEN..(rank + 1) * SEALED_LEN]
    }

    pub(super) fn commitment(&self) -> [u8; COMMITMENT_LEN] {
        let mut commitment = [0; COMMITMENT_LEN];
        commitment.copy_from_slice(&self.bytes[self.bytes.len() - COMMITMENT_LEN..]);
        commitment
    }
}

/// `Relayed`, step 2e: who shared, and the sealed shares from the receiver's neighbours that did,
/// in order.
pub(super) struct Relayed<'a> {
    pub(super) sharing: Set,
    shares: Reader<'a>,
}

impl<'a> Relayed<'a> {
    /// Writes the message to the client in place `to` from all dealings.
    pub(super) fn write(
        table: &Table,
        sharing: &Set,
        dealt: &[Option<Dealing>],
        to: usize,
    ) -> Vec<u8> {
        let mut message = sharing.write();
        for from in table.neighbours_in(to, sharing) {
            if let Some(dealing) = &dealt[from] {
                message.extend_from_slice(dealing.sealed(to));
            }
        }
        message
    }

    /// Reads the message as a client of a roster of `clients` (SUM-8).
    pub(super) fn read(bytes: &'a [u8], clients: usize) -> Result<Self, Abort> {
        let mut shares = Reader::new(bytes);
        let sharing = Set::read(&mut shares, clients)?;
        Ok(Self { sharing, shares })
    }

    /// The sealed shares of the next neighbour.
    pub(super) fn next(&mut self) -> Result<&'a [u8], Abort> {
        let next = self.shares.raw(SEALED_LEN, "shares");
        next.map_err(Abort::malformed(PartyId::SERVER))
    }

    /// Checks that no bytes are left.
    pub(super) fn finish(self) -> Result<(), Abort> {
        let end = self.shares.finish();
        end.map_err(Abort::malformed(PartyId::SERVER))
    }
}

/// `Signatures`, step 4b: who signed, and their signatures in order.
pub(super) struct Signatures {
    pub(super) signers: Set,
    pub(super) signatures: Vec<[u8; SIGNATURE_LEN]>,
}

impl Signatures {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut message = self.signers.write();
        message.extend(self.signatures.as_flattened());
        message
    }

    /// Reads the message as a client of a roster of `clients` (SUM-22).
    pub(super) fn read(bytes: &[u8], clients: usize) -> Result<Self, Abort> {
        let malformed = Abort::malformed(PartyId::SERVER);
        let mut r = Reader::new(bytes);
        let signers = Set::read(&mut r, clients)?;
        let mut signatures = Vec::with_capacity(signers.count());
        for _ in signers.places() {
            signatures.push(r.array("signature").map_err(&malformed)?);
        }
        r.finish().map_err(&malformed)?;
        Ok(Self {
            signers,
            signatures,
        })
    }
}

/// `Answers`, step 4c: the client's own share of its own self mask, and one share of each neighbour
/// that shared, in order.
pub(super) struct Answers;

impl Answers {
    pub(super) fn write(own: &Share, answers: impl ExactSizeIterator<Item = Answer>) -> Vec<u8> {
        let mut message = Vec::with_capacity(SHARE_LEN + answers.len() * Answer::LEN);
        message.extend_from_slice(&**own);
        answers.for_each(|answer| answer.write(&mut message));
        message
    }

    /// Reads the shares that `from` reveals, its own first. `dealers` is the number of its
    /// neighbours that shared (SUM-26).
    pub(super) fn read(
        from: PartyId,
        bytes: Payload,
        dealers: usize,
    ) -> Result<(Share, Vec<Answer>), Abort> {
        let frame = Zeroizing::new(bytes.into_frame());
        let read = || {
            let mut r = Reader::new(&frame[HEADER_LEN..]);
            let own = Zeroizing::new(r.array("share")?);
            let answers: Result<Vec<Answer>, DecodeError> =
                (0..dealers).map(|_| Answer::read(&mut r)).collect();
            let answers = answers?;
            r.finish()?;
            Ok((own, answers))
        };
        read().map_err(Abort::malformed(from))
    }
}

/// The range of the next message of an array of `len` words, after `done` words.
pub(super) fn tile<W: Word>(done: usize, len: usize) -> std::ops::Range<usize> {
    done..len.min(done + TILE_BYTES / W::BYTES)
}

/// An array of words that arrives in messages, kept as bytes. It uses memory only for what came.
#[derive(Default)]
pub(super) struct Incoming {
    pub(super) payloads: Vec<Payload>,
    words: usize,
}

impl Incoming {
    /// Takes the next message of an array of `len` words (SUM-14, SUM-31).
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
