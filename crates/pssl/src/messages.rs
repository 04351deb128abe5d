//! Messages.

use std::collections::BTreeMap;
use std::ops::Range;

use undertone_job::Job as _;
use undertone_party::{Abort, DecodeError, PartyId, Reader, Writer};
use undertone_setup::group::Member;

use crate::job::{Job, MAX_CLIENTS, MAX_ROWS};

/// Bytes of a slot on the wire.
const SLOT_LEN: usize = 4;

/// Most scores of all clients' rows together: each client holds so many words in a round.
const MAX_SCORES: usize = 1 << 27;

/// A row without a slot.
const NONE: u32 = u32::MAX;

/// What a client says at first: the digest of its job (32) and its number of rows (4).
pub(crate) struct Hello {
    digest: [u8; 32],
    rows: usize,
}

impl Hello {
    pub(crate) fn new(job: &Job, rows: usize) -> Self {
        Self {
            digest: job.digest(),
            rows,
        }
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.raw(&self.digest);
        w.u32(self.rows as u32);
        w.finish()
    }

    fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let digest = r.array("digest of the job")?;
        let rows = r.index(MAX_ROWS + 1, "number of rows")?;
        r.finish()?;
        Ok(Self { digest, rows })
    }

    /// The slots of all members: one for each row, in the order of the members.
    ///
    /// # Errors
    /// A member to blame, or too many members.
    pub(crate) fn slots(
        job: &Job,
        members: &[Member],
    ) -> Result<BTreeMap<PartyId, Range<usize>>, Abort> {
        if members.len() > MAX_CLIENTS {
            return Err(Abort::Misuse(format!(
                "{} clients; at most {MAX_CLIENTS} are possible",
                members.len()
            )));
        }
        let mut slots = BTreeMap::new();
        let mut end = 0;
        for member in members {
            // PSSL-3.
            let hello = Self::read(&member.advertisement).map_err(Abort::malformed(member.id))?;
            // PSSL-4.
            if hello.digest != job.digest() {
                let fault = "its job differs from this party's";
                return Err(Abort::cheated(member.id, fault));
            }
            // PSSL-5.
            if hello.rows == 0 {
                return Err(Abort::cheated(member.id, "it has no rows"));
            }
            slots.insert(member.id, end..end + hello.rows);
            end += hello.rows;
            check_rows(job, end)?;
        }
        Ok(slots)
    }
}

/// PSSL-14: bounds the rows of all clients together.
fn check_rows(job: &Job, rows: usize) -> Result<(), Abort> {
    let most = MAX_SCORES / job.classes;
    if rows <= most {
        return Ok(());
    }
    Err(Abort::Misuse(format!(
        "the clients have more than {most} rows together, too many for {} classes",
        job.classes
    )))
}

/// The slots of edges.
pub(crate) fn write_slots(slots: &[Option<usize>]) -> Vec<u8> {
    let mut w = Writer::default();
    for slot in slots {
        w.u32(slot.map_or(NONE, |slot| slot as u32));
    }
    w.finish()
}

/// Reads the slots of `edges` edges, each below `rows`.
pub(crate) fn read_slots(
    from: PartyId,
    bytes: &[u8],
    edges: usize,
    rows: usize,
) -> Result<Vec<Option<usize>>, Abort> {
    let malformed = |what| Abort::Malformed { from, what };
    // PSSL-10.
    if bytes.len() != SLOT_LEN * edges {
        let due = SLOT_LEN * edges;
        return Err(malformed(format!(
            "slots of {} bytes, {due} are due",
            bytes.len()
        )));
    }
    let mut taken = vec![false; rows];
    let slot = |bytes: &[u8]| {
        let slot = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        if slot == NONE {
            return Ok(None);
        }
        // PSSL-11.
        match taken.get_mut(slot as usize) {
            Some(taken) if !*taken => {
                *taken = true;
                Ok(Some(slot as usize))
            }
            Some(_) => Err(malformed(format!("slot {slot} for two edges"))),
            None => Err(malformed(format!("slot {slot} of {rows}"))),
        }
    };
    bytes.chunks_exact(SLOT_LEN).map(slot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PSSL-14.
    #[test]
    fn clients_with_too_many_rows_are_refused() {
        let job = Job::new(4, 16, 64, 10);
        let most = MAX_SCORES / 64;
        assert!(check_rows(&job, most).is_ok());
        let refused = check_rows(&job, most + 1).unwrap_err().to_string();
        assert!(refused.contains("too many for 64 classes"), "{refused}");
    }
}
