//! The messages of a job, other than those of label propagation and of the sums.

use sha2::{Digest, Sha256};
use undertone_job::Job as _;
use undertone_party::frame::TILE_BYTES;
use undertone_party::{Abort, DecodeError, Io, PartyId, Payload, Reader, SessionId, Writer};
use undertone_setup::group::Member;

use crate::groups::Counted;
use crate::job::{Job, MAX_PARAMETERS};

const SERVER: PartyId = PartyId::SERVER;

/// Most clients of a job.
pub(crate) const MAX_CLIENTS: usize = 1 << 20;

/// Parameters in a tile.
const TILE: usize = TILE_BYTES / size_of::<f32>();

/// What a session is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The first session of a job: who takes part, groups, class counts.
    Census,
    /// A round.
    Round,
    /// The last session: the final model goes to all clients.
    Over,
}

/// `Opening`: the server's first message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Opening {
    pub(crate) kind: Kind,
    /// The session of the census, which names the job. In the census itself it is zeros.
    pub(crate) census: SessionId,
    /// The number of the round. In the last session it is the number of the last round begun.
    pub(crate) number: u32,
    /// The clients of the session, in ascending order.
    pub(crate) members: Vec<PartyId>,
}

impl Opening {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u8(match self.kind {
            Kind::Census => 0,
            Kind::Round => 1,
            Kind::Over => 2,
        });
        w.raw(&self.census.0);
        w.u32(self.number);
        write_ids(&mut w, &self.members);
        w.finish()
    }

    /// TRAIN-1.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let kind = match r.u8("kind of the session")? {
            0 => Kind::Census,
            1 => Kind::Round,
            2 => Kind::Over,
            _ => {
                return Err(DecodeError::Invalid {
                    what: "kind of the session",
                    why: "it must be 0 to 2",
                });
            }
        };
        let opening = Self {
            kind,
            census: SessionId(r.array("session of the census")?),
            number: r.u32("number of the round")?,
            members: read_ids(&mut r)?,
        };
        r.finish()?;
        Ok(opening)
    }
}

fn write_ids(w: &mut Writer, ids: &[PartyId]) {
    w.u32(ids.len() as u32);
    for id in ids {
        w.u32(id.to_wire());
    }
}

/// Reads ids of clients, which must be in ascending order.
fn read_ids(r: &mut Reader<'_>) -> Result<Vec<PartyId>, DecodeError> {
    let count = r.index(MAX_CLIENTS + 1, "number of clients")?;
    let bytes = r.raw(4 * count, "clients")?;
    let id = |bytes: &[u8]| {
        let mut wire = [0; 4];
        wire.copy_from_slice(bytes);
        PartyId::from_wire(u32::from_le_bytes(wire))
    };
    let ids: Vec<PartyId> = bytes.chunks_exact(4).map(id).collect();
    let is_client = |who: &PartyId| who.index().is_some();
    if !ids.is_sorted_by(|a, b| a < b) || !ids.iter().all(is_client) {
        return Err(DecodeError::Invalid {
            what: "clients",
            why: "they are not clients in ascending order",
        });
    }
    Ok(ids)
}

/// What a client advertises in the census.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Advertisement {
    pub(crate) rows: u32,
    pub(crate) labelled: u32,
    pub(crate) job: [u8; 32],
    /// The digest of the names of its classes.
    pub(crate) names: [u8; 16],
}

impl Advertisement {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u32(self.rows);
        w.u32(self.labelled);
        w.raw(&self.job);
        w.raw(&self.names);
        w.finish()
    }

    /// TRAIN-5.
    fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let ad = Self {
            rows: r.u32("rows")?,
            labelled: r.u32("labelled rows")?,
            job: r.array("digest of the job")?,
            names: r.array("names of the classes")?,
        };
        r.finish()?;
        if ad.labelled > ad.rows {
            return Err(DecodeError::Invalid {
                what: "labelled rows",
                why: "there are more than rows",
            });
        }
        Ok(ad)
    }

    /// The client that sent this advertisement for `job`.
    pub(crate) fn counted(who: PartyId, bytes: &[u8], job: &Job) -> Result<Counted, Abort> {
        let ad = Self::read(bytes).map_err(Abort::malformed(who))?;
        // TRAIN-6.
        if ad.job != job.digest() {
            return Err(Abort::cheated(who, "its job differs from this party's"));
        }
        Ok(Counted {
            id: who,
            rows: ad.rows,
            labelled: ad.labelled,
        })
    }
}

