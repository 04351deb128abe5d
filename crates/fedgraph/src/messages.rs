//! Messages.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};
use undertone_job::Job as _;
use undertone_party::frame::TILE_BYTES;
use undertone_party::{Abort, DecodeError, Io, PartyId, Reader, Writer};
use undertone_setup::group::Member;

use crate::checkpoint::{Checkpoint, MAX_SAVED, PREPARED, steps};
use crate::data::MAX_COLUMNS;
use crate::graph::{Graph, Tag};
use crate::job::Job;
use crate::matrix::Matrix;

/// The step of a run that starts anew.
const ANEW: u32 = u32::MAX;

/// What a client says at first: the digest of its job (32), the number of its checkpoints (1), and
/// of each its step (4) and its digest (16).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) saved: Vec<(u32, [u8; 16])>,
}

impl Hello {
    pub(crate) fn new(saved: &[Checkpoint]) -> Self {
        let saved = saved.iter().take(MAX_SAVED);
        Self {
            saved: saved.map(|saved| (saved.step, saved.digest())).collect(),
        }
    }

    pub(crate) fn write(&self, job: &Job) -> Vec<u8> {
        let mut w = Writer::default();
        w.raw(&job.digest());
        w.u8(self.saved.len() as u8);
        for (step, digest) in &self.saved {
            w.u32(*step);
            w.raw(digest);
        }
        w.finish()
    }

    fn read(bytes: &[u8]) -> Result<([u8; 32], Self), DecodeError> {
        let mut r = Reader::new(bytes);
        let digest = r.array("digest of the job")?;
        let count = r.u8("number of checkpoints")?;
        if usize::from(count) > MAX_SAVED {
            return Err(DecodeError::OutOfRange {
                what: "number of checkpoints",
                value: count.into(),
                bound: format!("0..={MAX_SAVED}"),
            });
        }
        let mut saved = Vec::new();
        for _ in 0..count {
            saved.push((r.u32("step")?, r.array("digest of a checkpoint")?));
        }
        r.finish()?;
        Ok((digest, Self { saved }))
    }

    /// What all members said.
    ///
    /// # Errors
    /// A member to blame, or clients that are missing.
    pub(crate) fn all(job: &Job, members: &[Member]) -> Result<Vec<Self>, Abort> {
        // FEDGRAPH-2.
        if members.len() != job.clients {
            return Err(Abort::Misuse(format!(
                "{} clients are in, the job is for {}",
                members.len(),
                job.clients
            )));
        }
        let hello = |member: &Member| {
            // FEDGRAPH-3.
            let read = Self::read(&member.advertisement);
            let (digest, hello) = read.map_err(Abort::malformed(member.id))?;
            // FEDGRAPH-4.
            if digest != job.digest() {
                return Err(Abort::cheated(
                    member.id,
                    "its job differs from this party's",
                ));
            }
            Ok(hello)
        };
        members.iter().map(hello).collect()
    }

    /// Whether all have a checkpoint with this digest, after so many steps.
    pub(crate) fn have(all: &[Self], (due, digest): &(u32, [u8; 16])) -> bool {
        let is_due = |(step, own): &(u32, [u8; 16])| (steps(*step), own) == (*due, digest);
        all.iter().all(|hello| hello.saved.iter().any(is_due))
    }

    /// Whether the client may have contributed to the training.
    pub(crate) fn has_begun(&self) -> bool {
        self.saved.iter().any(|(step, _)| *step != PREPARED)
    }

    /// Its checkpoints: how many steps were taken, and the digest.
    pub(crate) fn saved(&self) -> impl Iterator<Item = (u32, [u8; 16])> {
        self.saved
            .iter()
            .map(|(step, digest)| (steps(*step), *digest))
    }
}

/// Where the run starts: after a step that all have, or anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start(pub(crate) Option<u32>);

impl Start {
    pub(crate) fn write(self) -> Vec<u8> {
        self.0.unwrap_or(ANEW).to_le_bytes().to_vec()
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let step = r.u32("step to start from")?;
        r.finish()?;
        Ok(Self((step != ANEW).then_some(step)))
    }
}

/// FEDGRAPH-16: the message of a client that has its first checkpoint, and the server's when all
/// have one, are empty.
pub(crate) async fn recv_signal(io: &Io, from: PartyId) -> Result<(), Abort> {
    let message = io.require(from).await?;
    let end = Reader::new(&message).finish();
    end.map_err(Abort::malformed(from))
}

/// What a client says about its data: the tag of all labels (16), and a sorted tag (8) for each
/// feature. Tags come from a secret of the clients, so the server can compare them and cannot tell
/// what they stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Features {
    pub(crate) labels: [u8; 16],
    pub(crate) tags: Vec<Tag>,
}

