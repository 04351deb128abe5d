//! What the parties keep between the sessions of a job.

use std::fmt;

use undertone_kernel::{Prg, Wiped};
use undertone_party::{DecodeError, PartyId, Reader, SessionId, Writer};
use zeroize::Zeroizing;

use crate::groups::{Counted, draw};
use crate::job::{Job, Sampling};
use crate::messages::{MAX_CLIENTS, read_groups, write_groups};

/// What the census found: the same for all parties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Census {
    /// The session of the census. It names the job.
    pub session: SessionId,
    /// All clients of the job, in ascending order.
    pub clients: Vec<Counted>,
    /// Their groups. With free sampling there are none.
    pub groups: Vec<Vec<PartyId>>,
}

impl Census {
    /// Clients with labels among `members`.
    pub(crate) fn labelled<'a>(
        &'a self,
        members: &'a [PartyId],
    ) -> impl Iterator<Item = &'a Counted> {
        let labelled = self.clients.iter().filter(|client| client.labelled > 0);
        labelled.filter(|client| members.binary_search(&client.id).is_ok())
    }

    fn write(&self, w: &mut Writer) {
        w.raw(&self.session.0);
        w.u32(self.clients.len() as u32);
        for client in &self.clients {
            w.u32(client.id.to_wire());
            w.u32(client.rows);
            w.u32(client.labelled);
        }
        let groups = write_groups(&self.groups);
        w.u32(groups.len() as u32);
        w.raw(&groups);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let session = SessionId(r.array("session of the census")?);
        let count = r.index(MAX_CLIENTS + 1, "number of clients")?;
        let mut clients = Vec::new();
        for _ in 0..count {
            clients.push(Counted {
                id: PartyId::from_wire(r.u32("client")?),
                rows: r.u32("rows")?,
                labelled: r.u32("labelled rows")?,
            });
        }
        let len = r.u32("length of the groups")? as usize;
        Ok(Self {
            session,
            clients,
            groups: read_groups(r.raw(len, "groups")?)?,
        })
    }
}

/// What a client keeps of a census, in its record.
pub(crate) struct Kept {
    /// What the census found.
    pub(crate) census: Census,
    /// The number of labelled rows of each class over all clients. Empty with groups.
    pub(crate) counts: Wiped<u32>,
}

impl Kept {
    /// In bytes.
    pub(crate) fn write(&self) -> Zeroizing<Vec<u8>> {
        let mut w = Writer::default();
        self.census.write(&mut w);
        w.u32(self.counts.len() as u32);
        for count in self.counts.iter() {
            w.u32(*count);
        }
        Zeroizing::new(w.finish())
    }

    /// Reads what [`write`](Self::write) writes, of the census in `session`.
    pub(crate) fn read(session: SessionId, bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let census = Census::read(&mut r)?;
        if census.session != session {
            return Err(DecodeError::Invalid {
                what: "session of the census",
                why: "it is another one",
            });
        }
        let classes = r.index((1 << 16) + 1, "number of classes")?;
        let mut counts = Wiped::with_capacity(classes.min(r.remaining() / 4));
        for _ in 0..classes {
            counts.push(r.u32("class count")?);
        }
        r.finish()?;
        Ok(Self { census, counts })
    }
}

/// A finished round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The number of the round.
    pub number: u32,
    /// The clients whose updates are in the model.
    pub contributors: Vec<PartyId>,
}

/// The server's state between sessions.
#[derive(Clone, PartialEq)]
pub struct State {
    /// What the census found, once it is taken.
    pub census: Option<Census>,
    /// The last round begun. The next one has the next number, whether or not this one was
    /// finished: the same model is never sent to two sets of clients.
    pub begun: u32,
    /// The rounds finished so far.
    pub taken: Vec<Taken>,
    /// The model.
    pub model: Vec<f32>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "State(round {}, {} parameters)",
            self.begun,
            self.model.len()
        )
    }
}

impl State {
    /// The state before the census.
    pub fn new(model: Vec<f32>) -> Self {
        Self {
            census: None,
            begun: 0,
            taken: Vec::new(),
            model,
        }
    }

    /// Whether all rounds of `job` are over.
    pub fn is_over(&self, job: &Job) -> bool {
        self.begun >= job.last()
    }

    /// The longest encoding for `job`, in bytes.
    pub fn max_bytes(job: &Job) -> usize {
        let rounds = job.last() as usize + 1;
        // The last group of a round may exceed the sample, and has at most 2·least - 1 clients.
        let most = match job.sampling {
            Sampling::Groups(least) => job.sampled + 2 * least,
            Sampling::Free => job.sampled,
        };
        4 * job.parameters + (64 << 20) + rounds.saturating_mul(4 * (2 + most))
    }

    /// The state in bytes.
    pub fn write(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u8(self.census.is_some().into());
        if let Some(census) = &self.census {
            census.write(&mut w);
        }
        w.u32(self.begun);
        w.u32(self.taken.len() as u32);
        for taken in &self.taken {
            w.u32(taken.number);
            w.u32(taken.contributors.len() as u32);
            for who in &taken.contributors {
                w.u32(who.to_wire());
            }
        }
        w.u64(self.model.len() as u64);
        for value in &self.model {
            w.u32(value.to_bits());
        }
        w.finish()
    }