/// TRAIN-14: all clients name their classes alike. The first of two that do not is not to blame.
pub(crate) fn same_names(members: &[Member]) -> Result<(), Abort> {
    let mut first: Option<(PartyId, [u8; 16])> = None;
    for member in members {
        let ad = Advertisement::read(&member.advertisement);
        let names = ad.map_err(Abort::malformed(member.id))?.names;
        let (one, known) = *first.get_or_insert((member.id, names));
        if names != known {
            return Err(Abort::Misuse(format!(
                "the classes of {} have other names than those of {one}; state them (--classes, in \
                 Python classes=)",
                member.id
            )));
        }
    }
    Ok(())
}

/// The groups of a job, one after the other.
pub(crate) fn write_groups(groups: &[Vec<PartyId>]) -> Vec<u8> {
    let mut w = Writer::default();
    w.u32(groups.len() as u32);
    for group in groups {
        write_ids(&mut w, group);
    }
    w.finish()
}

/// TRAIN-8: reads groups that have no client in common.
pub(crate) fn read_groups(bytes: &[u8]) -> Result<Vec<Vec<PartyId>>, DecodeError> {
    let mut r = Reader::new(bytes);
    let count = r.index(MAX_CLIENTS + 1, "number of groups")?;
    let mut groups = Vec::new();
    for _ in 0..count {
        groups.push(read_ids(&mut r)?);
    }
    r.finish()?;
    let mut all = groups.concat();
    all.sort_unstable();
    if !all.is_sorted_by(|a, b| a < b) {
        return Err(DecodeError::Invalid {
            what: "groups",
            why: "a client is in two of them",
        });
    }
    Ok(groups)
}

/// The digest of a model.
pub(crate) fn digest(model: &[f32]) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(b"undertone/v1/model");
    for values in model.chunks(TILE) {
        digest.update(to_bytes(values));
    }
    digest.finalize().into()
}

fn to_bytes(values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; size_of_val(values)];
    for (to, value) in bytes.chunks_exact_mut(size_of::<f32>()).zip(values) {
        to.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// Sends a model to all of `to`, in tiles.
pub(crate) async fn send_model(io: &Io, to: &[PartyId], model: &[f32]) {
    for values in model.chunks(TILE) {
        io.send_to_all(to, Payload::from(to_bytes(values)));
        io.pause().await;
    }
}

/// Receives a model of `parameters` parameters from the server. Memory grows with what came.
pub(crate) async fn receive_model(io: &Io, parameters: usize) -> Result<Vec<f32>, Abort> {
    let mut model = Vec::new();
    while model.len() < parameters.min(MAX_PARAMETERS) {
        let due = TILE.min(parameters - model.len());
        let message = io.require(SERVER).await?;
        // TRAIN-3.
        if message.len() != due * size_of::<f32>() {
            return Err(Abort::Malformed {
                from: SERVER,
                what: format!(
                    "a part of the model of {} bytes, {} are due",
                    message.len(),
                    4 * due
                ),
            });
        }
        let value = |bytes: &[u8]| {
            let mut le = [0; 4];
            le.copy_from_slice(bytes);
            f32::from_le_bytes(le)
        };
        model.extend(message.chunks_exact(4).map(value));
    }
    // TRAIN-4.
    if let Some(at) = model.iter().position(|value| !value.is_finite()) {
        let fault = format!("parameter {at} of its model is not a finite number");
        return Err(Abort::cheated(SERVER, fault));
    }
    Ok(model)
}

#[cfg(test)]
mod tests {
    use super::*;

    // TRAIN-1, TRAIN-5, TRAIN-8.
    #[test]
    fn messages_survive_the_wire_and_others_are_refused() {
        let ids =
            |ids: &[usize]| -> Vec<PartyId> { ids.iter().copied().map(PartyId::client).collect() };
        let opening = |members| Opening {
            kind: Kind::Round,
            census: SessionId([3; 32]),
            number: 7,
            members,
        };
        let whole = opening(ids(&[0, 2])).write();
        assert_eq!(Opening::read(&whole), Ok(opening(ids(&[0, 2]))));
        for len in 0..whole.len() {
            assert!(Opening::read(&whole[..len]).is_err(), "{len} bytes");
        }
        for members in [ids(&[2, 0]), ids(&[1, 1]), vec![PartyId::SERVER]] {
            assert!(Opening::read(&opening(members).write()).is_err());
        }
        let mut other = whole;
        other[0] = 3;
        assert!(Opening::read(&other).is_err());

        let groups = vec![ids(&[0, 3]), ids(&[1, 2])];
        assert_eq!(read_groups(&write_groups(&groups)), Ok(groups));
        assert!(read_groups(&write_groups(&[ids(&[0, 3]), ids(&[3])])).is_err());

        let ad = Advertisement {
            rows: 3,
            labelled: 4,
            job: [0; 32],
            names: [0; 16],
        };
        assert!(Advertisement::read(&ad.write()).is_err());
    }
}
