//! What the server of a job keeps between sessions.

use undertone_party::{DecodeError, PartyId, Reader, Writer};

use crate::ballots::{Labels, labels_len, read_labels, write_labels};
use crate::job::{Job, MAX_CLIENTS};

/// A finished exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// Its number, from 1.
    pub number: u32,
    /// The clients whose votes were counted. If a helper dropped out, fewer were counted in its
    /// slice.
    pub contributors: Vec<PartyId>,
    /// The number of rows that have a consensus.
    pub covered: usize,
    /// The number of rows that lost their helper when it was too late for another. They have no
    /// consensus.
    pub lost: usize,
}

/// The result of a session for the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// An exchange is finished, with this consensus.
    Voted(Exchange, Labels),
    /// All clients have the last consensus.
    Over,
}

/// What the server keeps between sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// The number of exchanges begun.
    pub begun: u32,
    /// The last consensus.
    pub labels: Option<Labels>,
    /// The exchanges that succeeded.
    pub exchanges: Vec<Exchange>,
    /// Whether the last two consensuses are the same.
    pub settled: bool,
}

impl State {
    /// The state in bytes, for a checkpoint.
    pub fn write(&self, job: &Job) -> Vec<u8> {
        let mut w = Writer::default();
        w.u32(self.begun);
        w.u8(self.settled.into());
        w.u8(self.labels.is_some().into());
        if let Some(labels) = &self.labels {
            w.raw(&write_labels(labels, job.classes));
        }
        w.u32(self.exchanges.len() as u32);
        for exchange in &self.exchanges {
            w.u32(exchange.number);
            w.u64(exchange.covered as u64);
            w.u64(exchange.lost as u64);
            w.u32(exchange.contributors.len() as u32);
            for who in &exchange.contributors {
                w.u32(who.to_wire());
            }
        }
        w.finish()
    }

    /// Most bytes of a state of `job`.
    pub fn max_bytes(job: &Job) -> usize {
        10 + labels_len(job.rows, job.classes) + job.exchanges as usize * (24 + 4 * MAX_CLIENTS)
    }

    /// Reads what [`write`](Self::write) wrote for `job`.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn read(bytes: &[u8], job: &Job) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let invalid = |what| DecodeError::Invalid {
            what,
            why: "it is not of this job",
        };
        let mut state = Self {
            begun: r.u32("exchanges begun")?,
            settled: r.u8("whether the consensus has repeated")? == 1,
            ..Self::default()
        };
        if r.u8("whether there is a consensus")? == 1 {
            let bytes = r.raw(labels_len(job.rows, job.classes), "consensus")?;
            let labels = read_labels(bytes, job.rows, job.classes);
            state.labels = Some(labels.ok_or_else(|| invalid("consensus"))?);
        }
        let count = r.index(job.exchanges as usize + 1, "number of exchanges")?;
        for _ in 0..count {
            let (number, covered) = (r.u32("number of the exchange")?, r.u64("covered rows")?);
            let lost = r.u64("lost rows")?;
            let clients = r.index(MAX_CLIENTS + 1, "number of contributors")?;
            let mut contributors = Vec::new();
            for _ in 0..clients {
                contributors.push(PartyId::from_wire(r.u32("contributor")?));
            }
            state.exchanges.push(Exchange {
                number,
                contributors,
                covered: covered as usize,
                lost: lost as usize,
            });
        }
        r.finish()?;
        Ok(state)
    }

    /// Whether no exchange is left: the consensus has repeated, or the job allows no more.
    pub fn is_over(&self, job: &Job) -> bool {
        self.settled || self.begun >= job.exchanges
    }

    /// Begins the next session. The server keeps the state before it sends anything.
    pub fn begin(&mut self, job: &Job) {
        if !self.is_over(job) {
            self.begun += 1;
        }
    }

    /// Takes the result of a session.
    pub fn take(&mut self, report: &Report) {
        if let Report::Voted(exchange, labels) = report {
            self.settled = self.labels.as_ref() == Some(labels);
            self.labels = Some(labels.clone());
            self.exchanges.push(exchange.clone());
        }
    }
}
