//! What a party of a session is given, and what it answers.

use std::sync::Arc;

use undertone_kdf::Seed;
use undertone_party::{Abort, PartyId, SessionId};
use undertone_setup::identity::Credentials;

use crate::Record;
use crate::record::Peers;
use crate::settle::{Fault, Job};

/// A party's place in a session.
#[derive(Debug)]
pub struct SessionContext {
    /// The session.
    pub id: SessionId,
    /// The party's id.
    pub me: PartyId,
    /// The party's randomness in this session.
    pub seed: Seed,
    /// Number of the job, from 1.
    pub job: u32,
    /// Number of the session in the job, from 0. A session that is repeated keeps its number.
    pub number: u32,
    /// With credentials a client signs its keys and checks all signatures. The server has none.
    pub credentials: Option<Credentials>,
    /// The clients of the party's own roster, if it has one. The record of a client compares
    /// clients by them.
    pub peers: Option<Arc<Peers>>,
    /// What a client has answered. The server has [none](Record::none).
    pub record: Record,
}

impl SessionContext {
    /// The place of `me` in the only session `id` of a job, without credentials, roster or record.
    pub fn new(id: SessionId, me: PartyId, seed: Seed) -> Self {
        Self {
            id,
            me,
            seed,
            job: 1,
            number: 0,
            credentials: None,
            peers: None,
            record: Record::none(),
        }
    }
}

/// Checks that a client can sign if the job needs that.
///
/// # Errors
/// [`Abort::Misuse`] when it cannot.
pub fn check_credentials<J: Job>(job: &J, at: &SessionContext) -> Result<(), Abort> {
    if job.malicious_server() && at.credentials.is_none() {
        return Err(Abort::Misuse(
            "a job against a malicious server needs clients with credentials".into(),
        ));
    }
    Ok(())
}

/// What follows a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Another session of the same job.
    Again,
    /// Nothing: the job is over.
    Done,
}

/// Why a client declines a job. It prints as the client itself reads it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{own}")]
pub struct Decline {
    told: String,
    own: String,
    term: Option<String>,
}

impl Decline {
    /// A reason that the server and all clients are told. It must not depend on the client's data.
    pub fn telling(why: impl ToString) -> Self {
        let why = why.to_string();
        Self {
            told: why.clone(),
            own: why,
            term: None,
        }
    }

    /// The reason `own`, which stays at this client. The others are told `told`.
    pub fn keeping(told: impl ToString, own: impl ToString) -> Self {
        Self {
            told: told.to_string(),
            own: own.to_string(),
            term: None,
        }
    }

    /// A job that does not meet the term whose key is that of `fault`. All are told.
    pub fn unmet(fault: Fault) -> Self {
        Self {
            term: Some(fault.key.clone()),
            ..Self::telling(format!("{} (term {})", fault.why, fault.key))
        }
    }

    /// The key of the term that the job does not meet, if it is a term.
    pub fn term(&self) -> Option<&str> {
        self.term.as_deref()
    }

    /// The part that the server and all clients are told.
    pub fn told(&self) -> &str {
        match &self.told[..] {
            "" => "it gives no reason",
            told => told,
        }
    }
}

/// Why a client takes no part in a session.
#[derive(Debug)]
pub enum Unwilling {
    /// It takes no part in this session and waits for the next one. The server and the other
    /// clients are told why.
    Skips(String),
    /// It leaves the job.
    Leaves(Abort),
}

impl From<Abort> for Unwilling {
    fn from(cause: Abort) -> Self {
        Self::Leaves(cause)
    }
}