impl Features {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.raw(&self.labels);
        self.tags.iter().for_each(|tag| w.raw(tag));
        w.finish()
    }

    /// The digest of what all clients said, in order.
    pub(crate) fn digest(all: &[Self]) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update(b"undertone/v1/features of a graph");
        for features in all {
            let message = features.write();
            digest.update((message.len() as u32).to_le_bytes());
            digest.update(message);
        }
        digest.finalize().into()
    }

    /// The number of different features of clients that said this.
    pub(crate) fn count(all: &[Self]) -> usize {
        let tags: BTreeSet<&Tag> = all.iter().flat_map(|features| &features.tags).collect();
        tags.len()
    }

    /// The graph of clients that said this.
    pub(crate) fn graph(all: &[Self]) -> Graph {
        let tags: Vec<Vec<Tag>> = all.iter().map(|features| features.tags.clone()).collect();
        Graph::new(&tags)
    }

    /// Reads what `from` said (FEDGRAPH-5).
    pub(crate) fn read(from: PartyId, bytes: &[u8]) -> Result<Self, Abort> {
        let read = || {
            let mut r = Reader::new(bytes);
            let labels = r.array("tag of the labels")?;
            let count = r.remaining() / size_of::<Tag>();
            if count == 0 || count > MAX_COLUMNS {
                return Err(DecodeError::OutOfRange {
                    what: "number of features",
                    value: count as u64,
                    bound: format!("1..={MAX_COLUMNS}"),
                });
            }
            let mut tags = Vec::with_capacity(count);
            for _ in 0..count {
                tags.push(r.array("tag of a feature")?);
            }
            r.finish()?;
            if !tags.is_sorted_by(|a, b| a < b) {
                return Err(DecodeError::Invalid {
                    what: "tags of features",
                    why: "they must be in order, each once",
                });
            }
            Ok(Self { labels, tags })
        };
        read().map_err(Abort::malformed(from))
    }
}

/// Values of one message of floats.
const TILE: usize = TILE_BYTES / 4;

/// Sends matrices in single precision, tile by tile.
pub(crate) async fn send_floats(io: &Io, to: PartyId, matrices: &[&Matrix]) {
    let mut values = matrices.iter().flat_map(|matrix| matrix.values());
    let mut left: usize = matrices.iter().map(|matrix| matrix.values().len()).sum();
    while left > 0 {
        let now = left.min(TILE);
        let mut message = Vec::with_capacity(4 * now);
        for value in values.by_ref().take(now) {
            message.extend_from_slice(&(*value as f32).to_le_bytes());
        }
        io.send(to, message);
        left -= now;
        if left > 0 {
            io.pause().await;
        }
    }
}

/// Receives matrices of these sizes. Their values are finite (FEDGRAPH-6).
pub(crate) async fn recv_floats(
    io: &Io,
    from: PartyId,
    sizes: &[(usize, usize)],
) -> Result<Vec<Matrix>, Abort> {
    let mut left: usize = sizes.iter().map(|(rows, columns)| rows * columns).sum();
    let mut values = Vec::with_capacity(left.min(TILE));
    while left > 0 {
        let message = io.require(from).await?;
        let due = 4 * left.min(TILE);
        let malformed = |what| Abort::Malformed { from, what };
        if message.len() != due {
            let what = format!("{} bytes of values, {due} are due", message.len());
            return Err(malformed(what));
        }
        for bytes in message.as_chunks::<4>().0 {
            let value = f32::from_le_bytes(*bytes);
            if !value.is_finite() {
                return Err(malformed("a value that is not a finite number".into()));
            }
            values.push(f64::from(value));
        }
        left -= due / 4;
    }
    let mut out = Vec::with_capacity(sizes.len());
    let mut values = values.into_iter();
    for (rows, columns) in sizes {
        let values = values.by_ref().take(rows * columns).collect();
        let matrix = Matrix::new(*rows, *columns, values);
        out.push(matrix.ok_or_else(|| Abort::Internal("values were counted".into()))?);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use undertone_setup::roster::Entry;

    use super::*;

    /// FEDGRAPH-3.
    #[test]
    fn hellos_that_do_not_decode_name_their_sender() {
        let job = Job::new(3, 10, 2, 2);
        let saved = vec![(7, [1; 16]), (5, [2; 16])];
        let hello = Hello { saved }.write(&job);
        let members = |hello: Vec<u8>| {
            let id = PartyId::client(1);
            let member = |hello| {
                let session = undertone_party::SessionId([0; 32]);
                Entry::new(session, "test", id, [[9; 32]], hello, None).unwrap()
            };
            vec![member(hello.clone()), member(hello.clone()), member(hello)]
        };
        let all = Hello::all(&job, &members(hello.clone())).unwrap();
        assert!(Hello::have(&all, &(5, [2; 16])) && !Hello::have(&all, &(5, [1; 16])));
        let changes: [fn(&mut Vec<u8>); 4] = [
            |hello| hello[32] = 3,
            |hello| hello.truncate(40),
            |hello| hello.push(0),
            Vec::clear,
        ];
        for change in changes {
            let mut hello = hello.clone();
            change(&mut hello);
            let abort = Hello::all(&job, &members(hello)).unwrap_err();
            assert_eq!(abort.culprit(), Some(PartyId::client(1)));
        }
    }
}
