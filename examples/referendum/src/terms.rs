//! What a voter agrees to.

use serde::{Deserialize, Serialize};
use undertone::job::Fault;
use undertone::job::terms::Insist;

use crate::Job;

/// What a voter agrees to, whatever the server asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// Fewest answers.
    pub min_clients: usize,
    /// Whether the sum must withstand a server that cheats.
    pub malicious_server: Insist,
    /// Longest question, in characters.
    pub max_length: usize,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            min_clients: 3,
            malicious_server: Insist::Signed,
            max_length: 200,
        }
    }
}

impl undertone::job::Terms<Job> for Terms {
    fn anything() -> Self {
        Self {
            min_clients: 0,
            malicious_server: Insist::Never,
            max_length: usize::MAX >> 1,
        }
    }

    fn min_clients(&self) -> usize {
        self.min_clients
    }

    fn malicious_server(&self) -> Insist {
        self.malicious_server
    }

    fn check(&self, job: &Job) -> Result<(), Fault> {
        let length = job.question.chars().count();
        if length > self.max_length {
            let why = format!(
                "the question has {length} characters, this client reads {}",
                self.max_length
            );
            return Err(Fault::of("max_length", why));
        }
        Ok(())
    }
}
