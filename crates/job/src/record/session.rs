//! The claims of a session.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};
use undertone_kdf::Seed;
use undertone_party::{Abort, PartyId, SessionId};

use super::claim::{Claim, Refusal};
use super::rules::Ask;
use super::state::{Kept, State, Sum, Who};
use super::store::Record;

/// A client, as its roster has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its public key, or the digest of its certificate.
    pub key: [u8; 32],
    /// Its name, or nothing.
    pub name: String,
}

/// The clients of a client's own roster, by their numbers in its sessions.
pub type Peers = BTreeMap<PartyId, Peer>;

/// A session, and the seed from which a client draws in it.
#[derive(Debug)]
pub struct Place<'a> {
    /// The session.
    pub session: SessionId,
    /// The client's own randomness in it.
    pub seed: &'a Seed,
    /// The digest of the job.
    pub job: [u8; 32],
}

/// A session of a client, which claims what it answers.
#[derive(Clone)]
pub struct Session {
    record: Record,
    pub(super) session: SessionId,
    /// A digest of the seed.
    pub(super) seed: [u8; 32],
    pub(super) job: [u8; 32],
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:?}, ..)", self.record)
    }
}

impl Record {
    /// Session `place`, whose claims this record judges.
    pub fn session(&self, place: &Place<'_>) -> Session {
        let seed = Sha256::new()
            .chain_update(b"undertone/v1/record seed")
            .chain_update(place.seed.expose());
        Session {
            record: self.clone(),
            session: place.session,
            seed: seed.finalize().into(),
            job: place.job,
        }
    }
}

impl Session {
    /// Claims an answer. The claim is on the disk when this returns, and then the message that
    /// depends on it may leave. The same claim of the same session with the same seed is no other
    /// claim.
    ///
    /// # Errors
    /// A [`Refusal`]. The record is then as before.
    pub fn claim(&self, claim: Claim) -> Result<(), Refusal> {
        self.record.claim(self, claim)
    }

    /// Checks a claim without making it.
    ///
    /// # Errors
    /// As for [`claim`](Self::claim).
    pub fn check(&self, claim: Claim) -> Result<(), Refusal> {
        self.record.check(self, claim)
    }
}

impl State {
    /// A claim in terms of this record.
    pub(super) fn ask(&self, claim: Claim, who: impl Fn(&[PartyId]) -> Who) -> Ask {
        let values = |digest: &[u8; 32]| self.tag("values", digest);
        Ask::Note(match claim {
            Claim::Label(clients) => Kept::Label { who: who(&clients) },
            Claim::OpenLabels(clients) => Kept::Opened {
                of: Sum::Labels,
                who: who(&clients),
            },
            Claim::OpenScale(clients) => Kept::Opened {
                of: Sum::Scale,
                who: who(&clients),
            },
            Claim::Send(digest) => Kept::Sent {
                values: values(&digest),
            },
            Claim::OpenValues(digest, clients) => Kept::Opened {
                of: Sum::Values(values(&digest)),
                who: who(&clients),
            },
            Claim::Census { me, counted, state } => Kept::Census {
                me: me.to_wire(),
                who: counted.map(|clients| who(&clients)),
                state: state.to_vec(),
                last: 0,
                round: None,
            },
            Claim::Round { census, me, number } => {
                return Ask::Round {
                    census: census.0,
                    me: me.to_wire(),
                    number,
                };
            }
            Claim::Vote(number) => Kept::Vote { number },
            Claim::Pairs => Kept::Pairs,
            Claim::Graph { clients, run } => Kept::Graph {
                who: who(&clients),
                run: run.map(|run| self.tag("run", &*run)),
            },
        })
    }
}

/// Who answers for a protocol of one session, such as label propagation.
#[derive(Debug, Clone)]
pub enum Answering {
    /// The protocol claims in the record of its client.
    Record(Record),
    /// Whoever runs the protocol has claimed it, for these contributors or for any.
    Made(Option<Vec<PartyId>>),
}

impl From<Record> for Answering {
    fn from(record: Record) -> Self {
        Self::Record(record)
    }
}

impl Answering {
    /// Who answers in session `place` for a sum of this.
    pub fn in_session(&self, place: &Place<'_>, of: Of) -> Claims {
        match self {
            Self::Record(record) => Claims::Record(record.session(place), of),
            Self::Made(only) => Claims::Made(only.clone()),
        }
    }
}

/// What a sum is of.
#[derive(Debug, Clone)]
pub enum Of {
    /// Labels, in label propagation.
    Labels,
    /// Features, in scaling.
    Features,
    /// Values with this digest, once they are known.
    Values(Arc<OnceLock<[u8; 32]>>),
}

/// Who answers for a sum: for the words that leave, and for help with opening it.
#[derive(Debug, Clone)]
pub enum Claims {
    /// The sum claims in the record of its client.
    Record(Session, Of),
    /// Whoever runs the sum has claimed it, for these contributors or for any.
    Made(Option<Vec<PartyId>>),
}

impl Claims {
    /// It is known which clients take part, and nothing that depends on the client's rows has left.
    ///
    /// # Errors
    /// The record does not allow it, or the clients are not those for which it was claimed.
    pub fn beginning(&self, clients: &[PartyId]) -> Result<(), Abort> {
        match self {
            Self::Record(session, Of::Labels) => Ok(session.claim(Claim::Label(clients.to_vec()))?),
            Self::Record(session, Of::Features) => {
                Ok(session.check(Claim::OpenScale(clients.to_vec()))?)
            }
            Self::Record(_, Of::Values(_)) => Ok(()),
            Self::Made(_) => self.opening(clients),
        }
    }

    /// Masked words are about to leave.
    ///
    /// # Errors
    /// The record does not allow it.
    pub fn sending(&self) -> Result<(), Abort> {
        match self {
            Self::Record(session, Of::Values(digest)) => {
                Ok(session.claim(Claim::Send(known(digest)?))?)
            }
            Self::Record(..) | Self::Made(_) => Ok(()),
        }
    }

    /// A share that opens the sum of these contributors is about to leave.
    ///
    /// # Errors
    /// The record does not allow it, or the contributors are not those for which it was claimed.
    pub fn opening(&self, contributors: &[PartyId]) -> Result<(), Abort> {
        let clients = contributors.to_vec();
        match self {
            Self::Record(session, of) => Ok(session.claim(match of {
                Of::Labels => Claim::OpenLabels(clients),
                Of::Features => Claim::OpenScale(clients),
                Of::Values(digest) => Claim::OpenValues(known(digest)?, clients),
            })?),
            Self::Made(Some(only)) if *only != clients => Err(Abort::Misuse(
                "this client allows for one set of contributors, and these are others: the \
                 difference of two sums could reveal one client's values"
                    .into(),
            )),
            Self::Made(_) => Ok(()),
        }
    }
}

fn known(digest: &OnceLock<[u8; 32]>) -> Result<[u8; 32], Abort> {
    let missing = || Abort::Internal("values without a digest".into());
    digest.get().copied().ok_or_else(missing)
}
