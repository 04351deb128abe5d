//! What a client keeps between the sessions of a job.

use undertone_party::{DecodeError, Reader, Writer};

use crate::job::Job;

/// Keeps a client's memory, so that it outlives the process.
pub type Keep = Box<dyn FnMut(&Memory) -> Result<(), String> + Send>;

/// The exchanges in which a client has voted. Every vote costs privacy, and a job allows a number
/// of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    job: Option<[u8; 32]>,
    /// The number of the last exchange in which the client voted.
    pub(crate) last: u32,
}

impl Memory {
    /// Whether it is of `job`, or of none.
    pub(crate) fn is_of(&self, job: &Job) -> bool {
        self.job.is_none_or(|digest| digest == job.digest())
    }

    /// Notes exchange `number` of `job`. Returns whether the client may vote in it.
    pub(crate) fn takes(&mut self, job: &Job, number: u32) -> bool {
        let is_next = number > self.last && number <= job.exchanges;
        self.job = Some(job.digest());
        self.last = self.last.max(number);
        is_next
    }

    /// As bytes.
    pub fn write(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.raw(b"UTCO\x01");
        w.u8(self.job.is_some().into());
        w.raw(&self.job.unwrap_or_default());
        w.u32(self.last);
        w.finish()
    }

    /// What [`write`](Self::write) wrote.
    ///
    /// # Errors
    /// [`DecodeError`]: the bytes are no memory.
    pub fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        if r.raw(5, "kind of file")? != b"UTCO\x01" {
            return Err(DecodeError::Invalid {
                what: "kind of file",
                why: "it is no memory of a co-training job",
            });
        }
        let has_job = match r.u8("whether there is a job")? {
            0 => false,
            1 => true,
            _ => {
                return Err(DecodeError::Invalid {
                    what: "whether there is a job",
                    why: "it must be 0 or 1",
                });
            }
        };
        let job = r.array("digest of the job")?;
        let memory = Self {
            job: has_job.then_some(job),
            last: r.u32("last exchange")?,
        };
        r.finish()?;
        Ok(memory)
    }
}
