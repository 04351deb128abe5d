//! The messages of a job, other than those of sums and garbled circuits.

use sha2::{Digest, Sha256};
use undertone_party::{DecodeError, PartyId, Reader, SessionId, Writer};

use crate::ballots::{Labels, labels_len, read_labels, write_labels};
use crate::job::{Job, MAX_CLIENTS};

/// What a session is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An exchange.
    Exchange,
    /// The last session: all clients get the last consensus.
    Over,
}

/// `Opening`: the server's first message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Opening {
    pub(crate) kind: Kind,
    /// The number of the exchange, from 1. In the last session it is that of the last one begun.
    pub(crate) number: u32,
    /// The clients of the session, in ascending order.
    pub(crate) members: Vec<PartyId>,
    /// The consensus of the last exchange that succeeded.
    pub(crate) labels: Option<Labels>,
}

impl Opening {
    pub(crate) fn write(&self, job: &Job) -> Vec<u8> {
        let mut w = Writer::default();
        w.u8(match self.kind {
            Kind::Exchange => 0,
            Kind::Over => 1,
        });
        w.u32(self.number);
        w.u32(self.members.len() as u32);
        for member in &self.members {
            w.u32(member.to_wire());
        }
        w.u8(self.labels.is_some().into());
        if let Some(labels) = &self.labels {
            w.raw(&write_labels(labels, job.classes));
        }
        w.finish()
    }

    /// FEDCT-1.
    pub(crate) fn read(bytes: &[u8], job: &Job) -> Result<Self, DecodeError> {
        let invalid = |what, why| Err(DecodeError::Invalid { what, why });
        let mut r = Reader::new(bytes);
        let kind = match r.u8("kind of the session")? {
            0 => Kind::Exchange,
            1 => Kind::Over,
            _ => return invalid("kind of the session", "it must be 0 or 1"),
        };
        let number = r.u32("number of the exchange")?;
        let count = r.index(MAX_CLIENTS + 1, "number of clients")?;
        let mut members = Vec::new();
        for _ in 0..count {
            members.push(PartyId::from_wire(r.u32("client")?));
        }
        let is_client = |who: &PartyId| who.index().is_some();
        if !members.is_sorted_by(|a, b| a < b) || !members.iter().all(is_client) {
            return invalid("clients", "they are not clients in ascending order");
        }
        let labels = match r.u8("whether there is a consensus")? {
            0 => None,
            1 => {
                let bytes = r.raw(labels_len(job.rows, job.classes), "consensus")?;
                let labels = read_labels(bytes, job.rows, job.classes);
                match labels {
                    Some(labels) => Some(labels),
                    None => return invalid("consensus", "a label is no class"),
                }
            }
            _ => return invalid("whether there is a consensus", "it must be 0 or 1"),
        };
        r.finish()?;
        Ok(Self {
            kind,
            number,
            members,
            labels,
        })
    }
}

/// `Plan`: the slices that are summed next, each with its helper; or none, if all slices have a
/// helper that is ready, and the circuits come next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan(pub(crate) Vec<(u32, PartyId)>);

impl Plan {
    /// The first plan: slice i is that of voter i.
    pub(crate) fn first(voters: &[PartyId], slices: usize) -> Self {
        Self((0..).zip(voters.iter().copied()).take(slices).collect())
    }

    /// The session of the sum of this plan. Clients that are told different plans have different
    /// ones, and do not add up the votes of different rows.
    pub(crate) fn context(&self, context: SessionId, attempt: u32) -> SessionId {
        let hash = Sha256::new()
            .chain_update(b"undertone/v1/co-training plan")
            .chain_update(context.0)
            .chain_update(attempt.to_le_bytes())
            .chain_update(self.write());
        SessionId(hash.finalize().into())
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u32(self.0.len() as u32);
        for (slice, helper) in &self.0 {
            w.u32(*slice);
            w.u32(helper.to_wire());
        }
        w.finish()
    }

    /// FEDCT-6: slices below `slices`, in ascending order.
    pub(crate) fn read(bytes: &[u8], slices: usize) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let count = r.index(slices + 1, "number of slices")?;
        let mut plan = Vec::new();
        for _ in 0..count {
            let slice = r.index(slices, "slice")? as u32;
            plan.push((slice, PartyId::from_wire(r.u32("helper")?)));
        }
        r.finish()?;
        if !plan.is_sorted_by(|a, b| a.0 < b.0) {
            return Err(DecodeError::Invalid {
                what: "slices",
                why: "they are not in ascending order",
            });
        }
        Ok(Self(plan))
    }

    /// The helper of a slice.
    pub(crate) fn helper(&self, slice: usize) -> Option<PartyId> {
        let at = self
            .0
            .binary_search_by_key(&(slice as u32), |(slice, _)| *slice);
        at.ok().map(|at| self.0[at].1)
    }
}
