//! What a client agrees to.

use serde::{Deserialize, Serialize};
use undertone_job::terms::{self, Insist};
use undertone_job::{Fault, settle};

use crate::job::{Job, Votes};

/// What a client agrees to in co-training, whatever the server asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// Fewest clients of an exchange.
    pub min_clients: usize,
    /// Whether sums must withstand a server that cheats: if all clients of the roster have keys
    /// (`"signed"`), always or never.
    pub malicious_server: Insist,
    /// The most that the server may see of the votes: `winners`, `counts` or `clear`.
    #[serde(with = "settle::text")]
    pub votes: Votes,
    /// Whether a consensus may tell all votes, because its quorum is all clients.
    pub allow_unanimous: bool,
    /// Most exchanges. Each tells more about the client's rows.
    pub max_rounds: u32,
    /// Largest ε of a vote over the whole job. With `inf` jobs need no noise.
    #[serde(with = "settle::limit")]
    pub max_epsilon: f64,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            min_clients: 3,
            malicious_server: Insist::Signed,
            votes: Votes::Winners,
            allow_unanimous: false,
            max_rounds: 1000,
            max_epsilon: f64::INFINITY,
        }
    }
}

impl undertone_job::Terms<Job> for Terms {
    fn anything() -> Self {
        Self {
            min_clients: 0,
            malicious_server: Insist::Never,
            votes: Votes::Clear,
            allow_unanimous: true,
            max_rounds: u32::MAX,
            max_epsilon: f64::INFINITY,
        }
    }

    fn min_clients(&self) -> usize {
        self.min_clients
    }

    fn malicious_server(&self) -> Insist {
        self.malicious_server
    }

    fn check(&self, job: &Job) -> Result<(), Fault> {
        let shown = |votes| Votes::ALL.iter().rposition(|other| *other == votes);
        if shown(job.votes) < shown(self.votes) {
            let why = format!(
                "the job shows the server {} of the votes, this client allows {}",
                job.votes, self.votes
            );
            return Err(Fault::of("votes", why));
        }
        let epsilon = job.noise.per_record(1, job.exchanges);
        // What is no number allows nothing.
        let is_low = epsilon.is_some_and(|epsilon| epsilon <= self.max_epsilon);
        if self.max_epsilon != f64::INFINITY && !is_low {
            let epsilon = epsilon.map_or("no noise".into(), |e| format!("epsilon {e:.3}"));
            let why = format!(
                "a vote has {epsilon} over {} exchanges, this client asks for {} at most",
                job.exchanges, self.max_epsilon
            );
            return Err(Fault::of("max_epsilon", why));
        }
        terms::rounds(job.exchanges, self.max_rounds, "exchanges")
    }
}

#[cfg(test)]
mod tests {
    use undertone_job::terms::meets;

    use super::*;
    use crate::{Consensus, Noise};

    #[test]
    fn each_term_is_asked_for() {
        let job = || Job::new(20, 3, 2, [1; 32]);
        let refused = |terms: &Terms, change: fn(&mut Job), key: &str| {
            let mut job = job();
            change(&mut job);
            assert_eq!(meets(terms, &job, false).unwrap_err().key, key);
            let anything = <Terms as undertone_job::Terms<Job>>::anything();
            assert_eq!(meets(&anything, &job, true), Ok(()));
        };
        let usual = Terms::default();
        assert_eq!(meets(&usual, &job(), false), Ok(()));
        refused(&usual, |job| job.votes = Votes::Counts, "votes");
        refused(&usual, |job| job.votes = Votes::Clear, "votes");
        refused(&usual, |job| job.min_clients = 2, "min_clients");
        refused(&usual, |job| job.exchanges = 1001, "max_rounds");
        let fault = meets(&usual, &job(), true).unwrap_err();
        assert_eq!(fault.key, "malicious_server");
        let noisy = Terms {
            max_epsilon: 20.0,
            ..Terms::default()
        };
        let none = Terms {
            max_epsilon: f64::NAN,
            ..Terms::default()
        };
        refused(&none, |_| (), "max_epsilon");
        refused(&noisy, |_| (), "max_epsilon");
        refused(
            &noisy,
            |job| job.noise = Noise::Krr { epsilon: 2.5 },
            "max_epsilon",
        );
        let job = Job {
            noise: Noise::Krr { epsilon: 2.0 },
            consensus: Consensus::Majority,
            ..job()
        };
        assert_eq!(meets(&noisy, &job, false), Ok(()));
    }

    #[test]
    fn a_limit_may_be_infinite() {
        let read = |text: &str| terms::terms::<Job, Terms>(settle::parse(text).unwrap());
        assert_eq!(read("").unwrap(), Terms::default());
        assert_eq!(read("max_epsilon = \"inf\"").unwrap(), Terms::default());
        assert_eq!(read("max_epsilon = 2").unwrap().max_epsilon, 2.0);
        assert_eq!(read("max_epsilon = 0.5").unwrap().max_epsilon, 0.5);
        for wrong in ["\"none\"", "-1", "true"] {
            let fault = read(&format!("max_epsilon = {wrong}")).unwrap_err();
            assert_eq!(fault.key, "max_epsilon", "{wrong}");
        }
    }
}
