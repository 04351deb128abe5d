//! What a party keeps, so that a run can continue with the same clients.

use std::fmt;

use sha2::{Digest, Sha256};
use undertone_job::Job as _;
use undertone_kdf::Seed;
use undertone_kernel::Wiped;
use undertone_party::{Abort, DecodeError, PartyId, Reader, Writer};
use zeroize::Zeroizing;

use crate::adam::Adam;
use crate::job::{Job, MAX_CLIENTS};
use crate::network::Learner;

/// Most checkpoints that a client can continue from.
pub(crate) const MAX_SAVED: usize = 2;

const KIND: &[u8; 5] = b"UTFG\x01";
/// The step in a checkpoint of a client that has not begun: it waits until all clients have one.
pub(crate) const PREPARED: u32 = u32::MAX;
/// Most weights of a network.
pub(crate) const MAX_WEIGHTS: usize = 1 << 24;
/// Most bytes of a checkpoint.
pub const MAX_CHECKPOINT: usize = 24 * MAX_WEIGHTS + (1 << 12);

/// The state of a party after a step: the clients, the secret of all clients, and the weights that
/// the party has.
///
/// A checkpoint of a client has the secret that puts rows into clusters. With it and the sums of
/// the first layer the server would learn embeddings.
#[derive(Clone, PartialEq)]
pub struct Checkpoint {
    pub(crate) job: [u8; 32],
    pub(crate) members: Vec<PartyId>,
    /// The digest of what the clients said about their features and labels.
    features: [u8; 32],
    seed: Zeroizing<[u8; 32]>,
    pub(crate) step: u32,
    pub(crate) weights: Wiped<f64>,
    pub(crate) adam: Adam,
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Checkpoint(step {}, {} clients, ..)",
            self.step,
            self.members.len()
        )
    }
}

/// The number of steps taken, of the step in a checkpoint.
pub(crate) fn steps(step: u32) -> u32 {
    if step == PREPARED { 0 } else { step }
}

impl Checkpoint {
    pub(crate) fn new(
        job: &Job,
        members: &[PartyId],
        features: [u8; 32],
        seed: &Seed,
        (step, learner): (u32, &Learner),
    ) -> Self {
        Self {
            job: job.digest(),
            members: members.to_vec(),
            features,
            seed: Zeroizing::new(*seed.expose()),
            step,
            weights: learner.flat(),
            adam: learner.adam.clone(),
        }
    }

    /// FEDGRAPH-15: a run continues with the features and labels that it began with. Other
    /// features make other neighbours, and a mean with and without one of them shows what it adds.
    pub(crate) fn check_features(&self, features: [u8; 32]) -> Result<(), Abort> {
        if self.features == features {
            return Ok(());
        }
        Err(Abort::Misuse(
            "the columns or labels of some client are not those that the run began with; it \
             continues with the same data only"
                .into(),
        ))
    }

    /// The number of steps taken.
    pub fn step(&self) -> u32 {
        steps(self.step)
    }

    /// Whether the party may have contributed to the training. A client that has not begun may
    /// start anew.
    pub fn is_begun(&self) -> bool {
        self.step != PREPARED
    }

    /// The clients of the run.
    pub fn members(&self) -> &[PartyId] {
        &self.members
    }

    /// The secret from which clusters and first weights follow. A server's is its own.
    pub fn seed(&self) -> Seed {
        Seed::from_bytes(*self.seed)
    }

    /// The weights that the party has: W₁ W₂ W₃ b V₁ V₂ V₃ c O p, as far as the cut gives it them.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// By this digest clients compare their checkpoints, whether they have begun or not.
    pub(crate) fn digest(&self) -> [u8; 16] {
        let mut out = [0; 16];
        let bytes = Zeroizing::new(self.write_at(self.step()));
        out.copy_from_slice(&Sha256::digest(&bytes[..])[..16]);
        out
    }

    /// Several checkpoints as bytes.
    pub fn write_all(saved: &[Self]) -> Vec<u8> {
        // No copy of the secret is left behind by a buffer that grows.
        let mut w = Writer::with_capacity(1 + saved.iter().map(|one| 4 + one.len()).sum::<usize>());
        w.u8(saved.len() as u8);
        for saved in saved {
            let bytes = Zeroizing::new(saved.write());
            w.u32(bytes.len() as u32);
            w.raw(&bytes);
        }
        w.finish()
    }

