//! What clients claim, and what owners can allow.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use undertone_party::{Abort, PartyId, SessionId};
use zeroize::Zeroizing;

use super::TOLD;

/// What a client claims before it answers.
#[derive(Clone, PartialEq, Eq)]
pub enum Claim {
    /// Distances of its rows leave, for label propagation among these clients.
    Label(Vec<PartyId>),
    /// It helps to open a sum of its labels over these clients.
    OpenLabels(Vec<PartyId>),
    /// It helps to open a sum of its features over these clients.
    OpenScale(Vec<PartyId>),
    /// Masked values leave. Their digest.
    Send([u8; 32]),
    /// It helps to open a sum of these values over these clients.
    OpenValues([u8; 32], Vec<PartyId>),
    /// It takes part in a census of training.
    Census {
        /// This client.
        me: PartyId,
        /// The clients whose labels are counted together, if they are.
        counted: Option<Vec<PartyId>>,
        /// What the client keeps of the census. Empty until it has it.
        state: Zeroizing<Vec<u8>>,
    },
    /// It takes part in round `number` after the census of this session.
    Round {
        /// The session of the census.
        census: SessionId,
        /// This client.
        me: PartyId,
        /// The number of the round, from 1.
        number: u32,
    },
    /// It votes in the exchange with this number, from 1.
    Vote(u32),
    /// It builds a graph with each other client.
    Pairs,
    /// Features leave, or a vote. `run` is the seed that names the run, once training begins.
    Graph {
        /// The clients.
        clients: Vec<PartyId>,
        /// The seed, or none before training.
        run: Option<Zeroizing<[u8; 32]>>,
    },
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Label(_) => "Label(..)",
            Self::OpenLabels(_) => "OpenLabels(..)",
            Self::OpenScale(_) => "OpenScale(..)",
            Self::Send(_) => "Send(..)",
            Self::OpenValues(..) => "OpenValues(..)",
            Self::Census { .. } => "Census(..)",
            Self::Round { number, .. } => return write!(f, "Round({number})"),
            Self::Vote(number) => return write!(f, "Vote({number})"),
            Self::Pairs => "Pairs",
            Self::Graph { .. } => "Graph(..)",
        })
    }
}

/// What an owner can allow once.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// One more session of label propagation.
    Session,
    /// Label propagation or scaling among other clients.
    Contributors,
    /// Values that were sent before.
    Values,
    /// A new job of training or co-training.
    NewJob,
    /// Another graph over the same rows.
    Again,
    /// Rows of which the record knows none.
    Rows,
}

impl What {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Session,
        Self::Contributors,
        Self::Values,
        Self::NewJob,
        Self::Again,
        Self::Rows,
    ];

    /// Its name in the command.
    pub fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Contributors => "contributors",
            Self::Values => "values",
            Self::NewJob => "new-job",
            Self::Again => "again",
            Self::Rows => "rows",
        }
    }
}

impl What {
    /// What it is, in a few words.
    pub fn about(self) -> &'static str {
        match self {
            Self::Session => "One more session of label propagation",
            Self::Contributors => "Sums of labels or features among other clients",
            Self::Values => "Values that were sent before",
            Self::NewJob => "A new job of training or co-training",
            Self::Again => "Another graph over the same rows: pssl, fedgraph",
            Self::Rows => "Rows of which the record knows none, or that another record knows",
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for What {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|what| what.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("{name:?} is not one of {names}")
        })
    }
}

/// Why a record does not allow an answer, for the owner. Peers read [`TOLD`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Refusal {
    pub(super) why: String,
    pub(super) what: Option<What>,
}

impl Refusal {
    pub(super) fn new(why: impl Into<String>) -> Self {
        let why = why.into();
        Self { why, what: None }
    }

    /// What the owner can allow so that the claim is accepted, if anything.
    pub fn what(&self) -> Option<What> {
        self.what
    }
}

impl From<Refusal> for Abort {
    fn from(_: Refusal) -> Self {
        Self::Misuse(TOLD.into())
    }
}
