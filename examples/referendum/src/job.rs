//! The parameters of a referendum.

use serde::{Deserialize, Serialize};
use undertone::job::{Entries, Fault, Fields, Job as _, Known, context, settle};
use undertone::party::SessionId;
use undertone::sum::{Audience, Rules, Trust};

/// The parameters of a referendum.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The question.
    pub question: String,
    /// Fewest answers.
    pub min_clients: usize,
    /// Whether the sum withstands a server that lies. Every client then needs a key. Default:
    /// whether all clients of the roster have keys.
    #[serde(rename = "malicious_server", with = "settle::flag")]
    pub trust: Trust,
}

impl undertone::job::Job for Job {
    const NAME: &'static str = "referendum";
    const STATED: &'static [&'static str] = &["question"];
    const DERIVED: &'static [&'static str] = &["malicious_server"];

    fn usual() -> Self {
        Self {
            question: String::new(),
            min_clients: 3,
            trust: Trust::SemiHonest,
        }
    }

    fn derive(all: &mut Entries, known: Known<'_>) -> Result<(), Fault> {
        all.entry("malicious_server".to_owned())
            .or_insert(known.signed.into());
        Ok(())
    }

    fn check(&self) -> Result<(), Fault> {
        if self.question.trim().is_empty() {
            return Err(Fault::of("question", "is empty"));
        }
        if self.min_clients < 2 {
            let why = format!("is {}; it must be 2 or more", self.min_clients);
            return Err(Fault::of("min_clients", why));
        }
        Ok(())
    }

    fn min_clients(&self) -> usize {
        self.min_clients
    }

    fn malicious_server(&self) -> bool {
        self.trust.into()
    }
}

impl Job {
    /// What a client answers once: the question alone. Neither another answer nor a job with other
    /// parameters makes it another one. Two tallies of one question, with a client and without it,
    /// would tell that client's answer.
    pub(crate) fn once(&self) -> [u8; 32] {
        Fields::from([("question", self.question.trim().into())]).digest(Self::NAME)
    }

    /// The rules of the sum: one word of each client.
    pub(crate) fn rules(&self, session: SessionId) -> Rules {
        Rules {
            min_clients: self.min_clients,
            trust: self.trust,
            audience: Audience::Everybody,
            ..Rules::plain(context(session, &self.digest(), b""), 1)
        }
    }
}