    /// Reads what [`write`](Self::write) writes, for `job`.
    ///
    /// # Errors
    /// What is wrong.
    pub fn read(bytes: &[u8], job: &Job) -> Result<Self, String> {
        let read = || -> Result<Self, DecodeError> {
            let mut r = Reader::new(bytes);
            let census = if r.flag("whether there is a census")? {
                Some(Census::read(&mut r)?)
            } else {
                None
            };
            let begun = r.u32("last round")?;
            let count = r.u32("number of rounds")?;
            let mut taken = Vec::new();
            for _ in 0..count {
                let number = r.u32("number of a round")?;
                let members = r.index(MAX_CLIENTS + 1, "number of contributors")?;
                let mut contributors = Vec::new();
                for _ in 0..members {
                    contributors.push(PartyId::from_wire(r.u32("contributor")?));
                }
                taken.push(Taken {
                    number,
                    contributors,
                });
            }
            let parameters = r.u64("number of parameters")?;
            let mut model = Vec::new();
            for _ in 0..parameters {
                model.push(f32::from_bits(r.u32("parameter")?));
            }
            r.finish()?;
            Ok(Self {
                census,
                begun,
                taken,
                model,
            })
        };
        let state = read().map_err(|error| error.to_string())?;
        if state.model.len() != job.parameters {
            return Err(format!(
                "its model has {} parameters, that of the job {}",
                state.model.len(),
                job.parameters
            ));
        }
        Ok(state)
    }
}

/// The result of a session for the server.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// The job has begun.
    Counted(Census),
    /// A round is finished.
    Trained(Round),
    /// All clients have the final model.
    Over,
}

/// A finished round.
#[derive(Clone, PartialEq)]
pub struct Round {
    /// The round, and the clients whose updates are in the model.
    pub taken: Taken,
    /// The new model.
    pub model: Vec<f32>,
    /// A warning of label propagation, such as of clients with more rows than embeddings have
    /// values.
    pub warning: Option<String>,
}

impl fmt::Debug for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Round")
            .field("taken", &self.taken)
            .finish_non_exhaustive()
    }
}

impl State {
    /// The clients of the next session, of those that are `present`, in ascending order: all of
    /// them for the census and for the end of the job, a sample for a round. None when no whole
    /// group is present, or too few clients are.
    pub fn members(&self, job: &Job, present: &[PartyId], prg: &mut Prg) -> Vec<PartyId> {
        match &self.census {
            Some(census) if !self.is_over(job) => {
                let drawn = draw(job, &census.clients, &census.groups, present, prg);
                match job.sampling {
                    Sampling::Free if drawn.len() < job.propagation.min_clients => Vec::new(),
                    _ => drawn,
                }
            }
            _ => present.to_vec(),
        }
    }

    /// Begins the next session. The server must keep the state before it sends anything: a round
    /// that has begun never begins again, with whatever clients.
    pub fn begin(&mut self, job: &Job) {
        if self.census.is_some() && !self.is_over(job) {
            self.begun += 1;
        }
    }

    /// Takes the result of a session.
    pub fn take(&mut self, report: &Report) {
        match report {
            Report::Counted(census) => self.census = Some(census.clone()),
            Report::Trained(round) => {
                self.taken.push(round.taken.clone());
                self.model.clone_from(&round.model);
            }
            Report::Over => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_parties_keep_survives_a_restart() {
        let ids = [0, 1, 2].map(PartyId::client);
        let census = Census {
            session: SessionId([4; 32]),
            clients: ids
                .map(|id| Counted {
                    id,
                    rows: 5,
                    labelled: 1,
                })
                .to_vec(),
            groups: vec![ids.to_vec()],
        };
        let kept = Kept {
            census: census.clone(),
            counts: vec![7, 0].into(),
        };
        let whole = kept.write();
        let read = Kept::read(census.session, &whole).unwrap();
        assert_eq!((read.census, &read.counts[..]), (kept.census, &[7, 0][..]));
        assert!(Kept::read(SessionId([5; 32]), &whole).is_err());
        let state = State {
            census: Some(census.clone()),
            begun: 3,
            taken: vec![Taken {
                number: 2,
                contributors: ids.to_vec(),
            }],
            model: vec![1.5, -0.0],
        };
        let job = Job {
            parameters: 2,
            ..Job::default()
        };
        let bytes = state.write();
        assert_eq!(State::read(&bytes, &job), Ok(state));
        for len in 0..bytes.len() {
            assert!(State::read(&bytes[..len], &job).is_err(), "{len} bytes");
        }
        for len in 0..whole.len() {
            assert!(
                Kept::read(census.session, &whole[..len]).is_err(),
                "{len} bytes"
            );
        }
        let error = State::read(&bytes, &Job::default()).unwrap_err();
        assert!(error.contains("2 parameters"), "{error}");
    }
}
