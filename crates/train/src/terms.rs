//! What a client agrees to.

use serde::{Deserialize, Serialize};
use undertone_job::Fault;
use undertone_job::terms::{self, Insist};
use undertone_label::PropagationTerms;
use undertone_sum::SamplingTerms;

use crate::job::{Job, PseudoLabels};

/// What a client agrees to in training, whatever the server asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// Fewest clients of a round.
    pub min_clients: usize,
    /// Whether sums must withstand a server that cheats: if all clients of the roster have keys
    /// (`"signed"`), always or never.
    pub malicious_server: Insist,
    /// Groups of clients.
    #[serde(flatten)]
    pub sampling: SamplingTerms,
    /// Most rounds. Every round shows the server more of the embeddings.
    pub max_rounds: u32,
    /// Most passes over the rows in one round: time that the server makes this client spend.
    pub max_epochs: u32,
    /// Terms of label propagation. What is hashed there are embeddings.
    #[serde(flatten)]
    pub propagation: PropagationTerms,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            min_clients: 3,
            malicious_server: Insist::Signed,
            sampling: SamplingTerms::default(),
            max_rounds: 1000,
            max_epochs: 100,
            propagation: PropagationTerms::default(),
        }
    }
}

impl undertone_job::Terms<Job> for Terms {
    fn anything() -> Self {
        Self {
            min_clients: 0,
            malicious_server: Insist::Never,
            sampling: SamplingTerms::anything(),
            max_rounds: u32::MAX,
            max_epochs: u32::MAX,
            propagation: PropagationTerms::anything(),
        }
    }

    fn min_clients(&self) -> usize {
        self.min_clients
    }

    fn malicious_server(&self) -> Insist {
        self.malicious_server
    }

    fn check(&self, job: &Job) -> Result<(), Fault> {
        self.sampling.check(job.sampling, "updates")?;
        terms::rounds(job.last(), self.max_rounds, "rounds")?;
        if job.epochs > self.max_epochs {
            let why = format!(
                "the job has {} epochs in a round, this client agrees to {}",
                job.epochs, self.max_epochs
            );
            return Err(Fault::of("max_epochs", why));
        }
        match job.pseudo {
            PseudoLabels::Joint => self.propagation.check(&job.propagation),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use undertone_job::settle;
    use undertone_job::terms::meets;
    use undertone_sum::Sampling;

    use super::*;

    #[test]
    fn each_term_is_asked_for() {
        let usual = Terms::default();
        let refused = |change: fn(&mut Job), key: &str| {
            let mut job = Job::default();
            change(&mut job);
            let fault = meets(&usual, &job, false).unwrap_err();
            assert_eq!(fault.key, key, "{fault}");
            let anything = <Terms as undertone_job::Terms<Job>>::anything();
            assert_eq!(meets(&anything, &job, true), Ok(()));
        };
        assert_eq!(meets(&usual, &Job::default(), false), Ok(()));
        refused(|job| job.sampling = Sampling::Free, "allow_free_sampling");
        refused(|job| job.sampling = Sampling::Groups(4), "groups_at_least");
        refused(|job| job.rounds = 981, "max_rounds");
        refused(|job| job.epochs = 101, "max_epochs");
        refused(|job| job.propagation.min_clients = 2, "min_clients");
        refused(|job| job.propagation.bits = 20_000, "max_bits");
        let fault = meets(&usual, &Job::default(), true).unwrap_err();
        assert_eq!(fault.key, "malicious_server");
        // Without label propagation across clients its terms do not count.
        let local = Job {
            pseudo: PseudoLabels::Local,
            propagation: undertone_label::Params {
                bits: 20_000,
                ..Job::default().propagation
            },
            ..Job::default()
        };
        assert_eq!(meets(&usual, &local, false), Ok(()));
    }

    /// The keys of label propagation stand among the others, and other keys are refused.
    #[test]
    fn terms_are_read_key_by_key() {
        let read = |text: &str| terms::terms::<Job, Terms>(settle::parse(text).unwrap());
        let terms = read("max_epochs = 3\nbackends = \"lwe, phe\"\nmax_peer_rows = \"features\"");
        let terms = terms.unwrap();
        assert_eq!((terms.max_epochs, terms.propagation.backends.len()), (3, 2));
        assert_eq!(read("").unwrap(), Terms::default());
        for (wrong, key) in [
            ("max_epoch = 3", "max_epoch"),
            ("backends = \"plain\"", "backends"),
            ("max_bits = \"many\"", "max_bits"),
            ("propagation = 3", "propagation"),
        ] {
            assert_eq!(read(wrong).unwrap_err().key, key);
        }
    }
}