    /// What [`write_all`](Self::write_all) wrote: two checkpoints at most.
    ///
    /// # Errors
    /// [`DecodeError`]: the bytes are no checkpoints.
    pub fn read_all(bytes: &[u8]) -> Result<Vec<Self>, DecodeError> {
        let mut r = Reader::new(bytes);
        let count = usize::from(r.u8("number of checkpoints")?);
        if count > MAX_SAVED {
            return Err(DecodeError::Invalid {
                what: "number of checkpoints",
                why: "there are two at most",
            });
        }
        let mut saved = Vec::with_capacity(count);
        for _ in 0..count {
            let len = r.u32("length of a checkpoint")? as usize;
            saved.push(Self::read(r.raw(len, "checkpoint")?)?);
        }
        r.finish()?;
        Ok(saved)
    }

    /// As bytes.
    pub fn write(&self) -> Vec<u8> {
        self.write_at(self.step)
    }

    /// The number of bytes.
    fn len(&self) -> usize {
        129 + 4 * self.members.len() + 24 * self.weights.len()
    }

    fn write_at(&self, step: u32) -> Vec<u8> {
        let mut w = Writer::with_capacity(self.len());
        w.raw(KIND);
        w.raw(&self.job);
        w.u32(self.members.len() as u32);
        for member in &self.members {
            w.u32(member.to_wire());
        }
        w.raw(&self.features);
        w.raw(&*self.seed);
        w.u32(step);
        w.f64s(&self.adam.powers);
        w.u32(self.weights.len() as u32);
        w.f64s(&self.weights);
        w.f64s(&self.adam.moments[0]);
        w.f64s(&self.adam.moments[1]);
        w.finish()
    }

    /// What [`write`](Self::write) wrote.
    ///
    /// # Errors
    /// [`DecodeError`]: the bytes are no checkpoint.
    pub fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        let invalid = |what, why| Err(DecodeError::Invalid { what, why });
        let mut r = Reader::new(bytes);
        if r.raw(5, "kind of file")? != KIND {
            return invalid("kind of file", "it is no checkpoint of a graph network");
        }
        let job = r.array("digest of the job")?;
        let count = r.index(MAX_CLIENTS + 1, "number of clients")?;
        let mut members = Vec::with_capacity(count);
        for _ in 0..count {
            members.push(PartyId::from_wire(r.u32("client")?));
        }
        let features = r.array("digest of the features")?;
        let seed = Zeroizing::new(r.array("seed")?);
        let step = r.u32("step")?;
        let float = |r: &mut Reader<'_>, what| {
            let value = f64::from_le_bytes(r.array(what)?);
            let why = "it is not a finite number";
            let is_finite = value.is_finite();
            is_finite
                .then_some(value)
                .ok_or(DecodeError::Invalid { what, why })
        };
        let powers = [float(&mut r, "power")?, float(&mut r, "power")?];
        let count = r.index(MAX_WEIGHTS + 1, "number of weights")?;
        if r.remaining() != 24 * count {
            return invalid("number of weights", "the file has more or fewer");
        }
        let mut floats = |what| -> Result<Wiped<f64>, DecodeError> {
            let mut out = Wiped::with_capacity(count);
            for _ in 0..count {
                out.push(float(&mut r, what)?);
            }
            Ok(out)
        };
        let weights = floats("weight")?;
        let moments = [floats("moment")?, floats("moment")?];
        Ok(Self {
            job,
            members,
            features,
            seed,
            step,
            weights,
            adam: Adam { moments, powers },
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn checkpoint(step: u32) -> Checkpoint {
        let job = Job::new(3, 10, 2, 2);
        let seed = Seed::from_bytes([3; 32]);
        let learner = Learner::new(&job, 4, 0..2, &seed);
        let members = [0, 1, 2].map(PartyId::client);
        Checkpoint::new(&job, &members, [9; 32], &seed, (step, &learner))
    }

    #[test]
    fn checkpoints_come_back() {
        let checkpoint = checkpoint(7);
        let bytes = checkpoint.write();
        assert_eq!(Checkpoint::read(&bytes).unwrap(), checkpoint);
        assert_eq!(checkpoint.weights().len(), 2 * 64 * 64);
        let two = [checkpoint.clone(), checkpoint.clone()];
        let bytes = Checkpoint::write_all(&two);
        assert_eq!(Checkpoint::read_all(&bytes).unwrap(), two);
        let three = Checkpoint::write_all(&[two[0].clone(), two[0].clone(), checkpoint]);
        assert!(Checkpoint::read_all(&three).is_err());
        assert!(Checkpoint::read_all(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn other_files_are_refused() {
        let bytes = checkpoint(7).write();
        for cut in [0, 4, 40, bytes.len() - 1] {
            assert!(Checkpoint::read(&bytes[..cut]).is_err());
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(Checkpoint::read(&longer).is_err());
        let mut broken = bytes;
        let end = broken.len();
        broken[end - 8..].copy_from_slice(&f64::NAN.to_le_bytes());
        let error = Checkpoint::read(&broken).unwrap_err().to_string();
        assert!(error.contains("finite"), "{error}");
    }
}
